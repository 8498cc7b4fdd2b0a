/* store/lists.c -- look-ups across documents: coupons, a user's wallet, the ledger backwards, inventories. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/codec.h"
#include "store/door.h"
#include "store/members.h"

/* Open a find on a collection; the caller fills *filter and closes it. */
static void begin_find(bson_t *command, const char *collection, bson_t *filter)
{
    BSON_APPEND_UTF8(command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "filter", filter);
}

static void end_find(struct door *d, bson_t *command, bson_t *filter, const char *sort, int direction, size_t most)
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
    door_read_options(d, command, (struct store_time){0}, most);
}

/* ---- coupons ---- */

/* The position in a list of coupons: when the last one was created, and its id. */
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
    size_t count, most;
    int64_t created_ms; /* of the last */
    bool more;
    struct arena *arena;
};

static bool coupon_row(const bson_t *doc, void *context)
{
    struct coupon_list *list = context;
    struct coupon *c;
    int64_t seq;

    if (list->count == list->most) {
        list->more = true;
        return true;
    }
    c = codec_coupon_get(doc, list->arena, &seq);
    if (!c || !find_time(doc, "created", &list->created_ms))
        return false;
    list->items[list->count++] = c;
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

/* Begun before then, or without a beginning. */
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

/* Created before, or at the same moment with a smaller id. */
static void put_after(bson_t *all, size_t *k, int64_t created_ms, const char *id)
{
    bson_t clause, any, one, less;
    char buffer[16];

    bson_append_document_begin(all, array_key((*k)++, buffer), -1, &clause);
    BSON_APPEND_DOCUMENT_BEGIN(&clause, "created", &less); /* so that an index leads to where the page begins */
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

enum store_status mongo_coupons(struct store *s, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next)
{
    struct coupon_list list = {arena_array(a, most + 1, sizeof(struct coupon *)), 0, most, 0, false, a};
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    int64_t created_ms = 0;
    const char *id = NULL;
    enum store_status status;
    bson_t filter, all, sort;
    size_t k = 0;

    *coupons = list.items;
    *count = 0;
    *next = NULL;
    if (most == 0)
        return STORE_OK;
    if (after && !parse_position(after, &created_ms, &id))
        return STORE_NOT_FOUND;
    begin_find(&command, "coupons", &filter);
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
    door_read_options(d, &command, (struct store_time){0}, most + 1);

    status = door_read(d, &command, coupon_row, &list);
    if (status != STORE_OK)
        return status;
    *count = list.count;
    if (list.more)
        *next = arena_printf(a, "%" PRId64 ".%s", list.created_ms, list.items[list.count - 1]->id);
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

/* ---- uses ---- */

struct use_list {
    const char *user;
    struct use **uses;
    const char **coupons;
    size_t count, capacity, coupon_capacity;
    int64_t at_ms;
    struct arena *arena;
    struct arena whole; /* one use, with its redemptions */
};

static bool use_row(const bson_t *doc, void *context)
{
    struct use_list *list = context;
    const char *coupon;
    const struct use *u = codec_use_of(doc, list->user, &list->whole, &coupon);

    if (!u)
        return false;
    list->uses = arena_grown(list->arena, list->uses, list->count, &list->capacity, sizeof *list->uses);
    list->coupons = arena_grown(list->arena, list->coupons, list->count, &list->coupon_capacity, sizeof *list->coupons);
    list->coupons[list->count] = arena_strdup(list->arena, coupon);
    list->uses[list->count++] = use_counts(u, list->at_ms, u->day_ms, list->arena);
    arena_reset(&list->whole);
    return true;
}

enum store_status mongo_user_uses(struct store *s, const char *user, int64_t at_ms, struct arena *a, const char ***coupon_ids,
                                  struct use ***uses, size_t *count)
{
    struct use_list list = {.user = user, .at_ms = at_ms, .arena = a};
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    enum store_status status = STORE_OK;
    struct name_hash hash;
    bson_t filter, without;

    arena_init(&list.whole, 0);
    if (!door_finds_names(d)) {
        status = STORE_FAILED;
    } else if (user[0] != JOB_USER_PREFIX[0]) { /* not a person's */
        hash = door_name_hash(d, user);
        begin_find(&command, "users", &filter);
        codec_user_filter(&filter, &hash);
        end_find(d, &command, &filter, NULL, 0, 0);
        BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &without);
        BSON_APPEND_INT32(&without, "view.redemptions.metadata", 0);
        bson_append_document_end(&command, &without);
        status = door_read(d, &command, use_row, &list);
    }
    arena_free(&list.whole);
    *uses = list.uses;
    *coupon_ids = list.coupons;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* ---- buckets ---- */

enum store_status mongo_buckets(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                struct bucket *buckets)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    enum store_status status;
    bson_t filter;
    size_t count;

    if (from >= end)
        return STORE_OK;
    begin_find(&command, "buckets", &filter);
    codec_bucket_range(&filter, coupon, from, end);
    door_add_coupon(d, &filter, coupon);
    end_find(d, &command, &filter, "_id", 1, (size_t)(end - from));
    status = buckets_read(d, &command, buckets, (size_t)(end - from), &count);
    if (status != STORE_OK)
        return status;
    for (int64_t b = end; b-- > from;) { /* from the last on: those that were read move up to their places */
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

static enum store_status one_batch(struct door *d, bson_t *command, bson_t *filter, struct batch **batch)
{
    enum store_status status;
    size_t count;

    end_find(d, command, filter, NULL, 0, 1);
    status = ledger_read(d, command, batch, 1, &count);
    return status == STORE_OK && count == 0 ? STORE_NOT_FOUND : status;
}

enum store_status lane_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                             struct batch **batch)
{
    AUTO_BSON command = BSON_INITIALIZER;
    char text[REDEMPTION_ID_SIZE];
    bson_t filter;

    begin_find(&command, "ledger", &filter);
    BSON_APPEND_UTF8(&filter, "_id.c", coupon);
    BSON_APPEND_UTF8(&filter, "ended", redemption_id_text(n, g, lane, text));
    return one_batch(door_of(s), &command, &filter, batch);
}

enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter;

    begin_find(&command, "ledger", &filter);
    codec_ledger_id(&filter, "_id", coupon, lane, seq);
    return one_batch(door_of(s), &command, &filter, batch);
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

/* The first coupon in the ledger after `last` (NULL: at all): a jump over its batches, by the index on _id. */
static enum store_status next_coupon(struct door *d, const char *last, struct id_read *read)
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
    door_read_options(d, &command, (struct store_time){0}, 1);
    return door_read(d, &command, id_row, read);
}

enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count)
{
    struct id_read read = {a, NULL};

    *ids = arena_array(a, most + 1, sizeof **ids);
    for (*count = 0; *count < most; after = read.id) {
        enum store_status status = next_coupon(door_of(s), after, &read);

        if (status != STORE_OK)
            return status;
        if (!read.id)
            break;
        (*ids)[(*count)++] = read.id;
    }
    return STORE_OK;
}
