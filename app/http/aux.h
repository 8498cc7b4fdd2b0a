/*
 * http/aux.h -- a few threads, each with a door of its own to the database, for handlers that block: lists, reports, jobs;
 * and a few for those that block for long: imports, exports.
 */
#ifndef HTTP_AUX_H
#define HTTP_AUX_H

#include "http/request.h"

/* name: of the threads. */
struct aux *aux_start(struct worker *w, int threads, const char *name);
/* Finish what waits, then stop. */
void aux_stop(struct aux *a);

/* Run r->then with r->door set. False: too many wait; r is still the caller's. */
bool aux_push(struct aux *a, struct request *r);

/* Wait, at most 250 ms, until every view of what any worker had appended when this was called is written: a caller's own
 * finished calls are then in the lists. */
void aux_barrier(void);

#endif
