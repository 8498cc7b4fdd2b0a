/* store/lists.c -- look-ups across documents: coupons, buckets, the ledger backwards, a coupon's history. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/reconcile.h"
#include "store/session.h"

/* ---- coupons ---- */

/* Parse a position in a list of coupons: the creation time of the last one, and its id. */
static bool parse_position(const char *after, int64_t *created_ms, const char **id)
{
    char *end;

    errno = 0;
    *created_ms = strtoll(after, &end, 10);
    if (errno || end == after || *end != '.')
        return false;
    *id = end + 1;
    return coupon_id_valid(*id);
}

struct listed {
    struct coupon *coupon; /* NULL: it cannot be decoded */
    const char *id;        /* NULL: likewise */
    int64_t created_ms;
};

static bool get_listed(const bson_t *doc, void *item, struct arena *a)
{
    struct listed *out = item;
    const char *id;
    int64_t seq;

    if (find_text(doc, "_id", &id) && find_time(doc, "created", &out->created_ms)) {
        out->id = arena_strdup(a, id);
        out->coupon = codec_coupon_get(doc, a, &seq);
    }
    if (!out->coupon)
        log_unreadable("coupons", doc);
    return true;
}

static const char *state_text(int state)
{
    for (size_t i = 0; i < coupon_fields_count; i++)
        if (strcmp(coupon_fields[i].pointer, "/state") == 0)
            return coupon_fields[i].names[state];
    return NULL;
}

enum store_status mongo_coupons(struct store *s, const char *prefix, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next, bool *incomplete)
{
    static const struct doc_list list = {"coupons", get_listed, sizeof(struct listed), false};
    AUTO_BCON sort = BCON_NEW("sort", "{", "created", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    int64_t created_ms = 0;
    const char *id = NULL;
    enum store_status status;
    struct listed *rows;
    size_t row_count;

    *coupons = arena_array(a, most + 1, sizeof **coupons);
    *count = 0;
    *next = NULL;
    *incomplete = false;
    if (most == 0)
        return STORE_OK;
    if (after && !parse_position(after, &created_ms, &id))
        return STORE_NOT_FOUND;
    if (prefix)
        session_add_prefix(&filter, "_id", prefix);
    if (state >= 0)
        BSON_APPEND_UTF8(&filter, "view.def.state", state_text(state));
    else
        BCON_APPEND(&filter, "view.def.state", "{", "$ne", BCON_UTF8("deleted"), "}");
    if (active_at_ms) /* active, and not past its end; started by then, or without a start */
        BCON_APPEND(&filter, "view.live", "{", "$gt", BCON_DATE_TIME(active_at_ms), "}",
                    "view.def.starts_at", "{", "$not", "{", "$gt", BCON_DATE_TIME(active_at_ms), "}", "}");
    if (id)
        session_add_older(&filter, "created", created_ms, id);
    status = session_list(session_of(s), &list, &filter, sort, most + 1, a, &rows, &row_count);
    for (size_t i = 0; i < row_count && i < most; i++)
        if (rows[i].coupon)
            (*coupons)[(*count)++] = rows[i].coupon;
        else
            *incomplete = true;
    for (size_t i = most; row_count > most && i-- > 0 && !*next;)
        if (rows[i].id)
            *next = arena_printf(a, "%" PRId64 ".%s", rows[i].created_ms, rows[i].id);
    return status;
}

enum store_status mongo_coupon_lanes(struct store *s, const char *coupon, int64_t *lanes)
{
    struct batch *first = NULL;
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, coupon, 0, 0, 1, &first, &count);

    *lanes = count && first->lanes > 1 ? first->lanes : 1;
    if (count)
        batch_free(first);
    return status;
}

/* ---- buckets ---- */

enum store_status mongo_buckets(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                struct bucket *buckets)
{
    size_t count = from < end ? (size_t)(end - from) : 0;
    struct bucket_read *reads = checked(calloc(count + 1, sizeof *reads));
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        bucket_init(&buckets[i], from + (int64_t)i);
        reads[i] = (struct bucket_read){.coupon = coupon, .b = buckets[i].b, .bucket = &buckets[i]};
    }
    status = checkpoint_buckets(s, reads, count);
    for (size_t i = 0; i < count; i++)
        if (status == STORE_OK)
            bucket_fit(&buckets[i], next_n);
        else
            bucket_release(&buckets[i]);
    free(reads);
    return status;
}

/* ---- the ledger ---- */

enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count)
{
    return ledger_page(s, coupon, lane, 0, before, -1, most, batches, count);
}

/* Few, or others whose ids have the same hash. */
#define ENDED_MOST 4

enum store_status ledger_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch)
{
    AUTO_BCON by_terms = BCON_NEW("hint", "terms");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct session *session = session_of(s);
    struct batch *found[ENDED_MOST];
    enum store_status status;
    size_t count;

    *batch = NULL;
    if (!session_finds_names(session))
        return STORE_FAILED;
    put_int(&filter, "part", term_part(coupon));
    BSON_APPEND_INT64(&filter, "terms", term_of_redemption(&session->term_key, coupon, lane, n, g));
    BSON_APPEND_UTF8(&filter, "_id.c", coupon);
    status = ledger_find(session, &filter, by_terms, ENDED_MOST, codec_batch_get, found, &count);
    for (size_t i = 0; i < count; i++) {
        if (!*batch && (n >= 0 || found[i]->lane == lane) && batch_find_end(found[i], n, g))
            *batch = found[i];
        else
            batch_free(found[i]);
    }
    return status == STORE_OK && !*batch ? STORE_NOT_FOUND : status;
}

enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    size_t count;

    codec_ledger_id(&filter, "_id", coupon, lane, seq);
    status = ledger_find(session_of(s), &filter, NULL, 1, codec_batch_get, batch, &count);
    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
}

/* The seq of the batch before b in the alias's chain; 0: b is the oldest; -1: b has no entry of it. */
static int64_t chain_before(const struct batch *b, const char *alias)
{
    int64_t before = -1;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        int64_t of_entry = e->before < b->head.seq ? e->before : 0;

        if (entry_members[e->kind] & HAS_USER && strcmp(e->alias, alias) == 0 && of_entry > before)
            before = of_entry;
    }
    return before;
}

enum store_status mongo_chain(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias, chain_visit *visit,
                              void *context)
{
    enum store_status status = STORE_OK;

    while (seq > 0 && status == STORE_OK) {
        struct batch *b;

        status = mongo_ledger_at(s, coupon, lane, seq, &b);
        if (status != STORE_OK)
            break;
        seq = chain_before(b, alias);
        status = seq < 0 ? STORE_NOT_FOUND : visit(context, b);
        batch_free(b);
    }
    return status;
}

/* ---- operators' entries: by an index of only their batches ---- */

#define ASKED(coupon) "_id.c", BCON_UTF8(coupon), "e.by", "{", "$exists", BCON_BOOL(true), "}"
#define NEWEST_FIRST "sort", "{", "at", BCON_INT32(-1), "_id.l", BCON_INT32(-1), "_id.seq", BCON_INT32(-1), "}"

enum store_status mongo_history(struct store *s, const char *coupon, const struct history_place *from, size_t most,
                                struct batch **batches, size_t *count)
{
    AUTO_BCON filter = BCON_NEW(ASKED(coupon));
    AUTO_BCON options = BCON_NEW("projection", "{", "at", BCON_INT32(1), "e", "{", "$filter", "{", "input", "$e", "as", "e", "cond",
                                 "$$e.by", "}", "}", "}", NEWEST_FIRST);

    if (from) {
        /* from this place on, in the order of the history; the bound on `at` lets the index find the start of the page */
        BCON_APPEND(filter, "at", "{", "$lte", BCON_DATE_TIME(from->at_ms), "}", "$or", "[",
                    "{", "at", "{", "$lt", BCON_DATE_TIME(from->at_ms), "}", "}",
                    "{", "_id.l", "{", "$lt", BCON_INT64(from->lane), "}", "}",
                    "{", "_id.l", BCON_INT64(from->lane), "_id.seq", "{", "$lte", BCON_INT64(from->seq), "}", "}", "]");
    }
    return ledger_find(session_of(s), filter, options, most, codec_entries_get, batches, count);
}

enum store_status mongo_defined(struct store *s, const char *coupon, int64_t version, int64_t at_ms, struct batch **batch)
{
    AUTO_BCON filter = BCON_NEW(ASKED(coupon), "at", "{", "$lte", BCON_DATE_TIME(at_ms), "}", "_id.l", BCON_INT64(0),
                                "e.def.version", BCON_INT64(version));
    AUTO_BCON sort = BCON_NEW(NEWEST_FIRST);
    size_t count;
    enum store_status status = ledger_find(session_of(s), filter, sort, 1, codec_batch_get, batch, &count);

    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
}

enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count)
{
    *ids = arena_array(a, most + 1, sizeof **ids);
    for (*count = 0; *count < most; ++*count) {
        const char **next = &(*ids)[*count];
        enum store_status status = mongo_next_coupon(s, "ledger", after ? after : "", a, next);

        if (status != STORE_OK || !*next)
            return status;
        after = *next;
    }
    return STORE_OK;
}
