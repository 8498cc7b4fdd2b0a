/*
 * tests/engine/test_stale.c -- a lane that one engine has in memory while the other goes on with it: what it reads to follow, what it
 * owes, and who sees to what ends by itself.
 *
 * Doors    those of the second engine count what they are given of the ledger, and can be kept from writing checkpoints
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "rig.h"

#define HOLD_S 3600
#define MANY 3000   /* batches */
#define FEW_READ 64 /* batches: a look's, and what was appended since the checkpoint */

static struct {
    struct store *session;
    /* of the second engine's sessions */
    atomic_size_t looks, read; /* of the ledger; batches */
    atomic_size_t appends, user_reads;
    bool takes_between;  /* the first engine takes between the first such read and what is decided by it, */
    atomic_int between;  /* and answers this */
    atomic_bool views_fail;
} t;

/* ---- sessions that are watched ---- */

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    enum store_status status = rig.watched[1].plain->ledger(s, coupon, lane, after, most, batches, count);

    atomic_fetch_add(&t.read, *count);
    atomic_fetch_add(&t.looks, 1);
    return status;
}

static enum store_status watched_ledgers(struct store *s, struct ledger_read *reads, size_t count)
{
    enum store_status status = rig.watched[1].plain->ledgers(s, reads, count);

    for (size_t i = 0; i < count; i++)
        atomic_fetch_add(&t.read, reads[i].count);
    atomic_fetch_add(&t.looks, 1);
    return status;
}

static enum cpn_result take_by(int engine, const char *key)
{
    struct op op = rig_taking("ann", key, SLOT_REDEEMED);

    return rig_call(engine, &op);
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    enum store_status status = rig.watched[1].plain->users(s, a, reads, count);

    if (atomic_fetch_add(&t.user_reads, 1) == 0 && t.takes_between)
        atomic_store(&t.between, (int)take_by(0, "k2"));
    return status;
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    atomic_fetch_add(&t.appends, 1);
    return rig.watched[1].plain->append(s, appends, count);
}

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    return atomic_load(&t.views_fail) ? STORE_FAILED : rig.watched[1].plain->write_views(s, views, count, when);
}

/* As of now: a read that sees what was before finds its checkpoint missing, and it is written again. */
static enum store_status fresh_checkpoints(struct store *s, struct checkpoint_read *reads, size_t count)
{
    rig.watched[1].plain->saw(s, (struct store_time){UINT32_MAX, 0});
    return rig.watched[1].plain->checkpoints(s, reads, count);
}

/* ---- two engines, and what is asked of them ---- */

FIXTURE(two_engines)
{
    struct store_ops *ops;

    memset(&t, 0, sizeof t);
    rig_connect(2, 1, 0);
    rig.config.redo_max = 200;
    rig.config.user_bytes = 1 << 20;
    t.session = rig_session();
    ops = &rig.watched[1].ops;
    ops->ledger = watched_ledger;
    ops->ledgers = watched_ledgers;
    ops->append = watched_append;
    ops->users = watched_users;
    ops->checkpoints = fresh_checkpoints;
    ops->write_views = watched_write_views;
    rig_start(NULL);
    return 0;
}

static int stop_engines(void **state)
{
    t.session->ops->close(t.session);
    return rig_end(state);
}

/* A coupon with 100 slots. */
static void create(void)
{
    struct coupon coupon;

    open_coupon(&coupon, COUPON);
    coupon.cap.total = 1000;
    coupon.cap.per_user = 3;
    rig_create(&coupon);
    rig_generate(&coupon, 1, 100);
}

static void take_as(int engine, const char *user, enum slot_state state, int64_t reserve_s)
{
    struct op op = rig_taking(user, user, state);

    op.in.user.take.reserve_s = reserve_s;
    rig_ask(engine, &op);
}

static void take(int engine, const char *user)
{
    take_as(engine, user, SLOT_REDEEMED, COUPON_NULL);
}

/* One batch each. */
static void tick(int engine, int times)
{
    for (int i = 0; i < times; i++)
        rig_ask(engine, &(struct op){.kind = OP_TICK});
}

static int64_t total_of(int engine, const char *user)
{
    struct op op = {.kind = OP_USER_STATE, .in.user.name = user};

    rig_ask(engine, &op);
    return op.out.user.state->total;
}

static size_t read_since(size_t before)
{
    return atomic_load(&t.read) - before;
}

/* ---- following ---- */

TEST(who_was_away_for_long_reads_the_redo_log_and_not_the_time_between)
{
    size_t before;

    create();
    take(1, "ann");
    rig_catch_up(1); /* it owes nothing, so it reads nothing by itself */
    tick(0, MANY);
    take(0, "bob");
    rig_catch_up(0);
    before = atomic_load(&t.read);
    assert_int_equal(rig_head(1).redeemed, 2);
    assert_in_range(read_since(before), 0, FEW_READ);
    assert_int_equal(total_of(1, "ann"), 1);
    assert_int_equal(total_of(1, "bob"), 1);
    take(1, "cyd");
    take(0, "dan");
    assert_int_equal(rig_head(1).redeemed, 4);
    assert_in_range(read_since(before), 0, FEW_READ);
}

/* ---- what it owes ---- */

TEST(a_checkpoint_that_others_wrote_need_not_be_written)
{
    struct latch done;
    struct arena arena;
    struct op wait = {.kind = OP_CATCH_UP, .arena = &arena};
    struct checkpoint_read read = {.coupon = COUPON};

    arena_init(&arena, 0);
    create();
    atomic_store(&t.views_fail, true);
    take(1, "ann");
    latch_init(&done, 1);
    rig_submit(1, &wait, NULL, &done);
    tick(0, MANY);
    rig_catch_up(0);
    assert_int_equal(total_of(1, "ann"), 1);
    latch_wait(&done);
    assert_int_equal(wait.outcome.result, CPN_OK);
    arena_free(&arena);
    take(1, "bob");
    atomic_store(&t.views_fail, false);
    rig_catch_up(1);
    assert_int_equal(t.session->ops->checkpoints(t.session, &read, 1), STORE_OK);
    assert_int_equal(read.checkpoint.seq, rig_head(0).seq);
    assert_int_equal(rig_head(0).redeemed, 2);
}

/* ---- what ends by itself ---- */

static size_t count_expired(void)
{
    static struct batch *batches[MANY];
    size_t count = 0, expired = 0;

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
    size_t looks, read, appends;

    create();
    take_as(1, "ann", SLOT_RESERVED, HOLD_S);
    rig_catch_up(1); /* else its checkpoint may find the other's, and the lane is left at once */
    tick(0, 200);
    looks = atomic_load(&t.looks);
    read = atomic_load(&t.read);
    appends = atomic_load(&t.appends);
    rig_move_clock(HOLD_S + 1);
    while (count_expired() == 0 || atomic_load(&t.looks) == looks)
        rig_nap();
    assert_in_range(read_since(read), 0, 1);
    assert_int_equal(atomic_load(&t.appends), appends);
    assert_int_equal(count_expired(), 1);
    assert_int_equal(rig_head(1).reserved, 0);
}

TEST(a_hold_goes_back_although_who_took_it_is_alone_and_not_asked)
{
    create();
    rig_catch_up(0);
    take_as(1, "ann", SLOT_RESERVED, 1);
    while (count_expired() == 0)
        rig_nap();
    assert_int_equal(rig_head(0).reserved, 0);
}

/* Both have ann in their caches, and each is behind the other in turn. */
TEST(what_another_did_with_a_user_in_the_cache_counts)
{
    create();
    assert_int_equal(take_by(0, "k1"), CPN_OK);
    assert_int_equal(take_by(1, "k2"), CPN_OK);
    assert_int_equal(total_of(0, "ann"), 2);
    assert_int_equal(take_by(0, "k3"), CPN_OK);
    assert_int_equal(take_by(1, "k4"), CPN_USER_CAP_REACHED);
    assert_int_equal(take_by(0, "k4"), CPN_USER_CAP_REACHED);
}

/* Who reads more than the other would lose every time: so a user is read once, and what the other did is folded into that. */
TEST(who_loses_a_race_reads_no_user_again)
{
    create();
    assert_int_equal(take_by(0, "k1"), CPN_OK);
    rig_catch_up(0); /* so that the second engine begins at a checkpoint, and forgets nothing for one */
    t.takes_between = true;
    atomic_store(&t.between, CPN_INTERNAL);
    assert_int_equal(take_by(1, "k3"), CPN_OK);
    assert_int_equal(atomic_load(&t.between), CPN_OK);
    assert_int_equal(atomic_load(&t.user_reads), 1);
    assert_int_equal(take_by(1, "k4"), CPN_USER_CAP_REACHED);
    assert_int_equal(take_by(0, "k4"), CPN_USER_CAP_REACHED);
}

RUN_TESTS(.each_setup = two_engines, .each_teardown = stop_engines, .setup = fake_group_setup)
