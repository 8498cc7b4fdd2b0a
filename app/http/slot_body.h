/*
 * http/slot_body.h -- a slot in JSON.
 */
#ifndef HTTP_SLOT_BODY_H
#define HTTP_SLOT_BODY_H

#include "http/request.h"

/* The members of the slot in r->op, as of r->op.head.at_ms; its code only for role ops. */
void slot_write(struct json *j, const struct request *r);
/* The same members for a shared code, which no slot has. */
void slot_write_none(struct json *j, const char *code);

#endif
