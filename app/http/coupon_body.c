/* http/coupon_body.c -- see coupon_body.h. */
#include "http/coupon_body.h"

#include <string.h>

#include "http/fields.h"
#include "http/jsonin.h"

static const struct coupon_field *find_field(const char *pointer)
{
    for (size_t i = 0; i < coupon_fields_count; i++)
        if (strcmp(coupon_fields[i].pointer, pointer) == 0)
            return &coupon_fields[i];
    return NULL;
}

/* True if pointer is the parent of a field. */
static bool is_group(const char *pointer)
{
    size_t len = strlen(pointer);

    for (size_t i = 0; i < coupon_fields_count; i++)
        if (strncmp(coupon_fields[i].pointer, pointer, len) == 0 && coupon_fields[i].pointer[len] == '/')
            return true;
    return false;
}

/* Checks only types; coupon_check() checks bounds. */
static void read_field(const struct coupon_field *f, struct json_object *o, struct coupon *c, struct errors *e)
{
    static const enum row_type types[] = {[FIELD_STRING] = ROW_STRING, [FIELD_INT] = ROW_INT, [FIELD_TIME] = ROW_TIME,
                                          [FIELD_ENUM] = ROW_ENUM, [FIELD_STRINGS] = ROW_STRINGS, [FIELD_JSON] = ROW_JSON};
    const struct field_row row = {f->pointer, types[f->type], f->offset, f->type == FIELD_INT ? INT64_MIN + 1 : 0,
                                  f->type == FIELD_JSON ? f->max : INT64_MAX, .names = f->names};
    void *member = (char *)c + f->offset;

    if (o || f->type == FIELD_STRINGS)
        row_read(&row, o, f->pointer, c, e);
    else if (f->type == FIELD_STRING || f->type == FIELD_JSON)
        *(const char **)member = NULL;
    else
        *(int64_t *)member = COUPON_NULL;
}

static const struct field_row id_row = {"id", ROW_STRING, offsetof(struct coupon, id), 1, COUPON_ID_MAX, .valid = coupon_id_valid,
                                        .rule = "must consist of letters, digits, _ and -, and must not start with -"};

/* NOLINTNEXTLINE(misc-no-recursion): three levels */
static void read_group(struct json_object *o, const char *base, struct coupon *c, struct errors *e)
{
    JSONC_FOREACH(o, member) {
        const char *pointer = pointer_to(e->arena, base, jsonc_name(member));
        const struct coupon_field *f = find_field(pointer);

        if (f)
            read_field(f, jsonc_value(member), c, e);
        else if (strcmp(pointer, "/id") == 0)
            row_read(&id_row, jsonc_value(member), pointer, c, e);
        else if (!is_group(pointer))
            errors_add(e, pointer, "is not a known field");
        else if (!json_object_is_type(jsonc_value(member), json_type_object))
            errors_add(e, pointer, "must be an object");
        else
            read_group(jsonc_value(member), pointer, c, e);
    }
}

/* Imported and shared codes are on paper: they are presented, not handed out. The list of imported ones says how they are written. */
static void default_codes(struct json_object *o, struct coupon *c)
{
    struct json_object *codes = json_object_object_get(o, "codes");
    bool imported = c->codes.source == CODES_IMPORTED;

    if ((imported || c->codes.source == CODES_SHARED) && !json_object_object_get_ex(codes, "claim", NULL))
        c->codes.claim = CLAIM_PRESENT;
    if (imported && !json_object_object_get_ex(codes, "match", NULL))
        c->codes.match = MATCH_EXACT;
}

static bool is_noted(const struct errors *e, const char *pointer)
{
    for (size_t i = 0; i < e->count && i < ERRORS_MAX; i++)
        if (strcmp(e->rows[i].pointer, pointer) == 0)
            return true;
    return false;
}

void coupon_read(struct json_object *o, struct coupon *c, struct errors *e)
{
    struct field_error *found;
    size_t count;

    read_group(o, "", c, e);
    default_codes(o, c);
    count = coupon_check(c, e->arena, &found);
    for (size_t i = 0; i < count; i++)
        if (!is_noted(e, found[i].pointer))
            errors_add(e, found[i].pointer, found[i].detail);
}

/* ---- patches ---- */

/* RFC 7396. NOLINTNEXTLINE(misc-no-recursion): bounded by JSON_DEPTH_MAX */
static void merge(struct json_object *target, struct json_object *patch)
{
    JSONC_FOREACH(patch, member) {
        const char *name = jsonc_name(member);
        struct json_object *value = jsonc_value(member), *old;

        if (!value) {
            json_object_object_del(target, name);
            continue;
        }
        if (!json_object_is_type(value, json_type_object)) {
            json_object_object_add(target, name, json_object_get(value)); /* target gets a reference */
            continue;
        }
        old = json_object_object_get(target, name);
        if (!json_object_is_type(old, json_type_object)) {
            old = json_object_new_object();
            json_object_object_add(target, name, old); /* target owns it */
        }
        merge(old, value);
    }
}

/* Remove the members that a discount of that kind does not have. */
static void drop_other_kinds(struct json_object *discount, int64_t kind)
{
    struct json_object *only = json_object_object_get(discount, "only"), *except = json_object_object_get(discount, "except");

    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        const char *name = strrchr(f->pointer, '/') + 1;

        if (!f->discount_kinds || (f->discount_kinds & (1u << kind)))
            continue;
        if (strncmp(f->pointer, "/discount/only/", 15) == 0) {
            if (only)
                json_object_object_del(only, name);
        } else if (strncmp(f->pointer, "/discount/except/", 17) == 0) {
            if (except)
                json_object_object_del(except, name);
        } else {
            json_object_object_del(discount, name);
        }
    }
}

static void change_kind(const struct coupon *now, struct json_object *target, struct json_object *patch)
{
    const struct coupon_field *f = find_field("/discount/kind");
    struct json_object *kind = json_object_object_get(json_object_object_get(patch, "discount"), "kind");
    struct json_object *discount = json_object_object_get(target, "discount");

    if (!json_object_is_type(kind, json_type_string) || !discount)
        return;
    for (int64_t i = 0; f->names[i]; i++)
        if (i != now->discount.kind && strcmp(f->names[i], json_object_get_string(kind)) == 0)
            drop_other_kinds(discount, i);
}

/* A new source has new defaults. target: merged. */
static void change_source(const struct coupon *now, struct json_object *target, struct json_object *patch)
{
    static const char *const members[] = {"claim", "match", "shared", "shared_cap"};
    const char *before = find_field("/codes/source")->names[now->codes.source];
    struct json_object *codes = json_object_object_get(target, "codes"), *source = json_object_object_get(codes, "source");

    if (!json_object_is_type(codes, json_type_object) || (source && strcmp(json_object_get_string(source), before) == 0))
        return;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!json_object_object_get_ex(json_object_object_get(patch, "codes"), members[i], NULL))
            json_object_object_del(codes, members[i]);
}

struct coupon *coupon_patch(const struct coupon *now, struct json_object *patch, struct errors *e)
{
    struct coupon *next = arena_alloc(e->arena, sizeof *next);
    struct buf text = BUF_INIT;
    struct json j = json_to(&text);
    struct json_object *target JSON_IN_AUTO = NULL;

    coupon_init(next);
    coupon_write(now, &j, false);
    target = json_in(text.data, text.len, e);
    buf_free(&text);
    if (!target)
        return next;
    if (json_object_object_get_ex(patch, "discount", NULL) &&
        json_object_is_type(json_object_object_get(patch, "discount"), json_type_object))
        change_kind(now, target, patch);
    merge(target, patch);
    change_source(now, target, patch);
    coupon_read(target, next, e);
    if (!next->id || strcmp(next->id, now->id) != 0)
        errors_add(e, "/id", "cannot change");
    next->id = now->id;
    next->version = now->version;
    return next;
}
