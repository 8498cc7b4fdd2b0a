/*
 * http/redemption_body.h -- what a taking looks like in JSON, in and out.
 */
#ifndef HTTP_REDEMPTION_BODY_H
#define HTTP_REDEMPTION_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* What coupon_user_valid() takes, for the OpenAPI document. */
#define USER_PATTERN "^[^\\u0000-\\u001F\\u007F-\\u009F]+$"

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

/* A redemption as an object, with its receipt, in the state that it has. user NULL: erased. */
void redemption_write(struct json *j, const struct worker *w, const char *coupon, const char *user,
                      const struct redemption *d);
/* The same in the state that it has at at_ms: expired when its time has passed, whether or not the ledger says so yet. */
void redemption_write_at(struct json *j, const struct worker *w, const char *coupon, const char *user,
                         const struct redemption *d, int64_t at_ms);

#endif
