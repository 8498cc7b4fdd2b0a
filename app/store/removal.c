/*
 * store/removal.c -- of mongo.h: removes an archived coupon's documents, and later what remains of them.
 *
 * Leaves   the _id and `left` of buckets and batches; a batch's id, time and lanes; in buckets an age that nothing exceeds. So a
 *          process that slept meanwhile finds the seq of its append taken, and by which batch, and its buckets newer. Codes are deleted at
 *          once. All of it goes a page at a time, by _id, and can be repeated
 * Stays    the definition, each lane's first _id (proof that the ledger existed), its last batch, checkpoint and position in the totals,
 *          totals, refusals, and the directory of codes that are unique in the service
 */
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define PAGE_MOST 1000

static const struct kind {
    const char *collection;
    const char *member; /* of its _id, after the coupon; NULL: the ledger, which goes by lane */
    bool deleted;       /* at once, with its _id */
} kinds[REMAINS_KIND_COUNT] = {
    [REMAINS_LEDGER] = {"ledger", NULL, false},
    [REMAINS_CODES] = {"codes", "code", true},
    [REMAINS_CODE_BUCKETS] = {"code_buckets", "b", true},
    [REMAINS_BUCKETS] = {"buckets", "b", false},
};

/* ---- a page ---- */

struct page {
    struct leaving *leaving;
    bson_t last; /* the _id of the last one */
    size_t count, left;
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
    p->left += codec_has_left(doc);
    return true;
}

/* {_id: {$gt: after, $lt or $lte: end}}: the rest of the walk, or up to and including `last`. */
static void put_range(bson_t *filter, const struct leaving *l, const bson_t *last)
{
    const struct kind *k = &kinds[l->kind];
    bson_t range, id, after;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &range);
    if (l->size && bson_init_static(&after, l->last, l->size)) {
        BSON_APPEND_DOCUMENT(&range, "$gt", &after);
    } else if (l->kind == REMAINS_LEDGER) {
        codec_ledger_id(&range, "$gt", l->coupon, l->lane, l->whole ? 1 : 0);
    } else {
        BCON_APPEND(&range, "$gt", "{", "c", BCON_UTF8(l->coupon), "}");
    }
    if (last) {
        BSON_APPEND_DOCUMENT(&range, "$lte", last);
    } else if (l->kind == REMAINS_LEDGER) {
        codec_ledger_id(&range, "$lt", l->coupon, l->lane, l->end);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&range, "$lt", &id);
        BSON_APPEND_UTF8(&id, "c", l->coupon);
        bson_append_maxkey(&id, k->member, -1);
        bson_append_document_end(&range, &id);
    }
    bson_append_document_end(filter, &range);
}

static enum store_status find_page(struct session *session, struct page *p)
{
    AUTO_BCON tail = BCON_NEW("projection", "{", "left", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    put_range(&filter, p->leaving, NULL);
    return session_find(session, kinds[p->leaving->kind].collection, &filter, tail, PAGE_MOST, page_row, p);
}

static enum store_status delete_page(struct session *session, const struct page *p)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    put_range(&filter, p->leaving, &p->last);
    return session_delete(session, kinds[p->leaving->kind].collection, &filter, NULL);
}

/* What replaces a document. */
static bson_t *rest_of(enum remains_kind kind)
{
    if (kind == REMAINS_LEDGER)
        return BCON_NEW("_id", "$_id", "batch", "$batch", "at", "$at", "k", "$k", "left", BCON_BOOL(true));
    return BCON_NEW("_id", "$_id", "view", "{", "seq", BCON_INT64(INT64_MAX), "}", "left", BCON_BOOL(true));
}

static enum store_status empty_page(struct session *session, const struct page *p)
{
    AUTO_BCON rest = rest_of(p->leaving->kind);
    AUTO_BSON filter = BSON_INITIALIZER;

    put_range(&filter, p->leaving, &p->last);
    session_add_shard_key(session, &filter);
    BCON_APPEND(&filter, "left", "{", "$exists", BCON_BOOL(false), "}");
    AUTO_BCON command = BCON_NEW(
        "update", BCON_UTF8(kinds[p->leaving->kind].collection),
        "updates", "[", "{",
            "q", BCON_DOCUMENT(&filter),
            "u", "[", "{", "$replaceWith", BCON_DOCUMENT(rest), "}", "]",
            "multi", BCON_BOOL(true),
        "}", "]");

    return session_write(session, command, NULL);
}

static void keep_place(struct leaving *l, const struct page *p)
{
    l->count += (int64_t)p->count;
    l->done = p->count < PAGE_MOST || p->last.len > sizeof l->last;
    if (l->done)
        return;
    l->size = p->last.len;
    memcpy(l->last, bson_get_data(&p->last), l->size);
}

static enum store_status walk(struct session *session, struct leaving *l, bool remove, int64_t *left)
{
    struct page p = {.leaving = l, .last = BSON_INITIALIZER};
    enum store_status status = find_page(session, &p);

    if (status == STORE_OK && p.count && remove)
        status = (l->whole || kinds[l->kind].deleted ? delete_page : empty_page)(session, &p);
    if (status == STORE_OK) {
        keep_place(l, &p);
        *left += (int64_t)p.left;
    }
    bson_destroy(&p.last);
    return status;
}

enum store_status mongo_leave(struct store *s, struct leaving *l)
{
    int64_t left = 0;

    return walk(session_of(s), l, true, &left);
}

enum store_status mongo_leave_look(struct store *s, struct leaving *l, int64_t *left)
{
    return walk(session_of(s), l, false, left);
}

enum store_status mongo_removal_note(struct store *s, const char *coupon)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(coupon));
    AUTO_BCON u = BCON_NEW("$set", "{", "cleaned", "archived", "}");
    enum store_status status = session_update(session_of(s), "coupons", filter, u, false);

    return status == STORE_NOT_FOUND ? STORE_OK : status;
}
