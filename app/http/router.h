/*
 * http/router.h -- the route table, and the general checks in the order of the HTTP contract, in one place.
 *
 * Order   unauthorized, forbidden, not_found, method_not_allowed, unsupported_media_type, too_large, idempotency_key_required,
 *         coupon_not_found, precondition_required, (version_changed: the handler's), bad_request
 * Twice   where nginx asks for the key before it reads a large body (KEY_ONLY), the first two alone are checked: 204, and the
 *         request itself follows
 * Adding  a call: a row, with its handler
 */
#ifndef HTTP_ROUTER_H
#define HTTP_ROUTER_H

#include "http/fields.h"
#include "http/request.h"

enum route_flags {
    ROUTE_KEY = 1,          /* needs Idempotency-Key */
    ROUTE_KEY_OPTIONAL = 2,
    ROUTE_AUX = 4,          /* its handler blocks: it runs on an aux thread */
    ROUTE_IF_MATCH = 8,
    ROUTE_OPEN = 16,        /* needs no key */
    ROUTE_METRICS = 32,     /* needs no key where nginx listens for metrics alone */
    ROUTE_STREAM = 64,      /* as ROUTE_AUX, on a thread for long streams */
    ROUTE_BODY_OPTIONAL = 128 /* no body is as an empty object */
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

extern const struct route routes[];
extern const size_t routes_count;

/* A request has arrived, its body unread: check it and start its handler. */
handler router_begin;

/* Fill method, path, route, its params and allowed from the header. Returns the route's flags; without a route, those of all
 * rows that have the path. Part of router_begin(). */
unsigned router_find(struct request *r);

/* True for "application/json; charset=utf-8" and type application/json. Any other charset is not of the type. */
bool router_has_type(const char *content_type, const char *type);

/* The route's number for metrics; NULL: routes_count. */
unsigned router_number(const struct route *route);
/* Names of all routes, and of none, in the order of their numbers; *count of them. */
const char *const *router_names(size_t *count);

#endif
