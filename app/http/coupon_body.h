/*
 * http/coupon_body.h -- a coupon's definition from JSON, by the rows of coupon_fields[], and RFC 7396 patches of it.
 */
#ifndef HTTP_COUPON_BODY_H
#define HTTP_COUPON_BODY_H

#include "http/errors.h"
#include "http/jsonc.h"

/* Read o into *c, which holds the defaults (coupon_init), but for codes.claim, whose default is present where codes are imported.
 * Every fault is noted: types, unknown members, and what coupon_check() finds. c->id is read when it is there. Strings go to the
 * arena of e. */
void coupon_read(struct json_object *o, struct coupon *c, struct errors *e);

/* The definition that becomes of `now` by the merge patch, in the arena of e; faults are noted. A new discount.kind drops
 * what belongs to the old kind alone, a new codes.source the claim. */
struct coupon *coupon_patch(const struct coupon *now, struct json_object *patch, struct errors *e);

#endif
