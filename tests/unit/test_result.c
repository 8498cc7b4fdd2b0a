/* Unit tests of base/result: the table is whole, and its order is the contract's order of checks. */
#include "cmocka_whole.h"

#include "base/result.h"

TEST(every_row_is_filled_and_found_by_its_name)
{
    for (unsigned i = 0; i < CPN_RESULT_COUNT; i++) {
        const struct result_info *info = result_info((enum cpn_result)i);

        assert_non_null(info->name);
        assert_int_equal(result_of_name(info->name), i);
        assert_int_equal(strspn(info->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(info->name));
        assert_true(info->status == 200 || (info->status >= 400 && info->status < 600));
        assert_true(strlen(info->title) > 0 && strlen(info->explanation) > 0);
        assert_int_equal(info->explanation[strlen(info->explanation) - 1], '.');
    }
    assert_int_equal(result_of_name("no_such_result"), CPN_RESULT_COUNT);
    assert_int_equal(result_of_name(""), CPN_RESULT_COUNT);
}

TEST(refusals_are_the_part_of_the_table_that_is_decided)
{
    for (unsigned i = 0; i < CPN_REFUSAL_COUNT; i++)
        assert_int_equal(result_refusal(result_of_name(refusal_name((enum cpn_refusal)i))), i);
    assert_int_equal(result_refusal(CPN_TOO_MANY_ATTEMPTS), 0);
    assert_int_equal(result_refusal(CPN_INVALID_TRANSITION), CPN_REFUSAL_COUNT - 1);
    assert_int_equal(result_refusal(CPN_OK), CPN_REFUSAL_COUNT);
    assert_int_equal(result_refusal(CPN_COUPON_NOT_FOUND), CPN_REFUSAL_COUNT);
    assert_int_equal(result_refusal(CPN_BUSY), CPN_REFUSAL_COUNT);
}

/* The contract's two lists, in the order in which they are checked. */
TEST(precedence_is_the_order_of_the_contract)
{
    static const struct {
        const char *name;
        int status;
    } order[] = {
        {"unauthorized", 401}, {"forbidden", 403}, {"not_found", 404}, {"method_not_allowed", 405},
        {"not_acceptable", 406}, {"unsupported_media_type", 415}, {"too_large", 413}, {"idempotency_key_required", 400},
        {"coupon_not_found", 404}, {"precondition_required", 428}, {"version_changed", 412}, {"bad_request", 400},
        {"idempotency_key_reused", 422}, {"coupon_not_active", 409}, {"coupon_not_started", 409}, {"coupon_ended", 409},
        {"code_not_found", 404}, {"code_taken", 409}, {"transaction_in_progress", 409}, {"order_not_eligible", 409},
        {"user_cap_reached", 409}, {"user_daily_cap_reached", 409}, {"daily_cap_reached", 409}, {"budget_reached", 409},
        {"sold_out", 409}, {"reservation_expired", 409}, {"invalid_transition", 409}, {"busy", 503},
        {"outcome_unknown", 503},
    };
    static const char *const names[] = {
#define X(number, name, wire, ...) wire,
        CPN_RESULTS(X)
#undef X
    };
    size_t last = 0;

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        unsigned r = result_of_name(order[i].name);
        size_t row = 0;

        while (row < CPN_RESULT_COUNT && strcmp(names[row], order[i].name) != 0)
            row++;
        if (r == CPN_RESULT_COUNT || row <= last)
            fail_msg("%s stands in the wrong place", order[i].name);
        assert_int_equal(result_info((enum cpn_result)r)->status, order[i].status);
        last = row;
    }
}

TEST(retry_is_said_where_the_contract_says_it)
{
    static const char *const retry[] = {
        "coupon_not_active", "coupon_not_started", "transaction_in_progress", "user_daily_cap_reached",
        "daily_cap_reached", "budget_reached", "busy", "outcome_unknown", "rate_limited", "too_many_attempts", "internal",
    };

    for (unsigned r = 0; r < CPN_RESULT_COUNT; r++) {
        const struct result_info *info = result_info((enum cpn_result)r);
        bool want = false;

        for (size_t i = 0; i < sizeof retry / sizeof *retry; i++)
            want = want || strcmp(info->name, retry[i]) == 0;
        if (info->retry != want)
            fail_msg("retry of %s is %d", info->name, info->retry);
    }
}

RUN_TESTS()
