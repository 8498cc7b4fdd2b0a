/*
 * reporter/inbox.h -- tallies on their way from the feed to the fold: a bounded queue between two threads.
 *
 * Bound    whoever puts waits while it is full: the change stream is read later, nothing is lost
 * Sweep    beside the tallies: a wish to look at every lane's ledger, because the feed began anew. Wishes do not add up
 */
#ifndef REPORTER_INBOX_H
#define REPORTER_INBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "reporter/tally.h"

#define INBOX_SIZE 16384

struct inbox {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    struct tally *ring;
    size_t first, count;
    bool sweep, closed;
};

void inbox_init(struct inbox *in);
void inbox_release(struct inbox *in);
/* False when the inbox was closed. */
bool inbox_put(struct inbox *in, const struct tally *t);
void inbox_ask_sweep(struct inbox *in);
/* Take up to `most` tallies, waiting up to wait_ms for the first; *sweep: one is wished for (the wish is taken, too). */
size_t inbox_take(struct inbox *in, struct tally *tallies, size_t most, int wait_ms, bool *sweep);
/* Wake everybody: nothing more is put. */
void inbox_close(struct inbox *in);

#endif
