/* http/coupons.c -- definitions: POST, GET, PATCH, DELETE, the list, and the live counts. */
#include <string.h>

#include "base/ids.h"
#include "http/aux.h"
#include "http/coupon_body.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/list.h"
#include "http/reply.h"

#define CHANGE_TRIES 16 /* of a PATCH with If-Match: * that loses to others */

/* "/coupons/<id>", for Location. */
static void location(struct request *r, const char *id)
{
    reply_header(r, "Location", arena_printf(&r->arena, "/coupons/%s", id));
}

static enum handled reply_definition(struct request *r, const struct coupon *c, int status)
{
    struct json j = reply_body(r);

    coupon_write(c, &j, false);
    reply_etag(r, c->version);
    reply_header(r, "Cache-Control", "no-cache");
    reply_header(r, "Vary", "Authorization");
    return reply_json(r, status);
}

/* True when the database knows the zone. Notes a fault when not; *answered when it could not be asked. */
static bool zone_exists(struct request *r, const char *zone, bool *answered)
{
    int64_t start_ms, end_ms;
    enum store_status s = r->door->ops->day(r->door, zone, clock_now_ms(), &start_ms, &end_ms);

    *answered = s != STORE_OK && s != STORE_NO_ZONE;
    if (*answered)
        reply_problem(r, CPN_BUSY, NULL);
    else if (s == STORE_NO_ZONE)
        errors_add(&r->errors, "/time_zone", "is not the name of an IANA time zone, such as Europe/Berlin");
    return s == STORE_OK;
}

enum handled coupon_create(struct request *r)
{
    struct jsonc_object *o JSON_IN_AUTO = json_in(r->body ? r->body : "", r->body_len, &r->errors);
    struct coupon *c = arena_alloc(&r->arena, sizeof *c);
    bool answered;

    coupon_init(c);
    if (o)
        coupon_read(o, c, &r->errors);
    if (r->errors.count == 0 && !zone_exists(r, c->time_zone, &answered) && answered)
        return ANSWERED;
    if (r->errors.count)
        return reply_problem(r, CPN_BAD_REQUEST, NULL);
    if (!c->id) {
        char *id = arena_alloc(&r->arena, ID_SHORT_LEN + 1);

        id_random(id, ID_SHORT_LEN);
        c->id = id;
    }
    r->coupon = c->id;
    request_op(r, OP_CREATE);
    r->op.definition = c;
    if (request_call(r) != CPN_OK)
        return reply_refusal(r);
    location(r, c->id);
    return reply_definition(r, r->op.coupon_now, 201);
}

/* ---- reading ---- */

static enum handled got(struct request *r)
{
    const struct coupon *c = r->op.coupon_now;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    if (r->role == ROLE_STOREFRONT && c->state != COUPON_ACTIVE)
        return reply_problem(r, CPN_COUPON_NOT_FOUND, NULL);
    if (reply_not_modified(r, c->version)) {
        reply_etag(r, c->version);
        reply_header(r, "Vary", "Authorization");
        return ANSWERED;
    }
    return reply_definition(r, c, 200);
}

enum handled coupon_get(struct request *r)
{
    request_op(r, OP_COUPON);
    return request_submit(r, got);
}

static void key_int_or_null(struct json *j, const char *name, bool there, int64_t value)
{
    json_key(j, name);
    if (there)
        json_int(j, value);
    else
        json_null(j);
}

/* Taken above the total, which can be passed where there are no slots. */
static int64_t taken_over(const struct coupon *c, const struct head *h)
{
    int64_t over = policy_of(c)->total && !policy_of(c)->slots ? head_taken(h) - c->cap.total : 0;

    return over > 0 ? over : 0;
}

static enum handled counted(struct request *r)
{
    const struct head *h = &r->op.head;
    bool slots;
    struct json j;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    slots = policy_of(r->op.coupon_now)->slots;
    j = reply_body(r);
    json_object(&j);
    key_int_or_null(&j, "slots", slots, h->slots - h->due);
    key_int_or_null(&j, "free", slots, head_free(h));
    json_key_int(&j, "issued", h->issued);
    json_key_int(&j, "reserved", h->reserved);
    json_key_int(&j, "redeemed", h->redeemed);
    json_key_int(&j, "over", taken_over(r->op.coupon_now, h));
    json_key_int(&j, "taken_total", head_taken(h));
    json_key_int(&j, "today", h->day_taken);
    json_key_int(&j, "discount_minor", h->discount_minor);
    json_key_int(&j, "seq", r->op.seq);
    if (r->op.seqs) {
        json_key(&j, "seqs");
        json_array(&j);
        for (int64_t lane = 0; lane < r->op.coupon_now->lanes; lane++)
            json_int(&j, r->op.seqs[lane]);
        json_end_array(&j);
    }
    json_key_time(&j, "as_of", r->op.at_ms);
    json_end_object(&j);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

enum handled coupon_counts(struct request *r)
{
    request_op(r, OP_COUPON);
    return request_submit(r, counted);
}

enum handled coupon_list(struct request *r)
{
    static const char *const states[] = {"draft", "active", "paused", "ended", NULL};
    struct coupon **coupons;
    enum store_status s = STORE_OK;
    const char *next = NULL;
    size_t count = 0;
    struct list l;
    struct json j;
    bool active = false, nothing;
    int state = -1;

    if (!query_enum(r, "state", states, &state) || !query_bool(r, "active", &active) || !list_begin(r, &l))
        return ANSWERED;
    nothing = r->role == ROLE_STOREFRONT && state >= 0 && state != COUPON_ACTIVE;
    if (r->role == ROLE_STOREFRONT)
        state = COUPON_ACTIVE;
    aux_barrier();
    if (!nothing)
        s = mongo_coupons(r->door, state, active ? clock_now_ms() : 0, l.position, l.limit, &r->arena, &coupons, &count,
                          &next);
    if (s != STORE_OK)
        return reply_problem(r, s == STORE_NOT_FOUND ? CPN_BAD_CURSOR : CPN_BUSY, NULL);
    j = list_items(r);
    for (size_t i = 0; i < count; i++)
        coupon_write(coupons[i], &j, false);
    json_end_array(&j);
    return list_end(r, &j, next);
}

/* ---- changing ---- */

static enum handled reply_change_refusal(struct request *r)
{
    struct outcome *o = &r->op.outcome;

    if (o->result == CPN_FIELD_FIXED && o->detail) {
        errors_add(&r->errors, o->detail, "cannot change once slots or redemptions exist");
        o->detail = NULL;
    }
    return reply_refusal(r);
}

/* One try: the definition as it is now, patched, sent. True: answered. */
static bool try_change(struct request *r, struct jsonc_object *patch)
{
    const struct coupon *now;
    struct coupon *next;
    bool any, answered = false;

    if (!request_coupon(r))
        return true;
    now = r->op.coupon_now;
    if (!if_match_passes(r->header.if_match, now->version, &any)) {
        reply_problem(r, CPN_VERSION_CHANGED, NULL);
        return true;
    }
    if (!patch) {
        reply_problem(r, CPN_BAD_REQUEST, NULL);
        return true;
    }
    next = coupon_patch(now, patch, &r->errors);
    if (r->errors.count == 0 && strcmp(now->time_zone, next->time_zone) != 0 &&
        !zone_exists(r, next->time_zone, &answered) && answered)
        return true;
    if (r->errors.count) {
        reply_problem(r, CPN_BAD_REQUEST, NULL);
        return true;
    }
    request_op(r, OP_CHANGE);
    r->op.definition = next;
    r->op.expected_version = now->version;
    if (request_call(r) == CPN_OK) {
        reply_definition(r, r->op.coupon_now, 200);
        return true;
    }
    if (r->op.outcome.result == CPN_VERSION_CHANGED && any)
        return false;
    reply_change_refusal(r);
    return true;
}

enum handled coupon_change(struct request *r)
{
    struct jsonc_object *patch JSON_IN_AUTO = json_in(r->body ? r->body : "", r->body_len, &r->errors);

    for (int i = 0; i < CHANGE_TRIES; i++)
        if (try_change(r, patch))
            return ANSWERED;
    return reply_problem(r, CPN_BUSY, NULL);
}

static enum handled deleted(struct request *r)
{
    return r->op.outcome.result == CPN_OK ? reply_empty(r, 204) : reply_refusal(r);
}

static enum handled send_delete(struct request *r)
{
    request_op(r, OP_DELETE);
    return request_submit(r, deleted);
}

/* If-Match was given: is it this version? A change that comes between is only one of a coupon that nobody uses. */
static enum handled delete_if_matched(struct request *r)
{
    bool any;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    if (!if_match_passes(r->header.if_match, r->op.coupon_now->version, &any))
        return reply_problem(r, CPN_VERSION_CHANGED, NULL);
    return send_delete(r);
}

enum handled coupon_delete(struct request *r)
{
    if (!r->header.if_match)
        return send_delete(r);
    request_op(r, OP_COUPON);
    return request_submit(r, delete_if_matched);
}
