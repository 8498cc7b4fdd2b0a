/* http/openapi.c -- see openapi.h. Reading order: parameters, bodies, answers, one call, the document, the handler. */
#include "http/openapi.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "http/calls.h"
#include "http/handlers.h"
#include "http/list.h"
#include "http/openapi_schemas.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/router.h"

#define KIB 1024
#define KEY_PATTERN "^(?:[!#-~](?:[ -~]{0,62}[!-~])?|\"(?:[ !#-\\[\\]-~]|\\\\[\"\\\\]){1,64}\")$"
#define ABOUT_SERVICE                                                                                                  \
    "Storefronts take, hold, redeem and return coupons; operators pre-generate the slots that make a cap exact, "      \
    "or import codes; dashboards read totals. Times are RFC 3339, answered in UTC with milliseconds; money is "        \
    "in minor units. Wherever there is GET, there is HEAD. Every answer carries X-Request-Id: the caller's, "          \
    "where it sent one of 1 to 64 characters of A-Z, a-z, 0-9, dot, underscore and hyphen. The front server may "      \
    "answer any call with 408, 413 or 414, as a problem document too. Refusals are checked in the order in "           \
    "which problems are listed."

static const char *const method_words[METHOD_OTHER] = {"get", "post", "patch", "delete"};

/* ---- parameters ---- */

/* {names} of paths: an id that is none is a 404, so most say little. */
static const struct path_param {
    const char *name, *schema, *about;
} path_params[] = {
    {"coupon", "{\"type\":\"string\",\"pattern\":\"" PATTERN_COUPON "\"}", "The coupon's id."},
    {"user", NULL, "The user, as the caller names them; 1 to 128 bytes of UTF-8."},
    {"redemption", "{\"type\":\"string\",\"pattern\":\"^(L[0-9]+-)?[0-9]+-[1-9][0-9]*$\"}", "The redemption's id."},
    {"slot", "{\"type\":\"integer\",\"minimum\":0}", "The slot's number, from 0."},
    {"job", "{\"type\":\"string\",\"minLength\":1}", "The job's id."},
    {"code", "{\"type\":\"string\",\"minLength\":1}", "The code."},
    {"webhook", "{\"type\":\"string\",\"minLength\":1}", "The webhook's id."},
    {"delivery", "{\"type\":\"string\",\"minLength\":1}", "The delivery's id."},
};

static const char *problem_word(int i)
{
    return i < CPN_RESULT_COUNT ? result_info((enum cpn_result)i)->name : NULL;
}

static void begin_parameter(struct json *j, const char *name, const char *in, bool required, const char *about)
{
    json_object(j);
    json_key_string(j, "name", name);
    json_key_string(j, "in", in);
    json_key_bool(j, "required", required);
    json_key_string(j, "description", about);
    json_key(j, "schema");
}

static void write_path_schema(struct json *j, const struct path_param *p, const char *pattern)
{
    if (p->schema && strstr(pattern, "/problems/")) {
        json_object(j);
        json_key_string(j, "type", "string");
        json_key(j, "enum");
        openapi_write_words(j, problem_word, CPN_OK + 1, false);
        json_end_object(j);
    } else if (p->schema) {
        json_raw(j, p->schema);
    } else {
        json_object(j);
        json_key_string(j, "type", "string");
        json_key_int(j, "minLength", 1);
        json_key_int(j, "maxLength", 128);
        json_key_string(j, "pattern", USER_PATTERN);
        json_end_object(j);
    }
}

static void write_path_parameters(struct json *j, const char *pattern)
{
    for (const char *at = pattern; (at = strchr(at, '{')) != NULL; at++) {
        const struct path_param *p = path_params;
        size_t len = strcspn(at + 1, "}");

        while (strlen(p->name) != len || strncmp(p->name, at + 1, len) != 0) {
            p++;
            assert(p < path_params + sizeof path_params / sizeof path_params[0]);
        }
        begin_parameter(j, p->name, "path", true, strstr(pattern, "/problems/") ? "The problem's code." : p->about);
        write_path_schema(j, p, pattern);
        json_end_object(j);
    }
}

static void write_query_schema(struct json *j, const struct call_param *p)
{
    json_object(j);
    switch (p->type) {
    case PARAM_TEXT:
        json_key_string(j, "type", "string");
        if (p->pattern)
            json_key_string(j, "pattern", p->pattern);
        break;
    case PARAM_INT:
        json_key_string(j, "type", "integer");
        json_key_int(j, "minimum", p->min);
        if (p->max < INT64_MAX)
            json_key_int(j, "maximum", p->max);
        break;
    case PARAM_TIME:
        json_key_string(j, "type", "string");
        json_key_string(j, "format", "date-time");
        break;
    case PARAM_BOOL:
        json_key_string(j, "type", "boolean");
        break;
    case PARAM_WORD:
        json_key_string(j, "type", "string");
        json_key(j, "enum");
        openapi_write_names(j, p->words, false);
        break;
    }
    json_end_object(j);
}

static void write_query_parameters(struct json *j, const struct call *c)
{
    for (const struct call_param *p = c->query; p && p->name; p++) {
        begin_parameter(j, p->name, "query", false, p->about);
        write_query_schema(j, p);
        json_end_object(j);
    }
    if (c->flags & CALL_PAGES) {
        openapi_write_ref(j, "parameters", "limit");
        openapi_write_ref(j, "parameters", "cursor");
    }
}

static void write_header_parameters(struct json *j, const struct route *r, const struct call *c)
{
    if (r->flags & ROUTE_KEY)
        openapi_write_ref(j, "parameters", "key");
    if (r->flags & ROUTE_KEY_OPTIONAL)
        openapi_write_ref(j, "parameters", "key_optional");
    if (r->flags & ROUTE_IF_MATCH)
        openapi_write_ref(j, "parameters", "if_match");
    if (c->flags & CALL_IF_MATCH)
        openapi_write_ref(j, "parameters", "if_match_optional");
    if (c->flags & CALL_CONDITIONAL)
        openapi_write_ref(j, "parameters", "if_none_match");
}

static void write_header_parameter(struct json *j, const char *id, const char *name, bool required,
                                   const char *pattern, const char *about)
{
    json_key(j, id);
    begin_parameter(j, name, "header", required, about);
    json_object(j);
    json_key_string(j, "type", "string");
    if (pattern)
        json_key_string(j, "pattern", pattern);
    json_end_object(j);
    json_end_object(j);
}

static void write_shared_parameters(struct json *j)
{
    static const char about_key[] = "Chosen by the caller, for one request: 1 to 64 printable ASCII characters, bare "
                                    "or as a quoted string. The same key with the same body gets the first answer "
                                    "again; with a different body it is refused.";

    json_object(j);
    json_key(j, "limit");
    begin_parameter(j, "limit", "query", false, "Maximum number of items.");
    json_object(j);
    json_key_string(j, "type", "integer");
    json_key_int(j, "minimum", 1);
    json_key_int(j, "maximum", LIST_LIMIT_MAX);
    json_key_int(j, "default", LIST_LIMIT);
    json_end_object(j);
    json_end_object(j);
    json_key(j, "cursor");
    begin_parameter(j, "cursor", "query", false, "`next` of the page before.");
    json_raw(j, "{\"type\":\"string\"}");
    json_end_object(j);
    write_header_parameter(j, "key", "Idempotency-Key", true, KEY_PATTERN, about_key);
    write_header_parameter(j, "key_optional", "Idempotency-Key", false, KEY_PATTERN, about_key);
    write_header_parameter(j, "if_match", "If-Match", true, NULL,
                           "The ETag that was read, or *, so that no change is lost.");
    write_header_parameter(j, "if_match_optional", "If-Match", false, NULL, "The ETag that was read, or *.");
    write_header_parameter(j, "if_none_match", "If-None-Match", false, NULL,
                           "ETags that the caller has: 304 if one of them is current.");
    json_end_object(j);
}

/* ---- bodies ---- */

static const struct call_example *example_of(const char *name)
{
    for (size_t i = 0; i < call_examples_count; i++)
        if (strcmp(call_examples[i].name, name) == 0)
            return &call_examples[i];
    return NULL;
}

/* Bodies that no table reads. */
static const struct {
    const char *route, *schema;
} body_schemas[] = {
    {"coupon_create", SCHEMA_COUPON_NEW},   {"coupon_change", SCHEMA_COUPON_CHANGE}, {"redemption_batch", SCHEMA_BATCH},
    {"webhook_create", SCHEMA_WEBHOOK_NEW}, {"webhook_change", SCHEMA_WEBHOOK_CHANGE},
};

static const char *body_schema(const struct route *r)
{
    if (r->table)
        return openapi_body_name(r->table);
    for (size_t i = 0; i < sizeof body_schemas / sizeof body_schemas[0]; i++)
        if (strcmp(body_schemas[i].route, r->name) == 0)
            return body_schemas[i].schema;
    assert(!"a row in body_schemas[]");
    return NULL;
}

static void write_content(struct json *j, const char *type, const char *schema, const char *example)
{
    json_key(j, type);
    json_object(j);
    json_key(j, "schema");
    if (schema)
        openapi_write_ref(j, "schemas", schema);
    else
        json_raw(j, "{\"type\":\"string\"}");
    if (example) {
        json_key(j, "example");
        (schema ? json_raw : json_string)(j, example);
    }
    json_end_object(j);
}

static void write_body(struct json *j, const struct route *r)
{
    const struct call_example *example = example_of(r->name);
    const char *asks = example ? example->asks : NULL;
    char limit[40];

    json_key(j, "requestBody");
    json_object(j);
    snprintf(limit, sizeof limit, "At most %zu KiB.", r->body_max / KIB);
    json_key_string(j, "description", limit);
    json_key_bool(j, "required", !(r->flags & ROUTE_BODY_OPTIONAL));
    json_key(j, "content");
    json_object(j);
    if (r->body == BODY_TEXT) {
        write_content(j, "text/plain", NULL, asks);
        write_content(j, "text/csv", NULL, "code,batch\r\nSUMMER-0001,a\r\n");
    } else {
        write_content(j, "application/json", body_schema(r), asks);
    }
    if (r->body == BODY_PATCH)
        write_content(j, "application/merge-patch+json", body_schema(r), asks);
    json_end_object(j);
    json_end_object(j);
}

/* ---- answers ---- */

/* Which problems a call can be answered with: by its route, its path, and its own list. */
static void find_problems(const struct route *r, const struct call *c, bool found[CPN_RESULT_COUNT])
{
    const unsigned all = ROLE_BIT(ROLE_STOREFRONT) | ROLE_BIT(ROLE_REPORTING) | ROLE_BIT(ROLE_OPS);
    bool open = r->flags & ROUTE_OPEN, body = r->body != BODY_NONE;
    const struct {
        enum cpn_result result;
        bool applies;
    } rules[] = {
        {CPN_UNAUTHORIZED, !open},
        {CPN_FORBIDDEN, !open && r->roles != all},
        {CPN_NOT_FOUND, strchr(r->pattern, '{') != NULL},
        {CPN_UNSUPPORTED_MEDIA_TYPE, body},
        {CPN_TOO_LARGE, body},
        {CPN_IDEMPOTENCY_KEY_REQUIRED, r->flags & (ROUTE_KEY | ROUTE_KEY_OPTIONAL)},
        {CPN_COUPON_NOT_FOUND, strstr(r->pattern, "{coupon}") != NULL},
        {CPN_PRECONDITION_REQUIRED, r->flags & ROUTE_IF_MATCH},
        {CPN_VERSION_CHANGED, (r->flags & ROUTE_IF_MATCH) || (c->flags & CALL_IF_MATCH)},
        {CPN_BAD_REQUEST, true},
        {CPN_BAD_CURSOR, c->flags & CALL_PAGES},
        {CPN_RATE_LIMITED, true},
        {CPN_BUSY, !open || (r->flags & ROUTE_AUX)},
        {CPN_OUTCOME_UNKNOWN, true},
        {CPN_INTERNAL, true},
    };

    memset(found, 0, CPN_RESULT_COUNT * sizeof *found);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        found[rules[i].result] = rules[i].applies;
    for (const enum cpn_result *own = c->refusals; own && *own != CPN_OK; own++)
        found[*own] = true;
}

static void write_header_ref(struct json *j, const char *name)
{
    json_key(j, name);
    openapi_write_ref(j, "headers", name);
}

static void write_reply_headers(struct json *j, const struct route *r, const struct call *c, const struct call_reply *reply)
{
    int status = reply->status;

    json_key(j, "headers");
    json_object(j);
    write_header_ref(j, "X-Request-Id");
    if (status == 201 || (status == 202 && reply->schema == &schema_job))
        write_header_ref(j, "Location");
    if ((r->flags & (ROUTE_KEY | ROUTE_KEY_OPTIONAL)) && status < 300)
        write_header_ref(j, "Idempotent-Replayed");
    if (c->flags & CALL_ETAG)
        write_header_ref(j, "ETag");
    if (c->flags & CALL_PAGES)
        write_header_ref(j, "Link");
    if (c->flags & CALL_AS_OF)
        write_header_ref(j, "Coupons-As-Of");
    json_end_object(j);
}

/* A link to each call whose path needs the id of what was made, beside what this call's path has. */
static void write_links(struct json *j, const struct call_reply *reply)
{
    static const struct {
        const struct schema *made;
        const char *param;
    } ids[] = {{&schema_coupon, "coupon"}, {&schema_redemption, "redemption"}, {&schema_job, "job"},
             {&schema_webhook_secret, "webhook"}};
    size_t k = 0;

    while (k < sizeof ids / sizeof ids[0] && ids[k].made != reply->schema)
        k++;
    if (k == sizeof ids / sizeof ids[0] || (reply->status != 201 && reply->status != 202))
        return;
    json_key(j, "links");
    json_object(j);
    for (size_t i = 0; i < routes_count; i++) {
        const char *param = strstr(routes[i].pattern, ids[k].param), *second = strchr(routes[i].pattern, '{');
        bool needs = param && param[-1] == '{' && param[strlen(ids[k].param)] == '}';
        bool coupon = needs && reply->schema == &schema_redemption;

        second = second ? strchr(second + 1, '{') : NULL;
        if (!needs || (second && !coupon))
            continue;
        json_key(j, routes[i].name);
        json_object(j);
        json_key_string(j, "operationId", routes[i].name);
        json_key(j, "parameters");
        json_object(j);
        if (coupon)
            json_key_string(j, "coupon", "$request.path.coupon");
        json_key_string(j, ids[k].param, "$response.body#/id");
        json_end_object(j);
        json_end_object(j);
    }
    json_end_object(j);
}

static void write_status_key(struct json *j, int status)
{
    char text[8];

    snprintf(text, sizeof text, "%d", status);
    json_key(j, text);
}

static void write_reply(struct json *j, const struct route *r, const struct call *c, const struct call_reply *reply)
{
    const struct call_example *example = reply == c->replies ? example_of(r->name) : NULL;
    const char *answers = example ? example->answers : NULL;

    write_status_key(j, reply->status);
    json_object(j);
    json_key_string(j, "description", reply->about);
    write_reply_headers(j, r, c, reply);
    if (reply->schema || reply->other) {
        json_key(j, "content");
        json_object(j);
        if (reply->schema && !reply->schema->name) {
            json_key(j, TYPE_JSON);
            json_raw(j, "{\"schema\":{\"type\":\"object\"}}");
        } else if (reply->schema) {
            write_content(j, TYPE_JSON, reply->schema->name, answers);
        }
        if (reply->other)
            write_content(j, reply->other, NULL, reply->schema ? NULL : answers);
        json_end_object(j);
    }
    write_links(j, reply);
    json_end_object(j);
}

/* A problem with one of these codes, each with its example. */
static void write_problem_content(struct json *j, const bool found[CPN_RESULT_COUNT], int status)
{
    json_key(j, TYPE_PROBLEM);
    json_object(j);
    json_key(j, "schema");
    json_raw(j, "{\"allOf\":[{\"$ref\":\"#/components/schemas/Problem\"},{\"properties\":{\"code\":{\"enum\":");
    j->comma = false;
    json_array(j);
    for (int i = 0; i < CPN_RESULT_COUNT; i++)
        if (found[i] && result_info((enum cpn_result)i)->status == status)
            json_string(j, problem_word(i));
    json_end_array(j);
    buf_puts(j->out, "}}}]}");
    json_key(j, "examples");
    json_object(j);
    for (int i = 0; i < CPN_RESULT_COUNT; i++)
        if (found[i] && result_info((enum cpn_result)i)->status == status) {
            json_key(j, problem_word(i));
            openapi_write_ref(j, "examples", problem_word(i));
        }
    json_end_object(j);
    json_end_object(j);
}

/* All problems of a status are one answer. */
static void write_problems(struct json *j, const struct route *r, const bool found[CPN_RESULT_COUNT], int status)
{
    struct buf about = BUF_INIT;

    for (int i = 0; i < CPN_RESULT_COUNT; i++)
        if (found[i] && result_info((enum cpn_result)i)->status == status)
            buf_printf(&about, "%s%s", about.len ? ", " : "", problem_word(i));
    if (about.len) {
        write_status_key(j, status);
        json_object(j);
        json_key_string(j, "description", about.data);
        json_key(j, "headers");
        json_object(j);
        write_header_ref(j, "X-Request-Id");
        if (status == 401)
            write_header_ref(j, "WWW-Authenticate");
        if (status == 415 && r->body == BODY_PATCH)
            write_header_ref(j, "Accept-Patch");
        if (status == 409 || status == 429 || status == 503)
            write_header_ref(j, "Retry-After");
        if (status == 429) {
            write_header_ref(j, "RateLimit-Policy");
            write_header_ref(j, "RateLimit");
        }
        json_end_object(j);
        json_key(j, "content");
        json_object(j);
        write_problem_content(j, found, status);
        json_end_object(j);
        json_end_object(j);
    }
    buf_free(&about);
}

static void write_replies(struct json *j, const struct route *r, const struct call *c)
{
    bool found[CPN_RESULT_COUNT];

    find_problems(r, c, found);
    json_key(j, "responses");
    json_object(j);
    for (const struct call_reply *reply = c->replies; reply->status; reply++)
        write_reply(j, r, c, reply);
    if (c->flags & CALL_CONDITIONAL)
        write_reply(j, r, c, &(struct call_reply){.status = 304, .about = "Not changed since."});
    for (int status = 400; status < 600; status++)
        write_problems(j, r, found, status);
    json_end_object(j);
}

/* ---- one call ---- */

static void write_security(struct json *j, const struct route *r)
{
    json_key(j, "security");
    json_array(j);
    for (int role = ROLE_STOREFRONT; role <= ROLE_OPS; role++)
        if (r->roles & ROLE_BIT(role)) {
            json_object(j);
            json_key(j, role_name((enum role)role));
            json_array(j);
            json_end_array(j);
            json_end_object(j);
        }
    json_end_array(j);
}

static void write_call(struct json *j, const struct route *r)
{
    const struct call *c = call_of(r->name);

    assert(c);
    json_key(j, method_words[r->method]);
    json_object(j);
    json_key_string(j, "operationId", r->name);
    json_key(j, "tags");
    json_array(j);
    json_string(j, c->tag);
    json_end_array(j);
    json_key_string(j, "summary", c->summary);
    if (c->about)
        json_key_string(j, "description", c->about);
    write_security(j, r);
    json_key(j, "parameters");
    json_array(j);
    write_path_parameters(j, r->pattern);
    write_query_parameters(j, c);
    write_header_parameters(j, r, c);
    json_end_array(j);
    if (r->body != BODY_NONE)
        write_body(j, r);
    write_replies(j, r, c);
    json_end_object(j);
}

/* ---- the document ---- */

static void write_paths(struct json *j)
{
    json_key(j, "paths");
    json_object(j);
    for (size_t i = 0; i < routes_count; i++) {
        size_t first = 0;

        while (strcmp(routes[first].pattern, routes[i].pattern) != 0)
            first++;
        if (first < i)
            continue;
        json_key(j, routes[i].pattern);
        json_object(j);
        for (size_t k = i; k < routes_count; k++)
            if (strcmp(routes[k].pattern, routes[i].pattern) == 0)
                write_call(j, &routes[k]);
        json_end_object(j);
    }
    json_end_object(j);
}

static void write_headers(struct json *j)
{
    static const struct {
        const char *name, *schema, *about;
    } headers[] = {
        {"X-Request-Id", "{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9._-]{1,64}$\"}",
         "Finds the request in the service's log."},
        {"Location", "{\"type\":\"string\"}", "Where it is."},
        {"ETag", "{\"type\":\"string\"}", "A strong tag of what was read."},
        {"Idempotent-Replayed", "{\"const\":\"true\"}", "This repeats the first answer to this key."},
        {"Link", "{\"type\":\"string\"}", "The next page, with rel=next."},
        {"Coupons-As-Of", "{\"type\":\"string\",\"format\":\"date-time\"}", "as_of.at, for CSV."},
        {"Retry-After", "{\"type\":\"integer\",\"minimum\":1}", "Seconds until a retry may succeed."},
        {"RateLimit-Policy", "{\"type\":\"string\"}", "Whose limit it is (a key's, an address's), q requests in w seconds, or at a time."},
        {"RateLimit", "{\"type\":\"string\"}", "What is left of it, r, until t seconds have passed."},
        {"WWW-Authenticate", "{\"type\":\"string\"}", "Bearer."},
        {"Accept-Patch", "{\"type\":\"string\"}", "The media types of a patch."},
    };

    json_key(j, "headers");
    json_object(j);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        json_key(j, headers[i].name);
        json_object(j);
        json_key_string(j, "description", headers[i].about);
        json_key(j, "schema");
        json_raw(j, headers[i].schema);
        json_end_object(j);
    }
    json_end_object(j);
}

static void write_examples(struct json *j)
{
    json_key(j, "examples");
    json_object(j);
    for (int i = CPN_OK + 1; i < CPN_RESULT_COUNT; i++) {
        const struct result_info *info = result_info((enum cpn_result)i);
        const struct problem p = {.result = (enum cpn_result)i, .retry = info->retry, .misfit = {MISFIT_MIN_SPEND, 420}};

        json_key(j, info->name);
        json_object(j);
        json_key_string(j, "summary", info->title);
        json_key(j, "value");
        problem_write(j, "8890c84c-1795393348.354-8-1", &p);
        json_end_object(j);
    }
    json_end_object(j);
}

static void write_components(struct json *j)
{
    static const char *const about[] = {
        [ROLE_STOREFRONT] = "Takes and returns; sees active coupons.",
        [ROLE_REPORTING] = "Reads everything but codes.",
        [ROLE_OPS] = "May do everything.",
    };

    json_key(j, "components");
    json_object(j);
    json_key(j, "securitySchemes");
    json_object(j);
    for (int role = ROLE_STOREFRONT; role <= ROLE_OPS; role++) {
        json_key(j, role_name((enum role)role));
        json_object(j);
        json_key_string(j, "type", "http");
        json_key_string(j, "scheme", "bearer");
        json_key_string(j, "description", about[role]);
        json_end_object(j);
    }
    json_end_object(j);
    json_key(j, "parameters");
    write_shared_parameters(j);
    write_headers(j);
    write_examples(j);
    json_key(j, "schemas");
    openapi_write_schemas(j);
    json_end_object(j);
}

void openapi_write(struct buf *out)
{
    struct json j = json_to(out);

    json_object(&j);
    json_key_string(&j, "openapi", "3.1.0");
    json_key(&j, "info");
    json_object(&j);
    json_key_string(&j, "title", "Coupons");
    json_key_string(&j, "version", "1.0.0");
    json_key_string(&j, "summary", "Never one coupon too many, never one lost, and anyone can check it.");
    json_key_string(&j, "description", ABOUT_SERVICE);
    json_key(&j, "license");
    json_raw(&j, "{\"name\":\"MIT\",\"identifier\":\"MIT\"}");
    json_end_object(&j);
    json_key(&j, "servers");
    json_raw(&j, "[{\"url\":\"/\"}]");
    json_key(&j, "tags");
    json_array(&j);
    for (const struct call_tag *t = call_tags; t->name; t++) {
        json_object(&j);
        json_key_string(&j, "name", t->name);
        json_key_string(&j, "description", t->about);
        json_end_object(&j);
    }
    json_end_array(&j);
    write_paths(&j);
    write_components(&j);
    json_end_object(&j);
}

/* ---- the handler: the document is made once, and its tag of what it says ---- */

static struct buf document = BUF_INIT;
static int64_t version;

static void make_document(void)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];

    openapi_write(&document);
    crypto_generichash(hash, sizeof hash, (const unsigned char *)document.data, document.len, NULL, 0);
    memcpy(&version, hash, sizeof version);
    version &= INT64_MAX;
}

enum handled openapi_get(struct request *r)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_document);
    reply_header(r, "Cache-Control", "no-cache");
    reply_etag(r, version);
    if (reply_not_modified(r, version))
        return ANSWERED;
    buf_clear(&r->reply.body);
    buf_put(&r->reply.body, document.data, document.len);
    return reply_json(r, 200);
}
