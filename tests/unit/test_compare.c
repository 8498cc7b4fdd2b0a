/* Unit tests of verify/compare: what is reported of two records that differ, and in which order. */
#include "cmocka_whole.h"

#include "base/buf.h"
#include "verify/compare.h"

static struct buf reported;

FIXTURE(fresh)
{
    buf_clear(&reported);
    return 0;
}

FIXTURE(release)
{
    buf_free(&reported);
    return 0;
}

static void tell(void *context, const char *field, const char *expected, const char *found)
{
    (void)context;
    buf_printf(&reported, "%s %s %s\n", field, expected, found);
}

/* What was reported is this; afterwards nothing is. */
static void assert_reported(const char *text)
{
    assert_string_equal(reported.len ? reported.data : "", text);
    buf_clear(&reported);
}

TEST(every_field_of_a_bucket_and_its_slots_is_reported)
{
    struct bucket a, b;

    bucket_init(&a, 1);
    bucket_init(&b, 2);
    a.lane = 2;
    a.seq = 3;
    a.slots[63] = (struct slot){.generation = UINT32_MAX, .current = 2, .state = SLOT_RESERVED, .at_ms = 3, .due_ms = 4, .from = 5,
                                .issued = true};
    b.slots[63].user = strdup("ann");
    b.slots[62].user = strdup("bob");
    b.stored_free = 64;
    compare_bucket(&a, &b, tell, NULL);
    assert_reported("b 1 2\n"
                "lane 2 0\n"
                "seq 3 0\n"
                "free 63 64\n"
                "slot 126 user null bob\n"
                "slot 127 generation 4294967295 0\n"
                "slot 127 current 2 0\n"
                "slot 127 state reserved free\n"
                "slot 127 user null ann\n"
                "slot 127 at_ms 3 0\n"
                "slot 127 due_ms 4 0\n"
                "slot 127 from 5 0\n"
                "slot 127 issued true false\n");
    bucket_release(&a);
    bucket_release(&b);
}

TEST(every_count_of_a_report_is_reported)
{
    const struct report_counts a = {.issued = 1, .reserved = 2, .redeemed = 3, .cancelled = 4, .expired = 5, .reversed = 6,
                                    .discount_minor = INT64_MIN};
    const struct report_counts none = {0};

    compare_counts(&a, &none, tell, NULL);
    assert_reported("issued 1 0\n"
                "reserved 2 0\n"
                "redeemed 3 0\n"
                "cancelled 4 0\n"
                "expired 5 0\n"
                "reversed 6 0\n"
                "discount_minor -9223372036854775808 0\n");
}

TEST(every_total_of_a_head_is_reported)
{
    const struct head a = {.seq = 1, .at_ms = 2, .version = 3, .slots = 4, .retiring = 5, .next_n = 6, .issued = 7, .reserved = 8, .redeemed = 9,
                           .ordinal = 10, .discount_minor = 11, .day_ms = 12, .day_taken = 13, .elsewhere = 14, .turn = 17, .low_stock = 18, .sold_out = 19, .replenish_until = 20, .archived = 21,
                           .epoch = 22, .hash = {1}};
    const struct head none = {0};

    compare_head(&a, &none, tell, NULL);
    assert_reported("version 3 0\n"
                "slots 4 0\n"
                "due 5 0\n"
                "next_n 6 0\n"
                "issued 7 0\n"
                "reserved 8 0\n"
                "redeemed 9 0\n"
                "ordinal 10 0\n"
                "discount_minor 11 0\n"
                "day_ms 12 0\n"
                "day_taken 13 0\n"
                "turn 17 0\n"
                "low_stock 18 0\n"
                "sold_out 19 0\n"
                "replenish_until 20 0\n"
                "archived 21 0\n"
                "elsewhere 14 0\n"
                "epoch 22 0\n");
}

/* As the API writes values: so two items are not one with a comma. */
TEST(the_fields_of_a_definition_that_differ_are_reported)
{
    static const char *one[] = {"a,b"}, *two[] = {"a", "b"};
    struct coupon a, b;

    coupon_init(&a);
    a.version = 2;
    a.title = "Ten \"%\"";
    a.state = COUPON_ACTIVE;
    a.starts_at_ms = 0;
    a.ends_at_ms = 1000;
    a.cap.total = 7;
    a.discount.only.skus = (struct string_list){one, 1};
    b = a;
    compare_coupon(&a, &b, tell, NULL);
    assert_reported("");
    b.version = 3;
    b.title = NULL;
    b.state = COUPON_PAUSED;
    b.starts_at_ms = COUPON_NULL;
    b.cap.total = COUPON_NULL;
    b.discount.only.skus = (struct string_list){two, 2};
    compare_coupon(&a, &b, tell, NULL);
    assert_reported("version 2 3\n"
                    "/cap/total 7 null\n"
                    "/discount/only/skus [\"a,b\"] [\"a\",\"b\"]\n"
                    "/starts_at \"1970-01-01T00:00:00.000Z\" null\n"
                    "/state \"active\" \"paused\"\n"
                    "/title \"Ten \\\"%\\\"\" null\n");
}

RUN_TESTS(.each_setup = fresh, .teardown = release)
