/*
 * store/hooks.c -- webhooks: {_id, url, events[], coupons[], enabled, reason, secret, ..., owner, lease, arrived, behind}.
 *
 * Positions  {_id: {h, c, l}, at: {seq, event}, attempts, not_before}: `at` only ever grows, by $max
 * Attempts   see store/deliveries.c
 */

#include "base/wake.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/hooks.h"
#include "store/session.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)
#define HOOKS "webhooks"
#define POSITIONS "webhook_positions"
#define HOOKS_MOST 1000
#define CLOCKS_APART_S 60 /* a batch arrives at most this much earlier than by a worker's clock */

/* ---- documents ---- */

#define HOOK_REST 1 /* of rows that mongo_hook_change() does not write */
static const struct bson_field hook_rows[] = {
    BSON_FIELD("_id", BSON_FIELD_TEXT, struct hook, id, false, HOOK_REST),
    BSON_FIELD("url", BSON_FIELD_TEXT, struct hook, url, false, 0),
    BSON_FIELD("enabled", BSON_FIELD_BOOL, struct hook, enabled, false, 0),
    BSON_FIELD("reason", BSON_FIELD_TEXT, struct hook, reason, true, 0),
    BSON_FIELD("secret", BSON_FIELD_TEXT, struct hook, secret, false, 0),
    BSON_FIELD("old_secret", BSON_FIELD_TEXT, struct hook, old_secret, true, 0),
    BSON_FIELD("old_until", BSON_FIELD_TIME, struct hook, old_until_ms, true, 0),
    BSON_FIELD("created", BSON_FIELD_TIME, struct hook, created_ms, false, HOOK_REST),
    BSON_FIELD("changed", BSON_FIELD_TIME, struct hook, changed_ms, false, 0),
    BSON_FIELD("failing", BSON_FIELD_TIME, struct hook, failing_ms, true, HOOK_REST),
    BSON_FIELD("owner", BSON_FIELD_TEXT, struct hook, owner, true, HOOK_REST),
    BSON_FIELD("lease", BSON_FIELD_TIME, struct hook, lease_ms, true, HOOK_REST),
    BSON_FIELD("test", BSON_FIELD_TIME, struct hook, test_ms, true, HOOK_REST),
};

static void put_events(bson_t *doc, unsigned events)
{
    char buffer[16];
    bson_t list;
    size_t k = 0;

    BSON_APPEND_ARRAY_BEGIN(doc, "events", &list);
    for (unsigned t = 0; t < EVENT_TYPE_COUNT; t++)
        if (events & (1u << t))
            bson_append_utf8(&list, array_key(k++, buffer), -1, event_type_name((enum event_type)t), -1);
    bson_append_array_end(doc, &list);
}

/* Types that only a newer version knows are skipped. */
static bool get_events(const bson_t *doc, unsigned *events)
{
    const char *name;
    bson_iter_t it;
    bson_t list;

    if (!find_array(doc, "events", &list) || !bson_iter_init(&it, &list))
        return false;
    while (bson_iter_next(&it)) {
        if (!get_text(&it, &name))
            return false;
        *events |= (1u << event_type_of_name(name)) & EVENT_TYPES_ALL;
    }
    return true;
}

/* item: a struct hook *. */
static bool get_hook(const bson_t *doc, void *item, struct arena *a)
{
    struct hook *h = *(struct hook **)item = arena_alloc(a, sizeof *h);

    codec_watermark_get(doc, &h->watermark);
    return bson_fields_read(doc, ROWS(hook_rows), HOOK_REST, h, a) && get_events(doc, &h->events) &&
           find_texts(doc, "coupons", &h->coupons, a);
}

/* ---- subscriptions ---- */

static enum store_status wake_deliverer(enum store_status status)
{
    if (status == STORE_OK)
        wake_process(WAKE_DELIVERER);
    return status;
}

enum store_status mongo_hook_insert(struct store *s, const struct hook *h)
{
    AUTO_BSON doc = BSON_INITIALIZER;

    bson_fields_write(&doc, ROWS(hook_rows), HOOK_REST, h);
    put_events(&doc, h->events);
    put_texts(&doc, "coupons", &h->coupons);
    BSON_APPEND_TIMESTAMP(&doc, "arrived", (uint32_t)(h->created_ms / 1000 - CLOCKS_APART_S), 1);
    return wake_deliverer(session_insert(session_of(s), HOOKS, &doc) == STORE_OK ? STORE_OK : STORE_FAILED);
}

enum store_status mongo_hook(struct store *s, const char *id, struct arena *a, struct hook **h)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));

    return session_find_one(session_of(s), HOOKS, filter, get_hook, h, a);
}

enum store_status mongo_hooks(struct store *s, const char *before, size_t most, struct arena *a, struct hook ***hooks,
                              size_t *count)
{
    static const struct doc_list list = {HOOKS, get_hook, sizeof **hooks, false};
    AUTO_BCON sort = BCON_NEW("sort", "{", "created", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct hook *last = NULL;
    enum store_status status;

    *count = 0;
    if (before && (status = mongo_hook(s, before, a, &last)) != STORE_OK)
        return status;
    if (last)
        session_add_older(&filter, "created", last->created_ms, last->id);
    return session_list(session_of(s), &list, &filter, sort, most, a, hooks, count);
}

static enum store_status update(struct store *s, const bson_t *filter, const bson_t *u)
{
    return session_update(session_of(s), HOOKS, filter, u, false);
}

enum store_status mongo_hook_change(struct store *s, const struct hook *h, int64_t was_ms)
{
    static const char *const optional[] = {"reason", "old_secret", "old_until"};
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(h->id), "changed", BCON_DATE_TIME(was_ms));
    AUTO_BSON set = BSON_INITIALIZER, unset = BSON_INITIALIZER;
    struct hook changed = *h;

    if (!h->old_secret)
        changed.old_until_ms = 0;
    bson_fields_write(&set, ROWS(hook_rows), 0, &changed);
    put_events(&set, h->events);
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (!bson_has_field(&set, optional[i]))
            BSON_APPEND_INT32(&unset, optional[i], 1);
    if (h->enabled)
        BSON_APPEND_INT32(&unset, "failing", 1);
    AUTO_BCON u = BCON_NEW("$set", BCON_DOCUMENT(&set), "$unset", BCON_DOCUMENT(&unset));

    return wake_deliverer(update(s, filter, u));
}

enum store_status mongo_hook_ask_test(struct store *s, const char *id, int64_t now_ms)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id), "test", "{", "$exists", BCON_BOOL(false), "}");
    AUTO_BCON u = BCON_NEW("$set", "{", "test", BCON_DATE_TIME(now_ms), "}");

    return wake_deliverer(update(s, filter, u));
}

enum store_status mongo_hook_sweep(struct store *s, const char *id)
{
    AUTO_BCON of_position = BCON_NEW("_id.h", BCON_UTF8(id));
    AUTO_BCON of_attempt = BCON_NEW("h", BCON_UTF8(id));
    enum store_status positions = session_delete(session_of(s), POSITIONS, of_position, NULL);
    enum store_status attempts = session_delete(session_of(s), "deliveries", of_attempt, NULL);

    return positions == STORE_OK ? attempts : positions;
}

enum store_status mongo_hook_remove(struct store *s, const char *id)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));
    int64_t removed = 0;
    enum store_status status = wake_deliverer(session_delete(session_of(s), HOOKS, filter, &removed));

    if (status != STORE_OK)
        return status;
    mongo_hook_sweep(s, id); /* if this fails, the deliverer does it */
    return removed ? STORE_OK : STORE_NOT_FOUND;
}

/* ---- the deliverer's ---- */

enum store_status mongo_hook_tested(struct store *s, const char *id, int64_t test_ms)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id), "test", BCON_DATE_TIME(test_ms));
    AUTO_BCON u = BCON_NEW("$unset", "{", "test", BCON_INT32(1), "}");

    return update(s, filter, u);
}

enum store_status mongo_hook_claim(struct store *s, const char *id, const char *owner, int64_t now_ms, int64_t until_ms)
{
    AUTO_BCON filter = BCON_NEW(
        "_id", BCON_UTF8(id),
        "$or", "[",
            "{", "owner", BCON_UTF8(owner), "}",
            "{", "owner", "{", "$exists", BCON_BOOL(false), "}", "}",
            "{", "lease", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}",
        "]");
    AUTO_BCON u = BCON_NEW("$set", "{", "owner", BCON_UTF8(owner), "lease", BCON_DATE_TIME(until_ms), "}");

    return update(s, filter, u);
}

enum store_status mongo_hooks_release(struct store *s, const char *owner)
{
    AUTO_BCON filter = BCON_NEW("owner", BCON_UTF8(owner));
    AUTO_BCON u = BCON_NEW("$unset", "{", "owner", BCON_INT32(1), "lease", BCON_INT32(1), "}");

    return session_update_all(session_of(s), HOOKS, filter, u);
}

enum store_status mongo_hook_arrived(struct store *s, const char *id, const char *owner, const struct watermark *w)
{
    AUTO_BSON members = BSON_INITIALIZER;

    codec_watermark_put(&members, w);
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id), "owner", BCON_UTF8(owner));
    AUTO_BCON u = BCON_NEW("$set", BCON_DOCUMENT(&members));

    return update(s, filter, u);
}

enum store_status mongo_hook_failing(struct store *s, const struct hook *h, int64_t since_ms)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(h->id), "changed", BCON_DATE_TIME(h->changed_ms));
    AUTO_BCON u = since_ms ? BCON_NEW("$set", "{", "failing", BCON_DATE_TIME(since_ms), "}")
                           : BCON_NEW("$unset", "{", "failing", BCON_INT32(1), "}");

    return update(s, filter, u);
}

enum store_status mongo_hook_disable(struct store *s, const struct hook *h, const char *reason, int64_t now_ms)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(h->id), "changed", BCON_DATE_TIME(h->changed_ms));
    AUTO_BCON u = BCON_NEW("$set", "{", "enabled", BCON_BOOL(false), "reason", BCON_UTF8(reason), "changed",
                           BCON_DATE_TIME(now_ms), "}");

    return update(s, filter, u);
}

/* ---- positions ---- */

#define POSITION_ID(p) "_id", "{", "h", BCON_UTF8((p).hook), "c", BCON_UTF8((p).coupon), "l", BCON_INT64((p).lane), "}"

enum store_status mongo_positions_write(struct store *s, const struct hook_position *p, size_t count)
{
    struct bulk updates;

    bulk_begin(&updates, "update", POSITIONS);
    for (size_t i = 0; i < count; i++) {
        AUTO_BCON filter = BCON_NEW(POSITION_ID(p[i]));
        AUTO_BCON u = BCON_NEW("$max", "{", "at", "{", "seq", BCON_INT64(p[i].seq), "event", BCON_INT64(p[i].index), "}", "}", "$set", "{",
                               "attempts", BCON_INT64(p[i].attempts), "not_before", BCON_DATE_TIME(p[i].not_before_ms), "}");

        bulk_update(&updates, filter, u, true);
    }
    return bulk_send(session_of(s), &updates, NULL);
}

enum store_status mongo_positions_restart(struct store *s, const char *hook)
{
    AUTO_BCON filter = BCON_NEW("_id.h", BCON_UTF8(hook));
    AUTO_BCON u = BCON_NEW("$set", "{", "attempts", BCON_INT64(0), "not_before", BCON_DATE_TIME(0), "}");

    return session_update_all(session_of(s), POSITIONS, filter, u);
}

static bool get_position(const bson_t *doc, void *item, struct arena *a)
{
    struct hook_position *p = item;
    bson_t at;

    (void)a;
    return find_document(doc, "at", &at) && find_int(&at, "seq", &p->seq) && find_int(&at, "event", &p->index) &&
           find_int(doc, "attempts", &p->attempts) && find_time(doc, "not_before", &p->not_before_ms);
}

enum store_status mongo_position(struct store *s, struct hook_position *p)
{
    AUTO_BCON filter = BCON_NEW(POSITION_ID(*p));

    return session_find_one(session_of(s), POSITIONS, filter, get_position, p, NULL);
}

enum store_status mongo_positions_remove(struct store *s, const struct hook_position *p, size_t count)
{
    struct bulk deletes;

    bulk_begin(&deletes, "delete", POSITIONS);
    for (size_t i = 0; i < count; i++) {
        AUTO_BCON filter = BCON_NEW(POSITION_ID(p[i]), "at.seq", BCON_INT64(p[i].seq));

        bulk_delete(&deletes, filter);
    }
    return bulk_send(session_of(s), &deletes, NULL);
}

/* ---- which are behind ---- */

static bool wants(const struct hook *h, const char *coupon)
{
    for (size_t i = 0; i < h->coupons.count; i++)
        if (strcmp(h->coupons.items[i], coupon) == 0)
            return true;
    return h->coupons.count == 0;
}

enum store_status mongo_hook_behind(struct store *s, const struct batch *b, struct arena *a, const char **behind)
{
    struct hook **hooks;
    size_t count;
    enum store_status status = mongo_hooks(s, NULL, HOOKS_MOST, a, &hooks, &count);

    *behind = NULL;
    for (size_t i = 0; i < count && status == STORE_OK && !*behind; i++) {
        const struct hook *h = hooks[i];
        struct hook_position p = {.hook = h->id, .coupon = b->coupon, .lane = b->lane};

        if (!h->enabled || !wants(h, b->coupon) ||
            (b->arrived && h->watermark.arrived > b->arrived && !watermark_has_behind(&h->watermark, b->coupon, b->lane)))
            continue;
        status = mongo_position(s, &p);
        if (status == STORE_NOT_FOUND)
            status = STORE_OK;
        if (p.seq < b->head.seq)
            *behind = h->id;
    }
    return status;
}
