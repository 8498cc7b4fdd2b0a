/* http/allowance.c -- see allowance.h. */
#include "http/allowance.h"

static int64_t from_zero(int64_t value)
{
    return value < 0 ? 0 : value;
}

struct allowance use_allowance(const struct coupon *c, const struct use *u, int64_t at_ms, int64_t day_ms)
{
    struct allowance r = {.total = u->total - use_lapsed(u, at_ms),
                          .took_today = use_today(u, day_ms) - use_lapsed_today(u, at_ms, day_ms)};

    r.in_all = from_zero(c->cap.per_user - r.total);
    r.today = r.in_all;
    if (c->cap.per_user_per_day != COUPON_NULL && c->cap.per_user_per_day - r.took_today < r.today)
        r.today = from_zero(c->cap.per_user_per_day - r.took_today);
    return r;
}
