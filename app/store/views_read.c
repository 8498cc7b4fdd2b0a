/*
 * store/views_read.c -- reading views: user states and buckets for a batch, the free pool, what is due, the definition. Writing them:
 * views_write.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* ---- user states ---- */

struct user_state_table {
    struct user_state_read *reads;
    struct name_hash *hashes; /* of reads[] */
    struct hash_index index;  /* of reads[], by coupon and the name's hash */
    struct arena *arena;
    size_t bytes_before; /* of the arena, before the call */
};

static uint64_t user_state_hash(const char *coupon, const struct name_hash *hash)
{
    uint64_t h;

    memcpy(&h, hash, sizeof h);
    return hash_text(h, coupon);
}

static void user_state_table_init(struct user_state_table *t, const struct session *session, struct user_state_read *reads, size_t count,
                                  struct arena *a)
{
    *t = (struct user_state_table){.reads = reads, .hashes = arena_array(a, count, sizeof *t->hashes), .arena = a};
    hash_index_init(&t->index, count);
    for (size_t i = 0; i < count; i++) {
        t->hashes[i] = session_name_hash(session, reads[i].user);
        hash_index_add(&t->index, user_state_hash(reads[i].coupon, &t->hashes[i]), i);
    }
    t->bytes_before = a->bytes;
}

static bool has_enough_user_states(const void *context)
{
    const struct user_state_table *t = context;

    return t->arena->bytes - t->bytes_before >= STORE_USER_STATES_BYTES;
}

/* Several reads may ask for the same user state: all get it. */
static bool user_state_row(const bson_t *doc, void *context)
{
    struct user_state_table *t = context;
    struct name_hash hash;
    struct user_state *user_state = NULL;
    const char *coupon;
    bool failed = false;

    if (!codec_user_state_id_get(doc, &coupon, &hash))
        return false;
    if (codec_has_left(doc))
        return true;
    for (size_t at = hash_index_begin(&t->index, user_state_hash(coupon, &hash)), i;
         (i = hash_index_item(&t->index, at)) != HASH_INDEX_END; at++) {
        struct user_state_read *r = &t->reads[i];

        if (!name_hash_same(&t->hashes[i], &hash) || strcmp(r->coupon, coupon) != 0)
            continue;
        if (!user_state && !failed)
            user_state = codec_user_state_of(doc, r->user, t->arena, NULL);
        failed = !user_state;
        r->status = user_state ? STORE_OK : STORE_UNREADABLE;
        r->user_state = user_state;
    }
    if (failed)
        log_unreadable("users", doc);
    return true;
}

static const char *user_state_coupon(const void *context, size_t i)
{
    const struct user_state_read *reads = context;

    return reads[i].coupon;
}

enum store_status views_user_states(struct store *s, struct store_time after, struct arena *a, struct user_state_read *reads,
                                    size_t count)
{
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    struct user_state_table table;
    enum store_status status;
    struct in_clause in;
    bson_t filter;
    bool left;

    if (count == 0)
        return STORE_OK;
    for (size_t i = 0; i < count; i++)
        reads[i] = (struct user_state_read){.coupon = reads[i].coupon, .user = reads[i].user, .status = STORE_LEFT};
    if (!session_finds_names(session)) {
        status = STORE_FAILED;
        SETTLE_READS(status, reads, count);
        return status;
    }
    user_state_table_init(&table, session, reads, count, a);
    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    if (count == 1) { /* the server's fast path for one _id: a quarter less work than an $in of one */
        codec_user_state_id(&filter, "_id", reads[0].coupon, &table.hashes[0]);
    } else {
        in_begin(&in, &filter, "_id");
        for (size_t i = 0; i < count; i++)
            codec_user_state_id(&in.values, in_next(&in), reads[i].coupon, &table.hashes[i]);
        in_end(&in, &filter);
        session_add_coupons(session, &filter, user_state_coupon, reads, count);
    }
    bson_append_document_end(&command, &filter);
    session_read_options(session, &command, after, count + 1);
    status = session_read_until(session, &command, user_state_row, has_enough_user_states, &table, &left);
    hash_index_free(&table.index);
    for (size_t i = 0; i < count && !left; i++)
        if (reads[i].status == STORE_LEFT)
            reads[i].status = STORE_OK; /* no view */
    SETTLE_READS(status, reads, count);
    return status;
}

/* ---- jobs ---- */

struct job_row {
    const char *job;
    struct arena *arena;
    struct job_progress *state;
    bool unreadable;
};

static bool job_row(const bson_t *doc, void *context)
{
    struct job_row *row = context;

    if (codec_has_left(doc))
        return true;
    row->state = codec_job_get(doc, row->job, row->arena);
    row->unreadable = !row->state;
    if (row->unreadable)
        log_unreadable("users", doc);
    return true;
}

enum store_status views_job(struct store *s, const char *coupon, const char *job, struct store_time after, struct arena *a,
                            struct job_progress **state)
{
    struct job_row row = {.job = job, .arena = a};
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    char name[STORED_NAME_SIZE];
    enum store_status status;
    struct name_hash hash;
    bson_t filter;

    *state = NULL;
    if (!session_finds_names(session))
        return STORE_FAILED;
    hash = session_name_hash(session, name_of_job(job, name));
    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    codec_user_state_id(&filter, "_id", coupon, &hash);
    bson_append_document_end(&command, &filter);
    session_read_options(session, &command, after, 2);
    status = session_read(session, &command, job_row, &row);
    if (status == STORE_OK)
        *state = row.state;
    return status == STORE_OK && row.unreadable ? STORE_UNREADABLE : status;
}

static void end_sorted(struct session *session, bson_t *command, struct store_time after, const char *by, size_t most)
{
    bson_t sort;

    BSON_APPEND_DOCUMENT_BEGIN(command, "sort", &sort);
    bson_append_int32(&sort, by, -1, 1);
    bson_append_document_end(command, &sort);
    BSON_APPEND_INT64(command, "limit", (int64_t)most);
    session_read_options(session, command, after, most);
}

/* ---- the users with a view ---- */

static uint64_t hash_bits(const struct name_hash *hash)
{
    uint64_t bits;

    memcpy(&bits, hash->bytes, sizeof bits);
    return bits;
}

enum store_status views_user_hash(struct store *s, const char *user, uint64_t *hash)
{
    struct session *session = session_of(s);
    struct name_hash name;

    if (!session_finds_names(session))
        return STORE_FAILED;
    name = session_name_hash(session, user);
    *hash = hash_bits(&name);
    return STORE_OK;
}

_Static_assert(sizeof ((struct user_walk *)0)->last == NAME_HASH_LEN, "a walk stands at a hash");

struct walk_rows {
    uint64_t *hashes;
    struct name_hash last;
    size_t count, most;
};

/* An _id that is not ours is no user's: the walk cannot continue after it. */
static bool walk_row(const bson_t *doc, void *context)
{
    struct walk_rows *rows = context;
    const char *coupon;

    if (rows->count == rows->most || !codec_user_state_id_get(doc, &coupon, &rows->last))
        return false;
    rows->hashes[rows->count++] = hash_bits(&rows->last);
    return true;
}

/* Reads only _ids, which the index has: no document is fetched. */
enum store_status views_walk_users(struct store *s, const char *coupon, struct store_time after, struct user_walk *walk,
                                   size_t most, uint64_t *hashes, size_t *count)
{
    struct walk_rows rows = {.hashes = hashes, .most = most};
    struct name_hash last;
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    enum store_status status;
    bson_t filter, projection;

    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    memcpy(last.bytes, walk->last, sizeof last.bytes);
    session_add_users(&filter, coupon, walk->begun ? &last : NULL);
    session_add_coupon(session, &filter, coupon);
    bson_append_document_end(&command, &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &projection);
    BSON_APPEND_INT32(&projection, "_id", 1);
    bson_append_document_end(&command, &projection);
    end_sorted(session, &command, after, "_id", most);
    status = session_read(session, &command, walk_row, &rows);
    *count = status == STORE_OK ? rows.count : 0;
    if (status != STORE_OK)
        return status;
    walk->done = rows.count < most;
    walk->begun = walk->begun || rows.count > 0;
    memcpy(walk->last, rows.last.bytes, sizeof walk->last);
    return STORE_OK;
}

/* ---- buckets ---- */

struct bucket_reads {
    struct bucket_read *items;
    size_t count;
};

static bool bucket_row(const bson_t *doc, void *context)
{
    struct bucket_reads *list = context;
    const char *coupon;
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b))
        return false;
    if (codec_has_left(doc))
        return true;
    for (size_t i = 0; i < list->count; i++) {
        struct bucket_read *r = &list->items[i];

        if (r->found || r->b != b || strcmp(r->coupon, coupon) != 0)
            continue;
        r->found = codec_bucket_get(doc, r->bucket);
        if (r->found)
            continue;
        r->status = STORE_UNREADABLE;
        log_unreadable("buckets", doc);
    }
    return true;
}

static const char *bucket_coupon(const void *context, size_t i)
{
    const struct bucket_read *reads = context;

    return reads[i].coupon;
}

enum store_status views_buckets(struct store *s, struct store_time after, struct bucket_read *reads, size_t count)
{
    struct session *session = session_of(s);
    struct bucket_reads list = {reads, count};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;
    struct in_clause in;
    bson_t filter;

    if (count == 0)
        return STORE_OK;
    BSON_APPEND_UTF8(&command, "find", "buckets");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < count; i++) {
        codec_bucket_id(&in.values, in_next(&in), reads[i].coupon, reads[i].b);
        bucket_release(reads[i].bucket);
        bucket_init(reads[i].bucket, reads[i].b);
        reads[i].found = false;
        reads[i].status = STORE_OK;
    }
    in_end(&in, &filter);
    session_add_coupons(session, &filter, bucket_coupon, reads, count);
    bson_append_document_end(&command, &filter);
    session_read_options(session, &command, after, count + 1);
    status = session_read(session, &command, bucket_row, &list);
    SETTLE_READS(status, reads, count);
    return status;
}

struct bucket_list {
    struct bucket *items;
    size_t count, most;
};

static bool listed_bucket_row(const bson_t *doc, void *context)
{
    struct bucket_list *list = context;

    if (list->count == list->most || codec_has_left(doc))
        return true;
    if (!codec_bucket_get(doc, &list->items[list->count]))
        return false;
    list->count++;
    return true;
}

enum store_status buckets_read(struct session *session, const bson_t *command, struct bucket *buckets, size_t most,
                               size_t *count)
{
    struct bucket_list list = {buckets, 0, most};
    enum store_status status = session_read(session, command, listed_bucket_row, &list);

    if (status != STORE_OK)
        while (list.count > 0)
            bucket_release(&list.items[--list.count]);
    *count = list.count;
    return status;
}

/* {name: {op: value}} */
static void put_bound(bson_t *filter, const char *name, const char *op, int64_t value, bool is_time)
{
    bson_t sub;

    bson_append_document_begin(filter, name, -1, &sub);
    if (is_time)
        bson_append_date_time(&sub, op, -1, value);
    else
        bson_append_int64(&sub, op, -1, value);
    bson_append_document_end(filter, &sub);
}

struct free_list {
    struct free_search *searches;
    size_t *seen; /* rows of each */
};

/* Where the search continues after this document, of which the rest may be unreadable; 0: unknown. */
static int64_t place_behind(const bson_t *doc, const struct free_search *search)
{
    int64_t place = 0;
    bson_t view, id;

    if (search->random ? !find_document(doc, "view", &view) || !find_int(&view, "pick", &place)
                       : !find_document(doc, "_id", &id) || !find_int(&id, "b", &place))
        return 0;
    return place < INT64_MAX ? place + 1 : 0;
}

static bool free_row(const bson_t *doc, size_t find, void *context)
{
    struct free_list *list = context;
    struct free_search *search = &list->searches[find];

    search->next = place_behind(doc, search);
    list->seen[find]++;
    if (codec_bucket_get(doc, &search->buckets[search->count])) {
        search->count++;
    } else {
        search->left_out = true;
        log_unreadable("buckets", doc);
    }
    return true;
}

static void put_free_search(struct joined_find *find, const struct free_search *search)
{
    find->by = search->random ? "view.pick" : "_id.b";
    find->most = search->most;
    bson_init(&find->filter);
    BSON_APPEND_UTF8(&find->filter, "_id.c", search->coupon);
    BSON_APPEND_INT64(&find->filter, "view.lane", search->lane);
    put_bound(&find->filter, find->by, "$gte", search->from, false);
    put_bound(&find->filter, "view.free", "$gt", 0, false);
}

static void release_found(struct bucket *buckets, size_t *count)
{
    while (*count > 0)
        bucket_release(&buckets[--*count]);
}

/* By the partial indexes on buckets with free slots: by number, or by their random pick. */
enum store_status views_free_buckets(struct store *s, struct store_time after, struct free_search *searches, size_t count)
{
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    struct free_list list = {searches, checked(calloc(count + 1, sizeof *list.seen))};
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        searches[i].count = 0;
        searches[i].next = 0;
        searches[i].left_out = false;
        put_free_search(&finds[i], &searches[i]);
    }
    status = session_read_joined(session_of(s), "buckets", finds, count, after, free_row, &list);
    for (size_t i = 0; i < count; i++) {
        if (list.seen[i] < searches[i].most)
            searches[i].next = 0;
        if (status != STORE_OK)
            release_found(searches[i].buckets, &searches[i].count);
    }
    free(list.seen);
    free(finds);
    return status;
}

static bool touched_row(const bson_t *doc, size_t find, void *context)
{
    struct touched_search *search = (struct touched_search *)context + find;
    const char *coupon;

    return codec_id_int(doc, "b", &coupon, &search->numbers[search->count++]);
}

/* Reads only the index on _id. */
enum store_status views_touched(struct store *s, struct store_time after, struct touched_search *searches, size_t count)
{
    static const char *const members[] = {"_id", NULL};
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    struct session *session = session_of(s);
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        struct touched_search *search = &searches[i];

        search->count = 0;
        finds[i] = (struct joined_find){.by = "_id", .most = search->last ? 1 : search->most, .descending = search->last,
                                        .members = members};
        bson_init(&finds[i].filter);
        codec_bucket_range(&finds[i].filter, search->coupon, search->from, search->end);
        session_add_coupon(session, &finds[i].filter, search->coupon);
    }
    status = session_read_joined(session, "buckets", finds, count, after, touched_row, searches);
    free(finds);
    return status;
}

/* ---- what expires: by the partial indexes on `due` ---- */

/* Find the earliest with a due time, one more than wanted: the first left out says when the next one expires. put_which adds the filter of
 * the collection. */
static void put_due_search(const struct session *session, struct joined_find *find, const struct due_search *search,
                           void (*put_which)(const struct session *session, bson_t *filter, const struct due_search *search))
{
    find->by = "view.due";
    find->most = search->most + 1;
    bson_init(&find->filter);
    BSON_APPEND_UTF8(&find->filter, "_id.c", search->coupon);
    put_which(session, &find->filter, search);
    put_bound(&find->filter, "view.due", "$gt", 0, true);
}

static void put_which_buckets(const struct session *session, bson_t *filter, const struct due_search *search)
{
    bson_t clause, list;
    char buffer[16];

    (void)session;
    BSON_APPEND_INT64(filter, "view.lane", search->lane);
    if (search->but_count == 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id.b", &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$nin", &list);
    for (size_t i = 0; i < search->but_count; i++)
        bson_append_int64(&list, array_key(i, buffer), -1, search->but_buckets[i]);
    bson_append_array_end(&clause, &list);
    bson_append_document_end(filter, &clause);
}

/* All redemptions of a user state have its lane; lane 0 is not stored. Users hash evenly to lanes, so for each row wanted the index gives
 * as many as there are lanes, and need not include the lane. */
static void put_which_user_states(const struct session *session, bson_t *filter, const struct due_search *search)
{
    bson_t clause, list;
    char buffer[16];

    if (search->lane > 0)
        BSON_APPEND_INT64(filter, "view.redemptions.lane", search->lane);
    else
        BSON_APPEND_NULL(filter, "view.redemptions.lane");
    if (search->but_count == 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id.h", &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$nin", &list);
    for (size_t i = 0; i < search->but_count; i++) {
        const struct name_hash hash = session_name_hash(session, search->but_users[i]);

        bson_append_binary(&list, array_key(i, buffer), -1, BSON_SUBTYPE_BINARY, hash.bytes, sizeof hash.bytes);
    }
    bson_append_array_end(&clause, &list);
    bson_append_document_end(filter, &clause);
}

/* False: due later, or one too many: it only tells when. full: no more are wanted from here on. */
static bool is_wanted(const bson_t *doc, struct due_search *search, bool full)
{
    int64_t due_ms;
    bson_t view;

    if (!find_document(doc, "view", &view) || !find_time(&view, "due", &due_ms))
        return true;
    if (due_ms <= search->at_ms && search->count < search->most && !full)
        return true;
    search->next_due_ms = search->next_due_ms ? search->next_due_ms : due_ms;
    return false;
}

static void leave_out(struct due_search *search, const char *collection, const bson_t *doc)
{
    search->left_out = true;
    log_unreadable(collection, doc);
}

static bool due_bucket_row(const bson_t *doc, size_t find, void *context)
{
    struct due_search *search = (struct due_search *)context + find;

    if (!is_wanted(doc, search, false))
        return true;
    if (codec_bucket_get(doc, &search->buckets[search->count]))
        search->count++;
    else
        leave_out(search, "buckets", doc);
    return true;
}

struct due_user_states {
    struct due_search *search;
    struct user_state **user_states;
    struct arena *arena;
    size_t bytes_before; /* of the arena, before the call */
};

static bool due_user_state_row(const bson_t *doc, size_t find, void *context)
{
    const struct due_user_states *list = context;
    struct due_search *search = list->search;
    struct user_state *user_state;

    (void)find;
    if (!is_wanted(doc, search, list->arena->bytes - list->bytes_before >= STORE_USER_STATES_BYTES))
        return true;
    user_state = codec_user_state_get(doc, list->arena, NULL);
    if (user_state && user_state->user) /* a tombstone is never due */
        list->user_states[search->count++] = user_state;
    else
        leave_out(search, "users", doc);
    return true;
}

static void begin_due_search(struct due_search *search)
{
    search->count = 0;
    search->next_due_ms = 0;
    search->left_out = false;
}

enum store_status views_due_buckets(struct store *s, struct store_time after, struct due_search *searches, size_t count)
{
    struct joined_find *finds = checked(calloc(count + 1, sizeof *finds));
    struct session *session = session_of(s);
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        begin_due_search(&searches[i]);
        put_due_search(session, &finds[i], &searches[i], put_which_buckets);
    }
    status = session_read_joined(session, "buckets", finds, count, after, due_bucket_row, searches);
    for (size_t i = 0; i < count && status != STORE_OK; i++)
        release_found(searches[i].buckets, &searches[i].count);
    free(finds);
    return status;
}

enum store_status views_due_user_states(struct store *s, struct store_time after, struct due_search *search, struct arena *a,
                                        struct user_state **user_states)
{
    struct due_user_states list = {search, user_states, a, a->bytes};
    struct session *session = session_of(s);
    struct joined_find find = {.descending = false};
    enum store_status status;

    begin_due_search(search);
    if (!session_finds_names(session))
        return STORE_FAILED;
    put_due_search(session, &find, search, put_which_user_states);
    status = session_read_joined(session, "users", &find, 1, after, due_user_state_row, &list);
    search->count = status == STORE_OK ? search->count : 0;
    return status;
}

/* ---- the definition ---- */

struct definition_reads {
    struct coupon_read *items;
    size_t count;
};

/* Several lanes of a coupon may ask for it: each gets its own copy. */
static bool definition_row(const bson_t *doc, void *context)
{
    const struct definition_reads *list = context;
    bool failed = false;
    const char *id;

    if (!find_text(doc, "_id", &id))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        struct coupon_read *r = &list->items[i];

        if (strcmp(r->coupon, id) != 0)
            continue;
        r->definition = codec_coupon_get(doc, r->arena, &r->seq);
        if (r->definition)
            continue;
        r->seq = 0;
        r->status = STORE_UNREADABLE;
        failed = true;
    }
    if (failed)
        log_unreadable("coupons", doc);
    return true;
}

static void put_coupons(bson_t *filter, const struct coupon_read *reads, size_t count)
{
    struct in_clause in;

    in_begin(&in, filter, "_id");
    for (size_t i = 0; i < count; i++)
        bson_append_utf8(&in.values, in_next(&in), -1, reads[i].coupon, -1);
    in_end(&in, filter);
}

enum store_status views_coupons(struct store *s, struct store_time after, struct coupon_read *reads, size_t count)
{
    struct definition_reads list = {reads, count};
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    enum store_status status;
    bson_t filter;

    if (count == 0)
        return STORE_OK;
    BSON_APPEND_UTF8(&command, "find", "coupons");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    if (count == 1)
        BSON_APPEND_UTF8(&filter, "_id", reads[0].coupon);
    else
        put_coupons(&filter, reads, count);
    for (size_t i = 0; i < count; i++) {
        reads[i].definition = NULL;
        reads[i].seq = 0;
        reads[i].status = STORE_OK;
    }
    bson_append_document_end(&command, &filter);
    session_read_options(session, &command, after, count + 1);
    status = session_read(session, &command, definition_row, &list);
    SETTLE_READS(status, reads, count);
    return status;
}

enum store_status views_coupon(struct store *s, const char *coupon, struct store_time after, struct arena *a,
                               struct coupon **definition, int64_t *seq)
{
    struct coupon_read read = {.coupon = coupon, .arena = a};
    enum store_status status = views_coupons(s, after, &read, 1);

    *definition = read.definition;
    *seq = read.seq;
    return status;
}
