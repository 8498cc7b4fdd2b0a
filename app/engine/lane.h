/*
 * engine/lane.h -- a lane in memory: its tail, its definition, the window, the pool of free slots.
 *
 * Rule     view + window = the state at the tail. The window holds every batch after the mark; a view that was read,
 *          with the window's newer batches laid over it, is what the ledger says
 * Threads  a lane belongs to one committer thread; nothing here is shared. Batches in a window are never changed, so
 *          that the view writer may read those that a view job names
 * Errors   enum store_status; after STORE_FAILED the lane is as before and the call may be repeated
 */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

#include <uthash.h>

#include "base/clock.h"
#include "engine/filter.h"
#include "engine/op.h"
#include "store/store.h"

/* A batch after the mark. */
struct window_batch {
    struct batch *batch;
    int refs;             /* the window's, and one per view job that names it; counted by the committer alone */
    bool own;             /* appended here: batch->user_states and its like are known, and its buckets are cached */
    bool has_jobs;        /* some of its entries are of jobs, or of accounts */
    bool ensured;         /* a view job that writes its views is under way */
    size_t bytes;         /* of memory */
    int64_t first_b, end_b; /* buckets that it touches lie in [first_b, end_b) */
    struct window_batch *next, *prev;
};

/* A user whom the window touches. */
struct window_user {
    char *user;                    /* owned; the hash key */
    struct user_state *state;      /* at the tail, in the newest batch's arena; NULL: fold the batches over the view */
    struct window_batch **batches; /* ascending */
    size_t count, capacity;
    UT_hash_handle hh;
};

/* The window's batches that touch a bucket by naming its slots. */
struct window_bucket {
    int64_t b; /* the hash key */
    struct window_batch **batches; /* ascending */
    size_t count, capacity;
    UT_hash_handle hh;
};

/* A bucket as it stands at the tail. */
struct cached_bucket {
    struct bucket bucket;
    const char **codes; /* [BUCKET_SLOTS], one block of memory, owned; NULL: not read, or the coupon has none */
    bool dirty;     /* its view is not written yet */
    int free_pool_left; /* its slots in the free pool */
    UT_hash_handle hh; /* by bucket.b */
};

struct op_list {
    struct op *first, *last;
    size_t count;
};
void op_list_add(struct op_list *l, struct op *op);
struct op *op_list_take(struct op_list *l);
/* Put all of `front` before l's; front is empty afterwards. */
void op_list_prepend(struct op_list *l, struct op_list *front);

#define LANE_KEY_SIZE (COUPON_ID_MAX + 24)

struct lane {
    char key[LANE_KEY_SIZE]; /* coupon, a line feed, number: the committer's hash key */
    char coupon[COUPON_ID_MAX + 1];
    int64_t number;
    UT_hash_handle hh;
    struct lane *lru_prev, *lru_next;

    bool loaded;
    bool stale;              /* somebody else appended: refresh before deciding; chores are theirs */
    struct head tail;
    const struct coupon *definition; /* NULL: none yet */
    struct arena definition_arena;
    int64_t definition_seq;

    struct window_batch *window; /* ascending */
    size_t window_entries;
    size_t window_bytes;         /* of memory that its batches hold */
    size_t counted_entries;      /* of them, those that the committer has counted */
    size_t counted_bytes;        /* likewise, with those of `pending` */
    struct window_user *users;
    struct window_bucket *window_buckets;
    size_t window_ranges;        /* batches in the window that touch ranges of slots: window_buckets leaves these out */
    struct mark mark;            /* views up to mark.seq are written */
    struct filter filter;        /* of whom it surely knows nothing */

    struct cached_bucket *buckets;
    struct free_slot *free_pool; /* [free_pool_first, free_pool_first + free_pool_count) */
    size_t free_pool_first, free_pool_count, free_pool_capacity;
    int64_t cursor;          /* bucket number, or pick, from which the free pool is topped up next with touched buckets */
    int64_t touched_end;     /* no bucket from here on was touched; -1: not known */
    int64_t walk;            /* where untouched buckets are looked for next; -1: none is left that was not in the free pool */
    int64_t walk_stop;       /* up to there, or to the lane's end; */
    int64_t walk_rest;       /* then from the lane's first bucket up to there */
    size_t topup;            /* buckets to read next time: grows while they are used up fast */
    struct mono topped_up;
    int64_t next_due_ms;     /* nothing ends by itself before then; INT64_MAX: nothing will; INT64_MIN: not known, look again */

    struct op_list queue;    /* waiting, in the order of arrival */
    struct op_list aside;    /* what they are about cannot be read: they hold up nobody, and are tried again now and then */
    struct op_list watchers; /* OP_CATCH_UP: wait until mark.seq == tail */
    struct batch *pending;   /* sent, outcome unknown: inserted again until it is known */
    struct op_list pending_ops;
    size_t pending_free_pool_used;

    bool ready;              /* in the committer's list of lanes with work */
    struct lane *ready_prev, *ready_next;
    struct mono not_before;  /* leave it alone until then (back-off) */
    int conflicts;           /* in a row */
    bool unflushed;          /* batches since the last flush */
    struct lane *unflushed_prev, *unflushed_next;
    struct mono flush_at;
    size_t unflushed_entries; /* of own batches since the last flush */
    int jobs;                /* view jobs under way */
};

/* room: for its filter of users. */
struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room);
void lane_free(struct lane *l);

struct lane_loading {
    struct lane *lane;
    enum store_status status; /* out */
};
/* Read mark, definition, ledger after the mark, of different lanes in the same reads; a lane of which something cannot be read fails
 * alone. One without ledger loads as empty: tail.seq 0, no definition. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count);
/* The ledger of lane 0 has no first batch: there is no such coupon. */
void lane_load_none(struct lane *l);
/* Follow what others appended after the tail: lay it into the window; or, where views are written past the tail, forget what is in
 * memory and load anew, so that as much is read as the window may hold, however long nobody looked. Watchers may be due then.
 * STORE_FAILED may leave the lane not loaded. */
enum store_status lane_refresh(struct lane *l, struct store *s);
/* Lay a batch that this process appended: tail, definition, window, buckets; used slots, and those that were taken by their
 * name, leave the free pool. Takes b. */
void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used);
/* Views are written up to m: forget what the window need not hold any more. */
void lane_trim(struct lane *l, const struct mark *m);
void window_release(struct window_batch *w);
/* Lay what the window has since into the filter of users, after whatever moved the tail. False: there is no room for it. */
bool lane_note_users(struct lane *l, struct store *s) CPN_CHECKED;

/* Lay the window over a view that was read (or a fresh user state). False: the view is ahead of the tail: refresh first. */
bool lane_overlay_user_state(const struct lane *l, struct user_state *u, struct arena *a);
/* The user's state at the tail where the window knows it without a view, or NULL. */
const struct user_state *lane_known_user_state(const struct lane *l, const char *user);
/* The same of a job, and of the lane's account with a peer. */
bool lane_overlay_job(const struct lane *l, struct job_progress *j);
const struct job_progress *lane_known_job(const struct lane *l, const char *job);
bool lane_overlay_account(const struct lane *l, struct lane_account *account);
const struct lane_account *lane_known_account(const struct lane *l, int64_t peer);
/* The cached bucket, or NULL. */
struct cached_bucket *lane_bucket(struct lane *l, int64_t b);
/* Lay the window over a bucket that was read and cache it; takes it. NULL: it is ahead of the tail. */
struct cached_bucket *lane_cache_bucket(struct lane *l, struct bucket *k);
/* True when the bucket's codes have to be read before its slots can be named or given out. */
bool lane_wants_codes(const struct lane *l, const struct cached_bucket *c);
/* Keep a copy of the codes that were read. */
void cached_bucket_set_codes(struct cached_bucket *c, const struct bucket_codes_read *read);

/* A look through a lane for what has ended by itself by at_ms. */
struct due_look {
    struct lane *lane;
    int64_t at_ms;
    struct arena *arena;
    /* out */
    const char **users; /* policies without slots: of whom something has; in the arena. Of others the buckets are cached */
    size_t user_count;
    bool more;          /* that is not all; once what was found is in the ledger, the next look finds others */
    bool damaged;       /* since something cannot be decoded */
    enum store_status status;
};
/* Look through lanes, each once; their next_due_ms move on. All that have slots in the same reads. */
void lane_find_due(struct store *s, struct due_look *looks, size_t count);

/* A free pool to be filled, when it holds less than `want` although more are free. */
struct top_up {
    struct lane *lane;
    size_t want;
    /* out */
    bool damaged; /* something that is free cannot be decoded */
    enum store_status status;
    /* within */
    bool from_start, wrapped, searched; /* the touched buckets */
    size_t found, looks;
};
/* Fill free pools of different lanes, all in the same reads. A bucket ahead of the tail makes its lane stale. */
void lane_top_up(struct store *s, struct top_up *tops, size_t count);
/* Drop cached buckets that are written and hold nothing for the free pool. */
void lane_evict_buckets(struct lane *l);

static inline bool lane_idle(const struct lane *l)
{
    return !l->queue.count && !l->aside.count && !l->watchers.count && !l->pending && !l->window && !l->jobs && !l->ready && !l->unflushed;
}

#endif
