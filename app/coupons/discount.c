/*
 * coupons/discount.c -- see discount.h.
 *
 * Order   of checks: as in enum misfit_reason; a missing amount is found after the currency
 * Amount  if lines are given, rules apply to their sum, and the order's amount only limits the discount
 */
#include "coupons/discount.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define BP 10000

static bool lists(const struct string_list *list, const char *text)
{
    if (!text)
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

static bool is_empty(const struct selection *s)
{
    return !s->categories.count && !s->skus.count;
}

static bool selects(const struct selection *s, const struct order_line *line)
{
    return lists(&s->categories, line->category) || lists(&s->skus, line->sku);
}

static bool is_selective(const struct coupon *c)
{
    return !is_empty(&c->discount.only) || !is_empty(&c->discount.except);
}

static bool admits(const struct coupon *c, const struct order_line *line)
{
    return (is_empty(&c->discount.only) || selects(&c->discount.only, line)) && !selects(&c->discount.except, line);
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return limit != COUPON_NULL && value > limit ? limit : value;
}

int64_t order_amount(const struct order *order)
{
    int64_t sum = 0;

    if (order->amount_minor != COUPON_NULL || order->line_count == 0)
        return order->amount_minor;
    for (size_t i = 0; i < order->line_count; i++)
        sum += order->lines[i].amount_minor;
    return at_most(sum, MONEY_MAX);
}

bool order_has_numbers(const struct order *order)
{
    return order && (order->amount_minor != COUPON_NULL || order->currency || order->line_count);
}

static void hash_int(crypto_generichash_state *h, int64_t value)
{
    crypto_generichash_update(h, (const unsigned char *)&value, sizeof value);
}

/* With its length, so that no two rows of texts look alike. */
static void hash_text(crypto_generichash_state *h, const char *text)
{
    hash_int(h, text ? (int64_t)strlen(text) : -1);
    if (text)
        crypto_generichash_update(h, (const unsigned char *)text, strlen(text));
}

void order_numbers(const struct order *order, uint8_t hash[ORDER_NUMBERS_LEN])
{
    crypto_generichash_state h;

    crypto_generichash_init(&h, NULL, 0, ORDER_NUMBERS_LEN);
    hash_int(&h, order_amount(order));
    hash_text(&h, order->currency);
    for (size_t i = 0; i < order->line_count; i++) {
        const struct order_line *line = &order->lines[i];

        hash_text(&h, line->sku);
        hash_text(&h, line->category);
        hash_int(&h, line->amount_minor);
        hash_int(&h, line->quantity);
    }
    crypto_generichash_final(&h, hash, ORDER_NUMBERS_LEN);
}

/* What the coupon applies to: the sum of the admitted lines, at most MONEY_MAX; the order's amount if it has no lines;
 * COUPON_NULL if no line is admitted, or nothing is known. */
static int64_t admitted_sum(const struct coupon *c, const struct order *order)
{
    int64_t sum = COUPON_NULL;

    if (order->line_count == 0)
        return is_selective(c) ? COUPON_NULL : order->amount_minor;
    for (size_t i = 0; i < order->line_count; i++) {
        const struct order_line *line = &order->lines[i];

        if (!admits(c, line))
            continue;
        assert(line->amount_minor >= 0 && line->amount_minor <= MONEY_MAX);
        sum = (sum == COUPON_NULL ? 0 : sum) + line->amount_minor;
        if (sum > MONEY_MAX)
            sum = MONEY_MAX;
    }
    return sum;
}

/* floor(sum * bp / 10000) without overflow of 64 bits. */
static int64_t share(int64_t sum, int64_t bp)
{
    return sum / BP * bp + sum % BP * bp / BP;
}

/* The discount on sum; COUPON_NULL: no sum to limit it. */
static int64_t discount_on(const struct coupon *c, int64_t sum)
{
    switch (c->discount.kind) {
    case DISCOUNT_AMOUNT:
        return at_most(c->discount.amount_minor, sum);
    case DISCOUNT_PERCENT:
        return at_most(share(sum, c->discount.percent_bp), c->discount.max_minor);
    default:
        return 0;
    }
}

static const struct {
    const char *name, *detail;
} misfits[MISFIT_COUNT] = {
    [MISFIT_NO_ORDER] = {"no_order", "The coupon requires an order with its amount."},
    [MISFIT_CURRENCY] = {"currency", "The order is not in the coupon's currency, or names none."},
    [MISFIT_NO_MATCHING_ITEM] = {"no_matching_item", "No item of the order matches the coupon's categories or skus."},
    [MISFIT_MIN_SPEND] = {"min_spend", "The order is below the coupon's minimum spend."},
};

const char *misfit_name(int reason)
{
    return reason >= 0 && reason < MISFIT_COUNT ? misfits[reason].name : NULL;
}

const char *misfit_detail(enum misfit_reason reason)
{
    return misfits[reason].detail;
}

enum cpn_result discount_of(const struct coupon *c, const struct order *order, int64_t *discount_minor, struct misfit *misfit)
{
    bool needs_sum = c->discount.kind == DISCOUNT_PERCENT || is_selective(c) || c->discount.min_spend_minor > 0;
    int64_t sum = order ? admitted_sum(c, order) : COUPON_NULL;

    *discount_minor = 0;
    *misfit = (struct misfit){.reason = MISFIT_NONE, .missing_minor = COUPON_NULL};
    if (c->discount.kind == DISCOUNT_NONE)
        return CPN_OK;
    if (!order && needs_sum) {
        misfit->reason = MISFIT_NO_ORDER;
    } else if (order && c->discount.currency && (!order->currency || strcmp(order->currency, c->discount.currency) != 0)) {
        misfit->reason = MISFIT_CURRENCY;
    } else if (needs_sum && sum == COUPON_NULL) {
        misfit->reason = is_selective(c) ? MISFIT_NO_MATCHING_ITEM : MISFIT_NO_ORDER;
    } else if (sum != COUPON_NULL && sum < c->discount.min_spend_minor) {
        misfit->reason = MISFIT_MIN_SPEND;
        misfit->missing_minor = c->discount.min_spend_minor - sum;
    }
    if (misfit->reason != MISFIT_NONE)
        return CPN_ORDER_NOT_ELIGIBLE;
    *discount_minor = at_most(discount_on(c, sum), order ? order->amount_minor : COUPON_NULL);
    return CPN_OK;
}

__extension__ typedef unsigned __int128 wide;

/* A line's rest of the division, for the largest of them. */
struct rest {
    int64_t rest;
    size_t line;
};

static int by_rest(const void *a, const void *b)
{
    const struct rest *x = a, *y = b;

    if (x->rest != y->rest)
        return x->rest < y->rest ? 1 : -1;
    return x->line < y->line ? -1 : x->line > y->line;
}

void shares_divide(const int64_t *weights, size_t count, int64_t discount_minor, int64_t *shares)
{
    struct rest *rests = checked(calloc(count + 1, sizeof *rests));
    int64_t remainder = discount_minor;
    size_t most = 0;
    wide sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (wide)weights[i];
    assert(discount_minor >= 0 && sum >= (wide)discount_minor);
    for (size_t i = 0; i < count; i++) {
        wide product = (wide)discount_minor * (wide)weights[i];

        shares[i] = sum ? (int64_t)(product / sum) : 0;
        remainder -= shares[i];
        if (weights[i])
            rests[most++] = (struct rest){(int64_t)(product % sum), i};
    }
    qsort(rests, most, sizeof *rests, by_rest);
    assert(remainder >= 0 && (size_t)remainder <= most);
    for (size_t i = 0; i < (size_t)remainder; i++)
        shares[rests[i].line]++;
    free(rests);
}

void discount_shares(const struct coupon *c, const struct order *order, int64_t discount_minor, int64_t *shares)
{
    int64_t *weights = checked(calloc(order->line_count + 1, sizeof *weights));

    for (size_t i = 0; discount_minor && i < order->line_count; i++)
        weights[i] = admits(c, &order->lines[i]) ? order->lines[i].amount_minor : 0;
    shares_divide(weights, order->line_count, discount_minor, shares);
    free(weights);
}
