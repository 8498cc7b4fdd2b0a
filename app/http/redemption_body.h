/*
 * http/redemption_body.h -- what a taking looks like in JSON, in and out.
 */
#ifndef HTTP_REDEMPTION_BODY_H
#define HTTP_REDEMPTION_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* What coupon_user_valid() takes, for the OpenAPI document. */
#define USER_PATTERN "^[^\\u0000-\\u001F\\u007F-\\u009F]+$"

/* A row of a body's table: the user, a string at that offset. */
#define ROW_USER(offset)                                                                                               \
    {"user", ROW_STRING, (offset), 1, 128, .flags = ROW_REQUIRED, .valid = coupon_user_valid,                          \
     .rule = "must be 1 to 128 bytes of UTF-8 without control characters", .pattern = USER_PATTERN}

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

/* Fill op's user and take. Strings are borrowed from in; key NULL: nothing is taken. */
void take_fill(struct op *op, const struct take_in *in, const char *key);

/* BLAKE2b-128 of the call's name and of what was given, in canonical form. */
void fingerprint_of(const char *call, const struct field_table *table, const void *in, uint8_t out[FINGERPRINT_LEN]);

/* A redemption of r's coupon as an object, in the state that it has; with r's receipt, if it asked for one (null: there is none).
 * user NULL: erased. A key of the role reporting sees its code only once that is spent: before, whoever knows it could spend it. */
void redemption_write(struct json *j, const struct request *r, const char *user, const struct redemption *d);
/* The same in the state that it has at at_ms: expired when its time has passed, whether or not the ledger says so yet. */
void redemption_write_at(struct json *j, const struct request *r, const char *user, const struct redemption *d, int64_t at_ms);

#endif
