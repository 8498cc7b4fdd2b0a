/*
 * engine/filter.h -- which users a lane surely does not know, so that nobody need read what they did: nothing.
 *
 * Says     "not there" of a user only if no batch up to `seq` names them; that holds for the tail where seq is the tail's. What it says
 *          wrongly is that they may be there: then they are read, and nothing is lost but time
 * Begins   empty, up to seq 0: true of a lane that this process follows from its first batch. Each batch after seq is laid in. Where
 *          one is missing, or has entries whose names were emptied, the filter is dropped: nothing is said any more
 * Filled   anew from the users that the views have, see filter_fill.h: then it stands beside what is laid in meanwhile, from the mark on as it
 *          was before the first of them was read, and says nothing until that is all
 * Memory   Bloom filters, each twice as large as the one before it, with 12 bits for each user (16 in those below 1 MiB); out of a
 *          room that the lanes of a committer share
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
    _Atomic int64_t bytes; /* taken */
    int64_t bytes_max;     /* 0: no filters */
};

/* Users, by their hashes: a set that grows. */
struct filter_users {
    struct filter_room *room;
    struct bloom *parts; /* the last one takes what comes */
    size_t count, capacity;
    int64_t left;        /* so many more it takes */
    int64_t bytes;
};

void filter_users_init(struct filter_users *u, struct filter_room *room);
void filter_users_release(struct filter_users *u);
/* False: there is no room, and all is as before. */
bool filter_users_add(struct filter_users *u, uint64_t hash);
bool filter_users_may_have(const struct filter_users *u, uint64_t hash);
/* u has what `from` has as well, which is empty then. */
void filter_users_join(struct filter_users *u, struct filter_users *from);

enum filter_state {
    FILTER_NONE,
    FILTER_FILLING, /* what it has is not all */
    FILTER_COMPLETE
};

struct lane;

/* The users up to a mark, being read. The fill thread's until its done(), but for what says otherwise. */
struct fill {
    struct fill *next;
    char coupon[COUPON_ID_MAX + 1];
    struct store_time after; /* the mark's: what it speaks of is seen by each read */
    struct user_walk walk;
    struct filter_users users;
    int failures;            /* in a row */
    enum { FILL_UNDER_WAY, FILL_ALL, FILL_NO_ROOM, FILL_FAILED } state;
    atomic_bool abandoned;   /* nobody waits for it any more */
    struct lane *lane;       /* who waits; whose thread alone looks at this. NULL: nobody */
    void (*done)(struct fill *fill);
    void *context;
};

struct filter {
    enum filter_state state;
    int64_t seq;        /* every batch up to it is laid in; FILTER_FILLING: after the mark at which that began */
    struct filter_users users;
    struct fill *fill;  /* FILTER_FILLING: what is awaited */
    int64_t in_vain;    /* users who were read, and of whom nothing was there, while it said nothing */
};

/* Of a lane of which nothing is known, and that has no batch yet. room with bytes_max 0: of which nothing will be said. */
void filter_init(struct filter *f, struct filter_room *room);
/* Forget all, and say nothing from now on. */
void filter_drop(struct filter *f);
/* Forget all, and begin as filter_init() does. */
void filter_restart(struct filter *f);
/* Lay in b, which follows what was laid in; where it does not, or does not name all, or the names cannot be hashed, drop the filter.
 * False: there is no room; it may be laid in again. */
bool filter_lay(struct filter *f, struct store *s, const struct batch *b) CPN_CHECKED;
/* What is laid in from now on follows `mark`; fill, whose lane is set, brings the users up to it. */
void filter_begin_fill(struct filter *f, int64_t mark, struct fill *fill);
/* They are all there: it is complete, and takes them. */
void filter_end_fill(struct filter *f);
/* True: no batch up to `tail` names the user, who is not a job's. */
bool filter_lacks(const struct filter *f, struct store *s, int64_t tail, const char *user);

#endif
