/*
 * http/refusals.c -- see refusals.h; and GET /coupons/{id}/refusals: a coupon's refusals on all fronts, by code.
 */
#include "http/refusals.h"

#include "base/clock.h"
#include "http/handlers.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"

void refusals_put(struct json *j, const struct refusal_counts *counts)
{
    json_begin_object(j);
    for (int i = 0; i < CPN_REFUSAL_COUNT; i++)
        if (counts->of[i])
            json_key_int(j, refusal_name((enum cpn_refusal)i), counts->of[i]);
    json_end_object(j);
}

int64_t refusals_total(const struct refusal_counts *counts)
{
    int64_t total = 0;

    for (int i = 0; i < CPN_REFUSAL_COUNT; i++)
        total += counts->of[i];
    return total;
}

static enum handled reply_counts(struct request *r, int64_t since_ms, const struct refusal_counts *counts)
{
    struct json j = reply_body(r);

    json_begin_object(&j);
    json_key_time(&j, "since", since_ms);
    json_key(&j, "counts");
    refusals_put(&j, counts);
    json_key_int(&j, "total", refusals_total(counts));
    return reply_fresh(r, &j);
}

enum handled refusals_get(struct request *r)
{
    int64_t to_ms = clock_now_ms() + 1, from_ms = to_ms - r->worker->config->refusals_keep_days * DAY_MS;
    struct refusal_counts counts;

    if (!request_coupon(r) || !query_time(r, "from", &from_ms) || !query_time(r, "to", &to_ms))
        return ANSWERED;
    if (from_ms < 0 || from_ms >= to_ms)
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter from must be earlier than to (default: now), and not before 1970.");
    from_ms = quarter_of(from_ms);
    to_ms = quarter_of(to_ms + QUARTER_MS - 1);
    if (mongo_refusals(r->session, r->coupon, from_ms, to_ms, &counts) != STORE_OK)
        return reply_problem(r, CPN_BUSY, "The refusals cannot be read now.");
    return reply_counts(r, from_ms, &counts);
}
