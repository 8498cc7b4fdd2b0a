/*
 * tests/engine/test_lanes.c -- what takes all lanes of a coupon: with short queues, with another engine that comes between, with
 * views that are late, or cannot be written.
 *
 * Between  before it appends, or reads a lane's ledger, a session of the first engine may have the second one do something
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/metrics.h"
#include "coupons/transfer.h"
#include "engine/internal.h"
#include "engine/lane.h"
#include "engine/round.h"
#include "lanes/lanes.h"
#include "rig.h"

#define QUEUE 16
#define LANES_MOST 8

static struct {
    /* the first engine's sessions */
    void (*_Atomic before_append)(const struct batch *b); /* set while the engine looks after its lanes by itself */
    void (*_Atomic before_ledger)(int64_t lane);
    const char *_Atomic stuck;     /* nothing that is appended to this coupon arrives */
    atomic_int lost;               /* of its batches */
    enum cpn_result between;       /* of what the second engine did */
    int taken;                     /* by the second engine */
    int users;                     /* named so far */
    bool deletes;                  /* what the first engine does to lane 0 */
    int64_t redo_before;           /* entries in redo logs, before the test */
    _Atomic int64_t redo_most;     /* since; as seen before an append */
    atomic_bool deaf;                    /* it hears of no batch of others */
    atomic_bool definition_is_late;      /* of the definition: it is that of the first version */
    _Atomic int64_t unread;        /* no ledger of this lane can be read; 0: of all lanes it can */
    _Atomic int64_t parts_from_ns; /* of the monotonic clock: before, none can be written */
} t;
/* clang takes no NULL for an atomic pointer to a function. */
static void (*const no_append_hook)(const struct batch *b) = NULL;
static void (*const no_ledger_hook)(int64_t lane) = NULL;

/* ---- sessions that are watched ---- */

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    const char *stuck = t.stuck;
    enum store_status status = STORE_OK;
    int64_t redo = metrics_get(METRIC_REDO_ENTRIES) - t.redo_before;

    if (redo > t.redo_most)
        t.redo_most = redo;

    for (size_t i = 0; i < count; i++) {
        void (*before)(const struct batch *b) = t.before_append; /* it may take itself away */

        if (before)
            before(appends[i].batch);
    }
    if (!stuck)
        return rig.watched[0].plain->append(s, appends, count);
    for (size_t i = 0; i < count; i++) {
        appends[i].result = APPEND_UNKNOWN;
        if (strcmp(appends[i].batch->coupon, stuck) == 0) {
            t.lost++;
            status = STORE_FAILED;
        } else if (rig.watched[0].plain->append(s, &appends[i], 1) != STORE_OK) {
            status = STORE_FAILED;
        }
    }
    return status;
}

static enum store_status watched_ledger(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                        struct batch **batches, size_t *count)
{
    void (*before)(int64_t lane) = t.before_ledger;

    if (before)
        before(lane);
    if (t.unread && lane == t.unread) {
        *count = 0;
        return STORE_UNREADABLE;
    }
    return rig.watched[0].plain->ledger(s, coupon, lane, after, most, batches, count);
}

static enum store_status watched_ledgers(struct store *s, struct ledger_read *reads, size_t count)
{
    void (*before)(int64_t lane) = t.before_ledger;

    enum store_status status;

    for (size_t i = 0; i < count && before; i++)
        before(reads[i].lane);
    status = rig.watched[0].plain->ledgers(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (!t.unread || reads[i].lane != t.unread)
            continue;
        while (reads[i].count)
            batch_free(reads[i].batches[--reads[i].count]);
        reads[i].status = STORE_UNREADABLE;
    }
    return status;
}

static void let_definition_be_late(struct coupon *definition)
{
    if (!t.definition_is_late || !definition)
        return;
    definition->version = 1;
    definition->title = "first";
}

static enum store_status watched_coupons(struct store *s, struct coupon_read *reads, size_t count)
{
    enum store_status status = rig.watched[0].plain->coupons(s, reads, count);

    for (size_t i = 0; i < count; i++)
        let_definition_be_late(reads[i].definition);
    return status;
}

static int watched_hear(struct store *s, struct heard *heard)
{
    if (!atomic_load(&t.deaf))
        return rig.watched[0].plain->hear(s, heard);
    rig_nap();
    return 0;
}

static enum store_status watched_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    if (mono_now().ns < t.parts_from_ns)
        return STORE_FAILED;
    return rig.watched[0].plain->write_views(s, views, count, when);
}

#define HOUR_MS (INT64_C(3600) * 1000)
#define EARLIER_ZONE "Europe/Berlin" /* here its days begin an hour earlier than all others */

static int64_t day_of(const char *zone, int64_t at_ms)
{
    int64_t earlier = strcmp(zone, EARLIER_ZONE) == 0 ? HOUR_MS : 0;

    return (at_ms + earlier) / DAY_MS * DAY_MS - earlier;
}

static enum store_status watched_day(struct store *s, const char *zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms)
{
    (void)s;
    *start_ms = day_of(zone, at_ms);
    *end_ms = *start_ms + DAY_MS;
    return STORE_OK;
}

static void watch(struct store_ops *ops)
{
    ops->append = watched_append;
    ops->ledger = watched_ledger;
    ops->ledgers = watched_ledgers;
    ops->coupons = watched_coupons;
    ops->day = watched_day;
    ops->write_views = watched_write_views;
    ops->hear = watched_hear;
    t.redo_before = metrics_get(METRIC_REDO_ENTRIES);
}

/* ---- two engines, and what is asked of them ---- */

static int start_two(int redo_max_all)
{
    memset(&t, 0, sizeof t);
    rig_connect(2, 1, 0);
    rig.config = (struct engine_config){
        .batch_max = 16, .queue_max = QUEUE, .requests_max = QUEUE, .lanes_max = LANES_MOST, .redo_max = 200,
        .redo_max_all = redo_max_all, .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    watch(&rig.watched[0].ops);
    rig_start(lanes_start);
    return 0;
}

FIXTURE(two_engines)
{
    return start_two(0);
}

#define WINDOWS 60 /* entries of all lanes together */
#define ROUND 48   /* that may come at once: one batch of each lane that is asked */

FIXTURE(two_engines_with_small_windows)
{
    return start_two(WINDOWS);
}

static void create(int64_t lanes, int64_t per_day)
{
    struct coupon coupon;

    open_coupon(&coupon, rig.coupon);
    coupon.cap.total = 1000;
    coupon.cap.per_day = per_day;
    coupon.lanes = lanes;
    rig_create(&coupon);
}

static void generate(int64_t count)
{
    rig_ask(0, &(struct op){.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = count}});
}

static const struct coupon *look(int engine)
{
    struct op op = {.kind = OP_COUPON};

    return rig_call(engine, &op) == CPN_OK ? op.coupon_now : NULL;
}

/* A change of the coupon as this engine has it: the definition is the test's to change. */
static struct op change_of(int engine)
{
    struct op op = {.kind = OP_CHANGE, .in.coupon.definition = coupon_copy(look(engine), &rig.arenas[engine])};

    op.in.coupon.expected_version = op.in.coupon.definition->version;
    return op;
}

static enum cpn_result retitle(int engine, const char *title)
{
    struct op op = change_of(engine);

    op.in.coupon.definition->title = title;
    return rig_call(engine, &op);
}

static enum cpn_result take(int engine, const char *user)
{
    struct op op = rig_taking(user, user, SLOT_REDEEMED);

    return rig_call(engine, &op);
}

static void one_done(struct op *op)
{
    latch_down(op->context);
}

/* Of op->lane alone, as if whoever asked it died then. */
static enum cpn_result call_lane(int engine, struct op *op)
{
    struct latch done;

    latch_init(&done, 1);
    op->coupon = rig.coupon;
    op->arena = &rig.arenas[engine];
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    op->done = one_done;
    op->context = &done; // cppcheck-suppress autoVariables
    engine_ask(rig.engines[engine], op);
    latch_wait(&done);
    op->context = NULL;
    return op->outcome.result;
}

/* Another one each time. */
static const char *user_of_lane(int engine, int64_t lane, int64_t lanes)
{
    const char *user;

    do
        user = arena_printf(&rig.arenas[engine], "user-%d", t.users++);
    while (coupon_lane_of(user, lanes) != lane);
    return user;
}

static void create_approximate(int64_t lanes, int64_t total)
{
    struct coupon coupon;

    open_coupon(&coupon, rig.coupon);
    coupon.cap.policy = CAP_APPROXIMATE;
    coupon.cap.total = total;
    coupon.lanes = lanes;
    rig_create(&coupon);
}

/* ---- following ---- */

TEST(as_many_lanes_as_there_may_be_follow_though_queues_are_short)
{
    static const char *const users[] = {"ann", "bob", "cyd", "dan", "eve"};
    struct op op = {.kind = OP_FOLLOW};

    create(COUPON_LANES_MAX, COUPON_NULL);
    generate(10 * COUPON_LANES_MAX);
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        assert_int_equal(take(0, users[i]), CPN_OK);
    assert_int_equal(retitle(0, "another"), CPN_OK);
    rig_ask(1, &op);
    assert_string_equal(look(1)->title, "another");
}

TEST(a_lane_waits_for_the_definition_that_it_follows)
{
    struct filter_room room = {.bytes_max = 0};
    struct user_cache users = {.bytes_max = 0};
    struct lane *l = lane_new(COUPON, 1, &room, &users);
    struct lane_loading load = {.lane = l};
    struct store *session = rig.watched[0].source.open(&rig.watched[0].source);

    create(2, COUPON_NULL);
    assert_int_equal(retitle(0, "another"), CPN_OK);
    for (int64_t lane = 0; lane < 2; lane++)
        assert_int_equal(engine_catch_up(rig.engines[0], COUPON, lane, ENGINE_CATCH_UP_MS), STORE_OK);
    t.definition_is_late = true;
    lane_load(session, &load, 1);
    assert_int_equal(load.status, STORE_FAILED);
    assert_false(l->loaded);
    t.definition_is_late = false;
    lane_load(session, &load, 1);
    assert_int_equal(load.status, STORE_OK);
    assert_int_equal(l->definition->version, 2);
    lane_free(l);
    session->ops->close(session);
}

/* ---- several coupons ---- */

static atomic_bool slow_is_done;

static void note_done(struct op *op)
{
    (void)op;
    slow_is_done = true;
}

TEST(what_one_coupon_waits_for_is_not_in_another_ones_way)
{
    struct op slow;
    struct arena arena;

    arena_init(&arena, 0);
    create(3, COUPON_NULL);
    slow = change_of(0);
    slow.in.coupon.definition->title = "slow";
    slow.coupon = COUPON;
    slow.arena = &arena;
    rig.coupon = "c2";
    create(3, COUPON_NULL);
    t.stuck = COUPON;
    slow_is_done = false;
    rig_submit(0, &slow, note_done, NULL);
    while (!t.lost)
        rig_nap();
    assert_int_equal(retitle(0, "another"), CPN_OK);
    rig.coupon = "c3";
    create(3, COUPON_NULL);
    assert_false(slow_is_done);
    t.stuck = NULL;
    while (!slow_is_done)
        rig_nap();
    assert_int_equal(slow.outcome.result, CPN_OK);
    arena_free(&arena);
}

/* ---- days ---- */

/* Somebody else's batch: nothing but that it is later. */
static void pass_time(struct store *session, int64_t at_ms, int64_t day_ms)
{
    struct batch *last[16], *b = batch_new(COUPON, 0);
    struct append append = {.batch = b};
    size_t count;

    assert_int_equal(session->ops->ledger(session, COUPON, 0, 0, sizeof last / sizeof *last, last, &count), STORE_OK);
    b->head = last[count - 1]->head;
    memcpy(b->prev, b->head.hash, HASH_LEN);
    b->head.seq++;
    b->head.hash[0]++;
    if (b->head.day_ms != day_ms)
        b->head.day_taken = 0;
    b->head.at_ms = at_ms;
    b->head.day_ms = day_ms;
    b->id[0] = (uint8_t)b->head.seq;
    batch_add(b, ENTRY_TICK);
    session->ops->append(session, &append, 1);
    assert_int_equal(append.result, APPEND_OURS);
    for (size_t i = 0; i < count; i++)
        batch_free(last[i]);
    batch_free(b);
}

TEST(a_day_ends_with_its_last_millisecond)
{
    struct store *session = rig.sources[0]->open(rig.sources[0]);
    int64_t day_ms = day_of("UTC", clock_now_ms()) + DAY_MS, end_ms = day_ms + DAY_MS; /* tomorrow: a lane's time is its last batch's */

    create(1, 1);
    generate(10);
    pass_time(session, day_ms, day_ms);
    assert_int_equal(take(0, "ann"), CPN_OK);
    pass_time(session, end_ms - 1, day_ms);
    t.between = take(0, "bob");
    assert_int_not_equal(t.between, CPN_OK);
    pass_time(session, end_ms, day_ms); /* it does not say itself that another day has begun */
    assert_int_equal(take(0, "cyd"), CPN_OK);
    assert_int_equal(take(0, "dan"), CPN_DAILY_CAP_REACHED);
    session->ops->close(session);
}

static struct op zone_change, zone_take;
static int64_t taking_day_ms, taking_at_ms;
static atomic_int zone_ops_done;

static void note_zone_op(struct op *op)
{
    (void)op;
    zone_ops_done++;
}

static void note_taking(const struct batch *b)
{
    if (b->entries[b->count - 1].kind != ENTRY_REDEEM)
        return;
    taking_day_ms = b->head.day_ms;
    taking_at_ms = b->head.at_ms;
}

/* Both come while something is appended: then they are asked for together. */
static void ask_for_both(const struct batch *b)
{
    (void)b;
    t.before_append = note_taking;
    rig_submit(0, &zone_change, note_zone_op, NULL);
    rig_submit(0, &zone_take, note_zone_op, NULL);
}

TEST(a_taking_behind_a_change_of_time_zone_is_of_the_new_ones_day)
{
    struct coupon coupon;
    struct arena arenas[2];

    open_coupon(&coupon, COUPON);
    coupon.cap.policy = CAP_NONE;
    rig_create(&coupon);
    for (int i = 0; i < 2; i++)
        arena_init(&arenas[i], 0);
    zone_ops_done = 0;
    zone_change = change_of(0);
    zone_change.arena = &arenas[0];
    zone_change.in.coupon.definition->time_zone = EARLIER_ZONE;
    zone_change.in.coupon.expected_version = 2;
    zone_take = rig_taking("ann", "ann", SLOT_REDEEMED);
    zone_take.arena = &arenas[1];
    t.before_append = ask_for_both;
    assert_int_equal(retitle(0, "another"), CPN_OK);
    while (zone_ops_done < 2)
        rig_nap();
    assert_int_equal(zone_change.outcome.result, CPN_OK);
    assert_int_equal(zone_take.outcome.result, CPN_OK);
    assert_int_equal(taking_day_ms, day_of(EARLIER_ZONE, taking_at_ms));
    for (int i = 0; i < 2; i++)
        arena_free(&arenas[i]);
}

/* ---- catching up ---- */

#define WAITS_MS 200

TEST(who_waits_for_views_that_cannot_be_written_is_answered)
{
    create(1, COUPON_NULL);
    generate(10);
    assert_int_equal(take(0, "ann"), CPN_OK); /* its bucket is at hand */
    t.parts_from_ns = INT64_MAX;
    assert_int_equal(take(0, "bob"), CPN_OK);
    assert_int_equal(engine_catch_up(rig.engines[0], COUPON, 0, WAITS_MS), STORE_FAILED);
    t.parts_from_ns = 0;
    rig_catch_up(0);
}

/* ---- codes ---- */

static void take_with_its_code(const char *user)
{
    struct op op = rig_taking(user, user, SLOT_REDEEMED);

    rig_ask(0, &op);
    assert_string_equal(op.outcome.redemption.code,
                        arena_printf(&rig.arenas[0], "CODE%lld", (long long)op.outcome.redemption.n));
}

/* The free pool held slots of a bucket whose codes are read again, since it has grown. Half of it before, half of it after. */
TEST(slots_go_out_with_their_codes_also_when_their_bucket_has_grown)
{
    struct coupon coupon;

    open_coupon(&coupon, COUPON);
    coupon.codes.source = CODES_IMPORTED;
    coupon.cap.total = 1000;
    rig_create(&coupon);
    rig_generate(&coupon, 1, BUCKET_SLOTS / 2);
    take_with_its_code("ann");
    rig_generate(&coupon, 2, BUCKET_SLOTS / 2);
    for (int i = 1; i < BUCKET_SLOTS; i++)
        take_with_its_code(arena_printf(&rig.arenas[0], "user-%d", i));
    assert_int_equal(take(0, "bob"), CPN_SOLD_OUT);
}

#define COUPONS 4
#define HELD_MS 2000     /* who is not answered by then is held */
#define TAKINGS_MOST 100 /* of one coupon; a lane alone would hold as many */

/* Until its lane is held, or as often. */
static void take_until_held(const char *coupon)
{
    enum cpn_result r = CPN_OK;

    for (int i = 0; i < TAKINGS_MOST && r == CPN_OK; i++) {
        const char *user = arena_printf(&rig.arenas[0], "u%d", i);
        struct op op = rig_taking(user, user, SLOT_REDEEMED);

        op.coupon = coupon;
        r = rig_call_within(0, &op, HELD_MS);
    }
}

TEST_WITH(windows_together_are_bounded_and_the_largest_waits_first, two_engines_with_small_windows, rig_end)
{
    static const char *const coupons[COUPONS] = {"c1", "c2", "c3", "c4"};

    for (int i = 0; i < COUPONS; i++) {
        rig.coupon = coupons[i];
        create(1, COUPON_NULL);
        generate(2 * TAKINGS_MOST);
        assert_int_equal(take(0, "first"), CPN_OK);
        rig_catch_up(0);
    }
    t.parts_from_ns = INT64_MAX;
    take_until_held("c1");
    rig.coupon = "c2";
    assert_int_equal(take(0, "ann"), CPN_OK);
    for (int i = 0; i < COUPONS; i++)
        take_until_held(coupons[i]);
    assert_in_range(t.redo_most, WINDOWS / 2, WINDOWS + ROUND);
    t.parts_from_ns = 0;
    for (int i = 0; i < COUPONS; i++) {
        rig.coupon = coupons[i];
        assert_int_equal(take(0, "bob"), CPN_OK);
    }
}

/* ---- refilling ---- */

static void generate_before_it_is_asked_for(const struct batch *b)
{
    struct op op = {.kind = OP_GENERATE, .in.job = {.id = "j", .step = 1, .count = 30}};

    if (b->entries[0].kind != ENTRY_REPLENISH)
        return;
    t.before_append = no_append_hook;
    t.between = rig_call(1, &op);
}

TEST(slots_that_come_before_they_are_asked_for_are_not_asked_for_again)
{
    struct op op;
    struct head reported;

    create(3, COUPON_NULL);
    op = change_of(0);
    op.in.coupon.definition->replenish.below = 20;
    op.in.coupon.definition->replenish.add = 30;
    t.before_append = generate_before_it_is_asked_for;
    rig_ask(0, &op);
    do
        reported = rig_head(0); /* in lane 0 after the question whether few are left */
    while (!head_free(&reported));
    assert_int_equal(t.between, CPN_OK);
    assert_int_equal(reported.slots, 30);
    assert_int_equal(reported.replenish_until, 0);
}

/* ---- lowering ---- */

#define STOCK 300
#define LOWERED 5
#define TAKEN_MEANWHILE_MOST 100 /* what was moved, and the takings between */

static void take_before_slots_move(const struct batch *b)
{
    static const char *const users[] = {"ann", "bob", "cyd"}; /* of all lanes */

    if (!job_transfers(b->entries[0].job))
        return;
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        t.taken += take(1, arena_printf(&rig.arenas[1], "%s-%d", users[i], t.taken)) == CPN_OK;
}

TEST(a_cap_that_is_passed_while_slots_come_is_refused_at_once)
{
    struct op op;

    create(3, COUPON_NULL);
    generate(STOCK);
    for (int64_t lane = 0; lane < 3; lane++, t.taken++) /* each lane has some */
        assert_int_equal(take(1, user_of_lane(1, lane, 3)), CPN_OK);
    op = change_of(0);
    op.in.coupon.definition->cap.total = LOWERED;
    t.before_append = take_before_slots_move;
    assert_int_equal(rig_call(0, &op), CPN_CAP_BELOW_TAKEN);
    assert_in_range(t.taken, LOWERED + 1, TAKEN_MEANWHILE_MOST);
}

/* ---- looking for what a lane lacks ---- */

#define MOVES 500 /* of the slot: more than there are tries to find it before the request goes back to its lane */
#define SEARCH_MS 120000

/* The only free slot: always in one of two lanes, and never in the one that the first engine is about to read. */
static struct {
    int64_t free_in;          /* the lane; in the other one its holder has what there is */
    struct redemption held;   /* there */
    int moves;
} slot;

/* The first user of that name who is in this one of two lanes. */
static const char *first_of_lane(int engine, const char *name, int64_t lane)
{
    const char *user;
    int i = 0;

    do
        user = arena_printf(&rig.arenas[engine], "%s-%d", name, i++);
    while (coupon_lane_of(user, 2) != lane);
    return user;
}

static void take_of_lane(int64_t lane)
{
    const char *user = first_of_lane(1, "holder", lane);
    struct op op = rig_taking(user, arena_printf(&rig.arenas[1], "k%d-%d", (int)lane, slot.moves), SLOT_REDEEMED);

    rig_ask(1, &op);
    slot.held = op.outcome.redemption;
}

static void give_back(void)
{
    struct op op = rig_step(&slot.held, MOVE_REVERSE, NULL);

    rig_ask(1, &op);
}

/* First one is free in the other lane, then it is taken in this one: at no time is none free. */
static void move_slot_away_from(int64_t lane)
{
    if (lane != slot.free_in || slot.moves == MOVES)
        return;
    slot.moves++;
    give_back();
    take_of_lane(lane);
    slot.free_in = 1 - lane;
}

TEST(what_is_always_free_in_some_lane_is_never_sold_out)
{
    struct op op = rig_taking(first_of_lane(0, "eve", 1), "k", SLOT_REDEEMED);
    struct redemption in_lane_1;

    memset(&slot, 0, sizeof slot);
    create(2, COUPON_NULL);
    generate(2);
    take_of_lane(1);
    assert_int_equal(lane_of_slot(slot.held.n), 1);
    in_lane_1 = slot.held;
    take_of_lane(0);
    assert_int_equal(lane_of_slot(slot.held.n), 0);
    assert_non_null(look(0)); /* the first engine knows both lanes, and that nothing is free */
    give_back();
    slot.held = in_lane_1;
    slot.free_in = 0;
    t.before_ledger = move_slot_away_from;
    assert_int_equal(rig_call_within(0, &op, SEARCH_MS), CPN_OK);
    assert_int_equal(slot.moves, MOVES);
    t.before_ledger = no_ledger_hook;
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
    t.before_append = no_append_hook;
    t.between = retitle(1, "another");
}

static void change_before_it_is_active_again(const struct batch *b)
{
    if (!gives_state(b, COUPON_ACTIVE))
        return;
    t.before_append = no_append_hook;
    t.between = retitle(1, "another");
}

static void take_before_it_is_paused(const struct batch *b)
{
    if (!gives_state(b, COUPON_PAUSED))
        return;
    t.before_append = change_before_it_is_active_again;
    t.between = take(1, user_of_lane(1, 1, 3));
}

TEST(a_change_that_comes_between_is_not_in_the_way_of_a_deletion)
{
    struct op op = {.kind = OP_DELETE};

    create(3, COUPON_NULL);
    t.before_append = change_before_it_is_paused;
    rig_ask(0, &op);
    assert_null(t.before_append);
    assert_int_equal(t.between, CPN_OK);
    assert_null(look(1));
}

TEST(what_is_taken_before_it_can_be_deleted_leaves_it_active)
{
    struct op op = {.kind = OP_DELETE};

    atomic_store(&t.deaf, true);
    create(3, COUPON_NULL);
    generate(30);
    t.between = CPN_BUSY;
    t.before_append = take_before_it_is_paused;
    assert_int_equal(rig_call(0, &op), CPN_COUPON_IN_USE);
    assert_null(t.before_append);
    assert_int_equal(t.between, CPN_OK);
    assert_int_equal(look(1)->state, COUPON_ACTIVE);
    assert_string_equal(look(1)->title, "another");
    assert_int_equal(take(1, "bob"), CPN_OK);
}

/* Lane 0 knows nothing of it, and has not heard of it. */
TEST(what_another_lane_gave_is_not_deleted)
{
    struct op op = {.kind = OP_DELETE};

    atomic_store(&t.deaf, true);
    create(3, COUPON_NULL);
    generate(30);
    assert_int_equal(take(1, user_of_lane(1, 2, 3)), CPN_OK);
    assert_int_equal(rig_call(0, &op), CPN_COUPON_IN_USE);
    assert_int_equal(look(1)->state, COUPON_ACTIVE);
}

/* Whoever did it died before the other lanes followed. */
static void set_state_of_lane_0(enum coupon_state state)
{
    struct op op = change_of(0);

    op.in.coupon.definition->state = state;
    assert_int_equal(call_lane(0, &op), CPN_OK);
}

static void take_before_lane_0_is_changed(const struct batch *b)
{
    if (b->lane != 0 || b->entries[0].kind != (t.deletes ? ENTRY_DELETE : ENTRY_DEFINE))
        return;
    t.before_append = no_append_hook;
    t.between = take(1, user_of_lane(1, 1, 3));
}

/* Both engines have all lanes in memory. */
static void create_with_lane_0_ahead(enum coupon_state state)
{
    create_approximate(3, 100);
    assert_non_null(look(1));
    set_state_of_lane_0(state);
    t.between = CPN_BUSY;
    t.before_append = take_before_lane_0_is_changed;
}

TEST(what_was_paused_or_ended_in_lane_0_alone_is_not_deleted_while_others_sell)
{
    EACH_ANEW(ended, 2, two_engines, rig_end) {
        struct op op = {.kind = OP_DELETE};

        t.deletes = true;
        create_with_lane_0_ahead(ended ? COUPON_ENDED : COUPON_PAUSED);
        rig_ask(0, &op);
        assert_int_equal(t.between, ended ? CPN_COUPON_ENDED : CPN_COUPON_NOT_ACTIVE);
    }
}

TEST(a_fixed_field_is_not_changed_while_lanes_that_did_not_follow_sell)
{
    struct op op;

    create_with_lane_0_ahead(COUPON_PAUSED);
    op = change_of(0);
    op.in.coupon.definition->time_zone = EARLIER_ZONE;
    rig_ask(0, &op);
    assert_int_equal(t.between, CPN_COUPON_NOT_ACTIVE);
}

/* ---- approximate caps ---- */

#define CAP 6
#define MOMENT_MS 100

TEST(who_changed_an_approximate_coupon_hears_what_others_take)
{
    create_approximate(2, CAP);
    assert_int_equal(retitle(0, "another"), CPN_OK); /* in all lanes of this engine */
    for (int i = 0; i < CAP; i++)
        assert_int_equal(take(1, user_of_lane(1, 1, 2)), CPN_OK);
    assert_int_equal(take(0, user_of_lane(0, 0, 2)), CPN_SOLD_OUT);
}

TEST(a_lane_that_was_not_heard_leaves_an_approximate_cap_unsaid)
{
    create_approximate(2, CAP);
    for (int i = 0; i < CAP; i++)
        assert_int_equal(take(1, user_of_lane(1, 1, 2)), CPN_OK);
    t.unread = 1;
    for (int i = 0; i < 3; i++) {
        const char *user = user_of_lane(0, 0, 2);
        struct op op = rig_taking(user, user, SLOT_REDEEMED);

        assert_int_equal(rig_call_within(0, &op, MOMENT_MS), CPN_BUSY);
    }
    t.unread = 0;
    assert_int_equal(take(0, user_of_lane(0, 0, 2)), CPN_SOLD_OUT);
}

/* ---- closing ---- */

static enum cpn_result set_state(int engine, enum coupon_state state)
{
    struct op op = change_of(engine);

    op.in.coupon.definition->state = state;
    return rig_call(engine, &op);
}

static enum cpn_result archive(int engine, int64_t version)
{
    struct op op = {.kind = OP_ARCHIVE, .in.coupon.expected_version = version};

    return rig_call(engine, &op);
}

static bool closes(const struct batch *b, int64_t lane)
{
    return b->lane == lane && b->entries[b->count - 1].kind == ENTRY_ARCHIVE;
}

static void open_again_before_it_is_closed(const struct batch *b)
{
    if (!closes(b, 0))
        return;
    t.before_append = no_append_hook;
    t.between = set_state(1, COUPON_ACTIVE);
}

/* A user of each lane, and one batch in each. */
static void take_in_each(int engine, int64_t lanes, enum cpn_result expected)
{
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int i = 0;; i++) {
            const char *user = arena_printf(&rig.arenas[engine], "user-%d-%d", engine, i);

            if (coupon_lane_of(user, lanes) != lane)
                continue;
            assert_int_equal(take(engine, user), expected);
            break;
        }
}

/* An engine that has every lane in memory, and slept while another one closed them, does not know: only an occupied seq tells it. */
TEST(who_slept_while_it_was_closed_is_refused_by_every_lane)
{
    create(3, COUPON_NULL);
    generate(30);
    take_in_each(0, 3, CPN_OK);
    assert_int_equal(archive(1, look(1)->version), CPN_COUPON_IN_USE);
    assert_int_equal(set_state(1, COUPON_ENDED), CPN_OK);
    take_in_each(1, 3, CPN_COUPON_ENDED);
    assert_int_equal(archive(1, look(1)->version), CPN_OK);
    take_in_each(0, 3, CPN_COUPON_ARCHIVED);
    take_in_each(1, 3, CPN_COUPON_ARCHIVED);
    assert_int_equal(set_state(0, COUPON_ACTIVE), CPN_COUPON_ARCHIVED);
    assert_int_equal(archive(0, look(0)->version), CPN_OK);
}

TEST(what_opens_again_before_it_is_closed_stays_open)
{
    int64_t version;

    create(3, COUPON_NULL);
    generate(30);
    assert_int_equal(set_state(0, COUPON_ENDED), CPN_OK);
    version = look(0)->version;
    t.between = CPN_BUSY;
    t.before_append = open_again_before_it_is_closed;
    assert_int_equal(archive(0, version), CPN_VERSION_CHANGED);
    assert_null(t.before_append);
    assert_int_equal(t.between, CPN_OK);
    take_in_each(0, 3, CPN_OK);
    take_in_each(1, 3, CPN_OK);
}

/* Who closed lane 0 may have died then. */
TEST(a_repeat_closes_the_lanes_that_are_left)
{
    struct op op = {.kind = OP_ARCHIVE};

    create(3, COUPON_NULL);
    generate(30);
    assert_int_equal(set_state(0, COUPON_ENDED), CPN_OK);
    op.in.coupon.expected_version = look(0)->version;
    assert_int_equal(call_lane(0, &op), CPN_OK);
    assert_int_equal(set_state(1, COUPON_ACTIVE), CPN_COUPON_ARCHIVED);
    assert_int_equal(archive(1, op.in.coupon.expected_version), CPN_OK);
    take_in_each(0, 3, CPN_COUPON_ARCHIVED);
}

/* ---- what is remembered ---- */

static struct latch followed;

static void count_followed(struct op *op)
{
    (void)op;
    latch_down(&followed);
}

/* A coupon that few slots are left of is remembered, so that it is not looked at too often. Each is asked something, too: then it was
 * looked at. */
TEST(what_is_remembered_of_coupons_is_bounded)
{
    enum { GROUPS = LANES_KEPT_MOST + 200 };
    static struct op ops[GROUPS];
    static struct arena arenas[GROUPS]; /* several are answered at a time */
    static char ids[GROUPS][16];
    struct multilane *lanes = lanes_start(rig.engines[0], &rig.watched[0].source);

    latch_init(&followed, GROUPS);
    for (int i = 0; i < GROUPS; i++) {
        snprintf(ids[i], sizeof ids[i], "few-%d", i);
        arena_init(&arenas[i], 0);
        rig.coupon = ids[i]; /* of one that does not exist, nothing would be heard for a second */
        create(2, COUPON_NULL);
        ops[i] = (struct op){.kind = OP_FOLLOW, .coupon = ids[i], .arena = &arenas[i],
                             .deadline = mono_add_ms(mono_now(), PATIENCE_MS), .done = count_followed};
        lanes_note_few(lanes, ids[i], 2);
        assert_true(lanes->hooks->takes(lanes, &ops[i], 1));
    }
    latch_wait(&followed);
    lanes->hooks->stop(lanes);
    assert_int_equal(lanes_kept(lanes), LANES_KEPT_MOST);
    lanes->hooks->free(lanes);
    for (int i = 0; i < GROUPS; i++)
        arena_free(&arenas[i]);
}

static struct multilane *started;

static struct multilane *start_seen(struct engine *e, struct store_source *source)
{
    return started = lanes_start(e, source);
}

/* How many lanes a coupon has is known while one of them is in memory; whoever comes later learns it from lane 0. */
TEST(what_is_known_of_coupons_is_forgotten_with_their_lanes)
{
    enum { SEVERAL = 40 };
    struct mono until = mono_add_ms(mono_now(), PATIENCE_MS);
    char ids[SEVERAL][16];
    int known;

    engine_stop(rig.engines[0]);
    rig.engines[0] = engine_start(&rig.config, rig.sources[0], start_seen);
    for (int i = 0; i < SEVERAL; i++) {
        snprintf(ids[i], sizeof ids[i], "wide-%d", i);
        rig.coupon = ids[i];
        create(2, COUPON_NULL);
        generate(2);
        take_in_each(0, 2, CPN_OK);
    }
    do { /* a lane that waits for its checkpoint stays */
        look(0);
        known = 0;
        for (int i = 0; i < SEVERAL; i++)
            known += multilane_lanes(started, ids[i]) > 1;
    } while (known > LANES_MOST + 1 && mono_before(mono_now(), until));
    assert_in_range(known, 1, LANES_MOST + 1);
    rig.coupon = ids[0];
    take_in_each(0, 2, CPN_OK); /* repeats */
    assert_int_equal(take(0, "late"), CPN_SOLD_OUT);
    rig.coupon = ids[1];
    assert_int_equal(retitle(0, "changed"), CPN_OK);
    assert_int_equal(set_state(0, COUPON_PAUSED), CPN_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(take(0, arena_printf(&rig.arenas[0], "late-%d", i)), CPN_COUPON_NOT_ACTIVE);
}

/* ---- coupons with one lane ---- */

#define ALONE "alone"

static const struct multilane_hooks *hooks_behind;
static atomic_int hooked_alone, hooked_others;

static void count_hook(const char *coupon)
{
    atomic_fetch_add(strcmp(coupon, ALONE) == 0 ? &hooked_alone : &hooked_others, 1);
}

static bool counted_takes(struct multilane *s, struct op *op, int64_t lanes)
{
    count_hook(op->coupon);
    return hooks_behind->takes(s, op, lanes);
}

static void counted_sort(struct multilane *s, struct committer *c, struct lane_work *p)
{
    count_hook(p->lane->coupon);
    hooks_behind->sort(s, c, p);
}

static void counted_begin(struct multilane *s, struct lane_work *p)
{
    count_hook(p->lane->coupon);
    hooks_behind->begin(s, p);
}

static void counted_committed(struct multilane *s, const struct lane *l)
{
    count_hook(l->coupon);
    hooks_behind->committed(s, l);
}

static void counted_confirmed(struct multilane *s, const struct lane *l)
{
    count_hook(l->coupon);
    hooks_behind->confirmed(s, l);
}

static void counted_lacks(struct multilane *s, struct op *op)
{
    count_hook(op->coupon);
    hooks_behind->lacks(s, op);
}

static struct multilane *start_counted(struct engine *e, struct store_source *source)
{
    static struct multilane_hooks counted;
    struct multilane *s = lanes_start(e, source);

    hooks_behind = s->hooks;
    counted = *s->hooks;
    counted.takes = counted_takes;
    counted.sort = counted_sort;
    counted.begin = counted_begin;
    counted.committed = counted_committed;
    counted.confirmed = counted_confirmed;
    counted.lacks = counted_lacks;
    s->hooks = &counted;
    return s;
}

TEST(what_several_lanes_need_is_not_asked_for_one)
{
    struct op delete = {.kind = OP_DELETE};

    engine_stop(rig.engines[0]);
    rig.engines[0] = engine_start(&rig.config, rig.sources[0], start_counted);
    create(2, COUPON_NULL);
    generate(10);
    assert_int_equal(take(0, "ann"), CPN_OK);
    assert_true(atomic_load(&hooked_others) > 0);
    rig.coupon = ALONE;
    create(1, 2);
    generate(3);
    assert_int_equal(take(0, "ann"), CPN_OK);
    assert_int_equal(take(0, "bob"), CPN_OK);
    assert_int_equal(take(0, "cyd"), CPN_DAILY_CAP_REACHED);
    assert_int_equal(retitle(0, "another"), CPN_OK);
    assert_int_equal(rig_call(0, &delete), CPN_COUPON_IN_USE);
    assert_string_equal(look(0)->title, "another");
    assert_int_equal(atomic_load(&hooked_alone), 0);
}

RUN_TESTS(.each_setup = two_engines, .each_teardown = rig_end, .setup = fake_group_setup)
