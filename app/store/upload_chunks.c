/*
 * store/upload_chunks.c -- texts in chunks: {_id: {u, p}, at, line, text, names, then rows, new, in_file, in_coupon, invalid, bad}.
 *
 * Text     bytes as sent, not necessarily UTF-8; removed once the chunk is worked off. The chunk's result stays until some time after its
 *          job ended
 * Names    of users are in no result: an erasure finds them in the texts that wait
 */
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "coupons/user_lines.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)
#define UPLOADS_MAX 1000 /* cleaned up at a time */
#define NAMES_AT_ONCE 16 /* chunks in which a user is looked for */

static const struct bson_field done_rows[] = {
    BSON_FIELD("imported", BSON_FIELD_BOOL, struct upload_chunk, imported, true, 0),
    BSON_FIELD("rows", BSON_FIELD_INT, struct upload_chunk, rows, true, 0),
    BSON_FIELD("new", BSON_FIELD_INT, struct upload_chunk, new_codes, true, 0),
    BSON_FIELD("in_file", BSON_FIELD_INT, struct upload_chunk, duplicates_in_file, true, 0),
    BSON_FIELD("in_coupon", BSON_FIELD_INT, struct upload_chunk, duplicates_in_coupon, true, 0),
    BSON_FIELD("invalid", BSON_FIELD_INT, struct upload_chunk, invalid, true, 0),
    BSON_FIELD("bad", BSON_FIELD_TEXT, struct upload_chunk, bad, true, 0),
};

static void put_id(bson_t *doc, const char *upload, int64_t chunk)
{
    BCON_APPEND(doc, "_id", "{", "u", BCON_UTF8(upload), "p", BCON_INT64(chunk), "}");
}

/* The text, if it is there still. */
static bool get_body(const bson_t *doc, struct upload_chunk *out, struct arena *a)
{
    bson_subtype_t subtype;
    const uint8_t *bytes;
    bson_iter_t it;
    uint32_t len;

    if (!bson_iter_init_find(&it, doc, "text"))
        return true;
    if (!BSON_ITER_HOLDS_BINARY(&it))
        return false;
    bson_iter_binary(&it, &subtype, &len, &bytes);
    out->text = arena_memdup(a, bytes, len);
    out->len = len;
    return true;
}

/* ---- writing ---- */

/* Run the update {q: {_id}, u: change}, majority. */
static enum store_status update_chunk(struct store *s, const struct upload_chunk *chunk, const bson_t *change, bool insert)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    put_id(&filter, chunk->upload, chunk->number);
    return session_update(session_of(s), "parts", &filter, change, insert);
}

enum store_status mongo_chunk_put(struct store *s, const struct upload_chunk *chunk)
{
    AUTO_BSON whole = BSON_INITIALIZER;

    BSON_APPEND_DATE_TIME(&whole, "at", clock_now_ms());
    BSON_APPEND_INT64(&whole, "line", chunk->first_line);
    BSON_APPEND_BINARY(&whole, "text", BSON_SUBTYPE_BINARY, (const uint8_t *)chunk->text, (uint32_t)chunk->len);
    if (chunk->names)
        BSON_APPEND_BOOL(&whole, "names", true);
    if (chunk->bad)
        BSON_APPEND_UTF8(&whole, "bad", chunk->bad);
    return update_chunk(s, chunk, &whole, true);
}

enum store_status mongo_chunk_done(struct store *s, const struct upload_chunk *chunk)
{
    struct upload_chunk done = *chunk;
    AUTO_BSON change = BSON_INITIALIZER;
    bson_t sub;

    done.imported = true;
    BSON_APPEND_DOCUMENT_BEGIN(&change, "$set", &sub);
    bson_fields_write(&sub, ROWS(done_rows), 0, &done);
    bson_append_document_end(&change, &sub);
    BCON_APPEND(&change, "$unset", "{", "text", BCON_INT32(1), "names", BCON_INT32(1), "}");
    return update_chunk(s, chunk, &change, false);
}

/* ---- forgetting a user ---- */

static bool get_named(const bson_t *doc, void *item, struct arena *a)
{
    struct upload_chunk *c = item;
    bson_t id;

    if (!find_document(doc, "_id", &id) || !find_text(&id, "u", &c->upload) || !find_int(&id, "p", &c->number) ||
        !get_body(doc, c, a) || !c->text)
        return false;
    c->upload = arena_strdup(a, c->upload);
    return true;
}

/* The next chunks with names, after the chunk {_id}. */
static enum store_status find_named(struct session *session, const bson_t *after, struct arena *a, struct upload_chunk **chunks,
                                    size_t *count)
{
    static const struct doc_list list = {"parts", get_named, sizeof **chunks, false};
    AUTO_BCON filter = BCON_NEW("names", BCON_BOOL(true));
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    bson_t id;

    if (find_document(after, "_id", &id))
        BCON_APPEND(filter, "_id", "{", "$gt", BCON_DOCUMENT(&id), "}");
    return session_list(session, &list, filter, sort, NAMES_AT_ONCE, a, chunks, count);
}

/* Remove the user's lines from a chunk, unless its text has changed meanwhile: *again. */
static enum store_status forget_in(struct session *session, const struct upload_chunk *c, const char *user, struct arena *a, bool *again)
{
    char *text = arena_memdup(a, c->text, c->len);
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    if (!user_lines_forget(text, c->len, user))
        return STORE_OK;
    put_id(&filter, c->upload, c->number);
    BSON_APPEND_BINARY(&filter, "text", BSON_SUBTYPE_BINARY, (const uint8_t *)c->text, (uint32_t)c->len);
    AUTO_BCON u = BCON_NEW("$set", "{", "text", BCON_BIN(BSON_SUBTYPE_BINARY, (const uint8_t *)text, (uint32_t)c->len), "}");
    status = session_update(session, "parts", &filter, u, false);
    *again = status == STORE_NOT_FOUND;
    return *again ? STORE_OK : status;
}

/* Look through the next chunks; *after moves to the last of them, or to the one before it that must be read again. */
static enum store_status forget_some(struct session *session, const char *user, bson_t *after, bool *more)
{
    struct upload_chunk *chunks;
    enum store_status status;
    bool again = false;
    struct arena arena;
    size_t count;

    arena_init(&arena, 0);
    status = find_named(session, after, &arena, &chunks, &count);
    *more = count > 0;
    for (size_t i = 0; i < count && status == STORE_OK && !again; i++) {
        status = forget_in(session, &chunks[i], user, &arena, &again);
        if (status == STORE_OK && !again) {
            bson_reinit(after);
            put_id(after, chunks[i].upload, chunks[i].number);
        }
    }
    arena_free(&arena);
    return status;
}

enum store_status mongo_chunks_forget(struct store *s, const char *user)
{
    bson_t after = BSON_INITIALIZER;
    enum store_status status = STORE_OK;
    bool more = true;

    while (status == STORE_OK && more)
        status = forget_some(session_of(s), user, &after, &more);
    bson_destroy(&after);
    return status;
}

/* ---- reading ---- */

static bool get_chunk(const bson_t *doc, void *item, struct arena *a)
{
    struct upload_chunk *out = item;

    return bson_fields_read(doc, ROWS(done_rows), 0, out, a) && find_int(doc, "line", &out->first_line) && get_body(doc, out, a);
}

enum store_status mongo_chunk(struct store *s, const char *upload, int64_t chunk, struct arena *a, struct upload_chunk *out)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    *out = (struct upload_chunk){.upload = upload, .number = chunk};
    put_id(&filter, upload, chunk);
    return session_find_one(session_of(s), "parts", &filter, get_chunk, out, a);
}

/* ---- cleaning up ---- */

struct upload_list {
    const char *items[UPLOADS_MAX];
    size_t count;
    struct arena arena;
};

static bool upload_row(const bson_t *doc, void *context)
{
    struct upload_list *list = context;
    const char *upload;

    if (!find_text(doc, "_id", &upload))
        return false;
    if (list->count < UPLOADS_MAX)
        list->items[list->count++] = arena_strdup(&list->arena, upload);
    return true;
}

/* Uploads without a chunk written since before_ms, and without a job that is unfinished or ended since ended_before_ms. */
static enum store_status find_old_uploads(struct session *session, int64_t before_ms, int64_t ended_before_ms,
                                          struct upload_list *list)
{
    AUTO_BCON command = BCON_NEW(
        "aggregate", "parts",
        "pipeline", "[",
            "{", "$match", "{", "at", "{", "$lt", BCON_DATE_TIME(before_ms), "}", "}", "}",
            "{", "$group", "{", "_id", "$_id.u", "}", "}",
            "{", "$lookup", "{", "from", "jobs", "localField", "_id", "foreignField", "upload",
                "pipeline", "[", "{", "$match", "{", "finished", "{", "$not", "{", "$lt",
                    BCON_DATE_TIME(ended_before_ms), "}", "}", "}", "}", "{", "$limit", BCON_INT32(1), "}", "]",
                "as", "needed", "}", "}",
            "{", "$lookup", "{", "from", "parts", "let", "{", "u", "$_id", "}",
                "pipeline", "[", "{", "$match", "{", "at", "{", "$gte", BCON_DATE_TIME(before_ms), "}",
                    "$expr", "{", "$eq", "[", "$_id.u", "$$u", "]", "}", "}", "}",
                    "{", "$limit", BCON_INT32(1), "}", "]",
                "as", "newer", "}", "}",
            "{", "$match", "{", "needed", "[", "]", "newer", "[", "]", "}", "}",
            "{", "$limit", BCON_INT32(UPLOADS_MAX), "}",
        "]",
        "cursor", "{", "}");

    session_read_options(session, command, 0);
    return session_read(session, command, upload_row, list);
}

static enum store_status delete_uploads(struct session *session, const struct upload_list *list)
{
    struct bulk deletes;

    bulk_begin(&deletes, "delete", "parts");
    for (size_t i = 0; i < list->count; i++) {
        BCON_APPEND(bulk_next(&deletes), "q", "{", "_id", "{", "$gte", "{", "u", BCON_UTF8(list->items[i]), "p", BCON_MINKEY, "}",
                    "$lte", "{", "u", BCON_UTF8(list->items[i]), "p", BCON_MAXKEY, "}", "}", "}", "limit", BCON_INT32(0));
        bulk_end(&deletes);
    }
    return bulk_send(session, &deletes, NULL);
}

enum store_status mongo_chunks_clean(struct store *s, int64_t before_ms, int64_t ended_before_ms)
{
    struct upload_list *list = checked(calloc(1, sizeof *list));
    enum store_status status;

    arena_init(&list->arena, 0);
    status = find_old_uploads(session_of(s), before_ms, ended_before_ms, list);
    if (status == STORE_OK)
        status = delete_uploads(session_of(s), list);
    arena_free(&list->arena);
    free(list);
    return status;
}
