/*
 * tests/engine/test_damage.c -- views that a search finds and nobody can decode: free slots, holds that lapsed, codes. Others of
 * the coupon are found past them, and what only they can tell is never said.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include <sodium.h>

#include "base/log.h"
#include "engine/engine.h"
#include "fake_store.h"

#define COUPON "c"
#define PATIENCE_MS 300000
#define IN_VAIN_MS 1500 /* for a taking that gets no answer but "busy" */
#define HOLD_S 60

static struct {
    struct fake *fake;
    struct store_source *source;
    struct engine *engine;
    struct arena arena;
    int keys;
} t;

static void start_engine(void)
{
    const struct engine_config config = {
        .committers = 1, .batch_max = 64, .queue_max = 512, .requests_max = 512, .lanes_max = 512, .window_max = 2000,
        .flush_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };

    t.engine = engine_start(&config, t.source, NULL);
}

static int one_engine(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    arena_init(&t.arena, 0);
    t.source = fake_connect(t.fake);
    start_engine();
    return 0;
}

static int stop_engine(void **state)
{
    (void)state;
    engine_stop(t.engine);
    fake_disconnect(t.source);
    arena_free(&t.arena);
    fake_free(t.fake);
    return 0;
}

/* All is written, and nothing in memory: what is there has to be looked for. */
static void start_again(void)
{
    assert_int_equal(engine_catch_up(t.engine, COUPON, 0, PATIENCE_MS), STORE_OK);
    engine_stop(t.engine);
    start_engine();
}

static enum cpn_result call(struct op *op, int64_t ms)
{
    op->coupon = COUPON;
    op->arena = &t.arena;
    op->deadline = mono_add_ms(mono_now(), ms);
    return engine_call(t.engine, op);
}

static void define(struct coupon *c, int64_t slots)
{
    coupon_init(c);
    c->id = COUPON;
    c->title = "t";
    c->state = COUPON_ACTIVE;
    c->cap.total = slots;
    c->cap.per_user = COUPON_NULL;
}

static void create(struct coupon *c)
{
    struct op op = {.kind = OP_CREATE, .definition = c};
    struct op turn = {.kind = OP_TURN, .job = "j", .fence = 1};
    struct op more = {.kind = OP_GENERATE, .job = "j", .step = 1, .count = c->cap.total};

    assert_int_equal(call(&op, PATIENCE_MS), CPN_OK);
    if (c->codes.source != CODES_NONE) {
        assert_int_equal(call(&turn, PATIENCE_MS), CPN_OK);
        more.turn = turn.turn;
    }
    if (c->cap.policy == CAP_EXACT)
        assert_int_equal(call(&more, PATIENCE_MS), CPN_OK);
}

static enum cpn_result take_as(const char *user, enum slot_state as, int64_t ms, int64_t *n)
{
    struct op op = {.kind = OP_TAKE, .user = user};
    enum cpn_result r;

    op.take = (struct take){.key = arena_printf(&t.arena, "k%d", t.keys++), .code_n = -1, .state = as,
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

/* As many damaged ones in front as are read at first: the stash is filled from behind them. */
static void what_is_free_behind_damaged_buckets_is_taken(void **state)
{
    struct coupon c;
    int64_t n;

    (void)state;
    define(&c, 5 * BUCKET_SLOTS);
    create(&c);
    start_again();
    for (int64_t b = 0; b < 4; b++)
        fake_damage(t.fake, VIEW_BUCKET, COUPON, NULL, b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= 4 * BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
    assert_int_equal(taken(), BUCKET_SLOTS);
}

static void at_random_too(void **state)
{
    struct coupon c;
    int64_t n;

    (void)state;
    define(&c, 5 * BUCKET_SLOTS);
    c.codes.source = CODES_IMPORTED;
    c.codes.pick = PICK_RANDOM;
    create(&c);
    start_again();
    for (int64_t b = 1; b < 5; b++)
        fake_damage(t.fake, VIEW_BUCKET, COUPON, NULL, b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n < BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

static void slots_whose_codes_are_damaged_are_left_and_others_are_taken(void **state)
{
    struct coupon c;
    int64_t n;

    (void)state;
    define(&c, 2 * BUCKET_SLOTS);
    c.codes.source = CODES_IMPORTED;
    create(&c);
    start_again();
    fake_damage_codes(t.fake, COUPON, 0);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        assert_int_equal(take_as("ann", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
        assert_true(n >= BUCKET_SLOTS);
    }
    assert_int_equal(take_as("ann", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

/* ---- holds that lapsed ---- */

/* ann's hold is in a bucket that is damaged, bob's in another: both lapse. */
static void a_lapsed_hold_beside_a_damaged_bucket_goes_back(void **state)
{
    struct coupon c;
    int64_t n;

    (void)state;
    define(&c, BUCKET_SLOTS + 1);
    create(&c);
    take("ann", SLOT_RESERVED);
    for (int i = 1; i < BUCKET_SLOTS; i++)
        take("eve", SLOT_REDEEMED);
    take("bob", SLOT_RESERVED);
    start_again();
    fake_damage(t.fake, VIEW_BUCKET, COUPON, NULL, 0);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT); /* no time has passed yet */
    let_holds_lapse();
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, &n), CPN_OK);
    assert_int_equal(n, BUCKET_SLOTS);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY); /* ann's may be free */
}

static void without_slots_beside_a_damaged_user(void **state)
{
    struct coupon c;

    (void)state;
    define(&c, 2);
    c.cap.policy = CAP_APPROXIMATE;
    create(&c);
    take("ann", SLOT_RESERVED);
    take("bob", SLOT_RESERVED);
    start_again();
    fake_damage(t.fake, VIEW_USE, COUPON, "ann", 0);
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_SOLD_OUT);
    let_holds_lapse();
    assert_int_equal(take_as("cid", SLOT_REDEEMED, PATIENCE_MS, NULL), CPN_OK);
    assert_int_equal(take_as("dan", SLOT_REDEEMED, IN_VAIN_MS, NULL), CPN_BUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_free_behind_damaged_buckets_is_taken, one_engine, stop_engine),
        cmocka_unit_test_setup_teardown(at_random_too, one_engine, stop_engine),
        cmocka_unit_test_setup_teardown(slots_whose_codes_are_damaged_are_left_and_others_are_taken, one_engine, stop_engine),
        cmocka_unit_test_setup_teardown(a_lapsed_hold_beside_a_damaged_bucket_goes_back, one_engine, stop_engine),
        cmocka_unit_test_setup_teardown(without_slots_beside_a_damaged_user, one_engine, stop_engine),
    };

    if (sodium_init() < 0 || log_init(NULL, LOG_ERROR) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
