/*
 * deliver/doorbell.h -- a thread that listens at the ledger's change stream, and the bounded queue of what it heard.
 *
 * Bound    while the queue is full the stream is read later: nothing is lost
 * Sweep    a stream without a past may have missed batches: once it stands, the listener is told to look at every lane
 * Threads  one listens, until the process is told to stop; one takes
 */
#ifndef DELIVER_DOORBELL_H
#define DELIVER_DOORBELL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/stop.h"
#include "store/mongo.h"

#define DOORBELL_SIZE 8192

struct doorbell {
    struct mongo *mongo;
    struct stop *stop;
    void (*heard)(void *context); /* called by the thread when there is something to take */
    void *context;
    pthread_t thread;
    atomic_bool listening; /* somebody wants to hear; else the stream is closed */
    pthread_mutex_t lock;
    struct bell ring[DOORBELL_SIZE];
    size_t first, count;
    bool sweep;
};

/* d is zeroed. */
void doorbell_start(struct doorbell *d, struct mongo *m, struct stop *stop, void (*heard)(void *context), void *context);
/* Wait for the thread; the stop was asked for. */
void doorbell_join(struct doorbell *d);
void doorbell_listen(struct doorbell *d, bool listening);
/* Take up to `most`; *sweep: every lane is to be looked at (the wish is taken, too). */
size_t doorbell_take(struct doorbell *d, struct bell *bells, size_t most, bool *sweep);

#endif
