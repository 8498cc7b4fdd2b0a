/*
 * tests/engine/test_ends.c -- what is issued ends with the coupon, whenever that is, and however it was learned: by what is in memory, by
 * what is stored, with slots and without.
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "rig.h"

#define USERS 150 /* in more buckets, and batches, than are searched at a time */
#define SLOTS 40000
#define AHEAD_S 600 /* an end that only comes when the clock is moved; what is held is held for longer */

static struct {
    struct coupon coupon;
    int64_t version;
    int calls;
    struct redemption of[USERS];
} t;

static void create(enum cap_policy policy)
{
    memset(&t, 0, sizeof t);
    open_coupon(&t.coupon, COUPON);
    t.coupon.cap.policy = policy;
    t.coupon.cap.total = COUPON_NULL;
    t.coupon.cap.per_user = 10;
    t.coupon.codes.pick = PICK_RANDOM;
    rig_create(&t.coupon);
    t.version = 1;
    if (policy == CAP_EXACT)
        rig_generate(&t.coupon, 1, SLOTS);
}

static void end_at(int64_t ends_at_ms)
{
    struct op op = {.kind = OP_CHANGE, .in.coupon = {.definition = &t.coupon, .expected_version = t.version++}};

    t.coupon.ends_at_ms = ends_at_ms;
    rig_ask(0, &op);
}

static int64_t later_ms(void)
{
    return clock_now_ms() + AHEAD_S * 1000;
}

static const char *key(void)
{
    return arena_printf(&rig.arenas[0], "k%d", t.calls++);
}

static void issue(int from, int end)
{
    for (int i = from; i < end; i++) {
        struct op op = rig_taking(arena_printf(&rig.arenas[0], "u%d", i), key(), SLOT_ISSUED);

        rig_ask(0, &op);
        t.of[i] = op.outcome.redemption;
    }
}

static enum cpn_result step(const struct redemption *r, enum slot_move move, struct redemption *after)
{
    struct op op = rig_step(r, move, move == MOVE_CANCEL ? NULL : key());
    enum cpn_result result = rig_call(0, &op);

    if (after)
        *after = op.outcome.redemption;
    return result;
}

static void await_none_issued(void)
{
    for (int i = 0; i < 10000 && rig_head(0).issued; i++)
        rig_nap();
    assert_int_equal(rig_head(0).issued, 0);
}

static void assert_is(int i, enum slot_state state, int64_t valid_until_ms)
{
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = t.of[i].n, .g = t.of[i].g}};

    rig_ask(0, &op);
    assert_int_equal(op.outcome.redemption.state, state);
    assert_int_equal(op.outcome.redemption.valid_until_ms, valid_until_ms);
}

/* With slots, and without. */
static const enum cap_policy with_and_without_slots[] = {CAP_EXACT, CAP_NONE};

TEST(an_end_set_later_ends_all_that_is_issued_or_stored)
{
    EACH_ANEW(k, 4, rig_begin, rig_end) {
        bool anew = k / 2; /* the end is not in memory, nor is what it ends */
        int64_t end_ms;

        create(with_and_without_slots[k % 2]);
        issue(0, USERS);
        if (anew)
            rig_restart_written();
        end_ms = later_ms();
        end_at(end_ms);
        assert_is(3, SLOT_ISSUED, end_ms);
        assert_int_equal(rig_head(0).issued, USERS);
        if (anew) {
            rig_restart_written();
            assert_int_equal(rig_head(0).issued, USERS); /* whoever loads it ends nothing before it is time */
            rig_restart_written();
        }
        rig_move_clock(AHEAD_S + 1);
        await_none_issued();
        assert_is(3, SLOT_EXPIRED, end_ms);
    }
}

/* Whoever was given it after the first end was put off, loses it at the second; those who redeemed keep it. */
TEST(an_end_may_move)
{
    EACH_ANEW(k, 2, rig_begin, rig_end) {
        int64_t first_ms, second_ms;

        create(with_and_without_slots[k]);
        first_ms = later_ms();
        end_at(first_ms);
        issue(0, 20);
        end_at(COUPON_NULL);
        rig_move_clock(AHEAD_S + 1);
        assert_true(clock_now_ms() > first_ms);
        for (int i = 0; i < 3; i++) /* time enough to do what would be wrong */
            assert_int_equal(rig_head(0).issued, 20);
        assert_is(0, SLOT_ISSUED, 0);
        assert_int_equal(step(&t.of[0], MOVE_REDEEM, NULL), CPN_OK);
        issue(20, 30);
        second_ms = later_ms();
        end_at(second_ms);
        rig_move_clock(AHEAD_S + 1);
        await_none_issued();
        assert_int_equal(rig_head(0).redeemed, 1);
        end_at(COUPON_NULL); /* what has ended stays so */
        assert_is(25, SLOT_EXPIRED, second_ms);
        issue(30, 40);
        assert_int_equal(rig_head(0).issued, 10);
        end_at(second_ms); /* long ago, and looked for before */
        await_none_issued();
    }
}

/* A hold made in time stands; cancelled, it leaves nothing issued. */
TEST(a_hold_outlives_the_end)
{
    EACH_ANEW(k, 2, rig_begin, rig_end) {
        struct redemption holds[2];
        int64_t end_ms;

        create(with_and_without_slots[k]);
        issue(0, 3);
        assert_int_equal(step(&t.of[0], MOVE_RESERVE, &holds[0]), CPN_OK);
        assert_int_equal(step(&t.of[1], MOVE_RESERVE, &holds[1]), CPN_OK);
        end_ms = later_ms();
        end_at(end_ms);
        rig_move_clock(AHEAD_S + 1);
        await_none_issued(); /* a slot that is held is not counted as issued */
        assert_int_equal(rig_head(0).reserved, 2);
        assert_is(0, SLOT_ISSUED, end_ms);
        assert_int_equal(step(&holds[0], MOVE_REDEEM, NULL), CPN_OK);
        assert_int_equal(step(&holds[1], MOVE_CANCEL, NULL), CPN_OK);
        assert_is(1, SLOT_EXPIRED, end_ms);
        assert_int_equal(rig_head(0).issued, 0);
        assert_int_equal(rig_head(0).reserved, 0);
        assert_int_equal(rig_head(0).redeemed, 1);
    }
}

RUN_TESTS(.each_setup = rig_begin, .each_teardown = rig_end, .setup = fake_group_setup)
