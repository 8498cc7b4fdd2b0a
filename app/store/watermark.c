/* store/watermark.c -- see watermark.h. */
#include "store/watermark.h"

#include <stdio.h>
#include <string.h>

bool watermark_has_behind(const struct watermark *w, const char *coupon, int64_t lane)
{
    for (size_t i = 0; i < w->behind_count; i++)
        if (w->behind[i].lane == lane && strcmp(w->behind[i].coupon, coupon) == 0)
            return true;
    return false;
}

bool watermark_add_behind(struct watermark *w, const char *coupon, int64_t lane)
{
    struct lane_behind *behind;

    if (watermark_has_behind(w, coupon, lane))
        return true;
    if (w->behind_count == BEHIND_MOST)
        return false;
    behind = &w->behind[w->behind_count++];
    snprintf(behind->coupon, sizeof behind->coupon, "%s", coupon);
    behind->lane = lane;
    return true;
}
