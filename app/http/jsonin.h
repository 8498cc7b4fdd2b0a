/*
 * http/jsonin.h -- strict reading of JSON from outside.
 *
 * Why     json-c accepts NaN, single quotes, control characters, lone surrogates, NULs and duplicate members even in strict mode, so our
 *         own scanner checks the whole text before json-c sees it
 * Limits  depth JSON_DEPTH_MAX; objects and arrays JSON_CONTAINERS_MAX, because "{}" takes 760 bytes in json-c; values of any kind
 *         JSON_VALUES_MAX, members of an object JSON_MEMBERS_MAX and items of an array JSON_ITEMS_MAX, because 4 MiB of short ones take
 *         json-c a third of a second; integers within 64 bits; other numbers within the range of a double; no NUL in strings, but for those
 *         of json_in_typed()
 * Source  RFC 8259; RFC 3629 for UTF-8
 */
#ifndef HTTP_JSONIN_H
#define HTTP_JSONIN_H

#include <json-c/json_object.h>
#include <json-c/json_tokener.h>
#include <json-c/linkhash.h>
#include <stdbool.h>
#include <stddef.h>

#include "http/body_errors.h"

#define JSON_DEPTH_MAX 16
#define JSON_CONTAINERS_MAX 100000
#define JSON_VALUES_MAX 400000 /* 4 MiB of items with order lines have fewer */
#define JSON_MEMBERS_MAX 1024  /* as has metadata */
#define JSON_ITEMS_MAX 8192    /* a batch of the ledger, as couponctl reads it, has at most some 5,100 entries; bodies have fewer */

struct json_scan {
    size_t start, end;  /* of the value, without surrounding white space */
    size_t members;     /* of all objects in it */
    size_t containers;  /* objects and arrays */
    size_t values;      /* of any kind, these too */
    size_t fault_at;    /* offset of the fault */
    const char *fault;  /* static sentence; NULL: no fault */
    char *repaired;     /* json_in_typed(): the text, if anything was replaced in it; else NULL */
};

/* Check that text (len bytes) is exactly one JSON value. False: see fault and fault_at. */
bool json_scan(const char *text, size_t len, struct json_scan *scan);

/* Parse a body that must be an object. NULL, with an error added, if it is no object, is not JSON, or has duplicate members. The caller
 * releases it: JSON_IN_AUTO. */
struct json_object *json_in(const char *text, size_t len, struct errors *e);

/* The same of a body in which somebody may have typed a code: in place of what is escaped and no character, U+0000 or half of a surrogate
 * pair, values have NO_CHARACTER, which is not UTF-8. In names it is a fault. */
struct json_object *json_in_typed(const char *text, size_t len, struct errors *e);
#define NO_CHARACTER "\xFF\x80\x80\x80\x80\x80" /* as long as the escape */

static inline void json_in_release(struct json_object **o)
{
    json_object_put(*o);
}
#define JSON_IN_AUTO __attribute__((cleanup(json_in_release)))

/* for (member of o): jsonc_name(member), jsonc_value(member). */
#define JSONC_FOREACH(o, member)                                                                                       \
    for (struct lh_entry *member = lh_table_head(json_object_get_object(o)); member; member = lh_entry_next(member))

static inline const char *jsonc_name(const struct lh_entry *member)
{
    return (const char *)lh_entry_k(member);
}

static inline struct json_object *jsonc_value(const struct lh_entry *member)
{
    return (struct json_object *)lh_entry_v(member);
}

#endif
