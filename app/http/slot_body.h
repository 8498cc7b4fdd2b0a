/*
 * http/slot_body.h -- a slot in JSON.
 */
#ifndef HTTP_SLOT_BODY_H
#define HTTP_SLOT_BODY_H

#include "http/request.h"

/* The members of r->op.slot, as of r->op.at_ms; its code only for role ops. */
void slot_write(struct json *j, const struct request *r, int64_t n);
/* The same members for a shared code, which no slot has. */
void slot_write_none(struct json *j, const char *code);

#endif
