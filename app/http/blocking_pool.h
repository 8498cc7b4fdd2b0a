/*
 * http/blocking_pool.h -- a few threads, each with its own database session, for handlers that block (lists, reports, jobs); and a second
 * pool for those that block for long (imports, exports). Who gets a thread next: fair_queue.h.
 */
#ifndef HTTP_BLOCKING_POOL_H
#define HTTP_BLOCKING_POOL_H

#include "http/fair_queue.h"
#include "http/request.h"

/* of_one_key: most threads that one key may use at a time; name: of the threads. */
struct blocking_pool *blocking_pool_start(struct worker *w, int threads, int of_one_key, const char *name);
/* Finish what waits, then stop; later pushes are rejected. */
void blocking_pool_stop(struct blocking_pool *a);
/* After the last blocking_pool_push() and blocking_pool_answered(). */
void blocking_pool_free(struct blocking_pool *a);

/* Queue r under its key; then r->then runs, with r->session set. Not FAIR_QUEUE_WAITS: r is still the caller's. */
enum fair_queue_answer blocking_pool_push(struct blocking_pool *a, struct request *r);
/* r is about to be answered, whether it was queued here or not: frees its place in its key's share. */
void blocking_pool_answered(struct request *r);

#endif
