/*
 * store/ledger.c -- the ledger as a lane reads it: its batches (append.c, confirm.c: its tail); and how far it is in the totals.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* ---- positions in the totals ---- */

static bool get_totals_position(const bson_t *doc, void *read, struct arena *a)
{
    (void)a;
    return find_int(doc, "seq", &((struct totals_position_read *)read)->seq);
}

enum store_status ledger_totals_positions(struct store *s, struct totals_position_read *reads, size_t count)
{
    static const struct keyed_reads positions =
        KEYED_READS("totals_positions", "l", struct totals_position_read, lane, seq, get_totals_position);

    return session_read_keyed(session_of(s), &positions, reads, count, NULL);
}

static void put_totals_position(struct bulk *updates, const struct totals_position_write *w, bool insert)
{
    AUTO_BSON filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    bson_t set;

    codec_id(&filter, "_id", w->coupon, "l", w->lane);
    BCON_APPEND(&filter, "seq", "{", "$lt", BCON_INT64(w->seq), "}");
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_INT64(&set, "seq", w->seq);
    if (w->at_ms)
        BSON_APPEND_DATE_TIME(&set, "at", w->at_ms);
    bson_append_document_end(&update, &set);
    bulk_update(updates, &filter, &update, insert);
}

/* An upsert meets a duplicate key if the position is already newer, or if an older one was inserted at the same moment: the same update
 * again, without upsert, settles both. */
enum store_status ledger_write_totals_positions(struct store *s, const struct totals_position_write *positions, size_t count)
{
    enum store_status status = STORE_EXISTS;

    for (int insert = 1; insert >= 0 && status == STORE_EXISTS; insert--) {
        struct bulk updates;

        bulk_begin(&updates, "update", "totals_positions");
        for (size_t i = 0; i < count; i++)
            put_totals_position(&updates, &positions[i], insert);
        status = bulk_send(session_of(s), &updates, NULL);
    }
    return status == STORE_OK ? STORE_OK : STORE_FAILED;
}

/* ---- the ledger ---- */

struct batches {
    struct batch *(*get)(const bson_t *doc);
    struct batch **items;
    size_t count, most;
};

static bool batch_row(const bson_t *doc, void *context)
{
    struct batches *list = context;
    struct batch *b;

    if (list->count == list->most)
        return true;
    b = list->get(doc);
    if (!b)
        return false;
    list->items[list->count++] = b;
    return true;
}

enum store_status ledger_find(struct session *session, bson_t *filter, const bson_t *options, size_t most,
                              struct batch *(*get)(const bson_t *doc), struct batch **batches, size_t *count)
{
    struct batches list = {get, batches, 0, most};
    enum store_status status = session_find(session, "ledger", filter, options, most, batch_row, &list);

    if (status != STORE_OK)
        while (list.count > 0)
            batch_free(list.items[--list.count]);
    *count = list.count;
    return status;
}

void ledger_range(bson_t *filter, const char *coupon, int64_t lane, int64_t after, int64_t before)
{
    bson_t range;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &range);
    codec_ledger_id(&range, "$gt", coupon, lane, after);
    if (before != INT64_MAX) {
        codec_ledger_id(&range, "$lt", coupon, lane, before);
    } else {
        BCON_APPEND(&range, "$lt", "{", "c", BCON_UTF8(coupon), "l", BCON_INT64(lane), "seq", BCON_MAXKEY, "}");
    }
    bson_append_document_end(filter, &range);
}

struct due_rows {
    struct due_batches *search;
    size_t due;
};

/* The first of the document's times after the place, as the index has them; INT64_MAX: unknown. And when the next one ends after at_ms. */
static int64_t first_due(const bson_t *doc, struct due_batches *search, int64_t seq)
{
    int64_t first = INT64_MAX, ms;
    bson_iter_t it;
    bson_t times;

    if (!find_array(doc, "due", &times) || !bson_iter_init(&it, &times))
        return first;
    while (bson_iter_next(&it)) {
        if (!get_time(&it, &ms))
            continue;
        if ((ms > search->after_ms || (ms == search->after_ms && seq > search->after_seq)) && ms < first)
            first = ms;
        if (ms > search->at_ms && (!search->next_due_ms || ms < search->next_due_ms))
            search->next_due_ms = ms;
    }
    return first;
}

static bool due_row(const bson_t *doc, void *context)
{
    struct due_rows *rows = context;
    struct due_batches *search = rows->search;
    const char *coupon;
    struct batch *b;
    int64_t seq, due_ms;

    if (!codec_id_int(doc, "seq", &coupon, &seq))
        return false;
    due_ms = first_due(doc, search, seq);
    if (due_ms > search->at_ms || rows->due == search->most)
        return true;
    rows->due++;
    search->past_ms = due_ms;
    search->past_seq = seq;
    b = codec_batch_get(doc);
    if (b)
        search->batches[search->count++] = b;
    else
        log_unreadable("ledger", doc);
    return true;
}

enum store_status ledger_due_batches(struct store *s, struct due_batches *search)
{
    AUTO_BCON filter = BCON_NEW("due", "{", "$exists", BCON_BOOL(true), "}", "_id.c", BCON_UTF8(search->coupon)); /* as the index has it */
    /* From just after the place on, in the order of the index. */
    AUTO_BCON options = BCON_NEW("min", "{", "_id.c", BCON_UTF8(search->coupon), "_id.l", BCON_INT64(search->lane),
                                 "due", BCON_DATE_TIME(search->after_ms), "_id.seq", BCON_INT64(search->after_seq + 1), "}", "max", "{",
                                 "_id.c", BCON_UTF8(search->coupon), "_id.l", BCON_INT64(search->lane), "due", BCON_MAXKEY,
                                 "_id.seq", BCON_MAXKEY, "}", "hint", "due");
    struct due_rows rows = {.search = search};
    enum store_status status;

    search->count = 0;
    search->past_ms = search->after_ms;
    search->past_seq = search->after_seq;
    search->next_due_ms = 0;
    status = session_find(session_of(s), "ledger", filter, options, search->most, due_row, &rows);
    search->more = rows.due == search->most;
    while (status != STORE_OK && search->count > 0)
        batch_free(search->batches[--search->count]);
    return status;
}

enum store_status ledger_page(struct store *s, const char *coupon, int64_t lane, int64_t after, int64_t before,
                              int direction, size_t most, struct batch **batches, size_t *count)
{
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(direction), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    *count = 0;
    if (most == 0)
        return STORE_OK;
    ledger_range(&filter, coupon, lane, after, before);
    return ledger_find(session_of(s), &filter, sort, most, codec_batch_get, batches, count);
}

enum store_status ledger_after(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                               struct batch **batches, size_t *count)
{
    return ledger_page(s, coupon, lane, after, INT64_MAX, 1, most, batches, count);
}

/* A batch that cannot be decoded fails only its own read. */
static bool ledgers_row(const bson_t *doc, size_t find, void *context)
{
    struct ledger_read *read = (struct ledger_read *)context + find;
    struct batch *b = codec_batch_get(doc);

    if (b) {
        read->batches[read->count++] = b;
    } else {
        log_unreadable("ledger", doc);
        read->status = STORE_UNREADABLE;
    }
    return true;
}

enum store_status ledgers_after(struct store *s, struct ledger_read *reads, size_t count)
{
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        reads[i].count = 0;
        reads[i].status = STORE_OK;
        finds[i].by = "_id";
        finds[i].most = reads[i].most;
        bson_init(&finds[i].filter);
        ledger_range(&finds[i].filter, reads[i].coupon, reads[i].lane, reads[i].after, INT64_MAX);
    }
    status = session_read_joined(session_of(s), "ledger", finds, count, ledgers_row, reads);
    status = settle_reads(status, &reads->status, sizeof *reads, count);
    for (size_t i = 0; i < count; i++)
        while (reads[i].status != STORE_OK && reads[i].count > 0)
            batch_free(reads[i].batches[--reads[i].count]);
    free(finds);
    return status;
}
