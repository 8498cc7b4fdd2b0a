/*
 * http/blocking_pool.h -- a few threads, each with its own database session, for handlers that block (lists, reports, jobs); and a second
 * pool for those that block for long (imports, exports).
 *
 * Order    that of arrival, but one key never has all threads: what it asks beyond that waits. A bounded number waits, of each key no
 *          more than its share (shares.h)
 */
#ifndef HTTP_BLOCKING_POOL_H
#define HTTP_BLOCKING_POOL_H

#include "http/request.h"

/* name: of the threads. */
struct blocking_pool *blocking_pool_start(struct worker *w, int threads, const char *name);
/* Finish what waits, then stop; later pushes are rejected. */
void blocking_pool_stop(struct blocking_pool *a);
/* After the last blocking_pool_push(). */
void blocking_pool_free(struct blocking_pool *a);

/* Queue r; then r->then runs, with r->session set. False: too many wait, and r is still the caller's. */
bool blocking_pool_push(struct blocking_pool *a, struct request *r);

#endif
