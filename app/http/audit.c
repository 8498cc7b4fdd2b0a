/* http/audit.c -- see audit.h. */
#include "http/audit.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/log.h"
#include "http/route.h"

#define LOCATION "Location: "

/* True for {parameters} of paths that are ids; {user} and {code} are not. */
static bool is_id(const char *name, size_t len)
{
    static const char *const ids[] = {"job", "webhook", "delivery", "slot", "redemption"};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (strlen(ids[i]) == len && strncmp(ids[i], name, len) == 0)
            return true;
    return false;
}

static void put(struct buf *out, const char *name, size_t name_len, const char *value, size_t len)
{
    buf_put(out, " ", 1);
    buf_put(out, name, name_len);
    buf_put(out, "=", 1);
    buf_put(out, value, len);
}

/* True if the answer shows that what the path names exists. Other statuses may be sent before anybody has looked. */
static bool is_found(const struct request *r)
{
    switch (r->reply.status) {
    case 304: case 409: case 410: case 412: case 422: case 428:
        return true;
    case 503:
        return r->op.outcome.result == CPN_OUTCOME_UNKNOWN;
    default:
        return r->reply.status < 300;
    }
}

/* Append what the path names. */
static void put_ids(const struct request *r, struct buf *out)
{
    size_t param = 0;

    if (!r->route || !is_found(r))
        return;
    if (r->coupon)
        put(out, "coupon", 6, r->coupon, strlen(r->coupon));
    for (const char *at = strchr(r->route->pattern, '{'); at; at = strchr(at, '{')) {
        size_t len = strcspn(++at, "}");

        if (strncmp(at, "coupon}", 7) == 0)
            continue;
        if (is_id(at, len))
            put(out, at, len, r->params[param], strlen(r->params[param]));
        param++;
    }
}

static void put_made(const struct request *r, struct buf *out)
{
    const char *at = r->reply.header.len ? strstr(r->reply.header.data, LOCATION) : NULL;

    if (at && (r->reply.status == 201 || r->reply.status == 202)) {
        at += strlen(LOCATION);
        put(out, "made", 4, at, strcspn(at, "\r"));
    }
}

/* The client's address as nginx reports it; without nginx it could be anything. */
static const char *address_of(const struct request *r)
{
    unsigned char parsed[sizeof(struct in6_addr)];
    const char *text = r->header.remote_addr;

    return text && (inet_pton(AF_INET, text, parsed) == 1 || inet_pton(AF_INET6, text, parsed) == 1) ? text : "-";
}

void audit_request(const struct request *r)
{
    static const char *const methods[METHOD_COUNT] = {"GET", "POST", "PATCH", "DELETE", "other"};
    struct buf ids = BUF_INIT;

    if (!*r->by || !log_audits())
        return;
    put_ids(r, &ids);
    put_made(r, &ids);
    log_audit("key=%s role=%s call=%s method=%s status=%d%.*s from=%s request=%s", r->by, role_name(r->role),
              r->route ? r->route->name : "none", r->head ? "HEAD" : methods[r->method], r->reply.status, (int)ids.len,
              ids.len ? ids.data : "", address_of(r), r->id);
    buf_free(&ids);
}
