/* http/coupons.c -- definitions: POST, GET, PATCH, DELETE, the list, and live counts. */
#include <string.h>
#include <time.h>

#include "base/ids.h"
#include "http/conditional.h"
#include "http/coupon_body.h"
#include "http/fields.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"

#define CHANGE_TRIES 16 /* attempts of a PATCH with If-Match: * that loses to others */
#define SLOTS_MAX INT64_C(1000000000)
#define AS_MANY_AS_TOTAL (-1)
#define CODES_AWAITED 1000 /* the answer to a new coupon waits for up to this many codes, */
#define CODES_AWAITED_MS 1000 /* and for this long: others need the thread */
#define LOOK_NS (20 * 1000000)

/* job: the one that makes its slots; NULL: none to be named. missing: slots that nobody makes. */
static enum handled reply_definition(struct request *r, const struct coupon *c, const char *job, int64_t missing, int status)
{
    struct json j = reply_body(r);

    json_begin_object(&j);
    coupon_write_members(c, &j);
    if (job)
        json_key_string(&j, "job", job);
    if (missing > 0)
        json_key_int(&j, "slots_missing", missing);
    json_end_object(&j);
    reply_etag(r, c->version);
    reply_header(r, "Cache-Control", "no-cache");
    reply_header(r, "Vary", "Authorization");
    return reply_json(r, status);
}

/* True if the database knows the zone; else a fault is recorded. *answered: it could not be asked, and the request is answered. */
static bool zone_exists(struct request *r, const char *zone, bool *answered)
{
    int64_t start_ms, end_ms;
    enum store_status s = r->session->ops->day(r->session, zone, clock_now_ms(), &start_ms, &end_ms);

    *answered = s != STORE_OK && s != STORE_NO_ZONE;
    if (*answered)
        reply_problem(r, CPN_BUSY, NULL);
    else if (s == STORE_NO_ZONE)
        errors_add(&r->errors, "/time_zone", "is not the name of an IANA time zone, such as Europe/Berlin");
    return s == STORE_OK;
}

/* ---- making ---- */

/* Take the member out of o: AS_MANY_AS_TOTAL for true, 0 for false or none; or a number of slots, if that may be given. */
static int64_t take_member(struct json_object *o, const char *name, bool may_count, struct errors *e)
{
    const struct field_row row = {name, ROW_INT, 0, 1, SLOTS_MAX, .flags = 0};
    const char *pointer = pointer_to(e->arena, "", name);
    struct json_object *value;
    int64_t count = 0;

    if (!json_object_object_get_ex(o, name, &value))
        return 0;
    if (json_object_is_type(value, json_type_boolean))
        count = json_object_get_boolean(value) ? AS_MANY_AS_TOTAL : 0;
    else if (may_count && (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double)))
        row_read(&row, value, pointer, &count, e);
    else
        errors_add(e, pointer, may_count ? "must be true, false or an integer" : "must be true or false");
    json_object_object_del(o, name);
    return count;
}

/* True if slots can be made for c. Else a fault is recorded. */
static bool may_generate(const struct coupon *c, struct errors *e)
{
    bool slots = policy_of(c)->slots, imported = c->codes.source == CODES_IMPORTED;

    if (!slots)
        errors_add(e, "/generate", "requires the cap.policy exact: a coupon with another policy has no slots");
    else if (imported)
        errors_add(e, "/generate", "cannot be combined with imported codes: each becomes a slot when it is imported");
    return slots && !imported;
}

/* Slots to be made with c. Records a fault if they cannot be. */
static int64_t slots_to_make(const struct coupon *c, int64_t generate, struct errors *e)
{
    int64_t count = generate == AS_MANY_AS_TOTAL ? c->cap.total : generate;

    if (generate && may_generate(c, e) && c->cap.total != COUPON_NULL && count > c->cap.total)
        errors_add(e, "/generate", "must be at most cap.total");
    return count;
}

/* False: the database did not answer. */
static bool hash_key(struct request *r, uint8_t hash[KEY_HASH_LEN])
{
    struct key_secret secret;

    if (r->session->ops->key_secret(r->session, &secret) != STORE_OK)
        return false;
    key_hash(&secret, KEY_OF_COUPON, r->key, hash);
    return true;
}

/* With a key, a repeat makes the same id. NULL: the database did not answer. */
static const char *new_id(struct request *r)
{
    const char *prefix = limits_prefix(r);
    uint8_t hash[KEY_HASH_LEN];
    char id[ID_SHORT_LEN + 1];

    _Static_assert(sizeof hash >= ID_SHORT_LEN, "a byte for each character");
    _Static_assert(KEY_COUPONS_MAX + ID_SHORT_LEN <= COUPON_ID_MAX, "the prefix leaves room");
    if (r->key) {
        if (!hash_key(r, hash))
            return NULL;
        id_of_bytes(hash, id, ID_SHORT_LEN);
    } else {
        id_random(id, ID_SHORT_LEN);
    }
    return arena_printf(&r->arena, "%s%s", prefix ? prefix : "", id);
}

/* True if the job has made all its slots within CODES_AWAITED_MS and the request's time. */
static bool job_is_done_in_time(struct request *r, const char *id)
{
    struct mono until = mono_add_ms(mono_now(), CODES_AWAITED_MS);
    enum store_status s = STORE_OK;
    struct job *job = NULL;

    if (mono_before(r->op.deadline, until))
        until = r->op.deadline;
    while (s != STORE_FAILED && mono_before(mono_now(), until)) {
        s = mongo_job(r->session, id, &r->arena, &job);
        if (s == STORE_OK && job->state != JOB_QUEUED && job->state != JOB_RUNNING)
            return job->state == JOB_DONE;
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return false;
}

/* c is in the ledger, with that key, and `job` is to make its slots; NULL: they exist. */
static enum handled reply_created(struct request *r, const struct coupon *c, int64_t slots, const char *job, const char *by,
                                  bool replayed)
{
    const struct job wanted = {.id = job, .kind = JOB_GENERATE, .coupon = c->id, .total = slots, .key = JOB_KEY_FIRST_SLOTS, .by = by};

    if (job && mongo_job_ask(r->session, &wanted) != STORE_OK)
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
    if (job && slots <= CODES_AWAITED && job_is_done_in_time(r, job))
        job = NULL;
    reply_header(r, "Location", arena_printf(&r->arena, "/coupons/%s", c->id));
    if (replayed)
        reply_header(r, "Idempotent-Replayed", "true");
    return reply_definition(r, c, job, 0, 201);
}

static const char *definition_text(struct request *r, const struct coupon *c)
{
    struct buf text = BUF_INIT;
    struct json j = json_to(&text);
    const char *copy;

    coupon_write(c, &j, false);
    copy = arena_strdup(&r->arena, text.data);
    buf_free(&text);
    return copy;
}

/* The coupon exists: find out if an earlier copy of this call made it. */
static enum handled reply_repeated(struct request *r, const struct coupon *c, int64_t slots)
{
    struct batch *first = NULL;
    enum store_status s = mongo_ledger_at(r->session, c->id, 0, 1, &first);
    const struct entry *e = NULL;
    uint8_t key[KEY_HASH_LEN];
    enum handled handled;

    if (s != STORE_OK || !hash_key(r, key)) {
        batch_free(first);
        return reply_problem(r, CPN_BUSY, NULL);
    }
    for (size_t i = 0; i < first->count && !e; i++)
        e = first->entries[i].kind == ENTRY_DEFINE ? &first->entries[i] : NULL;
    if (!e || memcmp(key, e->key, sizeof key) != 0)
        handled = reply_refusal(r);
    else if (e->count != slots || strcmp(definition_text(r, c), definition_text(r, e->definition)) != 0)
        handled = reply_problem(r, CPN_IDEMPOTENCY_KEY_REUSED, NULL);
    else
        handled = reply_created(r, e->definition, e->count, e->job, e->by, true);
    batch_free(first);
    return handled;
}

static enum handled create(struct request *r, struct coupon *c, int64_t slots)
{
    char job[ID_SHORT_LEN + 1];
    enum cpn_result result;

    request_op(r, OP_CREATE);
    r->op.in.coupon = (struct op_coupon){.definition = c, .key = r->key, .slots = slots};
    if (slots && c->codes.source == CODES_GENERATED) {
        id_random(job, ID_SHORT_LEN);
        r->op.in.coupon.job = job;
    }
    result = request_call(r);
    if (result == CPN_COUPON_EXISTS && r->key)
        return reply_repeated(r, c, slots);
    return result == CPN_OK ? reply_created(r, r->op.coupon_now, slots, op_coupon(&r->op)->job, r->op.by, false) : reply_refusal(r);
}

enum handled coupon_create(struct request *r)
{
    struct json_object *o JSON_IN_AUTO = json_in(r->body ? r->body : "", r->body_len, &r->errors);
    struct coupon *c = arena_alloc(&r->arena, sizeof *c);
    int64_t generate, slots = 0;
    bool answered;

    coupon_init(c);
    if (o) {
        generate = take_member(o, "generate", true, &r->errors);
        coupon_read(o, c, &r->errors);
        slots = slots_to_make(c, generate, &r->errors);
    }
    if (r->errors.count == 0 && !zone_exists(r, c->time_zone, &answered) && answered)
        return ANSWERED;
    if (r->errors.count)
        return reply_problem(r, CPN_BAD_REQUEST, NULL);
    if (!c->id)
        c->id = new_id(r);
    if (!c->id)
        return reply_problem(r, CPN_BUSY, NULL);
    if (!limits_cover(r, c->id))
        return reply_problem(r, CPN_COUPON_NOT_FOUND, arena_printf(&r->arena, "This key is limited to coupons whose ids begin with %s.",
                                                                   limits_prefix(r)));
    r->coupon = c->id;
    return create(r, c, slots);
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
        reply_header(r, "Vary", "Authorization");
        return ANSWERED;
    }
    return reply_definition(r, c, NULL, 0, 200);
}

enum handled coupon_get(struct request *r)
{
    request_op(r, OP_COUPON);
    return request_submit(r, got);
}

/* Takings above the total, which is possible only without slots. */
static int64_t taken_over(const struct coupon *c, const struct head *h)
{
    int64_t left = policy_of(c)->slots ? 0 : policy_of(c)->left(c, h, 0);

    return left < 0 ? -left : 0;
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
    json_begin_object(&j);
    json_key_int_or_null(&j, "slots", slots, h->slots - h->retiring);
    json_key_int_or_null(&j, "free", slots, head_free(h));
    json_key_int(&j, "issued", h->issued);
    json_key_int(&j, "reserved", h->reserved);
    json_key_int(&j, "redeemed", h->redeemed);
    json_key_int(&j, "over", taken_over(r->op.coupon_now, h));
    json_key_int(&j, "taken_total", head_taken(h));
    json_key_int(&j, "today", h->day_taken);
    json_key_int(&j, "discount_minor", h->discount_minor);
    json_key_int(&j, "seq", r->op.head.seq);
    if (r->op.out.seqs) {
        json_key(&j, "seqs");
        json_begin_array(&j);
        for (int64_t lane = 0; lane < r->op.coupon_now->lanes; lane++)
            json_int(&j, r->op.out.seqs[lane]);
        json_end_array(&j);
    }
    json_key_time(&j, "as_of", r->op.head.at_ms);
    return reply_fresh(r, &j);
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
    if (mongo_see_all(r->session) != STORE_OK) /* lists what finished calls have made */
        return reply_problem(r, CPN_BUSY, NULL);
    if (!nothing)
        s = mongo_coupons(r->session, limits_prefix(r), state, active ? clock_now_ms() : 0, l.position, l.limit, &r->arena, &coupons,
                          &count, &next, &l.incomplete);
    if (s != STORE_OK)
        return list_failed(r, s, "coupon");
    j = list_items(r);
    for (size_t i = 0; i < count; i++)
        coupon_write(coupons[i], &j, false);
    return list_end(r, &l, &j, next);
}

/* ---- changing ---- */

/* What a PATCH brings besides the definition. */
struct beside {
    bool generate; /* make the slots that a higher total needs */
    bool retire;   /* codes may end by a lower one */
};

/* Slots that `next` would have and that do not exist, if the change is to raise its total; 0: none that could be made by their number. */
static int64_t missing_slots(const struct coupon *before, const struct coupon *next, const struct head *h)
{
    int64_t total = next->cap.total;
    bool raised = total != COUPON_NULL && (before->cap.total == COUPON_NULL || total >= before->cap.total);

    if (!raised || !policy_of(next)->slots || next->codes.source == CODES_IMPORTED || head_stock(h) >= total)
        return 0;
    return total - head_stock(h);
}

static void check_generate(const struct coupon *before, const struct coupon *next, struct errors *e)
{
    bool lower = before->cap.total != COUPON_NULL && next->cap.total < before->cap.total;

    if (may_generate(next, e) && (next->cap.total == COUPON_NULL || lower))
        errors_add(e, "/generate", "requires a higher cap.total");
}

/* The definition is changed; have the missing slots made, or say how many are. */
static enum handled reply_changed(struct request *r, const struct coupon *before, const struct beside *beside)
{
    const struct coupon *c = r->op.coupon_now;
    int64_t missing = missing_slots(before, c, &r->op.head);
    struct job job = {.kind = JOB_GENERATE, .coupon = c->id, .total = missing, .until = c->cap.total, .by = request_operator(r),
                      .created_ms = clock_now_ms()}, *existing;
    char id[ID_SHORT_LEN + 1];

    if (!beside->generate || missing == 0)
        return reply_definition(r, c, NULL, c->cap.total != before->cap.total ? missing : 0, 200);
    id_random(id, ID_SHORT_LEN);
    job.id = id;
    if (mongo_job_insert(r->session, &job, &r->arena, &existing) != STORE_OK)
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, "The coupon is changed, but perhaps its slots are not being made. Read the counts.");
    return reply_definition(r, c, missing <= CODES_AWAITED && job_is_done_in_time(r, id) ? NULL : id, 0, 200);
}

/* The current definition, patched, is submitted; with If-Match: *, again if somebody else changed it meanwhile. */
enum handled coupon_change(struct request *r)
{
    struct json_object *patch JSON_IN_AUTO = json_in(r->body ? r->body : "", r->body_len, &r->errors);
    struct beside beside = {false, false};

    if (patch) {
        beside.generate = take_member(patch, "generate", false, &r->errors) != 0;
        beside.retire = take_member(patch, "retire", false, &r->errors) != 0;
    }
    for (int i = 0; i < CHANGE_TRIES; i++) {
        const struct coupon *now;
        struct coupon *next;
        bool any, answered = false;

        if (!request_open_coupon(r))
            return ANSWERED;
        now = r->op.coupon_now;
        if (!if_match_passes(r->header.if_match, now->version, &any))
            return reply_problem(r, CPN_VERSION_CHANGED, NULL);
        if (!patch)
            return reply_problem(r, CPN_BAD_REQUEST, NULL);
        next = coupon_patch(now, patch, &r->errors);
        if (beside.generate)
            check_generate(now, next, &r->errors);
        if (r->errors.count == 0 && strcmp(now->time_zone, next->time_zone) != 0 &&
            !zone_exists(r, next->time_zone, &answered) && answered)
            return ANSWERED;
        if (r->errors.count)
            return reply_problem(r, CPN_BAD_REQUEST, NULL);
        request_op(r, OP_CHANGE);
        r->op.in.coupon = (struct op_coupon){.definition = next, .expected_version = now->version, .retire = beside.retire};
        if (request_call(r) == CPN_OK)
            return reply_changed(r, now, &beside);
        if (r->op.outcome.result != CPN_VERSION_CHANGED || !any)
            return reply_refusal(r);
    }
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

/* Check If-Match. A change in between cannot matter: only an unused coupon can be deleted. */
static enum handled delete_if_matched(struct request *r)
{
    bool any;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    if (r->op.head.archived)
        return reply_problem(r, CPN_COUPON_ARCHIVED, NULL);
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

/* Archive the current version; retry if it is changed meanwhile. */
enum handled coupon_archive(struct request *r)
{
    for (int i = 0; i < CHANGE_TRIES; i++) {
        int64_t version;

        if (!request_coupon(r))
            return ANSWERED;
        version = r->op.coupon_now->version;
        request_op(r, OP_ARCHIVE);
        r->op.in.coupon.expected_version = version;
        if (request_call(r) == CPN_OK)
            return reply_empty(r, 204);
        if (r->op.outcome.result != CPN_VERSION_CHANGED)
            return reply_refusal(r);
    }
    return reply_problem(r, CPN_BUSY, NULL);
}
