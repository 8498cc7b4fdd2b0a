/*
 * coupons/decide.h -- what becomes of a request: pure, in memory, no I/O, no clock. Inputs in, effects out.
 *
 * Use     a batch is decided by one struct decision: decide_begin(), then decide_take() and its like for each request in
 *         the order of arrival, then decide_end(), which fills the batch's head and hash. Nothing outside the decision,
 *         its batch and the working copies of uses is changed, so that a decision that lost its race is just dropped.
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
#include "coupons/use.h"

struct free_slot {
    int64_t n;
    uint32_t g; /* as it stands: taking makes it g + 1 */
};

struct decision {
    const struct coupon *coupon; /* the definition in force; NULL: never was one; deleted: a tombstone. Moves with the entries */
    struct head head;            /* the totals, moving as requests are decided */
    int64_t day_end_ms;          /* the coupon's next midnight, for Retry-After */
    struct batch *batch;         /* what will be appended */
    const struct free_slot *stash; /* free slots, in the order in which they go out */
    size_t stash_count;
    size_t stash_used;           /* how many this decision took */
};

/* True when there is a coupon that is not deleted. All but decide_create() need one. */
static inline bool decide_exists(const struct decision *d)
{
    return d->coupon && d->coupon->state != COUPON_DELETED;
}

/* Start: the lane stands at `tail` with `coupon`; now is at_ms (not before the tail's), in the day [day_ms, day_end_ms). */
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
    enum slot_state state;     /* what the slot becomes: redeemed */
};

struct outcome {
    enum cpn_result result;
    bool replayed;      /* the first answer again */
    bool created;       /* 201 rather than 200 */
    bool retry;         /* for sold_out: may slots come back */
    int64_t retry_at_ms;/* for Retry-After; 0: unknown */
    const char *detail; /* static, or NULL */
    struct redemption redemption; /* when result is OK; its strings live as long as the use's */
};

/* Not decided now: the stash is empty although slots are free. Ask again in the next batch, with a new stash. */
#define DECIDE_AGAIN false

/* Take a slot for u, which is the working copy of the user's use at the tail, laid over with what this decision already did.
 * Returns DECIDE_AGAIN, or true with *out filled. Order of checks: the table of refusals. */
bool decide_take(struct decision *d, struct use *u, const struct take *t, struct outcome *out) CPN_CHECKED;

/* What decide_take would say, changing nothing; without key. *discount_minor gets the discount when it is OK. */
void decide_check(const struct decision *d, const struct use *u, const struct take *t, struct outcome *out,
                  int64_t *discount_minor);

/* Return a redemption that stands. OK (also when it was reversed before), INVALID_TRANSITION, or REDEMPTION_NOT_FOUND
 * when u has no (n, g). */
void decide_reverse(struct decision *d, struct use *u, int64_t n, uint32_t g, struct outcome *out);

/* Make the coupon (COUPON_EXISTS when there is or was one), or change it: expected_version is the version that
 * the change was made from, else VERSION_CHANGED. The version is made here. Then FIELD_FIXED (*out->detail is the pointer),
 * CAP_BELOW_TAKEN. Lowering cap.total makes free slots due for retirement. */
void decide_create(struct decision *d, const struct coupon *next, struct outcome *out);
void decide_change(struct decision *d, const struct coupon *next, int64_t expected_version, struct outcome *out);
/* Delete it: COUPON_IN_USE when it ever had a redemption. */
void decide_delete(struct decision *d, struct outcome *out);

/* Step `step` (from 1) of a job's generation: count new slots. job is the pseudo-use of the job: a step that it has
 * passed is a replay and changes nothing. CAP_EXCEEDED when the coupon would have more than cap.total. */
void decide_generate(struct decision *d, struct use *job, int64_t step, int64_t count, struct outcome *out);
/* Step `step` of a job that retires: count free slots become due; fewer when fewer are free. *done gets how many
 * the job's steps made due in all. */
void decide_due(struct decision *d, struct use *job, int64_t step, int64_t count, int64_t *done, struct outcome *out);
/* Retire up to `most` slots that are due, out of the stash. */
void decide_retire(struct decision *d, int64_t most);
/* An empty entry that moves the lane's time on. */
void decide_tick(struct decision *d);

#endif
