/*
 * tests/engine/test_history.c -- redemptions that stand in nobody's slot any more: read with a bound, and by no thread that commits.
 *
 * Watched  a session counts what it reads of the ledger, by whether its thread ever appended or confirmed
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "rig.h"

#define HELD_UP_MS 3000
#define READS_MOST (1 + 32 + 1 + 32 + 2) /* its end, 32 adjustments, its spending, 32 extensions, the hold, the issued one beneath it */

static struct {
    atomic_bool counting, blocked;
    atomic_int by_committer, elsewhere;
} t;

static _Thread_local bool commits;

/* ---- a session that is watched ---- */

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    commits = true;
    return rig.watched[0].plain->append(s, appends, count);
}

static enum store_status watched_confirm(struct store *s, struct confirm *confirms, size_t count)
{
    commits = true;
    return rig.watched[0].plain->confirm(s, confirms, count);
}

static void count_read(void)
{
    struct mono until = mono_add_ms(mono_now(), HELD_UP_MS);

    if (!t.counting)
        return;
    atomic_fetch_add(commits ? &t.by_committer : &t.elsewhere, 1);
    while (t.blocked && mono_before(mono_now(), until))
        rig_nap();
    t.blocked = false;
}

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    count_read();
    return rig.watched[0].plain->ledger(s, coupon, lane, after, most, batches, count);
}

static enum store_status watched_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                                       struct batch **batch)
{
    count_read();
    return rig.watched[0].plain->ended(s, coupon, lane, n, g, batch);
}

FIXTURE(start)
{
    memset(&t, 0, sizeof t);
    rig_connect(1, 1, 0);
    rig.config.redo_max = 200;
    rig.watched[0].ops.append = watched_append;
    rig.watched[0].ops.confirm = watched_confirm;
    rig.watched[0].ops.ledger = watched_ledger;
    rig.watched[0].ops.ended = watched_ended;
    rig_start(NULL);
    return 0;
}

/* ---- what is asked ---- */

static void create(enum cap_policy policy)
{
    struct coupon coupon;

    open_coupon(&coupon, COUPON);
    coupon.cap.policy = policy;
    coupon.cap.total = 1000;
    rig_create(&coupon);
    if (policy == CAP_EXACT)
        rig_generate(&coupon, 1, 10);
}

static struct redemption take(const char *user, enum slot_state state)
{
    struct op op = rig_taking(user, user, state);

    rig_ask(0, &op);
    return op.outcome.redemption;
}

static struct op step(const struct redemption *r, enum slot_move move, const char *key)
{
    struct op op = rig_step(r, move, key);

    rig_call(0, &op);
    return op;
}

/* A hold with as many extensions as there may be, each in a batch of its own. */
static struct redemption long_hold(const char *user)
{
    struct redemption r = take(user, SLOT_ISSUED);
    char key[16];

    r = step(&r, MOVE_RESERVE, "hold").outcome.redemption;
    for (int i = 0; i < USER_STATE_EXTENSIONS_MAX; i++) {
        snprintf(key, sizeof key, "x%d", i);
        assert_int_equal(step(&r, MOVE_RESERVE, key).outcome.result, CPN_OK);
    }
    return r;
}

/* Adjust its discount, of 0, as often as is possible. */
static void adjust_often(const struct redemption *r)
{
    char key[16];

    for (int i = 0; i < USER_STATE_ADJUSTMENTS_MAX; i++) {
        struct op op;

        snprintf(key, sizeof key, "a%d", i);
        op = rig_step(r, 0, key);
        op.in.redemption.adjusts = true;
        rig_call(0, &op);
        assert_int_equal(op.outcome.result, CPN_OK);
    }
}

static struct op read_again(const struct redemption *r)
{
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = r->n, .g = r->g}, .lane = r->lane};

    t.by_committer = t.elsewhere = 0;
    t.counting = true;
    rig_call(0, &op);
    t.counting = false;
    return op;
}

/* ---- the tests ---- */

TEST(what_has_ended_is_read_with_a_bound_and_by_nobody_who_commits)
{
    struct redemption r;
    struct op op;

    create(CAP_EXACT);
    r = long_hold("ann");
    assert_int_equal(step(&r, MOVE_REDEEM, "spend").outcome.result, CPN_OK);
    adjust_often(&r);
    assert_int_equal(step(&r, MOVE_REVERSE, NULL).outcome.result, CPN_OK);
    op = read_again(&r);
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_int_equal(op.outcome.redemption.state, SLOT_REVERSED);
    assert_int_equal(op.outcome.redemption.adjusted_count, USER_STATE_ADJUSTMENTS_MAX);
    assert_int_equal(op.outcome.redemption.from, 1);
    assert_string_equal(op.out.user.state->user, "ann");
    assert_int_equal(t.by_committer, 0);
    assert_in_range(t.elsewhere, 1, READS_MOST);
    t.counting = true;
    op = step(&r, MOVE_REDEEM, "late");
    assert_int_equal(op.outcome.result, CPN_INVALID_TRANSITION);
    op = step(&r, MOVE_RESERVE, "x7"); /* a key is known for as long as its redemption is */
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_true(op.outcome.replayed);
    assert_int_equal(t.by_committer, 0);
}

TEST(a_redemption_without_a_slot_is_found_by_nobody_who_commits)
{
    struct redemption r;
    struct op op;

    create(CAP_APPROXIMATE);
    r = take("ann", SLOT_REDEEMED);
    op = read_again(&r);
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_int_equal(op.outcome.redemption.state, SLOT_REDEEMED);
    assert_string_equal(op.out.user.state->user, "ann");
    assert_int_equal(t.by_committer, 0);
    r.n -= 1000; /* nobody's yet */
    assert_int_equal(read_again(&r).outcome.result, CPN_REDEMPTION_NOT_FOUND);
}

static struct redemption cancelled_hold(void)
{
    struct redemption r;

    create(CAP_EXACT);
    r = long_hold("ann");
    assert_int_equal(step(&r, MOVE_CANCEL, NULL).outcome.result, CPN_OK);
    return r;
}

TEST(takings_do_not_wait_for_what_has_ended)
{
    struct redemption r = cancelled_hold();
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = r.n, .g = r.g}};
    struct arena arena;
    struct latch done;

    t.counting = t.blocked = true; /* the database is slow to tell of it */
    arena_init(&arena, 0);
    latch_init(&done, 1);
    op.arena = &arena;
    rig_submit(0, &op, NULL, &done);
    while (t.by_committer + t.elsewhere == 0)
        rig_nap();
    assert_int_equal(take("bob", SLOT_REDEEMED).state, SLOT_REDEEMED);
    assert_int_equal(t.by_committer, 0);
    t.blocked = false;
    latch_wait(&done);
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_int_equal(op.outcome.redemption.state, SLOT_CANCELLED);
    arena_free(&arena);
}

TEST(who_waits_for_the_ledger_is_not_waited_for_at_the_end)
{
    struct redemption r = cancelled_hold();
    struct op ops[8];
    struct arena arenas[8];
    struct latch done;

    latch_init(&done, 8);
    for (int i = 0; i < 8; i++) {
        arena_init(&arenas[i], 0);
        ops[i] = (struct op){.kind = OP_REDEMPTION, .arena = &arenas[i], .in.redemption = {.n = r.n, .g = r.g}};
        rig_submit(0, &ops[i], NULL, &done);
    }
    engine_stop(rig.engines[0]); /* each is answered, once */
    latch_wait(&done);
    for (int i = 0; i < 8; i++) {
        assert_true(ops[i].outcome.result == CPN_OK || ops[i].outcome.result == CPN_BUSY);
        arena_free(&arenas[i]);
    }
    rig.engines[0] = NULL;
}

RUN_TESTS(.each_setup = start, .each_teardown = rig_end, .setup = fake_group_setup)
