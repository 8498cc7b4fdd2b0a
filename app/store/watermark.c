/* store/watermark.c -- see watermark.h. */
#include "store/watermark.h"

#include <stdio.h>
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"

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

/* ---- its document ---- */

void codec_watermark_put(bson_t *doc, const struct watermark *w)
{
    char buffer[16];
    bson_t list, one;

    BSON_APPEND_TIMESTAMP(doc, "arrived", (uint32_t)(w->arrived >> 32), (uint32_t)w->arrived);
    BSON_APPEND_ARRAY_BEGIN(doc, "behind", &list);
    for (size_t i = 0; i < w->behind_count; i++) {
        bson_append_document_begin(&list, array_key(i, buffer), -1, &one);
        BSON_APPEND_UTF8(&one, "c", w->behind[i].coupon);
        BSON_APPEND_INT64(&one, "l", w->behind[i].lane);
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(doc, &list);
}

static bool get_behind(const bson_t *list, struct watermark *w)
{
    const char *coupon;
    bson_iter_t it;
    int64_t lane;
    bson_t one;

    if (!bson_iter_init(&it, list))
        return false;
    while (bson_iter_next(&it))
        if (!get_document(&it, &one) || !find_text(&one, "c", &coupon) || strlen(coupon) > COUPON_ID_MAX ||
            !find_exact(&one, "l", &lane) || !watermark_add_behind(w, coupon, lane))
            return false;
    return true;
}

void codec_watermark_get(const bson_t *doc, struct watermark *w)
{
    bson_t list;

    *w = (struct watermark){.arrived = 0};
    if (bson_has_field(doc, "behind") && (!find_array(doc, "behind", &list) || !get_behind(&list, w)))
        *w = (struct watermark){.arrived = 0};
    else
        w->arrived = codec_arrived_get(doc);
}
