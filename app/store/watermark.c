/* store/watermark.c -- see watermark.h. */
#include "store/watermark.h"

#include <stdio.h>
#include <string.h>

bool watermark_holds(const struct watermark *w, const char *coupon, int64_t lane)
{
    for (size_t i = 0; i < w->held_count; i++)
        if (w->held[i].lane == lane && strcmp(w->held[i].coupon, coupon) == 0)
            return true;
    return false;
}

bool watermark_hold(struct watermark *w, const char *coupon, int64_t lane)
{
    struct held_lane *held;

    if (watermark_holds(w, coupon, lane))
        return true;
    if (w->held_count == HELD_MOST)
        return false;
    held = &w->held[w->held_count++];
    snprintf(held->coupon, sizeof held->coupon, "%s", coupon);
    held->lane = lane;
    return true;
}
