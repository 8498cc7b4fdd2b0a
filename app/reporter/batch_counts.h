/*
 * reporter/batch_counts.h -- what one batch adds to the totals, and how many of them become few writes. Pure.
 * A batch may also ask for more slots, or change a definition that other lanes follow: its counts carry that on.
 *
 * Shape   struct batch_counts: one batch; struct run: consecutive batches of one lane within one quarter hour
 * Owns    nothing; a run borrows its lane's coupon
 */
#ifndef REPORTER_BATCH_COUNTS_H
#define REPORTER_BATCH_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/fold.h"
#include "store/mongo.h"

/* A lane, as far as its batches are in the totals. */
struct counted_lane {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
    int64_t folded; /* seq up to which its batches are in the totals; -1: not known yet */
};

struct batch_counts {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq, at_ms;
    uint64_t arrived; /* 0: not known */
    struct report_counts counts;
    int64_t replenish_until; /* it asks that slots be added until so many exist; 0: it does not */
    int64_t wished;          /* slots that were asked for with a new coupon, of a job; 0: none */
    char job[ID_SHORT_LEN + 1], by[KEY_ID_LEN + 1]; /* its id, and that of the API key that asked, or "" */
    bool leads; /* the coupon's other lanes have a definition to follow */
    bool unread; /* the batch cannot be read: it adds nothing, and no later one does before it can */
    struct counted_lane *of; /* set by whoever folds; NULL: it is not to be counted */
};

void batch_counts_of(struct batch_counts *t, const struct batch *b);
/* Of one that cannot be read. */
void batch_counts_of_unread(struct batch_counts *t, const struct batch_key *unread, int64_t now_ms);

struct run {
    const struct counted_lane *of;
    int64_t quarter_ms, first_seq, last_seq;
    struct report_counts counts;
};

/* Gather batches[count] into runs[count], leaving out those without a lane and runs that add nothing. In each lane the
 * batches ascend without gaps. Returns the number of runs. */
size_t runs_build(const struct batch_counts *batches, size_t count, struct run *runs);

/* The part of run after held_seq, made anew from the batches that it was made of. False: nothing is left. */
bool run_trim(struct run *run, int64_t held_seq, const struct batch_counts *batches, size_t count);

/* run as the store wants it; counts stay run's. */
struct totals_write run_write(struct run *run);

#endif
