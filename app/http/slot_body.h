/*
 * http/slot_body.h -- a slot in JSON.
 */
#ifndef HTTP_SLOT_BODY_H
#define HTTP_SLOT_BODY_H

#include "http/request.h"

/* The members of r->op.slot, as it stands at r->op.at_ms; its code for ops alone. */
void slot_write(struct json *j, const struct request *r, int64_t n);

/* Its state at at_ms: a hold whose time has passed is free again, or issued as before. */
enum slot_state slot_state_at(const struct slot *s, int64_t at_ms);

#endif
