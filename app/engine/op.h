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
    OP_CHECK,       /* user, take -> outcome, discount_minor, user_state: the counts alone, as user_state_counts() has them; head */
    OP_STEP,        /* redemption_step -> outcome, user_state->user: REDEMPTION_NOT_FOUND, or what decide_step() says */
    OP_CREATE,      /* definition, key, count, job: slots to be made with it, by a job if one is named -> outcome, coupon_now */
    OP_CHANGE,      /* definition, expected_version -> outcome, coupon_now */
    OP_DELETE,      /* expected_version, 0: whichever it has, else BUSY -> outcome, coupon_now: of OK, the tombstone */
    OP_ARCHIVE,     /* expected_version -> outcome: of OK, every lane is closed for good */
    OP_REMOVE,      /* lane, expected_seq -> outcome: of OK, what the lane has may leave */
    OP_JOB,         /* job -> job_now (never NULL), head */
    OP_TURN,        /* job, fence -> outcome, turn */
    OP_TURN_END,    /* job -> outcome */
    OP_GENERATE,    /* job, step, count, until, turn -> outcome, made; head */
    OP_DUE,         /* job, step, count -> outcome, made */
    OP_RETIRE_ONE,  /* code -> outcome: CODE_NOT_FOUND, or what decide_retire_one() says */
    OP_ERASE,       /* user, alias -> outcome: BUSY if they have another; user_state (as erased: its seq is where the erased names end) */
    OP_SWEEP,       /* lane -> outcome: what has ended by itself is in the ledger */
    OP_TICK,        /* lane -> outcome */
    OP_FOLLOW,      /* -> outcome: every lane has the definition of lane 0, or is deleted as that is */
    OP_COUPON,      /* -> coupon_now, head: the definition as of the tail; the totals of all lanes, as of seqs */
    OP_USER_STATE,  /* user, most -> user_state (never NULL), left_out, coupon_now, head */
    OP_REDEMPTION,  /* n, g -> outcome: REDEMPTION_NOT_FOUND, or redemption as it stands now, user_state->user */
    OP_SLOT,        /* n -> outcome: SLOT_NOT_FOUND, or slot, code_now */
    OP_CODE,        /* code -> outcome: CODE_NOT_FOUND, or n, slot, code_now */
    OP_REFUSE,      /* the coupon exists ? refusal : COUPON_NOT_FOUND -- a bad body is reported only for a coupon that exists */
    OP_CATCH_UP,    /* lane: the views of everything in its ledger are written */
    /* between lanes, asked by lanes/ */
    OP_HEAD,        /* lane -> coupon_now, of a deleted one its tombstone; head */
    OP_GIVE,        /* lane, peer, gift -> outcome, account */
    OP_GET,         /* lane, peer, gift, gift_day_ms -> outcome, made: 1 if anything came; account */
    OP_EVENTS,      /* count: slots that are taken in all -> outcome */
    OP_KIND_COUNT
};

/* Every op whose coupon does not exist (or was deleted) ends with COUPON_NOT_FOUND, except OP_CREATE; where it is archived with
 * COUPON_ARCHIVED, except those that read, but for OP_CHECK and what refuses a change (changes), and OP_ERASE; where it has left, except
 * OP_COUPON and OP_HEAD. */
struct op {
    /* in; borrowed until done() */
    enum op_kind kind;
    const char *coupon;
    int64_t lane;            /* in: of kinds that say so, and of OP_STEP and OP_REDEMPTION where n < 0, as the id has it; else the
                                engine finds it, and it is the user's or the slot's when done() is called */
    struct arena *arena;     /* for what comes out; the engine's between submit and done() */
    struct mono deadline;    /* past it: BUSY if nothing was sent, else OUTCOME_UNKNOWN */
    void (*done)(struct op *op);
    void *context;           /* the caller's */
    const char *user;
    const char *alias;       /* OP_ERASE: the user's, as read before; NULL: whichever */
    struct take take;        /* take.code as the caller gave it; code_n is the engine's */
    struct step redemption_step; /* of OP_STEP */
    const char *code;        /* as the caller gave it */
    const char *by;          /* an operator's API key, by its id, or NULL: the entries that are made for it have it */
    const char *key;         /* OP_CREATE: its Idempotency-Key, or NULL */
    int64_t fence, turn;
    int64_t n;
    uint32_t g;
    struct coupon *definition;
    int64_t expected_version;
    int64_t expected_seq;    /* OP_REMOVE: of its last batch */
    const char *job;
    int64_t step;
    int64_t count;
    int64_t until;           /* 0: none; else no more than make so many */
    enum cpn_result refusal;
    bool changes;            /* OP_REFUSE: what it refuses would have changed something */
    size_t most;             /* OP_USER_STATE: of a user with more redemptions than that the answer has none; 0: it has all */
    int64_t peer;            /* the other lane */
    struct gift gift;
    int64_t gift_day_ms;
    /* out; strings in arena */
    struct outcome outcome;
    int64_t discount_minor;
    int64_t made;                    /* OP_GENERATE: slots of this step; OP_DUE: of all the job's steps */
    const struct coupon *coupon_now; /* the definition as of the tail; NULL when there is none */
    struct head head;                /* the totals as of the tail after the batch */
    struct user_state *user_state;   /* of other kinds than OP_USER_STATE without its redemptions */
    const struct job_progress *job_now;
    const struct lane_account *account;
    bool left_out;                   /* so are these: there are more than `most` */
    struct slot slot;
    const char *code_now;            /* the slot's code, or NULL */
    int64_t definition_seq;          /* OP_USER_STATE: of the batch with coupon_now; INT64_MAX: not known, in another lane than 0 */
    int64_t seq;                     /* of the batch; the tail's for reads */
    int64_t *seqs;                   /* OP_COUPON of several lanes: the tail's in each; NULL: there is one lane */
    int64_t due_ms;                  /* when the lane's next hold ends; 0: none, or not known */
    int64_t at_ms;                   /* when it was decided */
    /* the engine's */
    struct op *next;
    struct loaded_user *loaded; /* whom it is about, in this round: set when it is loaded */
    struct user_state *working; /* the state of that user: when it is decided; of what has ended, when it is loaded */
    struct job_progress *working_job; /* of a request about a job: its state */
    int64_t named_n;            /* the slot that it names, by its id or a code; -1: none */
    int64_t until_seq;          /* OP_CATCH_UP: the mark that it waits for */
    bool sought;                /* the ledger was looked at for the redemption that it names: */
    const char *holder;         /* whose it is, or was; NULL: nobody's, or erased */
    struct user_state *ended;   /* if it has ended: a user state of it alone, and of the one beneath it. Not to be changed */
    bool inner;                 /* asked by lanes/: goes to this lane as it is */
    int64_t asked_lane;         /* `lane` as the caller gave it */
    bool looked[QUOTA_COUNT];   /* no lane had anything left of this quota, since it was asked for */
    int64_t others_due_ms;      /* when the first hold of any lane ends, as found then; 0: none, or not known */
};

struct engine_config {
    int committers;      /* threads, 1..8 */
    int batch_max;       /* requests per lane and batch */
    int queue_max;       /* waiting requests per lane */
    int requests_max;    /* waiting requests in all */
    int lanes_max;       /* lanes kept in memory */
    int window_max;      /* entries of one lane that wait for their views */
    int windows_max;     /* the same of all lanes together; 0: any number */
    int windows_mb;      /* the same in MiB: what their batches hold in memory; 0: any number */
    int64_t filter_bytes; /* for the filters of users of all lanes together (filter.h); 0: there are none */
    int fill_after;      /* users who were read in vain before the views' are read for a filter; more where there are many */
    int64_t trusted_ms;  /* a lane whose tail was not seen in the ledger for so long is loaded again; 0: never. Far less than the
                          * ids of what left the database stay (store/removal.c) */
    int flush_ms;        /* how long buckets' views, and with them the mark, are gathered */
    int backoff_ms;      /* after the database failed */
    int patience_ms;     /* how long engine_stop() tries to finish while the database fails */
};

/* What the engine counts; called from its threads. Any may be NULL. */
struct engine_hooks {
    void (*batch)(int requests, int entries, int64_t append_us, int64_t load_us);
    void (*decided)(const struct op *op);
    void (*expired)(int holds);  /* so many ended by their time, by a batch that is in the ledger */
    void (*conflict)(void);
    void (*retry)(void);
    void (*queue)(int waiting);
    void (*windows)(int64_t more); /* entries that wait for their views: so many more, or fewer */
    void (*filters)(int64_t more); /* bytes of filters of users: so many more, or fewer */
    void (*unread)(int users);     /* so many were surely new, and not read */
    /* A batch is about to be sent: the views of its users, and of the definition where it changes that, are owed. They are not any more: they
     * are written, or the batch is not in the ledger. */
    void (*views_owed)(const struct batch *b);
    void (*views_settled)(const struct batch *b);
    void (*views_lost)(const struct batch *b); /* they are not written here any more, and the batch may be in the ledger */
    bool (*views_asked)(void);   /* somebody has begun to wait for views since this was asked last */
    bool (*views_awaited)(const struct batch *b); /* somebody waits for those of this batch */
};

#endif
