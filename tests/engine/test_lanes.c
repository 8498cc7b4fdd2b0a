/*
 * tests/engine/test_lanes.c -- what takes all lanes of a coupon: with short queues, with another engine that comes between, with
 * views that are late, or cannot be written.
 *
 * Between  before it appends, a door of the first engine may have the second one do something
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include <sodium.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/lane.h"
#include "fake_store.h"

#define COUPON "c1"
#define PATIENCE_MS 20000
#define QUEUE 16

static struct {
    struct fake *fake;
    struct store_source *sources[2];
    struct engine *engines[2];
    struct arena arenas[2];
    /* the first engine's doors */
    struct store_source watched;
    const struct store_ops *plain;
    struct store_ops ops;
    void (*before_append)(const struct batch *b);
    enum cpn_result between;       /* of what the second engine did */
    int taken;                     /* by the second engine */
    bool view_is_late;             /* of the definition: it is that of the first version */
    _Atomic int64_t views_from_ns; /* of the monotonic clock: before, none can be written */
} t;

/* ---- doors that are watched ---- */

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    for (size_t i = 0; i < count && t.before_append; i++)
        t.before_append(appends[i].batch);
    return t.plain->append(s, appends, count);
}

static enum store_status watched_coupon(struct store *s, const char *coupon, struct store_time after, struct arena *a,
                                        struct coupon **definition, int64_t *seq)
{
    enum store_status status = t.plain->coupon(s, coupon, after, a, definition, seq);

    if (t.view_is_late && *definition) {
        (*definition)->version = 1;
        (*definition)->title = "first";
    }
    return status;
}

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    if (mono_now().ns < t.views_from_ns)
        return STORE_FAILED;
    return t.plain->write_views(s, views, count, when);
}

static struct store *open_watched(struct store_source *source)
{
    struct store *door = t.sources[0]->open(t.sources[0]);

    (void)source;
    door->ops = &t.ops;
    return door;
}

static void watch(void)
{
    struct store *door = t.sources[0]->open(t.sources[0]);

    t.plain = door->ops;
    t.ops = *door->ops;
    t.ops.append = watched_append;
    t.ops.coupon = watched_coupon;
    t.ops.write_views = watched_write_views;
    t.watched.open = open_watched;
    door->ops->close(door);
}

/* ---- two engines, and what is asked of them ---- */

static int two_engines(void **state)
{
    const struct engine_config config = {
        .committers = 1, .batch_max = 16, .queue_max = QUEUE, .requests_max = QUEUE, .lanes_max = 8, .window_max = 200,
        .flush_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };

    (void)state;
    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    for (int i = 0; i < 2; i++) {
        arena_init(&t.arenas[i], 0);
        t.sources[i] = fake_connect(t.fake);
    }
    watch();
    for (int i = 0; i < 2; i++)
        t.engines[i] = engine_start(&config, i == 0 ? &t.watched : t.sources[i], NULL);
    return 0;
}

static int stop_engines(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        engine_stop(t.engines[i]);
        fake_disconnect(t.sources[i]);
        arena_free(&t.arenas[i]);
    }
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

static void create(int64_t lanes, int64_t per_day)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .definition = &coupon};

    coupon_init(&coupon);
    coupon.id = COUPON;
    coupon.title = "first";
    coupon.state = COUPON_ACTIVE;
    coupon.cap.total = 1000;
    coupon.cap.per_day = per_day;
    coupon.lanes = lanes;
    assert_int_equal(call(0, &op), CPN_OK);
}

static void generate(int64_t count)
{
    struct op op = {.kind = OP_GENERATE, .job = "j", .step = 1, .count = count};

    assert_int_equal(call(0, &op), CPN_OK);
}

static const struct coupon *look(int engine)
{
    struct op op = {.kind = OP_COUPON};

    return call(engine, &op) == CPN_OK ? op.coupon_now : NULL;
}

static enum cpn_result retitle(int engine, const char *title)
{
    struct op op = {.kind = OP_CHANGE, .definition = coupon_copy(look(engine), &t.arenas[engine])};

    op.definition->title = title;
    op.expected_version = op.definition->version;
    return call(engine, &op);
}

static enum cpn_result take(int engine, const char *user)
{
    struct op op = {.kind = OP_TAKE, .user = user};

    op.take = (struct take){.key = user, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    return call(engine, &op);
}

/* ---- following ---- */

static void as_many_lanes_as_there_may_be_follow_though_queues_are_short(void **state)
{
    static const char *const users[] = {"ann", "bob", "cyd", "dan", "eve"};
    struct op op = {.kind = OP_FOLLOW};

    (void)state;
    create(COUPON_LANES_MAX, 100);
    generate(10 * COUPON_LANES_MAX);
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        assert_int_equal(take(0, users[i]), CPN_OK);
    assert_int_equal(retitle(0, "another"), CPN_OK);
    assert_int_equal(call(1, &op), CPN_OK);
    assert_string_equal(look(1)->title, "another");
}

static void a_lane_waits_for_the_definition_that_it_follows(void **state)
{
    struct lane *l = lane_new(COUPON, 1);
    struct store *door = t.watched.open(&t.watched);

    (void)state;
    create(2, COUPON_NULL);
    assert_int_equal(retitle(0, "another"), CPN_OK);
    for (int64_t lane = 0; lane < 2; lane++)
        assert_int_equal(engine_catch_up(t.engines[0], COUPON, lane, ENGINE_CATCH_UP_MS), STORE_OK);
    t.view_is_late = true;
    assert_int_equal(lane_load(l, door), STORE_FAILED);
    assert_false(l->loaded);
    t.view_is_late = false;
    assert_int_equal(lane_load(l, door), STORE_OK);
    assert_int_equal(l->definition->version, 2);
    lane_free(l);
    door->ops->close(door);
}

/* ---- catching up ---- */

#define WITHOUT_VIEWS_MS 6000
#define WAITS_MS 200

static void who_waits_for_views_that_cannot_be_written_is_answered(void **state)
{
    (void)state;
    create(1, COUPON_NULL);
    generate(10);
    assert_int_equal(take(0, "ann"), CPN_OK); /* its bucket is at hand */
    t.views_from_ns = mono_add_ms(mono_now(), WITHOUT_VIEWS_MS).ns;
    assert_int_equal(take(0, "bob"), CPN_OK);
    assert_int_equal(engine_catch_up(t.engines[0], COUPON, 0, WAITS_MS), STORE_FAILED);
    assert_true(mono_now().ns < t.views_from_ns);
    t.views_from_ns = 0;
    assert_int_equal(engine_catch_up(t.engines[0], COUPON, 0, PATIENCE_MS), STORE_OK);
}

/* ---- refilling ---- */

static void generate_before_it_is_asked_for(const struct batch *b)
{
    struct op op = {.kind = OP_GENERATE, .job = "j", .step = 1, .count = 30};

    if (b->entries[0].kind != ENTRY_REPLENISH)
        return;
    t.before_append = NULL;
    t.between = call(1, &op);
}

static void slots_that_come_before_they_are_asked_for_are_not_asked_for_again(void **state)
{
    struct op op = {.kind = OP_CHANGE}, told = {.kind = OP_COUPON};

    (void)state;
    create(3, COUPON_NULL);
    op.definition = coupon_copy(look(0), &t.arenas[0]);
    op.definition->replenish.below = 20;
    op.definition->replenish.add = 30;
    op.expected_version = 1;
    t.before_append = generate_before_it_is_asked_for;
    assert_int_equal(call(0, &op), CPN_OK);
    do
        assert_int_equal(call(0, &told), CPN_OK); /* in lane 0 after the question whether few are left */
    while (!head_free(&told.head));
    assert_int_equal(t.between, CPN_OK);
    assert_int_equal(told.head.slots, 30);
    assert_int_equal(told.head.replenish_until, 0);
}

/* ---- lowering ---- */

#define STOCK 300
#define LOWERED 5
#define TAKEN_MEANWHILE_MOST 100 /* what lanes gave each other once, and the takings between */

static void take_before_slots_move(const struct batch *b)
{
    static const char *const users[] = {"ann", "bob", "cyd"}; /* of all lanes */

    if (b->entries[0].kind != ENTRY_GIVE && b->entries[0].kind != ENTRY_GET)
        return;
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        t.taken += take(1, arena_printf(&t.arenas[1], "%s-%d", users[i], t.taken)) == CPN_OK;
}

static void a_cap_that_is_passed_while_slots_come_is_refused_at_once(void **state)
{
    struct op op = {.kind = OP_CHANGE};

    (void)state;
    create(3, COUPON_NULL);
    generate(STOCK);
    op.definition = coupon_copy(look(0), &t.arenas[0]);
    op.definition->cap.total = LOWERED;
    op.expected_version = 1;
    t.before_append = take_before_slots_move;
    assert_int_equal(call(0, &op), CPN_CAP_BELOW_TAKEN);
    assert_in_range(t.taken, LOWERED + 1, TAKEN_MEANWHILE_MOST);
}

/* ---- deleting ---- */

/* In lane 0 the coupon gets this state. */
static bool gives_state(const struct batch *b, enum coupon_state state)
{
    return b->lane == 0 && b->entries[0].kind == ENTRY_DEFINE && b->entries[0].definition->state == (int64_t)state;
}

static void change_before_it_is_paused(const struct batch *b)
{
    if (!gives_state(b, COUPON_PAUSED))
        return;
    t.before_append = NULL;
    t.between = retitle(1, "another");
}

static void change_before_it_is_active_again(const struct batch *b)
{
    if (!gives_state(b, COUPON_ACTIVE))
        return;
    t.before_append = NULL;
    t.between = retitle(1, "another");
}

static void take_before_it_is_paused(const struct batch *b)
{
    if (!gives_state(b, COUPON_PAUSED))
        return;
    t.before_append = change_before_it_is_active_again;
    t.between = take(1, "ann");
}

static void a_change_that_comes_between_is_not_in_the_way_of_a_deletion(void **state)
{
    struct op op = {.kind = OP_DELETE};

    (void)state;
    create(3, COUPON_NULL);
    t.before_append = change_before_it_is_paused;
    assert_int_equal(call(0, &op), CPN_OK);
    assert_null(t.before_append);
    assert_int_equal(t.between, CPN_OK);
    assert_null(look(1));
}

static void what_is_taken_before_it_can_be_deleted_leaves_it_active(void **state)
{
    struct op op = {.kind = OP_DELETE};

    (void)state;
    create(3, COUPON_NULL);
    generate(30);
    t.between = CPN_BUSY;
    t.before_append = take_before_it_is_paused;
    assert_int_equal(call(0, &op), CPN_COUPON_IN_USE);
    assert_null(t.before_append);
    assert_int_equal(t.between, CPN_OK);
    assert_int_equal(look(1)->state, COUPON_ACTIVE);
    assert_string_equal(look(1)->title, "another");
    assert_int_equal(take(1, "bob"), CPN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_many_lanes_as_there_may_be_follow_though_queues_are_short, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(a_lane_waits_for_the_definition_that_it_follows, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(who_waits_for_views_that_cannot_be_written_is_answered, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(slots_that_come_before_they_are_asked_for_are_not_asked_for_again, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(a_cap_that_is_passed_while_slots_come_is_refused_at_once, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(a_change_that_comes_between_is_not_in_the_way_of_a_deletion, two_engines, stop_engines),
        cmocka_unit_test_setup_teardown(what_is_taken_before_it_can_be_deleted_leaves_it_active, two_engines, stop_engines),
    };

    if (sodium_init() < 0 || log_init(NULL, LOG_ERROR) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
