/*
 * reporter/queue.h -- batches on their way from the feed to the fold: a bounded queue between two threads.
 *
 * Bound    whoever puts waits while it is full: the change stream is read later, nothing is lost
 * Sweep    beside the batches: a wish to look at every lane's ledger, because the feed began anew. Wishes do not add up
 */
#ifndef REPORTER_QUEUE_H
#define REPORTER_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "reporter/batch_counts.h"

#define QUEUE_SIZE 16384

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    struct batch_counts *ring;
    size_t first, count;
    bool sweep, closed;
};

void queue_init(struct queue *in);
void queue_release(struct queue *in);
/* False when the queue was closed. */
bool queue_put(struct queue *in, const struct batch_counts *t);
void queue_ask_sweep(struct queue *in);
/* Take up to `most` batches, waiting up to wait_ms for the first; *sweep: one is wished for (the wish is taken, too). */
size_t queue_take(struct queue *in, struct batch_counts *batches, size_t most, int wait_ms, bool *sweep);
/* Wake everybody: nothing more is put. */
void queue_close(struct queue *in);

#endif
