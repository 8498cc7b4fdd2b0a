/* http/key_limits.c -- see key_limits.h. */
#include "http/key_limits.h"

#include "base/address.h"
#include "base/rates.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/route.h"

static bool refuse(struct request *r, const char *detail)
{
    reply_problem(r, CPN_FORBIDDEN, detail);
    return false;
}

/* Charge the request. nginx's question about a large body is free: it is part of the request that follows. */
static bool pays(struct request *r)
{
    int rate = (int)r->limits->rate;
    int64_t wait_ms = r->header.key_only ? 0 : rate_charge(RATE_CALLS, r->by, rate, 1);

    if (wait_ms)
        reply_rate_limited(r, "own", rate, 1, wait_ms, "This key has exceeded its own rate. Retry after the time in Retry-After.");
    return wait_ms == 0;
}

/* True if the header's origin is among them. Both are as browsers write them, so text is compared. */
static bool is_among(const char *origins, const char *origin)
{
    size_t len = origin ? strlen(origin) : 0;

    for (origins += strspn(origins, ", "); len && *origins; origins += strspn(origins, ", ")) {
        size_t word = strcspn(origins, ", ");

        if (word == len && strncmp(origins, origin, len) == 0)
            return true;
        origins += word;
    }
    return false;
}

bool limits_admit(struct request *r)
{
    const struct key_limits *l = r->limits;

    r->shown = r->role == ROLE_PUBLIC && l && l->origins && is_among(l->origins, r->header.origin);
    if (r->role == ROLE_PUBLIC && !r->shown)
        return refuse(r, "This key is for pages of its own origins: the request has another Origin, or none.");
    if (!l)
        return true;
    if (l->networks && !(r->header.remote_addr && address_is_in(r->header.remote_addr, l->networks)))
        return refuse(r, "This key may not be used from this address: it is limited to source networks.");
    if (l->rate && !pays(r))
        return false;
    if (l->coupons && r->route && !r->coupon && !(r->route->flags & (ROUTE_WITHIN | ROUTE_OPEN)))
        return refuse(r, arena_printf(&r->arena, "This call is about the whole service, and this key is limited to coupons whose ids "
                                                 "begin with %s.", l->coupons));
    return true;
}
