/* tests/engine/test_mongo_upkeep.c -- what is due, over, erased or left behind, against a real mongod. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mongo_fixture.h"
#include "store/codec.h"
#include "store/name_key.h"
#include "store/reconcile.h"

#define DAY INT64_C(1795132800000)
#define MINUTE INT64_C(60000)
#define ALIAS "0123456789abcdef"

/* ---- makers ---- */

static void write_view(struct view_write view)
{
    struct store_time when;

    assert_int_equal(session->ops->write_views(session, &view, 1, &when), STORE_OK);
    assert_true(view.written);
}

/* A bucket with a hold that ends at due_ms (0: with none). */
static void write_bucket(const char *coupon, int64_t lane, int64_t b, int64_t seq, int64_t due_ms)
{
    struct bucket k;

    bucket_init(&k, b);
    k.pick = b * 7919 % 1009;
    k.lane = lane;
    k.seq = seq;
    k.size = BUCKET_SLOTS;
    if (due_ms)
        k.slots[3] = (struct slot){.generation = 1, .current = 1, .state = SLOT_RESERVED, .at_ms = DAY,
                                   .due_ms = due_ms};
    write_view((struct view_write){.kind = VIEW_BUCKET, .coupon = coupon, .bucket = &k});
    bucket_release(&k);
}

static struct user_state *make_user_state(const char *user, int64_t seq)
{
    struct user_state *u = arena_alloc(&arena, sizeof *u);

    user_state_init(u, user, ALIAS);
    u->version = u->seq = seq;
    u->day_ms = DAY;
    return u;
}

/* A user state that holds (n, 1) until due_ms. */
static struct user_state *holding_user_state(const char *user, int64_t seq, int64_t n, int64_t due_ms)
{
    struct user_state *u = make_user_state(user, seq);
    struct redemption *r = user_state_add(u, &arena);

    *r = (struct redemption){.n = n, .g = 1, .seq = seq, .last_seq = seq, .ordinal = seq, .at_ms = DAY, .day_ms = DAY,
                             .state = SLOT_RESERVED, .first_state = SLOT_RESERVED, .reserved_until_ms = due_ms,
                             .first_until_ms = due_ms, .left = COUPON_NULL};
    return u;
}

static void write_user_state(const char *coupon, const struct user_state *u)
{
    write_view((struct view_write){.kind = VIEW_USER_STATE, .coupon = coupon, .user_state = u});
}

static void append_batch(const struct batch *b)
{
    struct append a = {b, APPEND_UNKNOWN};

    assert_int_equal(session->ops->append(session, &a, 1), STORE_OK);
    assert_int_equal(a.result, APPEND_OURS);
}

static struct batch *make_batch(const char *coupon, int64_t lane, int64_t seq, int64_t at_ms)
{
    struct batch *b = batch_new(coupon, lane);

    b->head.seq = seq;
    b->head.at_ms = at_ms;
    return b;
}

static struct entry *add(struct batch *b, enum entry_kind kind, int64_t n, const char *alias, const char *user)
{
    struct entry *e = batch_add(b, kind);

    e->n = n;
    e->g = 1;
    e->was = SLOT_RESERVED;
    memcpy(e->alias, alias, sizeof e->alias);
    e->user = arena_strdup(&b->arena, user);
    return e;
}

/* ---- what ends by itself ---- */

static enum store_status due_buckets(const char *coupon, int64_t lane, int64_t at_ms, size_t most, struct bucket *found,
                                     size_t *count, int64_t *next_ms)
{
    struct due_search search = {.coupon = coupon, .lane = lane, .at_ms = at_ms, .most = most, .buckets = found};
    enum store_status status = session->ops->due_buckets(session, no_time, &search, 1);

    *count = search.count;
    *next_ms = search.next_due_ms;
    return status;
}

static enum store_status due_user_states(const char *coupon, int64_t lane, int64_t at_ms, size_t most, struct user_state **found,
                                         size_t *count, int64_t *next_ms)
{
    struct due_search search = {.coupon = coupon, .lane = lane, .at_ms = at_ms, .most = most};
    enum store_status status = session->ops->due_user_states(session, no_time, &search, &arena, found);

    *count = search.count;
    *next_ms = search.next_due_ms;
    return status;
}

static void buckets_come_as_they_are_due_and_the_next_time_is_told(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct bucket found[10];
    int64_t next_ms;
    size_t count;

    for (int64_t b = 0; b < 8; b++)
        write_bucket(coupon, b == 2, b, 1, b == 5 ? 0 : DAY + (10 - b) * MINUTE);
    write_bucket(new_coupon(), 0, 0, 1, DAY);
    assert_int_equal(due_buckets(coupon, 0, DAY + 6 * MINUTE, 10, found, &count, &next_ms), STORE_OK);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        static const int64_t want[] = {7, 6, 4};

        assert_int_equal(found[i].b, want[i]);
        bucket_release(&found[i]);
    }
    assert_int_equal(next_ms, DAY + 7 * MINUTE);
    assert_int_equal(due_buckets(coupon, 0, DAY + 9 * MINUTE, 2, found, &count, &next_ms), STORE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(next_ms, DAY + 6 * MINUTE); /* one that is due already */
    bucket_release(&found[0]);
    bucket_release(&found[1]);
    write_bucket(coupon, 1, 2, 2, 0); /* it was taken back */
    assert_int_equal(due_buckets(coupon, 1, DAY * 2, 2, found, &count, &next_ms), STORE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(next_ms, 0);
    assert_int_equal(due_buckets(coupon, 0, DAY, 0, found, &count, &next_ms), STORE_OK);
    assert_int_equal(next_ms, DAY + 3 * MINUTE);
}

static void user_states_are_due_only_without_slots(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct user_state *found[10];
    int64_t next_ms;
    size_t count;

    write_user_state(coupon, holding_user_state("u-1", 1, -1, DAY + MINUTE));
    write_user_state(coupon, holding_user_state("u-2", 2, 7, DAY + MINUTE)); /* of a slot */
    write_user_state(coupon, holding_user_state("u-3", 3, -3, DAY));
    write_user_state(coupon, holding_user_state("u-4", 4, -4, DAY + 2 * MINUTE));
    assert_int_equal(due_user_states(coupon, 0, DAY + MINUTE, 10, found, &count, &next_ms), STORE_OK);
    assert_int_equal(count, 2);
    assert_string_equal(found[0]->user, "u-3");
    assert_string_equal(found[1]->user, "u-1");
    assert_int_equal(found[1]->redemptions[0].reserved_until_ms, DAY + MINUTE);
    assert_int_equal(next_ms, DAY + 2 * MINUTE);
}

static void a_damaged_user_state_is_left_out_of_what_is_due(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct due_search search = {.coupon = coupon, .at_ms = DAY + MINUTE, .most = 2};
    struct user_state *found[2];

    write_user_state(coupon, holding_user_state("u-1", 1, -1, DAY));
    write_user_state(coupon, holding_user_state("u-2", 2, -2, DAY + MINUTE));
    write_user_state(coupon, holding_user_state("u-3", 3, -3, DAY + 2 * MINUTE));
    damage("users", coupon, "view.user", 0, "u-1", "view.seq");
    assert_int_equal(session->ops->due_user_states(session, no_time, &search, &arena, found), STORE_OK);
    assert_int_equal(search.count, 1);
    assert_string_equal(found[0]->user, "u-2");
    assert_int_equal(search.next_due_ms, DAY + 2 * MINUTE);
    assert_true(search.left_out);
}

static struct user_state *holding_in(int64_t lane, const char *user, int64_t seq, int64_t due_ms)
{
    struct user_state *u = holding_user_state(user, seq, -seq, due_ms);

    for (size_t i = 0; i < u->count; i++)
        u->redemptions[i].lane = lane;
    return u;
}

static void a_lane_gets_the_due_user_states_of_its_own_users(void **state)
{
    NEEDS_SERVER();

    static const char *const users[] = {"u-0", "u-1", "u-2", "u-3"};
    const char *coupon = new_coupon();
    struct user_state *found[1];
    int64_t next_ms;
    size_t count;

    for (int64_t lane = 0; lane < 4; lane++)
        write_user_state(coupon, holding_in(lane, users[lane], 1, DAY + lane * MINUTE));
    write_user_state(coupon, holding_in(2, "u-2b", 2, DAY + 30 * MINUTE));
    for (int64_t lane = 0; lane < 4; lane++) {
        assert_int_equal(due_user_states(coupon, lane, DAY + 10 * MINUTE, 1, found, &count, &next_ms), STORE_OK);
        assert_int_equal(count, 1);
        assert_string_equal(found[0]->user, users[lane]);
        assert_int_equal(next_ms, lane == 2 ? DAY + 30 * MINUTE : 0);
    }
    assert_int_equal(due_user_states(coupon, 4, DAY * 2, 1, found, &count, &next_ms), STORE_OK);
    assert_int_equal(count, 0);
}

static void what_is_known_better_is_not_looked_for(void **state)
{
    NEEDS_SERVER();

    static const int64_t buckets[] = {7, 5, 99};
    static const char *const users[] = {"u-1", "nobody"};
    const char *coupon = new_coupon();
    struct bucket found[2];
    struct due_search search = {.coupon = coupon, .at_ms = DAY + 4 * MINUTE, .most = 2, .but_buckets = buckets, .but_count = 3,
                                .buckets = found};
    struct user_state *user_states[2];

    for (int64_t b = 0; b < 8; b++)
        write_bucket(coupon, 0, b, 1, DAY + (10 - b) * MINUTE);
    assert_int_equal(session->ops->due_buckets(session, no_time, &search, 1), STORE_OK);
    assert_int_equal(search.count, 1);
    assert_int_equal(found[0].b, 6);
    assert_int_equal(search.next_due_ms, DAY + 6 * MINUTE);
    bucket_release(&found[0]);
    for (int64_t i = 0; i < 3; i++)
        write_user_state(coupon, holding_user_state(i == 0 ? "u-0" : i == 1 ? "u-1" : "u-2", i + 1, -i - 1, DAY + i * MINUTE));
    search.but_users = users;
    search.but_count = 2;
    assert_int_equal(session->ops->due_user_states(session, no_time, &search, &arena, user_states), STORE_OK);
    assert_int_equal(search.count, 2);
    assert_string_equal(user_states[0]->user, "u-0");
    assert_string_equal(user_states[1]->user, "u-2");
    assert_int_equal(search.next_due_ms, 0);
}

static void users_that_are_due_come_as_far_as_memory_goes(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct due_search search = {.coupon = coupon, .at_ms = DAY + MINUTE, .most = 64};
    struct user_state *user_states[64];
    struct arena own;
    char metadata[1024];

    memset(metadata, 'x', sizeof metadata - 1);
    metadata[sizeof metadata - 1] = '\0';
    for (int64_t i = 0; i < 64; i++) { /* 50 MB */
        struct user_state *u = holding_user_state(arena_printf(&arena, "u-%d", (int)i), 1, -i - 1, DAY + i);

        for (int k = 0; k < 600; k++)
            user_state_add(u, &arena)->metadata = metadata;
        write_user_state(coupon, u);
    }
    arena_init(&own, 0);
    assert_int_equal(session->ops->due_user_states(session, no_time, &search, &own, user_states), STORE_OK);
    assert_in_range(own.bytes, 0, STORE_USER_STATES_BYTES + (STORE_USER_STATES_BYTES >> 4));
    assert_in_range(search.count, 1, 63);
    assert_string_equal(user_states[search.count - 1]->user, arena_printf(&arena, "u-%d", (int)search.count - 1));
    assert_int_equal(search.next_due_ms, DAY + (int64_t)search.count);
    arena_free(&own);
}

static bool is_among(const char *id, const char **ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

static void coupons_with_something_due_are_found_once(void **state)
{
    NEEDS_SERVER();

    const char *slots = new_coupon(), *without = new_coupon(), *later = new_coupon(), **ids;
    int64_t past = DAY - 1000 * MINUTE; /* before those of other tests */
    size_t count;

    for (int64_t b = 0; b < 5; b++)
        write_bucket(slots, 0, b, 1, past);
    write_user_state(without, holding_user_state("u-1", 1, -1, past));
    write_bucket(later, 0, 0, 1, past + 2 * MINUTE);
    assert_int_equal(mongo_due_coupons(session, past + MINUTE, 10, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 2);
    assert_true(is_among(slots, ids, count) && is_among(without, ids, count));
    assert_int_equal(mongo_due_coupons(session, past + MINUTE, 1, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_int_equal(mongo_due_coupons(session, past, 10, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 0);
}

/* The plan that wins for {find: collection, filter, sort}, as text. */
static char *plan_of(const char *collection, const char *filter, const char *sort)
{
    char *text = arena_printf(&arena, "{\"explain\":{\"find\":\"%s\",\"filter\":%s,\"sort\":%s,\"limit\":8},"
                                      "\"verbosity\":\"queryPlanner\"}", collection, filter, sort);
    bson_t *command = bson_new_from_json((const uint8_t *)text, -1, NULL), reply;
    mongoc_client_t *client = own_client();
    char *json, *end;

    assert_non_null(command);
    assert_true(mongoc_client_command_simple(client, config.mongodb_database, command, NULL, &reply, NULL));
    json = bson_as_relaxed_extended_json(&reply, NULL);
    text = strstr(json, "\"winningPlan\"");
    assert_non_null(text);
    end = strstr(text, "\"rejectedPlans\"");
    text = arena_memdup(&arena, text, end ? (size_t)(end - text) : strlen(text));
    bson_free(json);
    bson_destroy(&reply);
    bson_destroy(command);
    mongoc_client_destroy(client);
    return text;
}

static void searches_go_by_their_index(void **state)
{
    NEEDS_SERVER();

    static const struct {
        const char *collection, *filter, *sort, *index;
    } searches[] = {
        {"buckets", "{\"_id.c\":\"plans\",\"view.lane\":0,\"view.due\":{\"$gt\":{\"$date\":{\"$numberLong\":\"0\"}}}}",
         "{\"view.due\":1}", "due"},
        {"buckets", "{\"_id.c\":\"plans\",\"view.lane\":0,\"view.pick\":{\"$gte\":5},\"view.free\":{\"$gt\":0}}",
         "{\"view.pick\":1}", "pick"},
        {"buckets", "{\"_id.c\":\"plans\",\"view.lane\":0,\"_id.b\":{\"$gte\":5},\"view.free\":{\"$gt\":0}}",
         "{\"_id.b\":1}", "free"},
        {"users", "{\"_id.c\":\"plans\",\"view.due\":{\"$gt\":{\"$date\":{\"$numberLong\":\"0\"}}}}",
         "{\"view.due\":1}", "due"},
        {"users", "{\"view.erased\":{\"$lt\":{\"$date\":{\"$numberLong\":\"5\"}}}}", "{}", "erased"},
        {"coupons", "{\"cleaned\":null,\"view.cleanup\":{\"$lte\":{\"$date\":\"2026-01-01T00:00:00Z\"}}}", "{}", "cleanup"},
        {"coupons", "{\"remains\":{\"$lte\":{\"$date\":\"2026-01-01T00:00:00Z\"}}}", "{}", "remains"},
        {"codes", "{\"_id.code\":{\"$in\":[\"a\",\"b\"]},\"_id.c\":{\"$ne\":\"-\"}}", "{}", "code"},
    };

    for (int64_t i = 1; i <= 200; i++) {
        write_bucket("plans", 0, i, 1, DAY + i * 31 % 200);
        write_user_state("plans", holding_user_state(arena_printf(&arena, "u-%d", (int)i), i, -i, DAY + i));
    }
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        const char *plan = plan_of(searches[i].collection, searches[i].filter, searches[i].sort);
        const char *index = arena_printf(&arena, "\"indexName\" : \"%s\"", searches[i].index);

        if (!strstr(plan, index) || strstr(plan, "COLLSCAN") || strstr(plan, "\"SORT\""))
            fail_msg("%s is not the way of %s: %s", index, searches[i].filter, plan);
    }
}

/* ---- coupons that are over ---- */

static void write_definition(const char *id, int64_t version, int64_t coupon_state, int64_t ends_at_ms, int64_t cleanup_after_s)
{
    struct coupon *c = arena_alloc(&arena, sizeof *c);

    coupon_init(c);
    c->id = id;
    c->version = version;
    c->title = "title";
    c->state = coupon_state;
    c->ends_at_ms = ends_at_ms;
    c->cleanup_after_s = cleanup_after_s;
    write_view((struct view_write){.kind = VIEW_COUPON, .coupon = id, .definition = c, .seq = version});
}

static void write_coupon(const char *id, int64_t coupon_state, int64_t ends_at_ms, int64_t cleanup_after_s, int64_t changed_ms)
{
    struct batch *b = make_batch(id, 0, 1, changed_ms);

    batch_add(b, ENTRY_TICK);
    append_batch(b);
    batch_free(b);
    write_definition(id, 1, coupon_state, ends_at_ms, cleanup_after_s);
}

/* When the coupon is to be cleaned up; -1: it is not among them. */
static int64_t cleanup_of(const char *id, const struct over_coupon *over, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(over[i].id, id) == 0)
            return over[i].cleanup_ms;
    return -1;
}

static void coupons_are_over_until_they_were_seen_to(void **state)
{
    NEEDS_SERVER();

    const char *ended = new_coupon(), *past = new_coupon(), *running = new_coupon(), *soon = new_coupon(),
               *seen = new_coupon(), *gone = new_coupon(), *anew = new_coupon();
    int64_t now_ms = DAY + 100 * MINUTE;
    struct over_coupon *over;
    size_t count;

    write_coupon(ended, COUPON_ENDED, COUPON_NULL, 60, DAY);
    write_coupon(past, COUPON_ACTIVE, DAY + 10 * MINUTE, 60, DAY);
    write_coupon(running, COUPON_ACTIVE, DAY + 200 * MINUTE, 0, DAY);
    write_coupon(soon, COUPON_ENDED, COUPON_NULL, 6001, DAY);
    write_coupon(seen, COUPON_ENDED, COUPON_NULL, 60, DAY);
    write_coupon(gone, COUPON_DELETED, DAY, 60, DAY);
    write_coupon(anew, COUPON_ENDED, COUPON_NULL, 60, DAY + 50 * MINUTE); /* it was over before, and cleaned up */
    assert_int_equal(mongo_over_coupons(session, now_ms, 100, &arena, &over, &count), STORE_OK);
    assert_int_equal(count, 4);
    assert_true(cleanup_of(ended, over, count) == DAY + MINUTE);
    assert_true(cleanup_of(past, over, count) == DAY + 11 * MINUTE);
    for (size_t i = 0; i < count; i++)
        if (strcmp(over[i].id, seen) == 0 || strcmp(over[i].id, anew) == 0)
            assert_int_equal(mongo_over_seen(session, &over[i]), STORE_OK);
    write_definition(anew, 2, COUPON_ENDED, COUPON_NULL, 60); /* its definition changed */
    assert_int_equal(mongo_over_coupons(session, now_ms, 100, &arena, &over, &count), STORE_OK);
    assert_int_equal(count, 3);
    assert_true(cleanup_of(anew, over, count) == DAY + 51 * MINUTE);
    over[0].cleanup_ms++; /* who saw another time has not seen to this one */
    assert_int_equal(mongo_over_seen(session, &over[0]), STORE_OK);
    assert_int_equal(mongo_over_coupons(session, now_ms, 100, &arena, &over, &count), STORE_OK);
    assert_int_equal(count, 3);
    assert_int_equal(mongo_over_coupons(session, now_ms, 1, &arena, &over, &count), STORE_OK);
    assert_int_equal(count, 1);
}

/* ---- erased users ---- */

static void a_tombstone_says_so_and_goes_after_its_time(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon(), *other = new_coupon(), **coupons;
    struct user_state *u = make_user_state("erased-1", 5), **user_states;
    struct user_state_read read = {coupon, "erased-1", NULL, STORE_OK};
    const struct name_key *key;
    struct stored_user_state *stored;
    size_t count;

    assert_int_equal(mongo_name_key(session, &key), STORE_OK);
    u->alias[0] = '\0';
    u->erased_ms = DAY;
    write_user_state(coupon, u);
    write_user_state(coupon, make_user_state("erased-1", 4)); /* a late writer does not bring it back */
    write_user_state(other, holding_user_state("erased-1", 1, 1, DAY));
    assert_int_equal(mongo_user_states(session, "erased-1", 0, &arena, &coupons, &user_states, &count), STORE_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(user_states[i]->erased_ms, strcmp(coupons[i], other) == 0 ? 0 : DAY);
    assert_int_equal(mongo_stored_user_states(session, key, coupon, NULL, 10, &arena, &stored, &count), STORE_OK);
    assert_int_equal(count, 1); /* for verify it is there, without its name */
    assert_null(stored[0].user);
    assert_null(stored[0].user_state->user);

    assert_int_equal(mongo_tombstones_clean(session, DAY), STORE_OK);
    assert_int_equal(session->ops->user_states(session, no_time, &arena, &read, 1), STORE_OK);
    assert_int_equal(read.user_state->erased_ms, DAY);
    assert_int_equal(mongo_tombstones_clean(session, DAY + 1), STORE_OK);
    assert_int_equal(session->ops->user_states(session, no_time, &arena, &read, 1), STORE_OK);
    assert_null(read.user_state);
    assert_int_equal(mongo_user_states(session, "erased-1", 0, &arena, &coupons, &user_states, &count), STORE_OK);
    assert_int_equal(count, 1);
}

static void one_who_came_back_after_erasure_stays(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct user_state *u = make_user_state("back-1", 5);
    struct user_state_read read = {coupon, "back-1", NULL, STORE_OK};

    u->erased_ms = DAY;
    write_user_state(coupon, u);
    write_user_state(coupon, holding_user_state("back-1", 6, 1, DAY));
    assert_int_equal(mongo_tombstones_clean(session, DAY + 1), STORE_OK);
    assert_int_equal(session->ops->user_states(session, no_time, &arena, &read, 1), STORE_OK);
    assert_int_equal(read.user_state->seq, 6);
    assert_int_equal(read.user_state->erased_ms, 0);
}

/* ---- what came lately ---- */

#define FILLERS 450 /* batches: of more pages than one */

/* A time that is later than what has arrived, and not later than what will. */
static uint64_t time_now(void)
{
    struct batch *b = make_batch(new_coupon(), 0, 1, DAY);
    struct watermark watermark;
    uint64_t now;

    append_batch(b);
    batch_free(b);
    assert_int_equal(mongo_watermark(session, &watermark, &now), STORE_OK);
    return now;
}

static void append_named(const char *coupon, int64_t lane, const char *user)
{
    struct batch *b = make_batch(coupon, lane, 1, DAY);

    add(b, ENTRY_RESERVE, 1, ALIAS, user);
    append_batch(b);
    batch_free(b);
}

static void append_fillers(const char *coupon)
{
    struct append appends[FILLERS];

    for (int64_t lane = 0; lane < FILLERS; lane++)
        appends[lane] = (struct append){make_batch(coupon, lane, 1, DAY), APPEND_UNKNOWN};
    assert_int_equal(session->ops->append(session, appends, FILLERS), STORE_OK);
    for (size_t i = 0; i < FILLERS; i++)
        batch_free((struct batch *)appends[i].batch);
}

static void batches_of_all_lanes_come_in_the_order_of_their_arrival(void **state)
{
    NEEDS_SERVER();

    struct arrivals_at at = {.from = time_now()};
    const char *first = new_coupon(), *fill = new_coupon(), *last = new_coupon();
    struct batch *b = make_batch(last, 3, 1, DAY - 100 * MINUTE); /* decided before all others */
    struct arrival *arrivals;
    uint64_t before = at.from;
    size_t count, rows = 0;

    append_named(first, 0, "arrives");
    append_fillers(fill);
    b->lanes = 4;
    append_batch(b);
    batch_free(b);
    do {
        assert_int_equal(mongo_arrivals(session, &at, &arena, &arrivals, &count), STORE_OK);
        assert_true(count > 0 && count < FILLERS);
        for (size_t i = 0; i < count; i++) {
            rows += arrivals[i].arrived > before;
            assert_true(arrivals[i].arrived >= before);
            before = arrivals[i].arrived;
        }
        if (strcmp(arrivals[0].coupon, first) == 0)
            assert_true(arrivals[0].lane == 0 && arrivals[0].seq == 1 && arrivals[0].lanes == 1);
    } while (at.more);
    assert_int_equal(rows, FILLERS + 2);
    assert_string_equal(arrivals[count - 1].coupon, last);
    assert_true(arrivals[count - 1].lane == 3 && arrivals[count - 1].seq == 1 && arrivals[count - 1].lanes == 4);
}

static size_t unseen(const char *user, size_t most, const char ***ids)
{
    size_t count;

    assert_int_equal(mongo_unseen(session, user, NULL, most, &arena, ids, &count), STORE_OK);
    return count;
}

static void set_watermark(uint64_t arrived)
{
    assert_int_equal(mongo_watermark_write(session, &(struct watermark){.arrived = arrived}), STORE_OK);
}

static void who_is_named_above_the_watermark_is_found(void **state)
{
    NEEDS_SERVER();

    const char *old = new_coupon(), *one = new_coupon(), *other = new_coupon(), **ids;
    struct watermark none;
    size_t count;
    uint64_t now;

    assert_int_equal(mongo_watermark_begin(session), STORE_OK);
    append_named(old, 0, "unseen-1");
    now = time_now();
    append_named(one, 0, "unseen-1");
    append_named(one, 1, "unseen-1");
    append_fillers(new_coupon());
    append_named(other, 2, "unseen-1");
    set_watermark(1);
    assert_int_equal(unseen("unseen-1", 10, &ids), 3);
    assert_int_equal(unseen("unseen-1", 1, &ids), 1);
    assert_int_equal(unseen("unseen", 10, &ids), 0);
    assert_int_equal(unseen("$who.u", 10, &ids), 0);
    set_watermark(now);
    assert_int_equal(unseen("unseen-1", 10, &ids), 2);
    assert_true(is_among(one, ids, 2) && is_among(other, ids, 2));

    assert_int_equal(session->ops->write_marks(session, &(struct mark_write){other, 2, "views", {.seq = 1}, 0}, 1), STORE_OK);
    assert_int_equal(unseen("unseen-1", 10, &ids), 1); /* the other one is in its views */
    assert_string_equal(ids[0], one);

    set_watermark(0); /* none: nothing is known */
    assert_int_equal(mongo_watermark(session, &none, NULL), STORE_NOT_FOUND);
    assert_int_equal(mongo_watermark_begin(session), STORE_OK);
    assert_int_equal(mongo_watermark(session, &none, NULL), STORE_NOT_FOUND); /* for the ledger is not empty */
    assert_int_equal(mongo_unseen(session, "unseen-1", NULL, 10, &arena, &ids, &count), STORE_FAILED);
    set_watermark(1);
}

static void who_is_named_in_a_lane_that_is_held_is_found_below_the_watermark(void **state)
{
    NEEDS_SERVER();

    struct watermark w = {.arrived = 1}, read;
    const char *held = new_coupon(), *written = new_coupon(), *other = new_coupon(), **ids;

    append_named(held, 3, "held-1");
    append_named(written, 0, "held-1");
    append_named(other, 0, "held-1");
    assert_int_equal(session->ops->write_marks(session, &(struct mark_write){written, 0, "views", {.seq = 1}, 0}, 1), STORE_OK);
    assert_true(watermark_hold(&w, held, 3));
    assert_true(watermark_hold(&w, held, 2)); /* of which there is nothing */
    assert_true(watermark_hold(&w, written, 0) && watermark_hold(&w, written, 0));
    w.arrived = time_now();
    assert_int_equal(mongo_watermark_write(session, &w), STORE_OK);
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_OK);
    assert_true(read.arrived == w.arrived && read.held_count == 3);
    assert_true(watermark_holds(&read, held, 3) && watermark_holds(&read, held, 2) && watermark_holds(&read, written, 0));
    assert_false(watermark_holds(&read, other, 0) || watermark_holds(&read, held, 0));
    assert_int_equal(unseen("held-1", 10, &ids), 1); /* the written one is in its views; the other was never held */
    assert_string_equal(ids[0], held);
    set_watermark(w.arrived);
    assert_int_equal(unseen("held-1", 10, &ids), 0);
    set_watermark(1);
}

static void a_watermark_holds_so_many_lanes_and_one_that_cannot_be_read_is_none(void **state)
{
    NEEDS_SERVER();

    struct watermark w = {.arrived = 1}, read;
    mongoc_client_t *client = own_client();
    mongoc_collection_t *watermarks = mongoc_client_get_collection(client, config.mongodb_database, "watermarks");
    bson_t *all = bson_new(), *one_more = BCON_NEW("$push", "{", "held", "{", "c", "one-more", "l", BCON_INT64(0), "}", "}");

    for (int64_t lane = 0; lane < HELD_MOST; lane++)
        assert_true(watermark_hold(&w, "full", lane));
    assert_false(watermark_hold(&w, "full", HELD_MOST));
    assert_true(watermark_hold(&w, "full", 0));
    assert_int_equal(mongo_watermark_write(session, &w), STORE_OK);
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_OK);
    assert_int_equal(read.held_count, HELD_MOST);
    assert_true(mongoc_collection_update_one(watermarks, all, one_more, NULL, NULL, NULL));
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_NOT_FOUND);
    assert_int_equal(read.held_count, 0);
    set_watermark(1);
    mongoc_collection_destroy(watermarks);
    mongoc_client_destroy(client);
    bson_destroy(all);
    bson_destroy(one_more);
}

static void erasing_empties_the_names_of_one_alias_and_the_chain_still_verifies(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct batch *b = make_batch(coupon, 3, 1, DAY), *plain = make_batch(coupon, 3, 2, DAY), *back;
    struct erasure erasure = {.coupon = coupon, .alias = ALIAS, .seq = 1};
    struct buf scratch = BUF_INIT;
    uint8_t hash[HASH_LEN];
    struct entry *e;

    e = add(b, ENTRY_RESERVE, 1, ALIAS, "u-1");
    e->order = "o-1";
    e->metadata = "{\"x\":1}";
    e->code = "CODE-1";
    memset(e->fingerprint, 7, sizeof e->fingerprint);
    add(b, ENTRY_REDEEM, 2, "abcdefgh01234567", "u-2")->order = "o-2";
    add(b, ENTRY_CANCEL, 1, ALIAS, "u-1");
    batch_hash(b, &scratch, b->head.hash);
    append_batch(b);
    batch_add(plain, ENTRY_TICK);
    append_batch(plain);

    assert_int_equal(mongo_erasure_empty(session, 2, &erasure), STORE_NOT_FOUND);
    assert_int_equal(mongo_erasure_empty(session, 3, &erasure), STORE_OK);
    assert_int_equal(mongo_erasure_empty(session, 3, &erasure), STORE_OK); /* again */
    erasure.seq = 2;
    assert_int_equal(mongo_erasure_empty(session, 3, &erasure), STORE_NOT_FOUND); /* nobody is in it */
    assert_int_equal(mongo_ledger_at(session, coupon, 3, 1, &back), STORE_OK);
    for (int i = 0; i < 3; i += 2) {
        assert_null(back->entries[i].user);
        assert_null(back->entries[i].order);
        assert_null(back->entries[i].metadata);
        assert_null(back->entries[i].code);
        assert_int_equal(back->entries[i].fingerprint[0], 0);
        assert_string_equal(back->entries[i].alias, ALIAS);
    }
    assert_string_equal(back->entries[1].user, "u-2");
    assert_string_equal(back->entries[1].order, "o-2");
    batch_hash(back, &scratch, hash);
    assert_memory_equal(hash, b->head.hash, HASH_LEN);
    buf_free(&scratch);
    batch_free(b);
    batch_free(plain);
    batch_free(back);
}

/* Whoever slept through the removal notes it nowhere; and what was noted all the same stops no other erasure. */
static void an_erasure_of_what_left_is_not_noted_and_hides_no_other(void **state)
{
    NEEDS_SERVER();

    const char *left = new_coupon(), *stays = new_coupon();
    struct erasure erasure = {.coupon = left, .alias = ALIAS, .seq = 1}, *found;
    struct leaving leaving = {.kind = REMAINS_USERS, .coupon = left};
    mongoc_client_t *client = own_client();
    mongoc_collection_t *users = mongoc_client_get_collection(client, config.mongodb_database, "users");
    bson_t *all = BCON_NEW("_id.c", BCON_UTF8(left)),
           *note = BCON_NEW("$set", "{", "erasing", "[", "{", "a", ALIAS, "seq", BCON_INT64(1), "}", "]", "}");
    size_t count, found_here = 0;
    bool noted;

    write_user_state(left, make_user_state("u-left", 1));
    write_user_state(stays, make_user_state("u-stays", 1));
    assert_int_equal(mongo_erasure_begin(session, "u-left", &erasure, &noted), STORE_OK);
    assert_true(noted);
    while (!leaving.done)
        assert_int_equal(mongo_leave(session, &leaving), STORE_OK);
    assert_int_equal(mongo_erasure_begin(session, "u-left", &erasure, &noted), STORE_OK);
    assert_false(noted);

    erasure = (struct erasure){.coupon = stays, .alias = "abcdefgh01234567", .seq = 0}; /* of before the user took again */
    assert_int_equal(mongo_erasure_begin(session, "u-stays", &erasure, &noted), STORE_OK);
    assert_true(noted);
    assert_true(mongoc_collection_update_many(users, all, note, NULL, NULL, NULL));
    assert_int_equal(mongo_erasures_left(session, &arena, &found, &count), STORE_OK);
    for (size_t i = 0; i < count; i++) {
        assert_string_not_equal(found[i].coupon, left);
        found_here += strcmp(found[i].coupon, stays) == 0;
    }
    assert_int_equal(found_here, 1);
    bson_destroy(all);
    bson_destroy(note);
    mongoc_collection_destroy(users);
    mongoc_client_destroy(client);
}

static void an_ended_redemption_without_a_slot_is_found_in_its_lane(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct batch *b[2], *found;
    struct entry *e;

    for (int lane = 0; lane < 2; lane++) {
        b[lane] = make_batch(coupon, lane, 9, DAY);
        e = add(b[lane], ENTRY_REVERSE, -8, ALIAS, "u-1");
        e->from = 4;
        e->from_n = -5;
        append_batch(b[lane]);
    }
    for (int lane = 0; lane < 2; lane++) {
        assert_int_equal(session->ops->ended(session, coupon, lane, -8, 1, &found), STORE_OK);
        assert_string_equal(found->id, b[lane]->id);
        batch_free(found);
        assert_int_equal(session->ops->ended(session, coupon, lane, -5, 4, &found), STORE_OK); /* the issued one beneath it */
        assert_string_equal(found->id, b[lane]->id);
        batch_free(found);
        batch_free(b[lane]);
    }
    assert_int_equal(session->ops->ended(session, coupon, 2, -8, 1, &found), STORE_NOT_FOUND);
    assert_int_equal(session->ops->ended(session, coupon, 0, 8, 1, &found), STORE_NOT_FOUND);
}

/* ---- jobs and their texts ---- */

static void a_postponed_job_waits_and_its_runner_has_it_no_more(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct job made = {.id = "postponed", .kind = JOB_IMPORT, .coupon = coupon, .upload = "up-1", .column = 2,
                       .digest = "sha256:00", .created_ms = DAY - 900 * MINUTE, .not_before_ms = DAY - 900 * MINUTE},
               *job;
    int64_t now_ms = DAY - 899 * MINUTE; /* those of other tests are not due */
    bool cancel;

    assert_int_equal(mongo_job_insert(session, &made, &arena, &job), STORE_OK);
    while (mongo_job_claim(session, now_ms, 10000 * MINUTE, &arena, &job) == STORE_OK && strcmp(job->id, "postponed") != 0)
        ; /* a job of another test */
    assert_non_null(job);
    assert_int_equal(job->kind, JOB_IMPORT);
    assert_string_equal(job->upload, "up-1");
    assert_int_equal(mongo_job_progress(session, job->id, job->fence, 77, now_ms, 10000 * MINUTE, &cancel), STORE_OK);
    assert_int_equal(mongo_job_postpone(session, job->id, job->fence + 1, now_ms), STORE_NOT_FOUND);
    assert_int_equal(mongo_job_postpone(session, job->id, job->fence, now_ms + MINUTE), STORE_OK);
    assert_int_equal(mongo_job_progress(session, job->id, job->fence, 78, now_ms, 10000 * MINUTE, &cancel),
                     STORE_NOT_FOUND);
    while (mongo_job_claim(session, now_ms, 10000 * MINUTE, &arena, &job) == STORE_OK)
        assert_string_not_equal(job->id, "postponed");
    assert_int_equal(mongo_job_claim(session, now_ms + MINUTE, 10000 * MINUTE, &arena, &job), STORE_OK);
    assert_string_equal(job->id, "postponed");
    assert_int_equal(job->fence, 2);
    assert_int_equal(job->done, 77);
    assert_string_equal(job_kind_name(JOB_EXPORT), "export");
    assert_string_equal(job_kind_name(JOB_CLEANUP), "cleanup");
}

static void put_part(const char *upload, int64_t number, const char *text, size_t len)
{
    struct upload_chunk p = {.upload = upload, .number = number, .first_line = number * 10 + 1, .text = text, .len = len};

    assert_int_equal(mongo_chunk_put(session, &p), STORE_OK);
}

static void a_part_is_kept_byte_for_byte_until_it_was_imported(void **state)
{
    NEEDS_SERVER();

    static const char bytes[] = "AB\0\xff\xfe\r\n";
    struct upload_chunk read, done = {.upload = "text-1", .number = 1, .rows = 10, .new_codes = 6, .duplicates_in_file = 1,
                                      .duplicates_in_coupon = 2, .invalid = 1, .bad = "12,invalid,too short\n"};

    put_part("text-1", 0, "old\n", 4);
    put_part("text-1", 0, bytes, sizeof bytes);
    put_part("text-1", 1, "second\n", 7);
    assert_int_equal(mongo_chunk(session, "text-1", 0, &arena, &read), STORE_OK);
    assert_int_equal(read.len, sizeof bytes);
    assert_memory_equal(read.text, bytes, sizeof bytes);
    assert_int_equal(read.first_line, 1);
    assert_false(read.imported);
    assert_int_equal(mongo_chunk_done(session, &done), STORE_OK);
    assert_int_equal(mongo_chunk(session, "text-1", 1, &arena, &read), STORE_OK);
    assert_true(read.imported && !read.text && read.len == 0);
    assert_int_equal(read.first_line, 11);
    assert_int_equal(read.rows, 10);
    assert_int_equal(read.new_codes, 6);
    assert_int_equal(read.duplicates_in_file, 1);
    assert_int_equal(read.duplicates_in_coupon, 2);
    assert_int_equal(read.invalid, 1);
    assert_string_equal(read.bad, "12,invalid,too short\n");
    assert_int_equal(mongo_chunk(session, "text-1", 2, &arena, &read), STORE_NOT_FOUND);
    assert_int_equal(mongo_chunk(session, "text-2", 0, &arena, &read), STORE_NOT_FOUND);
    done.number = 2;
    assert_int_equal(mongo_chunk_done(session, &done), STORE_NOT_FOUND);
}

static bool has_part(const char *upload, int64_t number)
{
    struct upload_chunk read;
    enum store_status status = mongo_chunk(session, upload, number, &arena, &read);

    assert_true(status == STORE_OK || status == STORE_NOT_FOUND);
    return status == STORE_OK;
}

static void parts_go_when_nobody_needs_them(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct job job = {.kind = JOB_IMPORT, .coupon = coupon, .created_ms = DAY}, *claimed;
    int64_t now_ms = clock_now_ms();

    for (int i = 0; i < 3; i++) {
        put_part("broken", i, "x\n", 2);
        put_part("needed", i, "x\n", 2);
        put_part("ended", i, "x\n", 2);
    }
    job.id = "job-needed", job.upload = "needed";
    assert_int_equal(mongo_job_insert(session, &job, &arena, &claimed), STORE_OK);
    job.id = "job-ended", job.upload = "ended";
    assert_int_equal(mongo_job_insert(session, &job, &arena, &claimed), STORE_OK);
    assert_int_equal(mongo_job_cancel(session, "job-ended"), STORE_OK); /* from now on it has ended */
    assert_int_equal(mongo_chunks_clean(session, now_ms - MINUTE, now_ms - MINUTE), STORE_OK);
    assert_true(has_part("broken", 0) && has_part("needed", 0) && has_part("ended", 0));
    assert_int_equal(mongo_chunks_clean(session, clock_now_ms() + MINUTE, now_ms - MINUTE), STORE_OK);
    assert_false(has_part("broken", 0));
    assert_true(has_part("ended", 0));
    assert_int_equal(mongo_chunks_clean(session, clock_now_ms() + MINUTE, clock_now_ms() + MINUTE), STORE_OK);
    for (int i = 0; i < 3; i++) {
        assert_false(has_part("broken", i));
        assert_true(has_part("needed", i));
        assert_false(has_part("ended", i));
    }
}

/* ---- what leaves with an archived coupon ---- */

#define LEAVERS 2500 /* more than two pages */

static int64_t let_leave(const char *coupon, enum remains_kind kind, int64_t end, bool whole)
{
    struct leaving l = {.coupon = coupon, .kind = kind, .end = end, .whole = whole};

    while (!l.done)
        assert_int_equal(mongo_leave(session, &l), STORE_OK);
    return l.count;
}

static int64_t count_left(const char *coupon, enum remains_kind kind, int64_t end)
{
    struct leaving l = {.coupon = coupon, .kind = kind, .end = end};
    int64_t left = 0;

    while (!l.done)
        assert_int_equal(mongo_leave_look(session, &l, &left), STORE_OK);
    assert_int_equal(left, l.count);
    return left;
}

static void what_has_left_is_nowhere_and_nothing_late_brings_it_back(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon(), *other = new_coupon();
    struct user_state *late = make_user_state("leaver-7", 1000);
    struct user_state_read read = {.coupon = coupon, .user = "leaver-7"};
    struct bucket bucket;
    struct bucket_read bucket_read = {.coupon = coupon, .b = 3, .bucket = &bucket};
    const char **coupons;
    struct user_state **states;
    size_t count;

    for (int64_t i = 0; i < LEAVERS; i++)
        write_user_state(coupon, make_user_state(arena_printf(&arena, "leaver-%d", (int)i), 5));
    write_user_state(other, make_user_state("leaver-7", 5));
    write_bucket(coupon, 0, 3, 1, DAY);
    write_bucket(other, 0, 3, 1, DAY);
    assert_int_equal(let_leave(coupon, REMAINS_USERS, 0, false), LEAVERS);
    assert_int_equal(let_leave(coupon, REMAINS_USERS, 0, false), LEAVERS); /* again, as after a crash */
    assert_int_equal(let_leave(coupon, REMAINS_BUCKETS, 0, false), 1);
    write_user_state(coupon, late);
    write_bucket(coupon, 0, 3, 1000, DAY);
    assert_int_equal(session->ops->user_states(session, no_time, &arena, &read, 1), STORE_OK);
    assert_null(read.user_state);
    bucket_init(&bucket, 3);
    assert_int_equal(session->ops->buckets(session, no_time, &bucket_read, 1), STORE_OK);
    assert_false(bucket_read.found);
    bucket_release(&bucket);
    assert_int_equal(mongo_user_states(session, "leaver-7", DAY, &arena, &coupons, &states, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(coupons[0], other);
    assert_int_equal(count_left(coupon, REMAINS_USERS, 0), LEAVERS);
    assert_int_equal(let_leave(coupon, REMAINS_USERS, 0, true), LEAVERS);
    assert_int_equal(count_left(coupon, REMAINS_USERS, 0), 0);
}

static enum append_result append_again(const struct batch *b)
{
    struct append a = {b, APPEND_UNKNOWN};

    assert_int_equal(session->ops->append(session, &a, 1), STORE_OK);
    return a.result;
}

static void a_batch_that_has_left_still_says_whose_it_is(void **state)
{
    NEEDS_SERVER();

    const char *coupon = new_coupon();
    struct batch *own = NULL, *foreign, *read[5];
    size_t count;

    for (int64_t seq = 1; seq <= 4; seq++) {
        struct batch *b = make_batch(coupon, 0, seq, DAY + seq);

        add(b, ENTRY_REDEEM, seq, ALIAS, "u");
        append_batch(b);
        if (seq == 2)
            own = b;
        else
            batch_free(b);
    }
    assert_int_equal(let_leave(coupon, REMAINS_LEDGER, 4, false), 3);
    assert_int_equal(append_again(own), APPEND_OURS);
    foreign = make_batch(coupon, 0, 2, DAY);
    add(foreign, ENTRY_REDEEM, 9, ALIAS, "late");
    assert_int_equal(append_again(foreign), APPEND_THEIRS);
    assert_int_equal(session->ops->ledger(session, coupon, 0, 0, 5, read, &count), STORE_OK);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(read[i]->head.seq, i + 1);
        assert_int_equal(read[i]->head.at_ms, DAY + (int64_t)i + 1);
        assert_int_equal(read[i]->left, i < 3);
        assert_int_equal(read[i]->count, i < 3 ? 0 : 1);
        batch_free(read[i]);
    }
    assert_int_equal(let_leave(coupon, REMAINS_LEDGER, 4, true), 2); /* the first says that there is such a ledger */
    assert_int_equal(count_left(coupon, REMAINS_LEDGER, 4), 1);
    batch_free(own);
    batch_free(foreign);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, mongo_setup, mongo_teardown)
    const struct CMUnitTest tests[] = {
        T(users_that_are_due_come_as_far_as_memory_goes),
        T(buckets_come_as_they_are_due_and_the_next_time_is_told),
        T(user_states_are_due_only_without_slots),
        T(a_damaged_user_state_is_left_out_of_what_is_due),
        T(a_lane_gets_the_due_user_states_of_its_own_users),
        T(what_is_known_better_is_not_looked_for),
        T(coupons_with_something_due_are_found_once),
        T(searches_go_by_their_index),
        T(coupons_are_over_until_they_were_seen_to),
        T(a_tombstone_says_so_and_goes_after_its_time),
        T(one_who_came_back_after_erasure_stays),
        T(batches_of_all_lanes_come_in_the_order_of_their_arrival),
        T(who_is_named_above_the_watermark_is_found),
        T(who_is_named_in_a_lane_that_is_held_is_found_below_the_watermark),
        T(a_watermark_holds_so_many_lanes_and_one_that_cannot_be_read_is_none),
        T(erasing_empties_the_names_of_one_alias_and_the_chain_still_verifies),
        T(an_erasure_of_what_left_is_not_noted_and_hides_no_other),
        T(an_ended_redemption_without_a_slot_is_found_in_its_lane),
        T(a_postponed_job_waits_and_its_runner_has_it_no_more),
        T(a_part_is_kept_byte_for_byte_until_it_was_imported),
        T(parts_go_when_nobody_needs_them),
        T(what_has_left_is_nowhere_and_nothing_late_brings_it_back),
        T(a_batch_that_has_left_still_says_whose_it_is),
    };

    return cmocka_run_group_tests(tests, mongo_group_setup, mongo_group_teardown);
}
