/*
 * store/checkpoint_read.c -- reading what is stored of a lane beside its ledger: its checkpoint, its buckets, its coupon's definition.
 * Writing it: checkpoint_write.c.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* ---- checkpoints ---- */

static bool get_checkpoint(const bson_t *doc, void *read, struct arena *a)
{
    struct checkpoint_read *r = read;

    (void)a;
    return codec_checkpoint_get(doc, r->arena, &r->checkpoint);
}

enum store_status checkpoints_read(struct store *s, struct checkpoint_read *reads, size_t count)
{
    static const struct keyed_reads lanes = KEYED_READS("lanes", "l", struct checkpoint_read, lane, checkpoint, get_checkpoint);

    return session_read_keyed(session_of(s), &lanes, reads, count, NULL);
}

/* ---- buckets ---- */

static bool get_bucket(const bson_t *doc, void *read, struct arena *a)
{
    struct bucket_read *r = read;

    (void)a;
    if (r->found)
        return true;
    r->found = codec_bucket_get(doc, r->bucket);
    if (!r->found)
        bucket_init(r->bucket, r->b);
    return r->found;
}

enum store_status checkpoint_buckets(struct store *s, struct bucket_read *reads, size_t count)
{
    static const struct keyed_reads buckets = KEYED_READS("buckets", "b", struct bucket_read, b, found, get_bucket);

    for (size_t i = 0; i < count; i++) {
        bucket_release(reads[i].bucket);
        bucket_init(reads[i].bucket, reads[i].b);
    }
    return session_read_keyed(session_of(s), &buckets, reads, count, NULL);
}

static bool free_count_row(const bson_t *doc, size_t find, void *context)
{
    struct free_counts *read = (struct free_counts *)context + find;
    struct free_count *row = &read->rows[read->count];
    int64_t free_slots;
    bson_t id, view;

    assert(read->count < read->most);
    if (!find_document(doc, "_id", &id) || !find_int(&id, "b", &row->b) || row->b < read->from || row->b >= read->end)
        return false;
    if (!find_document(doc, "view", &view) || !find_int(&view, "free", &free_slots) || !find_int(&view, "seq", &row->seq)) {
        free_slots = BUCKET_SLOTS; /* damaged: the bucket will say so */
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

    for (size_t i = 0; i < count; i++) {
        assert(reads[i].most > 0 && reads[i].from >= 0);
        reads[i].count = 0;
        finds[i] = (struct joined_find){.by = "_id.b", .most = reads[i].most, .members = members};
        bson_init(&finds[i].filter);
        BCON_APPEND(&finds[i].filter, "_id.c", BCON_UTF8(reads[i].coupon), "_id.b", "{", "$gte", BCON_INT64(reads[i].from), "$lt",
                    BCON_INT64(reads[i].end), "}");
    }
    status = session_read_joined(session_of(s), "buckets", finds, count, free_count_row, reads);
    free(finds);
    return status;
}

/* ---- what expires: by the partial indexes on `due` ---- */

/* Find the earliest with a due time, one more than wanted: the first beyond them says when the next one expires. */
static void put_due_search(struct joined_find *find, const struct due_search *search)
{
    bson_t clause, list;
    char buffer[16];

    find->by = "view.due";
    find->most = search->most + 1;
    bson_init(&find->filter);
    BCON_APPEND(&find->filter, "_id.c", BCON_UTF8(search->coupon), "view.lane", BCON_INT64(search->lane), "view.due", "{", "$gt",
                BCON_DATE_TIME(0), "}");
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
    assert(search->count < search->most);
    if (codec_bucket_get(doc, &search->buckets[search->count])) {
        search->count++;
    } else {
        search->damaged = true;
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
        assert(searches[i].lane >= 0);
        searches[i].count = 0;
        searches[i].next_due_ms = 0;
        searches[i].damaged = false;
        put_due_search(&finds[i], &searches[i]);
    }
    status = session_read_joined(session, "buckets", finds, count, due_bucket_row, searches);
    for (size_t i = 0; i < count && status != STORE_OK; i++)
        while (searches[i].count > 0)
            bucket_release(&searches[i].buckets[--searches[i].count]);
    free(finds);
    return status;
}

/* ---- the definition ---- */

/* Several lanes of a coupon may ask for it: each gets its own copy. */
static bool get_definition(const bson_t *doc, void *read, struct arena *a)
{
    struct coupon_read *r = read;

    (void)a;
    r->definition = codec_coupon_get(doc, r->arena, &r->seq);
    return r->definition != NULL;
}

enum store_status checkpoint_coupons(struct store *s, struct coupon_read *reads, size_t count)
{
    static const struct keyed_reads coupons = KEYED_READS("coupons", NULL, struct coupon_read, coupon, definition, get_definition);

    return session_read_keyed(session_of(s), &coupons, reads, count, NULL);
}
