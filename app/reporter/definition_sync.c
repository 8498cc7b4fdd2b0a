/* reporter/definition_sync.c -- see definition_sync.h. */
#include "reporter/definition_sync.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct changed {
    definition_sync_coupon coupon;
    struct mono due_at;
    int failures;
    bool awaited; /* it had to follow when the wait began */
    UT_hash_handle hh;
};

struct definition_sync {
    pthread_mutex_t lock;
    struct changed *rows;
    struct changed taken; /* by definition_sync_due(); without a coupon: none is */
};

struct definition_sync *definition_sync_new(void)
{
    struct definition_sync *f = checked(calloc(1, sizeof *f));

    pthread_mutex_init(&f->lock, NULL);
    return f;
}

static void forget(struct definition_sync *f, struct changed *row)
{
    HASH_DEL(f->rows, row);
    free(row);
}

void definition_sync_free(struct definition_sync *f)
{
    struct changed *row, *next;

    for (row = f->rows; row; row = next) {
        next = row->hh.next;
        forget(f, row);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* One already waiting keeps its time. failures > 0: it is put back. */
static void add(struct definition_sync *f, const char *coupon, int failures, struct mono due_at)
{
    struct changed *row;

    pthread_mutex_lock(&f->lock);
    HASH_FIND_STR(f->rows, coupon, row);
    if (!row) {
        row = checked(calloc(1, sizeof *row));
        memcpy(row->coupon, coupon, strnlen(coupon, COUPON_ID_MAX));
        row->due_at = due_at;
        HASH_ADD_STR(f->rows, coupon, row);
    }
    if (failures > row->failures)
        row->failures = failures;
    if (failures > 0 && strcmp(f->taken.coupon, coupon) == 0)
        row->awaited |= f->taken.awaited;
    pthread_mutex_unlock(&f->lock);
}

void definition_sync_changed(struct definition_sync *f, const char *coupon, struct mono now)
{
    add(f, coupon, 0, mono_add_ms(now, FOLLOW_WAIT_MS));
}

void definition_sync_failed(struct definition_sync *f, const char *coupon, int failures, struct mono now)
{
    int64_t pause_ms = (int64_t)FOLLOW_WAIT_MS << (failures < 6 ? failures : 6);

    add(f, coupon, failures, mono_add_ms(now, pause_ms < FOLLOW_RETRY_MOST_MS ? pause_ms : FOLLOW_RETRY_MOST_MS));
}

bool definition_sync_due(struct definition_sync *f, struct mono now, definition_sync_coupon coupon, int *failures)
{
    struct changed *row;
    bool found;

    pthread_mutex_lock(&f->lock);
    for (row = f->rows; row && mono_before(now, row->due_at);)
        row = row->hh.next;
    found = row != NULL;
    if (found) {
        memcpy(coupon, row->coupon, sizeof row->coupon);
        *failures = row->failures;
        f->taken = *row;
        forget(f, row);
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}

void definition_sync_begin(struct definition_sync *f)
{
    pthread_mutex_lock(&f->lock);
    for (struct changed *row = f->rows; row; row = row->hh.next)
        row->awaited = true;
    f->taken.awaited = f->taken.coupon[0] != '\0';
    pthread_mutex_unlock(&f->lock);
}

/* True if row need not be waited for: it is among failed[*count] if it failed. */
static bool is_over(const struct changed *row, definition_sync_coupon *failed, size_t most, size_t *count)
{
    if (!row->awaited)
        return true;
    if (row->failures == 0 || *count == most)
        return false;
    memcpy(failed[(*count)++], row->coupon, sizeof(definition_sync_coupon));
    return true;
}

bool definition_sync_is_done(struct definition_sync *f, definition_sync_coupon *failed, size_t most, size_t *count)
{
    bool done;

    *count = 0;
    pthread_mutex_lock(&f->lock);
    done = is_over(&f->taken, failed, most, count);
    for (const struct changed *row = f->rows; done && row; row = row->hh.next)
        done = is_over(row, failed, most, count);
    pthread_mutex_unlock(&f->lock);
    return done;
}

void definition_sync_ended(struct definition_sync *f)
{
    pthread_mutex_lock(&f->lock);
    f->taken = (struct changed){.failures = 0};
    pthread_mutex_unlock(&f->lock);
}
