/*
 * engine/filter.h -- which users are certainly new to a lane, so that they need not be read.
 *
 * Says     "not there" for a user only if no batch up to `seq` names them; it holds for the tail if seq is the tail's. It may wrongly say
 *          that a user may be there: then they are read, which costs only time
 * Begins   empty, up to seq 0: correct for a lane that this process follows from its first taking. Each later batch is added. If one is
 *          missing, or has entries whose names were emptied, the filter is dropped and says nothing any more
 * Memory   Bloom filters, each twice as large as the one before it, with 12 bits per user (16 below 1 MiB), from a room that all lanes
 *          share
 * Threads  one at a time per filter; rooms are shared
 */
#ifndef ENGINE_FILTER_H
#define ENGINE_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bloom.h"
#include "store/store.h"

struct filter_room {
    _Atomic int64_t bytes; /* in use */
    int64_t bytes_max;     /* 0: no filters */
};

struct filter {
    struct filter_room *room;
    bool complete;       /* else it says nothing */
    int64_t seq;         /* every batch up to it was added */
    struct bloom *parts; /* new users go to the last one */
    size_t count, capacity;
    int64_t room_left;   /* how many more it takes */
    int64_t bytes;
};

/* For a lane not loaded yet, without batches. room with bytes_max 0: it will never say anything. */
void filter_init(struct filter *f, struct filter_room *room);
/* Forget all, and say nothing any more. */
void filter_drop(struct filter *f);
/* Forget all, and start as filter_init() does. */
void filter_restart(struct filter *f);
/* Add b, which must be the next batch; if it is not, or lacks names, or names cannot be hashed, the filter is dropped. False: no room; it
 * may be added again. */
bool filter_add_batch(struct filter *f, struct store *s, const struct batch *b) CPN_CHECKED;
/* True if no batch up to `tail` names the user. */
bool filter_lacks(const struct filter *f, struct store *s, int64_t tail, const char *user);

#endif
