/* store/session.c -- see session.h. */
#include "store/session.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/mongos.h"

#define UNREADABLE_ID_MAX 200 /* characters of an id that are logged */

static mongoc_client_t *borrow_client(struct mongo *m)
{
    mongoc_client_t *client = m->client;

    if (!m->pool) {
        assert(client); /* one session at a time */
        m->client = NULL;
        return client;
    }
    while (!(client = mongoc_client_pool_pop(m->pool)))
        log_event(LOG_WARNING, "store.pool_empty", F_TEXT("hint", "raise mongodb.pool_size"));
    return client;
}

static struct session *new_session(struct mongo *m, mongoc_client_t *client)
{
    struct session *session = checked(calloc(1, sizeof *session));

    session->mongo = m;
    session->options = bson_new();
    session->number = randombytes_random();
    session->client = client;
    return session;
}

struct session *session_open(struct mongo *m)
{
    return new_session(m, borrow_client(m));
}

struct session *session_try_open(struct mongo *m)
{
    mongoc_client_t *client = m->pool ? mongoc_client_pool_try_pop(m->pool) : NULL;

    return client ? new_session(m, client) : NULL;
}

bool session_wait(struct mono until)
{
    const struct timespec pause = {0, 200 * 1000000L};

    if (mono_before(until, mono_now()))
        return false;
    nanosleep(&pause, NULL);
    return true;
}

void session_close(struct store *s)
{
    struct session *session = session_of(s);

    feed_stop_hearing(session);
    time_forget_days(session);
    if (session->session)
        mongoc_client_session_destroy(session->session);
    if (session->mongo->pool)
        mongoc_client_pool_push(session->mongo->pool, session->client);
    else
        session->mongo->client = session->client;
    bson_destroy(session->options);
    free(session);
}

/* ---- commands ---- */

static bool learn_kind(struct session *session, bson_error_t *error)
{
    AUTO_BSON command = BSON_INITIALIZER;
    AUTO_BSON reply;

    BSON_APPEND_INT32(&command, "hello", 1);
    if (!mongoc_client_command_with_opts(session->client, "admin", &command, NULL, NULL, &reply, error))
        return false;
    session->mongo->sharded = is_mongos(&reply);
    return true;
}

/* Created late, since it needs a server. */
static bool ensure_session(struct session *session, bson_error_t *error)
{
    mongoc_session_opt_t *plain;

    if (session->session)
        return true;
    if (!learn_kind(session, error))
        return false;
    plain = mongoc_session_opts_new();
    mongoc_session_opts_set_causal_consistency(plain, false);
    session->session = mongoc_client_start_session(session->client, plain, error);
    mongoc_session_opts_destroy(plain);
    return session->session && mongoc_client_session_append(session->session, session->options, error);
}

bool session_ready(struct session *session)
{
    bson_error_t error = {0};

    if (ensure_session(session, &error))
        return true;
    log_event(LOG_WARNING, "store.failed", F_WORD("command", "hello"), F_INT("code", error.code), F_TEXT("reason", error.message));
    return false;
}

bool session_run_on(struct session *session, const char *database, const bson_t *command, bson_t *reply, bson_error_t *error)
{
    if (!ensure_session(session, error)) {
        bson_init(reply);
        return false;
    }
    struct mongo *m = session->mongo;
    int64_t none = 0;
    bool good;

    if (!m->asked_ns)
        atomic_compare_exchange_strong(&m->asked_ns, &none, mono_now().ns);
    good = mongoc_client_command_with_opts(session->client, database, command, NULL, session->options, reply, error);
    if (good && m->asked_ns)
        m->asked_ns = 0;
    return good;
}

bool mongo_is_away(struct mongo *m, int64_t ms)
{
    struct mono asked = {m->asked_ns};

    return asked.ns && mono_ms_between(asked, mono_now()) >= ms;
}

bool session_run(struct session *session, const bson_t *command, bson_t *reply)
{
    bson_error_t error = {0};
    bson_iter_t it;
    char *text;

    if (session_run_on(session, session->mongo->database, command, reply, &error))
        return true;
    session->code = error.code;
    if (error.code == CODE_UNKNOWN_ZONE) /* the request is wrong, not the server */
        return false;
    text = error.message;
    for (; *text; text++)
        if (*text == '"')
            *text = '\'';
    log_event(LOG_WARNING, "store.failed", F_WORD("command", bson_iter_init(&it, command) && bson_iter_next(&it) ? bson_iter_key(&it) : ""),
              F_INT("code", error.code), F_TEXT("reason", error.message));
    return false;
}

char *document_id_text(const bson_t *doc)
{
    AUTO_BSON id = BSON_INITIALIZER;
    bson_iter_t it, member;
    char *text;

    if (bson_iter_init_find(&it, doc, "_id") && BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &member)) {
        while (bson_iter_next(&member))
            if (strcmp(bson_iter_key(&member), "code") != 0)
                bson_append_iter(&id, NULL, -1, &member);
    } else if (bson_iter_init_find(&it, doc, "_id")) {
        bson_append_iter(&id, "_id", 3, &it);
    }
    text = bson_as_relaxed_extended_json(&id, NULL);
    if (text && strlen(text) > UNREADABLE_ID_MAX)
        text[UNREADABLE_ID_MAX] = '\0';
    return text;
}

void log_unreadable(const char *collection, const bson_t *doc)
{
    char *text = document_id_text(doc);

    log_event(LOG_ERROR, "store.unreadable", F_WORD("collection", collection), F_WORD("id", text ? text : ""));
    bson_free(text);
}

/* ---- reading ---- */

/* One reply of a cursor's. */
struct reply {
    bson_t whole;     /* to be destroyed, even if there was no such reply */
    bson_t documents; /* within `whole`, like collection */
    const char *collection;
    int64_t cursor;   /* 0: this was the last one */
};

/* Parse it; member: the array of its documents. */
static bool read_cursor(struct reply *r, const char *member)
{
    const char *name;
    bson_t cursor;

    if (!find_document(&r->whole, "cursor", &cursor) || !find_array(&cursor, member, &r->documents) ||
        !find_int(&cursor, "id", &r->cursor) || !find_text(&cursor, "ns", &name))
        return false;
    name = strchr(name, '.');
    r->collection = name ? name + 1 : "";
    return true;
}

/* most: documents; 0: 16 MiB of them. False: no such reply; the server's error is logged. */
static bool read_next(struct session *session, const struct reply *before, int64_t most, struct reply *reply)
{
    AUTO_BSON command = BSON_INITIALIZER;

    BSON_APPEND_INT64(&command, "getMore", before->cursor);
    BSON_APPEND_UTF8(&command, "collection", before->collection);
    if (most)
        BSON_APPEND_INT64(&command, "batchSize", most); /* otherwise a reply has up to 16 MiB */
    return session_run(session, &command, &reply->whole) && read_cursor(reply, "nextBatch");
}

/* Where documents go, and when to stop. */
struct reader {
    session_row *row;
    bool (*enough)(const void *context); /* NULL: never */
    void *context;
    bool more; /* it had enough, and there are more */
};

static bool hand_out(const struct reply *reply, struct reader *r)
{
    bson_iter_t it;
    bson_t doc;

    if (!bson_iter_init(&it, &reply->documents))
        return false;
    while (bson_iter_next(&it)) {
        r->more = r->enough && r->enough(r->context);
        if (r->more)
            return true;
        if (!get_document(&it, &doc))
            return false;
        if (!r->row(&doc, r->context)) {
            log_unreadable(reply->collection, &doc);
            return false;
        }
    }
    r->more = reply->cursor && r->enough && r->enough(r->context);
    return it.err_off == 0;
}

/* Make the server drop the cursor, if one is open. If that fails, the server drops it in time. */
static void end_cursor(struct session *session, const struct reply *last)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t reply;

    if (!last->cursor)
        return;
    BCON_APPEND(&command, "killCursors", BCON_UTF8(last->collection), "cursors", "[", BCON_INT64(last->cursor), "]");
    session_run(session, &command, &reply);
    bson_destroy(&reply);
}

/* How many documents a find's replies may have; 0: not given. */
static int64_t batch_size(const bson_t *command)
{
    int64_t size;

    return find_int(command, "batchSize", &size) ? size : 0;
}

static enum store_status read_with(struct session *session, const bson_t *command, struct reader *r)
{
    struct reply replies[2], *reply = replies;
    int64_t most = batch_size(command);
    bool good;

    if (!session_run(session, command, &reply->whole)) {
        bson_destroy(&reply->whole);
        return session->code == CODE_UNKNOWN_ZONE ? STORE_NO_ZONE : STORE_FAILED;
    }
    good = read_cursor(reply, "firstBatch") && hand_out(reply, r);
    while (good && reply->cursor && !r->more) {
        struct reply *next = &replies[reply == replies];

        good = read_next(session, reply, most, next) && hand_out(next, r);
        bson_destroy(&reply->whole);
        reply = next;
    }
    if (good)
        end_cursor(session, reply);
    bson_destroy(&reply->whole);
    return good ? STORE_OK : STORE_FAILED;
}

bool session_any_row(const bson_t *doc, void *context)
{
    (void)doc;
    *(bool *)context = true;
    return true;
}

enum store_status session_read(struct session *session, const bson_t *command, session_row *row, void *context)
{
    return read_with(session, command, &(struct reader){.row = row, .context = context});
}

void session_add_shard_key(const struct session *session, bson_t *filter)
{
    const char *coupon, *last = NULL;
    AUTO_BSON key = BSON_INITIALIZER;
    bson_t id, list, from, to;
    struct in_clause in;
    bson_iter_t it;

    if (!session->mongo->sharded || bson_iter_init_find(&it, filter, "_id.c") || !find_document(filter, "_id", &id))
        return;
    if (find_array(&id, "$in", &list) && bson_iter_init(&it, &list)) {
        in_begin(&in, &key, "_id.c");
        while (bson_iter_next(&it))
            if (get_document(&it, &from) && find_text(&from, "c", &coupon) && (!last || strcmp(last, coupon) != 0)) {
                bson_append_utf8(&in.values, in_next(&in), -1, coupon, -1);
                last = coupon;
            }
        in_end(&in, &key);
        if (!last) /* the coupons themselves */
            return;
    } else if ((find_document(&id, "$gt", &from) || find_document(&id, "$gte", &from)) &&
               (find_document(&id, "$lt", &to) || find_document(&id, "$lte", &to)) && find_text(&from, "c", &last) &&
               find_text(&to, "c", &coupon) && strcmp(last, coupon) == 0) {
        BSON_APPEND_UTF8(&key, "_id.c", coupon);
    }
    bson_concat(filter, &key);
}

enum store_status session_find(struct session *session, const char *collection, bson_t *filter, const bson_t *options, size_t most,
                               session_row *row, void *context)
{
    session_add_shard_key(session, filter);
    AUTO_BCON command = BCON_NEW("find", BCON_UTF8(collection), "filter", BCON_DOCUMENT(filter));

    if (options)
        bson_concat(command, options);
    if (most)
        BSON_APPEND_INT64(command, "limit", (int64_t)most);
    session_read_options(session, command, most ? most + 1 : 0); /* a router closes the cursor only if the batch is not full */
    return session_read(session, command, row, context);
}

struct list_rows {
    const struct doc_list *list;
    struct arena *arena;
    void *items;
    size_t count, capacity;
};

static bool list_row(const bson_t *doc, void *context)
{
    struct list_rows *rows = context;
    const struct doc_list *list = rows->list;
    char *item;

    rows->items = arena_grown(rows->arena, rows->items, rows->count, &rows->capacity, list->size);
    item = (char *)rows->items + rows->count * list->size;
    memset(item, 0, list->size);
    if (list->get(doc, item, rows->arena))
        rows->count++;
    else if (list->lenient)
        log_unreadable(list->collection, doc);
    else
        return false;
    return true;
}

enum store_status session_list(struct session *session, const struct doc_list *list, bson_t *filter, const bson_t *options, size_t most,
                               struct arena *a, void *items, size_t *count)
{
    struct list_rows rows = {.list = list, .arena = a};
    enum store_status status = session_find(session, list->collection, filter, options, most, list_row, &rows);

    memcpy(items, &rows.items, sizeof rows.items);
    *count = status == STORE_OK ? rows.count : 0;
    return status;
}

struct one {
    session_get *get;
    void *item;
    struct arena *arena;
    bool found;
};

static bool one_row(const bson_t *doc, void *context)
{
    struct one *one = context;

    one->found = true;
    return one->get(doc, one->item, one->arena);
}

enum store_status session_find_one(struct session *session, const char *collection, bson_t *filter, session_get *get, void *item,
                                   struct arena *a)
{
    struct one one = {get, item, a, false};
    enum store_status status = session_find(session, collection, filter, NULL, 1, one_row, &one);

    return status == STORE_OK && !one.found ? STORE_NOT_FOUND : status;
}

enum store_status session_read_until(struct session *session, const bson_t *command, session_row *row, bool (*enough)(const void *context),
                                     void *context, bool *more)
{
    struct reader r = {.row = row, .enough = enough, .context = context};
    enum store_status status = read_with(session, command, &r);

    *more = r.more;
    return status;
}

struct store_time session_seen(const struct store *s)
{
    const struct session *session = (const struct session *)(const void *)s;
    struct store_time when = {0};

    if (session->session)
        mongoc_client_session_get_operation_time(session->session, &when.seconds, &when.increment);
    return store_time_later(when, session->passed_on);
}

void session_saw(struct store *s, struct store_time when)
{
    struct session *session = session_of(s);

    session->passed_on = store_time_later(session->passed_on, when);
}

enum store_status settle_reads(enum store_status call, enum store_status *first, size_t size, size_t count)
{
    enum store_status all = call == STORE_OK ? STORE_OK : STORE_FAILED;

    for (size_t i = 0; i < count; i++) {
        enum store_status *status = (enum store_status *)(void *)((char *)first + i * size);

        if (call != STORE_OK)
            *status = STORE_FAILED;
        if (*status != STORE_OK && *status != STORE_NOT_READ)
            all = STORE_FAILED;
    }
    return all;
}

static void put_options(const struct session *session, bson_t *command, const char *level, size_t most)
{
    const struct store_time after = session_seen(&session->store);
    bson_t concern;

    BSON_APPEND_DOCUMENT_BEGIN(command, "readConcern", &concern);
    BSON_APPEND_UTF8(&concern, "level", level);
    if (after.seconds || after.increment)
        BSON_APPEND_TIMESTAMP(&concern, "afterClusterTime", after.seconds, after.increment);
    bson_append_document_end(command, &concern);
    BSON_APPEND_INT64(command, "maxTimeMS", session->mongo->server_limit_ms);
    if (most)
        BSON_APPEND_INT64(command, "batchSize", (int64_t)most);
}

void session_read_options(const struct session *session, bson_t *command, size_t most)
{
    put_options(session, command, "majority", most);
}

void session_snapshot_options(const struct session *session, bson_t *command, size_t most)
{
    put_options(session, command, "snapshot", most);
}

struct keyed_rows {
    const struct keyed_reads *of;
    char *reads;
    size_t count;
    struct arena *arena;
};

/* The coupon of read i, and its number. */
static const char *key_of(const struct keyed_rows *rows, size_t i, int64_t *number)
{
    const char *read = rows->reads + i * rows->of->size, *coupon;

    memcpy(&coupon, read + rows->of->coupon, sizeof coupon);
    *number = 0;
    if (rows->of->member)
        memcpy(number, read + rows->of->number, sizeof *number);
    return coupon;
}

static void put_key(bson_t *doc, const char *name, const struct keyed_rows *rows, size_t i)
{
    int64_t number;
    const char *coupon = key_of(rows, i, &number);

    if (rows->of->member)
        codec_id(doc, name, coupon, rows->of->member, number);
    else
        bson_append_utf8(doc, name, -1, coupon, -1);
}

static void begin_read(const struct keyed_rows *rows, size_t i, enum store_status status)
{
    char *read = rows->reads + i * rows->of->size;

    memset(read + rows->of->out, 0, rows->of->status - rows->of->out);
    memcpy(read + rows->of->status, &status, sizeof status);
}

static bool keyed_row(const bson_t *doc, void *context)
{
    const struct keyed_rows *rows = context;
    const struct keyed_reads *of = rows->of;
    const char *coupon;
    int64_t number = 0, wanted;
    bool failed = false;

    if (!(of->member ? codec_id_int(doc, of->member, &coupon, &number) : find_text(doc, "_id", &coupon)))
        return false;
    for (size_t i = 0; i < rows->count; i++) {
        const char *of_read = key_of(rows, i, &wanted);

        if (wanted != number || strcmp(of_read, coupon) != 0 || of->get(doc, rows->reads + i * of->size, rows->arena))
            continue;
        begin_read(rows, i, STORE_UNREADABLE);
        failed = true;
    }
    if (failed)
        log_unreadable(of->collection, doc);
    return true;
}

enum store_status session_read_keyed(struct session *session, const struct keyed_reads *of, void *reads, size_t count, struct arena *a)
{
    struct keyed_rows rows = {of, reads, count, a};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    struct in_clause in;

    if (count == 0)
        return STORE_OK;
    if (count == 1) { /* by its _id alone it costs the server least */
        put_key(&filter, "_id", &rows, 0);
    } else {
        in_begin(&in, &filter, "_id");
        for (size_t i = 0; i < count; i++)
            put_key(&in.values, in_next(&in), &rows, i);
        in_end(&in, &filter);
    }
    for (size_t i = 0; i < count; i++)
        begin_read(&rows, i, STORE_OK);
    status = session_find(session, of->collection, &filter, NULL, count, keyed_row, &rows);
    return settle_reads(status, (enum store_status *)(void *)(rows.reads + of->status), of->size, count);
}

void session_add_range(bson_t *filter, const char *coupon, const char *name, const char *text, const int64_t *number)
{
    bson_t range, id;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &range);
    bson_append_document_begin(&range, number ? "$gte" : "$gt", -1, &id);
    BSON_APPEND_UTF8(&id, "c", coupon);
    if (text)
        bson_append_utf8(&id, name, -1, text, -1);
    else if (number)
        bson_append_int64(&id, name, -1, *number);
    bson_append_document_end(&range, &id);
    BSON_APPEND_DOCUMENT_BEGIN(&range, "$lt", &id);
    BSON_APPEND_UTF8(&id, "c", coupon);
    bson_append_maxkey(&id, name, -1);
    bson_append_document_end(&range, &id);
    bson_append_document_end(filter, &range);
}

void session_add_prefix(bson_t *filter, const char *member, const char *prefix)
{
    char end[COUPON_ID_MAX + 2];

    snprintf(end, sizeof end, "%s\x7F", prefix); /* after all characters of an id */
    BCON_APPEND(filter, member, "{", "$gte", BCON_UTF8(prefix), "$lt", BCON_UTF8(end), "}");
}

/* ---- writing ---- */

void session_write_concern(struct session *session, bson_t *command)
{
    BCON_APPEND(command, "writeConcern", "{", "w", BCON_UTF8("majority"), "j", BCON_BOOL(true),
                "wtimeout", BCON_INT64(session->mongo->server_limit_ms), "}");
}

/* False: nothing is known of its outcome. */
static bool run_write(struct session *session, bson_t *command, bson_t *reply)
{
    BSON_APPEND_BOOL(command, "ordered", false);
    session_write_concern(session, command);
    return session_run(session, command, reply) && reply_is_clean(reply);
}

enum store_status session_write(struct session *session, bson_t *command, int64_t *matched)
{
    enum store_status status = STORE_OK;
    int64_t index, code;
    bson_iter_t errors;
    AUTO_BSON reply;

    if (!run_write(session, command, &reply))
        return STORE_FAILED;
    if (matched && !find_int(&reply, "n", matched))
        *matched = 0;
    if (reply_errors(&reply, &errors))
        while (status != STORE_FAILED && reply_next_error(&errors, &index, &code))
            status = code == CODE_DUPLICATE_KEY ? STORE_EXISTS : STORE_FAILED;
    return status;
}

enum store_status session_insert(struct session *session, const char *collection, const bson_t *doc)
{
    AUTO_BCON command = BCON_NEW("insert", BCON_UTF8(collection), "documents", "[", BCON_DOCUMENT(doc), "]");

    return session_write(session, command, NULL);
}

enum store_status session_update(struct session *session, const char *collection, const bson_t *filter, const bson_t *update, bool upsert)
{
    AUTO_BCON command = BCON_NEW("update", BCON_UTF8(collection), "updates", "[", "{", "q", BCON_DOCUMENT(filter), "u",
                                 BCON_DOCUMENT(update), "upsert", BCON_BOOL(upsert), "}", "]");
    int64_t matched = 0;
    enum store_status status = session_write(session, command, &matched);

    return status == STORE_OK && matched == 0 ? STORE_NOT_FOUND : status;
}

enum store_status session_update_all(struct session *session, const char *collection, const bson_t *filter, const bson_t *update)
{
    AUTO_BCON command = BCON_NEW("update", BCON_UTF8(collection), "updates", "[", "{", "q", BCON_DOCUMENT(filter), "u",
                                 BCON_DOCUMENT(update), "multi", BCON_BOOL(true), "}", "]");

    return session_write(session, command, NULL);
}

enum store_status session_delete(struct session *session, const char *collection, bson_t *filter, int64_t *count)
{
    session_add_shard_key(session, filter);
    AUTO_BCON command = BCON_NEW("delete", BCON_UTF8(collection), "deletes", "[", "{", "q", BCON_DOCUMENT(filter), "limit",
                                 BCON_INT32(0), "}", "]");

    return session_write(session, command, count);
}

void bulk_begin(struct bulk *b, const char *verb, const char *collection)
{
    const char *list = strcmp(verb, "insert") == 0 ? "documents" : strcmp(verb, "update") == 0 ? "updates" : "deletes";

    b->count = 0;
    bson_init(&b->command);
    bson_append_utf8(&b->command, verb, -1, collection, -1);
    bson_append_array_begin(&b->command, list, -1, &b->list);
}

bson_t *bulk_next(struct bulk *b)
{
    char buffer[16];

    bson_append_document_begin(&b->list, array_key(b->count++, buffer), -1, &b->one);
    return &b->one;
}

void bulk_end(struct bulk *b)
{
    bson_append_document_end(&b->list, &b->one);
}

void bulk_update(struct bulk *b, const bson_t *filter, const bson_t *update, bool upsert)
{
    bson_t *one = bulk_next(b);

    BSON_APPEND_DOCUMENT(one, "q", filter);
    BSON_APPEND_DOCUMENT(one, "u", update);
    BSON_APPEND_BOOL(one, "upsert", upsert);
    bulk_end(b);
}

void bulk_delete(struct bulk *b, const bson_t *filter)
{
    bson_t *one = bulk_next(b);

    BSON_APPEND_DOCUMENT(one, "q", filter);
    BSON_APPEND_INT32(one, "limit", 1);
    bulk_end(b);
}

enum store_status bulk_send(struct session *session, struct bulk *b, int64_t *matched)
{
    enum store_status status = STORE_OK;

    bson_append_array_end(&b->command, &b->list);
    if (b->count)
        status = session_write(session, &b->command, matched);
    bson_destroy(&b->command);
    return status;
}

bool bulk_run(struct session *session, struct bulk *b, bson_t *reply)
{
    bool good;

    bson_append_array_end(&b->command, &b->list);
    good = run_write(session, &b->command, reply);
    bson_destroy(&b->command);
    return good;
}

void bulk_free(struct bulk *b)
{
    bson_append_array_end(&b->command, &b->list);
    bson_destroy(&b->command);
}

void session_add_older(bson_t *filter, const char *time, int64_t ms, const char *id)
{
    AUTO_BCON any = BCON_NEW("0", "{", time, "{", "$lt", BCON_DATE_TIME(ms), "}", "}",
                             "1", "{", time, BCON_DATE_TIME(ms), "_id", "{", "$lt", BCON_UTF8(id), "}", "}");

    BCON_APPEND(filter, time, "{", "$lte", BCON_DATE_TIME(ms), "}", "$or", BCON_ARRAY(any));
}

bool reply_is_clean(const bson_t *reply)
{
    const char *message = "";
    int64_t code = 0;
    bson_iter_t it;
    bson_t error;

    if (!bson_iter_init_find(&it, reply, "writeConcernError"))
        return true;
    if (get_document(&it, &error)) {
        find_int(&error, "code", &code);
        find_text(&error, "errmsg", &message);
    }
    log_event(LOG_WARNING, "store.unknown", F_INT("code", code), F_TEXT("reason", message));
    return false;
}

bool reply_errors(const bson_t *reply, bson_iter_t *it)
{
    bson_iter_t errors;

    return bson_iter_init_find(&errors, reply, "writeErrors") && BSON_ITER_HOLDS_ARRAY(&errors) &&
           bson_iter_recurse(&errors, it);
}

bool reply_next_error(bson_iter_t *it, int64_t *index, int64_t *code)
{
    bson_t error;

    if (!bson_iter_next(it))
        return false;
    *index = *code = -1;
    if (get_document(it, &error)) {
        find_int(&error, "index", index);
        find_int(&error, "code", code);
    }
    return true;
}
