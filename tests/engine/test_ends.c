/*
 * tests/engine/test_ends.c -- what is issued ends with the coupon, whenever that is, and however it was told: by what is in memory, by
 * what is stored, with slots and without.
 */
#include "cmocka_whole.h"
#include <time.h>

#include "base/clock.h"
#include "one_engine.h"

#define COUPON "c"
#define USERS 150 /* in more buckets, and batches, than are searched at a time */
#define SLOTS 40000

static struct {
    struct coupon coupon;
    int64_t version;
    int calls;
    struct redemption of[USERS];
} t;

static int begin(void **state)
{
    memset(&t, 0, sizeof t);
    return one_engine_begin(state);
}

static enum cpn_result call(struct op *op)
{
    return one_engine_call(op, COUPON, PATIENCE_MS);
}

static void create(enum cap_policy policy)
{
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &t.coupon};
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = SLOTS}};

    open_coupon(&t.coupon, COUPON);
    t.coupon.cap.policy = policy;
    t.coupon.cap.total = COUPON_NULL;
    t.coupon.cap.per_user = 10;
    t.coupon.codes.pick = PICK_RANDOM;
    assert_int_equal(call(&op), CPN_OK);
    t.version = 1;
    if (policy == CAP_EXACT)
        assert_int_equal(call(&more), CPN_OK);
}

static void end_at(int64_t ends_at_ms)
{
    struct op op = {.kind = OP_CHANGE, .in.coupon = {.definition = &t.coupon, .expected_version = t.version++}};

    t.coupon.ends_at_ms = ends_at_ms;
    assert_int_equal(call(&op), CPN_OK);
}

static const char *user(int i)
{
    return arena_printf(&one.arena, "u%d", i);
}

static const char *key(void)
{
    return arena_printf(&one.arena, "k%d", t.calls++);
}

static void issue(int from, int end)
{
    for (int i = from; i < end; i++) {
        struct op op = {.kind = OP_TAKE, .in.user = {.name = user(i), .take = {.key = key(), .code_n = -1, .state = SLOT_ISSUED,
                                                                               .reserve_s = COUPON_NULL}}};

        assert_int_equal(call(&op), CPN_OK);
        t.of[i] = op.outcome.redemption;
    }
}

static enum cpn_result step(const struct redemption *r, enum slot_move move, struct redemption *after)
{
    struct op op = {.kind = OP_STEP, .lane = 0,
                    .in.redemption = {.n = r->n, .g = r->g, .move = move, .reserve_s = 3600,
                                        .key = move == MOVE_CANCEL ? NULL : key()}};
    enum cpn_result result = call(&op);

    if (after)
        *after = op.outcome.redemption;
    return result;
}

static struct head head(void)
{
    struct op op = {.kind = OP_COUPON};

    assert_int_equal(call(&op), CPN_OK);
    return op.head;
}

static void await_issued(int64_t want)
{
    const struct timespec pause = {.tv_nsec = 20000000};

    for (int i = 0; i < 500 && head().issued != want; i++)
        nanosleep(&pause, NULL);
    assert_int_equal(head().issued, want);
}

static void sleep_until(int64_t at_ms)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    while (clock_now_ms() <= at_ms)
        nanosleep(&pause, NULL);
}

static enum slot_state state_of(int i, int64_t *valid_until_ms)
{
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = t.of[i].n, .g = t.of[i].g}};

    assert_int_equal(call(&op), CPN_OK);
    *valid_until_ms = op.outcome.redemption.valid_until_ms;
    return (enum slot_state)op.outcome.redemption.state;
}

static void all_end(enum cap_policy policy, bool anew)
{
    int64_t end_ms, valid_until_ms;

    create(policy);
    issue(0, USERS);
    if (anew) /* the end is not in memory, nor is what it ends */
        one_engine_restart_written(COUPON);
    end_ms = clock_now_ms() + 1500;
    end_at(end_ms);
    assert_int_equal(state_of(3, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(valid_until_ms, end_ms);
    assert_int_equal(head().issued, USERS);
    if (anew)
        one_engine_restart_written(COUPON);
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
    sleep_until(first_ms + 300);
    assert_int_equal(head().issued, 20);
    assert_int_equal(state_of(0, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(valid_until_ms, 0);
    assert_int_equal(step(&t.of[0], MOVE_REDEEM, NULL), CPN_OK);
    issue(20, 30);
    second_ms = clock_now_ms() + 300;
    end_at(second_ms);
    await_issued(0);
    assert_int_equal(head().redeemed, 1);
    end_at(COUPON_NULL); /* what has ended stays so */
    assert_int_equal(state_of(25, &valid_until_ms), SLOT_EXPIRED);
    assert_int_equal(valid_until_ms, second_ms);
    issue(30, 40);
    assert_int_equal(head().issued, 10);
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
    assert_int_equal(head().reserved, 2);
    assert_int_equal(state_of(0, &valid_until_ms), SLOT_ISSUED);
    assert_int_equal(step(&holds[0], MOVE_REDEEM, NULL), CPN_OK);
    assert_int_equal(step(&holds[1], MOVE_CANCEL, NULL), CPN_OK);
    assert_int_equal(state_of(1, &valid_until_ms), SLOT_EXPIRED);
    assert_int_equal(head().issued, 0);
    assert_int_equal(head().reserved, 0);
    assert_int_equal(head().redeemed, 1);
}

TEST(a_hold_outlives_the_end_with_slots)
{
    a_hold_outlives_the_end(CAP_EXACT);
}

TEST(a_hold_outlives_the_end_without_slots)
{
    a_hold_outlives_the_end(CAP_NONE);
}

RUN_TESTS(.each_setup = begin, .each_teardown = one_engine_end, .setup = fake_group_setup)
