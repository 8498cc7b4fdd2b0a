/*
 * http/user_allowance.h -- what a user has of a coupon now, and how much more the per-user caps allow.
 *
 * Now   what has expired counts as ended, whether or not the ledger says so yet
 */
#ifndef HTTP_USER_ALLOWANCE_H
#define HTTP_USER_ALLOWANCE_H

#include "coupons/coupon.h"
#include "coupons/user_state.h"

struct allowance {
    int64_t total;  /* takings that count */
    int64_t took_today;
    int64_t in_all; /* may still be taken: in all, and today */
    int64_t today;
};

/* u's allowance at at_ms, which lies in the coupon's day that starts at day_ms. */
struct allowance user_state_allowance(const struct coupon *c, const struct user_state *u, int64_t at_ms, int64_t day_ms);

#endif
