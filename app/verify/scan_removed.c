/* verify/scan_removed.c -- see scan.h: a coupon that was archived and removed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coupons/fold.h"
#include "verify/scan.h"

struct look {
    struct scan *scan;
    drift_fn *report;
    void *context;
    bool unfinished;
};

static void differs(struct look *k, const char *view, int64_t lane, const char *field, const char *expected, const char *found)
{
    char where[32];

    snprintf(where, sizeof where, "lane %" PRId64, lane);
    k->report(k->context, &(struct drift){view, where, field, expected, found});
}

static void expect(struct look *k, const char *view, int64_t lane, const char *field, int64_t expected, int64_t found)
{
    char where[32];

    snprintf(where, sizeof where, "lane %" PRId64, lane);
    if (expected != found)
        drift_numbers(k->report, k->context, (struct drift){view, where, field, NULL, NULL}, "", expected, found);
}

/* ---- the last batch ---- */

/* Nothing is removed before it gets to the last batch. */
static void check_reached(struct look *k, const struct batch *last, const char *what, const char *field, bool readable, int64_t seq)
{
    if (readable && seq < last->head.seq)
        k->unfinished = true;
    else
        expect(k, what, last->lane, field, last->head.seq, readable ? seq : 0);
}

static enum store_status check_totals_positions(struct look *k, const struct batch *last)
{
    struct stored_checkpoint c;
    struct stored_totals_position m;
    struct arena a;
    enum store_status s;

    arena_init(&a, 0);
    s = scan_checkpoint(k->scan, last->lane, &a, &c);
    if (s == STORE_OK)
        check_reached(k, last, "lanes", "checkpoint", c.is_there && c.readable, c.checkpoint.seq);
    if (s == STORE_OK && c.wrong)
        differs(k, "lanes", last->lane, c.wrong, "as the service writes it", "another");
    if (s == STORE_OK)
        s = scan_totals_position(k->scan, last->lane, &m);
    if (s == STORE_OK)
        check_reached(k, last, "totals_positions", "totals", m.is_there && m.readable, m.seq);
    arena_free(&a);
    return s;
}

/* ---- the batches that stay ---- */

/* What stays of a lane's ledger, as far as it was read. */
struct rest {
    struct look *look;
    int64_t lane, seq;
    uint8_t hash[HASH_LEN];
    int64_t archived;
};

static bool has_archive(const struct batch *b)
{
    bool has = false;

    for (size_t i = 0; i < b->count; i++)
        has = has || b->entries[i].kind == ENTRY_ARCHIVE;
    return has;
}

/* Before the closing batch, all is to go; from it on, the chain goes on to the second `archive`. */
static void check_rest(void *context, const struct batch *b)
{
    struct rest *r = context;
    struct buf scratch = BUF_INIT;
    uint8_t hash[HASH_LEN];

    if (!b->head.archived) {
        r->look->unfinished = true;
        return;
    }
    batch_hash(b, &scratch, hash);
    buf_free(&scratch);
    if (memcmp(hash, b->head.hash, HASH_LEN) != 0)
        differs(r->look, "ledger", r->lane, "hash", "that of its line", "another");
    if (r->seq && (b->head.seq != r->seq + 1 || memcmp(b->prev, r->hash, HASH_LEN) != 0))
        differs(r->look, "ledger", r->lane, "chain from the closing batch on", "whole", "broken");
    if (!r->seq && b->head.archived != LANE_CLOSED)
        differs(r->look, "ledger", r->lane, "first batch that stays", "the one that closed the lane", "a later one");
    if (b->head.archived != r->archived && !has_archive(b))
        differs(r->look, "ledger", r->lane, "batch that closes or releases the lane", "one with an archive", "another");
    r->seq = b->head.seq;
    r->archived = b->head.archived;
    memcpy(r->hash, b->head.hash, HASH_LEN);
}

static enum store_status check_ledger(struct look *k, const struct batch *last)
{
    struct rest rest = {.look = k, .lane = last->lane};
    enum store_status s = scan_ledger(k->scan, last->lane, 0, last->head.seq, check_rest, &rest);

    if (s == STORE_OK)
        expect(k, "ledger", last->lane, "last batch", last->head.seq, rest.seq);
    return s;
}

/* ---- totals, and the definition ---- */

static enum store_status check_totals(struct look *k, const struct batch *const *last, int64_t lanes)
{
    struct report_counts sums[COUPON_LANES_MAX] = {{0}};
    struct totals_row *rows;
    size_t count = 0;
    struct arena a;
    enum store_status s;
    int tries = 0;

    arena_init(&a, 0);
    do
        s = mongo_stored_totals(k->scan->session, k->scan->coupon, &a, &rows, &count);
    while (scan_again(s, &tries));
    for (size_t i = 0; i < count && s == STORE_OK; i++) {
        if (rows[i].counts && rows[i].lane >= 0 && rows[i].lane < lanes)
            report_counts_add(&sums[rows[i].lane], rows[i].counts);
        else
            differs(k, "totals", rows[i].lane, "row", "one of a lane that can be read", "another");
    }
    for (int64_t i = 0; i < lanes && s == STORE_OK; i++) {
        expect(k, "totals", i, "redeemed", last[i]->head.redeemed, sums[i].redeemed - sums[i].reversed);
        expect(k, "totals", i, "discount_minor", last[i]->head.discount_minor, sums[i].discount_minor);
    }
    arena_free(&a);
    return s;
}

static enum store_status check_definition(struct look *k, const struct batch *last)
{
    struct stored_coupon found = {.seq = 0};
    struct arena a;
    enum store_status s;
    int tries = 0;

    arena_init(&a, 0);
    do
        s = mongo_stored_coupon(k->scan->session, k->scan->coupon, &a, &found);
    while (scan_again(s, &tries));
    if (s == STORE_OK && !found.definition)
        differs(k, "coupons", 0, "definition", "one that can be read", "none");
    else if (s == STORE_OK)
        expect(k, "coupons", 0, "version", last->head.version, found.definition->version);
    arena_free(&a);
    return s;
}

enum store_status scan_removed(struct scan *v, int64_t lanes, bool *unfinished, drift_fn *report, void *context)
{
    struct look k = {.scan = v, .report = report, .context = context};
    struct batch *last[COUPON_LANES_MAX] = {NULL};
    enum store_status s = STORE_OK;
    bool all = lanes > 0;

    for (int64_t i = 0; i < lanes && s == STORE_OK; i++) {
        s = scan_last(v, i, &last[i]);
        all = all && last[i];
        if (s == STORE_OK && !last[i])
            differs(&k, "ledger", i, "last batch", "one", "none");
    }
    if (s == STORE_OK && all)
        s = check_definition(&k, last[0]);
    for (int64_t i = 0; i < lanes && s == STORE_OK && all; i++) {
        k.unfinished = k.unfinished || last[i]->head.archived == LANE_CLOSED; /* the removal has not reached this lane yet */
        expect(&k, "ledger", last[i]->lane, "issued", 0, last[i]->head.issued);
        expect(&k, "ledger", last[i]->lane, "reserved", 0, last[i]->head.reserved);
        s = check_totals_positions(&k, last[i]);
        if (s == STORE_OK)
            s = check_ledger(&k, last[i]);
    }
    if (s == STORE_OK && all)
        s = check_totals(&k, (const struct batch *const *)last, lanes);
    if (s == STORE_OK) {
        bool removed;
        int tries = 0;

        do
            s = mongo_is_removed(v->session, v->coupon, &removed);
        while (scan_again(s, &tries));
        k.unfinished = k.unfinished || (s == STORE_OK && !removed);
    }
    for (int64_t i = 0; i < lanes; i++)
        batch_free(last[i]);
    *unfinished = k.unfinished;
    return s;
}
