/*
 * tests/engine/test_ends.c -- what is issued ends with the coupon, whenever that is, and however it was told: by what is in memory, by
 * what is stored, with slots and without.
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "rig.h"

#define USERS 150 /* in more buckets, and batches, than are searched at a time */
#define SLOTS 40000

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

static void await_issued(int64_t want)
{
    for (int i = 0; i < 10000 && rig_head(0).issued != want; i++)
        rig_nap();
    assert_int_equal(rig_head(0).issued, want);
}

static enum slot_state state_of(int i, int64_t *valid_until_ms)
{
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = t.of[i].n, .g = t.of[i].g}};

    rig_ask(0, &op);
    *valid_until_ms = op.outcome.redemption.valid_until_ms;
    return (enum slot_state)op.outcome.redemption.state;
}

static void all_end(enum cap_policy policy, bool anew)
{
    int64_t end_ms, valid_until_ms;

    create(policy);
    issue(0, USERS);
    if (anew) /* the end is not in memory, nor is what it ends */
        rig_restart_written();
    end_ms = clock_now_ms() + 1500;
    end_at(end_ms);
    assert_int_equal(state_of(3, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(valid_until_ms, end_ms);
    assert_int_equal(rig_head(0).issued, USERS);
    if (anew)
        rig_restart_written();
    await_issued(0);
    assert_true(clock_now_ms() >= end_ms);
    assert_int_equal(state_of(3, &valid_until_ms), SLOT_EXPIRED);
    assert_int_equal(valid_until_ms, end_ms);
}

TEST(an_end_set_later_ends_all_that_is_issued)
{
    all_end(CAP_EXACT, false);
}

TEST(an_end_set_later_ends_all_that_is_stored)
{
    all_end(CAP_EXACT, true);
}

TEST(an_end_set_later_ends_all_without_slots)
{
    all_end(CAP_NONE, false);
}

TEST(an_end_set_later_ends_all_without_slots_that_is_stored)
{
    all_end(CAP_NONE, true);
}

/* Whoever was given it after the first end was put off, loses it at the second; those who redeemed keep it. */
static void an_end_may_move(enum cap_policy policy)
{
    int64_t first_ms, second_ms, valid_until_ms;

    create(policy);
    first_ms = clock_now_ms() + 400;
    end_at(first_ms);
    issue(0, 20);
    end_at(COUPON_NULL);
    while (clock_now_ms() <= first_ms + 300)
        rig_nap();
    assert_int_equal(rig_head(0).issued, 20);
    assert_int_equal(state_of(0, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(valid_until_ms, 0);
    assert_int_equal(step(&t.of[0], MOVE_REDEEM, NULL), CPN_OK);
    issue(20, 30);
    second_ms = clock_now_ms() + 300;
    end_at(second_ms);
    await_issued(0);
    assert_int_equal(rig_head(0).redeemed, 1);
    end_at(COUPON_NULL); /* what has ended stays so */
    assert_int_equal(state_of(25, &valid_until_ms), SLOT_EXPIRED);
    assert_int_equal(valid_until_ms, second_ms);
    issue(30, 40);
    assert_int_equal(rig_head(0).issued, 10);
    end_at(second_ms); /* long ago, and looked for before */
    await_issued(0);
}

TEST(an_end_may_move_with_slots)
{
    an_end_may_move(CAP_EXACT);
}

TEST(an_end_may_move_without_slots)
{
    an_end_may_move(CAP_NONE);
}

/* A hold made in time stands; cancelled, it leaves nothing issued. */
static void a_hold_outlives_the_end(enum cap_policy policy)
{
    struct redemption holds[2];
    int64_t end_ms, valid_until_ms;

    create(policy);
    issue(0, 3);
    assert_int_equal(step(&t.of[0], MOVE_RESERVE, &holds[0]), CPN_OK);
    assert_int_equal(step(&t.of[1], MOVE_RESERVE, &holds[1]), CPN_OK);
    end_ms = clock_now_ms() + 300;
    end_at(end_ms);
    await_issued(0); /* a slot that is held is not counted as issued */
    assert_int_equal(rig_head(0).reserved, 2);
    assert_int_equal(state_of(0, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(step(&holds[0], MOVE_REDEEM, NULL), CPN_OK);
    assert_int_equal(step(&holds[1], MOVE_CANCEL, NULL), CPN_OK);
    assert_int_equal(state_of(1, &valid_until_ms), SLOT_EXPIRED);
    assert_int_equal(rig_head(0).issued, 0);
    assert_int_equal(rig_head(0).reserved, 0);
    assert_int_equal(rig_head(0).redeemed, 1);
}

TEST(a_hold_outlives_the_end_with_slots)
{
    a_hold_outlives_the_end(CAP_EXACT);
}

TEST(a_hold_outlives_the_end_without_slots)
{
    a_hold_outlives_the_end(CAP_NONE);
}

RUN_TESTS(.each_setup = rig_begin, .each_teardown = rig_end, .setup = fake_group_setup)
