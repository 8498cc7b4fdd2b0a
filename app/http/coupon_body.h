/*
 * http/coupon_body.h -- reads a coupon's definition from JSON, by the rows of coupon_fields[], and applies RFC 7396 patches.
 */
#ifndef HTTP_COUPON_BODY_H
#define HTTP_COUPON_BODY_H

#include "http/body_errors.h"
#include "http/jsonin.h"

/* Read o into *c, which holds the defaults (coupon_init); imported codes default to codes.claim present and codes.match exact. Records
 * every fault: types, unknown members, and what coupon_check() finds. c->id is read if given. Strings go to the arena of e. */
void coupon_read(struct json_object *o, struct coupon *c, struct errors *e);

/* Apply the merge patch to `now`; the result is in the arena of e, faults are recorded. A new discount.kind drops what belongs only to the
 * old kind, a new codes.source the claim, the match and what belongs to shared codes. */
struct coupon *coupon_patch(const struct coupon *now, struct json_object *patch, struct errors *e);

#endif
