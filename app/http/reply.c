/* http/reply.c -- see reply.h. */
#include "http/reply.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

void reply_etag(struct request *r, int64_t version)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, "ETag: \"");
    buf_int(h, version);
    buf_puts(h, "\"\r\n");
}

/* Rounded up, at least 1. */
static void put_retry_after(struct request *r, int64_t ms)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, "Retry-After: ");
    buf_int(h, ms > 1000 ? (ms + 999) / 1000 : 1);
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

/* ---- problems ---- */

void misfit_write(struct json *j, const struct misfit *misfit)
{
    json_key_string(j, "reason", misfit_name((int)misfit->reason));
    json_key_int_or_null(j, "missing_minor", misfit->reason == MISFIT_MIN_SPEND, misfit->missing_minor);
}

void problem_write(struct json *j, const char *request_id, const struct problem *p)
{
    const struct result_info *info = result_info(p->result);

    json_begin_object(j);
    json_key(j, "type");
    j->comma = false;
    buf_puts(j->out, "\"/coupons/-/problems/");
    buf_puts(j->out, info->name);
    buf_putc(j->out, '"');
    j->comma = true;
    json_key_string(j, "title", info->title);
    json_key_int(j, "status", info->status);
    json_key_string(j, "detail", p->detail ? p->detail : info->explanation);
    json_key_string(j, "code", info->name);
    json_key_bool(j, "retry", p->retry);
    json_key_string(j, "request_id", request_id);
    if (p->result == CPN_ORDER_NOT_ELIGIBLE)
        misfit_write(j, &p->misfit);
    if (p->errors && p->errors->count) {
        json_key(j, "errors");
        errors_write(p->errors, j);
    }
    json_end_object(j);
}

void problem_doubt(const struct request *r, struct problem *p)
{
    bool unseen = p->result == CPN_BUSY || p->result == CPN_RATE_LIMITED || p->result == CPN_UNAUTHORIZED ||
                  p->result == CPN_FORBIDDEN;

    if (r->header.asked_before && unseen)
        *p = (struct problem){.result = CPN_OUTCOME_UNKNOWN, .retry = true};
}

/* r's errors are shown with 400 and 409. */
static enum handled problem(struct request *r, struct problem p, int64_t retry_ms)
{
    const struct result_info *info;
    struct json j = reply_body(r);

    problem_doubt(r, &p);
    info = result_info(p.result);
    if (info->status >= 500)
        log_event(info->status == 500 ? LOG_ERROR : LOG_WARNING, "request.failed", "code=%s", info->name);
    if (info->status == 401)
        reply_header(r, "WWW-Authenticate", r->header.authorization ? "Bearer error=\"invalid_token\"" : "Bearer");
    if (retry_ms > 0)
        put_retry_after(r, retry_ms);
    else if (info->status == 429 || info->status == 503)
        put_retry_after(r, 1000);
    p.errors = info->status == 400 || info->status == 409 ? &r->errors : NULL;
    problem_write(&j, r->id, &p);
    reply_header(r, "Cache-Control", "no-store");
    return reply_text(r, info->status, TYPE_PROBLEM);
}

enum handled reply_problem(struct request *r, enum cpn_result result, const char *detail)
{
    return reply_problem_for(r, result, 0, detail);
}

enum handled reply_problem_for(struct request *r, enum cpn_result result, int64_t ms, const char *detail)
{
    return problem(r, (struct problem){.result = result, .retry = result_info(result)->retry, .detail = detail}, ms);
}

enum handled reply_refusal(struct request *r)
{
    const struct outcome *o = &r->op.outcome;
    int64_t wait_ms = o->retry_at_ms ? o->retry_at_ms - r->op.at_ms : 0;

    if (o->retry_at_ms && wait_ms < 1)
        wait_ms = 1;
    return problem(r, (struct problem){.result = o->result, .retry = o->retry, .detail = o->detail, .misfit = o->misfit}, wait_ms);
}

/* ---- conditional requests ---- */

/* The tag of the list's next element, without its W/, and what follows it; *list moves past the element. */
static const char *next_tag(const char **list, bool *weak)
{
    const char *tag = *list + strspn(*list, " \t,"), *end;

    *weak = strncmp(tag, "W/", 2) == 0;
    if (*weak)
        tag += 2;
    end = tag;
    if (*end == '"')
        end += strcspn(end + 1, "\"") + 1;
    *list = end + strcspn(end, ",");
    return tag;
}

static bool is_tag(const char *text, const char *tag)
{
    size_t len = strlen(tag);

    return strncmp(text, tag, len) == 0 && strchr(" \t,", text[len]);
}

/* Look for a tag in a list. Weak tags count only if `weak`. */
static bool has_tag(const char *list, const char *tag, bool weak)
{
    while (*list) {
        bool is_weak;
        const char *next = next_tag(&list, &is_weak);

        if (is_tag(next, tag) && (weak || !is_weak))
            return true;
    }
    return false;
}

static void tag_of(int64_t version, char tag[32])
{
    struct buf b = BUF_INIT;

    buf_putc(&b, '"');
    buf_int(&b, version);
    buf_putc(&b, '"');
    memcpy(tag, b.data, b.len + 1);
    buf_free(&b);
}

static bool is_any(const char *header)
{
    header += strspn(header, " \t");
    return *header == '*' && header[1 + strspn(header + 1, " \t")] == '\0';
}

bool if_match_passes(const char *header, int64_t version, bool *any)
{
    char tag[32];

    *any = is_any(header);
    tag_of(version, tag);
    return *any || has_tag(header, tag, false);
}

const int64_t *if_match_versions(const char *header, struct arena *a, size_t *count)
{
    int64_t *versions;
    char tag[32];

    *count = 0;
    if (is_any(header))
        return NULL;
    versions = arena_array(a, strlen(header) / 3 + 1, sizeof *versions); /* our tags have at least three characters */
    while (*header) {
        bool weak;
        const char *next = next_tag(&header, &weak);
        int64_t version = *next == '"' ? strtoll(next + 1, NULL, 10) : 0;

        tag_of(version, tag);
        if (is_tag(next, tag) && !weak)
            versions[(*count)++] = version;
    }
    return versions;
}

bool reply_not_modified(struct request *r, int64_t version)
{
    const char *header = r->header.if_none_match;
    char tag[32];

    if (!header)
        return false;
    tag_of(version, tag);
    header += strspn(header, " \t");
    if (*header != '*' && !has_tag(header, tag, true))
        return false;
    reply_empty(r, 304);
    return true;
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

bool reply_stream(struct request *r, const char *bytes, size_t len)
{
    if (r->head)
        return false;
    return FCGX_PutStr(bytes, (int)len, r->fcgx.out) == (int)len && FCGX_GetError(r->fcgx.out) == 0;
}
