/*
 * base/thread.h -- starts a thread that its process cannot do without; waits with a deadline, and for a number of tasks.
 *
 * Errors  none: without the thread the process logs why (process.no_thread) and aborts, and its master starts another
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

/* Run body(context) in a new thread. name: what ps and gdb show, at most 15 bytes. */
void thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name);

/* A condition for cond_wait_until(), and for pthread_cond_wait(). */
void cond_init(pthread_cond_t *c);
/* Wait, with the lock held, until c is signalled or until `until`. False: timed out. It may end early for no reason: check the condition
 * again. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, struct mono until);

/* One thread waits until others have finished `count` tasks. The last one does not touch the latch once that thread can continue. */
struct latch {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t count;
};
void latch_init(struct latch *l, size_t count);
/* One is done. Any thread. */
void latch_down(struct latch *l);
/* Wait until all are done, and destroy the latch. */
void latch_wait(struct latch *l);

#endif
