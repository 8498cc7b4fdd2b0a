/* store/stock.c -- how much of each active coupon is free and taken, by the totals in the last batch of each lane. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/decide.h"
#include "store/codec.h"
#include "store/session.h"

/* A lane that is looked up. */
struct stock_lane {
    struct coupon_stock *stock;
    bool unreadable; /* its last batch is; a lane without batches adds nothing */
};

static bool head_row(const bson_t *doc, size_t find, void *context)
{
    struct stock_lane *lane = (struct stock_lane *)context + find;
    struct head h;

    lane->unreadable = !codec_head_get(doc, &h);
    if (lane->unreadable) {
        log_unreadable("ledger", doc);
        return true;
    }
    lane->stock->free += head_free(&h);
    lane->stock->taken += head_taken(&h);
    return true;
}

/* Keep the coupons whose lanes could all be read; returns how many. */
static size_t keep_whole(struct coupon_stock *stocks, size_t count, const struct stock_lane *lanes, size_t lane_count)
{
    size_t kept = 0, lane = 0;

    for (size_t i = 0; i < count; i++) {
        bool whole = true;

        for (; lane < lane_count && lanes[lane].stock == &stocks[i]; lane++)
            whole = whole && !lanes[lane].unreadable;
        if (whole)
            stocks[kept++] = stocks[i];
    }
    return kept;
}

enum store_status mongo_stocks(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct coupon_stock *into, size_t *count)
{
    struct joined_find *finds = checked(calloc(STOCK_LANES + 1, sizeof *finds));
    struct stock_lane *lanes = checked(calloc(STOCK_LANES + 1, sizeof *lanes));
    size_t listed = 0, lane_count = 0;
    struct coupon **coupons = NULL;
    const char *next;
    bool incomplete;
    enum store_status status = mongo_coupons(s, NULL, -1, now_ms, NULL, most, a, &coupons, &listed, &next, &incomplete);

    *count = 0;
    for (size_t i = 0; status == STORE_OK && i < listed && lane_count + (size_t)coupons[i]->lanes <= STOCK_LANES; i++) {
        struct coupon_stock *stock = &into[(*count)++];

        *stock = (struct coupon_stock){.has_slots = policy_of(coupons[i])->slots};
        memcpy(stock->coupon, coupons[i]->id, strlen(coupons[i]->id) + 1);
        for (int64_t lane = 0; lane < coupons[i]->lanes; lane++) {
            struct joined_find *find = &finds[lane_count];
            static const char *const members[] = {"at", "v", "totals", "day", NULL};

            *find = (struct joined_find){.by = "_id", .most = 1, .descending = true, .members = members};
            bson_init(&find->filter);
            ledger_range(&find->filter, coupons[i]->id, lane, 0, INT64_MAX);
            lanes[lane_count++].stock = stock;
        }
    }
    if (status == STORE_OK)
        status = session_read_joined(session_of(s), "ledger", finds, lane_count, head_row, lanes);
    *count = status == STORE_OK ? keep_whole(into, *count, lanes, lane_count) : 0;
    free(finds);
    free(lanes);
    return status;
}
