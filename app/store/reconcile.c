/* store/reconcile.c -- see reconcile.h: reading views as stored, and overwriting them. */
#include "store/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/codes.h"
#include "store/session.h"

#define ALL_KEYS 0
#define USER_STATES_OF_A_PAGE 500

/* ---- other processes ---- */

void mongo_name_process(const char *name)
{
    mongoc_init();
    mongoc_handshake_data_append(name, NULL, NULL);
}

/* A named process has more than the driver's own name in its handshake. The first page of the answer is enough. */
enum store_status mongo_others(struct store *s, struct arena *a, size_t *count, const char **where)
{
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_INT32(1), "cursor", "{", "}", "pipeline", "[",
        "{", "$currentOp", "{", "allUsers", BCON_BOOL(true), "idleConnections", BCON_BOOL(true), "}", "}",
        "{", "$match", "{", "appName", BCON_UTF8("coupons"), "clientMetadata.driver.name", BCON_UTF8("mongoc"), "}",
        "}",
        "{", "$project", "{", "client", BCON_INT32(1), "}", "}", "]");
    bson_error_t error = {0};
    bson_t cursor, page, row;
    const char *client;
    bson_iter_t it;

    *count = 0;
    *where = NULL;
    AUTO_BSON reply;
    if (!session_run_on(session_of(s), "admin", command, &reply, &error) || !find_document(&reply, "cursor", &cursor) ||
        !find_array(&cursor, "firstBatch", &page) || !bson_iter_init(&it, &page))
        return STORE_FAILED;
    for (; bson_iter_next(&it); ++*count)
        if (!*where && get_document(&it, &row) && find_text(&row, "client", &client))
            *where = arena_strdup(a, client);
    return STORE_OK;
}

enum store_status mongo_operation_time(struct store *s, struct store_time *now)
{
    AUTO_BCON command = BCON_NEW("ping", BCON_INT32(1));
    AUTO_BSON reply;

    *now = (struct store_time){0};
    if (!session_run(session_of(s), command, &reply))
        return STORE_FAILED;
    reply_time(&reply, now);
    return STORE_OK;
}

/* ---- a coupon's documents in a collection ---- */

/* See session_add_range(). */
static void begin_find(bson_t *command, struct session *session, const char *collection, const char *coupon, const char *name,
                       const char *text, const int64_t *number)
{
    bson_t filter;

    BSON_APPEND_UTF8(command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "filter", &filter);
    session_add_range(&filter, coupon, name, text, number);
    session_add_coupon(session, &filter, coupon);
    bson_append_document_end(command, &filter);
}

static enum store_status find_sorted(struct session *session, bson_t *command, size_t most, session_row *row, void *context)
{
    bson_t sort;

    BSON_APPEND_DOCUMENT_BEGIN(command, "sort", &sort);
    BSON_APPEND_INT32(&sort, "_id", 1);
    bson_append_document_end(command, &sort);
    if (most)
        BSON_APPEND_INT64(command, "limit", (int64_t)most);
    session_read_options(session, command, (struct store_time){0}, most);
    return session_read(session, command, row, context);
}

struct user_state_list {
    const struct name_key *key;
    struct order_key orders; /* derived from it */
    const char *coupon; /* others are skipped */
    struct stored_user_state *items;
    size_t count, capacity;
    struct arena *arena;
};

/* The name in a view, if it matches the hash. */
static const char *name_in(const bson_t *view, const struct name_key *key, const struct name_hash *hash)
{
    struct name_hash own;
    const char *user;

    if (!find_text(view, "user", &user))
        return NULL;
    own = name_hash(key, user);
    return name_hash_same(&own, hash) ? user : NULL;
}

/* A document whose _id is not ours can be neither named nor overwritten: it is nobody's view, and skipped. */
static bool user_state_row(const bson_t *doc, void *context)
{
    struct user_state_list *list = context;
    struct stored_user_state item = {.user = NULL};
    const char *coupon;
    bson_t view;

    if (!codec_user_state_id_get(doc, &coupon, &item.hash) || strcmp(coupon, list->coupon) != 0)
        return true;
    if (!find_document(doc, "view", &view))
        bson_init(&view);
    item.user = arena_strdup(list->arena, name_in(&view, list->key, &item.hash));
    if (item.user)
        item.key = name_parse(item.user);
    if (item.key.kind == NAMED_JOB)
        item.job = codec_job_get(doc, item.key.job, list->arena);
    else if (item.key.kind == NAMED_ACCOUNT)
        item.account = codec_account_get(doc, item.key.lane, item.key.peer, list->arena);
    else
        item.user_state = codec_user_state_view_get(&view, coupon, list->arena);
    if (item.user_state && item.user_state->user && !item.user)
        item.user_state = NULL;
    if (item.user_state)
        item.user_state->orders_unfound = !codec_user_state_orders_fit(&view, item.user_state, &list->orders);
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = item;
    return true;
}

enum store_status mongo_stored_user_states(struct store *s, const struct name_key *key, const char *coupon, const struct name_hash *after,
                                           size_t most, struct arena *a, struct stored_user_state **items, size_t *count)
{
    struct user_state_list list = {.key = key, .orders = order_key(key), .coupon = coupon, .arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;
    bson_t filter;

    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    session_add_users(&filter, coupon, after);
    session_add_coupon(session_of(s), &filter, coupon);
    bson_append_document_end(&command, &filter);
    status = find_sorted(session_of(s), &command, most, user_state_row, &list);
    *items = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

enum store_status mongo_count_user_states(struct store *s, int64_t *count)
{
    AUTO_BCON command = BCON_NEW("count", BCON_UTF8("users"));
    AUTO_BSON reply;

    *count = 0;
    return session_run(session_of(s), command, &reply) && find_int(&reply, "n", count) ? STORE_OK : STORE_FAILED;
}

struct user_state_page {
    struct session_reply reply;
};

/* Without maxTimeMS, which would apply to all replies together. */
static bool first_user_states(struct session *session, struct session_reply *reply)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t hint;

    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "hint", &hint);
    BSON_APPEND_INT32(&hint, "$natural", 1);
    bson_append_document_end(&command, &hint);
    BSON_APPEND_INT32(&command, "batchSize", USER_STATES_OF_A_PAGE);
    session_read_concern(&command, (struct store_time){0});
    return session_reply_first(session, &command, reply);
}

enum store_status mongo_user_state_page(struct store *s, int64_t *cursor, struct user_state_page **page)
{
    struct user_state_page *p = checked(calloc(1, sizeof *p));
    struct session *session = session_of(s);
    bool good = *cursor ? session_reply_next(session, "users", *cursor, USER_STATES_OF_A_PAGE, &p->reply)
                        : first_user_states(session, &p->reply);

    if (!good) {
        mongo_user_state_page_free(p);
        p = NULL;
    }
    *cursor = good ? p->reply.cursor : 0;
    *page = p;
    return good ? STORE_OK : STORE_FAILED;
}

enum store_status mongo_user_state_page_get(const struct user_state_page *page, const struct name_key *key, const char *coupon,
                                            struct arena *a, struct stored_user_state **items, size_t *count)
{
    struct user_state_list list = {.key = key, .orders = order_key(key), .coupon = coupon, .arena = a};
    bool good = session_reply_rows(&page->reply, user_state_row, &list);

    *items = list.items;
    *count = good ? list.count : 0;
    return good ? STORE_OK : STORE_FAILED;
}

void mongo_user_state_page_free(struct user_state_page *page)
{
    bson_destroy(&page->reply.whole);
    free(page);
}

void mongo_user_state_pages_end(struct store *s, int64_t cursor)
{
    session_end_cursor(session_of(s), "users", cursor);
}

struct bucket_list {
    struct stored_bucket *items;
    size_t count;
};

static bool bucket_row(const bson_t *doc, void *context)
{
    struct bucket_list *list = context;
    struct stored_bucket *item = &list->items[list->count];
    const char *coupon;

    if (!codec_id_int(doc, "b", &coupon, &item->b) || item->b < 0)
        return true;
    item->readable = codec_bucket_get(doc, &item->bucket);
    list->count++;
    return true;
}

enum store_status mongo_stored_buckets(struct store *s, const char *coupon, int64_t from, size_t most,
                                       struct stored_bucket *items, size_t *count)
{
    struct bucket_list list = {items, 0};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;

    begin_find(&command, session_of(s), "buckets", coupon, "b", NULL, &from);
    status = find_sorted(session_of(s), &command, most, bucket_row, &list);
    while (status != STORE_OK && list.count > 0)
        if (items[--list.count].readable)
            bucket_release(&items[list.count].bucket);
    *count = list.count;
    return status;
}

struct codes_list {
    struct stored_codes *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool codes_row(const bson_t *doc, void *context)
{
    struct codes_list *list = context;
    const char *coupon, *codes[BUCKET_SLOTS];
    struct stored_codes item = {.b = 0};

    if (!codec_id_int(doc, "b", &coupon, &item.b))
        return true;
    if (!find_int(doc, "w", &item.w) || !code_bucket_get(doc, codes))
        memset(codes, 0, sizeof codes);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        item.codes[i] = arena_strdup(list->arena, codes[i]);
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = item;
    return true;
}

enum store_status mongo_stored_codes(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                     struct stored_codes **items, size_t *count)
{
    struct codes_list list = {.arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;

    begin_find(&command, session_of(s), "code_buckets", coupon, "b", NULL, &from);
    status = find_sorted(session_of(s), &command, most, codes_row, &list);
    *items = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

struct stored_coupon_read {
    struct stored_coupon *out;
    struct arena *arena;
};

static bool coupon_row(const bson_t *doc, void *context)
{
    const struct stored_coupon_read *r = context;

    r->out->is_there = true;
    r->out->definition = codec_coupon_get(doc, r->arena, &r->out->seq);
    if (!find_time(doc, "created", &r->out->created_ms))
        r->out->created_ms = -1;
    if (!find_time(doc, "remains", &r->out->remains_ms))
        r->out->remains_ms = 0;
    return true;
}

enum store_status mongo_stored_coupon(struct store *s, const char *coupon, struct arena *a, struct stored_coupon *out)
{
    struct stored_coupon_read read = {out, a};
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter;

    *out = (struct stored_coupon){.created_ms = -1};
    BSON_APPEND_UTF8(&command, "find", "coupons");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "_id", coupon);
    bson_append_document_end(&command, &filter);
    session_read_options(session_of(s), &command, (struct store_time){0}, 0);
    return session_read(session_of(s), &command, coupon_row, &read);
}

struct totals_list {
    struct totals_row *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool totals_row(const bson_t *doc, void *context)
{
    struct totals_list *list = context;
    struct totals_row row = {.lane = 0};
    struct report_counts counts = {0};
    bson_t id;

    if (!find_document(doc, "_id", &id) || !find_int(&id, "l", &row.lane) || !find_time(&id, "at", &row.quarter_ms))
        return true;
    if (find_int(doc, "seq", &row.seq) && bson_fields_read(doc, report_members, report_members_count, 0, &counts, NULL)) {
        row.counts = arena_alloc(list->arena, sizeof *row.counts);
        *row.counts = counts;
    }
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = row;
    return true;
}

enum store_status mongo_stored_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows,
                                      size_t *count)
{
    struct totals_list list = {.arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;

    begin_find(&command, session_of(s), "totals", coupon, "l", NULL, NULL);
    status = find_sorted(session_of(s), &command, ALL_KEYS, totals_row, &list);
    *rows = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

static bool mark_row(const bson_t *doc, void *context)
{
    struct stored_mark *out = context;

    out->is_there = true;
    out->readable = codec_mark_get(doc, &out->mark);
    return true;
}

enum store_status mongo_stored_mark(struct store *s, const char *coupon, int64_t lane, const char *kind,
                                    struct stored_mark *out)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter;

    *out = (struct stored_mark){.is_there = false};
    BSON_APPEND_UTF8(&command, "find", "marks");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    codec_mark_id(&filter, "_id", coupon, lane, kind);
    bson_append_document_end(&command, &filter);
    session_read_options(session_of(s), &command, (struct store_time){0}, 0);
    return session_read(session_of(s), &command, mark_row, out);
}

/* ---- look-ups of codes ---- */

enum store_status mongo_stored_look_ups(struct store *s, const char *coupon, struct arena *a,
                                        struct stored_look_up *items, size_t count)
{
    struct look_up *found = checked(calloc(count + 1, sizeof *found));
    enum store_status status;

    for (size_t i = 0; i < count; i++)
        found[i] = (struct look_up){.coupon = coupon, .code = items[i].code};
    status = codes_find(session_of(s), (struct store_time){0}, found, count);
    for (size_t i = 0; i < count; i++) {
        items[i].n = found[i].found ? found[i].n : -1;
        items[i].owner = found[i].found && found[i].owner[0] ? arena_strdup(a, found[i].owner) : NULL;
    }
    free(found);
    return status;
}

struct look_up_list {
    struct stored_look_up *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool look_up_row(const bson_t *doc, void *context)
{
    struct look_up_list *list = context;
    struct stored_look_up item = {.n = -1};
    const char *coupon, *code;

    if (!codec_id_text(doc, "code", &coupon, &code))
        return true;
    item.code = arena_strdup(list->arena, code);
    if (!find_int(doc, "n", &item.n))
        item.n = -1;
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = item;
    return true;
}

enum store_status mongo_stored_look_ups_from(struct store *s, const char *coupon, const char *after, size_t most,
                                             struct arena *a, struct stored_look_up **items, size_t *count)
{
    struct look_up_list list = {.arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;

    begin_find(&command, session_of(s), "codes", coupon, "code", after, NULL);
    status = find_sorted(session_of(s), &command, most, look_up_row, &list);
    *items = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

static bool count_row(const bson_t *doc, void *context)
{
    return find_int(doc, "count", context);
}

enum store_status mongo_count_look_ups(struct store *s, const char *coupon, int64_t next_n, int64_t *count)
{
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_UTF8("codes"), "cursor", "{", "}", "pipeline", "[",
        "{", "$match", "{", "_id", "{", "$gt", "{", "c", BCON_UTF8(coupon), "}", "$lt", "{", "c", BCON_UTF8(coupon),
        "code", BCON_MAXKEY, "}", "}", "_id.c", BCON_UTF8(coupon), "n", "{", "$lt", BCON_INT64(next_n), "}", "}", "}",
        "{", "$count", BCON_UTF8("count"), "}", "]");

    *count = 0;
    return session_read(session_of(s), command, count_row, count);
}

/* ---- coupons that have views ---- */

const char *const mongo_view_collections[] = {"coupons", "users", "buckets", "totals", "marks", "codes"};
const size_t mongo_view_collections_count = sizeof mongo_view_collections / sizeof *mongo_view_collections;

struct next_read {
    struct arena *arena;
    const char *id;
};

static bool next_row(const bson_t *doc, void *context)
{
    struct next_read *r = context;
    const char *id;
    bson_t key;

    if (find_text(doc, "_id", &id) || (find_document(doc, "_id", &key) && find_text(&key, "c", &id)))
        r->id = arena_strdup(r->arena, id);
    return true;
}

/* By the index on _id, skipping all documents of the last one. */
enum store_status mongo_next_coupon(struct store *s, const char *collection, const char *after, struct arena *a,
                                    const char **id)
{
    bool whole = strcmp(collection, mongo_view_collections[0]) == 0; /* the _id is the coupon alone */
    struct next_read read = {a, NULL};
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter, range, key;
    enum store_status status;

    BSON_APPEND_UTF8(&command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &range);
    if (whole) {
        BSON_APPEND_UTF8(&range, "$gt", after);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&range, "$gt", &key);
        BSON_APPEND_UTF8(&key, "c", after);
        BSON_APPEND_MAXKEY(&key, "x");
        bson_append_document_end(&range, &key);
    }
    bson_append_document_end(&filter, &range);
    bson_append_document_end(&command, &filter);
    status = find_sorted(session_of(s), &command, 1, next_row, &read);
    *id = read.id;
    return status;
}

/* ---- writing ---- */

static void user_state_id(bson_t *doc, const struct mend *m)
{
    codec_user_state_id(doc, "_id", m->coupon, &m->hash);
}

static void bucket_id(bson_t *doc, const struct mend *m)
{
    codec_bucket_id(doc, "_id", m->coupon, m->b);
}

static void coupon_id(bson_t *doc, const struct mend *m)
{
    BSON_APPEND_UTF8(doc, "_id", m->coupon);
}

static void totals_id(bson_t *doc, const struct mend *m)
{
    bson_t id;

    BSON_APPEND_DOCUMENT_BEGIN(doc, "_id", &id);
    BSON_APPEND_UTF8(&id, "c", m->coupon);
    BSON_APPEND_INT64(&id, "l", m->lane);
    BSON_APPEND_DATE_TIME(&id, "at", m->quarter_ms);
    bson_append_document_end(doc, &id);
}

static void mark_id(bson_t *doc, const struct mend *m)
{
    codec_mark_id(doc, "_id", m->coupon, m->lane, m->mark_kind);
}

static void look_up_id(bson_t *doc, const struct mend *m)
{
    codes_put_id(doc, "_id", m->coupon, m->code);
}

static void directory_id(bson_t *doc, const struct mend *m)
{
    codes_put_id(doc, "_id", DIRECTORY, m->code);
}

static void set_user_state(bson_t *set, const struct mend *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_user_state_put(&view, m->coupon, m->user_state, m->name_key);
    bson_append_document_end(set, &view);
}

static void set_job(bson_t *set, const struct mend *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_job_put(&view, m->coupon, m->job);
    bson_append_document_end(set, &view);
}

static void set_account(bson_t *set, const struct mend *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_account_put(&view, m->coupon, m->account);
    bson_append_document_end(set, &view);
}

static void set_bucket(bson_t *set, const struct mend *m)
{
    bson_t view;

    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_bucket_put(&view, m->bucket);
    bson_append_document_end(set, &view);
}

static void set_coupon(bson_t *set, const struct mend *m)
{
    bson_t view;

    BSON_APPEND_DATE_TIME(set, "created", m->created_ms);
    BSON_APPEND_DOCUMENT_BEGIN(set, "view", &view);
    codec_coupon_put(&view, m->definition, m->seq, m->changed_ms);
    bson_append_document_end(set, &view);
}

static void set_totals(bson_t *set, const struct mend *m)
{
    BSON_APPEND_INT64(set, "seq", m->seq);
    bson_fields_write(set, report_members, report_members_count, 0, m->counts);
}

static void set_mark(bson_t *set, const struct mend *m)
{
    BSON_APPEND_INT64(set, "seq", m->seq);
    BSON_APPEND_TIMESTAMP(set, "time", m->when.seconds, m->when.increment);
    if (strcmp(m->mark_kind, "totals") != 0)
        return;
    if (m->at_ms)
        BSON_APPEND_DATE_TIME(set, "at", m->at_ms);
    else
        BSON_APPEND_NULL(set, "at"); /* the stored time may be a later batch's */
}

static void set_look_up(bson_t *set, const struct mend *m)
{
    put_int(set, "n", m->n);
    put_int(set, "w", m->w);
}

static void set_directory(bson_t *set, const struct mend *m)
{
    BSON_APPEND_UTF8(set, "o", m->coupon);
    put_int(set, "n", m->n);
    put_int(set, "w", m->w);
}

static const struct mend_row {
    const char *collection;
    void (*put_id)(bson_t *doc, const struct mend *m);
    void (*put_set)(bson_t *set, const struct mend *m);
    const char *guard; /* the field that must still be found_seq */
} mend_rows[MEND_KIND_COUNT] = {
    [MEND_USER_STATE] = {"users", user_state_id, set_user_state, "view.seq"},
    [MEND_JOB] = {"users", user_state_id, set_job, "view.seq"},
    [MEND_ACCOUNT] = {"users", user_state_id, set_account, "view.seq"},
    [MEND_BUCKET] = {"buckets", bucket_id, set_bucket, "view.seq"},
    [MEND_COUPON] = {"coupons", coupon_id, set_coupon, "view.seq"},
    [MEND_TOTALS] = {"totals", totals_id, set_totals, "seq"},
    [MEND_MARK] = {"marks", mark_id, set_mark, "seq"},
    [MEND_LOOK_UP] = {"codes", look_up_id, set_look_up, "n"},
    [MEND_DIRECTORY] = {"codes", directory_id, set_directory, "n"},
};

static void put_filter(bson_t *parent, const struct mend *m)
{
    const struct mend_row *row = &mend_rows[m->kind];
    bson_t filter, none;

    BSON_APPEND_DOCUMENT_BEGIN(parent, "q", &filter);
    row->put_id(&filter, m);
    if (m->guarded && m->found_seq >= 0) {
        bson_append_int64(&filter, row->guard, -1, m->found_seq);
    } else if (m->guarded) {
        bson_append_document_begin(&filter, row->guard, -1, &none);
        BSON_APPEND_BOOL(&none, "$exists", false);
        bson_append_document_end(&filter, &none);
    }
    if (m->remove && m->alias)
        BSON_APPEND_UTF8(&filter, "view.alias", m->alias);
    bson_append_document_end(parent, &filter);
}

static void put_update(bson_t *update, const struct mend *m)
{
    bson_t sub, set;

    put_filter(update, m);
    BSON_APPEND_DOCUMENT_BEGIN(update, "u", &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&sub, "$set", &set);
    mend_rows[m->kind].put_set(&set, m);
    bson_append_document_end(&sub, &set);
    if (m->kind == MEND_COUPON) {
        BSON_APPEND_DOCUMENT_BEGIN(&sub, "$unset", &set);
        BSON_APPEND_INT32(&set, "cleaned", 1);
        bson_append_document_end(&sub, &set);
    }
    bson_append_document_end(update, &sub);
    /* if a guard does not match an existing document, the upsert is refused as a duplicate */
    BSON_APPEND_BOOL(update, "upsert", !m->guarded || m->found_seq < 0);
}

static void put_delete(bson_t *one, const struct mend *m)
{
    put_filter(one, m);
    BSON_APPEND_INT32(one, "limit", 1);
}

/* Send one command for those of one kind, removals or not, from *next on, as many as fit. */
static enum store_status send_some(struct session *session, enum mend_kind kind, bool remove, const struct mend *mends,
                                   size_t count, size_t *next, size_t *done, struct store_time *when)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t list, one;
    char buffer[16];
    size_t sent = 0;
    int64_t index, code;
    bson_iter_t errors;

    bson_append_utf8(&command, remove ? "delete" : "update", 6, mend_rows[kind].collection, -1);
    session_write_options(session, &command);
    bson_append_array_begin(&command, remove ? "deletes" : "updates", 7, &list);
    for (; *next < count && sent < CODES_PER_COMMAND && list.len < COMMAND_BYTES_MAX; ++*next) {
        const struct mend *m = &mends[*next];

        if (m->kind != kind || m->remove != remove)
            continue;
        bson_append_document_begin(&list, array_key(sent++, buffer), -1, &one);
        (remove ? put_delete : put_update)(&one, m);
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(&command, &list);
    if (sent == 0)
        return STORE_OK;

    AUTO_BSON reply;
    if (!session_run(session, &command, &reply) || !reply_is_clean(&reply))
        return STORE_FAILED;
    *done += (size_t)reply_count(&reply);
    if (when)
        reply_time(&reply, when);
    if (reply_errors(&reply, &errors))
        while (reply_next_error(&errors, &index, &code))
            if (code != CODE_DUPLICATE_KEY)
                return STORE_FAILED;
    return STORE_OK;
}

enum store_status mongo_mend(struct store *s, const struct mend *mends, size_t count, size_t *done,
                             struct store_time *when)
{
    enum store_status status = STORE_OK;

    for (int kind = 0; kind < MEND_KIND_COUNT; kind++)
        for (int write = 0; write < 2; write++)
            for (size_t next = 0; next < count && status == STORE_OK;)
                status = send_some(session_of(s), (enum mend_kind)kind, !write, mends, count, &next, done, when);
    return status;
}

/* {delete: collection, deletes: [{q: the coupon's documents, limit: 0}]} */
static enum store_status remove_all(struct session *session, const char *collection, const char *coupon)
{
    bool whole = strcmp(collection, mongo_view_collections[0]) == 0;
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t list, one, filter;

    BSON_APPEND_UTF8(&command, "delete", collection);
    session_write_options(session, &command);
    BSON_APPEND_ARRAY_BEGIN(&command, "deletes", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "q", &filter);
    bson_append_utf8(&filter, whole ? "_id" : "_id.c", -1, coupon, -1);
    bson_append_document_end(&one, &filter);
    BSON_APPEND_INT32(&one, "limit", 0);
    bson_append_document_end(&list, &one);
    bson_append_array_end(&command, &list);

    AUTO_BSON reply;
    return session_run(session, &command, &reply) && reply_is_clean(&reply) ? STORE_OK : STORE_FAILED;
}

enum store_status mongo_remove_views(struct store *s, const char *coupon)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < mongo_view_collections_count && status == STORE_OK; i++)
        status = remove_all(session_of(s), mongo_view_collections[i], coupon);
    return status;
}
