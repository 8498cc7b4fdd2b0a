/*
 * tests/engine/test_round_decide.c -- a lane's work in a round, laid out by hand: whom an expiry may change.
 *
 * Lane    ann holds a slot; the lane is loaded as the committer does it, and its user is cached
 */
#include "cmocka_whole.h"

#include "engine/round.h"
#include "rig.h"

#define HOLD_S 60

static struct {
    struct store *session;
    struct filter_room room;
    struct user_cache cache;
    struct committer committer;
    struct lane *lane;
} t;

static void hold(void)
{
    struct coupon c;
    struct op take = rig_taking("ann", "k", SLOT_RESERVED);

    open_coupon(&c, COUPON);
    c.cap.total = 10;
    c.reserve_s = HOLD_S;
    rig_create(&c);
    rig_generate(&c, 1, 10);
    rig_ask(0, &take);
}

static int begin(void **state)
{
    struct lane_loading load;
    struct user_read user = {.coupon = COUPON, .user = "ann"};
    struct bucket bucket;
    struct bucket_read read = {.coupon = COUPON, .bucket = &bucket};

    memset(&t, 0, sizeof t);
    rig_begin(state);
    hold();
    rig_restart_written();
    t.cache.bytes_max = 1 << 20;
    t.session = rig_session();
    t.lane = lane_new(COUPON, 0, &t.room, &t.cache);
    load = (struct lane_loading){.lane = t.lane};
    lane_load(t.session, &load, 1);
    assert_int_equal(load.status, STORE_OK);
    bucket_init(&bucket, 0);
    assert_int_equal(t.session->ops->buckets(t.session, &read, 1), STORE_OK);
    assert_non_null(cached_bucket_keep(t.lane, &bucket));
    assert_int_equal(t.session->ops->users(t.session, &rig.arenas[0], &user, 1), STORE_OK);
    user_cache_keep(&t.lane->users, user.user_state);
    return 0;
}

static int end(void **state)
{
    lane_free(t.lane);
    buf_free(&t.committer.scratch);
    t.session->ops->close(t.session);
    return rig_end(state);
}

/* The hold has ended, and a request asks for ann's state; writable: one may change it, too. How many entries that makes. */
static size_t decide(bool writable)
{
    const struct user_state *known = user_cache_find(&t.lane->users, "ann");
    struct loaded_user ann = {.user = "ann", .writable = writable};
    struct op op = {.kind = OP_USER_STATE, .in.user.name = "ann", .arena = &rig.arenas[0]};
    struct op_work w = {.subject.user = &ann, .n = -1};
    struct lane_work p = {.lane = t.lane, .batch = batch_new(COUPON, 0), .sweeping = true};
    size_t entries;

    assert_non_null(known);
    ann.user_state = arena_alloc(&p.batch->arena, sizeof *known);
    *ann.user_state = *known;
    if (writable)
        ann.user_state = user_state_copy(known, &p.batch->arena, true);
    w.subject.state = ann.user_state;
    op.engine.work = &w; // cppcheck-suppress autoVariables
    p.at_ms = t.lane->tail.at_ms + (HOLD_S + 1) * 1000;
    p.day_ms = t.lane->tail.day_ms;
    p.day_end_ms = INT64_MAX;
    op_list_add(&p.ops, &op);
    HASH_ADD_KEYPTR(hh, p.users, ann.user, strlen(ann.user), &ann);
    decide_work(&t.committer, &p);
    entries = p.batch->count;
    assert_int_equal(ann.changed, entries > 0);
    assert_int_equal(op.outcome.result, CPN_OK);
    HASH_DEL(p.users, &ann);
    batch_free(p.batch);
    return entries;
}

TEST(an_expiry_changes_nobody_who_is_only_read)
{
    assert_int_equal(decide(false), 0);
    assert_int_equal(user_cache_find(&t.lane->users, "ann")->redemptions[0].ended_ms, 0);
    assert_int_equal(decide(true), 1);
    assert_int_equal(user_cache_find(&t.lane->users, "ann")->redemptions[0].ended_ms, 0); /* it is a copy that changed */
}

RUN_TESTS(.each_setup = begin, .each_teardown = end, .setup = fake_group_setup)
