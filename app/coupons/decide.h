/*
 * coupons/decide.h -- what becomes of a request: pure, in memory, no I/O, no clock. Inputs in, effects out.
 *
 * Use     a batch is decided by one struct decision: decide_begin(), then decide_expire() for what has ended by itself, then
 *         decide_take() and its like for each request in the order of arrival, then decide_events(), then decide_end(),
 *         which fills the batch's head and hash. Nothing outside the decision, its batch and the working copies of uses and
 *         named slots is changed, so that a decision that lost its race is just dropped.
 * Source  the HTTP contract: order of checks, table of refusals
 */
#ifndef COUPONS_DECIDE_H
#define COUPONS_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/discount.h"
#include "coupons/user_state.h"

/* What a lane has a quota of, if a coupon with slots has several lanes. */
enum quota { QUOTA_NONE, QUOTA_SLOTS, QUOTA_DAY, QUOTA_BUDGET, QUOTA_COUNT };

struct free_slot {
    int64_t n;
    uint32_t g;       /* as it stands: taking makes it head_next_generation() */
    const char *code; /* NULL: none */
};

/* A slot that a request names, by its id or its code, or whose time has passed: a working copy. */
struct named_slot {
    int64_t n;
    struct slot slot;
    const char *code; /* NULL: none */
};

/* What the coupon's other lanes have, as last heard: it may be old. */
struct others {
    int64_t taken, reserved, takings;
    int64_t day_taken; /* of the present day */
    int64_t discount_minor;
    int64_t stock;     /* slots of the whole coupon */
    int64_t due_ms;    /* when the first hold of any lane ends; 0: none, or not known. Of one request, set before it is decided */
};

struct decision {
    const struct coupon *coupon; /* the definition in force; NULL: never was one; deleted: a tombstone. Moves with the entries */
    struct head head;            /* the totals, moving as requests are decided */
    int64_t day_end_ms;          /* the coupon's next midnight, for Retry-After */
    struct batch *batch;         /* what will be appended */
    const struct free_slot *free_pool; /* free slots, in the order in which they go out */
    size_t free_pool_count;
    size_t free_pool_used;       /* how many this decision took, or passed over */
    struct named_slot *named;    /* ascending by n */
    size_t named_count;
    struct others others;        /* zeros where there is one lane */
    int64_t next_due_ms;         /* when the lane's next hold ends, for Retry-After; 0: none, or not known */
    int64_t free_most;           /* the most free slots that there were since decide_begin() */
    int64_t epoch;               /* how often the database was restored: a lane that has not recorded it yet does so first */
    const char *by;              /* the operator's API key for which the next request is decided; NULL: none */
};

/* A row per cap policy: what a coupon of this policy has, and when its total is reached. */
struct policy_row {
    bool slots; /* takings come out of slots, else out of nothing */
    bool total; /* cap.total is looked at */
    /* True when nothing is left. */
    bool (*exhausted)(const struct decision *d);
};
extern const struct policy_row policies[];
static inline const struct policy_row *policy_of(const struct coupon *c)
{
    return &policies[c->cap.policy];
}

/* What is left of a quota in a lane with the totals *h, of a coupon with slots and several lanes: INT64_MAX if there is no cap. */
int64_t quota_left(const struct coupon *c, int64_t lane, const struct head *h, enum quota quota);

/* The most free slots at which an event of this coupon may be due. */
int64_t decide_low_mark(const struct coupon *c);

/* How many slots to add to a coupon that has `left` free ones; *h: its lane 0, or the sum of all. 0: none, or they are being added. */
int64_t decide_refill(const struct coupon *c, const struct head *h, int64_t left);

/* True when there is a coupon that is not deleted. All but decide_create() need one. */
static inline bool decide_exists(const struct decision *d)
{
    return d->coupon && d->coupon->state != COUPON_DELETED;
}

/* Start: the lane is at `tail` with `coupon`; now is at_ms (not before the tail's), in the day [day_ms, day_end_ms). */
void decide_begin(struct decision *d, struct batch *batch, const struct coupon *coupon, const struct head *tail,
                  int64_t at_ms, int64_t day_ms, int64_t day_end_ms);

/* True when entries were made: the batch must be appended. */
static inline bool decide_changed(const struct decision *d)
{
    return d->batch->count > 0;
}

/* Close: the batch's head, prev and hash. Only when decide_changed(). */
void decide_end(struct decision *d, const struct head *tail, struct buf *scratch);

struct take {
    const char *key;
    uint8_t fingerprint[FINGERPRINT_LEN];
    const struct order *order; /* NULL: none */
    const char *metadata;      /* canonical JSON object; NULL: {} */
    const char *code;          /* NULL: none */
    int64_t code_n;            /* the slot that has the code, among the named; -1: none has */
    enum slot_state state;     /* what the slot becomes: issued, reserved, redeemed */
    int64_t reserve_s;         /* COUPON_NULL: the coupon's */
    const int64_t *versions;   /* of the user's state: it must be one of these, else VERSION_CHANGED; NULL: whatever it is */
    size_t version_count;
};

/* A step of a redemption that is there, named by its id. */
struct step {
    int64_t n;
    uint32_t g;
    enum slot_move move;       /* reserve, redeem, cancel, reverse */
    const char *key;           /* NULL for cancel and reverse */
    uint8_t fingerprint[FINGERPRINT_LEN];
    const struct order *order; /* NULL: none */
    int64_t reserve_s;         /* COUPON_NULL: the coupon's */
};

struct outcome {
    enum cpn_result result;
    enum quota lacks;   /* refused for lack of this lane's quota, of which it needs `need`: the other lanes may have more */
    int64_t need;
    bool replayed;      /* the first answer again */
    bool created;       /* 201 rather than 200 */
    bool retry;         /* for sold_out: may slots come back */
    bool not_theirs;    /* refused for its code, which is unknown or somebody else's */
    int64_t retry_at_ms;/* for Retry-After; 0: unknown */
    const char *detail; /* static, or NULL */
    struct misfit misfit; /* of ORDER_NOT_ELIGIBLE */
    struct redemption redemption; /* when result is OK; its strings live as long as the user state's */
};

/* Not decided now: the free pool is empty although slots are free. Ask again in the next batch, with a new free pool. */
#define DECIDE_AGAIN false

/* Take a slot for u, the working copy of the user's state at the tail, with this decision's changes so far. Returns DECIDE_AGAIN, or true
 * with *out filled. Order of checks: a repeat, t->versions, the table of refusals. Holds of u that have expired are released first, so
 * that they do not affect any check, even if the request is then refused; for t->versions that is not yet a change. */
bool decide_take(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out) CPN_CHECKED;

/* True when the slot is held or spent by whoever presented its code: until then the code belonged to nobody, so that others may
 * know what became of it. A code that was issued is its user's alone. */
bool decide_bearer_took(const struct coupon *c, const struct slot *s);

/* What decide_take would say, changing nothing; without key. *discount_minor gets the discount when it is OK. */
void decide_check(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out,
                  int64_t *discount_minor);

/* Take the redemption a step further, by the contract's table of calls and states; u is its user's state.
 * REDEMPTION_NOT_FOUND when u has no (n, g). Its slot must be among the named. */
void decide_step(struct decision *d, struct user_state *u, const struct step *s, struct outcome *out);

/* The redemption in slot n, or (without slots) u's redemption (n, g), ends if its time has passed. u is its user's state. A hold on an
 * issued one falls back to issued, and that ends too if its time has passed. Called before a request that names a slot by its code, so
 * that another user's expired hold is released. */
void decide_expire(struct decision *d, struct user_state *u, int64_t n, uint32_t g);

/* Slot n, named, is never usable again: retired from free, or from issued, which ends (u is its user's state, NULL when free).
 * SLOT_NOT_FOUND, TRANSACTION_IN_PROGRESS while held, CODE_TAKEN when redeemed; OK also if it was already retired. */
void decide_retire_one(struct decision *d, struct user_state *u, int64_t n, struct outcome *out);

/* Erase the user: what is issued or held ends, redeemed slots forget the name, the user state starts again. The slots that u holds must
 * be among the named, and alias, if any, u's: else BUSY. OK also when there is nothing to erase. */
void decide_erase(struct decision *d, struct user_state *u, const char *alias, struct outcome *out);

/* What is requested with a new coupon. It is stored in the entry that defines the coupon. */
struct wish {
    const char *key;             /* Idempotency-Key, or NULL */
    int64_t slots;               /* 0: none */
    struct job_progress *job;       /* that will make them; NULL: they are made at once */
    struct lane_account *const *accounts; /* made at once: as of decide_generate() */
};
#define KEY_OF_COUPON "" /* in place of the alias, for key_hash() */

/* Make the coupon (COUPON_EXISTS when there is or was one; wish NULL: none), or change it: expected_version is the version that
 * the change was made from, else VERSION_CHANGED. The version is made here. Then FIELD_FIXED
 * (out->detail is the pointer), CAP_BELOW_TAKEN. Lowering cap.total makes free slots due for retirement.
 * Several lanes: a new cap, or a lower one, is less than what lanes have of the old one; quota_left() is then below 0 in lane
 * 0, and where more was taken while there was none. Before it is answered, until no lane is below 0, or none above it:
 * all follow, get what lane 0 gave them, and give it all that they have; then it gives those below 0 what they lack. */
void decide_create(struct decision *d, const struct coupon *next, const struct wish *wish, struct outcome *out);
void decide_change(struct decision *d, const struct coupon *next, int64_t expected_version, struct outcome *out);
/* Delete it: COUPON_IN_USE when it ever had a redemption. */
void decide_delete(struct decision *d, struct outcome *out);
/* Close the lane for good: the coupon as of expected_version has ended, else VERSION_CHANGED, COUPON_IN_USE; and nothing of it is issued or
 * held, and no codes are being made, else COUPON_IN_USE. OK also when it was closed before. Of several lanes lane 0 comes first: then the
 * definition changes no longer, and what the others have not issued by then they never will. */
void decide_archive(struct decision *d, int64_t expected_version, struct outcome *out);
/* Release a closed lane for removal: nothing is decided after it. VERSION_CHANGED: its last batch is not expected_seq, up to which its
 * archive was written; COUPON_IN_USE: it is not closed. OK also if it was already released. */
void decide_remove(struct decision *d, int64_t expected_seq, struct outcome *out);

/* ---- between lanes; any of these may be repeated at any time ---- */

/* The lane takes over the definition of lane 0, if that is newer. */
void decide_follow(struct decision *d, const struct coupon *definition);
/* Give the lane of this account what it wants, and a fair part of what is here; less if there is less. want: -1: nothing. account->given
 * is then the total ever given, and account->day_ms the day it is for. */
void decide_give(struct decision *d, struct lane_account *account, const struct gift *want, struct outcome *out);
/* Take what the lane of this account has given and was not taken yet; of slots at most `most` now. */
void decide_get(struct decision *d, struct lane_account *account, const struct gift *given, int64_t given_day_ms, int64_t most,
                struct outcome *out);
/* Raise the events of a coupon with several lanes, in which `taken` slots were taken when they were asked. In lane 0, which knows how
 * many there are by now: what was added since is not missed. */
void decide_events_of_all(struct decision *d, int64_t taken);

/* Step `step` (from 1) of a job's generation: count new slots. accounts: of lane 0 with each other lane, by its number, which get their
 * part at once; NULL where there is one lane. A step that the job has passed is a replay and changes nothing. turn: if the coupon has
 * codes, the job's turn in which they were made; if another job has the turn by now, BUSY. CAP_EXCEEDED when the coupon would have more
 * than cap.total. */
void decide_generate(struct decision *d, struct job_progress *job, struct lane_account *const *accounts, int64_t step, int64_t count,
                     int64_t turn, struct outcome *out);
/* Give the job its turn at making codes, as its runner with this fence; *turn gets it. While it lasts no other job, and no
 * earlier runner of this one, can announce codes: what they wrote is not valid. BUSY: another job has its turn, or this batch
 * gave one already. */
void decide_turn(struct decision *d, struct job_progress *job, int64_t fence, int64_t *turn, struct outcome *out);
/* End the job's turn, if it has it. */
void decide_turn_end(struct decision *d, struct job_progress *job, struct outcome *out);
/* Step `step` of a job that retires: count free slots become due; fewer when fewer are free. *done gets how many
 * the job's steps made due in all. */
void decide_due(struct decision *d, struct job_progress *job, int64_t step, int64_t count, int64_t *done, struct outcome *out);
/* Retire up to `most` slots that are due, out of the free pool. */
void decide_retire(struct decision *d, int64_t most);
/* The events that follow from what was decided, where there is one lane: low stock, sold out, slots to be added. */
void decide_events(struct decision *d);
/* An empty entry that moves the lane's time on. */
void decide_tick(struct decision *d);

#endif
