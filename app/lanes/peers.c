/* lanes/peers.c -- see peers.h. */
#include "lanes/peers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

/* A lane's totals, without what only its chain needs. */
struct peer_lane {
    int64_t missed; /* heard when the table had missed so often; -1: never */
    int64_t seq;
    int64_t taken, reserved, takings, discount_minor;
    int64_t day_ms, day_taken;
    int64_t stock;
};

struct peer_coupon {
    char id[COUPON_ID_MAX + 1];
    int64_t lanes;
    struct peer_lane *of;
    UT_hash_handle hh;
};

struct peers {
    pthread_mutex_t lock;
    struct peer_coupon *coupons;
    int64_t missed;
};

struct peers *peers_new(void)
{
    struct peers *t = checked(calloc(1, sizeof *t));

    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void peers_free(struct peers *t)
{
    struct peer_coupon *c, *next;

    HASH_ITER(hh, t->coupons, c, next) {
        HASH_DEL(t->coupons, c);
        free(c->of);
        free(c);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Under the lock. NULL: not known. */
static struct peer_coupon *find(struct peers *t, const char *coupon)
{
    struct peer_coupon *c;

    HASH_FIND_STR(t->coupons, coupon, c);
    return c;
}

void peers_know(struct peers *t, const char *coupon, int64_t lanes)
{
    struct peer_coupon *c;

    pthread_mutex_lock(&t->lock);
    if (!find(t, coupon)) {
        c = checked(calloc(1, sizeof *c));
        memcpy(c->id, coupon, strnlen(coupon, COUPON_ID_MAX));
        c->lanes = lanes;
        c->of = checked(calloc((size_t)lanes, sizeof *c->of));
        for (int64_t lane = 0; lane < lanes; lane++)
            c->of[lane].missed = -1;
        HASH_ADD_STR(t->coupons, id, c);
    }
    pthread_mutex_unlock(&t->lock);
}

void peers_note(struct peers *t, const char *coupon, int64_t lane, const struct head *h)
{
    struct peer_coupon *c;

    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    if (c && lane < c->lanes && h->seq >= c->of[lane].seq)
        c->of[lane] = (struct peer_lane){
            .missed = t->missed, .seq = h->seq, .taken = head_taken(h), .reserved = h->reserved, .takings = head_takings(h),
            .discount_minor = h->discount_minor, .day_ms = h->day_ms, .day_taken = h->day_taken, .stock = head_stock(h)};
    pthread_mutex_unlock(&t->lock);
}

void peers_others(struct peers *t, const char *coupon, int64_t lane, int64_t day_ms, struct others *sums)
{
    const struct peer_coupon *c;

    *sums = (struct others){0};
    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    for (int64_t i = 0; c && i < c->lanes; i++) {
        const struct peer_lane *of = &c->of[i];

        if (i == 0)
            sums->stock = of->stock;
        if (i == lane)
            continue;
        sums->taken += of->taken;
        sums->reserved += of->reserved;
        sums->takings += of->takings;
        sums->discount_minor += of->discount_minor;
        sums->day_taken += of->day_ms == day_ms ? of->day_taken : 0;
    }
    pthread_mutex_unlock(&t->lock);
}

bool peers_all(struct peers *t, const char *coupon)
{
    const struct peer_coupon *c;
    bool all;

    pthread_mutex_lock(&t->lock);
    c = find(t, coupon);
    all = c != NULL;
    for (int64_t i = 0; all && i < c->lanes; i++)
        all = c->of[i].missed == t->missed;
    pthread_mutex_unlock(&t->lock);
    return all;
}

void peers_missed(struct peers *t)
{
    pthread_mutex_lock(&t->lock);
    t->missed++;
    pthread_mutex_unlock(&t->lock);
}
