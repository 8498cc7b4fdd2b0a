/*
 * ctl/statement.h -- a statement that may be signed: a JSON object, or its compact JWS (base/jws.h). Archives and anchors end with one.
 */
#ifndef CTL_STATEMENT_H
#define CTL_STATEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/jws.h"
#include "coupons/batch.h"
#include "http/jsonin.h"

#define SIGN_KEY_OPTION                                                                                                          \
    {"sign-key", OPT_SIGN_KEY, "FILE", 0, "The key that signs: 32 bytes as 64 hexadecimal digits, readable by its owner alone", 0}

/* Read the file of --sign-key; path NULL: no keys. False, with the error printed: unusable. */
bool statement_keys(const char *path, struct jws_keys *k);

/* NULL: not a JSON object. The caller releases it. */
struct json_object *statement_parse(const char *text, size_t len);
/* The member of an object if it has this type, else NULL. */
struct json_object *statement_member(struct json_object *o, const char *name, enum json_type type);
/* False: no such member. A count is not negative. */
bool statement_text(struct json_object *o, const char *name, char *to, size_t size); /* not "" */
bool statement_hash(struct json_object *o, const char *name, uint8_t hash[HASH_LEN]);
bool statement_count(struct json_object *o, const char *name, int64_t *value);

void statement_put_hash(struct json *j, const char *name, const uint8_t hash[HASH_LEN]);

#endif
