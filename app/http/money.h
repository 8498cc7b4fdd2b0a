/*
 * http/money.h -- money in answers: `money`, an item for each currency.
 *
 * Units   minor units of the currency
 */
#ifndef HTTP_MONEY_H
#define HTTP_MONEY_H

#include "base/json.h"

/* Write an item, unless both amounts are 0. currency NULL: of coupons that name none. */
static inline void money_item(struct json *j, const char *currency, int64_t discount_minor, int64_t order_minor)
{
    if (!discount_minor && !order_minor)
        return;
    json_begin_object(j);
    json_key_string(j, "currency", currency);
    json_key_int(j, "discount_minor", discount_minor);
    json_key_int(j, "order_minor", order_minor);
    json_end_object(j);
}

#endif
