/* store/lists.c -- look-ups across documents: coupons, buckets, the ledger backwards, a coupon's history. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

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

/* Started by then, or without a start. */
static void put_begun(bson_t *all, size_t *k, int64_t at_ms)
{
    static const char name[] = "view.def.starts_at";
    char buffer[16];

    BCON_APPEND(all, array_key((*k)++, buffer), "{", "$or", "[", "{", name, BCON_NULL, "}", "{", name, "{",
                "$lte", BCON_DATE_TIME(at_ms), "}", "}", "]", "}");
}

/* Created earlier, or at the same time with a smaller id. */
static void put_after(bson_t *all, size_t *k, int64_t created_ms, const char *id)
{
    char buffer[16];

    /* the bound on `created` lets the index find the start of the page */
    BCON_APPEND(all, array_key((*k)++, buffer), "{", "created", "{", "$lte", BCON_DATE_TIME(created_ms), "}", "$or", "[",
                "{", "created", "{", "$lt", BCON_DATE_TIME(created_ms), "}", "}",
                "{", "created", BCON_DATE_TIME(created_ms), "_id", "{", "$lt", BCON_UTF8(id), "}", "}", "]", "}");
}

static void put_state(bson_t *all, size_t *k, const char *state)
{
    char buffer[16];

    if (state)
        BCON_APPEND(all, array_key((*k)++, buffer), "{", "view.def.state", BCON_UTF8(state), "}");
    else
        BCON_APPEND(all, array_key((*k)++, buffer), "{", "view.def.state", "{", "$ne", BCON_UTF8("deleted"), "}", "}");
}

enum store_status mongo_coupons(struct store *s, const char *prefix, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next, bool *incomplete)
{
    struct coupon_list list = {.items = arena_array(a, most + 1, sizeof(struct coupon *)), .most = most, .arena = a};
    AUTO_BCON sort = BCON_NEW("sort", "{", "created", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    int64_t created_ms = 0;
    const char *id = NULL;
    enum store_status status;
    bson_t all;
    size_t k = 0;

    *coupons = list.items;
    *count = 0;
    *next = NULL;
    *incomplete = false;
    if (most == 0)
        return STORE_OK;
    if (after && !parse_position(after, &created_ms, &id))
        return STORE_NOT_FOUND;
    if (prefix)
        session_add_prefix(&filter, "_id", prefix);
    BSON_APPEND_ARRAY_BEGIN(&filter, "$and", &all);
    put_state(&all, &k, state >= 0 ? state_text(state) : NULL);
    if (active_at_ms) {
        char buffer[16];

        /* Active, and not past its end. */
        BCON_APPEND(&all, array_key((k)++, buffer), "{", "view.live", "{", "$gt", BCON_DATE_TIME(active_at_ms), "}", "}");
        put_begun(&all, &k, active_at_ms);
    }
    if (id)
        put_after(&all, &k, created_ms, id);
    bson_append_array_end(&filter, &all);
    status = session_find(session_of(s), "coupons", &filter, sort, most + 1, coupon_row, &list);
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
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    size_t count;

    if (from >= end)
        return STORE_OK;
    codec_bucket_range(&filter, coupon, from, end);
    session_add_coupon(session_of(s), &filter, coupon);
    status = buckets_find(session_of(s), &filter, sort, buckets, (size_t)(end - from), &count);
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

/* Few, or others whose ids have the same hash. */
#define ENDED_MOST 4

enum store_status ledger_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch)
{
    AUTO_BCON by_terms = BCON_NEW("hint", "terms");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct session *session = session_of(s);
    struct batch *found[ENDED_MOST];
    enum store_status status;
    size_t count;

    *batch = NULL;
    if (!session_finds_names(session))
        return STORE_FAILED;
    put_int(&filter, "part", term_part(coupon));
    BSON_APPEND_INT64(&filter, "terms", term_of_redemption(&session->term_key, coupon, lane, n, g));
    BSON_APPEND_UTF8(&filter, "_id.c", coupon);
    status = ledger_find(session, &filter, by_terms, ENDED_MOST, found, &count);
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
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    size_t count;

    codec_ledger_id(&filter, "_id", coupon, lane, seq);
    status = ledger_find(session_of(s), &filter, NULL, 1, batch, &count);
    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
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

#define ASKED(coupon) "_id.c", BCON_UTF8(coupon), "e.by", "{", "$exists", BCON_BOOL(true), "}"
#define NEWEST_FIRST "sort", "{", "at", BCON_INT32(-1), "_id.l", BCON_INT32(-1), "_id.seq", BCON_INT32(-1), "}"

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
    AUTO_BCON filter = BCON_NEW(ASKED(coupon));
    AUTO_BCON tail = BCON_NEW("projection", "{", "at", BCON_INT32(1), "e", "{", "$filter", "{", "input", "$e", "as", "e", "cond", "$$e.by",
                              "}", "}", "}", NEWEST_FIRST);
    struct history_read read = {batches, 0, most};
    enum store_status status;

    if (from) {
        /* from this place on, in the order of the history; the bound on `at` lets the index find the start of the page */
        BCON_APPEND(filter, "at", "{", "$lte", BCON_DATE_TIME(from->at_ms), "}", "$or", "[",
                    "{", "at", "{", "$lt", BCON_DATE_TIME(from->at_ms), "}", "}",
                    "{", "_id.l", "{", "$lt", BCON_INT64(from->lane), "}", "}",
                    "{", "_id.l", BCON_INT64(from->lane), "_id.seq", "{", "$lte", BCON_INT64(from->seq), "}", "}", "]");
    }
    status = session_find(session_of(s), "ledger", filter, tail, most, history_row, &read);
    while (status != STORE_OK && read.count > 0)
        batch_free(batches[--read.count]);
    *count = read.count;
    return status;
}

enum store_status mongo_defined(struct store *s, const char *coupon, int64_t version, int64_t at_ms, struct batch **batch)
{
    AUTO_BCON filter = BCON_NEW(ASKED(coupon), "at", "{", "$lte", BCON_DATE_TIME(at_ms), "}", "_id.l", BCON_INT64(0),
                                "e.def.version", BCON_INT64(version));
    AUTO_BCON sort = BCON_NEW(NEWEST_FIRST);
    size_t count;
    enum store_status status = ledger_find(session_of(s), filter, sort, 1, batch, &count);

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
    AUTO_BCON tail = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    if (last)
        BCON_APPEND(&filter, "_id", "{", "$gt", "{", "c", BCON_UTF8(last), "l", BCON_MAXKEY, "}", "}");
    read->id = NULL;
    return session_find(session, "ledger", &filter, tail, 1, id_row, read);
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
