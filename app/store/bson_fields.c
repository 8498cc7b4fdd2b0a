/* store/bson_fields.c -- see bson_fields.h. */
#include "store/bson_fields.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/slot.h"

/* ---- writing ---- */

static void put_number(bson_t *doc, const char *name, int name_len, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX)
        bson_append_int32(doc, name, name_len, (int32_t)value);
    else
        bson_append_int64(doc, name, name_len, value);
}

void put_int(bson_t *doc, const char *name, int64_t value)
{
    put_number(doc, name, -1, value);
}

static bool is_zero(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;

    return p[0] == 0 && memcmp(p, p + 1, size - 1) == 0;
}

static bool applies(const struct bson_field *m, unsigned has)
{
    return m->when == 0 || (m->when & has);
}

static bool is_omitted(const struct bson_field *m, const void *from)
{
    const char *base = from;

    return m->alike ? memcmp(base + m->offset, base + m->like, m->size) == 0
                    : m->optional && is_zero(base + m->offset, m->size);
}

void bson_fields_write(bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, const void *from)
{
    for (size_t i = 0; i < count; i++)
        if (applies(&rows[i], has) && !is_omitted(&rows[i], from)) {
            const struct bson_field *m = &rows[i];
            const void *value = (const char *)from + m->offset;
            int len = m->name_len;
            const char *text;

            switch ((enum bson_field_type)m->type) {
            case BSON_FIELD_INT:
            case BSON_FIELD_WIDE:
                put_number(doc, m->name, len, *(const int64_t *)value);
                break;
            case BSON_FIELD_U32:
                put_number(doc, m->name, len, *(const uint32_t *)value);
                break;
            case BSON_FIELD_BOOL:
                bson_append_bool(doc, m->name, len, *(const bool *)value);
                break;
            case BSON_FIELD_TIME:
                bson_append_date_time(doc, m->name, len, *(const int64_t *)value);
                break;
            case BSON_FIELD_TEXT:
                text = *(const char *const *)value;
                assert(text);
                bson_append_utf8(doc, m->name, len, text, -1);
                break;
            case BSON_FIELD_CHARS:
                bson_append_utf8(doc, m->name, len, value, -1);
                break;
            case BSON_FIELD_BYTES:
                bson_append_binary(doc, m->name, len, BSON_SUBTYPE_BINARY, value, m->size);
                break;
            case BSON_FIELD_STATE:
                bson_append_utf8(doc, m->name, len, slot_state_name((enum slot_state) * (const uint8_t *)value), -1);
                break;
            }
        }
}

/* ---- reading ---- */

bool get_int(const bson_iter_t *it, int64_t *value)
{
    if (BSON_ITER_HOLDS_INT32(it))
        *value = bson_iter_int32(it);
    else if (BSON_ITER_HOLDS_INT64(it))
        *value = bson_iter_int64(it);
    else
        return false;
    return true;
}

static bool is_exact(int64_t value)
{
    return value >= -EXACT_MAX && value <= EXACT_MAX;
}

bool get_exact(const bson_iter_t *it, int64_t *value)
{
    return get_int(it, value) && is_exact(*value);
}

bool get_time(const bson_iter_t *it, int64_t *utc_ms)
{
    if (!BSON_ITER_HOLDS_DATE_TIME(it))
        return false;
    *utc_ms = bson_iter_date_time(it);
    return is_exact(*utc_ms);
}

bool get_text(const bson_iter_t *it, const char **text)
{
    uint32_t len;

    if (!BSON_ITER_HOLDS_UTF8(it))
        return false;
    *text = bson_iter_utf8(it, &len);
    return bson_utf8_validate(*text, len, false);
}

bool get_document(const bson_iter_t *it, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t len;

    if (!BSON_ITER_HOLDS_DOCUMENT(it))
        return false;
    bson_iter_document(it, &len, &bytes);
    return bson_init_static(document, bytes, len);
}

bool get_array(const bson_iter_t *it, bson_t *array)
{
    const uint8_t *bytes;
    uint32_t len;

    if (!BSON_ITER_HOLDS_ARRAY(it))
        return false;
    bson_iter_array(it, &len, &bytes);
    return bson_init_static(array, bytes, len);
}

/* find_x(), by get_x(). */
#define FIND(what, type)                                                                                                                 \
    bool find_##what(const bson_t *doc, const char *name, type *value)                                                                   \
    {                                                                                                                                    \
        bson_iter_t it;                                                                                                                  \
                                                                                                                                         \
        return bson_iter_init_find(&it, doc, name) && get_##what(&it, value);                                                            \
    }
FIND(int, int64_t)
FIND(exact, int64_t)
FIND(time, int64_t)
FIND(text, const char *)
FIND(document, bson_t)
FIND(array, bson_t)

static bool read_u32(const bson_iter_t *it, uint32_t *value)
{
    int64_t wide;

    if (!get_int(it, &wide) || wide < 0 || wide > UINT32_MAX)
        return false;
    *value = (uint32_t)wide;
    return true;
}

static bool read_text(const bson_iter_t *it, char **value, struct arena *a)
{
    const char *text;

    if (!get_text(it, &text))
        return false;
    *value = a ? arena_strdup(a, text) : checked(strdup(text));
    return true;
}

static bool read_chars(const bson_iter_t *it, char *value, size_t size)
{
    const char *text;
    size_t len;

    if (!get_text(it, &text))
        return false;
    len = strlen(text);
    if (len >= size)
        return false;
    memcpy(value, text, len + 1);
    return true;
}

static bool read_bytes(const bson_iter_t *it, uint8_t *value, size_t size)
{
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t len;

    if (!BSON_ITER_HOLDS_BINARY(it))
        return false;
    bson_iter_binary(it, &subtype, &len, &bytes);
    if (len != size)
        return false;
    memcpy(value, bytes, size);
    return true;
}

static bool read_state(const bson_iter_t *it, uint8_t *value)
{
    const char *name;
    enum slot_state state;

    if (!get_text(it, &name))
        return false;
    state = slot_state_of_name(name);
    *value = (uint8_t)state;
    return state != SLOT_STATE_COUNT;
}

static bool read_member(const bson_iter_t *it, const struct bson_field *m, void *value, struct arena *a)
{
    switch ((enum bson_field_type)m->type) {
    case BSON_FIELD_INT:
        return get_exact(it, value);
    case BSON_FIELD_WIDE:
        return get_int(it, value);
    case BSON_FIELD_U32:
        return read_u32(it, value);
    case BSON_FIELD_BOOL:
        if (!BSON_ITER_HOLDS_BOOL(it))
            return false;
        *(bool *)value = bson_iter_bool(it);
        return true;
    case BSON_FIELD_TIME:
        return get_time(it, value);
    case BSON_FIELD_TEXT:
        return read_text(it, value, a);
    case BSON_FIELD_CHARS:
        return read_chars(it, value, m->size);
    case BSON_FIELD_BYTES:
        return read_bytes(it, value, m->size);
    case BSON_FIELD_STATE:
        return read_state(it, value);
    }
    return false;
}

/* The row of the member at `it`; count: none. The search starts at `next`, since documents that we wrote have our order. */
static size_t find_row(const struct bson_field *rows, size_t count, size_t next, const bson_iter_t *it)
{
    const char *key = bson_iter_key_unsafe(it);
    uint32_t len = bson_iter_key_len(it);

    for (size_t tried = 0; tried < count; tried++) {
        size_t i = next + tried < count ? next + tried : next + tried - count;

        if (rows[i].name_len == len && memcmp(rows[i].name, key, len) == 0)
            return i;
    }
    return count;
}

bool bson_fields_read(const bson_t *doc, const struct bson_field *rows, size_t count, unsigned has, void *into,
                      struct arena *a)
{
    uint64_t seen = 0;
    size_t next = 0;
    bson_iter_t it;

    assert(count <= BSON_FIELDS_MAX);
    if (!bson_iter_init(&it, doc))
        return false;
    while (bson_iter_next(&it)) {
        size_t i = find_row(rows, count, next, &it);

        if (i == count || !applies(&rows[i], has))
            continue;
        if (seen & (UINT64_C(1) << i) || !read_member(&it, &rows[i], (char *)into + rows[i].offset, a))
            return false;
        seen |= UINT64_C(1) << i;
        next = i + 1;
    }
    if (it.err_off)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (seen & (UINT64_C(1) << i) || !applies(&rows[i], has))
            continue;
        if (rows[i].alike)
            memcpy((char *)into + rows[i].offset, (const char *)into + rows[i].like, rows[i].size);
        else if (!rows[i].optional)
            return false;
    }
    return true;
}

/* ---- arrays ---- */

const char *array_key(size_t k, char buffer[16])
{
    const char *key;

    assert(k <= UINT32_MAX);
    bson_uint32_to_string((uint32_t)k, &key, buffer, 16);
    return key;
}

void put_texts(bson_t *doc, const char *name, const struct string_list *list)
{
    char buffer[16];
    bson_t array;

    bson_append_array_begin(doc, name, -1, &array);
    for (size_t i = 0; i < list->count; i++)
        bson_append_utf8(&array, array_key(i, buffer), -1, list->items[i], -1);
    bson_append_array_end(doc, &array);
}

bool get_texts(const bson_iter_t *it, struct string_list *list, struct arena *a)
{
    const char *text;
    bson_iter_t item;
    bson_t array;

    if (!get_array(it, &array) || !bson_iter_init(&item, &array))
        return false;
    list->count = 0;
    list->items = arena_array(a, array_count(&array) + 1, sizeof *list->items);
    while (bson_iter_next(&item)) {
        if (!get_text(&item, &text))
            return false;
        list->items[list->count++] = arena_strdup(a, text);
    }
    return true;
}

bool find_texts(const bson_t *doc, const char *name, struct string_list *list, struct arena *a)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && get_texts(&it, list, a);
}

void in_begin(struct in_clause *in, bson_t *filter, const char *name)
{
    in->count = 0;
    bson_append_document_begin(filter, name, -1, &in->clause);
    BSON_APPEND_ARRAY_BEGIN(&in->clause, "$in", &in->values);
}

const char *in_next(struct in_clause *in)
{
    return array_key(in->count++, in->key);
}

void in_end(struct in_clause *in, bson_t *filter)
{
    bson_append_array_end(&in->clause, &in->values);
    bson_append_document_end(filter, &in->clause);
}

void in_texts(bson_t *filter, const char *name, const char *const *texts, size_t count)
{
    struct in_clause in;

    if (!count)
        return;
    in_begin(&in, filter, name);
    for (size_t i = 0; i < count; i++)
        bson_append_utf8(&in.values, in_next(&in), -1, texts[i], -1);
    in_end(&in, filter);
}

size_t array_count(const bson_t *array)
{
    size_t count = 0;
    bson_iter_t it;

    if (bson_iter_init(&it, array))
        while (bson_iter_next(&it))
            count++;
    return count;
}
