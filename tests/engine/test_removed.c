/*
 * tests/engine/test_removed.c -- who slept while its coupon was archived, and while all that it had left the database.
 *
 * Sleeper  the first engine, at its append of a taking: before it was sent, or when it was and the reply is lost. What earlier
 *          takings touched is not written by then. Or, for so long that even the _ids are gone: while it had nothing to do, or with an append
 *          of which it does not know whether it arrived
 * Seeds    COUPONS_SEEDS (200), each with faults of the database; test_removed SEED runs one
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fake_store.h"
#include "lanes/lanes.h"

#define COUPON "c1"
#define SLEEPER "the-sleeper"
#define PATIENCE_MS 300000
#define FAULT_PERCENT 10
#define TRUSTED_MS 1000 /* longer than anything that the first engine does before it sleeps */
#define LONG_SEEDS 6    /* each takes two seconds */
#define ENGINES 3 /* the sleeper, who archives, who comes afterwards */

static struct {
    int64_t lanes;
    struct fake *fake;
    struct store_source *sources[ENGINES];
    struct engine *engines[ENGINES];
    struct arena arenas[ENGINES];
    struct watched watched;
    atomic_bool sleeps, sent, parts_wait, long_sleep;
    atomic_bool reads_slowly; /* the sleeper sleeps when it has read its user, in the middle of a round */
    bool taken; /* by the sleeper, as the ledger has it */
} t;

static enum cpn_result call(int engine, struct op *op)
{
    op->coupon = COUPON;
    op->arena = &t.arenas[engine];
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    return engine_call(t.engines[engine], op);
}

static enum cpn_result take(int engine, const char *user)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = user};

    op.in.user.take = (struct take){.key = user, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    return call(engine, &op);
}

/* ---- what the second engine does while the first one sleeps ---- */

static void catch_up(int engine)
{
    for (int64_t lane = 0; lane < t.lanes; lane++)
        assert_int_equal(engine_catch_up(t.engines[engine], COUPON, lane, ENGINE_CATCH_UP_MS), STORE_OK);
}

static void close_coupon(void)
{
    struct op now = {.kind = OP_COUPON}, ends = {.kind = OP_CHANGE}, closes = {.kind = OP_ARCHIVE};

    assert_int_equal(call(1, &now), CPN_OK);
    ends.in.coupon.definition = coupon_copy(now.coupon_now, &t.arenas[1]);
    ends.in.coupon.definition->state = COUPON_ENDED;
    ends.in.coupon.expected_version = now.coupon_now->version;
    assert_int_equal(call(1, &ends), CPN_OK);
    closes.in.coupon.expected_version = ends.coupon_now->version;
    assert_int_equal(call(1, &closes), CPN_OK);
}

static void read_tails(int64_t *tails)
{
    struct op now = {.kind = OP_COUPON};

    assert_int_equal(call(1, &now), CPN_OK);
    for (int64_t lane = 0; lane < t.lanes; lane++)
        tails[lane] = now.out.seqs ? now.out.seqs[lane] : now.head.seq;
}

static void remove_coupon(void)
{
    int64_t tails[COUPON_LANES_MAX] = {0};

    close_coupon();
    catch_up(1);
    read_tails(tails);
    for (int64_t lane = 0; lane < t.lanes; lane++) {
        struct op early = {.kind = OP_REMOVE, .lane = lane, .in.expected_seq = tails[lane] - 1},
                  op = {.kind = OP_REMOVE, .lane = lane, .in.expected_seq = tails[lane]};

        assert_int_equal(call(1, &early), CPN_VERSION_CHANGED);
        assert_int_equal(call(1, &op), CPN_OK);
        assert_int_equal(call(1, &op), CPN_OK);
    }
    catch_up(1);
    read_tails(tails);
    t.taken = fake_has_taking(t.fake, COUPON, SLEEPER);
    fake_leave(t.fake, COUPON, tails, t.lanes);
    if (t.long_sleep) {
        fake_leave_nothing(t.fake, COUPON);
        usleep((TRUSTED_MS + 100) * 1000);
    }
}

/* ---- the first engine's sessions ---- */

static bool is_sleepers(const struct append *appends, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < appends[i].batch->count; k++) {
            const char *user = appends[i].batch->entries[k].user;

            if (user && strcmp(user, SLEEPER) == 0)
                return true;
        }
    return false;
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    if (!is_sleepers(appends, count) || !atomic_exchange(&t.sleeps, false))
        return t.watched.plain->append(s, appends, count);
    if (t.sent)
        t.watched.plain->append(s, appends, count);
    remove_coupon();
    if (!t.sent && !t.long_sleep)
        return t.watched.plain->append(s, appends, count);
    for (size_t i = 0; i < count; i++)
        appends[i].result = APPEND_UNKNOWN;
    return STORE_FAILED;
}

static enum store_status watched_write_parts(struct store *s, struct part_write *parts, size_t count, struct store_time *when)
{
    return t.parts_wait ? STORE_FAILED : t.watched.plain->write_parts(s, parts, count, when);
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    enum store_status status = t.watched.plain->users(s, a, reads, count);

    for (size_t i = 0; i < count && t.reads_slowly; i++)
        if (strcmp(reads[i].user, SLEEPER) == 0 && atomic_exchange(&t.reads_slowly, false))
            remove_coupon();
    return status;
}

static void start(int engine, struct store_source *source)
{
    const struct engine_config config = {
        .batch_max = 16, .queue_max = 64, .requests_max = 64, .lanes_max = 8, .redo_max = 200, .checkpoint_ms = 3,
        .backoff_ms = 1, .patience_ms = 5000, .trusted_ms = t.long_sleep && engine == 0 ? TRUSTED_MS : 0,
    };

    t.engines[engine] = engine_start(&config, source, lanes_start);
}

static void begin(uint32_t seed, bool long_sleep)
{
    memset(&t, 0, sizeof t);
    t.long_sleep = long_sleep;
    t.lanes = seed % 3 == 0 ? 2 : 1;
    t.sent = seed % 2;
    t.fake = fake_new(seed, FAULT_PERCENT);
    for (int i = 0; i < ENGINES; i++) {
        arena_init(&t.arenas[i], 0);
        t.sources[i] = fake_connect(t.fake);
    }
    fake_watch(&t.watched, t.sources[0]);
    t.watched.ops.append = watched_append;
    t.watched.ops.write_parts = watched_write_parts;
    t.watched.ops.users = watched_users;
    for (int i = 0; i < ENGINES; i++)
        start(i, i == 0 ? &t.watched.source : t.sources[i]);
}

static void create(void)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};
    struct op slots = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = 200}};

    open_coupon(&coupon, COUPON);
    coupon.cap.total = 1000;
    coupon.lanes = t.lanes;
    assert_int_equal(call(0, &op), CPN_OK);
    assert_int_equal(call(0, &slots), CPN_OK);
}

/* ---- what everybody is told ---- */

static void is_told_that_it_left(int engine)
{
    struct op now = {.kind = OP_COUPON}, user = {.kind = OP_USER_STATE, .in.user.name = "early-1"}, slot = {.kind = OP_SLOT, .in.n = 1},
              erase = {.kind = OP_ERASE, .in.user.name = "early-1"}, sweep = {.kind = OP_SWEEP};

    assert_int_equal(take(engine, "new"), CPN_COUPON_ARCHIVED);
    assert_int_equal(take(engine, "early-1"), CPN_COUPON_ARCHIVED);
    assert_int_equal(call(engine, &user), CPN_COUPON_ARCHIVED);
    assert_int_equal(call(engine, &slot), CPN_COUPON_ARCHIVED);
    assert_int_equal(call(engine, &erase), CPN_COUPON_ARCHIVED);
    assert_int_equal(call(engine, &sweep), CPN_OK);
    assert_int_equal(call(engine, &now), CPN_OK);
    assert_int_equal(now.head.archived, LANE_REMOVED);
    assert_int_equal(now.coupon_now->state, COUPON_ENDED);
}

static void create_and_take(void)
{
    char user[16];

    create();
    for (int i = 0; i < 8; i++) {
        snprintf(user, sizeof user, "early-%d", i);
        assert_int_equal(take(i % 2, user), CPN_OK);
    }
}

static void end(void)
{
    for (int i = 0; i < ENGINES; i++)
        engine_stop(t.engines[i]);
    assert_int_equal(fake_whole_buckets(t.fake, COUPON), 0);
    for (int i = 0; i < ENGINES; i++) {
        fake_disconnect(t.sources[i]);
        arena_free(&t.arenas[i]);
    }
    fake_free(t.fake);
}

static void one_seed(uint32_t seed)
{
    char user[16];
    enum cpn_result result;

    begin(seed, false);
    create_and_take();
    t.parts_wait = true;
    for (int i = 0; i < 4; i++) {
        snprintf(user, sizeof user, "late-%d", i);
        assert_int_equal(take(0, user), CPN_OK);
    }
    t.sleeps = true;
    result = take(0, SLEEPER);
    assert_false(t.sleeps);
    if (result != (t.taken ? CPN_OK : CPN_COUPON_ARCHIVED))
        fail_msg("seed %u: told %s, and its archive has %s", seed, result_info(result)->name, t.taken ? "it" : "nothing of it");
    t.parts_wait = false;
    for (int i = 0; i < ENGINES; i++)
        is_told_that_it_left(i);
    end();
}

static void one_long_seed(uint32_t seed)
{
    int batches;

    begin(seed, true);
    create_and_take();
    for (int64_t lane = 0; lane < t.lanes; lane++)
        while (engine_catch_up(t.engines[0], COUPON, lane, ENGINE_CATCH_UP_MS) != STORE_OK) /* on a slow machine the lane may be forgotten */
            ;
    if (seed % 4 < 2) {
        remove_coupon();
    } else {
        t.sleeps = true;
        assert_int_equal(take(0, SLEEPER), CPN_OUTCOME_UNKNOWN);
        assert_false(t.sleeps);
    }
    batches = fake_batches(t.fake, COUPON);
    for (int i = 0; i < ENGINES; i++)
        is_told_that_it_left(i);
    assert_int_equal(fake_batches(t.fake, COUPON), batches);
    end();
}

/* A lane that grew too old between what it read and what it would say: with something to append, or to confirm. */
static void one_slow_seed(uint32_t seed)
{
    struct op state = {.kind = OP_USER_STATE, .in.user.name = SLEEPER};
    int batches;

    begin(seed, true);
    create_and_take();
    for (int64_t lane = 0; lane < t.lanes; lane++)
        while (engine_catch_up(t.engines[0], COUPON, lane, ENGINE_CATCH_UP_MS) != STORE_OK)
            ;
    t.reads_slowly = true;
    assert_int_equal(seed % 2 ? take(0, SLEEPER) : call(0, &state), CPN_COUPON_ARCHIVED);
    assert_false(t.reads_slowly);
    batches = fake_batches(t.fake, COUPON);
    for (int i = 0; i < ENGINES; i++)
        is_told_that_it_left(i);
    assert_int_equal(fake_batches(t.fake, COUPON), batches);
    end();
}

static uint32_t only;

TEST(who_slept_is_told_the_truth_and_brings_nothing_back)
{
    const char *seeds = getenv("COUPONS_SEEDS");
    uint32_t count = seeds ? (uint32_t)strtoul(seeds, NULL, 10) : 200;

    for (uint32_t seed = only ? only : 1; only ? seed == only : seed <= count; seed++)
        one_seed(seed);
}

TEST(who_slept_until_nothing_was_left_loads_anew)
{
    for (uint32_t seed = only ? only : 1; only ? seed == only : seed <= LONG_SEEDS; seed++)
        one_long_seed(seed);
}

TEST(who_grew_too_old_in_a_round_loads_anew)
{
    for (uint32_t seed = only ? only : 1; only ? seed == only : seed <= LONG_SEEDS; seed++)
        one_slow_seed(seed);
}

int main(int argc, char **argv)
{
    only = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    return run_listed((struct fixtures){.program = __FILE__, .setup = fake_group_setup});
}
