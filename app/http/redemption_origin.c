/* http/redemption_origin.c -- see redemption_origin.h. */
#include "http/redemption_origin.h"

#include "store/mongo.h"

enum store_status origin_of(struct store *session, const char *coupon, int64_t lane, int64_t since, int64_t n, uint32_t g,
                            struct origin *m, size_t *reads)
{
    *m = (struct origin){.at_ms = 0};
    for (int step = 0; since > 0 && step < REDEMPTION_ENTRIES_MAX; step++) {
        const struct entry *e;
        struct batch *b;
        enum store_status s = mongo_ledger_at(session, coupon, lane, since, &b);
        int64_t before = 0;

        *reads += 1;
        if (s != STORE_OK)
            return s;
        e = batch_find_first(b, n, g); /* the first if several: its `since` is another batch */
        if (e && e->n == n && e->g == g && entry_makes(e->kind))
            *m = (struct origin){.at_ms = b->head.at_ms, .ordinal = e->ordinal};
        else if (e)
            before = e->since;
        batch_free(b);
        if (m->at_ms)
            return STORE_OK;
        since = before < since ? before : 0;
    }
    return STORE_NOT_FOUND;
}

enum slot_state redemption_ended_as(const struct entry *end)
{
    return end->kind == ENTRY_CANCEL ? SLOT_CANCELLED : end->kind == ENTRY_EXPIRE ? SLOT_EXPIRED : SLOT_REVERSED;
}
