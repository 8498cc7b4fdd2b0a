/*
 * verify/replay_lanes.h -- what the lanes of one coupon say of each other, and whether they agree. No I/O.
 *
 * Usage    a struct lane_sums, zeroed, per lane; replay_sum() has a replay fill it; then lane_sums_rest() and, for lane 0, the
 *          batches appended while the other lanes were replayed: so all that lanes got from lane 0 is known as given
 * Checks   what a lane has elsewhere is what its accounts say; no lane got more than it was given; a day's takings, and the
 *          discounts, of all lanes together are within the caps; no lane is ahead of lane 0's definition. It follows that no
 *          slot is lost or doubled, since each lane's totals were checked alone (batch_contradiction)
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
    struct lane_account peers[COUPON_LANES_MAX]; /* by the other lane, from this lane's entries */
    struct lane_account before[COUPON_LANES_MAX]; /* in lane 0: as of the end of its own replay */
    struct lane_day *days;                       /* ascending */
    size_t day_count, day_capacity;
    struct lane_caps *caps;                      /* all that were ever defined */
    size_t caps_count, caps_capacity;
};

void lane_sums_batch(struct lane_sums *s, const struct batch *b);
/* The replay is at its end: batches from now on came later. */
void lane_sums_rest(struct lane_sums *s);
void lane_sums_release(struct lane_sums *s);

/* Compare lanes 0 to count - 1. still: none moved since it was replayed, so all are as of one time. */
void lane_sums_compare(const struct lane_sums *lanes, size_t count, bool still, drift_fn *report, void *context);

#endif
