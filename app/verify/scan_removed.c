/* verify/scan_removed.c -- see scan.h: a coupon that was archived and removed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
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

/* A restore that the lane had not recorded yet comes first. */
static bool is_second_archive(const struct batch *b)
{
    return b->head.archived == LANE_REMOVED && b->entries[b->count - 1].kind == ENTRY_ARCHIVE &&
           (b->count == 1 || (b->count == 2 && b->entries[0].kind == ENTRY_RESTORED));
}

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

/* ---- what remains of removed documents ---- */

static enum store_status walk(struct look *k, struct leaving *l, int64_t *left)
{
    enum store_status s = STORE_OK;

    l->coupon = k->scan->coupon;
    *left = 0;
    while (s == STORE_OK && !l->done)
        SCAN_READ(s, mongo_leave_look(k->scan->session, l, left));
    k->unfinished = k->unfinished || *left < l->count;
    return s;
}

/* For LANE_REMAINS_MS the _ids of all batches before the last, without a gap, unless only the first one's is left: the rest was deleted
 * early. Later, any of them may be gone but the first. */
static enum store_status check_ledger(struct look *k, const struct batch *last)
{
    struct leaving l = {.kind = REMAINS_LEDGER, .lane = last->lane, .end = last->head.seq};
    struct batch *first = NULL;
    int64_t left;
    enum store_status s = walk(k, &l, &left);

    if (s == STORE_OK && clock_now_ms() < last->head.at_ms + LANE_REMAINS_MS && l.count != 1)
        expect(k, "ledger", last->lane, "batches before the last", last->head.seq - 1, l.count);
    if (s != STORE_OK)
        return s;
    SCAN_READ(s, mongo_ledger_at(k->scan->session, k->scan->coupon, last->lane, 1, &first));
    if (s == STORE_NOT_FOUND)
        differs(k, "ledger", last->lane, "seq 1", "its _id", "none");
    batch_free(first);
    return s == STORE_NOT_FOUND ? STORE_OK : s;
}

/* ---- totals, and the definition ---- */

static enum store_status check_totals(struct look *k, const struct batch *const *last, int64_t lanes)
{
    struct report_counts sums[COUPON_LANES_MAX] = {{0}};
    struct totals_row *rows;
    size_t count = 0;
    struct arena a;
    enum store_status s;

    arena_init(&a, 0);
    SCAN_READ(s, mongo_stored_totals(k->scan->session, k->scan->coupon, &a, &rows, &count));
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

    arena_init(&a, 0);
    SCAN_READ(s, mongo_stored_coupon(k->scan->session, k->scan->coupon, &a, &found));
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
        struct buf scratch = BUF_INIT;
        uint8_t hash[HASH_LEN];

        batch_hash(last[i], &scratch, hash);
        if (memcmp(hash, last[i]->head.hash, HASH_LEN) != 0)
            differs(&k, "ledger", last[i]->lane, "hash of the last batch", "that of its line", "another");
        if (last[i]->head.archived == LANE_CLOSED) /* the removal has not reached this lane yet */
            k.unfinished = true;
        else if (!is_second_archive(last[i]))
            differs(&k, "ledger", last[i]->lane, "last batch", "its second archive alone", "another");
        expect(&k, "ledger", last[i]->lane, "issued", 0, last[i]->head.issued);
        expect(&k, "ledger", last[i]->lane, "reserved", 0, last[i]->head.reserved);
        buf_free(&scratch);
        s = check_totals_positions(&k, last[i]);
        if (s == STORE_OK)
            s = check_ledger(&k, last[i]);
    }
    if (s == STORE_OK && all)
        s = check_totals(&k, (const struct batch *const *)last, lanes);
    if (s == STORE_OK) {
        int64_t left;

        for (int kind = REMAINS_LEDGER + 1; kind < REMAINS_KIND_COUNT && s == STORE_OK; kind++)
            s = walk(&k, &(struct leaving){.kind = (enum remains_kind)kind}, &left);
    }
    for (int64_t i = 0; i < lanes; i++)
        batch_free(last[i]);
    *unfinished = k.unfinished;
    return s;
}
