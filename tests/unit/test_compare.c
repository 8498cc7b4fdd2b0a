/* Unit tests of verify/compare: what is told of two records that differ, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "verify/compare.h"

static struct buf told;

static int fresh(void **state)
{
    (void)state;
    buf_clear(&told);
    return 0;
}

static int release(void **state)
{
    (void)state;
    buf_free(&told);
    return 0;
}

static void tell(void *context, const char *field, const char *expected, const char *found)
{
    (void)context;
    buf_printf(&told, "%s %s %s\n", field, expected, found);
}

/* What was told is this; afterwards nothing is. */
static void assert_told(const char *text)
{
    assert_string_equal(told.len ? told.data : "", text);
    buf_clear(&told);
}

static const struct extension extension = {{0xAA}, {0xBB}, 31};

static const struct redemption redemption = {
    .n = 1, .g = 2, .from_n = 3, .from = 4, .lane = 5, .seq = 6, .last_seq = 7, .ordinal = 8, .at_ms = 9, .day_ms = 10, .ended_ms = 11,
    .reserved_until_ms = 12, .valid_until_ms = 13, .discount_minor = 14, .state = SLOT_REDEEMED, .first_state = 200, .first_until_ms = 16,
    .first_discount_minor = 17, .first_order = "o-1", .left = 18, .day = 19, .user = 20, .user_day = 21, .key = {1}, .fingerprint = {2},
    .extended_key = {3}, .extended_fingerprint = {4}, .earlier = &extension, .earlier_count = 1, .spent_key = {5}, .spent_fingerprint = {6},
    .order = "o-2", .metadata = "{}", .code = "AB-12"};

static void every_field_of_a_redemption_is_told(void **state)
{
    static const struct extension other_extension = {.until_ms = 0};
    struct redemption expected = redemption, found = {.earlier = &other_extension, .earlier_count = 1, .metadata = "{\"a\":1}"};
    struct user_state a = {.redemptions = &expected, .count = 1}, b = {.redemptions = &found, .count = 1};

    (void)state;
    compare_user_state(&a, &a, tell, NULL);
    assert_told("");
    compare_user_state(&a, &b, tell, NULL);
    assert_told("redemption 1-2 n 1 0\n"
                "redemption 1-2 g 2 0\n"
                "redemption 1-2 from_n 3 0\n"
                "redemption 1-2 from 4 0\n"
                "redemption 1-2 lane 5 0\n"
                "redemption 1-2 seq 6 0\n"
                "redemption 1-2 last_seq 7 0\n"
                "redemption 1-2 ordinal 8 0\n"
                "redemption 1-2 at_ms 9 0\n"
                "redemption 1-2 day_ms 10 0\n"
                "redemption 1-2 ended_ms 11 0\n"
                "redemption 1-2 reserved_until_ms 12 0\n"
                "redemption 1-2 valid_until_ms 13 0\n"
                "redemption 1-2 discount_minor 14 0\n"
                "redemption 1-2 state redeemed free\n"
                "redemption 1-2 first_state 200 free\n"
                "redemption 1-2 first_until_ms 16 0\n"
                "redemption 1-2 first_discount_minor 17 0\n"
                "redemption 1-2 first_order o-1 null\n"
                "redemption 1-2 left 18 0\n"
                "redemption 1-2 day 19 0\n"
                "redemption 1-2 user 20 0\n"
                "redemption 1-2 user_day 21 0\n"
                "redemption 1-2 key 01000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 fingerprint 02000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 extended_key 03000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 extended_fingerprint 04000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 spent_key 05000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 spent_fingerprint 06000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 order o-2 null\n"
                "redemption 1-2 metadata {} {\"a\":1}\n"
                "redemption 1-2 code AB-12 null\n"
                "redemption 1-2 earlier key aa000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 earlier fingerprint bb000000000000000000000000000000 00000000000000000000000000000000\n"
                "redemption 1-2 earlier until_ms 31 0\n");
    found = redemption;
    found.earlier_count = 0;
    compare_user_state(&a, &b, tell, NULL);
    assert_told("redemption 1-2 earlier 1 0\n");
    b.count = 0;
    compare_user_state(&a, &b, tell, NULL);
    assert_told("redemptions 1 0\n");
}

static void every_field_of_a_user_state_is_told_but_the_alias(void **state)
{
    const struct user_state a = {.user = "ann", .alias = "a", .version = 1, .seq = 2, .total = 3, .day_ms = 4, .today = 5, .erased_ms = 6,
                                 .erased_lane = 7, .stored = true, .renamed = true, .touched = true};
    const struct user_state b = {.alias = "b", .orders_unfound = true};

    (void)state;
    compare_user_state(&a, &b, tell, NULL);
    assert_told("user ann null\n"
                "version 1 0\n"
                "seq 2 0\n"
                "total 3 0\n"
                "day_ms 4 0\n"
                "today 5 0\n"
                "erased_ms 6 0\n"
                "erased_lane 7 0\n"
                "orders_unfound false true\n");
}

static void every_field_of_a_bucket_and_its_slots_is_told(void **state)
{
    struct bucket a, b;

    (void)state;
    bucket_init(&a, 1);
    bucket_init(&b, 2);
    a.hops = 1;
    a.lane = 2;
    a.seq = 3;
    a.pick = INT64_MAX;
    a.slots[63] = (struct slot){.generation = UINT32_MAX, .current = 2, .state = SLOT_RESERVED, .at_ms = 3, .due_ms = 4, .from = 5,
                                .issued = true};
    b.slots[63].user = strdup("ann");
    b.slots[62].user = strdup("bob");
    b.stored_free = 64;
    compare_bucket(&a, &b, tell, NULL);
    assert_told("b 1 2\n"
                "hops 1 0\n"
                "lane 2 0\n"
                "seq 3 0\n"
                "pick 9223372036854775807 0\n"
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

static void every_count_of_a_report_is_told(void **state)
{
    const struct report_counts a = {.issued = 1, .reserved = 2, .redeemed = 3, .cancelled = 4, .expired = 5, .reversed = 6,
                                    .discount_minor = INT64_MIN};
    const struct report_counts none = {0};

    (void)state;
    compare_counts(&a, &none, tell, NULL);
    assert_told("issued 1 0\n"
                "reserved 2 0\n"
                "redeemed 3 0\n"
                "cancelled 4 0\n"
                "expired 5 0\n"
                "reversed 6 0\n"
                "discount_minor -9223372036854775808 0\n");
}

static void every_total_of_a_head_is_told(void **state)
{
    const struct head a = {.seq = 1, .at_ms = 2, .version = 3, .slots = 4, .due = 5, .next_n = 6, .issued = 7, .reserved = 8, .redeemed = 9,
                           .ordinal = 10, .discount_minor = 11, .day_ms = 12, .day_taken = 13, .elsewhere = 14, .turn = 17, .low_stock = 18, .sold_out = 19, .replenish_until = 20, .archived = 21,
                           .epoch = 22, .hash = {1}};
    const struct head none = {0};

    (void)state;
    compare_head(&a, &none, tell, NULL);
    assert_told("version 3 0\n"
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

static void every_field_of_a_job_is_told(void **state)
{
    const struct job_progress job = {.id = "j1", .version = 1, .seq = 2, .total = 3, .step = 4, .turn = 5, .fence = 6};
    const struct job_progress no_job = {.id = "j2"};

    (void)state;
    compare_job(&job, &no_job, tell, NULL);
    assert_told("version 1 0\n"
                "seq 2 0\n"
                "total 3 0\n"
                "step 4 0\n"
                "turn 5 0\n"
                "fence 6 0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_field_of_a_redemption_is_told, fresh),
        cmocka_unit_test_setup(every_field_of_a_user_state_is_told_but_the_alias, fresh),
        cmocka_unit_test_setup(every_field_of_a_bucket_and_its_slots_is_told, fresh),
        cmocka_unit_test_setup(every_count_of_a_report_is_told, fresh),
        cmocka_unit_test_setup(every_total_of_a_head_is_told, fresh),
        cmocka_unit_test_setup(every_field_of_a_job_is_told, fresh),
    };

    return cmocka_run_group_tests_name("compare", tests, NULL, release);
}
