/*
 * http/route.h -- a row of the route table: which call it is, who may make it, and what is read of it before its handler starts.
 */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include "http/fields.h"
#include "http/request.h"

enum route_flags {
    ROUTE_KEY = 1,          /* needs Idempotency-Key */
    ROUTE_KEY_OPTIONAL = 2,
    ROUTE_BLOCKS = 4,       /* its handler blocks: it runs on a blocking thread */
    ROUTE_IF_MATCH = 8,
    ROUTE_OPEN = 16,        /* needs no key */
    ROUTE_METRICS = 32,     /* needs no key where nginx listens for metrics alone */
    ROUTE_STREAM = 64,      /* as ROUTE_BLOCKS, on a thread for long streams */
    ROUTE_BODY_OPTIONAL = 128, /* no body is as an empty object */
    ROUTE_CSV_STREAM = 256, /* as CSV it is as ROUTE_STREAM */
    /* what it answers, where that is not JSON alone */
    ROUTE_OR_CSV = 512,     /* CSV as well, where Accept prefers that */
    ROUTE_CSV = 1024,
    ROUTE_NDJSON = 2048,
    ROUTE_PLAIN = 4096,     /* text */
    ROUTE_EMPTY = 8192,     /* no body */
    ROUTE_FILE = 16384,     /* nginx answers it from a file, whatever Accept says; so does a worker */

    ROUTE_WITHIN = 32768    /* not of one coupon, but it heeds a key's limit to coupons (limits.h): else such a key is refused */
};

enum body_type {
    BODY_NONE,  /* what comes is discarded */
    BODY_JSON,
    BODY_PATCH, /* application/merge-patch+json or application/json */
    BODY_TEXT,  /* text/plain or text/csv; left unread: the handler, which must be ROUTE_STREAM, reads it piece by piece */
    BODY_TYPE_COUNT
};

#define ROLE_BIT(role) (1u << (role))

struct route {
    const char *name; /* for metrics */
    enum method method;
    const char *pattern; /* "/coupons/{coupon}/users/{user}" */
    handler *start;
    unsigned roles;
    unsigned flags;
    enum body_type body;
    size_t body_max;
    const struct field_table *table; /* the body is read into r->in by it; NULL: the handler reads it */
};

#endif
