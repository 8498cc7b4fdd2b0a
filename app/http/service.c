/* http/service.c -- the service itself: alive, ready, metrics, pages that explain problems, receipt keys. */
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "http/auth.h"
#include "http/handlers.h"
#include "http/problem.h"
#include "http/problem_page.h"
#include "http/reply.h"
#include "http/router.h"

#define READY_MS 3000 /* the keys are read every half second */

enum handled service_health(struct request *r)
{
    struct json j = reply_body(r);

    json_begin_object(&j);
    json_key_string(&j, "status", "alive");
    return reply_fresh(r, &j);
}

enum handled service_ready(struct request *r)
{
    struct json j;

    if (!auth_fresh(r->worker->auth, READY_MS))
        return reply_problem(r, CPN_BUSY, "The database does not answer.");
    j = reply_body(r);
    json_begin_object(&j);
    json_key_string(&j, "status", "ready");
    if (clock_shift_s())
        json_key_int(&j, "clock_offset_s", clock_shift_s());
    return reply_fresh(r, &j);
}

enum handled service_metrics(struct request *r)
{
    size_t count;
    const char *const *names = router_names(&count);

    buf_clear(&r->reply.body);
    metrics_render(&r->reply.body, names, count);
    reply_header(r, "Cache-Control", "no-store");
    return reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8");
}

enum handled service_problem(struct request *r)
{
    enum cpn_result result = result_of_name(r->params[0]);
    const char *accept = r->header.accept;
    const struct result_info *info;
    struct json j;

    if (result == CPN_RESULT_COUNT || result == CPN_OK)
        return reply_problem(r, CPN_NOT_FOUND, NULL);
    info = result_info(result);
    reply_header(r, "Vary", "Accept");
    reply_header(r, "Cache-Control", "max-age=3600");
    j = reply_body(r);
    if (!accept_prefers(accept, TYPE_JSON, "text/html") && !accept_prefers(accept, TYPE_PROBLEM, "text/html")) {
        problem_page_write(&r->reply.body, result);
        reply_header(r, "Content-Security-Policy", "default-src 'none'");
        return reply_text(r, 200, TYPE_HTML);
    }
    json_begin_object(&j);
    json_key_string(&j, "code", info->name);
    json_key_string(&j, "title", info->title);
    json_key_int(&j, "status", info->status);
    json_key_bool(&j, "retry", info->retry);
    json_key_string(&j, "explanation", info->explanation);
    json_key_string(&j, "advice", advice_of(result));
    json_end_object(&j);
    return reply_json(r, 200);
}

enum handled service_receipt_keys(struct request *r)
{
    const struct jws_keys *keys = &r->worker->receipt_keys;

    if (!keys->count)
        return reply_problem(r, CPN_NOT_FOUND, NO_RECEIPTS);
    buf_clear(&r->reply.body);
    jws_keys_put_set(keys, &r->reply.body);
    return reply_json(r, 200);
}
