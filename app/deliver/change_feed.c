/* deliver/change_feed.c -- see change_feed.h. */
#include "deliver/change_feed.h"


#include "base/log.h"
#include "base/thread.h"

#define PAUSE_MS 20

static bool goes_on(struct change_feed *d)
{
    return !stop_asked(d->stop) && atomic_load(&d->listening);
}

/* batch_key NULL: request a sweep. False: nobody listens any more. */
static bool put(struct change_feed *d, const struct batch_key *batch_key)
{
    bool done = false;

    while (!done && goes_on(d)) {
        pthread_mutex_lock(&d->lock);
        if (!batch_key)
            d->sweep = done = true;
        else if (d->count < CHANGE_FEED_SIZE) {
            d->ring[(d->first + d->count++) % CHANGE_FEED_SIZE] = *batch_key;
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
static void listen_at(struct change_feed *d, struct feed *f, struct feed_position *p, int64_t *pause_ms)
{
    bool fresh = p->size == 0;
    struct batch_key batch_key;
    int status = 0;

    while (goes_on(d) && (status = feed_next_key(f, &batch_key)) >= 0) {
        if ((fresh && !put(d, NULL)) || (status > 0 && !put(d, &batch_key)))
            break;
        fresh = false;
        *pause_ms = 0;
        feed_keep(f, p);
    }
    if (status == -2 || !atomic_load(&d->listening))
        feed_forget(p);
    if (status < 0)
        log_event(LOG_WARNING, status == -2 ? "change_feed.history_lost" : "change_feed.broken", F_INT("resumable", p->size > 0));
}

static void *listener(void *context)
{
    struct change_feed *d = context;
    struct store *session = mongo_session(d->mongo);
    struct feed_position p = {NULL, 0};
    int64_t pause_ms = 0;

    while (!stop_asked(d->stop)) {
        struct feed *f;

        if (!atomic_load(&d->listening)) {
            stop_rest(d->stop, PAUSE_MS);
            continue;
        }
        f = feed_open_keys(session, &p);
        listen_at(d, f, &p, &pause_ms);
        feed_close(f);
        if (goes_on(d))
            stop_back_off(d->stop, &pause_ms);
    }
    feed_forget(&p);
    session->ops->close(session);
    return NULL;
}

void change_feed_start(struct change_feed *d, struct mongo *m, struct stop *stop, void (*heard)(void *context), void *context)
{
    d->mongo = m;
    d->stop = stop;
    d->heard = heard;
    d->context = context;
    pthread_mutex_init(&d->lock, NULL);
    thread_start(&d->thread, listener, d, "change-feed");
}

void change_feed_join(struct change_feed *d)
{
    pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
}

void change_feed_listen(struct change_feed *d, bool listening)
{
    atomic_store(&d->listening, listening);
}

size_t change_feed_take(struct change_feed *d, struct batch_key *batch_keys, size_t most, bool *sweep)
{
    size_t taken = 0;

    pthread_mutex_lock(&d->lock);
    *sweep = d->sweep;
    d->sweep = false;
    for (; taken < most && d->count > 0; d->count--) {
        batch_keys[taken++] = d->ring[d->first];
        d->first = (d->first + 1) % CHANGE_FEED_SIZE;
    }
    pthread_mutex_unlock(&d->lock);
    return taken;
}
