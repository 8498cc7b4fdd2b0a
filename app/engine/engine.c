/* engine/engine.c -- see engine.h: starting, stopping, and sending requests on. */
#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread.h"
#include "engine/checkpoint_writer.h"
#include "engine/committer.h"
#include "engine/history.h"
#include "engine/internal.h"

struct engine {
    struct engine_config config;
    struct checkpoint_writer *writer;
    struct multilane *multilane; /* NULL: all coupons have one lane */
    struct history *history;
    struct committer *committer;
};

struct engine *engine_start(const struct engine_config *config, struct store_source *source, multilane_start *multilane)
{
    struct engine *e = checked(calloc(1, sizeof *e));

    e->config = *config;
    e->writer = checkpoint_writer_start(source, e->config.backoff_ms);
    e->multilane = multilane ? multilane(e, source) : NULL;
    e->history = history_start(e, source, e->config.backoff_ms);
    e->committer = committer_start(&e->config, source, e, e->multilane, e->writer);
    return e;
}

void engine_answer(struct engine *e, struct op *op)
{
    if (e->config.decided && !op->engine.inner)
        e->config.decided(op);
    op->done(op);
}

/* Send op to its lane; to lane 0 if the number of lanes is unknown, because lane 0 knows. */
static void send_to_lane(struct engine *e, struct op *op)
{
    int64_t lanes = op->kind == OP_CREATE ? op_coupon(op)->definition->lanes : multilane_lanes(e->multilane, op->coupon);

    op->lane = 0;
    if (lanes > 1 || op->kind == OP_FOLLOW) {
        assert(e->multilane);
        if (e->multilane->hooks->takes(e->multilane, op, lanes))
            return;
    }
    committer_submit(e->committer, op);
}

enum cpn_result engine_submit(struct engine *e, struct op *op)
{
    int waiting = committer_waiting(e->committer) + (e->multilane ? atomic_load(&e->multilane->waiting) : 0);

    if (waiting >= e->config.requests_max)
        return CPN_BUSY;
    op->engine = (struct op_engine){.asked_lane = op->lane};
    memset(&op->out, 0, sizeof op->out);
    send_to_lane(e, op);
    return CPN_OK;
}

void engine_ask(struct engine *e, struct op *op)
{
    op->engine = (struct op_engine){.inner = true};
    committer_submit(e->committer, op);
}

void engine_reroute(struct engine *e, struct op *op)
{
    send_to_lane(e, op);
}

void engine_look_back(struct engine *e, struct op *op)
{
    history_submit(e->history, op);
}

void engine_stop(struct engine *e)
{
    if (e->multilane)
        e->multilane->hooks->stop(e->multilane);
    history_stop(e->history);
    committer_stop(e->committer, e->config.patience_ms);
    checkpoint_writer_stop(e->writer, e->config.patience_ms);
    committer_free(e->committer);
    if (e->multilane)
        e->multilane->hooks->free(e->multilane);
    history_free(e->history);
    free(e);
}

/* ---- waiting for one op ---- */

static void one_done(struct op *op)
{
    latch_down(op->context);
}

void engine_call_all(struct engine *e, struct op *const *ops, size_t count)
{
    struct latch done;

    latch_init(&done, count);
    for (size_t i = 0; i < count; i++) {
        enum cpn_result r;

        ops[i]->done = one_done;
        ops[i]->context = &done; // cppcheck-suppress autoVariables
        r = engine_submit(e, ops[i]);
        if (r != CPN_OK) {
            ops[i]->outcome = (struct outcome){.result = r, .retry = true};
            latch_down(&done);
        }
    }
    latch_wait(&done);
    for (size_t i = 0; i < count; i++)
        ops[i]->context = NULL;
}

enum cpn_result engine_call(struct engine *e, struct op *op)
{
    engine_call_all(e, &op, 1);
    return op->outcome.result;
}

enum cpn_result engine_call_within(struct engine *e, struct op *op, int64_t ms)
{
    enum cpn_result r;
    struct arena a;

    arena_init(&a, 0);
    op->arena = &a;
    op->deadline = mono_add_ms(mono_now(), ms);
    r = engine_call(e, op);
    arena_free(&a);
    op->arena = NULL;
    op->coupon_now = NULL;
    memset(&op->out, 0, sizeof op->out);
    return r;
}

enum store_status engine_catch_up(struct engine *e, const char *coupon, int64_t lane, int64_t ms)
{
    struct op op = {.kind = OP_CATCH_UP, .coupon = coupon, .lane = lane};
    enum cpn_result r = engine_call_within(e, &op, ms);

    return r == CPN_OK || r == CPN_COUPON_NOT_FOUND ? STORE_OK : STORE_FAILED;
}
