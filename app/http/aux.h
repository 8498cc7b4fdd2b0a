/*
 * http/aux.h -- a few threads, each with a door of its own to the database, for handlers that block: lists, reports, jobs;
 * and a few for those that block for long: imports, exports. Who waits for one: see turns.h.
 */
#ifndef HTTP_AUX_H
#define HTTP_AUX_H

#include "http/request.h"
#include "http/turns.h"

/* of_one_key: how many threads one key may have at a time; name: of the threads. */
struct aux *aux_start(struct worker *w, int threads, int of_one_key, const char *name);
/* Finish what waits, then stop; nothing is taken from then on. */
void aux_stop(struct aux *a);
/* After the last aux_push() and aux_answered(). */
void aux_free(struct aux *a);

/* Let r wait for its key's turn; then r->then runs, with r->door set. Not TURNS_WAITS: r is still the caller's. */
enum turns_answer aux_push(struct aux *a, struct request *r);
/* r is about to be answered, whether it was here or not: its key may send the next. */
void aux_answered(struct request *r);

/* Wait, at most 250 ms, until every view of what any worker had appended when this was called is written: a caller's own
 * finished calls are then in the lists. */
void aux_barrier(void);

#endif
