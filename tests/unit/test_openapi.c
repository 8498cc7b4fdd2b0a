/*
 * Unit tests of app/static/docs/openapi.json: what it says of calls, bodies, coupons, words and problems is what the tables say that
 * route, read and answer, and nothing beside it. What a call answers is compared with it by every test in tests/service.
 */
#include "cmocka_whole.h"
#include <inttypes.h>

#include "base/version.h"
#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/discount.h"
#include "coupons/event.h"
#include "coupons/period.h"
#include "coupons/slot.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/list.h"
#include "http/redemption_body.h"
#include "http/router.h"
#include "store/mongo.h"

#define DOCUMENT "app/static/docs/openapi.json"
#define OF_NGINX "openapi" /* the only call that is no route: the document itself */
#define KIB 1024
#define PLACE_SIZE 200

static struct json_object *document;

/* ---- reading the document ---- */

/* The member, or NULL. */
static struct json_object *get(struct json_object *o, const char *name)
{
    struct json_object *value = NULL;

    if (o && json_object_is_type(o, json_type_object))
        json_object_object_get_ex(o, name, &value);
    return value;
}

static struct json_object *get2(struct json_object *o, const char *first, const char *second)
{
    return get(get(o, first), second);
}

static const char *text(struct json_object *o, const char *name)
{
    struct json_object *value = get(o, name);

    return value && json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

static size_t length(struct json_object *list)
{
    return list && json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

/* What a reference leads to; anything else is itself. */
static struct json_object *resolve(struct json_object *o)
{
    char path[PLACE_SIZE], *save = NULL;

    while (*text(o, "$ref")) {
        const char *to = text(o, "$ref");

        snprintf(path, sizeof path, "%s", to);
        o = document;
        for (char *part = strtok_r(path + 1, "/", &save); part; part = strtok_r(NULL, "/", &save))
            o = get(o, part);
        if (!o)
            fail_msg("%s leads nowhere", to);
    }
    return o;
}

static struct json_object *schema(const char *name)
{
    struct json_object *found = get(get2(document, "components", "schemas"), name);

    if (!found)
        fail_msg("no schema %s", name);
    return found;
}

/* A string of the list. */
static bool has(struct json_object *list, const char *word)
{
    for (size_t i = 0; i < length(list); i++)
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), word) == 0)
            return true;
    return false;
}

/* "type" is the word, or with null a list of both. */
static void expect_type(const char *at, struct json_object *o, const char *type, bool nullable)
{
    struct json_object *said = get(o, "type");
    bool right = nullable ? length(said) == 2 && has(said, type) && has(said, "null") : strcmp(text(o, "type"), type) == 0;

    if (!right)
        fail_msg("%s: its type is not %s%s", at, type, nullable ? " or null" : "");
}

/* The keyword stands there with this value; with that of no bound, it does not. */
static void expect_bound(const char *at, struct json_object *o, const char *keyword, int64_t value, int64_t none)
{
    struct json_object *said = get(o, keyword);

    if (value == none ? said != NULL : !said || json_object_get_int64(said) != value)
        fail_msg("%s: %s should be %" PRId64, at, keyword, value);
}

static void expect_words(const char *at, struct json_object *list, const char *const *words)
{
    size_t count = 0;

    for (; words[count]; count++)
        if (!has(list, words[count]))
            fail_msg("%s: the enum lacks %s", at, words[count]);
    if (length(list) != count)
        fail_msg("%s: the enum has more, or less, than the table's %zu words", at, count);
}

/* A default is said in words, and no keyword: clients that are generated would send it. NULL: there is none. */
static void expect_default(const char *at, struct json_object *o, const char *value)
{
    char sentence[PLACE_SIZE];

    snprintf(sentence, sizeof sentence, "Default: %s", value ? value : "");
    if (value && !strstr(text(o, "description"), sentence))
        fail_msg("%s: the description lacks \"%s\"", at, sentence);
}

static void expect_members(const char *at, struct json_object *properties, size_t count)
{
    if ((size_t)json_object_object_length(properties) != count)
        fail_msg("%s: %d members, the table has %zu", at, json_object_object_length(properties), count);
}

/* The schema of a member that has a name: what the reference leads to, or the one beside null. */
static struct json_object *named(const char *at, struct json_object *o, bool nullable)
{
    struct json_object *choices = get(o, "oneOf");

    if (nullable && (length(choices) != 2 || strcmp(text(json_object_array_get_idx(choices, 1), "type"), "null") != 0))
        fail_msg("%s: should be oneOf a schema and null", at);
    return resolve(nullable ? json_object_array_get_idx(choices, 0) : o);
}

static void expect_enum(const char *at, struct json_object *o, const char *const *words, bool nullable)
{
    o = named(at, o, nullable);
    expect_type(at, o, "string", false);
    expect_words(at, get(o, "enum"), words);
}

static struct json_object *object_of(const char *at, struct json_object *o, bool nullable)
{
    o = named(at, o, nullable);
    expect_type(at, o, "object", false);
    return o;
}

/* ---- bodies, by the tables that read them ---- */

static void expect_table(const char *at, struct json_object *o, const struct field_table *table);

/* A member that has no members of its own, by either kind of table. */
struct member {
    const char *type; /* as its schema says */
    bool nullable, is_time;
    const char *const *names; /* NULL: no enum */
    int64_t min, max;         /* of characters, of the integer, or of items */
    const char *fallback;     /* its default, if one is said */
};

static void expect_member(const char *at, struct json_object *o, const struct member *m)
{
    bool string = strcmp(m->type, "string") == 0 && !m->is_time, integer = strcmp(m->type, "integer") == 0;
    bool array = strcmp(m->type, "array") == 0, object = strcmp(m->type, "object") == 0;

    if (m->names) {
        expect_enum(at, o, m->names, m->nullable);
        expect_default(at, o, m->fallback);
        return;
    }
    o = object ? object_of(at, o, m->nullable) : resolve(o);
    expect_type(at, o, m->type, m->nullable && !object);
    assert_null(get(o, "enum"));
    expect_bound(at, o, "minLength", string ? m->min : 0, 0);
    expect_bound(at, o, "maxLength", string ? m->max : 0, 0);
    expect_bound(at, o, "minimum", integer ? m->min : INT64_MIN, INT64_MIN);
    expect_bound(at, o, "maximum", integer ? m->max : INT64_MAX, INT64_MAX);
    expect_bound(at, o, "minItems", array ? m->min : 0, 0);
    expect_bound(at, o, "maxItems", array ? m->max : 0, 0);
    assert_string_equal(text(o, "format"), m->is_time ? "date-time" : "");
    if (object && !json_object_get_boolean(get(o, "additionalProperties")))
        fail_msg("%s: may have any member: additionalProperties is true", at);
    expect_default(at, o, m->fallback);
}

static void expect_row(const char *at, struct json_object *o, const struct field_table *table, const struct field_row *row)
{
    static const char *const types[] = {[ROW_STRING] = "string", [ROW_INT] = "integer", [ROW_BOOL] = "boolean", [ROW_TIME] = "string",
                                        [ROW_ENUM] = "string", [ROW_JSON] = "object", [ROW_ARRAY] = "array"};
    struct member m = {.nullable = row->flags & ROW_NULLABLE, .is_time = row->type == ROW_TIME, .min = row->min, .max = row->max};
    int64_t number = COUPON_NULL;
    char digits[24];

    if (row->type == ROW_OBJECT) {
        expect_table(at, object_of(at, o, m.nullable), row->table);
        return;
    }
    m.type = types[row->type];
    m.names = row->type == ROW_ENUM ? row->names : NULL;
    if (!(row->flags & ROW_REQUIRED) && (row->type == ROW_ENUM || row->type == ROW_INT))
        memcpy(&number, (const char *)table->start + row->offset, sizeof number);
    snprintf(digits, sizeof digits, "%" PRId64, number);
    m.fallback = number == COUPON_NULL ? NULL : m.names ? m.names[number] : digits;
    expect_member(at, o, &m);
    if (row->type == ROW_ARRAY)
        expect_table(at, object_of(at, get(o, "items"), false), row->table);
}

static void expect_table(const char *at, struct json_object *o, const struct field_table *table)
{
    struct json_object *properties = get(o, "properties"), *open = get(o, "additionalProperties");
    size_t required = 0;

    if (!open || json_object_get_boolean(open))
        fail_msg("%s: other members are refused: additionalProperties is false", at);
    for (size_t i = 0; i < table->count; i++) {
        const struct field_row *row = &table->rows[i];
        struct json_object *member = get(properties, row->name);
        char place[PLACE_SIZE];

        snprintf(place, sizeof place, "%s/%s", at, row->name);
        if (!member)
            fail_msg("%s is not there", place);
        required += row->flags & ROW_REQUIRED ? 1 : 0;
        if ((row->flags & ROW_REQUIRED) && !has(get(o, "required"), row->name))
            fail_msg("%s is required", place);
        expect_row(place, member, table, row);
    }
    expect_members(at, properties, table->count);
    assert_int_equal(length(get(o, "required")), required);
}

/* The schema of its body. */
static struct json_object *asked(struct json_object *operation)
{
    return resolve(get2(get2(operation, "requestBody", "content"), "application/json", "schema"));
}

TEST(every_table_of_a_body_is_its_schema)
{
    expect_table("TakingWithKey", schema("TakingWithKey"), &take_item_table); /* of a batch: no route has it */
    for (size_t i = 0; i < routes_count; i++) {
        struct json_object *post = get(get2(document, "paths", routes[i].pattern), "post");

        if (routes[i].table)
            expect_table(routes[i].name, asked(post), routes[i].table);
        if (routes[i].roles & ROLE_BIT(ROLE_PUBLIC))
            expect_table(routes[i].name, asked(get(resolve(get(post, "x-public")), "post")),
                         routes[i].table == &take_table ? &public_take_table : &public_resolve_table);
    }
}

/* ---- coupons, by coupon_fields[] ---- */

enum form { FORM_SHOWN, FORM_NEW, FORM_CHANGE };

static bool has_null_default(const struct coupon_field *f)
{
    if (f->type == FIELD_STRING)
        return !f->default_text;
    return (f->type == FIELD_INT || f->type == FIELD_TIME || f->type == FIELD_ENUM) && f->default_int == COUPON_NULL;
}

/* What must be there: in a new coupon what has no default, in one that is shown all. A discount has what belongs to its kind. */
static bool is_required(const struct coupon_field *f, enum form form)
{
    bool of_discount = f->discount_kinds != 0, is_kind = strcmp(f->pointer, "/discount/kind") == 0;

    if (form == FORM_CHANGE)
        return false;
    if (strncmp(f->pointer, "/discount/only/", strlen("/discount/only/")) == 0 ||
        strncmp(f->pointer, "/discount/except/", strlen("/discount/except/")) == 0)
        return form == FORM_SHOWN;
    return of_discount ? is_kind : form == FORM_SHOWN || (f->flags & FIELD_REQUIRED) != 0;
}

/* NULL: none is said. */
static const char *default_of(const struct coupon_field *f, enum form form, char digits[24])
{
    if (form != FORM_NEW || is_required(f, form) || has_null_default(f) || f->type == FIELD_STRINGS || f->type == FIELD_JSON ||
        (f->type == FIELD_INT && f->default_int == 0))
        return NULL;
    if (f->type == FIELD_STRING)
        return *f->default_text ? f->default_text : NULL;
    snprintf(digits, 24, "%" PRId64, f->default_int);
    return f->type == FIELD_ENUM ? f->names[f->default_int] : digits;
}

static void expect_field(const char *at, struct json_object *o, const struct coupon_field *f, enum form form)
{
    static const char *const types[] = {[FIELD_STRING] = "string", [FIELD_INT] = "integer", [FIELD_TIME] = "string",
                                        [FIELD_ENUM] = "string", [FIELD_STRINGS] = "array", [FIELD_JSON] = "object"};
    char digits[24];

    expect_member(at, o, &(struct member){.type = types[f->type], .nullable = form == FORM_CHANGE || (f->flags & FIELD_NULLABLE),
                                          .is_time = f->type == FIELD_TIME, .names = f->type == FIELD_ENUM ? f->names : NULL,
                                          .min = f->min, .max = f->max, .fallback = default_of(f, form, digits)});
    if (f->type == FIELD_STRINGS)
        expect_type(at, get(o, "items"), "string", false);
}

/* The fields of coupon_fields[] from *i on that stand below base are the members of o, but for `beside` others. */
static void expect_group(struct json_object *o, const char *base, size_t *i, enum form form, size_t beside)
{
    struct json_object *properties = get(o, "properties"), *required = get(o, "required");
    size_t len = strlen(base), members = beside, needed = len == 0 && form == FORM_SHOWN ? 1 : 0; /* its id */

    while (*i < coupon_fields_count && strncmp(coupon_fields[*i].pointer, base, len) == 0 && coupon_fields[*i].pointer[len] == '/') {
        const struct coupon_field *f = &coupon_fields[*i];
        size_t end = len + 1 + strcspn(f->pointer + len + 1, "/");
        char at[PLACE_SIZE], *name = at + len + 1;
        struct json_object *member;
        bool in_discount = strncmp(f->pointer, "/discount/", strlen("/discount/")) == 0, must;

        snprintf(at, sizeof at, "%.*s", (int)end, f->pointer);
        member = get(properties, name);
        if (!member)
            fail_msg("%s is not there", at);
        if (f->pointer[end]) {
            must = form == FORM_SHOWN && !(in_discount && len > 0);
            expect_group(object_of(at, member, form == FORM_CHANGE), at, i, form, 0);
        } else {
            must = is_required(f, form);
            expect_field(at, member, f, form);
            ++*i;
        }
        if (has(required, name) != must)
            fail_msg("%s: required should be %d", at, must);
        needed += must;
        members++;
    }
    expect_members(*base ? base : "the coupon", properties, members);
    assert_int_equal(length(required), needed);
    if ((get(o, "additionalProperties") != NULL) != (form != FORM_SHOWN))
        fail_msg("%s: additionalProperties belongs to bodies", *base ? base : "the coupon");
}

TEST(every_field_of_a_coupon_is_in_its_schemas)
{
    size_t i = 0;

    expect_group(schema("Coupon"), "", &i, FORM_SHOWN, 4); /* id, job, slots_missing, version */
    i = 0;
    expect_group(schema("NewCoupon"), "", &i, FORM_NEW, 2); /* id, generate */
    i = 0;
    expect_group(schema("CouponChange"), "", &i, FORM_CHANGE, 2); /* generate, retire */
    assert_int_equal(i, coupon_fields_count);
}

/* ---- calls, by routes[] ---- */

static const char *const method_words[METHOD_OTHER] = {"get", "post", "patch", "delete"};

static struct json_object *operation_of(const struct route *r)
{
    struct json_object *o = get(get2(document, "paths", r->pattern), method_words[r->method]);

    if (!o)
        fail_msg("%s %s is not there", method_words[r->method], r->pattern);
    return o;
}

static const struct route *route_named(const char *name)
{
    for (size_t i = 0; i < routes_count; i++)
        if (strcmp(routes[i].name, name) == 0)
            return &routes[i];
    return NULL;
}

static bool is_tag(const char *name)
{
    struct json_object *tags = get(document, "tags");

    for (size_t i = 0; i < length(tags); i++)
        if (strcmp(text(json_object_array_get_idx(tags, i), "name"), name) == 0)
            return true;
    return false;
}

TEST(every_route_is_an_operation_and_every_operation_a_route)
{
    size_t found = 0;

    for (size_t i = 0; i < routes_count; i++)
        assert_string_equal(text(operation_of(&routes[i]), "operationId"), routes[i].name);
    JSONC_FOREACH(get(document, "paths"), path) {
        JSONC_FOREACH(jsonc_value(path), method) {
            const char *name = text(jsonc_value(method), "operationId");

            if (!route_named(name) && strcmp(name, OF_NGINX) != 0)
                fail_msg("%s %s is no route", jsonc_name(method), jsonc_name(path));
            if (!is_tag(json_object_get_string(json_object_array_get_idx(get(jsonc_value(method), "tags"), 0))))
                fail_msg("%s: its tag is none of the document", name);
            if (!*text(jsonc_value(method), "summary"))
                fail_msg("%s has no summary", name);
            found++;
        }
    }
    assert_int_equal(found, routes_count + 1);
}

/* The parameter, or NULL. */
static struct json_object *parameter(struct json_object *operation, const char *in, const char *name, size_t len)
{
    struct json_object *list = get(operation, "parameters");

    for (size_t i = 0; i < length(list); i++) {
        struct json_object *one = resolve(json_object_array_get_idx(list, i));

        if (strcmp(text(one, "in"), in) == 0 && strlen(text(one, "name")) == len && strncmp(text(one, "name"), name, len) == 0)
            return one;
    }
    return NULL;
}

static size_t parameters_in(struct json_object *operation, const char *in)
{
    struct json_object *list = get(operation, "parameters");
    size_t count = 0;

    for (size_t i = 0; i < length(list); i++)
        count += strcmp(text(resolve(json_object_array_get_idx(list, i)), "in"), in) == 0;
    return count;
}

TEST(every_operation_has_the_parameters_of_its_path)
{
    for (size_t i = 0; i < routes_count; i++) {
        struct json_object *o = operation_of(&routes[i]);
        size_t count = 0;

        for (const char *at = routes[i].pattern; (at = strchr(at, '{')) != NULL; at++, count++)
            if (!parameter(o, "path", at + 1, strcspn(at + 1, "}")))
                fail_msg("%s: no parameter for %s", routes[i].name, at);
        assert_int_equal(parameters_in(o, "path"), count);
    }
}

TEST(every_operation_that_changes_something_has_the_query_parameters_of_its_route)
{
    for (size_t i = 0; i < routes_count; i++) {
        struct json_object *o = operation_of(&routes[i]);
        size_t count = 0;

        for (; routes[i].query && routes[i].query[count]; count++)
            if (!parameter(o, "query", routes[i].query[count], strlen(routes[i].query[count])))
                fail_msg("%s: no parameter %s", routes[i].name, routes[i].query[count]);
        assert_int_equal(count, routes[i].method == METHOD_GET ? 0 : parameters_in(o, "query"));
    }
}

/* -1: it is not there; 0: it may be sent; 1: it must be. */
static int header(struct json_object *operation, const char *name)
{
    struct json_object *one = parameter(operation, "header", name, strlen(name));

    return one ? json_object_get_boolean(get(one, "required")) : -1;
}

TEST(every_operation_has_the_header_fields_of_its_flags)
{
    for (size_t i = 0; i < routes_count; i++) {
        const struct route *r = &routes[i];
        struct json_object *o = operation_of(r);

        if (header(o, "Idempotency-Key") != (r->flags & ROUTE_KEY ? 1 : r->flags & ROUTE_KEY_OPTIONAL ? 0 : -1))
            fail_msg("%s: Idempotency-Key is not as its flags say", r->name);
        if ((header(o, "If-Match") == 1) != ((r->flags & ROUTE_IF_MATCH) != 0)) /* its handler may honour it without the flag */
            fail_msg("%s: If-Match is not as its flags say", r->name);
    }
}

TEST(every_operation_has_the_body_of_its_route)
{
    static const char *const types[BODY_TYPE_COUNT][2] = {
        [BODY_JSON] = {"application/json"},
        [BODY_PATCH] = {"application/json"}, /* two types, and clients that are generated do not compile */
        [BODY_CSV] = {"text/csv"},
        [BODY_TEXT] = {"text/plain", "text/csv"},
    };

    for (size_t i = 0; i < routes_count; i++) {
        const struct route *r = &routes[i];
        struct json_object *body = get(operation_of(r), "requestBody"), *content = get(body, "content");
        size_t count = 0;
        char limit[40];

        if (!body != (r->body == BODY_NONE))
            fail_msg("%s: has a body, or has none", r->name);
        if (!body)
            continue;
        for (; count < 2 && types[r->body][count]; count++)
            if (!get(content, types[r->body][count]))
                fail_msg("%s takes %s", r->name, types[r->body][count]);
        assert_int_equal(json_object_object_length(content), count);
        if (json_object_get_boolean(get(body, "required")) == ((r->flags & ROUTE_BODY_OPTIONAL) != 0))
            fail_msg("%s: its body is required, or is not", r->name);
        if (r->body == BODY_PATCH)
            assert_non_null(strstr(text(body, "description"), "application/merge-patch+json"));
        snprintf(limit, sizeof limit, "At most %zu KiB.", r->body_max / KIB);
        assert_non_null(strstr(text(body, "description"), limit));
    }
}

TEST(every_operation_answers_in_the_forms_of_its_route)
{
    for (size_t i = 0; i < routes_count; i++) {
        const char *const *types = router_offers(&routes[i]);
        size_t count = 0;

        if (routes[i].flags & ROUTE_FILE)
            continue;
        JSONC_FOREACH(get(operation_of(&routes[i]), "responses"), answer) {
            struct json_object *content = get(resolve(jsonc_value(answer)), "content");

            if (*jsonc_name(answer) != '2')
                continue;
            for (count = 0; types[count]; count++)
                if (!get(content, types[count]))
                    fail_msg("%s: %s is not answered as %s", routes[i].name, jsonc_name(answer), types[count]);
            if (count != (content ? (size_t)json_object_object_length(content) : 0))
                fail_msg("%s: %s has more types than its route", routes[i].name, jsonc_name(answer));
        }
    }
}

TEST(lists_have_the_limits_of_the_code)
{
    struct json_object *limit = get(get2(document, "components", "parameters"), "Limit"), *lane;
    char fallback[PLACE_SIZE];

    expect_bound("limit", get(limit, "schema"), "minimum", 1, 0);
    expect_bound("limit", get(limit, "schema"), "maximum", LIST_LIMIT_MAX, 0);
    snprintf(fallback, sizeof fallback, "Default: %d.", LIST_LIMIT);
    assert_non_null(strstr(text(limit, "description"), fallback));
    lane = get(parameter(operation_of(route_named("ledger")), "query", "lane", strlen("lane")), "schema");
    expect_bound("lane", lane, "maximum", COUPON_LANES_MAX - 1, 0);
}

/* ---- problems, by the table of results ---- */

static bool may_answer(struct json_object *operation, enum cpn_result result)
{
    char status[8];
    struct json_object *answer;

    snprintf(status, sizeof status, "%d", result_info(result)->status);
    answer = resolve(get2(operation, "responses", status));
    return has(get(answer, "x-problems"), result_info(result)->name);
}

/* What follows from a route. own: its handler may say it for reasons of its own. */
TEST(every_operation_has_the_problems_of_its_flags)
{
    for (size_t i = 0; i < routes_count; i++) {
        const struct route *r = &routes[i];
        bool open = r->flags & ROUTE_OPEN, body = r->body != BODY_NONE;
        struct json_object *o = operation_of(r);
        const struct {
            enum cpn_result result;
            bool applies, own;
        } rules[] = {
            {CPN_UNAUTHORIZED, !open, false},
            {CPN_FORBIDDEN, !open, false},
            {CPN_NOT_FOUND, strchr(r->pattern, '{') != NULL, true},
            {CPN_METHOD_NOT_ALLOWED, false, false}, /* it would be another call */
            {CPN_NOT_ACCEPTABLE, *router_offers(r) != NULL, false},
            {CPN_UNSUPPORTED_MEDIA_TYPE, body, false},
            {CPN_TOO_LARGE, body, false},
            {CPN_IDEMPOTENCY_KEY_REQUIRED, r->flags & (ROUTE_KEY | ROUTE_KEY_OPTIONAL), false},
            {CPN_COUPON_NOT_FOUND, strstr(r->pattern, "{coupon}") != NULL, true},
            {CPN_COUPON_ARCHIVED, strstr(r->pattern, "{coupon}/") != NULL && strcmp(r->name, "coupon_archive") != 0 && /* these stay */
                                      strcmp(r->name, "counts") != 0 && strcmp(r->name, "report") != 0 && strcmp(r->name, "refusals") != 0,
             true},
            {CPN_PRECONDITION_REQUIRED, r->flags & ROUTE_IF_MATCH, false},
            {CPN_VERSION_CHANGED, header(o, "If-Match") >= 0, true},
            {CPN_BAD_REQUEST, true, false},
            {CPN_BAD_CURSOR, parameter(o, "query", "cursor", strlen("cursor")) != NULL, false},
            {CPN_RATE_LIMITED, true, false},
            {CPN_BUSY, !open || (r->flags & ROUTE_BLOCKS), true},
            {CPN_OUTCOME_UNKNOWN, true, false},
            {CPN_INTERNAL, true, false},
        };

        for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
            bool said = may_answer(o, rules[k].result);

            if (rules[k].applies != said && !(said && rules[k].own))
                fail_msg("%s: %s %s", r->name, result_info(rules[k].result)->name, said ? "cannot happen" : "is missing");
        }
    }
}

/* ---- words of answers ---- */

#define WORD(name, count, text)                                                                                                  \
    static const char *name##_word(int i)                                                                                       \
    {                                                                                                                            \
        return i < (int)(count) ? text : NULL;                                                                                   \
    }

/* Of a redemption, which is never free, and does not retire. */
static const enum slot_state redemption_states[] = {SLOT_ISSUED, SLOT_RESERVED, SLOT_REDEEMED, SLOT_CANCELLED, SLOT_EXPIRED, SLOT_REVERSED};

WORD(result, CPN_RESULT_COUNT, result_info((enum cpn_result)i)->name)
WORD(slot, SLOT_RETIRED + 1, slot_state_name((enum slot_state)i))
WORD(redemption, sizeof redemption_states / sizeof *redemption_states, slot_state_name(redemption_states[i]))
WORD(job_kind, JOB_KIND_COUNT, job_kind_name((enum job_kind)i))
WORD(job_state, JOB_STATE_COUNT, job_state_name((enum job_state)i))
WORD(entry, ENTRY_KIND_COUNT, entry_kind_name((enum entry_kind)i))
WORD(event, EVENT_TYPE_COUNT, event_type_name((enum event_type)i))
WORD(delivery, EVENT_NONE, event_type_name((enum event_type)i))

/* The k-th kind of entries that are in redemption.batch. */
static const char *reported_word(int k)
{
    for (int i = 0; i < ENTRY_KIND_COUNT; i++)
        if ((entry_members[i] & HAS_SLOT) && k-- == 0)
            return entry_kind_name((enum entry_kind)i);
    return NULL;
}

TEST(words_are_those_of_the_code)
{
    static const struct {
        const char *schema, *member;
        const char *(*word)(int i);
        int first;
        bool items, nullable;
    } rows[] = {
        {"Problem", "code", result_word, CPN_OK + 1, false, false},
        {"Problem", "reason", misfit_name, MISFIT_NONE + 1, false, false},
        {"ProblemExplained", "code", result_word, CPN_OK + 1, false, false},
        {"Check", "problem", result_word, CPN_OK + 1, false, true},
        {"Check", "reason", misfit_name, MISFIT_NONE + 1, false, false},
        {"Candidate", "problem", result_word, CPN_OK + 1, false, true},
        {"Candidate", "reason", misfit_name, MISFIT_NONE + 1, false, false},
        {"Job", "error", result_word, CPN_OK + 1, false, true},
        {"Job", "kind", job_kind_word, 0, false, false},
        {"Job", "state", job_state_word, 0, false, false},
        {"Slot", "state", slot_word, 0, false, false},
        {"SlotWithHistory", "state", slot_word, 0, false, false},
        {"Redemption", "state", redemption_word, 0, false, false},
        {"Generation", "state", redemption_word, 0, false, false},
        {"Entry", "kind", entry_word, 0, false, false},
        {"Entry", "was", slot_word, 0, false, false},
        {"EventEntry", "kind", reported_word, 0, false, false},
        {"EventEntry", "was", slot_word, 0, false, false},
        {"Delivery", "type", delivery_word, 0, false, false},
        {"Webhook", "events", event_word, 0, true, false},
        {"NewWebhook", "events", event_word, 0, true, false},
        {"WebhookChange", "events", event_word, 0, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json_object *member = get2(schema(rows[i].schema), "properties", rows[i].member);
        const char *words[CPN_RESULT_COUNT + 1] = {NULL};
        char at[PLACE_SIZE];

        for (int k = 0; rows[i].word(rows[i].first + k); k++)
            words[k] = rows[i].word(rows[i].first + k);
        snprintf(at, sizeof at, "%s/%s", rows[i].schema, rows[i].member);
        expect_enum(at, rows[i].items ? get(member, "items") : member, words, rows[i].nullable);
    }
    expect_words("Period", get(schema("Period"), "enum"), period_names);
}

TEST(every_type_of_event_is_a_webhook)
{
    struct json_object *webhooks = get(document, "webhooks");

    for (int i = 0; i < EVENT_NONE; i++) {
        const char *name = event_type_name((enum event_type)i);
        struct json_object *body = get2(get2(webhooks, name, "post"), "requestBody", "content");
        struct json_object *event = resolve(get2(body, "application/json", "schema"));

        if (!event)
            fail_msg("no webhook %s", name);
        assert_string_equal(text(get2(event, "properties", "type"), "const"), name);
    }
    expect_members("webhooks", webhooks, EVENT_NONE);
}

/* ---- the file ---- */

TEST(its_version_is_that_of_the_programs)
{
    assert_string_equal(text(get(document, "info"), "version"), COUPONS_VERSION);
}

FIXTURE(read_document)
{
    static char bytes[1 << 20];
    FILE *file = fopen(DOCUMENT, "r");
    size_t len = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;

    if (file)
        fclose(file);
    bytes[len] = '\0';
    document = json_tokener_parse(bytes);
    return document ? 0 : -1;
}

FIXTURE(put_document)
{
    json_object_put(document);
    return 0;
}

RUN_TESTS(.setup = read_document, .teardown = put_document)
