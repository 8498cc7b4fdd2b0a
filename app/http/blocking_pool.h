/*
 * http/blocking_pool.h -- a few threads, each with a session of its own to the database, for handlers that block: lists, reports, jobs;
 * and a few for those that block for long: imports, exports. Who waits for one: see fair_queue.h.
 */
#ifndef HTTP_BLOCKING_POOL_H
#define HTTP_BLOCKING_POOL_H

#include "http/fair_queue.h"
#include "http/request.h"

/* of_one_key: how many threads one key may have at a time; name: of the threads. */
struct blocking_pool *blocking_pool_start(struct worker *w, int threads, int of_one_key, const char *name);
/* Finish what waits, then stop; nothing is taken from then on. */
void blocking_pool_stop(struct blocking_pool *a);
/* After the last blocking_pool_push() and blocking_pool_answered(). */
void blocking_pool_free(struct blocking_pool *a);

/* Let r wait for its key's turn; then r->then runs, with r->session set. Not FAIR_QUEUE_WAITS: r is still the caller's. */
enum fair_queue_answer blocking_pool_push(struct blocking_pool *a, struct request *r);
/* r is about to be answered, whether it was here or not: its key may send the next. */
void blocking_pool_answered(struct request *r);

#endif
