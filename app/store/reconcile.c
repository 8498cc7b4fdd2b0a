/* store/reconcile.c -- see reconcile.h: reading views as stored, and overwriting them. */
#include "store/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/codes.h"
#include "store/form.h"
#include "store/session.h"

/* ---- other processes ---- */

void mongo_name_process(const char *name)
{
    mongoc_init();
    mongoc_handshake_data_append(name, NULL, NULL);
}

/* A named process has more than the driver's own name in its handshake. The first page of the answer is enough. */
enum store_status mongo_others(struct store *s, struct arena *a, size_t *count, const char **where)
{
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_INT32(1), "cursor", "{", "}", "pipeline", "[",
        "{", "$currentOp", "{", "allUsers", BCON_BOOL(true), "idleConnections", BCON_BOOL(true), "}", "}",
        "{", "$match", "{", "appName", BCON_UTF8("coupons"), "clientMetadata.driver.name", BCON_UTF8("mongoc"), "}",
        "}",
        "{", "$project", "{", "client", BCON_INT32(1), "}", "}", "]");
    bson_error_t error = {0};
    bson_t cursor, page, row;
    const char *client;
    bson_iter_t it;

    *count = 0;
    *where = NULL;
    AUTO_BSON reply;
    if (!session_run_on(session_of(s), "admin", command, &reply, &error) || !find_document(&reply, "cursor", &cursor) ||
        !find_array(&cursor, "firstBatch", &page) || !bson_iter_init(&it, &page))
        return STORE_FAILED;
    for (; bson_iter_next(&it); ++*count)
        if (!*where && get_document(&it, &row) && find_text(&row, "client", &client))
            *where = arena_strdup(a, client);
    return STORE_OK;
}

/* ---- a coupon's documents in a collection ---- */

static enum store_status find_sorted(struct session *session, const char *collection, bson_t *filter, size_t most, session_row *row,
                                     void *context)
{
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");

    return session_find(session, collection, filter, sort, most, row, context);
}

/* See session_add_range(). */
static enum store_status list_range(struct store *s, const struct doc_list *list, const char *coupon, const char *name, const char *text,
                                    const int64_t *number, size_t most, struct arena *a, void *items, size_t *count)
{
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    session_add_range(&filter, coupon, name, text, number);
    return session_list(session_of(s), list, &filter, sort, most, a, items, count);
}

/* ---- reading ---- */

struct stored_batches {
    struct stored_batch *items;
    size_t count, most;
    const struct term_key *key;
};

static bool stored_batch_row(const bson_t *doc, void *context)
{
    struct stored_batches *list = context;
    struct batch *b = list->count < list->most ? codec_batch_get(doc) : NULL;
    struct stored_batch *item = &list->items[list->count];

    if (!b)
        return false;
    *item = (struct stored_batch){.batch = b};
    item->wrong = arena_strdup(&b->arena, form_of_batch(doc, b, list->key));
    item->erasing_readable = !bson_has_field(doc, "erasing") ||
                             (find_texts(doc, "erasing", &item->erasing, &b->arena) && item->erasing.count > 0);
    list->count++;
    return true;
}

enum store_status mongo_stored_batches(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                       const struct term_key *key, struct stored_batch *items, size_t *count)
{
    struct stored_batches list = {items, 0, most, key};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    ledger_range(&filter, coupon, lane, after, INT64_MAX);
    status = find_sorted(session_of(s), "ledger", &filter, most, stored_batch_row, &list);
    while (status != STORE_OK && list.count > 0)
        batch_free(items[--list.count].batch);
    *count = list.count;
    return status;
}

static bool get_checkpoint(const bson_t *doc, void *item, struct arena *a)
{
    struct stored_checkpoint *out = item;

    out->is_there = true;
    out->readable = codec_checkpoint_get(doc, a, &out->checkpoint);
    if (out->readable)
        out->wrong = arena_strdup(a, form_of_checkpoint(doc, &out->checkpoint));
    else
        out->checkpoint = (struct checkpoint){0};
    return true;
}

/* The document of a lane, if any. */
static enum store_status find_of_lane(struct store *s, const char *collection, const char *coupon, int64_t lane,
                                      session_get *get, void *item, struct arena *a)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    codec_id(&filter, "_id", coupon, "l", lane);
    status = session_find_one(session_of(s), collection, &filter, get, item, a);
    return status == STORE_NOT_FOUND ? STORE_OK : status;
}

enum store_status mongo_stored_checkpoint(struct store *s, const char *coupon, int64_t lane, struct arena *a, struct stored_checkpoint *out)
{
    *out = (struct stored_checkpoint){.is_there = false};
    return find_of_lane(s, "lanes", coupon, lane, get_checkpoint, out, a);
}

struct bucket_list {
    struct stored_bucket *items;
    size_t count;
    struct arena *arena;
};

static bool bucket_row(const bson_t *doc, void *context)
{
    struct bucket_list *list = context;
    struct stored_bucket *item = &list->items[list->count];
    const char *coupon;

    if (!codec_id_int(doc, "b", &coupon, &item->b) || item->b < 0)
        return true;
    item->readable = codec_bucket_get(doc, &item->bucket);
    item->wrong = item->readable ? arena_strdup(list->arena, form_of_bucket(doc, &item->bucket)) : NULL;
    list->count++;
    return true;
}

enum store_status mongo_stored_buckets(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                       struct stored_bucket *items, size_t *count)
{
    struct bucket_list list = {items, 0, a};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    session_add_range(&filter, coupon, "b", NULL, &from);
    status = find_sorted(session_of(s), "buckets", &filter, most, bucket_row, &list);
    while (status != STORE_OK && list.count > 0)
        if (items[--list.count].readable)
            bucket_release(&items[list.count].bucket);
    *count = list.count;
    return status;
}

static bool get_codes(const bson_t *doc, void *item, struct arena *a)
{
    struct stored_codes *out = item;
    const char *coupon;

    if (!codec_id_int(doc, "b", &coupon, &out->b))
        return false;
    if (!find_int(doc, "w", &out->w) || !code_bucket_get(doc, out->codes))
        memset(out->codes, 0, sizeof out->codes);
    out->wrong = arena_strdup(a, form_unknown(doc, "code_buckets"));
    for (int i = 0; i < BUCKET_SLOTS; i++)
        out->codes[i] = arena_strdup(a, out->codes[i]);
    return true;
}

enum store_status mongo_stored_codes(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                     struct stored_codes **items, size_t *count)
{
    static const struct doc_list list = {"code_buckets", get_codes, sizeof **items, true};

    return list_range(s, &list, coupon, "b", NULL, &from, most, a, items, count);
}

static bool get_coupon(const bson_t *doc, void *item, struct arena *a)
{
    struct stored_coupon *out = item;

    out->is_there = true;
    out->definition = codec_coupon_get(doc, a, &out->seq);
    if (out->definition)
        out->wrong = arena_strdup(a, form_of_coupon(doc, out->definition, out->seq, &out->changed_ms));
    if (!find_time(doc, "created", &out->created_ms))
        out->created_ms = -1;
    return true;
}

enum store_status mongo_stored_coupon(struct store *s, const char *coupon, struct arena *a, struct stored_coupon *out)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(coupon));
    enum store_status status;

    *out = (struct stored_coupon){.created_ms = -1, .changed_ms = -1};
    status = session_find_one(session_of(s), "coupons", filter, get_coupon, out, a);
    return status == STORE_NOT_FOUND ? STORE_OK : status;
}

static bool get_totals(const bson_t *doc, void *item, struct arena *a)
{
    struct totals_row *row = item;
    struct code_counts by = {.rows = NULL};
    struct totals_doc t;

    if (!totals_doc_read(doc, &t))
        return false;
    *row = (struct totals_row){.lane = t.lane, .quarter_ms = t.quarter_ms, .seq = t.seq};
    if (t.readable && !form_unknown(doc, "totals") && codec_by_code_get(doc, &by)) {
        row->counts = arena_alloc(a, sizeof *row->counts);
        *row->counts = t.counts;
        row->by = bson_has_field(doc, "by") ? code_counts_in(a, &by) : NULL;
    }
    code_counts_release(&by);
    return true;
}

enum store_status mongo_stored_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows,
                                      size_t *count)
{
    static const struct doc_list list = {"totals", get_totals, sizeof **rows, true};

    return list_range(s, &list, coupon, "l", NULL, NULL, 0, a, rows, count);
}

static bool get_totals_position(const bson_t *doc, void *item, struct arena *a)
{
    struct stored_totals_position *out = item;

    (void)a;
    out->is_there = true;
    out->readable = find_int(doc, "seq", &out->seq) && !form_unknown(doc, "totals_positions");
    if (!find_time(doc, "at", &out->at_ms))
        out->at_ms = 0;
    return true;
}

enum store_status mongo_stored_totals_position(struct store *s, const char *coupon, int64_t lane, struct stored_totals_position *out)
{
    *out = (struct stored_totals_position){.is_there = false};
    return find_of_lane(s, "totals_positions", coupon, lane, get_totals_position, out, NULL);
}

/* ---- look-ups of codes ---- */

enum store_status mongo_stored_look_ups(struct store *s, const char *coupon, struct arena *a,
                                        struct stored_look_up *items, size_t count)
{
    struct look_up *found = checked(calloc(count + 1, sizeof *found));
    enum store_status status;

    for (size_t i = 0; i < count; i++)
        found[i] = (struct look_up){.coupon = coupon, .code = items[i].code};
    status = codes_find(session_of(s), found, count);
    for (size_t i = 0; i < count; i++) {
        items[i].n = found[i].found ? found[i].n : -1;
        items[i].is_there = found[i].found;
        items[i].owner = found[i].found && found[i].owner[0] ? arena_strdup(a, found[i].owner) : NULL;
    }
    free(found);
    return status;
}

static bool get_look_up(const bson_t *doc, void *item, struct arena *a)
{
    struct stored_look_up *out = item;
    const char *coupon, *code;

    if (!codec_id_text(doc, "code", &coupon, &code))
        return false;
    out->code = arena_strdup(a, code);
    out->is_there = true;
    out->wrong = arena_strdup(a, form_unknown(doc, "codes"));
    if (!out->wrong && strcmp(coupon, DIRECTORY_OF_CODES) != 0 && bson_has_field(doc, "o"))
        out->wrong = "o"; /* only the service's have an owner */
    if (!find_int(doc, "n", &out->n))
        out->n = -1;
    return true;
}

enum store_status mongo_stored_look_ups_from(struct store *s, const char *coupon, const char *after, size_t most,
                                             struct arena *a, struct stored_look_up **items, size_t *count)
{
    static const struct doc_list list = {"codes", get_look_up, sizeof **items, true};

    return list_range(s, &list, coupon, "code", after, NULL, most, a, items, count);
}

/* ---- coupons that have views ---- */

const char *const mongo_view_collections[] = {"coupons", "lanes", "buckets", "totals", "totals_positions", "codes"};
const size_t mongo_view_collections_count = sizeof mongo_view_collections / sizeof *mongo_view_collections;

/* item: a const char *. */
static bool get_id(const bson_t *doc, void *item, struct arena *a)
{
    const char *id;
    bson_t key;

    if (!find_text(doc, "_id", &id) && !(find_document(doc, "_id", &key) && find_text(&key, "c", &id)))
        return false;
    *(const char **)item = arena_strdup(a, id);
    return true;
}

/* {_id: {$gt: {c: after, x: MaxKey}, $lt: {c: before}}}; before NULL: no bound. */
static void put_gap(struct in_clause *gaps, const char *after, const char *before)
{
    bson_t gap, range, key;

    bson_append_document_begin(&gaps->values, in_next(gaps), -1, &gap);
    BSON_APPEND_DOCUMENT_BEGIN(&gap, "_id", &range);
    BCON_APPEND(&range, "$gt", "{", "c", BCON_UTF8(after), "x", BCON_MAXKEY, "}");
    BSON_APPEND_DOCUMENT_BEGIN(&range, "$lt", &key);
    if (before)
        BSON_APPEND_UTF8(&key, "c", before);
    else
        BSON_APPEND_MAXKEY(&key, "c");
    bson_append_document_end(&range, &key);
    bson_append_document_end(&gap, &range);
    bson_append_document_end(&gaps->values, &gap);
}

/* Are there documents between those of these coupons? The service's directory of codes is no coupon. */
static enum store_status find_strays(struct session *session, const char *collection, const char *after, const char *const *ids,
                                     size_t count, bool open, bool *strays)
{
    AUTO_BCON ids_only = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause gaps;

    BSON_APPEND_ARRAY_BEGIN(&filter, "$or", &gaps.values);
    gaps.count = 0;
    for (size_t i = 0; i < count + open; i++) {
        const char *before = i < count ? ids[i] : NULL;
        bool around = strcmp(after, DIRECTORY_OF_CODES) < 0 && (!before || strcmp(before, DIRECTORY_OF_CODES) > 0);

        if (around)
            put_gap(&gaps, after, DIRECTORY_OF_CODES);
        put_gap(&gaps, around ? DIRECTORY_OF_CODES : after, before);
        if (before)
            after = before;
    }
    bson_append_array_end(&filter, &gaps.values);
    return session_find(session, collection, &filter, ids_only, 1, session_any_row, strays);
}

#define IDS_ASCENDING "projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(1), "}"

enum store_status mongo_next_definitions(struct store *s, const char *after, size_t most, struct arena *a, const char ***ids, size_t *count,
                                         bool *strays)
{
    const struct doc_list list = {mongo_view_collections[0], get_id, sizeof **ids, true};
    AUTO_BCON filter = BCON_NEW("_id", "{", "$gt", BCON_UTF8(after), "}");
    AUTO_BCON options = BCON_NEW(IDS_ASCENDING);
    enum store_status status = session_list(session_of(s), &list, filter, options, most, a, ids, count);

    *strays = false;
    for (size_t i = 1; i <= mongo_view_collections_count && status == STORE_OK && !*strays; i++)
        status = find_strays(session_of(s), i < mongo_view_collections_count ? mongo_view_collections[i] : "ledger", after, *ids,
                             *count, *count < most, strays);
    return status;
}

struct next_id {
    const char *coupon;
    const char *foreign; /* coupon NULL: the _id of a document of none */
};

static bool get_next_id(const bson_t *doc, void *item, struct arena *a)
{
    struct next_id *next = item;
    char *text;

    if (get_id(doc, &next->coupon, a))
        return true;
    text = document_id_text(doc);
    next->foreign = arena_strdup(a, text ? text : "");
    bson_free(text);
    return true;
}

/* By the index on _id, skipping all documents of the last one. A document of no coupon that is read here comes after all that have one. */
enum store_status mongo_next_coupon(struct store *s, const char *collection, const char *after, struct arena *a,
                                    const char **id)
{
    bool whole = strcmp(collection, mongo_view_collections[0]) == 0; /* the _id is the coupon alone */
    const struct doc_list list = {collection, get_next_id, sizeof(struct next_id), false};
    AUTO_BCON filter = whole ? BCON_NEW("_id", "{", "$gt", BCON_UTF8(after), "}")
                             : BCON_NEW("_id", "{", "$gt", "{", "c", BCON_UTF8(after), "x", BCON_MAXKEY, "}", "}");
    AUTO_BCON options = BCON_NEW(IDS_ASCENDING);
    struct next_id *next;
    size_t count;
    enum store_status status = session_list(session_of(s), &list, filter, options, 1, a, &next, &count);

    *id = !count ? NULL : next->coupon ? next->coupon : next->foreign;
    return count && !next->coupon ? STORE_UNREADABLE : status;
}

/* ---- writing ---- */

static void bucket_id(bson_t *doc, const struct rewrite *m)
{
    codec_id(doc, "_id", m->coupon, "b", m->b);
}

static void coupon_id(bson_t *doc, const struct rewrite *m)
{
    BSON_APPEND_UTF8(doc, "_id", m->coupon);
}

static void totals_id(bson_t *doc, const struct rewrite *m)
{
    BCON_APPEND(doc, "_id", "{", "c", BCON_UTF8(m->coupon), "l", BCON_INT64(m->lane), "at", BCON_DATE_TIME(m->quarter_ms), "}");
}

static void lane_id(bson_t *doc, const struct rewrite *m)
{
    codec_id(doc, "_id", m->coupon, "l", m->lane);
}

static void look_up_id(bson_t *doc, const struct rewrite *m)
{
    codes_put_id(doc, "_id", m->coupon, m->code);
}

static void directory_id(bson_t *doc, const struct rewrite *m)
{
    codes_put_id(doc, "_id", DIRECTORY, m->code);
}

/* Also where the id names the batch: only if that erases the alias. */
static void erasing_id(bson_t *doc, const struct rewrite *m)
{
    codec_ledger_id(doc, "_id", m->coupon, m->lane, m->seq);
    BCON_APPEND(doc, "e", "{", "$elemMatch", "{", "k", BCON_UTF8(entry_kind_name(ENTRY_ERASE)), "a", BCON_UTF8(m->alias), "}", "}");
}

static void set_erasing(bson_t *set, const struct rewrite *m)
{
    BSON_APPEND_UTF8(set, "erasing", m->alias);
}

static void set_checkpoint(bson_t *set, const struct rewrite *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_checkpoint_put(&view, m->checkpoint);
    bson_append_document_end(set, &view);
}

static void set_bucket(bson_t *set, const struct rewrite *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_bucket_put(&view, m->bucket);
    bson_append_document_end(set, &view);
}

static void set_coupon(bson_t *set, const struct rewrite *m)
{
    bson_t view;

    BSON_APPEND_DATE_TIME(set, "created", m->created_ms);
    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_coupon_put(&view, m->definition, m->seq, m->changed_ms);
    bson_append_document_end(set, &view);
}

static void set_totals(bson_t *set, const struct rewrite *m)
{
    BSON_APPEND_INT64(set, "seq", m->seq);
    bson_fields_write(set, report_members, report_members_count, 0, m->counts);
    if (m->by)
        codec_by_code_put(set, m->by, true);
}

static void set_totals_position(bson_t *set, const struct rewrite *m)
{
    BSON_APPEND_INT64(set, "seq", m->seq);
    if (m->at_ms)
        BSON_APPEND_DATE_TIME(set, "at", m->at_ms);
    else
        BSON_APPEND_NULL(set, "at"); /* the stored time may be a later batch's */
}

static void set_look_up(bson_t *set, const struct rewrite *m)
{
    put_int(set, "n", m->n);
    put_int(set, "w", m->w);
}

static void set_directory(bson_t *set, const struct rewrite *m)
{
    BSON_APPEND_UTF8(set, "o", m->coupon);
    put_int(set, "n", m->n);
    put_int(set, "w", m->w);
}

static const struct rewrite_row {
    const char *collection;
    void (*put_id)(bson_t *doc, const struct rewrite *m);
    void (*put_set)(bson_t *set, const struct rewrite *m);
    const char *guard; /* the field that must still be found_seq */
    const char *operator; /* NULL: $set */
} rewrite_rows[REWRITE_KIND_COUNT] = {
    [REWRITE_BUCKET] = {"buckets", bucket_id, set_bucket, "view.seq", NULL},
    [REWRITE_COUPON] = {"coupons", coupon_id, set_coupon, "view.seq", NULL},
    [REWRITE_CHECKPOINT] = {"lanes", lane_id, set_checkpoint, "view.seq", NULL},
    [REWRITE_TOTALS] = {"totals", totals_id, set_totals, "seq", NULL},
    [REWRITE_TOTALS_POSITION] = {"totals_positions", lane_id, set_totals_position, "seq", NULL},
    [REWRITE_LOOK_UP] = {"codes", look_up_id, set_look_up, "n", NULL},
    [REWRITE_DIRECTORY] = {"codes", directory_id, set_directory, "n", NULL},
    [REWRITE_ERASING] = {"ledger", erasing_id, set_erasing, NULL, "$addToSet"},
};

/* Send one command for those of one kind, removals or not, from *next on, as many as fit. */
static enum store_status send_some(struct session *session, enum rewrite_kind kind, bool remove, const struct rewrite *rewrites,
                                   size_t count, size_t *next, size_t *done)
{
    const struct rewrite_row *row = &rewrite_rows[kind];
    enum store_status status;
    struct bulk bulk;
    int64_t n = 0;

    bulk_begin(&bulk, remove ? "delete" : "update", row->collection);
    for (; *next < count && bulk.count < CODES_PER_COMMAND && bulk.list.len < COMMAND_BYTES_MAX; ++*next) {
        AUTO_BSON filter = BSON_INITIALIZER, set = BSON_INITIALIZER;
        const struct rewrite *m = &rewrites[*next];
        bool guarded = m->guarded && row->guard;

        if (m->kind != kind || m->remove != remove)
            continue;
        row->put_id(&filter, m);
        if (guarded && m->found_seq >= 0)
            bson_append_int64(&filter, row->guard, -1, m->found_seq);
        else if (guarded)
            BCON_APPEND(&filter, row->guard, "{", "$exists", BCON_BOOL(false), "}");
        if (remove) {
            bulk_delete(&bulk, &filter);
            continue;
        }
        row->put_set(&set, m);
        AUTO_BCON update = BCON_NEW(row->operator ? row->operator : "$set", BCON_DOCUMENT(&set));
        if (kind == REWRITE_COUPON)
            BCON_APPEND(update, "$unset", "{", "cleaned", BCON_INT32(1), "}");
        /* if a guard does not match an existing document, the upsert is refused as a duplicate */
        bulk_update(&bulk, &filter, update, row->guard && (!m->guarded || m->found_seq < 0));
    }
    status = bulk_send(session, &bulk, &n);
    *done += (size_t)n;
    return status == STORE_EXISTS ? STORE_OK : status;
}

/* ---- the index of a batch ---- */

static const char *const index_from[] = {"who", "part", "terms", "due"}; /* what it is made from, and what is written */

struct indexing {
    const struct rewrite *rewrite;
    bson_t filter, set, unset; /* empty: nothing is to be changed */
};

/* Make the update: only if the names, and the index, are still those of doc. */
static bool indexing_row(const bson_t *doc, void *context)
{
    struct indexing *x = context;
    struct batch *b = codec_batch_get(doc);
    const char *wrong;
    bson_iter_t it;
    bson_t one;

    if (!b)
        return false;
    wrong = form_of_batch(doc, b, x->rewrite->term_key);
    if (wrong && form_is_index(wrong)) {
        codec_ledger_id(&x->filter, "_id", b->coupon, b->lane, b->head.seq);
        put_int(&x->set, "part", term_part(b->coupon));
        codec_terms_put(&x->set, b, x->rewrite->term_key);
        codec_due_put(&x->set, b);
        for (size_t i = 0; i < sizeof index_from / sizeof *index_from; i++) {
            bson_append_document_begin(&x->filter, index_from[i], -1, &one);
            if (bson_iter_init_find(&it, doc, index_from[i]))
                bson_append_iter(&one, "$eq", -1, &it);
            else
                BSON_APPEND_BOOL(&one, "$exists", false);
            bson_append_document_end(&x->filter, &one);
            if (i > 0 && !bson_has_field(&x->set, index_from[i]))
                bson_append_int32(&x->unset, index_from[i], -1, 1);
        }
    }
    batch_free(b);
    return true;
}

static enum store_status rewrite_index(struct session *session, const struct rewrite *m, size_t *done)
{
    struct indexing x = {.rewrite = m, .filter = BSON_INITIALIZER, .set = BSON_INITIALIZER, .unset = BSON_INITIALIZER};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    codec_ledger_id(&filter, "_id", m->coupon, m->lane, m->seq);
    status = session_find(session, "ledger", &filter, NULL, 1, indexing_row, &x);
    if (status == STORE_OK && !bson_empty(&x.filter)) { /* otherwise somebody else has repaired it */
        AUTO_BCON update = BCON_NEW("$set", BCON_DOCUMENT(&x.set), "$unset", BCON_DOCUMENT(&x.unset));

        status = session_update(session, "ledger", &x.filter, update, false);
    }
    *done += status == STORE_OK;
    bson_destroy(&x.filter);
    bson_destroy(&x.set);
    bson_destroy(&x.unset);
    return status == STORE_NOT_FOUND ? STORE_OK : status;
}

enum store_status mongo_rewrite(struct store *s, const struct rewrite *rewrites, size_t count, size_t *done)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < count && status == STORE_OK; i++)
        if (rewrites[i].kind == REWRITE_INDEX)
            status = rewrite_index(session_of(s), &rewrites[i], done);
    for (int kind = 0; kind < REWRITE_INDEX; kind++)
        for (int write = 0; write < 2; write++)
            for (size_t next = 0; next < count && status == STORE_OK;)
                status = send_some(session_of(s), (enum rewrite_kind)kind, !write, rewrites, count, &next, done);
    return status;
}

enum store_status mongo_remove_views(struct store *s, const char *coupon)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < mongo_view_collections_count && status == STORE_OK; i++) {
        AUTO_BCON filter = BCON_NEW(i == 0 ? "_id" : "_id.c", BCON_UTF8(coupon));

        status = session_delete(session_of(s), mongo_view_collections[i], filter, NULL);
    }
    return status;
}
