/*
 * http/redemption_body.h -- a taking in JSON, in and out.
 */
#ifndef HTTP_REDEMPTION_BODY_H
#define HTTP_REDEMPTION_BODY_H

#include "http/fields.h"
#include "http/request.h"
#include "http/user_name.h"

/* Row of a body's table: the user, a string at that offset. */
#define ROW_USER(offset)                                                                                               \
    {"user", ROW_STRING, (offset), 1, USER_MAX, .flags = ROW_REQUIRED, .kept = user_name, .rule = USER_RULE}

/* For calls about a user whose name fits no path: nginx refuses a segment "..", even one within an escaped segment. */
struct user_in {
    const char *user;
};
extern const struct field_table user_table;
/* The user that the call is about: of such a body, else of the path. */
static inline const char *user_of_call(const struct request *r)
{
    return r->in ? ((const struct user_in *)r->in)->user : r->params[0];
}

/* In the order of the names on the wire. */
enum take_state { TAKE_ISSUED, TAKE_RESERVED, TAKE_REDEEMED };

/* A request to take, as read, with defaults. */
struct take_in {
    const char *user;
    int64_t state;     /* enum take_state */
    const char *code;
    int64_t reserve_s; /* COUPON_NULL: not given */
    const char *metadata;
    struct order *order;
    const char *key;   /* in a batch only */
};

/* Body of a redemption's reserve and redeem. */
struct step_in {
    int64_t reserve_s; /* COUPON_NULL: not given */
    struct order *order;
};

/* Body of reverse; that of cancel has no members. */
struct reverse_in {
    int64_t keep_use; /* true: the user's use does not come back */
};

/* Body of adjust: one of both. */
struct adjust_in {
    int64_t discount_minor; /* COUPON_NULL: not given */
    struct order *order;
};

/* Body of a look-up: which coupon has this code. */
struct resolve_in {
    const char *code;
    const char *user;
    struct order *order;
};

extern const struct field_table take_table;       /* of one request */
extern const struct field_table take_item_table;  /* of a batch item: with key */
extern const struct field_table step_table, reverse_table, cancel_table, adjust_table, resolve_table;

/* For keys of role public, into the same structs: only the code and the order. The user is one who never takes anything, so the answer
 * reveals nothing about anybody. */
#define NO_USER "\x01public"
extern const struct field_table public_take_table, public_resolve_table;
/* One of a few names for NO_USER, at random: spreads the checks of pages over a coupon's lanes. */
const char *no_user(struct arena *a);

/* Fill op's user and take. Strings are borrowed from in; key NULL: nothing is to be taken. */
void take_fill(struct op *op, const struct take_in *in, const char *key);

/* Write a check's answer for a shop: ok, problem, discount_minor, and why the order is not eligible. */
void check_write_members(struct json *j, const struct op *op);
/* The same for a page: the reason only if the order is not eligible. A code that is unknown, somebody's or spent, and a coupon that is
 * paused, over or used up, all look alike. */
void public_write_members(struct json *j, const struct op *op);

/* BLAKE2b-128 of the call's name and of what was given, in canonical form. */
void fingerprint_of(const char *call, const struct field_table *table, const void *in, uint8_t out[FINGERPRINT_LEN]);

/* Write an item of `money`, which has one for each currency, unless both amounts are 0. currency NULL: of coupons that name none. */
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

/* Write a redemption of r's coupon as an outcome has it; with r's receipt if asked for (null: there is none). user NULL: erased. Keys of
 * role reporting see its code only once that is spent: until then, whoever knows it could spend it. */
void redemption_write(struct json *j, const struct request *r, const char *user, const struct redemption *redemption);
/* The same as of at_ms: expired if its time has passed, whether or not the ledger says so yet. ends_ms: the coupon's (coupon_ends()). */
void redemption_write_at(struct json *j, const struct request *r, const char *user, const struct redemption *redemption, int64_t at_ms,
                         int64_t ends_ms);

/* As CSV: the object's members in order, those of `money` and `after` as columns of their own; metadata is its JSON text, null an empty
 * field. */
#define CSV_REDEMPTIONS                                                                                                \
    "id,coupon,user,slot,lane,code,state,from,ordinal,seq,at,reserved_until,valid_until,order,discount_minor,"         \
    "currency,order_minor,version,metadata,left,day,user_total,user_day\r\n"
/* Append a row under that header, as of at_ms. */
void redemption_csv_at(struct buf *out, const struct request *r, const char *user, const struct redemption *redemption, int64_t at_ms,
                       int64_t ends_ms);

#endif
