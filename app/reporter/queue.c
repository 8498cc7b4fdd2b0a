/* reporter/queue.c -- see queue.h. */
#include "reporter/queue.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cond.h"

void queue_init(struct queue *in)
{
    *in = (struct queue){.ring = checked(calloc(QUEUE_SIZE, sizeof *in->ring))};
    pthread_mutex_init(&in->lock, NULL);
    cond_init(&in->filled);
    cond_init(&in->emptied);
}

void queue_release(struct queue *in)
{
    pthread_cond_destroy(&in->filled);
    pthread_cond_destroy(&in->emptied);
    pthread_mutex_destroy(&in->lock);
    for (; in->count > 0; in->count--) {
        batch_counts_release(&in->ring[in->first]);
        in->first = (in->first + 1) % QUEUE_SIZE;
    }
    free(in->ring);
}

bool queue_put(struct queue *in, const struct batch_counts *t)
{
    bool put;

    pthread_mutex_lock(&in->lock);
    while (in->count == QUEUE_SIZE && !in->closed)
        pthread_cond_wait(&in->emptied, &in->lock);
    put = !in->closed;
    if (put)
        in->ring[(in->first + in->count++) % QUEUE_SIZE] = *t;
    if (in->count >= in->awaited)
        pthread_cond_signal(&in->filled);
    pthread_mutex_unlock(&in->lock);
    return put;
}

void queue_ask_sweep(struct queue *in)
{
    pthread_mutex_lock(&in->lock);
    in->sweep = true;
    pthread_cond_signal(&in->filled);
    pthread_mutex_unlock(&in->lock);
}

/* Wait until `until` for `count` batches, under the lock. */
static void await(struct queue *in, size_t count, struct mono until)
{
    bool in_time = mono_before(mono_now(), until);

    in->awaited = count;
    while (in_time && in->count < count && !in->sweep && !in->closed)
        in_time = cond_wait_until(&in->filled, &in->lock, until);
}

size_t queue_take(struct queue *in, struct batch_counts *batches, size_t most, struct mono fill, struct mono until, bool *sweep)
{
    size_t taken = 0;

    pthread_mutex_lock(&in->lock);
    await(in, most, fill);
    await(in, 1, until);
    *sweep = in->sweep;
    in->sweep = false;
    for (; taken < most && in->count > 0; in->count--) {
        batches[taken++] = in->ring[in->first];
        in->first = (in->first + 1) % QUEUE_SIZE;
    }
    pthread_cond_signal(&in->emptied);
    pthread_mutex_unlock(&in->lock);
    return taken;
}

void queue_close(struct queue *in)
{
    pthread_mutex_lock(&in->lock);
    in->closed = true;
    pthread_cond_broadcast(&in->filled);
    pthread_cond_broadcast(&in->emptied);
    pthread_mutex_unlock(&in->lock);
}
