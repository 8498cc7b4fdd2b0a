/*
 * store/bson_fields.h -- flat structs to BSON and back, by a table per struct with a row per member.
 *
 * Shape    rows in the order of the document's fields; reading accepts any order
 * Numbers  integers take four bytes if they fit, else eight; both are read. Integers and times beyond EXACT_MAX, which RFC 8785
 *          cannot write, are not ours and are rejected: so sums and products of what was read never overflow
 * Reading  trusts nothing: a missing, duplicate or mistyped field, or text that is not UTF-8, makes the document
 *          unreadable; fields without a row are skipped
 */
#ifndef STORE_BSON_FIELDS_H
#define STORE_BSON_FIELDS_H

#include <bson/bson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "coupons/coupon.h"

#define EXACT_MAX (INT64_C(1) << 53)

enum bson_field_type {
    BSON_FIELD_INT, /* int64_t, within EXACT_MAX */
    BSON_FIELD_WIDE, /* int64_t, any value */
    BSON_FIELD_U32, /* uint32_t */
    BSON_FIELD_BOOL, /* bool */
    BSON_FIELD_TIME, /* int64_t, UTC ms; a BSON date */
    BSON_FIELD_TEXT, /* char *; in the arena, or malloc'ed if there is none */
    BSON_FIELD_CHARS, /* char[size], with its NUL */
    BSON_FIELD_BYTES, /* uint8_t[size] */
    BSON_FIELD_STATE /* uint8_t, an enum slot_state; by name */
};

struct bson_field {
    const char *name;
    uint8_t name_len;
    uint8_t type;    /* enum bson_field_type */
    bool optional;   /* omitted when zero or NULL */
    bool alike;      /* omitted when equal to the member at `like`, and then read as that; not for texts */
    uint16_t offset;
    uint16_t like;
    uint16_t size;
    unsigned when;   /* 0: always; else only if `has` has one of these bits */
};

#define BSON_FIELD(text, kind, shape, field, is_optional, bits)                                                        \
    {                                                                                                                  \
        .name = (text), .name_len = sizeof(text) - 1, .type = (kind), .optional = (is_optional),                       \
        .offset = offsetof(shape, field), .size = sizeof(((shape *)0)->field), .when = (bits)                          \
    }
/* A row whose member usually equals `other`. */
#define BSON_FIELD_LIKE(text, kind, shape, field, other)                                                               \
    {                                                                                                                  \
        .name = (text), .name_len = sizeof(text) - 1, .type = (kind), .alike = true,                                   \
        .offset = offsetof(shape, field), .like = offsetof(shape, other), .size = sizeof(((shape *)0)->field)          \
    }
#define BSON_FIELDS_MAX 64 /* rows of one table */

/* Append to doc the members of `from` that `has` admits. */
void bson_fields_write(bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, const void *from);

/* Fill `into`, which is zeroed, from doc. False: unreadable (into may be partly filled). */
bool bson_fields_read(const bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, void *into,
                      struct arena *a);

/* Append value under name: as an int32 if it fits. */
void put_int(bson_t *doc, const char *name, int64_t value);

/* Read the value at `it`. False: it has another type, or no valid value. Texts, documents and arrays are borrowed from it. */
bool get_int(const bson_iter_t *it, int64_t *value);
bool get_exact(const bson_iter_t *it, int64_t *value); /* within EXACT_MAX, like times */
bool get_time(const bson_iter_t *it, int64_t *utc_ms);
bool get_text(const bson_iter_t *it, const char **text);
bool get_document(const bson_iter_t *it, bson_t *document);
bool get_array(const bson_iter_t *it, bson_t *array);

/* The same for a named field of doc; false also if there is none. */
bool find_int(const bson_t *doc, const char *name, int64_t *value);
bool find_exact(const bson_t *doc, const char *name, int64_t *value);
bool find_time(const bson_t *doc, const char *name, int64_t *utc_ms);
bool find_text(const bson_t *doc, const char *name, const char **text);
bool find_document(const bson_t *doc, const char *name, bson_t *document);
bool find_array(const bson_t *doc, const char *name, bson_t *array);

/* An array of texts; in a. */
void put_texts(bson_t *doc, const char *name, const struct string_list *list);
bool get_texts(const bson_iter_t *it, struct string_list *list, struct arena *a);
bool find_texts(const bson_t *doc, const char *name, struct string_list *list, struct arena *a);

/* The key of element k of an array, from 0; in buffer, unless it is static. */
const char *array_key(size_t k, char buffer[16]);

/* Write a filter's clause {name: {$in: [...]}}: in_begin(), append each value to `values` under in_next(), in_end(). */
struct in_clause {
    bson_t clause, values;
    size_t count;
    char key[16];
};
void in_begin(struct in_clause *in, bson_t *filter, const char *name);
const char *in_next(struct in_clause *in);
void in_end(struct in_clause *in, bson_t *filter);
/* Write the whole clause, of texts; nothing if there are none. */
void in_texts(bson_t *filter, const char *name, const char *const *texts, size_t count);

/* The number of elements in an array. */
size_t array_count(const bson_t *array);

#endif
