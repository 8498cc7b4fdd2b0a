/*
 * tests/engine/test_removed.c -- who slept while its coupon was closed and released; or for so long that its documents were removed.
 *
 * Sleeper  the first engine, at its append of a taking: before it was sent, or when it was and the reply is lost. What earlier
 *          takings touched is not written by then. Or, until the documents are gone: while it had nothing to do, or with an append of which
 *          it does not know whether it arrived
 * Seeds    COUPONS_SEEDS (200), each with faults of the database; test_removed SEED runs one
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <unistd.h>

#include "lanes/lanes.h"
#include "rig.h"

#define SLEEPER "the-sleeper"
#define FAULT_PERCENT 10
#define TRUSTED_MS 1000 /* longer than anything that the first engine does before it sleeps */
#define LONG_SEEDS 6    /* each takes two seconds */
#define ENGINES 3 /* the sleeper, who archives, who comes afterwards */

static struct {
    int64_t lanes;
    atomic_bool sleeps, sent, views_wait, long_sleep;
    atomic_bool reads_slowly; /* the sleeper sleeps when it has read its user, in the middle of a round */
    bool taken; /* by the sleeper, as the ledger has it */
} t;

static enum cpn_result take(int engine, const char *user)
{
    struct op op = rig_taking(user, user, SLOT_REDEEMED);

    return rig_call(engine, &op);
}

/* ---- what the second engine does while the first one sleeps ---- */

static void catch_up(int engine)
{
    for (int64_t lane = 0; lane < t.lanes; lane++)
        assert_int_equal(engine_catch_up(rig.engines[engine], COUPON, lane, ENGINE_CATCH_UP_MS), STORE_OK);
}

static void close_coupon(void)
{
    struct op now = {.kind = OP_COUPON}, ends = {.kind = OP_CHANGE}, closes = {.kind = OP_ARCHIVE};

    rig_ask(1, &now);
    ends.in.coupon.definition = coupon_copy(now.coupon_now, &rig.arenas[1]);
    ends.in.coupon.definition->state = COUPON_ENDED;
    ends.in.coupon.expected_version = now.coupon_now->version;
    rig_ask(1, &ends);
    closes.in.coupon.expected_version = ends.coupon_now->version;
    rig_ask(1, &closes);
}

static void remove_coupon(void)
{
    close_coupon();
    catch_up(1);
    for (int64_t lane = 0; lane < t.lanes; lane++) {
        struct op op = {.kind = OP_REMOVE, .lane = lane};

        rig_ask(1, &op);
        rig_ask(1, &op);
    }
    catch_up(1);
    t.taken = fake_has_taking(rig.fake, COUPON, SLEEPER);
    if (t.long_sleep) {
        fake_remove(rig.fake, COUPON);
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
        return rig.watched[0].plain->append(s, appends, count);
    if (t.sent)
        rig.watched[0].plain->append(s, appends, count);
    remove_coupon();
    if (!t.sent && !t.long_sleep)
        return rig.watched[0].plain->append(s, appends, count);
    for (size_t i = 0; i < count; i++)
        appends[i].result = APPEND_UNKNOWN;
    return STORE_FAILED;
}

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    return t.views_wait ? STORE_FAILED : rig.watched[0].plain->write_views(s, views, count, when);
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    enum store_status status = rig.watched[0].plain->users(s, a, reads, count);

    for (size_t i = 0; i < count && t.reads_slowly; i++)
        if (strcmp(reads[i].user, SLEEPER) == 0 && atomic_exchange(&t.reads_slowly, false))
            remove_coupon();
    return status;
}

static void begin(uint32_t seed, bool long_sleep)
{
    memset(&t, 0, sizeof t);
    t.long_sleep = long_sleep;
    t.lanes = seed % 3 == 0 ? 2 : 1;
    t.sent = seed % 2;
    rig_connect(ENGINES, seed, FAULT_PERCENT);
    rig.watched[0].ops.append = watched_append;
    rig.watched[0].ops.write_views = watched_write_views;
    rig.watched[0].ops.users = watched_users;
    for (int i = 0; i < ENGINES; i++) {
        rig.config = (struct engine_config){
            .batch_max = 16, .queue_max = 64, .requests_max = 64, .lanes_max = 8, .redo_max = 200, .checkpoint_ms = 3,
            .backoff_ms = 1, .patience_ms = 5000, .trusted_ms = long_sleep && i == 0 ? TRUSTED_MS : 0,
        };
        rig.engines[i] = engine_start(&rig.config, &rig.watched[i].source, lanes_start);
    }
}

/* ---- what everybody gets ---- */

static void is_refused_as_removed(int engine)
{
    struct op now = {.kind = OP_COUPON}, user = {.kind = OP_USER_STATE, .in.user.name = "early-1"}, slot = {.kind = OP_SLOT, .in.n = 1},
              erase = {.kind = OP_ERASE, .in.user.name = "early-1"}, sweep = {.kind = OP_SWEEP};

    assert_int_equal(take(engine, "new"), CPN_COUPON_ARCHIVED);
    assert_int_equal(take(engine, "early-1"), CPN_COUPON_ARCHIVED);
    assert_int_equal(rig_call(engine, &user), CPN_COUPON_ARCHIVED);
    assert_int_equal(rig_call(engine, &slot), CPN_COUPON_ARCHIVED);
    assert_int_equal(rig_call(engine, &erase), CPN_COUPON_ARCHIVED);
    rig_ask(engine, &sweep);
    rig_ask(engine, &now);
    assert_int_equal(now.head.archived, LANE_REMOVED);
    assert_int_equal(now.coupon_now->state, COUPON_ENDED);
}

static void create_and_take(void)
{
    struct coupon coupon;
    char user[16];

    open_coupon(&coupon, COUPON);
    coupon.cap.total = 1000;
    coupon.lanes = t.lanes;
    rig_create(&coupon);
    rig_generate(&coupon, 1, 200);
    for (int i = 0; i < 8; i++) {
        snprintf(user, sizeof user, "early-%d", i);
        assert_int_equal(take(i % 2, user), CPN_OK);
    }
}

/* Everybody is refused, nobody adds to the ledger, and nothing comes back to the checkpoint. */
static void end(void)
{
    int batches = fake_batches(rig.fake, COUPON);

    for (int i = 0; i < ENGINES; i++)
        is_refused_as_removed(i);
    if (t.long_sleep)
        assert_int_equal(fake_batches(rig.fake, COUPON), batches);
    for (int i = 0; i < ENGINES; i++) {
        engine_stop(rig.engines[i]);
        rig.engines[i] = NULL;
    }
    if (t.long_sleep)
        assert_int_equal(fake_count_buckets(rig.fake, COUPON), 0);
    rig_end(NULL);
}

static void one_seed(uint32_t seed)
{
    char user[16];
    enum cpn_result result;

    begin(seed, false);
    create_and_take();
    t.views_wait = true;
    for (int i = 0; i < 4; i++) {
        snprintf(user, sizeof user, "late-%d", i);
        assert_int_equal(take(0, user), CPN_OK);
    }
    t.sleeps = true;
    result = take(0, SLEEPER);
    assert_false(t.sleeps);
    if (result != (t.taken ? CPN_OK : CPN_COUPON_ARCHIVED))
        fail_msg("seed %u: answered %s, and its archive has %s", seed, result_info(result)->name, t.taken ? "it" : "nothing of it");
    t.views_wait = false;
    end();
}

static void begin_long(uint32_t seed)
{
    begin(seed, true);
    create_and_take();
    for (int64_t lane = 0; lane < t.lanes; lane++)
        while (engine_catch_up(rig.engines[0], COUPON, lane, ENGINE_CATCH_UP_MS) != STORE_OK)
            continue; /* on a slow machine the lane may be forgotten */
}

static void one_long_seed(uint32_t seed)
{
    begin_long(seed);
    if (seed % 4 < 2) {
        remove_coupon();
    } else {
        t.sleeps = true;
        assert_int_equal(take(0, SLEEPER), CPN_OUTCOME_UNKNOWN);
        assert_false(t.sleeps);
    }
    end();
}

/* A lane that grew too old between what it read and what it would say: with something to append, or to confirm. */
static void one_slow_seed(uint32_t seed)
{
    struct op state = {.kind = OP_USER_STATE, .in.user.name = SLEEPER};

    begin_long(seed);
    t.reads_slowly = true;
    assert_int_equal(seed % 2 ? take(0, SLEEPER) : rig_call(0, &state), CPN_COUPON_ARCHIVED);
    assert_false(t.reads_slowly);
    end();
}

static uint32_t only;

TEST(who_slept_gets_the_truth_and_brings_nothing_back)
{
    const char *seeds = getenv("COUPONS_SEEDS");
    uint32_t count = seeds ? (uint32_t)strtoul(seeds, NULL, 10) : 200;

    for (uint32_t seed = only ? only : 1; only ? seed == only : seed <= count; seed++)
        one_seed(seed);
}

TEST(who_slept_until_its_documents_were_removed_loads_anew)
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
