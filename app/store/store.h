/*
 * store/store.h -- the only session to the database: what the engine needs of it, as a table of operations, so that the
 * engine runs against MongoDB and against a fake with seeded faults alike.
 *
 * Shape    struct store: one thread's session. Every call blocks
 * Reads    see only what a majority has, and not less than `after` (the operation time of a mark) where it is given
 * Writes   are acknowledged by a majority, journalled
 * Errors   STORE_FAILED: the database did not answer properly; for reads ask again, for append see there. A call with several reads
 *          fails when any of them does, and each says for itself: STORE_UNREADABLE where only its own document is at fault
 * Threads  one at a time per struct store
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"

enum store_status {
    STORE_OK,
    STORE_FAILED,   /* no proper answer: nothing is known */
    STORE_NO_ZONE,  /* day(): the time zone does not exist */
    STORE_EXISTS,   /* an insert found its _id, or its key, taken */
    STORE_NOT_FOUND, /* nothing has this _id */
    STORE_UNREADABLE, /* of one read among several: its document cannot be decoded, and asking again will not help */
    STORE_LEFT        /* of one read among several: the call holds as much as it may, and left this one. The call does not fail */
};

/* A user's view may have 1,000 redemptions of 4 kB each. A call that reads views of users ends with the one that takes it past so
 * much memory: it reads one at the least. */
#define STORE_USER_STATES_BYTES ((size_t)32 << 20)

/* The database's operation time; {0, 0}: none. */
struct store_time {
    uint32_t seconds, increment;
};

static inline bool store_time_is_later(struct store_time a, struct store_time b)
{
    return a.seconds > b.seconds || (a.seconds == b.seconds && a.increment > b.increment);
}

static inline struct store_time store_time_later(struct store_time a, struct store_time b)
{
    return store_time_is_later(a, b) ? a : b;
}

/* Up to which seq a lane's views (kind "views"), or the reporter's totals ("totals"), are written. */
struct mark {
    int64_t seq;
    struct store_time when;
};

struct mark_read {
    const char *coupon;
    int64_t lane;
    const char *kind;
    struct mark mark; /* out; seq 0: there is none */
    enum store_status status; /* out */
};

struct ledger_read {
    const char *coupon;
    int64_t lane;
    int64_t after;
    size_t most;
    struct batch **batches; /* room for `most`; out: each the caller's to free */
    size_t count; /* out */
    enum store_status status; /* out */
};

struct coupon_read {
    const char *coupon;
    struct arena *arena;
    struct coupon *definition; /* out, in the arena; NULL: there is no view */
    int64_t seq; /* out */
    enum store_status status; /* out */
};

struct user_state_read {
    const char *coupon;
    const char *user;
    struct user_state *user_state; /* out, in the call's arena; NULL: there is no view */
    enum store_status status; /* out */
};

/* Of one lane, with another. */
struct account_read {
    const char *coupon;
    int64_t lane, peer;
    struct lane_account *account; /* out, in the call's arena; NULL: there is no view */
    enum store_status status; /* out */
};

/* Where a walk through a coupon's users stands. Zeroed: at its beginning. */
struct user_walk {
    uint8_t last[16]; /* the store's own */
    bool begun;
    bool done;        /* there are no more */
};

struct bucket_read {
    const char *coupon;
    int64_t b;
    struct bucket *bucket; /* in: zeroed or initialised memory of the caller's; out: filled */
    bool found;
    enum store_status status; /* out */
};

/* Which slot has a code: by the normalised code. */
struct code_read {
    const char *coupon;
    const char *code;
    int64_t n; /* out; -1: none. To be believed only where the codes of its bucket say the same, and n < next_n */
    enum store_status status; /* out */
};

/* The codes of a bucket's slots. */
struct bucket_codes_read {
    const char *coupon;
    int64_t b;
    const char *codes[BUCKET_SLOTS]; /* out, in the call's arena; NULL: none */
    enum store_status status;        /* out */
};

/* Which buckets with free slots: from bucket number `from` on, ascending; or (random) by their random pick, from `from` on. */
struct free_search {
    const char *coupon;
    int64_t lane;
    bool random;
    int64_t from;
    size_t most;
    /* out */
    struct bucket *buckets; /* room for `most`; initialised by the call, released by the caller */
    size_t count;           /* of those that can be decoded */
    int64_t next;           /* from where there may be further ones; 0: there are none */
    bool left_out;          /* some cannot be decoded */
};

/* Buckets [from, end) of a coupon: at most `most` of them, or the last alone. */
struct touched_search {
    const char *coupon;
    int64_t from, end;
    bool last;
    size_t most;
    /* out */
    int64_t *numbers; /* ascending; room for `most` */
    size_t count;
};

/* What ends by itself by at_ms, the earliest first; but not these buckets, or users, of which more is known than their views say. */
struct due_search {
    const char *coupon;
    int64_t lane;
    int64_t at_ms;
    size_t most;
    const int64_t *but_buckets;
    const char *const *but_users;
    size_t but_count;
    /* out */
    struct bucket *buckets; /* of due_buckets: as of a free_search */
    size_t count;
    int64_t next_due_ms;    /* when the next one after these ends, as the views have it; 0: none does */
    bool left_out;          /* some cannot be decoded */
};

enum append_result {
    APPEND_UNKNOWN, /* insert the same batch again until it is one of the others */
    APPEND_OURS,    /* it is in the ledger, by this insert or an earlier one whose reply was lost; a majority has it */
    APPEND_THEIRS   /* its seq is taken by another batch: read it, and decide anew */
};

struct append {
    const struct batch *batch;
    enum append_result result;
};

struct confirm {
    const char *coupon;
    int64_t lane;
    int64_t tail;
    bool unmoved; /* out: nothing stands at tail + 1 */
};

enum view_kind { VIEW_USER_STATE, VIEW_JOB, VIEW_ACCOUNT, VIEW_BUCKET, VIEW_COUPON };

/* One view to be written whole, if the stored one is older than its seq (buckets: hops, seq). */
struct view_write {
    enum view_kind kind;
    const char *coupon;
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct lane_account *account;
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq;  /* of the definition; the others carry their own */
    bool written; /* out: it, or something newer, is there and a majority has it */
};

struct mark_write {
    const char *coupon;
    int64_t lane;
    const char *kind;
    struct mark mark;
    int64_t at_ms; /* of the batch at which it then stands; 0: not told */
};

/* A batch that somebody appended: its lane's totals after it (without the hash). */
struct heard {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
    int64_t lanes; /* that the coupon has */
    struct head head;
};

struct store;

/* Those of MongoDB are mongo_ops, in connect.c. */
struct store_ops {
    /* The lane's mark of that kind; seq 0 when it has none. */
    enum store_status (*mark)(struct store *s, const char *coupon, int64_t lane, const char *kind, struct mark *mark);

    /* Marks of any lanes in one read. */
    enum store_status (*marks)(struct store *s, struct mark_read *reads, size_t count);

    /* The batches with after < seq, ascending, at most `most`, into batches[] (each the caller's to free); *count. Majority. */
    enum store_status (*ledger)(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                struct batch **batches, size_t *count);

    /* The same of several lanes in one read. */
    enum store_status (*ledgers)(struct store *s, struct ledger_read *reads, size_t count);

    /* The batch that ended redemption (n, g) (the caller's to free), by the indexed ended[]; STORE_NOT_FOUND. lane matters
     * only for redemptions without slots (n < 0). */
    enum store_status (*ended)(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch);

    /* The definition's view, into a; *definition NULL when there is none. A tombstone has state COUPON_DELETED. */
    enum store_status (*coupon)(struct store *s, const char *coupon, struct store_time after, struct arena *a,
                                struct coupon **definition, int64_t *seq);

    /* Definitions' views in one read. */
    enum store_status (*coupons)(struct store *s, struct store_time after, struct coupon_read *reads, size_t count);

    /* Views of user states, of any coupons, in one read, as far as STORE_USER_STATES_BYTES go: the others are STORE_LEFT. */
    enum store_status (*user_states)(struct store *s, struct store_time after, struct arena *a, struct user_state_read *reads,
                                     size_t count);

    /* The view of a job's progress, into a; *state NULL: there is none. STORE_UNREADABLE. */
    enum store_status (*job)(struct store *s, const char *coupon, const char *job, struct store_time after, struct arena *a,
                             struct job_progress **state);

    /* Views of accounts between lanes in one read, into a. */
    enum store_status (*accounts)(struct store *s, struct store_time after, struct arena *a, struct account_read *reads,
                                  size_t count);

    /* By which walk_users() tells of the user: 64 bits, as good as random, and the same in every process. */
    enum store_status (*user_hash)(struct store *s, const char *user, uint64_t *hash);

    /* The hashes of up to `most` more of those of whom the coupon has a view, whatever it says: users of all its lanes, erased ones,
     * jobs. Those that had one at `after` are all told of, in as many calls as the walk takes. STORE_FAILED: call again. */
    enum store_status (*walk_users)(struct store *s, const char *coupon, struct store_time after, struct user_walk *walk,
                                    size_t most, uint64_t *hashes, size_t *count);

    enum store_status (*buckets)(struct store *s, struct store_time after, struct bucket_read *reads, size_t count);

    /* Which buckets of each search have views, all in one read. The others, as far as their slots are made, nobody has touched. */
    enum store_status (*touched)(struct store *s, struct store_time after, struct touched_search *searches, size_t count);

    /* Each search's buckets of its lane that have free slots, all in one read. STORE_FAILED: no search has any. */
    enum store_status (*free_buckets)(struct store *s, struct store_time after, struct free_search *searches, size_t count);

    /* The same of those in which something ends by itself. */
    enum store_status (*due_buckets)(struct store *s, struct store_time after, struct due_search *searches, size_t count);

    /* The same for coupons without slots, one lane at a time: user states, into search->most places, in a, of the users of the lane: those
     * whose redemptions say that they were made in it. No more than STORE_USER_STATES_BYTES of them: what is left is due next. */
    enum store_status (*due_user_states)(struct store *s, struct store_time after, struct due_search *search, struct arena *a,
                                         struct user_state **user_states);

    /* Look up codes, of any coupons, in one read (majority). */
    enum store_status (*codes)(struct store *s, struct code_read *reads, size_t count);

    /* The codes of buckets, of any coupons, in one read (majority). */
    enum store_status (*bucket_codes)(struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count);

    /* Append batches of different lanes in one unordered majority insert; fills each result. Returns STORE_FAILED when
     * any result is UNKNOWN. */
    enum store_status (*append)(struct store *s, struct append *appends, size_t count);

    /* Linearizable: fill unmoved for each. */
    enum store_status (*confirm)(struct store *s, struct confirm *confirms, size_t count);

    /* Write views, unordered; fills each written. *when: the operation time, not earlier than any of the writings. */
    enum store_status (*write_views)(struct store *s, struct view_write *views, size_t count, struct store_time *when);

    /* Move marks forward, never back: neither seq nor time. */
    enum store_status (*write_marks)(struct store *s, const struct mark_write *marks, size_t count);

    /* The day of time_zone that holds at_ms: [*start_ms, *end_ms). STORE_NO_ZONE when the database does not know it. */
    enum store_status (*day)(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms);

    /* Wait, for at most a second, for the next batch that anybody appends to a coupon with several lanes, in the order of each
     * lane. 1: *heard is it; 0: none yet; -1: broken: batches may have been missed; the next call begins anew. The call
     * that begins returns 0 at once: what is appended after it is heard. Such a session is used for nothing else. */
    int (*hear)(struct store *s, struct heard *heard);

    /* How often the database was restored from an older backup: see high_water.h. */
    enum store_status (*epoch)(struct store *s, int64_t *epoch);

    /* The primary's clock, UTC. */
    enum store_status (*now)(struct store *s, int64_t *utc_ms);

    /* Give the session back. */
    void (*close)(struct store *s);
};

struct store {
    const struct store_ops *ops;
};

/* Where sessions come from: one per process. */
struct store_source {
    struct store *(*open)(struct store_source *source); /* never NULL */
};

#endif
