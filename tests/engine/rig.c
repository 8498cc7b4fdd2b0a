/* tests/engine/rig.c -- see rig.h. */
#include "cmocka_whole.h"
#include <time.h>

#include "base/clock.h"
#include "rig.h"

struct rig rig;

void rig_connect(int engines, uint32_t seed, int fault_percent)
{
    rig = (struct rig){.count = engines, .coupon = COUPON, .fake = fake_new(seed, fault_percent)};
    rig.config = (struct engine_config){
        .batch_max = 64, .queue_max = 512, .requests_max = 512, .lanes_max = 512, .redo_max = 2000,
        .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    for (int i = 0; i < engines; i++) {
        arena_init(&rig.arenas[i], 0);
        rig.sources[i] = fake_connect(rig.fake);
        fake_watch(&rig.watched[i], rig.sources[i]);
    }
}

void rig_start(multilane_start *lanes)
{
    for (int i = 0; i < rig.count; i++)
        rig.engines[i] = engine_start(&rig.config, &rig.watched[i].source, lanes);
}

void rig_restart_written(void)
{
    rig_catch_up(0);
    engine_stop(rig.engines[0]);
    rig.engines[0] = engine_start(&rig.config, &rig.watched[0].source, NULL);
}

int rig_begin(UNUSED_STATE)
{
    rig_connect(1, 1, 0);
    rig_start(NULL);
    return 0;
}

int rig_end(UNUSED_STATE)
{
    for (int i = 0; i < rig.count; i++)
        if (rig.engines[i])
            engine_stop(rig.engines[i]);
    for (int i = 0; i < rig.count; i++) {
        fake_disconnect(rig.sources[i]);
        arena_free(&rig.arenas[i]);
    }
    fake_free(rig.fake);
    return 0;
}

static void prepare(int engine, struct op *op, int64_t ms)
{
    if (!op->coupon)
        op->coupon = rig.coupon;
    if (!op->arena)
        op->arena = &rig.arenas[engine];
    op->deadline = mono_add_ms(mono_now(), ms);
}

enum cpn_result rig_call_within(int engine, struct op *op, int64_t ms)
{
    prepare(engine, op, ms);
    return engine_call(rig.engines[engine], op);
}

enum cpn_result rig_call(int engine, struct op *op)
{
    return rig_call_within(engine, op, PATIENCE_MS);
}

void rig_ask(int engine, struct op *op)
{
    assert_int_equal(rig_call(engine, op), CPN_OK);
}

static void count_down(struct op *op)
{
    latch_down(op->context);
}

void rig_submit(int engine, struct op *op, void (*done)(struct op *op), void *context)
{
    prepare(engine, op, PATIENCE_MS);
    op->done = done ? done : count_down;
    op->context = context;
    assert_int_equal(engine_submit(rig.engines[engine], op), CPN_OK);
}

void rig_catch_up(int engine)
{
    assert_int_equal(engine_catch_up(rig.engines[engine], rig.coupon, 0, PATIENCE_MS), STORE_OK);
}

void rig_create(struct coupon *c)
{
    rig_ask(0, &(struct op){.kind = OP_CREATE, .coupon = c->id, .in.coupon.definition = c});
}

void rig_generate(const struct coupon *c, int64_t step, int64_t count)
{
    struct op turn = {.kind = OP_TURN, .coupon = c->id, .in.job = {.id = "j", .fence = step}};
    struct op more = {.kind = OP_GENERATE, .coupon = c->id, .in.job = {.id = "j", .step = step, .count = count}};

    if (c->codes.source != CODES_NONE) {
        rig_ask(0, &turn);
        more.in.job.turn = turn.out.turn;
    }
    rig_ask(0, &more);
}

struct op rig_taking(const char *user, const char *key, enum slot_state state)
{
    return (struct op){.kind = OP_TAKE,
                       .in.user = {.name = user, .take = {.key = key, .code_n = -1, .state = state, .reserve_s = COUPON_NULL}}};
}

struct op rig_step(const struct redemption *r, enum slot_move move, const char *key)
{
    return (struct op){.kind = OP_STEP, .lane = r->lane,
                       .in.redemption = {.n = r->n, .g = r->g, .move = move, .key = key, .reserve_s = COUPON_NULL}};
}

struct head rig_head(int engine)
{
    struct op op = {.kind = OP_COUPON};

    rig_ask(engine, &op);
    return op.head;
}

struct store *rig_session(void)
{
    struct store *session = rig.sources[0]->open(rig.sources[0]);

    session->ops->saw(session, (struct store_time){UINT32_MAX, 0});
    return session;
}

void rig_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void rig_move_clock(int64_t s)
{
    struct mono now = mono_now();

    clock_set(clock_now_ms() + s * 1000, now, now);
}
