/*
 * store/checkpoint_read.c -- reading what is stored of a lane beside its ledger: its checkpoint, its buckets, its coupon's definition.
 * Writing it: checkpoint_write.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* ---- checkpoints ---- */

struct checkpoint_reads {
    struct checkpoint_read *items;
    size_t count;
};

static bool checkpoint_row(const bson_t *doc, void *context)
{
    const struct checkpoint_reads *list = context;
    const char *coupon;
    bool failed = false;
    int64_t lane;

    if (!codec_id_int(doc, "l", &coupon, &lane))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        struct checkpoint_read *r = &list->items[i];

        if (r->lane != lane || strcmp(r->coupon, coupon) != 0 || codec_checkpoint_get(doc, r->arena, &r->checkpoint))
            continue;
        r->checkpoint = (struct checkpoint){0};
        r->status = STORE_UNREADABLE;
        failed = true;
    }
    if (failed)
        log_unreadable("lanes", doc);
    return true;
}

enum store_status checkpoints_read(struct store *s, struct checkpoint_read *reads, size_t count)
{
    struct checkpoint_reads list = {reads, count};
    enum store_status status;

    if (count == 0)
        return STORE_OK;
    for (size_t i = 0; i < count; i++) {
        reads[i].checkpoint = (struct checkpoint){0};
        reads[i].status = STORE_OK;
    }
    status = session_find_lanes(session_of(s), "lanes", &reads->coupon, &reads->lane, sizeof *reads, count, checkpoint_row, &list);
    return settle_reads(status, &reads->status, sizeof *reads, count);
}

/* ---- buckets ---- */

struct bucket_reads {
    struct bucket_read *items;
    size_t count;
};

static bool bucket_row(const bson_t *doc, void *context)
{
    struct bucket_reads *list = context;
    const char *coupon;
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b))
        return false;
    if (codec_has_left(doc))
        return true;
    for (size_t i = 0; i < list->count; i++) {
        struct bucket_read *r = &list->items[i];

        if (r->found || r->b != b || strcmp(r->coupon, coupon) != 0)
            continue;
        r->found = codec_bucket_get(doc, r->bucket);
        if (r->found)
            continue;
        r->status = STORE_UNREADABLE;
        log_unreadable("buckets", doc);
    }
    return true;
}

static const char *bucket_coupon(const void *context, size_t i)
{
    const struct bucket_read *reads = context;

    return reads[i].coupon;
}

enum store_status checkpoint_buckets(struct store *s, struct bucket_read *reads, size_t count)
{
    struct session *session = session_of(s);
    struct bucket_reads list = {reads, count};
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    if (count == 0)
        return STORE_OK;
    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < count; i++) {
        codec_bucket_id(&in.values, in_next(&in), reads[i].coupon, reads[i].b);
        bucket_release(reads[i].bucket);
        bucket_init(reads[i].bucket, reads[i].b);
        reads[i].found = false;
        reads[i].status = STORE_OK;
    }
    in_end(&in, &filter);
    session_add_coupons(session, &filter, bucket_coupon, reads, count);
    return settle_reads(session_find(session, "buckets", &filter, NULL, count, bucket_row, &list), &reads->status, sizeof *reads, count);
}

struct bucket_list {
    struct bucket *items;
    size_t count, most;
};

static bool listed_bucket_row(const bson_t *doc, void *context)
{
    struct bucket_list *list = context;

    if (list->count == list->most || codec_has_left(doc))
        return true;
    if (!codec_bucket_get(doc, &list->items[list->count]))
        return false;
    list->count++;
    return true;
}

enum store_status buckets_find(struct session *session, const bson_t *filter, const bson_t *tail, struct bucket *buckets, size_t most,
                               size_t *count)
{
    struct bucket_list list = {buckets, 0, most};
    enum store_status status = session_find(session, "buckets", filter, tail, most, listed_bucket_row, &list);

    if (status != STORE_OK)
        while (list.count > 0)
            bucket_release(&list.items[--list.count]);
    *count = list.count;
    return status;
}

/* {name: {op: value}} */
static void put_bound(bson_t *filter, const char *name, const char *op, int64_t value, bool is_time)
{
    bson_t sub;

    bson_append_document_begin(filter, name, -1, &sub);
    if (is_time)
        bson_append_date_time(&sub, op, -1, value);
    else
        bson_append_int64(&sub, op, -1, value);
    bson_append_document_end(filter, &sub);
}

static bool free_count_row(const bson_t *doc, size_t find, void *context)
{
    struct free_counts *read = (struct free_counts *)context + find;
    struct free_count *row = &read->rows[read->count];
    int64_t free_slots;
    bson_t id, view;

    if (!find_document(doc, "_id", &id) || !find_int(&id, "b", &row->b) || row->b < read->from || row->b >= read->end)
        return false;
    if (!find_document(doc, "view", &view) || !find_int(&view, "free", &free_slots) || !find_int(&view, "seq", &row->seq)) {
        free_slots = BUCKET_SLOTS; /* damaged: the bucket will say so; or left by an archived coupon: its append finds the seq taken */
        row->seq = 0;
    }
    row->free = (int)(free_slots < 0 ? 0 : free_slots > BUCKET_SLOTS ? BUCKET_SLOTS : free_slots);
    read->count++;
    return true;
}

/* Reads only the index. */
enum store_status checkpoint_free_counts(struct store *s, struct free_counts *reads, size_t count)
{
    static const char *const members[] = {"_id.b", "view.free", "view.seq", NULL};
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    enum store_status status;
    bson_t range;

    for (size_t i = 0; i < count; i++) {
        reads[i].count = 0;
        finds[i] = (struct joined_find){.by = "_id.b", .most = reads[i].most, .members = members};
        bson_init(&finds[i].filter);
        BSON_APPEND_UTF8(&finds[i].filter, "_id.c", reads[i].coupon);
        BSON_APPEND_DOCUMENT_BEGIN(&finds[i].filter, "_id.b", &range);
        BSON_APPEND_INT64(&range, "$gte", reads[i].from);
        BSON_APPEND_INT64(&range, "$lt", reads[i].end);
        bson_append_document_end(&finds[i].filter, &range);
    }
    status = session_read_joined(session_of(s), "buckets", finds, count, free_count_row, reads);
    free(finds);
    return status;
}

/* ---- what expires: by the partial indexes on `due` ---- */

static void release_found(struct bucket *buckets, size_t *count)
{
    while (*count > 0)
        bucket_release(&buckets[--*count]);
}

/* Find the earliest with a due time, one more than wanted: the first left out says when the next one expires. */
static void put_due_search(struct joined_find *find, const struct due_search *search)
{
    bson_t clause, list;
    char buffer[16];

    find->by = "view.due";
    find->most = search->most + 1;
    bson_init(&find->filter);
    BSON_APPEND_UTF8(&find->filter, "_id.c", search->coupon);
    BSON_APPEND_INT64(&find->filter, "view.lane", search->lane);
    put_bound(&find->filter, "view.due", "$gt", 0, true);
    if (search->but_count == 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(&find->filter, "_id.b", &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$nin", &list);
    for (size_t i = 0; i < search->but_count; i++)
        bson_append_int64(&list, array_key(i, buffer), -1, search->but_buckets[i]);
    bson_append_array_end(&clause, &list);
    bson_append_document_end(&find->filter, &clause);
}

/* False: due later, or one too many: it only tells when. */
static bool is_wanted(const bson_t *doc, struct due_search *search)
{
    int64_t due_ms;
    bson_t view;

    if (!find_document(doc, "view", &view) || !find_time(&view, "due", &due_ms))
        return true;
    if (due_ms <= search->at_ms && search->count < search->most)
        return true;
    search->next_due_ms = search->next_due_ms ? search->next_due_ms : due_ms;
    return false;
}

static bool due_bucket_row(const bson_t *doc, size_t find, void *context)
{
    struct due_search *search = (struct due_search *)context + find;

    if (!is_wanted(doc, search))
        return true;
    if (codec_bucket_get(doc, &search->buckets[search->count])) {
        search->count++;
    } else {
        search->left_out = true;
        log_unreadable("buckets", doc);
    }
    return true;
}

enum store_status checkpoint_due_buckets(struct store *s, struct due_search *searches, size_t count)
{
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    struct session *session = session_of(s);
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        searches[i].count = 0;
        searches[i].next_due_ms = 0;
        searches[i].left_out = false;
        put_due_search(&finds[i], &searches[i]);
    }
    status = session_read_joined(session, "buckets", finds, count, due_bucket_row, searches);
    for (size_t i = 0; i < count && status != STORE_OK; i++)
        release_found(searches[i].buckets, &searches[i].count);
    free(finds);
    return status;
}

/* ---- the definition ---- */

struct definition_reads {
    struct coupon_read *items;
    size_t count;
};

/* Several lanes of a coupon may ask for it: each gets its own copy. */
static bool definition_row(const bson_t *doc, void *context)
{
    const struct definition_reads *list = context;
    bool failed = false;
    const char *id;

    if (!find_text(doc, "_id", &id))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        struct coupon_read *r = &list->items[i];

        if (strcmp(r->coupon, id) != 0)
            continue;
        r->definition = codec_coupon_get(doc, r->arena, &r->seq);
        if (r->definition)
            continue;
        r->seq = 0;
        r->status = STORE_UNREADABLE;
        failed = true;
    }
    if (failed)
        log_unreadable("coupons", doc);
    return true;
}

enum store_status checkpoint_coupons(struct store *s, struct coupon_read *reads, size_t count)
{
    struct definition_reads list = {reads, count};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    struct in_clause in;

    if (count == 0)
        return STORE_OK;
    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < count; i++) {
        bson_append_utf8(&in.values, in_next(&in), -1, reads[i].coupon, -1);
        reads[i].definition = NULL;
        reads[i].seq = 0;
        reads[i].status = STORE_OK;
    }
    in_end(&in, &filter);
    status = session_find(session_of(s), "coupons", &filter, NULL, count, definition_row, &list);
    return settle_reads(status, &reads->status, sizeof *reads, count);
}

enum store_status checkpoint_coupon_of(struct store *s, const char *coupon, struct arena *a, struct coupon **definition, int64_t *seq)
{
    struct coupon_read read = {.coupon = coupon, .arena = a};
    enum store_status status = checkpoint_coupons(s, &read, 1);

    *definition = read.definition;
    *seq = read.seq;
    return status;
}
