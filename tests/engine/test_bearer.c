/*
 * tests/engine/test_bearer.c -- codes that belong to whoever presents them: what others get, by an engine that has it in memory
 * and by one that reads it, and while more has ended by itself than one batch takes back.
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "rig.h"

#define HOLDS 3000 /* more than a batch takes back */

/* Of the code of slot n. */
static struct op taking(const char *user, int64_t n, enum slot_state state)
{
    static int keys;
    struct op op = rig_taking(user, arena_printf(&rig.arenas[0], "k%d", keys++), state);

    op.in.user.take.code = arena_printf(&rig.arenas[0], "CODE%lld", (long long)n);
    return op;
}

static struct outcome ask(const char *user, int64_t n, enum slot_state state)
{
    struct op op = taking(user, n, state);

    rig_call(0, &op);
    return op.outcome;
}

static void answers(const char *user, int64_t n, enum cpn_result want)
{
    struct outcome out = ask(user, n, SLOT_REDEEMED);

    assert_string_equal(result_info(out.result)->name, result_info(want)->name);
}

/* A coupon with so many codes, CODE0 and on. */
FIXTURE(set_up)
{
    struct coupon coupon;

    rig_connect(1, 1, 0);
    rig.config.batch_max = 512;
    rig.config.queue_max = rig.config.requests_max = 2 * HOLDS;
    rig.config.redo_max = 8 * HOLDS;
    rig_start(NULL);
    open_coupon(&coupon, COUPON);
    coupon.cap.total = COUPON_NULL;
    coupon.cap.per_user = HOLDS;
    coupon.codes.source = CODES_IMPORTED;
    coupon.codes.claim = CLAIM_PRESENT;
    coupon.reserve_s = 2;
    rig_create(&coupon);
    rig_generate(&coupon, 1, HOLDS);
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
        answers("bob", 1, CPN_CODE_TAKEN);
        answers("ana", 1, CPN_CODE_TAKEN);
        answers("bob", 2, CPN_CODE_NOT_FOUND);
        answers("ana", 2, CPN_CODE_TAKEN);
        answers("bob", 3, CPN_CODE_NOT_FOUND);
        rig_restart_written();
    }
    rig_ask(0, &erase);
    for (int again = 0; again < 2; again++) {
        answers("bob", 1, CPN_CODE_TAKEN);
        answers("ana", 1, CPN_CODE_TAKEN);
        answers("bob", 2, CPN_CODE_NOT_FOUND);
        rig_restart_written();
    }
}

/* Hold all codes. Until when the last of them is held. */
static int64_t hold_all(void)
{
    struct op *ops = arena_array(&rig.arenas[0], HOLDS, sizeof *ops);
    int64_t until_ms = 0;
    struct latch done;

    latch_init(&done, HOLDS);
    for (int i = 0; i < HOLDS; i++)
        ops[i] = taking(arena_printf(&rig.arenas[0], "u%d", i), i, SLOT_RESERVED);
    for (int i = 0; i < HOLDS; i++) /* from now on the arena is the committer's */
        rig_submit(0, &ops[i], NULL, &done);
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
    struct outcome out = ask("bob", HOLDS - 1, SLOT_REDEEMED);

    if (out.result != CPN_OK) { /* asked in time */
        assert_int_equal(out.result, CPN_TRANSACTION_IN_PROGRESS);
        assert_in_range(out.retry_at_ms, 1, until_ms);
        while (clock_now_ms() <= until_ms)
            rig_nap();
        answers("bob", HOLDS - 1, CPN_OK);
    }
    answers("ana", HOLDS - 1, CPN_CODE_TAKEN);
}

RUN_TESTS(.each_setup = set_up, .each_teardown = rig_end, .setup = fake_group_setup)
