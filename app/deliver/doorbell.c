/* deliver/doorbell.c -- see doorbell.h. */
#include "deliver/doorbell.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define PAUSE_MS 20
#define BACKOFF_FIRST_MS 50
#define BACKOFF_LAST_MS 2000

/* Where the stream goes on after a break. */
struct place {
    void *token;
    size_t size; /* 0: none, begin now */
};

static void keep_place(struct place *p, const struct bells *b)
{
    size_t size = 0;
    const void *token = bells_token(b, &size);

    if (!token || !size)
        return;
    p->token = realloc(p->token, size);
    if (!p->token)
        abort();
    memcpy(p->token, token, size);
    p->size = size;
}

static bool goes_on(struct doorbell *d)
{
    return !atomic_load(&d->stopping) && atomic_load(&d->listening);
}

static void rest(struct doorbell *d, int64_t ms)
{
    struct mono until = mono_add_ms(mono_now(), ms);

    while (!atomic_load(&d->stopping) && mono_before(mono_now(), until))
        nanosleep(&(struct timespec){0, PAUSE_MS * 1000000L}, NULL);
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
            rest(d, PAUSE_MS);
    }
    return done;
}

/* Read one stream until it breaks, or nobody listens any more. */
static void listen_at(struct doorbell *d, struct bells *b, struct place *p, int64_t *pause_ms)
{
    bool fresh = p->size == 0;
    struct bell bell;
    int status = 0;

    while (goes_on(d) && (status = bells_next(b, &bell)) >= 0) {
        if ((fresh && !put(d, NULL)) || (status > 0 && !put(d, &bell)))
            break;
        fresh = false;
        *pause_ms = 0;
        keep_place(p, b);
    }
    if (status == -2 || !atomic_load(&d->listening))
        p->size = 0;
    if (status < 0)
        log_event(LOG_WARNING, status == -2 ? "bells.history_lost" : "bells.broken", "resumable=%d", p->size > 0);
}

static void *listener(void *context)
{
    struct doorbell *d = context;
    struct store *door = mongo_door(d->mongo);
    struct place p = {NULL, 0};
    int64_t pause_ms = 0;

    while (!atomic_load(&d->stopping)) {
        struct bells *b = NULL;

        if (!atomic_load(&d->listening)) {
            rest(d, PAUSE_MS);
            continue;
        }
        b = bells_open(door, p.size ? p.token : NULL, p.size);
        listen_at(d, b, &p, &pause_ms);
        bells_close(b);
        if (goes_on(d)) {
            pause_ms = pause_ms ? pause_ms * 2 : BACKOFF_FIRST_MS;
            pause_ms = pause_ms < BACKOFF_LAST_MS ? pause_ms : BACKOFF_LAST_MS;
            rest(d, pause_ms);
        }
    }
    free(p.token);
    door->ops->close(door);
    return NULL;
}

void doorbell_start(struct doorbell *d, struct mongo *m, void (*heard)(void *context), void *context)
{
    d->mongo = m;
    d->heard = heard;
    d->context = context;
    pthread_mutex_init(&d->lock, NULL);
    if (pthread_create(&d->thread, NULL, listener, d) != 0)
        abort();
}

void doorbell_stop(struct doorbell *d)
{
    atomic_store(&d->stopping, true);
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
