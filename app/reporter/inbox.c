/* reporter/inbox.c -- see inbox.h. */
#include "reporter/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

void inbox_init(struct inbox *in)
{
    pthread_condattr_t monotonic;

    *in = (struct inbox){.ring = calloc(INBOX_SIZE, sizeof *in->ring)};
    if (!in->ring)
        abort();
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->filled, &monotonic);
    pthread_cond_init(&in->emptied, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void inbox_release(struct inbox *in)
{
    pthread_cond_destroy(&in->filled);
    pthread_cond_destroy(&in->emptied);
    pthread_mutex_destroy(&in->lock);
    free(in->ring);
}

bool inbox_put(struct inbox *in, const struct tally *t)
{
    bool put;

    pthread_mutex_lock(&in->lock);
    while (in->count == INBOX_SIZE && !in->closed)
        pthread_cond_wait(&in->emptied, &in->lock);
    put = !in->closed;
    if (put)
        in->ring[(in->first + in->count++) % INBOX_SIZE] = *t;
    pthread_cond_signal(&in->filled);
    pthread_mutex_unlock(&in->lock);
    return put;
}

void inbox_ask_sweep(struct inbox *in)
{
    pthread_mutex_lock(&in->lock);
    in->sweep = true;
    pthread_cond_signal(&in->filled);
    pthread_mutex_unlock(&in->lock);
}

static struct timespec deadline_in(int wait_ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += wait_ms / 1000;
    t.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

size_t inbox_take(struct inbox *in, struct tally *tallies, size_t most, int wait_ms, bool *sweep)
{
    struct timespec deadline = deadline_in(wait_ms);
    size_t taken = 0;

    pthread_mutex_lock(&in->lock);
    while (wait_ms > 0 && in->count == 0 && !in->sweep && !in->closed)
        if (pthread_cond_timedwait(&in->filled, &in->lock, &deadline) == ETIMEDOUT)
            break;
    *sweep = in->sweep;
    in->sweep = false;
    for (; taken < most && in->count > 0; in->count--) {
        tallies[taken++] = in->ring[in->first];
        in->first = (in->first + 1) % INBOX_SIZE;
    }
    pthread_cond_signal(&in->emptied);
    pthread_mutex_unlock(&in->lock);
    return taken;
}

void inbox_close(struct inbox *in)
{
    pthread_mutex_lock(&in->lock);
    in->closed = true;
    pthread_cond_broadcast(&in->filled);
    pthread_cond_broadcast(&in->emptied);
    pthread_mutex_unlock(&in->lock);
}
