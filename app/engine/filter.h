/*
 * engine/filter.h -- which users are certainly new to a lane, so that they need not be read.
 *
 * Says     "not there" for a user only if no batch up to `seq` names them; it holds for the tail if seq is the tail's. It may wrongly say
 *          that a user may be there: then they are read, which costs only time
 * Begins   empty, up to seq 0: correct for a lane that this process follows from its first batch. Each later batch is added. If one is
 *          missing, or has entries whose names were emptied, the filter is dropped and says nothing any more
 * Filled   again from the users in the views, see filter_fill.h. Batches after the mark as of the fill's start are added meanwhile; until
 *          the fill is done, it says nothing
 * Memory   Bloom filters, each twice as large as the one before it, with 12 bits per user (16 below 1 MiB), from a room that the lanes of a
 *          committer share
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

/* A growing set of users, by their hashes. */
struct filter_users {
    struct filter_room *room;
    struct bloom *parts; /* new users go to the last one */
    size_t count, capacity;
    int64_t left;        /* how many more it takes */
    int64_t bytes;
};

void filter_users_init(struct filter_users *u, struct filter_room *room);
void filter_users_release(struct filter_users *u);
/* False: no room; nothing changed. */
bool filter_users_add(struct filter_users *u, uint64_t hash);
bool filter_users_may_have(const struct filter_users *u, uint64_t hash);
/* Add all of `from` to u; `from` is then empty. */
void filter_users_join(struct filter_users *u, struct filter_users *from);

enum filter_state {
    FILTER_NONE,
    FILTER_FILLING, /* incomplete */
    FILTER_COMPLETE
};

struct lane;

/* The users up to a mark, being read. Belongs to the fill thread until done(), except as noted. */
struct fill {
    struct fill *next;
    char coupon[COUPON_ID_MAX + 1];
    struct store_time after; /* the mark's: each read sees the views it covers */
    struct user_walk walk;
    struct filter_users users;
    int failures;            /* in a row */
    enum { FILL_UNDER_WAY, FILL_ALL, FILL_NO_ROOM, FILL_FAILED } state;
    atomic_bool abandoned;   /* nobody waits for it */
    struct lane *lane;       /* the waiting lane; only its thread uses this. NULL: none */
    void (*done)(struct fill *fill);
    void *context;
};

struct filter {
    enum filter_state state;
    int64_t seq;        /* every batch up to it was added; FILTER_FILLING: after the mark at its start */
    struct filter_users users;
    struct fill *fill;  /* FILTER_FILLING: its fill */
    int64_t in_vain;    /* users read and not found, while it said nothing */
};

/* For a lane not loaded yet, without batches. room with bytes_max 0: it will never say anything. */
void filter_init(struct filter *f, struct filter_room *room);
/* Forget all, and say nothing any more. */
void filter_drop(struct filter *f);
/* Forget all, and start as filter_init() does. */
void filter_restart(struct filter *f);
/* Add b, which must be the next batch; if it is not, or lacks names, or names cannot be hashed, the filter is dropped. False: no room; it
 * may be added again. */
bool filter_lay(struct filter *f, struct store *s, const struct batch *b) CPN_CHECKED;
/* From now on batches after `mark` are added; fill, whose lane is set, brings the users up to it. */
void filter_begin_fill(struct filter *f, int64_t mark, struct fill *fill);
/* The fill has them all: take them; the filter is complete. */
void filter_end_fill(struct filter *f);
/* True if no batch up to `tail` names the user, who must not be a job's. */
bool filter_lacks(const struct filter *f, struct store *s, int64_t tail, const char *user);

#endif
