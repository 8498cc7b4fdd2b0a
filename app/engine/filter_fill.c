/* engine/filter_fill.c -- see filter_fill.h. */
#include "engine/filter_fill.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/thread.h"

#define CHUNK 4096
#define FAILURES_MOST 5

struct fills {
    struct store_source *source;
    int backoff_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct fill *waiting; /* in turn */
    bool stop;
};

struct fill *fill_new(const char *coupon, struct store_time after, struct filter_room *room)
{
    struct fill *f = checked(calloc(1, sizeof *f));

    assert(strlen(coupon) <= COUPON_ID_MAX);
    snprintf(f->coupon, sizeof f->coupon, "%s", coupon);
    f->after = after;
    filter_users_init(&f->users, room);
    atomic_init(&f->abandoned, false);
    return f;
}

void fill_free(struct fill *f)
{
    filter_users_release(&f->users);
    free(f);
}

/* Read the next chunk. */
static void step(struct fill *f, struct store *s, uint64_t hashes[CHUNK])
{
    size_t count = 0;

    if (s->ops->walk_users(s, f->coupon, f->after, &f->walk, CHUNK, hashes, &count) != STORE_OK) {
        f->state = ++f->failures == FAILURES_MOST ? FILL_FAILED : FILL_UNDER_WAY;
        return;
    }
    f->failures = 0;
    f->state = f->walk.done ? FILL_ALL : FILL_UNDER_WAY;
    for (size_t i = 0; i < count; i++)
        if (!filter_users_add(&f->users, hashes[i])) {
            f->state = FILL_NO_ROOM;
            return;
        }
}

/* Wait for work. NULL: stop. */
static struct fill *take(struct fills *fills)
{
    struct fill *f;

    pthread_mutex_lock(&fills->lock);
    while (!fills->waiting && !fills->stop)
        pthread_cond_wait(&fills->some, &fills->lock);
    f = fills->stop ? NULL : fills->waiting;
    if (f)
        LL_DELETE(fills->waiting, f);
    pthread_mutex_unlock(&fills->lock);
    return f;
}

static void rest(struct fills *fills, int64_t ms)
{
    struct mono until = mono_add_ms(mono_now(), ms);

    pthread_mutex_lock(&fills->lock);
    while (!fills->stop && mono_before(mono_now(), until))
        cond_wait_until(&fills->some, &fills->lock, until);
    pthread_mutex_unlock(&fills->lock);
}

static void *fills_main(void *argument)
{
    struct fills *fills = argument;
    uint64_t *hashes = checked(calloc(CHUNK, sizeof *hashes));
    struct store *s = NULL;
    struct fill *f;

    while ((f = take(fills))) {
        struct mono started = mono_now();
        int64_t pause_ms;

        if (!s)
            s = fills->source->open(fills->source);
        if (atomic_load(&f->abandoned))
            f->state = FILL_FAILED;
        else
            step(f, s, hashes);
        pause_ms = f->failures ? fills->backoff_ms : mono_ms_between(started, mono_now());
        if (f->state == FILL_UNDER_WAY)
            fills_submit(fills, f); /* at the end */
        else
            f->done(f);
        rest(fills, pause_ms);
    }
    if (s)
        s->ops->close(s);
    free(hashes);
    return NULL;
}

/* ---- from outside ---- */

struct fills *fills_start(struct store_source *source, int backoff_ms)
{
    struct fills *fills = checked(calloc(1, sizeof *fills));

    fills->source = source;
    fills->backoff_ms = backoff_ms;
    pthread_mutex_init(&fills->lock, NULL);
    cond_init(&fills->some);
    thread_start(&fills->thread, fills_main, fills, "filters");
    return fills;
}

void fills_submit(struct fills *fills, struct fill *f)
{
    bool taken;

    pthread_mutex_lock(&fills->lock);
    taken = !fills->stop;
    if (taken) {
        LL_APPEND(fills->waiting, f);
        pthread_cond_signal(&fills->some);
    }
    pthread_mutex_unlock(&fills->lock);
    if (taken)
        return;
    f->state = FILL_FAILED;
    f->done(f);
}

void fills_stop(struct fills *fills)
{
    struct fill *f, *next;

    pthread_mutex_lock(&fills->lock);
    fills->stop = true;
    pthread_cond_broadcast(&fills->some);
    pthread_mutex_unlock(&fills->lock);
    pthread_join(fills->thread, NULL);
    LL_FOREACH_SAFE(fills->waiting, f, next) {
        f->state = FILL_FAILED;
        f->done(f);
    }
    fills->waiting = NULL;
}

void fills_free(struct fills *fills)
{
    pthread_cond_destroy(&fills->some);
    pthread_mutex_destroy(&fills->lock);
    free(fills);
}
