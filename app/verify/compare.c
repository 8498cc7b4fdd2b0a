/* verify/compare.c -- see compare.h. */
#include "verify/compare.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

struct field {
    const char *name;
    enum value_kind kind;
    size_t offset, size;
};
#define NAMED(shape, kind, member, name) {name, VALUE_##kind, offsetof(struct shape, member), sizeof(((struct shape *)0)->member)}
#define FIELD(shape, kind, member) NAMED(shape, kind, member, #member)
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* From the lists of record.h. */
#define BUCKET(kind, member, ...) FIELD(bucket, kind, member),
#define SLOT(kind, member, ...) FIELD(slot, kind, member),
#define REPORT_COUNT(member) FIELD(report_counts, INT, member),
#define TOTAL(kind, member, name, in_line, stored, when, place, reported) [reported] = NAMED(head, kind, member, name),
#define DAY(kind, member, name, in_line, stored, when, place, reported) [reported] = FIELD(head, kind, member),
static const struct field bucket_fields[] = {BUCKET_FIELDS(BUCKET, BUCKET)};
static const struct field slot_fields[] = {SLOT_FIELDS(SLOT, SLOT)};
static const struct field count_fields[] = {REPORT_COUNTS_FIELDS(REPORT_COUNT)};
static const struct field head_fields[] = {[0] = FIELD(head, INT, version), HEAD_TOTALS_FIELDS(TOTAL) HEAD_DAY_FIELDS(DAY)};

static bool is_same(const struct field *f, const void *expected, const void *found)
{
    const char *a = (const char *)expected + f->offset, *b = (const char *)found + f->offset;
    const char *a_text, *b_text;

    if (f->kind == VALUE_INT)
        return memcmp(a, b, sizeof(int64_t)) == 0; /* inlined: most fields are INT */
    if (f->kind == VALUE_CHARS)
        return true;
    if (f->kind != VALUE_TEXT)
        return memcmp(a, b, f->size) == 0;
    memcpy(&a_text, a, sizeof a_text);
    memcpy(&b_text, b, sizeof b_text);
    return a_text && b_text ? strcmp(a_text, b_text) == 0 : a_text == b_text;
}

/* Render the field's value; *whole points to text, or to the record's own, which may be longer. */
static void render(const struct field *f, const void *record, char text[COMPARE_TEXT_SIZE], const char **whole)
{
    const char *p = (const char *)record + f->offset;

    *whole = text;
    switch (f->kind) {
    case VALUE_U32:
        snprintf(text, COMPARE_TEXT_SIZE, "%" PRIu32, *(const uint32_t *)(const void *)p);
        break;
    case VALUE_BOOL:
        *whole = *(const bool *)p ? "true" : "false";
        break;
    case VALUE_STATE:
        if (*(const uint8_t *)p < SLOT_STATE_COUNT)
            *whole = slot_state_name((enum slot_state) * (const uint8_t *)p);
        else
            snprintf(text, COMPARE_TEXT_SIZE, "%d", *(const uint8_t *)p);
        break;
    case VALUE_TEXT:
        *whole = *(const char *const *)(const void *)p;
        break;
    case VALUE_BYTES:
        for (size_t i = 0; i < f->size; i++)
            snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)p)[i]);
        break;
    default: /* INT, WIDE and TIME */
        snprintf(text, COMPARE_TEXT_SIZE, "%" PRId64, *(const int64_t *)(const void *)p);
        break;
    }
}

static const char *or_null(const char *text)
{
    return text ? text : "null";
}

/* prefix "" or, for example, "redemption 1042-1 ". */
static void compare_rows(const struct field *fields, size_t count, const void *expected, const void *found,
                         const char *prefix, differ_fn *differ, void *context)
{
    for (size_t i = 0; i < count; i++) {
        char a[COMPARE_TEXT_SIZE], b[COMPARE_TEXT_SIZE], name[COMPARE_TEXT_SIZE];
        const char *expected_text, *found_text;

        if (is_same(&fields[i], expected, found))
            continue;
        render(&fields[i], expected, a, &expected_text);
        render(&fields[i], found, b, &found_text);
        snprintf(name, sizeof name, "%s%s", prefix, fields[i].name);
        differ(context, name, or_null(expected_text), or_null(found_text));
    }
}

static void differ_count(const char *name, int64_t expected, int64_t found, differ_fn *differ, void *context)
{
    char a[24], b[24];

    if (expected == found)
        return;
    snprintf(a, sizeof a, "%" PRId64, expected);
    snprintf(b, sizeof b, "%" PRId64, found);
    differ(context, name, a, b);
}

void compare_bucket(const struct bucket *expected, const struct bucket *found, differ_fn *differ, void *context)
{
    compare_rows(bucket_fields, COUNT(bucket_fields), expected, found, "", differ, context);
    if (found->stored_free >= 0)
        differ_count("free", bucket_free_count(expected), found->stored_free, differ, context);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &expected->slots[i];
        char prefix[64] = "";

        for (size_t f = 0; f < COUNT(slot_fields); f++) {
            if (is_same(&slot_fields[f], slot, &found->slots[i]))
                continue;
            if (!prefix[0])
                snprintf(prefix, sizeof prefix, "slot %" PRId64 " ", expected->b * BUCKET_SLOTS + i);
            compare_rows(&slot_fields[f], 1, slot, &found->slots[i], prefix, differ, context);
        }
    }
}

void compare_counts(const struct report_counts *expected, const struct report_counts *found, differ_fn *differ,
                    void *context)
{
    compare_rows(count_fields, COUNT(count_fields), expected, found, "", differ, context);
}

void compare_head(const struct head *expected, const struct head *found, differ_fn *differ, void *context)
{
    compare_rows(head_fields, COUNT(head_fields), expected, found, "", differ, context);
}

/* ---- definitions: they have their own table of fields ---- */

void compare_coupon(const struct coupon *expected, const struct coupon *found, differ_fn *differ, void *context)
{
    struct buf a = BUF_INIT, b = BUF_INIT;

    differ_count("version", expected->version, found->version, differ, context);
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        struct json a_text = json_to(&a), b_text = json_to(&b);

        if (coupon_same_value(expected, found, f))
            continue;
        buf_clear(&a);
        buf_clear(&b);
        coupon_write_value(expected, f, &a_text);
        coupon_write_value(found, f, &b_text);
        differ(context, f->pointer, a.data, b.data);
    }
    buf_free(&a);
    buf_free(&b);
}
