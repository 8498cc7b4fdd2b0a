/* http/refusals.c -- GET /coupons/{id}/refusals: what this node refused of a coupon since it started, by code. */
#include "base/metrics.h"
#include "http/handlers.h"
#include "http/reply.h"

static enum handled write_refusals(struct request *r)
{
    int64_t counts[CPN_RESULT_COUNT], since_ms, total = 0;
    struct json j;
    bool complete;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    complete = metrics_refusals(r->coupon, counts, &since_ms);
    j = reply_body(r);
    json_object(&j);
    json_key_time(&j, "since", since_ms);
    json_key(&j, "counts");
    json_object(&j);
    for (int i = 0; i < CPN_RESULT_COUNT; i++) {
        total += counts[i];
        if (counts[i])
            json_key_int(&j, result_info((enum cpn_result)i)->name, counts[i]);
    }
    json_end_object(&j);
    json_key_int(&j, "total", total);
    json_key_bool(&j, "complete", complete);
    json_end_object(&j);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

enum handled refusals_get(struct request *r)
{
    request_op(r, OP_COUPON);
    return request_submit(r, write_refusals);
}
