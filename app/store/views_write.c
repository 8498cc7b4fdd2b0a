/*
 * store/views_write.c -- writing views: each whole, and only over an older one.
 *
 * Rule     new ones are inserted, all others updated under a guard and without insert. An insert that finds its _id
 *          taken becomes such an update: of two that race to be first, the newer wins in any order. A view counts as
 *          written when it was inserted or matched, or when what stands there was read back as not older
 * Replies  count matches and do not say which: only where fewer matched than were sent is there anything to read back
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/codec.h"
#include "store/door.h"
#include "store/members.h"

#define ROUNDS_MAX 4 /* insert, lose, update, and once more */
#define COMMAND_VIEWS_MAX 10000

/* ---- what differs between the kinds ---- */

struct view_type {
    const char *collection;
    void (*put_id)(bson_t *doc, const char *name, const struct view_write *v);
    /* The conditions beside the _id under which what is stored is older. */
    void (*put_guard)(bson_t *filter, const struct view_write *v);
    void (*put_document)(bson_t *doc, const struct view_write *v, int64_t created_ms);
    void (*put_change)(bson_t *doc, const struct view_write *v);
    bool (*is_new)(const struct view_write *v);
    /* Is the stored document that of v: false; else *current: it is not older. */
    bool (*compare)(const bson_t *stored, const struct view_write *v, bool *current);
};

static void put_less(bson_t *doc, const char *name, int64_t bound)
{
    bson_t less;

    bson_append_document_begin(doc, name, -1, &less);
    BSON_APPEND_INT64(&less, "$lt", bound);
    bson_append_document_end(doc, &less);
}

static void use_put_id(bson_t *doc, const char *name, const struct view_write *v)
{
    codec_use_id(doc, name, v->coupon, v->use->user);
}

static void use_put_guard(bson_t *filter, const struct view_write *v)
{
    put_less(filter, "seq", v->use->seq);
}

static void use_put_change(bson_t *doc, const struct view_write *v)
{
    codec_use_put(doc, v->coupon, v->use);
}

static void use_put_document(bson_t *doc, const struct view_write *v, int64_t created_ms)
{
    (void)created_ms;
    use_put_change(doc, v);
}

static bool use_is_new(const struct view_write *v)
{
    return !v->use->stored;
}

static bool use_compare(const bson_t *stored, const struct view_write *v, bool *current)
{
    const char *coupon, *user;
    int64_t seq;

    if (!codec_id_text(stored, "u", &coupon, &user) || strcmp(user, v->use->user) != 0 ||
        strcmp(coupon, v->coupon) != 0)
        return false;
    *current = find_int(stored, "seq", &seq) && seq >= v->use->seq;
    return true;
}

static void bucket_put_id(bson_t *doc, const char *name, const struct view_write *v)
{
    codec_bucket_id(doc, name, v->coupon, v->bucket->b);
}

/* (hops, seq) is less: a bucket that changed lanes follows another ledger, whose seq says nothing of the old one's. */
static void bucket_put_guard(bson_t *filter, const struct view_write *v)
{
    bson_t any, one;

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
    put_less(&one, "hops", v->bucket->hops);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
    BSON_APPEND_INT64(&one, "hops", v->bucket->hops);
    put_less(&one, "seq", v->bucket->seq);
    bson_append_document_end(&any, &one);
    bson_append_array_end(filter, &any);
}

static void bucket_put_change(bson_t *doc, const struct view_write *v)
{
    codec_bucket_put(doc, v->coupon, v->bucket);
}

static void bucket_put_document(bson_t *doc, const struct view_write *v, int64_t created_ms)
{
    (void)created_ms;
    bucket_put_change(doc, v);
}

/* Most buckets of which no slot ever moved were just generated. */
static bool bucket_is_new(const struct view_write *v)
{
    for (int i = 0; i < v->bucket->size; i++)
        if (v->bucket->slots[i].generation || v->bucket->slots[i].state != SLOT_FREE)
            return false;
    return v->bucket->hops == 0;
}

static bool bucket_compare(const bson_t *stored, const struct view_write *v, bool *current)
{
    const struct bucket *k = v->bucket;
    int64_t b, hops, seq;
    const char *coupon;

    if (!codec_id_int(stored, "b", &coupon, &b) || b != k->b || strcmp(coupon, v->coupon) != 0)
        return false;
    *current = find_int(stored, "hops", &hops) && find_int(stored, "seq", &seq) &&
               (hops > k->hops || (hops == k->hops && seq >= k->seq));
    return true;
}

static void coupon_put_id(bson_t *doc, const char *name, const struct view_write *v)
{
    BSON_APPEND_UTF8(doc, name, v->definition->id);
}

static void coupon_put_guard(bson_t *filter, const struct view_write *v)
{
    put_less(filter, "seq", v->seq);
}

static void coupon_put_members(bson_t *doc, const struct view_write *v)
{
    bson_t def;

    BSON_APPEND_INT64(doc, "version", v->definition->version);
    BSON_APPEND_INT64(doc, "seq", v->seq);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "def", &def);
    codec_definition_put(&def, v->definition);
    bson_append_document_end(doc, &def);
}

static void coupon_put_document(bson_t *doc, const struct view_write *v, int64_t created_ms)
{
    coupon_put_id(doc, "_id", v);
    BSON_APPEND_DATE_TIME(doc, "created", created_ms);
    coupon_put_members(doc, v);
}

/* Not whole: `created` stays as it is. */
static void coupon_put_change(bson_t *doc, const struct view_write *v)
{
    bson_t set;

    BSON_APPEND_DOCUMENT_BEGIN(doc, "$set", &set);
    coupon_put_members(&set, v);
    bson_append_document_end(doc, &set);
}

static bool coupon_is_new(const struct view_write *v)
{
    return v->definition->version == 1;
}

static bool coupon_compare(const bson_t *stored, const struct view_write *v, bool *current)
{
    const char *id;
    int64_t seq;

    if (!find_text(stored, "_id", &id) || strcmp(id, v->definition->id) != 0)
        return false;
    *current = find_int(stored, "seq", &seq) && seq >= v->seq;
    return true;
}

static const struct view_type view_types[] = {
    [VIEW_USE] = {"users", use_put_id, use_put_guard, use_put_document, use_put_change, use_is_new, use_compare},
    [VIEW_BUCKET] = {"buckets", bucket_put_id, bucket_put_guard, bucket_put_document, bucket_put_change, bucket_is_new,
                     bucket_compare},
    [VIEW_COUPON] = {"coupons", coupon_put_id, coupon_put_guard, coupon_put_document, coupon_put_change, coupon_is_new,
                     coupon_compare},
};

/* ---- one kind's views ---- */

enum todo { TODO_NOTHING, TODO_INSERT, TODO_UPDATE, TODO_LOST /* refused: left to the caller */ };

struct item {
    struct view_write *view;
    enum todo todo;
};

struct group {
    struct door *door;
    const struct view_type *type;
    struct item *items;
    size_t count;
    struct item **sent; /* in the command under way, in its order; NULL: settled, or refused */
    size_t sent_count;
    struct store_time *when;
};

static void settle(struct item *item)
{
    item->todo = TODO_NOTHING;
    item->view->written = true;
}

/* One stored document, and the sent item that it answers. */
static bool stored_row(const bson_t *doc, void *context)
{
    struct group *g = context;
    bool current;

    for (size_t i = 0; i < g->sent_count; i++) {
        struct item *item = g->sent[i];

        if (!item || !g->type->compare(doc, item->view, &current))
            continue;
        g->sent[i] = NULL;
        if (current)
            settle(item);
    }
    return true;
}

static const char *view_coupon(const void *context, size_t i)
{
    const struct item *items = context;

    return items[i].view->coupon;
}

/* Read back what stands where the sent updates went: what is not older is written, what is older is updated again, what is
 * absent is to be inserted. */
static bool read_back(struct group *g)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter, clause, list, sub;
    char buffer[16];
    size_t k = 0;

    BSON_APPEND_UTF8(&command, "find", g->type->collection);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$in", &list);
    for (size_t i = 0; i < g->sent_count; i++)
        if (g->sent[i])
            g->type->put_id(&list, array_key(k++, buffer), g->sent[i]->view);
    bson_append_array_end(&clause, &list);
    bson_append_document_end(&filter, &clause);
    if (g->type != &view_types[VIEW_COUPON])
        door_add_coupons(g->door, &filter, view_coupon, g->items, g->count);
    bson_append_document_end(&command, &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &sub);
    BSON_APPEND_INT32(&sub, "seq", 1);
    BSON_APPEND_INT32(&sub, "hops", 1);
    bson_append_document_end(&command, &sub);
    door_read_options(g->door, &command, *g->when, k + 1);
    if (door_read(g->door, &command, stored_row, g) != STORE_OK)
        return false;
    for (size_t i = 0; i < g->sent_count; i++)
        if (g->sent[i])
            g->sent[i]->todo = TODO_INSERT;
    return true;
}

/* `created` of a definition's view: the time of the batch that made the coupon, which is its lane's first. */
static bool created_row(const bson_t *doc, void *context)
{
    return find_time(doc, "at", context);
}

static bool read_created(struct group *g, const struct view_write *v, int64_t *created_ms)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t sub;

    *created_ms = -1;
    BSON_APPEND_UTF8(&command, "find", "ledger");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &sub);
    codec_ledger_id(&sub, "_id", v->definition->id, 0, 1);
    bson_append_document_end(&command, &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &sub);
    BSON_APPEND_INT32(&sub, "at", 1);
    bson_append_document_end(&command, &sub);
    door_read_options(g->door, &command, (struct store_time){0}, 0);
    return door_read(g->door, &command, created_row, created_ms) == STORE_OK && *created_ms >= 0;
}

static bool put_insert(struct group *g, bson_t *documents, size_t k, const struct view_write *v)
{
    int64_t created_ms = 0;
    char buffer[16];
    bson_t doc;

    if (v->kind == VIEW_COUPON && !read_created(g, v, &created_ms))
        return false;
    bson_append_document_begin(documents, array_key(k, buffer), -1, &doc);
    g->type->put_document(&doc, v, created_ms);
    bson_append_document_end(documents, &doc);
    return true;
}

static bool put_update(struct group *g, bson_t *updates, size_t k, const struct view_write *v)
{
    bson_t update, sub;
    char buffer[16];

    bson_append_document_begin(updates, array_key(k, buffer), -1, &update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "q", &sub);
    g->type->put_id(&sub, "_id", v);
    g->type->put_guard(&sub, v);
    bson_append_document_end(&update, &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "u", &sub);
    g->type->put_change(&sub, v);
    bson_append_document_end(&update, &sub);
    bson_append_document_end(updates, &update);
    return true;
}

/* What was refused gets what is next for it, and is no longer sent. False: the reply makes no sense. */
static bool take_errors(struct group *g, const bson_t *reply)
{
    int64_t index, code;
    bson_iter_t errors;

    if (!reply_errors(reply, &errors))
        return true;
    while (reply_next_error(&errors, &index, &code)) {
        struct item *item = index >= 0 && (uint64_t)index < g->sent_count ? g->sent[index] : NULL;

        if (!item)
            return false;
        g->sent[index] = NULL;
        item->todo = code == CODE_DUPLICATE_KEY ? TODO_UPDATE : TODO_LOST;
        if (item->todo == TODO_LOST)
            log_event(LOG_ERROR, "store.view_refused", "collection=%s coupon=%s code=%lld", g->type->collection,
                      item->view->coupon, (long long)code);
    }
    return true;
}

/* After a command of which all was carried out but what take_errors() was told. */
static bool take_reply(struct group *g, enum todo todo, const bson_t *reply)
{
    size_t open = 0;

    reply_time(reply, g->when);
    if (!take_errors(g, reply))
        return false;
    for (size_t i = 0; i < g->sent_count; i++)
        open += g->sent[i] != NULL;
    if (todo == TODO_UPDATE && (uint64_t)reply_count(reply) < open)
        return read_back(g);
    for (size_t i = 0; i < g->sent_count; i++)
        if (g->sent[i])
            settle(g->sent[i]);
    return true;
}

/* Send one command for items with that `todo`, from *next on, as many as fit. */
static bool send_some(struct group *g, enum todo todo, size_t *next)
{
    bool inserts = todo == TODO_INSERT;
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t list;

    bson_append_utf8(&command, inserts ? "insert" : "update", 6, g->type->collection, -1);
    door_write_options(g->door, &command);
    bson_append_array_begin(&command, inserts ? "documents" : "updates", -1, &list);
    g->sent_count = 0;
    for (; *next < g->count && g->sent_count < COMMAND_VIEWS_MAX && list.len < COMMAND_BYTES_MAX; ++*next) {
        struct item *item = &g->items[*next];

        if (item->todo != todo)
            continue;
        if (!(inserts ? put_insert : put_update)(g, &list, g->sent_count, item->view))
            return false;
        g->sent[g->sent_count++] = item;
    }
    bson_append_array_end(&command, &list);
    if (g->sent_count == 0)
        return true;

    AUTO_BSON reply;
    return door_run(g->door, &command, &reply) && reply_is_clean(&reply) && take_reply(g, todo, &reply);
}

static bool write_group(struct group *g)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        bool left = false;

        for (enum todo todo = TODO_INSERT; todo <= TODO_UPDATE; todo++)
            for (size_t next = 0; next < g->count;)
                if (!send_some(g, todo, &next))
                    return false;
        for (size_t i = 0; i < g->count; i++)
            left = left || g->items[i].todo == TODO_INSERT || g->items[i].todo == TODO_UPDATE;
        if (!left)
            break;
    }
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].todo != TODO_NOTHING)
            return false;
    return true;
}

enum store_status views_write(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    struct item *items = calloc(count + 1, sizeof *items);
    struct item **sent = calloc(count + 1, sizeof *sent);
    enum store_status status = STORE_OK;

    if (!items || !sent)
        abort();
    *when = (struct store_time){0};
    for (size_t i = 0; i < count; i++)
        views[i].written = false;
    for (size_t kind = 0; kind < sizeof view_types / sizeof *view_types; kind++) {
        struct group g = {door_of(s), &view_types[kind], items, 0, sent, 0, when};

        for (size_t i = 0; i < count; i++)
            if (views[i].kind == (enum view_kind)kind)
                items[g.count++] = (struct item){&views[i], g.type->is_new(&views[i]) ? TODO_INSERT : TODO_UPDATE};
        if (!write_group(&g))
            status = STORE_FAILED;
    }
    free(sent);
    free(items);
    return status;
}
