/* Tests of store/refusals, store/report_sum and http/refusal_counter on a real mongod: each refusal counts once. */
#include "cmocka_whole.h"
#include <pthread.h>

#include "base/clock.h"
#include "engine/mongo_fixture.h"
#include "http/refusal_counter.h"

#define ALWAYS_MS (INT64_C(365) * 24 * 3600 * 1000)
#define QUARTER(i) ((i) * QUARTER_MS)

static void write_one(const char *writer, const char *coupon, int64_t quarter_ms, int64_t sold_out, int64_t ended)
{
    struct refusals_write w = {.quarter_ms = quarter_ms};

    memcpy(w.coupon, coupon, strlen(coupon) + 1);
    w.counts.of[CPN_REFUSAL_SOLD_OUT] = sold_out;
    w.counts.of[CPN_REFUSAL_COUPON_ENDED] = ended;
    assert_int_equal(mongo_refusals_write(session, writer, &w, 1), STORE_OK);
}

static struct refusal_counts counts_of(const char *coupon, int64_t from_ms, int64_t to_ms)
{
    struct refusal_counts counts;

    assert_int_equal(mongo_refusals(session, coupon, from_ms, to_ms, &counts), STORE_OK);
    return counts;
}

SERVER_TEST(a_repeat_or_a_late_writing_counts_once)
{
    const char *coupon = new_coupon();

    write_one("a", coupon, QUARTER(1), 3, 0);
    write_one("a", coupon, QUARTER(1), 3, 0);
    assert_int_equal(counts_of(coupon, 0, ALWAYS_MS).of[CPN_REFUSAL_SOLD_OUT], 3);
    write_one("a", coupon, QUARTER(1), 5, 2);
    write_one("a", coupon, QUARTER(1), 3, 0); /* which the network held up */
    assert_int_equal(counts_of(coupon, 0, ALWAYS_MS).of[CPN_REFUSAL_SOLD_OUT], 5);
    assert_int_equal(counts_of(coupon, 0, ALWAYS_MS).of[CPN_REFUSAL_COUPON_ENDED], 2);
    write_one("b", coupon, QUARTER(1), 1, 0);
    write_one("a", coupon, QUARTER(2), 10, 0);
    assert_int_equal(counts_of(coupon, 0, ALWAYS_MS).of[CPN_REFUSAL_SOLD_OUT], 16);
    assert_int_equal(counts_of(coupon, QUARTER(1), QUARTER(2)).of[CPN_REFUSAL_SOLD_OUT], 6);
    assert_int_equal(counts_of(new_coupon(), 0, ALWAYS_MS).of[CPN_REFUSAL_SOLD_OUT], 0);
}

/* Also where a coupon was only refused, and beside totals. */
SERVER_TEST(reports_hold_the_refusals_of_each_column_and_coupon)
{
    const char *ids[] = {new_coupon(), new_coupon()};
    int64_t starts[] = {QUARTER(4), QUARTER(8), QUARTER(12)};
    struct report_query q = {.ids = ids, .count = 2, .starts = starts, .columns = 2, .cells_max = 4};
    struct report_counts one = {.redeemed = 1};
    struct totals_write w = {.coupon = ids[0], .quarter_ms = QUARTER(5), .first_seq = 1, .last_seq = 1, .counts = &one};
    struct report_sums sums;
    int first = strcmp(ids[0], ids[1]) > 0; /* of the groups, which ascend */

    assert_int_equal(mongo_totals_add(session, &w, 1), STORE_OK);
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_true(sums.count == 1 && !sums.groups[0].refused);
    report_sums_free(&sums);
    write_one("a", ids[0], QUARTER(3), 100, 0); /* before the first column */
    write_one("a", ids[0], QUARTER(4), 1, 0);
    write_one("a", ids[0], QUARTER(7), 2, 5);
    write_one("a", ids[1], QUARTER(11), 4, 0);
    write_one("a", ids[1], QUARTER(12), 100, 0); /* behind the last one */
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_int_equal(sums.count, 1);
    assert_int_equal(sums.groups[0].counts[0].redeemed, 1);
    assert_int_equal(sums.groups[0].refused[0].of[CPN_REFUSAL_SOLD_OUT], 3);
    assert_int_equal(sums.groups[0].refused[0].of[CPN_REFUSAL_COUPON_ENDED], 5);
    assert_int_equal(sums.groups[0].refused[1].of[CPN_REFUSAL_SOLD_OUT], 4);
    report_sums_free(&sums);
    q.grouped = true;
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_int_equal(sums.count, 2);
    assert_int_equal(sums.groups[first].refused[0].of[CPN_REFUSAL_SOLD_OUT], 3);
    assert_int_equal(sums.groups[first].refused[1].of[CPN_REFUSAL_SOLD_OUT], 0);
    assert_int_equal(sums.groups[!first].refused[1].of[CPN_REFUSAL_SOLD_OUT], 4);
    assert_int_equal(sums.groups[!first].counts[1].redeemed, 0);
    report_sums_free(&sums);
    q.cells_max = 3;
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_true(sums.too_many);
    report_sums_free(&sums);
}

SERVER_TEST(what_is_old_goes)
{
    const char *coupon = new_coupon();

    write_one("a", coupon, QUARTER(1), 1, 0);
    write_one("a", coupon, QUARTER(2), 2, 0);
    assert_int_equal(mongo_refusals_clean(session, QUARTER(2)), STORE_OK);
    assert_int_equal(counts_of(coupon, 0, ALWAYS_MS).of[CPN_REFUSAL_SOLD_OUT], 2);
}

/* ---- the counter ---- */

#define COUPONS (REFUSALS_MAX / 2 + 1000) /* more than a book has before it is closed */
#define THREADS 4

static char coupons[COUPONS][16];

static void *refuse_all(void *counter)
{
    for (int i = 0; i < COUPONS; i++)
        refusal_counter_add(counter, coupons[i], i % 2 ? CPN_REFUSAL_SOLD_OUT : CPN_REFUSAL_COUPON_ENDED);
    return NULL;
}

/* What is stored of them, and by how many writers. */
static int64_t stored(size_t *writers)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *refusals = mongoc_client_get_collection(client, config.mongodb_database, "refusals");
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, in;
    const bson_t *doc;
    mongoc_cursor_t *cursor;
    bson_iter_t it;
    char last[64] = "";
    int64_t sum = 0;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id.c", &in);
    BSON_APPEND_UTF8(&in, "$gte", "counter-");
    BSON_APPEND_UTF8(&in, "$lt", "counter.");
    bson_append_document_end(&filter, &in);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "sort", &in);
    BSON_APPEND_INT32(&in, "_id.w", 1);
    bson_append_document_end(&opts, &in);
    cursor = mongoc_collection_find_with_opts(refusals, &filter, &opts, NULL);
    *writers = 0;
    while (mongoc_cursor_next(cursor, &doc)) {
        bson_iter_t id;

        assert_true(bson_iter_init_find(&it, doc, "_id") && bson_iter_recurse(&it, &id) && bson_iter_find(&id, "w"));
        if (strcmp(last, bson_iter_utf8(&id, NULL)) != 0)
            ++*writers;
        snprintf(last, sizeof last, "%s", bson_iter_utf8(&id, NULL));
        while (bson_iter_next(&it))
            sum += bson_iter_as_int64(&it);
    }
    mongoc_cursor_destroy(cursor);
    bson_destroy(&filter);
    bson_destroy(&opts);
    mongoc_collection_destroy(refusals);
    mongoc_client_destroy(client);
    return sum;
}

static void await_stored(int64_t sum)
{
    size_t writers;

    for (int i = 0; stored(&writers) < sum; i++) {
        assert_true(i < 1200);
        nanosleep(&(struct timespec){0, 100 * 1000000}, NULL);
    }
}

/* So many coupons that the book is closed at the latest when they are refused once more, and another one begun. */
SERVER_TEST(a_counter_writes_each_refusal_once)
{
    struct refusal_counter *counter = refusal_counter_start(mongo);
    pthread_t threads[THREADS];
    size_t writers;

    for (int i = 0; i < COUPONS; i++)
        snprintf(coupons[i], sizeof coupons[i], "counter-%d", i);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, refuse_all, counter), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    await_stored(THREADS * COUPONS);
    refuse_all(counter);
    await_stored((THREADS + 1) * COUPONS);
    refuse_all(counter);
    refusal_counter_stop(counter);
    assert_int_equal(stored(&writers), (THREADS + 2) * COUPONS);
    assert_true(writers >= 2);
}

SERVER_TEST(past_its_room_a_counter_counts_what_it_has)
{
    struct refusal_counter *counter = refusal_counter_start(mongo);
    char coupon[24];
    size_t writers;
    int64_t before = stored(&writers);

    for (int i = 0; i < 4 * REFUSALS_MAX; i++) {
        snprintf(coupon, sizeof coupon, "counter-more-%d", i);
        refusal_counter_add(counter, coupon, CPN_REFUSAL_SOLD_OUT);
    }
    refusal_counter_stop(counter);
    assert_true(stored(&writers) - before >= REFUSALS_MAX);
}

RUN_SERVER_TESTS()
