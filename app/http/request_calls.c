/* http/request_calls.c -- see request_calls.h. */
#include "http/request_calls.h"

#include "base/crash.h"
#include "base/metrics.h"
#include "http/blocking_pool.h"
#include "http/problem.h"
#include "http/reactor.h"
#include "http/reply.h"
#include "http/route.h"

static void op_done(struct op *op)
{
    reactor_push(op->context);
}

/* True if the database has answered nobody for as long as a request may take. */
static bool is_database_away(const struct request *r)
{
    return mongo_is_away(r->worker->mongo, r->worker->config->worker_request_deadline_ms);
}

/* True: r is answered `busy` at once, since the database is away. */
static bool is_cut_short(struct request *r)
{
    if (!is_database_away(r))
        return false;
    metrics_add(METRIC_CUT_SHORT, 1);
    reply_problem(r, CPN_BUSY, NULL);
    return true;
}

const char *request_operator(const struct request *r)
{
    return r->role == ROLE_OPS ? r->by : NULL;
}

void request_op(struct request *r, enum op_kind kind)
{
    r->op = (struct op){.kind = kind, .coupon = r->coupon, .arena = &r->arena, .done = op_done, .context = r, .by = request_operator(r)};
    r->op.deadline = mono_add_ms(r->arrived, r->worker->config->worker_request_deadline_ms);
}

enum handled request_submit(struct request *r, handler *then)
{
    r->then = then;
    crash_at(CRASH_PARSED);
    if (is_cut_short(r))
        return ANSWERED;
    return engine_submit(r->worker->engine, &r->op) == CPN_OK ? PENDING : reply_problem(r, CPN_BUSY, NULL);
}

enum cpn_result request_call(struct request *r)
{
    enum cpn_result result = engine_call(r->worker->engine, &r->op);

    r->session->ops->saw(r->session, r->op.seen);
    return result;
}

bool request_coupon(struct request *r)
{
    request_op(r, OP_COUPON);
    if (request_call(r) == CPN_OK)
        return true;
    reply_refusal(r);
    return false;
}

bool request_kept_coupon(struct request *r)
{
    if (!request_coupon(r))
        return false;
    if (r->op.head.archived == LANE_REMOVED)
        reply_problem(r, CPN_COUPON_ARCHIVED, NULL);
    return r->op.head.archived != LANE_REMOVED;
}

bool request_open_coupon(struct request *r)
{
    if (!request_coupon(r))
        return false;
    if (r->op.head.archived)
        reply_problem(r, CPN_COUPON_ARCHIVED, NULL);
    return !r->op.head.archived;
}

bool request_catch_up(struct request *r, int64_t lane)
{
    return engine_catch_up(r->worker->engine, r->coupon, lane, mono_ms_between(mono_now(), r->op.deadline)) == STORE_OK;
}

static enum handled hand_to(struct blocking_pool *a, struct request *r, handler *then)
{
    r->then = then;
    if (is_cut_short(r))
        return ANSWERED;
    return blocking_pool_push(a, r) ? PENDING : reply_problem(r, CPN_BUSY, NULL);
}

enum handled request_to_blocking_pool(struct request *r, handler *then)
{
    return hand_to(r->worker->blocking_pool, r, then);
}

bool request_try_blocking_pool(struct request *r, handler *then)
{
    r->then = then;
    return !is_database_away(r) && blocking_pool_push(r->worker->blocking_pool, r);
}

enum handled request_to_stream(struct request *r, handler *then)
{
    return hand_to(r->worker->streams, r, then);
}

static enum handled refused(struct request *r)
{
    struct outcome *o = &r->op.outcome;

    if (o->result == r->op.in.refusal.result)
        return reply_problem(r, o->result, r->detail);
    return reply_refusal(r);
}

enum handled request_refuse(struct request *r, enum cpn_result result, const char *detail)
{
    if (!r->coupon)
        return reply_problem(r, result, detail);
    r->detail = detail;
    request_op(r, OP_REFUSE);
    r->op.in.refusal.result = result;
    r->op.in.refusal.changes = r->route->method != METHOD_GET;
    if (!r->session)
        return request_submit(r, refused);
    request_call(r); /* on a blocking thread */
    return refused(r);
}
