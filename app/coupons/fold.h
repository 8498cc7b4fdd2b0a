/*
 * coupons/fold.h -- the ledger's meaning: how a batch changes each view. Views are functions of the ledger, and this is
 * the function. Deciding uses it too, so that what is decided and what is replayed cannot differ.
 *
 * Rule    folding a batch that a view already holds (view.seq >= batch seq) changes nothing
 */
#ifndef COUPONS_FOLD_H
#define COUPONS_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/job_progress.h"
#include "coupons/lane_account.h"
#include "coupons/record.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"

/* Apply entry e of a batch (its seq, at and day taken from *head, the lane and coupon zone day) to u. Strings are shared with e; new
 * redemptions come from a. Does not move u->seq or u->version: fold_user_state_done does. */
void fold_user_state_entry(struct user_state *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a);
/* Close a batch for u: seq, version + 1, and drop redemptions that ended more than 7 days before at. */
void fold_user_state_done(struct user_state *u, const struct head *head);
/* True when r ended more than 7 days before at_ms. */
bool redemption_is_stale(const struct redemption *r, int64_t at_ms);
/* Both, for all of u's entries in b, if b is newer than u. True if anything was applied. */
bool fold_user_state(struct user_state *u, const struct batch *b, struct arena *a);

/* The job whose progress e is; NULL: none's. */
const char *entry_job(const struct entry *e);
/* The same, for jobs: their seq and version move with the batch's first entry. */
void fold_job_entry(struct job_progress *j, const struct entry *e, const struct head *head);
void fold_job(struct job_progress *j, const struct batch *b);

/* With which lane e, of a batch of `lane`, is a transfer; -1: none. */
int64_t entry_peer(const struct entry *e, int64_t lane);
/* The same, for accounts. */
void fold_account_entry(struct lane_account *a, const struct entry *e, const struct head *head);
void fold_account(struct lane_account *a, const struct batch *b);

/* Apply e to the totals. The day is up to the caller: see fold_day. */
void fold_head_entry(struct head *h, const struct entry *e);
/* The number of the next slot that is made in the lane. */
int64_t fold_next_n(const struct head *h, int64_t lane);
/* Move h to at_ms and its day: a new day starts its count at 0. */
void fold_day(struct head *h, int64_t at_ms, int64_t day_ms);

/* The definition after b, when it was `before` (NULL: none): before itself when b does not change it, else a copy in a. */
const struct coupon *fold_definition(const struct coupon *before, const struct batch *b, struct arena *a);

/* Apply all of b's entries that touch k to it, if b is newer than k. True if anything was applied. */
bool fold_bucket(struct bucket *k, const struct batch *b);
/* Lay e, which names it, into one slot. */
void fold_slot(struct slot *s, const struct entry *e, int64_t at_ms);
/* The buckets that e touches are [*first, *end); false: none. */
bool entry_buckets(const struct entry *e, int64_t *first, int64_t *end);

/* What the reporter adds up per quarter hour. */
struct report_counts {
    int64_t issued, reserved, redeemed, cancelled, expired, reversed;
    int64_t discount_minor; /* redeemed minus reversed */
};

/* See record.h. X(member): all are INT, and ALWAYS stored, under the member's name */
#define REPORT_COUNTS_FIELDS(X)                                                                                       \
    X(issued)                                                                                                         \
    X(reserved)                                                                                                       \
    X(redeemed)                                                                                                       \
    X(cancelled)                                                                                                      \
    X(expired)                                                                                                        \
    X(reversed)                                                                                                       \
    X(discount_minor)

void fold_report(struct report_counts *r, const struct batch *b);
void report_counts_add(struct report_counts *to, const struct report_counts *more);

#define QUARTER_MS (INT64_C(15) * 60 * 1000)

/* When the quarter hour began. */
static inline int64_t quarter_of(int64_t at_ms)
{
    return at_ms - at_ms % QUARTER_MS;
}

/* What differs between the totals that a batch carries and those that follow from the batch before it; NULL if nothing.
 * For verify. before: the head of the batch before (zeroed for the first). */
const char *batch_contradiction(const struct head *before, const struct batch *b);

#endif
