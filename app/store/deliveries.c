/*
 * store/deliveries.c -- attempts to deliver events: {_id, h, c, l, seq, event, type, attempt, at, took, status, ...}.
 *
 * No body  a redelivery is built again from the ledger, and an answer that repeats a user's name is not kept: so no names are stored here
 */
#include <string.h>

#include "base/wake.h"
#include "store/bson_fields.h"
#include "store/hooks.h"
#include "store/session.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)
#define DELIVERIES "deliveries"

static const struct bson_field delivery_rows[] = {
    BSON_FIELD("_id", BSON_FIELD_CHARS, struct delivery, id, false, 0),
    BSON_FIELD("h", BSON_FIELD_CHARS, struct delivery, hook, false, 0),
    BSON_FIELD("c", BSON_FIELD_CHARS, struct delivery, coupon, false, 0),
    BSON_FIELD("l", BSON_FIELD_INT, struct delivery, lane, false, 0),
    BSON_FIELD("seq", BSON_FIELD_INT, struct delivery, seq, false, 0),
    BSON_FIELD("epoch", BSON_FIELD_INT, struct delivery, epoch, true, 0),
    BSON_FIELD("event", BSON_FIELD_INT, struct delivery, index, false, 0),
    BSON_FIELD("attempt", BSON_FIELD_INT, struct delivery, attempt, false, 0),
    BSON_FIELD("at", BSON_FIELD_TIME, struct delivery, at_ms, false, 0),
    BSON_FIELD("took", BSON_FIELD_INT, struct delivery, took_ms, false, 0),
    BSON_FIELD("status", BSON_FIELD_INT, struct delivery, status, true, 0),
    BSON_FIELD("succeeded", BSON_FIELD_BOOL, struct delivery, succeeded, false, 0),
    BSON_FIELD("snippet", BSON_FIELD_TEXT, struct delivery, snippet, true, 0),
    BSON_FIELD("error", BSON_FIELD_TEXT, struct delivery, error, true, 0),
    BSON_FIELD("again_of", BSON_FIELD_TEXT, struct delivery, again_of, true, 0),
    BSON_FIELD("asked", BSON_FIELD_TIME, struct delivery, asked_ms, true, 0),
};

/* item: a struct delivery *. */
static bool get_delivery(const bson_t *doc, void *item, struct arena *a)
{
    struct delivery *delivery = *(struct delivery **)item = arena_alloc(a, sizeof *delivery);
    const char *type;

    if (!bson_fields_read(doc, ROWS(delivery_rows), 0, delivery, a) || !find_text(doc, "type", &type))
        return false;
    delivery->type = event_type_of_name(type);
    return delivery->type != EVENT_NONE;
}

/* ---- writing ---- */

enum store_status mongo_deliveries_insert(struct store *s, const struct delivery *delivery, size_t count)
{
    struct bulk inserts;
    enum store_status status;

    bulk_begin(&inserts, "insert", DELIVERIES);
    for (size_t i = 0; i < count; i++) {
        bson_t *doc = bulk_next(&inserts);

        bson_fields_write(doc, ROWS(delivery_rows), 0, &delivery[i]);
        BSON_APPEND_UTF8(doc, "type", event_type_name((enum event_type)delivery[i].type));
        bulk_end(&inserts);
    }
    status = bulk_send(session_of(s), &inserts, NULL);
    return status == STORE_EXISTS ? STORE_OK : status; /* from an earlier try whose reply was lost */
}

static enum store_status update(struct store *s, const char *id, const bson_t *u)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));

    return session_update(session_of(s), DELIVERIES, filter, u, false);
}

enum store_status mongo_delivery_ask(struct store *s, const char *id, int64_t now_ms)
{
    AUTO_BCON u = BCON_NEW("$set", "{", "asked", BCON_DATE_TIME(now_ms), "}");
    enum store_status status = update(s, id, u);

    if (status == STORE_OK)
        wake_process(WAKE_DELIVERER);
    return status;
}

enum store_status mongo_delivery_made(struct store *s, const char *id)
{
    AUTO_BCON u = BCON_NEW("$unset", "{", "asked", BCON_INT32(1), "}");

    return update(s, id, u);
}

enum store_status mongo_deliveries_clean(struct store *s, int64_t before_ms)
{
    AUTO_BCON filter = BCON_NEW("at", "{", "$lt", BCON_DATE_TIME(before_ms), "}");

    return session_delete(session_of(s), DELIVERIES, filter, NULL);
}

/* ---- reading ---- */

static const struct doc_list list = {DELIVERIES, get_delivery, sizeof(struct delivery *), false};

enum store_status mongo_delivery(struct store *s, const char *hook, const char *id, struct arena *a,
                                 struct delivery **d)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id), "h", BCON_UTF8(hook));

    return session_find_one(session_of(s), DELIVERIES, filter, get_delivery, d, a);
}

enum store_status mongo_deliveries(struct store *s, const char *hook, int succeeded, const char *before, size_t most,
                                   struct arena *a, struct delivery ***d, size_t *count)
{
    AUTO_BCON filter = BCON_NEW("h", BCON_UTF8(hook));
    AUTO_BCON sort = BCON_NEW("sort", "{", "at", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    struct delivery *last = NULL;
    enum store_status status;

    *count = 0;
    if (before && (status = mongo_delivery(s, hook, before, a, &last)) != STORE_OK)
        return status;
    if (succeeded >= 0)
        BSON_APPEND_BOOL(filter, "succeeded", succeeded);
    if (last)
        session_add_older(filter, "at", last->at_ms, last->id);
    return session_list(session_of(s), &list, filter, sort, most, a, d, count);
}

enum store_status mongo_deliveries_asked(struct store *s, size_t most, struct arena *a, struct delivery ***d,
                                         size_t *count)
{
    AUTO_BCON filter = BCON_NEW("asked", "{", "$exists", BCON_BOOL(true), "}");
    AUTO_BCON sort = BCON_NEW("sort", "{", "asked", BCON_INT32(1), "}");

    return session_list(session_of(s), &list, filter, sort, most, a, d, count);
}
