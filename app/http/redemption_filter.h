/*
 * http/redemption_filter.h -- the filters of a list of redemptions: user, order, state, from, to.
 */
#ifndef HTTP_REDEMPTION_FILTER_H
#define HTTP_REDEMPTION_FILTER_H

#include "http/request.h"

struct redemption_filter {
    const char *user, *order; /* or NULL */
    int state;                /* index of its name on the wire, or -1 */
    int64_t from_ms, to_ms;
};

/* Read it from the query. False: answered, bad_request. */
bool redemption_filter_read(struct request *r, struct redemption_filter *f);
/* True if d, as of at_ms, passes; its user is not compared. ends_ms: the coupon's (coupon_ends()). */
bool redemption_filter_passes(const struct redemption_filter *f, const struct redemption *redemption, int64_t at_ms, int64_t ends_ms);

#endif
