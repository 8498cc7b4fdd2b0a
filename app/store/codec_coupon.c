/* store/codec_coupon.c -- see codec.h: definitions, through coupon_fields[]. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "coupons/code.h"
#include "store/bson_fields.h"
#include "store/codec.h"

#define DELETED "deleted" /* a tombstone's state; not a name on the wire */
#define LEVELS 3
#define POINTER_MAX 64

/* The parts of a JSON pointer. */
struct path {
    char text[POINTER_MAX];
    const char *parts[LEVELS];
    size_t count;
};

static void path_of(const char *pointer, struct path *p)
{
    size_t len = strlen(pointer);
    char *part, *rest = p->text;

    assert(pointer[0] == '/' && len < sizeof p->text);
    memcpy(p->text, pointer + 1, len);
    p->count = 0;
    while ((part = strsep(&rest, "/"))) {
        assert(p->count < LEVELS);
        p->parts[p->count++] = part;
    }
}

/* ---- writing ---- */

static const char *enum_name(const struct coupon_field *f, int64_t value)
{
    for (int64_t i = 0; f->names[i]; i++)
        if (i == value)
            return f->names[i];
    assert(value == COUPON_DELETED);
    return DELETED;
}

static void put_field(bson_t *doc, const char *name, const struct coupon_field *f, const struct coupon *c)
{
    const void *at = (const char *)c + f->offset;
    const char *text;
    int64_t number;

    switch (f->type) {
    case FIELD_STRING:
    case FIELD_JSON:
        text = *(const char *const *)at;
        if (text)
            bson_append_utf8(doc, name, -1, text, -1);
        else
            bson_append_null(doc, name, -1);
        return;
    case FIELD_STRINGS:
        put_texts(doc, name, at);
        return;
    case FIELD_INT:
    case FIELD_TIME:
    case FIELD_ENUM:
        break;
    }
    number = *(const int64_t *)at;
    if (number == COUPON_NULL)
        bson_append_null(doc, name, -1);
    else if (f->type == FIELD_TIME)
        bson_append_date_time(doc, name, -1, number);
    else if (f->type == FIELD_ENUM)
        bson_append_utf8(doc, name, -1, enum_name(f, number), -1);
    else
        put_int(doc, name, number);
}

void codec_definition_put(bson_t *doc, const struct coupon *c)
{
    bson_t levels[LEVELS];
    struct path open = {.count = 0}, p = {.count = 0};
    size_t depth = 0; /* open sub-documents: open.parts[0 .. depth) */

    for (size_t i = 0; i < coupon_fields_count; i++) {
        size_t common = 0;

        path_of(coupon_fields[i].pointer, &p);
        while (common < depth && common + 1 < p.count && strcmp(open.parts[common], p.parts[common]) == 0)
            common++;
        for (; depth > common; depth--)
            bson_append_document_end(depth == 1 ? doc : &levels[depth - 2], &levels[depth - 1]);
        for (; depth + 1 < p.count; depth++)
            bson_append_document_begin(depth == 0 ? doc : &levels[depth - 1], p.parts[depth], -1, &levels[depth]);
        put_field(depth == 0 ? doc : &levels[depth - 1], p.parts[depth], &coupon_fields[i], c);
        path_of(coupon_fields[i].pointer, &open);
    }
    for (; depth > 0; depth--)
        bson_append_document_end(depth == 1 ? doc : &levels[depth - 2], &levels[depth - 1]);
}

/* ---- reading ---- */

static bool get_enum(const bson_iter_t *it, const struct coupon_field *f, int64_t *value)
{
    const char *name;

    if (!get_text(it, &name))
        return false;
    for (int64_t i = 0; f->names[i]; i++)
        if (strcmp(f->names[i], name) == 0) {
            *value = i;
            return true;
        }
    *value = COUPON_DELETED;
    return strcmp(f->pointer, "/state") == 0 && strcmp(name, DELETED) == 0;
}

/* Not an enum, which indexes tables, nor a number without a null, which is used in arithmetic. */
static bool may_be_null(const struct coupon_field *f)
{
    return f->type == FIELD_TIME || (f->type == FIELD_INT && (f->default_int == COUPON_NULL || (f->flags & FIELD_NULLABLE)));
}

/* A number out of bounds was not written by us: we must not divide by it, or make codes from it. */
static bool get_bounded(const bson_iter_t *it, const struct coupon_field *f, int64_t *value)
{
    return get_exact(it, value) && *value >= f->min && *value <= f->max;
}

static bool get_field(const bson_iter_t *it, const struct coupon_field *f, struct coupon *c, struct arena *a)
{
    void *at = (char *)c + f->offset;
    bool null = BSON_ITER_HOLDS_NULL(it);
    const char *text;

    switch (f->type) {
    case FIELD_STRING:
    case FIELD_JSON:
        if (!null && !get_text(it, &text))
            return false;
        *(const char **)at = null ? NULL : arena_strdup(a, text);
        return true;
    case FIELD_STRINGS:
        return get_texts(it, at, a);
    case FIELD_INT:
    case FIELD_TIME:
    case FIELD_ENUM:
        break;
    }
    if (null && !may_be_null(f))
        return false;
    if (null) {
        *(int64_t *)at = COUPON_NULL;
        return true;
    }
    if (f->type == FIELD_ENUM)
        return get_enum(it, f, at);
    return f->type == FIELD_TIME ? get_time(it, at) : get_bounded(it, f, at);
}

/* Move *it to the field that p names; false: there is none. */
static bool descend(const bson_t *doc, const struct path *p, bson_iter_t *it)
{
    bson_iter_t inner;

    if (!bson_iter_init_find(it, doc, p->parts[0]))
        return false;
    for (size_t i = 1; i < p->count; i++) {
        if (!BSON_ITER_HOLDS_DOCUMENT(it) || !bson_iter_recurse(it, &inner) || !bson_iter_find(&inner, p->parts[i]))
            return false;
        *it = inner;
    }
    return true;
}

struct coupon *codec_definition_get(const bson_t *doc, const char *id, int64_t version, struct arena *a)
{
    struct coupon *c = arena_alloc(a, sizeof *c);
    bson_iter_t it;
    struct path p = {.count = 0};

    coupon_init(c);
    c->id = arena_strdup(a, id);
    c->version = version;
    for (size_t i = 0; i < coupon_fields_count; i++) {
        path_of(coupon_fields[i].pointer, &p);
        /* a field newer than the document keeps its default */
        if (descend(doc, &p, &it) && !get_field(&it, &coupon_fields[i], c, a))
            return NULL;
    }
    return c->title && c->time_zone ? c : NULL;
}

#define NEVER_MS INT64_C(253402300799999) /* the last millisecond of the year 9999 */

void codec_coupon_put(bson_t *view, const struct coupon *c, int64_t seq, int64_t changed_ms)
{
    bson_t def, array;
    int64_t over_ms = c->ends_at_ms != COUPON_NULL ? c->ends_at_ms : NEVER_MS;
    char buffer[16], form[CODE_MAX + 1];

    put_int(view, "seq", seq); /* first: it orders views */
    put_int(view, "version", c->version);
    bson_append_date_time(view, "changed", 7, changed_ms);
    /* For the indexes by which lists of active coupons, and the sweeper, find it. */
    if (c->state != COUPON_DELETED) {
        if (c->state == COUPON_ACTIVE)
            bson_append_date_time(view, "live", 4, over_ms);
        if (c->state == COUPON_ENDED && changed_ms < over_ms)
            over_ms = changed_ms;
        if (over_ms < NEVER_MS)
            bson_append_date_time(view, "cleanup", 7, over_ms + c->cleanup_after_s * 1000);
    }
    /* The forms of its shared codes, for the index by which resolve finds it. */
    if (c->state != COUPON_DELETED && c->codes.shared.count != 0) {
        bson_append_array_begin(view, "shared", 6, &array);
        for (size_t i = 0; i < c->codes.shared.count; i++)
            if (code_normalise(c->codes.shared.items[i], (enum codes_match)c->codes.match, form))
                bson_append_utf8(&array, array_key(i, buffer), -1, form, -1);
        bson_append_array_end(view, &array);
    }
    bson_append_document_begin(view, "def", 3, &def);
    codec_definition_put(&def, c);
    bson_append_document_end(view, &def);
}

struct coupon *codec_coupon_get(const bson_t *doc, struct arena *a, int64_t *seq)
{
    bson_t view, def;
    const char *id;
    int64_t version;

    if (!find_text(doc, "_id", &id) || !find_document(doc, "view", &view) || !find_exact(&view, "seq", seq) ||
        !find_exact(&view, "version", &version) || !find_document(&view, "def", &def))
        return NULL;
    return codec_definition_get(&def, id, version, a);
}
