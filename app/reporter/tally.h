/*
 * reporter/tally.h -- what one batch adds to the totals, and how the tallies at hand become few writes. Pure.
 * A batch may also ask for more slots, or change a definition that other lanes follow: the tally carries that on.
 *
 * Shape   struct tally: one batch; struct run: consecutive batches of one lane within one quarter hour
 * Owns    nothing; a run borrows its lane's coupon
 */
#ifndef REPORTER_TALLY_H
#define REPORTER_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/fold.h"
#include "store/mongo.h"

/* A lane, as far as its batches are in the totals. */
struct tally_lane {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
    int64_t folded; /* seq up to which its batches are in the totals; -1: not known yet */
};

struct tally {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq, at_ms;
    uint64_t arrived; /* 0: not known */
    struct report_counts counts;
    int64_t replenish_until; /* it asks that slots be added until so many exist; 0: it does not */
    int64_t wished;          /* slots that were asked for with a new coupon, of a job; 0: none */
    char job[ID_SHORT_LEN + 1];
    bool leads; /* the coupon's other lanes have a definition to follow */
    struct tally_lane *of; /* set by whoever folds; NULL: it is not to be counted */
};

void tally_of_batch(struct tally *t, const struct batch *b);

static inline int64_t quarter_of(int64_t at_ms)
{
    return at_ms - at_ms % QUARTER_MS;
}

struct run {
    const struct tally_lane *of;
    int64_t quarter_ms, first_seq, last_seq;
    struct report_counts counts;
};

/* Gather tallies[count] into runs[count], leaving out tallies without a lane and runs that add nothing. In each lane the
 * tallies ascend without gaps. Returns the number of runs. */
size_t runs_build(const struct tally *tallies, size_t count, struct run *runs);

/* The part of run after held_seq, made anew from the tallies that it was made of. False: nothing is left. */
bool run_trim(struct run *run, int64_t held_seq, const struct tally *tallies, size_t count);

/* run as the store wants it; counts stay run's. */
struct totals_write run_write(struct run *run);

#endif
