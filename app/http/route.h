/*
 * http/route.h -- a row of the route table: the call, who may make it, and what is read before its handler starts.
 */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include "http/fields.h"
#include "http/request.h"

enum route_flags {
    ROUTE_KEY = 1,          /* needs Idempotency-Key */
    ROUTE_KEY_OPTIONAL = 2,
    ROUTE_BLOCKS = 4,       /* the handler blocks: runs on a blocking thread */
    ROUTE_IF_MATCH = 8,
    ROUTE_OPEN = 16,        /* needs no key */
    ROUTE_METRICS = 32,     /* needs no key on nginx's listener for metrics alone */
    ROUTE_STREAM = 64,      /* like ROUTE_BLOCKS, on a stream thread */
    ROUTE_BODY_OPTIONAL = 128, /* no body counts as an empty object */
    ROUTE_CSV_STREAM = 256, /* CSV is sent as with ROUTE_STREAM */
    /* the media types of its answers, if not just JSON */
    ROUTE_OR_CSV = 512,     /* JSON or CSV, as Accept prefers */
    ROUTE_CSV = 1024,
    ROUTE_NDJSON = 2048,
    ROUTE_PLAIN = 4096,     /* text */
    ROUTE_EMPTY = 8192,     /* no body */
    ROUTE_FILE = 16384,     /* a file, from nginx or a worker, whatever Accept says */

    ROUTE_WITHIN = 32768    /* not about one coupon, but applies a key's limit to coupons (key_limits.h); otherwise such a key is refused */
};

enum body_type {
    BODY_NONE,  /* any body is discarded */
    BODY_JSON,
    BODY_PATCH, /* application/merge-patch+json or application/json */
    /* a list; not read before: the handler, which must be ROUTE_STREAM, reads it in pieces */
    BODY_CSV,   /* text/csv */
    BODY_TEXT,  /* text/plain or text/csv */
    BODY_TYPE_COUNT
};

static inline bool body_is_list(enum body_type body)
{
    return body == BODY_CSV || body == BODY_TEXT;
}

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
    const struct field_table *table; /* reads the body into r->in; NULL: the handler reads it */
    const char *const *query; /* of a call that changes something: its query parameters, NULL-terminated; NULL: none. Others are refused */
    int kind; /* of calls with the same handler, what it is to do: an enum slot_move, or job_kind */
};

#endif
