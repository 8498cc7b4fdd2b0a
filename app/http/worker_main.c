/* http/worker_main.c -- see worker_main.h: wiring, signals, and the order in which things stop. */
#include "http/worker_main.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/crash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/stop.h"
#include "engine/engine.h"
#include "http/auth.h"
#include "http/blocking_pool.h"
#include "http/reactor.h"
#include "http/refusal_counter.h"
#include "http/router.h"
#include "http/shares.h"
#include "http/user_name.h"
#include "lanes/lanes.h"
#include "store/mongo.h"
#include "store/schema_watch.h"

#define BACKOFF_MS 20
#define STREAM_THREADS 3 /* one key has two of them at most */
#define MALLOC_ARENAS 4 /* glibc's default is one per thread, each keeping what it ever held */

/* ---- refusals ---- */

static struct refusal_counter *refusals;

static void on_decided(const struct op *op)
{
    enum cpn_result result = op->outcome.result;
    enum cpn_refusal refusal = result_refusal(result);

    if (op->kind == OP_TAKE || op->kind == OP_STEP)
        metrics_add_result(METRIC_DECISIONS, result, 1);
    if (refusal == CPN_REFUSAL_COUNT || op->kind == OP_CHECK)
        return;
    refusal_counter_add(refusals, op->coupon, refusal);
}

/* ---- starting ---- */

static void read_receipt_keys(struct worker *w)
{
    const char *path = w->config->receipts_seed_file, *message;

    if (!jws_keys_load(&w->receipt_keys, path, &message))
        log_event(LOG_WARNING, "receipts.off", F_TEXT("path", path), F_TEXT("reason", message));
}

static struct engine *start_engine(struct worker *w)
{
    const struct config *c = w->config;
    const struct engine_config config = {
        .batch_max = c->worker_batch_max,
        .queue_max = c->worker_queue_max,
        .requests_max = c->worker_requests_max,
        .lanes_max = c->worker_lanes_max,
        .redo_max = c->worker_redo_max,
        .redo_max_all = ENGINE_REDO_MOST,
        .redo_mb = c->worker_redo_mb,
        .filter_bytes = (int64_t)c->worker_filters_mb << 20,
        .user_bytes = (int64_t)c->worker_users_mb << 20,
        .trusted_ms = DAY_MS,
        .checkpoint_ms = c->worker_checkpoint_ms,
        .backoff_ms = BACKOFF_MS,
        .patience_ms = c->coupond_drain_s * 1000 / 4,
        .decided = on_decided,
    };

    return engine_start(&config, mongo_source(w->mongo), lanes_start);
}

/* SIGTERM came. Half of the time is for requests in flight, a quarter for the engine; after the rest the master kills us. */
static void stop(struct worker *w)
{
    bool drained;

    log_event(LOG_INFO, "worker.draining", F_INT("limit_s", w->config->coupond_drain_s));
    drained = reactor_drain(w->reactor, (int64_t)w->config->coupond_drain_s * 1000 / 2);
    if (!drained)
        log_event(LOG_WARNING, "worker.not_drained", F_DETAILS("connections are still open"));
    blocking_pool_stop(w->blocking_pool);
    blocking_pool_stop(w->streams);
    auth_stop(w->auth);
    reactor_stop(w->reactor);
    blocking_pool_free(w->blocking_pool);
    blocking_pool_free(w->streams);
    engine_stop(w->engine); /* after the last submit; later answers are sent to nobody */
    refusal_counter_stop(refusals);
    reactor_free(w->reactor);
    shares_free(w->items_of_keys);
    shares_free(w->items_of_coupons);
    schema_watch_stop(w->schema);
    mongo_close(w->mongo);
    log_event(LOG_INFO, "worker.stopped", F_WORD("drained", drained ? "true" : "false"));
}

int worker_run(const struct config *config, int index, int listen_fd)
{
    static const struct reactor_calls calls = {.begin = router_begin, .end = router_end};
    struct worker w = {.config = config, .index = index};

    mallopt(M_ARENA_MAX, MALLOC_ARENAS); /* without jemalloc; see coupond/main.c */
    signal(SIGPIPE, SIG_IGN);
    crash_arm();
    if (sodium_init() < 0)
        return EX_SOFTWARE;
    read_receipt_keys(&w);
    user_names_fold((enum user_fold)config->users_fold);
    w.mongo = mongo_open_or_exit(config);
    w.schema = schema_watch_start(w.mongo);
    refusals = refusal_counter_start(w.mongo);
    w.engine = start_engine(&w);
    w.items_of_keys = shares_new(config->worker_requests_max, config->worker_requests_max);
    w.items_of_coupons = shares_new(config->worker_requests_max, config->worker_queue_max - config->worker_queue_max / 4);
    w.auth = auth_start(&w);
    w.blocking_pool = blocking_pool_start(&w, config->worker_aux_threads, "http-aux");
    w.streams = blocking_pool_start(&w, STREAM_THREADS, "http-stream");
    if (!reactor_start(&w, listen_fd, &calls)) {
        log_event(LOG_ERROR, "worker.start_failed", F_TEXT("reason", strerror(errno)));
        return EX_OSERR;
    }
    log_event(LOG_INFO, "worker.started", F_INT("index", index));
    stop_await_signal();
    stop(&w);
    return 0;
}
