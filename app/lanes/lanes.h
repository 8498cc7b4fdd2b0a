/*
 * lanes/lanes.h -- what takes more than one lane of a coupon: changing it, making slots, moving quotas between lanes.
 *
 * Shape    everything is a sequence of single-lane ops, each decided and appended like any other. A thread submits them one by one and may
 *          die between any two: the next one finds what was given and not taken, and which lanes do not follow yet. One thread at a time
 *          works for a coupon; several coupons have several threads, up to a bound
 * Stock    goes through lane 0: a lane that runs dry asks lane 0; if that is dry too, all others give to lane 0. "Nothing is left" is
 *          answered once every lane was asked and had none, nothing was on its way, and a second look found that no lane had moved
 * Threads  any
 */
#ifndef LANES_LANES_H
#define LANES_LANES_H

#include "engine/multilane.h"

/* For engine_start(). */
multilane_start lanes_start;

/* For tests, beside the hooks: */
/* The coupon's slots are running low: raise events if due. */
void lanes_poke(struct multilane *multilane, const char *coupon);
#define LANES_KEPT_MOST 1024
/* Idle coupons that are remembered, to save queries: at most LANES_KEPT_MOST. */
int lanes_kept(struct multilane *multilane);

#endif
