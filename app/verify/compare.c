/* verify/compare.c -- see compare.h. */
#include "verify/compare.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum type { INT64, INT, UINT32, BOOL, STATE, TEXT, HASH16 };

struct field {
    const char *name;
    enum type type;
    size_t offset;
};
#define ROW(struct_name, type, member) {#member, type, offsetof(struct struct_name, member)}
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* The alias is how a user is found: so it is no field here. */
static const struct field user_state_fields[] = {
    ROW(user_state, TEXT, user),       ROW(user_state, INT64, version),     ROW(user_state, INT64, seq),
    ROW(user_state, INT64, total),     ROW(user_state, INT64, day_ms),      ROW(user_state, INT64, today),
    ROW(user_state, INT64, erased_ms), ROW(user_state, INT64, erased_lane), ROW(user_state, BOOL, orders_unfound),
};

static const struct field job_fields[] = {
    ROW(job_progress, INT64, version), ROW(job_progress, INT64, seq),  ROW(job_progress, INT64, total),
    ROW(job_progress, INT64, step),    ROW(job_progress, INT64, turn), ROW(job_progress, INT64, fence),
};

static const struct field account_fields[] = {
    ROW(lane_account, INT64, version),     ROW(lane_account, INT64, seq),       ROW(lane_account, INT64, day_ms),
    ROW(lane_account, INT64, given.slots), ROW(lane_account, INT64, given.day), ROW(lane_account, INT64, given.minor),
    ROW(lane_account, INT64, got.slots),   ROW(lane_account, INT64, got.day),   ROW(lane_account, INT64, got.minor),
};

static const struct field redemption_fields[] = {
    ROW(redemption, INT64, n),
    ROW(redemption, UINT32, g),
    ROW(redemption, INT64, from_n),
    ROW(redemption, UINT32, from),
    ROW(redemption, INT64, lane),
    ROW(redemption, INT64, seq),
    ROW(redemption, INT64, last_seq),
    ROW(redemption, INT64, ordinal),
    ROW(redemption, INT64, at_ms),
    ROW(redemption, INT64, day_ms),
    ROW(redemption, INT64, ended_ms),
    ROW(redemption, INT64, reserved_until_ms),
    ROW(redemption, INT64, valid_until_ms),
    ROW(redemption, INT64, discount_minor),
    ROW(redemption, STATE, state),
    ROW(redemption, STATE, first_state),
    ROW(redemption, INT64, first_until_ms),
    ROW(redemption, INT64, first_discount_minor),
    ROW(redemption, TEXT, first_order),
    ROW(redemption, INT64, left),
    ROW(redemption, INT64, day),
    ROW(redemption, INT64, user),
    ROW(redemption, INT64, user_day),
    ROW(redemption, HASH16, key),
    ROW(redemption, HASH16, fingerprint),
    ROW(redemption, HASH16, extended_key),
    ROW(redemption, HASH16, extended_fingerprint),
    ROW(redemption, HASH16, spent_key),
    ROW(redemption, HASH16, spent_fingerprint),
    ROW(redemption, TEXT, order),
    ROW(redemption, TEXT, metadata),
    ROW(redemption, TEXT, code),
};

static const struct field extension_fields[] = {
    ROW(extension, HASH16, key),
    ROW(extension, HASH16, fingerprint),
    ROW(extension, INT64, until_ms),
};

static const struct field bucket_fields[] = {
    ROW(bucket, INT64, b),   ROW(bucket, INT64, hops), ROW(bucket, INT64, lane),
    ROW(bucket, INT64, seq), ROW(bucket, INT64, pick),
};

static const struct field slot_fields[] = {
    ROW(slot, UINT32, generation), ROW(slot, UINT32, current), ROW(slot, STATE, state), ROW(slot, TEXT, user),
    ROW(slot, INT64, at_ms),       ROW(slot, INT64, due_ms),   ROW(slot, UINT32, from), ROW(slot, BOOL, issued),
};

static const struct field count_fields[] = {
    ROW(report_counts, INT64, issued),    ROW(report_counts, INT64, reserved), ROW(report_counts, INT64, redeemed),
    ROW(report_counts, INT64, cancelled), ROW(report_counts, INT64, expired),  ROW(report_counts, INT64, reversed),
    ROW(report_counts, INT64, discount_minor),
};

static const struct field head_fields[] = {
    ROW(head, INT64, version),   ROW(head, INT64, slots),    ROW(head, INT64, due),
    ROW(head, INT64, next_n),    ROW(head, INT64, issued),   ROW(head, INT64, reserved),
    ROW(head, INT64, redeemed),  ROW(head, INT64, ordinal),  ROW(head, INT64, discount_minor),
    ROW(head, INT64, day_ms),    ROW(head, INT64, day_taken), ROW(head, INT64, turn),
    ROW(head, INT64, low_stock), ROW(head, INT64, sold_out), ROW(head, INT64, replenish_until),
    ROW(head, INT64, archived),  ROW(head, INT64, elsewhere), ROW(head, INT64, day_elsewhere),
    ROW(head, INT64, minor_elsewhere), ROW(head, INT64, epoch),
};

static size_t size_of(enum type t)
{
    static const size_t sizes[] = {
        [INT64] = sizeof(int64_t), [INT] = sizeof(int), [UINT32] = sizeof(uint32_t), [BOOL] = sizeof(bool), [STATE] = 1,
        [HASH16] = 16};

    return sizes[t];
}

static bool is_same(const struct field *f, const void *expected, const void *found)
{
    const char *a = (const char *)expected + f->offset, *b = (const char *)found + f->offset;
    const char *a_text, *b_text;

    if (f->type == INT64)
        return memcmp(a, b, sizeof(int64_t)) == 0; /* inline: most are */
    if (f->type != TEXT)
        return memcmp(a, b, size_of(f->type)) == 0;
    memcpy(&a_text, a, sizeof a_text);
    memcpy(&b_text, b, sizeof b_text);
    return a_text && b_text ? strcmp(a_text, b_text) == 0 : a_text == b_text;
}

static bool rows_are_same(const struct field *fields, size_t count, const void *expected, const void *found)
{
    for (size_t i = 0; i < count; i++)
        if (!is_same(&fields[i], expected, found))
            return false;
    return true;
}

/* The field's value as text; *whole points to text, or to a longer one that the record has. */
static void render(const struct field *f, const void *record, char text[COMPARE_TEXT_SIZE], const char **whole)
{
    const char *p = (const char *)record + f->offset;

    *whole = text;
    switch (f->type) {
    case INT64:
        snprintf(text, COMPARE_TEXT_SIZE, "%" PRId64, *(const int64_t *)(const void *)p);
        break;
    case INT:
        snprintf(text, COMPARE_TEXT_SIZE, "%d", *(const int *)(const void *)p);
        break;
    case UINT32:
        snprintf(text, COMPARE_TEXT_SIZE, "%" PRIu32, *(const uint32_t *)(const void *)p);
        break;
    case BOOL:
        *whole = *(const bool *)p ? "true" : "false";
        break;
    case STATE:
        if (*(const uint8_t *)p < SLOT_STATE_COUNT)
            *whole = slot_state_name((enum slot_state) * (const uint8_t *)p);
        else
            snprintf(text, COMPARE_TEXT_SIZE, "%d", *(const uint8_t *)p);
        break;
    case TEXT:
        *whole = *(const char *const *)(const void *)p;
        break;
    case HASH16:
        for (int i = 0; i < 16; i++)
            snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)p)[i]);
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

static bool redemption_is_same(const struct redemption *expected, const struct redemption *found)
{
    bool same = rows_are_same(redemption_fields, COUNT(redemption_fields), expected, found) &&
                expected->earlier_count == found->earlier_count;

    for (size_t i = 0; same && i < expected->earlier_count; i++)
        same = rows_are_same(extension_fields, COUNT(extension_fields), &expected->earlier[i], &found->earlier[i]);
    return same;
}

static void compare_redemption(const struct redemption *expected, const struct redemption *found, differ_fn *differ,
                               void *context)
{
    char id[REDEMPTION_ID_SIZE], prefix[REDEMPTION_ID_SIZE + 32], name[sizeof prefix + 16];

    if (redemption_is_same(expected, found))
        return;
    redemption_id_text(expected->n, expected->g, expected->lane, id);
    snprintf(prefix, sizeof prefix, "redemption %s ", id);
    compare_rows(redemption_fields, COUNT(redemption_fields), expected, found, prefix, differ, context);
    snprintf(name, sizeof name, "%searlier", prefix);
    differ_count(name, (int64_t)expected->earlier_count, (int64_t)found->earlier_count, differ, context);
    snprintf(prefix, sizeof prefix, "redemption %s earlier ", id);
    for (size_t i = 0; i < expected->earlier_count && expected->earlier_count == found->earlier_count; i++)
        compare_rows(extension_fields, COUNT(extension_fields), &expected->earlier[i], &found->earlier[i], prefix, differ,
                     context);
}

void compare_job(const struct job_progress *expected, const struct job_progress *found, differ_fn *differ, void *context)
{
    compare_rows(job_fields, COUNT(job_fields), expected, found, "", differ, context);
}

void compare_account(const struct lane_account *expected, const struct lane_account *found, differ_fn *differ, void *context)
{
    compare_rows(account_fields, COUNT(account_fields), expected, found, "", differ, context);
}

void compare_user_state(const struct user_state *expected, const struct user_state *found, differ_fn *differ, void *context)
{
    compare_rows(user_state_fields, COUNT(user_state_fields), expected, found, "", differ, context);
    differ_count("redemptions", (int64_t)expected->count, (int64_t)found->count, differ, context);
    if (expected->count != found->count)
        return;
    for (size_t i = 0; i < expected->count; i++)
        compare_redemption(&expected->redemptions[i], &found->redemptions[i], differ, context);
}

static void compare_slot(const struct bucket *expected, int i, const struct slot *found, differ_fn *differ,
                         void *context)
{
    const struct slot *slot = &expected->slots[i];
    char prefix[64] = "";

    for (size_t f = 0; f < COUNT(slot_fields); f++) {
        if (is_same(&slot_fields[f], slot, found))
            continue;
        if (!prefix[0])
            snprintf(prefix, sizeof prefix, "slot %" PRId64 " ", expected->b * BUCKET_SLOTS + i);
        compare_rows(&slot_fields[f], 1, slot, found, prefix, differ, context);
    }
}

void compare_bucket(const struct bucket *expected, const struct bucket *found, differ_fn *differ, void *context)
{
    char want[24], have[24];

    compare_rows(bucket_fields, COUNT(bucket_fields), expected, found, "", differ, context);
    if (found->stored_free >= 0 && found->stored_free != bucket_free_count(expected)) {
        snprintf(want, sizeof want, "%d", bucket_free_count(expected));
        snprintf(have, sizeof have, "%d", found->stored_free);
        differ(context, "free", want, have);
    }
    for (int i = 0; i < BUCKET_SLOTS; i++)
        compare_slot(expected, i, &found->slots[i], differ, context);
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

/* ---- definitions: by their own table of fields ---- */

static void render_strings(const struct string_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            buf_putc(out, ',');
        buf_puts(out, list->items[i]);
    }
}

static void render_coupon_field(const struct coupon_field *f, const struct coupon *c, struct buf *out)
{
    const char *p = (const char *)c + f->offset;
    const char *text;
    int64_t value;

    buf_clear(out);
    switch (f->type) {
    case FIELD_STRING:
    case FIELD_JSON:
        memcpy(&text, p, sizeof text);
        buf_puts(out, or_null(text));
        break;
    case FIELD_STRINGS:
        render_strings((const struct string_list *)(const void *)p, out);
        buf_putc(out, '\0');
        break;
    case FIELD_INT:
    case FIELD_TIME:
    case FIELD_ENUM:
        memcpy(&value, p, sizeof value);
        if (value == COUPON_NULL)
            buf_puts(out, "null");
        else
            buf_int(out, value);
        break;
    }
}

void compare_coupon(const struct coupon *expected, const struct coupon *found, differ_fn *differ, void *context)
{
    struct buf a = BUF_INIT, b = BUF_INIT;

    differ_count("version", expected->version, found->version, differ, context);
    for (size_t i = 0; i < coupon_fields_count; i++) {
        render_coupon_field(&coupon_fields[i], expected, &a);
        render_coupon_field(&coupon_fields[i], found, &b);
        if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len) != 0))
            differ(context, coupon_fields[i].pointer, a.len ? a.data : "", b.len ? b.data : "");
    }
    buf_free(&a);
    buf_free(&b);
}
