/*
 * coupons/decide.h -- decides requests: pure, in memory, no I/O, no clock. Inputs in, effects out.
 *
 * Use     one struct decision decides a batch: decide_begin(), then decide_expire() for what has expired, then decide_take()
 *         and its like for each request in order of arrival, then decide_events(), then decide_end(), which fills in the
 *         batch's head and hash. It changes only the decision, its batch, and the working copies of user states and named
 *         slots, so a decision that lost its race is simply dropped.
 * Source  static/docs/openapi.json: order of checks, table of refusals
 */
#ifndef COUPONS_DECIDE_H
#define COUPONS_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/code_uses.h"
#include "coupons/coupon.h"
#include "coupons/discount.h"
#include "coupons/user_state.h"

struct free_slot {
    int64_t n;
    uint32_t g;       /* the present one: taking makes it head_next_generation() */
    const char *code; /* NULL: none */
};

/* A working copy of a slot that a request names, by id or code, or that has expired. */
struct named_slot {
    int64_t n;
    struct slot slot;
    const char *code; /* NULL: none */
};

/* The totals of the coupon's other lanes, as last reported: may be old. */
struct others {
    int64_t taken, reserved, takings;
    int64_t stock;  /* slots of the whole coupon */
    int64_t due_ms; /* when the first hold of any lane ends; 0: none, or unknown. Set for each request before it is decided */
};

struct decision {
    const struct coupon *coupon; /* the definition in force; NULL: never was one; deleted: a tombstone. Changes with the entries */
    struct head head;            /* the totals, updated as requests are decided */
    int64_t day_end_ms;          /* the coupon's next midnight, for Retry-After */
    struct batch *batch;         /* what will be appended */
    const struct free_slot *free_pool; /* free slots, in the order in which they are used */
    size_t free_pool_count;
    size_t free_pool_used;       /* how many this decision took, or skipped */
    struct named_slot *named;    /* ascending by n */
    size_t named_count;
    struct others others;        /* zeros if there is one lane */
    int64_t next_due_ms;         /* when the lane's next hold ends, for Retry-After; 0: none, or unknown */
    int64_t free_most;           /* the most free slots since decide_begin() */
    int64_t epoch;               /* how often the database was restored: a lane that has not recorded it yet does so first */
    struct key_secret key_secret; /* under which Idempotency-Keys are hashed */
    struct code_uses uses;       /* where codes.shared_cap is set: of each shared code, updated as requests are decided; the caller's */
    const char *shared;          /* the shared code that the request at hand names; NULL: none */
    const char *by;              /* id of the API key of the next request's operator; NULL: none */
};

/* A row per cap policy: what its coupons have, and what their total leaves. */
struct policy_row {
    bool slots; /* takings need slots */
    bool total; /* cap.total applies */
    /* How many may still be taken, by *h of a lane, or the sum of all; elsewhere: takings of the lanes that are not in it. INT64_MAX: any
     * number. It may be negative. */
    int64_t (*left)(const struct coupon *c, const struct head *h, int64_t elsewhere);
};
extern const struct policy_row policies[];
static inline const struct policy_row *policy_of(const struct coupon *c)
{
    return &policies[c->cap.policy];
}

/* The most free slots at which an event of this coupon may be due. */
int64_t decide_low_threshold(const struct coupon *c);

/* How many slots to add to a coupon with `left` free ones; *h: its lane 0, or the sum of all. 0: none, or they are being added. */
int64_t decide_refill(const struct coupon *c, const struct head *h, int64_t left);

/* True if the coupon exists and is not deleted. All but decide_create() require it. */
static inline bool decide_exists(const struct decision *d)
{
    return d->coupon && d->coupon->state != COUPON_DELETED;
}

/* Start at the lane's `tail`, with `coupon`; now is at_ms (not before the tail's), in the day [day_ms, day_end_ms). */
void decide_begin(struct decision *d, struct batch *batch, const struct coupon *coupon, const struct head *tail,
                  int64_t at_ms, int64_t day_ms, int64_t day_end_ms);

/* True if entries were made: the batch must be appended. */
static inline bool decide_changed(const struct decision *d)
{
    return d->batch->count > 0;
}

/* Finish: set the batch's head, prev and hash. Only if decide_changed(). */
void decide_end(struct decision *d, const struct head *tail, struct buf *scratch);

struct take {
    const char *key;
    uint8_t fingerprint[FINGERPRINT_LEN];
    const struct order *order; /* NULL: none */
    const char *metadata;      /* canonical JSON object; NULL: {} */
    const char *code;          /* NULL: none */
    int64_t code_n;            /* the slot that has the code, among the named; -1: none */
    enum slot_state state;     /* what the slot becomes: issued, reserved, redeemed */
    bool once;                 /* issue only to a user who has no code of the coupon yet, else answer with that: no code is needed */
    int64_t reserve_s;         /* COUPON_NULL: the coupon's */
    const int64_t *versions;   /* the user state must be at one of these, else VERSION_CHANGED; NULL: at any */
    size_t version_count;
};

/* A step of an existing redemption, named by its id. */
struct step {
    int64_t n;
    uint32_t g;
    enum slot_move move;       /* reserve, redeem, cancel, reverse */
    const char *key;           /* NULL for cancel and reverse */
    uint8_t fingerprint[FINGERPRINT_LEN];
    const struct order *order; /* NULL: none */
    int64_t reserve_s;         /* COUPON_NULL: the coupon's */
    bool adjusts;              /* no move: lower the discount of a redeemed one to discount_minor, or compute it anew, for the order */
    int64_t discount_minor;
    bool keep_use;             /* of a reversal: the slot and the discount come back, the user's use does not */
};

struct outcome {
    enum cpn_result result;
    int64_t need;       /* refused because the lane has fewer free slots than this: other lanes may have more. 0: not for that */
    bool replayed;      /* the first answer, repeated */
    bool created;       /* 201, not 200 */
    bool retry;         /* for sold_out: slots may come back; for USER_CAP_REACHED: the user's own holds make the difference */
    bool not_theirs;    /* refused for its code: unknown, or somebody else's */
    int64_t retry_at_ms;/* for Retry-After; 0: unknown */
    const char *detail; /* static, or NULL */
    const char *pointer; /* static: the field of the body that detail is about; NULL: none in particular */
    struct misfit misfit; /* for ORDER_NOT_ELIGIBLE */
    int64_t codes;        /* for CODES_WOULD_RETIRE: how many */
    const char **held;  /* for USER_CAP_REACHED, if retry: the ids of those holds; in the batch's arena */
    size_t held_count;
    struct redemption redemption; /* if result is OK; its strings live as long as the user state's */
};

/* Undecided: the free pool is empty although slots are free. Ask again in the next batch, with a new free pool. */
#define DECIDE_AGAIN false

/* Take a slot for u, the working copy of the user's state at the tail, with this decision's changes so far. Returns DECIDE_AGAIN, or true
 * with *out filled in. Order of checks: a repeat, t->versions, the refusals in the order of result.h. Releases u's expired holds first, so
 * that they affect no check, even if the request is then refused; t->versions do not count that as a change. */
bool decide_take(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out) CPN_CHECKED;

/* True if whoever presented the slot's code holds or redeemed it: until then the code was nobody's, so others may learn what became of it.
 * An issued code is its user's alone. */
bool decide_bearer_took(const struct coupon *c, const struct slot *s);

/* Answer as decide_take() would, without a key, and change nothing. *discount_minor: the discount, if OK. */
void decide_check(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out,
                  int64_t *discount_minor);

/* Take the redemption a step further, by the contract's table of calls and states; u is its user's state.
 * REDEMPTION_NOT_FOUND if u has no (n, g). Its slot must be among the named. */
void decide_step(struct decision *d, struct user_state *u, const struct step *s, struct outcome *out);

/* End the redemption in slot n, or (without slots) u's redemption (n, g), if it has expired. u is its user's state. A hold on an issued
 * redemption falls back to issued, and that ends too if it has expired. Called before a request that names a slot by code, to release
 * another user's expired hold. */
void decide_expire(struct decision *d, struct user_state *u, int64_t n, uint32_t g);

/* Retire slot n, which must be named, for good: from free, or from issued, which ends (u is its user's state; NULL: free).
 * SLOT_NOT_FOUND, TRANSACTION_IN_PROGRESS while held, CODE_TAKEN if redeemed; OK also if already retired. */
void decide_retire_one(struct decision *d, struct user_state *u, int64_t n, struct outcome *out);

/* Erase the user: end what is issued or held, remove the name from redeemed slots, reset the user state. The slots that u holds must be
 * among the named: else BUSY. OK also if there is nothing to erase. */
void decide_erase(struct decision *d, struct user_state *u, struct outcome *out);

/* Slots requested with a new coupon. Stored in the entry that defines it. */
struct slot_request {
    const char *key;             /* Idempotency-Key, or NULL */
    int64_t slots;               /* 0: none */
    struct job_progress *job;    /* the job that will make them; NULL: they are made at once */
};
#define KEY_OF_COUPON "" /* in place of the alias, for key_hash() */

/* Create the coupon (COUPON_EXISTS if it exists or did; request NULL: none), or change it: VERSION_CHANGED unless its version is
 * expected_version, then FIELD_FIXED (out->pointer says which; also if too many shared codes are in use), CAP_BELOW_TAKEN,
 * CODES_WOULD_RETIRE. Sets the version. Lowering cap.total makes free slots retiring, in lane 0; such as have codes only if the
 * caller said so: retire. */
void decide_create(struct decision *d, const struct coupon *next, const struct slot_request *request, struct outcome *out);
void decide_change(struct decision *d, const struct coupon *next, int64_t expected_version, bool retire, struct outcome *out);
/* Delete it; COUPON_IN_USE if it ever had a redemption. */
void decide_delete(struct decision *d, struct outcome *out);
/* Close the lane for good. VERSION_CHANGED: the coupon is not at expected_version; COUPON_IN_USE: it has not ended, something is issued or
 * held, or codes are being made. OK also if already closed. With several lanes lane 0 comes first: from then on the definition is fixed,
 * and the other lanes issue nothing more. DECIDE_AGAIN: the batch names a user; it would stay when the others are removed. */
bool decide_archive(struct decision *d, int64_t expected_version, struct outcome *out);
/* Release a closed lane for removal: nothing is decided after it. COUPON_IN_USE: it is not closed. OK also if already released. */
void decide_remove(struct decision *d, struct outcome *out);

/* ---- between lanes; any of these may be repeated at any time ---- */

/* Adopt lane 0's definition, if newer. */
void decide_follow(struct decision *d, const struct coupon *definition);
/* Raise the events of a coupon with several lanes, of whose slots `taken` were taken when the lanes were asked. In lane 0, which knows how
 * many exist by now: so slots added since are counted. */
void decide_events_of_all(struct decision *d, int64_t taken);

/* Step `step` (from 1) of a job's generation: make count new slots; in lane 0, or by a transfer between lanes (transfer.h). A step that the
 * job has passed is a replay and changes nothing. turn: if the coupon has codes, the job's turn they were made in. CAP_EXCEEDED: the policy
 * has no slots; BUSY: that turn has ended; CAP_EXCEEDED: the coupon would have more than cap.total. */
void decide_generate(struct decision *d, struct job_progress *job, int64_t step, int64_t count, int64_t turn, struct outcome *out);
/* Give the job its turn at making codes, for its runner with this fence, and put it into *turn. While it lasts no other job, and no earlier
 * runner of this one, can announce codes: what they wrote is not valid. BUSY: another job or a later runner has its turn, or this batch
 * gave one already. */
void decide_turn(struct decision *d, struct job_progress *job, int64_t fence, int64_t *turn, struct outcome *out);
/* End the job's turn, if it has it. */
void decide_turn_end(struct decision *d, struct job_progress *job, struct outcome *out);
/* Step `step` of a job that retires slots, or transfers them to another lane: make count free ones retiring, or all if fewer are
 * free; if none is, it is no step. *done: how many the job's steps have in all. */
void decide_retiring(struct decision *d, struct job_progress *job, int64_t step, int64_t count, int64_t *done, struct outcome *out);
/* Retire up to `most` of the slots that are retiring, from the free pool. */
void decide_retire(struct decision *d, int64_t most);
/* With one lane: raise the events that follow from what was decided: low stock, sold out, slots to be added. */
void decide_events(struct decision *d);
/* Add an empty entry, to advance the lane's time. */
void decide_tick(struct decision *d);

#endif
