/* engine/views.c -- see views.h. */
#include "engine/views.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/cond.h"
#include "base/crash.h"
#include "base/log.h"
#include "coupons/fold.h"

#define CLOCK_EVERY_MS 5000
#define ROUND_EVERY_MS 20 /* a majority write costs the server the same whatever its size: under load, fewer and larger */
#define WRITE_CHUNK 1024
#define BUCKET_CHUNK 512

struct views {
    struct store *store;
    const struct engine_hooks *hooks;
    int backoff_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct view_job *first, *last;
    bool stop;
    bool idle; /* waits for the first job, not for company */
    bool gave_up; /* some views were not written: no mark may pass them any more */
    struct mono give_up; /* when stop is set */
    struct mono clock_read;
    struct mono round_started;
    struct store_time when; /* of the latest write: not before any view that a mark speaks of */
};

/* A user's newest state among the jobs of a round. */
struct written_use {
    char *key; /* coupon, line feed, user; the hash key; in the round's arena */
    const char *coupon;
    const struct use *use;
    UT_hash_handle hh;
};

struct round {
    struct arena arena;
    struct written_use *uses;
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

static void add_use(struct round *r, const char *coupon, const struct use *u)
{
    char *key = arena_printf(&r->arena, "%s\n%s", coupon, u->user);
    struct written_use *known;

    HASH_FIND_STR(r->uses, key, known);
    if (known) {
        if (u->seq > known->use->seq)
            known->use = u;
        return;
    }
    known = arena_alloc(&r->arena, sizeof *known);
    *known = (struct written_use){.key = key, .coupon = coupon, .use = u};
    HASH_ADD_KEYPTR(hh, r->uses, known->key, strlen(known->key), known);
}

static void add_definition(struct round *r, const char *coupon, const struct coupon *definition, int64_t seq)
{
    *add_write(r) = (struct view_write){.kind = VIEW_COUPON, .coupon = coupon, .definition = definition, .seq = seq};
}

static void add_bucket(struct round *r, const char *coupon, const struct bucket *k)
{
    *add_write(r) = (struct view_write){.kind = VIEW_BUCKET, .coupon = coupon, .bucket = k};
}

/* Write them all, or STORE_FAILED. */
static enum store_status write_some(struct views *v, struct view_write *writes, size_t count, struct store_time *when)
{
    struct store_time one = {0, 0};
    enum store_status status = count ? v->store->ops->write_views(v->store, writes, count, &one) : STORE_OK;

    for (size_t i = 0; status == STORE_OK && i < count; i++)
        if (!writes[i].written)
            status = STORE_FAILED;
    *when = store_time_later(*when, one);
    return status;
}

/* ---- other writers' batches ---- */

/* Whoever appended them has normally written their views as well: then the mark says so. */
static enum store_status is_written(struct views *v, const struct view_job *job, bool *written)
{
    struct mark mark;
    enum store_status status = v->store->ops->mark(v->store, job->lane->coupon, job->lane->number, "views", &mark);

    *written = status == STORE_OK && mark.seq >= job->batches[job->batch_count - 1]->batch->head.seq;
    if (*written)
        v->when = store_time_later(v->when, mark.when);
    return status;
}

/* The distinct users of the batches that are not our own. */
static size_t foreign_users(const struct view_job *job, struct arena *a, struct use_read **reads)
{
    struct written_use *seen = NULL, *one, *next;
    size_t count = 0, most = 0;

    for (size_t i = 0; i < job->batch_count; i++)
        most += job->batches[i]->own ? 0 : job->batches[i]->batch->count;
    *reads = arena_array(a, most + 1, sizeof **reads);
    for (size_t i = 0; i < job->batch_count; i++) {
        const struct batch *b = job->batches[i]->batch;

        for (size_t k = 0; !job->batches[i]->own && k < b->count; k++) {
            const struct entry *e = &b->entries[k];
            char *user = e->user ? (char *)(uintptr_t)e->user
                                 : e->job ? arena_printf(a, JOB_USER_PREFIX "%s", e->job) : NULL;

            if (!user)
                continue;
            HASH_FIND_STR(seen, user, one);
            if (one)
                continue;
            one = arena_alloc(a, sizeof *one);
            one->key = user;
            HASH_ADD_KEYPTR(hh, seen, one->key, strlen(one->key), one);
            (*reads)[count++] = (struct use_read){.coupon = job->lane->coupon, .user = user};
        }
    }
    HASH_ITER(hh, seen, one, next)
        HASH_DEL(seen, one);
    return count;
}

static enum store_status fold_foreign_users(struct views *v, struct round *r, struct view_job *job)
{
    struct use_read *reads;
    size_t count = foreign_users(job, &r->arena, &reads);
    enum store_status status = count ? v->store->ops->uses(v->store, job->after, &r->arena, reads, count) : STORE_OK;

    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        struct use *u = reads[i].use;

        if (!u) {
            u = arena_alloc(&r->arena, sizeof *u);
            use_init(u, reads[i].user, "");
        }
        for (size_t k = 0; k < job->batch_count; k++)
            fold_use(u, job->batches[k]->batch, &r->arena);
        if (u->seq > 0) /* written even where nothing is missing: the mark needs a time not before the view's */
            add_use(r, job->lane->coupon, u);
    }
    return status;
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* The distinct bucket numbers that foreign batches touch. */
static size_t foreign_buckets(const struct view_job *job, struct arena *a, int64_t **numbers)
{
    size_t count = 0, capacity = 64, distinct = 0;

    *numbers = arena_array(a, capacity, sizeof **numbers);
    for (size_t i = 0; i < job->batch_count; i++) {
        const struct batch *b = job->batches[i]->batch;

        for (size_t k = 0; !job->batches[i]->own && k < b->count; k++) {
            int64_t first, end;

            if (!entry_buckets(&b->entries[k], &first, &end))
                continue;
            if (count + (size_t)(end - first) > capacity) {
                int64_t *larger;

                capacity = capacity * 2 + (size_t)(end - first);
                larger = arena_array(a, capacity, sizeof *larger);
                memcpy(larger, *numbers, count * sizeof *larger);
                *numbers = larger;
            }
            for (; first < end; first++)
                (*numbers)[count++] = first;
        }
    }
    qsort(*numbers, count, sizeof **numbers, compare_numbers);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || (*numbers)[i] != (*numbers)[distinct - 1])
            (*numbers)[distinct++] = (*numbers)[i];
    return distinct;
}

/* Read, fold and write some buckets; forget them again, for a generation touches thousands. */
static enum store_status write_some_buckets(struct views *v, struct round *r, const struct view_job *job,
                                            const int64_t *numbers, size_t count)
{
    struct bucket_read *reads = arena_array(&r->arena, count, sizeof *reads);
    struct bucket *buckets = checked(calloc(count, sizeof *buckets));
    struct view_write *writes = arena_array(&r->arena, count, sizeof *writes);
    enum store_status status;
    size_t behind = 0;

    for (size_t i = 0; i < count; i++) {
        bucket_init(&buckets[i], numbers[i]);
        reads[i] = (struct bucket_read){.coupon = job->lane->coupon, .b = numbers[i], .bucket = &buckets[i]};
    }
    status = v->store->ops->buckets(v->store, job->after, reads, count);
    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        for (size_t k = 0; k < job->batch_count; k++)
            if (numbers[i] >= job->batches[k]->first_b && numbers[i] < job->batches[k]->end_b)
                fold_bucket(&buckets[i], job->batches[k]->batch);
        if (buckets[i].seq > 0)
            writes[behind++] = (struct view_write){.kind = VIEW_BUCKET, .coupon = job->lane->coupon, .bucket = &buckets[i]};
    }
    if (status == STORE_OK)
        status = write_some(v, writes, behind, &v->when);
    for (size_t i = 0; i < count; i++)
        bucket_release(&buckets[i]);
    free(buckets);
    return status;
}

static enum store_status write_foreign_buckets(struct views *v, struct round *r, const struct view_job *job)
{
    int64_t *numbers;
    size_t count = foreign_buckets(job, &r->arena, &numbers);
    enum store_status status = STORE_OK;

    for (size_t first = 0; first < count && status == STORE_OK; first += BUCKET_CHUNK)
        status = write_some_buckets(v, r, job, numbers + first,
                                    count - first < BUCKET_CHUNK ? count - first : BUCKET_CHUNK);
    return status;
}

static enum store_status fold_foreign_definition(struct views *v, struct round *r, struct view_job *job)
{
    const struct coupon *definition;
    struct coupon *view = NULL;
    int64_t seq = 0;
    enum store_status status;
    bool any = false;

    for (size_t i = 0; i < job->batch_count && job->lane->number == 0; i++) /* the others follow lane 0 */
        for (size_t k = 0; !job->batches[i]->own && k < job->batches[i]->batch->count; k++) {
            enum entry_kind kind = job->batches[i]->batch->entries[k].kind;

            any = any || kind == ENTRY_DEFINE || kind == ENTRY_DELETE;
        }
    if (!any)
        return STORE_OK;
    status = v->store->ops->coupon(v->store, job->lane->coupon, job->after, &r->arena, &view, &seq);
    definition = view;
    for (size_t i = 0; status == STORE_OK && i < job->batch_count; i++) {
        const struct coupon *before = definition;

        if (job->batches[i]->batch->head.seq <= seq)
            continue;
        definition = fold_definition(before, job->batches[i]->batch, &r->arena);
        if (definition != before)
            seq = job->batches[i]->batch->head.seq;
    }
    if (status == STORE_OK && definition)
        add_definition(r, job->lane->coupon, definition, seq);
    return status;
}

/* ---- a round ---- */

static enum store_status collect(struct views *v, struct round *r, struct view_job *jobs)
{
    enum store_status status = STORE_OK;

    for (struct view_job *job = jobs; job && status == STORE_OK; job = job->next) {
        bool written;

        for (size_t i = 0; job->own && i < job->own->batch->use_count; i++)
            add_use(r, job->lane->coupon, job->own->batch->uses[i]);
        if (job->definition)
            add_definition(r, job->lane->coupon, job->definition, job->definition_seq);
        for (size_t i = 0; i < job->bucket_count; i++)
            add_bucket(r, job->lane->coupon, &job->buckets[i]);
        if (!job->batch_count)
            continue;
        status = is_written(v, job, &written);
        if (written)
            continue;
        if (status == STORE_OK)
            status = fold_foreign_users(v, r, job);
        if (status == STORE_OK)
            status = fold_foreign_definition(v, r, job);
        if (status == STORE_OK)
            status = write_foreign_buckets(v, r, job);
    }
    return status;
}

static enum store_status write_all(struct views *v, struct round *r)
{
    enum store_status status = STORE_OK;

    for (struct written_use *u = r->uses; u; u = u->hh.next)
        *add_write(r) = (struct view_write){.kind = VIEW_USE, .coupon = u->coupon, .use = u->use};
    if (crash_armed(CRASH_VIEWS) && r->count > 1 && write_some(v, r->writes, r->count / 2, &v->when) == STORE_OK)
        crash_at(CRASH_VIEWS);
    for (size_t first = 0; first < r->count && status == STORE_OK; first += WRITE_CHUNK)
        status = write_some(v, r->writes + first, r->count - first < WRITE_CHUNK ? r->count - first : WRITE_CHUNK,
                            &v->when);
    return status;
}

static enum store_status write_marks(struct views *v, struct arena *a, struct view_job *jobs)
{
    struct mark_write *marks;
    enum store_status status;
    size_t count = 0, most = 0;

    for (struct view_job *job = jobs; job; job = job->next)
        most += job->upto != 0;
    if (!most)
        return STORE_OK;
    marks = arena_array(a, most, sizeof *marks);
    for (struct view_job *job = jobs; job; job = job->next)
        if (job->upto)
            marks[count++] = (struct mark_write){job->lane->coupon, job->lane->number, "views", {job->upto, v->when}};
    status = v->store->ops->write_marks(v->store, marks, count);
    if (status == STORE_OK)
        crash_at(CRASH_MARKED);
    return status;
}

static void round_free(struct round *r)
{
    struct written_use *u, *next;

    HASH_ITER(hh, r->uses, u, next)
        HASH_DEL(r->uses, u);
    free(r->writes);
    arena_free(&r->arena);
}

static enum store_status run_round(struct views *v, struct view_job *jobs)
{
    struct round r = {0};
    enum store_status status;

    arena_init(&r.arena, 64 * 1024);
    status = collect(v, &r, jobs);
    if (status == STORE_OK)
        status = write_all(v, &r);
    if (status == STORE_OK)
        status = write_marks(v, &r.arena, jobs);
    round_free(&r);
    return status;
}

/* ---- the thread ---- */

static void read_clock(struct views *v)
{
    struct mono before = mono_now();
    int64_t utc_ms;

    if (v->clock_read.ns && mono_ms_between(v->clock_read, before) < CLOCK_EVERY_MS)
        return;
    v->clock_read = before;
    if (v->store->ops->now(v->store, &utc_ms) == STORE_OK)
        clock_set(utc_ms, before, mono_now());
}

static void wait_ms(struct views *v, int ms)
{
    cond_wait_until(&v->some, &v->lock, mono_add_ms(mono_now(), ms));
}

/* Everything that was submitted; NULL when nothing is there after a while. */
static struct view_job *take_jobs(struct views *v, bool *stop)
{
    struct view_job *jobs;

    pthread_mutex_lock(&v->lock);
    while (!v->stop && mono_ms_between(v->round_started, mono_now()) < ROUND_EVERY_MS)
        wait_ms(v, ROUND_EVERY_MS);
    v->idle = true;
    if (!v->first && !v->stop)
        wait_ms(v, 900);
    v->idle = false;
    v->round_started = v->first ? mono_now() : v->round_started;
    jobs = v->first;
    v->first = v->last = NULL;
    *stop = v->stop;
    pthread_mutex_unlock(&v->lock);
    return jobs;
}

static bool must_give_up(struct views *v)
{
    bool late;

    pthread_mutex_lock(&v->lock);
    late = v->stop && mono_before(v->give_up, mono_now());
    pthread_mutex_unlock(&v->lock);
    return late;
}

/* Repeat the round until it is written. Told to stop while the database keeps failing: the jobs are given
 * back unwritten, as all that follow, and the reporter will do it. */
static void work(struct views *v, struct view_job *jobs)
{
    struct timespec pause = {v->backoff_ms / 1000, v->backoff_ms % 1000 * 1000000L};
    bool written = false, failed = false;

    while (!written && !v->gave_up) {
        written = run_round(v, jobs) == STORE_OK;
        v->gave_up = !written && must_give_up(v);
        if (written || v->gave_up)
            break;
        if (!failed)
            log_event(LOG_WARNING, "views.failed", "coupon=%s", jobs->lane->coupon);
        failed = true;
        nanosleep(&pause, NULL);
    }
    while (jobs) {
        struct view_job *job = jobs;

        jobs = job->next;
        if (!written)
            job->upto = 0;
        else if (job->own && v->hooks->viewed)
            v->hooks->viewed();
        job->when = v->when;
        job->done(job);
    }
}

static void *views_main(void *argument)
{
    struct views *v = argument;
    bool stop = false;

    for (;;) {
        struct view_job *jobs = take_jobs(v, &stop);

        if (jobs)
            work(v, jobs);
        else if (stop)
            return NULL;
        read_clock(v);
    }
}

struct views *views_start(struct store_source *source, const struct engine_hooks *hooks, int backoff_ms)
{
    struct views *v = checked(calloc(1, sizeof *v));

    v->store = source->open(source);
    v->hooks = hooks;
    v->backoff_ms = backoff_ms;
    pthread_mutex_init(&v->lock, NULL);
    cond_init(&v->some);
    read_clock(v);
    if (pthread_create(&v->thread, NULL, views_main, v) != 0)
        abort();
    return v;
}

void views_submit(struct views *v, struct view_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&v->lock);
    if (v->last)
        v->last->next = job;
    else
        v->first = job;
    v->last = job;
    if (v->idle)
        pthread_cond_signal(&v->some);
    pthread_mutex_unlock(&v->lock);
}

void views_stop(struct views *v, int patience_ms)
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
