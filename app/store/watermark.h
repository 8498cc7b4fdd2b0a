/*
 * store/watermark.h -- how far something has come with the batches of all lanes, and in which lanes it has not.
 *
 * Meaning  of each batch that arrived before `arrived` it is done, or its lane is held. So whoever looks for what is not done looks at
 *          the lanes of which something arrived since, and at the held ones
 * Bound    HELD_MOST lanes: where more cannot go on, `arrived` stays
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
    uint64_t arrived; /* 0: nothing is known */
    size_t held_count;
    struct held_lane held[HELD_MOST];
};

bool watermark_holds(const struct watermark *w, const char *coupon, int64_t lane);
/* Hold the lane, if it is not held yet. False: there is no room. */
bool watermark_hold(struct watermark *w, const char *coupon, int64_t lane);

#endif
