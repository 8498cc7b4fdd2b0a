/* reporter/reporter.c -- see reporter.h: the three threads, and the folding. */
#include "reporter/reporter.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <uthash.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "reporter/inbox.h"
#include "reporter/tally.h"
#include "reporter/watch.h"
#include "store/mongo.h"

#define BACKOFF_FIRST_MS 50
#define BACKOFF_LAST_MS 2000
#define INBOX_WAIT_MS 1000
#define SWEEP_PAGE 100     /* coupons that are looked at between two rounds of folding */
#define CATCH_UP_BATCHES 200
#define BACKSTOP_LANES 200 /* at most, in one round of the backstop */
#define VIEWS "views"
#define TOTALS "totals"

/* A lane in the fold's table. */
struct known {
    struct tally_lane lane; /* its coupon and lane are the key: zeroed beyond the text */
    bool behind;            /* in this round: its ledger has to be read; it stands in the list of those */
    struct known *next_behind;
    bool moved;             /* in this round: its mark has to be written */
    UT_hash_handle hh;
};
#define KNOWN_KEY_SIZE (offsetof(struct tally_lane, lane) + sizeof(int64_t))

struct reporter {
    const struct config *config;
    struct mongo *mongo;
    struct engine *engine;
    struct inbox inbox;
    struct watch *watch;
    atomic_bool stopping;
    /* the fold's alone */
    struct store *door;
    struct known *lanes;
    struct known *behind;
    size_t round_most; /* tallies in one round */
    struct tally *tallies;
    struct run *runs;
    struct totals_write *writes;
    struct mark_write *marks;
    bool sweeping;
    char swept[COUPON_ID_MAX + 1]; /* the last coupon that the sweep has looked at */
};

/* ---- waiting ---- */

static void back_off(struct reporter *r, int64_t *ms)
{
    struct mono until;

    *ms = *ms ? *ms * 2 : BACKOFF_FIRST_MS;
    if (*ms > BACKOFF_LAST_MS)
        *ms = BACKOFF_LAST_MS;
    until = mono_add_ms(mono_now(), *ms);
    while (!atomic_load(&r->stopping) && mono_before(mono_now(), until))
        nanosleep(&(struct timespec){0, BACKOFF_FIRST_MS * 1000000L}, NULL);
}

/* ---- feed thread ---- */

struct position {
    void *token;
    size_t size; /* 0: none, begin now */
};

static void keep_position(struct position *p, const struct feed *f)
{
    size_t size = 0;
    const void *token = feed_token(f, &size);

    if (!token || !size)
        return;
    p->token = realloc(p->token, size);
    if (!p->token)
        abort();
    memcpy(p->token, token, size);
    p->size = size;
}

/* Read one stream until it breaks. A stream without a past may have missed batches: once it stands, ask for a sweep. */
static void read_stream(struct reporter *r, struct feed *f, struct position *p, int64_t *pause_ms)
{
    bool fresh = p->size == 0;
    int status = 0;

    while (!atomic_load(&r->stopping)) {
        struct batch *b = NULL;
        struct tally t;

        status = feed_next(f, &b);
        if (status < 0)
            break;
        if (fresh)
            inbox_ask_sweep(&r->inbox);
        fresh = false;
        *pause_ms = 0;
        if (status > 0) {
            tally_of_batch(&t, b);
            batch_free(b);
            if (!inbox_put(&r->inbox, &t))
                break;
        }
        keep_position(p, f);
    }
    if (status == -2)
        p->size = 0;
    if (status < 0)
        log_event(LOG_WARNING, status == -2 ? "feed.history_lost" : "feed.broken", "resumable=%d", p->size > 0);
}

static void *feed_thread(void *context)
{
    struct reporter *r = context;
    struct store *door = mongo_door(r->mongo);
    struct position p = {NULL, 0};
    int64_t pause_ms = 0;

    while (!atomic_load(&r->stopping)) {
        struct feed *f = feed_open(door, p.size ? p.token : NULL, p.size);

        if (f) {
            read_stream(r, f, &p, &pause_ms);
            feed_close(f);
        }
        if (!atomic_load(&r->stopping))
            back_off(r, &pause_ms);
    }
    free(p.token);
    door->ops->close(door);
    return NULL;
}

/* ---- fold thread: lanes ---- */

static struct known *lane_of(struct reporter *r, const char *coupon, int64_t lane)
{
    struct tally_lane key;
    struct known *k;

    memset(&key, 0, sizeof key);
    snprintf(key.coupon, sizeof key.coupon, "%s", coupon);
    key.lane = lane;
    HASH_FIND(hh, r->lanes, &key, KNOWN_KEY_SIZE, k);
    if (k)
        return k;
    k = calloc(1, sizeof *k);
    if (!k)
        abort();
    memcpy(&k->lane, &key, sizeof key);
    k->lane.folded = -1;
    HASH_ADD(hh, r->lanes, lane, KNOWN_KEY_SIZE, k);
    return k;
}

/* ---- fold thread: writing ---- */

/* The totals' document of run's quarter hour already holds a part of it: leave that out. -1: ask again; else whether
 * anything is left. */
static int leave_out_held(struct reporter *r, struct run *run, const struct tally *tallies, size_t count)
{
    struct totals_row *rows = NULL;
    size_t row_count = 0;
    struct arena a;
    int64_t held_seq = 0;
    enum store_status s;

    arena_init(&a, 0);
    s = mongo_totals(r->door, run->of->coupon, &a, &rows, &row_count);
    for (size_t i = 0; s == STORE_OK && i < row_count; i++)
        if (rows[i].lane == run->of->lane && rows[i].quarter_ms == run->quarter_ms)
            held_seq = rows[i].seq;
    arena_free(&a);
    if (s != STORE_OK)
        return -1;
    return run_trim(run, held_seq, tallies, count);
}

/* Write runs[count], made of tallies; returns when all are in, or when stopping (then false). */
static bool write_runs(struct reporter *r, size_t count, const struct tally *tallies, size_t tally_count)
{
    int64_t pause_ms = 0;

    while (count > 0 && !atomic_load(&r->stopping)) {
        size_t left = 0;
        bool failed;

        for (size_t i = 0; i < count; i++)
            r->writes[i] = run_write(&r->runs[i]);
        failed = mongo_totals_add(r->door, r->writes, count) != STORE_OK;
        for (size_t i = 0; i < count; i++) {
            int some = failed ? -1 : r->writes[i].applied ? 0 : leave_out_held(r, &r->runs[i], tallies, tally_count);

            failed = failed || some < 0;
            if (some != 0)
                r->runs[left++] = r->runs[i];
        }
        count = left;
        if (failed)
            back_off(r, &pause_ms);
    }
    return count == 0;
}

static void write_marks(struct reporter *r, size_t count)
{
    int64_t pause_ms = 0;

    while (count > 0 && !atomic_load(&r->stopping) && r->door->ops->write_marks(r->door, r->marks, count) != STORE_OK)
        back_off(r, &pause_ms);
}

static void note_folded(const struct tally *tallies, size_t count)
{
    int64_t folded = 0;

    for (size_t i = 0; i < count; i++)
        folded += tallies[i].of != NULL;
    if (!folded)
        return;
    metrics_add(METRIC_BATCHES_FOLDED, folded);
    metrics_set(METRIC_REPORTER_LAG_MS, clock_now_ms() - tallies[count - 1].at_ms);
}

/* Ask for the slots that t's batch wants. False: stopping. */
static bool replenish(struct reporter *r, const struct tally *t)
{
    enum store_status s = STORE_FAILED;
    char id[ID_SHORT_LEN + 1];
    int64_t pause_ms = 0;

    id_random(id, ID_SHORT_LEN);
    while (s == STORE_FAILED && !atomic_load(&r->stopping)) {
        struct arena a;
        struct job job = {.id = id, .kind = JOB_GENERATE, .coupon = t->coupon, .until = t->replenish_until,
                          .created_ms = clock_now_ms()}, *existing;

        arena_init(&a, 0);
        job.key = arena_printf(&a, "replenish-%" PRId64 "-%" PRId64, t->lane, t->seq);
        s = mongo_job_insert(r->door, &job, &a, &existing);
        arena_free(&a);
        if (s == STORE_FAILED)
            back_off(r, &pause_ms);
    }
    if (s == STORE_OK)
        log_event(LOG_INFO, "replenish.asked_for", "coupon=%s lane=%" PRId64 " seq=%" PRId64 " until=%" PRId64
                  " job=%s", t->coupon, t->lane, t->seq, t->replenish_until, id);
    return s != STORE_FAILED;
}

static bool replenish_all(struct reporter *r, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (r->tallies[i].of && r->tallies[i].replenish_until && !replenish(r, &r->tallies[i]))
            return false;
    return true;
}

/* Write the totals of r->tallies[count], all of which have a lane or are left out, then the marks of the lanes that moved. */
static bool fold_round(struct reporter *r, size_t count)
{
    size_t run_count = runs_build(r->tallies, count, r->runs), mark_count = 0;

    if (!replenish_all(r, count) || !write_runs(r, run_count, r->tallies, count))
        return false;
    note_folded(r->tallies, count);
    for (size_t i = 0; i < count; i++) {
        struct known *k = (struct known *)r->tallies[i].of;

        if (!k || !k->moved)
            continue;
        k->moved = false;
        r->marks[mark_count++] = (struct mark_write){
            .coupon = k->lane.coupon, .lane = k->lane.lane, .kind = TOTALS, .mark = {.seq = k->lane.folded}};
    }
    write_marks(r, mark_count);
    return !atomic_load(&r->stopping);
}

/* Claim t for the round, if it is the next of its lane. One that comes too early makes its lane be read from the ledger. */
static void claim(struct reporter *r, struct tally *t)
{
    struct known *k = lane_of(r, t->coupon, t->lane);

    t->of = NULL;
    if (k->lane.folded < 0 && t->seq == 1)
        k->lane.folded = 0;
    if (k->lane.folded < 0 || t->seq > k->lane.folded + 1) {
        if (!k->behind)
            LL_PREPEND2(r->behind, k, next_behind);
        k->behind = true;
        return;
    }
    if (t->seq <= k->lane.folded)
        return;
    k->lane.folded = t->seq;
    k->moved = true;
    t->of = &k->lane;
}

/* ---- fold thread: catching up ---- */

/* The seq from which k has to be read. False: stopping. */
static bool read_mark(struct reporter *r, struct known *k)
{
    struct mark mark;
    int64_t pause_ms = 0;

    while (k->lane.folded < 0 && !atomic_load(&r->stopping)) {
        if (r->door->ops->mark(r->door, k->lane.coupon, k->lane.lane, TOTALS, &mark) == STORE_OK)
            k->lane.folded = mark.seq;
        else
            back_off(r, &pause_ms);
    }
    return k->lane.folded >= 0;
}

/* Take batches[count] of k's ledger into r->tallies. */
static size_t take_batches(struct reporter *r, struct known *k, struct batch **batches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tally *t = &r->tallies[i];

        tally_of_batch(t, batches[i]);
        batch_free(batches[i]);
        if (t->seq != k->lane.folded + 1) { /* verify reports it; the rest still counts */
            log_event(LOG_ERROR, "ledger.gap", "coupon=%s lane=%" PRId64 " after=%" PRId64 " next=%" PRId64,
                      t->coupon, t->lane, k->lane.folded, t->seq);
            k->lane.folded = t->seq - 1;
        }
        claim(r, t);
    }
    return count;
}

/* Fold k's ledger from its mark to its end. */
static void catch_up(struct reporter *r, struct known *k)
{
    struct batch *batches[CATCH_UP_BATCHES];
    size_t most = r->round_most < CATCH_UP_BATCHES ? r->round_most : CATCH_UP_BATCHES, count;
    int64_t pause_ms = 0;

    if (!read_mark(r, k))
        return;
    do {
        count = 0;
        if (r->door->ops->ledger(r->door, k->lane.coupon, k->lane.lane, k->lane.folded, most, batches, &count) !=
            STORE_OK) {
            back_off(r, &pause_ms);
            count = 1; /* again */
            continue;
        }
        if (count > 0 && !fold_round(r, take_batches(r, k, batches, count)))
            return;
    } while (count > 0 && !atomic_load(&r->stopping));
    if (k->lane.folded > 0)
        watch_seen(r->watch, k->lane.coupon, k->lane.lane, k->lane.folded, mono_now());
}

/* How many lanes a coupon has; 1 where its definition cannot be read. */
static int64_t lanes_of(struct reporter *r, const char *coupon)
{
    struct coupon *definition = NULL;
    struct arena a;
    int64_t seq, lanes = 1;

    arena_init(&a, 0);
    if (r->door->ops->coupon(r->door, coupon, (struct store_time){0, 0}, &a, &definition, &seq) == STORE_OK && definition)
        lanes = definition->lanes;
    arena_free(&a);
    return lanes;
}

/* Catch up with the next few coupons. */
static void sweep_some(struct reporter *r)
{
    struct arena a;
    const char **ids = NULL;
    size_t count = 0;
    int64_t pause_ms = 0;

    arena_init(&a, 0);
    if (mongo_ledger_coupons(r->door, r->swept[0] ? r->swept : NULL, SWEEP_PAGE, &a, &ids, &count) != STORE_OK) {
        back_off(r, &pause_ms);
    } else {
        for (size_t i = 0; i < count && !atomic_load(&r->stopping); i++) {
            int64_t lanes = lanes_of(r, ids[i]);

            for (int64_t lane = 0; lane < lanes; lane++)
                catch_up(r, lane_of(r, ids[i], lane));
            snprintf(r->swept, sizeof r->swept, "%s", ids[i]);
        }
        r->sweeping = count > 0;
        if (!r->sweeping)
            log_event(LOG_INFO, "reporter.caught_up", "lanes=%u", HASH_COUNT(r->lanes));
    }
    arena_free(&a);
}

/* ---- fold thread ---- */

static void fold_once(struct reporter *r)
{
    size_t count;
    bool asked;
    struct mono now;

    count = inbox_take(&r->inbox, r->tallies, r->round_most, r->sweeping ? 0 : INBOX_WAIT_MS, &asked);
    now = mono_now();
    for (size_t i = 0; i < count; i++) {
        watch_seen(r->watch, r->tallies[i].coupon, r->tallies[i].lane, r->tallies[i].seq, now);
        claim(r, &r->tallies[i]);
    }
    if (count > 0 && !fold_round(r, count))
        return;
    while (r->behind && !atomic_load(&r->stopping)) {
        struct known *k = r->behind;

        LL_DELETE2(r->behind, k, next_behind);
        k->behind = false;
        catch_up(r, k);
    }
    if (asked) {
        r->sweeping = true;
        r->swept[0] = '\0';
    }
    if (r->sweeping)
        sweep_some(r);
}

static void *fold_thread(void *context)
{
    struct reporter *r = context;
    size_t most;

    r->door = mongo_door(r->mongo);
    r->round_most = (size_t)r->config->reporter_fold_max;
    most = r->round_most;
    r->tallies = calloc(most, sizeof *r->tallies);
    r->runs = calloc(most, sizeof *r->runs);
    r->writes = calloc(most, sizeof *r->writes);
    r->marks = calloc(most, sizeof *r->marks);
    if (!r->tallies || !r->runs || !r->writes || !r->marks)
        abort();
    while (!atomic_load(&r->stopping))
        fold_once(r);
    r->door->ops->close(r->door);
    return NULL;
}

static void free_fold(struct reporter *r)
{
    struct known *k, *next;

    for (k = r->lanes; k; k = next) {
        next = k->hh.next;
        HASH_DEL(r->lanes, k);
        free(k);
    }
    free(r->tallies);
    free(r->runs);
    free(r->writes);
    free(r->marks);
}

/* ---- backstop thread ---- */

static void look_after(struct reporter *r, struct store *door, const struct watch_due *due)
{
    struct mark mark;

    if (door->ops->mark(door, due->coupon, due->lane, VIEWS, &mark) != STORE_OK) {
        watch_failed(r->watch, due->coupon, due->lane, mono_now());
        return;
    }
    if (!watch_marked(r->watch, due->coupon, due->lane, mark.seq, mono_now()))
        return;
    if (engine_catch_up(r->engine, due->coupon, due->lane) == STORE_OK) {
        metrics_add(METRIC_BACKSTOPS, 1);
        log_event(LOG_INFO, "backstop.written", "coupon=%s lane=%" PRId64 " from=%" PRId64, due->coupon, due->lane,
                  mark.seq);
    } else {
        watch_failed(r->watch, due->coupon, due->lane, mono_now());
        log_event(LOG_WARNING, "backstop.failed", "coupon=%s lane=%" PRId64 " from=%" PRId64, due->coupon, due->lane,
                  mark.seq);
    }
}

static void *backstop_thread(void *context)
{
    struct reporter *r = context;
    struct store *door = mongo_door(r->mongo);
    struct watch_due due[BACKSTOP_LANES];

    while (!atomic_load(&r->stopping)) {
        size_t count = watch_due(r->watch, mono_now(), due, BACKSTOP_LANES);
        struct mono next = mono_add_ms(mono_now(), r->config->reporter_backstop_ms);

        for (size_t i = 0; i < count && !atomic_load(&r->stopping); i++)
            look_after(r, door, &due[i]);
        while (!atomic_load(&r->stopping) && mono_before(mono_now(), next))
            nanosleep(&(struct timespec){0, BACKOFF_FIRST_MS * 1000000L}, NULL);
    }
    door->ops->close(door);
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

static void run_threads(struct reporter *r)
{
    void *(*const bodies[])(void *) = {feed_thread, fold_thread, backstop_thread};
    pthread_t threads[sizeof bodies / sizeof *bodies];

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (pthread_create(&threads[i], NULL, bodies[i], r) != 0)
            abort();
    log_event(LOG_INFO, "reporter.started", "%s", "");
    wait_for_stop();
    atomic_store(&r->stopping, true);
    inbox_close(&r->inbox);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        pthread_join(threads[i], NULL);
    log_event(LOG_INFO, "reporter.stopped", "%s", "");
}

int reporter_run(const struct config *config)
{
    const struct engine_config engine_config = {
        .committers = 1, .batch_max = config->worker_batch_max, .queue_max = 16, .requests_max = 16, .lanes_max = 100,
        .window_max = config->worker_window_max, .flush_ms = config->worker_bucket_flush_ms,
        .backoff_ms = BACKOFF_FIRST_MS, .patience_ms = config->coupond_drain_s * 1000 / 2,
    };
    struct reporter r = {.config = config};
    char message[512];

    clock_init();
    r.mongo = mongo_open(config, message, sizeof message);
    if (!r.mongo) {
        log_event(LOG_ERROR, "reporter.unusable", "reason=\"%s\"", message);
        return EX_CONFIG;
    }
    inbox_init(&r.inbox);
    r.watch = watch_new();
    r.engine = engine_start(&engine_config, mongo_source(r.mongo), NULL);
    run_threads(&r);
    engine_stop(r.engine);
    watch_free(r.watch);
    inbox_release(&r.inbox);
    free_fold(&r);
    mongo_close(r.mongo);
    return EXIT_SUCCESS;
}
