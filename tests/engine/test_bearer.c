/*
 * tests/engine/test_bearer.c -- codes that belong to whoever presents them: what others are told, by an engine that has it in memory
 * and by one that reads it, and while more has ended by itself than one batch takes back.
 */
#include "cmocka_whole.h"
#include <time.h>

#include "base/clock.h"
#include "base/latch.h"
#include "one_engine.h"

#define COUPON "c"
#define HOLDS 3000 /* more than a batch takes back */

static int keys;

static enum cpn_result call(struct op *op)
{
    return one_engine_call(op, COUPON, PATIENCE_MS);
}

static void prepare_taking(struct op *op, const char *user, int64_t n, enum slot_state state)
{
    *op = (struct op){.kind = OP_TAKE, .in.user.name = user};
    op->in.user.take = (struct take){.key = arena_printf(&one.arena, "k%d", keys++), .code_n = -1, .state = state, .reserve_s = COUPON_NULL,
                             .code = arena_printf(&one.arena, "CODE%lld", (long long)n)};
}

static struct outcome ask(const char *user, int64_t n, enum slot_state state)
{
    struct op op;

    prepare_taking(&op, user, n, state);
    (void)call(&op);
    return op.outcome;
}

static void told(const char *user, int64_t n, enum cpn_result want)
{
    struct outcome out = ask(user, n, SLOT_REDEEMED);

    assert_string_equal(result_info(out.result)->name, result_info(want)->name);
}

/* A coupon with so many codes, CODE0 and on. */
FIXTURE(set_up)
{
    struct coupon coupon;
    struct op make = {.kind = OP_CREATE, .in.coupon.definition = &coupon}, turn = {.kind = OP_TURN, .in.job = {.id = "j", .fence = 1}};
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = HOLDS}};

    one_engine_connect();
    one.config.batch_max = 512;
    one.config.queue_max = one.config.requests_max = 2 * HOLDS;
    one.config.redo_max = 8 * HOLDS;
    one_engine_start();
    open_coupon(&coupon, COUPON);
    coupon.cap.total = COUPON_NULL;
    coupon.cap.per_user = HOLDS;
    coupon.codes.source = CODES_IMPORTED;
    coupon.codes.claim = CLAIM_PRESENT;
    coupon.reserve_s = 2;
    assert_int_equal(call(&make), CPN_OK);
    assert_int_equal(call(&turn), CPN_OK);
    more.in.job.turn = turn.out.turn;
    assert_int_equal(call(&more), CPN_OK);
    return 0;
}

TEST(what_became_of_a_code_is_known_to_who_reads_it_too)
{
    struct op erase = {.kind = OP_ERASE, .in.user.name = "ana"};

    assert_int_equal(ask("ana", 1, SLOT_REDEEMED).result, CPN_OK);
    assert_int_equal(ask("ana", 2, SLOT_ISSUED).result, CPN_OK);
    assert_int_equal(ask("ana", 2, SLOT_REDEEMED).result, CPN_OK);
    assert_int_equal(ask("ana", 3, SLOT_ISSUED).result, CPN_OK);
    for (int again = 0; again < 2; again++) {
        told("bob", 1, CPN_CODE_TAKEN);
        told("ana", 1, CPN_CODE_TAKEN);
        told("bob", 2, CPN_CODE_NOT_FOUND);
        told("ana", 2, CPN_CODE_TAKEN);
        told("bob", 3, CPN_CODE_NOT_FOUND);
        one_engine_restart_written(COUPON);
    }
    assert_int_equal(call(&erase), CPN_OK);
    for (int again = 0; again < 2; again++) {
        told("bob", 1, CPN_CODE_TAKEN);
        told("ana", 1, CPN_CODE_TAKEN);
        told("bob", 2, CPN_CODE_NOT_FOUND);
        one_engine_restart_written(COUPON);
    }
}

static void count_down(struct op *op)
{
    latch_down(op->context);
}

/* Hold all codes. Until when the last of them is held. */
static int64_t hold_all(void)
{
    struct op *ops = arena_array(&one.arena, HOLDS, sizeof *ops);
    int64_t until_ms = 0;
    struct latch done;

    latch_init(&done, HOLDS);
    for (int i = 0; i < HOLDS; i++) {
        prepare_taking(&ops[i], arena_printf(&one.arena, "u%d", i), i, SLOT_RESERVED);
        ops[i].coupon = COUPON;
        ops[i].arena = &one.arena;
        ops[i].deadline = mono_add_ms(mono_now(), PATIENCE_MS);
        ops[i].done = count_down;
        ops[i].context = &done;
    }
    for (int i = 0; i < HOLDS; i++) /* from now on the arena is the committer's */
        assert_int_equal(engine_submit(one.engine, &ops[i]), CPN_OK);
    latch_wait(&done);
    for (int i = 0; i < HOLDS; i++) {
        assert_int_equal(ops[i].outcome.result, CPN_OK);
        if (ops[i].outcome.redemption.reserved_until_ms > until_ms)
            until_ms = ops[i].outcome.redemption.reserved_until_ms;
    }
    return until_ms;
}

TEST(a_hold_that_ended_with_thousands_of_others_is_in_nobodys_way)
{
    int64_t until_ms = hold_all();
    const struct timespec pause = {.tv_nsec = 10000000};
    struct outcome out = ask("bob", HOLDS - 1, SLOT_REDEEMED);

    if (out.result != CPN_OK) { /* asked in time */
        assert_int_equal(out.result, CPN_TRANSACTION_IN_PROGRESS);
        assert_in_range(out.retry_at_ms, 1, until_ms);
        while (clock_now_ms() <= until_ms)
            nanosleep(&pause, NULL);
        told("bob", HOLDS - 1, CPN_OK);
    }
    told("ana", HOLDS - 1, CPN_CODE_TAKEN);
}

RUN_TESTS(.each_setup = set_up, .each_teardown = one_engine_end, .setup = fake_group_setup)
