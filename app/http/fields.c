/* http/fields.c -- see fields.h. */
#include "http/fields.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "http/canonical.h"

/* 0000-01-01 and 10000-01-01: the times that RFC 3339 can express. */
#define TIME_MS_MIN (INT64_C(-62167219200000))
#define TIME_MS_MAX (INT64_C(253402300799999))
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

static bool wrong(struct errors *e, const char *pointer, const char *detail)
{
    errors_add(e, pointer, detail);
    return false;
}

/* The characters of text; each NO_CHARACTER counts as one. */
static int64_t characters_of(const char *text)
{
    int64_t count = 0;

    for (; *text; text++)
        count += (*text & 0xC0) != 0x80;
    return count;
}

static bool read_string(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, const char **to)
{
    int64_t characters;
    const char *text;
    size_t len;
    bool valid;

    if (!json_object_is_type(o, json_type_string))
        return wrong(e, pointer, "must be a string");
    text = json_object_get_string(o);
    len = (size_t)json_object_get_string_len(o);
    valid = strlen(text) == len && utf8_valid(text, NULL);
    if (!valid && !(row->flags & ROW_TYPED))
        return wrong(e, pointer, "must be UTF-8 without U+0000");
    characters = characters_of(text);
    if (characters < row->min || characters > row->max)
        return wrong(e, pointer, arena_printf(e->arena, "must have %" PRId64 " to %" PRId64 " characters", row->min, row->max));
    text = valid ? arena_memdup(e->arena, text, len) : "\xEF\xBF\xBD";
    if (row->kept)
        text = row->kept(text, e->arena);
    if (!text || (row->valid && !row->valid(text)))
        return wrong(e, pointer, row->rule);
    *to = text;
    return true;
}

/* An integer, however written: 5, 5.0 and 5e0 are one number (JSON Schema, RFC 8259). *value: exact to 2^53. */
static bool is_integer(struct json_object *o, int64_t *value)
{
    double number;

    if (json_object_is_type(o, json_type_int)) {
        *value = json_object_get_int64(o);
        return true;
    }
    if (!json_object_is_type(o, json_type_double))
        return false;
    number = json_object_get_double(o);
    if (!(fabs(number) <= EXACT_MAX) || number != trunc(number))
        return false;
    *value = (int64_t)number;
    return true;
}

static bool read_int(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, int64_t *to)
{
    int64_t value;

    if (!is_integer(o, &value))
        return wrong(e, pointer, "must be an integer");
    if (value < row->min || value > row->max)
        return wrong(e, pointer, arena_printf(e->arena, "must be from %" PRId64 " to %" PRId64, row->min, row->max));
    *to = value;
    return true;
}

/* "one of a, b, c". */
static const char *choices(struct arena *a, const char *const *names)
{
    struct buf text = BUF_INIT;
    const char *copy, *between = "must be one of ";

    for (unsigned i = 0; names[i]; i++) {
        buf_puts(&text, between);
        buf_puts(&text, names[i]);
        between = ", ";
    }
    copy = arena_memdup(a, text.data, text.len);
    buf_free(&text);
    return copy;
}

static bool read_bool(struct json_object *o, const char *pointer, struct errors *e, int64_t *to)
{
    if (!json_object_is_type(o, json_type_boolean))
        return wrong(e, pointer, "must be true or false");
    *to = json_object_get_boolean(o);
    return true;
}

static bool read_enum(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, int64_t *to)
{
    if (!json_object_is_type(o, json_type_string))
        return wrong(e, pointer, "must be a string");
    for (unsigned i = 0; row->names[i]; i++) {
        if (strcmp(row->names[i], json_object_get_string(o)) != 0)
            continue;
        *to = i;
        return true;
    }
    return wrong(e, pointer, choices(e->arena, row->names));
}

static bool read_time(struct json_object *o, const char *pointer, struct errors *e, int64_t *to)
{
    int64_t ms;

    if (!json_object_is_type(o, json_type_string) || !clock_parse(json_object_get_string(o), &ms) ||
        ms < TIME_MS_MIN || ms > TIME_MS_MAX)
        return wrong(e, pointer, "must be an RFC 3339 time, such as 2026-11-01T00:00:00Z");
    *to = ms;
    return true;
}

static bool read_json(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, const char **to)
{
    struct buf text = BUF_INIT;
    const char *problem;

    if (!json_object_is_type(o, json_type_object))
        return wrong(e, pointer, "must be an object");
    problem = canonical_write(o, &text, (size_t)row->max);
    if (problem)
        wrong(e, pointer, strcmp(problem, "too long") == 0
                              ? arena_printf(e->arena, "must have at most %" PRId64 " bytes", row->max) : problem);
    else if (strcmp(text.data, "{}") != 0)
        *to = arena_memdup(e->arena, text.data, text.len);
    buf_free(&text);
    return !problem;
}

static bool read_object(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, void *member)
{
    void *to;

    if (!json_object_is_type(o, json_type_object))
        return wrong(e, pointer, "must be an object");
    to = arena_alloc(e->arena, row->table->size);
    fields_read(row->table, o, pointer, to, e);
    memcpy(member, &to, sizeof to);
    return true;
}

/* True if it is an array with as many items as the row allows. */
static bool has_items(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, const char *what)
{
    int64_t count;

    if (!json_object_is_type(o, json_type_array))
        return wrong(e, pointer, what);
    count = (int64_t)json_object_array_length(o);
    if (count < row->min || count > row->max)
        return wrong(e, pointer, arena_printf(e->arena, "must have %" PRId64 " to %" PRId64 " items", row->min, row->max));
    return true;
}

static bool read_array(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e, void *base)
{
    size_t count;
    char *items;

    if (!has_items(row, o, pointer, e, "must be an array"))
        return false;
    count = json_object_array_length(o);
    items = arena_array(e->arena, count, row->table->size);
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(o, i);
        const char *at = pointer_to_index(e->arena, pointer, i);

        if (json_object_is_type(item, json_type_object))
            fields_read(row->table, item, at, items + i * row->table->size, e);
        else
            wrong(e, at, "must be an object");
    }
    memcpy((char *)base + row->offset, &items, sizeof items);
    memcpy((char *)base + row->count_offset, &count, sizeof count);
    return true;
}

static bool read_strings(const struct field_row *row, struct json_object *o, const char *pointer, struct errors *e,
                         struct string_list *list)
{
    const struct field_row item = {.type = ROW_STRING, .min = 1, .max = 128, .valid = row->valid, .rule = row->rule};

    if (!has_items(row, o, pointer, e, "must be an array of strings"))
        return false;
    list->items = arena_array(e->arena, json_object_array_length(o), sizeof *list->items);
    list->count = 0;
    for (size_t i = 0; i < json_object_array_length(o); i++)
        list->count += read_string(&item, json_object_array_get_idx(o, i), pointer_to_index(e->arena, pointer, i), e,
                                   &list->items[list->count]);
    return true;
}

/* ---- rows ---- */

bool row_read(const struct field_row *row, struct json_object *o, const char *pointer, void *base, struct errors *e)
{
    void *member = (char *)base + row->offset;

    if (!o && (row->flags & ROW_NULLABLE))
        return true;
    switch (row->type) {
    case ROW_STRING:
        return read_string(row, o, pointer, e, member);
    case ROW_INT:
        return read_int(row, o, pointer, e, member);
    case ROW_BOOL:
        return read_bool(o, pointer, e, member);
    case ROW_ENUM:
        return read_enum(row, o, pointer, e, member);
    case ROW_TIME:
        return read_time(o, pointer, e, member);
    case ROW_JSON:
        return read_json(row, o, pointer, e, member);
    case ROW_OBJECT:
        return read_object(row, o, pointer, e, member);
    case ROW_ARRAY:
        return read_array(row, o, pointer, e, base);
    case ROW_STRINGS:
        return read_strings(row, o, pointer, e, member);
    }
    return false; /* not reached */
}

static const struct field_row *find_row(const struct field_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            return &table->rows[i];
    return NULL;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tables are nested */
void fields_read(const struct field_table *table, struct json_object *o, const char *pointer, void *to, struct errors *e)
{
    uint64_t seen = 0;

    assert(table->count <= 64);
    memcpy(to, table->start, table->size);
    JSONC_FOREACH(o, member) {
        const struct field_row *row = find_row(table, jsonc_name(member));
        const char *at = pointer_to(e->arena, pointer, jsonc_name(member));

        if (!row) {
            wrong(e, at, "is not a known field");
            continue;
        }
        seen |= UINT64_C(1) << (row - table->rows);
        row_read(row, jsonc_value(member), at, to, e);
    }
    for (size_t i = 0; i < table->count; i++)
        if ((table->rows[i].flags & ROW_REQUIRED) && !(seen & (UINT64_C(1) << i)))
            wrong(e, pointer_to(e->arena, pointer, table->rows[i].name), "is required");
    if (table->check)
        table->check(to, pointer, e);
}

/* ---- what was given ---- */

/* NOLINTNEXTLINE(misc-no-recursion) */
static void write_row(const struct field_row *row, const void *base, struct json *j)
{
    const char *member = (const char *)base + row->offset;
    int64_t number = 0;
    const char *pointer = NULL;
    struct string_list list;
    size_t count = 0;

    _Static_assert(sizeof number == sizeof pointer, "a row is one or the other, of the same size");
    memcpy(&number, member, sizeof number);
    memcpy(&pointer, member, sizeof pointer);
    json_key(j, row->name);
    switch (row->type) {
    case ROW_STRING:
        json_string(j, pointer);
        break;
    case ROW_INT:
        json_int(j, number);
        break;
    case ROW_BOOL:
        json_raw(j, number ? "true" : "false");
        break;
    case ROW_ENUM:
        json_string(j, row->names[number]);
        break;
    case ROW_TIME:
        json_time(j, number);
        break;
    case ROW_JSON:
        json_raw(j, pointer);
        break;
    case ROW_OBJECT:
        fields_canonical(row->table, pointer, j);
        break;
    case ROW_ARRAY:
        memcpy(&count, (const char *)base + row->count_offset, sizeof count);
        json_begin_array(j);
        for (size_t i = 0; i < count; i++)
            fields_canonical(row->table, pointer + i * row->table->size, j);
        json_end_array(j);
        break;
    case ROW_STRINGS:
        memcpy(&list, member, sizeof list);
        json_begin_array(j);
        for (size_t i = 0; i < list.count; i++)
            json_string(j, list.items[i]);
        json_end_array(j);
        break;
    }
}

/* A string whose default is NULL differs if given; one with a default text is compared by text. */
static bool given(const struct field_table *table, const struct field_row *row, const void *from)
{
    const char *member = (const char *)from + row->offset, *start = (const char *)table->start + row->offset;
    const char *a, *b;

    if (memcmp(member, start, sizeof(int64_t)) == 0)
        return false;
    if (row->type != ROW_STRING)
        return true;
    memcpy(&a, member, sizeof a);
    memcpy(&b, start, sizeof b);
    return !a || !b || strcmp(a, b) != 0;
}

/* NOLINTNEXTLINE(misc-no-recursion) */
void fields_canonical(const struct field_table *table, const void *from, struct json *j)
{
    json_begin_object(j);
    for (size_t i = 0; i < table->count; i++)
        if (given(table, &table->rows[i], from))
            write_row(&table->rows[i], from, j);
    json_end_object(j);
}
