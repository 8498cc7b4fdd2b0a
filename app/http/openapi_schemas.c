/* http/openapi_schemas.c -- see openapi_schemas.h. Reading order: bodies, coupons, answers, all of them. */
#include "http/openapi_schemas.h"

#include <assert.h>
#include <string.h>

#include "coupons/coupon.h"
#include "http/handlers.h"
#include "http/redemption_body.h"

#define ITEMS_MAX 1000 /* of a batch */

void openapi_write_ref(struct json *j, const char *kind, const char *name)
{
    json_object(j);
    json_key(j, "$ref");
    j->comma = false;
    buf_printf(j->out, "\"#/components/%s/%s\"", kind, name);
    j->comma = true;
    json_end_object(j);
}

void openapi_write_names(struct json *j, const char *const *names, bool nullable)
{
    json_array(j);
    for (size_t i = 0; names[i]; i++)
        json_string(j, names[i]);
    if (nullable)
        json_null(j);
    json_end_array(j);
}

void openapi_write_words(struct json *j, const char *(*word)(int i), int first, bool nullable)
{
    const char *text;

    json_array(j);
    for (int i = first; (text = word(i)) != NULL; i++)
        json_string(j, text);
    if (nullable)
        json_null(j);
    json_end_array(j);
}

/* "type": "string", or ["string", "null"] */
static void write_type(struct json *j, const char *type, bool nullable)
{
    json_key(j, "type");
    if (!nullable) {
        json_string(j, type);
        return;
    }
    json_array(j);
    json_string(j, type);
    json_string(j, "null");
    json_end_array(j);
}

static void write_bounds(struct json *j, const char *min_name, int64_t min, const char *max_name, int64_t max)
{
    if (min > INT64_MIN)
        json_key_int(j, min_name, min);
    if (max < INT64_MAX)
        json_key_int(j, max_name, max);
}

/* ---- bodies, by the tables that read them ---- */

/* What a table's check() says of several members, as keywords of JSON Schema. */
static const struct body {
    const struct field_table *table;
    const char *name, *about;
    const char *rules; /* or NULL */
} bodies[] = {
    {&take_table, "Taking", "What to redeem, and for whom.",
     "\"if\":{\"required\":[\"reserve_s\"],\"properties\":{\"reserve_s\":{\"type\":\"integer\"}}},"
     "\"then\":{\"required\":[\"state\"],\"properties\":{\"state\":{\"const\":\"reserved\"}}}"},
    {&take_item_table, "TakingWithKey", "As a single taking, with its Idempotency-Key.",
     "\"if\":{\"required\":[\"reserve_s\"],\"properties\":{\"reserve_s\":{\"type\":\"integer\"}}},"
     "\"then\":{\"required\":[\"state\"],\"properties\":{\"state\":{\"const\":\"reserved\"}}}"},
    {&step_table, "Step", "The order that holds or redeems it, and for how long it is held.", NULL},
    {&resolve_table, "CodeOfUser", "A code that somebody typed.", NULL},
    {&erase_table, "UserToErase", "The user to erase.", NULL},
    {&webhook_rotate_table, "NewSecret", "The previous secret signs for keep_s more seconds, beside the new one.", NULL},
    {&slots_add_table, "SlotsToAdd", "Either count or until.",
     "\"oneOf\":[{\"required\":[\"count\"]},{\"required\":[\"until\"]}]"},
    {&codes_export_table, "CodesToExport", "When to begin.", NULL},
    {&slots_retire_table, "SlotsToRetire", "How many free slots to retire.", NULL},
};

const char *openapi_body_name(const struct field_table *table)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        if (bodies[i].table == table)
            return bodies[i].name;
    assert(!"a row in bodies[]");
    return NULL;
}

static void write_table(struct json *j, const struct field_table *table, const struct body *body);

/* The default, where the table has one that is not null. */
static void write_default(struct json *j, const struct field_table *table, const struct field_row *row)
{
    int64_t number;

    if ((row->flags & ROW_REQUIRED) || (row->type != ROW_ENUM && row->type != ROW_INT))
        return;
    memcpy(&number, (const char *)table->start + row->offset, sizeof number);
    if (row->type == ROW_ENUM)
        json_key_string(j, "default", row->names[number]);
    else if (number != COUPON_NULL)
        json_key_int(j, "default", number);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tables are nested */
static void write_row(struct json *j, const struct field_table *table, const struct field_row *row)
{
    bool nullable = row->flags & ROW_NULLABLE;
    static const char *const types[] = {[ROW_STRING] = "string", [ROW_INT] = "integer", [ROW_ENUM] = "string",
                                        [ROW_TIME] = "string",   [ROW_JSON] = "object", [ROW_OBJECT] = "object",
                                        [ROW_ARRAY] = "array"};

    json_key(j, row->name);
    if (row->type == ROW_OBJECT && nullable) {
        json_object(j);
        json_key(j, "anyOf");
        json_array(j);
        write_table(j, row->table, NULL);
        json_raw(j, "{\"type\":\"null\"}");
        json_end_array(j);
        json_end_object(j);
        return;
    }
    if (row->type == ROW_OBJECT) {
        write_table(j, row->table, NULL);
        return;
    }
    json_object(j);
    write_type(j, types[row->type], nullable);
    if (row->type == ROW_STRING)
        write_bounds(j, "minLength", row->min, "maxLength", row->max);
    if (row->type == ROW_INT)
        write_bounds(j, "minimum", row->min, "maximum", row->max);
    if (row->type == ROW_TIME)
        json_key_string(j, "format", "date-time");
    if (row->type == ROW_ENUM) {
        json_key(j, "enum");
        openapi_write_names(j, row->names, nullable);
    }
    if (row->type == ROW_ARRAY) {
        write_bounds(j, "minItems", row->min, "maxItems", row->max);
        json_key(j, "items");
        write_table(j, row->table, NULL);
    }
    if (row->pattern)
        json_key_string(j, "pattern", row->pattern);
    if (row->rule)
        json_key_string(j, "description", row->rule);
    write_default(j, table, row);
    json_end_object(j);
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static void write_table(struct json *j, const struct field_table *table, const struct body *body)
{
    bool any = false;

    json_object(j);
    json_key_string(j, "type", "object");
    if (body && body->about)
        json_key_string(j, "description", body->about);
    json_key(j, "properties");
    json_object(j);
    for (size_t i = 0; i < table->count; i++) {
        write_row(j, table, &table->rows[i]);
        any = any || (table->rows[i].flags & ROW_REQUIRED);
    }
    json_end_object(j);
    if (any) {
        json_key(j, "required");
        json_array(j);
        for (size_t i = 0; i < table->count; i++)
            if (table->rows[i].flags & ROW_REQUIRED)
                json_string(j, table->rows[i].name);
        json_end_array(j);
    }
    json_key_bool(j, "additionalProperties", false);
    if (body && body->rules) {
        buf_putc(j->out, ',');
        buf_puts(j->out, body->rules);
    }
    json_end_object(j);
}

static void write_bodies(struct json *j)
{
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        json_key(j, bodies[i].name);
        write_table(j, bodies[i].table, &bodies[i]);
    }
    json_key(j, SCHEMA_BATCH);
    json_object(j);
    json_key_string(j, "type", "object");
    json_key(j, "properties");
    json_object(j);
    json_key(j, "items");
    json_object(j);
    json_key_string(j, "type", "array");
    write_bounds(j, "minItems", 1, "maxItems", ITEMS_MAX);
    json_key(j, "items");
    json_object(j);
    json_key(j, "anyOf");
    json_array(j);
    openapi_write_ref(j, "schemas", openapi_body_name(&take_item_table));
    json_raw(j, "{\"description\":\"Anything else is answered with bad_request in its place.\"}");
    json_end_array(j);
    json_end_object(j);
    json_end_object(j);
    json_end_object(j);
    json_key(j, "required");
    json_raw(j, "[\"items\"]");
    json_key_bool(j, "additionalProperties", false);
    json_end_object(j);
}

/* ---- a webhook, as http/webhooks.c reads it ---- */

static void write_webhook(struct json *j, bool is_new)
{
    json_object(j);
    json_key_string(j, "type", "object");
    json_key(j, "properties");
    json_object(j);
    json_key(j, "url");
    json_raw(j, "{\"type\":\"string\",\"minLength\":1,\"maxLength\":2000,\"pattern\":\"^https?://[!-\\\\[\\\\]-~]+$\"}");
    json_key(j, "events");
    json_raw(j, "{\"type\":\"array\",\"minItems\":1,\"uniqueItems\":true,\"items\":{\"type\":\"string\",\"enum\":");
    j->comma = false;
    openapi_write_words(j, schema_event_word, 0, false);
    buf_puts(j->out, "}}");
    if (is_new) {
        json_key(j, "coupons");
        json_raw(j, "{\"type\":[\"array\",\"null\"],\"minItems\":1,\"maxItems\":100,\"description\":\"null: all of them.\","
                    "\"items\":{\"type\":\"string\",\"pattern\":\"" PATTERN_COUPON "\"}}");
        json_key(j, "secret");
        json_raw(j, "{\"type\":[\"string\",\"null\"],\"pattern\":\"" SECRET_PATTERN "\","
                    "\"description\":\"whsec_ followed by the base64 of 24 to 64 bytes; generated if absent.\"}");
    } else {
        json_key(j, "state");
        json_raw(j, "{\"type\":\"string\",\"enum\":[\"enabled\",\"disabled\"]}");
    }
    json_end_object(j);
    if (is_new) {
        json_key(j, "required");
        json_raw(j, "[\"url\"]");
    }
    json_key_bool(j, "additionalProperties", false);
    json_end_object(j);
}

/* ---- a coupon's definition, by coupon_fields[] ---- */

enum form { FORM_SHOWN, FORM_NEW, FORM_CHANGE };

/* What the rows of coupon_fields[] do not say. */
static const struct note {
    const char *pointer, *about, *pattern;
} notes[] = {
    {"/cap/discount_minor", "The most discount that is given or held: an exact budget. null: no cap.", NULL},
    {"/cap/per_day", "Takings on one day of the coupon's zone. null: no cap.", NULL},
    {"/cap/per_user", "Takings of one user.", NULL},
    {"/cap/per_user_per_day", "Takings of one user on one day. null: no cap.", NULL},
    {"/cap/policy", "exact: each taking needs a slot. approximate: counted, may be passed a little. none: not checked.", NULL},
    {"/cap/total", "The most slots that may exist at a time. Required unless the policy is none or codes are imported.", NULL},
    {"/cleanup_after_s", "How long after the end free slots are retired and the codes of retired slots deleted. "
                         "Everything else stays.", NULL},
    {"/codes/claim", "present: a taking must name its code, which belongs to whoever presents it first. Default: any; present for "
                     "imported codes.", NULL},
    {"/codes/length", "Of generated codes, without the prefix.", NULL},
    {"/codes/match", "loose: case, spaces and hyphens do not matter.", NULL},
    {"/codes/pick", "random: a known code tells nothing about its neighbours.", NULL},
    {"/codes/prefix", "Of generated codes.", "^[!-~]*$"},
    {"/codes/unique", "service: no other coupon has the same code.", NULL},
    {"/discount/currency", "Required with an amount of money.", "^[A-Z]{3}$"},
    {"/discount/label", "What the user gets instead of money.", NULL},
    {"/discount/max_minor", "The maximum discount of a percentage.", NULL},
    {"/discount/min_spend_minor", "The minimum sum of the items that `only` admits.", NULL},
    {"/discount/percent_bp", "In 1/100 of a percent.", NULL},
    {"/lanes",
     "How many lanes redeem the coupon in parallel; a user always uses the same one. Fixed at creation; 1 for a "
     "coupon with codes.", NULL},
    {"/low_stock", "An event is raised when no more than this many are free.", NULL},
    {"/on_user_cap", "existing: a user who asks again gets the issued one they have.", NULL},
    {"/replenish/add", "This many slots are added, up to cap.total,", NULL},
    {"/replenish/below", "when fewer than this are free.", NULL},
    {"/reserve_s", "How long a hold lasts by default.", NULL},
    {"/state", "Only active ones can be taken.", NULL},
    {"/time_zone", "The IANA time zone of the coupon's days.", "^[A-Za-z0-9_+/:-]+$"},
    {"/valid_for_s", "How long an issued one can be redeemed.", NULL},
};

static const struct note *note_of(const char *pointer)
{
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
        if (strcmp(notes[i].pointer, pointer) == 0)
            return &notes[i];
    return NULL;
}

/* kind: of discount; -1: any */
static bool belongs(const struct coupon_field *f, int kind)
{
    return kind < 0 || !f->discount_kinds || (f->discount_kinds & (1u << kind));
}

static bool has_null_default(const struct coupon_field *f)
{
    if (f->type == FIELD_STRING)
        return !f->default_text;
    return (f->type == FIELD_INT || f->type == FIELD_TIME || f->type == FIELD_ENUM) && f->default_int == COUPON_NULL;
}

/* An amount always needs a currency; else see the note. */
static bool is_required(const struct coupon_field *f, enum form form, int kind)
{
    if (form != FORM_NEW)
        return form == FORM_SHOWN;
    return (f->flags & FIELD_REQUIRED) || (has_null_default(f) && !(f->flags & FIELD_NULLABLE)) ||
           (kind == DISCOUNT_AMOUNT && strcmp(f->pointer, "/discount/currency") == 0) ||
           (kind > DISCOUNT_NONE && strcmp(f->pointer, "/discount/kind") == 0);
}

static bool is_nullable(const struct coupon_field *f, enum form form, int kind)
{
    if (form == FORM_CHANGE)
        return true;
    return (f->flags & FIELD_NULLABLE) && !(kind == DISCOUNT_AMOUNT && strcmp(f->pointer, "/discount/currency") == 0);
}

/* One default, whatever the other fields say. */
static bool has_one_default(const struct coupon_field *f)
{
    return strcmp(f->pointer, "/codes/claim") != 0;
}

static void write_field_default(struct json *j, const struct coupon_field *f)
{
    json_key(j, "default");
    if (f->type == FIELD_STRINGS)
        json_raw(j, "[]");
    else if (f->type == FIELD_JSON)
        json_raw(j, f->default_text);
    else if (has_null_default(f))
        json_null(j);
    else if (f->type == FIELD_ENUM)
        json_string(j, f->names[f->default_int]);
    else if (f->type == FIELD_STRING)
        json_string(j, f->default_text);
    else
        json_int(j, f->default_int);
}

static void write_field_values(struct json *j, const struct coupon_field *f, int kind, bool nullable)
{
    if (f->type == FIELD_STRING)
        write_bounds(j, "minLength", f->min, "maxLength", f->max);
    if (f->type == FIELD_TIME)
        json_key_string(j, "format", "date-time");
    if (f->type == FIELD_STRINGS) {
        json_key_int(j, "maxItems", f->max);
        json_key(j, "items");
        json_raw(j, "{\"type\":\"string\",\"minLength\":1,\"maxLength\":128}");
    }
    if (f->type == FIELD_ENUM && kind >= 0 && strcmp(f->pointer, "/discount/kind") == 0) {
        json_key_string(j, "const", f->names[kind]);
    } else if (f->type == FIELD_ENUM) {
        json_key(j, "enum");
        openapi_write_names(j, f->names, nullable);
    }
    if (f->type == FIELD_INT)
        write_bounds(j, "minimum", f->min, "maximum", f->max);
}

static void write_field(struct json *j, const struct coupon_field *f, enum form form, int kind)
{
    static const char *const types[] = {[FIELD_STRING] = "string", [FIELD_INT] = "integer", [FIELD_TIME] = "string",
                                        [FIELD_ENUM] = "string",   [FIELD_STRINGS] = "array", [FIELD_JSON] = "object"};
    bool nullable = is_nullable(f, form, kind);
    const struct note *note = note_of(f->pointer);

    json_key(j, strrchr(f->pointer, '/') + 1);
    json_object(j);
    write_type(j, types[f->type], nullable);
    write_field_values(j, f, kind, nullable);
    if (note && note->pattern)
        json_key_string(j, "pattern", note->pattern);
    if (note && note->about)
        json_key_string(j, "description", note->about);
    if (form == FORM_NEW && !is_required(f, form, kind) && has_one_default(f))
        write_field_default(j, f);
    json_end_object(j);
}

/* The length of the next group or name in the pointer behind base: "/cap" in "/cap/total" behind "". */
static size_t part_len(const char *pointer, size_t base)
{
    return 1 + strcspn(pointer + base + 1, "/");
}

static bool is_in(const struct coupon_field *f, const char *base, size_t len)
{
    return strncmp(f->pointer, base, len) == 0 && f->pointer[len] == '/';
}

static void write_group(struct json *j, const char *base, size_t len, enum form form, int kind);

/* discount has other members for each kind. NOLINTNEXTLINE(misc-no-recursion) */
static void write_discount(struct json *j, const char *base, size_t len, enum form form)
{
    if (form == FORM_CHANGE) {
        write_group(j, base, len, form, -1);
        return;
    }
    json_object(j);
    json_key(j, "oneOf");
    json_array(j);
    for (int kind = DISCOUNT_NONE; kind <= DISCOUNT_OTHER; kind++)
        write_group(j, base, len, form, kind);
    json_end_array(j);
    if (form == FORM_NEW) {
        json_key(j, "default");
        json_raw(j, "{\"kind\":\"none\"}");
    }
    json_end_object(j);
}

/* The member of a group that begins with row *i, and step over its rows. NOLINTNEXTLINE(misc-no-recursion) */
static void write_member(struct json *j, size_t *i, size_t base_len, enum form form, int kind)
{
    const struct coupon_field *f = &coupon_fields[*i];
    size_t len = base_len + part_len(f->pointer, base_len);
    char name[32];

    if (!f->pointer[len]) {
        write_field(j, f, form, kind);
        return;
    }
    assert(len - base_len - 1 < sizeof name);
    memcpy(name, f->pointer + base_len + 1, len - base_len - 1);
    name[len - base_len - 1] = '\0';
    json_key(j, name);
    if (strcmp(name, "discount") == 0)
        write_discount(j, f->pointer, len, form);
    else
        write_group(j, f->pointer, len, form, kind);
    while (*i + 1 < coupon_fields_count && is_in(&coupon_fields[*i + 1], f->pointer, len))
        ++*i;
}

/* Names of the members that must be there: fields, and in what is shown, groups. */
static void write_required(struct json *j, const char *base, size_t len, enum form form, int kind)
{
    json_key(j, "required");
    json_array(j);
    if (len == 0 && form == FORM_SHOWN)
        json_string(j, "id");
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        size_t end;
        char name[32];

        if (!is_in(f, base, len) || !belongs(f, kind))
            continue;
        end = len + part_len(f->pointer, len);
        memcpy(name, f->pointer + len + 1, end - len - 1);
        name[end - len - 1] = '\0';
        if (f->pointer[end] ? form == FORM_SHOWN : is_required(f, form, kind))
            json_string(j, name);
        while (f->pointer[end] && i + 1 < coupon_fields_count && is_in(&coupon_fields[i + 1], f->pointer, end))
            i++;
    }
    json_end_array(j);
}

/* Members that are no field of the definition. */
static void write_beside(struct json *j, enum form form)
{
    if (form == FORM_NEW) {
        json_key(j, "generate");
        json_raw(j, "{\"type\":[\"boolean\",\"integer\"],\"minimum\":1,\"maximum\":1000000000,\"default\":false,"
                    "\"description\":\"Make slots with the coupon: true for as many as cap.total, or how many. Requires the cap.policy "
                    "exact, and excludes imported codes.\"}");
    } else if (form == FORM_SHOWN) {
        json_key(j, "job");
        json_raw(j, "{\"type\":\"string\",\"description\":\"Only in the answer to creating a coupon: the job that "
                    "generates its slots. For up to 1,000 only while it is not done.\"}");
    }
}

/* The object of all fields below base. NOLINTNEXTLINE(misc-no-recursion): three levels */
static void write_group(struct json *j, const char *base, size_t len, enum form form, int kind)
{
    json_object(j);
    write_type(j, "object", form == FORM_CHANGE && len > 0);
    json_key(j, "properties");
    json_object(j);
    if (len == 0 && form != FORM_CHANGE) {
        json_key(j, "id");
        json_raw(j, "{\"type\":\"string\",\"pattern\":\"" PATTERN_COUPON "\",\"description\":\"Generated if absent.\"}");
    }
    if (len == 0)
        write_beside(j, form);
    for (size_t i = 0; i < coupon_fields_count; i++)
        if (is_in(&coupon_fields[i], base, len) && belongs(&coupon_fields[i], kind))
            write_member(j, &i, len, form, kind);
    json_end_object(j);
    if (form != FORM_CHANGE)
        write_required(j, base, len, form, kind);
    json_key_bool(j, "additionalProperties", false);
    if (len == 0 && form == FORM_NEW) {
        json_key(j, "anyOf"); /* cap.total may be absent only under these */
        json_raw(j, "[{\"required\":[\"cap\"],\"properties\":{\"cap\":{\"required\":[\"total\"],"
                    "\"properties\":{\"total\":{\"type\":\"integer\"}}}}},"
                    "{\"required\":[\"cap\"],\"properties\":{\"cap\":{\"required\":[\"policy\"],"
                    "\"properties\":{\"policy\":{\"const\":\"none\"}}}}},"
                    "{\"required\":[\"codes\"],\"properties\":{\"codes\":{\"required\":[\"source\"],"
                    "\"properties\":{\"source\":{\"const\":\"imported\"}}}}}]");
    }
    json_end_object(j);
}

/* ---- answers, by schemas[] ---- */

static void write_object(struct json *j, const struct schema_row *row, bool nullable)
{
    if (!row->of || !row->of->name) {
        write_type(j, "object", nullable);
    } else if (nullable) {
        json_key(j, "anyOf");
        json_array(j);
        openapi_write_ref(j, "schemas", row->of->name);
        json_raw(j, "{\"type\":\"null\"}");
        json_end_array(j);
    } else {
        json_key(j, "$ref");
        j->comma = false;
        buf_printf(j->out, "\"#/components/schemas/%s\"", row->of->name);
        j->comma = true;
    }
}

static void write_answer_row(struct json *j, const struct schema_row *row)
{
    bool nullable = row->flags & SCHEMA_NULLABLE;

    json_key(j, row->name);
    json_object(j);
    switch (row->type) {
    case SCHEMA_STRING:
        write_type(j, "string", nullable);
        if (row->pattern)
            json_key_string(j, "pattern", row->pattern);
        break;
    case SCHEMA_INT:
        write_type(j, "integer", nullable);
        break;
    case SCHEMA_BOOL:
        write_type(j, "boolean", nullable);
        break;
    case SCHEMA_TIME:
        write_type(j, "string", nullable);
        json_key_string(j, "format", "date-time");
        break;
    case SCHEMA_WORD:
        write_type(j, "string", nullable);
        json_key(j, "enum");
        openapi_write_words(j, row->word, row->first, nullable);
        break;
    case SCHEMA_OBJECT:
        write_object(j, row, nullable);
        break;
    case SCHEMA_LIST:
        json_key_string(j, "type", "array");
        json_key(j, "items");
        if (row->of)
            openapi_write_ref(j, "schemas", row->of->name);
        else
            json_raw(j, "{\"type\":\"integer\"}");
        break;
    case SCHEMA_STRINGS:
        write_type(j, "array", nullable);
        json_key(j, "items");
        json_object(j);
        json_key_string(j, "type", "string");
        if (row->word) {
            json_key(j, "enum");
            openapi_write_words(j, row->word, row->first, false);
        }
        json_end_object(j);
        break;
    case SCHEMA_COUNTS:
        json_key_string(j, "type", "object");
        json_key(j, "additionalProperties");
        json_raw(j, "{\"type\":\"integer\"}");
        break;
    }
    if (row->about)
        json_key_string(j, "description", row->about);
    json_end_object(j);
}

static void write_answer(struct json *j, const struct schema *s)
{
    json_key(j, s->name);
    json_object(j);
    if (s->about)
        json_key_string(j, "description", s->about);
    if (s->any_of) {
        json_key(j, "anyOf");
        json_array(j);
        for (size_t i = 0; s->any_of[i]; i++)
            openapi_write_ref(j, "schemas", s->any_of[i]->name);
        json_end_array(j);
        json_end_object(j);
        return;
    }
    json_key_string(j, "type", "object");
    json_key(j, "properties");
    json_object(j);
    for (size_t i = 0; i < s->count; i++)
        write_answer_row(j, &s->rows[i]);
    json_end_object(j);
    json_key(j, "required");
    json_array(j);
    for (size_t i = 0; i < s->count; i++)
        if (!(s->rows[i].flags & SCHEMA_OPTIONAL))
            json_string(j, s->rows[i].name);
    json_end_array(j);
    json_end_object(j);
}

void openapi_write_schemas(struct json *j)
{
    json_object(j);
    json_key(j, schema_coupon.name);
    write_group(j, "", 0, FORM_SHOWN, -1);
    json_key(j, SCHEMA_COUPON_NEW);
    write_group(j, "", 0, FORM_NEW, -1);
    json_key(j, SCHEMA_COUPON_CHANGE);
    write_group(j, "", 0, FORM_CHANGE, -1);
    write_bodies(j);
    json_key(j, SCHEMA_WEBHOOK_NEW);
    write_webhook(j, true);
    json_key(j, SCHEMA_WEBHOOK_CHANGE);
    write_webhook(j, false);
    for (size_t i = 0; i < schemas_count; i++)
        write_answer(j, schemas[i]);
    json_end_object(j);
}
