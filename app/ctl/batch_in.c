/*
 * ctl/batch_in.c -- see batch_in.h.
 *
 * Members   are read by the lists of batch.h, whatever the entry's kind. Only batch_line() knows which kind has which: at the end the
 *           batch is written again, and must equal the line that was read
 */
#include "ctl/batch_in.h"

#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "http/coupon_body.h"
#include "http/jsonin.h"

struct member_row {
    const char *name;
    enum value_kind kind;
    size_t offset, size;
};

#define ROW(shape, kind, member, name) {name, VALUE_##kind, offsetof(struct shape, member), sizeof(((struct shape *)0)->member)}
#define ENTRY(kind, member, has, name, ...) ROW(entry, kind, member, name),
#define HEAD(kind, member, name, ...) ROW(head, kind, member, name),
static const struct member_row entry_rows[] = {ENTRY_FIELDS(ENTRY, ENTRY)};
static const struct member_row totals_rows[] = {HEAD_TOTALS_FIELDS(HEAD)};
static const struct member_row day_rows[] = {HEAD_DAY_FIELDS(HEAD)};
#define ROWS(table) (table), sizeof(table) / sizeof *(table)

/* ---- values ---- */

static const char *text_of(struct json_object *o)
{
    return json_object_is_type(o, json_type_string) ? json_object_get_string(o) : NULL;
}

static bool read_hex(struct json_object *o, uint8_t *bytes, size_t size)
{
    const char *text = text_of(o);
    size_t len;

    return text && strlen(text) == 2 * size && sodium_hex2bin(bytes, size, text, 2 * size, NULL, &len, NULL) == 0 && len == size;
}

/* Batches have only integers that every reader of JSON reads exactly. */
static bool read_int(struct json_object *o, int64_t *to)
{
    if (!json_object_is_type(o, json_type_int))
        return false;
    *to = json_object_get_int64(o);
    return *to >= -MONEY_MAX && *to <= MONEY_MAX;
}

static bool read_u32(struct json_object *o, uint32_t *to)
{
    int64_t number;

    if (!read_int(o, &number) || number < 0 || number > UINT32_MAX)
        return false;
    *to = (uint32_t)number;
    return true;
}

static bool read_time(struct json_object *o, int64_t *to)
{
    return text_of(o) && clock_parse(text_of(o), to);
}

/* Read at most size - 1 bytes into an array of size bytes. */
static bool read_chars(struct json_object *o, char *to, size_t size)
{
    const char *text = text_of(o);

    if (!text || strlen(text) >= size)
        return false;
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool read_definition(struct json_object *o, struct arena *a, const struct coupon **to)
{
    struct coupon *c = arena_alloc(a, sizeof *c);
    struct errors errors;
    int64_t version;

    if (!json_object_is_type(o, json_type_object) || !read_int(json_object_object_get(o, "version"), &version))
        return false;
    json_object_object_del(o, "version");
    coupon_init(c);
    errors_init(&errors, a);
    coupon_read(o, c, &errors);
    c->version = version;
    *to = c;
    return errors.count == 0 && c->id;
}

static bool read_state(struct json_object *o, uint8_t *to)
{
    const char *text = text_of(o);
    enum slot_state state = text ? slot_state_of_name(text) : SLOT_STATE_COUNT;

    *to = (uint8_t)state;
    return state != SLOT_STATE_COUNT;
}

static bool read_kind(struct json_object *o, enum entry_kind *to)
{
    *to = text_of(o) ? entry_kind_of_name(text_of(o)) : ENTRY_KIND_COUNT;
    return *to != ENTRY_KIND_COUNT;
}

static bool read_value(const struct member_row *row, struct json_object *o, void *to, struct arena *a)
{
    switch (row->kind) {
    case VALUE_WIDE:
        if (!o) {
            *(int64_t *)to = COUPON_NULL;
            return true;
        }
        return read_int(o, to);
    case VALUE_INT:
        return read_int(o, to);
    case VALUE_U32:
        return read_u32(o, to);
    case VALUE_TIME:
        return read_time(o, to);
    case VALUE_BOOL:
        *(bool *)to = json_object_get_boolean(o);
        return json_object_is_type(o, json_type_boolean);
    case VALUE_TEXT:
        *(const char **)to = arena_strdup(a, text_of(o));
        return text_of(o) != NULL;
    case VALUE_CHARS:
        return read_chars(o, to, row->size);
    case VALUE_BYTES:
        return read_hex(o, to, row->size);
    case VALUE_STATE:
        return read_state(o, to);
    case VALUE_KIND:
        return read_kind(o, to);
    case VALUE_DEFINITION:
        return read_definition(o, a, to);
    }
    return false;
}

static const struct member_row *find_row(const struct member_row *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static bool read_members(struct json_object *o, const struct member_row *rows, size_t count, void *to, struct arena *a)
{
    if (!json_object_is_type(o, json_type_object))
        return false;
    JSONC_FOREACH(o, member) {
        const struct member_row *row = find_row(rows, count, jsonc_name(member));

        if (!row || !read_value(row, jsonc_value(member), (char *)to + row->offset, a))
            return false;
    }
    return true;
}

/* ---- a line ---- */

static bool read_entries(struct json_object *list, struct batch *b)
{
    size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;

    for (size_t i = 0; i < count; i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        struct entry *e = batch_add(b, ENTRY_KIND_COUNT);

        if (!read_members(o, ROWS(entry_rows), e, &b->arena) || e->kind == ENTRY_KIND_COUNT)
            return false;
        if (e->from && !json_object_object_get(o, "from_n"))
            e->from_n = e->n;
        if (entry_members[e->kind] & HAS_WAS && e->was >= SLOT_STATE_COUNT)
            return false;
        if ((entry_members[e->kind] & HAS_DEFINITION) && !e->definition)
            return false;
    }
    return count > 0;
}

static bool read_batch(struct json_object *o, struct batch *b)
{
    struct head *h = &b->head;

    return read_time(json_object_object_get(o, "at"), &h->at_ms) && read_chars(json_object_object_get(o, "batch"), b->id, sizeof b->id) &&
           read_members(json_object_object_get(o, "day"), ROWS(day_rows), h, &b->arena) &&
           read_entries(json_object_object_get(o, "entries"), b) && read_hex(json_object_object_get(o, "hash"), h->hash, HASH_LEN) &&
           read_int(json_object_object_get(o, "lane"), &b->lane) && read_hex(json_object_object_get(o, "prev"), b->prev, HASH_LEN) &&
           read_int(json_object_object_get(o, "seq"), &h->seq) &&
           read_members(json_object_object_get(o, "totals"), ROWS(totals_rows), h, &b->arena) &&
           read_int(json_object_object_get(o, "version"), &h->version) && b->lane >= 0 && b->lane < COUPON_LANES_MAX &&
           h->seq >= 1;
}

/* True if, written again, it is this line. */
static bool is_line(const struct batch *b, const char *line, size_t len)
{
    struct buf again = BUF_INIT;
    bool same;

    batch_line(b, &again, true);
    same = again.len == len && memcmp(again.data, line, len) == 0;
    buf_free(&again);
    return same;
}

struct batch *batch_in(const char *line, size_t len)
{
    JSON_IN_AUTO struct json_object *o = NULL;
    struct errors errors;
    struct batch *b;
    const char *coupon;
    struct arena a;

    arena_init(&a, 0);
    errors_init(&errors, &a);
    o = json_in(line, len, &errors);
    arena_free(&a);
    coupon = o ? text_of(json_object_object_get(o, "coupon")) : NULL;
    if (!coupon)
        return NULL;
    b = batch_new(coupon, 0);
    if (read_batch(o, b) && is_line(b, line, len))
        return b;
    batch_free(b);
    return NULL;
}
