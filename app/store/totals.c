/*
 * store/totals.c -- the reporter's totals per coupon, lane and quarter hour.
 *
 * Shape    {_id: {c, l, at}, seq, issued, ..., by: {code: {issued, ...}}}
 * Adding   one update adds batches [first, last], only if seq < first, so every batch counts once. Whether it was applied is read back: an
 *          addition is in once the document's seq is last or later
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define ROUNDS_MAX 4

/* ---- adding ---- */

enum todo { TODO_UPDATE, TODO_INSERT, TODO_NOTHING };

struct addition {
    struct totals_write *write;
    enum todo todo;
};

struct additions {
    struct session *session;
    struct addition *items;
    size_t count;
};

static void put_totals_id(bson_t *doc, const char *name, const struct totals_write *w)
{
    BCON_APPEND(doc, name, "{", "c", BCON_UTF8(w->coupon), "l", BCON_INT64(w->lane), "at", BCON_DATE_TIME(w->quarter_ms), "}");
}

static void put_insert(struct bulk *inserts, const struct totals_write *w)
{
    bson_t *doc = bulk_next(inserts);

    put_totals_id(doc, "_id", w);
    BSON_APPEND_INT64(doc, "seq", w->last_seq);
    bson_fields_write(doc, report_members, report_members_count, 0, w->counts);
    if (w->by)
        codec_by_code_put(doc, w->by, false);
    bulk_end(inserts);
}

static void put_update(struct bulk *updates, const struct totals_write *w)
{
    AUTO_BSON filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    bson_t inc;

    put_totals_id(&filter, "_id", w);
    BCON_APPEND(&filter, "seq", "{", "$lt", BCON_INT64(w->first_seq), "}");
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$inc", &inc);
    bson_fields_write(&inc, report_members, report_members_count, 0, w->counts);
    if (w->by)
        codec_by_code_inc(&inc, w->by);
    bson_append_document_end(&update, &inc);
    BCON_APPEND(&update, "$set", "{", "seq", BCON_INT64(w->last_seq), "}");
    bulk_update(updates, &filter, &update, false);
}

static bool send_some(struct additions *g, enum todo todo)
{
    struct bulk bulk;

    bulk_begin(&bulk, todo == TODO_INSERT ? "insert" : "update", "totals");
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].todo == todo)
            (todo == TODO_INSERT ? put_insert : put_update)(&bulk, g->items[i].write);
    if (bulk.count == 0) {
        bulk_free(&bulk);
        return true;
    }
    AUTO_BSON reply;
    return bulk_run(g->session, &bulk, &reply);
}

/* The stored row says what became of an addition, whatever the replies said. Of an unreadable row nothing is known, and nothing is retried:
 * the caller reports it. */
static bool stored_row(const bson_t *doc, void *context)
{
    struct additions *g = context;
    struct totals_doc t;

    if (!totals_doc_read(doc, &t))
        return false;
    for (size_t i = 0; i < g->count; i++) {
        struct addition *item = &g->items[i];
        struct totals_write *w = item->write;

        if (item->todo == TODO_NOTHING || w->lane != t.lane || w->quarter_ms != t.quarter_ms ||
            strcmp(w->coupon, t.coupon) != 0)
            continue;
        w->unreadable = !t.readable;
        w->stored_seq = t.seq;
        w->applied = t.readable && t.seq >= w->last_seq;
        item->todo = t.readable && t.seq < w->first_seq ? TODO_UPDATE : TODO_NOTHING;
    }
    return true;
}

static bool read_back(struct additions *g)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].todo != TODO_NOTHING)
            put_totals_id(&in.values, in_next(&in), g->items[i].write);
    in_end(&in, &filter);
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].todo != TODO_NOTHING)
            g->items[i].todo = TODO_INSERT; /* unless there is a row */
    return session_find(g->session, "totals", &filter, NULL, in.count, stored_row, g) == STORE_OK;
}

/* Each round adds what is pending, then reads back. Additions of one call to one document must come in the order of seq: once an update
 * ran, earlier ones count as done. */
enum store_status mongo_totals_add(struct store *s, struct totals_write *writes, size_t count)
{
    struct additions g = {session_of(s), checked(calloc(count + 1, sizeof(struct addition))), count};
    bool good = true, pending = count > 0;

    for (size_t i = 0; i < count; i++) {
        writes[i].applied = writes[i].unreadable = false;
        g.items[i] = (struct addition){&writes[i], TODO_UPDATE};
    }
    for (int round = 0; good && pending && round < ROUNDS_MAX; round++) {
        good = send_some(&g, TODO_INSERT) && send_some(&g, TODO_UPDATE) && read_back(&g);
        pending = false;
        for (size_t i = 0; i < count; i++)
            pending = pending || g.items[i].todo != TODO_NOTHING;
    }
    free(g.items);
    return good && !pending ? STORE_OK : STORE_FAILED;
}

/* ---- reading ---- */

bool totals_doc_read(const bson_t *doc, struct totals_doc *t)
{
    bson_t id;

    *t = (struct totals_doc){.coupon = NULL};
    if (!find_document(doc, "_id", &id) || !find_text(&id, "c", &t->coupon) || !find_int(&id, "l", &t->lane) ||
        !find_time(&id, "at", &t->quarter_ms))
        return false;
    t->readable = find_int(doc, "seq", &t->seq) && bson_fields_read(doc, report_members, report_members_count, 0, &t->counts, NULL);
    return true;
}

void quarters_filter(bson_t *filter, const char *const *ids, size_t count, int64_t from_ms, int64_t to_ms)
{
    in_texts(filter, "_id.c", ids, count);
    BCON_APPEND(filter, "_id.at", "{", "$gte", BCON_DATE_TIME(from_ms), "$lt", BCON_DATE_TIME(to_ms), "}");
}
