/* tests/engine/test_mongo_upkeep.c -- what is due, ended, erased or not written, against a real mongod. */
#include "cmocka_whole.h"
#include <sodium.h>

#include "base/clock.h"
#include "mongo_fixture.h"
#include "store/codec.h"
#include "store/secrets.h"
#include "store/reconcile.h"

#define DAY FIXTURE_DAY
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
    k.lane = lane;
    k.seq = seq;
    k.size = BUCKET_SLOTS;
    if (due_ms)
        k.slots[3] = (struct slot){.generation = 1, .current = 1, .state = SLOT_RESERVED, .at_ms = DAY,
                                   .due_ms = due_ms};
    write_view((struct view_write){.coupon = coupon, .bucket = &k});
    bucket_release(&k);
}

static void write_checkpoint(const char *coupon, int64_t lane, int64_t seq, int64_t due_ms)
{
    const struct checkpoint_write write = {coupon, lane, {.seq = seq, .due_ms = due_ms}};

    assert_int_equal(session->ops->write_checkpoints(session, &write, 1), STORE_OK);
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
    enum store_status status = session->ops->due_buckets(session, &search, 1);

    *count = search.count;
    *next_ms = search.next_due_ms;
    return status;
}

SERVER_TEST(buckets_come_as_they_are_due_and_the_next_time_is_known)
{
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

SERVER_TEST(what_is_known_better_is_not_looked_for)
{
    static const int64_t buckets[] = {7, 5, 99};
    const char *coupon = new_coupon();
    struct bucket found[2];
    struct due_search search = {.coupon = coupon, .at_ms = DAY + 4 * MINUTE, .most = 2, .but_buckets = buckets, .but_count = 3,
                                .buckets = found};

    for (int64_t b = 0; b < 8; b++)
        write_bucket(coupon, 0, b, 1, DAY + (10 - b) * MINUTE);
    assert_int_equal(session->ops->due_buckets(session, &search, 1), STORE_OK);
    assert_int_equal(search.count, 1);
    assert_int_equal(found[0].b, 6);
    assert_int_equal(search.next_due_ms, DAY + 6 * MINUTE);
    bucket_release(&found[0]);
}

static size_t due_lanes(int64_t before_ms, size_t most, struct due_lane *found)
{
    struct due_lane *lanes;
    size_t count;

    assert_int_equal(mongo_due_lanes(session, before_ms, most, &arena, &lanes, &count), STORE_OK);
    for (size_t i = 0; i < count; i++)
        found[i] = lanes[i];
    return count;
}

static bool is_lane(const struct due_lane *d, const char *coupon, int64_t lane)
{
    return strcmp(d->coupon, coupon) == 0 && d->lane == lane;
}

/* Before those of other tests. */
#define PAST (DAY - 1000 * MINUTE)

SERVER_TEST(lanes_are_due_by_their_checkpoints_the_earliest_first)
{
    const char *one = new_coupon(), *other = new_coupon(), *never = new_coupon();
    struct due_lane found[10];

    write_checkpoint(one, 0, 5, PAST + MINUTE);
    write_checkpoint(one, 3, 5, PAST + 2 * MINUTE);
    write_checkpoint(other, 0, 5, PAST);
    write_checkpoint(never, 0, 5, 0);
    assert_int_equal(due_lanes(PAST, 10, found), 0);
    assert_int_equal(due_lanes(PAST + 1, 10, found), 1);
    assert_true(is_lane(&found[0], other, 0));
    assert_int_equal(due_lanes(PAST + 3 * MINUTE, 10, found), 3);
    assert_true(is_lane(&found[0], other, 0) && is_lane(&found[1], one, 0) && is_lane(&found[2], one, 3));
    assert_int_equal(due_lanes(PAST + 3 * MINUTE, 2, found), 2);
    assert_true(is_lane(&found[1], one, 0));
    write_checkpoint(one, 0, 6, PAST + 5 * MINUTE); /* it was extended */
    write_checkpoint(other, 0, 6, 0);               /* and it was cancelled */
    assert_int_equal(due_lanes(PAST + 3 * MINUTE, 10, found), 1);
    assert_true(is_lane(&found[0], one, 3));
    write_checkpoint(one, 3, 4, PAST - MINUTE); /* late, and older */
    assert_int_equal(due_lanes(PAST, 10, found), 0);
    write_checkpoint(one, 0, 7, 0); /* so that other tests do not find them */
    write_checkpoint(one, 3, 7, 0);
}

/* The plan that wins for {find: collection, filter, sort, projection}, as text. */
static char *plan_of(const char *collection, const char *filter, const char *sort, const char *members)
{
    char *text = arena_printf(&arena, "{\"explain\":{\"find\":\"%s\",\"filter\":%s,\"sort\":%s,\"projection\":%s,\"limit\":8},"
                                      "\"verbosity\":\"queryPlanner\"}", collection, filter, sort, members ? members : "{}");
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

SERVER_TEST(searches_go_by_their_index)
{
    static const struct {
        const char *collection, *filter, *sort, *index, *members; /* members: all that is read, and the index alone has it */
    } searches[] = {
        {"buckets", "{\"_id.c\":\"plans\",\"view.lane\":0,\"view.due\":{\"$gt\":{\"$date\":{\"$numberLong\":\"0\"}}}}",
         "{\"view.due\":1}", "due", NULL},
        {"buckets", "{\"_id.c\":\"plans\",\"_id.b\":{\"$gte\":5,\"$lt\":4101}}", "{\"_id.b\":1}", "free_counts",
         "{\"_id.b\":1,\"view.free\":1,\"view.seq\":1}"},
        {"lanes", "{\"view.due\":{\"$gt\":{\"$date\":{\"$numberLong\":\"0\"}},\"$lt\":{\"$date\":\"2026-01-01T00:00:00Z\"}}}",
         "{\"view.due\":1}", "due", NULL},
        {"coupons", "{\"cleaned\":null,\"view.cleanup\":{\"$lte\":{\"$date\":\"2026-01-01T00:00:00Z\"}}}", "{}", "cleanup", NULL},
        {"codes", "{\"_id.code\":{\"$in\":[\"a\",\"b\"]},\"_id.c\":{\"$ne\":\"-\"}}", "{}", "code", NULL},
    };

    for (int64_t i = 1; i <= 200; i++) {
        write_bucket("plans", 0, i, 1, DAY + i * 31 % 200);
        write_checkpoint(arena_printf(&arena, "plans-%d", (int)i), 0, 1, DAY + i);
    }
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        const char *plan = plan_of(searches[i].collection, searches[i].filter, searches[i].sort, searches[i].members);
        const char *index = arena_printf(&arena, "\"indexName\" : \"%s\"", searches[i].index);

        if (!strstr(plan, index) || strstr(plan, "COLLSCAN") || strstr(plan, "\"SORT\"") ||
            (searches[i].members && strstr(plan, "FETCH")))
            fail_msg("%s is not the way of %s: %s", index, searches[i].filter, plan);
    }
}

/* ---- coupons that have ended ---- */

static void write_definition(const char *id, int64_t version, int64_t coupon_state, int64_t ends_at_ms, int64_t cleanup_after_s)
{
    struct coupon *c = make_coupon(id);

    c->version = version;
    c->state = coupon_state;
    c->ends_at_ms = ends_at_ms;
    c->cleanup_after_s = cleanup_after_s;
    write_view((struct view_write){.coupon = id, .definition = c, .seq = version});
}

static void write_coupon(const char *id, int64_t coupon_state, int64_t ends_at_ms, int64_t cleanup_after_s, int64_t changed_ms)
{
    struct batch *b = begin_batch(id, 0, 1);

    b->head.at_ms = changed_ms;
    batch_add(b, ENTRY_TICK);
    append_and_free(b);
    write_definition(id, 1, coupon_state, ends_at_ms, cleanup_after_s);
}

/* When the coupon is to be cleaned up; -1: it is not among them. */
static int64_t cleanup_of(const char *id, const struct ended_coupon *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].id, id) == 0)
            return rows[i].cleanup_ms;
    return -1;
}

SERVER_TEST(coupons_are_over_until_they_were_seen_to)
{
    const char *ended = new_coupon(), *past = new_coupon(), *running = new_coupon(), *soon = new_coupon(),
               *seen = new_coupon(), *gone = new_coupon(), *anew = new_coupon();
    int64_t now_ms = DAY + 100 * MINUTE;
    struct ended_coupon *rows;
    size_t count;

    write_coupon(ended, COUPON_ENDED, COUPON_NULL, 60, DAY);
    write_coupon(past, COUPON_ACTIVE, DAY + 10 * MINUTE, 60, DAY);
    write_coupon(running, COUPON_ACTIVE, DAY + 200 * MINUTE, 0, DAY);
    write_coupon(soon, COUPON_ENDED, COUPON_NULL, 6001, DAY);
    write_coupon(seen, COUPON_ENDED, COUPON_NULL, 60, DAY);
    write_coupon(gone, COUPON_DELETED, DAY, 60, DAY);
    write_coupon(anew, COUPON_ENDED, COUPON_NULL, 60, DAY + 50 * MINUTE); /* it had ended before, and cleaned up */
    assert_int_equal(mongo_ended_coupons(session, now_ms, 100, &arena, &rows, &count), STORE_OK);
    assert_int_equal(count, 4);
    assert_true(cleanup_of(ended, rows, count) == DAY + MINUTE);
    assert_true(cleanup_of(past, rows, count) == DAY + 11 * MINUTE);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].id, seen) == 0 || strcmp(rows[i].id, anew) == 0)
            assert_int_equal(mongo_ended_seen(session, &rows[i]), STORE_OK);
    write_definition(anew, 2, COUPON_ENDED, COUPON_NULL, 60); /* its definition changed */
    assert_int_equal(mongo_ended_coupons(session, now_ms, 100, &arena, &rows, &count), STORE_OK);
    assert_int_equal(count, 3);
    assert_true(cleanup_of(anew, rows, count) == DAY + 51 * MINUTE);
    rows[0].cleanup_ms++; /* who saw another time has not seen to this one */
    assert_int_equal(mongo_ended_seen(session, &rows[0]), STORE_OK);
    assert_int_equal(mongo_ended_coupons(session, now_ms, 100, &arena, &rows, &count), STORE_OK);
    assert_int_equal(count, 3);
    assert_int_equal(mongo_ended_coupons(session, now_ms, 1, &arena, &rows, &count), STORE_OK);
    assert_int_equal(count, 1);
}

/* ---- what came lately ---- */

#define FILLERS (8 * COUPON_LANES_MAX) /* batches: of more pages than one */

/* A time that is later than what has arrived, and not later than what will. */
static uint64_t time_now(void)
{
    struct watermark watermark;
    uint64_t now;

    append_taking(new_coupon(), 0, 1, "any", NULL);
    assert_int_equal(mongo_watermark(session, &watermark, &now), STORE_OK);
    return now;
}

static void append_fillers(const char *coupon)
{
    for (int64_t seq = 1; seq <= FILLERS / COUPON_LANES_MAX; seq++) {
        struct append appends[COUPON_LANES_MAX];

        for (int64_t lane = 0; lane < COUPON_LANES_MAX; lane++) {
            struct batch *b = begin_batch(coupon, lane, seq);

            batch_add(b, ENTRY_TICK);
            appends[lane] = (struct append){b, APPEND_UNKNOWN};
        }
        assert_int_equal(session->ops->append(session, appends, COUPON_LANES_MAX), STORE_OK);
        for (size_t i = 0; i < COUPON_LANES_MAX; i++)
            batch_free((struct batch *)appends[i].batch);
    }
}

SERVER_TEST(batches_of_all_lanes_come_in_the_order_of_their_arrival)
{
    struct arrivals_at at = {.from = time_now()};
    const char *first = new_coupon(), *fill = new_coupon(), *last = new_coupon();
    struct batch *b = begin_batch(last, 3, 1);
    struct arrival *arrivals;
    uint64_t before = at.from;
    size_t count, rows = 0;

    append_taking(first, 0, 1, "arrives", NULL);
    append_fillers(fill);
    b->head.at_ms = DAY - 100 * MINUTE; /* decided before all others */
    b->lanes = 4;
    batch_add(b, ENTRY_TICK);
    append_and_free(b);
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

static void set_watermark(uint64_t arrived)
{
    assert_int_equal(mongo_watermark_write(session, &(struct watermark){.arrived = arrived}), STORE_OK);
}

SERVER_TEST(a_watermark_begins_only_before_the_first_batch)
{
    struct watermark none;

    (void)time_now();
    set_watermark(0); /* none: nothing is known */
    assert_int_equal(mongo_watermark(session, &none, NULL), STORE_NOT_FOUND);
    assert_int_equal(mongo_watermark_begin(session), STORE_OK);
    assert_int_equal(mongo_watermark(session, &none, NULL), STORE_NOT_FOUND); /* for the ledger is not empty */
    set_watermark(1);
}

SERVER_TEST(a_watermark_is_read_with_the_lanes_that_it_holds)
{
    struct watermark w = {.arrived = 1}, read;

    assert_true(watermark_add_behind(&w, "held", 3) && watermark_add_behind(&w, "held", 2));
    assert_true(watermark_add_behind(&w, "other", 0) && watermark_add_behind(&w, "other", 0));
    w.arrived = time_now();
    assert_int_equal(mongo_watermark_write(session, &w), STORE_OK);
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_OK);
    assert_true(read.arrived == w.arrived && read.behind_count == 3);
    assert_true(watermark_has_behind(&read, "held", 3) && watermark_has_behind(&read, "held", 2) && watermark_has_behind(&read, "other", 0));
    assert_false(watermark_has_behind(&read, "held", 0) || watermark_has_behind(&read, "other", 1));
    set_watermark(w.arrived);
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_OK);
    assert_int_equal(read.behind_count, 0);
    set_watermark(1);
}

SERVER_TEST(a_watermark_holds_so_many_lanes_and_one_that_cannot_be_read_is_none)
{
    struct watermark w = {.arrived = 1}, read;

    for (int64_t lane = 0; lane < BEHIND_MOST; lane++)
        assert_true(watermark_add_behind(&w, "full", lane));
    assert_false(watermark_add_behind(&w, "full", BEHIND_MOST));
    assert_true(watermark_add_behind(&w, "full", 0));
    assert_int_equal(mongo_watermark_write(session, &w), STORE_OK);
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_OK);
    assert_int_equal(read.behind_count, BEHIND_MOST);
    change_document("watermarks", bson_new(), BCON_NEW("$push", "{", "behind", "{", "c", "one-more", "l", BCON_INT64(0), "}", "}"));
    assert_int_equal(mongo_watermark(session, &read, NULL), STORE_NOT_FOUND);
    assert_int_equal(read.behind_count, 0);
    set_watermark(1);
}

/* ---- erased users ---- */

static size_t erasures_of(const char *user, const char *coupon, struct erasure *last)
{
    struct erasure *found;
    size_t count, here = 0;

    assert_int_equal(mongo_erasures(session, user, 100, &arena, &found, &count), STORE_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].coupon, coupon) == 0) {
            *last = found[i];
            here++;
        }
    return here;
}

static void append_erased(const char *coupon, int64_t seq, const char *user)
{
    struct batch *b = begin_batch(coupon, 3, seq);

    add(b, ENTRY_RESERVE, 1, ALIAS, user);
    add(b, ENTRY_ERASE, 0, ALIAS, user);
    append_and_free(b);
}

SERVER_TEST(erasing_empties_the_names_of_one_alias_and_the_chain_still_verifies)
{
    const char *coupon = new_coupon();
    struct batch *b = begin_batch(coupon, 3, 1), *plain = begin_batch(coupon, 3, 2), *back;
    struct erasure erasure;
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
    assert_int_equal(append_one(b), APPEND_OURS);
    batch_add(plain, ENTRY_TICK);
    append_and_free(plain);
    append_erased(coupon, 3, "u-1");

    assert_int_equal(erasures_of("u-1", coupon, &erasure), 1);
    assert_true(erasure.lane == 3 && erasure.seq == 3);
    assert_string_equal(erasure.alias, ALIAS);
    assert_int_equal(mongo_erase_names(session, &erasure), STORE_OK);
    assert_int_equal(mongo_erase_names(session, &erasure), STORE_OK); /* again */
    assert_int_equal(erasures_of(NULL, coupon, &erasure), 0);
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
    batch_free(back);
}

static int64_t remove_documents(const char *coupon)
{
    struct removal r = {.coupon = coupon};

    while (r.collection < REMOVED_COLLECTIONS)
        assert_int_equal(mongo_remove_page(session, &r), STORE_OK);
    return r.count;
}

/* An erasure that slept through the removal, too. */
SERVER_TEST(an_erasure_of_what_was_removed_is_not_noted_and_hides_no_other)
{
    const char *removed = new_coupon(), *stays = new_coupon();
    struct erasure of_removed, of_stays;

    append_erased(removed, 1, "u-removed");
    append_erased(stays, 1, "u-stays");
    assert_int_equal(erasures_of("u-removed", removed, &of_removed), 1);
    assert_int_equal(remove_documents(removed), 1);
    assert_int_equal(mongo_erase_names(session, &of_removed), STORE_OK);
    assert_int_equal(erasures_of(NULL, removed, &of_removed), 0);
    assert_int_equal(erasures_of(NULL, stays, &of_stays), 1);
    assert_int_equal(mongo_erase_names(session, &of_stays), STORE_OK);
    assert_int_equal(erasures_of(NULL, stays, &of_stays), 0);
}

SERVER_TEST(an_ended_redemption_without_a_slot_is_found_in_its_lane)
{
    const char *coupon = new_coupon();
    struct batch *b[2], *found;
    struct entry *e;

    for (int lane = 0; lane < 2; lane++) {
        b[lane] = begin_batch(coupon, lane, 9);
        e = add(b[lane], ENTRY_REVERSE, -8, ALIAS, "u-1");
        e->from = 4;
        e->from_n = -5;
        assert_int_equal(append_one(b[lane]), APPEND_OURS);
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

SERVER_TEST(a_postponed_job_waits_and_its_runner_has_it_no_more)
{
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
    assert_string_equal(job_kind_name(JOB_CLEANUP), "cleanup");
}

static void put_part(const char *upload, int64_t number, const char *text, size_t len)
{
    struct upload_chunk p = {.upload = upload, .number = number, .first_line = number * 10 + 1, .text = text, .len = len};

    assert_int_equal(mongo_chunk_put(session, &p), STORE_OK);
}

SERVER_TEST(a_part_is_kept_byte_for_byte_until_it_was_imported)
{
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

SERVER_TEST(parts_go_when_nobody_needs_them)
{
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

#define BUCKETS 1100 /* more than a page */

static bool is_removed(const char *coupon)
{
    bool removed;

    assert_int_equal(mongo_is_removed(session, coupon, &removed), STORE_OK);
    return removed;
}

SERVER_TEST(buckets_go_a_page_at_a_time_and_no_other_coupons)
{
    const char *coupon = new_coupon(), *other = new_coupon();

    for (int64_t b = 0; b < BUCKETS; b++)
        write_bucket(coupon, 0, b, 1, 0);
    write_bucket(other, 0, 3, 1, 0);
    assert_false(is_removed(coupon));
    assert_int_equal(remove_documents(coupon), BUCKETS);
    assert_true(is_removed(coupon));
    assert_int_equal(remove_documents(coupon), 0); /* again, as after a crash */
    assert_false(is_removed(other));
}

/* Append batches 1 to 5: the third closes the lane, the fourth erases, the fifth releases it. */
static void append_closed(const char *coupon, int64_t lane)
{
    for (int64_t seq = 1; seq <= 5; seq++) {
        struct batch *b = begin_batch(coupon, lane, seq);

        b->head.at_ms = DAY + 10 * lane + seq;
        b->head.archived = seq < 3 ? 0 : seq < 5 ? LANE_CLOSED : LANE_REMOVED;
        add(b, ENTRY_REDEEM, seq, ALIAS, "u");
        append_and_free(b);
    }
}

SERVER_TEST(of_each_lane_the_batches_from_the_closing_one_on_stay)
{
    const char *coupon = new_coupon();
    struct batch *read[6];
    size_t count;

    for (int64_t lane = 0; lane < 2; lane++)
        append_closed(coupon, lane);
    assert_false(is_removed(coupon));
    assert_int_equal(remove_documents(coupon), 4);
    assert_true(is_removed(coupon));
    for (int64_t lane = 0; lane < 2; lane++) {
        assert_int_equal(session->ops->ledger(session, coupon, lane, 0, 6, read, &count), STORE_OK);
        assert_int_equal(count, 3);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(read[i]->head.seq, 3 + i);
            batch_free(read[i]);
        }
    }
}

SERVER_TEST(a_coupon_is_known_by_how_it_was_closed)
{
    const char *coupon = new_coupon(), *open = new_coupon();
    uint8_t hashes[2 * HASH_LEN], whole[HASH_LEN], digest[FINGERPRINT_LEN];
    struct batch *closing;
    int64_t at_ms;

    for (int64_t lane = 0; lane < 2; lane++) {
        append_closed(coupon, lane);
        assert_int_equal(mongo_ledger_at(session, coupon, lane, 3, &closing), STORE_OK);
        memcpy(hashes + lane * HASH_LEN, closing->head.hash, HASH_LEN);
        batch_free(closing);
    }
    crypto_hash_sha256(whole, hashes, sizeof hashes);
    assert_int_equal(mongo_closing(session, coupon, 2, digest, &at_ms), STORE_OK);
    assert_memory_equal(digest, whole, FINGERPRINT_LEN);
    assert_int_equal(at_ms, DAY + 13);
    remove_documents(coupon);
    memset(digest, 0, sizeof digest);
    assert_int_equal(mongo_closing(session, coupon, 2, digest, &at_ms), STORE_OK);
    assert_memory_equal(digest, whole, FINGERPRINT_LEN);
    assert_int_equal(mongo_closing(session, coupon, 3, digest, &at_ms), STORE_NOT_FOUND);
    append_erased(open, 1, "u");
    assert_int_equal(mongo_closing(session, open, 1, digest, &at_ms), STORE_NOT_FOUND);
}

RUN_SERVER_TESTS()
