/* http/users.c -- what a user has: in one coupon, and in the wallet over all of them. */
#include <stdlib.h>
#include <string.h>

#include "http/conditional.h"
#include "http/handlers.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"

/* Most redemptions that an I/O thread writes (and signs) itself. More are read and written by blocking threads: so at most as many states
 * as these threads are in memory, however many callers ask. */
#define WRITTEN_AT_ONCE 16
#define COUPONS_AT_ONCE 100 /* definitions in one read, for a wallet */
#define LOOKED_AT_MAX 1000  /* coupons: then the page ends, though it may be short, or empty */

/* ---- one coupon ---- */

/* The ETag is the user state's version, so that a taking can be bound to it. But the answer also depends on the definition, whose caps
 * limit what remains, on the day, and on expiries. True: none of that can have changed since the user state did, so the tag identifies
 * the answer. */
static bool is_settled(const struct request *r)
{
    const struct user_state *u = op_user_out(&r->op)->state;
    int64_t due_ms = user_state_due(u, coupon_ends(r->op.coupon_now));

    return u->seq > op_user_out(&r->op)->definition_seq && u->day_ms == r->op.head.day_ms && (!due_ms || due_ms > r->op.head.at_ms);
}

static enum handled write_user(struct request *r)
{
    const struct user_state *u = op_user_out(&r->op)->state;
    const struct allowance left = user_state_allowance(r->op.coupon_now, u, r->op.head.at_ms, r->op.head.day_ms);
    struct json j = reply_body(r);

    json_begin_object(&j);
    json_key_string(&j, "user", op_user(&r->op)->name);
    json_key_int(&j, "total", left.total);
    json_key_int(&j, "today", left.took_today);
    json_key_int(&j, "remaining", left.in_all);
    json_key_int(&j, "remaining_today", left.today);
    json_key(&j, "redemptions");
    json_begin_array(&j);
    for (size_t i = u->count; i-- > 0;)
        redemption_write_at(&j, r, op_user(&r->op)->name, &u->redemptions[i], r->op.head.at_ms, coupon_ends(r->op.coupon_now));
    json_end_array(&j);
    json_end_object(&j);
    reply_etag(r, u->seq);
    reply_header(r, "Cache-Control", "no-cache");
    return reply_json(r, 200);
}

static enum handled got(struct request *r)
{
    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    return is_settled(r) && reply_not_modified(r, op_user_out(&r->op)->state->seq) ? ANSWERED : write_user(r);
}

static void ask(struct request *r, size_t most)
{
    request_op(r, OP_USER_STATE);
    r->op.in.user = (struct op_user){.name = r->params[0], .most = most};
}

static enum handled get_whole(struct request *r)
{
    ask(r, 0);
    request_call(r);
    return got(r);
}

static enum handled got_some(struct request *r)
{
    return r->op.outcome.result == CPN_OK && op_user_out(&r->op)->omitted ? request_to_blocking_pool(r, get_whole) : got(r);
}

enum handled user_get(struct request *r)
{
    ask(r, WRITTEN_AT_ONCE);
    return request_submit(r, got_some);
}

/* ---- the wallet: first coupons of which the user has something, by id; then active ones that they may still take ---- */

/* What the user has of a coupon. */
struct user_item {
    const char *coupon;
    const struct user_state *counts, *ended; /* without redemptions; ended: if the coupon has, which ends what is issued */
};

struct wallet {
    struct request *request;
    struct json *json;
    struct user_item *items; /* by coupon */
    size_t count, capacity;
    size_t room, looked_at;
    int64_t now_ms;
    const char *time_zone; /* the last one asked for; its day began at: */
    int64_t day_ms;
    bool failed, misplaced; /* misplaced: invalid position */
    bool incomplete;        /* a definition cannot be decoded */
};

static bool has_ended(const struct coupon *c, int64_t now_ms)
{
    return coupon_ends(c) && coupon_ends(c) <= now_ms;
}

static bool is_open(const struct coupon *c, int64_t now_ms)
{
    return c->state == COUPON_ACTIVE && (c->starts_at_ms == COUPON_NULL || c->starts_at_ms <= now_ms) &&
           !has_ended(c, now_ms);
}

/* When the coupon's day began; most coupons have the time zone of the one before. */
static int64_t day_of(struct wallet *w, const struct coupon *c)
{
    struct store *session = w->request->session;
    int64_t end_ms;

    if (w->time_zone && strcmp(w->time_zone, c->time_zone) == 0)
        return w->day_ms;
    if (session->ops->day(session, c->time_zone, w->now_ms, &w->day_ms, &end_ms) != STORE_OK)
        w->failed = true;
    w->time_zone = c->time_zone;
    return w->day_ms;
}

/* Write an item; all: even if nothing remains. */
static void write_item(struct wallet *w, const struct coupon *c, const struct user_state *u, bool all)
{
    int64_t start_ms = 0;
    struct allowance left = {.total = u->total};

    if (is_open(c, w->now_ms)) {
        if (c->cap.per_user_per_day != COUPON_NULL)
            start_ms = day_of(w, c);
        if (w->failed)
            return;
        left = user_state_allowance(c, u, w->now_ms, start_ms);
    }
    if (!all && left.today == 0)
        return;
    json_begin_object(w->json);
    json_key_string(w->json, "coupon", c->id);
    json_key_int(w->json, "held", left.total);
    json_key_int(w->json, "remaining", left.in_all);
    json_key_int(w->json, "remaining_today", left.today);
    json_end_object(w->json);
    w->room--;
}

static void write_user_item(struct wallet *w, const struct user_item *item, const struct coupon *c)
{
    bool there = c && c->state != COUPON_DELETED;

    if (there && !has_ended(c, w->now_ms))
        write_item(w, c, item->counts, true);
    else if (there && item->ended->total > 0)
        write_item(w, c, item->ended, true);
}

/* The user's next coupons from *at on, with as many definitions as one read gives and the page has room for. */
static size_t read_user_items(struct wallet *w, const char *after, size_t *at, struct coupon_read *reads, const struct user_item **items)
{
    struct request *r = w->request;
    size_t most = w->room < COUPONS_AT_ONCE ? w->room : COUPONS_AT_ONCE, count = 0;

    for (; *at < w->count && count < most; ++*at) {
        const struct user_item *next = &w->items[*at];

        if (strcmp(next->coupon, after) <= 0 || next->counts->total <= 0 || !limits_cover(r, next->coupon))
            continue;
        items[count] = next;
        reads[count++] = (struct coupon_read){.coupon = next->coupon, .arena = &r->arena};
    }
    if (count)
        r->session->ops->coupons(r->session, reads, count);
    for (size_t i = 0; i < count; i++) {
        w->incomplete |= reads[i].status == STORE_UNREADABLE;
        w->failed |= reads[i].status != STORE_OK && reads[i].status != STORE_UNREADABLE;
    }
    w->looked_at += count;
    return count;
}

/* Write those of which the user has something, with ids after `after`. Returns the last one looked at if the page ends with it, else
 * NULL. */
static const char *write_user_items(struct wallet *w, const char *after)
{
    const struct user_item *items[COUPONS_AT_ONCE];
    struct coupon_read reads[COUPONS_AT_ONCE];
    const char *last = NULL;
    size_t count, at = 0;

    while (!w->failed && (count = read_user_items(w, after, &at, reads, items)) > 0) {
        for (size_t i = 0; i < count && !w->failed; i++)
            write_user_item(w, items[i], reads[i].definition);
        last = reads[count - 1].coupon;
        if (w->room == 0 || w->looked_at >= LOOKED_AT_MAX)
            return last;
    }
    return NULL;
}

static int by_coupon(const void *a, const void *b)
{
    const struct user_item *x = a, *y = b;

    return strcmp(x->coupon, y->coupon);
}

/* Write active ones. Returns the position to go on from, or NULL. */
static const char *write_active(struct wallet *w, const char *position)
{
    static const struct user_state none = {.total = 0};
    struct request *r = w->request;
    struct coupon **coupons;
    const char *next = position;
    size_t count;

    do {
        bool incomplete;
        enum store_status s = mongo_coupons(r->session, limits_prefix(r), COUPON_ACTIVE, clock_now_ms(), next && *next ? next : NULL,
                                            w->room, &r->arena, &coupons, &count, &next, &incomplete);

        w->incomplete |= incomplete;
        if (s != STORE_OK) {
            w->failed = true;
            w->misplaced = s == STORE_NOT_FOUND;
            return NULL;
        }
        w->looked_at += count;
        for (size_t i = 0; i < count && !w->failed; i++) {
            const struct user_item key = {.coupon = coupons[i]->id}, *has = NULL;

            if (w->count)
                has = bsearch(&key, w->items, w->count, sizeof key, by_coupon);
            if (!has || has->counts->total <= 0)
                write_item(w, coupons[i], has ? has->counts : &none, false);
        }
    } while (next && w->room > 0 && w->looked_at < LOOKED_AT_MAX && !w->failed);
    return next;
}

static bool take_user_item(void *wallet, const char *coupon, const struct user_state *u)
{
    struct wallet *w = wallet;
    struct arena *a = &w->request->arena;

    w->items = arena_grown(a, w->items, w->count, &w->capacity, sizeof *w->items);
    w->items[w->count++] = (struct user_item){arena_strdup(a, coupon), user_state_counts(u, w->now_ms, u->day_ms, 0, a),
                                             user_state_counts(u, w->now_ms, u->day_ms, w->now_ms, a)};
    return true;
}

enum handled user_wallet(struct request *r)
{
    struct json j;
    struct wallet w = {.request = r, .json = &j, .now_ms = clock_now_ms()};
    const char *position, *last = NULL;
    struct list l;

    if (!list_begin(r, &l))
        return ANSWERED;
    if (mongo_see_all(r->session) != STORE_OK || mongo_user_everywhere(r->session, r->params[0], take_user_item, &w) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    if (w.count)
        qsort(w.items, w.count, sizeof *w.items, by_coupon);
    w.room = l.limit;
    position = l.position ? l.position : "h"; /* h<id>: those the user has, after id; a<position>: active ones from there */
    j = list_items(r);
    if (*position == 'h') {
        last = write_user_items(&w, position + 1);
        position = "a";
    }
    if (last) {
        last = arena_printf(&r->arena, "h%s", last);
    } else {
        last = write_active(&w, position + 1);
        last = last ? arena_printf(&r->arena, "a%s", last) : NULL;
    }
    if (w.failed)
        return reply_problem(r, w.misplaced ? CPN_BAD_CURSOR : CPN_BUSY, NULL);
    l.incomplete = w.incomplete;
    return list_end(r, &l, &j, last);
}
