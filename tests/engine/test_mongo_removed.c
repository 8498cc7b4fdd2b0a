/* tests/engine/test_mongo_removed.c -- what verify compares of a coupon that was removed with its archive, on a real mongod. */
#include "cmocka_whole.h"

#include "mongo_fixture.h"
#include "verify/scan.h"

#define LANES 2

/* The last batch of each lane says how much was redeemed, and for how much. */
static const char *removed_coupon(void)
{
    const char *coupon = new_coupon();

    for (int64_t lane = 0; lane < LANES; lane++) {
        struct batch *b;

        b = begin_batch(coupon, lane, 2);
        batch_add(b, ENTRY_ARCHIVE);
        batch_add(b, ENTRY_ARCHIVE);
        b->head.archived = LANE_REMOVED;
        b->head.redeemed = 2 + lane;
        b->head.discount_minor = 100;
        append_and_free(b);
    }
    return coupon;
}

static void add_totals(const char *coupon, int64_t lane, int64_t seq, struct report_counts counts)
{
    struct totals_write w = {.coupon = coupon, .lane = lane, .quarter_ms = FIXTURE_DAY, .first_seq = seq, .last_seq = seq, .counts = &counts};

    assert_int_equal(mongo_totals_add(session, &w, 1), STORE_OK);
    assert_true(w.applied);
}

static void note_totals(void *context, const struct drift *d)
{
    const char **found = context;

    if (strcmp(d->what, "totals") == 0)
        *found = arena_printf(&arena, "%s[%s %s: %s, not %s]", *found, d->where, d->field, d->found, d->expected);
}

static const char *found_in_totals(const char *coupon)
{
    struct scan scan = {.session = session, .coupon = coupon};
    const char *found = "";
    bool unfinished;

    assert_int_equal(scan_removed(&scan, LANES, &unfinished, note_totals, &found), STORE_OK);
    return found;
}

SERVER_TEST(its_totals_are_compared_with_the_last_batches)
{
    const char *coupon = removed_coupon();

    assert_string_equal(found_in_totals(coupon), "[lane 0 redeemed: 0, not 2][lane 0 discount_minor: 0, not 100]"
                                                 "[lane 1 redeemed: 0, not 3][lane 1 discount_minor: 0, not 100]");
    add_totals(coupon, 0, 1, (struct report_counts){.redeemed = 3, .reversed = 1, .discount_minor = 100});
    add_totals(coupon, 1, 1, (struct report_counts){.redeemed = 3, .discount_minor = 100});
    assert_string_equal(found_in_totals(coupon), "");
    add_totals(coupon, 1, 2, (struct report_counts){.redeemed = 1});
    assert_string_equal(found_in_totals(coupon), "[lane 1 redeemed: 4, not 3]");
    add_totals(coupon, 1, 3, (struct report_counts){.reversed = 1});
    assert_string_equal(found_in_totals(coupon), "");
    damage("totals", coupon, "_id.l", 0, NULL, "redeemed");
    assert_string_equal(found_in_totals(coupon), "[lane 0 row: another, not one of a lane that can be read]"
                                                 "[lane 0 redeemed: 0, not 2][lane 0 discount_minor: 0, not 100]");
}

/* A removal that was cut off in lane 0: neither the definition nor the closing batch is first. */
SERVER_TEST(how_many_lanes_it_has_is_known_in_the_middle_of_a_removal)
{
    const char *coupon = new_coupon();
    struct scan scan = {.session = session, .coupon = coupon};
    int64_t lanes;

    for (int64_t seq = 7; seq <= 8; seq++) {
        struct batch *b = begin_batch(coupon, 0, seq);

        b->lanes = LANES;
        batch_add(b, seq == 8 ? ENTRY_ARCHIVE : ENTRY_TICK);
        b->head.archived = seq == 8 ? LANE_CLOSED : 0;
        append_and_free(b);
    }
    assert_int_equal(scan_lanes(&scan, &lanes), STORE_OK);
    assert_int_equal(lanes, LANES);
}

RUN_SERVER_TESTS()
