/* http/webhooks.c -- webhook subscriptions: creates, changes and deletes them; lists their deliveries. See deliver/. */
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/ids.h"
#include "base/signature.h"
#include "base/utf8.h"
#include "http/fields.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"
#include "store/hooks.h"

#define HOOKS_MOST 100   /* most webhooks */
#define COUPONS_MOST 100 /* most coupons that one names */
#define ID_PARAM_MAX 64
#define CHANGE_ATTEMPTS 4
#define SKEW_MS 250
#define KEEP_S (24 * 3600)         /* how long an old secret still signs */
#define KEEP_S_MAX (30 * 24 * 3600)

static const char *const event_names[] = {
#define X(type, name) name,
    EVENT_TYPES(X)
#undef X
    NULL,
};

static const char *const states[] = {"enabled", "disabled", NULL};

/* ---- JSON ---- */

/* secret NULL: not shown. */
static void write_hook(struct json *j, const struct hook *h, const char *secret)
{
    json_begin_object(j);
    json_key_string(j, "id", h->id);
    json_key_string(j, "url", h->url);
    json_key(j, "events");
    json_begin_array(j);
    for (unsigned t = 0; t < EVENT_TYPE_COUNT; t++)
        if (h->events & (1u << t))
            json_string(j, event_names[t]);
    json_end_array(j);
    json_key(j, "coupons");
    if (h->coupons.count) {
        json_begin_array(j);
        for (size_t i = 0; i < h->coupons.count; i++)
            json_string(j, h->coupons.items[i]);
        json_end_array(j);
    } else {
        json_null(j);
    }
    json_key_string(j, "state", states[!h->enabled]);
    json_key_string(j, "reason", h->reason);
    json_key_time_or_null(j, "failing_since", h->failing_ms);
    json_key_time_or_null(j, "old_secret_until", h->old_until_ms > clock_now_ms() ? h->old_until_ms : 0);
    json_key_time(j, "created_at", h->created_ms);
    json_key_time(j, "changed_at", h->changed_ms);
    if (secret)
        json_key_string(j, "secret", secret);
    json_end_object(j);
}

static enum handled reply_hook(struct request *r, int status, const struct hook *h, const char *secret)
{
    struct json j = reply_body(r);

    write_hook(&j, h, secret);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, status);
}

static enum handled reply_test(struct request *r, int64_t asked_ms)
{
    struct buf event = BUF_INIT;
    struct json j = reply_body(r);

    event_id("-", 0, 0, asked_ms, 0, &event);
    json_begin_object(&j);
    json_key_string(&j, "event", event.data);
    json_key_time(&j, "asked_at", asked_ms);
    json_end_object(&j);
    buf_free(&event);
    return reply_json(r, 202);
}

static void write_delivery(struct json *j, const struct delivery *delivery)
{
    struct buf event = BUF_INIT;

    event_id(delivery->coupon, delivery->lane, delivery->epoch, delivery->seq, delivery->index, &event);
    json_begin_object(j);
    json_key_string(j, "id", delivery->id);
    json_key_string(j, "event", event.data);
    json_key_string(j, "type", event_type_name((enum event_type)delivery->type));
    json_key_string(j, "coupon", delivery->coupon);
    json_key_int(j, "lane", delivery->lane);
    json_key_int(j, "seq", delivery->seq);
    json_key_string(j, "state", delivery->succeeded ? "succeeded" : "failed");
    json_key_int(j, "attempt", delivery->attempt);
    json_key_time(j, "at", delivery->at_ms);
    json_key_int(j, "took_ms", delivery->took_ms);
    json_key_int_or_null(j, "status", delivery->status, delivery->status);
    json_key_string(j, "response", delivery->snippet);
    json_key_string(j, "error", delivery->error);
    json_key_string(j, "redelivery_of", delivery->again_of);
    json_key_time_or_null(j, "redelivery_asked_at", delivery->asked_ms);
    json_end_object(j);
    buf_free(&event);
}

/* ---- bodies ---- */

#define HOOK(member) offsetof(struct hook, member)
#define ROW_SECRET(offset)                                                                                             \
    {"secret", ROW_STRING, (offset), 1, SECRET_TEXT_SIZE - 1, .flags = ROW_NULLABLE, .valid = secret_valid,            \
     .rule = "must be whsec_ followed by the base64 of 24 to 64 bytes"}

static void read_url(struct request *r, struct json_object *o, struct hook *h)
{
    static const struct field_row url_row = {"url", ROW_STRING, HOOK(url), 1, ADDRESS_URL_MAX, .flags = 0};
    const struct config *c = r->worker->config;
    const struct address_rules rules = {c->webhooks_http != 0, c->webhooks_networks};
    const char *fault;

    if (!row_read(&url_row, o, "/url", h, &r->errors))
        return;
    fault = address_url_fault(h->url, &rules);
    if (fault)
        errors_add(&r->errors, "/url", fault);
}

/* The array of event types, as bits. */
static void read_events(struct request *r, struct json_object *o, struct hook *h)
{
    static const struct field_row type_row = {"events", ROW_ENUM, 0, 0, 0, .names = event_names};
    size_t count = json_object_is_type(o, json_type_array) ? json_object_array_length(o) : 0;

    if (count < 1 || count > EVENT_TYPE_COUNT)
        errors_add(&r->errors, "/events", arena_printf(&r->arena, "must be an array of 1 to %d strings", EVENT_TYPE_COUNT));
    h->events = 0;
    for (size_t i = 0; i < count && count <= EVENT_TYPE_COUNT; i++) {
        const char *at = pointer_to_index(&r->arena, "/events", i);
        int64_t type;

        if (!row_read(&type_row, json_object_array_get_idx(o, i), at, &type, &r->errors))
            continue;
        if (h->events & (1u << type))
            errors_add(&r->errors, at, "duplicate value");
        h->events |= 1u << type;
    }
}

static void read_state(struct request *r, struct json_object *o, struct hook *h)
{
    static const struct field_row state_row = {"state", ROW_ENUM, 0, 0, 0, .names = states};
    int64_t state;

    if (!row_read(&state_row, o, "/state", &state, &r->errors))
        return;
    h->enabled = state == 0;
    h->reason = h->enabled ? NULL : "asked";
}

enum { FOR_CREATION = 1, FOR_CHANGE = 2 };

/* Each is read by a function, or else by its row. */
static const struct {
    unsigned when;
    void (*read)(struct request *r, struct json_object *o, struct hook *h);
    struct field_row row;
} members[] = {
    {FOR_CREATION | FOR_CHANGE, read_url, {.name = "url"}},
    {FOR_CREATION | FOR_CHANGE, read_events, {.name = "events"}},
    {FOR_CREATION, NULL, {"coupons", ROW_STRINGS, HOOK(coupons), 1, COUPONS_MOST, .flags = ROW_NULLABLE, .valid = coupon_id_valid,
                          .rule = "must be a coupon's id"}},
    {FOR_CREATION, NULL, ROW_SECRET(HOOK(secret))},
    {FOR_CHANGE, read_state, {.name = "state"}},
};

/* Apply the body's members to h. False: see r->errors. */
static bool read_hook(struct request *r, unsigned when, struct hook *h)
{
    struct json_object *o JSON_IN_AUTO = json_in(r->body ? r->body : "", r->body_len, &r->errors);

    if (!o)
        return false;
    JSONC_FOREACH(o, member) {
        const char *name = jsonc_name(member), *at = pointer_to(&r->arena, "", name);
        const size_t count = sizeof members / sizeof *members;
        size_t i = 0;

        while (i < count && (strcmp(members[i].row.name, name) != 0 || !(members[i].when & when)))
            i++;
        if (i == count)
            errors_add(&r->errors, at, strcmp(name, "coupons") == 0 ? "cannot change; create another webhook for other coupons"
                                                                    : "is not a known field");
        else if (members[i].read)
            members[i].read(r, jsonc_value(member), h);
        else
            row_read(&members[i].row, jsonc_value(member), at, h, &r->errors);
    }
    return r->errors.count == 0;
}

/* ---- subscriptions ---- */

static const char *new_secret(struct request *r)
{
    char text[SECRET_TEXT_SIZE];

    secret_make(text);
    return arena_strdup(&r->arena, text);
}

/* Workers' clocks may differ by SKEW_MS. So a subscription starts a little after its request, and is answered a little after that: nothing
 * from before the request is sent, and everything after the answer is. */
static void wait_for_start(const struct hook *h)
{
    static const struct timespec pause = {0, 10 * 1000000};
    struct mono answer_at = mono_add_ms(mono_now(), h->created_ms - clock_now_ms() + SKEW_MS);

    while (mono_before(mono_now(), answer_at))
        nanosleep(&pause, NULL);
}

/* True if r's key can see everything that the webhook is about. */
static bool is_within(const struct request *r, const struct hook *h)
{
    for (size_t i = 0; i < h->coupons.count; i++)
        if (!limits_cover(r, h->coupons.items[i]))
            return false;
    return h->coupons.count || !limits_prefix(r);
}

enum handled webhook_create(struct request *r)
{
    struct hook h = {.enabled = true, .events = EVENT_TYPES_ALL, .created_ms = clock_now_ms() + SKEW_MS}, **others;
    char id[HOOK_ID_LEN + 1];
    size_t count;

    if (read_hook(r, FOR_CREATION, &h) && !h.url)
        errors_add(&r->errors, "/url", "is required");
    if (limits_prefix(r) && !h.coupons.count)
        errors_add(&r->errors, "/coupons", "is required: this key is limited to some coupons");
    if (r->errors.count)
        return reply_problem(r, CPN_BAD_REQUEST, NULL);
    if (!is_within(r, &h))
        return reply_problem(r, CPN_COUPON_NOT_FOUND, NULL);
    if (mongo_hooks(r->session, NULL, HOOKS_MOST, &r->arena, &others, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    if (count == HOOKS_MOST)
        return reply_problem(r, CPN_BAD_REQUEST, "There are already 100 webhooks, the maximum: delete one first.");
    id_random(id, HOOK_ID_LEN);
    h.id = id;
    h.changed_ms = h.created_ms;
    if (!h.secret)
        h.secret = new_secret(r);
    if (mongo_hook_insert(r->session, &h) != STORE_OK)
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
    wait_for_start(&h);
    reply_header(r, "Location", arena_printf(&r->arena, "/coupons/-/webhooks/%s", id));
    return reply_hook(r, 201, &h, h.secret);
}

static bool id_is_possible(const char *id)
{
    return strlen(id) <= ID_PARAM_MAX && utf8_valid(id, NULL);
}

/* Find the webhook that the path names. NULL: answered. */
static struct hook *find(struct request *r)
{
    struct hook *h = NULL;
    enum store_status s =
        id_is_possible(r->params[0]) ? mongo_hook(r->session, r->params[0], &r->arena, &h) : STORE_NOT_FOUND;

    if (s == STORE_OK && !is_within(r, h))
        s = STORE_NOT_FOUND;
    if (s == STORE_OK)
        return h;
    if (s == STORE_NOT_FOUND)
        reply_problem(r, CPN_NOT_FOUND, "No webhook has this id.");
    else
        reply_problem(r, CPN_BUSY, NULL);
    return NULL;
}

enum handled webhook_get(struct request *r)
{
    struct hook *h = find(r);

    return h ? reply_hook(r, 200, h, NULL) : ANSWERED;
}

enum handled webhook_list(struct request *r)
{
    struct hook **hooks;
    enum store_status s;
    size_t count;
    struct list l;
    struct json j;

    if (!list_begin(r, &l))
        return ANSWERED;
    s = mongo_hooks(r->session, l.position, l.limit, &r->arena, &hooks, &count);
    if (s != STORE_OK)
        return list_failed(r, s, "webhook");
    j = list_items(r);
    for (size_t i = 0; i < count; i++)
        if (is_within(r, hooks[i]))
            write_hook(&j, hooks[i], NULL);
    return list_end(r, &l, &j, count == l.limit ? hooks[count - 1]->id : NULL);
}

/* Change the webhook by `apply`; retry if somebody else changed it meanwhile. NULL: answered. */
static struct hook *change(struct request *r, bool (*apply)(struct request *r, struct hook *h))
{
    for (int attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
        struct hook *h = find(r);
        enum store_status s;
        int64_t was_ms;

        if (!h)
            return NULL;
        was_ms = h->changed_ms;
        h->changed_ms = clock_now_ms() > was_ms ? clock_now_ms() : was_ms + 1;
        if (!apply(r, h)) {
            reply_problem(r, CPN_BAD_REQUEST, NULL);
            return NULL;
        }
        if (h->enabled && mongo_positions_restart(r->session, h->id) != STORE_OK)
            break;
        s = mongo_hook_change(r->session, h, was_ms);
        if (s == STORE_OK)
            return h;
        if (s == STORE_FAILED)
            break;
    }
    reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
    return NULL;
}

static bool apply_body(struct request *r, struct hook *h)
{
    if (!read_hook(r, FOR_CHANGE, h))
        return false;
    if (h->enabled)
        h->failing_ms = 0;
    return true;
}

enum handled webhook_change(struct request *r)
{
    const struct hook *h = change(r, apply_body);

    return h ? reply_hook(r, 200, h, NULL) : ANSWERED;
}

enum handled webhook_delete(struct request *r)
{
    const struct hook *h = find(r);

    if (!h)
        return ANSWERED;
    if (mongo_hook_remove(r->session, h->id) == STORE_FAILED)
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
    return reply_empty(r, 204);
}

/* ---- secrets ---- */

struct rotation {
    const char *secret;
    int64_t keep_s;
};

static const struct field_row rotation_rows[] = {
    {"keep_s", ROW_INT, offsetof(struct rotation, keep_s), 0, KEEP_S_MAX, .flags = 0},
    ROW_SECRET(offsetof(struct rotation, secret)),
};
static const struct rotation rotation_start = {NULL, KEEP_S};
const struct field_table webhook_rotate_table = FIELD_TABLE(rotation_rows, rotation_start, NULL);

/* The newest two sign; older ones are dropped. */
static bool apply_rotation(struct request *r, struct hook *h)
{
    const struct rotation *in = r->in;

    h->old_secret = in->keep_s ? h->secret : NULL;
    h->old_until_ms = in->keep_s ? h->changed_ms + in->keep_s * 1000 : 0;
    h->secret = in->secret ? in->secret : new_secret(r);
    return true;
}

enum handled webhook_rotate(struct request *r)
{
    const struct hook *h = change(r, apply_rotation);

    return h ? reply_hook(r, 200, h, h->secret) : ANSWERED;
}

/* ---- tests ---- */

/* Request a test, or return the pending one. */
enum handled webhook_test(struct request *r)
{
    for (int attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
        const int64_t now_ms = clock_now_ms();
        struct hook *h = find(r);
        enum store_status s;

        if (!h)
            return ANSWERED;
        if (h->test_ms)
            return reply_test(r, h->test_ms);
        s = mongo_hook_ask_test(r->session, h->id, now_ms);
        if (s == STORE_OK)
            return reply_test(r, now_ms);
        if (s == STORE_FAILED)
            break;
    }
    return reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
}

/* ---- deliveries ---- */

enum handled webhook_deliveries(struct request *r)
{
    static const char *const outcomes[] = {"failed", "succeeded", NULL};
    struct delivery **deliveries;
    enum store_status s;
    int outcome = -1;
    struct list l;
    struct json j;
    size_t count;

    if (!list_begin(r, &l) || !query_enum(r, "state", outcomes, &outcome) || !find(r))
        return ANSWERED;
    s = mongo_deliveries(r->session, r->params[0], outcome, l.position, l.limit, &r->arena, &deliveries, &count);
    if (s != STORE_OK)
        return list_failed(r, s, "delivery");
    j = list_items(r);
    for (size_t i = 0; i < count; i++)
        write_delivery(&j, deliveries[i]);
    return list_end(r, &l, &j, count == l.limit ? deliveries[count - 1]->id : NULL);
}

enum handled webhook_redeliver(struct request *r)
{
    const struct hook *h = find(r);
    struct delivery *delivery = NULL;
    enum store_status s;
    struct json j;

    if (!h)
        return ANSWERED;
    s = id_is_possible(r->params[1]) ? mongo_delivery(r->session, h->id, r->params[1], &r->arena, &delivery) : STORE_NOT_FOUND;
    if (s == STORE_OK && !delivery->asked_ms) {
        delivery->asked_ms = clock_now_ms();
        s = mongo_delivery_ask(r->session, delivery->id, delivery->asked_ms);
    }
    if (s == STORE_NOT_FOUND)
        return reply_problem(r, CPN_NOT_FOUND, "This webhook has no delivery with this id.");
    if (s != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    j = reply_body(r);
    write_delivery(&j, delivery);
    return reply_json(r, 202);
}
