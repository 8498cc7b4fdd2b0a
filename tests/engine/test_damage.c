/*
 * tests/engine/test_damage.c -- documents that a search finds and nobody can decode: free slots, holds that lapsed, codes. Others of
 * the coupon are found past them, and what only they can tell is never said.
 */
#include "cmocka_whole.h"

#include "base/latch.h"
#include "one_engine.h"

#define COUPON "c"
#define IN_VAIN_MS 1500 /* for a taking that gets no answer but "busy" */
#define SOON_MS 30000   /* for one that nothing delays */
#define HOLD_S 60

static struct {
    int keys;
} t;

static int begin(void **state)
{
    memset(&t, 0, sizeof t);
    return one_engine_begin(state);
}

static enum cpn_result call(struct op *op, int64_t ms)
{
    return one_engine_call(op, COUPON, ms);
}

static void define(struct coupon *c, int64_t slots)
{
    open_coupon(c, COUPON);
    c->cap.total = slots;
    c->cap.per_user = COUPON_NULL;
}

static void create(struct coupon *c)
{
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = c};
    struct op turn = {.kind = OP_TURN, .in.job = {.id = "j", .fence = 1}};
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = c->cap.total}};

    assert_int_equal(call(&op, PATIENCE_MS), CPN_OK);
    if (c->codes.source != CODES_NONE) {
        assert_int_equal(call(&turn, PATIENCE_MS), CPN_OK);
        more.in.job.turn = turn.out.turn;
    }
    if (c->cap.policy == CAP_EXACT)
        assert_int_equal(call(&more, PATIENCE_MS), CPN_OK);
}

static enum cpn_result take_as(const char *user, enum slot_state as, int64_t ms, int64_t *n)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = user};
    enum cpn_result r;

    op.in.user.take = (struct take){.key = arena_printf(&one.arena, "k%d", t.keys++), .code_n = -1, .state = as,
                            .reserve_s = as == SLOT_RESERVED ? HOLD_S : COUPON_NULL};
    r = call(&op, ms);
    if (n)
        *n = op.outcome.redemption.n;
    return r;
}

static void take(const char *user, enum slot_state as)
{
    assert_int_equal(take_as(user, as, PATIENCE_MS, NULL), CPN_OK);
}

static void let_holds_lapse(void)
{
    struct mono now = mono_now();

    clock_set(clock_now_ms() + (HOLD_S + 1) * 1000, now, now);
}

static int64_t taken(void)
{
    struct op op = {.kind = OP_COUPON};

    assert_int_equal(call(&op, PATIENCE_MS), CPN_OK);
    return head_taken(&op.head);
}

/* ---- free slots ---- */

/* As many damaged ones in front as are read at first: the free pool is filled from behind them. */
TEST(what_is_free_behind_damaged_buckets_is_taken)
{
    struct coupon c;
    int64_t n;

    define(&c, 5 * BUCKET_SLOTS);
    create(&c);
    one_engine_restart_written(COUPON);
    for (int64_t b = 0; b < 4; b++)
        fake_damage_bucket(one.fake, COUPON, b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= 4 * BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
    assert_int_equal(taken(), BUCKET_SLOTS);
}

TEST(at_random_too)
{
    struct coupon c;
    int64_t n;

    define(&c, 5 * BUCKET_SLOTS);
    c.codes.source = CODES_IMPORTED;
    c.codes.pick = PICK_RANDOM;
    create(&c);
    one_engine_restart_written(COUPON);
    for (int64_t b = 1; b < 5; b++)
        fake_damage_bucket(one.fake, COUPON, b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n < BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

TEST(slots_whose_codes_are_damaged_are_left_and_others_are_taken)
{
    struct coupon c;
    int64_t n;

    define(&c, 2 * BUCKET_SLOTS);
    c.codes.source = CODES_IMPORTED;
    create(&c);
    one_engine_restart_written(COUPON);
    fake_damage_codes(one.fake, COUPON, 0);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

/* Every slot of bucket 0 is taken; it says that ten are free. */
TEST(a_count_that_is_too_high_hands_out_nothing_twice)
{
    struct coupon c;
    int64_t n;

    define(&c, 2 * BUCKET_SLOTS);
    create(&c);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        take("ann", SLOT_REDEEMED);
    one_engine_restart_written(COUPON);
    fake_miscount_bucket(one.fake, COUPON, 0, 10);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= BUCKET_SLOTS);
    }
    assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

/* Half of bucket 0 is free; it says that none is. That half is found once anything else in the bucket moves. */
TEST(a_count_that_is_too_low_loses_nothing_for_good)
{
    struct op cancel = {.kind = OP_STEP, .in.redemption = {.g = 1, .move = MOVE_CANCEL}};
    struct coupon c;
    int64_t n;

    define(&c, 2 * BUCKET_SLOTS);
    create(&c);
    for (int i = 0; i < BUCKET_SLOTS / 2; i++)
        take("ann", SLOT_ISSUED);
    one_engine_restart_written(COUPON);
    fake_miscount_bucket(one.fake, COUPON, 0, -BUCKET_SLOTS / 2);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= BUCKET_SLOTS);
    }
    assert_int_equal(take_as("bob", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
    assert_int_equal(call(&cancel, PATIENCE_MS), CPN_OK);
    for (int i = 0; i < BUCKET_SLOTS / 2 + 1; i++)
        take("bob", SLOT_REDEEMED);
    assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

/* ---- holds that lapsed ---- */

/* ann's hold is in a bucket that is damaged, bob's in another: both lapse. */
TEST(a_lapsed_hold_beside_a_damaged_bucket_goes_back)
{
    struct coupon c;
    int64_t n;

    define(&c, BUCKET_SLOTS + 1);
    create(&c);
    take("ann", SLOT_RESERVED);
    for (int i = 1; i < BUCKET_SLOTS; i++)
        take("eve", SLOT_REDEEMED);
    take("bob", SLOT_RESERVED);
    one_engine_restart_written(COUPON);
    fake_damage_bucket(one.fake, COUPON, 0);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT); /* no time has passed yet */
    let_holds_lapse();
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
    assert_int_equal(n, BUCKET_SLOTS);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY); /* ann's may be free */
}

static void define_without_slots(struct coupon *c, int64_t total)
{
    define(c, total);
    c->cap.policy = CAP_APPROXIMATE;
    create(c);
}

/* What the damaged batch holds stays taken; all else is known. */
TEST(without_slots_beside_a_damaged_batch)
{
    struct coupon c;
    int damaged;

    define_without_slots(&c, 2);
    take("ann", SLOT_RESERVED);
    damaged = fake_batches(one.fake, COUPON);
    take("bob", SLOT_RESERVED);
    one_engine_restart_written(COUPON);
    fake_damage_batch(one.fake, COUPON, 0, damaged);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
    let_holds_lapse();
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_OK);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

#define HOLDS 150 /* more than are searched at a time, twice */

/* HOLDS users hold what there is, each in a batch of its own: `damaged` of them, from the first on, cannot be read. All others go back. */
static void assert_others_go_back(int damaged)
{
    struct coupon c;
    int first;

    define_without_slots(&c, HOLDS);
    first = fake_batches(one.fake, COUPON) + 1;
    for (int i = 0; i < HOLDS; i++)
        take(arena_printf(&one.arena, "u%d", i), SLOT_RESERVED);
    one_engine_restart_written(COUPON);
    for (int i = 0; i < damaged; i++)
        fake_damage_batch(one.fake, COUPON, 0, first + i);
    let_holds_lapse();
    for (int i = 0; i < HOLDS - damaged; i++)
        assert_int_equal(take_as(arena_printf(&one.arena, "v%d", i), SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
    assert_int_equal(take_as("w", SLOT_REDEEMED, SOON_MS, NULL), CPN_SOLD_OUT);
    assert_int_equal(taken(), HOLDS);
}

TEST(one_damaged_batch_stops_none_of_many)
{
    assert_others_go_back(1);
}

TEST(as_many_damaged_batches_as_are_searched_at_a_time_stop_none)
{
    assert_others_go_back(70);
}

/* ann has a hold in a batch that can be read, and another in one that cannot. */
TEST(a_user_who_cannot_be_read_stops_none_of_many)
{
    struct coupon c;
    int damaged;

    define_without_slots(&c, HOLDS);
    take("ann", SLOT_RESERVED);
    take("ann", SLOT_RESERVED);
    damaged = fake_batches(one.fake, COUPON);
    for (int i = 2; i < HOLDS; i++)
        take(arena_printf(&one.arena, "u%d", i), SLOT_RESERVED);
    one_engine_restart_written(COUPON);
    fake_damage_batch(one.fake, COUPON, 0, damaged);
    let_holds_lapse();
    for (int i = 2; i < HOLDS; i++)
        assert_int_equal(take_as(arena_printf(&one.arena, "v%d", i), SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
    assert_int_equal(take_as("w", SLOT_REDEEMED, SOON_MS, NULL), CPN_SOLD_OUT);
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

/* ---- erasures, jobs ---- */

static void note_done(struct op *op)
{
    latch_down(op->context);
}

/* op waits for what is damaged, and bob's takings do not. */
static void assert_waits_alone(struct op *op)
{
    struct latch done;

    latch_init(&done, 1);
    op->coupon = COUPON;
    op->arena = &one.arena;
    op->done = note_done;
    op->context = &done;
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_submit(one.engine, op), CPN_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(take_as("bob", SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
    one_engine_restart();
    latch_wait(&done);
    assert_int_equal(op->outcome.result, CPN_BUSY);
}

TEST(an_erasure_whose_bucket_is_damaged_delays_no_other)
{
    struct op erasure = {.kind = OP_ERASE, .in.user.name = "ann"};
    struct coupon c;

    define(&c, 2 * BUCKET_SLOTS);
    create(&c);
    take("ann", SLOT_RESERVED);
    for (int i = 1; i < BUCKET_SLOTS; i++)
        take("eve", SLOT_REDEEMED);
    one_engine_restart_written(COUPON);
    fake_damage_bucket(one.fake, COUPON, 0);
    assert_waits_alone(&erasure);
}

TEST(a_job_whose_batch_is_damaged_delays_no_other)
{
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 2, .count = 1}};
    struct coupon c;
    int damaged;

    define(&c, BUCKET_SLOTS);
    create(&c);
    damaged = fake_batches(one.fake, COUPON);
    take("ann", SLOT_REDEEMED);
    one_engine_restart_written(COUPON);
    fake_damage_batch(one.fake, COUPON, 0, damaged);
    assert_waits_alone(&more);
}

RUN_TESTS(.each_setup = begin, .each_teardown = one_engine_end, .setup = fake_group_setup)
