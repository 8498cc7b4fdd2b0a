/* http/reply.c -- see reply.h. */
#include "http/reply.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/poll.h>

#include "base/log.h"
#include "http/route.h"

#define CORS_EXPOSED "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id" /* nginx.conf.in has it too */

struct json reply_body(struct request *r)
{
    buf_clear(&r->reply.body);
    return json_to(&r->reply.body);
}

void reply_header(struct request *r, const char *name, const char *value)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, name);
    buf_put(h, ": ", 2);
    buf_puts(h, value);
    buf_put(h, "\r\n", 2);
}

enum handled reply_text(struct request *r, int status, const char *content_type)
{
    r->reply.status = status;
    r->reply.content_type = content_type;
    return ANSWERED;
}

enum handled reply_json(struct request *r, int status)
{
    return reply_text(r, status, TYPE_JSON);
}

enum handled reply_empty(struct request *r, int status)
{
    buf_clear(&r->reply.body);
    return reply_text(r, status, NULL);
}

enum handled reply_fresh(struct request *r, struct json *j)
{
    json_end_object(j);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

/* ---- Accept ---- */

/* The value of q=, in thousandths; an invalid weight counts as the nearest valid one. */
static int weight(const char *text)
{
    double q = strtod(text, NULL);

    return q >= 1 ? 1000 : q > 0 ? (int)(q * 1000) : 0;
}

/* The weight of a range: its first `name` characters are its type, the rest its parameters. */
static int weight_of(const char *range, size_t name, size_t len)
{
    for (size_t i = name; i < len; i++) {
        if (range[i] != ';')
            continue;
        i += 1 + strspn(range + i + 1, " \t");
        if (i + 2 < len && strncasecmp(range + i, "q=", 2) == 0)
            return weight(range + i + 2);
        i--; /* it may belong to the next one */
    }
    return 1000;
}

/* The quality (0..1000) that accept gives to type: the most specific range that covers it decides; -1: none does. */
static int quality(const char *accept, const char *type)
{
    size_t major = strcspn(type, "/") + 1, best_match = 0;
    int best = -1;

    while (*accept) {
        size_t len, name, match = 0;

        accept += strspn(accept, " \t,");
        len = strcspn(accept, ",");
        name = strcspn(accept, " \t;,");
        if (name == strlen(type) && strncasecmp(accept, type, name) == 0)
            match = 3;
        else if (name == major + 1 && strncasecmp(accept, type, major) == 0 && accept[major] == '*')
            match = 2;
        else if (name == 3 && strncmp(accept, "*/*", 3) == 0)
            match = 1;
        if (match > best_match) {
            best_match = match;
            best = weight_of(accept, name, len);
        }
        accept += len;
    }
    return best;
}

bool accept_prefers(const char *accept, const char *type, const char *other)
{
    return accept && quality(accept, type) > 0 && quality(accept, type) > quality(accept, other);
}

bool accept_prefers_csv(const struct request *r)
{
    return accept_prefers(r->header.accept, "text/csv", TYPE_JSON);
}

bool accept_admits(const char *accept, const char *type)
{
    int q;

    if (!accept || !accept[strspn(accept, " \t,")])
        return true;
    q = quality(accept, type);
    return q < 0 ? quality(accept, TYPE_PROBLEM) > 0 : q > 0;
}

/* ---- sending ---- */

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } rows[] = {
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {304, "Not Modified"},
        {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"},
        {405, "Method Not Allowed"}, {406, "Not Acceptable"}, {409, "Conflict"}, {412, "Precondition Failed"}, {413, "Content Too Large"},
        {415, "Unsupported Media Type"}, {422, "Unprocessable Content"}, {428, "Precondition Required"},
        {429, "Too Many Requests"}, {500, "Internal Server Error"}, {503, "Service Unavailable"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return rows[i].reason;
    return "Unknown";
}

/* The header lines that let the browser show the answer to the page, or not: for paths that pages may call. */
static void put_origin(const struct request *r, struct buf *h)
{
    buf_puts(h, "Vary: Origin\r\n");
    if (!r->shown || !r->header.origin)
        return;
    buf_puts(h, "Access-Control-Allow-Origin: ");
    buf_puts(h, r->header.origin);
    buf_puts(h, "\r\nAccess-Control-Expose-Headers: " CORS_EXPOSED "\r\n");
}

void reply_send(struct request *r, bool stream)
{
    FCGX_Stream *out = r->fcgx.out;
    struct reply *p = &r->reply;
    struct buf *h = &p->header;

    /* our lines go after the handler's, so that one buffer and one write suffice */
    if (r->of_pages)
        put_origin(r, h);
    buf_puts(h, "Status: ");
    buf_int(h, p->status);
    buf_putc(h, ' ');
    buf_puts(h, reason(p->status));
    buf_puts(h, "\r\nX-Request-Id: ");
    buf_puts(h, r->id);
    if (p->content_type) {
        buf_puts(h, "\r\nContent-Type: ");
        buf_puts(h, p->content_type);
    }
    if (!stream && p->status != 204 && p->status != 304) {
        buf_puts(h, "\r\nContent-Length: ");
        buf_int(h, (int64_t)p->body.len);
    }
    buf_puts(h, "\r\n\r\n");
    FCGX_PutStr(h->data, (int)h->len, out);
    if (!stream && !r->head && p->body.len)
        FCGX_PutStr(p->body.data, (int)p->body.len, out);
    p->streamed = p->streamed || stream;
}

void reply_begin(struct request *r, const char *content_type)
{
    reply_text(r, 200, content_type);
    reply_header(r, "Cache-Control", "no-store");
    reply_send(r, true);
}

bool reply_gone(const struct request *r)
{
    struct pollfd p = {.fd = r->fcgx.ipcFd};

    return poll(&p, 1, 0) != 0;
}

bool reply_stream(struct request *r, const char *bytes, size_t len)
{
    if (r->head)
        return false;
    return FCGX_PutStr(bytes, (int)len, r->fcgx.out) == (int)len && FCGX_GetError(r->fcgx.out) == 0;
}
