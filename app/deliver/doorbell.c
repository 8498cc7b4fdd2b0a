/* deliver/doorbell.c -- see doorbell.h. */
#include "deliver/doorbell.h"

#include <stdlib.h>

#include "base/log.h"

#define PAUSE_MS 20

static bool goes_on(struct doorbell *d)
{
    return !stop_asked(d->stop) && atomic_load(&d->listening);
}

/* bell NULL: ask for a sweep. False: nobody listens any more. */
static bool put(struct doorbell *d, const struct bell *bell)
{
    bool done = false;

    while (!done && goes_on(d)) {
        pthread_mutex_lock(&d->lock);
        if (!bell)
            d->sweep = done = true;
        else if (d->count < DOORBELL_SIZE) {
            d->ring[(d->first + d->count++) % DOORBELL_SIZE] = *bell;
            done = true;
        }
        pthread_mutex_unlock(&d->lock);
        d->heard(d->context);
        if (!done)
            stop_rest(d->stop, PAUSE_MS);
    }
    return done;
}

/* Read one stream until it breaks, or nobody listens any more. */
static void listen_at(struct doorbell *d, struct feed *f, struct feed_position *p, int64_t *pause_ms)
{
    bool fresh = p->size == 0;
    struct bell bell;
    int status = 0;

    while (goes_on(d) && (status = bells_next(f, &bell)) >= 0) {
        if ((fresh && !put(d, NULL)) || (status > 0 && !put(d, &bell)))
            break;
        fresh = false;
        *pause_ms = 0;
        feed_keep(f, p);
    }
    if (status == -2 || !atomic_load(&d->listening))
        feed_forget(p);
    if (status < 0)
        log_event(LOG_WARNING, status == -2 ? "bells.history_lost" : "bells.broken", "resumable=%d", p->size > 0);
}

static void *listener(void *context)
{
    struct doorbell *d = context;
    struct store *door = mongo_door(d->mongo);
    struct feed_position p = {NULL, 0};
    int64_t pause_ms = 0;

    while (!stop_asked(d->stop)) {
        struct feed *f;

        if (!atomic_load(&d->listening)) {
            stop_rest(d->stop, PAUSE_MS);
            continue;
        }
        f = bells_open(door, &p);
        listen_at(d, f, &p, &pause_ms);
        feed_close(f);
        if (goes_on(d))
            stop_back_off(d->stop, &pause_ms);
    }
    feed_forget(&p);
    door->ops->close(door);
    return NULL;
}

void doorbell_start(struct doorbell *d, struct mongo *m, struct stop *stop, void (*heard)(void *context), void *context)
{
    d->mongo = m;
    d->stop = stop;
    d->heard = heard;
    d->context = context;
    pthread_mutex_init(&d->lock, NULL);
    if (pthread_create(&d->thread, NULL, listener, d) != 0)
        abort();
}

void doorbell_join(struct doorbell *d)
{
    pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
}

void doorbell_listen(struct doorbell *d, bool listening)
{
    atomic_store(&d->listening, listening);
}

size_t doorbell_take(struct doorbell *d, struct bell *bells, size_t most, bool *sweep)
{
    size_t taken = 0;

    pthread_mutex_lock(&d->lock);
    *sweep = d->sweep;
    d->sweep = false;
    for (; taken < most && d->count > 0; d->count--) {
        bells[taken++] = d->ring[d->first];
        d->first = (d->first + 1) % DOORBELL_SIZE;
    }
    pthread_mutex_unlock(&d->lock);
    return taken;
}
