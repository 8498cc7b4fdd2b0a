/*
 * store/deliveries.c -- attempts to deliver events: {_id, h, c, l, seq, part, type, attempt, at, took, status, ...}.
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
    BSON_FIELD("part", BSON_FIELD_INT, struct delivery, part, false, 0),
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
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    int64_t index, code;
    bson_iter_t errors;
    char buffer[16];
    bson_t list;

    if (count == 0)
        return STORE_OK;
    BSON_APPEND_UTF8(&command, "insert", DELIVERIES);
    session_write_options(session, &command);
    BSON_APPEND_ARRAY_BEGIN(&command, "documents", &list);
    for (size_t i = 0; i < count; i++) {
        bson_t doc;

        bson_append_document_begin(&list, array_key(i, buffer), -1, &doc);
        bson_fields_write(&doc, ROWS(delivery_rows), 0, &delivery[i]);
        BSON_APPEND_UTF8(&doc, "type", event_type_name((enum event_type)delivery[i].type));
        bson_append_document_end(&list, &doc);
    }
    bson_append_array_end(&command, &list);

    AUTO_BSON reply;
    if (!session_run(session, &command, &reply) || !reply_is_clean(&reply))
        return STORE_FAILED;
    /* a duplicate is from an earlier try whose reply was lost */
    for (bool more = reply_errors(&reply, &errors); more && (more = reply_next_error(&errors, &index, &code));)
        if (code != CODE_DUPLICATE_KEY)
            return STORE_FAILED;
    return STORE_OK;
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

static enum store_status find(struct store *s, const bson_t *filter, const bson_t *sort, size_t most, struct arena *a, struct delivery ***d,
                              size_t *count)
{
    struct doc_list list = {get_delivery, sizeof **d, a, NULL, 0, 0};
    enum store_status status = session_find(session_of(s), DELIVERIES, filter, sort, most, session_list_row, &list);

    *d = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

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
    return find(s, filter, sort, most, a, d, count);
}

enum store_status mongo_deliveries_asked(struct store *s, size_t most, struct arena *a, struct delivery ***d,
                                         size_t *count)
{
    AUTO_BCON filter = BCON_NEW("asked", "{", "$exists", BCON_BOOL(true), "}");
    AUTO_BCON sort = BCON_NEW("sort", "{", "asked", BCON_INT32(1), "}");

    return find(s, filter, sort, most, a, d, count);
}
