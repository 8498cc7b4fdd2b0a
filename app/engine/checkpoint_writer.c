/* engine/checkpoint_writer.c -- see checkpoint_writer.h. */
#include "engine/checkpoint_writer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/thread.h"

#define CLOCK_EVERY_MS 5000
#define IDLE_MS 900
#define WRITE_CHUNK 1024
#define BACKOFF_MS_MAX 1000

struct checkpoint_writer {
    struct store *store;
    int backoff_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct checkpoint_job *submitted; /* under the lock, like stop */
    bool stop;
    struct mono give_up; /* when stop is set */
    /* the thread's own */
    struct checkpoint_job *jobs; /* not written yet */
    bool stopping;
    struct mono clock_read;
};

void checkpoint_job_free(struct checkpoint_job *job)
{
    for (size_t i = 0; i < job->bucket_count; i++)
        bucket_release(&job->buckets[i]);
    free(job->buckets);
    arena_free(&job->arena);
    free(job);
}

/* ---- writing ---- */

/* The jobs that are due, out of the writer's list. */
static struct checkpoint_job *take_due(struct checkpoint_writer *w)
{
    struct checkpoint_job *due = NULL, *kept = NULL, *job, *next;
    struct mono now = mono_now();

    for (job = w->jobs; job; job = next) {
        struct checkpoint_job **to = !w->stopping && mono_before(now, job->not_before) ? &kept : &due;

        next = job->next;
        job->next = *to;
        *to = job;
    }
    w->jobs = kept;
    return due;
}

static size_t view_count(const struct checkpoint_job *job)
{
    return job->bucket_count + (job->definition != NULL);
}

static void put_views(struct view_write *views, const struct checkpoint_job *job)
{
    const char *coupon = job->lane->coupon;

    for (size_t i = 0; i < job->bucket_count; i++) {
        assert(job->buckets[i].seq <= job->checkpoint.seq);
        *views++ = (struct view_write){.coupon = coupon, .bucket = &job->buckets[i]};
    }
    if (job->definition)
        *views = (struct view_write){.coupon = coupon, .definition = job->definition, .seq = job->definition_seq};
}

static void write_views(struct checkpoint_writer *w, struct view_write *views, size_t count, struct store_time *when)
{
    for (size_t first = 0; first < count; first += WRITE_CHUNK) {
        size_t some = count - first < WRITE_CHUNK ? count - first : WRITE_CHUNK;
        struct store_time time = {0};

        w->store->ops->write_views(w->store, views + first, some, &time);
        *when = store_time_later(*when, time);
    }
}

static bool is_written(const struct checkpoint_job *job, const struct view_write *views)
{
    for (size_t i = 0; i < view_count(job); i++)
        if (!views[job->first_view + i].written)
            return false;
    return true;
}

static void give_back(struct checkpoint_job *job, bool written, struct store_time when)
{
    assert(!job->written);
    job->written = written;
    job->when = when;
    job->done(job);
}

static void try_again(struct checkpoint_writer *w, struct checkpoint_job *job)
{
    int64_t ms = w->backoff_ms;

    assert(!job->written && job->failures >= 0);
    for (int i = 0; i < job->failures && ms < BACKOFF_MS_MAX; i++)
        ms *= 2;
    if (job->failures++ == 0)
        log_event(LOG_WARNING, "checkpoint.failed", F_WORD("coupon", job->lane->coupon), F_INT("lane", job->lane->number));
    job->not_before = mono_add_ms(mono_now(), ms < BACKOFF_MS_MAX ? ms : BACKOFF_MS_MAX);
    job->next = w->jobs;
    w->jobs = job;
}

/* Write these jobs' views; then the checkpoints of those whose views are written. */
static void write_jobs(struct checkpoint_writer *w, struct checkpoint_job *jobs)
{
    struct checkpoint_write *checkpoints;
    struct checkpoint_job *job, *next;
    struct view_write *views;
    size_t view = 0, count = 0;
    struct store_time when = {0};
    bool good;

    for (job = jobs; job; job = job->next) {
        job->first_view = view;
        view += view_count(job);
        count++;
    }
    views = checked(calloc(view + 1, sizeof *views));
    checkpoints = checked(calloc(count + 1, sizeof *checkpoints));
    for (job = jobs; job; job = job->next)
        put_views(views + job->first_view, job);
    if (crash_armed(CRASH_VIEWS) && view > 1) {
        write_views(w, views, view / 2, &when);
        crash_at(CRASH_VIEWS);
    }
    write_views(w, views, view, &when);
    count = 0;
    for (job = jobs; job; job = job->next)
        if (is_written(job, views))
            checkpoints[count++] = (struct checkpoint_write){job->lane->coupon, job->lane->number, job->checkpoint};
    good = !count || w->store->ops->write_checkpoints(w->store, checkpoints, count) == STORE_OK;
    if (count && good)
        crash_at(CRASH_CHECKPOINT);
    for (job = jobs; job; job = next) {
        next = job->next;
        if (good && is_written(job, views))
            give_back(job, true, when);
        else
            try_again(w, job);
    }
    free(checkpoints);
    free(views);
}

/* ---- the thread ---- */

static void read_clock(struct checkpoint_writer *w)
{
    struct mono before = mono_now();
    int64_t utc_ms;

    if (w->clock_read.ns && mono_ms_between(w->clock_read, before) < CLOCK_EVERY_MS)
        return;
    w->clock_read = before;
    if (w->store->ops->now(w->store, &utc_ms) == STORE_OK)
        clock_set(utc_ms, before, mono_now());
}

/* When the next job is due. */
static struct mono next_work(const struct checkpoint_writer *w)
{
    struct mono at = mono_add_ms(mono_now(), IDLE_MS);

    for (const struct checkpoint_job *job = w->jobs; job; job = job->next)
        if (mono_before(job->not_before, at))
            at = job->not_before;
    return at;
}

/* Take what was submitted; wait if nothing is due. False: asked to stop, and nothing is left. */
static bool take_in(struct checkpoint_writer *w)
{
    struct mono at = next_work(w);
    struct checkpoint_job *jobs, *next;

    pthread_mutex_lock(&w->lock);
    if (!w->submitted && mono_before(mono_now(), at) && !(w->stop && !w->jobs))
        cond_wait_until(&w->some, &w->lock, at);
    jobs = w->submitted;
    w->submitted = NULL;
    w->stopping = w->stop;
    pthread_mutex_unlock(&w->lock);
    for (; jobs; jobs = next) {
        next = jobs->next;
        jobs->next = w->jobs;
        w->jobs = jobs;
    }
    return w->jobs || !w->stopping;
}

/* It is to stop, and patience has run out with a database that fails: the next process that loads these lanes writes what is missing. */
static void give_up(struct checkpoint_writer *w)
{
    struct checkpoint_job *job;

    while ((job = w->jobs)) {
        w->jobs = job->next;
        give_back(job, false, (struct store_time){0});
    }
}

static void *writer_main(void *argument)
{
    struct checkpoint_writer *w = argument;

    while (take_in(w)) {
        struct checkpoint_job *due = take_due(w);

        if (due)
            write_jobs(w, due);
        if (w->stopping && mono_before(w->give_up, mono_now()))
            give_up(w);
        read_clock(w);
    }
    return NULL;
}

struct checkpoint_writer *checkpoint_writer_start(struct store_source *source, int backoff_ms)
{
    struct checkpoint_writer *w = checked(calloc(1, sizeof *w));

    assert(backoff_ms > 0);
    w->store = source->open(source);
    w->backoff_ms = backoff_ms;
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->some);
    read_clock(w);
    thread_start(&w->thread, writer_main, w, "checkpoints");
    return w;
}

void checkpoint_writer_submit(struct checkpoint_writer *w, struct checkpoint_job *job)
{
    assert(job->lane && job->done && !job->written && job->failures == 0);
    assert(!job->definition || job->definition_seq <= job->checkpoint.seq);
    pthread_mutex_lock(&w->lock);
    assert(!w->stop);
    job->next = w->submitted;
    w->submitted = job;
    pthread_cond_signal(&w->some);
    pthread_mutex_unlock(&w->lock);
}

void checkpoint_writer_stop(struct checkpoint_writer *w, int patience_ms)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    w->give_up = mono_add_ms(mono_now(), patience_ms);
    pthread_cond_signal(&w->some);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    assert(!w->submitted && !w->jobs);
    w->store->ops->close(w->store);
    pthread_cond_destroy(&w->some);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
