/*
 * verify/scan_lane.c -- see scan.h: reads one lane once, and replays it.
 *
 * Steps    views; the ledger, page by page; then the parts. A small lane goes to the replay directly
 * Views    in ranges of their keys; or users in the server's order, if enough of them are this coupon's (README.md)
 * Threads  each reads, decodes and hashes its own pages; batches are replayed in order, by the thread whose turn it is
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "verify/pack.h"
#include "verify/replay.h"
#include "verify/replay_jobs.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"
#include "verify/scan.h"
#include "verify/spill.h"

#define THREADS_MOST 16
#define PAGE_BATCHES 50
#define PAGE_USER_STATES 500
#define PAGE_BUCKETS 200
#define USER_STATE_RANGES 32    /* by the first byte of their hash */
#define WALK_MOST 4 /* walk at most this many users, of all coupons, per taking of this one */
#define BUCKET_RANGES 16
#define LOOKS 5 /* at a name that is about to be removed */
#define LOOK_PAUSE_MS 200

enum { VIEWS, LEDGER, PARTS, PHASES };

struct reading {
    struct scan *scan;
    const struct scan_lane *how;
    struct replay_parts parts;
    struct replay *whole;
    struct spill *spill; /* NULL: one part */
    unsigned threads;
    struct store *sessions[THREADS_MOST];
    struct {
        pthread_mutex_t lock; /* guards the rest, and sessions[0] while threads walk */
        int64_t cursor;
        bool begun, lost;
    } walk;
    bool walked;              /* the users were walked */
    struct head before, tail; /* of the lane's last batch, before and after its views were read */
    atomic_uint next;         /* the next range, page or part to take */
    pthread_mutex_t lock;     /* guards the rest, reports and progress */
    pthread_cond_t turned;
    unsigned turn;            /* the page to be replayed next */
    struct buf packed;        /* belongs to the thread whose turn it is */
    enum store_status status; /* the first failure */
    int phase;
    int64_t done;             /* in this phase, of phase_total() */
};

/* ---- failures and progress ---- */

static void fail(struct reading *g, enum store_status status)
{
    pthread_mutex_lock(&g->lock);
    if (g->status == STORE_OK)
        g->status = status;
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
}

static bool has_failed(struct reading *g)
{
    bool failed;

    pthread_mutex_lock(&g->lock);
    failed = g->status != STORE_OK;
    pthread_mutex_unlock(&g->lock);
    return failed;
}

/* Count each phase as one step per taking of the lane, plus one. */
static int64_t phase_total(const struct reading *g)
{
    return head_takings(&g->before) + 1;
}

static void advance(struct reading *g, int64_t done)
{
    int64_t all = phase_total(g);

    if (!g->scan->progress)
        return;
    pthread_mutex_lock(&g->lock);
    g->done += done;
    g->scan->progress(g->scan->context, g->phase * all + (g->done < all ? g->done : all), PHASES * all);
    pthread_mutex_unlock(&g->lock);
}

static void report(void *context, const struct drift *d)
{
    struct reading *g = context;

    pthread_mutex_lock(&g->lock);
    g->how->report(g->how->context, d);
    pthread_mutex_unlock(&g->lock);
}

/* ---- storing for the parts ---- */

static void put_away(struct reading *g, unsigned part, const struct buf *packed)
{
    if (spill_put(g->spill, part, packed->data, packed->len) || has_failed(g))
        return;
    log_event(LOG_ERROR, "verify.spill", F_TEXT("error", "a temporary file cannot be written: is there room in TMPDIR?"));
    fail(g, STORE_FAILED);
}

static void spill_entry(void *context, unsigned part, const struct told_entry *t)
{
    struct reading *g = context;

    buf_clear(&g->packed);
    pack_entry(&g->packed, t);
    put_away(g, part, &g->packed);
}

static void spill_user_state(void *context, unsigned part, const struct name_hash *hash, const char *user, const struct user_state *view)
{
    struct buf packed = BUF_INIT;

    pack_user_state(&packed, hash, user, view);
    put_away(context, part, &packed);
    buf_free(&packed);
}

static void spill_bucket(void *context, unsigned part, int64_t b, const struct bucket *view)
{
    struct buf packed = BUF_INIT;

    pack_bucket(&packed, b, view);
    put_away(context, part, &packed);
    buf_free(&packed);
}

static void spill_codes(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    struct buf packed = BUF_INIT;

    pack_codes(&packed, b, codes);
    put_away(context, part, &packed);
    buf_free(&packed);
}

static void spill_record(void *context, unsigned part, const char *bytes, size_t len)
{
    struct buf packed = BUF_INIT;

    pack_record(&packed, bytes, len);
    put_away(context, part, &packed);
    buf_free(&packed);
}

/* ---- threads ---- */

typedef void work_fn(struct reading *g, struct store *session);

struct worker {
    struct reading *reading;
    work_fn *work;
    struct store *session;
    pthread_t id;
};

static void *work(void *argument)
{
    struct worker *w = argument;

    w->work(w->reading, w->session);
    return NULL;
}

/* Run fn in all threads, and wait for them. */
static enum store_status run(struct reading *g, int phase, work_fn *fn)
{
    struct worker workers[THREADS_MOST] = {{.reading = g, .work = fn}};

    g->next = 0;
    g->phase = phase;
    g->done = 0;
    for (unsigned i = 1; i < g->threads; i++) {
        workers[i] = (struct worker){.reading = g, .work = fn, .session = g->sessions[i]};
        if (pthread_create(&workers[i].id, NULL, work, &workers[i]) != 0)
            abort();
    }
    fn(g, g->sessions[0]);
    for (unsigned i = 1; i < g->threads; i++)
        pthread_join(workers[i].id, NULL);
    return g->status;
}

/* ---- views ---- */

static enum store_status read_totals(struct reading *g)
{
    struct totals_row *rows = NULL;
    struct arena a;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    arena_init(&a, 0);
    do
        s = mongo_stored_totals(g->scan->session, g->scan->coupon, &a, &rows, &count);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_totals(g->whole, rows, count);
    arena_free(&a);
    return s;
}

static enum store_status read_definition(struct reading *g)
{
    struct stored_coupon found = {.seq = 0};
    struct arena a;
    int tries = 0;
    enum store_status s;

    arena_init(&a, 0);
    do
        s = mongo_stored_coupon(g->scan->session, g->scan->coupon, &a, &found);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_view_coupon(g->whole, found.definition, found.is_there, found.seq, found.created_ms);
    arena_free(&a);
    return s;
}

static void tell_stored(struct replay *whole, const struct stored_user_state *u)
{
    if (u->key.kind == NAMED_JOB)
        replay_view_job(whole, u->key.job, u->job);
    else if (u->key.kind == NAMED_ACCOUNT)
        replay_view_account(whole, u->key.lane, u->key.peer, u->account);
    else
        replay_view_user_state(whole, &u->hash, u->user, u->user_state);
}

/* Read range `range` of USER_STATE_RANGES: hashes whose first byte is in [first, end). */
static enum store_status read_user_states(struct reading *g, struct store *session, unsigned range)
{
    unsigned width = 256 / USER_STATE_RANGES, first = range * width, end = first + width;
    struct name_hash last;
    bool any = first > 0;
    struct arena page;
    size_t count;
    enum store_status s;

    memset(&last, 0xff, sizeof last);
    last.bytes[0] = (uint8_t)(first - 1);
    arena_init(&page, 0);
    do {
        struct stored_user_state *user_states = NULL;
        int tries = 0;
        size_t mine = 0;

        count = 0;
        do
            s = mongo_stored_user_states(session, g->scan->name_key, g->scan->coupon, any ? &last : NULL, PAGE_USER_STATES, &page,
                                         &user_states, &count);
        while (scan_again(s, &tries));
        for (; mine < count && user_states[mine].hash.bytes[0] < end; mine++)
            tell_stored(g->whole, &user_states[mine]);
        if (count)
            last = user_states[count - 1].hash;
        any = true;
        advance(g, (int64_t)mine);
        count = mine == count ? count : 0;
        arena_reset(&page);
    } while (count > 0 && !has_failed(g));
    arena_free(&page);
    return s;
}

/* The start of range `range` of the lane's buckets; the last range ends with the lane. */
static int64_t bucket_range(const struct reading *g, unsigned range)
{
    int64_t from = part_first_bucket(&g->parts, 0), made = bucket_of(g->before.next_n % LANE_SLOTS) + 1;

    return range == BUCKET_RANGES ? part_end_bucket(&g->parts, g->parts.parts - 1) : from + made * range / BUCKET_RANGES;
}

static enum store_status read_buckets(struct reading *g, struct store *session, unsigned range)
{
    struct stored_bucket *buckets = checked(calloc(PAGE_BUCKETS, sizeof *buckets));
    int64_t from = bucket_range(g, range), end = bucket_range(g, range + 1);
    size_t count = 1;
    enum store_status s = STORE_OK;

    while (count > 0 && from < end && !has_failed(g)) {
        int tries = 0;

        count = 0;
        do
            s = mongo_stored_buckets(session, g->scan->coupon, from, PAGE_BUCKETS, buckets, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = buckets[i].b + 1;
            if (buckets[i].b < end)
                replay_view_bucket(g->whole, buckets[i].b, buckets[i].readable ? &buckets[i].bucket : NULL);
            if (buckets[i].readable)
                bucket_release(&buckets[i].bucket);
        }
    }
    free(buckets);
    return s;
}

static enum store_status read_codes(struct reading *g, struct store *session, unsigned range)
{
    int64_t from = bucket_range(g, range), end = bucket_range(g, range + 1);
    size_t count = 1;
    enum store_status s = STORE_OK;

    while (count > 0 && from < end && !has_failed(g)) {
        struct stored_codes *codes = NULL;
        struct arena a;
        int tries = 0;

        arena_init(&a, 0);
        count = 0;
        do
            s = mongo_stored_codes(session, g->scan->coupon, from, PAGE_BUCKETS, &a, &codes, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = codes[i].b + 1;
            if (codes[i].b < end)
                replay_codes(g->whole, codes[i].b, codes[i].codes);
        }
        arena_free(&a);
    }
    return s;
}

/* The next page of all users, the caller's to free; NULL: none is left, or something has failed. */
static struct user_state_page *next_page(struct reading *g)
{
    struct user_state_page *page = NULL;
    enum store_status s;

    pthread_mutex_lock(&g->walk.lock);
    if ((g->walk.cursor || !g->walk.begun) && !has_failed(g)) {
        g->walk.begun = true;
        s = mongo_user_state_page(g->sessions[0], &g->walk.cursor, &page);
        g->walk.lost = s != STORE_OK;
        if (s != STORE_OK)
            fail(g, s);
    }
    pthread_mutex_unlock(&g->walk.lock);
    return page;
}

static void walk_user_states(struct reading *g, struct store *session)
{
    struct user_state_page *page;
    struct arena a;

    (void)session;
    arena_init(&a, 0);
    while ((page = next_page(g))) {
        struct stored_user_state *user_states;
        size_t count;
        enum store_status s = mongo_user_state_page_get(page, g->scan->name_key, g->scan->coupon, &a, &user_states, &count);

        if (s != STORE_OK)
            fail(g, s);
        for (size_t i = 0; i < count; i++)
            tell_stored(g->whole, &user_states[i]);
        advance(g, (int64_t)count);
        mongo_user_state_page_free(page);
        arena_reset(&a);
    }
    arena_free(&a);
}

static void read_views(struct reading *g, struct store *session)
{
    for (;;) {
        unsigned range = g->next++;
        enum store_status s;

        if (range < USER_STATE_RANGES)
            s = g->walked ? STORE_OK : read_user_states(g, session, range);
        else if (range < USER_STATE_RANGES + BUCKET_RANGES)
            s = read_buckets(g, session, range - USER_STATE_RANGES);
        else if (range < USER_STATE_RANGES + 2 * BUCKET_RANGES)
            s = read_codes(g, session, range - USER_STATE_RANGES - BUCKET_RANGES);
        else
            return;
        if (s != STORE_OK)
            fail(g, s);
    }
}

/* ---- the ledger ---- */

struct page {
    struct batch *batches[PAGE_BATCHES];
    uint8_t hashes[PAGE_BATCHES][HASH_LEN];
    size_t count;
};

static void free_page(struct page *p)
{
    while (p->count > 0)
        batch_free(p->batches[--p->count]);
}

/* Read the batches after `after`, up to `until`, and hash them. */
static enum store_status read_page(struct reading *g, struct store *session, int64_t after, int64_t until, struct buf *scratch,
                                   struct page *p)
{
    int tries = 0;
    enum store_status s;

    p->count = 0;
    do
        s = session->ops->ledger(session, g->scan->coupon, g->how->lane, after, (size_t)(until - after), p->batches, &p->count);
    while (scan_again(s, &tries));
    while (p->count > 0 && p->batches[p->count - 1]->head.seq > until) /* some are missing */
        batch_free(p->batches[--p->count]);
    for (size_t i = 0; i < p->count; i++)
        batch_hash(p->batches[i], scratch, p->hashes[i]);
    return s;
}

/* False: something has failed. */
static bool wait_for_turn(struct reading *g, unsigned page)
{
    bool good;

    pthread_mutex_lock(&g->lock);
    while (g->turn != page && g->status == STORE_OK)
        pthread_cond_wait(&g->turned, &g->lock);
    good = g->status == STORE_OK;
    pthread_mutex_unlock(&g->lock);
    return good;
}

static void end_turn(struct reading *g)
{
    pthread_mutex_lock(&g->lock);
    g->turn++;
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
}

static void read_ledger(struct reading *g, struct store *session)
{
    struct page *p = checked(calloc(1, sizeof *p));
    struct buf scratch = BUF_INIT;
    int64_t start = g->how->from ? g->how->from->tail.seq : 0;
    bool good = true;

    while (good) {
        unsigned page = g->next++;
        int64_t after = start + (int64_t)page * PAGE_BATCHES, until = after + PAGE_BATCHES;
        enum store_status s;

        if (until > g->tail.seq)
            until = g->tail.seq;
        if (after >= until)
            break;
        s = read_page(g, session, after, until, &scratch, p);
        if (s != STORE_OK)
            fail(g, s);
        good = wait_for_turn(g, page);
        for (size_t i = 0; good && i < p->count; i++)
            replay_hashed(g->whole, p->batches[i], p->hashes[i]);
        end_turn(g);
        free_page(p);
        advance(g, (until - after) * phase_total(g) / (g->tail.seq - start));
    }
    buf_free(&scratch);
    free(p);
}

/* Find users erased while the ledger was read. */
static enum store_status peek(struct reading *g)
{
    struct batch *batches[PAGE_BATCHES];
    struct store *session = g->scan->session;
    int64_t after = g->tail.seq;
    enum store_status s;
    size_t count;

    do {
        int tries = 0;

        count = 0;
        do
            s = session->ops->ledger(session, g->scan->coupon, g->how->lane, after, PAGE_BATCHES, batches, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            after = batches[i]->head.seq;
            replay_peek(g->whole, batches[i]);
            batch_free(batches[i]);
        }
    } while (s == STORE_OK && count == PAGE_BATCHES);
    return s;
}

/* ---- the end of the whole, and of each part ---- */

/* An erasure empties the names right after it is appended: give it a moment. */
static bool name_stays(void *context, const char *alias, int64_t seq)
{
    const struct reading *g = context;
    bool stays = true;

    for (int look = 0; look < LOOKS && stays; look++) {
        struct batch *b = NULL;

        if (look)
            nanosleep(&(struct timespec){0, LOOK_PAUSE_MS * 1000000}, NULL);
        if (mongo_ledger_at(g->scan->session, g->scan->coupon, g->how->lane, seq, &b) != STORE_OK)
            continue;
        stays = false;
        for (size_t i = 0; i < b->count; i++)
            stays = stays || (b->entries[i].user && strcmp(b->entries[i].alias, alias) == 0);
        batch_free(b);
    }
    return stays;
}

/* Serialise what uses the caller's own session, here and in its told(). */
static void end_replay(struct reading *g, struct replay *r)
{
    pthread_mutex_lock(&g->lock);
    replay_look_again(r, name_stays, g);
    pthread_mutex_unlock(&g->lock);
    replay_end(r);
    pthread_mutex_lock(&g->lock);
    if (g->how->told && g->status == STORE_OK)
        g->how->told(g->how->context, r);
    pthread_mutex_unlock(&g->lock);
}

static void tell_entry(void *context, unsigned part, const struct told_entry *t)
{
    (void)part;
    replay_entry(context, t);
}

static void tell_user_state(void *context, unsigned part, const struct name_hash *hash, const char *user, const struct user_state *view)
{
    (void)part;
    replay_view_user_state(context, hash, user, view);
}

static void tell_bucket(void *context, unsigned part, int64_t b, const struct bucket *view)
{
    (void)part;
    replay_view_bucket(context, b, view);
}

static void tell_codes(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    (void)part;
    replay_codes(context, b, codes);
}

static void tell_record(void *context, unsigned part, const char *bytes, size_t len)
{
    (void)part;
    replay_record(context, bytes, len);
}

static void tell_parts(struct reading *g, struct store *session)
{
    (void)session;
    while (!has_failed(g)) {
        unsigned part = g->next++;
        struct replay *r;
        size_t len = 0;
        char *bytes;

        if (part >= g->parts.parts)
            return;
        bytes = spill_take(g->spill, part, &len);
        if (!bytes) {
            log_event(LOG_ERROR, "verify.spill", F_TEXT("error", "a temporary file cannot be read"));
            fail(g, STORE_FAILED);
            return;
        }
        r = replay_part(g->whole, part, report, g);
        unpack_all(bytes, len, part, &(struct replay_sink){tell_entry, tell_user_state, tell_bucket, tell_codes, tell_record, r});
        free(bytes);
        end_replay(g, r);
        replay_free(r);
        advance(g, phase_total(g) / g->parts.parts);
    }
}

/* ---- a lane ---- */

static unsigned parts_of(const struct reading *g, unsigned threads)
{
    return g->scan->parts_asked ? (unsigned)g->scan->parts_asked
                                : parts_for(head_takings(&g->before), g->before.next_n % LANE_SLOTS, threads);
}

/* Open up to `threads` sessions; each gets a thread. */
static void open_sessions(struct reading *g, unsigned threads)
{
    g->sessions[0] = g->scan->session;
    g->threads = 1;
    while (g->threads < threads && g->scan->another_session && (g->sessions[g->threads] = g->scan->another_session(g->scan->context)))
        g->threads++;
}

/* The mark to compare totals by; the tail, if the mark is useless and totals are to be rebuilt. -1: unreadable. */
static int64_t totals_seq(const struct stored_mark *mark, const struct head *tail, bool rebuild)
{
    bool good = mark->is_there && mark->readable && mark->mark.seq <= tail->seq;

    if (rebuild && !good)
        return tail->seq;
    return mark->is_there && !mark->readable ? -1 : mark->mark.seq;
}

/* Start the replay, and its temporary file, from scratch. */
static bool begin(struct reading *g)
{
    spill_free(g->spill);
    g->spill = NULL;
    if (g->whole)
        replay_free(g->whole);
    g->whole = NULL;
    if (g->parts.parts > 1) {
        g->spill = spill_new(g->parts.parts);
        if (!g->spill) {
            log_event(LOG_ERROR, "verify.spill", F_TEXT("error", "no temporary file can be made in TMPDIR or /var/tmp"));
            return false;
        }
    }
    g->whole = replay_new(g->parts, g->scan->name_key, report, g);
    replay_sum(g->whole, g->how->sums);
    replay_send(g->whole, &(struct replay_sink){spill_entry, spill_user_state, spill_bucket, spill_codes, spill_record, g});
    replay_codes_until(g->whole, g->before.next_n);
    return true;
}

static void divide(struct reading *g)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned threads = processors < 1 ? 1 : processors > THREADS_MOST ? THREADS_MOST : (unsigned)processors, parts;

    parts = parts_of(g, threads);
    g->parts = (struct replay_parts){parts, parts > 1 ? bucket_of(g->before.next_n % LANE_SLOTS) / parts + 1 : 0, g->how->lane,
                                     g->how->lanes};
    open_sessions(g, parts > 1 ? threads : 1);
}

/* Walking reads other coupons' users too: it pays only if there are not too many. */
static enum store_status is_worth_walking(struct reading *g, bool *is)
{
    int64_t all = 0, lanes = g->how->lanes > 1 ? g->how->lanes : 1;
    int tries = 0;
    enum store_status s;

    do
        s = mongo_count_user_states(g->scan->session, &all);
    while (scan_again(s, &tries));
    *is = all / WALK_MOST <= head_takings(&g->before) * lanes;
    return s;
}

/* A lost cursor, as in a fail-over, yields nothing more. Nothing about users was reported yet, so read all of them again. */
static enum store_status walk(struct reading *g)
{
    int tries = 0;
    enum store_status s;

    do {
        g->walk.begun = g->walk.lost = false;
        g->status = STORE_OK;
        s = STORE_FAILED;
        if (begin(g))
            s = run(g, VIEWS, walk_user_states);
        mongo_user_state_pages_end(g->sessions[0], g->walk.cursor);
        g->walk.cursor = 0;
    } while (g->walk.lost && scan_again(s, &tries));
    g->walked = true;
    return s;
}

static enum store_status tell_users(struct reading *g)
{
    bool worth = false;
    enum store_status s = g->parts.parts > 1 ? is_worth_walking(g, &worth) : STORE_OK;

    if (s == STORE_OK && worth)
        return walk(g);
    return s == STORE_OK && !begin(g) ? STORE_FAILED : s; /* read_views() reads them */
}

static enum store_status tell_views(struct reading *g)
{
    enum store_status s = tell_users(g);

    if (s == STORE_OK)
        s = read_totals(g);
    if (s == STORE_OK && g->how->lane == 0)
        s = read_definition(g);
    return s == STORE_OK ? run(g, VIEWS, read_views) : s;
}

/* Start from the state at the checkpoint. */
static void tell_checkpoint(struct reading *g)
{
    struct buf record = BUF_INIT;

    replay_go_on(g->whole, g->how->from);
    while (g->how->record(g->how->context, &record) && !has_failed(g))
        replay_record(g->whole, record.data, record.len);
    buf_free(&record);
}

static enum store_status tell_ledger(struct reading *g)
{
    enum store_status s;

    if (g->how->from)
        tell_checkpoint(g);
    s = run(g, LEDGER, read_ledger);
    return s == STORE_OK ? peek(g) : s;
}

static enum store_status tell_lane(struct reading *g)
{
    struct scan *v = g->scan;
    int64_t lane = g->how->lane;
    struct stored_mark views, totals;
    enum store_status s = scan_mark(v, lane, "views", &views);

    if (s == STORE_OK)
        s = scan_mark(v, lane, "totals", &totals);
    if (s == STORE_OK)
        s = scan_tail(v, lane, &g->before);
    if (s == STORE_OK) {
        divide(g);
        s = tell_views(g);
    }
    if (s == STORE_OK)
        s = scan_tail(v, lane, &g->tail);
    if (s != STORE_OK)
        return s;
    replay_marks(g->whole, views.is_there && !views.readable ? -1 : views.mark.seq,
                 totals_seq(&totals, &g->tail, g->how->rebuild));
    s = tell_ledger(g);
    if (s == STORE_OK && g->spill)
        s = run(g, PARTS, tell_parts);
    if (s == STORE_OK)
        end_replay(g, g->whole);
    return s;
}

enum store_status scan_lane(struct scan *v, const struct scan_lane *how)
{
    struct reading g = {.scan = v, .how = how};
    enum store_status s;

    if (pthread_mutex_init(&g.lock, NULL) != 0 || pthread_mutex_init(&g.walk.lock, NULL) != 0 || pthread_cond_init(&g.turned, NULL) != 0)
        abort();
    s = tell_lane(&g);
    if (g.whole)
        replay_free(g.whole);
    spill_free(g.spill);
    buf_free(&g.packed);
    pthread_cond_destroy(&g.turned);
    pthread_mutex_destroy(&g.walk.lock);
    pthread_mutex_destroy(&g.lock);
    return s;
}
