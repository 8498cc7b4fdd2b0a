/* reporter/reporter.c -- see reporter.h: the threads, and the folding. */
#include "reporter/reporter.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "lanes/lanes.h"
#include "reporter/backstop.h"
#include "reporter/batch_counts.h"
#include "store/fronts.h"
#include "store/mongo.h"
#include "store/schema_watch.h"

#define BACKOFF_MS 50
#define FOLD_EVERY_MS 250 /* then many batches of a lane are one update of its totals, and one of its position */
#define SWEEP_MS 1000      /* between rounds of folding */
#define SWEEP_PAGE 100     /* coupons looked at together */
#define CATCH_UP_BATCHES 200
#define AGAIN_FIRST_MS 1000 /* until an unreadable ledger is read again; doubles each time */
#define AGAIN_MOST_MS 10000
#define LATE_MS 15000       /* after a batch, none that arrived earlier appears later than this: longer than any insert takes the server */
#define SWEEP_AGAIN_MS 10000 /* until the next sweep, if one skipped a coupon */
#define ROUND_MOST 2000   /* batches */
#define BACKSTOP_EVERY_MS 500
#define BACKSTOP_LANES 200 /* most lanes in one read of the backstop */
#define FOLLOW_DEADLINE_MS 10000
#define LEASE_MS 5000       /* then another front's reporter takes over */
#define RENEW_MS 1000
#define WORKERS 2           /* threads run under the lease */

/* A lane in the fold's table: one with batches above the watermark, or one that is behind. */
struct known {
    struct counted_lane lane; /* coupon and lane are the key: zeroed beyond the text */
    uint64_t arrived;       /* when its last known batch did; 0: unknown */
    bool behind;            /* its ledger must be read; it is in that list */
    struct known *next_behind;
    int64_t again_ms;       /* waits this long because its ledger could not be read; 0: it could */
    struct mono again_at;
    bool moved;             /* in this round: its position must be written */
    int64_t at_ms;          /* time of the batch at the new position */
    UT_hash_handle hh;
};
#define KNOWN_KEY_SIZE (offsetof(struct counted_lane, lane) + sizeof(int64_t))

struct reporter {
    const struct config *config;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct engine *engine;
    struct backstop *backstop;
    struct stop stop;
    pthread_t workers[WORKERS]; /* only the lease thread's */
    bool working;
    /* only the fold thread's */
    struct store *session;
    struct known *lanes;
    struct known *behind;
    struct feed *feed;    /* NULL: to be opened */
    struct feed_position position;
    bool fresh;           /* it was opened without a position, and has not answered yet */
    bool missed;          /* it may have missed batches: a sweep must follow */
    int64_t feed_pause_ms;
    struct batch_counts *batches;
    struct run *runs;
    struct totals_write *writes;
    struct totals_position_write *positions;
    bool sweeping;
    uint64_t sweep_now;     /* a time before the sweep began; 0: its range is not known yet */
    bool whole;             /* it covers every coupon: there is no watermark */
    struct arrivals_at at;  /* otherwise: its position, after the lanes behind */
    char swept[COUPON_ID_MAX + 1]; /* last coupon looked at by the whole sweep */
    bool passed_over;              /* one was skipped: another sweep must follow */
    struct mono sweep_at;
    uint64_t latest;        /* arrival of the newest batch read; 0: unknown */
    struct watermark watermark; /* as written */
    struct watermark next;      /* the next one; arrived 0: none is being prepared */
    struct mono next_at;        /* not before */
};

/* ---- fold thread: the feed ---- */

/* The stream broke: another one is opened after a pause. */
static void break_off(struct reporter *r, int status)
{
    feed_close(r->feed);
    r->feed = NULL;
    if (status == -2)
        feed_forget(&r->position);
    log_event(LOG_WARNING, status == -2 ? "feed.history_lost" : "feed.broken", F_INT("resumable", r->position.size > 0));
    stop_back_off(&r->stop, &r->feed_pause_ms);
}

/* Read the feed's next batch. False: none yet, or it is broken. Once one without a past is open, a sweep must follow. */
static bool take_next(struct reporter *r, struct batch_counts *t)
{
    struct batch *b = NULL;
    struct batch_key unread;
    int status;

    if (!r->feed) {
        r->feed = feed_open(r->session, &r->position);
        r->fresh = r->position.size == 0;
    }
    status = feed_next(r->feed, &b, &unread);
    if (status < 0) {
        break_off(r, status);
        return false;
    }
    r->missed = r->missed || r->fresh;
    r->fresh = false;
    r->feed_pause_ms = 0;
    if (b)
        batch_counts_of(t, b);
    else if (status > 0)
        batch_counts_of_unread(t, &unread, clock_now_ms());
    batch_free(b);
    feed_keep(r->feed, &r->position);
    return status > 0;
}

/* Read the batches of a round: those that come within FOLD_EVERY_MS after the first. */
static size_t take_in(struct reporter *r)
{
    struct mono until = {0};
    size_t count = 0;

    while (count < ROUND_MOST && !stop_asked(&r->stop) && take_next(r, &r->batches[count])) {
        if (count++ == 0)
            until = mono_add_ms(mono_now(), FOLD_EVERY_MS);
        if (!mono_before(mono_now(), until))
            break;
    }
    return count;
}

/* ---- fold thread: lanes ---- */

static struct known *lane_of(struct reporter *r, const char *coupon, int64_t lane)
{
    struct counted_lane key;
    struct known *k;

    memset(&key, 0, sizeof key);
    snprintf(key.coupon, sizeof key.coupon, "%s", coupon);
    key.lane = lane;
    HASH_FIND(hh, r->lanes, &key, KNOWN_KEY_SIZE, k);
    if (k)
        return k;
    k = checked(calloc(1, sizeof *k));
    memcpy(&k->lane, &key, sizeof key);
    k->lane.folded = -1;
    HASH_ADD(hh, r->lanes, lane, KNOWN_KEY_SIZE, k);
    return k;
}

/* Its position says all that is known of it; its next batch reads that. Not one that is behind. */
static void forget_lane(struct reporter *r, struct known *k)
{
    HASH_DEL(r->lanes, k);
    free(k);
}

/* Have its ledger read, in this round or when its time comes. */
static void put_behind(struct reporter *r, struct known *k)
{
    if (!k->behind)
        LL_PREPEND2(r->behind, k, next_behind);
    k->behind = true;
}

/* ---- fold thread: writing ---- */

/* Have its ledger read again later, from its position on, without holding up others: something in it may be damaged. */
static void put_off(struct reporter *r, struct known *k)
{
    if (k->again_ms == 0)
        log_event(LOG_WARNING, "reporter.put_off", F_WORD("coupon", k->lane.coupon), F_INT("lane", k->lane.lane),
                  F_INT("after", k->lane.folded));
    k->lane.folded = -1;
    k->moved = false;
    k->again_ms = longer_pause_ms(k->again_ms, AGAIN_FIRST_MS, AGAIN_MOST_MS);
    k->again_at = mono_add_ms(mono_now(), k->again_ms);
    put_behind(r, k);
}

/* The totals of run's quarter hour cannot be read: omit run's lane from this round. */
static void leave_out_lane(struct reporter *r, const struct run *run, struct batch_counts *batches, size_t count)
{
    struct known *k = (struct known *)run->of;
    char quarter[CLOCK_TEXT_SIZE];

    if (k->again_ms == 0)
        log_event(LOG_ERROR, "totals.unreadable", F_WORD("coupon", k->lane.coupon), F_INT("lane", k->lane.lane),
                  F_WORD("at", clock_text(run->quarter_ms, quarter)));
    for (size_t i = 0; i < count; i++)
        if (batches[i].of == &k->lane)
            batches[i].of = NULL;
    put_off(r, k);
}

/* Write runs[count], made of batches; returns once all are written or omitted, or when stopping (false). */
static bool write_runs(struct reporter *r, size_t count, struct batch_counts *batches, size_t batch_count)
{
    int64_t pause_ms = 0;

    while (count > 0 && !stop_asked(&r->stop)) {
        size_t kept = 0;
        bool failed;

        for (size_t i = 0; i < count; i++)
            r->writes[i] = run_write(&r->runs[i]);
        failed = mongo_totals_add(r->session, r->writes, count) != STORE_OK;
        for (size_t i = 0; i < count; i++) {
            const struct totals_write *w = &r->writes[i];
            bool again = failed;

            if (!failed && w->unreadable)
                leave_out_lane(r, &r->runs[i], batches, batch_count);
            else if (!failed && !w->applied)
                again = run_trim(&r->runs[i], w->stored_seq, batches, batch_count);
            if (again)
                r->runs[kept++] = r->runs[i];
            else
                run_release(&r->runs[i]);
        }
        count = kept;
        if (failed)
            stop_back_off(&r->stop, &pause_ms);
    }
    for (size_t i = 0; i < count; i++)
        run_release(&r->runs[i]);
    return count == 0;
}

static void write_totals_positions(struct reporter *r, size_t count)
{
    int64_t pause_ms = 0;

    while (count > 0 && !stop_asked(&r->stop) && r->session->ops->write_totals_positions(r->session, r->positions, count) != STORE_OK)
        stop_back_off(&r->stop, &pause_ms);
}

static void note_folded(const struct batch_counts *batches, size_t count)
{
    int64_t folded = 0;

    for (size_t i = 0; i < count; i++)
        folded += batches[i].of != NULL;
    if (!folded)
        return;
    metrics_add(METRIC_BATCHES_FOLDED, folded);
    metrics_set(METRIC_REPORTER_LAG_MS, clock_now_ms() - batches[count - 1].at_ms);
}

/* Request all slots that the batches want, and those wanted with a new coupon, in case whoever made it died before doing so. False:
 * stopping. */
static bool ask_for_slots(struct reporter *r, size_t count)
{
    int64_t pause_ms = 0;

    for (size_t i = 0; i < count && !stop_asked(&r->stop);) {
        const struct batch_counts *t = &r->batches[i];
        char key[sizeof JOB_KEY_REPLENISH + 48];
        struct job job = {.kind = JOB_GENERATE, .coupon = t->coupon, .until = t->replenish_until, .key = key};

        snprintf(key, sizeof key, JOB_KEY_REPLENISH "%" PRId64 "-%" PRId64, t->lane, t->seq);
        if (t->of && t->first_slots &&
            mongo_job_ask(r->session, &(struct job){.id = t->job, .kind = JOB_GENERATE, .coupon = t->coupon, .total = t->first_slots,
                                                    .key = JOB_KEY_FIRST_SLOTS, .by = *t->by ? t->by : NULL}) != STORE_OK)
            stop_back_off(&r->stop, &pause_ms);
        else if (t->of && t->replenish_until && mongo_job_ask(r->session, &job) != STORE_OK)
            stop_back_off(&r->stop, &pause_ms);
        else
            i++;
    }
    return !stop_asked(&r->stop);
}

/* Write the totals of r->batches[count], all of which have a lane or are omitted, then the positions of the lanes that moved. */
static bool fold_round(struct reporter *r, size_t count)
{
    bool good = ask_for_slots(r, count);
    size_t run_count = good ? runs_build(r->batches, count, r->runs) : 0, position_count = 0;

    good = good && write_runs(r, run_count, r->batches, count);
    for (size_t i = 0; i < count; i++)
        batch_counts_release(&r->batches[i]);
    if (!good)
        return false;
    note_folded(r->batches, count);
    for (size_t i = 0; i < count; i++) {
        struct known *k = (struct known *)r->batches[i].of;

        if (!k || !k->moved)
            continue;
        assert(k->lane.folded > 0);
        k->moved = false;
        r->positions[position_count++] = (struct totals_position_write){
            .coupon = k->lane.coupon, .lane = k->lane.lane, .seq = k->lane.folded, .at_ms = k->at_ms};
    }
    write_totals_positions(r, position_count);
    return !stop_asked(&r->stop);
}

/* Claim t for the round, if it is the next of its lane. If it comes too early, have its lane read from the ledger. */
static void claim(struct reporter *r, struct batch_counts *t)
{
    struct known *k = lane_of(r, t->coupon, t->lane);

    if (t->arrived > k->arrived)
        k->arrived = t->arrived;
    t->of = NULL;
    if (k->lane.folded < 0 && t->seq == 1)
        k->lane.folded = 0;
    if (k->lane.folded < 0 || t->seq > k->lane.folded + 1 || (t->unread && t->seq > k->lane.folded)) {
        put_behind(r, k);
        return;
    }
    if (t->seq <= k->lane.folded)
        return;
    k->lane.folded = t->seq;
    k->at_ms = t->at_ms;
    k->moved = true;
    t->of = &k->lane;
    if (t->leads)
        backstop_changed(r->backstop, t->coupon, mono_now());
}

/* ---- fold thread: catching up ---- */

/* Read the seq from which k must be read. False: not now. */
static bool read_totals_position(struct reporter *r, struct known *k)
{
    struct totals_position_read read = {.coupon = k->lane.coupon, .lane = k->lane.lane};

    if (k->lane.folded >= 0)
        return true;
    if (r->session->ops->totals_positions(r->session, &read, 1) != STORE_OK)
        return false;
    k->lane.folded = read.seq;
    return true;
}

/* Take batches[count] of k's ledger into r->batches. */
static size_t take_batches(struct reporter *r, struct known *k, struct batch **batches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct batch_counts *t = &r->batches[i];

        batch_counts_of(t, batches[i]);
        batch_free(batches[i]);
        if (t->seq != k->lane.folded + 1) { /* verify reports this; the rest still counts */
            log_event(LOG_ERROR, "ledger.gap", F_WORD("coupon", t->coupon), F_INT("lane", t->lane), F_INT("after", k->lane.folded),
                      F_INT("next", t->seq));
            k->lane.folded = t->seq - 1;
        }
        claim(r, t);
    }
    return count;
}

/* Fold k's ledger from its position to its end. False: not readable now. */
static bool read_on(struct reporter *r, struct known *k)
{
    struct batch *batches[CATCH_UP_BATCHES];
    size_t count = 0;

    if (!read_totals_position(r, k))
        return false;
    do {
        if (r->session->ops->ledger(r->session, k->lane.coupon, k->lane.lane, k->lane.folded, CATCH_UP_BATCHES, batches, &count) !=
            STORE_OK)
            return false;
        if (count > 0 && !fold_round(r, take_batches(r, k, batches, count)))
            return true; /* stopping */
    } while (count > 0 && !k->behind && !stop_asked(&r->stop));
    if (k->lane.folded > 0)
        backstop_seen(r->backstop, k->lane.coupon, k->lane.lane, k->lane.folded, mono_now());
    return true;
}

/* The same; an unreadable ledger is put off. */
static void catch_up(struct reporter *r, struct known *k)
{
    if (!read_on(r, k))
        put_off(r, k);
    if (k->behind || k->again_ms == 0) /* its totals were put off; or all is well */
        return;
    k->again_ms = 0;
    log_event(LOG_INFO, "reporter.goes_on", F_WORD("coupon", k->lane.coupon), F_INT("lane", k->lane.lane), F_INT("after", k->lane.folded));
}

/* Catch up with the lanes that are behind and need not wait. */
static void catch_up_behind(struct reporter *r)
{
    struct known *k = r->behind, *next;
    struct mono now = mono_now();

    for (r->behind = NULL; k; k = next) {
        next = k->next_behind;
        k->behind = false;
        if (stop_asked(&r->stop) || (k->again_ms && mono_before(now, k->again_at)))
            put_behind(r, k);
        else
            catch_up(r, k);
    }
}

/* Sweep all lanes of a coupon, except waiting ones. A change before a start may not be followed yet. False: not now. */
static bool sweep_coupon(struct reporter *r, const char *coupon)
{
    int64_t lanes;

    if (mongo_coupon_lanes(r->session, coupon, &lanes) != STORE_OK)
        return false;
    for (int64_t lane = 0; lane < lanes; lane++) {
        struct known *k = lane_of(r, coupon, lane);

        if (!k->behind)
            catch_up(r, k);
        if (!k->behind && !stop_asked(&r->stop))
            forget_lane(r, k);
    }
    if (lanes > 1)
        backstop_changed(r->backstop, coupon, mono_now());
    return true;
}

/* Sweep one lane, unless it waits; leads: the coupon's others must follow it. */
static void sweep_lane(struct reporter *r, struct known *k, int64_t seq, bool leads)
{
    if (!k->behind && k->lane.folded < seq)
        catch_up(r, k);
    if (leads)
        backstop_changed(r->backstop, k->lane.coupon, mono_now());
}

/* Find what to sweep: from the watermark on, or all coupons. False: the database does not answer. */
static bool aim_sweep(struct reporter *r)
{
    enum store_status status = mongo_watermark(r->session, &r->watermark, &r->sweep_now);

    if (status == STORE_FAILED)
        return false;
    r->whole = status == STORE_NOT_FOUND;
    r->at = (struct arrivals_at){.from = r->watermark.arrived};
    /* Sweep the lanes behind. Those of a coupon whose number of lanes cannot be read may have to follow. */
    for (size_t i = 0; i < r->watermark.behind_count && !stop_asked(&r->stop); i++) {
        const struct lane_behind *behind = &r->watermark.behind[i];
        int64_t lanes = 0;
        bool alone = mongo_coupon_lanes(r->session, behind->coupon, &lanes) == STORE_OK && lanes == 1;

        sweep_lane(r, lane_of(r, behind->coupon, behind->lane), INT64_MAX, behind->lane == 0 && !alone);
    }
    return true;
}

/* Sweep the next few coupons. False: not now. */
static bool sweep_coupons(struct reporter *r, struct arena *a, bool *more)
{
    const char **ids = NULL;
    size_t count = 0;
    int64_t pause_ms = 0;

    if (mongo_ledger_coupons(r->session, r->swept[0] ? r->swept : NULL, SWEEP_PAGE, a, &ids, &count) != STORE_OK)
        return false;
    for (size_t i = 0; i < count && !stop_asked(&r->stop); i++) {
        bool good = sweep_coupon(r, ids[i]);

        snprintf(r->swept, sizeof r->swept, "%s", ids[i]);
        if (good)
            continue;
        r->passed_over = true;
        log_event(LOG_WARNING, "reporter.passed_over", F_WORD("coupon", ids[i]));
        stop_back_off(&r->stop, &pause_ms);
        break; /* if it was the database, the next round waits for it */
    }
    *more = count > 0;
    return true;
}

/* Sweep the lanes of the next few batches above the watermark. False: not now. */
static bool sweep_arrivals(struct reporter *r, struct arena *a, bool *more)
{
    struct arrival *arrivals;
    size_t count;

    if (mongo_arrivals(r->session, &r->at, a, &arrivals, &count) != STORE_OK)
        return false;
    for (size_t i = 0; i < count && !stop_asked(&r->stop); i++)
        sweep_lane(r, lane_of(r, arrivals[i].coupon, arrivals[i].lane), arrivals[i].seq,
                   arrivals[i].lanes > 1 && arrivals[i].lane == 0);
    *more = r->at.more;
    return true;
}

/* Sweep the next few. */
static void sweep_some(struct reporter *r)
{
    struct arena a;
    int64_t pause_ms = 0;
    bool more = true;

    arena_init(&a, 0);
    if ((!r->sweep_now && !aim_sweep(r)) || !(r->whole ? sweep_coupons : sweep_arrivals)(r, &a, &more)) {
        stop_back_off(&r->stop, &pause_ms);
    } else {
        r->sweeping = more;
        r->sweep_at = mono_add_ms(mono_now(), SWEEP_AGAIN_MS);
        if (!r->sweeping) {
            if (r->sweep_now > r->latest)
                r->latest = r->sweep_now;
            log_event(LOG_INFO, "reporter.caught_up", F_NONE);
        }
    }
    arena_free(&a);
}

/* ---- fold thread: the watermark ---- */

/* A batch arrived below the watermark, more than LATE_MS after others: move the watermark back. */
static void note_arrival(struct reporter *r, uint64_t arrived)
{
    int64_t pause_ms = 0;

    if (!arrived)
        return;
    r->latest = arrived;
    if (arrived < r->next.arrived)
        r->next.arrived = arrived;
    if (arrived >= r->watermark.arrived)
        return;
    r->watermark.arrived = arrived;
    while (!stop_asked(&r->stop) && mongo_watermark_write(r->session, &r->watermark) != STORE_OK)
        stop_back_off(&r->stop, &pause_ms);
}

/* Add the lanes that cannot be folded now. False: too many. */
static bool add_behind(const struct reporter *r, struct watermark *w)
{
    bool good = true;

    for (const struct known *k = r->behind; good && k; k = k->next_behind)
        good = watermark_add_behind(w, k->lane.coupon, k->lane.lane);
    return good;
}

/* What the backstop awaits is done: add the lanes where that fails. False: too many, or something is still to be done. */
static bool add_undone(const struct reporter *r, struct watermark *w)
{
    struct lane_behind failed[BEHIND_MOST];
    size_t count;
    bool good = backstop_is_done(r->backstop, failed, BEHIND_MOST, &count);

    for (size_t i = 0; good && i < count; i++)
        good = watermark_add_behind(w, failed[i].coupon, failed[i].lane);
    return good;
}

/* Prepare a watermark: everything read is folded, except for lanes that it names. While it names any, this repeats even if nothing
 * arrives: they may have been repaired. */
static void aim_watermark(struct reporter *r)
{
    struct watermark next = {.arrived = r->latest > r->watermark.arrived ? r->latest : r->watermark.arrived};

    if (r->sweeping || r->passed_over || (next.arrived == r->watermark.arrived && !r->watermark.behind_count) || !add_behind(r, &next))
        return;
    r->next = next;
    r->next_at = mono_add_ms(mono_now(), LATE_MS);
    backstop_begin(r->backstop);
}

/* Forget the lanes of which nothing arrived since the watermark. */
static void forget_quiet(struct reporter *r)
{
    struct known *k, *next;

    HASH_ITER(hh, r->lanes, k, next)
        if (!k->behind && k->arrived < r->watermark.arrived) // cppcheck-suppress uninitvar
            forget_lane(r, k);
}

/* Move the watermark once those checkpoints are written too, those lanes follow, and nothing that arrived earlier can still appear. */
static void move_watermark(struct reporter *r)
{
    struct watermark next;

    if (mono_before(mono_now(), r->next_at))
        return;
    next = r->next;
    if (!add_undone(r, &next) || mongo_watermark_write(r->session, &next) != STORE_OK)
        return;
    r->watermark = next;
    r->next.arrived = 0;
    forget_quiet(r);
}

/* ---- fold thread ---- */

static void fold_once(struct reporter *r)
{
    size_t count = take_in(r);
    struct mono now = mono_now(), until;

    for (size_t i = 0; i < count; i++) {
        backstop_seen(r->backstop, r->batches[i].coupon, r->batches[i].lane, r->batches[i].seq, now);
        note_arrival(r, r->batches[i].arrived);
        claim(r, &r->batches[i]);
    }
    if (count > 0 && !fold_round(r, count))
        return;
    catch_up_behind(r);
    if (r->missed || (r->passed_over && !r->sweeping && !mono_before(mono_now(), r->sweep_at))) {
        r->sweeping = true;
        r->sweep_now = 0;
        r->next.arrived = 0; /* missed batches are not waited for */
        r->swept[0] = '\0';
        r->passed_over = r->missed = false;
    }
    until = mono_add_ms(mono_now(), SWEEP_MS); /* then the feed goes on */
    while (r->sweeping && !stop_asked(&r->stop) && mono_before(mono_now(), until))
        sweep_some(r);
    if (stop_asked(&r->stop)) /* a lane that was put off may be in no list */
        return;
    if (r->next.arrived)
        move_watermark(r);
    if (!r->next.arrived)
        aim_watermark(r);
}

static void *fold_thread(void *context)
{
    struct reporter *r = context;

    r->session = mongo_session(r->mongo);
    r->batches = checked(calloc(ROUND_MOST, sizeof *r->batches));
    r->runs = checked(calloc(ROUND_MOST, sizeof *r->runs));
    r->writes = checked(calloc(ROUND_MOST, sizeof *r->writes));
    r->positions = checked(calloc(ROUND_MOST, sizeof *r->positions));
    while (!stop_asked(&r->stop))
        fold_once(r);
    if (r->feed)
        feed_close(r->feed);
    feed_forget(&r->position);
    r->session->ops->close(r->session);
    return NULL;
}

/* ---- backstop thread ---- */

/* The lane's checkpoint is stale, at `from`: have it written. */
static void write_checkpoint(struct reporter *r, const struct backstop_due *due, int64_t from)
{
    const struct lane_behind *lane = &due->lane;

    if (engine_catch_up(r->engine, lane->coupon, lane->lane, ENGINE_CATCH_UP_MS) == STORE_OK) {
        metrics_add(METRIC_BACKSTOPS, 1);
        log_event(LOG_INFO, "backstop.written", F_WORD("coupon", lane->coupon), F_INT("lane", lane->lane), F_INT("from", from));
    } else {
        backstop_failed(r->backstop, due, mono_now());
        log_event(LOG_WARNING, "backstop.failed", F_WORD("coupon", lane->coupon), F_INT("lane", lane->lane), F_INT("from", from));
    }
}

static void make_follow(struct reporter *r, const struct backstop_due *due)
{
    struct op op = {.kind = OP_FOLLOW, .coupon = due->lane.coupon};
    enum cpn_result result = engine_call_within(r->engine, &op, FOLLOW_DEADLINE_MS);

    if (!result_info(result)->retry) {
        backstop_followed(r->backstop, due);
        return;
    }
    backstop_failed(r->backstop, due, mono_now());
    log_event(LOG_WARNING, "follow.failed", F_WORD("coupon", due->lane.coupon), F_WORD("result", result_info(result)->name));
}

/* Read the checkpoints of these lanes, which are due now, and do what was not done. */
static void look_after(struct reporter *r, struct store *session, const struct backstop_due *due, size_t count, struct mono now)
{
    struct checkpoint_read reads[BACKSTOP_LANES] = {{.coupon = NULL}};

    for (size_t i = 0; i < count; i++)
        reads[i] = (struct checkpoint_read){.coupon = due[i].lane.coupon, .lane = due[i].lane.lane};
    if (count > 0)
        (void)session->ops->checkpoints(session, reads, count); /* each has its status */
    for (size_t i = 0; i < count && !stop_asked(&r->stop); i++) {
        int64_t seq = reads[i].checkpoint.seq;

        if (reads[i].status == STORE_UNREADABLE) /* otherwise it is the database: no lane waits longer for that */
            backstop_failed(r->backstop, &due[i], mono_now());
        else if (reads[i].status == STORE_OK && backstop_read(r->backstop, &due[i], seq, now))
            write_checkpoint(r, &due[i], seq);
        if (due[i].changes)
            make_follow(r, &due[i]);
    }
}

static void *backstop_thread(void *context)
{
    struct reporter *r = context;
    struct store *session = mongo_session(r->mongo);
    struct backstop_due due[BACKSTOP_LANES];

    while (!stop_asked(&r->stop)) {
        struct mono now = mono_now(), next = mono_add_ms(now, BACKSTOP_EVERY_MS);
        size_t count = backstop_due(r->backstop, now, due, BACKSTOP_LANES);

        look_after(r, session, due, count, now);
        if (count < BACKSTOP_LANES)
            stop_rest(&r->stop, mono_ms_between(mono_now(), next));
    }
    session->ops->close(session);
    return NULL;
}

/* ---- the process ---- */

/* If the database does not answer, nobody else gets the lease either. */
static void *lease_thread(void *context)
{
    struct reporter *r = context;
    struct store *session = mongo_session(r->mongo);
    char front[FRONT_ID_SIZE];

    front_id(r->config->coupond_run_dir, front);
    while (!stop_asked(&r->stop)) {
        int64_t now_ms = clock_now_ms();
        enum store_status status = mongo_reporter_claim(session, front, now_ms, now_ms + LEASE_MS);

        if (status == STORE_OK && !r->working) {
            void *(*const bodies[WORKERS])(void *) = {fold_thread, backstop_thread};

            for (size_t i = 0; i < WORKERS; i++)
                thread_start(&r->workers[i], bodies[i], r, "reporter");
            r->working = true;
            log_event(LOG_INFO, "reporter.started", F_NONE);
        }
        if (status == STORE_EXISTS && r->working) {
            log_event(LOG_WARNING, "reporter.succeeded", F_NONE);
            kill(getpid(), SIGTERM);
            break;
        }
        stop_rest(&r->stop, RENEW_MS);
    }
    for (size_t i = 0; r->working && i < WORKERS; i++)
        pthread_join(r->workers[i], NULL);
    if (r->working)
        mongo_reporter_release(session, front);
    session->ops->close(session);
    return NULL;
}

int reporter_run(const struct config *config)
{
    const struct engine_config engine_config = {
        .batch_max = config->worker_batch_max, .queue_max = 16, .requests_max = 16, .lanes_max = 100,
        .redo_max = config->worker_redo_max, .redo_max_all = ENGINE_REDO_MOST,
        .redo_mb = config->worker_redo_mb, .trusted_ms = DAY_MS, .checkpoint_ms = config->worker_checkpoint_ms, .backoff_ms = BACKOFF_MS,
        .patience_ms = config->coupond_drain_s * 1000 / 2,
    };
    struct reporter r = {.config = config};
    struct known *k, *next;
    pthread_t lease;

    clock_init();
    r.mongo = mongo_open_or_exit(config);
    stop_init(&r.stop);
    r.backstop = backstop_new(config->worker_checkpoint_ms);
    r.schema = schema_watch_start(r.mongo);
    r.engine = engine_start(&engine_config, mongo_source(r.mongo), lanes_start);
    thread_start(&lease, lease_thread, &r, "lease");
    stop_await_signal();
    stop_ask(&r.stop);
    pthread_join(lease, NULL);
    log_event(LOG_INFO, "reporter.stopped", F_NONE);
    engine_stop(r.engine);
    backstop_free(r.backstop);
    stop_release(&r.stop);
    for (k = r.lanes; k; k = next) {
        next = k->hh.next;
        forget_lane(&r, k);
    }
    free(r.batches);
    free(r.runs);
    free(r.writes);
    free(r.positions);
    schema_watch_stop(r.schema);
    mongo_close(r.mongo);
    return EXIT_SUCCESS;
}
