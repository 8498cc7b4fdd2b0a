/*
 * store/checkpoint_write.c -- writing what is stored of a lane beside its ledger: each document whole, and only over an older one.
 *
 * Rule     the content is one sub-document `view` that begins with its seq, and BSON compares documents member by member. So {$max: {view:
 *          ...}} replaces an older one and keeps a newer one, in one upsert by _id alone. The newer of two that race wins in any order, and
 *          what the server executed is written: nothing has to be read back
 * Speed    a guard beside the _id ({_id, seq < s}) costs the server 2.3 times as much (72 against 31 us), since only _id alone takes its
 *          fast path. New documents are inserted (13 us); those that already exist follow as updates
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define ROUNDS_MAX 4
#define COMMAND_PARTS_MAX 10000

/* ---- buckets and definitions ---- */

/* For a definition: when its coupon was created (the lane's first batch), and when it last changed. */
struct times {
    int64_t created_ms, changed_ms;
};

enum todo { TODO_NOTHING, TODO_INSERT, TODO_UPDATE, TODO_LOST /* refused: the caller tries again */ };

struct item {
    struct view_write *view;
    enum todo todo;
};

/* Those of one collection. */
struct group {
    struct session *session;
    bool definitions;
    struct item *items;
    size_t count;
    struct item **sent; /* in the current command, in its order */
    size_t sent_count;
};

static const char *collection_of(const struct group *g)
{
    return g->definitions ? "coupons" : "buckets";
}

static bool at_row(const bson_t *doc, void *context)
{
    return find_time(doc, "at", context);
}

static bool read_at(struct group *g, const char *coupon, int64_t seq, int64_t *at_ms)
{
    AUTO_BCON options = BCON_NEW("projection", "{", "at", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    *at_ms = -1;
    codec_ledger_id(&filter, "_id", coupon, 0, seq);
    return session_find(g->session, "ledger", &filter, options, 1, at_row, at_ms) == STORE_OK;
}

static bool read_times(struct group *g, const struct view_write *w, struct times *times)
{
    if (!read_at(g, w->definition->id, 1, &times->created_ms) || times->created_ms < 0 ||
        !read_at(g, w->definition->id, w->seq, &times->changed_ms))
        return false;
    if (times->changed_ms < 0)
        times->changed_ms = times->created_ms;
    return true;
}

static void put_id(bson_t *doc, const struct view_write *w)
{
    if (w->bucket)
        codec_id(doc, "_id", w->coupon, "b", w->bucket->b);
    else
        BSON_APPEND_UTF8(doc, "_id", w->definition->id);
}

static void put_view(bson_t *doc, const struct view_write *w, const struct times *times)
{
    bson_t view;

    bson_append_document_begin(doc, "view", 4, &view);
    if (w->bucket)
        codec_bucket_put(&view, w->bucket);
    else
        codec_coupon_put(&view, w->definition, w->seq, times->changed_ms);
    bson_append_document_end(doc, &view);
}

static bool is_new(const struct view_write *w)
{
    assert((w->bucket != NULL) != (w->definition != NULL));
    assert((w->bucket ? w->bucket->seq : w->seq) > 0);
    return w->bucket ? !w->bucket->stored : w->definition->version == 1;
}

static void put_insert(struct bulk *inserts, const struct view_write *w, const struct times *times)
{
    bson_t *doc = bulk_next(inserts);

    put_id(doc, w);
    if (w->definition)
        BSON_APPEND_DATE_TIME(doc, "created", times->created_ms);
    put_view(doc, w, times);
    bulk_end(inserts);
}

static void put_update(struct bulk *updates, const struct view_write *w, const struct times *times)
{
    AUTO_BSON filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    bson_t max;

    put_id(&filter, w);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$max", &max);
    put_view(&max, w, times);
    bson_append_document_end(&update, &max);
    if (w->definition)
        BCON_APPEND(&update, "$setOnInsert", "{", "created", BCON_DATE_TIME(times->created_ms), "}", "$unset", "{", "cleaned",
                    BCON_INT32(1), "}");
    bulk_update(updates, &filter, &update, true);
}

/* Give refused ones their next step; all others are written. False: the reply makes no sense. */
static bool take_reply(struct group *g, const bson_t *reply)
{
    int64_t index, code;
    bson_iter_t errors;

    for (size_t i = 0; i < g->sent_count; i++)
        g->sent[i]->todo = TODO_NOTHING;
    if (reply_errors(reply, &errors))
        while (reply_next_error(&errors, &index, &code)) {
            struct item *item = index >= 0 && (uint64_t)index < g->sent_count ? g->sent[index] : NULL;

            if (!item)
                return false;
            item->todo = code == CODE_DUPLICATE_KEY ? TODO_UPDATE : TODO_LOST;
            if (item->todo == TODO_LOST)
                log_event(LOG_ERROR, "store.write_refused", F_WORD("collection", collection_of(g)), F_WORD("coupon", item->view->coupon),
                          F_INT("code", code));
        }
    for (size_t i = 0; i < g->sent_count; i++)
        if (g->sent[i]->todo == TODO_NOTHING)
            g->sent[i]->view->written = true;
    return true;
}

/* Send one command for items with that `todo`, from *next on, as many as fit. */
static bool send_some(struct group *g, enum todo todo, size_t *next)
{
    struct bulk bulk;

    bulk_begin(&bulk, todo == TODO_INSERT ? "insert" : "update", collection_of(g));
    g->sent_count = 0;
    for (; *next < g->count && g->sent_count < COMMAND_PARTS_MAX && bulk.list.len < COMMAND_BYTES_MAX; ++*next) {
        struct item *item = &g->items[*next];
        struct times times = {0, 0};

        if (item->todo != todo)
            continue;
        if (item->view->definition && !read_times(g, item->view, &times)) {
            item->todo = TODO_LOST;
            continue;
        }
        (todo == TODO_INSERT ? put_insert : put_update)(&bulk, item->view, &times);
        g->sent[g->sent_count++] = item;
    }
    if (g->sent_count == 0) {
        bulk_free(&bulk);
        return true;
    }
    AUTO_BSON reply;
    return bulk_run(g->session, &bulk, &reply) && take_reply(g, &reply);
}

/* A second round follows only if two upserts met and the server did not settle it itself. */
static bool write_group(struct group *g)
{
    size_t left = g->count;

    for (int round = 0; left > 0 && round < ROUNDS_MAX; round++) {
        for (enum todo todo = TODO_INSERT; todo <= TODO_UPDATE; todo++)
            for (size_t next = 0; next < g->count;)
                if (!send_some(g, todo, &next))
                    return false;
        left = 0;
        for (size_t i = 0; i < g->count; i++)
            left += g->items[i].todo != TODO_NOTHING;
    }
    return left == 0;
}

static bool write_those(struct session *session, struct view_write *views, size_t count, bool definitions, struct item *items,
                        struct item **sent)
{
    struct group g = {session, definitions, items, 0, sent, 0};

    for (size_t i = 0; i < count; i++)
        if ((views[i].definition != NULL) == definitions)
            items[g.count++] = (struct item){&views[i], is_new(&views[i]) ? TODO_INSERT : TODO_UPDATE};
    return write_group(&g);
}

enum store_status checkpoint_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    struct item *items = checked(calloc(count + 1, sizeof *items)), **sent = checked(calloc(count + 1, sizeof *sent));
    bool good;

    for (size_t i = 0; i < count; i++)
        views[i].written = false;
    good = write_those(session_of(s), views, count, true, items, sent);
    good = write_those(session_of(s), views, count, false, items, sent) && good;
    *when = session_seen(s);
    free(sent);
    free(items);
    return good ? STORE_OK : STORE_FAILED;
}

/* ---- checkpoints ---- */

static void put_checkpoint(struct bulk *updates, const struct checkpoint_write *w)
{
    AUTO_BSON filter = BSON_INITIALIZER, view = BSON_INITIALIZER;

    assert(w->checkpoint.seq > 0 && w->lane >= 0 && w->lane < COUPON_LANES_MAX);
    codec_id(&filter, "_id", w->coupon, "l", w->lane);
    codec_checkpoint_put(&view, &w->checkpoint);
    AUTO_BCON update = BCON_NEW("$max", "{", "view", BCON_DOCUMENT(&view), "}");
    bulk_update(updates, &filter, update, true);
}

/* Two upserts that meet: the one that loses finds a duplicate key, and is sent again. */
#define UPSERT_TRIES 3

enum store_status checkpoints_write(struct store *s, const struct checkpoint_write *checkpoints, size_t count)
{
    enum store_status status = STORE_EXISTS;

    assert(count > 0);
    for (int i = 0; i < UPSERT_TRIES && status == STORE_EXISTS; i++) {
        struct bulk updates;

        bulk_begin(&updates, "update", "lanes");
        for (size_t k = 0; k < count; k++)
            put_checkpoint(&updates, &checkpoints[k]);
        status = bulk_send(session_of(s), &updates, NULL);
    }
    return status == STORE_OK ? STORE_OK : STORE_FAILED;
}
