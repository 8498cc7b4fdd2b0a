/* verify/scan.c -- see scan.h: tails, positions in the totals, lanes, coupons. One lane: scan_lane.c; codes: scan_codes.c. */
#include "verify/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coupons/fold.h"
#include "verify/replay_lanes.h"

#define TRIES 8 /* of one read */
#define PAUSE_FIRST_MS 50
#define PAGE_BATCHES 50
#define PAGE_IDS 200

bool scan_again(enum store_status status, int *tries)
{
    int64_t pause_ms = (int64_t)PAUSE_FIRST_MS << *tries;

    if (status != STORE_FAILED || ++*tries >= TRIES)
        return false;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    return true;
}

enum store_status scan_last(struct scan *v, int64_t lane, struct batch **last)
{
    size_t count = 0;
    enum store_status s;
    int tries = 0;

    *last = NULL;
    do
        s = mongo_ledger_back(v->session, v->coupon, lane, INT64_MAX, 1, last, &count);
    while (scan_again(s, &tries));
    return s;
}

enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail)
{
    struct batch *b;
    enum store_status s = scan_last(v, lane, &b);

    *tail = b ? b->head : (struct head){.seq = 0};
    batch_free(b);
    return s;
}

enum store_status scan_totals_position(struct scan *v, int64_t lane, struct stored_totals_position *position)
{
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_totals_position(v->session, v->coupon, lane, position);
    while (scan_again(s, &tries));
    return s;
}

enum store_status scan_checkpoint(struct scan *v, int64_t lane, struct arena *a, struct stored_checkpoint *found)
{
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_checkpoint(v->session, v->coupon, lane, a, found);
    while (scan_again(s, &tries));
    return s;
}

enum store_status scan_lanes(struct scan *v, int64_t *lanes)
{
    struct batch *b = NULL;
    size_t count = 0;
    enum store_status s;
    int tries = 0;

    do
        s = v->session->ops->ledger(v->session, v->coupon, 0, 0, 1, &b, &count);
    while (scan_again(s, &tries));
    *lanes = s == STORE_OK && count ? b->lanes : 1; /* if it is not the definition, those before it were removed */
    for (size_t i = 0; s == STORE_OK && count && i < b->count; i++)
        if (b->entries[i].kind == ENTRY_DEFINE)
            *lanes = b->entries[i].definition->lanes;
    if (*lanes < 1 || *lanes > COUPON_LANES_MAX)
        *lanes = 1;
    if (s == STORE_OK && count)
        batch_free(b);
    return s;
}

enum store_status scan_hash(struct scan *v, int64_t lane, int64_t seq, uint8_t hash[HASH_LEN], bool *is_there)
{
    struct batch *b = NULL;
    enum store_status s;
    int tries = 0;

    do
        s = mongo_ledger_at(v->session, v->coupon, lane, seq, &b);
    while (scan_again(s, &tries));
    *is_there = s == STORE_OK;
    if (s == STORE_OK)
        memcpy(hash, b->head.hash, HASH_LEN);
    batch_free(b);
    return s == STORE_NOT_FOUND ? STORE_OK : s;
}

enum store_status scan_ledger(struct scan *v, int64_t lane, int64_t after, int64_t until, scan_batch_fn *take, void *context)
{
    struct batch *batches[PAGE_BATCHES];
    size_t count = PAGE_BATCHES;
    enum store_status s = STORE_OK;

    while (s == STORE_OK && count == PAGE_BATCHES && after < until) {
        int tries = 0;

        count = 0;
        do
            s = v->session->ops->ledger(v->session, v->coupon, lane, after, PAGE_BATCHES, batches, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; s == STORE_OK && i < count; i++) {
            after = batches[i]->head.seq;
            if (after <= until)
                take(context, batches[i]);
            batch_free(batches[i]);
        }
    }
    return s;
}

/* ---- several lanes ---- */

static void sum_up(void *context, const struct batch *b)
{
    lane_sums_batch(context, b);
}

enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still)
{
    int64_t seq = lanes[0].head.seq;
    enum store_status s;
    struct head tail = {0};

    for (int64_t i = 0; i < count; i++)
        lane_sums_rest(&lanes[i]);
    s = scan_ledger(v, 0, seq, INT64_MAX, sum_up, &lanes[0]);
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

/* ---- coupons ---- */

const struct drift drift_coupon_id = {"coupon", "id", "form", "1 to 64 letters, digits, _ and -", "another"};

static enum store_status next_of(struct scan *v, const char *collection, const char *after, struct arena *a, const char **next)
{
    enum store_status s;
    int tries = 0;

    do
        s = mongo_next_coupon(v->session, collection, after, a, next);
    while (scan_again(s, &tries));
    return s;
}

/* Read the ids of those with a definition; *strays: some have none. */
static enum store_status read_ids(struct scan *v, const char *after, bool *strays)
{
    const char **ids;
    enum store_status s;
    struct arena a;
    size_t count;
    int tries = 0;

    arena_init(&a, 0);
    do
        s = mongo_next_definitions(v->session, after, PAGE_IDS, &a, &ids, &count, strays);
    while (scan_again(s, &tries));
    buf_clear(&v->ids);
    v->ids_at = 0;
    for (size_t i = 0; s == STORE_OK && !*strays && i < count; i++)
        buf_put(&v->ids, ids[i], strlen(ids[i]) + 1);
    arena_free(&a);
    return s;
}

/* The least of the next coupons of all collections. */
static enum store_status find_next(struct scan *v, struct buf *id)
{
    const char *after = id->len ? id->data : "", *least = NULL;
    enum store_status s = STORE_OK;
    struct arena a;

    buf_clear(&v->foreign);
    arena_init(&a, 0);
    for (size_t i = 0; i <= mongo_view_collections_count && s == STORE_OK; i++) {
        const char *collection = i < mongo_view_collections_count ? mongo_view_collections[i] : "ledger", *next = NULL;

        s = next_of(v, collection, after, &a, &next);
        if (s == STORE_OK && next && strcmp(next, DIRECTORY_OF_CODES) == 0) /* not a coupon: skip it */
            s = next_of(v, collection, DIRECTORY_OF_CODES, &a, &next);
        if (s == STORE_UNREADABLE) {
            buf_printf(&v->foreign, "%s%s %s", v->foreign.len ? ", " : "", collection, next);
            s = STORE_OK;
        } else if (s == STORE_OK && next && (!least || strcmp(next, least) < 0)) {
            least = next;
        }
    }
    buf_clear(id);
    if (least)
        buf_puts(id, least);
    arena_free(&a);
    return s;
}

enum store_status scan_next_coupon(struct scan *v, struct buf *id)
{
    enum store_status s = STORE_OK;
    bool strays = false;

    if (v->ids_at == v->ids.len)
        s = read_ids(v, id->len ? id->data : "", &strays);
    if (s != STORE_OK || strays)
        return s == STORE_OK ? find_next(v, id) : s;
    buf_clear(id);
    if (v->ids_at < v->ids.len) {
        buf_puts(id, v->ids.data + v->ids_at);
        v->ids_at += id->len + 1;
    }
    return STORE_OK;
}
