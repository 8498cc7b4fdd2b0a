/*
 * coupons/coupon.c -- see coupon.h: the table of a definition's fields, and the code that it drives.
 *
 * Add a field   a member in struct coupon, a row here; reading, writing, copying, checking and storing follow
 * Null          null in a row without FIELD_NULLABLE is an error: "is required"
 */
#include "coupons/coupon.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"

#define COUNT_MAX INT64_C(1000000000)
#define SECONDS_MAX INT64_C(315360000)               /* ten years */
#define TIME_MIN INT64_C(-62167219200000)            /* 0000-01-01, the first that RFC 3339 can write */
#define TIME_MAX INT64_C(253402300799999)            /* 9999-12-31 */
#define ONLY_MAX 100
#define ONLY_TEXT_MAX 128

static const char *const state_names[] = {"draft", "active", "paused", "ended", NULL};
static const char *const policy_names[] = {"exact", "approximate", "none", NULL};
static const char *const on_user_cap_names[] = {"refuse", "existing", NULL};
static const char *const discount_kind_names[] = {"none", "amount", "percent", "other", NULL};
static const char *const codes_source_names[] = {"none", "generated", "imported", "shared", NULL};
static const char *const codes_pick_names[] = {"sequential", "random", NULL};
static const char *const codes_claim_names[] = {"any", "present", NULL};
static const char *const codes_match_names[] = {"loose", "exact", NULL};
static const char *const codes_unique_names[] = {"coupon", "service", NULL};

#define BIT(value) (1u << (value))
#define AMOUNT BIT(DISCOUNT_AMOUNT)
#define PERCENT BIT(DISCOUNT_PERCENT)
#define OTHER BIT(DISCOUNT_OTHER)
#define ANY_KIND (BIT(DISCOUNT_NONE) | AMOUNT | PERCENT | OTHER)

#define INT(field, least, most, start, ...)                                                                            \
    .type = FIELD_INT, .offset = offsetof(struct coupon, field), .min = (least), .max = (most), .default_int = (start), \
    __VA_ARGS__
#define TIME(field)                                                                                                    \
    .type = FIELD_TIME, .offset = offsetof(struct coupon, field), .min = TIME_MIN, .max = TIME_MAX,                    \
    .default_int = COUPON_NULL, .flags = FIELD_NULLABLE
#define TEXT(field, least, most, start, ...)                                                                           \
    .type = FIELD_STRING, .offset = offsetof(struct coupon, field), .min = (least), .max = (most),                     \
    .default_text = (start), __VA_ARGS__
#define TEXTS(field, most, ...) .type = FIELD_STRINGS, .offset = offsetof(struct coupon, field), .max = (most), __VA_ARGS__
#define ENUM(field, wire, ...)                                                                                         \
    .type = FIELD_ENUM, .offset = offsetof(struct coupon, field), .max = sizeof(wire) / sizeof *(wire) - 2,            \
    .names = (wire), __VA_ARGS__

const struct coupon_field coupon_fields[] = {
    {"/cap/discount_minor", INT(cap.discount_minor, 0, MONEY_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/cap/per_day", INT(cap.per_day, 1, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/cap/per_user", INT(cap.per_user, 1, 1000, 1, .flags = 0)},
    {"/cap/per_user_per_day", INT(cap.per_user_per_day, 1, 1000, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/cap/policy", ENUM(cap.policy, policy_names, .flags = FIELD_FIXED)},
    {"/cap/total", INT(cap.total, 1, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)}, /* required: see check_rules */
    {"/cleanup_after_s", INT(cleanup_after_s, 0, SECONDS_MAX, 2592000, .flags = 0)},
    {"/codes/claim", ENUM(codes.claim, codes_claim_names, .flags = FIELD_FIXED)},
    {"/codes/length", INT(codes.length, 6, 32, 10, .flags = FIELD_FIXED)},
    {"/codes/match", ENUM(codes.match, codes_match_names, .flags = FIELD_FIXED)},
    {"/codes/pick", ENUM(codes.pick, codes_pick_names, .flags = FIELD_FIXED)},
    {"/codes/prefix", TEXT(codes.prefix, 0, 16, "", .flags = FIELD_FIXED)},
    {"/codes/shared", TEXTS(codes.shared, SHARED_CODES_MAX, .flags = 0)},
    {"/codes/shared_cap", INT(codes.shared_cap, 1, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE | FIELD_FIXED)},
    {"/codes/source", ENUM(codes.source, codes_source_names, .flags = FIELD_FIXED)},
    {"/codes/unique", ENUM(codes.unique, codes_unique_names, .flags = FIELD_FIXED)},
    {"/description", TEXT(description, 0, 2000, "", .flags = 0)},
    {"/discount/amount_minor",
     INT(discount.amount_minor, 1, MONEY_MAX, COUPON_NULL, .discount_kinds = AMOUNT)},
    {"/discount/currency", /* required: see check_rules */
     TEXT(discount.currency, 3, 3, NULL, .flags = FIELD_NULLABLE | FIELD_FIXED, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/except/categories", TEXTS(discount.except.categories, ONLY_MAX, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/except/skus", TEXTS(discount.except.skus, ONLY_MAX, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/kind", ENUM(discount.kind, discount_kind_names, .discount_kinds = ANY_KIND)},
    {"/discount/label", TEXT(discount.label, 1, 200, NULL, .discount_kinds = OTHER)},
    {"/discount/max_minor",
     INT(discount.max_minor, 0, MONEY_MAX, COUPON_NULL, .flags = FIELD_NULLABLE, .discount_kinds = PERCENT)},
    {"/discount/min_spend_minor",
     INT(discount.min_spend_minor, 0, MONEY_MAX, 0, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/only/categories", TEXTS(discount.only.categories, ONLY_MAX, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/only/skus", TEXTS(discount.only.skus, ONLY_MAX, .discount_kinds = AMOUNT | PERCENT | OTHER)},
    {"/discount/percent_bp", INT(discount.percent_bp, 1, 10000, COUPON_NULL, .discount_kinds = PERCENT)},
    {"/ends_at", TIME(ends_at_ms)},
    {"/lanes", INT(lanes, 1, COUPON_LANES_MAX, 1, .flags = FIELD_FIXED)},
    {"/low_stock", INT(low_stock, 0, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/metadata", .type = FIELD_JSON, .offset = offsetof(struct coupon, metadata), .min = 2, .max = COUPON_METADATA_MAX,
     .default_text = "{}"},
    {"/on_user_cap", ENUM(on_user_cap, on_user_cap_names, .flags = 0)},
    {"/replenish/add", INT(replenish.add, 1, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/replenish/below", INT(replenish.below, 1, COUNT_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
    {"/reserve_s", INT(reserve_s, 1, 86400, 900, .flags = 0)},
    {"/starts_at", TIME(starts_at_ms)},
    {"/state", ENUM(state, state_names, .flags = 0)},
    {"/time_zone", TEXT(time_zone, 1, 64, "UTC", .flags = FIELD_FIXED)},
    {"/title", TEXT(title, 1, 200, NULL, .flags = FIELD_REQUIRED)},
    {"/valid_for_s", INT(valid_for_s, 1, SECONDS_MAX, COUPON_NULL, .flags = FIELD_NULLABLE)},
};
const size_t coupon_fields_count = sizeof coupon_fields / sizeof coupon_fields[0];

/* ---- one field of one coupon ---- */

static const void *member_of(const struct coupon_field *f, const struct coupon *c)
{
    return (const char *)c + f->offset;
}

static int64_t number_of(const struct coupon_field *f, const struct coupon *c)
{
    return *(const int64_t *)member_of(f, c);
}

static const char *text_of(const struct coupon_field *f, const struct coupon *c)
{
    return *(const char *const *)member_of(f, c);
}

static const struct string_list *list_of(const struct coupon_field *f, const struct coupon *c)
{
    return member_of(f, c);
}

static bool is_number(const struct coupon_field *f)
{
    return f->type == FIELD_INT || f->type == FIELD_TIME || f->type == FIELD_ENUM;
}

/* True if coupons with discount.kind `kind` have the field. */
static bool belongs(const struct coupon_field *f, int64_t kind)
{
    return !f->discount_kinds || (kind >= 0 && kind < 32 && (f->discount_kinds & (UINT32_C(1) << kind)));
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_default(const struct coupon_field *f, const struct coupon *c)
{
    if (is_number(f))
        return number_of(f, c) == f->default_int;
    if (f->type == FIELD_STRINGS)
        return list_of(f, c)->count == 0;
    return same_text(text_of(f, c), f->default_text);
}

bool coupon_same_value(const struct coupon *a, const struct coupon *b, const struct coupon_field *f)
{
    const struct string_list *x, *y;

    if (is_number(f))
        return number_of(f, a) == number_of(f, b);
    if (f->type != FIELD_STRINGS)
        return same_text(text_of(f, a), text_of(f, b));
    x = list_of(f, a);
    y = list_of(f, b);
    if (x->count != y->count)
        return false;
    for (size_t i = 0; i < x->count; i++)
        if (!same_text(x->items[i], y->items[i]))
            return false;
    return true;
}

/* ---- whole coupons ---- */

void coupon_init(struct coupon *c)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        void *member = (char *)c + f->offset;

        if (is_number(f))
            *(int64_t *)member = f->default_int;
        else if (f->type != FIELD_STRINGS)
            *(const char **)member = f->default_text;
    }
}

static struct string_list copy_list(const struct string_list *list, struct arena *a)
{
    struct string_list copy = {.count = list->count};

    if (list->count)
        copy.items = arena_array(a, list->count, sizeof *copy.items);
    for (size_t i = 0; i < list->count; i++)
        copy.items[i] = arena_strdup(a, list->items[i]);
    return copy;
}

struct coupon *coupon_copy(const struct coupon *c, struct arena *a)
{
    struct coupon *copy = arena_alloc(a, sizeof *copy);

    *copy = *c;
    copy->id = arena_strdup(a, c->id);
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        void *member = (char *)copy + f->offset;

        if (f->type == FIELD_STRINGS)
            *(struct string_list *)member = copy_list(list_of(f, c), a);
        else if (!is_number(f))
            *(const char **)member = arena_strdup(a, text_of(f, c));
    }
    return copy;
}

const char *coupon_fixed_difference(const struct coupon *a, const struct coupon *b)
{
    if (a->codes.source != b->codes.source)
        return "/codes/source"; /* other fields have defaults that change with it */
    for (size_t i = 0; i < coupon_fields_count; i++)
        if ((coupon_fields[i].flags & FIELD_FIXED) && !coupon_same_value(a, b, &coupon_fields[i]))
            return coupon_fields[i].pointer;
    return NULL;
}

/* ---- checking ---- */

struct errors {
    struct arena *arena;
    struct field_error *items;
    size_t count, capacity;
};

static void wrong(struct errors *e, const char *pointer, const char *detail)
{
    e->items = arena_grown(e->arena, e->items, e->count, &e->capacity, sizeof *e->items);
    e->items[e->count++] = (struct field_error){pointer, detail};
}

static void check_number(struct errors *e, const struct coupon_field *f, int64_t value)
{
    if (value == COUPON_NULL) {
        if (!(f->flags & FIELD_NULLABLE))
            wrong(e, f->pointer, "is required");
    } else if (f->type == FIELD_ENUM) {
        if (value < 0 || value > f->max)
            wrong(e, f->pointer, "is not one of the values of this field");
    } else if (value >= f->min && value <= f->max) {
        return;
    } else if (f->type == FIELD_TIME) {
        wrong(e, f->pointer, "must be between the years 0000 and 9999");
    } else {
        wrong(e, f->pointer, arena_printf(e->arena, "must be from %" PRId64 " to %" PRId64, f->min, f->max));
    }
}

static void check_text(struct errors *e, const char *pointer, const char *text, int64_t min, int64_t max)
{
    size_t characters;

    if (!utf8_valid(text, &characters))
        wrong(e, pointer, "must be UTF-8");
    else if ((int64_t)characters < min || (int64_t)characters > max)
        wrong(e, pointer, arena_printf(e->arena, "must have %" PRId64 " to %" PRId64 " characters", min, max));
}

static void check_list(struct errors *e, const struct coupon_field *f, const struct string_list *list)
{
    if ((int64_t)list->count > f->max) {
        wrong(e, f->pointer, arena_printf(e->arena, "must have at most %" PRId64 " items", f->max));
        return;
    }
    for (size_t i = 0; i < list->count; i++)
        check_text(e, arena_printf(e->arena, "%s/%zu", f->pointer, i), list->items[i], 1, ONLY_TEXT_MAX);
}

static void check_field(struct errors *e, const struct coupon_field *f, const struct coupon *c)
{
    if (is_number(f))
        check_number(e, f, number_of(f, c));
    else if (f->type == FIELD_STRINGS)
        check_list(e, f, list_of(f, c));
    else if (!text_of(f, c) && !(f->flags & FIELD_NULLABLE))
        wrong(e, f->pointer, "is required");
    else if (text_of(f, c) && f->type == FIELD_STRING)
        check_text(e, f->pointer, text_of(f, c), f->min, f->max);
    else if (text_of(f, c) && (*text_of(f, c) != '{' || (int64_t)strlen(text_of(f, c)) > f->max))
        wrong(e, f->pointer, arena_printf(e->arena, "must be an object of at most %" PRId64 " bytes", f->max));
}

/* True if text has only letters, digits and characters in `others`. */
static bool consists_of(const char *text, const char *others)
{
    for (; *text; text++) {
        bool plain = (*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9');

        if (!plain && !strchr(others, *text))
            return false;
    }
    return true;
}

bool code_text_valid(const char *text, size_t least)
{
    size_t len = strlen(text);

    for (const char *p = text; *p; p++)
        if (*p < 0x21 || *p > 0x7E)
            return false;
    return len >= least && len <= CODE_MAX;
}

static char next_of_form(const char **text, enum codes_match match)
{
    while (match == MATCH_LOOSE && **text == '-')
        ++*text;
    if (!**text)
        return '\0';
    return match == MATCH_LOOSE && **text >= 'a' && **text <= 'z' ? (char)(*(*text)++ - 'a' + 'A') : *(*text)++;
}

bool code_text_same(const char *a, const char *b, enum codes_match match)
{
    char x, y;

    do {
        x = next_of_form(&a, match);
        y = next_of_form(&b, match);
    } while (x == y && x);
    return x == y;
}

bool currency_valid(const char *text)
{
    return strlen(text) == 3 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
}

static bool needs_currency(const struct coupon *c)
{
    if (c->discount.kind == DISCOUNT_NONE)
        return false;
    return c->discount.kind == DISCOUNT_AMOUNT || c->discount.min_spend_minor > 0 || c->cap.discount_minor != COUPON_NULL ||
           (c->discount.kind == DISCOUNT_PERCENT && c->discount.max_minor != COUPON_NULL);
}

/* Each of them is a code, which no other one is mistaken for. */
static void check_shared(struct errors *e, const struct coupon *c)
{
    const struct string_list *list = &c->codes.shared;
    enum codes_match match = (enum codes_match)c->codes.match;

    if (c->codes.source != CODES_SHARED) {
        if (list->count)
            wrong(e, "/codes/shared", "needs codes.source shared");
        if (c->codes.shared_cap != COUPON_NULL)
            wrong(e, "/codes/shared_cap", "needs codes.source shared");
        return;
    }
    if (list->count == 0)
        wrong(e, "/codes/shared", "must have at least 1 item");
    if (c->codes.unique == UNIQUE_SERVICE)
        wrong(e, "/codes/unique", "service is for codes of slots: several coupons may share a code");
    for (size_t i = 0; i < list->count && list->count <= SHARED_CODES_MAX; i++) {
        const char *why = NULL;

        if (!code_text_valid(list->items[i], CODE_MIN) || code_text_same(list->items[i], "", match))
            why = "must be 4 to 64 characters of printable ASCII without spaces";
        for (size_t k = 0; k < i && !why; k++)
            if (code_text_same(list->items[i], list->items[k], match))
                why = "duplicate value";
        if (why)
            wrong(e, arena_printf(e->arena, "/codes/shared/%zu", i), why);
    }
}

/* Codes of slots and replenishing need slots; presenting a code needs codes. */
static void check_codes(struct errors *e, const struct coupon *c)
{
    bool slots = c->cap.policy == CAP_EXACT;

    if (c->codes.source == CODES_NONE && c->codes.claim == CLAIM_PRESENT)
        wrong(e, "/codes/claim", "present requires codes: set codes.source");
    if (coupon_slots_have_codes(c) && !slots)
        wrong(e, "/codes/source", "codes of slots need cap.policy exact");
    if (c->replenish.add != COUPON_NULL && !slots)
        wrong(e, "/replenish", "needs cap.policy exact: other policies have no slots");
    if (c->codes.prefix && !code_text_valid(c->codes.prefix, 0))
        wrong(e, "/codes/prefix", "must be printable ASCII without spaces");
}

/* Lanes share out slots, and nothing else. */
static void check_lanes(struct errors *e, const struct coupon *c)
{
    if (c->lanes <= 1)
        return;
    if (c->codes.source != CODES_NONE)
        wrong(e, "/lanes", "must be 1 for a coupon with codes");
    if (c->cap.per_day != COUPON_NULL)
        wrong(e, "/cap/per_day", "cannot be combined with lanes above 1");
    if (c->cap.discount_minor != COUPON_NULL)
        wrong(e, "/cap/discount_minor", "cannot be combined with lanes above 1");
}

/* Check what no single row can express. */
static void check_rules(struct errors *e, const struct coupon *c)
{
    if (c->cap.total == COUPON_NULL && c->cap.policy != CAP_NONE && c->codes.source != CODES_IMPORTED)
        wrong(e, "/cap/total", "is required");
    if (c->discount.kind != DISCOUNT_NONE && c->discount.currency && !currency_valid(c->discount.currency))
        wrong(e, "/discount/currency", "must be three upper-case letters, such as EUR");
    if (!c->discount.currency && needs_currency(c))
        wrong(e, "/discount/currency", "is required with an amount of money");
    if (c->starts_at_ms != COUPON_NULL && c->ends_at_ms != COUPON_NULL && c->starts_at_ms >= c->ends_at_ms)
        wrong(e, "/ends_at", "must be later than starts_at");
    if (c->time_zone && !consists_of(c->time_zone, "_+/:-"))
        wrong(e, "/time_zone", "must be the name of an IANA time zone, such as Europe/Berlin");
    if ((c->replenish.below == COUPON_NULL) != (c->replenish.add == COUPON_NULL))
        wrong(e, "/replenish", "must have both below and add, or neither");
    check_codes(e, c);
    check_shared(e, c);
    check_lanes(e, c);
}

size_t coupon_check(const struct coupon *c, struct arena *a, struct field_error **list)
{
    struct errors e = {.arena = a};

    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];

        if (belongs(f, c->discount.kind))
            check_field(&e, f, c);
        else if (f->offset == offsetof(struct coupon, discount.kind))
            wrong(&e, f->pointer, "is not one of the values of this field");
        else if (!is_default(f, c))
            wrong(&e, f->pointer, "does not belong to this discount.kind");
    }
    check_rules(&e, c);
    *list = e.items;
    return e.count;
}

/* ---- writing ---- */

/* The object being written: the first `len` bytes of `pointer`. */
struct place {
    const char *pointer;
    size_t len;
};

/* Close and open objects until pointer's parent is open, then write the key of its last part. */
static void go_to(struct place *p, const char *pointer, struct json *j)
{
    const char *name = strrchr(pointer, '/') + 1;
    size_t parent = (size_t)(name - 1 - pointer);
    char part[32];

    while (p->len && (p->len > parent || memcmp(p->pointer, pointer, p->len) != 0 || pointer[p->len] != '/')) {
        json_end_object(j);
        do
            p->len--;
        while (p->pointer[p->len] != '/');
    }
    while (p->len < parent) {
        size_t end = p->len + 1 + strcspn(pointer + p->len + 1, "/");
        size_t part_len = end - p->len - 1;

        assert(part_len < sizeof part);
        memcpy(part, pointer + p->len + 1, part_len);
        part[part_len] = '\0';
        json_key(j, part);
        json_begin_object(j);
        p->len = end;
    }
    p->pointer = pointer;
    json_key(j, name);
}

static void write_number(const struct coupon_field *f, int64_t value, struct json *j)
{
    if (value == COUPON_NULL)
        json_null(j);
    else if (f->type == FIELD_TIME)
        json_time(j, value);
    else if (f->type == FIELD_ENUM)
        json_string(j, value >= 0 && value <= f->max ? f->names[value] : NULL);
    else
        json_int(j, value);
}

void coupon_write_value(const struct coupon *c, const struct coupon_field *f, struct json *j)
{
    const struct string_list *list;

    switch (f->type) {
    case FIELD_INT:
    case FIELD_TIME:
    case FIELD_ENUM:
        write_number(f, number_of(f, c), j);
        break;
    case FIELD_STRING:
        json_string(j, text_of(f, c));
        break;
    case FIELD_JSON:
        json_raw(j, text_of(f, c) ? text_of(f, c) : "{}");
        break;
    case FIELD_STRINGS:
        list = list_of(f, c);
        json_begin_array(j);
        for (size_t i = 0; i < list->count; i++)
            json_string(j, list->items[i]);
        json_end_array(j);
        break;
    }
}

void coupon_write_members(const struct coupon *c, struct json *j)
{
    struct place place = {"", 0};
    bool id_written = false;

    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];

        if (!id_written && strcmp(f->pointer, "/id") > 0) {
            go_to(&place, "/id", j);
            json_string(j, c->id);
            id_written = true;
        }
        if (!belongs(f, c->discount.kind))
            continue;
        go_to(&place, f->pointer, j);
        coupon_write_value(c, f, j);
    }
}

void coupon_write(const struct coupon *c, struct json *j, bool with_version)
{
    json_begin_object(j);
    coupon_write_members(c, j);
    if (with_version) /* sorts after all fields, and no object is open: a test checks it */
        json_key_int(j, "version", c->version);
    json_end_object(j);
}

/* ---- texts ---- */

int64_t coupon_lane_of(const char *user, int64_t lanes)
{
    return hash_part(user, lanes);
}

bool coupon_id_valid(const char *text)
{
    size_t len = strlen(text);

    return len >= 1 && len <= COUPON_ID_MAX && text[0] != '-' && consists_of(text, "_-");
}

bool coupon_user_valid(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t len = strlen(text);

    if (len < 1 || len > USER_MAX)
        return false;
    while (*at) {
        int32_t point;
        size_t bytes = utf8_character(at, NULL, &point);

        if (!bytes || point < 0x20 || (point >= 0x7F && point <= 0x9F))
            return false;
        at += bytes;
    }
    return true;
}
