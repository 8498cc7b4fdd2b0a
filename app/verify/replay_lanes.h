/*
 * verify/replay_lanes.h -- what the lanes of one coupon say of each other, and whether they agree. No I/O.
 *
 * Usage    struct lane_sums, zeroed, per lane; replay_sum() has a replay fill it; then lane_sums_rest() and, for lane 0, the
 *          batches that it appended while the others were told: then nobody got what lane 0 did not say yet that it gave
 * Checks   what a lane has elsewhere is what its accounts say; nobody got more than was given; no day's takings, and no discount,
 *          of all lanes together are above the caps; nobody is ahead of lane 0's definition. That no slot is lost or doubled
 *          follows: each lane's totals were checked by themselves (batch_contradiction)
 * Owns     its days and caps: lane_sums_release()
 */
#ifndef VERIFY_REPLAY_LANES_H
#define VERIFY_REPLAY_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "verify/drift.h"

struct lane_day {
    int64_t day_ms, taken;
};

struct lane_caps {
    int64_t at_ms, per_day, discount_minor;
    bool slots;
};

struct lane_sums {
    struct head head;
    struct lane_account peers[COUPON_LANES_MAX]; /* by the other lane, as its entries say */
    struct lane_account before[COUPON_LANES_MAX]; /* of lane 0: as they stood when its own replay ended */
    struct lane_day *days;                       /* ascending */
    size_t day_count, day_capacity;
    struct lane_caps *caps;                      /* each that was defined */
    size_t caps_count, caps_capacity;
};

void lane_sums_batch(struct lane_sums *s, const struct batch *b);
/* The replay is at its end; what is told from now on came later. */
void lane_sums_rest(struct lane_sums *s);
void lane_sums_release(struct lane_sums *s);

/* Compare lanes 0 to count - 1. still: none has moved since it was told, so that they are of one time. */
void lane_sums_compare(const struct lane_sums *lanes, size_t count, bool still, drift_fn *report, void *context);

#endif
