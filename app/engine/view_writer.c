/* engine/view_writer.c -- see view_writer.h. */
#include "engine/view_writer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/cond.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/foreign_views.h"

#define CLOCK_EVERY_MS 5000
#define ROUND_EVERY_MS 100 /* a majority write costs the server the same whatever its size: so fewer and larger ones */
#define WANTED_EVERY_MS 20 /* if a job says that somebody waits */
#define ASKED_EVERY_MS 50  /* if others wait: only the lanes that they wait for */
#define IDLE_MS 900
#define WRITE_CHUNK 1024
#define FOREIGN_MS 50       /* per round for others' batches, while our own wait */
#define BACKOFF_MS_MAX 1000 /* for a lane whose views cannot be written */

/* A lane's jobs, in order of arrival. */
struct view_lane {
    struct lane *lane; /* the hash key */
    struct view_job *first, *last;
    struct view_job *end;    /* the first one not in the round */
    struct foreign *foreign; /* the first job's, if under way */
    int failures;            /* in a row; above 0, the lane is tried alone */
    struct mono not_before;  /* then */
    UT_hash_handle hh;
};

struct view_writer {
    struct store *store;
    const struct engine_hooks *hooks;
    int backoff_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct view_job *first, *last; /* submitted */
    bool stop;
    bool idle;   /* waits for a first job, not for more */
    bool wanted; /* somebody waits for a submitted job */
    bool asked;  /* others wait for views */
    struct mono give_up; /* when stop is set */
    /* the thread's own */
    struct view_lane *lanes; /* with jobs; the next turn first */
    bool stopping;
    bool whole;   /* the round has all lanes; else only those that others wait for */
    bool failed;  /* a write failed in this round */
    bool gave_up; /* some views were not written: no mark may pass them now */
    struct mono clock_read;
    struct mono whole_started; /* start of the last whole round */
    struct mono round_started; /* start of the last round */
    struct store_time when; /* of the latest write: not before any view up to a mark */
};

/* A user's newest state among the jobs of a round. */
struct written_user_state {
    char *key; /* coupon, line feed, user; the hash key; in the round's arena */
    const char *coupon;
    struct user_state user_state; /* its pointers are into the batch */
    UT_hash_handle hh;
};

struct round {
    struct arena arena;
    struct written_user_state *user_states;
    struct view_write *writes;
    size_t count, capacity;
};

void view_job_free(struct view_job *job)
{
    for (size_t i = 0; i < job->bucket_count; i++)
        bucket_release(&job->buckets[i]);
    free(job->buckets);
    free(job->batches);
    arena_free(&job->arena);
    free(job);
}

/* ---- collecting ---- */

static struct view_write *add_write(struct round *r)
{
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? r->capacity * 2 : 256;
        r->writes = checked(realloc(r->writes, r->capacity * sizeof *r->writes));
    }
    r->writes[r->count] = (struct view_write){0};
    return &r->writes[r->count++];
}

static void add_user_state(struct round *r, const char *coupon, const struct user_state *u)
{
    char *key = arena_printf(&r->arena, "%s\n%s", coupon, u->user);
    struct written_user_state *known;

    HASH_FIND_STR(r->user_states, key, known);
    if (known) {
        if (u->seq > known->user_state.seq) {
            bool stored = known->user_state.stored; /* before this round's */

            known->user_state = *u;
            known->user_state.stored = stored;
        }
        return;
    }
    known = arena_alloc(&r->arena, sizeof *known);
    *known = (struct written_user_state){.key = key, .coupon = coupon, .user_state = *u};
    HASH_ADD_KEYPTR(hh, r->user_states, known->key, strlen(known->key), known);
}

static void add_definition(struct round *r, const char *coupon, const struct coupon *definition, int64_t seq)
{
    *add_write(r) = (struct view_write){.kind = VIEW_COUPON, .coupon = coupon, .definition = definition, .seq = seq};
}

static void add_bucket(struct round *r, const char *coupon, const struct bucket *k)
{
    *add_write(r) = (struct view_write){.kind = VIEW_BUCKET, .coupon = coupon, .bucket = k};
}

/* ---- a lane's jobs ---- */

static struct view_lane *view_lane_of(struct view_writer *v, struct lane *lane)
{
    struct view_lane *l;

    HASH_FIND_PTR(v->lanes, &lane, l);
    if (l)
        return l;
    l = checked(calloc(1, sizeof *l));
    l->lane = lane;
    HASH_ADD_PTR(v->lanes, lane, l);
    return l;
}

static void queue_job(struct view_writer *v, struct view_job *job)
{
    struct view_lane *l = view_lane_of(v, job->lane);

    job->next = NULL;
    if (l->last)
        l->last->next = job;
    else
        l->first = job;
    l->last = job;
}

/* Others' batches that the lane's first job names are not written yet. */
static bool has_foreign(const struct view_lane *l)
{
    return l->first->batch_count && !l->first->foreign_written;
}

static bool is_troubled(const struct view_lane *l)
{
    return l->failures > 0;
}

static bool has_own_work(const struct view_lane *l)
{
    return !is_troubled(l) && !has_foreign(l);
}

/* True if it is time to try a troubled lane again; at once when stopping. */
static bool is_due(const struct view_writer *v, const struct view_lane *l)
{
    return v->stopping || !mono_before(mono_now(), l->not_before);
}

/* Move the lane to the end: the others come first. */
static void put_last(struct view_writer *v, struct view_lane *l)
{
    HASH_DELETE(hh, v->lanes, l);
    HASH_ADD_PTR(v->lanes, lane, l);
}

static void note_failure(struct view_writer *v, struct view_lane *l)
{
    int64_t ms = v->backoff_ms;

    for (int i = 0; i < l->failures && ms < BACKOFF_MS_MAX; i++)
        ms *= 2;
    if (l->failures++ == 0)
        log_event(LOG_WARNING, "views.failed", F_WORD("coupon", l->lane->coupon), F_INT("lane", l->lane->number));
    l->not_before = mono_add_ms(mono_now(), ms < BACKOFF_MS_MAX ? ms : BACKOFF_MS_MAX);
    put_last(v, l);
    v->failed = true;
}

/* Not before the lane's present mark: a batch without views needs no write, and its mark still covers the older views. */
static struct store_time mark_time(const struct view_writer *v, const struct view_job *job)
{
    return store_time_later(v->when, job->after);
}

/* Give back the lane's jobs before `end`. */
static void finish_jobs(struct view_writer *v, struct view_lane *l, const struct view_job *end, bool written)
{
    while (l->first != end) {
        struct view_job *job = l->first;

        l->first = job->next;
        if (!written)
            job->upto = 0;
        else if (job->own && v->hooks->views_settled)
            v->hooks->views_settled(job->own->batch);
        job->when = mark_time(v, job);
        job->done(job);
    }
    if (written)
        l->failures = 0;
    if (l->first)
        return;
    HASH_DELETE(hh, v->lanes, l);
    foreign_free(l->foreign);
    free(l);
}

/* ---- other writers' batches ---- */

static enum store_status write_chunk(struct view_writer *v, struct view_lane *l)
{
    struct view_job *job = l->first;
    enum store_status status;
    bool done;

    if (!l->foreign)
        l->foreign = foreign_new(l->lane->coupon, l->lane->number, job->batches, job->batch_count, job->after);
    status = foreign_step(l->foreign, v->store, &v->when, &done);
    if (status != STORE_OK) {
        note_failure(v, l);
        return status;
    }
    l->failures = 0;
    put_last(v, l);
    if (!done)
        return STORE_OK;
    foreign_free(l->foreign);
    l->foreign = NULL;
    job->foreign_written = true;
    return STORE_OK;
}

/* Write a chunk of every lane that has some, in turn, for a while: views that others wait for come in between. If one fails, stop until the
 * next round: perhaps all would. */
static void write_foreign(struct view_writer *v)
{
    struct mono started = mono_now();
    bool any;

    do {
        struct view_lane *l, *next;
        size_t left = HASH_COUNT(v->lanes); /* finished ones go to the end */

        any = false;
        for (l = v->lanes; l && left > 0; l = next, left--) {
            next = l->hh.next;
            if (!has_foreign(l) || (is_troubled(l) && !is_due(v, l)))
                continue;
            if (write_chunk(v, l) != STORE_OK)
                return;
            any = true;
            if (mono_ms_between(started, mono_now()) >= FOREIGN_MS)
                return;
        }
    } while (any);
}

/* ---- a round ---- */

/* Collect the views of the lane's jobs, up to the first that must wait for others' batches. */
static void collect(struct round *r, struct view_lane *l)
{
    struct view_job *job = l->first;

    for (; job && (!job->batch_count || job->foreign_written); job = job->next) {
        for (size_t i = 0; job->own && i < job->own->batch->user_state_count; i++)
            add_user_state(r, l->lane->coupon, job->own->batch->user_states[i]);
        for (size_t i = 0; job->own && i < job->own->batch->job_count; i++)
            *add_write(r) = (struct view_write){.kind = VIEW_JOB, .coupon = l->lane->coupon, .job = job->own->batch->jobs[i]};
        for (size_t i = 0; job->own && i < job->own->batch->account_count; i++)
            *add_write(r) = (struct view_write){
                .kind = VIEW_ACCOUNT, .coupon = l->lane->coupon, .account = job->own->batch->accounts[i]};
        if (job->definition)
            add_definition(r, l->lane->coupon, job->definition, job->definition_seq);
        for (size_t i = 0; i < job->bucket_count; i++)
            add_bucket(r, l->lane->coupon, &job->buckets[i]);
    }
    l->end = job;
}

static enum store_status write_some(struct view_writer *v, struct round *r, size_t first, size_t count)
{
    return write_all_views(v->store, r->writes + first, count, &v->when);
}

static enum store_status write_all(struct view_writer *v, struct round *r)
{
    enum store_status status = STORE_OK;

    for (struct written_user_state *u = r->user_states; u; u = u->hh.next)
        *add_write(r) = (struct view_write){.kind = VIEW_USER_STATE, .coupon = u->coupon, .user_state = &u->user_state};
    if (crash_armed(CRASH_VIEWS) && r->count > 1 && write_some(v, r, 0, r->count / 2) == STORE_OK)
        crash_at(CRASH_VIEWS);
    for (size_t first = 0; first < r->count && status == STORE_OK; first += WRITE_CHUNK)
        status = write_some(v, r, first, r->count - first < WRITE_CHUNK ? r->count - first : WRITE_CHUNK);
    return status;
}

/* Write the latest mark that the round's jobs permit, for each lane. */
static enum store_status write_marks(struct view_writer *v, struct arena *a, struct view_lane *const *lanes, size_t lane_count)
{
    struct mark_write *marks = arena_array(a, lane_count + 1, sizeof *marks);
    enum store_status status;
    size_t count = 0;

    for (size_t i = 0; i < lane_count; i++) {
        const struct view_job *last = NULL;

        for (const struct view_job *job = lanes[i]->first; job != lanes[i]->end; job = job->next)
            last = job->upto ? job : last;
        if (last)
            marks[count++] = (struct mark_write){lanes[i]->lane->coupon, lanes[i]->lane->number, "views",
                                                 {last->upto, mark_time(v, last)}, 0};
    }
    if (!count)
        return STORE_OK;
    status = v->store->ops->write_marks(v->store, marks, count);
    if (status == STORE_OK)
        crash_at(CRASH_MARKED);
    return status;
}

static void round_free(struct round *r)
{
    struct written_user_state *u, *next;

    HASH_ITER(hh, r->user_states, u, next)
        HASH_DEL(r->user_states, u);
    free(r->writes);
    arena_free(&r->arena);
}

/* Write the views of those lanes' jobs, then their marks. */
static enum store_status write_views_of(struct view_writer *v, struct view_lane *const *lanes, size_t count)
{
    struct round r = {0};
    enum store_status status;

    arena_init(&r.arena, 64 * 1024);
    for (size_t i = 0; i < count; i++)
        collect(&r, lanes[i]);
    status = write_all(v, &r);
    if (status == STORE_OK)
        status = write_marks(v, &r.arena, lanes, count);
    round_free(&r);
    for (size_t i = 0; i < count; i++) {
        if (status != STORE_OK)
            note_failure(v, lanes[i]);
        else
            finish_jobs(v, lanes[i], lanes[i]->end, true);
    }
    return status;
}

/* Others wait for views of this lane. */
static bool is_awaited(const struct view_writer *v, const struct view_lane *l)
{
    const struct view_job *job = l->first;

    while (job && !(job->own && v->hooks->views_awaited && v->hooks->views_awaited(job->own->batch)))
        job = job->next;
    return job != NULL;
}

/* Write all untroubled lanes of the round together. If that fails, try each alone: a lane that cannot be written holds up only itself. */
static void write_together(struct view_writer *v)
{
    struct view_lane **lanes = checked(calloc(HASH_COUNT(v->lanes) + 1, sizeof *lanes));
    size_t count = 0;

    for (struct view_lane *l = v->lanes; l; l = l->hh.next)
        if (has_own_work(l) && (v->whole || is_awaited(v, l)))
            lanes[count++] = l;
    if (count)
        write_views_of(v, lanes, count);
    free(lanes);
}

/* Try each alone, until one fails; the rest wait for the next round, so that failing lanes do not hold up working ones. */
static void write_troubled(struct view_writer *v)
{
    struct view_lane *l, *next;
    size_t left = HASH_COUNT(v->lanes); /* failed ones go to the end */

    for (l = v->lanes; l && left > 0; l = next, left--) {
        next = l->hh.next;
        if (is_troubled(l) && !has_foreign(l) && is_due(v, l) && write_views_of(v, &l, 1) != STORE_OK)
            return;
    }
}

/* ---- the thread ---- */

static void read_clock(struct view_writer *v)
{
    struct mono before = mono_now();
    int64_t utc_ms;

    if (v->clock_read.ns && mono_ms_between(v->clock_read, before) < CLOCK_EVERY_MS)
        return;
    v->clock_read = before;
    if (v->store->ops->now(v->store, &utc_ms) == STORE_OK)
        clock_set(utc_ms, before, mono_now());
}

static struct mono sooner(struct mono a, struct mono b)
{
    return mono_before(a, b) ? a : b;
}

/* When the next whole round may begin. */
static struct mono next_whole(const struct view_writer *v)
{
    return mono_add_ms(v->whole_started, ROUND_EVERY_MS);
}

/* When the next unfinished work is due. */
static struct mono next_work(const struct view_writer *v)
{
    struct mono now = mono_now(), at = mono_add_ms(now, IDLE_MS);

    for (const struct view_lane *l = v->lanes; l; l = l->hh.next)
        at = sooner(at, is_troubled(l) ? l->not_before : has_foreign(l) ? now : next_whole(v));
    return at;
}

/* Under the lock: true if others wait, and a round for them is due. They give no signal. */
static bool is_asked(struct view_writer *v, struct mono now)
{
    v->asked = v->asked || (v->hooks->views_asked && v->hooks->views_asked());
    return v->asked && !mono_before(now, mono_add_ms(v->round_started, ASKED_EVERY_MS));
}

/* Under the lock: let jobs gather until `at` or until a whole round may begin; less long if somebody waits for views. */
static void await_jobs(struct view_writer *v, struct mono at)
{
    struct mono end = sooner(at, next_whole(v)), soonest = mono_add_ms(v->whole_started, WANTED_EVERY_MS);
    struct mono now = mono_now();

    v->whole = true;
    while (!v->stop && mono_before(now, end) && (mono_before(now, soonest) || !v->wanted)) {
        if (is_asked(v, now)) {
            v->whole = false;
            return;
        }
        cond_wait_until(&v->some, &v->lock, sooner(end, mono_before(now, soonest) ? soonest : mono_add_ms(now, WANTED_EVERY_MS)));
        now = mono_now();
    }
}

static void queue_jobs(struct view_writer *v, struct view_job *job)
{
    struct view_job *next;

    for (; job; job = next) {
        next = job->next;
        queue_job(v, job);
    }
}

/* Queue everything submitted; if there is nothing to do, wait. False: told to stop, and nothing is left. */
static bool take_jobs(struct view_writer *v)
{
    struct mono at = next_work(v);
    struct view_job *jobs;

    pthread_mutex_lock(&v->lock);
    await_jobs(v, at);
    v->idle = v->whole;
    if (v->idle && !v->first && !v->stop && mono_before(mono_now(), at))
        cond_wait_until(&v->some, &v->lock, at);
    v->idle = false;
    jobs = v->first;
    v->first = v->last = NULL;
    v->wanted = v->wanted && !v->whole; /* they are in the next whole round */
    v->asked = false;
    v->stopping = v->stop;
    pthread_mutex_unlock(&v->lock);
    queue_jobs(v, jobs);
    return v->lanes || !v->stopping;
}

static void note_round(struct view_writer *v)
{
    bool any = false;

    for (const struct view_lane *l = v->lanes; l && !any; l = l->hh.next)
        any = has_own_work(l);
    if (!any)
        return; /* an empty round does not delay the next */
    v->round_started = mono_now();
    if (v->whole)
        v->whole_started = v->round_started;
}

/* Told to stop while the database keeps failing: give these jobs and all later ones back unwritten; the reporter will write the views.
 * Until time is up, retry after a moment. */
static void give_up_in_time(struct view_writer *v)
{
    struct timespec pause = {v->backoff_ms / 1000, v->backoff_ms % 1000 * 1000000L};

    if (!v->stopping || !v->failed)
        return;
    v->gave_up = mono_before(v->give_up, mono_now());
    if (!v->gave_up)
        nanosleep(&pause, NULL);
}

static void *views_main(void *argument)
{
    struct view_writer *v = argument;

    while (take_jobs(v)) {
        struct view_lane *l, *next;

        v->failed = false;
        note_round(v);
        if (!v->gave_up && v->whole)
            write_foreign(v);
        if (!v->gave_up)
            write_together(v);
        if (!v->gave_up && v->whole) {
            write_troubled(v);
            give_up_in_time(v);
        }
        HASH_ITER(hh, v->lanes, l, next)
            if (v->gave_up)
                finish_jobs(v, l, NULL, false);
        read_clock(v);
    }
    return NULL;
}

struct view_writer *view_writer_start(struct store_source *source, const struct engine_hooks *hooks, int backoff_ms)
{
    struct view_writer *v = checked(calloc(1, sizeof *v));

    v->store = source->open(source);
    v->hooks = hooks;
    v->backoff_ms = backoff_ms;
    pthread_mutex_init(&v->lock, NULL);
    cond_init(&v->some);
    read_clock(v);
    thread_start(&v->thread, views_main, v, "views");
    return v;
}

void view_writer_submit(struct view_writer *v, struct view_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&v->lock);
    if (v->last)
        v->last->next = job;
    else
        v->first = job;
    v->last = job;
    v->wanted = v->wanted || job->wanted;
    if (v->idle || job->wanted)
        pthread_cond_signal(&v->some);
    pthread_mutex_unlock(&v->lock);
}

void view_writer_stop(struct view_writer *v, int patience_ms)
{
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    v->give_up = mono_add_ms(mono_now(), patience_ms);
    pthread_cond_signal(&v->some);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    v->store->ops->close(v->store);
    pthread_cond_destroy(&v->some);
    pthread_mutex_destroy(&v->lock);
    free(v);
}
