/* http/request.c -- see request.h: how a request gets to the engine, to an aux thread, and back. */
#include "http/request.h"

#include "base/crash.h"
#include "http/aux.h"
#include "http/reactor.h"
#include "http/reply.h"

static void op_done(struct op *op)
{
    struct request *r = op->context;

    reactor_push(r->worker->reactor, r);
}

void request_op(struct request *r, enum op_kind kind)
{
    r->op.kind = kind;
    r->op.coupon = r->coupon;
    r->op.by = *r->by ? r->by : NULL;
    r->op.arena = &r->arena;
    r->op.deadline = mono_add_ms(r->arrived, r->worker->config->worker_request_deadline_ms);
    r->op.done = op_done;
    r->op.context = r;
}

enum handled request_submit(struct request *r, handler *then)
{
    r->then = then;
    crash_at(CRASH_PARSED);
    return engine_submit(r->worker->engine, &r->op) == CPN_OK ? PENDING : reply_problem(r, CPN_BUSY, NULL);
}

enum cpn_result request_call(struct request *r)
{
    return engine_call(r->worker->engine, &r->op);
}

bool request_coupon(struct request *r)
{
    request_op(r, OP_COUPON);
    if (request_call(r) == CPN_OK)
        return true;
    reply_refusal(r);
    return false;
}

bool request_catch_up(struct request *r, int64_t lane)
{
    return engine_catch_up(r->worker->engine, r->coupon, lane, mono_ms_between(mono_now(), r->op.deadline)) == STORE_OK;
}

static enum handled refuse_share(struct request *r)
{
    int share = r->worker->config->worker_reads_per_key;

    reply_header(r, "RateLimit-Policy", arena_printf(&r->arena, "\"reads\";q=%d", share));
    reply_header(r, "RateLimit", "\"reads\";r=0");
    return reply_problem(r, CPN_RATE_LIMITED, "This key has reached its limit of concurrent lists, reports and other "
                                              "long reads. Retry after the time in Retry-After.");
}

static enum handled hand_to(struct aux *a, struct request *r, handler *then)
{
    r->then = then;
    switch (aux_push(a, r)) {
    case TURNS_WAITS:
        return PENDING;
    case TURNS_SHARE:
        return refuse_share(r);
    case TURNS_FULL:
        break;
    }
    return reply_problem(r, CPN_BUSY, NULL);
}

enum handled request_to_aux(struct request *r, handler *then)
{
    return hand_to(r->worker->aux, r, then);
}

enum handled request_to_stream(struct request *r, handler *then)
{
    return hand_to(r->worker->streams, r, then);
}

static enum handled refused(struct request *r)
{
    struct outcome *o = &r->op.outcome;

    if (o->result == r->op.refusal)
        return reply_problem(r, o->result, r->detail);
    return reply_refusal(r);
}

enum handled request_refuse(struct request *r, enum cpn_result result, const char *detail)
{
    if (!r->coupon)
        return reply_problem(r, result, detail);
    r->detail = detail;
    request_op(r, OP_REFUSE);
    r->op.refusal = result;
    if (!r->door)
        return request_submit(r, refused);
    request_call(r); /* on an aux thread */
    return refused(r);
}
