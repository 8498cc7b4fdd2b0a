/*
 * coupons/discount.h -- the discount on an order: pure integer arithmetic.
 *
 * Shape   an order is an amount, a currency and lines; a line's amount_minor is its total
 * Units   minor units of the order's currency, 0..2^53-1
 * Source  static/docs/openapi.json, discount.kind
 */
#ifndef COUPONS_DISCOUNT_H
#define COUPONS_DISCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"
#include "coupons/coupon.h"

struct order_line {
    const char *sku;      /* NULL: none */
    const char *category; /* NULL: none */
    int64_t amount_minor;
    int64_t quantity;
};

struct order {
    const char *id;       /* NULL: none */
    int64_t amount_minor; /* COUPON_NULL: not given */
    const char *currency; /* NULL: none */
    const struct order_line *lines;
    size_t line_count;
};

/* What the order is worth: its amount, else the sum of its lines; COUPON_NULL: neither is given. */
int64_t order_amount(const struct order *order);
/* True if the order (NULL: none) has numbers: an amount, a currency or lines. */
bool order_has_numbers(const struct order *order);
/* A hash of them: two orders with the same hash have the same numbers. The id is none of them. */
#define ORDER_NUMBERS_LEN 16
void order_numbers(const struct order *order, uint8_t hash[ORDER_NUMBERS_LEN]);

/* Why an order is not eligible, in order of checking. */
enum misfit_reason {
    MISFIT_NONE,
    MISFIT_NO_ORDER,         /* or one without an amount, though a rule or a percentage needs it */
    MISFIT_CURRENCY,         /* not the coupon's, or none */
    MISFIT_NO_MATCHING_ITEM, /* discount.only and discount.except admit no line */
    MISFIT_MIN_SPEND,        /* the admitted lines are worth too little */
    MISFIT_COUNT
};

struct misfit {
    enum misfit_reason reason;
    int64_t missing_minor; /* for MIN_SPEND: how much is missing; else COUPON_NULL */
};

/* The name on the wire, and a sentence for people. NULL: MISFIT_NONE, or not in the enum (misfit_name() only). */
const char *misfit_name(int reason);
const char *misfit_detail(enum misfit_reason reason);

/* Compute the order's discount (order NULL: none), into *discount_minor. CPN_OK, or ORDER_NOT_ELIGIBLE with *misfit.
 * A line is admitted if discount.only lists its category or sku, or lists nothing, and discount.except lists neither. If they list any,
 * an order without lines has none admitted. The discount is at most what is admitted, and at most the order's amount. */
enum cpn_result discount_of(const struct coupon *c, const struct order *order, int64_t *discount_minor,
                            struct misfit *misfit) CPN_CHECKED;

/* Divide the discount by these weights, whose sum is at least the discount: the largest remainders get what rounding down leaves, of equal
 * ones the earlier. The shares add up to it exactly, and none is larger than its weight. */
void shares_divide(const int64_t *weights, size_t count, int64_t discount_minor, int64_t *shares);
/* Among the order's lines, by the amounts of those that it applies to. */
void discount_shares(const struct coupon *c, const struct order *order, int64_t discount_minor, int64_t *shares);

#endif
