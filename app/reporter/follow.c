/* reporter/follow.c -- see follow.h. */
#include "reporter/follow.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct changed {
    char coupon[COUPON_ID_MAX + 1];
    struct mono due_at;
    int failures;
    UT_hash_handle hh;
};

struct follow {
    pthread_mutex_t lock;
    struct changed *rows;
    bool taken; /* one, by follow_due() */
};

struct follow *follow_new(void)
{
    struct follow *f = checked(calloc(1, sizeof *f));

    pthread_mutex_init(&f->lock, NULL);
    return f;
}

static void forget(struct follow *f, struct changed *row)
{
    HASH_DEL(f->rows, row);
    free(row);
}

void follow_free(struct follow *f)
{
    struct changed *row, *next;

    for (row = f->rows; row; row = next) {
        next = row->hh.next;
        forget(f, row);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* One that waits keeps its time. */
static void add(struct follow *f, const char *coupon, int failures, struct mono due_at)
{
    struct changed *row;

    pthread_mutex_lock(&f->lock);
    HASH_FIND_STR(f->rows, coupon, row);
    if (!row) {
        row = checked(calloc(1, sizeof *row));
        memcpy(row->coupon, coupon, strnlen(coupon, COUPON_ID_MAX));
        row->due_at = due_at;
        row->failures = failures;
        HASH_ADD_STR(f->rows, coupon, row);
    }
    pthread_mutex_unlock(&f->lock);
}

void follow_changed(struct follow *f, const char *coupon, struct mono now)
{
    add(f, coupon, 0, mono_add_ms(now, FOLLOW_WAIT_MS));
}

void follow_failed(struct follow *f, const char *coupon, int failures, struct mono now)
{
    int64_t pause_ms = (int64_t)FOLLOW_WAIT_MS << (failures < 6 ? failures : 6);

    add(f, coupon, failures, mono_add_ms(now, pause_ms < FOLLOW_RETRY_MOST_MS ? pause_ms : FOLLOW_RETRY_MOST_MS));
}

bool follow_due(struct follow *f, struct mono now, char coupon[COUPON_ID_MAX + 1], int *failures)
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
        f->taken = true;
        forget(f, row);
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}

bool follow_is_done(struct follow *f)
{
    bool done;

    pthread_mutex_lock(&f->lock);
    done = !f->rows && !f->taken;
    pthread_mutex_unlock(&f->lock);
    return done;
}

void follow_ended(struct follow *f)
{
    pthread_mutex_lock(&f->lock);
    f->taken = false;
    pthread_mutex_unlock(&f->lock);
}
