/*
 * http/redemption_body.h -- what a taking looks like in JSON, in and out.
 */
#ifndef HTTP_REDEMPTION_BODY_H
#define HTTP_REDEMPTION_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* A request to take: as read, defaults filled in. */
struct take_in {
    const char *user;
    int64_t state;     /* index into issued, reserved, redeemed */
    const char *code;
    int64_t reserve_s; /* COUPON_NULL: not given */
    const char *metadata;
    struct order *order;
    const char *key;   /* in a batch only */
};

extern const struct field_table take_table;       /* of one request */
extern const struct field_table take_item_table;  /* of an item of a batch: with key */

/* Fill op's user and take. Strings are borrowed from in. */
void take_fill(struct op *op, const struct take_in *in, const char *key);

/* BLAKE2b-128 of the call's name and of what was given, in canonical form. */
void fingerprint_of(const char *call, const struct field_table *table, const void *in, uint8_t out[FINGERPRINT_LEN]);

#define REDEMPTION_ID_SIZE 40
/* "n-g" into text; returns text. */
char *redemption_id(const struct redemption *d, char text[REDEMPTION_ID_SIZE]);
/* The other way round. False: text is no such id. */
bool redemption_id_parse(const char *text, int64_t *n, uint32_t *g);

/* A redemption as an object, with its receipt. user NULL: erased. */
void redemption_write(struct json *j, const struct worker *w, const char *coupon, const char *user,
                      const struct redemption *d);

#endif
