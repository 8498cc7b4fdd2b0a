/*
 * verify/scan_lane.c -- see scan.h: reads one lane, once for each part, and replays it.
 *
 * Steps    of each part: its buckets and codes; then the ledger, page by page. With the first: totals and the definition
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "verify/replay.h"
#include "verify/replay_ends.h"
#include "verify/replay_views.h"
#include "verify/scan.h"

#define PAGE_BATCHES 50
#define PAGE_BUCKETS 200 /* a page that is not half full is the last: some may have an _id that cannot be read */
#define LOOKS 5 /* at what is about to be changed */
#define LOOK_PAUSE_MS 200
#define CLOCKS_APART_MS 60000 /* of a front and the database */

enum { VIEWS, LEDGER, PHASES };

struct reading {
    struct scan *scan;
    const struct scan_lane *how;
    struct part part;
    struct replay *replay; /* of this part */
    struct lane_ends ends;
    struct stored_totals_position totals;
    struct arena arena;    /* of what was read of the lane as a whole */
    struct head before, tail; /* of the lane's last batch, before and after its views were read */
    bool enough;              /* the other parts need not be read */
    int phase;
    int64_t done;             /* in this phase, of phase_total() */
};

/* ---- progress ---- */

/* Count each phase as one step per taking of the lane, plus one. */
static int64_t phase_total(const struct reading *g)
{
    return head_takings(&g->before) + 1;
}

static void advance(struct reading *g, int64_t done)
{
    int64_t all = phase_total(g);

    if (!g->scan->show)
        return;
    g->done += done;
    g->scan->show(g->scan->progress, (g->part.number * PHASES + g->phase) * all + (g->done < all ? g->done : all),
                  g->part.count * PHASES * all);
}

static void begin_phase(struct reading *g, int phase)
{
    g->phase = phase;
    g->done = 0;
}

/* ---- views ---- */

static enum store_status read_totals(struct reading *g)
{
    struct totals_row *rows = NULL;
    size_t count = 0;
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_totals(g->scan->session, g->scan->coupon, &g->replay->arena, &rows, &count);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_totals(g->replay, rows, count);
    return s;
}

static enum store_status read_definition(struct reading *g)
{
    struct stored_coupon found = {.seq = 0};
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_coupon(g->scan->session, g->scan->coupon, &g->replay->arena, &found);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_view_coupon(g->replay, &found);
    return s;
}

static enum store_status read_buckets(struct reading *g)
{
    int64_t from = part_first_bucket(&g->part), end = part_end_bucket(&g->part);
    struct stored_bucket *buckets = checked(calloc(PAGE_BUCKETS, sizeof *buckets));
    size_t count = PAGE_BUCKETS;
    enum store_status s = STORE_OK;
    struct arena a;

    arena_init(&a, 0);
    while (count > PAGE_BUCKETS / 2 && from < end) {
        int tries = 0;

        count = 0;
        do
            s = mongo_stored_buckets(g->scan->session, g->scan->coupon, from, PAGE_BUCKETS, &a, buckets, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = buckets[i].b + 1;
            if (buckets[i].b < end)
                replay_view_bucket(g->replay, buckets[i].b, buckets[i].readable ? &buckets[i].bucket : NULL, buckets[i].wrong);
            if (buckets[i].readable)
                bucket_release(&buckets[i].bucket);
        }
        advance(g, (int64_t)count * BUCKET_SLOTS);
        arena_reset(&a);
    }
    arena_free(&a);
    free(buckets);
    return s;
}

static enum store_status read_codes(struct reading *g)
{
    int64_t from = part_first_bucket(&g->part), end = part_end_bucket(&g->part);
    size_t count = PAGE_BUCKETS;
    enum store_status s = STORE_OK;
    struct arena a;

    arena_init(&a, 0);
    while (count > PAGE_BUCKETS / 2 && from < end) {
        struct stored_codes *codes = NULL;
        int tries = 0;

        count = 0;
        do
            s = mongo_stored_codes(g->scan->session, g->scan->coupon, from, PAGE_BUCKETS, &a, &codes, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = codes[i].b + 1;
            if (codes[i].b < end)
                replay_codes(g->replay, codes[i].b, codes[i].codes, codes[i].wrong);
        }
        arena_reset(&a);
    }
    arena_free(&a);
    return s;
}

/* ---- the ledger ---- */

struct page {
    struct stored_batch batches[PAGE_BATCHES];
    uint8_t hashes[PAGE_BATCHES][HASH_LEN];
    size_t count;
};

static void free_page(struct page *p)
{
    while (p->count > 0)
        batch_free(p->batches[--p->count].batch);
}

static enum store_status read_batches(struct reading *g, int64_t after, size_t most, struct stored_batch *batches, size_t *count)
{
    const struct scan *v = g->scan;
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_batches(v->session, v->coupon, g->how->lane, after, most, &v->term_key, batches, count);
    while (scan_again(s, &tries));
    return s;
}

/* Names and index of a batch change while a user is erased: give it a moment. */
static void look_again(struct reading *g, struct stored_batch *stored)
{
    for (int look = 0; look < LOOKS && stored->wrong; look++) {
        struct stored_batch newer;
        size_t count = 0;

        if (look)
            nanosleep(&(struct timespec){0, LOOK_PAUSE_MS * 1000000}, NULL);
        if (read_batches(g, stored->batch->head.seq - 1, 1, &newer, &count) != STORE_OK || !count)
            continue;
        if (newer.batch->head.seq != stored->batch->head.seq) {
            batch_free(newer.batch);
            continue;
        }
        batch_free(stored->batch);
        *stored = newer;
    }
}

/* Read the batches after `after`, up to `until`; and for the first part hash them. */
static enum store_status read_page(struct reading *g, int64_t after, int64_t until, struct buf *scratch, struct page *p)
{
    enum store_status s;
    bool again = true;

    assert(until > after && until - after <= PAGE_BATCHES);
    p->count = 0;
    s = read_batches(g, after, (size_t)(until - after), p->batches, &p->count);
    while (p->count > 0 && p->batches[p->count - 1].batch->head.seq > until) /* some are missing */
        batch_free(p->batches[--p->count].batch);
    for (size_t i = 0; i < p->count && replay_is_first(g->replay); i++) {
        if (p->batches[i].wrong && again) {
            look_again(g, &p->batches[i]);
            again = !p->batches[i].wrong; /* one that stays so counts for the page */
        }
        batch_hash(p->batches[i].batch, scratch, p->hashes[i]);
    }
    return s;
}

static enum store_status read_ledger(struct reading *g)
{
    struct page *p = checked(calloc(1, sizeof *p));
    struct buf scratch = BUF_INIT;
    enum store_status s = STORE_OK;

    begin_phase(g, LEDGER);
    for (int64_t after = 0, until; s == STORE_OK && after < g->tail.seq; after = until) {
        until = after + PAGE_BATCHES < g->tail.seq ? after + PAGE_BATCHES : g->tail.seq;
        s = read_page(g, after, until, &scratch, p);
        for (size_t i = 0; i < p->count && s == STORE_OK; i++)
            replay_stored(g->replay, &p->batches[i], p->hashes[i]);
        free_page(p);
        advance(g, (until - after) * phase_total(g) / g->tail.seq);
    }
    buf_free(&scratch);
    free(p);
    return s;
}

/* A ledger of less than a page is read at once, with its tail: nothing comes after it. *whole false: it has grown beyond a page. */
static enum store_status read_small(struct reading *g, struct page *p, bool *whole)
{
    struct buf scratch = BUF_INIT;
    enum store_status s = read_page(g, 0, PAGE_BATCHES, &scratch, p);

    *whole = s == STORE_OK && p->count < PAGE_BATCHES;
    g->tail = p->count ? p->batches[p->count - 1].batch->head : (struct head){.seq = 0};
    buf_free(&scratch);
    return s;
}

static void note_later_erasures(void *context, const struct batch *b)
{
    replay_later_erasures(context, b);
}

/* ---- a part ---- */

/* An erasure removes names, and then no longer lists the alias: the list may have been read after that, and the names before. */
static bool name_stays(void *context, const char *alias, int64_t seq)
{
    const struct reading *g = context;
    bool stays = false;
    struct batch *b = NULL;

    if (mongo_ledger_at(g->scan->session, g->scan->coupon, g->how->lane, seq, &b) != STORE_OK)
        return true;
    for (size_t i = 0; i < b->count; i++)
        stays = stays || (b->entries[i].user && strcmp(b->entries[i].alias, alias) == 0);
    batch_free(b);
    return stays;
}

/* The position to compare totals by; the tail, if the position is useless and totals are to be rebuilt. -1: unreadable. */
static int64_t totals_seq(const struct reading *g)
{
    const struct stored_totals_position *position = &g->totals;
    bool good = position->is_there && position->readable && position->seq <= g->tail.seq;

    if (g->how->rebuild && !good)
        return g->tail.seq;
    return position->is_there && !position->readable ? -1 : position->seq;
}

/* Likewise, if it is to be repaired; unreadable: none. */
static int64_t checkpoint_seq(const struct reading *g)
{
    const struct stored_checkpoint *c = &g->ends.found;
    bool useless = c->is_there && (!c->readable || c->checkpoint.seq > g->tail.seq);

    return g->how->ended && useless ? g->tail.seq : c->checkpoint.seq;
}

static enum store_status replay_ledger(struct reading *g)
{
    struct page *p = checked(calloc(1, sizeof *p));
    bool whole = false;
    enum store_status s = STORE_OK;

    if (g->before.seq < PAGE_BATCHES / 2)
        s = read_small(g, p, &whole);
    if (s == STORE_OK && !whole)
        s = scan_tail(g->scan, g->how->lane, &g->tail);
    if (s == STORE_OK)
        g->replay->written = (struct replay_written){checkpoint_seq(g), totals_seq(g), g->totals.at_ms};
    for (size_t i = 0; whole && i < p->count; i++)
        replay_stored(g->replay, &p->batches[i], p->hashes[i]);
    free_page(p);
    free(p);
    if (s == STORE_OK && !whole)
        s = read_ledger(g);
    if (s == STORE_OK && !whole)
        s = scan_ledger(g->scan, g->how->lane, g->tail.seq, INT64_MAX, note_later_erasures, g->replay);
    return s;
}

static enum store_status replay_part(struct reading *g)
{
    enum store_status s = STORE_OK;

    g->replay->fold = g->scan->fold;
    g->replay->lane_sums = g->how->sums;
    g->replay->lane_ends = &g->ends;
    g->replay->codes_next_n = g->before.next_n;
    begin_phase(g, VIEWS);
    if (replay_is_first(g->replay))
        s = read_totals(g);
    if (s == STORE_OK && replay_is_first(g->replay) && g->how->lane == 0)
        s = read_definition(g);
    if (s == STORE_OK)
        s = read_buckets(g);
    if (s == STORE_OK)
        s = read_codes(g);
    if (s == STORE_OK)
        s = replay_ledger(g);
    if (s != STORE_OK)
        return s;
    replay_look_again(g->replay, name_stays, g);
    replay_end(g->replay);
    if (g->how->replayed)
        g->enough = !g->how->replayed(g->how->context, g->replay);
    return s;
}

/* ---- a lane ---- */

static enum store_status replay_parts(struct reading *g)
{
    int64_t slots = g->before.next_n % LANE_SLOTS;
    unsigned parts = g->scan->parts_asked ? (unsigned)g->scan->parts_asked : parts_for(head_takings(&g->before), slots);
    enum store_status s = STORE_OK;

    for (unsigned part = 0; part < parts && s == STORE_OK && !g->enough; part++) {
        g->part = part_of(part, parts, slots, g->how->lane, g->how->lanes);
        g->replay = replay_new(&g->part, g->how->report, g->how->context);
        s = replay_part(g);
        replay_free(g->replay);
    }
    if (g->ends.now_ms < g->tail.at_ms)
        g->ends.now_ms = g->tail.at_ms; /* a front's clock may be ahead; then so is the lane's time */
    if (s == STORE_OK && !g->enough && g->how->ended)
        g->how->ended(g->how->context, &g->ends);
    else if (s == STORE_OK && !g->enough)
        lane_ends_report(&g->ends, g->how->report, g->how->context);
    return s;
}

enum store_status scan_lane(struct scan *v, const struct scan_lane *how)
{
    struct reading g = {.scan = v, .how = how};
    enum store_status s;

    arena_init(&g.arena, 0);
    s = scan_checkpoint(v, how->lane, &g.arena, &g.ends.found);
    if (s == STORE_OK)
        s = scan_totals_position(v, how->lane, &g.totals);
    if (s == STORE_OK && how->tail)
        g.before = *how->tail;
    else if (s == STORE_OK)
        s = scan_tail(v, how->lane, &g.before);
    g.ends.now_ms = (int64_t)v->session->ops->seen(v->session).seconds * 1000 + CLOCKS_APART_MS;
    if (s == STORE_OK)
        s = replay_parts(&g);
    lane_ends_release(&g.ends);
    arena_free(&g.arena);
    return s;
}
