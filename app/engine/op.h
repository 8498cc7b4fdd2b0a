/*
 * engine/op.h -- the engine's requests and answers, its settings, and what it reports about itself.
 *
 * Promise  a result other than OUTCOME_UNKNOWN and BUSY reflects what a majority of the database has
 */
#ifndef ENGINE_OP_H
#define ENGINE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/result.h"
#include "coupons/decide.h"
#include "store/store.h"

struct engine;

enum op_kind {
    OP_TAKE,        /* user, take -> outcome */
    OP_CHECK,       /* user, take -> outcome, discount_minor, user_state: only counts, as from user_state_counts(); head */
    OP_STEP,        /* redemption_step -> outcome, user_state->user: REDEMPTION_NOT_FOUND, or what decide_step() says */
    OP_CREATE,      /* definition, key, count, job: slots to make with it, by the job if named -> outcome, coupon_now */
    OP_CHANGE,      /* definition, expected_version, retire -> outcome, coupon_now */
    OP_DELETE,      /* expected_version, 0: any, else BUSY -> outcome, coupon_now: if OK, the tombstone */
    OP_ARCHIVE,     /* expected_version -> outcome: if OK, every lane is closed for good */
    OP_REMOVE,      /* lane, expected_seq -> outcome: if OK, the lane's data may be removed */
    OP_JOB,         /* job -> job_now (never NULL), head */
    OP_TURN,        /* job, fence -> outcome, turn */
    OP_TURN_END,    /* job -> outcome */
    OP_GENERATE,    /* job, step, count, until, turn -> outcome, made; head */
    OP_DUE,         /* job, step, count -> outcome, made */
    OP_RETIRE_ONE,  /* code -> outcome: CODE_NOT_FOUND, or what decide_retire_one() says */
    OP_ERASE,       /* user -> outcome: BUSY if their slots change */
    OP_SWEEP,       /* lane -> outcome: what has expired is in the ledger */
    OP_TICK,        /* lane -> outcome */
    OP_FOLLOW,      /* -> outcome: every lane has lane 0's definition, or is deleted like it */
    OP_COUPON,      /* -> coupon_now, head: the definition as of the tail; the totals of all lanes, as of seqs */
    OP_USER_STATE,  /* user, most -> user_state (never NULL), left_out, coupon_now, head */
    OP_REDEMPTION,  /* n, g -> outcome: REDEMPTION_NOT_FOUND, or redemption as it stands now, user_state->user */
    OP_SLOT,        /* n -> outcome: SLOT_NOT_FOUND, or slot, code_now */
    OP_CODE,        /* code -> outcome: CODE_NOT_FOUND, or n, slot, code_now */
    OP_REFUSE,      /* the coupon exists ? refusal : COUPON_NOT_FOUND -- a bad body is reported only for a coupon that exists */
    OP_CATCH_UP,    /* lane: a checkpoint covers everything in its ledger */
    /* between lanes, sent by lanes/ */
    OP_HEAD,        /* lane -> coupon_now, its tombstone if deleted; head */
    OP_EVENTS,      /* count: slots taken in all -> outcome */
    OP_KIND_COUNT
};

/* If the coupon does not exist (or was deleted), every op but OP_CREATE ends with COUPON_NOT_FOUND. If it is archived, chores end
 * with OK and others with COUPON_ARCHIVED, except ops that read (but not OP_CHECK, nor an OP_REFUSE with `changes`), create, archive,
 * remove or erase; once removed, only OP_COUPON, OP_HEAD and OP_CATCH_UP still read. */
struct op {
    /* in; borrowed until done() */
    enum op_kind kind;
    const char *coupon;
    int64_t lane;            /* in: of kinds that say so, and of OP_STEP and OP_REDEMPTION where n < 0, as the id has it; else the
                                engine finds it, and it is the user's or the slot's when done() is called */
    struct arena *arena;     /* for results; the engine's between submit and done() */
    struct mono deadline;    /* after it: BUSY if nothing was sent, else OUTCOME_UNKNOWN */
    void (*done)(struct op *op);
    void *context;           /* the caller's */
    const char *user;
    struct take take;        /* take.code as the caller gave it; code_n is the engine's */
    struct step redemption_step; /* of OP_STEP */
    const char *code;        /* as the caller gave it */
    const char *by;          /* id of an operator's API key, or NULL: recorded in the entries made */
    const char *key;         /* OP_CREATE: its Idempotency-Key, or NULL */
    int64_t fence, turn;
    int64_t n;
    uint32_t g;
    struct coupon *definition;
    int64_t expected_version;
    bool retire;             /* OP_CHANGE: codes may end by a lower total */
    int64_t expected_seq;    /* OP_REMOVE: of the lane's last batch */
    const char *job;
    int64_t step;
    int64_t count;
    int64_t until;           /* 0: none; else make slots only until this many exist */
    enum cpn_result refusal;
    bool changes;            /* OP_REFUSE: the refused call would have changed something */
    size_t most;             /* OP_USER_STATE: with more redemptions than this, none are returned; 0: return all */
    /* out; strings in arena */
    struct outcome outcome;
    int64_t discount_minor;
    int64_t made;                    /* OP_GENERATE: slots made in this step; OP_DUE: in all the job's steps */
    const struct coupon *coupon_now; /* the definition as of the tail; NULL: none */
    struct head head;                /* totals as of the tail, including the batch */
    struct user_state *user_state;   /* without redemptions, except for OP_USER_STATE */
    const struct job_progress *job_now;
    bool left_out;                   /* they are left out: more than `most` */
    struct slot slot;
    const char *code_now;            /* the slot's code, or NULL */
    int64_t definition_seq;          /* OP_USER_STATE: of the batch with coupon_now; INT64_MAX: unknown, lane is not 0 */
    int64_t seq;                     /* the batch's; for reads, the tail's */
    int64_t *seqs;                   /* OP_COUPON, several lanes: each lane's tail; NULL: one lane */
    int64_t due_ms;                  /* when the lane's next hold ends; 0: none, or not known */
    int64_t at_ms;                   /* when it was decided */
    struct store_time seen;          /* what was seen for it: a read that follows on it must not see less */
    /* the engine's */
    struct op *next;
    struct loaded_user *loaded; /* its user, in this round; set when loaded */
    struct user_state *working; /* that user's state, set when decided; if it has ended, set when loaded */
    struct job_progress *working_job; /* of a request about a job: the job's state */
    int64_t named_n;            /* the slot it names, by id or code; -1: none */
    int64_t until_seq;          /* the batch that a checkpoint must cover before it is answered */
    bool sought;                /* the ledger was searched for the redemption it names: */
    const char *holder;         /* whose it is, or was; NULL: nobody's, or erased */
    struct user_state *ended;   /* if it has ended: a user state with only it and the one beneath it. Read-only */
    bool inner;                 /* sent by lanes/: goes to this lane unchanged */
    int64_t asked_lane;         /* `lane` as the caller gave it */
    bool looked;                /* since it was asked, the other lanes were: none had free slots; or, without slots, all were heard */
    int64_t others_due_ms;      /* when the first hold of any lane ends, as of then; 0: none, or not known */
};

struct engine_config {
    int committers;      /* threads, 1..8 */
    int batch_max;       /* requests per lane and batch */
    int queue_max;       /* waiting requests per lane */
    int requests_max;    /* waiting requests in all */
    int lanes_max;       /* lanes kept in memory */
    int redo_max;        /* entries of one lane that wait for its checkpoint */
    int redo_max_all;    /* the same for all lanes together; 0: unbounded */
    int redo_mb;         /* the same in MiB of their batches' memory; 0: unbounded */
    int64_t filter_bytes; /* bytes for all lanes' filters of users (filter.h); 0: none */
    int64_t user_bytes;   /* bytes for all users kept in memory (user_cache.h) */
    int64_t trusted_ms;  /* a lane whose tail was not seen in the ledger for this long is reloaded; 0: never. Far shorter than
                            the ids of removed documents are kept (store/removal.c) */
    int flush_ms;        /* how old the redo log gets before a checkpoint is written */
    int backoff_ms;      /* after the database failed */
    int patience_ms;     /* how long engine_stop() tries to finish while the database fails */
    void (*decided)(const struct op *op); /* before each answer, from the engine's threads; NULL: none */
};

#endif
