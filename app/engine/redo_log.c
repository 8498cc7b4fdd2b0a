/* engine/redo_log.c -- see redo_log.h. */
#include "engine/redo_log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"

static void forget_redo_bucket(struct lane *l, struct redo_bucket *wb)
{
    HASH_DEL(l->redo_buckets, wb);
    free(wb->batches);
    free(wb);
}

static void drop_batch(struct lane *l, struct redo_batch *w)
{
    assert(l->redo_entries >= w->batch->count + 1 && l->redo_bytes >= w->bytes);
    DL_DELETE(l->redo_log, w);
    l->redo_entries -= w->batch->count + 1;
    l->redo_bytes -= w->bytes;
    l->redo_ranges -= batch_has_ranges(w->batch);
    batch_free(w->batch);
    free(w);
}

void redo_log_clear(struct lane *l)
{
    struct redo_bucket *wb, *next;

    HASH_ITER(hh, l->redo_buckets, wb, next)
        forget_redo_bucket(l, wb);
    while (l->redo_log)
        drop_batch(l, l->redo_log);
    assert(!l->redo_entries && !l->redo_bytes && !l->redo_ranges);
}

bool batch_has_ranges(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (entry_members[b->entries[i].kind] & HAS_RANGE)
            return true;
    return false;
}

static void index_bucket(struct lane *l, struct redo_batch *w, int64_t b)
{
    struct redo_bucket *wb;

    HASH_FIND(hh, l->redo_buckets, &b, sizeof b, wb);
    if (!wb) {
        wb = checked(calloc(1, sizeof *wb));
        wb->b = b;
        HASH_ADD(hh, l->redo_buckets, b, sizeof wb->b, wb);
    }
    if (wb->count && wb->batches[wb->count - 1] == w)
        return;
    if (wb->count == wb->capacity) {
        wb->capacity = wb->capacity ? wb->capacity * 2 : 1;
        wb->batches = checked(realloc(wb->batches, wb->capacity * sizeof *wb->batches));
    }
    wb->batches[wb->count++] = w;
}

static void unindex_bucket(struct lane *l, struct redo_batch *w, int64_t b)
{
    struct redo_bucket *wb;

    HASH_FIND(hh, l->redo_buckets, &b, sizeof b, wb);
    if (!wb || wb->batches[0] != w)
        return;
    if (wb->count == 1) {
        forget_redo_bucket(l, wb);
        return;
    }
    wb->count--;
    memmove(wb->batches, wb->batches + 1, wb->count * sizeof *wb->batches);
}

static void note_buckets(struct lane *l, struct redo_batch *w, const struct entry *e)
{
    int64_t first, end;

    if (!entry_buckets(e, &first, &end))
        return;
    if (w->end_b == 0 || first < w->first_b)
        w->first_b = first;
    if (end > w->end_b)
        w->end_b = end;
    if (entry_members[e->kind] & HAS_SLOT)
        index_bucket(l, w, first);
}

struct redo_batch *redo_log_add(struct lane *l, struct batch *b, bool own)
{
    struct redo_batch *w = checked(calloc(1, sizeof *w));

    assert(!l->redo_log || l->redo_log->prev->batch->head.seq + 1 == b->head.seq);
    assert(b->head.seq > l->checkpoint.seq);
    w->batch = b;
    w->cached = own;
    DL_APPEND(l->redo_log, w);
    l->redo_entries += b->count + 1;
    w->bytes = b->arena.bytes;
    l->redo_bytes += w->bytes;
    l->redo_ranges += batch_has_ranges(b);
    for (size_t i = 0; i < b->count; i++) {
        note_buckets(l, w, &b->entries[i]);
        lane_note_due(l, &b->entries[i], b->head.seq);
    }
    return w;
}

void redo_log_trim(struct lane *l, int64_t seq)
{
    struct redo_batch *w;

    while ((w = l->redo_log) && w->batch->head.seq <= seq) {
        for (size_t i = 0; i < w->batch->count; i++) {
            const struct entry *e = &w->batch->entries[i];

            if ((entry_members[e->kind] & HAS_SLOT) && e->n >= 0)
                unindex_bucket(l, w, bucket_of(e->n));
        }
        drop_batch(l, w);
    }
}

void redo_log_apply(const struct lane *l, struct bucket *k)
{
    struct redo_bucket *wb;
    struct redo_batch *w;

    if (l->redo_ranges) {
        DL_FOREACH(l->redo_log, w)
            if (k->b >= w->first_b && k->b < w->end_b)
                fold_bucket(k, w->batch);
        return;
    }
    HASH_FIND(hh, l->redo_buckets, &k->b, sizeof k->b, wb);
    for (size_t i = 0; wb && i < wb->count; i++)
        fold_bucket(k, wb->batches[i]->batch);
}

/* The first batch after those in the filter; NULL: none. */
static const struct redo_batch *first_unnoted(const struct lane *l)
{
    const struct redo_batch *w = l->redo_log ? l->redo_log->prev : NULL; /* the last one */

    if (!w || w->batch->head.seq <= l->filter.seq)
        return NULL;
    while (w != l->redo_log && w->prev->batch->head.seq > l->filter.seq)
        w = w->prev;
    return w;
}

bool redo_log_note_users(struct lane *l, struct store *s)
{
    if (!l->filter.complete)
        return true;
    for (const struct redo_batch *w = first_unnoted(l); w; w = w->next)
        if (!filter_add_batch(&l->filter, s, w->batch))
            return false;
    if (l->filter.seq != l->tail.seq) /* batches in between were never in memory: the lane was loaded past them */
        filter_drop(&l->filter);
    return true;
}
