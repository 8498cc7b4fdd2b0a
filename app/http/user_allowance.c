/* http/user_allowance.c -- see user_allowance.h. */
#include "http/user_allowance.h"

static int64_t from_zero(int64_t value)
{
    return value < 0 ? 0 : value;
}

struct allowance user_state_allowance(const struct coupon *c, const struct user_state *u, int64_t at_ms, int64_t day_ms)
{
    struct allowance r = {.total = u->total - user_state_lapsed(u, at_ms, coupon_ends(c)),
                          .took_today = user_state_today(u, day_ms) - user_state_lapsed_today(u, at_ms, day_ms, coupon_ends(c))};

    r.in_all = from_zero(c->cap.per_user - r.total);
    r.today = r.in_all;
    if (c->cap.per_user_per_day != COUPON_NULL && c->cap.per_user_per_day - r.took_today < r.today)
        r.today = from_zero(c->cap.per_user_per_day - r.took_today);
    return r;
}
