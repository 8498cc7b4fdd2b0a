/* runner/runner.c -- see runner.h: the process, its threads, and a job from claim to end. */
#include "runner/runner.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "base/wake.h"
#include "lanes/lanes.h"
#include "runner/code_drafts.h"
#include "runner/lease.h"
#include "runner/work.h"
#include "store/schema_watch.h"

#define BACKOFF_MS 50
#define POLL_MS 1000    /* to look for jobs from other fronts; this one's start at once */
#define POSTPONE_MS 500 /* until the job that goes first is looked at again */
#define REQUESTS_MAX (64 + RUNNER_JOBS_MAX * WORK_OPS_MAX)

struct kind {
    enum ending (*run)(struct work *w);
    const char *counts; /* the member of the result with the count; NULL: the kind writes its own result */
    bool makes_codes;   /* it may have a turn to return */
};

static const struct kind kinds[JOB_KIND_COUNT] = {
    [JOB_GENERATE] = {run_generate, "generated", true},
    [JOB_RETIRE] = {run_retire, "retired", false},
    [JOB_IMPORT] = {run_import, NULL, true},
    [JOB_CLEANUP] = {run_cleanup, "retired", false},
    [JOB_ARCHIVE] = {run_archive, "removed", false},
    [JOB_RETIRE_CODES] = {run_retire_codes, NULL, false},
    [JOB_ISSUE_CODES] = {run_issue_codes, NULL, false},
};

/* ---- a job's end ---- */

/* Write the job's end; waits while the database fails; gives up if another runner has the job. */
static void finish(struct work *w, enum job_state state)
{
    const struct result_info *error = state == JOB_FAILED ? result_info(w->error) : NULL;
    const char *detail = error && w->detail ? w->detail : error ? error->explanation : NULL;
    struct buf result = BUF_INIT;
    int64_t pause_ms = 0;
    const char *counts = kinds[w->job->kind].counts;
    struct json j = json_to(&result);

    json_begin_object(&j);
    if (counts)
        json_key_int(&j, counts, w->done);
    if (w->result.len) {
        if (counts)
            buf_putc(&result, ',');
        buf_put(&result, w->result.data, w->result.len);
    }
    json_end_object(&j);
    while (!stop_asked(&w->runner->stop)) {
        enum store_status s = mongo_job_finish(w->session, w->job->id, w->job->fence, state, w->done, result.data,
                                               error ? error->name : NULL, detail, clock_now_ms());

        if (s == STORE_OK || s == STORE_NOT_FOUND)
            break;
        stop_back_off(&w->runner->stop, &pause_ms);
    }
    buf_free(&result);
    metrics_add(METRIC_JOBS_FINISHED, 1);
    log_event(LOG_INFO, "job.finished", F_WORD("job", w->job->id), F_WORD("coupon", w->job->coupon), F_WORD("state", job_state_name(state)),
              F_INT("done", w->done), F_WORD("error", error ? error->name : "-"));
}

/* Return the lease, so that the next runner need not wait for it to expire. If this fails, it does expire. */
static void let_go(struct work *w)
{
    bool cancel;

    if (mongo_job_progress(w->session, w->job->id, w->job->fence, w->done, clock_now_ms(), 0, &cancel) != STORE_OK)
        log_event(LOG_INFO, "job.not_released", F_WORD("job", w->job->id));
}

/* Return the turn before the end is written: nobody would do it afterwards. */
static enum ending end_turn(struct work *w, enum ending e)
{
    enum ending ended;

    if (!kinds[w->job->kind].makes_codes || (e != ENDING_DONE && e != ENDING_FAILED && e != ENDING_CANCELLED))
        return e;
    ended = codes_turn_end(w);
    return ended == ENDING_DONE ? e : ended;
}

static void conclude(struct work *w, enum ending e)
{
    switch (e) {
    case ENDING_DONE:
    case ENDING_FAILED:
    case ENDING_CANCELLED:
        finish(w, e == ENDING_DONE ? JOB_DONE : e == ENDING_FAILED ? JOB_FAILED : JOB_CANCELLED);
        break;
    case ENDING_POSTPONED:
        if (mongo_job_postpone(w->session, w->job->id, w->job->fence, clock_now_ms() + POSTPONE_MS) == STORE_FAILED)
            log_event(LOG_INFO, "job.not_postponed", F_WORD("job", w->job->id));
        break;
    case ENDING_STOPPED:
        let_go(w);
        break;
    case ENDING_LOST:
        log_event(LOG_WARNING, "job.lost", F_WORD("job", w->job->id), F_INT("fence", w->job->fence));
        break;
    }
}

/* ---- a thread that takes jobs ---- */

static void run_job(struct runner *r, struct store *session, const struct job *job)
{
    struct work w = {.runner = r, .session = session, .job = job, .done = job->done, .result = BUF_INIT};
    enum ending e = ENDING_POSTPONED;

    arena_init(&w.arena, 0);
    arena_init(&w.keep, 0);
    log_event(LOG_INFO, "job.claimed", F_WORD("job", job->id), F_WORD("kind", job_kind_name(job->kind)), F_WORD("coupon", job->coupon),
              F_INT("done", job->done), F_INT("total", job->total), F_INT("fence", job->fence));
    if (leases_keep(r->leases, &w)) {
        metrics_add(METRIC_JOBS_RUNNING, 1);
        e = end_turn(&w, kinds[job->kind].run(&w));
        leases_let_go(r->leases, &w);
        metrics_add(METRIC_JOBS_RUNNING, -1);
    }
    conclude(&w, e);
    buf_free(&w.result);
    bloom_release(&w.code_bloom);
    arena_free(&w.keep);
    arena_free(&w.arena);
}

static void take_job(struct runner *r, struct store *session, struct arena *a, int64_t *pause_ms)
{
    struct job *job = NULL;
    enum store_status s = mongo_job_claim(session, clock_now_ms(), r->config->runner_lease_ms, a, &job);

    if (s == STORE_OK) {
        *pause_ms = 0;
        run_job(r, session, job);
    } else if (s == STORE_NOT_FOUND) {
        *pause_ms = 0;
        wake_await(WAKE_RUNNER, POLL_MS);
    } else {
        stop_back_off(&r->stop, pause_ms);
    }
    arena_free(a);
}

static void *job_thread(void *context)
{
    struct runner *r = context;
    struct store *session = mongo_session(r->mongo);
    int64_t pause_ms = 0;
    struct arena a;

    arena_init(&a, 0);
    while (!stop_asked(&r->stop))
        take_job(r, session, &a, &pause_ms);
    arena_free(&a);
    session->ops->close(session);
    return NULL;
}

/* ---- the process ---- */

static void run_threads(struct runner *r)
{
    void *(*const others[])(void *) = {sweeper_thread, leases_thread, front_heartbeat_thread};
    pthread_t threads[RUNNER_JOBS_MAX + sizeof others / sizeof *others];
    int jobs = r->config->runner_jobs, count = jobs + (int)(sizeof others / sizeof *others);

    for (int i = 0; i < count; i++)
        thread_start(&threads[i], i < jobs ? job_thread : others[i - jobs], r, i < jobs ? "jobs" : "upkeep");
    log_event(LOG_INFO, "runner.started", F_NONE);
    stop_await_signal();
    stop_ask(&r->stop);
    for (int i = 0; i < jobs; i++)
        wake_process(WAKE_RUNNER);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    log_event(LOG_INFO, "runner.stopped", F_NONE);
}

int runner_run(const struct config *config)
{
    const struct engine_config engine_config = {
        .batch_max = config->worker_batch_max, .queue_max = REQUESTS_MAX, .requests_max = REQUESTS_MAX,
        .lanes_max = 100, .redo_max = config->worker_redo_max, .redo_max_all = ENGINE_REDO_MOST,
        .redo_mb = config->worker_redo_mb, .trusted_ms = DAY_MS, .checkpoint_ms = config->worker_checkpoint_ms, .backoff_ms = BACKOFF_MS,
        .patience_ms = config->coupond_drain_s * 1000 / 2,
    };
    struct runner r = {.config = config};

    r.mongo = mongo_open_or_exit(config);
    clock_init();
    stop_init(&r.stop);
    r.leases = leases_new();
    r.schema = schema_watch_start(r.mongo);
    r.engine = engine_start(&engine_config, mongo_source(r.mongo), lanes_start);
    run_threads(&r);
    engine_stop(r.engine);
    schema_watch_stop(r.schema);
    mongo_close(r.mongo);
    leases_free(r.leases);
    stop_release(&r.stop);
    return EXIT_SUCCESS;
}
