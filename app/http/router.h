/*
 * http/router.h -- the route table, and the general checks in the order of static/docs/openapi.json, in one place.
 *
 * Order   unauthorized, forbidden, not_found, method_not_allowed, not_acceptable, unsupported_media_type, too_large,
 *         idempotency_key_required, coupon_not_found, precondition_required, (version_changed: the handler's), bad_request
 * Twice   when nginx asks about the key before it reads a large body (KEY_ONLY), only the first two are checked: 204, and the request
 *         itself follows
 * Query   a call that changes something refuses a query parameter that it does not know; one that only reads ignores it, because caches
 *         and browsers add their own
 * Adding  a call: add a row and its handler
 */
#ifndef HTTP_ROUTER_H
#define HTTP_ROUTER_H

#include "http/route.h"

extern const struct route routes[];
extern const size_t routes_count;

/* A request has arrived, its body unread: check it and start its handler. */
handler router_begin;
/* It is about to be answered: settle its charged guesses, and count it. Before the client can send its next. */
void router_end(struct request *r);

/* Fill method, path, route, its params and allowed from the header. Returns the route's flags; without a route, those of all rows with that
 * path. Part of router_begin(). */
unsigned router_find(struct request *r);

/* True for "application/json; charset=utf-8" and type application/json. Another charset does not match, but for text UTF-16, whose
 * byte-order mark says how to read it. */
bool router_has_type(const char *content_type, const char *type);

/* The media types of the route's answers, NULL-terminated; none: it answers without a body, or ignores Accept. */
const char *const *router_offers(const struct route *route);

/* The route's number for metrics; NULL: routes_count. */
unsigned router_number(const struct route *route);
/* Names of all routes, and last the name for no route, by number; *count of them. */
const char *const *router_names(size_t *count);

#endif
