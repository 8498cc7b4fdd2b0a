/*
 * store/bson_fields.h -- flat structs to BSON and back, by one table per struct: a row per member.
 *
 * Shape    rows in the order in which the document has its fields; reading accepts any order
 * Numbers  integers take four bytes where they fit, else eight; either is read. Beyond EXACT_MAX, which RFC 8785 could not
 *          write, they are not ours, nor are such times: so that sums and products of what was read never overflow
 * Reading  trusts nothing: a missing, doubled or mistyped field, or text that is not UTF-8, makes the document
 *          unreadable; fields that no row names are passed over
 */
#ifndef STORE_BSON_FIELDS_H
#define STORE_BSON_FIELDS_H

#include <bson/bson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define EXACT_MAX (INT64_C(1) << 53)

enum bson_field_type {
    BSON_FIELD_INT, /* int64_t, within EXACT_MAX */
    BSON_FIELD_WIDE, /* int64_t, whatever it is */
    BSON_FIELD_U32, /* uint32_t */
    BSON_FIELD_BOOL, /* bool */
    BSON_FIELD_TIME, /* int64_t, UTC ms; a BSON date */
    BSON_FIELD_TEXT, /* char *; in the arena, or malloc'ed when there is none */
    BSON_FIELD_CHARS, /* char[size], with its NUL */
    BSON_FIELD_BYTES, /* uint8_t[size] */
    BSON_FIELD_STATE /* uint8_t, an enum slot_state; by name */
};

struct bson_field {
    const char *name;
    uint8_t name_len;
    uint8_t type;    /* enum bson_field_type */
    bool optional;   /* left out when zero or NULL */
    bool alike;      /* left out when it equals the member at `like`, and read as that; not for texts */
    uint16_t offset;
    uint16_t like;
    uint16_t size;
    unsigned when;   /* 0: always; else only with one of these bits */
};

#define BSON_FIELD(text, kind, shape, field, is_optional, bits)                                                        \
    {                                                                                                                  \
        .name = (text), .name_len = sizeof(text) - 1, .type = (kind), .optional = (is_optional),                       \
        .offset = offsetof(shape, field), .size = sizeof(((shape *)0)->field), .when = (bits)                          \
    }
/* A row whose member mostly equals `other`. */
#define BSON_FIELD_LIKE(text, kind, shape, field, other)                                                               \
    {                                                                                                                  \
        .name = (text), .name_len = sizeof(text) - 1, .type = (kind), .alike = true,                                   \
        .offset = offsetof(shape, field), .like = offsetof(shape, other), .size = sizeof(((shape *)0)->field)          \
    }
#define BSON_FIELDS_MAX 64 /* rows of one table */

/* Append to doc the members of `from` that `has` admits. */
void bson_fields_write(bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, const void *from);

/* Fill `into`, zeroed before, from doc. False: unreadable (into may be filled in part). */
bool bson_fields_read(const bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, void *into,
                      struct arena *a);

/* value under name: an int32 where it fits. */
void put_int(bson_t *doc, const char *name, int64_t value);

/* The value at `it`, if it has that type. Text and documents are borrowed from it. */
bool get_int(const bson_iter_t *it, int64_t *value);
bool get_exact(const bson_iter_t *it, int64_t *value); /* within EXACT_MAX, as times are */
bool get_time(const bson_iter_t *it, int64_t *utc_ms);
bool get_text(const bson_iter_t *it, const char **text);
bool get_document(const bson_iter_t *it, bson_t *document);
bool get_array(const bson_iter_t *it, bson_t *array);

/* The same for a named field of doc; false also when there is none. */
bool find_int(const bson_t *doc, const char *name, int64_t *value);
bool find_exact(const bson_t *doc, const char *name, int64_t *value);
bool find_time(const bson_t *doc, const char *name, int64_t *utc_ms);
bool find_text(const bson_t *doc, const char *name, const char **text);
bool find_document(const bson_t *doc, const char *name, bson_t *document);
bool find_array(const bson_t *doc, const char *name, bson_t *array);

/* The k-th key of an array, for any k; buffer holds it where it is not static. */
const char *array_key(size_t k, char buffer[16]);

/* A clause {name: {$in: [...]}} of a filter while it is written: in_begin(), each value appended to `values` under in_next(), in_end(). */
struct in_clause {
    bson_t clause, values;
    size_t count;
    char key[16];
};
void in_begin(struct in_clause *in, bson_t *filter, const char *name);
const char *in_next(struct in_clause *in);
void in_end(struct in_clause *in, bson_t *filter);
/* All of it, of texts. */
void in_texts(bson_t *filter, const char *name, const char *const *texts, size_t count);

/* The elements of an array. */
size_t array_count(const bson_t *array);

#endif
