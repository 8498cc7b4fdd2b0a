/*
 * runner/sweeper.c -- tidies up where no request comes by: a thread of its own.
 *
 * Holds    that expired are released within seconds: active lanes do so in their own rounds; the others are asked to a moment later, so
 *          that the owner is normally first. A lane is loaded for it only if the indexes still say so
 * Erasures that were interrupted are finished
 * Coupons  that ended long enough ago get a cleanup job, once for each end
 * Metrics  get free and taken counts of active coupons, while somebody reads them
 * Old      data is deleted: texts of uploads interrupted a day ago, or whose job ended a month ago; counts
 *          of refusals after refusals.keep_days
 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "runner/work.h"

#define ROUND_MS 1000
#define OWNER_FIRST_MS 2000 /* time for the lane's own rounds to expire what is due */
#define ERASURES_MS 2000
#define SWEEP_MOST 100      /* lanes, erasures or coupons per round */
#define SWEEP_DEADLINE_MS 5000
#define MANIFEST_KEPT_MS (30 * DAY_MS) /* an import's bad rows are kept this long; its sums for good */

struct sweeper {
    struct runner *runner;
    struct store *session;
    struct arena arena; /* for one round */
};

/* ---- expiries ---- */

static bool sweep_due(struct sweeper *s, int64_t now_ms)
{
    struct due_lane *lanes;
    size_t count = 0;

    if (mongo_due_lanes(s->session, now_ms - OWNER_FIRST_MS, SWEEP_MOST, &s->arena, &lanes, &count) != STORE_OK)
        return false;
    for (size_t i = 0; i < count && !stop_asked(&s->runner->stop); i++) {
        struct op op = {.kind = OP_SWEEP, .coupon = lanes[i].coupon, .lane = lanes[i].lane};
        enum cpn_result result = engine_call_within(s->runner->engine, &op, SWEEP_DEADLINE_MS);

        if (result != CPN_OK)
            log_event(LOG_INFO, "sweep.put_off", F_WORD("coupon", lanes[i].coupon), F_INT("lane", lanes[i].lane),
                      F_WORD("result", result_info(result)->name));
    }
    if (count)
        metrics_add(METRIC_SWEEPS, 1);
    return true;
}

/* ---- interrupted erasures ---- */

static bool finish_erasures(struct sweeper *s, int64_t now_ms)
{
    struct erasure *noted;
    size_t count;
    bool fine = true;

    (void)now_ms;
    if (mongo_erasures(s->session, NULL, SWEEP_MOST, &s->arena, &noted, &count) != STORE_OK)
        return false;
    for (size_t i = 0; i < count && !stop_asked(&s->runner->stop); i++)
        fine = engine_catch_up(s->runner->engine, noted[i].coupon, noted[i].lane, SWEEP_DEADLINE_MS) == STORE_OK &&
               mongo_erase_names(s->session, &noted[i]) == STORE_OK && fine;
    return fine;
}

/* ---- coupons that have ended ---- */

static bool find_ended(struct sweeper *s, int64_t now_ms)
{
    struct ended_coupon *ended = NULL;
    size_t count = 0;
    bool fine = true;

    if (mongo_ended_coupons(s->session, now_ms, SWEEP_MOST, &s->arena, &ended, &count) != STORE_OK)
        return false;
    for (size_t i = 0; i < count && !stop_asked(&s->runner->stop); i++) {
        const struct job job = {.kind = JOB_CLEANUP, .coupon = ended[i].id,
                                .key = arena_printf(&s->arena, JOB_KEY_CLEANUP "%" PRId64, ended[i].cleanup_ms)};

        if (mongo_job_ask(s->session, &job) != STORE_OK || mongo_ended_seen(s->session, &ended[i]) != STORE_OK)
            fine = false;
    }
    return fine;
}

static bool clean_chunks(struct sweeper *s, int64_t now_ms)
{
    return mongo_chunks_clean(s->session, now_ms - DAY_MS, now_ms - MANIFEST_KEPT_MS) == STORE_OK;
}

static bool clean_refusals(struct sweeper *s, int64_t now_ms)
{
    return mongo_refusals_clean(s->session, now_ms - s->runner->config->refusals_keep_days * DAY_MS) == STORE_OK;
}

/* ---- metrics of coupons ---- */

static bool publish_stocks(struct sweeper *s, int64_t now_ms)
{
    size_t most = (size_t)s->runner->config->metrics_coupons, count;
    struct coupon_stock *stocks;

    if (!metrics_stocks_wanted())
        return true;
    stocks = arena_array(&s->arena, most + 1, sizeof *stocks);
    if (mongo_stocks(s->session, now_ms, most, &s->arena, stocks, &count) != STORE_OK)
        return false;
    metrics_set_stocks(stocks, count);
    return true;
}

/* ---- the thread ---- */

static const struct duty {
    bool (*run)(struct sweeper *s, int64_t now_ms); /* false: the database did not answer */
    const char *name;
    int64_t every_ms;
} duties[] = {
    {sweep_due, "due", ROUND_MS},
    {finish_erasures, "erasures", ERASURES_MS},
    {find_ended, "ended", INT64_C(10) * 1000},
    {publish_stocks, "stocks", INT64_C(10) * 1000},
    {clean_chunks, "parts", INT64_C(600) * 1000},
    {clean_refusals, "refusals", INT64_C(600) * 1000},
};
#define DUTIES (sizeof duties / sizeof *duties)

/* Run the duties that are due, by the monotonic clock; returns when the next one is. */
static struct mono run_duties(struct sweeper *s, struct mono due[DUTIES])
{
    struct mono next = mono_add_ms(mono_now(), ROUND_MS);

    for (size_t i = 0; i < DUTIES && !stop_asked(&s->runner->stop); i++) {
        if (!mono_before(mono_now(), due[i])) {
            if (!duties[i].run(s, clock_now_ms()))
                log_event(LOG_WARNING, "sweep.failed", F_WORD("duty", duties[i].name));
            due[i] = mono_add_ms(mono_now(), duties[i].every_ms);
            arena_reset(&s->arena);
        }
        if (mono_before(due[i], next))
            next = due[i];
    }
    return next;
}

void *sweeper_thread(void *context)
{
    struct sweeper s = {.runner = context};
    struct mono due[DUTIES];

    s.session = mongo_session(s.runner->mongo);
    arena_init(&s.arena, 0);
    for (size_t i = 0; i < DUTIES; i++)
        due[i] = mono_now();
    while (!stop_asked(&s.runner->stop)) {
        struct mono next = run_duties(&s, due);
        int64_t pause_ms = mono_ms_between(mono_now(), next);

        stop_rest(&s.runner->stop, pause_ms > 0 ? pause_ms + 1 : 1);
    }
    arena_free(&s.arena);
    s.session->ops->close(s.session);
    return NULL;
}
