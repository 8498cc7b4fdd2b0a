/*
 * verify/replay_lanes.h -- what the lanes of one coupon say of each other, and whether they agree. No I/O.
 *
 * Usage    a struct lane_sums, zeroed, per lane; a replay that has it as lane_sums fills it; then lane_sums_rest() and, for lane 0, the
 *          batches appended while the other lanes were replayed: so all that came to lanes from lane 0 is known to have gone there
 * Checks   what a lane has elsewhere is what moved; no more slots came to a lane than went there, and after the same step as many; no lane
 *          is ahead of lane 0's definition; a deleted coupon has no takings in any lane. It follows that no slot is lost or doubled, since
 *          each lane's totals were checked alone (batch_contradiction)
 */
#ifndef VERIFY_REPLAY_LANES_H
#define VERIFY_REPLAY_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "verify/drift.h"

/* One side of the transfers from one lane to another (transfer.h): its last step, and the slots after it and before it. */
struct moved {
    int64_t step, total, before;
};

struct lane_moves {
    struct moved to, from;
};

struct lane_sums {
    struct head head;
    struct lane_moves moves[COUPON_LANES_MAX];  /* by the other lane, from this lane's entries */
    struct lane_moves before[COUPON_LANES_MAX]; /* in lane 0: as of the end of its own replay */
    bool deleted;
};

void lane_sums_batch(struct lane_sums *s, const struct batch *b);
/* The replay is at its end: batches from now on came later. */
void lane_sums_rest(struct lane_sums *s);

/* Compare lanes 0 to count - 1. still: none moved since it was replayed, so all are as of one time. */
void lane_sums_compare(const struct lane_sums *lanes, size_t count, bool still, drift_fn *report, void *context);

#endif
