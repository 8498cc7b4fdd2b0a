/* runner/work.c -- see work.h. */
#include "runner/work.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define STEP_DEADLINE_MS 5000

/* ---- steps ---- */

enum ending work_progress(struct work *w)
{
    int64_t pause_ms = 0;

    for (;;) {
        bool cancel = false;
        enum store_status s = mongo_job_progress(w->session, w->job->id, w->job->fence, w->done, clock_now_ms(),
                                                 w->runner->config->runner_lease_ms, &cancel);

        if (s == STORE_OK)
            return cancel ? ENDING_CANCELLED : ENDING_DONE;
        if (s == STORE_NOT_FOUND)
            return ENDING_LOST;
        stop_back_off(&w->runner->stop, &pause_ms);
        if (stop_asked(&w->runner->stop))
            return ENDING_STOPPED;
    }
}

enum ending work_between_steps(struct work *w)
{
    enum ending e = work_progress(w);

    failing_over(&w->failing);
    w->pause_ms = 0;
    return e == ENDING_DONE && stop_asked(&w->runner->stop) ? ENDING_STOPPED : e;
}

static void address(const struct work *w, struct op *op)
{
    op->coupon = w->job->coupon;
    op->by = w->job->by;
    op->deadline = mono_add_ms(mono_now(), STEP_DEADLINE_MS);
}

enum cpn_result work_try(struct work *w, struct op *op)
{
    address(w, op);
    op->arena = &w->arena;
    return engine_call(w->runner->engine, op);
}

bool work_may_repeat(enum cpn_result r)
{
    return r == CPN_BUSY || r == CPN_OUTCOME_UNKNOWN || r == CPN_INTERNAL;
}

enum ending work_rest(struct work *w, const char *doing)
{
    enum failing_verdict verdict = failing_again(&w->failing, mono_now());

    if (verdict != FAILING_REPEAT)
        log_event(LOG_ERROR, "job.step_failing", F_WORD("job", w->job->id), F_WORD("coupon", w->job->coupon), F_TEXT("doing", doing),
                  F_INT("failures", w->failing.count));
    if (verdict == FAILING_END)
        return work_fail(w, CPN_INTERNAL,
                         arena_printf(&w->keep, "%s failed %d times in a row, for an hour. What was done stays. The log says why.", doing,
                                      w->failing.count));
    stop_back_off(&w->runner->stop, &w->pause_ms);
    return stop_asked(&w->runner->stop) ? ENDING_STOPPED : work_progress(w);
}

enum ending work_fail(struct work *w, enum cpn_result r, const char *detail)
{
    w->error = r;
    w->detail = detail;
    return ENDING_FAILED;
}

enum ending work_ask(struct work *w, struct op *op)
{
    for (;;) {
        enum cpn_result result = work_try(w, op);
        enum ending e;

        if (result == CPN_OK)
            return ENDING_DONE;
        if (!work_may_repeat(result))
            return work_fail(w, result, op->outcome.detail);
        log_event(LOG_WARNING, "job.step_repeated", F_WORD("job", w->job->id), F_WORD("coupon", w->job->coupon), F_INT("kind", op->kind),
                  F_WORD("result", result_info(result)->name));
        e = work_rest(w, "A step in the coupon's ledger");
        if (e != ENDING_DONE)
            return e;
    }
}

enum ending work_ask_all(struct work *w, struct op *const *ops, size_t count)
{
    struct op *open[WORK_OPS_MAX];
    enum ending e = ENDING_DONE;

    assert(count <= WORK_OPS_MAX);
    memcpy(open, ops, count * sizeof *ops);
    while (e == ENDING_DONE && count > 0) {
        size_t asked = count;

        for (size_t i = 0; i < asked; i++)
            address(w, open[i]);
        engine_call_all(w->runner->engine, open, asked);
        count = 0;
        for (size_t i = 0; i < asked; i++)
            if (work_may_repeat(open[i]->outcome.result))
                open[count++] = open[i];
        if (count > 0)
            e = work_rest(w, "A step in the coupon's ledger");
    }
    return e;
}

enum ending work_standing(struct work *w, struct op *op)
{
    *op = (struct op){.kind = OP_JOB, .in.job.id = w->job->id};
    return work_ask(w, op);
}

enum ending work_catch_up(struct work *w)
{
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE && engine_catch_up(w->runner->engine, w->job->coupon, 0, ENGINE_CATCH_UP_MS) != STORE_OK)
        e = work_rest(w, "Waiting for the coupon's checkpoint");
    return e;
}
