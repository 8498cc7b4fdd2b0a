/* reporter/backstop.c -- see backstop.h. */
#include "reporter/backstop.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct row {
    struct lane_behind lane; /* the key: zeroed beyond the text */
    int64_t seen, written;     /* last known seq of the ledger; the checkpoint's, as last read. -1: none */
    int64_t changes, followed; /* how many changes were seen; how many of these the other lanes follow */
    bool awaited;              /* since a wait began: until these are done */
    int64_t awaited_seen, awaited_changes;
    struct mono look_at;
    struct mono written_at;    /* when `written` was first read */
    int failures;              /* since something was last done */
    UT_hash_handle hh;
};

struct backstop {
    int64_t look_ms;
    pthread_mutex_t lock;
    struct row *rows;
};

struct backstop *backstop_new(int64_t age_ms)
{
    struct backstop *k = checked(calloc(1, sizeof *k));
    int64_t look_ms = age_ms * 5 / 2;

    k->look_ms = look_ms > BACKSTOP_LEAST_MS ? look_ms : BACKSTOP_LEAST_MS;
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

static void forget(struct backstop *k, struct row *row)
{
    HASH_DEL(k->rows, row);
    free(row);
}

void backstop_free(struct backstop *k)
{
    struct row *row, *next;

    for (row = k->rows; row; row = next) {
        next = row->hh.next;
        forget(k, row);
    }
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static struct row *find_or_add(struct backstop *k, const char *coupon, int64_t lane, struct mono now)
{
    struct lane_behind key;
    struct row *row;

    memset(&key, 0, sizeof key);
    snprintf(key.coupon, sizeof key.coupon, "%s", coupon);
    key.lane = lane;
    HASH_FIND(hh, k->rows, &key, sizeof key, row);
    if (row)
        return row;
    row = checked(calloc(1, sizeof *row));
    memcpy(&row->lane, &key, sizeof key);
    row->seen = row->written = -1;
    row->look_at = mono_add_ms(now, k->look_ms);
    HASH_ADD(hh, k->rows, lane, sizeof row->lane, row);
    return row;
}

void backstop_seen(struct backstop *k, const char *coupon, int64_t lane, int64_t seq, struct mono now)
{
    struct row *row;

    pthread_mutex_lock(&k->lock);
    row = find_or_add(k, coupon, lane, now);
    if (seq > row->seen)
        row->seen = seq;
    pthread_mutex_unlock(&k->lock);
}

void backstop_changed(struct backstop *k, const char *coupon, struct mono now)
{
    struct mono soon = mono_add_ms(now, BACKSTOP_FOLLOW_MS);
    struct row *row;

    pthread_mutex_lock(&k->lock);
    row = find_or_add(k, coupon, 0, now);
    row->changes++;
    if (!row->failures && mono_before(soon, row->look_at))
        row->look_at = soon;
    pthread_mutex_unlock(&k->lock);
}

size_t backstop_due(struct backstop *k, struct mono now, struct backstop_due *due, size_t most)
{
    struct row *row, *next;
    size_t count = 0, rows; /* each is looked at once: due ones go to the end */

    pthread_mutex_lock(&k->lock);
    rows = HASH_COUNT(k->rows);
    for (row = k->rows; rows > 0 && count < most; row = next, rows--) {
        next = row->hh.next;
        if (mono_before(now, row->look_at))
            continue;
        due[count++] = (struct backstop_due){row->lane, row->followed < row->changes ? row->changes : 0};
        row->look_at = mono_add_ms(now, k->look_ms);
        /* to the end, so that calls go through all of a long table */
        HASH_DEL(k->rows, row);
        HASH_ADD(hh, k->rows, lane, sizeof row->lane, row);
    }
    pthread_mutex_unlock(&k->lock);
    return count;
}

/* The row, under the lock; NULL: it is forgotten. */
static struct row *lock_row(struct backstop *k, const struct backstop_due *due)
{
    struct row *row;

    pthread_mutex_lock(&k->lock);
    HASH_FIND(hh, k->rows, &due->lane, sizeof due->lane, row);
    return row;
}

/* Something of it was done. */
static void settle(struct backstop *k, struct row *row)
{
    if (row->written >= row->awaited_seen && row->followed >= row->awaited_changes)
        row->awaited = false;
    if (row->written >= row->seen && row->followed == row->changes)
        forget(k, row);
}

bool backstop_read(struct backstop *k, const struct backstop_due *due, int64_t seq, struct mono now)
{
    struct row *row = lock_row(k, due);
    bool behind = false;

    if (row && seq != row->written) {
        row->written = seq;
        row->written_at = now;
        if (row->followed == row->changes) /* else following is what failed */
            row->failures = 0;
        settle(k, row);
    } else if (row) {
        behind = seq < row->seen && mono_ms_between(row->written_at, now) >= k->look_ms;
    }
    pthread_mutex_unlock(&k->lock);
    return behind;
}

void backstop_followed(struct backstop *k, const struct backstop_due *due)
{
    struct row *row = lock_row(k, due);

    if (row) {
        row->followed = due->changes;
        row->failures = 0;
        settle(k, row);
    }
    pthread_mutex_unlock(&k->lock);
}

void backstop_failed(struct backstop *k, const struct backstop_due *due, struct mono now)
{
    struct row *row = lock_row(k, due);

    if (row) {
        int64_t pause_ms = k->look_ms << (row->failures < 6 ? ++row->failures : 6);

        row->look_at = mono_add_ms(now, pause_ms < BACKSTOP_MOST_MS ? pause_ms : BACKSTOP_MOST_MS);
    }
    pthread_mutex_unlock(&k->lock);
}

void backstop_begin(struct backstop *k)
{
    pthread_mutex_lock(&k->lock);
    for (struct row *row = k->rows; row; row = row->hh.next) {
        row->awaited = true;
        row->awaited_seen = row->seen;
        row->awaited_changes = row->changes;
    }
    pthread_mutex_unlock(&k->lock);
}

bool backstop_is_done(struct backstop *k, struct lane_behind *failed, size_t most, size_t *count)
{
    bool done = true;

    *count = 0;
    pthread_mutex_lock(&k->lock);
    for (const struct row *row = k->rows; done && row; row = row->hh.next) {
        if (!row->awaited)
            continue;
        done = row->failures > 0 && *count < most;
        if (done)
            failed[(*count)++] = row->lane;
    }
    pthread_mutex_unlock(&k->lock);
    return done;
}
