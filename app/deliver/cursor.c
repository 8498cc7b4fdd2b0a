/* deliver/cursor.c -- see cursor.h. */
#include "deliver/cursor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/log.h"
#include "store/mongo.h"

#define PAGES_TOGETHER 32 /* of a cursor with nothing to deliver, before others are next */

/* ---- endpoints ---- */

void endpoint_set(struct endpoint *e, const struct hook *h)
{
    struct hook *copy;

    arena_free(&e->arena);
    copy = arena_alloc(&e->arena, sizeof *copy);
    *copy = *h;
    copy->id = arena_strdup(&e->arena, h->id);
    copy->url = arena_strdup(&e->arena, h->url);
    copy->reason = arena_strdup(&e->arena, h->reason);
    copy->secret = arena_strdup(&e->arena, h->secret);
    copy->old_secret = arena_strdup(&e->arena, h->old_secret);
    copy->owner = NULL; /* already checked */
    copy->coupons.items = arena_array(&e->arena, h->coupons.count + 1, sizeof *copy->coupons.items);
    for (size_t i = 0; i < h->coupons.count; i++)
        copy->coupons.items[i] = arena_strdup(&e->arena, h->coupons.items[i]);
    e->hook = copy;
}

struct endpoint *endpoint_new(const struct hook *h)
{
    struct endpoint *e = checked(calloc(1, sizeof *e));

    arena_init(&e->arena, 0);
    endpoint_set(e, h);
    return e;
}

/* Forget the batches read. */
static void drop(struct cursor *s)
{
    for (size_t i = s->batch_at; i < s->batch_count; i++)
        batch_free(s->batches[i]);
    s->of->pages -= s->batch_count > 0;
    s->batch_at = s->batch_count = 0;
    s->events = NULL;
    arena_free(&s->arena);
}

void endpoint_free(struct endpoint *e)
{
    struct cursor *s = e->cursors, *next;

    HASH_CLEAR(hh, e->cursors);
    for (; s; s = next) {
        next = s->hh.next;
        drop(s);
        free(s);
    }
    arena_free(&e->arena);
    free(e);
}

bool endpoint_wants(const struct endpoint *e, const char *coupon)
{
    const struct string_list *only = &e->hook->coupons;

    for (size_t i = 0; i < only->count; i++)
        if (strcmp(only->items[i], coupon) == 0)
            return true;
    return only->count == 0;
}

/* ---- cursors ---- */

static struct cursor_key key_of(const char *coupon, int64_t lane)
{
    struct cursor_key key;

    memset(&key, 0, sizeof key);
    snprintf(key.coupon, sizeof key.coupon, "%s", coupon);
    key.lane = lane;
    return key;
}

struct cursor *cursor_find(const struct endpoint *e, const char *coupon, int64_t lane)
{
    struct cursor_key key = key_of(coupon, lane);
    struct cursor *s;

    HASH_FIND(hh, e->cursors, &key, sizeof key, s);
    return s;
}

struct cursor *cursor_add(struct endpoint *e, const char *coupon, int64_t lane, int64_t seq, int64_t index)
{
    struct cursor *s = checked(calloc(1, sizeof *s));

    s->key = key_of(coupon, lane);
    s->of = e;
    s->seq = seq;
    s->tail = seq < 0 ? 0 : seq;
    s->index = index;
    s->before.seq = -1;
    arena_init(&s->arena, 0);
    HASH_ADD(hh, e->cursors, key, sizeof s->key, s);
    return s;
}

void cursor_to(struct cursor *s, enum cursor_state state)
{
    struct endpoint *e = s->of;

    if (s->state == CURSOR_READY)
        DL_DELETE(e->ready, s);
    else if (s->state == CURSOR_WAITING)
        DL_DELETE(e->waiting, s);
    else if (s->state == CURSOR_SENDING)
        e->sending--;
    s->state = state;
    if (state == CURSOR_READY)
        DL_APPEND(e->ready, s);
    else if (state == CURSOR_WAITING)
        DL_APPEND(e->waiting, s);
    else if (state == CURSOR_SENDING)
        e->sending++;
    if (state == CURSOR_IDLE || state == CURSOR_WAITING || (state == CURSOR_READY && e->pages > PAGES_MAX))
        drop(s);
}

bool cursor_is_over(const struct cursor *s)
{
    const struct watermark *w = &s->of->watermark;

    return s->state == CURSOR_IDLE && s->seq >= s->tail && !s->moved && !s->awaited && s->arrived < w->arrived &&
           !watermark_has_behind(w, s->key.coupon, s->key.lane);
}

void cursor_remove(struct cursor *s)
{
    assert(s->state == CURSOR_IDLE);
    HASH_DEL(s->of->cursors, s);
    drop(s);
    free(s);
}

/* ---- reading ---- */

/* Read the head of the batch at the position, which says what events were raised before. */
static bool read_before(struct cursor *s, struct store *session)
{
    struct batch *b = NULL;
    enum store_status status;

    if (s->before.seq == s->seq)
        return true;
    memset(&s->before, 0, sizeof s->before);
    s->before.seq = -1;
    status = s->seq > 0 ? mongo_ledger_at(session, s->key.coupon, s->key.lane, s->seq, &b) : STORE_NOT_FOUND;
    if (status == STORE_FAILED)
        return false;
    if (status == STORE_OK)
        s->before = b->head;
    s->before.seq = s->seq;
    batch_free(b);
    return true;
}

/* Find its position: the stored one, else where it starts. */
static enum cursor_step find_start(struct cursor *s, struct store *session)
{
    const struct endpoint *e = s->of;
    bool behind = watermark_has_behind(&e->watermark, s->key.coupon, s->key.lane);
    struct hook_position p = {e->hook->id, s->key.coupon, s->key.lane, 0, 0, 0, 0};
    enum store_status status = mongo_position(session, &p);

    if (status == STORE_OK) {
        s->seq = p.seq;
        s->index = p.index;
        s->attempts = p.attempts;
        s->not_before_ms = p.not_before_ms;
        return p.not_before_ms > clock_now_ms() ? CURSOR_WAITS : CURSOR_HAS;
    }
    if (status == STORE_NOT_FOUND)
        s->seq = cursor_start(session, s->key.coupon, s->key.lane, s->tail, e->hook->created_ms, behind ? 0 : e->watermark.arrived);
    if (s->seq < 0)
        return CURSOR_FAILS;
    s->moved = s->of->moved = true;
    return CURSOR_HAS;
}

/* Read the batches after the position, if any. */
static enum cursor_step read_page(struct cursor *s, struct store *session)
{
    enum cursor_step start = CURSOR_HAS;
    size_t count = 0;

    drop(s);
    if (s->seq < 0)
        start = find_start(s, session);
    if (start != CURSOR_HAS)
        return start;
    if (s->seq >= s->tail)
        return CURSOR_ENDS;
    if (!read_before(s, session) ||
        session->ops->ledger(session, s->key.coupon, s->key.lane, s->seq, CURSOR_PAGE, s->batches, &count) != STORE_OK)
        return CURSOR_FAILS;
    s->batch_count = count;
    s->of->pages += count > 0;
    return count > 0 ? CURSOR_HAS : CURSOR_FAILS; /* it must exist: the reply came from a server that lags */
}

/* The current batch is finished. */
static void pass_batch(struct cursor *s)
{
    struct batch *b = s->batches[s->batch_at++];

    s->before = b->head;
    s->seq = b->head.seq;
    s->index = 0;
    s->moved = s->of->moved = true;
    s->events = NULL;
    arena_reset(&s->arena);
    batch_free(b);
}

enum cursor_step cursor_next(struct cursor *s, struct store *session, const struct batch **b, const struct event **event)
{
    for (int pages = 0;;) {
        if (s->batch_at == s->batch_count) {
            enum cursor_step read = pages++ < PAGES_TOGETHER ? read_page(s, session) : CURSOR_HAS_MORE;

            if (read != CURSOR_HAS)
                return read;
        }
        *b = s->batches[s->batch_at];
        if (!s->events) {
            if ((*b)->head.seq != s->seq + 1 && !(*b)->head.archived) /* verify reports this; the rest is still delivered */
                log_event(LOG_ERROR, "ledger.gap", F_WORD("coupon", s->key.coupon), F_INT("lane", s->key.lane), F_INT("after", s->seq),
                          F_INT("next", (*b)->head.seq));
            s->event_count = events_of(*b, &s->before, &s->arena, &s->events);
            assert(s->events);
            s->event_at = (size_t)s->index < s->event_count ? (size_t)s->index : s->event_count;
        }
        for (; s->event_at < s->event_count; s->event_at++) {
            *event = &s->events[s->event_at];
            s->index = (*event)->index;
            if (s->of->hook->events & (1u << (*event)->type))
                return CURSOR_HAS;
        }
        pass_batch(s);
    }
}

void cursor_taken(struct cursor *s)
{
    assert(s->events && s->event_at < s->event_count);
    s->index = s->events[s->event_at++].index + 1;
    s->attempts = 0;
    s->not_before_ms = 0;
    s->moved = s->of->moved = true;
    if (s->event_at == s->event_count)
        pass_batch(s);
}

/* ---- where to start ---- */

/* In a lane, and since when: see cursor_start(). */
struct search {
    const char *coupon;
    int64_t lane, tail, since_ms;
    uint64_t arrived;
};

/* 1: batch seq is older, or arrived earlier; so did one missing below the tail: it was removed with an archived coupon, whose tail stays.
 * -1: the database does not answer, or does not know of the tail yet. */
static int is_before(struct store *session, const struct search *of, int64_t seq)
{
    struct batch *b = NULL;
    struct ledger_read read = {.coupon = of->coupon, .lane = of->lane, .after = seq - 1, .most = 1, .batches = &b};
    int before;

    session->ops->ledgers(session, &read, 1);
    if (read.status != STORE_OK)
        return read.status == STORE_UNREADABLE ? 0 : -1;
    if (!read.count || b->head.seq > seq)
        before = seq < of->tail ? 1 : -1;
    else
        before = b->head.at_ms < of->since_ms || (b->arrived && b->arrived < of->arrived);
    batch_free(b);
    return before;
}

/* It is mostly near the tail: search back in doubling steps, then by halves. */
int64_t cursor_start(struct store *session, const char *coupon, int64_t lane, int64_t tail, int64_t since_ms, uint64_t arrived)
{
    const struct search of = {coupon, lane, tail, since_ms, arrived};
    int64_t old = tail, young = tail + 1, step = 1;
    int before;

    while (old > 0 && (before = is_before(session, &of, old)) != 1) {
        if (before < 0)
            return -1;
        young = old;
        old = old > step ? old - step : 0;
        step *= 2;
    }
    while (young - old > 1) {
        int64_t mid = old + (young - old) / 2;

        before = is_before(session, &of, mid);
        if (before < 0)
            return -1;
        *(before ? &old : &young) = mid;
    }
    return old;
}
