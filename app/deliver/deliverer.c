/* deliver/deliverer.c -- see deliverer.h: the process, and the thread that posts. Reading order: round(), upwards. */
#include "deliver/deliverer.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <utlist.h>

#include "base/ids.h"
#include "base/log.h"
#include "base/metrics.h"
#include "deliver/doorbell.h"
#include "deliver/post.h"
#include "deliver/stream.h"

#define HOOKS_MOST 1000
#define BELLS_MOST 512
#define SWEEP_PAGE 50           /* coupons that are looked at in one round of a sweep */
#define FLUSH_MS 100            /* attempts and positions are gathered for so long */
#define NOTED_MOST 1000         /* of them; while more wait nothing is sent */
#define ASKED_MOST 20           /* redeliveries at a time */
#define ROUND_MS 50             /* the longest wait while there are webhooks */
#define AGAIN_MS 1000           /* until a ledger that could not be read is read again */
#define CLEAN_MS (3600 * 1000)

struct deliverer {
    const struct config *config;
    struct mongo *mongo;
    struct doorbell bell;
    CURLM *multi;
    atomic_bool stopping;
    pthread_t thread;
    /* the posting thread's alone */
    struct store *door;
    char owner[HOOK_OWNER_LEN + 1];
    struct endpoint *endpoints;
    struct post *posts;         /* under way */
    struct post *ended;         /* to be noted */
    size_t ended_count;
    bool sweeping;
    char swept[COUPON_ID_MAX + 1]; /* the last coupon that the sweep has looked at */
    struct mono look_at, flush_at, clean_at, sweep_at;
};

static void begin_sweep(struct deliverer *d)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e)
        e->swept = 0;
    d->sweeping = true;
    d->sweep_at = mono_now();
    d->swept[0] = '\0';
}

/* ---- noting what was done ---- */

/* Write the attempts that ended. False: later. */
static bool note_attempts(struct deliverer *d)
{
    struct delivery *rows = calloc(d->ended_count + 1, sizeof *rows);
    struct post *p, *next;
    size_t count = 0;
    bool good;

    if (!rows)
        abort();
    DL_FOREACH(d->ended, p)
        rows[count++] = p->delivery;
    good = mongo_deliveries_insert(d->door, rows, count) == STORE_OK;
    free(rows);
    DL_FOREACH_SAFE(d->ended, p, next) {
        if (!good || (p->delivery.again_of && mongo_delivery_made(d->door, p->delivery.again_of) == STORE_FAILED))
            return false;
        DL_DELETE(d->ended, p);
        d->ended_count--;
        post_free(p);
    }
    return true;
}

static bool note_positions(struct deliverer *d, struct endpoint *e)
{
    struct hook_position *rows = calloc(HASH_COUNT(e->streams) + 1, sizeof *rows);
    size_t count = 0;
    bool good = true;

    if (!rows)
        abort();
    for (const struct stream *s = e->streams; s; s = s->hh.next)
        if (s->moved)
            rows[count++] = (struct hook_position){e->hook->id, s->key.coupon, s->key.lane,      s->seq,
                                                   s->part,     s->attempts,   s->not_before_ms};
    for (size_t at = 0; good && at < count; at += NOTED_MOST)
        good = mongo_positions_write(d->door, rows + at, count - at < NOTED_MOST ? count - at : NOTED_MOST) == STORE_OK;
    free(rows);
    for (struct stream *s = e->streams; good && s; s = s->hh.next)
        s->moved = false;
    e->moved = !good;
    return good;
}

/* Write attempts, then positions: an attempt that is not in the list is made again. */
static void flush(struct deliverer *d)
{
    struct endpoint *e;
    bool good = note_attempts(d);

    DL_FOREACH(d->endpoints, e)
        good = good && (!e->moved || note_positions(d, e));
    d->flush_at = mono_add_ms(mono_now(), good ? FLUSH_MS : AGAIN_MS);
}

/* ---- endpoints ---- */

static void abort_post(struct deliverer *d, struct post *p)
{
    DL_DELETE(d->posts, p);
    curl_multi_remove_handle(d->multi, p->curl);
    if (p->stream)
        stream_to(p->stream, STREAM_READY);
    post_free(p);
}

static void close_endpoint(struct deliverer *d, struct endpoint *e)
{
    struct post *p, *next;

    DL_FOREACH_SAFE(d->posts, p, next)
        if (p->stream && p->stream->of == e)
            abort_post(d, p);
    DL_DELETE(d->endpoints, e);
    log_event(LOG_INFO, "webhook.left", "webhook=%s", e->hook->id);
    endpoint_free(e);
}

/* Ours from now on, with the positions that are noted. */
static void open_endpoint(struct deliverer *d, const struct hook *h, int64_t now_ms)
{
    int64_t until_ms = now_ms + d->config->webhooks_lease_ms;
    struct hook_position *positions;
    struct endpoint *e;
    struct arena a;
    size_t count;

    if (mongo_hook_claim(d->door, h->id, d->owner, now_ms, until_ms) != STORE_OK)
        return;
    arena_init(&a, 0);
    if (mongo_positions(d->door, h->id, &a, &positions, &count) == STORE_OK) {
        e = endpoint_new(h);
        e->lease_ms = until_ms;
        for (size_t i = 0; i < count; i++) {
            struct stream *s =
                stream_add(e, positions[i].coupon, positions[i].lane, positions[i].seq, positions[i].part);

            s->attempts = positions[i].attempts;
            s->not_before_ms = positions[i].not_before_ms;
        }
        e->seen = true;
        DL_APPEND(d->endpoints, e);
        begin_sweep(d);
        log_event(LOG_INFO, "webhook.taken", "webhook=%s lanes=%zu", h->id, count);
    }
    arena_free(&a);
}

static struct endpoint *find_endpoint(const struct deliverer *d, const char *id)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e)
        if (strcmp(e->hook->id, id) == 0)
            return e;
    return NULL;
}

/* It was changed: what failed is tried again at once. */
static void renew_endpoint(struct endpoint *e, const struct hook *h)
{
    struct stream *s;

    endpoint_set(e, h);
    DL_FOREACH(e->waiting, s)
        s->not_before_ms = 0;
}

/* Keep up with one subscription as it is stored. */
static void follow(struct deliverer *d, const struct hook *h, int64_t now_ms)
{
    struct endpoint *e = find_endpoint(d, h->id);
    bool ours = h->owner && strcmp(h->owner, d->owner) == 0;

    if (!h->enabled || (e && h->owner && !ours && h->lease_ms > now_ms)) {
        if (e)
            close_endpoint(d, e);
        return;
    }
    if (!e) {
        if (!h->owner || ours || h->lease_ms <= now_ms)
            open_endpoint(d, h, now_ms);
        return;
    }
    e->seen = true;
    if (e->disable && mongo_hook_disable(d->door, h->id, e->disable, now_ms) == STORE_OK) {
        close_endpoint(d, e);
        return;
    }
    if (h->changed_ms != e->hook->changed_ms)
        renew_endpoint(e, h);
    if (e->lease_ms - now_ms < d->config->webhooks_lease_ms / 2) {
        int64_t until_ms = now_ms + d->config->webhooks_lease_ms;
        enum store_status status = mongo_hook_claim(d->door, h->id, d->owner, now_ms, until_ms);

        if (status == STORE_OK)
            e->lease_ms = until_ms;
        else if (status == STORE_NOT_FOUND)
            close_endpoint(d, e);
    }
}

/* Those that are not stored any more: nothing of them is to stay. */
static void leave_unseen(struct deliverer *d)
{
    struct endpoint *e, *next;

    DL_FOREACH_SAFE(d->endpoints, e, next) {
        if (e->seen || mongo_hook_sweep(d->door, e->hook->id) != STORE_OK)
            continue;
        close_endpoint(d, e);
    }
}

static void look_at_hooks(struct deliverer *d)
{
    int64_t now_ms = clock_now_ms();
    struct endpoint *e;
    struct hook **hooks;
    struct arena a;
    size_t count;

    arena_init(&a, 0);
    if (mongo_hooks(d->door, NULL, HOOKS_MOST, &a, &hooks, &count) == STORE_OK) {
        DL_FOREACH(d->endpoints, e)
            e->seen = false;
        for (size_t i = 0; i < count; i++)
            follow(d, hooks[i], now_ms);
        leave_unseen(d);
    }
    arena_free(&a);
    doorbell_listen(&d->bell, d->endpoints != NULL);
}

/* ---- which lanes have something ---- */

/* Put a stream that has something to its place. */
static void wake(struct stream *s)
{
    if (s->state == STREAM_IDLE && s->seq < s->tail)
        stream_to(s, s->not_before_ms > clock_now_ms() ? STREAM_WAITING : STREAM_READY);
}

/* The lane has batches up to tail, the last one from at_ms (0: not known). False: it cannot be looked at now. */
static bool ring(struct deliverer *d, const char *coupon, int64_t lane, int64_t tail, int64_t at_ms)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e) {
        struct stream *s = endpoint_wants(e, coupon) ? stream_find(e, coupon, lane) : NULL;

        if (!s && endpoint_wants(e, coupon) && (!at_ms || at_ms >= e->hook->created_ms)) {
            int64_t start = stream_start(d->door, coupon, lane, tail, e->hook->created_ms);

            if (start < 0)
                return false;
            s = stream_add(e, coupon, lane, start, 0);
        }
        if (!s)
            continue;
        if (tail > s->tail)
            s->tail = tail;
        wake(s);
    }
    return true;
}

static void take_bells(struct deliverer *d)
{
    struct bell bells[BELLS_MOST];
    size_t count;
    bool sweep;

    count = doorbell_take(&d->bell, bells, BELLS_MOST, &sweep);
    for (size_t i = 0; i < count; i++) {
        const struct bell *next = i + 1 < count ? &bells[i + 1] : NULL;
        bool more = next && next->lane == bells[i].lane && strcmp(next->coupon, bells[i].coupon) == 0;

        if (!more && !ring(d, bells[i].coupon, bells[i].lane, bells[i].seq, 0))
            sweep = true;
    }
    if (sweep)
        begin_sweep(d);
}

/* How many lanes a coupon has; 1 where its definition cannot be read. */
static int64_t lanes_of(struct deliverer *d, const char *coupon)
{
    struct coupon *definition = NULL;
    struct arena a;
    int64_t seq, lanes = 1;

    arena_init(&a, 0);
    if (d->door->ops->coupon(d->door, coupon, (struct store_time){0, 0}, &a, &definition, &seq) == STORE_OK &&
        definition)
        lanes = definition->lanes;
    arena_free(&a);
    return lanes;
}

static bool sweep_coupon(struct deliverer *d, const char *coupon)
{
    int64_t lanes = lanes_of(d, coupon);
    bool good = true;

    for (int64_t lane = 0; good && lane < lanes; lane++) {
        struct batch *tail = NULL;
        size_t count = 0;

        good = mongo_ledger_back(d->door, coupon, lane, INT64_MAX, 1, &tail, &count) == STORE_OK;
        if (good && count)
            good = ring(d, coupon, lane, tail->head.seq, tail->head.at_ms);
        batch_free(tail);
    }
    return good;
}

/* The next coupons of all, for those who want all. -1: cannot be looked at now; 0: those were all. */
static int sweep_all(struct deliverer *d)
{
    const char **ids = NULL;
    struct arena a;
    size_t count = 0;
    bool good;

    arena_init(&a, 0);
    good = mongo_ledger_coupons(d->door, d->swept[0] ? d->swept : NULL, SWEEP_PAGE, &a, &ids, &count) == STORE_OK;
    for (size_t i = 0; good && i < count; i++) {
        good = sweep_coupon(d, ids[i]);
        if (good)
            snprintf(d->swept, sizeof d->swept, "%s", ids[i]);
    }
    arena_free(&a);
    return good ? count == SWEEP_PAGE : -1;
}

/* The next coupons that somebody names, likewise. */
static int sweep_named(struct deliverer *d)
{
    struct endpoint *e;
    int left = SWEEP_PAGE;

    DL_FOREACH(d->endpoints, e)
        for (; e->swept < e->hook->coupons.count; e->swept++) {
            if (left-- == 0)
                return 1;
            if (!sweep_coupon(d, e->hook->coupons.items[e->swept]))
                return -1;
        }
    return 0;
}

/* Look at the next few coupons; what cannot be looked at now is, in a while. */
static void sweep_some(struct deliverer *d)
{
    struct endpoint *e;
    bool all = false;
    int more;

    DL_FOREACH(d->endpoints, e)
        all = all || e->hook->coupons.count == 0;
    more = all ? sweep_all(d) : sweep_named(d);
    d->sweeping = more != 0;
    if (more < 0)
        d->sweep_at = mono_add_ms(mono_now(), AGAIN_MS);
}

/* ---- posts ---- */

static void start_post(struct deliverer *d, struct post *p)
{
    DL_APPEND(d->posts, p);
    if (curl_multi_add_handle(d->multi, p->curl) != CURLM_OK)
        abort();
}

static void wait_until(struct stream *s, int64_t ms)
{
    s->not_before_ms = ms;
    stream_to(s, STREAM_WAITING);
}

static void start_next(struct deliverer *d, struct stream *s)
{
    const struct event *event = NULL;
    const struct batch *b = NULL;
    struct post *p;

    switch (stream_next(s, d->door, &b, &event)) {
    case STREAM_ENDS:
        stream_to(s, STREAM_IDLE);
        break;
    case STREAM_HAS_MORE:
        stream_to(s, STREAM_READY);
        break;
    case STREAM_FAILS:
        wait_until(s, clock_now_ms() + AGAIN_MS);
        break;
    case STREAM_HAS:
        p = post_new(d->config, s->of->hook, b, event, clock_now_ms());
        p->stream = s;
        p->delivery.attempt = s->attempts + 1;
        stream_to(s, STREAM_SENDING);
        start_post(d, p);
        break;
    }
}

/* It has an event to send, and may. */
static bool may_start(const struct deliverer *d, const struct endpoint *e)
{
    return e->ready && !e->disable && e->sending < (size_t)d->config->webhooks_side_by_side;
}

static void start_posts(struct deliverer *d)
{
    int64_t now_ms = clock_now_ms();
    struct stream *s, *next;
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e) {
        size_t turns = (size_t)d->config->webhooks_side_by_side;

        DL_FOREACH_SAFE(e->waiting, s, next)
            if (s->not_before_ms <= now_ms)
                stream_to(s, STREAM_READY);
        for (; turns > 0 && may_start(d, e); turns--)
            start_next(d, e->ready);
    }
}

/* Nothing reaches the receiver, or something does again. */
static void judge(struct deliverer *d, struct endpoint *e, const struct post *p, const struct post_result *r)
{
    int64_t now_ms = clock_now_ms(), since_ms = r->succeeded ? 0 : e->hook->failing_ms ? e->hook->failing_ms : now_ms;

    if (r->gone)
        e->disable = "gone";
    else if (!r->succeeded && now_ms - since_ms >= (int64_t)d->config->webhooks_give_up_s * 1000)
        e->disable = "failing";
    if (e->disable) {
        log_event(LOG_WARNING, "webhook.disabled", "webhook=%s reason=%s", e->hook->id, e->disable);
        d->look_at = mono_now();
    }
    if (since_ms == e->hook->failing_ms)
        return;
    if (since_ms)
        log_event(LOG_INFO, "webhook.failing", "webhook=%s status=%" PRId64 " coupon=%s lane=%" PRId64 " seq=%" PRId64,
                  e->hook->id, p->delivery.status, p->delivery.coupon, p->delivery.lane, p->delivery.seq);
    if (mongo_hook_failing(d->door, e->hook->id, since_ms) != STORE_FAILED)
        e->hook->failing_ms = since_ms;
}

static void go_on(struct deliverer *d, struct stream *s, const struct post_result *r)
{
    int64_t most = (int64_t)d->config->webhooks_retry_most_s * 1000, wait;

    if (r->succeeded) {
        stream_taken(s);
        stream_to(s, s->batch_at < s->batch_count || s->seq < s->tail ? STREAM_READY : STREAM_IDLE);
        return;
    }
    s->attempts++;
    s->moved = s->of->moved = true;
    wait = post_backoff_ms(d->config, s->attempts);
    if (wait < r->retry_after_ms)
        wait = r->retry_after_ms < most ? r->retry_after_ms : most;
    wait_until(s, clock_now_ms() + wait);
}

static void end_post(struct deliverer *d, struct post *p, CURLcode code)
{
    struct post_result r = post_end(p, code);

    DL_DELETE(d->posts, p);
    curl_multi_remove_handle(d->multi, p->curl);
    metrics_add_outcome(METRIC_DELIVERIES, r.succeeded, 1);
    metrics_observe(METRIC_DELIVERY_TIME, p->delivery.took_ms * 1000);
    if (p->stream) {
        judge(d, p->stream->of, p, &r);
        go_on(d, p->stream, &r);
        p->stream = NULL;
    }
    DL_APPEND(d->ended, p);
    d->ended_count++;
}

static void end_posts(struct deliverer *d)
{
    struct CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(d->multi, &left))) {
        struct post *p = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&p);
        end_post(d, p, message->data.result);
    }
}

/* ---- redeliveries: once, whatever becomes of it, and beside the streams ---- */

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

/* The event as the ledger has it, sent to h. False: it cannot be read now. */
static bool repeat(struct deliverer *d, const struct hook *h, const struct delivery *of)
{
    struct batch *b = NULL, *before = NULL;
    static const struct head first;
    enum store_status status = mongo_ledger_at(d->door, of->coupon, of->lane, of->seq, &b);
    struct event *events = NULL;
    struct arena a;
    size_t count;

    if (status == STORE_OK && of->seq > 1)
        status = mongo_ledger_at(d->door, of->coupon, of->lane, of->seq - 1, &before);
    arena_init(&a, 0);
    count = status == STORE_OK ? events_of(b, before ? &before->head : &first, &a, &events) : 0;
    if (of->part < (int64_t)count) {
        struct post *p = post_new(d->config, h, b, &events[of->part], clock_now_ms());

        snprintf(p->again_of, sizeof p->again_of, "%s", of->id);
        p->delivery.again_of = p->again_of;
        start_post(d, p);
    } else if (status != STORE_FAILED) {
        log_event(LOG_ERROR, "webhook.no_such_event", "delivery=%s", of->id);
        status = mongo_delivery_made(d->door, of->id);
    }
    arena_free(&a);
    batch_free(b);
    batch_free(before);
    return status != STORE_FAILED;
}

/* Ours when we serve its webhook; a disabled one is served by whoever claims it first. */
static void repeat_asked(struct deliverer *d, const struct delivery *asked, struct arena *a)
{
    struct endpoint *e = find_endpoint(d, asked->hook);
    int64_t now_ms = clock_now_ms();
    struct hook *h = e ? e->hook : NULL;
    enum store_status status = e ? STORE_OK : mongo_hook(d->door, asked->hook, a, &h);

    if (status == STORE_OK && !e)
        status = h->enabled ? STORE_FAILED
                            : mongo_hook_claim(d->door, h->id, d->owner, now_ms, now_ms + d->config->webhooks_lease_ms);
    else if (status == STORE_NOT_FOUND)
        mongo_delivery_made(d->door, asked->id);
    if (status == STORE_OK)
        repeat(d, h, asked);
}

static void look_at_wishes(struct deliverer *d)
{
    struct delivery **asked;
    struct arena a;
    size_t count;

    arena_init(&a, 0);
    if (mongo_deliveries_asked(d->door, ASKED_MOST, &a, &asked, &count) == STORE_OK)
        for (size_t i = 0; i < count; i++)
            if (!is_under_way(d, asked[i]->id))
                repeat_asked(d, asked[i], &a);
    arena_free(&a);
}

/* ---- the posting thread ---- */

static void count_pending(const struct deliverer *d)
{
    const struct endpoint *e;
    int64_t pending = 0;

    DL_FOREACH(d->endpoints, e)
        for (const struct stream *s = e->streams; s; s = s->hh.next)
            pending += s->tail - s->seq; /* batches: mostly an event each */
    metrics_set(METRIC_DELIVERIES_PENDING, pending);
}

static void look(struct deliverer *d)
{
    struct mono now = mono_now();

    d->look_at = mono_add_ms(now, d->config->webhooks_poll_ms);
    look_at_hooks(d);
    look_at_wishes(d);
    count_pending(d);
    if (mono_before(d->clean_at, now)) {
        d->clean_at = mono_add_ms(now, CLEAN_MS);
        mongo_deliveries_clean(d->door, clock_now_ms() - (int64_t)d->config->webhooks_keep_days * 24 * 3600 * 1000);
    }
}

static bool sweep_is_due(const struct deliverer *d)
{
    return d->sweeping && !mono_before(mono_now(), d->sweep_at);
}

/* How long there is nothing to do but to wait for receivers and bells. */
static int rest_ms(const struct deliverer *d)
{
    int64_t ms = mono_ms_between(mono_now(), d->look_at);
    const struct endpoint *e;

    if (sweep_is_due(d))
        return 0;
    DL_FOREACH(d->endpoints, e)
        if (may_start(d, e) && d->ended_count < NOTED_MOST)
            return 0;
    if ((d->endpoints || d->posts || d->ended) && ms > ROUND_MS)
        ms = ROUND_MS;
    return ms < 0 ? 0 : (int)ms;
}

static void round_of(struct deliverer *d, bool start)
{
    int running;

    if (start) {
        if (!mono_before(mono_now(), d->look_at))
            look(d);
        take_bells(d);
        if (sweep_is_due(d))
            sweep_some(d);
        if (d->ended_count < NOTED_MOST)
            start_posts(d);
    }
    curl_multi_perform(d->multi, &running);
    end_posts(d);
    if (!mono_before(mono_now(), d->flush_at))
        flush(d);
}

static void wake_up(void *context)
{
    struct deliverer *d = context;

    curl_multi_wakeup(d->multi);
}

/* What is under way may end; then everything is noted, and the webhooks are somebody else's. */
static void finish(struct deliverer *d)
{
    struct mono until = mono_add_ms(mono_now(), (int64_t)d->config->coupond_drain_s * 1000 / 2);

    while (d->posts && mono_before(mono_now(), until)) {
        round_of(d, false);
        curl_multi_poll(d->multi, NULL, 0, ROUND_MS, NULL);
    }
    while (d->posts)
        abort_post(d, d->posts);
    flush(d);
    if (mongo_hooks_release(d->door, d->owner) != STORE_OK)
        log_event(LOG_INFO, "webhooks.not_released", "%s", "");
    while (d->endpoints)
        close_endpoint(d, d->endpoints);
    while (d->ended) { /* could not be noted */
        struct post *p = d->ended;

        DL_DELETE(d->ended, p);
        post_free(p);
    }
}

static void *post_thread(void *context)
{
    struct deliverer *d = context;

    d->door = mongo_door(d->mongo);
    id_random(d->owner, HOOK_OWNER_LEN);
    d->look_at = d->flush_at = d->clean_at = mono_now();
    while (!atomic_load(&d->stopping)) {
        round_of(d, true);
        curl_multi_poll(d->multi, NULL, 0, rest_ms(d), NULL);
    }
    finish(d);
    d->door->ops->close(d->door);
    return NULL;
}

/* ---- the process ---- */

static void wait_for_stop(void)
{
    sigset_t signals;
    int signal = 0;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    while (signal != SIGTERM && signal != SIGINT) {
        if (sigwait(&signals, &signal) != 0)
            abort();
        if (signal == SIGUSR1)
            log_reopen();
    }
}

static void run_threads(struct deliverer *d)
{
    doorbell_start(&d->bell, d->mongo, wake_up, d);
    if (pthread_create(&d->thread, NULL, post_thread, d) != 0)
        abort();
    log_event(LOG_INFO, "deliverer.started", "%s", "");
    wait_for_stop();
    atomic_store(&d->stopping, true);
    curl_multi_wakeup(d->multi);
    pthread_join(d->thread, NULL);
    doorbell_stop(&d->bell);
    log_event(LOG_INFO, "deliverer.stopped", "%s", "");
}

int deliverer_run(const struct config *config)
{
    static struct deliverer d;
    const char *wrong;
    char message[512];

    clock_init();
    d.config = config;
    if (!address_networks_valid(config->webhooks_networks, &wrong)) {
        log_event(LOG_ERROR, "deliverer.unusable", "reason=\"webhooks.networks: %s is no network\"", wrong);
        return EX_CONFIG;
    }
    d.mongo = mongo_open(config, message, sizeof message);
    if (!d.mongo) {
        log_event(LOG_ERROR, "deliverer.unusable", "reason=\"%s\"", message);
        return EX_CONFIG;
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(d.multi = curl_multi_init()))
        abort();
    run_threads(&d);
    curl_multi_cleanup(d.multi);
    curl_global_cleanup();
    mongo_close(d.mongo);
    return EXIT_SUCCESS;
}
