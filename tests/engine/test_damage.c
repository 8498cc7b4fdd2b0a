/*
 * tests/engine/test_damage.c -- documents that a search finds and nobody can decode: free slots, holds that lapsed, codes. Others of
 * the coupon are found past them, and what only they can tell is never said.
 */
#include "cmocka_whole.h"

#include "rig.h"

#define IN_VAIN_MS 1500 /* for a taking that gets no answer but "busy" */
#define SOON_MS PATIENCE_MS /* for one that nothing delays */
#define HOLD_S 600

static void create(enum cap_policy policy, int64_t total, enum codes_source source, enum codes_pick pick)
{
    struct coupon c;

    open_coupon(&c, COUPON);
    c.cap.policy = policy;
    c.cap.total = total;
    c.cap.per_user = COUPON_NULL;
    c.codes.source = source;
    c.codes.pick = pick;
    c.reserve_s = HOLD_S;
    rig_create(&c);
    if (policy == CAP_EXACT)
        rig_generate(&c, 1, total);
}

static void create_slots(int64_t slots)
{
    create(CAP_EXACT, slots, CODES_NONE, PICK_SEQUENTIAL);
}

static enum cpn_result take_as(const char *user, enum slot_state as, int64_t ms, int64_t *n)
{
    static int keys;
    struct op op = rig_taking(user, arena_printf(&rig.arenas[0], "k%d", keys++), as);
    enum cpn_result r = rig_call_within(0, &op, ms);

    if (n)
        *n = op.outcome.redemption.n;
    return r;
}

static void take(const char *user, enum slot_state as)
{
    assert_int_equal(take_as(user, as, PATIENCE_MS, NULL), CPN_OK);
}

/* Each of these goes to somebody, and is no slot before `from`. */
static void take_from(const char *user, int count, int64_t from)
{
    int64_t n;

    for (int i = 0; i < count; i++) {
        assert_int_equal(take_as(user, SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= from);
    }
}

static int64_t taken(void)
{
    struct head head = rig_head(0);

    return head_taken(&head);
}

/* ---- free slots ---- */

/* As many damaged ones in front as are read at first: the free pool is filled from behind them. */
TEST(what_is_free_behind_damaged_buckets_is_taken)
{
    create_slots(5 * BUCKET_SLOTS);
    rig_restart_written();
    for (int64_t b = 0; b < 4; b++)
        fake_damage_bucket(rig.fake, COUPON, b);
    take_from("ann", BUCKET_SLOTS, 4 * BUCKET_SLOTS);
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
    assert_int_equal(taken(), BUCKET_SLOTS);
}

TEST(at_random_too)
{
    int64_t n;

    create(CAP_EXACT, 5 * BUCKET_SLOTS, CODES_IMPORTED, PICK_RANDOM);
    rig_restart_written();
    for (int64_t b = 1; b < 5; b++)
        fake_damage_bucket(rig.fake, COUPON, b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n < BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

TEST(slots_whose_codes_are_damaged_are_left_and_others_are_taken)
{
    create(CAP_EXACT, 2 * BUCKET_SLOTS, CODES_IMPORTED, PICK_SEQUENTIAL);
    rig_restart_written();
    fake_damage_codes(rig.fake, COUPON, 0);
    take_from("ann", BUCKET_SLOTS, BUCKET_SLOTS);
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

/* Every slot of bucket 0 is taken; it says that ten are free. */
TEST(a_count_that_is_too_high_hands_out_nothing_twice)
{
    create_slots(2 * BUCKET_SLOTS);
    take_from("ann", BUCKET_SLOTS, 0);
    rig_restart_written();
    fake_miscount_bucket(rig.fake, COUPON, 0, 10);
    take_from("bob", BUCKET_SLOTS, BUCKET_SLOTS);
    assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

/* Half of bucket 0 is free; it says that none is. That half is found once anything else in the bucket moves. */
TEST(a_count_that_is_too_low_loses_nothing_for_good)
{
    struct op cancel = {.kind = OP_STEP, .in.redemption = {.g = 1, .move = MOVE_CANCEL}};

    create_slots(2 * BUCKET_SLOTS);
    for (int i = 0; i < BUCKET_SLOTS / 2; i++)
        take("ann", SLOT_ISSUED);
    rig_restart_written();
    fake_miscount_bucket(rig.fake, COUPON, 0, -BUCKET_SLOTS / 2);
    take_from("bob", BUCKET_SLOTS, BUCKET_SLOTS);
    assert_int_equal(take_as("bob", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
    rig_ask(0, &cancel);
    take_from("bob", BUCKET_SLOTS / 2 + 1, 0);
    assert_int_equal(take_as("bob", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

/* ---- holds that lapsed ---- */

/* ann's hold is in a bucket that is damaged, bob's in another: both lapse. */
TEST(a_lapsed_hold_beside_a_damaged_bucket_goes_back)
{
    int64_t n;

    create_slots(BUCKET_SLOTS + 1);
    take("ann", SLOT_RESERVED);
    take_from("eve", BUCKET_SLOTS - 1, 0);
    take("bob", SLOT_RESERVED);
    rig_restart_written();
    fake_damage_bucket(rig.fake, COUPON, 0);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT); /* no time has passed yet */
    rig_move_clock(HOLD_S + 1);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
    assert_int_equal(n, BUCKET_SLOTS);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY); /* ann's may be free */
}

static void create_without_slots(int64_t total)
{
    create(CAP_APPROXIMATE, total, CODES_NONE, PICK_SEQUENTIAL);
}

/* What the damaged batch holds stays taken; all else is known. */
TEST(without_slots_beside_a_damaged_batch)
{
    int damaged;

    create_without_slots(2);
    take("ann", SLOT_RESERVED);
    damaged = fake_batches(rig.fake, COUPON);
    take("bob", SLOT_RESERVED);
    rig_restart_written();
    fake_damage_batch(rig.fake, COUPON, 0, damaged);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
    rig_move_clock(HOLD_S + 1);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_OK);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
}

#define HOLDS 150 /* more than are searched at a time, twice */

/* HOLDS users hold what there is, each in a batch of its own: the first, or as many as are searched at a time, cannot be read. All others
 * go back. */
TEST(damaged_batches_stop_none_of_many)
{
    static const int damaged[] = {1, 70};

    EACH_ANEW(k, 2, rig_begin, rig_end) {
        int first;

        create_without_slots(HOLDS);
        first = fake_batches(rig.fake, COUPON) + 1;
        for (int i = 0; i < HOLDS; i++)
            take(arena_printf(&rig.arenas[0], "u%d", i), SLOT_RESERVED);
        rig_restart_written();
        for (int i = 0; i < damaged[k]; i++)
            fake_damage_batch(rig.fake, COUPON, 0, first + i);
        rig_move_clock(HOLD_S + 1);
        for (int i = 0; i < HOLDS - damaged[k]; i++)
            assert_int_equal(take_as(arena_printf(&rig.arenas[0], "v%d", i), SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
        assert_int_equal(take_as("w", SLOT_REDEEMED, SOON_MS, NULL), CPN_SOLD_OUT);
        assert_int_equal(taken(), HOLDS);
    }
}

/* ann has a hold in a batch that can be read, and another in one that cannot. */
TEST(a_user_who_cannot_be_read_stops_none_of_many)
{
    int damaged;

    create_without_slots(HOLDS);
    take("ann", SLOT_RESERVED);
    take("ann", SLOT_RESERVED);
    damaged = fake_batches(rig.fake, COUPON);
    for (int i = 2; i < HOLDS; i++)
        take(arena_printf(&rig.arenas[0], "u%d", i), SLOT_RESERVED);
    rig_restart_written();
    fake_damage_batch(rig.fake, COUPON, 0, damaged);
    rig_move_clock(HOLD_S + 1);
    for (int i = 2; i < HOLDS; i++)
        assert_int_equal(take_as(arena_printf(&rig.arenas[0], "v%d", i), SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
    assert_int_equal(take_as("w", SLOT_REDEEMED, SOON_MS, NULL), CPN_SOLD_OUT);
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

/* ---- erasures, jobs ---- */

/* op waits for what is damaged, and bob's takings do not. */
static void assert_waits_alone(struct op *op)
{
    struct latch done;

    latch_init(&done, 1);
    rig_submit(0, op, NULL, &done);
    for (int i = 0; i < 2; i++)
        assert_int_equal(take_as("bob", SLOT_REDEEMED, SOON_MS, NULL), CPN_OK);
    engine_stop(rig.engines[0]);
    rig.engines[0] = NULL;
    latch_wait(&done);
    assert_int_equal(op->outcome.result, CPN_BUSY);
}

TEST(an_erasure_whose_bucket_is_damaged_delays_no_other)
{
    struct op erasure = {.kind = OP_ERASE, .in.user.name = "ann"};

    create_slots(2 * BUCKET_SLOTS);
    take("ann", SLOT_RESERVED);
    take_from("eve", BUCKET_SLOTS - 1, 0);
    rig_restart_written();
    fake_damage_bucket(rig.fake, COUPON, 0);
    assert_waits_alone(&erasure);
}

TEST(a_job_whose_batch_is_damaged_delays_no_other)
{
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 2, .count = 1}};
    int damaged;

    create_slots(BUCKET_SLOTS);
    damaged = fake_batches(rig.fake, COUPON);
    take("ann", SLOT_REDEEMED);
    rig_restart_written();
    fake_damage_batch(rig.fake, COUPON, 0, damaged);
    assert_waits_alone(&more);
}

RUN_TESTS(.each_setup = rig_begin, .each_teardown = rig_end, .setup = fake_group_setup)
