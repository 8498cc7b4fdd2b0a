/* runner/runner.c -- see runner.h. */
#include "runner/runner.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "store/mongo.h"

#define STEP_DEADLINE_MS 5000
#define BACKOFF_FIRST_MS 50
#define BACKOFF_LAST_MS 2000
#define RESULT_SIZE 64

struct runner {
    const struct config *config;
    struct store *door;
    struct engine *engine;
    bool stopping;
};

/* What became of a job in our hands. */
enum ending {
    ENDING_DONE,
    ENDING_FAILED,
    ENDING_CANCELLED,
    ENDING_LOST,   /* another runner has it */
    ENDING_STOPPED /* we were told to stop: whoever claims it next goes on */
};

struct work {
    const struct job *job;
    struct arena arena;    /* for one step */
    int64_t step;          /* the last one that the ledger has */
    int64_t done;          /* slots */
    enum cpn_result error; /* when ENDING_FAILED */
    const char *detail;    /* static, or NULL: the error's explanation */
};

struct kind {
    enum ending (*run)(struct runner *r, struct work *w);
    const char *counts; /* the member of the result that says how many */
};

/* ---- waiting ---- */

/* Wait up to ms for a signal, and obey it. */
static void rest(struct runner *r, int64_t ms)
{
    struct mono until = mono_add_ms(mono_now(), ms);
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    do {
        int64_t left = mono_ms_between(mono_now(), until);
        struct timespec timeout = {left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000000 : 0};
        int signal = sigtimedwait(&signals, NULL, &timeout);

        if (signal == SIGUSR1)
            log_reopen();
        else if (signal > 0)
            r->stopping = true;
    } while (!r->stopping && mono_before(mono_now(), until));
}

static void back_off(struct runner *r, int64_t *ms)
{
    *ms = *ms ? *ms * 2 : BACKOFF_FIRST_MS;
    if (*ms > BACKOFF_LAST_MS)
        *ms = BACKOFF_LAST_MS;
    rest(r, *ms);
}

/* ---- steps ---- */

/* Note progress and renew the lease; waits while the database fails. ENDING_DONE: go on. */
static enum ending note_progress(struct runner *r, const struct work *w)
{
    int64_t pause_ms = 0;

    for (;;) {
        bool cancel = false;
        enum store_status s = mongo_job_progress(r->door, w->job->id, w->job->fence, w->done, clock_now_ms(),
                                                 r->config->runner_lease_ms, &cancel);

        if (s == STORE_OK)
            return cancel ? ENDING_CANCELLED : ENDING_DONE;
        if (s == STORE_NOT_FOUND)
            return ENDING_LOST;
        back_off(r, &pause_ms);
        if (r->stopping)
            return ENDING_STOPPED;
    }
}

/* Ask the engine until it decides, renewing the lease in between. ENDING_DONE, or why the job ends here. */
static enum ending ask(struct runner *r, struct work *w, struct op *op)
{
    int64_t pause_ms = 0, count = op->count; /* an op may come back with what it counted */

    for (;;) {
        enum ending e;
        enum cpn_result result;

        op->coupon = w->job->coupon;
        op->arena = &w->arena;
        op->count = count;
        op->deadline = mono_add_ms(mono_now(), STEP_DEADLINE_MS);
        result = engine_call(r->engine, op);
        if (result == CPN_OK)
            return ENDING_DONE;
        if (result != CPN_BUSY && result != CPN_OUTCOME_UNKNOWN && result != CPN_INTERNAL) {
            w->error = result;
            w->detail = op->outcome.detail;
            return ENDING_FAILED;
        }
        log_event(LOG_WARNING, "job.step_repeated", "job=%s coupon=%s step=%" PRId64 " result=%s", w->job->id,
                  w->job->coupon, op->step, result_info(result)->name);
        back_off(r, &pause_ms);
        e = r->stopping ? ENDING_STOPPED : note_progress(r, w);
        if (e != ENDING_DONE)
            return e;
    }
}

/* How far the job is, as the ledger has it: the job's own count may lag, or its steps may have had another size. */
static enum ending read_progress(struct runner *r, struct work *w)
{
    struct op op = {.kind = OP_USE};
    enum ending e;

    op.user = arena_printf(&w->arena, JOB_USER_PREFIX "%s", w->job->id);
    e = ask(r, w, &op);
    if (e != ENDING_DONE)
        return e;
    w->step = op.use->job_step;
    w->done = op.use->total;
    return ENDING_DONE;
}

/* Whether to go on after a step. */
static enum ending between_steps(struct runner *r, struct work *w)
{
    enum ending e = note_progress(r, w);

    rest(r, 0);
    return e == ENDING_DONE && r->stopping ? ENDING_STOPPED : e;
}

/* ---- kinds of job ---- */

static enum ending generate(struct runner *r, struct work *w)
{
    enum ending e = read_progress(r, w);
    bool enough = false;

    while (e == ENDING_DONE && !enough && (w->job->until || w->done < w->job->total)) {
        struct op op = {.kind = OP_GENERATE, .job = w->job->id, .step = w->step + 1, .until = w->job->until};

        e = between_steps(r, w);
        if (e != ENDING_DONE)
            break;
        op.count = w->job->until ? w->job->until : w->job->total - w->done;
        if (op.count > r->config->runner_step_slots)
            op.count = r->config->runner_step_slots;
        e = ask(r, w, &op);
        if (e == ENDING_DONE && op.outcome.replayed) { /* made before, perhaps by another runner and in another size */
            e = read_progress(r, w);
        } else if (e == ENDING_DONE) {
            w->step++;
            w->done += op.made;
            enough = op.made == 0;
        }
        arena_reset(&w->arena);
    }
    return e;
}

/* One step: free slots become due for retirement, and can no longer be taken from then on. */
static enum ending retire(struct runner *r, struct work *w)
{
    struct op op = {.kind = OP_DUE, .job = w->job->id, .step = 1, .count = w->job->total};
    enum ending e = between_steps(r, w);

    if (e == ENDING_DONE)
        e = ask(r, w, &op);
    if (e == ENDING_DONE)
        w->done = op.made;
    return e;
}

static const struct kind kinds[JOB_KIND_COUNT] = {
    [JOB_GENERATE] = {generate, "generated"},
    [JOB_RETIRE] = {retire, "retired"},
};

/* ---- jobs ---- */

/* Write the job's end; waits while the database fails, and lets go when another runner has it. */
static void finish(struct runner *r, const struct work *w, enum job_state state)
{
    const struct result_info *error = state == JOB_FAILED ? result_info(w->error) : NULL;
    char result[RESULT_SIZE];
    int64_t pause_ms = 0;

    snprintf(result, sizeof result, "{\"%s\":%" PRId64 "}", kinds[w->job->kind].counts, w->done);
    while (!r->stopping) {
        enum store_status s = mongo_job_finish(r->door, w->job->id, w->job->fence, state, w->done, result,
                                               error ? error->name : NULL,
                                               !error ? NULL : w->detail ? w->detail : error->explanation, clock_now_ms());

        if (s == STORE_OK || s == STORE_NOT_FOUND)
            break;
        back_off(r, &pause_ms);
    }
    metrics_add(METRIC_JOBS_FINISHED, 1);
    log_event(LOG_INFO, "job.finished", "job=%s coupon=%s state=%s done=%" PRId64 " error=%s", w->job->id, w->job->coupon,
              job_state_name(state), w->done, error ? error->name : "-");
}

/* Give the lease back, so that the next runner need not wait for its end. If that fails it runs out by itself. */
static void let_go(struct runner *r, const struct work *w)
{
    bool cancel;

    if (mongo_job_progress(r->door, w->job->id, w->job->fence, w->done, clock_now_ms(), 0, &cancel) != STORE_OK)
        log_event(LOG_INFO, "job.not_released", "job=%s", w->job->id);
}

static void run_job(struct runner *r, const struct job *job)
{
    struct work w = {.job = job, .done = job->done};
    enum ending e;

    arena_init(&w.arena, 0);
    log_event(LOG_INFO, "job.claimed", "job=%s kind=%s coupon=%s done=%" PRId64 " total=%" PRId64 " fence=%" PRId64,
              job->id, job_kind_name(job->kind), job->coupon, job->done, job->total, job->fence);
    metrics_set(METRIC_JOBS_RUNNING, 1);
    e = job->cancel ? ENDING_CANCELLED : kinds[job->kind].run(r, &w);
    switch (e) {
    case ENDING_DONE:
        finish(r, &w, JOB_DONE);
        break;
    case ENDING_FAILED:
        finish(r, &w, JOB_FAILED);
        break;
    case ENDING_CANCELLED:
        finish(r, &w, JOB_CANCELLED);
        break;
    case ENDING_STOPPED:
        let_go(r, &w);
        break;
    case ENDING_LOST:
        log_event(LOG_WARNING, "job.lost", "job=%s fence=%" PRId64, job->id, job->fence);
        break;
    }
    metrics_set(METRIC_JOBS_RUNNING, 0);
    arena_free(&w.arena);
}

static void main_loop_once(struct runner *r, struct arena *a, int64_t *pause_ms)
{
    struct job *job = NULL;
    enum store_status s = mongo_job_claim(r->door, clock_now_ms(), r->config->runner_lease_ms, a, &job);

    if (s == STORE_OK) {
        *pause_ms = 0;
        run_job(r, job);
        rest(r, 0);
    } else if (s == STORE_NOT_FOUND) {
        *pause_ms = 0;
        rest(r, r->config->runner_poll_ms);
    } else {
        back_off(r, pause_ms);
    }
    arena_reset(a);
}

int runner_run(const struct config *config)
{
    const struct engine_config engine_config = {
        .committers = 1, .batch_max = config->worker_batch_max, .queue_max = 16, .requests_max = 16, .lanes_max = 100,
        .window_max = config->worker_window_max, .flush_ms = config->worker_bucket_flush_ms,
        .backoff_ms = BACKOFF_FIRST_MS, .patience_ms = config->coupond_drain_s * 1000 / 2,
    };
    struct runner r = {.config = config};
    struct arena a;
    char message[512];
    int64_t pause_ms = 0;
    struct mongo *mongo = mongo_open(config, message, sizeof message);

    if (!mongo) {
        log_event(LOG_ERROR, "runner.unusable", "reason=\"%s\"", message);
        return EX_CONFIG;
    }
    clock_init();
    r.engine = engine_start(&engine_config, mongo_source(mongo), NULL);
    r.door = mongo_door(mongo);
    arena_init(&a, 0);
    log_event(LOG_INFO, "runner.started", "%s", "");
    while (!r.stopping)
        main_loop_once(&r, &a, &pause_ms);
    log_event(LOG_INFO, "runner.stopped", "%s", "");
    arena_free(&a);
    engine_stop(r.engine);
    r.door->ops->close(r.door);
    mongo_close(mongo);
    return EXIT_SUCCESS;
}
