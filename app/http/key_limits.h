/*
 * http/key_limits.h -- limits of a key: source networks, origins, its own rate, and coupons by the prefix of their ids.
 *
 * Outside  a network or an origin: 403; above the rate: 429; a coupon: as if it did not exist. Calls about the whole service are refused to
 *          a key that is limited to certain coupons (403), except those that apply the limit themselves (ROUTE_WITHIN)
 * Origin   of the page, as a browser reports it. Other clients can claim any: it authenticates nobody
 * Rate     counted over all workers of a node; allows bursts of one second's worth. A batch is one request
 */
#ifndef HTTP_KEY_LIMITS_H
#define HTTP_KEY_LIMITS_H

#include <string.h>

#include "http/request.h"

/* True if the key's limits allow r, from its source, now. False: answered, forbidden or rate_limited. */
bool limits_admit(struct request *r);

/* The prefix of the coupon ids that r's key can see; NULL: all. */
static inline const char *limits_prefix(const struct request *r)
{
    return r->limits ? r->limits->coupons : NULL;
}

/* True if r's key can see this coupon, should it exist. */
static inline bool limits_cover(const struct request *r, const char *coupon)
{
    const char *prefix = limits_prefix(r);

    return !prefix || strncmp(coupon, prefix, strlen(prefix)) == 0;
}

#endif
