/*
 * store/watermark.h -- how far some work has come through the batches of all lanes, and which lanes it could not finish.
 *
 * Meaning  the work is done for each batch that arrived before `arrived`, unless its lane is behind. So what is not done is in the lanes
 *          with later arrivals, and in those behind
 * Bound    BEHIND_MOST lanes: if more are stuck, `arrived` stays
 */
#ifndef STORE_WATERMARK_H
#define STORE_WATERMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/coupon.h"

#define BEHIND_MOST 64

struct lane_behind {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
};

struct watermark {
    uint64_t arrived; /* 0: unknown */
    size_t behind_count;
    struct lane_behind behind[BEHIND_MOST];
};

bool watermark_has_behind(const struct watermark *w, const char *coupon, int64_t lane);
/* Add the lane, if it is not there yet. False: no room. */
bool watermark_add_behind(struct watermark *w, const char *coupon, int64_t lane);

#endif
