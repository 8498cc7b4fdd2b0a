/*
 * coupons/fold.h -- the ledger's meaning: how a batch changes a user, a bucket, a definition. All of them are functions of the
 * ledger, and these are the functions. Deciding uses them too, so decisions and replays cannot differ.
 *
 * Rule    folding a batch that a document already holds (its seq >= the batch's) changes nothing
 */
#ifndef COUPONS_FOLD_H
#define COUPONS_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/job_progress.h"
#include "coupons/record.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"

/* Apply entry e of a batch of `lane` (*head has its seq, time and day) to u. Strings are shared with e; new redemptions come from a. Leaves
 * u->seq to fold_user_state_done(). */
void fold_user_state_entry(struct user_state *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a);
/* Finish a batch for u: set seq, drop redemptions that ended more than 7 days before the batch. */
void fold_user_state_done(struct user_state *u, const struct head *head);
/* True if r ended more than 7 days before at_ms. */
bool redemption_is_stale(const struct redemption *r, int64_t at_ms);
/* Both, for all of u's entries in b, if b is newer than u. True if there were any. */
bool fold_user_state(struct user_state *u, const struct batch *b, struct arena *a);

/* The same for jobs: the batch's first entry sets seq and version. */
void fold_job_entry(struct job_progress *j, const struct entry *e, const struct head *head);
void fold_job(struct job_progress *j, const struct batch *b);

/* Apply e to the totals. The caller sets the day: see fold_day(). */
void fold_head_entry(struct head *h, const struct entry *e);
/* The number of the next slot made in the lane. */
int64_t fold_next_n(const struct head *h, int64_t lane);
/* Move h to at_ms and its day: a new day starts its count at 0. */
void fold_day(struct head *h, int64_t at_ms, int64_t day_ms);

/* The definition after b, if it was `before` (NULL: none): `before` itself if b does not change it, else a copy in a. */
const struct coupon *fold_definition(const struct coupon *before, const struct batch *b, struct arena *a);

/* Apply to k all of b's entries that touch it, if b is newer than k. True if there were any. */
bool fold_bucket(struct bucket *k, const struct batch *b);
/* Apply e to the slot that it names. */
void fold_slot(struct slot *s, const struct entry *e, int64_t at_ms);
/* The buckets that e touches are [*first, *end); false: none. */
bool entry_buckets(const struct entry *e, int64_t *first, int64_t *end);
/* What e does to each slot that it moves: 1: it is free again, -1: it is not free any more, 0: neither. */
int entry_frees(const struct entry *e);

/* What the reporter sums per quarter hour. */
struct report_counts {
    int64_t issued, reserved, redeemed, cancelled, expired, reversed;
    int64_t discount_minor; /* redeemed minus reversed, like order_minor: what their orders were worth */
    int64_t order_minor;
};

/* See record.h. X(member): each is an INT, ALWAYS stored under the member's name */
#define REPORT_COUNTS_FIELDS(X)                                                                                       \
    X(issued)                                                                                                         \
    X(reserved)                                                                                                       \
    X(redeemed)                                                                                                       \
    X(cancelled)                                                                                                      \
    X(expired)                                                                                                        \
    X(reversed)                                                                                                       \
    X(discount_minor)                                                                                                 \
    X(order_minor)

void fold_report(struct report_counts *r, const struct batch *b);
void fold_report_entry(struct report_counts *r, const struct entry *e);
void report_counts_add(struct report_counts *to, const struct report_counts *more);

#define QUARTER_MS (INT64_C(15) * 60 * 1000)

/* The start of the quarter hour of at_ms. */
static inline int64_t quarter_of(int64_t at_ms)
{
    return at_ms - at_ms % QUARTER_MS;
}

/* The first member of b that contradicts the batch before it or b's own entries; NULL: none. For verify. before: the head of the previous
 * batch (zeroed: b is the first). */
const char *batch_contradiction(const struct head *before, const struct batch *b);

#endif
