/*
 * reporter/definition_sync.h -- which coupons with several lanes changed and may have lanes that do not follow: whoever changes them makes
 * the others follow before answering, but may die in between.
 *
 * Rule     shortly after a change was seen, the lanes are made to follow, once: if they do already, that costs little. Further changes
 *          meanwhile count as one. Failures are due again, at growing intervals
 * Threads  any; the caller passes times
 */
#ifndef REPORTER_DEFINITION_SYNC_H
#define REPORTER_DEFINITION_SYNC_H

#include <stddef.h>

#include "base/clock.h"
#include "coupons/coupon.h"

#define FOLLOW_WAIT_MS 1000 /* time for whoever made the change */
#define FOLLOW_RETRY_MOST_MS 60000

struct definition_sync;
typedef char definition_sync_coupon[COUPON_ID_MAX + 1];

struct definition_sync *definition_sync_new(void);
void definition_sync_free(struct definition_sync *f);
/* The coupon's lane 0 has a new definition. */
void definition_sync_changed(struct definition_sync *f, const char *coupon, struct mono now);
/* Take out a coupon whose lanes are to follow now. False: none. */
bool definition_sync_due(struct definition_sync *f, struct mono now, definition_sync_coupon coupon, int *failures);
/* From now on wait for the coupons that have to follow now, however often others change meanwhile. */
void definition_sync_begin(struct definition_sync *f);
/* True if they follow, except for failed[*count], whose last attempts failed. A coupon taken out counts until definition_sync_ended().
 * False: some do not yet, or more than `most` failed. */
bool definition_sync_is_done(struct definition_sync *f, definition_sync_coupon *failed, size_t most, size_t *count);
/* What definition_sync_due() took out follows, or was put back by definition_sync_failed(). */
void definition_sync_ended(struct definition_sync *f);
/* Making them follow failed, for the `failures`-th time: try later. */
void definition_sync_failed(struct definition_sync *f, const char *coupon, int failures, struct mono now);

#endif
