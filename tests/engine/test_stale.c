/*
 * tests/engine/test_stale.c -- a lane that one engine has in memory while the other goes on with it: what it reads to follow, what it
 * owes, and who sees to what ends by itself.
 *
 * Doors    those of the second engine count what they are given of the ledger, and can be kept from writing checkpoints
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <time.h>

#include "base/latch.h"
#include "engine/engine.h"
#include "fake_store.h"

#define COUPON "c1"
#define PATIENCE_MS 300000
#define HOLD_S 3600
#define MANY 3000   /* batches */
#define FEW_READ 64 /* batches: a look's, and what was appended since the checkpoint */

static struct {
    struct fake *fake;
    struct store_source *sources[2];
    struct engine *engines[2];
    struct arena arenas[2];
    struct store *session;
    /* the second engine's sessions */
    struct watched watched;
    atomic_size_t looks, read; /* of the ledger; batches */
    atomic_size_t appends;
    atomic_bool parts_fail;
} t;

/* ---- sessions that are watched ---- */

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    enum store_status status = t.watched.plain->ledger(s, coupon, lane, after, most, batches, count);

    atomic_fetch_add(&t.read, *count);
    atomic_fetch_add(&t.looks, 1);
    return status;
}

static enum store_status watched_ledgers(struct store *s, struct ledger_read *reads, size_t count)
{
    enum store_status status = t.watched.plain->ledgers(s, reads, count);

    for (size_t i = 0; i < count; i++)
        atomic_fetch_add(&t.read, reads[i].count);
    atomic_fetch_add(&t.looks, 1);
    return status;
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    atomic_fetch_add(&t.appends, 1);
    return t.watched.plain->append(s, appends, count);
}

static enum store_status watched_write_parts(struct store *s, struct part_write *parts, size_t count, struct store_time *when)
{
    return atomic_load(&t.parts_fail) ? STORE_FAILED : t.watched.plain->write_parts(s, parts, count, when);
}

/* As of now: a read that sees what was before finds its checkpoint missing, and it is written again. */
static enum store_status fresh_checkpoints(struct store *s, struct checkpoint_read *reads, size_t count)
{
    t.watched.plain->saw(s, (struct store_time){UINT32_MAX, 0});
    return t.watched.plain->checkpoints(s, reads, count);
}

static void watch(void)
{
    fake_watch(&t.watched, t.sources[1]);
    t.watched.ops.ledger = watched_ledger;
    t.watched.ops.ledgers = watched_ledgers;
    t.watched.ops.append = watched_append;
    t.watched.ops.checkpoints = fresh_checkpoints;
    t.watched.ops.write_parts = watched_write_parts;
}

/* ---- two engines, and what is asked of them ---- */

FIXTURE(two_engines)
{
    const struct engine_config config = {
        .batch_max = 16, .queue_max = 16, .requests_max = 16, .lanes_max = 8, .redo_max = 200,
        .user_bytes = 1 << 20, .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };

    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    for (int i = 0; i < 2; i++) {
        arena_init(&t.arenas[i], 0);
        t.sources[i] = fake_connect(t.fake);
    }
    t.session = t.sources[0]->open(t.sources[0]);
    watch();
    for (int i = 0; i < 2; i++)
        t.engines[i] = engine_start(&config, i == 1 ? &t.watched.source : t.sources[i], NULL);
    return 0;
}

FIXTURE(stop_engines)
{
    for (int i = 0; i < 2; i++) {
        engine_stop(t.engines[i]);
        arena_free(&t.arenas[i]);
    }
    t.session->ops->close(t.session);
    for (int i = 0; i < 2; i++)
        fake_disconnect(t.sources[i]);
    fake_free(t.fake);
    return 0;
}

static enum cpn_result call(int engine, struct op *op)
{
    op->coupon = COUPON;
    op->arena = &t.arenas[engine];
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    return engine_call(t.engines[engine], op);
}

static void create(enum cap_policy policy)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};

    open_coupon(&coupon, COUPON);
    coupon.cap.policy = policy;
    coupon.cap.total = policy == CAP_EXACT ? 1000 : COUPON_NULL;
    coupon.cap.per_user = 3;
    assert_int_equal(call(0, &op), CPN_OK);
}

static void generate(int64_t count)
{
    struct op op = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = count}};

    assert_int_equal(call(0, &op), CPN_OK);
}

static struct redemption take_as(int engine, const char *user, enum slot_state state, int64_t reserve_s)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = user};

    op.in.user.take = (struct take){.key = user, .code_n = -1, .state = state, .reserve_s = reserve_s};
    assert_int_equal(call(engine, &op), CPN_OK);
    return op.outcome.redemption;
}

static void take(int engine, const char *user)
{
    take_as(engine, user, SLOT_REDEEMED, COUPON_NULL);
}

/* One batch each. */
static void tick(int engine, int times)
{
    for (int i = 0; i < times; i++) {
        struct op op = {.kind = OP_TICK};

        assert_int_equal(call(engine, &op), CPN_OK);
    }
}

static struct head head_of(int engine)
{
    struct op op = {.kind = OP_COUPON};

    assert_int_equal(call(engine, &op), CPN_OK);
    return op.head;
}

static void pause_ms(long ms)
{
    struct timespec pause = {0, ms * 1000000};

    nanosleep(&pause, NULL);
}

static int64_t total_of(int engine, const char *user)
{
    struct op op = {.kind = OP_USER_STATE, .in.user.name = user};

    assert_int_equal(call(engine, &op), CPN_OK);
    return op.out.user.state->total;
}

/* Its checkpoint covers its tail. */
static void catch_up(int engine)
{
    assert_int_equal(engine_catch_up(t.engines[engine], COUPON, 0, PATIENCE_MS), STORE_OK);
}

static size_t read_since(size_t before)
{
    return atomic_load(&t.read) - before;
}

/* ---- following ---- */

TEST(who_was_away_for_long_reads_the_redo_log_and_not_the_time_between)
{
    size_t before;

    create(CAP_EXACT);
    generate(100);
    take(1, "ann");
    catch_up(1); /* it owes nothing, so it reads nothing by itself */
    tick(0, MANY);
    take(0, "bob");
    catch_up(0);
    before = atomic_load(&t.read);
    assert_int_equal(head_of(1).redeemed, 2);
    assert_in_range(read_since(before), 0, FEW_READ);
    assert_int_equal(total_of(1, "ann"), 1);
    assert_int_equal(total_of(1, "bob"), 1);
    take(1, "cyd");
    take(0, "dan");
    assert_int_equal(head_of(1).redeemed, 4);
    assert_in_range(read_since(before), 0, FEW_READ);
}

/* ---- what it owes ---- */

static void answered(struct op *op)
{
    latch_down(op->context);
}

TEST(a_checkpoint_that_others_wrote_need_not_be_written)
{
    struct latch done;
    struct arena arena;
    struct op wait = {.kind = OP_CATCH_UP, .coupon = COUPON, .arena = &arena, .done = answered, .context = &done};
    struct checkpoint_read read = {.coupon = COUPON};

    arena_init(&arena, 0);
    create(CAP_EXACT);
    generate(100);
    atomic_store(&t.parts_fail, true);
    take(1, "ann");
    latch_init(&done, 1);
    wait.deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_submit(t.engines[1], &wait), CPN_OK);
    tick(0, MANY);
    catch_up(0);
    assert_int_equal(total_of(1, "ann"), 1);
    latch_wait(&done);
    assert_int_equal(wait.outcome.result, CPN_OK);
    arena_free(&arena);
    take(1, "bob");
    atomic_store(&t.parts_fail, false);
    catch_up(1);
    t.session->ops->saw(t.session, (struct store_time){UINT32_MAX, 0});
    assert_int_equal(t.session->ops->checkpoints(t.session, &read, 1), STORE_OK);
    assert_int_equal(read.checkpoint.seq, head_of(0).seq);
    assert_int_equal(head_of(0).redeemed, 2);
}

/* ---- what ends by itself ---- */

static size_t count_expired(void)
{
    static struct batch *batches[MANY];
    size_t count = 0, expired = 0;

    t.session->ops->saw(t.session, (struct store_time){UINT32_MAX, 0});
    assert_int_equal(t.session->ops->ledger(t.session, COUPON, 0, 0, MANY, batches, &count), STORE_OK);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < batches[i]->count; k++)
            expired += batches[i]->entries[k].kind == ENTRY_EXPIRE;
        batch_free(batches[i]);
    }
    return expired;
}

TEST(a_hold_is_left_to_who_went_on_with_the_lane)
{
    struct mono now;
    size_t looks, read, appends;

    create(CAP_EXACT);
    generate(100);
    take_as(1, "ann", SLOT_RESERVED, HOLD_S);
    catch_up(1); /* else its checkpoint may find the other's, and the lane is left at once */
    tick(0, 200);
    looks = atomic_load(&t.looks);
    read = atomic_load(&t.read);
    appends = atomic_load(&t.appends);
    now = mono_now();
    clock_set(clock_now_ms() + (HOLD_S + 1) * 1000, now, now);
    while (count_expired() == 0 || atomic_load(&t.looks) == looks)
        pause_ms(10);
    assert_in_range(read_since(read), 0, 1);
    assert_int_equal(atomic_load(&t.appends), appends);
    assert_int_equal(count_expired(), 1);
    assert_int_equal(head_of(1).reserved, 0);
}

TEST(a_hold_goes_back_although_who_took_it_is_alone_and_not_asked)
{
    create(CAP_EXACT);
    generate(100);
    catch_up(0);
    take_as(1, "ann", SLOT_RESERVED, 1);
    while (count_expired() == 0)
        pause_ms(10);
    assert_int_equal(head_of(0).reserved, 0);
}

static enum cpn_result take_by(int engine, const char *key)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = "ann"};

    op.in.user.take = (struct take){.key = key, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    return call(engine, &op);
}

/* Both have ann in their caches, and each is behind the other in turn. */
TEST(what_another_did_with_a_user_in_the_cache_counts)
{
    struct op ann = {.kind = OP_USER_STATE, .in.user.name = "ann"};

    create(CAP_EXACT);
    generate(100);
    assert_int_equal(take_by(0, "k1"), CPN_OK);
    assert_int_equal(take_by(1, "k2"), CPN_OK);
    assert_int_equal(call(0, &ann), CPN_OK);
    assert_int_equal(ann.out.user.state->total, 2);
    assert_int_equal(take_by(0, "k3"), CPN_OK);
    assert_int_equal(take_by(1, "k4"), CPN_USER_CAP_REACHED);
    assert_int_equal(take_by(0, "k4"), CPN_USER_CAP_REACHED);
}

RUN_TESTS(.each_setup = two_engines, .each_teardown = stop_engines, .setup = fake_group_setup)
