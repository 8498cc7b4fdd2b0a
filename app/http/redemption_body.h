/*
 * http/redemption_body.h -- what a taking looks like in JSON, in and out.
 */
#ifndef HTTP_REDEMPTION_BODY_H
#define HTTP_REDEMPTION_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* A row of a body's table: the user, a string at that offset. */
#define ROW_USER(offset)                                                                                               \
    {"user", ROW_STRING, (offset), 1, 128, .flags = ROW_REQUIRED, .valid = coupon_user_valid,                          \
     .rule = "must be 1 to 128 bytes of UTF-8 without control characters"}

/* The body of a call about a user whose name no path may carry: nginx refuses a segment "..", also within one that is escaped. */
struct user_in {
    const char *user;
};
extern const struct field_table user_table;

/* As the names stand on the wire. */
enum take_state { TAKE_ISSUED, TAKE_RESERVED, TAKE_REDEEMED };

/* A request to take: as read, defaults filled in. */
struct take_in {
    const char *user;
    int64_t state;     /* enum take_state */
    const char *code;
    int64_t reserve_s; /* COUPON_NULL: not given */
    const char *metadata;
    struct order *order;
    const char *key;   /* in a batch only */
};

/* What reserve and redeem of a redemption may say. */
struct step_in {
    int64_t reserve_s; /* COUPON_NULL: not given */
    struct order *order;
};

/* Which coupon has this code. */
struct resolve_in {
    const char *code;
    const char *user;
    struct order *order;
};

extern const struct field_table take_table;       /* of one request */
extern const struct field_table take_item_table;  /* of an item of a batch: with key */
extern const struct field_table step_table, resolve_table;

/* Of keys of the role public, for the same structs: the code and the order alone. The user is one who never took anything, and never
 * will: so nothing of anybody can be in the answer. */
#define NO_USER "\x01public"
extern const struct field_table public_take_table, public_resolve_table;
/* One of a few who are NO_USER as well, at random: a coupon's lanes share what pages ask. */
const char *no_user(struct arena *a);

/* Fill op's user and take. Strings are borrowed from in; key NULL: nothing is taken. */
void take_fill(struct op *op, const struct take_in *in, const char *key);

/* What a shop is told of a check: ok, code, discount_minor, and why the order is not eligible. */
void check_write_members(struct json *j, const struct op *op);
/* What a page is told of a check: why an order does not do, and else not why. A code that is unknown, somebody's or spent, a coupon that is
 * paused, over or taken: all look alike. */
void public_write_members(struct json *j, const struct op *op);

/* BLAKE2b-128 of the call's name and of what was given, in canonical form. */
void fingerprint_of(const char *call, const struct field_table *table, const void *in, uint8_t out[FINGERPRINT_LEN]);

/* A redemption of r's coupon as an object, in the state that it has; with r's receipt, if it asked for one (null: there is none).
 * user NULL: erased. A key of the role reporting sees its code only once that is spent: before, whoever knows it could spend it. */
void redemption_write(struct json *j, const struct request *r, const char *user, const struct redemption *d);
/* The same in the state that it has at at_ms: expired when its time has passed, whether or not the ledger says so yet. */
void redemption_write_at(struct json *j, const struct request *r, const char *user, const struct redemption *d, int64_t at_ms);

/* As CSV: the object's members in their order, those of `after` by themselves; metadata is its JSON text, null an empty field. */
#define CSV_REDEMPTIONS                                                                                                \
    "id,coupon,user,slot,lane,code,state,from,ordinal,seq,at,reserved_until,valid_until,order,discount_minor,"         \
    "metadata,left,day,user_total,user_day\r\n"
/* Append the row of one under that header, in the state that it has at at_ms. */
void redemption_csv_at(struct buf *out, const struct request *r, const char *user, const struct redemption *d, int64_t at_ms);

#endif
