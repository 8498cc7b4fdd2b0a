/*
 * base/latch.h -- one thread waits until others have done so many things.
 *
 * Threads  any count down; the last of them does not touch the latch after the waiting thread may go on
 */
#ifndef BASE_LATCH_H
#define BASE_LATCH_H

#include <pthread.h>
#include <stddef.h>

struct latch {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t left;
};

void latch_init(struct latch *l, size_t count);
/* One is done. */
void latch_down(struct latch *l);
/* Wait until all are done; the latch is gone then. */
void latch_wait(struct latch *l);

#endif
