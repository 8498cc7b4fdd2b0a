/*
 * reporter/definition_sync.h -- which coupons with several lanes changed, and may have lanes that do not follow: whoever changed them
 * has the others follow before it answers, but may have died between the two.
 *
 * Rule     a moment after a change was seen, the lanes are made to follow, once: where they do already, that changes little.
 *          Changes that are seen meanwhile are one. What failed is due again, later and later
 * Threads  any; times are given by the caller
 */
#ifndef REPORTER_DEFINITION_SYNC_H
#define REPORTER_DEFINITION_SYNC_H

#include <stddef.h>

#include "base/clock.h"
#include "coupons/coupon.h"

#define FOLLOW_WAIT_MS 1000 /* whoever made the change is first */
#define FOLLOW_RETRY_MOST_MS 60000

struct definition_sync;
typedef char definition_sync_coupon[COUPON_ID_MAX + 1];

struct definition_sync *definition_sync_new(void);
void definition_sync_free(struct definition_sync *f);
/* The coupon's lane 0 has another definition. */
void definition_sync_changed(struct definition_sync *f, const char *coupon, struct mono now);
/* A coupon whose lanes are to follow now: it is taken out. False: none is. */
bool definition_sync_due(struct definition_sync *f, struct mono now, definition_sync_coupon coupon, int *failures);
/* None is to follow, but for those of failed[*count], which could not be made to when that was tried last. One that was taken out
 * counts until definition_sync_ended(). False: others are to, or more than `most` failed. */
bool definition_sync_is_done(struct definition_sync *f, definition_sync_coupon *failed, size_t most, size_t *count);
/* What definition_sync_due() took out follows, or was given back by definition_sync_failed(). */
void definition_sync_ended(struct definition_sync *f);
/* They could not be made to, for the so-many-th time: later. */
void definition_sync_failed(struct definition_sync *f, const char *coupon, int failures, struct mono now);

#endif
