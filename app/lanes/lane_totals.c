/* lanes/lane_totals.c -- see lane_totals.h. */
#include "lanes/lane_totals.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

/* A lane's totals, without what only its hash chain needs. */
struct other_lane {
    int64_t missed; /* the table's `missed` when this was heard; -1: never heard */
    int64_t seq;
    int64_t taken, reserved, takings;
    int64_t stock;
};

struct totals_of_coupon {
    char id[COUPON_ID_MAX + 1];
    int64_t lanes;
    struct other_lane *of;
    UT_hash_handle hh;
};

struct lane_totals {
    pthread_mutex_t lock;
    struct totals_of_coupon *coupons;
    int64_t missed;
};

struct lane_totals *lane_totals_new(void)
{
    struct lane_totals *t = checked(calloc(1, sizeof *t));

    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void lane_totals_free(struct lane_totals *t)
{
    struct totals_of_coupon *c, *next;

    HASH_ITER(hh, t->coupons, c, next) {
        HASH_DEL(t->coupons, c);
        free(c->of);
        free(c);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Under the lock. NULL: unknown. */
static struct totals_of_coupon *find(struct lane_totals *t, const char *coupon)
{
    struct totals_of_coupon *c;

    HASH_FIND_STR(t->coupons, coupon, c);
    return c;
}

void lane_totals_know(struct lane_totals *t, const char *coupon, int64_t lanes)
{
    struct totals_of_coupon *c = checked(calloc(1, sizeof *c));

    memcpy(c->id, coupon, strnlen(coupon, COUPON_ID_MAX));
    c->lanes = lanes;
    c->of = checked(calloc((size_t)lanes, sizeof *c->of));
    for (int64_t lane = 0; lane < lanes; lane++)
        c->of[lane].missed = -1;
    pthread_mutex_lock(&t->lock);
    assert(!find(t, coupon));
    HASH_ADD_STR(t->coupons, id, c);
    pthread_mutex_unlock(&t->lock);
}

void lane_totals_forget(struct lane_totals *t, const char *coupon)
{
    struct totals_of_coupon *c;

    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    assert(c);
    HASH_DEL(t->coupons, c);
    pthread_mutex_unlock(&t->lock);
    free(c->of);
    free(c);
}

void lane_totals_note(struct lane_totals *t, const char *coupon, int64_t lane, const struct head *h)
{
    struct totals_of_coupon *c;

    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    if (c && lane < c->lanes && h->seq >= c->of[lane].seq)
        c->of[lane] = (struct other_lane){
            .missed = t->missed, .seq = h->seq, .taken = head_taken(h), .reserved = h->reserved, .takings = head_takings(h),
            .stock = head_stock(h)};
    pthread_mutex_unlock(&t->lock);
}

void lane_totals_others(struct lane_totals *t, const char *coupon, int64_t lane, struct others *sums)
{
    const struct totals_of_coupon *c;

    *sums = (struct others){0};
    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    for (int64_t i = 0; c && i < c->lanes; i++) {
        const struct other_lane *of = &c->of[i];

        if (i == 0)
            sums->stock = of->stock;
        if (i == lane)
            continue;
        sums->taken += of->taken;
        sums->reserved += of->reserved;
        sums->takings += of->takings;
    }
    pthread_mutex_unlock(&t->lock);
}

bool lane_totals_all(struct lane_totals *t, const char *coupon)
{
    const struct totals_of_coupon *c;
    bool all;

    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    all = c != NULL;
    for (int64_t i = 0; all && i < c->lanes; i++)
        all = c->of[i].missed == t->missed;
    pthread_mutex_unlock(&t->lock);
    return all;
}

void lane_totals_missed(struct lane_totals *t)
{
    pthread_mutex_lock(&t->lock);
    t->missed++;
    pthread_mutex_unlock(&t->lock);
}
