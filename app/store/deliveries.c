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

struct delivery_list {
    struct delivery **items; /* room for `most` */
    size_t count, most;
    struct arena *arena;
};

static bool delivery_row(const bson_t *doc, void *context)
{
    struct delivery_list *list = context;
    struct delivery *delivery;
    const char *type;

    if (list->count == list->most)
        return true;
    delivery = arena_alloc(list->arena, sizeof *delivery);
    list->items[list->count++] = delivery;
    if (!bson_fields_read(doc, ROWS(delivery_rows), 0, delivery, list->arena) || !find_text(doc, "type", &type))
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
    AUTO_BCON command = BCON_NEW("update", DELIVERIES, "updates", "[", "{", "q", "{", "_id", BCON_UTF8(id), "}", "u",
                                 BCON_DOCUMENT(u), "}", "]");
    int64_t matched = 0;
    enum store_status status = session_write(session_of(s), command, &matched);

    return status == STORE_OK && matched == 0 ? STORE_NOT_FOUND : status;
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
    AUTO_BCON command = BCON_NEW("delete", DELIVERIES, "deletes", "[", "{", "q", "{", "at", "{", "$lt",
                                 BCON_DATE_TIME(before_ms), "}", "}", "limit", BCON_INT32(0), "}", "]");

    return session_write(session_of(s), command, NULL);
}

/* ---- reading ---- */

/* command holds find, filter and sort. */
static enum store_status find(struct store *s, bson_t *command, struct delivery_list *list)
{
    enum store_status status;

    BSON_APPEND_INT64(command, "limit", (int64_t)list->most);
    session_read_options(session_of(s), command, list->most);
    status = session_read(session_of(s), command, delivery_row, list);
    if (status != STORE_OK)
        list->count = 0;
    return status;
}

enum store_status mongo_delivery(struct store *s, const char *hook, const char *id, struct arena *a,
                                 struct delivery **d)
{
    struct delivery_list list = {d, 0, 1, a};
    AUTO_BCON command = BCON_NEW("find", DELIVERIES, "filter", "{", "_id", BCON_UTF8(id), "h", BCON_UTF8(hook), "}");
    enum store_status status = find(s, command, &list);

    return status == STORE_OK && list.count == 0 ? STORE_NOT_FOUND : status;
}

enum store_status mongo_deliveries(struct store *s, const char *hook, int succeeded, const char *before, size_t most,
                                   struct arena *a, struct delivery ***d, size_t *count)
{
    struct delivery_list list = {arena_array(a, most + 1, sizeof(struct delivery *)), 0, most, a};
    AUTO_BSON command = BSON_INITIALIZER;
    struct delivery *last = NULL;
    enum store_status status;
    bson_t sub;

    *d = list.items;
    *count = 0;
    if (before && (status = mongo_delivery(s, hook, before, a, &last)) != STORE_OK)
        return status;
    session_begin_find(&command, DELIVERIES, &sub);
    BSON_APPEND_UTF8(&sub, "h", hook);
    if (succeeded >= 0)
        BSON_APPEND_BOOL(&sub, "succeeded", succeeded);
    if (last)
        session_add_older(&sub, "at", last->at_ms, last->id);
    bson_append_document_end(&command, &sub);
    BCON_APPEND(&command, "sort", "{", "at", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    status = find(s, &command, &list);
    *count = list.count;
    return status;
}

enum store_status mongo_deliveries_asked(struct store *s, size_t most, struct arena *a, struct delivery ***d,
                                         size_t *count)
{
    struct delivery_list list = {arena_array(a, most + 1, sizeof(struct delivery *)), 0, most, a};
    AUTO_BCON command = BCON_NEW("find", DELIVERIES, "filter", "{", "asked", "{", "$exists", BCON_BOOL(true), "}", "}",
                                 "sort", "{", "asked", BCON_INT32(1), "}");
    enum store_status status = find(s, command, &list);

    *d = list.items;
    *count = list.count;
    return status;
}
