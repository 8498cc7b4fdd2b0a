/*
 * reporter/queue.h -- batches on their way from the feed to the fold: a bounded queue between two threads.
 *
 * Bound    queue_put() waits while it is full: the change stream is read later, nothing is lost
 * Sweep    besides batches: a request to look at every lane's ledger, because the feed started over. Requests do not add up
 */
#ifndef REPORTER_QUEUE_H
#define REPORTER_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "reporter/batch_counts.h"

#define QUEUE_SIZE 16384

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    struct batch_counts *ring;
    size_t first, count;
    size_t awaited; /* the taker is woken by so many */
    bool sweep, closed;
};

void queue_init(struct queue *in);
void queue_release(struct queue *in);
/* False if the queue was closed. */
bool queue_put(struct queue *in, const struct batch_counts *t);
void queue_ask_sweep(struct queue *in);
/* Take up to `most` batches: wait until `fill` for so many, then until `until` for the first. *sweep: one was requested, which ends the
 * wait (the request is taken, too). */
size_t queue_take(struct queue *in, struct batch_counts *batches, size_t most, struct mono fill, struct mono until, bool *sweep);
/* Wake everybody: no more batches come. */
void queue_close(struct queue *in);

#endif
