/*
 * tests/engine/test_untouched.c -- slots of which nothing is stored until somebody touches them: each goes out once, however
 * they were made, in whatever order, and whoever leads the lane.
 */
#include "cmocka_whole.h"

#include "base/checked.h"
#include "rig.h"

#define SLOTS_MOST 40000

static struct {
    struct coupon coupon;
    bool taken[SLOTS_MOST];
    int64_t made, takings;
    int steps;
} t;

static void create(enum codes_source source, enum codes_pick pick)
{
    memset(&t, 0, sizeof t);
    open_coupon(&t.coupon, COUPON);
    t.coupon.cap.total = COUPON_NULL;
    t.coupon.cap.per_user = COUPON_NULL;
    t.coupon.codes.source = source;
    t.coupon.codes.pick = pick;
    rig_create(&t.coupon);
}

static void make(int64_t count)
{
    rig_generate(&t.coupon, ++t.steps, count);
    t.made += count;
}

/* code: NULL, or of the slot that is wanted. */
static enum cpn_result take_by(const char *code, int64_t *n)
{
    const char *user = arena_printf(&rig.arenas[0], "u%lld", (long long)t.takings++);
    struct op op = rig_taking(user, user, SLOT_REDEEMED);
    enum cpn_result r;

    op.in.user.take.code = code;
    r = rig_call(0, &op);
    *n = op.outcome.redemption.n;
    if (t.takings % 50 == 0)
        arena_reset(&rig.arenas[0]);
    return r;
}

static enum cpn_result take(int64_t *n)
{
    return take_by(NULL, n);
}

/* Nobody had it. */
static void note_new(int64_t n)
{
    assert_in_range(n, 0, t.made - 1);
    assert_false(t.taken[n]);
    t.taken[n] = true;
}

static void take_new(int64_t count)
{
    int64_t n;

    for (int64_t i = 0; i < count; i++) {
        assert_string_equal(result_info(take(&n))->name, "ok");
        note_new(n);
    }
}

static void take_all(void)
{
    int64_t n, left = t.made;

    for (int64_t i = 0; i < t.made; i++)
        left -= t.taken[i];
    take_new(left);
    assert_int_equal(take(&n), CPN_SOLD_OUT);
}

static size_t stored_buckets(void)
{
    struct free_count rows[SLOTS_MOST / BUCKET_SLOTS];
    struct free_counts stored = {.coupon = COUPON, .end = INT64_MAX, .most = SLOTS_MOST / BUCKET_SLOTS, .rows = rows};
    struct store *session = rig_session();

    assert_int_equal(session->ops->free_counts(session, &stored, 1), STORE_OK);
    session->ops->close(session);
    return stored.count;
}

TEST(what_is_made_is_stored_when_it_is_touched)
{
    create(CODES_NONE, PICK_SEQUENTIAL);
    make(SLOTS_MOST);
    rig_catch_up(0);
    assert_int_equal(stored_buckets(), 0);
    take_new(BUCKET_SLOTS + 1);
    rig_catch_up(0);
    assert_int_equal(stored_buckets(), 2);
}

/* In steps that end within a bucket, taken between them, the engine new in between. */
static void take_while_they_grow(void)
{
    static const int64_t steps[] = {10, 1, 53, 64, 100, 900, 5};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        make(steps[i]);
        take_new(steps[i] / 2);
        if (i % 2)
            rig_restart_written();
        if (i % 3 == 2)
            take_all();
    }
    take_all();
}

TEST(ranges_that_grow_go_out_once)
{
    create(CODES_NONE, PICK_SEQUENTIAL);
    take_while_they_grow();
}

TEST(at_random_likewise)
{
    create(CODES_GENERATED, PICK_RANDOM);
    take_while_they_grow();
}

static void retire(int64_t count)
{
    struct op due = {.kind = OP_RETIRING, .in.job = {.id = "r", .step = 1, .count = count}};

    rig_ask(0, &due);
}

/* Somebody named a code far behind; more buckets than are walked over at a time lie before it. All that is free there is found. */
TEST(gaps_before_the_last_touched_one_are_found)
{
    int64_t n;

    create(CODES_GENERATED, PICK_SEQUENTIAL);
    make(300 * BUCKET_SLOTS);
    take_new(2);
    assert_int_equal(take_by("CODE19136", &n), CPN_OK);
    assert_int_equal(n, 299 * BUCKET_SLOTS);
    note_new(n);
    rig_restart_written();
    retire(t.made - 3 - 200);
    take_new(200);
    assert_int_equal(take(&n), CPN_SOLD_OUT);
}

/* What is retired leaves from where takings come. */
TEST(what_is_retired_goes_out_to_nobody)
{
    int64_t n, taken = 0;

    create(CODES_NONE, PICK_SEQUENTIAL);
    make(1000);
    take_new(30);
    retire(100);
    for (; take(&n) == CPN_OK; taken++)
        note_new(n);
    assert_int_equal(taken, 1000 - 30 - 100);
}

/* A read that fails once slots were found does not lose them, wherever it was. */
TEST(what_was_found_before_a_read_failed_is_found_again)
{
    int64_t n;

    create(CODES_GENERATED, PICK_SEQUENTIAL);
    make(20 * BUCKET_SLOTS);
    fake_set_faults(rig.fake, 30);
    for (int i = 0; i < 10 * BUCKET_SLOTS; i++)
        if (take(&n) == CPN_OK)
            note_new(n);
    fake_set_faults(rig.fake, 0);
    take_all();
}

RUN_TESTS(.each_setup = rig_begin, .each_teardown = rig_end, .setup = fake_group_setup)
