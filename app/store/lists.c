/* store/lists.c -- look-ups across documents: coupons, buckets, the ledger backwards, a coupon's history. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* Open a find on a collection; the caller fills *filter and closes it. */
static void begin_find(bson_t *command, const char *collection, bson_t *filter)
{
    BSON_APPEND_UTF8(command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "filter", filter);
}

static void end_find(struct session *session, bson_t *command, bson_t *filter, const char *sort, int direction, size_t most)
{
    bson_t sub;

    bson_append_document_end(command, filter);
    if (sort) {
        BSON_APPEND_DOCUMENT_BEGIN(command, "sort", &sub);
        bson_append_int32(&sub, sort, -1, direction);
        bson_append_document_end(command, &sub);
    }
    if (most)
        BSON_APPEND_INT64(command, "limit", (int64_t)most);
    session_read_options(session, command, most);
}

/* ---- coupons ---- */

/* Parse a position in a list of coupons: the creation time of the last one, and its id. */
static bool parse_position(const char *after, int64_t *created_ms, const char **id)
{
    char *end;

    errno = 0;
    *created_ms = strtoll(after, &end, 10);
    if (errno || end == after || *end != '.')
        return false;
    *id = end + 1;
    return coupon_id_valid(*id);
}

struct coupon_list {
    struct coupon **items; /* room for `most` */
    size_t count, rows, most; /* rows: with those that cannot be decoded */
    int64_t created_ms; /* of the last row */
    const char *id;     /* likewise */
    bool more, incomplete;
    struct arena *arena;
};

static bool coupon_row(const bson_t *doc, void *context)
{
    struct coupon_list *list = context;
    struct coupon *c;
    const char *id;
    int64_t seq;

    if (list->rows == list->most) {
        list->more = true;
        return true;
    }
    list->rows++;
    c = codec_coupon_get(doc, list->arena, &seq);
    if (find_text(doc, "_id", &id) && find_time(doc, "created", &list->created_ms)) {
        list->id = arena_strdup(list->arena, id);
    } else {
        c = NULL;
    }
    if (c) {
        list->items[list->count++] = c;
    } else {
        log_unreadable("coupons", doc);
        list->incomplete = true;
    }
    return true;
}

static const char *state_text(int state)
{
    for (size_t i = 0; i < coupon_fields_count; i++)
        if (strcmp(coupon_fields[i].pointer, "/state") == 0)
            return coupon_fields[i].names[state];
    return NULL;
}

/* Active, and not past its end. */
static void put_live(bson_t *all, size_t *k, int64_t at_ms)
{
    bson_t clause, bound;
    char buffer[16];

    bson_append_document_begin(all, array_key((*k)++, buffer), -1, &clause);
    BSON_APPEND_DOCUMENT_BEGIN(&clause, "view.live", &bound);
    BSON_APPEND_DATE_TIME(&bound, "$gt", at_ms);
    bson_append_document_end(&clause, &bound);
    bson_append_document_end(all, &clause);
}

/* Started by then, or without a start. */
static void put_begun(bson_t *all, size_t *k, int64_t at_ms)
{
    static const char name[] = "view.def.starts_at";
    bson_t clause, any, one, bound;
    char buffer[16];

    bson_append_document_begin(all, array_key((*k)++, buffer), -1, &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$or", &any);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
    BSON_APPEND_NULL(&one, name);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, name, &bound);
    BSON_APPEND_DATE_TIME(&bound, "$lte", at_ms);
    bson_append_document_end(&one, &bound);
    bson_append_document_end(&any, &one);
    bson_append_array_end(&clause, &any);
    bson_append_document_end(all, &clause);
}

/* Created earlier, or at the same time with a smaller id. */
static void put_after(bson_t *all, size_t *k, int64_t created_ms, const char *id)
{
    bson_t clause, any, one, less;
    char buffer[16];

    bson_append_document_begin(all, array_key((*k)++, buffer), -1, &clause);
    BSON_APPEND_DOCUMENT_BEGIN(&clause, "created", &less); /* lets an index find the start of the page */
    BSON_APPEND_DATE_TIME(&less, "$lte", created_ms);
    bson_append_document_end(&clause, &less);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$or", &any);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "created", &less);
    BSON_APPEND_DATE_TIME(&less, "$lt", created_ms);
    bson_append_document_end(&one, &less);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
    BSON_APPEND_DATE_TIME(&one, "created", created_ms);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "_id", &less);
    BSON_APPEND_UTF8(&less, "$lt", id);
    bson_append_document_end(&one, &less);
    bson_append_document_end(&any, &one);
    bson_append_array_end(&clause, &any);
    bson_append_document_end(all, &clause);
}

static void put_state(bson_t *all, size_t *k, const char *state)
{
    bson_t clause, not;
    char buffer[16];

    bson_append_document_begin(all, array_key((*k)++, buffer), -1, &clause);
    if (state) {
        BSON_APPEND_UTF8(&clause, "view.def.state", state);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&clause, "view.def.state", &not);
        BSON_APPEND_UTF8(&not, "$ne", "deleted");
        bson_append_document_end(&clause, &not);
    }
    bson_append_document_end(all, &clause);
}

enum store_status mongo_coupons(struct store *s, const char *prefix, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next, bool *incomplete)
{
    struct coupon_list list = {.items = arena_array(a, most + 1, sizeof(struct coupon *)), .most = most, .arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    int64_t created_ms = 0;
    const char *id = NULL;
    enum store_status status;
    bson_t filter, all, sort;
    size_t k = 0;

    *coupons = list.items;
    *count = 0;
    *next = NULL;
    *incomplete = false;
    if (most == 0)
        return STORE_OK;
    if (after && !parse_position(after, &created_ms, &id))
        return STORE_NOT_FOUND;
    begin_find(&command, "coupons", &filter);
    if (prefix)
        session_add_prefix(&filter, "_id", prefix);
    BSON_APPEND_ARRAY_BEGIN(&filter, "$and", &all);
    put_state(&all, &k, state >= 0 ? state_text(state) : NULL);
    if (active_at_ms) {
        put_live(&all, &k, active_at_ms);
        put_begun(&all, &k, active_at_ms);
    }
    if (id)
        put_after(&all, &k, created_ms, id);
    bson_append_array_end(&filter, &all);
    bson_append_document_end(&command, &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "sort", &sort);
    BSON_APPEND_INT32(&sort, "created", -1);
    BSON_APPEND_INT32(&sort, "_id", -1);
    bson_append_document_end(&command, &sort);
    BSON_APPEND_INT64(&command, "limit", (int64_t)most + 1);
    session_read_options(session, &command, most + 1);

    status = session_read(session, &command, coupon_row, &list);
    if (status != STORE_OK)
        return status;
    *count = list.count;
    *incomplete = list.incomplete;
    if (list.more && list.id)
        *next = arena_printf(a, "%" PRId64 ".%s", list.created_ms, list.id);
    return STORE_OK;
}

enum store_status mongo_coupon_lanes(struct store *s, const char *coupon, int64_t *lanes)
{
    struct batch *first = NULL;
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, coupon, 0, 0, 1, &first, &count);

    *lanes = count && first->lanes > 1 ? first->lanes : 1;
    if (count)
        batch_free(first);
    return status;
}

/* ---- buckets ---- */

enum store_status mongo_buckets(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                struct bucket *buckets)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    enum store_status status;
    bson_t filter;
    size_t count;

    if (from >= end)
        return STORE_OK;
    begin_find(&command, "buckets", &filter);
    codec_bucket_range(&filter, coupon, from, end);
    session_add_coupon(session, &filter, coupon);
    end_find(session, &command, &filter, "_id", 1, (size_t)(end - from));
    status = buckets_read(session, &command, buckets, (size_t)(end - from), &count);
    if (status != STORE_OK)
        return status;
    for (int64_t b = end; b-- > from;) { /* backwards: buckets that were read move up to their places */
        if (count > 0 && buckets[count - 1].b == b) {
            struct bucket moved = buckets[--count];

            buckets[b - from] = moved;
        } else {
            bucket_init(&buckets[b - from], b);
        }
        bucket_fit(&buckets[b - from], next_n);
    }
    return STORE_OK;
}

/* ---- the ledger ---- */

enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count)
{
    return ledger_page(s, coupon, lane, 0, before, -1, most, batches, count);
}

static enum store_status one_batch(struct session *session, bson_t *command, bson_t *filter, struct batch **batch)
{
    enum store_status status;
    size_t count;

    end_find(session, command, filter, NULL, 0, 1);
    status = ledger_read(session, command, batch, 1, &count);
    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
}

/* Few, or others whose ids have the same hash. */
#define ENDED_MOST 4

enum store_status ledger_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    struct batch *found[ENDED_MOST];
    enum store_status status;
    size_t count;
    bson_t filter;

    *batch = NULL;
    if (!session_finds_names(session))
        return STORE_FAILED;
    begin_find(&command, "ledger", &filter);
    put_int(&filter, "part", term_part(coupon));
    BSON_APPEND_INT64(&filter, "terms", term_of_redemption(&session->term_key, coupon, lane, n, g));
    BSON_APPEND_UTF8(&filter, "_id.c", coupon);
    end_find(session, &command, &filter, NULL, 0, ENDED_MOST);
    BSON_APPEND_UTF8(&command, "hint", "terms");
    status = ledger_read(session, &command, found, ENDED_MOST, &count);
    for (size_t i = 0; i < count; i++) {
        if (!*batch && (n >= 0 || found[i]->lane == lane) && batch_find_end(found[i], n, g))
            *batch = found[i];
        else
            batch_free(found[i]);
    }
    return status == STORE_OK && !*batch ? STORE_NOT_FOUND : status;
}

enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter;

    begin_find(&command, "ledger", &filter);
    codec_ledger_id(&filter, "_id", coupon, lane, seq);
    return one_batch(session_of(s), &command, &filter, batch);
}

/* The seq of the batch before b in the alias's chain; 0: b is the oldest; -1: b has no entry of it. */
static int64_t chain_before(const struct batch *b, const char *alias)
{
    int64_t before = -1;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        int64_t of_entry = e->before < b->head.seq ? e->before : 0;

        if (entry_members[e->kind] & HAS_USER && strcmp(e->alias, alias) == 0 && of_entry > before)
            before = of_entry;
    }
    return before;
}

enum store_status mongo_chain(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias, chain_visit *visit,
                              void *context)
{
    enum store_status status = STORE_OK;

    while (seq > 0 && status == STORE_OK) {
        struct batch *b;

        status = mongo_ledger_at(s, coupon, lane, seq, &b);
        if (status != STORE_OK)
            break;
        seq = chain_before(b, alias);
        status = seq < 0 ? STORE_NOT_FOUND : visit(context, b);
        batch_free(b);
    }
    return status;
}

/* ---- operators' entries: by an index of only their batches ---- */

static void put_asked(bson_t *filter, const char *coupon)
{
    bson_t there;

    BSON_APPEND_UTF8(filter, "_id.c", coupon);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "e.by", &there);
    BSON_APPEND_BOOL(&there, "$exists", true);
    bson_append_document_end(filter, &there);
}

static void put_int_until(bson_t *filter, const char *name, const char *how, int64_t value)
{
    bson_t bound;

    bson_append_document_begin(filter, name, -1, &bound);
    bson_append_int64(&bound, how, -1, value);
    bson_append_document_end(filter, &bound);
}

static void put_at_until(bson_t *filter, const char *how, int64_t at_ms)
{
    bson_t bound;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "at", &bound);
    bson_append_date_time(&bound, how, -1, at_ms);
    bson_append_document_end(filter, &bound);
}

/* From this place on, in the order of the history. */
static void put_from(bson_t *filter, const struct history_place *from)
{
    bson_t any, one;

    put_at_until(filter, "$lte", from->at_ms); /* lets the index find the start of the page */
    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "0", &one);
    put_at_until(&one, "$lt", from->at_ms);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "1", &one);
    put_int_until(&one, "_id.l", "$lt", from->lane);
    bson_append_document_end(&any, &one);
    BSON_APPEND_DOCUMENT_BEGIN(&any, "2", &one);
    BSON_APPEND_INT64(&one, "_id.l", from->lane);
    put_int_until(&one, "_id.seq", "$lte", from->seq);
    bson_append_document_end(&any, &one);
    bson_append_array_end(filter, &any);
}

static void put_newest_first(bson_t *command)
{
    bson_t sort;

    BSON_APPEND_DOCUMENT_BEGIN(command, "sort", &sort);
    BSON_APPEND_INT32(&sort, "at", -1);
    BSON_APPEND_INT32(&sort, "_id.l", -1);
    BSON_APPEND_INT32(&sort, "_id.seq", -1);
    bson_append_document_end(command, &sort);
}

struct history_read {
    struct batch **batches; /* room for `most` */
    size_t count, most;
};

static bool history_row(const bson_t *doc, void *context)
{
    struct history_read *read = context;
    struct batch *b = read->count < read->most ? codec_entries_get(doc) : NULL;

    if (b)
        read->batches[read->count++] = b;
    return b != NULL;
}

enum store_status mongo_history(struct store *s, const char *coupon, const struct history_place *from, size_t most,
                                struct batch **batches, size_t *count)
{
    /* clang-format off */
    AUTO_BCON theirs = BCON_NEW("at", BCON_INT32(1),
                                "e", "{", "$filter", "{", "input", "$e", "as", "e", "cond", "$$e.by", "}", "}");
    /* clang-format on */
    AUTO_BSON command = BSON_INITIALIZER;
    struct history_read read = {batches, 0, most};
    struct session *session = session_of(s);
    enum store_status status;
    bson_t filter;

    begin_find(&command, "ledger", &filter);
    put_asked(&filter, coupon);
    if (from)
        put_from(&filter, from);
    bson_append_document_end(&command, &filter);
    BSON_APPEND_DOCUMENT(&command, "projection", theirs);
    put_newest_first(&command);
    BSON_APPEND_INT64(&command, "limit", (int64_t)most);
    session_read_options(session, &command, most);
    status = session_read(session, &command, history_row, &read);
    while (status != STORE_OK && read.count > 0)
        batch_free(batches[--read.count]);
    *count = read.count;
    return status;
}

enum store_status mongo_defined(struct store *s, const char *coupon, int64_t version, int64_t at_ms, struct batch **batch)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);
    enum store_status status;
    bson_t filter;
    size_t count;

    begin_find(&command, "ledger", &filter);
    put_asked(&filter, coupon);
    put_at_until(&filter, "$lte", at_ms);
    BSON_APPEND_INT64(&filter, "_id.l", 0);
    BSON_APPEND_INT64(&filter, "e.def.version", version);
    bson_append_document_end(&command, &filter);
    put_newest_first(&command);
    BSON_APPEND_INT64(&command, "limit", 1);
    session_read_options(session, &command, 1);
    status = ledger_read(session, &command, batch, 1, &count);
    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
}

struct id_read {
    struct arena *arena;
    const char *id;
};

static bool id_row(const bson_t *doc, void *context)
{
    struct id_read *r = context;
    const char *id;

    if (!codec_id_text(doc, "c", &id, &id))
        return false;
    r->id = arena_strdup(r->arena, id);
    return true;
}

/* The ledger's first coupon after `last` (NULL: the first of all): the index on _id skips the batches of `last`. */
static enum store_status next_coupon(struct session *session, const char *last, struct id_read *read)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter, sub, id;

    begin_find(&command, "ledger", &filter);
    if (last) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &sub);
        BSON_APPEND_DOCUMENT_BEGIN(&sub, "$gt", &id);
        BSON_APPEND_UTF8(&id, "c", last);
        BSON_APPEND_MAXKEY(&id, "l");
        bson_append_document_end(&sub, &id);
        bson_append_document_end(&filter, &sub);
    }
    read->id = NULL;
    bson_append_document_end(&command, &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &sub);
    BSON_APPEND_INT32(&sub, "_id", 1);
    bson_append_document_end(&command, &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "sort", &sub);
    BSON_APPEND_INT32(&sub, "_id", 1);
    bson_append_document_end(&command, &sub);
    BSON_APPEND_INT64(&command, "limit", 1);
    session_read_options(session, &command, 1);
    return session_read(session, &command, id_row, read);
}

enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count)
{
    struct id_read read = {a, NULL};

    *ids = arena_array(a, most + 1, sizeof **ids);
    for (*count = 0; *count < most; after = read.id) {
        enum store_status status = next_coupon(session_of(s), after, &read);

        if (status != STORE_OK)
            return status;
        if (!read.id)
            break;
        (*ids)[(*count)++] = read.id;
    }
    return STORE_OK;
}
