/*
 * http/openapi.h -- GET /coupons/-/openapi.json: the service described by the tables that route, validate and answer.
 *
 * From    routes[]: paths, methods, roles, keys, preconditions, bodies and their limits, and the problems that follow;
 *         field tables and coupon_fields[]: bodies; CPN_RESULTS: problems; schemas[]: answers;
 *         calls[]: words, queries, refusals
 * Source  OpenAPI 3.1.0, JSON Schema 2020-12
 */
#ifndef HTTP_OPENAPI_H
#define HTTP_OPENAPI_H

#include "base/buf.h"

/* Append the document. */
void openapi_write(struct buf *out);

#endif
