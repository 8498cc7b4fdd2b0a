/* engine/history.c -- see history.h. Reading order: history_main(), then what it calls, going up. */
#include "engine/history.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/thread.h"
#include "coupons/fold.h"
#include "engine/internal.h"
#include "engine/op_list.h"

#define HISTORY_THREADS 2
/* If made longer ago, its user's state may have dropped it. A day's allowance for clocks. */
#define OLD_MS (USER_STATE_KEY_KEPT_MS - INT64_C(24) * 3600 * 1000)

struct history {
    struct engine *engine;
    struct store_source *source;
    int backoff_ms;
    pthread_t threads[HISTORY_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list waiting; /* under the lock, like the rest */
    bool stop;
};

/* ---- redemptions that have ended ---- */

/* An entry about the redemption, with what its batch adds. */
struct link {
    struct head head;
    int64_t lane;
    struct entry entry;
    struct link *later;
};

/* The walk back through the ledger, from the entry that ended it. */
struct walk {
    struct store *store;
    struct arena *arena;
    const char *coupon;
    struct batch *batch;       /* the current one; owned */
    const struct entry *entry; /* in it; NULL: none, which is damage */
    struct link *first, *end;  /* entries so far, earliest first */
};

/* Keep a copy of the current entry; its batch may be large, and is freed as the walk goes on. */
static void keep(struct walk *w)
{
    struct link *link = arena_alloc(w->arena, sizeof *link);

    *link = (struct link){.head = w->batch->head, .lane = w->batch->lane, .entry = *w->entry, .later = w->first};
    link->entry.user = arena_strdup(w->arena, link->entry.user);
    link->entry.order = arena_strdup(w->arena, link->entry.order);
    link->entry.metadata = arena_strdup(w->arena, link->entry.metadata);
    link->entry.code = arena_strdup(w->arena, link->entry.code);
    link->entry.currency = arena_strdup(w->arena, link->entry.currency);
    link->entry.shares = arena_strdup(w->arena, link->entry.shares);
    link->entry.shared = arena_strdup(w->arena, link->entry.shared);
    w->first = link;
    if (!w->end)
        w->end = link;
}

/* Go to the previous entry: in the same batch, or in the one that `since` names. Before a hold comes the issued one beneath it. */
static enum store_status step_back(struct walk *w)
{
    const struct entry *e = &w->first->entry;
    int64_t n = e->kind == ENTRY_HOLD ? e->from_n : e->n;
    uint32_t g = e->kind == ENTRY_HOLD ? e->from : e->g;
    enum store_status status;
    size_t count = 0;

    if (e->since == w->batch->head.seq) {
        w->entry = batch_find_before(w->batch, (size_t)(w->entry - w->batch->entries), n, g);
        return STORE_OK;
    }
    batch_free(w->batch);
    w->batch = NULL;
    w->entry = NULL;
    status = w->store->ops->ledger(w->store, w->coupon, w->first->lane, e->since - 1, 1, &w->batch, &count);
    if (status == STORE_OK && count)
        w->entry = batch_find_before(w->batch, w->batch->count, n, g);
    return status;
}

static bool is_start(const struct entry *e)
{
    return entry_makes(e->kind) && e->kind != ENTRY_HOLD;
}

/* A user state with only this redemption and the one beneath it; NULL: it has not ended. */
static enum store_status rebuild(struct store *s, const struct op *op, int64_t n, uint32_t g, struct user_state **found)
{
    struct walk w = {.store = s, .arena = op->arena, .coupon = op->coupon};
    enum store_status status = s->ops->ended(s, op->coupon, op->lane, n, g, &w.batch);
    struct user_state *u;

    *found = NULL;
    if (status != STORE_OK)
        return status == STORE_NOT_FOUND ? STORE_OK : status;
    w.entry = batch_find_end(w.batch, n, g);
    for (int links = 0; w.entry && links < REDEMPTION_ENTRIES_MAX; links++) {
        keep(&w);
        if (is_start(w.entry))
            break;
        status = step_back(&w);
    }
    batch_free(w.batch);
    if (status != STORE_OK || !w.first || !is_start(&w.first->entry))
        return status;
    u = arena_alloc(op->arena, sizeof *u);
    user_state_init(u, w.end->entry.user ? w.end->entry.user : "", w.end->entry.alias);
    for (const struct link *link = w.first; link; link = link->later)
        fold_user_state_entry(u, &link->entry, &link->head, link->lane, op->arena);
    *found = u;
    return STORE_OK;
}

/* ---- redemptions without a slot ---- */

/* Find whose it is, from the entry that made it. *old: made long ago. */
static enum store_status find_maker(struct store *s, struct op *op, int64_t n, uint32_t g, bool *old)
{
    struct batch *b = NULL;
    const struct entry *e;
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, op->coupon, op->lane, -n - 1, 1, &b, &count);

    *old = false;
    if (status != STORE_OK || !count)
        return status == STORE_OK ? STORE_FAILED : status; /* the lane has that batch, so this read was stale: ask again */
    e = b->head.seq == -n ? batch_find_origin(b, n, g) : NULL;
    if (e) {
        op->engine.holder = arena_strdup(op->arena, e->user);
        *old = b->head.at_ms < clock_now_ms() - OLD_MS;
    }
    batch_free(b);
    return STORE_OK;
}

/* ---- the threads ---- */

static enum store_status look(struct store *s, struct op *op)
{
    int64_t n = op_redemption(op)->n;
    uint32_t g = op_redemption(op)->g;
    enum store_status status = STORE_OK;
    bool ended = true;

    assert(!op->engine.sought && g > 0); /* round_load.c sends none twice */
    s->ops->saw(s, op->seen);
    if (n < 0)
        status = find_maker(s, op, n, g, &ended);
    if (status == STORE_OK && ended)
        status = rebuild(s, op, n, g, &op->engine.ended);
    if (op->engine.ended && op->engine.ended->user[0])
        op->engine.holder = op->engine.ended->user; /* whose state, while it keeps it, knows more: every key, the counts after the taking */
    return status;
}

static void busy(const struct history *h, struct op *op)
{
    op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    engine_answer(h->engine, op);
}

static struct op *take(struct history *h)
{
    struct op *op;

    pthread_mutex_lock(&h->lock);
    while (!h->waiting.count && !h->stop)
        pthread_cond_wait(&h->some, &h->lock);
    op = op_list_take(&h->waiting);
    pthread_mutex_unlock(&h->lock);
    return op;
}

static void *history_main(void *argument)
{
    struct history *h = argument;
    struct store *s = h->source->open(h->source);
    const struct timespec pause = {h->backoff_ms / 1000, h->backoff_ms % 1000 * 1000000L};
    struct op *op;

    while ((op = take(h))) {
        if (mono_before(op->deadline, mono_now())) {
            busy(h, op);
        } else if (look(s, op) == STORE_OK) {
            op->engine.sought = true;
            engine_reroute(h->engine, op);
        } else {
            nanosleep(&pause, NULL);
            history_submit(h, op); /* at the end */
        }
    }
    s->ops->close(s);
    return NULL;
}

/* ---- from outside ---- */

struct history *history_start(struct engine *e, struct store_source *source, int backoff_ms)
{
    struct history *h = checked(calloc(1, sizeof *h));

    h->engine = e;
    h->source = source;
    h->backoff_ms = backoff_ms;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->some, NULL);
    for (int i = 0; i < HISTORY_THREADS; i++)
        thread_start(&h->threads[i], history_main, h, "history");
    return h;
}

void history_submit(struct history *h, struct op *op)
{
    bool taken;

    pthread_mutex_lock(&h->lock);
    taken = !h->stop && h->waiting.count < HISTORY_WAITING_MAX;
    if (taken) {
        op_list_add(&h->waiting, op);
        pthread_cond_signal(&h->some);
    }
    pthread_mutex_unlock(&h->lock);
    if (!taken)
        busy(h, op);
}

void history_stop(struct history *h)
{
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->some);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < HISTORY_THREADS; i++)
        pthread_join(h->threads[i], NULL);
}

void history_free(struct history *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->some);
    free(h);
}
