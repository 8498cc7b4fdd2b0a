/*
 * store/store.h -- the only way to the database: what the engine needs of it, as a table of operations, so that the engine also runs
 * against a fake with seeded faults.
 *
 * Shape    struct store: one thread's session. Every call blocks
 * Reads    see only what a majority has, and at least all up to `after` (the operation time of a mark), if given
 * Writes   are acknowledged by a majority, journalled
 * Errors   STORE_FAILED: the database gave no proper answer; repeat reads, for append see there. A call with several reads fails if any of
 *          them does, and each has its own status: STORE_UNREADABLE if only its own document is at fault
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
    STORE_UNREADABLE, /* of one read: its document cannot be decoded, and repeating will not help */
    STORE_LEFT        /* of one read among several: the call reached its limit of memory before it. The call does not fail */
};

/* A user's view may have 1,000 redemptions of 4 kB each. A call that reads users' views stops after the one that exceeds this much memory:
 * it reads at least one. */
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

/* The seq up to which a lane's views (kind "views"), or the reporter's totals ("totals"), are written. */
struct mark {
    int64_t seq;
    struct store_time when;
};

struct mark_read {
    const char *coupon;
    int64_t lane;
    const char *kind;
    struct mark mark; /* out; seq 0: none */
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
    struct coupon *definition; /* out, in the arena; NULL: no view */
    int64_t seq; /* out */
    enum store_status status; /* out */
};

struct user_state_read {
    const char *coupon;
    const char *user;
    struct user_state *user_state; /* out, in the call's arena; NULL: no view */
    enum store_status status; /* out */
};

/* The position of a walk through a coupon's users. Zeroed: at the start. */
struct user_walk {
    uint8_t last[16]; /* the store's own */
    bool begun;
    bool done;        /* no more users */
};

struct bucket_read {
    const char *coupon;
    int64_t b;
    struct bucket *bucket; /* in: zeroed or initialised memory of the caller's; out: filled */
    bool found;
    enum store_status status; /* out */
};

/* Which slot has a code, by the normalised code. */
struct code_read {
    const char *coupon;
    const char *code;
    int64_t n; /* out; -1: none. Valid only if the codes of its bucket say the same, and n < next_n */
    enum store_status status; /* out */
};

/* The codes of a bucket's slots. */
struct bucket_codes_read {
    const char *coupon;
    int64_t b;
    const char *codes[BUCKET_SLOTS]; /* out, in the call's arena; NULL: none */
    enum store_status status;        /* out */
};

/* Buckets with free slots: from bucket number `from` on, ascending; or (random) by their random pick, from `from` on. */
struct free_search {
    const char *coupon;
    int64_t lane;
    bool random;
    int64_t from;
    size_t most;
    /* out */
    struct bucket *buckets; /* room for `most`; initialised by the call, released by the caller */
    size_t count;           /* of those that can be decoded */
    int64_t next;           /* where to continue; 0: there are no more */
    bool left_out;          /* some cannot be decoded */
};

/* Stored buckets among [from, end) of a coupon: at most `most` of them, or the last alone. */
struct touched_search {
    const char *coupon;
    int64_t from, end;
    bool last;
    size_t most;
    /* out */
    int64_t *numbers; /* ascending; room for `most` */
    size_t count;
};

/* What expires by at_ms, the earliest first; without these buckets, or users, whose views are known to be behind. */
struct due_search {
    const char *coupon;
    int64_t lane;
    int64_t at_ms;
    size_t most;
    const int64_t *but_buckets;
    const char *const *but_users;
    size_t but_count;
    /* out */
    struct bucket *buckets; /* of due_buckets: as in a free_search */
    size_t count;
    int64_t next_due_ms;    /* when the next one after these expires, by the views; 0: none does */
    bool left_out;          /* some cannot be decoded */
};

enum append_result {
    APPEND_UNKNOWN, /* insert the same batch again until it is one of the others */
    APPEND_OURS,    /* in the ledger, by this insert or an earlier one whose reply was lost; a majority has it */
    APPEND_THEIRS   /* another batch has its seq: read that, and decide again */
};

struct append {
    const struct batch *batch;
    enum append_result result;
};

struct confirm {
    const char *coupon;
    int64_t lane;
    int64_t tail;
    bool unmoved; /* out: there is no batch tail + 1 */
};

enum view_kind { VIEW_USER_STATE, VIEW_JOB, VIEW_BUCKET, VIEW_COUPON };

/* A view to write whole, if the stored one is older (by seq; buckets: hops, seq). */
struct view_write {
    enum view_kind kind;
    const char *coupon;
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq;  /* of the definition; the others carry their own */
    bool written; /* out: a majority has it, or a newer one */
};

struct mark_write {
    const char *coupon;
    int64_t lane;
    const char *kind;
    struct mark mark;
    int64_t at_ms; /* of the batch it then points to; 0: not given */
};

/* A batch that anybody appended: its lane's head after it (without the hash). */
struct heard {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
    int64_t lanes; /* of the coupon */
    struct head head;
};

struct store;

/* MongoDB's are mongo_ops, in connect.c. */
struct store_ops {
    /* The lane's mark of that kind; seq 0 if it has none. */
    enum store_status (*mark)(struct store *s, const char *coupon, int64_t lane, const char *kind, struct mark *mark);

    /* Marks of any lanes in one read. */
    enum store_status (*marks)(struct store *s, struct mark_read *reads, size_t count);

    /* The batches with after < seq, ascending, at most `most`, into batches[] (each the caller's to free); *count. Majority. */
    enum store_status (*ledger)(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                struct batch **batches, size_t *count);

    /* The same for several lanes in one read. */
    enum store_status (*ledgers)(struct store *s, struct ledger_read *reads, size_t count);

    /* The batch that ended redemption (n, g) (the caller's to free), by the indexed ended[]; STORE_NOT_FOUND. lane matters
     * only for redemptions without slots (n < 0). */
    enum store_status (*ended)(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch);

    /* The definition's view, into a; *definition NULL if there is none. A tombstone has state COUPON_DELETED. */
    enum store_status (*coupon)(struct store *s, const char *coupon, struct store_time after, struct arena *a,
                                struct coupon **definition, int64_t *seq);

    /* Definitions' views in one read. */
    enum store_status (*coupons)(struct store *s, struct store_time after, struct coupon_read *reads, size_t count);

    /* Views of user states, of any coupons, in one read, up to STORE_USER_STATES_BYTES: the rest are STORE_LEFT. */
    enum store_status (*user_states)(struct store *s, struct store_time after, struct arena *a, struct user_state_read *reads,
                                     size_t count);

    /* The view of a job's progress, into a; *state NULL: none. STORE_UNREADABLE. */
    enum store_status (*job)(struct store *s, const char *coupon, const char *job, struct store_time after, struct arena *a,
                             struct job_progress **state);

    /* The user's hash, as walk_users() gives it: 64 bits, as good as random, and the same in every process. */
    enum store_status (*user_hash)(struct store *s, const char *user, uint64_t *hash);

    /* The hashes of up to `most` more users with a view in the coupon, whatever it says: users of all its lanes, erased ones, jobs. A whole
     * walk gives all that had one at `after`. STORE_FAILED: call again. */
    enum store_status (*walk_users)(struct store *s, const char *coupon, struct store_time after, struct user_walk *walk,
                                    size_t most, uint64_t *hashes, size_t *count);

    enum store_status (*buckets)(struct store *s, struct store_time after, struct bucket_read *reads, size_t count);

    /* Which buckets of each search have views, all in one read. The others, as far as their slots exist, were never touched. */
    enum store_status (*touched)(struct store *s, struct store_time after, struct touched_search *searches, size_t count);

    /* Each search's buckets of its lane with free slots, all in one read. STORE_FAILED: no search has any. */
    enum store_status (*free_buckets)(struct store *s, struct store_time after, struct free_search *searches, size_t count);

    /* The same for buckets in which something expires. */
    enum store_status (*due_buckets)(struct store *s, struct store_time after, struct due_search *searches, size_t count);

    /* The same for coupons without slots, one lane at a time: user states, at most search->most, in a, whose redemptions were made in the
     * lane. Up to STORE_USER_STATES_BYTES of them: the rest is due next. */
    enum store_status (*due_user_states)(struct store *s, struct store_time after, struct due_search *search, struct arena *a,
                                         struct user_state **user_states);

    /* Look up codes, of any coupons, in one read (majority). */
    enum store_status (*codes)(struct store *s, struct code_read *reads, size_t count);

    /* The codes of buckets, of any coupons, in one read (majority). */
    enum store_status (*bucket_codes)(struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count);

    /* Append batches of different lanes in one unordered majority insert; fills each result. STORE_FAILED if any result is UNKNOWN. */
    enum store_status (*append)(struct store *s, struct append *appends, size_t count);

    /* Linearizable: fill unmoved for each. */
    enum store_status (*confirm)(struct store *s, struct confirm *confirms, size_t count);

    /* Write views, unordered; fills each written. *when: the operation time, not earlier than any of the writes. */
    enum store_status (*write_views)(struct store *s, struct view_write *views, size_t count, struct store_time *when);

    /* Move marks forward, never back: neither seq nor time. */
    enum store_status (*write_marks)(struct store *s, const struct mark_write *marks, size_t count);

    /* The day of time_zone that holds at_ms: [*start_ms, *end_ms). STORE_NO_ZONE if the database does not know it. */
    enum store_status (*day)(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms);

    /* Wait at most a second for the next batch that anybody appends to a coupon with several lanes, in each lane's order. 1: it is *heard;
     * 0: none yet; -1: broken: batches may have been missed, and the next call starts over. A call that starts returns 0 at once, and what
     * is appended after it is heard. Such a session is used for nothing else. */
    int (*hear)(struct store *s, struct heard *heard);

    /* How often the database was restored from an older backup: see high_water.h. */
    enum store_status (*epoch)(struct store *s, int64_t *epoch);

    /* The primary's clock, UTC. */
    enum store_status (*now)(struct store *s, int64_t *utc_ms);

    /* Close the session. */
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
