/*
 * store/views.c -- reading views: uses and buckets for a batch, the stash, what is due, the definition. Writing them:
 * views_write.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/codec.h"
#include "store/door.h"
#include "store/members.h"

/* ---- uses ---- */

/* The reads by coupon and user: an open table of indices, since a batch has hundreds. */
struct use_table {
    struct use_read *reads;
    uint32_t *slots; /* index + 1; 0: empty */
    size_t mask;
    struct arena *arena;
};

static size_t use_hash(const char *coupon, const char *user)
{
    uint64_t h = hash_text(hash_text(HASH_NONE, user), coupon);

    return (size_t)(h ^ h >> 32);
}

static void use_table_init(struct use_table *t, struct use_read *reads, size_t count, struct arena *a)
{
    size_t size = 8;

    while (size < count * 2)
        size *= 2;
    *t = (struct use_table){reads, arena_array(a, size, sizeof *t->slots), size - 1, a};
    for (size_t i = 0; i < count; i++) {
        size_t at = use_hash(reads[i].coupon, reads[i].user) & t->mask;

        while (t->slots[at])
            at = (at + 1) & t->mask;
        t->slots[at] = (uint32_t)i + 1;
    }
}

/* The same use may have been asked for more than once: all get it. */
static bool use_row(const bson_t *doc, void *context)
{
    struct use_table *t = context;
    const char *coupon, *user;
    struct use *use = NULL;

    if (!codec_id_text(doc, "u", &coupon, &user))
        return false;
    for (size_t at = use_hash(coupon, user) & t->mask; t->slots[at]; at = (at + 1) & t->mask) {
        struct use_read *r = &t->reads[t->slots[at] - 1];

        if (strcmp(r->user, user) != 0 || strcmp(r->coupon, coupon) != 0)
            continue;
        if (!use)
            use = codec_use_get(doc, t->arena, NULL);
        if (!use)
            return false;
        r->use = r->use ? r->use : use;
    }
    return true;
}

static const char *use_coupon(const void *context, size_t i)
{
    const struct use_read *reads = context;

    return reads[i].coupon;
}

enum store_status views_uses(struct store *s, struct store_time after, struct arena *a, struct use_read *reads,
                             size_t count)
{
    struct door *d = door_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter, clause, list;
    struct use_table table;
    char buffer[16];

    if (count == 0)
        return STORE_OK;
    for (size_t i = 0; i < count; i++)
        reads[i].use = NULL;
    BSON_APPEND_UTF8(&command, "find", "users");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    if (count == 1) { /* the server's short way to one _id: a quarter less work than an $in of one */
        codec_use_id(&filter, "_id", reads[0].coupon, reads[0].user);
    } else {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &clause);
        BSON_APPEND_ARRAY_BEGIN(&clause, "$in", &list);
        for (size_t i = 0; i < count; i++)
            codec_use_id(&list, array_key(i, buffer), reads[i].coupon, reads[i].user);
        bson_append_array_end(&clause, &list);
        bson_append_document_end(&filter, &clause);
        door_add_coupons(d, &filter, use_coupon, reads, count);
    }
    bson_append_document_end(&command, &filter);
    door_read_options(d, &command, after, count + 1);
    use_table_init(&table, reads, count, a);
    return door_read(d, &command, use_row, &table);
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
    for (size_t i = 0; i < list->count; i++) {
        struct bucket_read *r = &list->items[i];

        if (r->found || r->b != b || strcmp(r->coupon, coupon) != 0)
            continue;
        if (!codec_bucket_get(doc, r->bucket))
            return false;
        r->found = true;
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
    struct door *d = door_of(s);
    struct bucket_reads list = {reads, count};
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter, clause, ids;
    char buffer[16];

    if (count == 0)
        return STORE_OK;
    BSON_APPEND_UTF8(&command, "find", "buckets");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$in", &ids);
    for (size_t i = 0; i < count; i++) {
        codec_bucket_id(&ids, array_key(i, buffer), reads[i].coupon, reads[i].b);
        bucket_release(reads[i].bucket);
        bucket_init(reads[i].bucket, reads[i].b);
        reads[i].found = false;
    }
    bson_append_array_end(&clause, &ids);
    bson_append_document_end(&filter, &clause);
    door_add_coupons(d, &filter, bucket_coupon, reads, count);
    bson_append_document_end(&command, &filter);
    door_read_options(d, &command, after, count + 1);
    return door_read(d, &command, bucket_row, &list);
}

struct bucket_list {
    struct bucket *items;
    size_t count, most;
};

static bool listed_bucket_row(const bson_t *doc, void *context)
{
    struct bucket_list *list = context;

    if (list->count == list->most)
        return true;
    if (!codec_bucket_get(doc, &list->items[list->count]))
        return false;
    list->count++;
    return true;
}

enum store_status buckets_read(struct door *d, const bson_t *command, struct bucket *buckets, size_t most,
                               size_t *count)
{
    struct bucket_list list = {buckets, 0, most};
    enum store_status status = door_read(d, command, listed_bucket_row, &list);

    if (status != STORE_OK)
        while (list.count > 0)
            bucket_release(&list.items[--list.count]);
    *count = list.count;
    return status;
}

/* {name: {op: value}}, ascending from there on. */
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

static void end_sorted(struct door *d, bson_t *command, struct store_time after, const char *by, size_t most)
{
    bson_t sort;

    BSON_APPEND_DOCUMENT_BEGIN(command, "sort", &sort);
    bson_append_int32(&sort, by, -1, 1);
    bson_append_document_end(command, &sort);
    BSON_APPEND_INT64(command, "limit", (int64_t)most);
    door_read_options(d, command, after, most);
}

/* By the partial indexes on buckets that have free slots: in their order, or in that of their random numbers. */
enum store_status views_free_buckets(struct store *s, struct store_time after, const struct free_search *search,
                                     struct bucket *buckets, size_t *count)
{
    const char *by = search->random ? "view.pick" : "_id.b";
    struct door *d = door_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t filter;

    *count = 0;
    if (search->most == 0)
        return STORE_OK;
    BSON_APPEND_UTF8(&command, "find", "buckets");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "_id.c", search->coupon);
    BSON_APPEND_INT64(&filter, "view.lane", search->lane);
    put_bound(&filter, by, "$gte", search->from, false);
    put_bound(&filter, "view.free", "$gt", 0, false);
    bson_append_document_end(&command, &filter);
    end_sorted(d, &command, after, by, search->most);
    return buckets_read(d, &command, buckets, search->most, count);
}

/* ---- what ends by itself: by the partial indexes on `due` ---- */

/* A find for those with a due time, the earliest first, one more than wanted: the first that is left out says when the
 * next one ends. put_which says which are meant. */
static void put_due_search(struct door *d, bson_t *command, struct store_time after, const char *collection,
                           const struct due_search *search,
                           void (*put_which)(bson_t *filter, const struct due_search *search))
{
    bson_t filter;

    BSON_APPEND_UTF8(command, "find", collection);
    BSON_APPEND_DOCUMENT_BEGIN(command, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "_id.c", search->coupon);
    put_which(&filter, search);
    put_bound(&filter, "view.due", "$gt", 0, true);
    bson_append_document_end(command, &filter);
    end_sorted(d, command, after, "view.due", search->most + 1);
}

/* Leave out those in which the member is one of these numbers or, where numbers is NULL, texts. */
static void put_none_of(bson_t *filter, const char *member, const int64_t *numbers, const char *const *texts, size_t count)
{
    bson_t clause, list;
    char buffer[16];

    if (count == 0)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(filter, member, &clause);
    BSON_APPEND_ARRAY_BEGIN(&clause, "$nin", &list);
    for (size_t i = 0; i < count; i++)
        if (numbers)
            bson_append_int64(&list, array_key(i, buffer), -1, numbers[i]);
        else
            bson_append_utf8(&list, array_key(i, buffer), -1, texts[i], -1);
    bson_append_array_end(&clause, &list);
    bson_append_document_end(filter, &clause);
}

static void put_which_buckets(bson_t *filter, const struct due_search *search)
{
    BSON_APPEND_INT64(filter, "view.lane", search->lane);
    put_none_of(filter, "_id.b", search->but_buckets, NULL, search->but_count);
}

/* All redemptions of a use have its lane, which is left out when it is 0. Users hash evenly to lanes: of those that the index
 * gives, as many are another lane's as there are lanes, so it needs no part in it. */
static void put_which_uses(bson_t *filter, const struct due_search *search)
{
    if (search->lane > 0)
        BSON_APPEND_INT64(filter, "view.redemptions.lane", search->lane);
    else
        BSON_APPEND_NULL(filter, "view.redemptions.lane");
    put_none_of(filter, "_id.u", NULL, search->but_users, search->but_count);
}

struct due_list {
    int64_t at_ms;
    struct bucket *buckets; /* or */
    struct use **uses;
    struct arena *arena;
    size_t count, most;
    int64_t next_ms;
};

/* False: nothing is to be read of this row, which is due later, or one too many. */
static bool due_is_wanted(const bson_t *doc, struct due_list *list, bool *wanted)
{
    int64_t due_ms;
    bson_t view;

    if (!find_document(doc, "view", &view) || !find_time(&view, "due", &due_ms))
        return false;
    *wanted = due_ms <= list->at_ms && list->count < list->most;
    if (!*wanted && !list->next_ms)
        list->next_ms = due_ms;
    return true;
}

static bool due_bucket_row(const bson_t *doc, void *context)
{
    struct due_list *list = context;
    bool wanted;

    if (!due_is_wanted(doc, list, &wanted))
        return false;
    if (wanted && !codec_bucket_get(doc, &list->buckets[list->count]))
        return false;
    list->count += wanted;
    return true;
}

static bool due_use_row(const bson_t *doc, void *context)
{
    struct due_list *list = context;
    bool wanted;

    if (!due_is_wanted(doc, list, &wanted))
        return false;
    if (wanted && !(list->uses[list->count] = codec_use_get(doc, list->arena, NULL)))
        return false;
    list->count += wanted;
    return true;
}

enum store_status views_due_buckets(struct store *s, struct store_time after, const struct due_search *search,
                                    struct bucket *buckets, size_t *count, int64_t *next_due_ms)
{
    struct due_list list = {.at_ms = search->at_ms, .buckets = buckets, .most = search->most};
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    enum store_status status;

    put_due_search(d, &command, after, "buckets", search, put_which_buckets);
    status = door_read(d, &command, due_bucket_row, &list);
    if (status != STORE_OK)
        while (list.count > 0)
            bucket_release(&list.buckets[--list.count]);
    *count = list.count;
    *next_due_ms = list.next_ms;
    return status;
}

enum store_status views_due_uses(struct store *s, struct store_time after, const struct due_search *search, struct arena *a,
                                 struct use **uses, size_t *count, int64_t *next_due_ms)
{
    struct due_list list = {.at_ms = search->at_ms, .uses = uses, .arena = a, .most = search->most};
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    enum store_status status;

    put_due_search(d, &command, after, "users", search, put_which_uses);
    status = door_read(d, &command, due_use_row, &list);
    *count = status == STORE_OK ? list.count : 0;
    *next_due_ms = list.next_ms;
    return status;
}

/* ---- the definition ---- */

struct definition_read {
    struct coupon *definition;
    int64_t *seq;
    struct arena *arena;
};

static bool definition_row(const bson_t *doc, void *context)
{
    struct definition_read *r = context;

    r->definition = codec_coupon_get(doc, r->arena, r->seq);
    return r->definition != NULL;
}

enum store_status views_coupon(struct store *s, const char *coupon, struct store_time after, struct arena *a,
                               struct coupon **definition, int64_t *seq)
{
    struct definition_read read = {NULL, seq, a};
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    enum store_status status;
    bson_t filter;

    *seq = 0;
    BSON_APPEND_UTF8(&command, "find", "coupons");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "_id", coupon);
    bson_append_document_end(&command, &filter);
    door_read_options(d, &command, after, 0);
    status = door_read(d, &command, definition_row, &read);
    *definition = read.definition;
    return status;
}
