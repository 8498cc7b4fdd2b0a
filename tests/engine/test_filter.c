/*
 * tests/engine/test_filter.c -- users who surely have nothing are not read; and nobody is taken for one who has something.
 *
 * Watched  the users that are read; what a session reads of the ledger may lack a name; checkpoints may fail
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/metrics.h"
#include "engine/filter.h"
#include "lanes/lanes.h"
#include "rig.h"

#define ENGINES 2
#define USERS 40
#define FEW 5    /* batches: who follows reads them one after another */
#define MANY 600 /* more than who follows reads without a look at the checkpoint */
#define ROOM ((int64_t)64 << 10)

/* Of an engine's sessions. */
struct box {
    atomic_size_t people, jobs; /* read */
    atomic_bool checkpoints_fail;
    const char *emptied;        /* whose names are emptied in what it reads of the ledger */
};

static struct {
    struct store *session;
    struct box boxes[ENGINES];
    int64_t fresh_before, bytes_before; /* users who were surely new, bytes of filters: before the test */
    _Atomic int64_t bytes_most;         /* since; as seen before appends, and at the end */
} t;

/* ---- sessions that are watched ---- */

static struct box *box_of(const struct store *s)
{
    for (int i = 0; i < ENGINES; i++)
        if (s->ops == &rig.watched[i].ops)
            return &t.boxes[i];
    abort();
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    atomic_fetch_add(&box_of(s)->people, count);
    return rig.watched[0].plain->users(s, a, reads, count);
}

static enum store_status watched_job(struct store *s, const char *coupon, int64_t lane, const char *job, struct arena *a,
                                     struct job_progress **progress)
{
    atomic_fetch_add(&box_of(s)->jobs, 1);
    return rig.watched[0].plain->job(s, coupon, lane, job, a, progress);
}

static enum store_status watched_checkpoints(struct store *s, const struct checkpoint_write *checkpoints, size_t count)
{
    return atomic_load(&box_of(s)->checkpoints_fail) ? STORE_FAILED : rig.watched[0].plain->write_checkpoints(s, checkpoints, count);
}

static void empty_names(struct batch **batches, size_t count, const char *user)
{
    for (size_t i = 0; user && i < count; i++)
        for (size_t k = 0; k < batches[i]->count; k++)
            if (batches[i]->entries[k].user && strcmp(batches[i]->entries[k].user, user) == 0)
                batches[i]->entries[k].user = NULL;
}

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    enum store_status status = rig.watched[0].plain->ledger(s, coupon, lane, after, most, batches, count);

    empty_names(batches, *count, box_of(s)->emptied);
    return status;
}

static enum store_status watched_ledgers(struct store *s, struct ledger_read *reads, size_t count)
{
    enum store_status status = rig.watched[0].plain->ledgers(s, reads, count);

    for (size_t i = 0; i < count; i++)
        empty_names(reads[i].batches, reads[i].count, box_of(s)->emptied);
    return status;
}

static int64_t bytes_most(void)
{
    int64_t bytes = metrics_get(METRIC_FILTER_BYTES) - t.bytes_before;

    if (bytes > atomic_load(&t.bytes_most))
        atomic_store(&t.bytes_most, bytes);
    return atomic_load(&t.bytes_most);
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    bytes_most();
    return rig.watched[0].plain->append(s, appends, count);
}

/* ---- engines, and what is asked of them ---- */

static int two_engines_with(int64_t filter_bytes)
{
    memset(&t, 0, sizeof t);
    rig_connect(ENGINES, 1, 0);
    rig.config.redo_max = 10 * MANY;
    rig.config.filter_bytes = filter_bytes;
    t.fresh_before = metrics_get(METRIC_USERS_NEW);
    t.bytes_before = metrics_get(METRIC_FILTER_BYTES);
    t.session = rig.sources[0]->open(rig.sources[0]);
    for (int i = 0; i < ENGINES; i++) {
        struct store_ops *ops = &rig.watched[i].ops;

        ops->append = watched_append;
        ops->users = watched_users;
        ops->job = watched_job;
        ops->write_checkpoints = watched_checkpoints;
        ops->ledger = watched_ledger;
        ops->ledgers = watched_ledgers;
    }
    rig_start(lanes_start);
    return 0;
}

FIXTURE(two_engines)
{
    return two_engines_with(ROOM);
}

FIXTURE(two_engines_with_little_room)
{
    return two_engines_with(4 * 512);
}

static int stop_engines(void **state)
{
    for (int i = 0; i < ENGINES; i++)
        atomic_store(&t.boxes[i].checkpoints_fail, false);
    t.session->ops->close(t.session);
    return rig_end(state);
}

static void create_of(const char *id)
{
    struct coupon coupon;

    open_coupon(&coupon, id);
    coupon.cap.total = 5000;
    coupon.cap.per_user = 1;
    rig_create(&coupon);
    rig_generate(&coupon, 1, 1000);
}

static void create(void)
{
    create_of(COUPON);
}

static enum cpn_result take_of(int engine, const char *coupon, const char *user, const char *key)
{
    struct op op = rig_taking(user, key, SLOT_REDEEMED);

    op.coupon = coupon;
    return rig_call(engine, &op);
}

/* With a key that nobody used: no replay. */
static enum cpn_result take(int engine, const char *user)
{
    static int keys;
    char key[32];

    snprintf(key, sizeof key, "k%d", keys++);
    return take_of(engine, COUPON, user, key);
}

static const char *name(const char *prefix, int i)
{
    return arena_printf(&rig.arenas[0], "%s%d", prefix, i);
}

static void take_many(int engine, const char *prefix)
{
    for (int i = 0; i < USERS; i++)
        assert_int_equal(take(engine, name(prefix, i)), CPN_OK);
}

/* Each of them has one, and gets no other. */
static void assert_known(int engine, const char *prefix)
{
    for (int i = 0; i < USERS; i++)
        assert_int_equal(take(engine, name(prefix, i)), CPN_USER_CAP_REACHED);
}

static void tick(int engine, int times)
{
    for (int i = 0; i < times; i++)
        rig_ask(engine, &(struct op){.kind = OP_TICK});
}

static void erase(int engine, const char *user)
{
    rig_ask(engine, &(struct op){.kind = OP_ERASE, .in.user.name = user});
}

static size_t people(int engine)
{
    return atomic_load(&t.boxes[engine].people);
}

/* True: asking for somebody new took no read. */
static bool says_new(int engine)
{
    static int strangers;
    size_t before = people(engine);
    struct op op = {.kind = OP_USER_STATE, .in.user.name = name("stranger", strangers++)};

    rig_ask(engine, &op);
    assert_int_equal(op.out.user.state->total, 0);
    return people(engine) == before;
}

/* ---- led since the first batch ---- */

TEST(new_users_of_a_coupon_led_since_its_first_batch_are_not_read)
{
    create();
    rig_catch_up(0);
    take_many(0, "u");
    rig_catch_up(0);
    take_many(0, "v");
    assert_int_equal(people(0), 0);
    while (metrics_get(METRIC_USERS_NEW) - t.fresh_before < 2 * USERS) /* counted when the round is over, which is after its answers */
        rig_nap();
    assert_in_range(bytes_most(), 1, ROOM);
}

TEST(who_took_is_read_and_found)
{
    create();
    take_many(0, "u");
    assert_int_equal(take_of(0, COUPON, "ann", "key"), CPN_OK);
    rig_catch_up(0);
    assert_int_equal(take_of(0, COUPON, "ann", "key"), CPN_OK); /* again */
    assert_int_equal(take_of(0, COUPON, "ann", "other"), CPN_USER_CAP_REACHED);
    assert_known(0, "u");
    assert_in_range(people(0), USERS + 1, USERS + 2);
}

TEST(who_was_erased_is_read_as_well)
{
    size_t before;

    create();
    assert_int_equal(take(0, "ann"), CPN_OK);
    erase(0, "ann");
    rig_catch_up(0);
    before = people(0);
    assert_int_equal(take(0, "ann"), CPN_OK);
    assert_int_equal(people(0), before + 1);
}

/* ---- what others append ---- */

TEST(what_another_appended_is_laid_in)
{
    create();
    take_many(0, "u");
    rig_catch_up(0);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(take(1, name("w", i)), CPN_OK);
    assert_true(says_new(0));
    rig_catch_up(0);
    for (int i = 0; i < FEW; i++)
        assert_int_equal(take(0, name("w", i)), CPN_USER_CAP_REACHED);
    assert_known(0, "u");
    assert_true(says_new(0));
}

TEST(what_another_appended_meanwhile_is_found_by_the_append_that_fails)
{
    create();
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(take(i % 2, name("x", i)), CPN_OK);
        assert_int_equal(take(!(i % 2), name("x", i)), CPN_USER_CAP_REACHED);
        rig_catch_up(i % 2);
    }
}

TEST(a_lane_that_was_loaded_past_a_batch_says_nothing_any_more)
{
    create();
    fake_read_present(rig.fake);
    take_many(0, "u");
    take_many(1, "w");
    tick(1, MANY);
    rig_catch_up(1);
    assert_known(0, "w");
    assert_known(0, "u");
    assert_false(says_new(0));
}

TEST(whoever_loads_a_lane_behind_its_first_batch_reads_everybody)
{
    create();
    fake_read_present(rig.fake); /* an older checkpoint is behind no batch: everything after it would be read */
    take_many(0, "u");
    rig_catch_up(0);
    assert_false(says_new(1));
    assert_known(1, "u");
    take_many(1, "v");
    assert_false(says_new(1));
    assert_known(1, "v");
}

/* As when a job has made its slots, and its definition was changed, before the sale begins. */
TEST(whoever_loads_a_lane_before_its_first_taking_reads_nobody_new)
{
    create();
    tick(0, MANY);
    rig_catch_up(0);
    assert_true(says_new(1));
    take_many(1, "u");
    assert_known(1, "u");
    assert_true(says_new(1));
}

TEST(names_that_were_emptied_leave_no_filter)
{
    size_t before;

    create();
    atomic_store(&t.boxes[0].checkpoints_fail, true);
    assert_int_equal(take(0, "ann"), CPN_OK);
    erase(0, "ann");
    assert_int_equal(take(0, "bob"), CPN_OK);
    t.boxes[1].emptied = "ann";
    assert_int_equal(take(1, "cyd"), CPN_OK); /* all of the ledger is in its redo log, but for a name */
    before = people(1);
    assert_int_equal(take(1, "ann"), CPN_OK);
    assert_int_equal(people(1), before + 1);
    assert_false(says_new(1));
}

/* ---- jobs ---- */

TEST(steps_of_jobs_are_repeated_over_an_empty_filter)
{
    struct op turn = {.kind = OP_TURN, .in.job = {.id = "t", .fence = 7}}, again = turn;
    struct op due = {.kind = OP_RETIRING, .in.job = {.id = "d", .step = 1, .count = 10}};

    create();
    rig_ask(0, &turn);
    rig_ask(0, &due);
    rig_catch_up(0);
    assert_true(says_new(0));
    for (int i = 0; i < 3; i++) {
        struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = 1000}};
        int engine = i == 1; /* whose lane has not seen the job */

        rig_ask(engine, &more);
        rig_ask(engine, &due);
        assert_int_equal(due.out.made, 10);
        rig_ask(engine, &again);
        assert_int_equal(again.out.turn, turn.out.turn);
        rig_catch_up(engine);
    }
    assert_in_range(rig_head(0).slots, 990, 1000);
    assert_true(atomic_load(&t.boxes[1].jobs) > 0);
}

/* ---- memory ---- */

TEST_WITH(the_least_used_lanes_give_up_their_filters, two_engines_with_little_room, stop_engines)
{
    for (int i = 0; i < 12; i++) {
        const char *coupon = name("c-", i);

        create_of(coupon);
        for (int k = 0; k < 3; k++)
            assert_int_equal(take_of(0, coupon, name("u", k), "k1"), CPN_OK);
        assert_int_equal(people(0), 0);
        assert_in_range(bytes_most(), 512, 4 * 512);
    }
    for (int i = 0; i < 12; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(take_of(0, name("c-", i), name("u", k), "k2"), CPN_USER_CAP_REACHED);
    assert_in_range(bytes_most(), 512, 4 * 512);
}

TEST_WITH(a_filter_that_grows_out_of_the_room_is_given_up, two_engines_with_little_room, stop_engines)
{
    create();
    for (int k = 0; k < 1000; k += USERS)
        take_many(0, name("many", k));
    rig_catch_up(0);
    assert_true(people(0) > 0);
    assert_in_range(bytes_most(), 512, 4 * 512);
    for (int k = 0; k < 1000; k += 5 * USERS)
        assert_known(0, name("many", k));
}

/* ---- the set itself ---- */

#define TAKERS 100000
#define TAKERS_OF_BATCH 1000

static void lay_users(struct filter *f)
{
    static struct entry entries[TAKERS_OF_BATCH];
    struct batch b = {.entries = entries, .count = TAKERS_OF_BATCH};

    for (int i = 0; i < TAKERS; i += TAKERS_OF_BATCH) {
        arena_reset(&rig.arenas[1]);
        for (int k = 0; k < TAKERS_OF_BATCH; k++)
            entries[k] = (struct entry){.kind = ENTRY_REDEEM, .user = arena_printf(&rig.arenas[1], "u%d", i + k)};
        for (int times = 0; times < 2; times++) { /* each counts once */
            b.head.seq++;
            assert_true(filter_add_batch(f, t.session, &b));
        }
    }
}

static int lacking_of(const struct filter *f, const char *prefix)
{
    char user[32];
    int lacking = 0;

    for (int i = 0; i < TAKERS; i++) {
        snprintf(user, sizeof user, "%s%d", prefix, i);
        lacking += filter_lacks(f, t.session, f->seq, user);
    }
    return lacking;
}

TEST(a_filter_grows_by_12_to_32_bits_a_user)
{
    struct filter_room room = {.bytes_max = INT64_C(1) << 30};
    struct filter f;

    filter_init(&f, &room);
    lay_users(&f);
    assert_in_range(f.bytes, TAKERS * 12 / 8, TAKERS * 32 / 8);
    assert_int_equal(atomic_load(&room.bytes), f.bytes);
    assert_int_equal(lacking_of(&f, "u"), 0);
    assert_in_range(lacking_of(&f, "stranger"), TAKERS - TAKERS / 50, TAKERS);
    assert_false(filter_lacks(&f, t.session, f.seq + 1, "stranger"));
    filter_drop(&f);
    assert_int_equal(atomic_load(&room.bytes), 0);
}

RUN_TESTS(.each_setup = two_engines, .each_teardown = stop_engines, .setup = fake_group_setup)
