/* base/latch.c -- see latch.h. */
#include "base/latch.h"

void latch_init(struct latch *l, size_t count)
{
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->none, NULL);
    l->count = count;
}

void latch_down(struct latch *l)
{
    pthread_mutex_lock(&l->lock);
    if (--l->count == 0)
        pthread_cond_signal(&l->none);
    pthread_mutex_unlock(&l->lock);
}

void latch_wait(struct latch *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->count)
        pthread_cond_wait(&l->none, &l->lock);
    pthread_mutex_unlock(&l->lock);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->none);
}
