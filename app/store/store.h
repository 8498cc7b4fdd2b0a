/*
 * store/store.h -- the only way to the database: what the engine needs of it, as a table of operations, so that the engine also runs
 * against a fake with seeded faults.
 *
 * Shape    struct store: one thread's session. Every call blocks
 * Reads    see only what a majority has, and at least all that this session has read and written, or saw() has passed on
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
#include "coupons/code_uses.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"

enum store_status {
    STORE_OK,
    STORE_FAILED,   /* no proper answer: nothing is known */
    STORE_NO_ZONE,  /* day(): the time zone does not exist */
    STORE_EXISTS,   /* an insert or upsert found its _id, or its key, taken */
    STORE_NOT_FOUND, /* nothing has this _id */
    STORE_UNREADABLE, /* of one read: its document cannot be decoded, and repeating will not help */
    STORE_NOT_READ    /* of one read among several: the call reached its limit of memory before it. The call does not fail */
};

/* A user may have 1,000 redemptions of 4 kB each. A call that reads users stops after the one that exceeds this much memory: it reads at
 * least one. */
#define STORE_USERS_BYTES ((size_t)32 << 20)

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

/* What is stored of a lane beside its ledger: its buckets, and this. */
struct checkpoint {
    int64_t seq;       /* its buckets and its definition are written as of this batch; 0: no checkpoint */
    int64_t due_ms;    /* nothing in the lane ends before; 0: nothing ends */
    /* Without slots: the place (time, seq) up to which batches were searched by `due`. What had ended by then is in the ledger, except what
     * cannot be read. */
    int64_t swept_ms;
    int64_t swept_seq;
    const struct code_uses *uses; /* of shared codes, as of seq; NULL: none */
};

struct checkpoint_read {
    const char *coupon;
    int64_t lane;
    struct arena *arena; /* for its uses; NULL: they are not wanted */
    struct checkpoint checkpoint; /* out */
    enum store_status status; /* out */
};

struct checkpoint_write {
    const char *coupon;
    int64_t lane;
    struct checkpoint checkpoint;
};

/* How far the reporter's totals of a lane are written. */
struct totals_position_read {
    const char *coupon;
    int64_t lane;
    int64_t seq; /* out; 0: none */
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
    struct coupon *definition; /* out, in the arena; NULL: none */
    int64_t seq; /* out */
    enum store_status status; /* out */
};

/* What a user did in a coupon, from the ledger of the lane that is theirs. */
struct user_read {
    const char *coupon;
    int64_t lane;
    const char *user;
    struct user_state *user_state; /* out, in the call's arena; NULL: nothing, or they were erased since */
    int64_t seq;              /* out: of the last batch that names them; 0: none does */
    enum store_status status; /* out */
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

struct free_count {
    int64_t b, seq; /* of the bucket, as stored */
    int free;       /* of its 64 slots, including those not made yet */
};

/* How many slots are free in the stored buckets among [from, end) of a coupon: in the first `most` of them. */
struct free_counts {
    const char *coupon;
    int64_t from, end;
    size_t most;
    /* out */
    struct free_count *rows; /* room for `most`; ascending */
    size_t count;
};

/* Buckets in which something ends by at_ms, the earliest first; without those that are known. */
struct due_search {
    const char *coupon;
    int64_t lane;
    int64_t at_ms;
    size_t most;
    const int64_t *but_buckets;
    size_t but_count;
    /* out */
    struct bucket *buckets; /* room for `most`; initialised by the call, released by the caller */
    size_t count;           /* of those that can be decoded */
    int64_t next_due_ms;    /* when the next one after these expires, as stored; 0: none does */
    bool damaged;           /* some cannot be decoded */
};

/* Batches of a lane without slots, by the times at which what they made ends: the first ones after a place (time, seq), due by at_ms. Those
 * that cannot be decoded are logged and passed over. */
struct due_batches {
    const char *coupon;
    int64_t lane;
    int64_t after_ms, after_seq;
    int64_t at_ms;
    size_t most;
    struct batch **batches; /* room for `most`; out: each the caller's to free; by the first of their times after the place, then seq */
    size_t count;           /* out */
    int64_t past_ms, past_seq; /* out: the place of the last one due, also if that cannot be decoded; none: where the search began */
    bool more;                 /* out: others may be due after that place */
    int64_t next_due_ms;       /* out: when something ends after at_ms; 0: nothing is known to */
};

enum append_result {
    APPEND_UNKNOWN,  /* insert the same batch again until it is ours or theirs */
    APPEND_OURS,     /* in the ledger, by this insert or an earlier one whose reply was lost; a majority has it */
    APPEND_THEIRS,   /* another batch has its seq: read that, and decide again */
    APPEND_DUPLICATE /* only in append.c: somebody's batch has its seq */
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

/* A bucket, or a definition, to write whole, if the stored one is older. */
struct view_write {
    const char *coupon;
    const struct bucket *bucket; /* or NULL, and */
    const struct coupon *definition;
    int64_t seq;  /* of the definition; a bucket has its own */
    bool written; /* out: a majority has it, or a newer one */
};

struct totals_position_write {
    const char *coupon;
    int64_t lane;
    int64_t seq;
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
    /* What this session has seen; from now on reads see all that another one has seen, too. */
    struct store_time (*seen)(const struct store *s);
    void (*saw)(struct store *s, struct store_time when);

    /* Checkpoints of any lanes in one read; seq 0: none. */
    enum store_status (*checkpoints)(struct store *s, struct checkpoint_read *reads, size_t count);

    /* Positions in the totals, of any lanes in one read. */
    enum store_status (*totals_positions)(struct store *s, struct totals_position_read *reads, size_t count);

    /* The batches with after < seq, ascending, at most `most`, into batches[] (each the caller's to free); *count. Majority. */
    enum store_status (*ledger)(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                struct batch **batches, size_t *count);

    /* The same for several lanes in one read. One whose status is not STORE_OK has count 0. */
    enum store_status (*ledgers)(struct store *s, struct ledger_read *reads, size_t count);

    /* The batch that ended redemption (n, g) (the caller's to free), by its term; STORE_NOT_FOUND. lane matters only for redemptions
     * without slots (n < 0). */
    enum store_status (*ended)(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch);

    /* Stored definitions in one read; NULL: there is none. A tombstone has state COUPON_DELETED. */
    enum store_status (*coupons)(struct store *s, struct coupon_read *reads, size_t count);

    /* What users did, of any coupons, in one read where that is quick, up to STORE_USERS_BYTES: the rest are STORE_NOT_READ. Perhaps
     * also what is in batches that this session has not seen: see seq. */
    enum store_status (*users)(struct store *s, struct arena *a, struct user_read *reads, size_t count);

    /* A job's progress in a lane, by its term, into a; *state NULL: none. STORE_UNREADABLE. */
    enum store_status (*job)(struct store *s, const char *coupon, int64_t lane, const char *job, struct arena *a,
                             struct job_progress **state);

    /* The user's hash: 64 bits, as good as random, and the same in every process. */
    enum store_status (*user_hash)(struct store *s, const char *user, uint64_t *hash);

    enum store_status (*buckets)(struct store *s, struct bucket_read *reads, size_t count);

    /* All in one read. What is not stored was never moved: its slots are free, as far as they exist. */
    enum store_status (*free_counts)(struct store *s, struct free_counts *reads, size_t count);

    /* Each search's buckets in which something expires, all in one read. STORE_FAILED: no search has any. */
    enum store_status (*due_buckets)(struct store *s, struct due_search *searches, size_t count);

    /* The first batches after a place, by when what they made ends. STORE_FAILED: none. */
    enum store_status (*due_batches)(struct store *s, struct due_batches *search);

    /* Look up codes, of any coupons, in one read (majority). */
    enum store_status (*codes)(struct store *s, struct code_read *reads, size_t count);

    /* The codes of buckets, of any coupons, in one read (majority). */
    enum store_status (*bucket_codes)(struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count);

    /* Append batches of different lanes in one unordered majority insert; fills each result. STORE_FAILED if any result is UNKNOWN. */
    enum store_status (*append)(struct store *s, struct append *appends, size_t count);

    /* Fill unmoved for each, as of after the call began. */
    enum store_status (*confirm)(struct store *s, struct confirm *confirms, size_t count);

    /* Write buckets and definitions, unordered; fills each written. *when: not earlier than any of the writes. */
    enum store_status (*write_views)(struct store *s, struct view_write *views, size_t count, struct store_time *when);

    /* Write checkpoints, each if the stored one is older: after all views of it. */
    enum store_status (*write_checkpoints)(struct store *s, const struct checkpoint_write *checkpoints, size_t count);

    /* Move positions in the totals forward, never back. */
    enum store_status (*write_totals_positions)(struct store *s, const struct totals_position_write *positions, size_t count);

    /* The day of time_zone that holds at_ms: [*start_ms, *end_ms). STORE_NO_ZONE if the database does not know it. Kept, so that each is
     * read once. */
    enum store_status (*day)(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms);

    /* Wait for a moment for the next batch that anybody appends to a coupon with several lanes, in each lane's order. 1: it is *heard;
     * 0: none yet; -1: broken: batches may have been missed, and the next call starts over. A call that starts returns 0 at once, and what
     * is appended after it is heard. Such a session is used for nothing else. */
    int (*hear)(struct store *s, struct heard *heard);

    /* How often the database was restored from an older backup: see high_water.h. */
    enum store_status (*epoch)(struct store *s, int64_t *epoch);

    /* Under which Idempotency-Keys are hashed: never changes. */
    enum store_status (*key_secret)(struct store *s, struct key_secret *secret);

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
