/* verify/scan.c -- see scan.h: tails, marks, lanes, coupons. A lane: scan_lane.c; codes: scan_codes.c. */
#include "verify/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verify/replay_lanes.h"

#define TRIES 8 /* of one read */
#define PAUSE_FIRST_MS 50
#define PAGE_BATCHES 200

bool scan_again(enum store_status status, int *tries)
{
    int64_t pause_ms = (int64_t)PAUSE_FIRST_MS << *tries;

    if (status != STORE_FAILED || ++*tries >= TRIES)
        return false;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    return true;
}

enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail)
{
    struct batch *b = NULL;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    do
        s = mongo_ledger_back(v->door, v->coupon, lane, INT64_MAX, 1, &b, &count);
    while (scan_again(s, &tries));
    *tail = (struct head){.seq = 0};
    if (s == STORE_OK && count) {
        *tail = b->head;
        batch_free(b);
    }
    return s;
}

enum store_status scan_mark(struct scan *v, int64_t lane, const char *kind, struct stored_mark *mark)
{
    int tries = 0;
    enum store_status s;

    do
        s = mongo_stored_mark(v->door, v->coupon, lane, kind, mark);
    while (scan_again(s, &tries));
    return s;
}

enum store_status scan_lanes(struct scan *v, int64_t *lanes)
{
    struct batch *b = NULL;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    do
        s = v->door->ops->ledger(v->door, v->coupon, 0, 0, 1, &b, &count);
    while (scan_again(s, &tries));
    *lanes = 1;
    for (size_t i = 0; s == STORE_OK && count && i < b->count; i++)
        if (b->entries[i].kind == ENTRY_DEFINE)
            *lanes = b->entries[i].definition->lanes;
    if (*lanes < 1 || *lanes > COUPON_LANES_MAX)
        *lanes = 1;
    if (s == STORE_OK && count)
        batch_free(b);
    return s;
}

/* A page of lane 0's batches after those told. */
static enum store_status read_rest(struct scan *v, struct lane_sums *zero, size_t *count)
{
    struct batch *batches[PAGE_BATCHES];
    int tries = 0;
    enum store_status s;

    *count = 0;
    do
        s = v->door->ops->ledger(v->door, v->coupon, 0, zero->head.seq, PAGE_BATCHES, batches, count);
    while (scan_again(s, &tries));
    for (size_t i = 0; s == STORE_OK && i < *count; i++) {
        lane_sums_batch(zero, batches[i]);
        batch_free(batches[i]);
    }
    return s;
}

enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still)
{
    int64_t seq = lanes[0].head.seq;
    enum store_status s;
    struct head tail = {0};
    size_t page;

    for (int64_t i = 0; i < count; i++)
        lane_sums_rest(&lanes[i]);
    do
        s = read_rest(v, &lanes[0], &page);
    while (s == STORE_OK && page == PAGE_BATCHES);
    *still = seq == lanes[0].head.seq;
    for (int64_t i = 1; i < count && s == STORE_OK; i++) {
        s = scan_tail(v, i, &tail);
        *still = *still && tail.seq == lanes[i].head.seq;
    }
    if (s == STORE_OK)
        s = scan_tail(v, 0, &tail);
    *still = *still && tail.seq == seq;
    return s;
}

/* The least of what each collection has next. */
enum store_status scan_next_coupon(struct scan *v, const char *after, char id[COUPON_ID_MAX + 1])
{
    char last[COUPON_ID_MAX + 1];
    enum store_status s = STORE_OK;

    snprintf(last, sizeof last, "%s", after);
    id[0] = '\0';
    for (size_t i = 0; i <= mongo_view_collections_count && s == STORE_OK; i++) {
        const char *collection = i < mongo_view_collections_count ? mongo_view_collections[i] : "ledger", *next = NULL;
        struct arena a;
        int tries = 0;

        arena_init(&a, 256);
        do
            s = mongo_next_coupon(v->door, collection, last[0] ? last : NULL, &a, &next);
        while (scan_again(s, &tries));
        if (s == STORE_OK && next && strcmp(next, DIRECTORY_OF_CODES) == 0) /* no coupon: what comes after it? */
            s = mongo_next_coupon(v->door, collection, DIRECTORY_OF_CODES, &a, &next);
        if (s == STORE_OK && next && (!id[0] || strcmp(next, id) < 0))
            snprintf(id, COUPON_ID_MAX + 1, "%s", next);
        arena_free(&a);
    }
    return s;
}
