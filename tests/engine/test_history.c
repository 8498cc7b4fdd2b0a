/*
 * tests/engine/test_history.c -- redemptions that stand in nobody's slot any more: read with a bound, and by no thread that commits.
 *
 * Watched  a session counts what it reads of the ledger, by whether its thread ever appended or confirmed
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <time.h>

#include "base/latch.h"
#include "engine/engine.h"
#include "fake_store.h"

#define COUPON "c1"
#define PATIENCE_MS 300000
#define HELD_UP_MS 3000
#define READS_MOST (1 + 1 + 32 + 2) /* its end, its spending, 32 extensions, the hold, the issued one beneath it */

static struct {
    struct fake *fake;
    struct store_source *source;
    struct engine *engine;
    struct arena arena;
    struct watched watched;
    atomic_bool counting, blocked;
    atomic_int by_committer, elsewhere;
} t;

static _Thread_local bool commits;

/* ---- a session that is watched ---- */

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    commits = true;
    return t.watched.plain->append(s, appends, count);
}

static enum store_status watched_confirm(struct store *s, struct confirm *confirms, size_t count)
{
    commits = true;
    return t.watched.plain->confirm(s, confirms, count);
}

static void count_read(void)
{
    const struct timespec step = {0, 1000000};
    struct mono until = mono_add_ms(mono_now(), HELD_UP_MS);

    if (!t.counting)
        return;
    atomic_fetch_add(commits ? &t.by_committer : &t.elsewhere, 1);
    while (t.blocked && mono_before(mono_now(), until))
        nanosleep(&step, NULL);
    t.blocked = false;
}

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    count_read();
    return t.watched.plain->ledger(s, coupon, lane, after, most, batches, count);
}

static enum store_status watched_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                                       struct batch **batch)
{
    count_read();
    return t.watched.plain->ended(s, coupon, lane, n, g, batch);
}

FIXTURE(start)
{
    const struct engine_config config = {
        .batch_max = 16, .queue_max = 64, .requests_max = 64, .lanes_max = 8, .redo_max = 200,
        .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    t.source = fake_connect(t.fake);
    arena_init(&t.arena, 0);
    fake_watch(&t.watched, t.source);
    t.watched.ops.append = watched_append;
    t.watched.ops.confirm = watched_confirm;
    t.watched.ops.ledger = watched_ledger;
    t.watched.ops.ended = watched_ended;
    t.engine = engine_start(&config, &t.watched.source, NULL);
    return 0;
}

FIXTURE(stop)
{
    if (t.engine)
        engine_stop(t.engine);
    fake_disconnect(t.source);
    fake_free(t.fake);
    arena_free(&t.arena);
    return 0;
}

/* ---- what is asked ---- */

static void prepare(struct op *op)
{
    op->coupon = COUPON;
    op->arena = &t.arena;
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
}

static enum cpn_result call(struct op *op)
{
    prepare(op);
    return engine_call(t.engine, op);
}

static void create(enum cap_policy policy)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};
    struct op slots = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = 10}};

    open_coupon(&coupon, COUPON);
    coupon.cap.policy = policy;
    coupon.cap.total = 1000;
    assert_int_equal(call(&op), CPN_OK);
    if (policy == CAP_EXACT)
        assert_int_equal(call(&slots), CPN_OK);
}

static struct redemption take(const char *user, enum slot_state state)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = user};

    op.in.user.take = (struct take){.key = user, .code_n = -1, .state = state, .reserve_s = COUPON_NULL};
    assert_int_equal(call(&op), CPN_OK);
    return op.outcome.redemption;
}

static struct op step(const struct redemption *r, enum slot_move move, const char *key)
{
    struct op op = {.kind = OP_STEP, .lane = r->lane};

    op.in.redemption = (struct step){.n = r->n, .g = r->g, .move = move, .key = key, .reserve_s = COUPON_NULL};
    call(&op);
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

static struct op read_again(const struct redemption *r)
{
    struct op op = {.kind = OP_REDEMPTION, .in.redemption = {.n = r->n, .g = r->g}, .lane = r->lane};

    t.by_committer = t.elsewhere = 0;
    t.counting = true;
    call(&op);
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
    assert_int_equal(step(&r, MOVE_REVERSE, NULL).outcome.result, CPN_OK);
    op = read_again(&r);
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_int_equal(op.outcome.redemption.state, SLOT_REVERSED);
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

static void op_done(struct op *op)
{
    latch_down(op->context);
}

TEST(takings_do_not_wait_for_what_has_ended)
{
    struct redemption r, other;
    struct op op = {.kind = OP_REDEMPTION};
    struct arena arena;
    struct latch done;

    create(CAP_EXACT);
    r = long_hold("ann");
    assert_int_equal(step(&r, MOVE_CANCEL, NULL).outcome.result, CPN_OK);
    t.counting = t.blocked = true; /* the database is slow to tell of it */
    arena_init(&arena, 0);
    latch_init(&done, 1);
    op.in.redemption = (struct step){.n = r.n, .g = r.g};
    prepare(&op);
    op.arena = &arena;
    op.done = op_done;
    op.context = &done;
    assert_int_equal(engine_submit(t.engine, &op), CPN_OK);
    while (t.by_committer + t.elsewhere == 0)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    other = take("bob", SLOT_REDEEMED);
    assert_int_equal(other.state, SLOT_REDEEMED);
    assert_int_equal(t.by_committer, 0);
    t.blocked = false;
    latch_wait(&done);
    assert_int_equal(op.outcome.result, CPN_OK);
    assert_int_equal(op.outcome.redemption.state, SLOT_CANCELLED);
    arena_free(&arena);
}

TEST(who_waits_for_the_ledger_is_not_waited_for_at_the_end)
{
    struct redemption r;
    struct op ops[8];
    struct arena arenas[8];
    struct latch done;

    create(CAP_EXACT);
    r = long_hold("ann");
    assert_int_equal(step(&r, MOVE_CANCEL, NULL).outcome.result, CPN_OK);
    latch_init(&done, 8);
    for (int i = 0; i < 8; i++) {
        arena_init(&arenas[i], 0);
        ops[i] = (struct op){.kind = OP_REDEMPTION, .in.redemption = {.n = r.n, .g = r.g}};
        prepare(&ops[i]);
        ops[i].arena = &arenas[i];
        ops[i].done = op_done;
        ops[i].context = &done;
        assert_int_equal(engine_submit(t.engine, &ops[i]), CPN_OK);
    }
    engine_stop(t.engine); /* each is answered, once */
    latch_wait(&done);
    for (int i = 0; i < 8; i++) {
        assert_true(ops[i].outcome.result == CPN_OK || ops[i].outcome.result == CPN_BUSY);
        arena_free(&arenas[i]);
    }
    t.engine = NULL;
}

RUN_TESTS(.each_setup = start, .each_teardown = stop, .setup = fake_group_setup)
