/* engine/multilane.c -- see multilane.h: which coupons have several lanes. */
#include "engine/multilane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct multilane_coupon {
    char id[COUPON_ID_MAX + 1];
    int64_t lanes, loaded; /* how many it has; how many of them are in memory */
    UT_hash_handle hh;
};

void multilane_init(struct multilane *s, const struct multilane_hooks *hooks)
{
    s->hooks = hooks;
    s->coupons = NULL;
    atomic_init(&s->waiting, 0);
    atomic_init(&s->any, false);
    pthread_mutex_init(&s->lock, NULL);
}

void multilane_release(struct multilane *s)
{
    struct multilane_coupon *c, *next;

    HASH_ITER(hh, s->coupons, c, next) {
        HASH_DEL(s->coupons, c);
        free(c);
    }
    pthread_mutex_destroy(&s->lock);
}

int64_t multilane_lanes(struct multilane *s, const char *coupon)
{
    const struct multilane_coupon *c;
    int64_t lanes;

    if (!s || !atomic_load_explicit(&s->any, memory_order_acquire))
        return 1;
    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->coupons, coupon, c);
    lanes = c ? c->lanes : 1;
    pthread_mutex_unlock(&s->lock);
    return lanes;
}

bool multilane_know(struct multilane *s, const char *coupon, int64_t lanes)
{
    struct multilane_coupon *c;
    bool first;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->coupons, coupon, c);
    if (!c) {
        c = checked(calloc(1, sizeof *c));
        memcpy(c->id, coupon, strnlen(coupon, COUPON_ID_MAX));
        c->lanes = lanes;
        HASH_ADD_STR(s->coupons, id, c);
        atomic_store_explicit(&s->any, true, memory_order_release);
    }
    first = c->loaded++ == 0;
    pthread_mutex_unlock(&s->lock);
    return first;
}

bool multilane_forget(struct multilane *s, const char *coupon)
{
    struct multilane_coupon *c;
    bool last;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->coupons, coupon, c);
    assert(c && c->loaded > 0);
    last = --c->loaded == 0;
    if (last) {
        HASH_DEL(s->coupons, c);
        free(c);
    }
    pthread_mutex_unlock(&s->lock);
    return last;
}
