/*
 * lanes/lanes.h -- what takes more than one lane of a coupon: changing it, making and moving slots.
 *
 * Shape    everything is a sequence of single-lane ops, each decided and appended like any other. A thread submits them one by one and may
 *          die between any two: the next one finds which transfers were begun, and which lanes do not follow yet. One thread at a time
 *          works for a coupon; several coupons have several threads, up to a bound
 * Stock    see slots.h
 * Threads  any
 */
#ifndef LANES_LANES_H
#define LANES_LANES_H

#include "engine/multilane.h"

/* For engine_start(). */
multilane_start lanes_start;

/* For tests, beside the hooks: */
/* The slots of the coupon with this many lanes are running low: raise events if due. */
void lanes_note_few(struct multilane *multilane, const char *coupon, int64_t lanes);
#define LANES_KEPT_MOST 1024
/* Idle coupons that are remembered, to save queries: at most LANES_KEPT_MOST. */
int lanes_kept(struct multilane *multilane);

#endif
