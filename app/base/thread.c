/* base/thread.c -- see thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

#define NS_PER_S 1000000000

void thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name)
{
    int error = pthread_create(thread, NULL, body, context);

    if (error) {
        log_event(LOG_ERROR, "process.no_thread", F_TEXT("reason", strerror(error)));
        abort();
    }
    pthread_setname_np(*thread, name); /* it opens a file: where no descriptor is left, the thread goes without a name */
}

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
