/*
 * lanes/lanes.h -- what takes more than one lane of a coupon: changing it, making slots, moving what is left between lanes.
 *
 * Shape    everything is a sequence of ops of single lanes, each decided and appended as any other; a thread submits them one after the
 *          other, and may die between any two: the next one finds what was given and not taken, and which lanes do not follow yet. One
 *          thread at a time works for a coupon, and as many threads as there are coupons that wait, up to a bound
 * Stock    lane 0 in the middle: a lane that has nothing left asks lane 0; if that has nothing either, all others give to lane 0.
 *          "Nothing is left" is answered when every lane was asked and had none, nothing was under way, and a second look found that none
 *          had moved since
 * Threads  any
 */
#ifndef LANES_LANES_H
#define LANES_LANES_H

#include "engine/multilane.h"

/* For engine_start(). */
multilane_start lanes_start;

/* For tests, beside the hooks: */
/* The coupon's slots are getting few: are there events to raise? */
void lanes_poke(struct multilane *multilane, const char *coupon);
#define LANES_KEPT_MOST 1024
/* Idle coupons of which something is remembered: LANES_KEPT_MOST or fewer. It only saves queries. */
int lanes_kept(struct multilane *multilane);

#endif
