/*
 * reporter/follow.h -- which coupons with several lanes changed, and may have lanes that do not follow: whoever changed them
 * has the others follow before it answers, but may have died between the two.
 *
 * Rule     a moment after a change was seen, the lanes are made to follow, once: where they do already, that changes little.
 *          Changes that are seen meanwhile are one. What failed is due again, later and later
 * Threads  any; times are given by the caller
 */
#ifndef REPORTER_FOLLOW_H
#define REPORTER_FOLLOW_H

#include <stddef.h>

#include "base/clock.h"
#include "coupons/coupon.h"

#define FOLLOW_WAIT_MS 1000 /* whoever made the change is first */
#define FOLLOW_RETRY_MOST_MS 60000

struct follow;

struct follow *follow_new(void);
void follow_free(struct follow *f);
/* The coupon's lane 0 has another definition. */
void follow_changed(struct follow *f, const char *coupon, struct mono now);
/* A coupon whose lanes are to follow now: it is taken out. False: none is. */
bool follow_due(struct follow *f, struct mono now, char coupon[COUPON_ID_MAX + 1], int *failures);
/* None is to follow. One that was taken out counts until follow_ended(). */
bool follow_is_done(struct follow *f);
/* What follow_due() took out follows, or was given back by follow_failed(). */
void follow_ended(struct follow *f);
/* They could not be made to, for the so-many-th time: later. */
void follow_failed(struct follow *f, const char *coupon, int failures, struct mono now);

#endif
