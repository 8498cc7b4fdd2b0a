/*
 * tests/engine/test_expiry.c -- holds without slots go back, however many ended at the same time, and however little of them is read or
 * written at a time: the place up to which a lane was swept passes none of them.
 *
 * Batches  the database's answers wait while requests are handed in, so that these are decided together
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/clock.h"
#include "rig.h"

#define HOLD_S 600
#define LATER_S 2000 /* one ends after the other: far more than the test takes */
#define TOGETHER 1000 /* requests of a batch; users that are listed at a time are 1,024, and what a batch may expire 2,048 */

static struct {
    atomic_bool waits, waiting; /* appends do; one does */
    atomic_bool reads_one;      /* of several users, one is read, and the others are left */
} t;

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    while (atomic_load(&t.waits)) {
        atomic_store(&t.waiting, true);
        rig_nap();
    }
    atomic_store(&t.waiting, false);
    return rig.watched[0].plain->append(s, appends, count);
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    bool one_only = atomic_load(&t.reads_one);
    enum store_status status = rig.watched[0].plain->users(s, a, reads, one_only ? 1 : count);

    for (size_t i = 1; i < count && one_only; i++) {
        reads[i].user_state = NULL;
        reads[i].status = STORE_NOT_READ;
    }
    return status;
}

FIXTURE(begin)
{
    struct coupon c;

    memset(&t, 0, sizeof t);
    rig_connect(1, 1, 0);
    rig.watched[0].ops.append = watched_append;
    rig.watched[0].ops.users = watched_users;
    rig.config.batch_max = TOGETHER;
    rig.config.queue_max = rig.config.requests_max = 4 * TOGETHER;
    rig.config.redo_max = 20000;
    rig.config.user_bytes = 1 << 20;
    rig_start(NULL);
    open_coupon(&c, COUPON);
    c.cap.policy = CAP_NONE;
    c.cap.total = COUPON_NULL;
    c.cap.per_user = 3;
    rig_create(&c);
    return 0;
}

static int end(void **state)
{
    rig_move_clock(0);
    return rig_end(state);
}

/* ---- what is asked ---- */

static struct op holding(const char *user, const char *key, int64_t hold_s)
{
    struct op op = rig_taking(user, key, SLOT_RESERVED);

    op.in.user.take.reserve_s = hold_s;
    return op;
}

/* Users u<from> to u<to - 1> hold once more each, in batches of TOGETHER. */
static void hold(int from, int to, int times)
{
    struct op *ops = arena_array(&rig.arenas[0], (size_t)(to - from) * (size_t)times, sizeof *ops), tick = {.kind = OP_TICK};
    int count = 0;
    struct latch all;

    latch_init(&all, (to - from) * times + 1);
    atomic_store(&t.waits, true);
    rig_submit(0, &tick, NULL, &all);
    while (!atomic_load(&t.waiting))
        rig_nap();
    for (int i = from; i < to; i++)
        for (int k = 0; k < times; k++) {
            struct arena *a = &rig.arenas[0];

            ops[count] = holding(arena_printf(a, "u%d", i), arena_printf(a, "k%d-%d-%d", i, k, times), HOLD_S);
            rig_submit(0, &ops[count++], NULL, &all);
        }
    atomic_store(&t.waits, false);
    latch_wait(&all);
    for (int i = 0; i < count; i++)
        assert_int_equal(ops[i].outcome.result, CPN_OK);
}

static int64_t held(void)
{
    return rig_head(0).reserved;
}

/* When so much more time has passed, soon so many are held. */
static void assert_held_after(int64_t s, int64_t count)
{
    struct mono until = mono_add_ms(mono_now(), PATIENCE_MS);

    rig_move_clock(s);
    while (held() != count && mono_before(mono_now(), until))
        rig_nap();
    assert_int_equal(held(), count);
}

static void assert_all_go_back(void)
{
    rig_restart_written();
    assert_held_after(HOLD_S + 1, 0);
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
    struct op first = holding("u0", "a", HOLD_S), second = holding("u1", "b", 10), cancel;

    rig_ask(0, &first);
    cancel = rig_step(&first.outcome.redemption, MOVE_CANCEL, NULL);
    rig_ask(0, &cancel);
    rig_move_clock(HOLD_S + 1);
    assert_int_equal(held(), 0);
    assert_int_equal(held(), 0); /* swept by now, without a batch */
    rig_move_clock(-HOLD_S);
    rig_ask(0, &second);
    assert_held_after(11, 0);
}

TEST(holds_that_end_one_after_another)
{
    for (int i = 0; i < 3; i++) {
        const char *user = arena_printf(&rig.arenas[0], "u%d", i);
        struct op op = holding(user, user, HOLD_S + LATER_S * i);

        assert_int_equal(rig_call(0, &op), CPN_OK);
    }
    rig_restart_written();
    for (int i = 0; i < 3; i++)
        assert_held_after(i ? LATER_S : HOLD_S + 1, 2 - i);
}

RUN_TESTS(.each_setup = begin, .each_teardown = end, .setup = fake_group_setup)
