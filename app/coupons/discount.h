/*
 * coupons/discount.h -- what an order earns: pure integer arithmetic.
 *
 * Shape   an order is an amount, a currency and lines; a line's amount_minor is its total
 * Units   minor units of the order's currency, 0..2^53-1
 * Source  the HTTP contract, chapter Coupons, discount.kind
 */
#ifndef COUPONS_DISCOUNT_H
#define COUPONS_DISCOUNT_H

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

/* The discount that order (NULL: none) earns, into *discount_minor.
 * CPN_OK, or ORDER_NOT_ELIGIBLE with *why pointing to a static sentence: no order, currency, categories, minimum spend.
 * discount.only admits a line whose category or whose sku is listed; with lists, an order without lines has none.
 * An order that names no currency is taken to be in the coupon's. */
enum cpn_result discount_of(const struct coupon *c, const struct order *order, int64_t *discount_minor,
                            const char **why) CPN_CHECKED;

#endif
