/* tests/engine/one_engine.c -- see one_engine.h. */
#include "cmocka_whole.h"

#include "one_engine.h"

struct one_engine one;

void one_engine_connect(void)
{
    one = (struct one_engine){.fake = fake_new(1, 0)};
    one.config = (struct engine_config){
        .batch_max = 64, .queue_max = 512, .requests_max = 512, .lanes_max = 512, .redo_max = 2000,
        .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    arena_init(&one.arena, 0);
    one.served = one.source = fake_connect(one.fake);
}

void one_engine_start(void)
{
    one.engine = engine_start(&one.config, one.served, NULL);
}

void one_engine_restart(void)
{
    engine_stop(one.engine);
    one_engine_start();
}

void one_engine_restart_written(const char *coupon)
{
    assert_int_equal(engine_catch_up(one.engine, coupon, 0, PATIENCE_MS), STORE_OK);
    one_engine_restart();
}

int one_engine_begin(UNUSED_STATE)
{
    one_engine_connect();
    one_engine_start();
    return 0;
}

int one_engine_end(UNUSED_STATE)
{
    engine_stop(one.engine);
    fake_disconnect(one.source);
    arena_free(&one.arena);
    fake_free(one.fake);
    return 0;
}

enum cpn_result one_engine_call(struct op *op, const char *coupon, int64_t ms)
{
    op->coupon = coupon;
    op->arena = &one.arena;
    op->deadline = mono_add_ms(mono_now(), ms);
    return engine_call(one.engine, op);
}
