/*
 * base/json.h -- writes JSON text, one value after another, into a buf. Reading is json-c's work, in http/ and ctl/.
 *
 * Form    RFC 8785 for single values: no white space, shortest escapes, integers in decimal.
 *         Members come out in the order written: for RFC 8785, write them sorted.
 * Usage   json_begin_object(&j); json_key(&j, "a"); json_int(&j, 1); json_end_object(&j);
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
    struct buf *out; /* borrowed */
    bool comma;      /* the next value or key needs a comma before it */
};

static inline struct json json_to(struct buf *out)
{
    return (struct json){out, false};
}

void json_begin_object(struct json *j);
void json_end_object(struct json *j);
void json_begin_array(struct json *j);
void json_end_array(struct json *j);
/* name: plain ASCII that needs no escape. */
void json_key(struct json *j, const char *name);
/* text: valid UTF-8; NULL writes null. */
void json_string(struct json *j, const char *text);
void json_int(struct json *j, int64_t value);
void json_boolean(struct json *j, bool value);
void json_null(struct json *j);
/* text: already JSON. */
void json_raw(struct json *j, const char *text);
/* ms since 1970 UTC as "2026-11-21T10:00:00.000Z". */
void json_time(struct json *j, int64_t utc_ms);

/* key, then value */
void json_key_string(struct json *j, const char *name, const char *text);
void json_key_int(struct json *j, const char *name, int64_t value);
void json_key_bool(struct json *j, const char *name, bool value);
void json_key_time(struct json *j, const char *name, int64_t utc_ms);
/* null unless `there` */
void json_key_int_or_null(struct json *j, const char *name, bool there, int64_t value);
/* 0: null */
void json_key_time_or_null(struct json *j, const char *name, int64_t utc_ms);

#endif
