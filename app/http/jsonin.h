/*
 * http/jsonin.h -- JSON text that came from outside, read strictly.
 *
 * Why     json-c accepts NaN, single quotes, control characters, lone surrogates, NULs and duplicate members even in strict
 *         mode. So a scanner of our own checks the whole text first, and json-c only ever sees what is beyond doubt
 * Limits  depth JSON_DEPTH_MAX; objects and arrays JSON_CONTAINERS_MAX, because "{}" takes 760 bytes of json-c's; integers
 *         within 64 bits; other numbers within the range of a double; no NUL in strings
 * Source  RFC 8259; RFC 3629 for UTF-8
 */
#ifndef HTTP_JSONIN_H
#define HTTP_JSONIN_H

#include <stdbool.h>
#include <stddef.h>

#include "http/errors.h"
#include "http/jsonc.h"

#define JSON_DEPTH_MAX 16
#define JSON_CONTAINERS_MAX 100000

struct json_scan {
    size_t start, end;  /* of the value, without the white space around it */
    size_t members;     /* of all objects in it */
    size_t containers;  /* objects and arrays */
    size_t fault_at;    /* offset of what is wrong */
    const char *fault;  /* static sentence; NULL: nothing is wrong */
};

/* Check that text (len bytes) is one JSON value and nothing else. False: fault and fault_at say why not. */
bool json_scan(const char *text, size_t len, struct json_scan *scan);

/* Parse a body whose top level is an object. NULL, with an error added, when it is none, is not JSON, or names a member twice.
 * The caller puts it: JSON_IN_AUTO. */
struct json_object *json_in(const char *text, size_t len, struct errors *e);

static inline void json_in_release(struct json_object **o)
{
    json_object_put(*o);
}
#define JSON_IN_AUTO __attribute__((cleanup(json_in_release)))

#endif
