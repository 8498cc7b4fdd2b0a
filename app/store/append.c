/*
 * store/append.c -- appends batches to the ledger, and finds out whose batch took a seq: ours, or another process's.
 *
 * How      one unordered insert; a batch whose seq is taken is read with majority, so ours or theirs is final. What the reply leaves open
 *          is UNKNOWN, never guessed
 */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* Appends; for those with APPEND_DUPLICATE, the batch that took their seq must be read. */
struct duplicates {
    struct append *appends;
    size_t count;
    size_t taken; /* how many those are */
};

static bool duplicate_row(const bson_t *doc, void *context)
{
    struct duplicates *t = context;
    const char *coupon, *id;
    int64_t lane, seq;
    size_t found = 0;

    if (!codec_id_int(doc, "l", &coupon, &lane) || !codec_id_int(doc, "seq", &coupon, &seq) ||
        !find_text(doc, "batch", &id))
        return false;
    for (size_t i = 0; i < t->count; i++) {
        const struct batch *b = t->appends[i].batch;

        if (t->appends[i].result != APPEND_DUPLICATE || b->lane != lane || b->head.seq != seq ||
            strcmp(b->coupon, coupon) != 0)
            continue;
        t->appends[i].result = strcmp(b->id, id) == 0 ? APPEND_OURS : APPEND_THEIRS;
        found++;
    }
    assert(found <= 1); /* no two are of the same lane */
    return true;
}

/* A duplicate key can show before a majority has the document: then it stays UNKNOWN, and is inserted again later. */
static void resolve_duplicates(struct session *session, struct duplicates *t)
{
    AUTO_BCON ids = BCON_NEW("projection", "{", "batch", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < t->count; i++) {
        const struct batch *b = t->appends[i].batch;

        if (t->appends[i].result == APPEND_DUPLICATE)
            codec_ledger_id(&in.values, in_next(&in), b->coupon, b->lane, b->head.seq);
    }
    in_end(&in, &filter);
    (void)session_find(session, "ledger", &filter, ids, t->taken, duplicate_row, t); /* what it does not give stays open */
    for (size_t i = 0; i < t->count; i++)
        if (t->appends[i].result == APPEND_DUPLICATE)
            t->appends[i].result = APPEND_UNKNOWN;
}

/* Set the results of appends[0..count) from their insert's reply. */
static void classify(struct session *session, struct append *appends, size_t count, const bson_t *reply)
{
    struct duplicates duplicates = {appends, count, 0};
    int64_t index, code;
    bson_iter_t it;

    for (size_t i = 0; i < count; i++)
        appends[i].result = APPEND_OURS;
    if (!reply_errors(reply, &it))
        return;
    while (reply_next_error(&it, &index, &code)) {
        bool duplicate = code == CODE_DUPLICATE_KEY;

        if (index < 0 || (uint64_t)index >= count) { /* we do not understand this reply */
            for (size_t i = 0; i < count; i++)
                appends[i].result = APPEND_UNKNOWN;
            return;
        }
        appends[index].result = duplicate ? APPEND_DUPLICATE : APPEND_UNKNOWN;
        duplicates.taken += duplicate;
        if (!duplicate)
            log_event(LOG_ERROR, "store.append_refused", F_WORD("coupon", appends[index].batch->coupon), F_INT("code", code));
    }
    if (duplicates.taken)
        resolve_duplicates(session, &duplicates);
}

/* Insert as many as fit into one command; returns how many. */
static size_t append_some(struct session *session, struct append *appends, size_t count)
{
    struct bulk inserts;
    size_t sent = 0;
    AUTO_BSON reply;

    bulk_begin(&inserts, "insert", "ledger");
    while (sent < count && inserts.list.len < COMMAND_BYTES_MAX) {
        codec_batch_put(bulk_next(&inserts), appends[sent].batch, &session->term_key);
        bulk_end(&inserts);
        appends[sent++].result = APPEND_UNKNOWN;
    }
    if (bulk_run(session, &inserts, &reply))
        classify(session, appends, sent, &reply);
    assert(sent > 0 && sent <= count); /* a document is smaller than a command */
    return sent;
}

enum store_status ledger_append(struct store *s, struct append *appends, size_t count)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < count; i++) {
        const struct batch *b = appends[i].batch;

        assert(b->count > 0 && b->id[0] && b->head.at_ms > 0);
        appends[i].result = APPEND_UNKNOWN;
    }
    if (count && !session_finds_names(session_of(s))) /* for the terms */
        return STORE_FAILED;
    for (size_t done = 0; done < count;)
        done += append_some(session_of(s), appends + done, count - done);
    for (size_t i = 0; i < count; i++) {
        assert(appends[i].result <= APPEND_THEIRS);
        if (appends[i].result == APPEND_UNKNOWN)
            status = STORE_FAILED;
    }
    return status;
}
