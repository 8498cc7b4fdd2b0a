/*
 * http/redemption_filter.h -- which redemptions a list is asked for: user, order, state, from, to.
 */
#ifndef HTTP_REDEMPTION_FILTER_H
#define HTTP_REDEMPTION_FILTER_H

#include "http/request.h"

struct redemption_filter {
    const char *user, *order; /* or NULL */
    int state;                /* of the names on the wire, or -1 */
    int64_t from_ms, to_ms;
};

/* Read it from the query. False: answered with bad_request. */
bool redemption_filter_read(struct request *r, struct redemption_filter *f);
/* Whether d, as it stands at at_ms, is asked for; its user is not looked at. */
bool redemption_filter_passes(const struct redemption_filter *f, const struct redemption *d, int64_t at_ms);

#endif
