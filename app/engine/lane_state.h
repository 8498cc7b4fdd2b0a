/*
 * engine/lane_state.h -- what a lane has in memory: its tail, its definition, the window, cached buckets, free slots, its queues.
 *
 * Owns     each part by the file that is named for it; lane.c the rest
 * Threads  a lane belongs to one committer thread; nothing here is shared
 */
#ifndef ENGINE_LANE_STATE_H
#define ENGINE_LANE_STATE_H

#include <uthash.h>

#include "base/clock.h"
#include "engine/filter.h"
#include "engine/op_list.h"
#include "store/store.h"

struct window_batch;
struct window_user;
struct window_bucket;
struct cached_bucket;

#define LANE_KEY_SIZE (COUPON_ID_MAX + 24)

/* The search for untouched buckets. */
struct walk {
    int64_t next; /* where it goes on; -1: none left that was not in the free pool */
    int64_t stop; /* up to here, or the lane's end; */
    int64_t rest; /* then from the lane's first bucket up to here */
};

struct lane {
    char key[LANE_KEY_SIZE]; /* coupon, line feed, number: the committer's hash key */
    char coupon[COUPON_ID_MAX + 1];
    int64_t number;
    UT_hash_handle hh;
    struct lane *lru_prev, *lru_next;

    bool loaded;
    int64_t newest_ms;       /* when its tail was last known to be the newest, by clock_boot_ms() */
    bool stale;              /* somebody else appended: refresh before deciding; they do the chores */
    struct head tail;
    const struct coupon *definition; /* NULL: none yet */
    struct arena definition_arena;
    int64_t definition_seq;

    struct window_batch *window; /* ascending */
    size_t window_entries;
    size_t window_bytes;         /* memory that its batches hold */
    size_t counted_entries;      /* as last counted by the committer */
    size_t counted_bytes;        /* likewise, including `pending` */
    struct window_user *users;
    struct window_bucket *window_buckets;
    size_t window_ranges;        /* batches in the window that touch ranges of slots: not in window_buckets */
    struct mark mark;            /* views up to mark.seq are written */
    struct filter filter;        /* users certainly new to it */

    struct cached_bucket *buckets;
    struct free_slot *free_pool; /* [free_pool_first, free_pool_first + free_pool_count) */
    size_t free_pool_first, free_pool_count, free_pool_capacity;
    int64_t cursor;          /* bucket number, or pick, where the next top-up with touched buckets starts */
    int64_t touched_end;     /* no bucket from here on is touched; -1: not known */
    struct walk walk;
    size_t topup;            /* buckets to read next time: grows while they are used fast */
    struct mono topped_up;
    int64_t next_due_ms;     /* nothing expires before; INT64_MAX: nothing will; INT64_MIN: unknown, search again */

    struct op_list queue;    /* waiting, in order of arrival */
    struct op_list aside;    /* requests whose data cannot be read: retried now and then, and block nobody */
    struct op_list watchers; /* OP_CATCH_UP: wait until mark.seq == tail */
    struct batch *pending;   /* sent, outcome unknown: sent again until it is known */
    struct op_list pending_ops;
    size_t pending_free_pool_used;

    bool ready;              /* in the committer's list of lanes with work */
    struct lane *ready_prev, *ready_next;
    struct mono not_before;  /* not before this time: back-off, or another writer's turn */
    int yields;              /* after so many more of our batches, another writer gets a turn */
    bool unflushed;          /* batches since the last flush */
    struct lane *unflushed_prev, *unflushed_next;
    struct mono flush_at;
    size_t unflushed_entries; /* of own batches since the last flush */
    int jobs;                /* view jobs under way */
};

/* Something expires at due_ms; 0: nothing does. */
static inline void lane_note_due(struct lane *l, int64_t due_ms)
{
    if (due_ms && due_ms < l->next_due_ms)
        l->next_due_ms = due_ms;
}

static inline bool lane_has_codes(const struct lane *l)
{
    return l->definition && l->definition->codes.source != CODES_NONE;
}

static inline bool lane_picks_at_random(const struct lane *l)
{
    return l->definition && l->definition->codes.pick == PICK_RANDOM;
}

static inline bool lane_idle(const struct lane *l)
{
    return !l->queue.count && !l->aside.count && !l->watchers.count && !l->pending && !l->window && !l->jobs && !l->ready && !l->unflushed;
}

#endif
