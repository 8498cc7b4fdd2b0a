/*
 * base/latch.h -- one thread waits until others have finished a number of tasks.
 *
 * Threads  any may count down; the last one does not touch the latch once the waiting thread can continue
 */
#ifndef BASE_LATCH_H
#define BASE_LATCH_H

#include <pthread.h>
#include <stddef.h>

struct latch {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t count;
};

void latch_init(struct latch *l, size_t count);
/* One is done. */
void latch_down(struct latch *l);
/* Wait until all are done, and destroy the latch. */
void latch_wait(struct latch *l);

#endif
