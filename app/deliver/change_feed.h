/*
 * deliver/change_feed.h -- a thread that reads the ledger's change stream, and the bounded queue of what it read.
 *
 * Bound    while the queue is full the stream is read later: nothing is lost
 * Sweep    a stream without a past may have missed batches: once it is open, the reader of the queue is asked to look at every lane
 * Threads  one reads the stream, until the process is asked to stop; one takes
 */
#ifndef DELIVER_CHANGE_FEED_H
#define DELIVER_CHANGE_FEED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/stop.h"
#include "store/mongo.h"

#define CHANGE_FEED_SIZE 8192

struct change_feed {
    struct mongo *mongo;
    struct stop *stop;
    void (*heard)(void *context); /* called by the thread when there is something to take */
    void *context;
    pthread_t thread;
    atomic_bool listening; /* somebody wants to hear; otherwise the stream is closed */
    pthread_mutex_t lock;
    struct batch_key ring[CHANGE_FEED_SIZE];
    size_t first, count;
    bool sweep;
};

/* d is zeroed. */
void change_feed_start(struct change_feed *d, struct mongo *m, struct stop *stop, void (*heard)(void *context), void *context);
/* Wait for the thread, after it was asked to stop. */
void change_feed_join(struct change_feed *d);
void change_feed_listen(struct change_feed *d, bool listening);
/* Take up to `most`; *sweep: look at every lane (the request is taken, too). */
size_t change_feed_take(struct change_feed *d, struct batch_key *batch_keys, size_t most, bool *sweep);

#endif
