/* engine/lane.c -- see lane.h. */
#include "engine/lane.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/log.h"
#include "coupons/fold.h"
#include "engine/free_pool.h"

#define LEDGER_CHUNK 256
#define LOOK_FIRST 8 /* batches: a lane further behind first checks how far views are written */

/* ---- making and freeing ---- */

struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room)
{
    struct lane *l = checked(calloc(1, sizeof *l));

    assert(strlen(coupon) <= COUPON_ID_MAX);
    snprintf(l->coupon, sizeof l->coupon, "%s", coupon);
    snprintf(l->key, sizeof l->key, "%s\n%lld", coupon, (long long)number);
    l->number = number;
    l->topup = FREE_POOL_TOPUP_FIRST;
    l->next_due_ms = INT64_MIN;
    l->touched_end = -1;
    arena_init(&l->definition_arena, 2048);
    filter_init(&l->filter, room);
    return l;
}

void lane_unload(struct lane *l)
{
    window_clear(l);
    cached_bucket_forget_all(l);
    arena_free(&l->definition_arena);
    filter_restart(&l->filter);
    l->next_due_ms = INT64_MIN;
    l->free_pool_first = l->free_pool_count = 0;
    l->definition = NULL;
    l->definition_seq = 0;
    l->cursor = 0;
    l->touched_end = -1;
    l->tail = (struct head){0};
    l->mark = (struct mark){0};
    l->loaded = false;
}

void lane_free(struct lane *l)
{
    lane_unload(l);
    free(l->free_pool);
    free(l);
}

/* ---- moving the tail ---- */

static void move_definition(struct lane *l, const struct batch *b)
{
    const struct coupon *next;
    struct arena fresh;

    if (l->number == 0 && b->head.seq <= l->definition_seq)
        return;
    arena_init(&fresh, 2048);
    next = fold_definition(l->definition, b, &fresh);
    if (next == l->definition || (l->number > 0 && l->definition && next->version <= l->definition->version)) {
        arena_free(&fresh);
        return;
    }
    arena_free(&l->definition_arena);
    l->definition_arena = fresh;
    l->definition = next;
    if (l->number == 0) /* the definition's view is written in lane 0's order */
        l->definition_seq = b->head.seq;
}

static bool move_bucket(struct cached_bucket *c, const struct batch *b)
{
    bool moved = fold_bucket(&c->bucket, b);

    c->dirty = c->dirty || moved;
    return moved;
}

/* Apply w's batch to the cached buckets that it touches; true if any. */
static bool move_buckets(struct lane *l, const struct window_batch *w)
{
    const struct batch *b = w->batch;
    struct cached_bucket *c, *next;
    bool any = false;

    if (w->end_b == 0)
        return false;
    if (window_has_ranges(b)) {
        HASH_ITER(hh, l->buckets, c, next)
            if (c->bucket.b >= w->first_b && c->bucket.b < w->end_b)
                any = move_bucket(c, b) || any;
        return any;
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        c = (entry_members[e->kind] & HAS_SLOT) && e->n >= 0 ? cached_bucket_find(l, bucket_of(e->n)) : NULL;
        if (c)
            any = move_bucket(c, b) || any;
    }
    return any;
}

/* Move the tail to h. If slots were made, the last bucket grows, and the search for untouched ones continues from there. */
static void move_tail(struct lane *l, const struct head *h)
{
    int64_t grows = bucket_of(fold_next_n(&l->tail, l->number));
    bool made = h->next_n != l->tail.next_n;
    struct cached_bucket *c = made ? cached_bucket_find(l, grows) : NULL;

    l->tail = *h;
    if (!made)
        return;
    if (c) {
        bucket_fit(&c->bucket, h->next_n);
        if (lane_has_codes(l)) { /* codes read for the new slots were drafts */
            free_pool_drop_bucket(l, c); /* the pool points to them; a top-up finds the free ones again */
            free(c->codes);
            c->codes = NULL;
        }
    }
    free_pool_look_from(l, grows);
}

/* The buckets that an own batch touches must be cached, or their views would never be written, and the mark pass them. */
static bool own_buckets_laid(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        int64_t first, end;

        if (!entry_buckets(&b->entries[i], &first, &end))
            continue;
        for (int64_t k = first; k < end; k++) {
            const struct cached_bucket *c = cached_bucket_find(l, k);

            if (!c || c->bucket.seq != b->head.seq)
                return false;
        }
    }
    return true;
}

void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used)
{
    struct window_batch *w;

    assert(b->head.seq == l->tail.seq + 1);
    free_pool_spend(l, free_pool_used);
    w = window_add(l, b, true);
    move_buckets(l, w);
    assert(own_buckets_laid(l, b));
    free_pool_note_named(l, b);
    move_definition(l, b);
    move_tail(l, &b->head);
    free_pool_add_received(l, b);
}

static void lay_foreign(struct lane *l, struct batch *b, bool *free_pool_changed)
{
    struct window_batch *w = window_add(l, b, false);

    *free_pool_changed = move_buckets(l, w) || *free_pool_changed;
    move_definition(l, b);
    move_tail(l, &b->head);
}

/* Apply `count` batches after the tail; takes them all. STORE_FAILED: a gap, which is damage; or some were removed while they were read. */
static enum store_status lay_all(struct lane *l, struct batch **batches, size_t count)
{
    enum store_status status = STORE_OK;
    bool free_pool_changed = false;

    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK && batches[i]->head.seq == l->tail.seq + 1 && !batches[i]->left) {
            lay_foreign(l, batches[i], &free_pool_changed);
            continue;
        }
        if (status == STORE_OK && !batches[i]->left)
            log_event(LOG_ERROR, "lane.gap", F_WORD("coupon", l->coupon), F_INT("lane", l->number), F_INT("tail", l->tail.seq),
                      F_INT("next", batches[i]->head.seq));
        status = STORE_FAILED;
        batch_free(batches[i]);
    }
    if (free_pool_changed)
        free_pool_rebuild(l);
    return status;
}

/* Read at most `most` batches after the tail, and apply them. *more: there were that many. */
static enum store_status read_on(struct lane *l, struct store *s, size_t most, bool *more)
{
    struct batch *batches[LEDGER_CHUNK];
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, most, batches, &count);

    *more = count == most;
    return status == STORE_OK ? lay_all(l, batches, count) : status;
}

static enum store_status read_to_end(struct lane *l, struct store *s)
{
    enum store_status status = STORE_OK;

    for (bool more = true; status == STORE_OK && more;)
        status = read_on(l, s, LEDGER_CHUNK, &more);
    return status;
}

/* The batches after the tail were removed, with everything of an archived coupon but its lanes' last batches. */
static bool has_left(const struct lane *l, const struct batch *next)
{
    return next->left || (next->head.archived == LANE_REMOVED && next->head.seq > l->tail.seq + 1);
}

enum store_status lane_refresh(struct lane *l, struct store *s)
{
    struct lane_loading load = {.lane = l};
    struct batch *batches[LOOK_FIRST];
    struct mark mark = {0};
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, LOOK_FIRST, batches, &count);
    bool left = status == STORE_OK && count && has_left(l, batches[0]);

    assert(l->loaded && !l->pending);
    for (size_t i = 0; left && i < count; i++)
        batch_free(batches[i]);
    if (status == STORE_OK && !left)
        status = lay_all(l, batches, count);
    if (status != STORE_OK || !(left || count == LOOK_FIRST))
        return status;
    status = s->ops->mark(s, l->coupon, l->number, "views", &mark);
    if (status != STORE_OK)
        return status;
    if (mark.seq <= l->tail.seq)
        return read_to_end(l, s);
    lane_unload(l); /* nothing is owed: whoever moved the mark wrote our batches' views too */
    lane_load(s, &load, 1);
    return load.status;
}

/* ---- loading ---- */

#define LOADED_FIRST (LOOK_FIRST + 1) /* batches per lane: the one at the mark, and those after it. Few have more */

/* List the loads[] that have not failed; returns how many. */
static size_t list_open(struct lane_loading *loads, size_t count, struct lane_loading **open)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++)
        if (loads[i].status == STORE_OK)
            open[left++] = &loads[i];
    return left;
}

static void load_marks(struct store *s, struct lane_loading **open, size_t count)
{
    struct mark_read *reads = checked(calloc(count + 1, sizeof *reads));

    for (size_t i = 0; i < count; i++)
        reads[i] = (struct mark_read){.coupon = open[i]->lane->coupon, .lane = open[i]->lane->number, .kind = "views"};
    if (count)
        s->ops->marks(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->lane->mark = reads[i].mark;
        open[i]->status = reads[i].status;
    }
    free(reads);
}

static void load_definitions(struct store *s, struct lane_loading **open, size_t count)
{
    struct coupon_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct store_time after = {0, 0};

    for (size_t i = 0; i < count; i++) {
        reads[i] = (struct coupon_read){.coupon = open[i]->lane->coupon, .arena = &open[i]->lane->definition_arena};
        after = store_time_later(after, open[i]->lane->mark.when);
    }
    if (count)
        s->ops->coupons(s, after, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        open[i]->lane->definition = reads[i].definition;
        open[i]->lane->definition_seq = open[i]->lane->number > 0 ? 0 : reads[i].seq;
    }
    free(reads);
}

/* The batch at the mark, if any, is the tail that the window starts from. Takes it, and those after it. */
static enum store_status lay_first(struct lane *l, struct batch **batches, size_t count)
{
    size_t base = l->mark.seq > 0;

    if (base && (!count || batches[0]->head.seq != l->mark.seq || batches[0]->left)) {
        log_event(LOG_ERROR, "lane.no_batch_at_mark", F_WORD("coupon", l->coupon), F_INT("lane", l->number), F_INT("mark", l->mark.seq));
        while (count > 0)
            batch_free(batches[--count]);
        return STORE_FAILED;
    }
    if (base) {
        l->tail = batches[0]->head;
        batch_free(batches[0]);
    }
    return lay_all(l, batches + base, count - base);
}

static void load_ledgers(struct store *s, struct lane_loading **open, size_t count)
{
    struct ledger_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct batch **batches = checked(calloc((count + 1) * LOADED_FIRST, sizeof(struct batch *)));

    for (size_t i = 0; i < count; i++) {
        const struct lane *l = open[i]->lane;

        reads[i] = (struct ledger_read){.coupon = l->coupon, .lane = l->number, .after = l->mark.seq ? l->mark.seq - 1 : 0,
                                        .most = LOADED_FIRST, .batches = batches + i * LOADED_FIRST};
    }
    if (count)
        s->ops->ledgers(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        if (open[i]->status == STORE_OK)
            open[i]->status = lay_first(open[i]->lane, reads[i].batches, reads[i].count);
        if (open[i]->status == STORE_OK && reads[i].count == LOADED_FIRST)
            open[i]->status = read_to_end(open[i]->lane, s);
    }
    free(batches);
    free(reads);
}

static int64_t definition_version(const struct lane *l)
{
    return l->definition ? l->definition->version : 0;
}

static enum store_status finish_load(struct lane *l, int64_t boot_ms)
{
    if (l->definition_seq > l->tail.seq)
        return STORE_FAILED; /* the view is newer than our read of the ledger: read again */
    if (l->number > 0 && definition_version(l) < l->tail.version)
        return STORE_FAILED; /* the view is older than the definition that the lane follows: it will be written */
    if (lane_picks_at_random(l))
        randombytes_buf(&l->cursor, sizeof l->cursor);
    if (l->cursor < 0)
        l->cursor = -(l->cursor + 1);
    l->loaded = true;
    l->newest_ms = boot_ms;
    return STORE_OK;
}

/* Definitions before ledgers: batches newer than a definition's view are applied to it. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count)
{
    struct lane_loading **open = checked(calloc(count + 1, sizeof(struct lane_loading *)));
    int64_t boot_ms = clock_boot_ms();

    for (size_t i = 0; i < count; i++) {
        assert(!loads[i].lane->loaded && !loads[i].lane->window && !loads[i].lane->pending);
        loads[i].status = STORE_OK;
    }
    load_marks(s, open, list_open(loads, count, open));
    load_definitions(s, open, list_open(loads, count, open));
    load_ledgers(s, open, list_open(loads, count, open));
    for (size_t i = 0; i < count; i++) {
        if (loads[i].status == STORE_OK)
            loads[i].status = finish_load(loads[i].lane, boot_ms);
        if (loads[i].status != STORE_OK)
            lane_unload(loads[i].lane);
    }
    free(open);
}

void lane_load_none(struct lane *l)
{
    assert(!l->loaded && !l->window && l->number == 0);
    l->loaded = true;
    l->newest_ms = clock_boot_ms();
}
