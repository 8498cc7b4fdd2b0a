/*
 * tests/engine/test_checkpoint.c -- checkpoints of lanes: when they are due, what waits for them, what they hold that other processes
 * appended; and lanes that cannot be written beside others.
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/metrics.h"
#include "rig.h"

#define BAD "bad"
#define GOOD "good"
#define OTHER "other"
#define NEVER_MS 1000000
#define TOGETHER_MS 50     /* as in committer.c */
#define CHECKPOINT_ENTRIES 4096 /* likewise */

static struct {
    atomic_bool refuses_views, refuses_checkpoints; /* of BAD */
    atomic_int refused;
    atomic_bool waits; /* writing views does */
    atomic_int rounds; /* of views */
    atomic_int most;   /* checkpoints in one write */
    atomic_int good;   /* checkpoints of GOOD that were written */
    _Atomic uint64_t seen; /* the newest write's time */
    atomic_bool answered;
    atomic_bool cannot_gather;  /* BAD: its checkpoint cannot be read */
    atomic_int failed_loads;    /* so many more of BAD fail */
} t;

static void note_seen(const struct store *s)
{
    struct store_time when = rig.watched[0].plain->seen(s);
    uint64_t before = atomic_load(&t.seen), now = (uint64_t)when.seconds << 32 | when.increment;

    while (now > before && !atomic_compare_exchange_weak(&t.seen, &before, now))
        ;
}

/* A session that reads all that was written. */
static struct store *open_plain(void)
{
    struct store *session = rig.sources[0]->open(rig.sources[0]);
    uint64_t seen = atomic_load(&t.seen);

    session->ops->saw(session, (struct store_time){(uint32_t)(seen >> 32), (uint32_t)seen});
    return session;
}

/* ---- sessions that are watched ---- */

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    bool bad = false;

    for (size_t i = 0; i < count; i++) {
        bad = bad || strcmp(views[i].coupon, BAD) == 0;
        views[i].written = false;
    }
    atomic_fetch_add(&t.rounds, 1);
    while (atomic_load(&t.waits))
        rig_nap();
    if (!bad || !atomic_load(&t.refuses_views))
        return rig.watched[0].plain->write_views(s, views, count, when);
    atomic_fetch_add(&t.refused, 1);
    for (size_t i = 0; i < count; i++)
        if (strcmp(views[i].coupon, BAD) != 0)
            rig.watched[0].plain->write_views(s, &views[i], 1, when);
    return STORE_FAILED;
}

static enum store_status watched_write_checkpoints(struct store *s, const struct checkpoint_write *checkpoints, size_t count)
{
    enum store_status status;
    int good = 0;

    for (size_t i = 0; i < count; i++) {
        good += strcmp(checkpoints[i].coupon, GOOD) == 0;
        if (strcmp(checkpoints[i].coupon, BAD) == 0 && atomic_load(&t.refuses_checkpoints)) {
            atomic_fetch_add(&t.refused, 1);
            return STORE_FAILED;
        }
    }
    if ((int)count > atomic_load(&t.most))
        atomic_store(&t.most, (int)count);
    status = rig.watched[0].plain->write_checkpoints(s, checkpoints, count);
    note_seen(s);
    atomic_fetch_add(&t.good, good);
    return status;
}

static enum store_status watched_checkpoints(struct store *s, struct checkpoint_read *reads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(reads[i].coupon, BAD) == 0 && atomic_load(&t.cannot_gather)) {
            atomic_fetch_add(&t.refused, 1);
            reads[i].status = STORE_FAILED;
            return STORE_FAILED;
        }
    return rig.watched[0].plain->checkpoints(s, reads, count);
}

/* Only loading a lane reads it. */
static enum store_status watched_coupons(struct store *s, struct coupon_read *reads, size_t count)
{
    if (atomic_load(&t.failed_loads) == 0)
        return rig.watched[0].plain->coupons(s, reads, count);
    atomic_fetch_sub(&t.failed_loads, 1);
    for (size_t i = 0; i < count; i++)
        reads[i].status = STORE_FAILED;
    return STORE_FAILED;
}

FIXTURE(set_up)
{
    memset(&t, 0, sizeof t);
    rig_connect(1, 1, 0);
    rig.watched[0].ops.write_views = watched_write_views;
    rig.watched[0].ops.write_checkpoints = watched_write_checkpoints;
    rig.watched[0].ops.checkpoints = watched_checkpoints;
    rig.watched[0].ops.coupons = watched_coupons;
    return 0;
}

/* ---- engines, and what is asked of them ---- */

static struct engine *start_on(struct store_source *source, int checkpoint_ms, int redo_max)
{
    rig.config.redo_max = redo_max;
    rig.config.filter_bytes = 1 << 20;
    rig.config.checkpoint_ms = checkpoint_ms;
    return engine_start(&rig.config, source, NULL);
}

/* The first ends with the test, if that does not stop it. */
static struct engine *start_with(int checkpoint_ms, int redo_max)
{
    struct engine *e = start_on(&rig.watched[0].source, checkpoint_ms, redo_max);

    if (!rig.engines[0])
        rig.engines[0] = e;
    return e;
}

static void stop_first(void)
{
    engine_stop(rig.engines[0]);
    rig.engines[0] = NULL;
}

#define SOON_MS 3

static struct engine *start(void)
{
    return start_with(SOON_MS, 20000);
}

static enum cpn_result try_call(struct engine *e, const char *coupon, struct op *op, int64_t ms)
{
    op->coupon = coupon;
    op->arena = &rig.arenas[0];
    op->deadline = mono_add_ms(mono_now(), ms);
    return engine_call(e, op);
}

static void call(struct engine *e, const char *coupon, struct op *op)
{
    assert_int_equal(try_call(e, coupon, op, PATIENCE_MS), CPN_OK);
}

static struct coupon *make_coupon(const char *id, int64_t slots)
{
    struct coupon *c = arena_alloc(&rig.arenas[0], sizeof *c);

    open_coupon(c, id);
    c->cap.total = slots;
    c->cap.per_user = 3;
    return c;
}

static void catch_up(struct engine *e, const char *coupon)
{
    assert_int_equal(engine_catch_up(e, coupon, 0, PATIENCE_MS), STORE_OK);
}

static void create(struct engine *e, const char *id, int64_t slots)
{
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = make_coupon(id, slots)};
    struct op more = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = slots}};

    call(e, id, &op);
    call(e, id, &more);
    catch_up(e, id);
}

static struct op taking(int user)
{
    const char *name = arena_printf(&rig.arenas[0], "u-%d", user);

    return rig_taking(name, name, SLOT_REDEEMED);
}

static void take(struct engine *e, const char *coupon, int user)
{
    struct op op = taking(user);

    call(e, coupon, &op);
}

static int64_t checkpoint_of(const char *coupon)
{
    struct store *session = open_plain();
    struct checkpoint_read read = {.coupon = coupon};

    assert_int_equal(rig.watched[0].plain->checkpoints(session, &read, 1), STORE_OK);
    session->ops->close(session);
    return read.checkpoint.seq;
}

/* The version that is stored; 0: none. */
static int64_t version_of(const char *coupon)
{
    struct store *session = open_plain();
    struct coupon_read read = {.coupon = coupon, .arena = &rig.arenas[0]};

    assert_int_equal(rig.watched[0].plain->coupons(session, &read, 1), STORE_OK);
    session->ops->close(session);
    return read.definition ? read.definition->version : 0;
}

/* Slots of the coupon that are redeemed, as stored. */
static int redeemed_of(const char *coupon, int64_t buckets)
{
    struct store *session = open_plain();
    int redeemed = 0;

    for (int64_t b = 0; b < buckets; b++) {
        struct bucket bucket;
        struct bucket_read read = {.coupon = coupon, .b = b, .bucket = &bucket};

        bucket_init(&bucket, b);
        assert_int_equal(rig.watched[0].plain->buckets(session, &read, 1), STORE_OK);
        for (int i = 0; read.found && i < BUCKET_SLOTS; i++)
            redeemed += bucket.slots[i].state == SLOT_REDEEMED;
        bucket_release(&bucket);
    }
    session->ops->close(session);
    return redeemed;
}

/* ---- what another process left ---- */

#define LEFT 200

/* Takings of BAD; its checkpoint covers none. */
static void leave_unwritten(int takings)
{
    struct engine *e = start();

    create(e, BAD, LEFT);
    atomic_store(&t.refuses_views, true);
    for (int i = 0; i < takings; i++)
        take(e, BAD, i);
    stop_first();
    atomic_store(&t.refuses_views, false);
}

TEST(what_another_process_left_is_in_the_next_checkpoint)
{
    struct engine *e;
    int64_t before;

    leave_unwritten(LEFT);
    before = checkpoint_of(BAD);
    e = start();
    catch_up(e, BAD);
    stop_first();
    assert_true(checkpoint_of(BAD) >= before + LEFT);
    assert_int_equal(redeemed_of(BAD, LEFT / BUCKET_SLOTS + 1), LEFT);
}

/* Two processes take from one coupon: a checkpoint of either holds the batches of both. */
TEST(batches_of_another_process_are_gathered)
{
    struct engine *e = start_with(NEVER_MS, 20000), *other = start_with(NEVER_MS, 20000);
    struct op head = {.kind = OP_COUPON};

    create(e, GOOD, LEFT);
    for (int i = 0; i < LEFT; i++)
        take(i % 20 < 10 ? e : other, GOOD, i);
    call(other, GOOD, &head);
    assert_true(checkpoint_of(GOOD) < head.head.seq);
    catch_up(e, GOOD);
    assert_true(checkpoint_of(GOOD) >= head.head.seq);
    assert_int_equal(redeemed_of(GOOD, LEFT / BUCKET_SLOTS + 1), LEFT);
    engine_stop(other);
}

/* ---- beside a lane that cannot be written ---- */

static void others_go_on(struct engine *e)
{
    int64_t before = checkpoint_of(GOOD);
    int refused, user = 0;

    for (; user < 5; user++) {
        take(e, BAD, user);
        take(e, GOOD, user);
        catch_up(e, GOOD);
    }
    assert_true(checkpoint_of(GOOD) >= before + 5);
    while ((refused = atomic_load(&t.refused)) == 0)
        rig_nap();
    while (atomic_load(&t.refused) == refused) /* it is tried again */
        take(e, GOOD, user++);
}

TEST(a_lane_whose_buckets_cannot_be_written_delays_no_other)
{
    struct engine *e = start();
    int64_t bad;

    create(e, BAD, 64);
    create(e, GOOD, 5000);
    bad = checkpoint_of(BAD);
    atomic_store(&t.refuses_views, true);
    others_go_on(e);
    assert_int_equal(checkpoint_of(BAD), bad); /* nothing says that they are */
    atomic_store(&t.refuses_views, false);
    catch_up(e, BAD);
    assert_true(checkpoint_of(BAD) >= bad + 5);
    assert_int_equal(redeemed_of(BAD, 1), 5);
}

TEST(what_another_left_and_cannot_be_written_delays_no_other)
{
    struct engine *e;
    int64_t bad;

    leave_unwritten(10);
    bad = checkpoint_of(BAD);
    atomic_store(&t.refuses_views, true);
    e = start();
    create(e, GOOD, 5000);
    assert_int_equal(engine_catch_up(e, BAD, 0, 100), STORE_FAILED);
    catch_up(e, GOOD);
    assert_int_equal(checkpoint_of(BAD), bad);
    atomic_store(&t.refuses_views, false);
    catch_up(e, BAD);
}

/* e knows of a batch of another's; its next checkpoint reads what that touched. */
static void follow_another(struct engine *e, struct engine *other, const char *coupon, int user)
{
    struct op head = {.kind = OP_COUPON};

    take(other, coupon, user);
    call(e, coupon, &head);
}

TEST(a_lane_whose_buckets_cannot_be_gathered_delays_no_other)
{
    struct engine *e = start_with(4 * TOGETHER_MS, 20000), *other = start_with(NEVER_MS, 20000);
    struct mono until;
    int good;

    create(e, BAD, 64);
    create(e, GOOD, 64);
    follow_another(e, other, BAD, 0);
    atomic_store(&t.cannot_gather, true);
    while (atomic_load(&t.refused) < 3) /* it is tried again and again, sooner than what others wait for */
        rig_nap();
    good = atomic_load(&t.good);
    take(e, GOOD, 0);
    until = mono_add_ms(mono_now(), 30000);
    while (atomic_load(&t.good) == good && mono_before(mono_now(), until))
        rig_nap();
    assert_true(atomic_load(&t.good) > good);
    atomic_store(&t.cannot_gather, false);
    engine_stop(other);
}

TEST(what_is_due_at_once_waits_for_none_that_is_due_later)
{
    struct engine *e = start_with(NEVER_MS, 20000);

    create(e, BAD, 64);
    create(e, GOOD, 64);
    create(e, OTHER, 64);
    take(e, OTHER, 0);
    take(e, BAD, 0);
    take(e, GOOD, 0);
    assert_int_equal(engine_catch_up(e, GOOD, 0, 30000), STORE_OK);
    assert_int_equal(engine_catch_up(e, BAD, 0, 30000), STORE_OK);
}

/* ---- definitions ---- */

static void note_done(struct op *op)
{
    atomic_store(&t.answered, true);
    latch_down(op->context);
}

/* Its answer does not come while the checkpoint is refused. */
static void assert_waits_for_its_checkpoint(struct engine *e, struct op *op, atomic_bool *refuses)
{
    int64_t before = checkpoint_of(BAD);
    struct latch done;
    int refused;

    latch_init(&done, 1);
    op->coupon = BAD;
    op->arena = &rig.arenas[0];
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    op->done = note_done;
    op->context = &done;
    atomic_store(&t.answered, false);
    atomic_store(refuses, true);
    refused = atomic_load(&t.refused);
    assert_int_equal(engine_submit(e, op), CPN_OK);
    while (atomic_load(&t.refused) < refused + 3)
        rig_nap();
    assert_false(atomic_load(&t.answered));
    assert_int_equal(checkpoint_of(BAD), before);
    atomic_store(refuses, false);
    latch_wait(&done);
    assert_int_equal(op->outcome.result, CPN_OK);
    assert_true(checkpoint_of(BAD) >= op->head.seq);
}

TEST(a_new_definition_is_answered_when_its_checkpoint_is_stored)
{
    atomic_bool *const refuses[] = {&t.refuses_checkpoints, &t.refuses_views};
    struct engine *e = start_with(NEVER_MS, 20000);
    struct op make = {.kind = OP_CREATE, .in.coupon.definition = make_coupon(BAD, 64)};

    assert_waits_for_its_checkpoint(e, &make, refuses[0]);
    assert_int_equal(version_of(BAD), 1);
    for (int64_t version = 1; version <= 2; version++) {
        struct op change = {.kind = OP_CHANGE, .in.coupon = {.definition = make_coupon(BAD, 64), .expected_version = version}};

        change.in.coupon.definition->title = version == 1 ? "one" : "two";
        assert_waits_for_its_checkpoint(e, &change, refuses[version - 1]);
        assert_int_equal(version_of(BAD), version + 1);
    }
}

/* It is in the ledger, so nobody may hear that nothing happened. */
TEST(a_new_definition_that_could_not_be_stored_before_the_end_has_an_unknown_outcome)
{
    struct op make = {.kind = OP_CREATE, .coupon = BAD, .in.coupon.definition = make_coupon(BAD, 64)};
    struct latch done;

    start_with(NEVER_MS, 20000);
    latch_init(&done, 1);
    atomic_store(&t.refuses_views, true);
    rig_submit(0, &make, NULL, &done);
    while (atomic_load(&t.refused) == 0)
        rig_nap();
    stop_first();
    latch_wait(&done);
    assert_int_equal(make.outcome.result, CPN_OUTCOME_UNKNOWN);
    atomic_store(&t.refuses_views, false);
    catch_up(start(), BAD);
    assert_int_equal(version_of(BAD), 1);
}

#define FULL_BUCKETS 30 /* reads may see what was before, those of a session that did not see what was written */

/* Their batches have left the redo log. */
TEST(what_a_checkpoint_wrote_is_what_is_read_next)
{
    struct engine *e = start_with(NEVER_MS, 20000);

    create(e, GOOD, FULL_BUCKETS * BUCKET_SLOTS);
    for (int i = 0; i < FULL_BUCKETS; i++) {
        struct op slot = {.kind = OP_SLOT, .in.n = (int64_t)i * BUCKET_SLOTS};

        for (int k = 0; k < BUCKET_SLOTS; k++)
            take(e, GOOD, i * BUCKET_SLOTS + k);
        catch_up(e, GOOD);
        call(e, GOOD, &slot);
        assert_int_equal(slot.out.slot.slot.state, SLOT_REDEEMED);
    }
}

/* ---- that others wrote ---- */

#define COVERED_TRIES 30 /* a read may see what was before: then it is written once more */

TEST(a_checkpoint_of_another_process_empties_the_redo_log)
{
    int64_t before = metrics_get(METRIC_REDO_ENTRIES); /* what engines stopped by other tests left */
    struct engine *e = start_with(NEVER_MS, 20000), *other;
    struct mono until;
    int covered = 0;

    create(e, GOOD, 640);
    for (int i = 0; i < COVERED_TRIES; i++) {
        int written;

        other = start_with(NEVER_MS, 20000);
        follow_another(e, other, GOOD, i);
        take(e, GOOD, COVERED_TRIES + i);
        catch_up(other, GOOD);
        engine_stop(other);
        written = atomic_load(&t.good);
        catch_up(e, GOOD);
        covered += atomic_load(&t.good) == written;
        until = mono_add_ms(mono_now(), 10000);
        while (metrics_get(METRIC_REDO_ENTRIES) != before && mono_before(mono_now(), until)) /* it may be counted after the answer */
            rig_nap();
        assert_int_equal(metrics_get(METRIC_REDO_ENTRIES), before);
    }
    assert_true(covered > 0);
}

#define UNSEEN 20 /* batches, after which whoever is behind looks for a newer checkpoint, and loads the lane again */

/* The lane is loaded again, at the second try, from another's checkpoint, which covers what somebody waits for. */
TEST(who_waits_for_a_checkpoint_is_answered_by_anothers_that_is_loaded)
{
    struct engine *e = start_with(NEVER_MS, 20000), *other;
    struct op waits = {.kind = OP_CATCH_UP, .coupon = BAD, .arena = &rig.arenas[0], .done = note_done}, head = {.kind = OP_COUPON};
    struct latch done;
    int refused;

    create(e, BAD, 64);
    take(e, BAD, 0);
    atomic_store(&t.refuses_views, true);
    refused = atomic_load(&t.refused);
    latch_init(&done, 1);
    waits.context = &done;
    waits.deadline = mono_add_ms(mono_now(), 30000);
    assert_int_equal(engine_submit(e, &waits), CPN_OK);
    while (atomic_load(&t.refused) == refused)
        rig_nap();
    other = start_on(rig.sources[0], NEVER_MS, 20000);
    for (int i = 1; i <= UNSEEN; i++)
        take(other, BAD, i);
    engine_stop(other);
    assert_false(atomic_load(&t.answered));
    atomic_store(&t.failed_loads, 1);
    call(e, BAD, &head);
    assert_int_equal(atomic_load(&t.failed_loads), 0);
    latch_wait(&done);
    assert_int_equal(waits.outcome.result, CPN_OK);
    atomic_store(&t.refuses_views, false);
}

/* ---- when it is due ---- */

TEST(a_checkpoint_is_due_when_its_oldest_batch_has_an_age)
{
    const int age_ms = 400;
    struct engine *e = start_with(age_ms, 20000);
    struct mono started;
    int64_t before;
    int good;

    create(e, GOOD, 640);
    before = checkpoint_of(GOOD);
    started = mono_now();
    good = atomic_load(&t.good);
    for (int i = 0; atomic_load(&t.good) == good && i < 600; i++, rig_nap())
        take(e, GOOD, i); /* younger ones do not put it off */
    assert_true(mono_ms_between(started, mono_now()) >= age_ms - TOGETHER_MS);
    while (checkpoint_of(GOOD) == before)
        rig_nap();
}

TEST(until_then_nothing_is_written)
{
    struct engine *e;
    int64_t before;

    rig.config.patience_ms = PATIENCE_MS; /* it ends when all is written, however late that is */
    e = start_with(NEVER_MS, 20000);
    create(e, GOOD, 640);
    before = checkpoint_of(GOOD);
    for (int i = 0; i < 300; i++)
        take(e, GOOD, i);
    assert_int_equal(checkpoint_of(GOOD), before);
    stop_first(); /* then it is */
    assert_true(checkpoint_of(GOOD) >= before + 300);
    assert_int_equal(redeemed_of(GOOD, 10), 300);
}

TEST(thousands_of_entries_make_it_due_however_young_they_are)
{
    struct engine *e = start_with(NEVER_MS, 20000);
    int good, users = 0;

    create(e, GOOD, 10000);
    good = atomic_load(&t.good);
    while (atomic_load(&t.good) == good && users < CHECKPOINT_ENTRIES + 1000)
        take(e, GOOD, users++);
    assert_true(users >= CHECKPOINT_ENTRIES / 2); /* a batch counts as an entry more */
    while (atomic_load(&t.good) == good) /* whoever writes it may be late */
        rig_nap();
}

#define REDO_MAX 40

TEST(a_lane_waits_for_its_checkpoint_when_its_redo_log_is_full_and_others_do_not)
{
    struct engine *e = start_with(NEVER_MS, REDO_MAX);
    struct op late;
    int user = 0;

    create(e, BAD, 640);
    create(e, GOOD, 640);
    for (; user < 3 * REDO_MAX; user++)
        take(e, BAD, user); /* full again and again: it is written at once */
    atomic_store(&t.refuses_views, true);
    do
        late = taking(user++);
    while (try_call(e, BAD, &late, 1000) == CPN_OK && user < 6 * REDO_MAX);
    assert_int_equal(late.outcome.result, CPN_BUSY);
    assert_true(user < 5 * REDO_MAX);
    take(e, GOOD, 0);
    atomic_store(&t.refuses_views, false);
    take(e, BAD, user);
}

/* ---- together ---- */

/* The committer writes what is due by now, or has it waiting to be written: after the round of the first call, before that of the second. */
static void let_deadlines_pass(struct engine *e)
{
    struct mono until = mono_add_ms(mono_now(), SOON_MS);

    while (mono_before(mono_now(), until))
        rig_nap();
    for (int i = 0; i < 2; i++) {
        struct op head = {.kind = OP_COUPON};

        call(e, GOOD, &head);
    }
}

TEST(what_becomes_due_during_a_write_is_written_together)
{
    struct engine *e = start();
    int rounds;

    create(e, BAD, 64);
    create(e, GOOD, 64);
    create(e, OTHER, 64);
    atomic_store(&t.waits, true);
    rounds = atomic_load(&t.rounds);
    take(e, BAD, 0);
    while (atomic_load(&t.rounds) == rounds)
        rig_nap();
    atomic_store(&t.most, 0);
    take(e, GOOD, 0);
    take(e, OTHER, 0);
    let_deadlines_pass(e);
    atomic_store(&t.waits, false);
    catch_up(e, GOOD);
    catch_up(e, OTHER);
    assert_int_equal(atomic_load(&t.most), 2);
}

RUN_TESTS(.each_setup = set_up, .each_teardown = rig_end, .setup = fake_group_setup)
