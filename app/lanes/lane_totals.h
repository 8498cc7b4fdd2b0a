/*
 * lanes/lane_totals.h -- what this process knows of coupons with several lanes: each lane's totals, as last heard.
 *
 * Sources  its own lanes, with every batch; other processes' batches, from the listener
 * Bound    coupons that have a lane in memory: see engine/multilane.h
 * Use      policies without slots: a lane adds what it heard of the others to its own counts. All of it may be stale: nothing exact depends
 *          on it
 * Threads  any
 */
#ifndef LANES_LANE_TOTALS_H
#define LANES_LANE_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/decide.h"

struct lane_totals;

struct lane_totals *lane_totals_new(void);
void lane_totals_free(struct lane_totals *t);

/* The coupon, which is not known, has this many lanes, for good. */
void lane_totals_know(struct lane_totals *t, const char *coupon, int64_t lanes);
void lane_totals_forget(struct lane_totals *t, const char *coupon);
/* Record the lane's totals. Unknown coupons are ignored. */
void lane_totals_note(struct lane_totals *t, const char *coupon, int64_t lane, const struct head *head);
/* The sums over the coupon's lanes except `lane`. */
void lane_totals_others(struct lane_totals *t, const char *coupon, int64_t lane, struct others *sums);
/* True if every lane was heard of, and nothing missed since. */
bool lane_totals_all(struct lane_totals *t, const char *coupon);
/* Something may have been missed: forget what was heard. */
void lane_totals_missed(struct lane_totals *t);

#endif
