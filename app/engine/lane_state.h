/*
 * engine/lane_state.h -- what a lane has in memory: its tail, its definition, its checkpoint and redo log, cached buckets, users, free
 * slots, its queues.
 *
 * Owns     each part by the file that is named for it; lane.c the rest
 * Threads  the committer's; nothing here is shared
 */
#ifndef ENGINE_LANE_STATE_H
#define ENGINE_LANE_STATE_H

#include <uthash.h>

#include "base/clock.h"
#include "coupons/fold.h"
#include "engine/filter.h"
#include "engine/op_list.h"
#include "engine/user_cache.h"
#include "store/store.h"

struct redo_batch;
struct redo_bucket;
struct cached_bucket;
struct lane_job;

#define LANE_KEY_SIZE (COUPON_ID_MAX + 24)
#define NEXT_DUE_NEVER INT64_MAX
#define NEXT_DUE_NOW INT64_MIN

/* The search of a coupon that has ended, for what is issued: what comes before this place was looked at. */
struct ended_walk {
    int64_t bucket;  /* with slots */
    int64_t ms, seq; /* without: a batch's place by its times in `due` */
    bool done;
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
    int64_t definition_stored_seq; /* that of the stored one: if lower, it is to be written */

    struct checkpoint checkpoint;  /* seq as stored, as far as is known; the rest is as of the tail, without uses */
    struct code_uses uses;         /* of shared codes, as of the tail, where codes.shared_cap bounds them */
    bool checkpoint_late;          /* `due` or `swept` moved without a batch: to be written */
    struct redo_batch *redo_log;   /* the batches after it, ascending */
    size_t redo_entries;
    size_t redo_bytes;           /* memory that they hold */
    size_t counted_entries;      /* as last counted by the committer */
    size_t counted_bytes;        /* likewise, including `pending` */
    struct redo_bucket *redo_buckets;
    size_t redo_ranges;          /* of them, those that touch ranges of slots: not in redo_buckets */
    struct filter filter;        /* users certainly new to it */
    struct lane_users users;     /* those in the cache */
    struct lane_job *known_jobs; /* the progress of some jobs, the last used first */

    struct cached_bucket *buckets;
    struct free_slot *free_pool; /* [free_pool_first, free_pool_first + free_pool_count) */
    size_t free_pool_first, free_pool_count, free_pool_capacity;
    uint8_t *free_map;       /* [mapped]: how many slots are free in the lane's first buckets, see free_map.h */
    int64_t mapped;
    int64_t cursor;          /* where the next search in order begins, in free_map */
    size_t topup;            /* buckets to read next time: grows while they are used fast */
    struct mono topped_up;
    struct ended_walk ended;
    int64_t next_due_ms;     /* nothing expires before; NEXT_DUE_NEVER: nothing will; NEXT_DUE_NOW: something has, search again */

    struct op_list queue;    /* waiting, in order of arrival */
    struct op_list aside;    /* requests whose data cannot be read: retried now and then, and block nobody */
    struct op_list watchers; /* decided; answered once the checkpoint covers op->until_seq */
    struct batch *pending;   /* sent, outcome unknown: sent again until it is known */
    struct op_list pending_ops;
    size_t pending_free_pool_used;

    bool multilane_counted;  /* by the hooks of multilane.h */
    bool ready;              /* in the committer's list of lanes with work */
    struct lane *ready_prev, *ready_next;
    struct mono not_before;  /* not before this time: it backs off, or pauses for another writer */
    int pauses;              /* so many more of our batches are each followed by a pause for another writer */
    bool lagging;            /* in the committer's list of lanes with something to write */
    struct lane *lagging_prev, *lagging_next;
    struct mono checkpoint_at; /* while lagging: when it is to be written */
    bool writing_checkpoint; /* now */
};

/* What e, of batch seq, made expires then. */
static inline void lane_note_due(struct lane *l, const struct entry *e, int64_t seq)
{
    int64_t due_ms = entry_due(e);

    if (due_ms && due_ms < l->next_due_ms)
        l->next_due_ms = due_ms;
    if (due_ms && e->n < 0 && (due_ms < l->checkpoint.swept_ms || (due_ms == l->checkpoint.swept_ms && seq <= l->checkpoint.swept_seq))) {
        l->checkpoint.swept_ms = due_ms - 1; /* another writer's clock is behind */
        l->checkpoint.swept_seq = INT64_MAX - 1;
    }
}

/* Its coupon's end, if that is still to end something issued; 0: none. */
static inline int64_t lane_end(const struct lane *l)
{
    return l->tail.issued > 0 && !l->ended.done ? coupon_ends(l->definition) : 0;
}

/* What is issued expires when the coupon ends. */
static inline void lane_note_end(struct lane *l)
{
    int64_t end_ms = lane_end(l);

    if (end_ms && end_ms < l->next_due_ms)
        l->next_due_ms = end_ms;
}

/* Its slots are in the buckets [first, end). */
static inline int64_t lane_first_bucket(const struct lane *l)
{
    return bucket_of(l->number * LANE_SLOTS);
}

static inline int64_t lane_end_bucket(const struct lane *l)
{
    return bucket_of(fold_next_n(&l->tail, l->number) + BUCKET_SLOTS - 1);
}

static inline bool lane_has_codes(const struct lane *l)
{
    return l->definition && coupon_slots_have_codes(l->definition);
}

static inline bool lane_picks_at_random(const struct lane *l)
{
    return l->definition && l->definition->codes.pick == PICK_RANDOM;
}

static inline bool lane_idle(const struct lane *l)
{
    return !l->queue.count && !l->aside.count && !l->watchers.count && !l->pending && !l->redo_log && !l->writing_checkpoint && !l->ready &&
           !l->lagging;
}

#endif
