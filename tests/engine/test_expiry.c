/*
 * tests/engine/test_expiry.c -- holds without slots go back, however many ended at the same time, and however little of them is read or
 * written at a time: the place up to which a lane was swept passes none of them.
 *
 * Batches  the database's answers wait while requests are handed in, so that these are decided together
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <time.h>

#include "base/latch.h"
#include "one_engine.h"

#define COUPON "c"
#define HOLD_S 60
#define SOON_MS 60000
#define TOGETHER 1000 /* requests of a batch; users that are listed at a time are 1,024, and what a batch may expire 2,048 */

static struct {
    struct watched watched;
    atomic_bool waits, waiting; /* appends do; one does */
    atomic_bool reads_one;      /* of several users, one is read, and the others are left */
} t;

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    nanosleep(&pause, NULL);
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    while (atomic_load(&t.waits)) {
        atomic_store(&t.waiting, true);
        nap();
    }
    atomic_store(&t.waiting, false);
    return t.watched.plain->append(s, appends, count);
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    bool one_only = atomic_load(&t.reads_one);
    enum store_status status = t.watched.plain->users(s, a, reads, one_only ? 1 : count);

    for (size_t i = 1; i < count && one_only; i++) {
        reads[i].user_state = NULL;
        reads[i].status = STORE_LEFT;
    }
    return status;
}

/* Before any thread opens a session. */
static void watch(void)
{
    fake_watch(&t.watched, one.source);
    t.watched.ops.append = watched_append;
    t.watched.ops.users = watched_users;
}

FIXTURE(begin)
{
    struct coupon c;
    struct op create = {.kind = OP_CREATE, .in.coupon.definition = &c};

    memset(&t, 0, sizeof t);
    one_engine_connect();
    watch();
    one.served = &t.watched.source;
    one.config.batch_max = TOGETHER;
    one.config.queue_max = one.config.requests_max = 4 * TOGETHER;
    one.config.redo_max = 20000;
    one.config.user_bytes = 1 << 20;
    one_engine_start();
    open_coupon(&c, COUPON);
    c.cap.policy = CAP_NONE;
    c.cap.total = COUPON_NULL;
    c.cap.per_user = 3;
    assert_int_equal(one_engine_call(&create, COUPON, PATIENCE_MS), CPN_OK);
    return 0;
}

static int end(void **state)
{
    struct mono now = mono_now();

    clock_set(clock_now_ms(), now, now);
    return one_engine_end(state);
}

/* ---- what is asked ---- */

static void done(struct op *op)
{
    latch_down(op->context);
}

static struct op holding(const char *user, const char *key, int64_t hold_s)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = user};

    op.in.user.take = (struct take){.key = key, .code_n = -1, .state = SLOT_RESERVED, .reserve_s = hold_s};
    return op;
}

/* Users u<from> to u<to - 1> hold once more each, in batches of TOGETHER. */
static void hold(int from, int to, int times)
{
    struct op *ops = arena_array(&one.arena, (size_t)(to - from) * (size_t)times, sizeof *ops), tick = {.kind = OP_TICK};
    int count = 0;
    struct latch all;

    latch_init(&all, (to - from) * times + 1);
    atomic_store(&t.waits, true);
    tick.coupon = COUPON;
    tick.arena = &one.arena;
    tick.done = done;
    tick.context = &all;
    tick.deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_submit(one.engine, &tick), CPN_OK);
    while (!atomic_load(&t.waiting))
        nap();
    for (int i = from; i < to; i++)
        for (int k = 0; k < times; k++) {
            struct op *op = &ops[count++];

            *op = holding(arena_printf(&one.arena, "u%d", i), arena_printf(&one.arena, "k%d-%d-%d", i, k, times), HOLD_S);
            op->coupon = COUPON;
            op->arena = &one.arena;
            op->done = done;
            op->context = &all;
            op->deadline = tick.deadline;
            assert_int_equal(engine_submit(one.engine, op), CPN_OK);
        }
    atomic_store(&t.waits, false);
    latch_wait(&all);
    for (int i = 0; i < count; i++)
        assert_int_equal(ops[i].outcome.result, CPN_OK);
}

static int64_t held(void)
{
    struct op op = {.kind = OP_COUPON};

    assert_int_equal(one_engine_call(&op, COUPON, PATIENCE_MS), CPN_OK);
    return op.head.reserved;
}

static void move_clock(int64_t s)
{
    struct mono now = mono_now();

    clock_set(clock_now_ms() + s * 1000, now, now);
}

static void assert_all_go_back(void)
{
    struct mono until;

    one_engine_restart_written(COUPON);
    move_clock(HOLD_S + 1);
    until = mono_add_ms(mono_now(), SOON_MS);
    while (held() && mono_before(mono_now(), until))
        nap();
    assert_int_equal(held(), 0);
}

/* ---- tests ---- */

TEST(more_users_than_are_listed_at_a_time)
{
    hold(0, TOGETHER, 1);
    hold(TOGETHER, 2 * TOGETHER, 1);
    hold(2 * TOGETHER, 3 * TOGETHER, 1);
    assert_int_equal(held(), 3 * TOGETHER);
    assert_all_go_back();
}

/* The first 800 users have three holds each: who comes after them in the first batch is not expired with it. */
TEST(more_holds_than_a_batch_may_end)
{
    hold(0, TOGETHER, 1);
    hold(0, 800, 2);
    assert_int_equal(held(), TOGETHER + 1600);
    assert_all_go_back();
}

TEST(users_that_are_read_one_at_a_time)
{
    hold(0, 5, 1);
    atomic_store(&t.reads_one, true);
    assert_all_go_back();
}

/* The place was moved by a hold that was cancelled; then the clock is set back. */
TEST(a_hold_that_ends_before_the_place_that_was_swept)
{
    struct op first = holding("u0", "a", HOLD_S), second = holding("u1", "b", 10), cancel = {.kind = OP_STEP};
    struct mono until;

    assert_int_equal(one_engine_call(&first, COUPON, PATIENCE_MS), CPN_OK);
    cancel.in.redemption = (struct step){.n = first.outcome.redemption.n, .g = first.outcome.redemption.g, .move = MOVE_CANCEL};
    assert_int_equal(one_engine_call(&cancel, COUPON, PATIENCE_MS), CPN_OK);
    move_clock(HOLD_S + 1);
    assert_int_equal(held(), 0);
    assert_int_equal(held(), 0); /* swept by now, without a batch */
    move_clock(-HOLD_S);
    assert_int_equal(one_engine_call(&second, COUPON, PATIENCE_MS), CPN_OK);
    move_clock(11);
    until = mono_add_ms(mono_now(), SOON_MS);
    while (held() && mono_before(mono_now(), until))
        nap();
    assert_int_equal(held(), 0);
}

RUN_TESTS(.each_setup = begin, .each_teardown = end, .setup = fake_group_setup)
