/*
 * store/watermark.h -- how far some work has come through the batches of all lanes, and which lanes it could not finish.
 *
 * Meaning  the work is done for each batch that arrived before `arrived`, unless its lane is held. So what is not done is in the lanes with
 *          later arrivals, and in the held ones
 * Bound    HELD_MOST lanes: if more are stuck, `arrived` stays
 */
#ifndef STORE_WATERMARK_H
#define STORE_WATERMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/coupon.h"

#define HELD_MOST 64

struct held_lane {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
};

struct watermark {
    uint64_t arrived; /* 0: unknown */
    size_t held_count;
    struct held_lane held[HELD_MOST];
};

bool watermark_holds(const struct watermark *w, const char *coupon, int64_t lane);
/* Hold the lane, if it is not held yet. False: no room. */
bool watermark_hold(struct watermark *w, const char *coupon, int64_t lane);

#endif
