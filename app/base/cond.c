/* base/cond.c -- see cond.h. */
#include "base/cond.h"

#include <errno.h>
#include <time.h>

#define NS_PER_S 1000000000

void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, struct mono until)
{
    const struct timespec deadline = {.tv_sec = until.ns / NS_PER_S, .tv_nsec = until.ns % NS_PER_S};

    return pthread_cond_timedwait(c, lock, &deadline) != ETIMEDOUT;
}
