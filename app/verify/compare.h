/*
 * verify/compare.h -- compares two records of one kind, field by field: a row per field. No I/O.
 */
#ifndef VERIFY_COMPARE_H
#define VERIFY_COMPARE_H

#include <stddef.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/fold.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"

#define COMPARE_TEXT_SIZE 160 /* longer values are cut */

/* Called for each field that differs. */
typedef void differ_fn(void *context, const char *field, const char *expected, const char *found);

void compare_job(const struct job_progress *expected, const struct job_progress *found, differ_fn *differ, void *context);
void compare_user_state(const struct user_state *expected, const struct user_state *found, differ_fn *differ, void *context);
void compare_bucket(const struct bucket *expected, const struct bucket *found, differ_fn *differ, void *context);
void compare_coupon(const struct coupon *expected, const struct coupon *found, differ_fn *differ, void *context);
void compare_counts(const struct report_counts *expected, const struct report_counts *found, differ_fn *differ,
                    void *context);
/* The running totals, without seq, at and hash. */
void compare_head(const struct head *expected, const struct head *found, differ_fn *differ, void *context);

#endif
