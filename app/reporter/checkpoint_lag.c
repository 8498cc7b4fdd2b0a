/* reporter/checkpoint_lag.c -- see checkpoint_lag.h. */
#include "reporter/checkpoint_lag.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct row {
    struct checkpoint_lag_due who; /* the key: zeroed beyond the text */
    int64_t seen;         /* last known seq of the ledger */
    int64_t written;      /* the checkpoint's seq, as last read; -1: never */
    int64_t awaited;      /* `seen` when the wait began; 0: its checkpoint is written */
    struct mono seen_at, look_at;
    struct mono written_at; /* when `written` was first read */
    int failures;
    bool failed;           /* a write failed, and the checkpoint has not moved since */
    UT_hash_handle hh;
};

struct checkpoint_lag {
    int64_t quiet_ms, still_ms;
    pthread_mutex_t lock;
    struct row *rows;
    size_t awaited; /* rows */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct checkpoint_lag *checkpoint_lag_new(int64_t age_ms)
{
    struct checkpoint_lag *w = checked(calloc(1, sizeof *w));

    w->quiet_ms = larger(WATCH_QUIET_AGES * age_ms, WATCH_QUIET_LEAST_MS);
    w->still_ms = larger(WATCH_STILL_AGES * age_ms, WATCH_STILL_LEAST_MS);
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

static void stop_awaiting(struct checkpoint_lag *w, struct row *row)
{
    w->awaited -= row->awaited > 0;
    row->awaited = 0;
}

static void forget(struct checkpoint_lag *w, struct row *row)
{
    stop_awaiting(w, row);
    HASH_DEL(w->rows, row);
    free(row);
}

void checkpoint_lag_free(struct checkpoint_lag *w)
{
    struct row *row, *next;

    for (row = w->rows; row; row = next) {
        next = row->hh.next;
        forget(w, row);
    }
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static struct row *find(struct checkpoint_lag *w, const char *coupon, int64_t lane)
{
    struct checkpoint_lag_due who;
    struct row *row;

    memset(&who, 0, sizeof who);
    snprintf(who.coupon, sizeof who.coupon, "%s", coupon);
    who.lane = lane;
    HASH_FIND(hh, w->rows, &who, sizeof who, row);
    return row;
}

static struct row *add(struct checkpoint_lag *w, const char *coupon, int64_t lane, struct mono now)
{
    struct row *row = checked(calloc(1, sizeof *row));

    snprintf(row->who.coupon, sizeof row->who.coupon, "%s", coupon);
    row->who.lane = lane;
    row->written = -1;
    row->look_at = mono_add_ms(now, WATCH_BUSY_MS);
    HASH_ADD(hh, w->rows, who, sizeof row->who, row);
    return row;
}

void checkpoint_lag_seen(struct checkpoint_lag *w, const char *coupon, int64_t lane, int64_t seq, struct mono now)
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

static bool is_due(const struct checkpoint_lag *w, const struct row *row, struct mono now)
{
    bool quiet = mono_ms_between(row->seen_at, now) >= w->quiet_ms;

    if (mono_before(row->look_at, now))
        return true;
    return quiet && row->failures == 0 && mono_ms_between(now, row->look_at) > w->still_ms;
}

size_t checkpoint_lag_due(struct checkpoint_lag *w, struct mono now, struct checkpoint_lag_due *due, size_t most)
{
    struct row *row, *next;
    size_t count = 0, rows; /* each is looked at once: due ones go to the end */

    pthread_mutex_lock(&w->lock);
    rows = HASH_COUNT(w->rows);
    for (row = w->rows; rows > 0 && count < most; row = next, rows--) {
        next = row->hh.next;
        if (!is_due(w, row, now))
            continue;
        due[count++] = row->who;
        row->look_at = mono_add_ms(now, w->still_ms);
        /* so that calls take turns through a long table */
        HASH_DEL(w->rows, row);
        HASH_ADD(hh, w->rows, who, sizeof row->who, row);
    }
    pthread_mutex_unlock(&w->lock);
    return count;
}

bool checkpoint_lag_read(struct checkpoint_lag *w, const char *coupon, int64_t lane, int64_t seq, struct mono now)
{
    struct row *row;
    bool behind = false;

    pthread_mutex_lock(&w->lock);
    row = find(w, coupon, lane);
    if (row && seq >= row->seen) {
        forget(w, row);
    } else if (row) {
        bool quiet = mono_ms_between(row->seen_at, now) >= w->quiet_ms;

        if (seq >= row->awaited)
            stop_awaiting(w, row);
        if (seq != row->written) {
            row->written_at = now;
            row->failed = false;
        }
        row->written = seq;
        behind = mono_ms_between(row->written_at, now) >= w->still_ms;
        row->look_at = mono_add_ms(now, quiet ? w->still_ms : WATCH_BUSY_MS);
    }
    pthread_mutex_unlock(&w->lock);
    return behind;
}

void checkpoint_lag_begin(struct checkpoint_lag *w)
{
    pthread_mutex_lock(&w->lock);
    for (struct row *row = w->rows; row; row = row->hh.next)
        row->awaited = row->seen;
    w->awaited = HASH_COUNT(w->rows);
    pthread_mutex_unlock(&w->lock);
}

bool checkpoint_lag_is_done(struct checkpoint_lag *w, struct checkpoint_lag_due *failed, size_t most, size_t *count)
{
    bool done;

    *count = 0;
    pthread_mutex_lock(&w->lock);
    done = w->awaited <= most;
    for (struct row *row = w->rows; done && *count < w->awaited && row; row = row->hh.next) {
        if (!row->awaited)
            continue;
        done = row->failed;
        failed[(*count)++] = row->who;
    }
    pthread_mutex_unlock(&w->lock);
    return done;
}

void checkpoint_lag_failed(struct checkpoint_lag *w, const char *coupon, int64_t lane, struct mono now)
{
    struct row *row;

    pthread_mutex_lock(&w->lock);
    row = find(w, coupon, lane);
    if (row) {
        int64_t pause_ms = w->still_ms << (row->failures < 6 ? ++row->failures : 6);

        row->look_at = mono_add_ms(now, pause_ms < WATCH_RETRY_MOST_MS ? pause_ms : WATCH_RETRY_MOST_MS);
        row->failed = true;
    }
    pthread_mutex_unlock(&w->lock);
}
