/* Tests of store/report and store/report_sum on a real mongod: sums by column and coupon, coupons, lanes, zones. */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "engine/mongo_fixture.h"
#include "store/reconcile.h"

static void add_quarter(const char *coupon, const char *at, int64_t seq)
{
    struct report_counts one = {.redeemed = 1};
    struct totals_write w = {.coupon = coupon, .first_seq = seq, .last_seq = seq, .counts = &one};

    assert_true(clock_parse(at, &w.quarter_ms));
    assert_int_equal(mongo_totals_add(session, &w, 1), STORE_OK);
    assert_true(w.applied);
}

static int64_t time_of(const char *text)
{
    int64_t at_ms = 0;

    assert_true(clock_parse(text, &at_ms));
    return at_ms;
}

static void assert_group(const struct report_group *g, const char *of, const char *currency)
{
    char name[REPORT_NAME_SIZE];

    snprintf(name, sizeof name, "%s" REPORT_BY "%s", of, currency);
    assert_string_equal(g->name, name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

SERVER_TEST(totals_are_added_up_by_column_and_coupon)
{
    const char *ids[] = {new_coupon(), new_coupon(), new_coupon()};
    int64_t starts[] = {time_of("2026-03-28T23:00:00Z"), time_of("2026-03-29T22:00:00Z"), time_of("2026-03-30T22:00:00Z")};
    struct report_query q = {.ids = ids, .count = 3, .starts = starts, .columns = 2, .cells_max = 6};
    struct report_sums sums;

    qsort(ids, 3, sizeof ids[0], by_text);
    add_quarter(ids[0], "2026-03-28T22:45:00Z", 1); /* before the first column */
    add_quarter(ids[0], "2026-03-28T23:00:00Z", 2);
    add_quarter(ids[0], "2026-03-29T21:45:00Z", 3);
    add_quarter(ids[0], "2026-03-29T22:00:00Z", 4);
    add_quarter(ids[0], "2026-03-30T22:00:00Z", 5); /* behind the last one */
    add_quarter(ids[2], "2026-03-29T12:00:00Z", 1);
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_int_equal(sums.count, 1);
    assert_int_equal(sums.latest[0].seq, 4);
    assert_int_equal(sums.groups[0].counts[0].redeemed, 3);
    assert_int_equal(sums.groups[0].counts[1].redeemed, 1);
    report_sums_free(&sums);
    q.grouped = true;
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_int_equal(sums.count, 2);
    assert_group(&sums.groups[0], ids[0], "");
    assert_group(&sums.groups[1], ids[2], "");
    assert_int_equal(sums.groups[0].counts[0].redeemed, 2);
    assert_int_equal(sums.groups[1].counts[0].redeemed, 1);
    assert_int_equal(sums.groups[1].counts[1].redeemed, 0);
    report_sums_free(&sums);
    q.cells_max = 3;
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_true(sums.too_many);
    report_sums_free(&sums);
}

static void append_batch(const char *coupon, int64_t lane, int64_t at_ms)
{
    struct batch *b = begin_batch(coupon, lane, 1);

    batch_add(b, ENTRY_TICK);
    b->head.at_ms = at_ms;
    append_and_free(b);
}

SERVER_TEST(a_lane_stands_where_its_mark_says_or_else_its_ledger)
{
    const char *coupon = new_coupon();
    int64_t in_ledger = time_of("2026-03-28T23:00:00Z"), in_position = in_ledger + 1, other = in_ledger + 2;
    struct totals_position_write positions[] = {{coupon, 0, 1, in_position}, {coupon, 1, 1, 0}};
    struct rewrite rewrite = {.kind = REWRITE_TOTALS_POSITION, .coupon = coupon, .seq = 1};
    struct report_lane *lanes;
    size_t count, done = 0;

    append_batch(coupon, 0, in_ledger);
    append_batch(coupon, 1, other);
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_OK);
    assert_int_equal(mongo_report_lanes(session, &coupon, 1, NULL, 0, &arena, &lanes, &count), STORE_OK);
    assert_int_equal(count, 2);
    assert_true(lanes[0].lane == 0 && lanes[0].seq == 1 && lanes[0].at_ms == in_position);
    assert_true(lanes[1].lane == 1 && lanes[1].seq == 1 && lanes[1].at_ms == other);
    assert_int_equal(mongo_rewrite(session, &rewrite, 1, &done), STORE_OK); /* which may take it back */
    assert_int_equal(done, 1);
    assert_int_equal(mongo_report_lanes(session, &coupon, 1, NULL, 0, &arena, &lanes, &count), STORE_OK);
    assert_int_equal(lanes[0].at_ms, in_ledger);
}

/* So much that several threads read it: the sums are those of one. */
SERVER_TEST(slices_add_up)
{
    const char *ids[40];
    struct report_query q = {.ids = ids, .count = 40, .grouped = true, .cells_max = 40 * 7};
    struct report_counts one = {.redeemed = 1};
    struct totals_write writes[700];
    int64_t starts[8], sum = 0;
    struct report_sums sums;

    for (int i = 0; i < 40; i++)
        ids[i] = new_coupon();
    qsort(ids, 40, sizeof ids[0], by_text);
    for (int i = 0; i < 8; i++)
        starts[i] = time_of("2026-01-01T00:00:00Z") + i * INT64_C(10) * 86400000;
    for (int i = 0; i < 700; i++) /* ten a day */
        writes[i] = (struct totals_write){ids[i * 7 % 40], 0, starts[0] + i * INT64_C(96) * QUARTER_MS / 10 / QUARTER_MS * QUARTER_MS,
                                          1, 1, &one, NULL, false, 0, false};
    assert_int_equal(mongo_totals_add(session, writes, 700), STORE_OK);
    q.starts = starts;
    q.columns = 7;
    assert_int_equal(mongo_report(session, &q, &sums), STORE_OK);
    assert_false(sums.too_many);
    assert_int_equal(sums.count, 40);
    for (size_t i = 0; i < sums.count; i++) {
        assert_group(&sums.groups[i], ids[i], "");
        for (size_t k = 0; k < 7; k++)
            sum += sums.groups[i].counts[k].redeemed;
    }
    assert_int_equal(sum, 700);
    for (size_t k = 0; k < 7; k++) {
        sum = 0;
        for (size_t i = 0; i < sums.count; i++)
            sum += sums.groups[i].counts[k].redeemed;
        assert_int_equal(sum, 100);
    }
    report_sums_free(&sums);
}

SERVER_TEST(a_zone_is_known_by_its_changes)
{
    static const struct zone_offset expected[] = {{0, 60}, {1774746000000, 120}, {1792890000000, 60}};
    struct zone z;

    assert_int_equal(mongo_zone(session, "Europe/Berlin", time_of("2026-01-20T00:00:00Z"), time_of("2026-12-01T00:00:00Z"),
                                &arena, &z), STORE_OK);
    assert_int_equal(z.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(z.offsets[i].minutes, expected[i].minutes);
        if (i)
            assert_int_equal(z.offsets[i].from_ms, expected[i].from_ms);
    }
    assert_int_equal(mongo_zone(session, "Asia/Kathmandu", 0, 1, &arena, &z), STORE_OK);
    assert_int_equal(z.offsets[0].minutes, 330); /* until 1986 */
    assert_int_equal(mongo_zone(session, "No/Where", 0, 1, &arena, &z), STORE_NO_ZONE);
    assert_int_equal(mongo_zone(session, "UTC", 0, time_of("2200-01-01T00:00:00Z"), &arena, &z), STORE_OK);
    assert_int_equal(z.count, 1);
}

RUN_SERVER_TESTS()
