/* http/router.c -- see router.h. Reading order: the table, then router_begin(), then what it calls, going up. */
#include "http/router.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/metrics.h"
#include "http/audit.h"
#include "http/auth.h"
#include "http/blocking_pool.h"
#include "http/guess_limit.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/key_limits.h"
#include "http/problem.h"
#include "http/reactor.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/user_name.h"

#define KIB 1024u
#define BODY_MAX (64 * KIB)
#define BATCH_MAX (4096 * KIB)
#define IMPORT_MAX (256 * 1024 * KIB)
#define KEY_MAX 64

#define S ROLE_BIT(ROLE_STOREFRONT)
#define R ROLE_BIT(ROLE_REPORTING)
#define O ROLE_BIT(ROLE_OPS)
#define P ROLE_BIT(ROLE_PUBLIC)
#define M ROLE_BIT(ROLE_METRICS)
#define BLOCKS ROUTE_BLOCKS
#define STREAM ROUTE_STREAM
#define KEY ROUTE_KEY
#define OPEN ROUTE_OPEN
#define WITHIN ROUTE_WITHIN

/* The query parameters of calls that change something. */
static const char *const receipt_query[] = {"receipt", NULL};
static const char *const import_query[] = {"not_before", "column", "accept", "dry_run", NULL};
static const char *const retire_query[] = {"not_before", "column", "accept", NULL};
static const char *const issue_query[] = {"not_before", "column", NULL};

/* Rows: a GET; another call without a body; those with a body of JSON, with a patch, and with a list. */
#define GET(name, pattern, start, roles, flags) {name, METHOD_GET, pattern, start, roles, flags, BODY_NONE, 0, NULL, NULL, 0}
#define BARE(name, method, pattern, start, roles, flags) {name, method, pattern, start, roles, flags, BODY_NONE, 0, NULL, NULL, 0}
#define POST(name, pattern, start, roles, flags, table, query)                                                         \
    {name, METHOD_POST, pattern, start, roles, flags, BODY_JSON, BODY_MAX, table, query, 0}
#define PATCH(name, pattern, start, roles, flags) {name, METHOD_PATCH, pattern, start, roles, flags, BODY_PATCH, BODY_MAX, NULL, NULL, 0}
#define LIST(name, pattern, job, body, query)                                                                          \
    {name, METHOD_POST, pattern, codes_upload, O, STREAM | ROUTE_KEY_OPTIONAL, body, IMPORT_MAX, NULL, query, job}
#define STEP(verb, move, flags, table)                                                                                 \
    {"redemption_" verb, METHOD_POST, "/coupons/{coupon}/redemptions/{redemption}/" verb, redemption_step, S | O,      \
     ROUTE_BODY_OPTIONAL | (flags), BODY_JSON, BODY_MAX, table, receipt_query, move}

/* In place of {coupon}, the literal "-" means: not about one coupon. Each row is an operation of app/static/docs/openapi.json, with the
 * same name. nginx serves that document, docs/ and dashboard/. */
const struct route routes[] = {
    GET("coupon_list", "/coupons", coupon_list, S | R | O, BLOCKS | WITHIN),
    POST("coupon_create", "/coupons", coupon_create, O, BLOCKS | WITHIN | ROUTE_KEY_OPTIONAL, NULL, NULL),

    GET("health", "/coupons/-/health", service_health, 0, OPEN),
    GET("ready", "/coupons/-/ready", service_ready, 0, OPEN),
    GET("metrics", "/coupons/-/metrics", service_metrics, O | M, ROUTE_METRICS | ROUTE_PLAIN),
    GET("problem", "/coupons/-/problems/{code}", service_problem, 0, OPEN | ROUTE_FILE),
    GET("receipt_keys", "/coupons/-/receipt-keys", service_receipt_keys, S | R | O, WITHIN),
    GET("job_list", "/coupons/-/jobs", job_list, R | O, BLOCKS | WITHIN),
    GET("job_get", "/coupons/-/jobs/{job}", job_get, R | O, BLOCKS | WITHIN),
    BARE("job_cancel", METHOD_POST, "/coupons/-/jobs/{job}/cancel", job_cancel, O, BLOCKS | WITHIN),
    GET("job_rows", "/coupons/-/jobs/{job}/rows", job_rows, R | O, STREAM | WITHIN | ROUTE_CSV),
    GET("report_several", "/coupons/-/reports", report_get, R | O, STREAM | WITHIN | ROUTE_OR_CSV),
    GET("redemption_search", "/coupons/-/redemptions", redemption_search, S | R | O, BLOCKS | WITHIN | ROUTE_OR_CSV | ROUTE_CSV_STREAM),
    GET("user_export", "/coupons/-/users/{user}/export", user_export, O, STREAM | ROUTE_NDJSON),
    POST("user_export_named", "/coupons/-/users/export", user_export, O, STREAM | ROUTE_NDJSON, &user_table, NULL),
    GET("wallet", "/coupons/-/users/{user}", user_wallet, S | R | O, BLOCKS | WITHIN),
    BARE("user_erase", METHOD_DELETE, "/coupons/-/users/{user}", user_erase, O, BLOCKS | ROUTE_EMPTY),
    POST("user_erase_named", "/coupons/-/users/erase", user_erase, O, BLOCKS | ROUTE_EMPTY, &user_table, NULL),
    GET("code_find", "/coupons/-/codes", code_find, O, BLOCKS | WITHIN),
    POST("resolve", "/coupons/-/resolve", code_resolve, S | O | P, BLOCKS | WITHIN, &resolve_table, NULL),

    GET("webhook_list", "/coupons/-/webhooks", webhook_list, O, BLOCKS | WITHIN),
    POST("webhook_create", "/coupons/-/webhooks", webhook_create, O, BLOCKS | WITHIN, NULL, NULL),
    GET("webhook_get", "/coupons/-/webhooks/{webhook}", webhook_get, O, BLOCKS | WITHIN),
    PATCH("webhook_change", "/coupons/-/webhooks/{webhook}", webhook_change, O, BLOCKS | WITHIN),
    BARE("webhook_delete", METHOD_DELETE, "/coupons/-/webhooks/{webhook}", webhook_delete, O, BLOCKS | WITHIN | ROUTE_EMPTY),
    POST("webhook_rotate", "/coupons/-/webhooks/{webhook}/rotate", webhook_rotate, O, BLOCKS | WITHIN | ROUTE_BODY_OPTIONAL,
     &webhook_rotate_table, NULL),
    GET("webhook_deliveries", "/coupons/-/webhooks/{webhook}/deliveries", webhook_deliveries, O, BLOCKS | WITHIN),
    BARE("webhook_redeliver", METHOD_POST, "/coupons/-/webhooks/{webhook}/deliveries/{delivery}/redeliver", webhook_redeliver, O,
     BLOCKS | WITHIN),
    BARE("webhook_test", METHOD_POST, "/coupons/-/webhooks/{webhook}/test", webhook_test, O, BLOCKS | WITHIN),

    GET("key_list", "/coupons/-/keys", key_list, O, BLOCKS),

    GET("coupon_get", "/coupons/{coupon}", coupon_get, S | R | O, 0),
    PATCH("coupon_change", "/coupons/{coupon}", coupon_change, O, BLOCKS | ROUTE_IF_MATCH),
    BARE("coupon_delete", METHOD_DELETE, "/coupons/{coupon}", coupon_delete, O, ROUTE_EMPTY),
    BARE("coupon_archive", METHOD_POST, "/coupons/{coupon}/archive", coupon_archive, O, BLOCKS | ROUTE_EMPTY),
    GET("counts", "/coupons/{coupon}/counts", coupon_counts, R | O, 0),
    GET("ledger", "/coupons/{coupon}/ledger", ledger_get, R | O, STREAM | ROUTE_NDJSON),
    GET("coupon_history", "/coupons/{coupon}/history", coupon_history, R | O, BLOCKS),
    GET("report", "/coupons/{coupon}/reports", report_get, R | O, BLOCKS | ROUTE_OR_CSV),
    GET("refusals", "/coupons/{coupon}/refusals", refusals_get, R | O, BLOCKS),

    GET("slots_list", "/coupons/{coupon}/slots", slots_list, R | O, BLOCKS),
    POST("slots_add", "/coupons/{coupon}/slots", slots_add, O, BLOCKS | ROUTE_KEY_OPTIONAL, &slots_add_table, NULL),
    POST("slots_retire", "/coupons/{coupon}/slots/retire", slots_retire, O, BLOCKS | KEY, &slots_retire_table, NULL),
    GET("slot_get", "/coupons/{coupon}/slots/{slot}", slot_get, R | O, BLOCKS),

    LIST("codes_import", "/coupons/{coupon}/codes", JOB_IMPORT, BODY_TEXT, import_query),
    LIST("codes_retire", "/coupons/{coupon}/codes/retire", JOB_RETIRE_CODES, BODY_TEXT, retire_query),
    LIST("codes_issue", "/coupons/{coupon}/codes/issue", JOB_ISSUE_CODES, BODY_CSV, issue_query),
    GET("codes_list", "/coupons/{coupon}/codes", codes_list, O, STREAM | ROUTE_OR_CSV),
    GET("code_get", "/coupons/{coupon}/codes/{code}", code_get, O, 0),
    BARE("code_retire", METHOD_POST, "/coupons/{coupon}/codes/{code}/retire", code_retire, O, 0),

    POST("redemption_take", "/coupons/{coupon}/redemptions", redemption_take, S | O, KEY, &take_table, receipt_query),
    GET("redemption_list", "/coupons/{coupon}/redemptions", redemption_list, S | R | O, BLOCKS | ROUTE_OR_CSV | ROUTE_CSV_STREAM),
    {"redemption_batch", METHOD_POST, "/coupons/{coupon}/redemptions/batch", redemption_batch, S | O, 0, BODY_JSON, BATCH_MAX, NULL,
     NULL, 0},
    POST("redemption_check", "/coupons/{coupon}/check", redemption_check, S | O | P, 0, &take_table, NULL),
    GET("redemption_get", "/coupons/{coupon}/redemptions/{redemption}", redemption_get, S | R | O, 0),
    GET("redemption_receipt", "/coupons/{coupon}/redemptions/{redemption}/receipt", redemption_receipt, S | R | O, 0),
    STEP("reserve", MOVE_RESERVE, KEY, &step_table),
    STEP("redeem", MOVE_REDEEM, KEY, &step_table),
    STEP("cancel", MOVE_CANCEL, 0, &cancel_table),
    STEP("reverse", MOVE_REVERSE, 0, &reverse_table),
    POST("redemption_adjust", "/coupons/{coupon}/redemptions/{redemption}/adjust", redemption_adjust, S | O, KEY, &adjust_table,
     receipt_query),

    GET("user_get", "/coupons/{coupon}/users/{user}", user_get, S | R | O, 0),
};
const size_t routes_count = sizeof routes / sizeof routes[0];

_Static_assert(sizeof routes / sizeof routes[0] < METRICS_ROUTES_MAX, "metrics has no room for this route");

/* ---- the table, prepared ---- */

struct pattern {
    const char *segments[PATH_SEGMENTS_MAX]; /* NULL: a parameter */
    bool coupon[PATH_SEGMENTS_MAX];          /* that parameter is {coupon} */
    size_t count;
    bool user;                               /* the first one but {coupon} is {user} */
};

static struct pattern patterns[sizeof routes / sizeof routes[0]];
static char texts[sizeof routes / sizeof routes[0]][80];
static const char *names[sizeof routes / sizeof routes[0] + 1];

static void prepare(void)
{
    for (size_t i = 0; i < routes_count; i++) {
        struct pattern *p = &patterns[i];
        char *save, *part;

        assert(strlen(routes[i].pattern) < sizeof texts[i]);
        memcpy(texts[i], routes[i].pattern, strlen(routes[i].pattern) + 1);
        for (part = strtok_r(texts[i], "/", &save); part; part = strtok_r(NULL, "/", &save)) {
            p->coupon[p->count] = strcmp(part, "{coupon}") == 0;
            p->user |= strcmp(part, "{user}") == 0;
            p->segments[p->count++] = *part == '{' ? NULL : part;
        }
        names[i] = routes[i].name;
    }
    names[routes_count] = "none";
}

static void prepare_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare);
}

unsigned router_number(const struct route *route)
{
    return route ? (unsigned)(route - routes) : (unsigned)routes_count;
}

void router_end(struct request *r)
{
    guess_limit_end(r);
    if (r->only_asked)
        return;
    audit_request(r);
    metrics_request(router_number(r->route), r->reply.status, (mono_now().ns - r->arrived.ns) / 1000);
}

const char *const *router_names(size_t *count)
{
    prepare_once();
    *count = routes_count + 1;
    return names;
}

const char *const *router_offers(const struct route *route)
{
    static const struct {
        unsigned flag;
        const char *types[3];
    } rows[] = {
        {ROUTE_OR_CSV, {TYPE_JSON, "text/csv", NULL}},
        {ROUTE_CSV, {"text/csv", NULL}},
        {ROUTE_NDJSON, {TYPE_NDJSON, NULL}},
        {ROUTE_PLAIN, {"text/plain", NULL}},
        {ROUTE_EMPTY | ROUTE_FILE, {NULL}},
        {0, {TYPE_JSON, NULL}},
    };
    size_t i = 0;

    while (rows[i].flag && !(route->flags & rows[i].flag))
        i++;
    return rows[i].types;
}

/* ---- which route ---- */

/* A pattern's own words have no escapes, so that nginx, which sees the path as it was sent, takes it for the same. */
static bool matches(const struct pattern *p, const struct path *path)
{
    if (p->count != path->count)
        return false;
    for (size_t i = 0; i < p->count; i++) {
        if (p->segments[i] ? path->escaped[i] || strcmp(p->segments[i], path->segments[i]) != 0 : !*path->segments[i])
            return false;
        if (p->coupon[i] && strcmp(path->segments[i], "-") == 0)
            return false;
    }
    return true;
}

static void take_params(struct request *r, const struct pattern *p)
{
    size_t count = 0;

    for (size_t i = 0; i < p->count; i++) {
        if (p->coupon[i])
            r->coupon = r->path.segments[i];
        else if (!p->segments[i])
            r->params[count++] = r->path.segments[i];
    }
}

static enum method method_of(const char *name, bool *head)
{
    static const char *const method_names[METHOD_OTHER] = {"GET", "POST", "PATCH", "DELETE"};

    *head = name && strcmp(name, "HEAD") == 0;
    if (*head)
        return METHOD_GET;
    for (int m = 0; name && m < METHOD_OTHER; m++)
        if (strcmp(method_names[m], name) == 0)
            return (enum method)m;
    return METHOD_OTHER;
}

unsigned router_find(struct request *r)
{
    unsigned flags = 0;

    prepare_once();
    r->method = method_of(r->header.method, &r->head);
    r->bad_target = !r->header.target || !path_parse(&r->path, r->header.target, &r->arena);
    for (size_t i = 0; i < routes_count && !r->bad_target; i++) {
        if (!matches(&patterns[i], &r->path))
            continue;
        r->allowed |= 1u << routes[i].method;
        flags |= routes[i].flags;
        r->of_pages |= (routes[i].roles & ROLE_BIT(ROLE_PUBLIC)) != 0;
        if (!r->route && routes[i].method == r->method) {
            r->route = &routes[i];
            take_params(r, &patterns[i]);
        }
    }
    return r->route ? r->route->flags : flags;
}

/* ---- checks ---- */

static enum handled stay_answered(struct request *r)
{
    (void)r;
    return ANSWERED;
}

/* Answered without using the body, which is read to its end before the reply is sent, or it would be taken for the next request. That of a
 * large one is left to a thread that may wait; if none is to be had, the connection is closed. */
static enum handled answered_early(struct request *r)
{
    r->unread = true;
    r->then = stay_answered;
    return r->slow && blocking_pool_push(r->worker->streams, r) ? PENDING : ANSWERED;
}

static enum handled early(struct request *r, enum cpn_result result, const char *detail)
{
    reply_problem(r, result, detail);
    return answered_early(r);
}

static enum handled not_allowed(struct request *r)
{
    static const char *const texts_of[METHOD_OTHER] = {"GET, HEAD", "POST", "PATCH", "DELETE"};
    struct buf allow = BUF_INIT;

    for (int m = 0; m < METHOD_OTHER; m++)
        if (r->allowed & (1u << m)) {
            buf_puts(&allow, allow.len ? ", " : "");
            buf_puts(&allow, texts_of[m]);
        }
    reply_header(r, "Allow", allow.data);
    buf_free(&allow);
    return early(r, CPN_METHOD_NOT_ALLOWED, NULL);
}

/* NULL: Accept accepts one of them. Else what is wrong. */
static const char *not_acceptable(struct request *r, const char *const *types)
{
    const char *detail = "This call answers with ";

    for (size_t i = 0; types[i]; i++)
        if (accept_admits(r->header.accept, types[i]))
            return NULL;
    for (size_t i = 0; types[i]; i++)
        detail = arena_printf(&r->arena, "%s%s%s", detail, types[i], types[i + 1] ? " or " : ", which Accept excludes.");
    return *types ? detail : NULL;
}

bool router_has_type(const char *content_type, const char *type)
{
    size_t len = strlen(type);
    static const char *const charsets[] = {"utf-8", "utf-16", "utf-16le", "utf-16be", NULL}; /* the first for all, the others for text */
    const char *rest = content_type + len, *charset;
    size_t charset_len;

    if (strncasecmp(content_type, type, len) != 0 || !strchr(" \t;", *rest))
        return false;
    charset = strcasestr(rest, "charset=");
    if (!charset)
        return true;
    charset += strlen("charset=");
    charset += *charset == '"';
    charset_len = strcspn(charset, "\" \t;");
    for (size_t i = 0; charsets[i] && (i == 0 || strncmp(type, "text/", 5) == 0); i++)
        if (strlen(charsets[i]) == charset_len && strncasecmp(charset, charsets[i], charset_len) == 0)
            return true;
    return false;
}

static bool has_body(const struct request *r)
{
    const char *length = r->header.content_length;

    return r->route->body != BODY_NONE && length && length[strspn(length, "0")] != '\0';
}

static bool type_fits(const struct request *r)
{
    static const char *const types[BODY_TYPE_COUNT][2] = {
        [BODY_JSON] = {"application/json"},
        [BODY_PATCH] = {"application/json", "application/merge-patch+json"},
        [BODY_CSV] = {"text/csv"},
        [BODY_TEXT] = {"text/plain", "text/csv"},
    };
    const char *type = r->header.content_type;

    if (!has_body(r))
        return true; /* no body has no type: a missing body is reported as such */
    for (size_t i = 0; i < 2; i++)
        if (type && types[r->route->body][i] && router_has_type(type, types[r->route->body][i]))
            return true;
    return false;
}

/* The key from a header field: bare, or an sf-string in double quotes. NULL: not a key. */
static const char *parse_key(struct request *r)
{
    const char *from = r->header.idempotency_key;
    bool quoted = from && *from == '"';
    char *key, *to;

    if (!from)
        return NULL;
    from += quoted;
    key = to = arena_alloc(&r->arena, KEY_MAX + 1);
    for (; *from && !(quoted && *from == '"'); from++) {
        if (quoted && *from == '\\' && *++from != '"' && *from != '\\')
            return NULL;
        if (*from < 0x20 || *from > 0x7E || to - key == KEY_MAX)
            return NULL;
        *to++ = *from;
    }
    if (quoted && (*from != '"' || from[1]))
        return NULL;
    return to > key ? key : NULL;
}

/* The body's table; pages have tables with fewer members. */
static const struct field_table *table_of(const struct request *r)
{
    const struct field_table *table = r->route->table;

    if (r->role != ROLE_PUBLIC)
        return table;
    assert(table == &take_table || table == &resolve_table);
    return table == &take_table ? &public_take_table : &public_resolve_table;
}

/* Read the body by the route's table; faults are in r->errors. */
static void read_table(struct request *r)
{
    const struct field_table *table = table_of(r);
    bool none = (r->route->flags & ROUTE_BODY_OPTIONAL) && r->body_len == 0;
    struct json_object *o JSON_IN_AUTO = none ? json_in("{}", 2, &r->errors)
                                               : json_in_typed(r->body ? r->body : "", r->body_len, &r->errors);

    if (!o)
        return;
    r->in = arena_alloc(&r->arena, table->size);
    fields_read(table, o, "", r->in, &r->errors);
}

static bool knows_parameter(const struct route *route, const char *name)
{
    for (const char *const *known = route->query; known && *known; known++)
        if (strcmp(*known, name) == 0)
            return true;
    return false;
}

/* NULL: the call only reads, or knows all query parameters. Else what is wrong. */
static const char *unknown_parameter(struct request *r)
{
    struct buf detail = BUF_INIT;
    const char *copy;
    size_t i = 0;

    while (i < r->path.query_count && (r->method == METHOD_GET || knows_parameter(r->route, r->path.query[i].name)))
        i++;
    if (i == r->path.query_count)
        return NULL;
    buf_puts(&detail, "This call has no query parameter ");
    path_encode(r->path.query[i].name, &detail);
    buf_putc(&detail, '.');
    copy = arena_strdup(&r->arena, detail.data);
    buf_free(&detail);
    return copy;
}

/* The body has arrived: the remaining checks, then the handler. */
static enum handled dispatch(struct request *r)
{
    const struct route *route = r->route;
    const char *unknown = unknown_parameter(r);

    if (r->broken)
        return reply_problem(r, CPN_BAD_REQUEST, "The body's length does not match its Content-Length.");
    if (r->crowded)
        return reply_problem(r, CPN_BUSY, "Too many large request bodies are in progress.");
    if (r->coupon && (!coupon_id_valid(r->coupon) || !limits_cover(r, r->coupon)))
        return reply_problem(r, CPN_COUPON_NOT_FOUND, NULL);
    if ((route->flags & ROUTE_IF_MATCH) && !r->header.if_match)
        return request_refuse(r, CPN_PRECONDITION_REQUIRED, NULL);
    if (patterns[router_number(route)].user && !(r->params[0] = user_name(r->params[0], &r->arena)))
        return request_refuse(r, CPN_BAD_REQUEST, "The user in the address " USER_RULE ".");
    if (unknown && !(route->flags & ROUTE_IF_MATCH)) /* whose handler refuses all faults, after version_changed */
        return request_refuse(r, CPN_BAD_REQUEST, unknown);
    if (unknown)
        errors_add(&r->errors, "", unknown);
    if (route->table)
        read_table(r);
    if (r->errors.count && !(route->flags & ROUTE_IF_MATCH))
        return request_refuse(r, CPN_BAD_REQUEST, NULL);
    if (r->session) /* its body is large */
        return route->start(r);
    if ((route->flags & ROUTE_STREAM) || ((route->flags & ROUTE_CSV_STREAM) && accept_prefers_csv(r)))
        return request_to_stream(r, route->start);
    return route->flags & ROUTE_BLOCKS ? request_to_blocking_pool(r, route->start) : route->start(r);
}

/* Read the body, unless the handler does. A large one: on a thread that may block. */
static enum handled read_body(struct request *r)
{
    if (!body_is_list(r->route->body))
        reactor_read_body(r, r->route->body_max);
    return dispatch(r);
}

/* The caller is known, if it must be. */
static enum handled check(struct request *r)
{
    const struct route *route = r->route;
    const char *length = r->header.content_length, *coding = r->header.content_encoding, *detail;

    if (!route)
        return r->bad_target ? early(r, CPN_BAD_REQUEST, "The path contains an invalid percent-escape or a NUL byte.")
               : r->allowed ? not_allowed(r) : early(r, CPN_NOT_FOUND, NULL);
    detail = not_acceptable(r, router_offers(route));
    if (detail)
        return early(r, CPN_NOT_ACCEPTABLE, detail);
    if (has_body(r) && coding && *coding && strcasecmp(coding, "identity") != 0) {
        reply_header(r, "Accept-Encoding", "identity");
        return early(r, CPN_UNSUPPORTED_MEDIA_TYPE, "Send the body as it is, without Content-Encoding.");
    }
    if (!type_fits(r)) {
        if (route->body == BODY_PATCH)
            reply_header(r, "Accept-Patch", "application/merge-patch+json, application/json");
        return early(r, CPN_UNSUPPORTED_MEDIA_TYPE, NULL);
    }
    if (route->body != BODY_NONE && length && strlen(length) < 19 && strtoll(length, NULL, 10) > (int64_t)route->body_max)
        return early(r, CPN_TOO_LARGE, NULL);
    if (route->flags & (ROUTE_KEY | ROUTE_KEY_OPTIONAL)) {
        r->key = parse_key(r);
        if (!r->key && ((route->flags & ROUTE_KEY) || r->header.idempotency_key))
            return early(r, CPN_IDEMPOTENCY_KEY_REQUIRED, NULL);
    }
    r->unread = body_is_list(route->body) || r->slow;
    if (!r->slow)
        return read_body(r);
    if (route->flags & ROUTE_STREAM)
        return request_to_stream(r, read_body);
    return request_to_blocking_pool(r, read_body) == PENDING ? PENDING : answered_early(r);
}

/* nginx asks whether a large body may be sent: yes where one is read. Nothing is done yet. */
static enum handled admit_body(struct request *r)
{
    r->only_asked = r->route && r->route->body_max > BODY_MAX;
    if (r->only_asked)
        return reply_empty(r, 204);
    return early(r, r->bad_target ? CPN_BAD_REQUEST : CPN_NOT_FOUND, NULL);
}

/* The caller's role is known. */
static enum handled permit(struct request *r)
{
    if (!limits_admit(r))
        return answered_early(r);
    if (r->route && !(r->route->roles & ROLE_BIT(r->role)))
        return early(r, CPN_FORBIDDEN, NULL);
    return r->header.key_only ? admit_body(r) : check(r);
}

static enum handled authorize(struct request *r)
{
    enum auth_answer answer = auth_check(r->worker->auth, r);

    r->shown = true; /* any page may see that its key is invalid */
    if (answer == AUTH_OK) {
        if (r->auth_waited)
            guess_limit_key_end(r);
        return permit(r);
    }
    if (!r->auth_waited && !guess_limit_key(r))
        return answered_early(r);
    if (answer == AUTH_UNKNOWN && !r->auth_waited) {
        r->auth_waited = true;
        r->then = authorize;
        return auth_wait(r->worker->auth, r);
    }
    if (answer == AUTH_UNKNOWN && r->auth_failed) {
        guess_limit_key_end(r);
        return early(r, CPN_BUSY, "The key cannot be checked now: the database does not answer.");
    }
    return early(r, CPN_UNAUTHORIZED, NULL);
}

enum handled router_begin(struct request *r)
{
    unsigned flags = router_find(r);
    bool open = (flags & ROUTE_OPEN) || ((flags & ROUTE_METRICS) && r->header.metrics_open && !r->header.authorization);

    if (r->allowed && open && !r->header.key_only)
        return check(r);
    return authorize(r);
}
