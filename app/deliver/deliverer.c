/* deliver/deliverer.c -- see deliverer.h: the process, and the posting thread. Reading order: round_of(), then what it calls, going up. */
#include "deliver/deliverer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "base/wake.h"
#include "deliver/state.h"
#include "store/schema_watch.h"

#define HOOKS_MOST 1000
#define BATCH_KEYS_MOST 512
#define SWEEP_PAGE 50           /* coupons looked at in one round of a whole sweep */
#define LATE_MS 15000           /* like the reporter's */
#define FLUSH_MS 100            /* attempts and positions are gathered this long */
#define NOTED_MOST 1000         /* attempts; while more wait, nothing is sent */
#define POLL_MS 500             /* to look for webhooks and redelivery requests from other fronts; this one's are seen at once */
#define ROUND_MS 50             /* the longest wait while there are webhooks */
#define CLEAN_MS (3600 * 1000)

static void begin_sweep(struct deliverer *d)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e)
        e->goal = 0; /* missed batches are not waited for */
    d->sweeping = true;
    d->passed_over = false;
    d->sweep_at = mono_now();
    d->sweep_now = 0;
    d->swept[0] = '\0';
}

/* The sweep has ended; what it skipped is swept again later, at growing intervals: it may be damaged. */
static void end_sweep(struct deliverer *d)
{
    d->sweeping = false;
    if (!d->passed_over) {
        d->again_ms = 0;
        if (d->sweep_now > d->latest)
            d->latest = d->sweep_now;
        return;
    }
    d->again_ms = longer_pause_ms(d->again_ms, DELIVER_AGAIN_MS, SWEEP_AGAIN_MOST_MS);
    begin_sweep(d);
    d->sweep_at = mono_add_ms(d->sweep_at, d->again_ms);
}

/* ---- recording what was done ---- */

/* Record that a requested post is done. */
static bool note_requested(struct deliverer *d, const struct delivery *made)
{
    if (made->again_of)
        return mongo_delivery_made(d->session, made->again_of) != STORE_FAILED;
    return made->type != EVENT_TEST || mongo_hook_tested(d->session, made->hook, made->seq) != STORE_FAILED;
}

/* Write the attempts that ended. False: later. */
static bool note_attempts(struct deliverer *d)
{
    struct delivery *rows = checked(calloc(d->ended_count + 1, sizeof *rows));
    struct post *p, *next;
    size_t count = 0;
    bool good;

    DL_FOREACH(d->ended, p)
        rows[count++] = p->delivery;
    good = mongo_deliveries_insert(d->session, rows, count) == STORE_OK;
    free(rows);
    DL_FOREACH_SAFE(d->ended, p, next) {
        if (!good || !note_requested(d, &p->delivery))
            return false;
        DL_DELETE(d->ended, p);
        d->ended_count--;
        post_free(p);
    }
    return true;
}

static bool note_positions(struct deliverer *d, struct endpoint *e)
{
    struct hook_position *rows = checked(calloc(HASH_COUNT(e->cursors) + 1, sizeof *rows));
    size_t count = 0;
    bool good = true;

    for (const struct cursor *s = e->cursors; s; s = s->hh.next)
        if (s->moved)
            rows[count++] = (struct hook_position){
                e->hook->id, s->key.coupon, s->key.lane, s->seq, s->index, s->attempts, s->not_before_ms};
    for (size_t at = 0; good && at < count; at += NOTED_MOST)
        good = mongo_positions_write(d->session, rows + at, count - at < NOTED_MOST ? count - at : NOTED_MOST) == STORE_OK;
    free(rows);
    for (struct cursor *s = e->cursors; good && s; s = s->hh.next) {
        if (s->moved && s->awaited && s->seq >= s->awaited) {
            s->awaited = 0;
            e->awaited--;
        }
        s->moved = false;
    }
    e->moved = !good;
    return good;
}

/* Prepare a watermark: everything heard of by now. Once it is delivered, and nothing that arrived earlier can still appear, it is the
 * watermark. While it names lanes, this repeats even if nothing arrives. */
static void aim_watermark(const struct deliverer *d, struct endpoint *e)
{
    uint64_t goal = d->latest > e->watermark.arrived ? d->latest : e->watermark.arrived;

    if (e->goal || (goal == e->watermark.arrived && !e->watermark.behind_count) || d->sweeping)
        return;
    e->goal = goal;
    e->goal_at = mono_add_ms(mono_now(), LATE_MS);
    e->awaited = 0;
    for (struct cursor *s = e->cursors; s; s = s->hh.next) {
        s->awaited = s->seq < s->tail || s->moved ? s->tail : 0;
        e->awaited += s->awaited > 0;
    }
}

/* What it waited for is delivered: add the lanes that wait for another attempt. False: too many, or others are not delivered yet. */
static bool add_waiting(const struct endpoint *e, struct watermark *w)
{
    const struct cursor *s;

    if (e->awaited > BEHIND_MOST)
        return false;
    DL_FOREACH(e->waiting, s)
        if (s->awaited && !watermark_add_behind(w, s->key.coupon, s->key.lane))
            return false;
    return w->behind_count == e->awaited;
}

/* Forget the lanes that are over, here and in the database. */
static void forget_over(struct deliverer *d, struct endpoint *e)
{
    struct hook_position *rows = checked(calloc(HASH_COUNT(e->cursors) + 1, sizeof *rows));
    struct cursor **over = checked(calloc(HASH_COUNT(e->cursors) + 1, sizeof *over));
    size_t count = 0, most;

    for (struct cursor *s = e->cursors; s; s = s->hh.next) {
        if (!cursor_is_over(s))
            continue;
        rows[count] = (struct hook_position){.hook = e->hook->id, .coupon = s->key.coupon, .lane = s->key.lane, .seq = s->seq};
        over[count++] = s;
    }
    for (size_t at = 0; at < count; at += most) {
        most = count - at < NOTED_MOST ? count - at : NOTED_MOST;
        if (mongo_positions_remove(d->session, rows + at, most) != STORE_OK)
            break;
        for (size_t i = at; i < at + most; i++)
            cursor_remove(over[i]);
    }
    free(rows);
    free(over);
}

static void move_watermark(struct deliverer *d, struct endpoint *e)
{
    struct watermark next = {.arrived = e->goal};

    if (e->goal && !mono_before(mono_now(), e->goal_at) && add_waiting(e, &next)) {
        e->watermark = next;
        e->goal = 0;
        e->watermark_written = false;
    }
    if (!e->watermark_written && e->watermark.arrived) {
        e->watermark_written = mongo_hook_arrived(d->session, e->hook->id, d->owner, &e->watermark) == STORE_OK;
        if (e->watermark_written)
            forget_over(d, e);
    }
    aim_watermark(d, e);
}

/* A batch arrived below a watermark, more than LATE_MS after others: move the watermark back. */
static void note_arrival(struct deliverer *d, uint64_t arrived)
{
    struct endpoint *e;

    if (!arrived)
        return;
    d->latest = arrived;
    DL_FOREACH(d->endpoints, e) {
        if (arrived < e->goal)
            e->goal = arrived;
        if (arrived < e->watermark.arrived) {
            e->watermark.arrived = arrived;
            e->watermark_written = false;
        }
    }
}

/* Write attempts, then positions: an attempt not in the list is made again. */
static void flush(struct deliverer *d)
{
    struct endpoint *e;
    bool good = note_attempts(d);

    DL_FOREACH(d->endpoints, e) {
        good = good && (!e->moved || note_positions(d, e));
        if (good)
            move_watermark(d, e);
    }
    d->flush_at = mono_add_ms(mono_now(), good ? FLUSH_MS : DELIVER_AGAIN_MS);
}

/* ---- endpoints ---- */

static void close_endpoint(struct deliverer *d, struct endpoint *e)
{
    struct post *p, *next;

    DL_FOREACH_SAFE(d->posts, p, next)
        if (p->cursor && p->cursor->of == e)
            posts_abort(d, p);
    DL_DELETE(d->endpoints, e);
    log_event(LOG_INFO, "webhook.released", F_WORD("webhook", e->hook->id));
    endpoint_free(e);
}

/* Start serving it: a sweep finds the lanes with something to deliver, and each reads its stored position when it is next. */
static void open_endpoint(struct deliverer *d, const struct hook *h, int64_t now_ms)
{
    int64_t until_ms = now_ms + d->config->webhooks_lease_ms;
    struct endpoint *e;

    if (mongo_hook_claim(d->session, h->id, d->owner, now_ms, until_ms) != STORE_OK)
        return;
    e = endpoint_new(h);
    e->lease_ms = until_ms;
    e->watermark = h->watermark;
    e->watermark_written = true;
    e->seen = true;
    DL_APPEND(d->endpoints, e);
    begin_sweep(d);
    log_event(LOG_INFO, "webhook.taken", F_WORD("webhook", h->id));
}

struct endpoint *deliverer_endpoint(const struct deliverer *d, const char *id)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e)
        if (strcmp(e->hook->id, id) == 0)
            return e;
    return NULL;
}

/* Follow one subscription, as stored. */
static void follow(struct deliverer *d, const struct hook *h, int64_t now_ms)
{
    struct endpoint *e = deliverer_endpoint(d, h->id);
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
    if (h->changed_ms != e->hook->changed_ms) {
        struct cursor *s;

        endpoint_set(e, h);
        e->disable = NULL;
        DL_FOREACH(e->waiting, s)
            s->not_before_ms = 0;
    }
    if (e->disable && mongo_hook_disable(d->session, h, e->disable, now_ms) == STORE_OK) {
        log_event(LOG_WARNING, "webhook.disabled", F_WORD("webhook", h->id), F_WORD("reason", e->disable));
        close_endpoint(d, e);
        return;
    }
    if (e->lease_ms - now_ms < d->config->webhooks_lease_ms / 2) {
        int64_t until_ms = now_ms + d->config->webhooks_lease_ms;
        enum store_status status = mongo_hook_claim(d->session, h->id, d->owner, now_ms, until_ms);

        if (status == STORE_OK)
            e->lease_ms = until_ms;
        else if (status == STORE_NOT_FOUND)
            close_endpoint(d, e);
    }
}

/* Drop webhooks no longer stored, with everything of theirs. */
static void leave_unseen(struct deliverer *d)
{
    struct endpoint *e, *next;

    DL_FOREACH_SAFE(d->endpoints, e, next) {
        if (e->seen || mongo_hook_sweep(d->session, e->hook->id) != STORE_OK)
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
    if (mongo_hooks(d->session, NULL, HOOKS_MOST, &a, &hooks, &count) == STORE_OK) {
        DL_FOREACH(d->endpoints, e)
            e->seen = false;
        for (size_t i = 0; i < count; i++) {
            follow(d, hooks[i], now_ms);
            if (hooks[i]->test_ms)
                posts_test(d, hooks[i]);
        }
        leave_unseen(d);
    }
    arena_free(&a);
    change_feed_listen(&d->feed, d->endpoints != NULL);
}

/* ---- which lanes have news ---- */

/* Note that the lane has batches up to tail, the last one from at_ms and arrived then (0: unknown). */
static void ring(struct deliverer *d, const char *coupon, int64_t lane, int64_t tail, int64_t at_ms, uint64_t arrived)
{
    struct endpoint *e;

    DL_FOREACH(d->endpoints, e) {
        struct cursor *s = endpoint_wants(e, coupon) ? cursor_find(e, coupon, lane) : NULL;

        if (!s && endpoint_wants(e, coupon) && (!at_ms || at_ms >= e->hook->created_ms))
            s = cursor_add(e, coupon, lane, -1, 0);
        if (!s)
            continue;
        if (tail > s->tail)
            s->tail = tail;
        if (arrived > s->arrived)
            s->arrived = arrived;
        if (s->state == CURSOR_IDLE && s->seq < s->tail)
            cursor_to(s, s->not_before_ms > clock_now_ms() ? CURSOR_WAITING : CURSOR_READY);
    }
}

static void take_batch_keys(struct deliverer *d)
{
    struct batch_key batch_keys[BATCH_KEYS_MOST];
    size_t count;
    bool sweep;

    count = change_feed_take(&d->feed, batch_keys, BATCH_KEYS_MOST, &sweep);
    for (size_t i = 0; i < count; i++) {
        const struct batch_key *next = i + 1 < count ? &batch_keys[i + 1] : NULL;
        bool more = next && next->lane == batch_keys[i].lane && strcmp(next->coupon, batch_keys[i].coupon) == 0;

        if (!more)
            ring(d, batch_keys[i].coupon, batch_keys[i].lane, batch_keys[i].seq, 0, batch_keys[i].arrived);
        note_arrival(d, batch_keys[i].arrived);
    }
    if (sweep)
        begin_sweep(d);
}

static bool sweep_lane(struct deliverer *d, const char *coupon, int64_t lane)
{
    struct batch *tail = NULL;
    size_t count = 0;
    bool good = mongo_ledger_back(d->session, coupon, lane, INT64_MAX, 1, &tail, &count) == STORE_OK;
    int64_t seq = good && count ? tail->head.seq : 0, at_ms = good && count ? tail->head.at_ms : 0;
    uint64_t arrived = good && count ? tail->arrived : 0;

    if (!good) /* that lane may be damaged: it waits by itself, and is named as behind, so that the sweep can end */
        good = mongo_lane_tail(d->session, coupon, lane, &seq) == STORE_OK;
    if (good && seq > 0)
        ring(d, coupon, lane, seq, at_ms, arrived);
    batch_free(tail);
    return good;
}

/* False: the coupon is skipped, at least in part. */
static bool sweep_coupon(struct deliverer *d, const char *coupon)
{
    int64_t lanes;
    bool known = mongo_coupon_lanes(d->session, coupon, &lanes) == STORE_OK, good = known;

    for (int64_t lane = 0; known && lane < lanes; lane++)
        good = sweep_lane(d, coupon, lane) && good;
    if (!good) {
        /* Its ledger cannot be read now; do not hold up the others. */
        log_event(LOG_WARNING, "webhooks.passed_over", F_WORD("coupon", coupon));
        d->passed_over = true;
    }
    return good;
}

/* Sweep the next of all coupons. -1: not now, or one cannot be looked at; 0: that was all. */
static int sweep_all(struct deliverer *d)
{
    const char **ids = NULL;
    struct arena a;
    size_t count = 0;
    bool good;

    arena_init(&a, 0);
    good = mongo_ledger_coupons(d->session, d->swept[0] ? d->swept : NULL, SWEEP_PAGE, &a, &ids, &count) == STORE_OK;
    for (size_t i = 0; good && i < count; i++) {
        good = sweep_coupon(d, ids[i]);
        snprintf(d->swept, sizeof d->swept, "%s", ids[i]);
    }
    arena_free(&a);
    return good ? count == SWEEP_PAGE : -1;
}

static bool is_last_of_lane(const struct arrival *arrivals, size_t count, size_t i)
{
    for (size_t k = i + 1; k < count; k++)
        if (arrivals[k].lane == arrivals[i].lane && strcmp(arrivals[k].coupon, arrivals[i].coupon) == 0)
            return false;
    return true;
}

/* Likewise, the lanes of the next batches above the watermarks. */
static int sweep_arrivals(struct deliverer *d)
{
    struct arrival *arrivals;
    struct arena a;
    size_t count;
    bool good;

    arena_init(&a, 0);
    good = mongo_arrivals(d->session, &d->at, &a, &arrivals, &count) == STORE_OK;
    for (size_t i = 0; i < count; i++)
        if (is_last_of_lane(arrivals, count, i))
            ring(d, arrivals[i].coupon, arrivals[i].lane, arrivals[i].seq, 0, arrivals[i].arrived);
    arena_free(&a);
    return good ? d->at.more : -1;
}

/* Sweep the lanes that the watermarks name. False: the database does not answer. */
static bool sweep_behind(struct deliverer *d)
{
    const struct endpoint *e;

    DL_FOREACH(d->endpoints, e)
        for (size_t i = 0; i < e->watermark.behind_count; i++) {
            const struct lane_behind *behind = &e->watermark.behind[i];
            int64_t tail;

            if (mongo_lane_tail(d->session, behind->coupon, behind->lane, &tail) != STORE_OK)
                return false;
            if (tail > 0)
                ring(d, behind->coupon, behind->lane, tail, 0, 0);
        }
    return true;
}

/* Find what to sweep: these, and from the lowest watermark on, or all coupons. False: the database does not answer. */
static bool aim_sweep(struct deliverer *d)
{
    struct watermark reporters;
    uint64_t lowest = UINT64_MAX;
    const struct endpoint *e;

    if (mongo_watermark(d->session, &reporters, &d->sweep_now) == STORE_FAILED)
        return false;
    DL_FOREACH(d->endpoints, e)
        if (e->watermark.arrived < lowest)
            lowest = e->watermark.arrived;
    d->whole = lowest == 0;
    d->at = (struct arrivals_at){.from = lowest};
    if (!sweep_behind(d))
        d->sweep_now = 0;
    return d->sweep_now != 0;
}

/* Sweep the next few lanes. If that fails it may be the database: give it a while. */
static void sweep_some(struct deliverer *d)
{
    int more = -1;

    if (d->sweep_now || aim_sweep(d))
        more = d->whole ? sweep_all(d) : sweep_arrivals(d);
    if (more < 0)
        d->sweep_at = mono_add_ms(mono_now(), DELIVER_AGAIN_MS);
    else if (more == 0)
        end_sweep(d);
}

/* ---- the posting thread ---- */

static bool sweep_is_due(const struct deliverer *d)
{
    return d->sweeping && !mono_before(mono_now(), d->sweep_at);
}

/* How long there is nothing to do but wait for receivers and the change feed. */
static int rest_ms(const struct deliverer *d)
{
    int64_t ms = mono_ms_between(mono_now(), d->look_at);
    const struct endpoint *e;

    if (sweep_is_due(d))
        return 0;
    DL_FOREACH(d->endpoints, e)
        if (posts_may_start(d, e) && d->ended_count < NOTED_MOST)
            return 0;
    if ((d->endpoints || d->posts || d->ended) && ms > ROUND_MS)
        ms = ROUND_MS;
    return ms < 0 ? 0 : (int)ms;
}

static void round_of(struct deliverer *d, bool start)
{
    int running;

    if (start) {
        if (!mono_before(mono_now(), d->look_at)) {
            struct mono now = mono_now();
            const struct endpoint *e;
            int64_t pending = 0;

            d->look_at = mono_add_ms(now, POLL_MS);
            look_at_hooks(d);
            posts_repeat_asked(d);
            DL_FOREACH(d->endpoints, e)
                for (const struct cursor *s = e->cursors; s; s = s->hh.next)
                    pending += s->seq < 0 ? 1 : s->tail - s->seq; /* batches: mostly one event each */
            metrics_set(METRIC_DELIVERIES_PENDING, pending);
            if (mono_before(d->clean_at, now)) {
                d->clean_at = mono_add_ms(now, CLEAN_MS);
                mongo_deliveries_clean(d->session, clock_now_ms() - (int64_t)d->config->webhooks_keep_days * 24 * 3600 * 1000);
            }
        }
        take_batch_keys(d);
        if (sweep_is_due(d))
            sweep_some(d);
        if (d->ended_count < NOTED_MOST)
            posts_start(d);
    }
    curl_multi_perform(d->multi, &running);
    posts_end(d);
    if (!mono_before(mono_now(), d->flush_at))
        flush(d);
}

static void wake_up(void *context)
{
    struct deliverer *d = context;

    curl_multi_wakeup(d->multi);
}

/* Let posts under way end; then record everything, and release the webhooks. */
static void finish(struct deliverer *d)
{
    struct mono until = mono_add_ms(mono_now(), (int64_t)d->config->coupond_drain_s * 1000 / 2);

    while (d->posts && mono_before(mono_now(), until)) {
        round_of(d, false);
        curl_multi_poll(d->multi, NULL, 0, ROUND_MS, NULL);
    }
    while (d->posts)
        posts_abort(d, d->posts);
    flush(d);
    if (mongo_hooks_release(d->session, d->owner) != STORE_OK)
        log_event(LOG_INFO, "webhooks.not_released", F_NONE);
    while (d->endpoints)
        close_endpoint(d, d->endpoints);
    while (d->ended) { /* could not be recorded */
        struct post *p = d->ended;

        DL_DELETE(d->ended, p);
        post_free(p);
    }
}

static void *post_thread(void *context)
{
    struct deliverer *d = context;

    d->session = mongo_session(d->mongo);
    id_random(d->owner, HOOK_OWNER_LEN);
    d->look_at = d->flush_at = d->clean_at = mono_now();
    while (!stop_asked(&d->stop)) {
        struct curl_waitfd call = {.fd = wake_fd(WAKE_DELIVERER), .events = CURL_WAIT_POLLIN};

        round_of(d, true);
        curl_multi_poll(d->multi, &call, call.fd >= 0, rest_ms(d), NULL);
        if (wake_take(WAKE_DELIVERER))
            d->look_at = mono_now();
    }
    finish(d);
    d->session->ops->close(d->session);
    return NULL;
}

/* ---- the process ---- */

int deliverer_run(const struct config *config)
{
    static struct deliverer d;

    clock_init();
    d.config = config;
    d.mongo = mongo_open_or_exit(config);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(d.multi = curl_multi_init()))
        out_of_memory();
    stop_init(&d.stop);
    d.schema = schema_watch_start(d.mongo);
    change_feed_start(&d.feed, d.mongo, &d.stop, wake_up, &d);
    thread_start(&d.thread, post_thread, &d, "posts");
    log_event(LOG_INFO, "deliverer.started", F_NONE);
    stop_await_signal();
    stop_ask(&d.stop);
    curl_multi_wakeup(d.multi);
    pthread_join(d.thread, NULL);
    change_feed_join(&d.feed);
    log_event(LOG_INFO, "deliverer.stopped", F_NONE);
    schema_watch_stop(d.schema);
    stop_release(&d.stop);
    curl_multi_cleanup(d.multi);
    curl_global_cleanup();
    mongo_close(d.mongo);
    return EXIT_SUCCESS;
}
