/* engine/history.c -- see round.h: a redemption that has ended, from the ledger alone. */
#include <assert.h>

#include "coupons/fold.h"
#include "engine/round.h"

#define LINKS_MAX 10000 /* entries about one redemption: damage, if there are more */

/* One entry of the history, and its batch. */
struct link {
    struct batch *batch;
    const struct entry *entry;
    struct link *later;
};

/* The entry before `from` in the history: in the same batch, or in the one that `since` names. A hold follows on the issued one
 * beneath it. *entry NULL: there is none, which is damage. */
static enum store_status step_back(struct store *s, const struct lane *l, struct arena *a, struct link *from,
                                   struct link **back)
{
    const struct entry *e = from->entry;
    int64_t n = e->kind == ENTRY_HOLD ? e->from_n : e->n;
    uint32_t g = e->kind == ENTRY_HOLD ? e->from : e->g;
    struct link *link = arena_alloc(a, sizeof *link);
    enum store_status status;
    size_t count = 0;

    *link = (struct link){.later = from};
    *back = link;
    if (e->since == from->batch->head.seq) {
        link->batch = from->batch;
        link->entry = batch_find_before(from->batch, (size_t)(e - from->batch->entries), n, g);
        return STORE_OK;
    }
    status = s->ops->ledger(s, l->coupon, l->number, e->since - 1, 1, &link->batch, &count);
    if (status != STORE_OK || !count)
        return status;
    link->entry = batch_find_before(link->batch, link->batch->count, n, g);
    return STORE_OK;
}

static bool is_start(const struct entry *e)
{
    return entry_makes(e->kind) && e->kind != ENTRY_HOLD;
}

static void free_batches(struct link *first)
{
    for (struct link *link = first; link; link = link->later)
        if (link->batch && (!link->later || link->later->batch != link->batch))
            batch_free(link->batch);
}

enum store_status rebuild_ended(struct store *s, const struct lane *l, struct arena *a, int64_t n, uint32_t g,
                                struct use **found)
{
    struct link end = {.later = NULL}, *first = &end;
    enum store_status status = s->ops->ended(s, l->coupon, l->number, n, g, &end.batch);
    struct use *u;

    *found = NULL;
    if (status != STORE_OK)
        return status == STORE_NOT_FOUND ? STORE_OK : status;
    end.entry = batch_find_end(end.batch, n, g);
    for (int links = 0; status == STORE_OK && first->entry && !is_start(first->entry) && links < LINKS_MAX; links++)
        status = step_back(s, l, a, first, &first);
    if (status == STORE_OK && first->entry && is_start(first->entry)) {
        u = arena_alloc(a, sizeof *u);
        use_init(u, end.entry->user ? end.entry->user : "", end.entry->alias);
        for (const struct link *link = first; link; link = link->later)
            fold_use_entry(u, link->entry, &link->batch->head, link->batch->lane, a);
        *found = use_copy(u, a, true);
    }
    free_batches(first);
    return status;
}
