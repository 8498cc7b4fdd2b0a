/* engine/engine.c -- see engine.h: starting, stopping, and which committer owns a coupon. */
#include "engine/engine.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/committer.h"
#include "engine/views.h"

#define COMMITTERS_MOST 8

struct engine {
    struct engine_config config;
    struct engine_hooks hooks;
    struct views *views;
    struct committer *committers[COMMITTERS_MOST];
};

/* All lanes of a coupon live in one committer. FNV-1a. */
static struct committer *owner(struct engine *e, const char *coupon)
{
    uint32_t hash = 2166136261u;

    for (; *coupon; coupon++)
        hash = (hash ^ (unsigned char)*coupon) * 16777619u;
    return e->committers[hash % (uint32_t)e->config.committers];
}

struct engine *engine_start(const struct engine_config *config, struct store_source *source,
                            const struct engine_hooks *hooks)
{
    struct engine *e = calloc(1, sizeof *e);

    if (!e)
        abort();
    e->config = *config;
    if (hooks)
        e->hooks = *hooks;
    if (e->config.committers < 1)
        e->config.committers = 1;
    if (e->config.committers > COMMITTERS_MOST)
        e->config.committers = COMMITTERS_MOST;
    e->views = views_start(source, &e->hooks, e->config.backoff_ms);
    for (int i = 0; i < e->config.committers; i++)
        e->committers[i] = committer_start(&e->config, source, &e->hooks, e->views,
                                           e->config.lanes_max / e->config.committers + 1);
    return e;
}

enum cpn_result engine_submit(struct engine *e, struct op *op)
{
    int waiting = 0;

    for (int i = 0; i < e->config.committers; i++)
        waiting += committer_waiting(e->committers[i]);
    if (waiting >= e->config.requests_max)
        return CPN_BUSY;
    committer_submit(owner(e, op->coupon), op);
    return CPN_OK;
}

void engine_stop(struct engine *e)
{
    for (int i = 0; i < e->config.committers; i++)
        committer_stop(e->committers[i], e->config.patience_ms);
    views_stop(e->views, e->config.patience_ms);
    for (int i = 0; i < e->config.committers; i++)
        committer_free(e->committers[i]);
    free(e);
}

/* ---- waiting for one op ---- */

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool finished;
};

static void wake(struct op *op)
{
    struct waiter *w = op->context;

    pthread_mutex_lock(&w->lock);
    w->finished = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->lock);
}

enum cpn_result engine_call(struct engine *e, struct op *op)
{
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    enum cpn_result r;

    op->done = wake;
    op->context = &w; // cppcheck-suppress autoVariables
    r = engine_submit(e, op);
    if (r != CPN_OK)
        op->outcome = (struct outcome){.result = r, .retry = true};
    pthread_mutex_lock(&w.lock);
    while (r == CPN_OK && !w.finished)
        pthread_cond_wait(&w.done, &w.lock);
    pthread_mutex_unlock(&w.lock);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.done);
    op->context = NULL;
    return op->outcome.result;
}

#define CATCH_UP_MS 30000

enum store_status engine_catch_up(struct engine *e, const char *coupon, int64_t lane)
{
    struct arena a;
    struct op op = {.kind = OP_CATCH_UP, .coupon = coupon, .lane = lane, .arena = &a};
    enum cpn_result r;

    arena_init(&a, 0);
    op.deadline = mono_add_ms(mono_now(), CATCH_UP_MS);
    r = engine_call(e, &op);
    arena_free(&a);
    return r == CPN_OK || r == CPN_COUPON_NOT_FOUND ? STORE_OK : STORE_FAILED;
}
