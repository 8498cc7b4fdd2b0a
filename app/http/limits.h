/*
 * http/limits.h -- within what a key may be used: source networks, origins, a rate of its own, and coupons by the prefix of their ids.
 *
 * Outside  a network or an origin: 403; past the rate: 429; a coupon: as if it did not exist. What is about the whole service is
 *          refused to a key that is limited to coupons (403), unless its call heeds that (ROUTE_WITHIN)
 * Origin   of the page that a browser says it asks for. Who is no browser says what it likes: no authentication
 * Rate     all workers of a node count together; a second's worth may come at once. A batch is one request
 */
#ifndef HTTP_LIMITS_H
#define HTTP_LIMITS_H

#include <string.h>

#include "http/request.h"

/* The key is good: may it be used for r, from where r comes, now? False: it is answered, forbidden or rate_limited. */
bool limits_admit(struct request *r);

/* What ids of coupons must begin with for r's key to see them; NULL: it sees all. */
static inline const char *limits_prefix(const struct request *r)
{
    return r->limits ? r->limits->coupons : NULL;
}

/* Does r's key see this coupon, if it exists? */
static inline bool limits_cover(const struct request *r, const char *coupon)
{
    const char *prefix = limits_prefix(r);

    return !prefix || strncmp(coupon, prefix, strlen(prefix)) == 0;
}

#endif
