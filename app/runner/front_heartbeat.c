/*
 * runner/front_heartbeat.c -- this front among the others: a thread that announces it, and answers when another front asks about views.
 *
 * Told     every half minute, and with each answer: that the front is running, and its receipt keys
 * Asked    by a number in the database, which is read every 20 ms while there are other fronts: see store/fronts.h
 * End      after the last worker of this machine: until then its views may be asked about. If some were lost, the row stays, so that nobody
 *          takes them for written
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/jws.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/view_barrier.h"
#include "runner/work.h"
#include "store/fronts.h"

#define LOOK_MS 20
#define LOOK_ALONE_MS 1000

struct teller {
    struct runner *runner;
    struct store *session;
    struct arena arena; /* for one round */
    char id[FRONT_ID_SIZE];
    struct buf receipts; /* kids */
    struct front front;  /* as last announced */
    struct mono told;    /* when; 0: announce at once */
    struct mono known;   /* when others could last see this front */
    bool failing;
};

/* Read the receipt keys, as the workers did, which were started with this process. */
static void read_receipt_keys(struct teller *t)
{
    struct jws_keys keys;
    const char *message;

    if (jws_keys_load(&keys, t->runner->config->receipts_seed_file, &message))
        jws_keys_put_kids(&keys, &t->receipts);
    jws_keys_forget(&keys);
}

static const uint32_t all_views = VIEW_KEY_ALL;

/* Wait for the views that the questions after the last one heard ask about. False: some may not be written. */
static bool heed(struct teller *t, const struct front_questions *questions)
{
    const struct front_question *items = questions->items;
    size_t first = 0, count = 0;
    uint32_t *keys;

    while (first < questions->count && items[first].number <= t->front.heard)
        first++;
    if (questions->asked - t->front.heard > (int64_t)(questions->count - first))
        return view_barrier(&all_views, 1); /* some questions are no longer kept */
    keys = arena_array(&t->arena, (questions->count - first) * FRONT_KEYS_MAX + 1, sizeof *keys);
    for (size_t i = first; i < questions->count; i++)
        for (size_t k = 0; k < items[i].count; k++)
            keys[count++] = items[i].keys[k];
    return view_barrier(keys, count);
}

static bool answer(struct teller *t, const struct front_questions *questions)
{
    bool sure = heed(t, questions);
    struct front front = {.id = t->id, .receipts = t->receipts.data ? t->receipts.data : "", .heard = questions->asked,
                          .unsure = sure ? t->front.unsure : questions->asked, .seen_ms = clock_now_ms(),
                          .serves_ms = t->front.serves_ms};

    if (mongo_front_tell(t->session, &front) != STORE_OK)
        return false;
    t->front = front;
    t->told = t->known = mono_now();
    return true;
}

/* *others: there are other fronts. *ours: no other process has announced this one since. False: the database did not answer. */
static bool look(struct teller *t, bool *others, bool *ours)
{
    struct front *fronts;
    size_t count;
    int64_t now_ms = clock_now_ms();
    struct front_questions questions;

    *others = *ours = false;
    if (mongo_fronts(t->session, &t->arena, &fronts, &count, &questions) != STORE_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        bool own = strcmp(fronts[i].id, t->id) == 0;

        *others = *others || (!own && front_is_here(&fronts[i], now_ms));
        *ours = *ours || (own && fronts[i].seen_ms == t->front.seen_ms);
        if (own)
            t->front.serves_ms = fronts[i].serves_ms;
    }
    if (questions.asked < t->front.heard) { /* somebody removed them */
        t->front.heard = t->front.unsure = 0;
        t->told = (struct mono){0};
    }
    if (t->told.ns && questions.asked <= t->front.heard && mono_ms_between(t->told, mono_now()) < FRONT_TELLS_MS)
        return true;
    *ours = *ours || !stop_asked(&t->runner->stop);
    return !*ours || answer(t, &questions);
}

static bool any_worker(void)
{
    for (int slot = 0; slot < METRICS_WORKERS_MAX; slot++)
        for (int k = 0; k < METRICS_BANKS; k++) {
            int pid = atomic_load(&metrics_slot(slot)->banks[k].pid);

            if (pid && kill(pid, 0) == 0)
                return true;
        }
    return false;
}

static bool look_once(struct teller *t, bool *others, bool *ours)
{
    bool good = look(t, others, ours);

    if (!good && mono_ms_between(t->known, mono_now()) > 2 * FRONT_TELLS_MS)
        view_barrier_lost(); /* soon the others take this front for gone, and stop asking it; and nobody could write its views */
    if (!good && !t->failing)
        log_event(LOG_WARNING, "front.untold", F_DETAILS("the database does not answer"));
    t->failing = !good;
    arena_reset(&t->arena);
    return good;
}

/* Stay until the workers, told to stop at the same time, are gone; after a reload there are others, announced by another process. */
static void see_workers_off(struct teller *t)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    struct mono until = mono_add_ms(mono_now(), (int64_t)t->runner->config->coupond_drain_s * 1000 * 7 / 8); /* after that all are killed */
    bool others, ours, working, seen;

    do {
        working = any_worker();
        seen = look_once(t, &others, &ours); /* once more after the last one, which may have announced that it serves */
        if (working)
            nanosleep(&pause, NULL);
    } while (working && (ours || !seen) && mono_before(mono_now(), until));
    if (ours && !working && view_barrier(&all_views, 1))
        (void)mongo_front_gone(t->session, &t->front); /* otherwise it expires */
}

void *front_heartbeat_thread(void *context)
{
    struct teller t = {.runner = context};

    t.session = mongo_session(t.runner->mongo);
    arena_init(&t.arena, 0);
    front_id(t.runner->config->coupond_run_dir, t.id);
    read_receipt_keys(&t);
    mongo_front_serves(t.session, t.runner->config->coupond_run_dir);
    t.known = mono_now();
    do { /* at least once: whoever announced a front removes its row */
        bool others, ours;

        (void)look_once(&t, &others, &ours);
        stop_rest(&t.runner->stop, others ? LOOK_MS : LOOK_ALONE_MS);
    } while (!stop_asked(&t.runner->stop));
    see_workers_off(&t);
    arena_free(&t.arena);
    buf_free(&t.receipts);
    t.session->ops->close(t.session);
    return NULL;
}
