/* http/redemptions.c -- takes, checks, reads and returns single redemptions, and takes batches. */
#include <stdlib.h>
#include <string.h>

#include "http/conditional.h"
#include "http/guess_limit.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reactor.h"
#include "http/receipt.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/router.h"
#include "http/shares.h"

#define BATCH_ITEMS_MAX 1000
#define BATCH_PORTION 256            /* items submitted at a time */
#define BATCH_AT_ONCE 50             /* most items that an I/O thread answers itself */

/* ---- receipts ---- */

/* False: answered, the query's receipt is neither true nor false. */
static bool read_receipt_asked(struct request *r)
{
    const char *text = path_query(&r->path, "receipt");

    r->receipt_asked = text && strcmp(text, "true") == 0;
    return !text || r->receipt_asked || strcmp(text, "false") == 0;
}

static enum handled refuse_receipt(struct request *r)
{
    return request_refuse(r, CPN_BAD_REQUEST, "The query parameter receipt must be one of false, true.");
}

/* ---- one taking ---- */

/* Submit it, unless it names a code and the caller has tried too many. */
static enum handled submit_take(struct request *r, enum op_kind kind, const char *key, handler *then)
{
    const struct take_in *in = r->in;

    if (in->code && !guess_limit_may(r, in->user))
        return ANSWERED;
    request_op(r, kind);
    take_fill(&r->op, in, key);
    if (r->role == ROLE_PUBLIC)
        r->op.in.user.name = no_user(&r->arena);
    if (key && r->header.if_match)
        r->op.in.user.take.versions = if_match_versions(r->header.if_match, &r->arena, &r->op.in.user.take.version_count);
    return request_submit(r, then);
}

/* "Location: /coupons/<coupon>/redemptions/<id>", without a detour through printf. */
static void location(struct request *r, const struct redemption *redemption)
{
    struct buf *h = &r->reply.header;
    char id[REDEMPTION_ID_SIZE];

    buf_puts(h, "Location: /coupons/");
    buf_puts(h, r->coupon);
    buf_puts(h, "/redemptions/");
    buf_puts(h, redemption_id_text(redemption->n, redemption->g, redemption->lane, id));
    buf_put(h, "\r\n", 2);
}

static enum handled reply_decided(struct request *r)
{
    const struct outcome *o = &r->op.outcome;
    struct json j;

    if (o->created)
        location(r, &o->redemption);
    if (o->replayed)
        reply_header(r, "Idempotent-Replayed", "true");
    j = reply_body(r);
    redemption_write(&j, r, r->op.kind == OP_TAKE ? op_user(&r->op)->name : op_user_out(&r->op)->state->user, &o->redemption);
    return reply_json(r, o->created ? 201 : 200);
}

/* It is decided: if no receipt can be made now, answer without. */
static enum handled sign_decided(struct request *r)
{
    (void)receipt_make(r, &r->op.outcome.redemption, r->op.kind == OP_TAKE ? op_user(&r->op)->name : NULL);
    return reply_decided(r);
}

/* Answer a taking, or a step of an existing redemption. */
static enum handled decided(struct request *r)
{
    if (r->op.kind == OP_TAKE)
        guess_limit_failed(r, op_user(&r->op)->name, r->op.outcome.not_theirs);
    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    if (r->receipt_asked && request_try_blocking_pool(r, sign_decided))
        return PENDING;
    return reply_decided(r);
}

enum handled redemption_take(struct request *r)
{
    return read_receipt_asked(r) ? submit_take(r, OP_TAKE, r->key, decided) : refuse_receipt(r);
}

/* ---- check ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static enum handled reply_public(struct request *r)
{
    struct json j = reply_body(r);

    json_begin_object(&j);
    public_write_members(&j, &r->op);
    return reply_fresh(r, &j);
}

static enum handled checked(struct request *r)
{
    const struct take_in *in = r->in;
    const struct outcome *o = &r->op.outcome;
    const struct coupon *c = r->op.coupon_now;
    const struct head *h = &r->op.head;
    struct allowance left;
    struct json j;

    guess_limit_failed(r, in->user, r->op.outcome.not_theirs);
    /* a result that is no refusal by the coupon's rules is an ordinary error */
    if (!c || o->result == CPN_BUSY || o->result == CPN_OUTCOME_UNKNOWN || o->result == CPN_INTERNAL ||
        o->result == CPN_CODE_REQUIRED || o->result == CPN_COUPON_ARCHIVED)
        return reply_refusal(r);
    if (r->role == ROLE_PUBLIC)
        return reply_public(r);
    left = user_state_allowance(c, op_user_out(&r->op)->state, r->op.head.at_ms, h->day_ms);
    left.in_all = least(left.in_all, policy_of(c)->left(c, h, 0));
    left.today = least(left.today, left.in_all);
    if (c->cap.per_day != COUPON_NULL)
        left.today = least(left.today, c->cap.per_day - h->day_taken);
    if (o->result == CPN_SOLD_OUT)
        left.today = left.in_all = 0; /* only the refusal knows of the coupon's other lanes */
    j = reply_body(r);
    json_begin_object(&j);
    check_write_members(&j, &r->op);
    json_key_int(&j, "remaining", left.in_all < 0 ? 0 : left.in_all);
    json_key_int(&j, "remaining_today", left.today < 0 ? 0 : left.today);
    return reply_fresh(r, &j);
}

enum handled redemption_check(struct request *r)
{
    return submit_take(r, OP_CHECK, NULL, checked);
}

/* ---- one existing redemption ---- */

/* The redemption that the path names; and its lane, if no slot shows it. False: no such id was ever given. */
static bool read_id(const struct request *r, int64_t *n, uint32_t *g, int64_t *lane)
{
    if (!redemption_id_parse(r->params[0], n, g, lane))
        return false;
    if (*lane < 0)
        *lane = 0;
    return true;
}

static enum handled reply_got(struct request *r)
{
    struct json j = reply_body(r);

    redemption_write_at(&j, r, op_user_out(&r->op)->state->user, &r->op.outcome.redemption, r->op.head.at_ms,
                        coupon_ends(r->op.coupon_now));
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

static enum handled sign_got(struct request *r)
{
    (void)receipt_make(r, &r->op.outcome.redemption, NULL);
    return reply_got(r);
}

static enum handled got(struct request *r)
{
    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    return r->receipt_asked ? request_to_blocking_pool(r, sign_got) : reply_got(r);
}

/* Read the redemption that the path names, for `then`. */
static enum handled submit_get(struct request *r, handler *then)
{
    int64_t n, lane;
    uint32_t g;

    if (!read_id(r, &n, &g, &lane))
        return request_refuse(r, CPN_REDEMPTION_NOT_FOUND, NULL);
    request_op(r, OP_REDEMPTION);
    r->op.lane = lane;
    r->op.in.redemption = (struct step){.n = n, .g = g};
    return request_submit(r, then);
}

enum handled redemption_get(struct request *r)
{
    return read_receipt_asked(r) ? submit_get(r, got) : refuse_receipt(r);
}

static enum handled reply_receipt(struct request *r)
{
    enum cpn_result result = receipt_make(r, &r->op.outcome.redemption, NULL);
    struct json j;

    if (result != CPN_OK)
        return reply_problem(r, result, result == CPN_NOT_FOUND ? NO_RECEIPTS : NULL);
    j = reply_body(r);
    json_begin_object(&j);
    json_key_string(&j, "receipt", r->receipt);
    return reply_fresh(r, &j);
}

static enum handled got_for_receipt(struct request *r)
{
    return r->op.outcome.result == CPN_OK ? request_to_blocking_pool(r, reply_receipt) : reply_refusal(r);
}

enum handled redemption_receipt(struct request *r)
{
    return submit_get(r, got_for_receipt);
}

/* A key belongs to the call and the redemption: for another redemption it is another request. */
static enum handled submit_step(struct request *r, struct step s)
{
    int64_t lane;

    if (!read_receipt_asked(r))
        return refuse_receipt(r);
    if (!read_id(r, &s.n, &s.g, &lane))
        return request_refuse(r, CPN_REDEMPTION_NOT_FOUND, NULL);
    s.key = r->key;
    if (s.key)
        fingerprint_of(arena_printf(&r->arena, "%s %s", r->route->name, r->params[0]), r->route->table, r->in, s.fingerprint);
    request_op(r, OP_STEP);
    r->op.lane = lane;
    r->op.in.redemption = s;
    return request_submit(r, decided);
}

enum handled redemption_step(struct request *r)
{
    struct step s = {.move = (enum slot_move)r->route->kind, .reserve_s = COUPON_NULL};

    if (s.move == MOVE_RESERVE || s.move == MOVE_REDEEM) {
        const struct step_in *in = r->in;

        s.order = in->order;
        s.reserve_s = in->reserve_s;
    } else if (s.move == MOVE_REVERSE) {
        s.keep_use = ((const struct reverse_in *)r->in)->keep_use != 0;
    }
    return submit_step(r, s);
}

enum handled redemption_adjust(struct request *r)
{
    const struct adjust_in *in = r->in;

    return submit_step(r, (struct step){.adjusts = true, .order = in->order, .discount_minor = in->discount_minor,
                                        .reserve_s = COUPON_NULL});
}

/* ---- batches ---- */

/* An item: either its body is bad, or its user guesses too much, or it is an op with its own arena, because the ops of one request may be
 * worked on in parallel. */
struct item {
    struct take_in in;
    struct errors *errors; /* not NULL: bad */
    bool guesses;
    struct op op;
    struct arena arena;
    bool submitted;
};

struct batch_state {
    struct item *items;
    size_t count;
    size_t next; /* the first one not submitted */
    int portion; /* items submitted at a time: they count in the shares of the key and the coupon */
};

/* Take the shares for a portion. False: the key or the coupon has no more. */
static bool take_shares(struct request *r, size_t fit)
{
    struct batch_state *b = r->state;
    const struct worker *w = r->worker;
    int most = (w->config->worker_queue_max + 1) / 2;

    b->portion = fit < BATCH_PORTION ? (int)fit : BATCH_PORTION;
    if (b->portion > most)
        b->portion = most;
    if (shares_take(w->items_of_keys, r->by, b->portion)) {
        if (shares_take(w->items_of_coupons, r->coupon, b->portion))
            return true;
        shares_give(w->items_of_keys, r->by, b->portion);
    }
    b->portion = 0;
    return false;
}

static void give_shares(struct request *r)
{
    struct batch_state *b = r->state;

    if (b->portion == 0)
        return;
    shares_give(r->worker->items_of_keys, r->by, b->portion);
    shares_give(r->worker->items_of_coupons, r->coupon, b->portion);
    b->portion = 0;
}

static void free_items(struct batch_state *b)
{
    for (size_t i = 0; i < b->count; i++)
        arena_free(&b->items[i].arena);
}

static void write_item(struct request *r, struct json *j, const struct item *i)
{
    const struct outcome *o = &i->op.outcome;
    bool fine = !i->errors && o->result == CPN_OK;
    struct problem p = problem_of(o);

    if (i->errors)
        p = (struct problem){.result = CPN_BAD_REQUEST, .errors = i->errors};
    problem_doubt(r, &p);

    json_begin_object(j);
    json_key_int(j, "status", fine ? o->created ? 201 : 200 : result_info(p.result)->status);
    json_key_bool(j, "replayed", fine && o->replayed);
    json_key(j, "body");
    if (fine)
        redemption_write(j, r, i->in.user, &o->redemption);
    else
        problem_write(j, r->id, &p);
    json_end_object(j);
}

/* On a blocking thread: a thousand answers take too long for an I/O thread. */
static enum handled write_batch(struct request *r)
{
    struct batch_state *b = r->state;
    struct json j = list_items(r);

    for (size_t i = 0; i < b->count; i++)
        write_item(r, &j, &b->items[i]);
    json_end_array(&j);
    json_end_object(&j);
    free_items(b);
    return reply_json(r, 200);
}

static void count_guesses(struct request *r);

static enum handled batch_decided(struct request *r)
{
    struct batch_state *b = r->state;

    give_shares(r);
    for (size_t i = 0; i < b->count; i++) {
        enum cpn_result result = b->items[i].errors ? CPN_OK : b->items[i].op.outcome.result;

        if (result == CPN_COUPON_NOT_FOUND || result == CPN_COUPON_ARCHIVED) {
            free_items(b);
            return reply_problem(r, result, NULL);
        }
    }
    count_guesses(r);
    if (b->count > BATCH_AT_ONCE && !r->session && request_try_blocking_pool(r, write_batch))
        return PENDING;
    return write_batch(r);
}

/* The last of the request's ops to finish continues the request. */
static void item_done(struct op *op)
{
    struct request *r = op->context;

    if (atomic_fetch_sub(&r->ops_left, 1) == 1)
        reactor_push(r);
}

static bool submit_item(struct request *r, struct item *item)
{
    request_op(r, OP_TAKE);
    item->op = r->op;
    item->op.arena = &item->arena;
    item->op.done = item_done;
    take_fill(&item->op, &item->in, item->in.key);
    atomic_fetch_add(&r->ops_left, 1);
    if (engine_submit(r->worker->engine, &item->op) == CPN_OK)
        return true;
    item->op.outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    atomic_fetch_sub(&r->ops_left, 1);
    return false;
}

/* Submit a portion of the items, or as many as there is room for; the rest follows when those are decided, so that one request does not
 * fill a queue. If there is no room for even one, all that are left get that answer. */
static enum handled submit_items(struct request *r)
{
    struct batch_state *b = r->state;
    int sent = 0;

    r->then = submit_items;
    atomic_store(&r->ops_left, 1); /* one for us, until all are sent */
    for (; b->next < b->count && sent < b->portion; b->next++) {
        struct item *item = &b->items[b->next];

        if (item->errors || item->guesses)
            continue;
        if (submit_item(r, item))
            sent++;
        else if (sent)
            break;
    }
    if (b->next == b->count)
        r->then = batch_decided;
    return atomic_fetch_sub(&r->ops_left, 1) == 1 ? r->then(r) : PENDING;
}

/* Nothing was submitted: refuse the call as a whole. */
static enum handled refuse_items(struct request *r)
{
    struct batch_state *b = r->state;

    for (size_t i = 0; i < b->count; i++)
        if (!b->items[i].guesses)
            b->items[i].op.outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    return batch_decided(r);
}

static enum handled all_bad(struct request *r)
{
    struct outcome *o = &r->op.outcome;

    if (o->result == CPN_BAD_REQUEST)
        return write_batch(r);
    free_items(r->state);
    return reply_refusal(r);
}

/* Read the items. Returns how many can be decided. */
static size_t read_items(struct request *r, struct json_object *items)
{
    struct batch_state *b = r->state;
    size_t fit = 0;

    b->items = arena_array(&r->arena, json_object_array_length(items), sizeof *b->items);
    for (b->count = 0; b->count < json_object_array_length(items); b->count++) {
        struct json_object *o = json_object_array_get_idx(items, b->count);
        struct item *item = &b->items[b->count];
        struct errors errors;

        errors_init(&errors, &r->arena);
        arena_init(&item->arena, 512);
        if (json_object_is_type(o, json_type_object))
            fields_read(&take_item_table, o, pointer_to_index(&r->arena, "/items", b->count), &item->in, &errors);
        else
            errors_add(&errors, pointer_to_index(&r->arena, "/items", b->count), "must be an object");
        if (errors.count) {
            item->errors = arena_alloc(&r->arena, sizeof errors);
            *item->errors = errors;
        } else {
            fit++;
        }
    }
    return fit;
}

static int by_user(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;

    return strcmp((*x)->in.user, (*y)->in.user);
}

/* The items that name a code, each user's together. */
static struct item **list_coded(struct request *r, size_t *count)
{
    struct batch_state *b = r->state;
    struct item **coded = arena_array(&r->arena, b->count + 1, sizeof(struct item *));

    *count = 0;
    for (size_t i = 0; i < b->count; i++)
        if (!b->items[i].errors && b->items[i].in.code)
            coded[(*count)++] = &b->items[i];
    qsort(coded, *count, sizeof(struct item *), by_user);
    return coded;
}

/* The index after the last item of coded[first]'s user. */
static size_t end_of_user(struct item **coded, size_t first, size_t count)
{
    size_t end = first;

    while (end < count && strcmp(coded[end]->in.user, coded[first]->in.user) == 0)
        end++;
    return end;
}

/* Refuse the items of users who guess too much; returns how many. */
static size_t refuse_guessers(struct request *r)
{
    size_t count, refused = 0;
    struct item **coded = list_coded(r, &count);

    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_user(coded, i, count);
        if (guess_limit_may_of(r, coded[i]->in.user, (int)(end - i)))
            continue;
        for (size_t k = i; k < end; k++, refused++) {
            coded[k]->guesses = true;
            coded[k]->op.outcome = (struct outcome){.result = CPN_RATE_LIMITED, .retry = true};
        }
    }
    return refused;
}

/* All are decided: what was not found stays charged. */
static void count_guesses(struct request *r)
{
    size_t count;
    struct item **coded = list_coded(r, &count);

    for (size_t i = 0, end; i < count; i = end) {
        int missed = 0;

        end = end_of_user(coded, i, count);
        for (size_t k = i; k < end; k++)
            missed += coded[k]->op.outcome.not_theirs;
        guess_limit_failed(r, coded[i]->in.user, missed);
    }
}

enum handled redemption_batch(struct request *r)
{
    size_t fit;

    struct json_object *o JSON_IN_AUTO = json_in_typed(r->body ? r->body : "", r->body_len, &r->errors);
    struct json_object *items = o ? json_object_object_get(o, "items") : NULL;

    if (o) {
        JSONC_FOREACH(o, member)
            if (strcmp(jsonc_name(member), "items") != 0)
                errors_add(&r->errors, pointer_to(&r->arena, "", jsonc_name(member)), "is not a known field");
        if (!json_object_is_type(items, json_type_array) || json_object_array_length(items) < 1 ||
            json_object_array_length(items) > BATCH_ITEMS_MAX)
            errors_add(&r->errors, "/items", "must be an array of 1 to 1000 items");
    }
    if (r->errors.count)
        return request_refuse(r, CPN_BAD_REQUEST, NULL);
    r->state = arena_alloc(&r->arena, sizeof(struct batch_state));
    fit = read_items(r, items);
    fit -= refuse_guessers(r);
    if (fit > 0)
        return take_shares(r, fit) ? submit_items(r) : refuse_items(r);
    request_op(r, OP_REFUSE); /* nothing to decide; only check that the coupon exists */
    r->op.in.refusal.result = CPN_BAD_REQUEST;
    return request_submit(r, all_bad);
}
