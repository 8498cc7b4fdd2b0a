/*
 * store/removal.c -- of mongo.h: removes an archived coupon's documents.
 *
 * Goes   buckets, codes and their buckets, and each lane's batches before the one that closed it; a page at a time, by _id. A repeat goes
 *        on where the last one stopped
 * Stays  the definition; of each lane the batches from the closing one on, which are its erasures and its release, so the chain goes on
 *        where the archive ends; checkpoints, positions, totals, refusals, and the directory of codes that are unique in the service
 */
#include <assert.h>
#include <sodium.h>
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define PAGE_MOST 1000

static const struct removed_kind {
    const char *name;
    const char *member; /* of its _id, after the coupon */
    bool is_ledger;
} kinds[REMOVED_COLLECTIONS] = {
    {"ledger", "l", true}, {"codes", "code", false}, {"code_buckets", "b", false}, {"buckets", "b", false},
};

/* ---- a page ---- */

struct page {
    bson_t last; /* the _id of the last one */
    size_t count;
};

static bool page_row(const bson_t *doc, void *context)
{
    struct page *p = context;
    bson_t id;

    if (!find_document(doc, "_id", &id))
        return false;
    bson_reinit(&p->last);
    bson_concat(&p->last, &id);
    p->count++;
    return true;
}

/* What is to go of the collection, from where the removal is: up to and including `last`, or all. */
static void put_range(bson_t *filter, const struct removal *r, const bson_t *last)
{
    bson_t range, id, after;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &range);
    if (r->size && bson_init_static(&after, r->last, r->size))
        BSON_APPEND_DOCUMENT(&range, "$gt", &after);
    else
        BCON_APPEND(&range, "$gt", "{", "c", BCON_UTF8(r->coupon), "}");
    if (last) {
        BSON_APPEND_DOCUMENT(&range, "$lte", last);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&range, "$lt", &id);
        BSON_APPEND_UTF8(&id, "c", r->coupon);
        bson_append_maxkey(&id, kinds[r->collection].member, -1);
        bson_append_document_end(&range, &id);
    }
    bson_append_document_end(filter, &range);
    if (kinds[r->collection].is_ledger)
        BCON_APPEND(filter, "totals.archived", "{", "$exists", BCON_BOOL(false), "}");
}

static enum store_status find_page(struct session *session, const struct removal *r, size_t most, struct page *p)
{
    AUTO_BCON options = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    put_range(&filter, r, NULL);
    return session_find(session, kinds[r->collection].name, &filter, options, most, page_row, p);
}

/* Go on after the page; behind its last one, to the next collection. */
static void keep_place(struct removal *r, const struct page *p)
{
    r->count += (int64_t)p->count;
    if (p->count < PAGE_MOST || p->last.len > sizeof r->last) {
        r->collection++;
        r->size = 0;
    } else {
        r->size = p->last.len;
        memcpy(r->last, bson_get_data(&p->last), r->size);
    }
}

enum store_status mongo_remove_page(struct store *s, struct removal *r)
{
    struct page p = {.last = BSON_INITIALIZER};
    enum store_status status;

    assert(r->collection < REMOVED_COLLECTIONS);
    status = find_page(session_of(s), r, PAGE_MOST, &p);
    if (status == STORE_OK && p.count) {
        AUTO_BSON filter = BSON_INITIALIZER;

        put_range(&filter, r, &p.last);
        status = session_delete(session_of(s), kinds[r->collection].name, &filter, NULL);
    }
    if (status == STORE_OK)
        keep_place(r, &p);
    bson_destroy(&p.last);
    return status;
}

enum store_status mongo_is_removed(struct store *s, const char *coupon, bool *removed)
{
    struct page p = {.last = BSON_INITIALIZER};
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < REMOVED_COLLECTIONS && status == STORE_OK && !p.count; i++)
        status = find_page(session_of(s), &(struct removal){.coupon = coupon, .collection = i}, 1, &p);
    *removed = !p.count;
    bson_destroy(&p.last);
    return status;
}

/* ---- how a coupon was closed ---- */

static enum store_status find_closing(struct store *s, const char *coupon, int64_t lane, struct batch **closing)
{
    struct batch *b = NULL;
    size_t count = 1;

    *closing = NULL;
    for (;;) {
        enum store_status status = mongo_ledger_back(s, coupon, lane, *closing ? (*closing)->head.seq : INT64_MAX, 1, &b, &count);

        if (status == STORE_OK && count && b->head.archived) {
            batch_free(*closing);
            *closing = b;
            continue;
        }
        if (status == STORE_OK && count)
            batch_free(b);
        return status != STORE_OK ? status : *closing ? STORE_OK : STORE_NOT_FOUND;
    }
}

enum store_status mongo_closing(struct store *s, const char *coupon, int64_t lanes, uint8_t digest[FINGERPRINT_LEN], int64_t *at_ms)
{
    crypto_hash_sha256_state hash;
    enum store_status status = STORE_OK;
    uint8_t whole[HASH_LEN];

    assert(lanes > 0 && lanes <= COUPON_LANES_MAX);
    *at_ms = 0;
    crypto_hash_sha256_init(&hash);
    for (int64_t lane = 0; lane < lanes && status == STORE_OK; lane++) {
        struct batch *closing;

        status = find_closing(s, coupon, lane, &closing);
        if (status == STORE_OK) {
            crypto_hash_sha256_update(&hash, closing->head.hash, HASH_LEN);
            *at_ms = closing->head.at_ms > *at_ms ? closing->head.at_ms : *at_ms;
        }
        batch_free(closing);
    }
    crypto_hash_sha256_final(&hash, whole);
    memcpy(digest, whole, FINGERPRINT_LEN);
    return status;
}

enum store_status mongo_archive_note(struct store *s, const char *coupon)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(coupon));
    AUTO_BCON u = BCON_NEW("$set", "{", "cleaned", "archived", "}");
    enum store_status status = session_update(session_of(s), "coupons", filter, u, false);

    return status == STORE_NOT_FOUND ? STORE_OK : status;
}
