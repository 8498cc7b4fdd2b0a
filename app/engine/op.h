/*
 * engine/op.h -- the engine's requests and answers, its settings, and what it reports about itself.
 *
 * Promise  a result other than OUTCOME_UNKNOWN and BUSY reflects what a majority of the database has
 */
#ifndef ENGINE_OP_H
#define ENGINE_OP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/result.h"
#include "coupons/decide.h"
#include "store/store.h"

struct engine;

/* The kinds of requests. Each has the member of `in` that its column names, and of its members those listed; `out` likewise, beside what
 * every answer has. A result other than OK that is not in the contract is named here. */
enum op_kind {      /* in                                               out */
    OP_TAKE,        /* user: name, take */
    OP_CHECK,       /* user: name, take                                 user: discount_minor, state: only counts (user_state_counts()) */
    OP_USER_STATE,  /* user: name, most                                 user: state, omitted, definition_seq */
    OP_ERASE,       /* user: name                                       BUSY if their slots change */
    OP_STEP,        /* redemption                                       user: state. REDEMPTION_NOT_FOUND, or as decide_step() */
    OP_REDEMPTION,  /* redemption: n, g                                 user: state. REDEMPTION_NOT_FOUND, or its present state */
    OP_SLOT,        /* n                                                slot. SLOT_NOT_FOUND */
    OP_CODE,        /* code                                             slot. CODE_NOT_FOUND */
    OP_RETIRE_ONE,  /* code                                             CODE_NOT_FOUND, or as decide_retire_one() */
    OP_CREATE,      /* coupon: definition, key, slots, job */
    OP_CHANGE,      /* coupon: definition, expected_version, retire */
    OP_DELETE,      /* coupon: expected_version, 0: any, else BUSY      coupon_now: if OK, the tombstone */
    OP_ARCHIVE,     /* coupon: expected_version                         if OK, every lane is closed for good */
    OP_REMOVE,      /* lane                                             if OK, the lane's data may be removed */
    OP_JOB,         /* job: id                                          job: if OK */
    OP_TURN,        /* job: id, fence                                   turn */
    OP_TURN_END,    /* job: id */
    OP_GENERATE,    /* job: id, step, count, until, turn                made: slots, in this step */
    OP_RETIRING,    /* job: id, step, count                             made: slots retiring, in all its steps */
    OP_SWEEP,       /* lane                                             what has expired is in the ledger */
    OP_TICK,        /* lane */
    OP_FOLLOW,      /*                                                  every lane has lane 0's definition, or is deleted like it */
    OP_COUPON,      /*                                                  seqs: head has the totals of all lanes, as of these */
    OP_REFUSE,      /* refusal                                          that refusal; without a coupon COUPON_NOT_FOUND */
    OP_CATCH_UP,    /* lane                                             a checkpoint covers everything in its ledger */
    /* between lanes, sent by lanes/; OP_FOLLOW, too, then with coupon: definition */
    OP_HEAD,        /* lane                                             due_ms. coupon_now is the tombstone if deleted */
    OP_EVENTS,      /* taken */
    OP_KIND_COUNT
};
_Static_assert(OP_KIND_COUNT < 32, "sets of kinds are bits of an int");

/* Sets of kinds. */
enum {
    /* that have this member of `in` */
    OPS_OF_USER = 1 << OP_TAKE | 1 << OP_CHECK | 1 << OP_USER_STATE | 1 << OP_ERASE,
    OPS_OF_REDEMPTION = 1 << OP_STEP | 1 << OP_REDEMPTION,
    OPS_OF_CODE = 1 << OP_CODE | 1 << OP_RETIRE_ONE,
    OPS_OF_COUPON = 1 << OP_CREATE | 1 << OP_CHANGE | 1 << OP_DELETE | 1 << OP_ARCHIVE | 1 << OP_FOLLOW,
    OPS_OF_JOB = 1 << OP_JOB | 1 << OP_TURN | 1 << OP_TURN_END | 1 << OP_GENERATE | 1 << OP_RETIRING,
    /* that have this one of `out` */
    OPS_ANSWER_USER = 1 << OP_CHECK | 1 << OP_USER_STATE | OPS_OF_REDEMPTION,
    OPS_ANSWER_SLOT = 1 << OP_SLOT | 1 << OP_CODE,
    OPS_ANSWER_MADE = 1 << OP_GENERATE | 1 << OP_RETIRING,
    /* that go to the lane they name; that change nothing */
    OPS_OF_LANE = 1 << OP_REMOVE | 1 << OP_SWEEP | 1 << OP_TICK | 1 << OP_CATCH_UP,
    OPS_READ = OPS_ANSWER_SLOT | 1 << OP_CHECK | 1 << OP_USER_STATE | 1 << OP_REDEMPTION | 1 << OP_JOB | 1 << OP_COUPON | 1 << OP_REFUSE |
               1 << OP_CATCH_UP | 1 << OP_HEAD
};

/* ---- in; strings are borrowed until done() ---- */

struct op_user {
    const char *name;
    struct take take;        /* take.code as the caller gave it; code_n is the engine's */
    size_t most;             /* with more redemptions than this, none are returned; 0: return all */
};

struct op_coupon {
    struct coupon *definition;
    int64_t expected_version;
    bool retire;             /* codes may end by a lower total */
    const char *key;         /* Idempotency-Key, or NULL */
    int64_t slots;           /* to make with it */
    const char *job;         /* the job that makes them; NULL: they are made at once */
};

struct op_job {
    const char *id;
    int64_t fence;
    int64_t step, count;
    int64_t until;           /* 0: none; else make slots only until this many exist */
    int64_t turn;
};

struct op_refusal {
    enum cpn_result result;
    bool changes;            /* the refused call would have changed something */
};

/* ---- out; strings are in the op's arena ---- */

struct op_user_out {
    struct user_state *state; /* without redemptions, except for OP_USER_STATE, which has one even of a user unknown */
    bool omitted;            /* they are omitted: more than `most` */
    int64_t definition_seq;  /* of the batch with coupon_now; INT64_MAX: unknown, lane is not 0 */
    int64_t discount_minor;
};

struct op_slot {
    int64_t n;
    struct slot slot;
    const char *code;        /* NULL: none */
};

/* ---- the engine's ---- */

struct op_engine {
    struct op *next;         /* in a list */
    struct op_work *work;    /* in a round: what is known of it */
    bool inner;              /* sent by lanes/: goes to this lane unchanged */
    int64_t asked_lane;      /* `lane` as the caller gave it */
    int64_t until_seq;       /* the batch that a checkpoint must cover before it is answered */
    bool sought;             /* the ledger was searched for the redemption it names; holder and ended are what it says */
    const char *holder;      /* whose it is, or was; NULL: nobody's, or erased */
    struct user_state *ended; /* if it has ended: a user state with only it and the one beneath it. Read-only */
    bool looked;             /* since it was asked, the other lanes were: none had free slots; or, without slots, all were heard */
    int64_t others_due_ms;   /* when the first hold of any lane ends, as of then; 0: none, or not known */
};

/* If the coupon does not exist (or was deleted), every op but OP_CREATE ends with COUPON_NOT_FOUND.
 * Closed: ops that read (but OP_CHECK, and an OP_REFUSE with `changes`), OP_CREATE, OP_ARCHIVE, OP_REMOVE and OP_ERASE are decided.
 * Removed: only OP_COUPON, OP_HEAD, OP_CATCH_UP, OP_CREATE, OP_ARCHIVE and OP_REMOVE. Of all others chores end with OK, the rest with
 * COUPON_ARCHIVED. */
struct op {
    enum op_kind kind;
    const char *coupon;
    int64_t lane;            /* in: of OPS_OF_LANE, between lanes, and of OPS_OF_REDEMPTION where n < 0, as the id has it; else the
                                engine finds it, and it is the user's or the slot's when done() is called */
    struct arena *arena;     /* for results; the engine's between submit and done() */
    struct mono deadline;    /* after it: BUSY if nothing was sent, else OUTCOME_UNKNOWN */
    void (*done)(struct op *op);
    void *context;           /* the caller's */
    const char *by;          /* id of an operator's API key, or NULL: recorded in the entries made */
    union {
        struct op_user user;
        struct step redemption;
        int64_t n;
        const char *code;
        struct op_coupon coupon;
        struct op_job job;
        struct op_refusal refusal;
        int64_t taken;           /* slots, in all lanes */
    } in;
    struct outcome outcome;
    const struct coupon *coupon_now; /* the definition as of the tail; NULL: none, or of OP_TAKE and OP_STEP */
    struct head head;                /* totals, batch (for reads, the tail) and time of the decision */
    struct store_time seen;          /* what was seen for it: a read that follows on it must not see less */
    union {
        struct op_user_out user;
        struct op_slot slot;
        const struct job_progress *job;
        int64_t turn;
        int64_t made;
        int64_t *seqs;               /* each lane's tail; NULL: one lane */
        int64_t due_ms;              /* when the lane's next hold ends; 0: none, or not known */
    } out;
    struct op_engine engine;
};

static inline bool op_is(const struct op *op, unsigned kinds)
{
    return kinds >> op->kind & 1;
}

/* Members that several kinds share; it is an error to read them of another. */
static inline const struct op_user *op_user(const struct op *op)
{
    assert(op_is(op, OPS_OF_USER));
    return &op->in.user;
}

static inline const struct step *op_redemption(const struct op *op)
{
    assert(op_is(op, OPS_OF_REDEMPTION));
    return &op->in.redemption;
}

static inline const struct op_coupon *op_coupon(const struct op *op)
{
    assert(op_is(op, OPS_OF_COUPON));
    return &op->in.coupon;
}

static inline const struct op_user_out *op_user_out(const struct op *op)
{
    assert(op_is(op, OPS_ANSWER_USER));
    return &op->out.user;
}

static inline const struct op_slot *op_slot(const struct op *op)
{
    assert(op_is(op, OPS_ANSWER_SLOT));
    return &op->out.slot;
}

static inline int64_t op_made(const struct op *op)
{
    assert(op_is(op, OPS_ANSWER_MADE));
    return op->out.made;
}

/* The slot that it names, itself or by a redemption's id; below 0: none. */
static inline int64_t op_slot_named(const struct op *op)
{
    if (op_is(op, OPS_OF_REDEMPTION))
        return op_redemption(op)->n;
    return op->kind == OP_SLOT ? op->in.n : -1;
}

#define ENGINE_REDO_MOST 500000 /* so that the checkpoints of all lanes are written within seconds */

struct engine_config {
    int batch_max;       /* requests per lane and batch */
    int queue_max;       /* waiting requests per lane */
    int requests_max;    /* waiting requests in all */
    int lanes_max;       /* lanes kept in memory */
    int redo_max;        /* entries of one lane that wait for its checkpoint */
    int redo_max_all;    /* the same for all lanes together: ENGINE_REDO_MOST, in tests less; 0: unbounded */
    int redo_mb;         /* the same in MiB of their batches' memory; 0: unbounded */
    int64_t filter_bytes; /* bytes for all lanes' filters of users (filter.h); 0: none */
    int64_t user_bytes;   /* bytes for all users kept in memory (user_cache.h) */
    int64_t trusted_ms;  /* a lane whose tail was not seen in the ledger for this long is reloaded; 0: never. Far shorter than
                            a closed coupon's documents stay (LANE_KEPT_MS), so that nobody appends where they were */
    int checkpoint_ms;   /* how old the redo log gets before a checkpoint is written */
    int backoff_ms;      /* after the database failed */
    int patience_ms;     /* how long engine_stop() tries to finish while the database fails */
    void (*decided)(const struct op *op); /* before each answer, from the engine's threads; NULL: none */
};

#endif
