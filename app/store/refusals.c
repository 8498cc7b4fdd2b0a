/*
 * store/refusals.c -- counts of refusals, per coupon, quarter hour and writer.
 *
 * Shape    {_id: {c, at, w}, sold_out: 3, ...}: a count per code. w is the writer: a random id, of one process for a while
 * Writing  sends w's total there, not the increment, with $max: repeated or late, it counts once
 * Reading  adds up the writers. An unreadable document is skipped: nothing is decided by it
 */
#include <string.h>

#include "store/bson_fields.h"
#include "store/session.h"

/* ---- writing ---- */

static void put_write(struct bulk *updates, const char *writer, const struct refusals_write *w)
{
    AUTO_BCON filter = BCON_NEW("_id", "{", "c", BCON_UTF8(w->coupon), "at", BCON_DATE_TIME(w->quarter_ms), "w", BCON_UTF8(writer), "}");
    AUTO_BSON counts = BSON_INITIALIZER;

    for (int i = 0; i < CPN_REFUSAL_COUNT; i++)
        if (w->counts.of[i])
            put_int(&counts, refusal_name((enum cpn_refusal)i), w->counts.of[i]);
    AUTO_BCON update = BCON_NEW("$max", BCON_DOCUMENT(&counts));
    bulk_update(updates, filter, update, true);
}

enum store_status mongo_refusals_write(struct store *s, const char *writer, const struct refusals_write *writes, size_t count)
{
    struct bulk updates;

    bulk_begin(&updates, "update", "refusals");
    for (size_t i = 0; i < count; i++)
        put_write(&updates, writer, &writes[i]);
    return bulk_send(session_of(s), &updates, NULL);
}

enum store_status mongo_refusals_clean(struct store *s, int64_t before_ms)
{
    AUTO_BCON filter = BCON_NEW("_id.at", "{", "$lt", BCON_DATE_TIME(before_ms), "}");

    return session_delete(session_of(s), "refusals", filter, NULL);
}

/* ---- reading ---- */

void refusal_counts_add(struct refusal_counts *to, const struct refusal_counts *more)
{
    for (int i = 0; i < CPN_REFUSAL_COUNT; i++)
        to->of[i] += more->of[i];
}

/* Skips names that this version does not know: they are a newer version's. */
bool refusals_doc_read(const bson_t *doc, struct refusals_doc *out)
{
    bson_iter_t it;
    bson_t id;

    *out = (struct refusals_doc){.coupon = NULL};
    if (!find_document(doc, "_id", &id) || !find_text(&id, "c", &out->coupon) || !find_time(&id, "at", &out->quarter_ms) ||
        !bson_iter_init(&it, doc))
        return false;
    while (bson_iter_next(&it)) {
        enum cpn_result result = result_of_name(bson_iter_key(&it));
        enum cpn_refusal refusal = result == CPN_RESULT_COUNT ? CPN_REFUSAL_COUNT : result_refusal(result);

        if (refusal != CPN_REFUSAL_COUNT && (!get_exact(&it, &out->counts.of[refusal]) || out->counts.of[refusal] < 0))
            return false;
    }
    return true;
}

static bool counted_row(const bson_t *doc, void *context)
{
    struct refusals_doc row;

    if (refusals_doc_read(doc, &row))
        refusal_counts_add(context, &row.counts);
    else
        log_unreadable("refusals", doc);
    return true;
}

enum store_status mongo_refusals(struct store *s, const char *coupon, int64_t from_ms, int64_t to_ms, struct refusal_counts *counts)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    *counts = (struct refusal_counts){{0}};
    quarters_filter(&filter, &coupon, 1, from_ms, to_ms);
    return session_find(session_of(s), "refusals", &filter, NULL, 0, counted_row, counts);
}
