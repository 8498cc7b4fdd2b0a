/* deliver/delivery.c -- see state.h: posts under way, how answers change a cursor, redeliveries and tests. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/log.h"
#include "base/metrics.h"
#include "deliver/state.h"

#define ASKED_MOST 20 /* redeliveries at a time */
#define FACTOR 3      /* of each wait to the one before */

/* ---- posts of cursors ---- */

int64_t backoff_ms(const struct config *config, int64_t failures, int64_t retry_after_ms)
{
    int64_t most = (int64_t)config->webhooks_retry_most_s * 1000, ms = config->webhooks_retry_first_ms;

    for (int64_t i = 1; i < failures && ms < most; i++)
        ms *= FACTOR;
    if (ms > most)
        ms = most;
    ms += randombytes_uniform((uint32_t)(ms / 5 + 1));
    if (ms < retry_after_ms)
        ms = retry_after_ms < most ? retry_after_ms : most;
    return ms;
}

void posts_abort(struct deliverer *d, struct post *p)
{
    DL_DELETE(d->posts, p);
    curl_multi_remove_handle(d->multi, p->curl);
    if (p->cursor)
        cursor_to(p->cursor, CURSOR_READY);
    post_free(p);
}

static void start_post(struct deliverer *d, struct post *p)
{
    DL_APPEND(d->posts, p);
    if (curl_multi_add_handle(d->multi, p->curl) != CURLM_OK)
        abort();
}

static void wait_until(struct cursor *s, int64_t ms)
{
    s->not_before_ms = ms;
    cursor_to(s, CURSOR_WAITING);
}

static void start_next(struct deliverer *d, struct cursor *s)
{
    const struct event *event = NULL;
    const struct batch *b = NULL;
    struct post *p;

    switch (cursor_next(s, d->session, &b, &event)) {
    case CURSOR_ENDS:
        cursor_to(s, CURSOR_IDLE);
        break;
    case CURSOR_HAS_MORE:
        cursor_to(s, CURSOR_READY);
        break;
    case CURSOR_WAITS:
        cursor_to(s, CURSOR_WAITING);
        break;
    case CURSOR_FAILS:
        wait_until(s, clock_now_ms() + DELIVER_AGAIN_MS);
        break;
    case CURSOR_HAS:
        p = post_new(d->config, s->of->hook, b, event, clock_now_ms());
        p->cursor = s;
        p->delivery.attempt = s->attempts + 1;
        cursor_to(s, CURSOR_SENDING);
        start_post(d, p);
        break;
    }
}

bool posts_may_start(const struct deliverer *d, const struct endpoint *e)
{
    return e->ready && !e->disable && e->sending < (size_t)d->config->webhooks_side_by_side;
}

void posts_start(struct deliverer *d)
{
    int64_t now_ms = clock_now_ms();
    struct cursor *s, *next;
    struct endpoint *e = NULL;

    DL_FOREACH(d->endpoints, e) {
        size_t starts = (size_t)d->config->webhooks_side_by_side;

        DL_FOREACH_SAFE(e->waiting, s, next)
            if (s->not_before_ms <= now_ms)
                cursor_to(s, CURSOR_READY);
        for (; starts > 0 && posts_may_start(d, e); starts--)
            start_next(d, e->ready);
    }
}

/* A post sent before the webhook was changed says nothing about the changed one. */
static bool is_current(const struct post *p)
{
    return p->changed_ms == p->cursor->of->hook->changed_ms;
}

/* Judge whether the receiver is unreachable, or reachable again. */
static void judge(struct deliverer *d, struct endpoint *e, const struct post *p, const struct post_result *r)
{
    int64_t now_ms = clock_now_ms(), since_ms = r->succeeded ? 0 : e->hook->failing_ms ? e->hook->failing_ms : now_ms;

    if (r->gone)
        e->disable = "gone";
    else if (!r->succeeded && now_ms - since_ms >= (int64_t)d->config->webhooks_give_up_s * 1000)
        e->disable = "failing";
    if (e->disable)
        d->look_at = mono_now();
    if (since_ms == e->hook->failing_ms)
        return;
    if (since_ms)
        log_event(LOG_INFO, "webhook.failing", F_WORD("webhook", e->hook->id), F_INT("status", p->delivery.status),
                  F_WORD("coupon", p->delivery.coupon), F_INT("lane", p->delivery.lane), F_INT("seq", p->delivery.seq));
    if (mongo_hook_failing(d->session, e->hook, since_ms) != STORE_FAILED)
        e->hook->failing_ms = since_ms;
}

static void go_on(struct deliverer *d, struct cursor *s, const struct post *p, const struct post_result *r)
{
    if (r->succeeded) {
        cursor_taken(s);
        cursor_to(s, s->batch_at < s->batch_count || s->seq < s->tail ? CURSOR_READY : CURSOR_IDLE);
        return;
    }
    s->attempts++;
    s->moved = s->of->moved = true;
    if (!is_current(p)) { /* nothing was tried since the change */
        cursor_to(s, CURSOR_READY);
        return;
    }
    wait_until(s, clock_now_ms() + backoff_ms(d->config, s->attempts, r->retry_after_ms));
}

void posts_end(struct deliverer *d)
{
    struct CURLMsg *message;
    int queued;

    while ((message = curl_multi_info_read(d->multi, &queued))) {
        struct post *p = NULL;
        struct post_result r;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&p);
        r = post_end(p, message->data.result);
        DL_DELETE(d->posts, p);
        curl_multi_remove_handle(d->multi, p->curl);
        metrics_add_outcome(METRIC_DELIVERIES, r.succeeded, 1);
        metrics_observe(METRIC_DELIVERY_TIME, p->delivery.took_ms * 1000);
        if (p->cursor) {
            if (is_current(p))
                judge(d, p->cursor->of, p, &r);
            go_on(d, p->cursor, p, &r);
            p->cursor = NULL;
        }
        DL_APPEND(d->ended, p);
        d->ended_count++;
    }
}

/* ---- redeliveries: once, whatever the outcome, and apart from the cursors ---- */

static bool is_under_way(const struct deliverer *d, const char *id)
{
    const struct post *p;

    DL_FOREACH(d->posts, p)
        if (p->delivery.again_of && strcmp(p->delivery.again_of, id) == 0)
            return true;
    DL_FOREACH(d->ended, p)
        if (p->delivery.again_of && strcmp(p->delivery.again_of, id) == 0)
            return true;
    return false;
}

static void start_again(struct deliverer *d, struct post *p, const struct delivery *of)
{
    snprintf(p->again_of, sizeof p->again_of, "%s", of->id);
    p->delivery.again_of = p->again_of;
    start_post(d, p);
}

/* Send the event, as in the ledger, to h. False: it cannot be read now. */
static bool repeat(struct deliverer *d, const struct hook *h, const struct delivery *of)
{
    struct batch *b = NULL, *before = NULL;
    static const struct head first;
    enum store_status status = mongo_ledger_at(d->session, of->coupon, of->lane, of->seq, &b);
    struct event *events = NULL;
    struct arena a;
    size_t count;

    if (status == STORE_OK && of->seq > 1)
        status = mongo_ledger_at(d->session, of->coupon, of->lane, of->seq - 1, &before);
    arena_init(&a, 0);
    count = status == STORE_OK ? events_of(b, before ? &before->head : &first, &a, &events) : 0;
    if (of->index < (int64_t)count) {
        start_again(d, post_new(d->config, h, b, &events[of->index], clock_now_ms()), of);
    } else if (status != STORE_FAILED) {
        log_event(LOG_ERROR, "webhook.no_such_event", F_WORD("delivery", of->id));
        status = mongo_delivery_made(d->session, of->id);
    }
    arena_free(&a);
    batch_free(b);
    batch_free(before);
    return status != STORE_FAILED;
}

/* True if we serve it; a disabled one is served by whoever claims it first. */
static bool is_ours(struct deliverer *d, const struct hook *h)
{
    const int64_t now_ms = clock_now_ms(), until_ms = now_ms + d->config->webhooks_lease_ms + d->config->webhooks_timeout_ms;

    if (deliverer_endpoint(d, h->id))
        return true;
    /* nobody renews it: it outlasts the post */
    return !h->enabled && mongo_hook_claim(d->session, h->id, d->owner, now_ms, until_ms) == STORE_OK;
}

static void repeat_asked(struct deliverer *d, const struct delivery *asked, struct arena *a)
{
    struct endpoint *e = deliverer_endpoint(d, asked->hook);
    struct hook *h = e ? e->hook : NULL;
    enum store_status status = e ? STORE_OK : mongo_hook(d->session, asked->hook, a, &h);

    if (status == STORE_NOT_FOUND)
        mongo_delivery_made(d->session, asked->id);
    if (status != STORE_OK || !is_ours(d, h))
        return;
    if (asked->type == EVENT_TEST)
        start_again(d, post_new_test(d->config, h, asked->seq, clock_now_ms()), asked);
    else
        repeat(d, h, asked);
}

void posts_repeat_asked(struct deliverer *d)
{
    struct delivery **asked;
    struct arena a;
    size_t count;

    arena_init(&a, 0);
    if (mongo_deliveries_asked(d->session, ASKED_MOST, &a, &asked, &count) == STORE_OK)
        for (size_t i = 0; i < count; i++)
            if (!is_under_way(d, asked[i]->id))
                repeat_asked(d, asked[i], &a);
    arena_free(&a);
}

/* ---- tests: likewise ---- */

static const struct post *find_test(const struct post *posts, const struct hook *h)
{
    const struct post *p;

    DL_FOREACH(posts, p)
        if (p->delivery.type == EVENT_TEST && !p->delivery.again_of && strcmp(p->delivery.hook, h->id) == 0)
            return p;
    return NULL;
}

void posts_test(struct deliverer *d, const struct hook *h)
{
    if (!find_test(d->posts, h) && !find_test(d->ended, h) && is_ours(d, h))
        start_post(d, post_new_test(d->config, h, h->test_ms, clock_now_ms()));
}
