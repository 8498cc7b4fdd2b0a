/* http/audit.c -- see audit.h. */
#include "http/audit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "http/route.h"

#define LOCATION "Location: "

#define FIELDS_MAX 16
#define MADE_SIZE 256

/* The {parameter} of a path at text, if it is an id; {user} and {code} are not. NULL: it is none. */
static const char *id_name(const char *text, size_t len)
{
    static const char *const ids[] = {"job", "webhook", "delivery", "slot", "redemption"};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (strlen(ids[i]) == len && strncmp(ids[i], text, len) == 0)
            return ids[i];
    return NULL;
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
static struct log_field *put_ids(const struct request *r, struct log_field *next)
{
    size_t param = 0;

    if (!r->route || !is_found(r))
        return next;
    if (r->coupon)
        *next++ = (struct log_field)F_WORD("coupon", r->coupon);
    for (const char *at = strchr(r->route->pattern, '{'); at; at = strchr(at, '{')) {
        size_t len = strcspn(++at, "}");
        const char *name = id_name(at, len);

        if (strncmp(at, "coupon}", 7) == 0)
            continue;
        if (name)
            *next++ = (struct log_field)F_WORD(name, r->params[param]);
        param++;
    }
    return next;
}

static struct log_field *put_made(const struct request *r, struct log_field *next, char made[MADE_SIZE])
{
    const char *at = r->reply.header.len ? strstr(r->reply.header.data, LOCATION) : NULL;

    if (at && (r->reply.status == 201 || r->reply.status == 202)) {
        at += strlen(LOCATION);
        snprintf(made, MADE_SIZE, "%.*s", (int)strcspn(at, "\r"), at);
        *next++ = (struct log_field)F_WORD("made", made);
    }
    return next;
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
    struct log_field fields[FIELDS_MAX] = {
        F_WORD("key", r->by), F_WORD("role", role_name(r->role)), F_WORD("call", r->route ? r->route->name : "none"),
        F_WORD("method", r->head ? "HEAD" : methods[r->method]), F_INT("status", r->reply.status),
    };
    struct log_field *next = &fields[5];
    char made[MADE_SIZE];

    if (!*r->by || !log_audits())
        return;
    next = put_ids(r, next);
    next = put_made(r, next, made);
    *next++ = (struct log_field)F_WORD("from", address_of(r));
    *next++ = (struct log_field)F_WORD("request", r->id);
    *next = (struct log_field)F_NONE;
    log_audit(fields);
}
