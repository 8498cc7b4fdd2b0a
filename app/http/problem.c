/* http/problem.c -- see problem.h. */
#include "http/problem.h"

#include <inttypes.h>

#include "base/log.h"
#include "http/reply.h"

/* Rounded up, at least 1. */
static void put_retry_after(struct request *r, int64_t ms)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, "Retry-After: ");
    buf_int(h, ms > 1000 ? (ms + 999) / 1000 : 1);
    buf_put(h, "\r\n", 2);
}

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
    if (p->result == CPN_CODES_WOULD_RETIRE)
        json_key_int(j, "codes", p->codes);
    if (p->held_count) {
        json_key(j, "held");
        json_begin_array(j);
        for (size_t i = 0; i < p->held_count; i++)
            json_string(j, p->held[i]);
        json_end_array(j);
    }
    if (p->rows) {
        json_key(j, "rows");
        json_begin_array(j);
        json_raw(j, p->rows);
        json_end_array(j);
    }
    if (p->errors && p->errors->count) {
        json_key(j, "errors");
        errors_write(p->errors, j);
    }
    json_end_object(j);
}

struct problem problem_of(const struct outcome *o)
{
    return (struct problem){.result = o->result, .retry = o->retry, .detail = o->detail, .misfit = o->misfit, .held = o->held,
                            .held_count = o->held_count, .codes = o->codes};
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
        log_event(info->status == 500 ? LOG_ERROR : LOG_WARNING, "request.failed", F_WORD("code", info->name));
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
    return problem(r, (struct problem){.result = result, .retry = result_info(result)->retry, .detail = detail}, 0);
}

enum handled reply_rate_limited(struct request *r, const char *limit, int quota, int window_s, int64_t wait_ms, const char *detail)
{
    problem(r, (struct problem){.result = CPN_RATE_LIMITED, .retry = true, .detail = detail}, wait_ms);
    if (r->reply.status != result_info(CPN_RATE_LIMITED)->status)
        return ANSWERED; /* the request may have been done before */
    reply_header(r, "RateLimit-Policy", arena_printf(&r->arena, "\"%s\";q=%d;w=%d", limit, quota, window_s));
    reply_header(r, "RateLimit", arena_printf(&r->arena, "\"%s\";r=0;t=%" PRId64, limit, (wait_ms + 999) / 1000));
    return ANSWERED;
}

enum handled reply_problem_rows(struct request *r, enum cpn_result result, const char *rows)
{
    return problem(r, (struct problem){.result = result, .retry = result_info(result)->retry, .rows = rows}, 0);
}

enum handled reply_refusal(struct request *r)
{
    const struct outcome *o = &r->op.outcome;
    int64_t wait_ms = o->retry_at_ms ? o->retry_at_ms - r->op.head.at_ms : 0;
    struct problem p = problem_of(o);

    if (o->retry_at_ms && wait_ms < 1)
        wait_ms = 1;
    if (o->pointer) {
        errors_add(&r->errors, o->pointer, o->detail);
        p.detail = NULL;
    }
    return problem(r, p, wait_ms);
}
