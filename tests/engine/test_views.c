/*
 * tests/engine/test_views.c -- writing views: those that another process left unwritten, in chunks and each once; those of one coupon
 * while another's cannot be written; and how often.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "base/checked.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/foreign_views.h"
#include "fake_store.h"

#define BAD "bad"
#define GOOD "good"
#define OTHER "other"
#define ASKED_MS 50 /* between rounds, where others wait */
#define PATIENCE_MS 300000
#define USERS 2200
#define SHORT_NAMES 1200 /* the others' are so long that a chunk is full of their bytes before it is full of users */
#define LONG_NAME 500

static struct {
    struct fake *fake;
    struct store_source *source;
    struct store_source watched;
    const struct store_ops *plain;
    struct store_ops ops;
    struct arena arena;
    atomic_bool refuses; /* whatever holds a view of BAD */
    atomic_int refused;
    /* reads of user states */
    size_t read, most, most_bytes;
    atomic_int rounds, users, new_users, marks; /* written */
    atomic_bool waits;     /* writing does */
    /* Others wait for views of GOOD. */
    atomic_bool asked;
    atomic_int owed;       /* batches of OTHER whose views are not written */
    atomic_bool told;      /* and the writer was told so, for this round */
    atomic_int alone;      /* writes of GOOD's users without OTHER's, which were owed, in such a round */
} t;

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    nanosleep(&pause, NULL);
}

/* ---- sessions that are watched ---- */

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    bool bad = false, good = false, other = false;

    for (size_t i = 0; i < count; i++) {
        good = good || strcmp(views[i].coupon, GOOD) == 0;
        other = other || strcmp(views[i].coupon, OTHER) == 0;
        bad = bad || strcmp(views[i].coupon, BAD) == 0;
        views[i].written = false;
        atomic_fetch_add(&t.users, views[i].kind == VIEW_USER_STATE);
        atomic_fetch_add(&t.new_users, views[i].kind == VIEW_USER_STATE && !views[i].user_state->stored);
    }
    atomic_fetch_add(&t.rounds, 1);
    atomic_fetch_add(&t.alone, atomic_exchange(&t.told, false) && good && !other && atomic_load(&t.owed) > 0);
    while (atomic_load(&t.waits))
        nap();
    if (!bad || !atomic_load(&t.refuses))
        return t.plain->write_views(s, views, count, when);
    atomic_fetch_add(&t.refused, 1);
    return STORE_FAILED;
}

static enum store_status watched_write_marks(struct store *s, const struct mark_write *marks, size_t count)
{
    atomic_fetch_add(&t.marks, (int)count);
    return t.plain->write_marks(s, marks, count);
}

static enum store_status watched_user_states(struct store *s, struct store_time after, struct arena *a, struct user_state_read *reads,
                                             size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += strlen(reads[i].coupon) + strlen(reads[i].user);
    t.read += count;
    t.most = count > t.most ? count : t.most;
    t.most_bytes = bytes > t.most_bytes ? bytes : t.most_bytes;
    return t.plain->user_states(s, after, a, reads, count);
}

static struct store *open_watched(struct store_source *source)
{
    struct store *session = t.source->open(t.source);

    (void)source;
    session->ops = &t.ops;
    return session;
}

static int set_up(void **state)
{
    struct store *session;

    (void)state;
    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    t.source = fake_connect(t.fake);
    arena_init(&t.arena, 0);
    session = t.source->open(t.source);
    t.plain = session->ops;
    session->ops->close(session);
    t.ops = *t.plain;
    t.ops.write_views = watched_write_views;
    t.ops.write_marks = watched_write_marks;
    t.ops.user_states = watched_user_states;
    t.watched.open = open_watched;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_disconnect(t.source);
    fake_free(t.fake);
    arena_free(&t.arena);
    return 0;
}

/* ---- engines, and what is asked of them ---- */

static void note_owed(const struct batch *b)
{
    atomic_fetch_add(&t.owed, strcmp(b->coupon, OTHER) == 0);
}

static void note_settled(const struct batch *b)
{
    atomic_fetch_sub(&t.owed, strcmp(b->coupon, OTHER) == 0);
}

static bool is_asked(void)
{
    return atomic_load(&t.asked);
}

static bool is_awaited(const struct batch *b)
{
    bool awaited = strcmp(b->coupon, GOOD) == 0;

    if (awaited)
        atomic_store(&t.told, true);
    return awaited;
}

static struct engine *start_with(int flush_ms)
{
    static const struct engine_hooks hooks = {
        .views_owed = note_owed, .views_settled = note_settled, .views_asked = is_asked, .views_awaited = is_awaited,
    };
    const struct engine_config config = {
        .committers = 1, .batch_max = 16, .queue_max = 64, .requests_max = 64, .lanes_max = 8, .redo_max = 10 * USERS,
        .flush_ms = flush_ms, .backoff_ms = 1, .patience_ms = 50,
    };

    return engine_start(&config, &t.watched, &hooks, NULL);
}

static struct engine *start(void)
{
    return start_with(3);
}

static void call(struct engine *e, const char *coupon, struct op *op)
{
    op->coupon = coupon;
    op->arena = &t.arena;
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_call(e, op), CPN_OK);
}

static void create(struct engine *e, const char *id, int64_t slots)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .definition = &coupon};
    struct op more = {.kind = OP_GENERATE, .job = "j", .step = 1, .count = slots};

    coupon_init(&coupon);
    coupon.id = id;
    coupon.title = "t";
    coupon.state = COUPON_ACTIVE;
    coupon.cap.total = slots;
    coupon.cap.per_user = 3;
    call(e, id, &op);
    call(e, id, &more);
    assert_int_equal(engine_catch_up(e, id, 0, PATIENCE_MS), STORE_OK);
}

static void take_by(struct engine *e, const char *coupon, const char *user, const char *key)
{
    struct op op = {.kind = OP_TAKE, .user = user};

    op.take = (struct take){.key = key, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    call(e, coupon, &op);
}

static void take(struct engine *e, const char *coupon, const char *user)
{
    take_by(e, coupon, user, user);
}

static int64_t mark_of(const char *coupon, struct store_time *when)
{
    struct store *session = t.source->open(t.source);
    struct mark mark;

    assert_int_equal(t.plain->mark(session, coupon, 0, "views", &mark), STORE_OK);
    session->ops->close(session);
    *when = mark.when;
    return mark.seq;
}

/* ---- what another process left ---- */

static const char *user_name(int i)
{
    return arena_printf(&t.arena, "%0*d", i < SHORT_NAMES ? 4 : LONG_NAME, i);
}

/* Users who take one of BAD each; no view of it is written. */
static void leave_unwritten(int users)
{
    struct engine *e = start();

    create(e, BAD, users);
    atomic_store(&t.refuses, true);
    for (int i = 0; i < users; i++)
        take(e, BAD, user_name(i));
    engine_stop(e);
    atomic_store(&t.refuses, false);
}

/* The ledger after the mark, as a window of batches that somebody else appended. */
static struct window_batch **read_window(struct store *session, int64_t mark, size_t *count, size_t *entries)
{
    struct batch **batches = checked(calloc(USERS + 16, sizeof *batches));
    struct window_batch **window = arena_array(&t.arena, USERS + 16, sizeof *window);

    *entries = 0;
    assert_int_equal(session->ops->ledger(session, BAD, 0, mark, USERS + 16, batches, count), STORE_OK);
    for (size_t i = 0; i < *count; i++) {
        window[i] = arena_alloc(&t.arena, sizeof **window);
        *window[i] = (struct window_batch){.batch = batches[i]};
        *entries += batches[i]->count;
    }
    free(batches);
    return window;
}

static void each_view_that_another_left_unwritten_is_read_once_and_each_batch_folded_where_it_touches(void **state)
{
    struct store *session = open_watched(&t.watched);
    struct store_time when;
    struct window_batch **window;
    size_t count, entries, read_before;
    struct foreign *f;
    bool done = false;

    (void)state;
    leave_unwritten(USERS);
    window = read_window(session, mark_of(BAD, &when), &count, &entries);
    read_before = t.read;
    t.most = t.most_bytes = 0;
    f = foreign_new(BAD, 0, window, count, when);
    while (!done)
        assert_int_equal(foreign_step(f, session, &when, &done), STORE_OK);
    assert_int_equal(t.read - read_before, USERS);
    assert_int_equal(t.most, FOREIGN_USERS_MAX);
    assert_in_range(t.most_bytes, FOREIGN_BYTES_MAX - 2 * LONG_NAME, FOREIGN_BYTES_MAX);
    assert_in_range(f->folds, 2, 2 * entries); /* a taking touches a user and a bucket */
    foreign_free(f);
    for (size_t i = 0; i < count; i++)
        batch_free(window[i]->batch);
    session->ops->close(session);
}

static void who_loads_a_lane_writes_what_another_left_unwritten(void **state)
{
    struct engine *e;
    struct store *session = t.source->open(t.source);
    struct store_time when;
    struct user_state_read reads[40];

    (void)state;
    leave_unwritten(40);
    e = start();
    assert_int_equal(engine_catch_up(e, BAD, 0, PATIENCE_MS), STORE_OK);
    engine_stop(e);
    mark_of(BAD, &when);
    for (int i = 0; i < 40; i++)
        reads[i] = (struct user_state_read){.coupon = BAD, .user = user_name(i)};
    assert_int_equal(t.plain->user_states(session, when, &t.arena, reads, 40), STORE_OK);
    for (int i = 0; i < 40; i++)
        assert_true(reads[i].user_state && reads[i].user_state->total == 1);
    session->ops->close(session);
}

/* ---- beside a coupon whose views cannot be written ---- */

static void others_go_on(struct engine *e)
{
    struct store_time when;
    int64_t before = mark_of(GOOD, &when);
    int refused, user = 0;

    for (; user < 5; user++) {
        take(e, BAD, user_name(user));
        take(e, GOOD, user_name(user)); /* in the same round */
        assert_int_equal(engine_catch_up(e, GOOD, 0, PATIENCE_MS), STORE_OK);
    }
    assert_true(mark_of(GOOD, &when) >= before + 5);
    refused = atomic_load(&t.refused);
    assert_in_range(refused, 1, 1000000);
    while (atomic_load(&t.refused) == refused) /* it is tried again */
        take(e, GOOD, user_name(user++));
}

static void a_coupon_whose_views_cannot_be_written_delays_no_other(void **state)
{
    struct engine *e = start();
    struct store_time when;
    int64_t bad;

    (void)state;
    create(e, BAD, 64);
    create(e, GOOD, 5000);
    bad = mark_of(BAD, &when);
    atomic_store(&t.refuses, true);
    others_go_on(e);
    assert_int_equal(mark_of(BAD, &when), bad);
    atomic_store(&t.refuses, false);
    assert_int_equal(engine_catch_up(e, BAD, 0, PATIENCE_MS), STORE_OK);
    assert_true(mark_of(BAD, &when) > bad);
    engine_stop(e);
}

static void what_another_left_unwritten_and_cannot_be_written_delays_no_other(void **state)
{
    struct engine *e;
    struct store_time when;
    int64_t bad;

    (void)state;
    leave_unwritten(10);
    bad = mark_of(BAD, &when);
    atomic_store(&t.refuses, true);
    e = start();
    create(e, GOOD, 5000);
    assert_int_equal(engine_catch_up(e, BAD, 0, 100), STORE_FAILED);
    assert_int_equal(engine_catch_up(e, GOOD, 0, PATIENCE_MS), STORE_OK);
    assert_int_equal(mark_of(BAD, &when), bad);
    atomic_store(&t.refuses, false);
    assert_int_equal(engine_catch_up(e, BAD, 0, PATIENCE_MS), STORE_OK);
    engine_stop(e);
}

/* ---- how often ---- */

#define NEVER_MS 1000000
#define ROUND_MS 100       /* as in views.c */
#define FLUSH_ENTRIES 4096 /* as in committer.c */

static void await_view(const char *user, int64_t total)
{
    struct store *session = t.source->open(t.source);
    struct user_state_read read;

    do {
        read = (struct user_state_read){.coupon = GOOD, .user = user};
        assert_int_equal(t.plain->user_states(session, (struct store_time){0}, &t.arena, &read, 1), STORE_OK);
    } while (!read.user_state || read.user_state->total < total);
    assert_int_equal(read.user_state->total, total);
    session->ops->close(session);
}

static void a_user_who_comes_again_is_no_new_view(void **state)
{
    struct engine *e = start_with(NEVER_MS);

    (void)state;
    create(e, GOOD, 64);
    atomic_store(&t.new_users, 0);
    for (int i = 1; i <= 3; i++) {
        take_by(e, GOOD, "again", user_name(i)); /* the window knows who that is: the mark does not move */
        await_view("again", i);
    }
    assert_int_equal(t.new_users, 1);
    engine_stop(e);
}

static void a_new_user_who_comes_twice_in_a_round_is_one_new_view(void **state)
{
    struct engine *e = start_with(NEVER_MS);
    int rounds;

    (void)state;
    create(e, GOOD, 64);
    rounds = t.rounds;
    atomic_store(&t.new_users, 0);
    atomic_store(&t.users, 0);
    atomic_store(&t.waits, true);
    take(e, GOOD, "first");
    while (t.rounds == rounds) /* it is under way, so what follows gathers for the next one */
        nap();
    take_by(e, GOOD, "twice", "one");
    take_by(e, GOOD, "twice", "two");
    atomic_store(&t.waits, false);
    await_view("twice", 2);
    assert_int_equal(t.users, 2);
    assert_int_equal(t.new_users, 2);
    engine_stop(e);
}

static void rounds_are_apart(void **state)
{
    struct engine *e = start_with(NEVER_MS);
    int before, rounds = 4;
    struct mono started;

    (void)state;
    create(e, GOOD, 64000);
    before = t.rounds;
    started = mono_now();
    for (int i = 0; t.rounds - before < rounds; i++, nap())
        take(e, GOOD, arena_printf(&t.arena, "%d", i));
    assert_true(mono_ms_between(started, mono_now()) >= (rounds - 1) * ROUND_MS);
    engine_stop(e);
}

static void what_others_wait_for_is_written_sooner_and_nothing_else(void **state)
{
    struct engine *e = start_with(NEVER_MS);
    struct mono started;
    int before, rounds;

    (void)state;
    create(e, GOOD, 64000);
    create(e, OTHER, 64000);
    atomic_store(&t.asked, true);
    before = t.rounds;
    started = mono_now();
    for (int i = 0; t.alone < 4; i++, nap()) {
        take(e, OTHER, arena_printf(&t.arena, "%d", i));
        take(e, GOOD, arena_printf(&t.arena, "%d", i));
        assert_true(mono_ms_between(started, mono_now()) < PATIENCE_MS);
    }
    rounds = t.rounds - before;
    assert_true(mono_ms_between(started, mono_now()) >= (rounds - 1) * ASKED_MS);
    engine_stop(e);
    assert_int_equal(t.owed, 0);
}

/* Others' waiting makes no more rounds than there are views of theirs. */
static void what_nobody_waits_for_is_not_written_sooner(void **state)
{
    struct engine *e = start_with(NEVER_MS);
    int before, rounds = 4;
    struct mono started;

    (void)state;
    create(e, OTHER, 64000);
    atomic_store(&t.asked, true);
    before = t.rounds;
    started = mono_now();
    for (int i = 0; t.rounds - before < rounds; i++, nap())
        take(e, OTHER, arena_printf(&t.arena, "%d", i));
    assert_true(mono_ms_between(started, mono_now()) >= (rounds - 1) * ROUND_MS);
    engine_stop(e);
}

static void thousands_of_entries_move_the_mark_however_young_they_are(void **state)
{
    struct engine *e = start_with(NEVER_MS);
    int users = 0;

    (void)state;
    create(e, GOOD, 10000);
    atomic_store(&t.marks, 0);
    while (t.marks == 0 && users < FLUSH_ENTRIES + 1000)
        take(e, GOOD, arena_printf(&t.arena, "%d", users++));
    assert_true(users >= FLUSH_ENTRIES);
    while (t.marks == 0) /* who writes them may be late */
        nap();
    engine_stop(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            each_view_that_another_left_unwritten_is_read_once_and_each_batch_folded_where_it_touches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_loads_a_lane_writes_what_another_left_unwritten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_coupon_whose_views_cannot_be_written_delays_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_another_left_unwritten_and_cannot_be_written_delays_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_user_who_comes_again_is_no_new_view, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_user_who_comes_twice_in_a_round_is_one_new_view, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rounds_are_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_others_wait_for_is_written_sooner_and_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_waits_for_is_not_written_sooner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(thousands_of_entries_move_the_mark_however_young_they_are, set_up, tear_down),
    };

    if (sodium_init() < 0 || log_init(NULL, LOG_ERROR) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
