/* Unit tests of coupons/discount: what an order earns, its refusals in order, arithmetic at the bounds. */
#include "cmocka_whole.h"

#include "coupons/discount.h"

#define MONEY_MAX ((INT64_C(1) << 53) - 1)

__extension__ typedef __int128 wide;

static struct coupon c;
static struct order order;
static struct order_line lines[4];
static const char *const shoes[] = {"shoes", "boots"};
static const char *const skus[] = {"A1"};

FIXTURE(fresh)
{
    coupon_init(&c);
    c.discount.kind = DISCOUNT_AMOUNT;
    c.discount.amount_minor = 500;
    c.discount.currency = "EUR";
    memset(lines, 0, sizeof lines);
    order = (struct order){.id = "o", .amount_minor = 4200, .currency = "EUR", .lines = lines};
    return 0;
}

static void add_line(const char *sku, const char *category, int64_t amount_minor)
{
    lines[order.line_count++] = (struct order_line){sku, category, amount_minor, 1};
}

static void only(const char *const *categories, size_t category_count, const char *const *sku_list, size_t sku_count)
{
    c.discount.only.categories = (struct string_list){(const char **)categories, category_count};
    c.discount.only.skus = (struct string_list){(const char **)sku_list, sku_count};
}

static void assert_earns(const struct order *o, int64_t want)
{
    int64_t have = -1;
    struct misfit misfit = {MISFIT_COUNT, 0};
    enum cpn_result r = discount_of(&c, o, &have, &misfit);

    if (r != CPN_OK || have != want || misfit.reason != MISFIT_NONE || misfit.missing_minor != COUPON_NULL)
        fail_msg("%s, %lld (%d) instead of %lld", result_info(r)->name, (long long)have, misfit.reason, (long long)want);
}

static void assert_lacks(const struct order *o, enum misfit_reason reason, int64_t missing_minor)
{
    int64_t have = -1;
    struct misfit misfit = {MISFIT_COUNT, 0};
    enum cpn_result r = discount_of(&c, o, &have, &misfit);

    if (r != CPN_ORDER_NOT_ELIGIBLE || misfit.reason != reason || misfit.missing_minor != missing_minor || have != 0)
        fail_msg("%s, %lld, reason %d, %lld missing, instead of a refusal for %s, %lld missing", result_info(r)->name,
                 (long long)have, misfit.reason, (long long)misfit.missing_minor, misfit_name((int)reason),
                 (long long)missing_minor);
}

static void assert_refused(const struct order *o, enum misfit_reason reason)
{
    assert_lacks(o, reason, COUPON_NULL);
}

TEST(no_discount_asks_for_nothing)
{
    coupon_init(&c);
    assert_earns(NULL, 0);
    order.currency = "USD";
    assert_earns(&order, 0);
}

TEST(an_amount_is_at_most_the_order)
{
    assert_earns(&order, 500);
    order.amount_minor = 500;
    assert_earns(&order, 500);
    order.amount_minor = 499;
    assert_earns(&order, 499);
    order.amount_minor = 0;
    assert_earns(&order, 0);
}

TEST(an_amount_without_rule_needs_no_order)
{
    assert_earns(NULL, 500);
    order.amount_minor = COUPON_NULL;
    assert_earns(&order, 500);
}

TEST(a_rule_needs_an_order_and_its_amount)
{
    c.discount.min_spend_minor = 1;
    assert_refused(NULL, MISFIT_NO_ORDER);
    order.amount_minor = COUPON_NULL;
    assert_refused(&order, MISFIT_NO_ORDER);
    fresh(state);
    only(shoes, 2, NULL, 0);
    assert_refused(NULL, MISFIT_NO_ORDER);
    fresh(state);
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 1000;
    assert_refused(NULL, MISFIT_NO_ORDER);
    order.amount_minor = COUPON_NULL;
    assert_refused(&order, MISFIT_NO_ORDER);
}

TEST(the_currency_must_be_the_coupons)
{
    order.currency = "USD";
    assert_refused(&order, MISFIT_CURRENCY);
    order.currency = NULL;
    assert_refused(&order, MISFIT_CURRENCY);
    order.amount_minor = COUPON_NULL; /* it names an order, and no money: not the coupon's currency either */
    assert_refused(&order, MISFIT_CURRENCY);
    order.amount_minor = 4200;
    order.currency = "USD";
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 1000;
    c.discount.currency = NULL; /* a percentage of any money */
    assert_earns(&order, 420);
}

TEST(the_minimum_spend_is_reached_from_it_on)
{
    c.discount.min_spend_minor = 4200;
    assert_earns(&order, 500);
    c.discount.min_spend_minor = 4201;
    assert_lacks(&order, MISFIT_MIN_SPEND, 1);
    c.discount.kind = DISCOUNT_OTHER;
    assert_lacks(&order, MISFIT_MIN_SPEND, 1);
    c.discount.min_spend_minor = 4200;
    assert_earns(&order, 0);
}

TEST(lines_count_instead_of_the_amount)
{
    add_line("A1", "shoes", 100);
    add_line(NULL, NULL, 150);
    assert_earns(&order, 250);
    order.amount_minor = COUPON_NULL;
    assert_earns(&order, 250);
}

TEST(only_listed_lines_count)
{
    add_line("B1", "shoes", 100);
    add_line("B2", "hats", 1000);
    add_line("A1", "hats", 20);
    add_line(NULL, NULL, 5000);
    only(shoes, 2, NULL, 0);
    assert_earns(&order, 100);
    only(NULL, 0, skus, 1);
    assert_earns(&order, 20);
    only(shoes, 2, skus, 1); /* either will do */
    assert_earns(&order, 120);
    c.discount.min_spend_minor = 121;
    assert_lacks(&order, MISFIT_MIN_SPEND, 1);
    c.discount.min_spend_minor = 120;
    assert_earns(&order, 120);
}

TEST(an_order_without_a_listed_line_is_not_eligible)
{
    only(shoes + 1, 1, NULL, 0);
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM);
    add_line("A1", "shoes", 4200);
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM);
    only(shoes, 1, NULL, 0);
    lines[0].amount_minor = 0; /* listed, and free of charge */
    assert_earns(&order, 0);
}

TEST(refusals_come_in_their_order)
{
    c.discount.min_spend_minor = 10000;
    only(shoes, 2, NULL, 0);
    assert_refused(NULL, MISFIT_NO_ORDER);
    order.currency = "USD";
    assert_refused(&order, MISFIT_CURRENCY);
    order.currency = "EUR";
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM);
    add_line(NULL, "shoes", 9999);
    assert_lacks(&order, MISFIT_MIN_SPEND, 1);
    add_line(NULL, "boots", 1);
    assert_earns(&order, 500);
}

TEST(a_percentage_is_rounded_down)
{
    static const struct {
        int64_t sum, bp, want;
    } rows[] = {
        {4200, 1500, 630}, {1, 9999, 0},     {1, 10000, 1}, {9999, 1, 0}, {10000, 1, 1}, {19999, 1, 1}, {333, 3333, 110},
        {0, 5000, 0},      {MONEY_MAX, 10000, MONEY_MAX},   {MONEY_MAX, 1, 900719925474},
        {MONEY_MAX, 9999, 9006298534815516},
    };

    c.discount.kind = DISCOUNT_PERCENT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        order.amount_minor = rows[i].sum;
        c.discount.percent_bp = rows[i].bp;
        assert_earns(&order, rows[i].want);
    }
}

TEST(a_percentage_stops_at_its_maximum)
{
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 1500;
    c.discount.max_minor = 630;
    assert_earns(&order, 630);
    c.discount.max_minor = 629;
    assert_earns(&order, 629);
    c.discount.max_minor = 0;
    assert_earns(&order, 0);
}

TEST(a_percentage_is_exact_to_the_unit)
{
    srand(1);
    c.discount.kind = DISCOUNT_PERCENT;
    for (int i = 0; i < 100000; i++) {
        int64_t sum = ((int64_t)rand() << 22 ^ rand()) & MONEY_MAX, bp = 1 + rand() % 10000, have = -1;
        struct misfit misfit;

        order.amount_minor = sum;
        c.discount.percent_bp = bp;
        assert_int_equal(discount_of(&c, &order, &have, &misfit), CPN_OK);
        if (have != (int64_t)((wide)sum * bp / 10000))
            fail_msg("%lld of %lld at %lld", (long long)have, (long long)sum, (long long)bp);
    }
}

TEST(what_is_excepted_earns_nothing)
{
    c.discount.except.categories = (struct string_list){(const char **)shoes, 2};
    assert_refused(NULL, MISFIT_NO_ORDER);
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM); /* nobody knows what is in it */
    add_line("B", "boots", 4000);
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM);
    add_line("C", "hats", 200);
    assert_earns(&order, 200);
    add_line("A1", NULL, 150);
    assert_earns(&order, 350);
    c.discount.except.skus = (struct string_list){(const char **)skus, 1};
    assert_earns(&order, 200);
    c.discount.min_spend_minor = 201;
    assert_lacks(&order, MISFIT_MIN_SPEND, 1);
}

TEST(what_is_admitted_may_be_excepted)
{
    only(shoes, 2, NULL, 0);
    c.discount.except.skus = (struct string_list){(const char **)skus, 1};
    add_line("A1", "shoes", 100);
    assert_refused(&order, MISFIT_NO_MATCHING_ITEM);
    add_line("B", "shoes", 300);
    add_line("C", "hats", 1000);
    assert_earns(&order, 300);
}

/* A voucher may have lowered what is to be paid. */
TEST(a_discount_is_at_most_the_orders_amount)
{
    add_line("A1", "shoes", 4200);
    order.amount_minor = 300;
    assert_earns(&order, 300);
    c.discount.min_spend_minor = 4200; /* the lines reach it */
    assert_earns(&order, 300);
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 5000;
    assert_earns(&order, 300);
    order.amount_minor = 0;
    assert_earns(&order, 0);
    order.amount_minor = COUPON_NULL;
    assert_earns(&order, 2100);
}

TEST(enormous_lines_do_not_overflow)
{
    static struct order_line many[3000];

    for (size_t i = 0; i < 3000; i++)
        many[i] = (struct order_line){NULL, NULL, MONEY_MAX, 1};
    order.lines = many;
    order.line_count = 3000;
    order.amount_minor = MONEY_MAX;
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 10000;
    assert_earns(&order, MONEY_MAX);
}

/* ---- shares of the lines ---- */

/* want: NULL-terminated text of the shares. */
static void assert_shares(int64_t discount_minor, const char *want)
{
    int64_t shares[8], sum = 0;
    char text[256] = "";

    discount_shares(&c, &order, discount_minor, shares);
    for (size_t i = 0; i < order.line_count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? "," : "", (long long)shares[i]);
        sum += shares[i];
    }
    assert_string_equal(text, want);
    assert_int_equal(sum, discount_minor);
}

TEST(a_discount_is_divided_to_the_last_unit)
{
    for (int i = 0; i < 3; i++)
        lines[i] = (struct order_line){NULL, NULL, 1000, 1};
    order.lines = lines;
    order.line_count = 3;
    assert_shares(500, "167,167,166"); /* of equal remainders the earlier line's */
    assert_shares(1, "1,0,0");
    assert_shares(0, "0,0,0");
    assert_shares(3000, "1000,1000,1000");
    lines[0].amount_minor = 1;
    lines[1].amount_minor = 0;
    lines[2].amount_minor = 2;
    assert_shares(2, "1,0,1"); /* 0.67 and 1.33: the largest remainder, not the largest line */
    assert_shares(3, "1,0,2");
    lines[0].amount_minor = lines[2].amount_minor = INT64_C(10000000000000) / 2;
    assert_shares(INT64_C(9999999999999), "5000000000000,0,4999999999999");
}

TEST(only_lines_that_the_discount_applies_to_have_a_share)
{
    lines[0] = (struct order_line){"A1", "hats", 900, 1};
    lines[1] = (struct order_line){"A2", "shoes", 100, 1};
    lines[2] = (struct order_line){"A3", "shoes", 200, 1};
    order.lines = lines;
    order.line_count = 3;
    only(shoes, 1, NULL, 0);
    assert_shares(100, "0,33,67");
}

/* ---- the numbers of an order ---- */

static bool same_numbers(const struct order *a, const struct order *b)
{
    uint8_t x[ORDER_NUMBERS_LEN], y[ORDER_NUMBERS_LEN];

    order_numbers(a, x);
    order_numbers(b, y);
    return memcmp(x, y, sizeof x) == 0;
}

TEST(an_id_is_no_number)
{
    struct order other = order;

    other.id = "o-2";
    assert_true(same_numbers(&order, &other));
    assert_true(order_has_numbers(&order));
    assert_false(order_has_numbers(NULL));
    assert_false(order_has_numbers(&(struct order){.id = "o-2", .amount_minor = COUPON_NULL}));
    assert_true(order_has_numbers(&(struct order){.amount_minor = 0}));
}

TEST(each_number_of_an_order_counts)
{
    struct order_line both[2] = {{"A1", "shoes", 100, 1}, {"B2", NULL, 200, 2}}, changed[2];
    struct order a = {.amount_minor = COUPON_NULL, .currency = "EUR", .lines = both, .line_count = 2}, b = a;

    b.amount_minor = 300; /* which is what the lines come to */
    assert_true(same_numbers(&a, &b));
    assert_int_equal(order_amount(&a), 300);
    b.amount_minor = 301;
    assert_false(same_numbers(&a, &b));
    b = a;
    b.currency = NULL;
    assert_false(same_numbers(&a, &b));
    b = a;
    b.line_count = 1;
    assert_false(same_numbers(&a, &b));
    for (int i = 0; i < 4; i++) {
        memcpy(changed, both, sizeof both);
        changed[1].sku = i == 0 ? "B3" : "B2";
        changed[1].category = i == 1 ? "" : NULL;
        changed[1].quantity += i == 2;
        changed[1].amount_minor += i == 3;
        b = a;
        b.lines = changed;
        assert_false(same_numbers(&a, &b));
    }
}

RUN_TESTS(.each_setup = fresh)
