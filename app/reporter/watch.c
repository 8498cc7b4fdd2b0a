/* reporter/watch.c -- see watch.h. */
#include "reporter/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct row {
    struct watch_due who; /* the key: zeroed beyond its text */
    int64_t seen;         /* last seq of the ledger that we know of */
    int64_t marked;       /* mark as read last; -1: never read */
    int64_t awaited;      /* what was seen when the wait began; 0: its views are written */
    struct mono seen_at, look_at;
    struct mono marked_at; /* when `marked` was read first */
    int failures;
    UT_hash_handle hh;
};

struct watch {
    pthread_mutex_t lock;
    struct row *rows;
    size_t awaited; /* rows */
};

struct watch *watch_new(void)
{
    struct watch *w = checked(calloc(1, sizeof *w));

    pthread_mutex_init(&w->lock, NULL);
    return w;
}

static void stop_awaiting(struct watch *w, struct row *row)
{
    w->awaited -= row->awaited > 0;
    row->awaited = 0;
}

static void forget(struct watch *w, struct row *row)
{
    stop_awaiting(w, row);
    HASH_DEL(w->rows, row);
    free(row);
}

void watch_free(struct watch *w)
{
    struct row *row, *next;

    for (row = w->rows; row; row = next) {
        next = row->hh.next;
        forget(w, row);
    }
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static struct row *find(struct watch *w, const char *coupon, int64_t lane)
{
    struct watch_due who;
    struct row *row;

    memset(&who, 0, sizeof who);
    snprintf(who.coupon, sizeof who.coupon, "%s", coupon);
    who.lane = lane;
    HASH_FIND(hh, w->rows, &who, sizeof who, row);
    return row;
}

static struct row *add(struct watch *w, const char *coupon, int64_t lane, struct mono now)
{
    struct row *row = checked(calloc(1, sizeof *row));

    snprintf(row->who.coupon, sizeof row->who.coupon, "%s", coupon);
    row->who.lane = lane;
    row->marked = -1;
    row->look_at = mono_add_ms(now, WATCH_BUSY_MS);
    HASH_ADD(hh, w->rows, who, sizeof row->who, row);
    return row;
}

void watch_seen(struct watch *w, const char *coupon, int64_t lane, int64_t seq, struct mono now)
{
    struct row *row;

    pthread_mutex_lock(&w->lock);
    row = find(w, coupon, lane);
    if (!row)
        row = add(w, coupon, lane, now);
    if (seq > row->seen) {
        row->seen = seq;
        row->seen_at = now;
        row->failures = 0;
    }
    pthread_mutex_unlock(&w->lock);
}

static bool is_due(const struct row *row, struct mono now)
{
    bool quiet = mono_ms_between(row->seen_at, now) >= WATCH_QUIET_MS;

    if (mono_before(row->look_at, now))
        return true;
    return quiet && row->failures == 0 && mono_ms_between(now, row->look_at) > WATCH_STILL_MS;
}

size_t watch_due(struct watch *w, struct mono now, struct watch_due *due, size_t most)
{
    struct row *row, *next;
    size_t count = 0, rows; /* each is looked at once: those that are due go to the end */

    pthread_mutex_lock(&w->lock);
    rows = HASH_COUNT(w->rows);
    for (row = w->rows; rows > 0 && count < most; row = next, rows--) {
        next = row->hh.next;
        if (!is_due(row, now))
            continue;
        due[count++] = row->who;
        row->look_at = mono_add_ms(now, WATCH_STILL_MS);
        /* so that a long table is gone through in turns */
        HASH_DEL(w->rows, row);
        HASH_ADD(hh, w->rows, who, sizeof row->who, row);
    }
    pthread_mutex_unlock(&w->lock);
    return count;
}

bool watch_marked(struct watch *w, const char *coupon, int64_t lane, int64_t seq, struct mono now)
{
    struct row *row;
    bool behind = false;

    pthread_mutex_lock(&w->lock);
    row = find(w, coupon, lane);
    if (row && seq >= row->seen) {
        forget(w, row);
    } else if (row) {
        bool quiet = mono_ms_between(row->seen_at, now) >= WATCH_QUIET_MS;

        if (seq >= row->awaited)
            stop_awaiting(w, row);
        if (seq != row->marked)
            row->marked_at = now;
        row->marked = seq;
        behind = mono_ms_between(row->marked_at, now) >= WATCH_STILL_MS;
        row->look_at = mono_add_ms(now, quiet ? WATCH_STILL_MS : WATCH_BUSY_MS);
    }
    pthread_mutex_unlock(&w->lock);
    return behind;
}

void watch_begin(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    for (struct row *row = w->rows; row; row = row->hh.next)
        row->awaited = row->seen;
    w->awaited = HASH_COUNT(w->rows);
    pthread_mutex_unlock(&w->lock);
}

bool watch_is_done(struct watch *w)
{
    bool done;

    pthread_mutex_lock(&w->lock);
    done = w->awaited == 0;
    pthread_mutex_unlock(&w->lock);
    return done;
}

void watch_failed(struct watch *w, const char *coupon, int64_t lane, struct mono now)
{
    struct row *row;

    pthread_mutex_lock(&w->lock);
    row = find(w, coupon, lane);
    if (row) {
        int64_t pause_ms = (int64_t)WATCH_STILL_MS << (row->failures < 6 ? ++row->failures : 6);

        row->look_at = mono_add_ms(now, pause_ms < WATCH_RETRY_MOST_MS ? pause_ms : WATCH_RETRY_MOST_MS);
    }
    pthread_mutex_unlock(&w->lock);
}
