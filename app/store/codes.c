/* store/codes.c -- reading codes: a code's slot, a bucket's codes, all of a coupon, and what is known of codes to be drafted. */
#include "store/codes.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "store/bson_fields.h"

#define BUCKETS_PER_READ 1024
#define BUCKETS_PER_CHECK 256
#define ROWS(table) (table), sizeof(table) / sizeof *(table)

void codes_put_id(bson_t *doc, const char *name, const char *coupon, const char *code)
{
    bson_t id;

    bson_append_document_begin(doc, name, -1, &id);
    bson_append_utf8(&id, "c", 1, coupon, -1);
    bson_append_utf8(&id, "code", 4, code, -1);
    bson_append_document_end(doc, &id);
}

/* ---- look-ups ---- */

struct look_table {
    struct look_up *items;
    struct hash_index index; /* of items[], by coupon and code */
};

static uint64_t look_hash(const char *coupon, const char *code)
{
    return hash_text(hash_text(HASH_NONE, code), coupon);
}

/* Several items may ask for the same code: fill them all. */
static bool look_row(const bson_t *doc, void *context)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("n", BSON_FIELD_INT, struct look_up, n, true, 0),
        BSON_FIELD("j", BSON_FIELD_CHARS, struct look_up, job, true, 0),
        BSON_FIELD("r", BSON_FIELD_INT, struct look_up, row, true, 0),
        BSON_FIELD("w", BSON_FIELD_WIDE, struct look_up, writing, true, 0),
        BSON_FIELD("o", BSON_FIELD_CHARS, struct look_up, owner, true, 0),
    };
    const struct look_table *t = context;
    const char *coupon, *code;

    if (!codec_id_text(doc, "code", &coupon, &code))
        return false;
    for (size_t at = hash_index_begin(&t->index, look_hash(coupon, code)), i;
         (i = hash_index_item(&t->index, at)) != HASH_INDEX_END; at++) {
        struct look_up *item = &t->items[i];

        if (strcmp(item->code, code) != 0 || strcmp(item->coupon, coupon) != 0)
            continue;
        item->found = bson_fields_read(doc, ROWS(rows), 0, item, NULL);
        if (item->found && !bson_has_field(doc, "n"))
            item->n = -1; /* damage: no slot */
        if (item->found)
            continue;
        item->status = STORE_UNREADABLE;
        log_unreadable("codes", doc);
    }
    return true;
}

static enum store_status find_some(struct session *session, struct look_up *items, size_t count)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct look_table table = {.items = items};
    enum store_status status;
    struct in_clause in;

    hash_index_init(&table.index, count);
    for (size_t i = 0; i < count; i++)
        hash_index_add(&table.index, look_hash(items[i].coupon, items[i].code), i);
    if (count == 1) { /* by its _id alone it costs the server least */
        codes_put_id(&filter, "_id", items[0].coupon, items[0].code);
    } else {
        in_begin(&in, &filter, "_id");
        for (size_t i = 0; i < count; i++)
            codes_put_id(&in.values, in_next(&in), items[i].coupon, items[i].code);
        in_end(&in, &filter);
    }
    status = session_find(session, "codes", &filter, NULL, count, look_row, &table);
    hash_index_free(&table.index);
    return settle_reads(status, &items->status, sizeof *items, count);
}

enum store_status codes_find(struct session *session, struct look_up *items, size_t count)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < count; i++)
        items[i] = (struct look_up){.coupon = items[i].coupon, .code = items[i].code, .status = STORE_OK};
    for (size_t done = 0; done < count; done += CODES_PER_COMMAND)
        if (find_some(session, items + done, count - done < CODES_PER_COMMAND ? count - done : CODES_PER_COMMAND) != STORE_OK)
            status = STORE_FAILED;
    return status;
}

/* Reads not before what this session has read and appended: the checkpoint, and the batches after it that announced the codes. */
enum store_status codes_look_up(struct store *s, struct code_read *reads, size_t count)
{
    struct session *session = session_of(s);
    struct look_up *items = checked(calloc(count + 1, sizeof *items));
    enum store_status status;

    for (size_t i = 0; i < count; i++)
        items[i] = (struct look_up){.coupon = reads[i].coupon, .code = reads[i].code};
    status = codes_find(session, items, count);
    for (size_t i = 0; i < count; i++) {
        reads[i].n = items[i].found ? items[i].n : -1;
        reads[i].status = items[i].status;
    }
    free(items);
    return status;
}

/* ---- code buckets ---- */

bool code_bucket_get(const bson_t *doc, const char *codes[BUCKET_SLOTS])
{
    bson_t array;
    bson_iter_t it;

    memset(codes, 0, BUCKET_SLOTS * sizeof *codes);
    if (!find_array(doc, "codes", &array) || !bson_iter_init(&it, &array))
        return false;
    for (int i = 0; bson_iter_next(&it); i++)
        if (i == BUCKET_SLOTS || (!BSON_ITER_HOLDS_NULL(&it) && !get_text(&it, &codes[i])))
            return false;
    return it.err_off == 0;
}

enum store_status code_buckets_find(struct session *session, const char *coupon, int64_t from_b, int64_t to_b, size_t most,
                                    session_row *row, void *context)
{
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    bson_t range;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &range);
    codec_id(&range, "$gte", coupon, "b", from_b);
    codec_id(&range, "$lt", coupon, "b", to_b);
    bson_append_document_end(&filter, &range);
    return session_find(session, "code_buckets", &filter, sort, most, row, context);
}

static bool get_codes(const bson_t *doc, void *read, struct arena *a)
{
    struct bucket_codes_read *r = read;

    if (!code_bucket_get(doc, r->codes))
        return false;
    for (int slot = 0; slot < BUCKET_SLOTS; slot++)
        r->codes[slot] = arena_strdup(a, r->codes[slot]);
    return true;
}

static const struct keyed_reads bucket_reads = KEYED_READS("code_buckets", "b", struct bucket_codes_read, b, codes, get_codes);

enum store_status codes_of_buckets(struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count)
{
    return session_read_keyed(session_of(s), &bucket_reads, reads, count, a);
}

enum store_status mongo_codes_from(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                   struct arena *a, struct bucket *buckets, struct bucket_codes_read *reads)
{
    size_t count = from < end ? (size_t)(end - from) : 0;
    enum store_status status = mongo_buckets(s, coupon, from, end, next_n, buckets);

    if (status != STORE_OK || !count)
        return status;
    for (size_t i = 0; i < count; i++)
        reads[i] = (struct bucket_codes_read){.coupon = coupon, .b = buckets[i].b};
    status = codes_of_buckets(s, a, reads, count);
    for (size_t i = 0; i < count && status != STORE_OK; i++)
        bucket_release(&buckets[i]);
    return status;
}

/* ---- all codes of a coupon ---- */

struct all_codes {
    int64_t next_n;
    void (*take)(void *context, const char *code);
    void *context;
    int64_t next_b; /* after the last one read */
};

static bool all_codes_row(const bson_t *doc, void *context)
{
    struct all_codes *all = context;
    const char *coupon, *codes[BUCKET_SLOTS];
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b) || !code_bucket_get(doc, codes))
        return false;
    for (int i = 0; i < BUCKET_SLOTS && b * BUCKET_SLOTS + i < all->next_n; i++)
        if (codes[i])
            all->take(all->context, codes[i]);
    all->next_b = b + 1;
    return true;
}

enum store_status mongo_codes_each(struct store *s, const char *coupon, int64_t next_n,
                                   void (*take)(void *context, const char *code), void *context)
{
    struct all_codes all = {next_n, take, context, 0};
    int64_t end = bucket_of(next_n + BUCKET_SLOTS - 1), from = -1;
    enum store_status status = STORE_OK;
    struct session *session = session_of(s);

    if (end > 0 && !session_pulse(session))
        return STORE_FAILED;
    while (status == STORE_OK && all.next_b < end && from != all.next_b) { /* no progress: the rest was cleaned up */
        from = all.next_b;
        status = code_buckets_find(session, coupon, from, end, BUCKETS_PER_READ, all_codes_row, &all);
    }
    return status;
}

/* ---- what is known of codes to be drafted ---- */

static bool has_form(const char *code, code_form *form, const char *wanted)
{
    char found[CODE_MAX + 1];

    return code && form(code, found) && strcmp(found, wanted) == 0;
}

static int by_n(const void *a, const void *b)
{
    const struct look_up *const *x = a, *const *y = b;

    return (*x)->n < (*y)->n ? -1 : (*x)->n > (*y)->n;
}

enum store_status codes_check(struct session *session, const char *coupon, code_form *form,
                              struct look_up **items, size_t count)
{
    struct bucket_codes_read *reads;
    enum store_status status = STORE_OK;
    struct arena a;

    if (count == 0)
        return STORE_OK;
    reads = checked(calloc(BUCKETS_PER_CHECK, sizeof *reads));
    arena_init(&a, 0);
    qsort(items, count, sizeof *items, by_n); /* one read for each bucket */
    for (size_t first = 0, end; status == STORE_OK && first < count; first = end) {
        size_t k = 0;

        for (end = first; end < count; end++) {
            int64_t b = bucket_of(items[end]->n);

            if (k > 0 && reads[k - 1].b == b)
                continue;
            if (k == BUCKETS_PER_CHECK)
                break;
            reads[k++] = (struct bucket_codes_read){.coupon = coupon, .b = b};
        }
        status = session_read_keyed(session, &bucket_reads, reads, k, &a);
        k = 0;
        for (size_t i = first; i < end; i++) {
            if (reads[k].b != bucket_of(items[i]->n))
                k++;
            items[i]->found = has_form(reads[k].codes[items[i]->n % BUCKET_SLOTS], form, items[i]->code);
        }
        arena_reset(&a);
    }
    arena_free(&a);
    free(reads);
    return status;
}

static bool exact_form(const char *code, char form[CODE_MAX + 1])
{
    return code_normalise(code, MATCH_EXACT, form);
}

static bool loose_form(const char *code, char form[CODE_MAX + 1])
{
    return code_normalise(code, MATCH_LOOSE, form);
}

static enum store_status look_in_coupon(struct session *session, const struct coupon *c, int64_t next_n,
                                        const char *job, struct code_draft *codes, size_t count, struct look_up *items)
{
    struct look_up **claims = checked(calloc(count + 1, sizeof *claims));
    enum store_status status;
    size_t claim_count = 0;

    for (size_t i = 0; i < count; i++)
        items[i] = (struct look_up){.coupon = c->id, .code = codes[i].normal};
    status = codes_find(session, items, count);
    for (size_t i = 0; i < count; i++) {
        items[i].found = items[i].found && items[i].n >= 0 && items[i].n < next_n;
        if (items[i].found)
            claims[claim_count++] = &items[i];
    }
    if (status == STORE_OK)
        status = codes_check(session, c->id, c->codes.match == MATCH_LOOSE ? loose_form : exact_form, claims,
                             claim_count);
    free(claims);
    for (size_t i = 0; i < count; i++) {
        codes[i].announced = items[i].found;
        codes[i].by_this_job = items[i].found && strcmp(items[i].job, job) == 0;
        codes[i].by_this_row = codes[i].by_this_job && items[i].row == codes[i].row;
    }
    return status;
}

void codes_set_elsewhere(struct code_draft *code, const char *owner, struct arena *a)
{
    code->elsewhere = owner != NULL;
    code->owner = owner ? arena_strdup(a, owner) : NULL;
}

static enum store_status look_in_directory(struct session *session, const struct coupon *c,
                                           int64_t next_n, struct code_draft *codes, size_t count,
                                           struct look_up *items, struct arena *a)
{
    char(*forms)[CODE_MAX + 1] = checked(calloc(count + 1, sizeof *forms));
    enum standing *standings = checked(calloc(count + 1, sizeof *standings));
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        directory_form(codes[i].code, forms[i]);
        items[i] = (struct look_up){.coupon = DIRECTORY, .code = forms[i]};
    }
    status = codes_find(session, items, count);
    if (status == STORE_OK)
        status = directory_judge(session, c->id, next_n, items, standings, count);
    for (size_t i = 0; i < count; i++)
        codes_set_elsewhere(&codes[i], standings[i] == STANDING_ELSEWHERE ? items[i].owner : NULL, a);
    free(standings);
    free(forms);
    return status;
}

/* Reads after a write of its own, so as not to miss what was just announced, perhaps through another primary. */
enum store_status mongo_codes_look(struct store *s, const struct coupon *c, int64_t next_n, const char *job,
                                   struct code_draft *codes, size_t count, struct arena *a)
{
    bool service = c->codes.unique == UNIQUE_SERVICE;
    struct look_up *items = checked(calloc(count + 1, sizeof *items));
    enum store_status status = STORE_OK;
    struct session *session = session_of(s);

    for (size_t i = 0; i < count; i++)
        codes[i].announced = codes[i].by_this_job = codes[i].by_this_row = codes[i].elsewhere = false;
    if (count > 0 && (next_n > 0 || service) && !session_pulse(session))
        status = STORE_FAILED;
    if (status == STORE_OK && count > 0 && next_n > 0)
        status = look_in_coupon(session, c, next_n, job, codes, count, items);
    if (status == STORE_OK && count > 0 && service)
        status = look_in_directory(session, c, next_n, codes, count, items, a);
    free(items);
    return status;
}

/* ---- codes typed at checkout ---- */

struct coupon_ids {
    const char **items;
    size_t count, most;
    struct arena *arena;
};

static bool coupon_id_row(const bson_t *doc, void *context)
{
    struct coupon_ids *list = context;
    const char *coupon, *code;

    if (!codec_id_text(doc, "code", &coupon, &code))
        return false;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], coupon) == 0)
            return true;
    if (list->count < list->most)
        list->items[list->count++] = arena_strdup(list->arena, coupon);
    return true;
}

static bool sharing_row(const bson_t *doc, void *context)
{
    struct coupon_ids *list = context;
    const char *coupon;

    if (!find_text(doc, "_id", &coupon))
        return false;
    list->items[list->count++] = arena_strdup(list->arena, coupon);
    return true;
}

static enum store_status find_sharing(struct session *session, const char *exact, const char *loose, struct coupon_ids *list)
{
    AUTO_BCON options = BCON_NEW("sort", "{", "view.live", BCON_INT32(-1), "}", "projection", "{", "_id", BCON_INT32(1), "}",
                                 "hint", "shared");
    AUTO_BSON filter = BSON_INITIALIZER;

    in_texts(&filter, "view.shared", (const char *const[]){exact, loose}, 2);
    return session_find(session, "coupons", &filter, options, list->most, sharing_row, list);
}

enum store_status mongo_codes_coupons(struct store *s, const char *exact, const char *loose, size_t most,
                                      struct arena *a, const char ***coupons, size_t *count)
{
    struct coupon_ids list = {arena_array(a, most + 1, sizeof(const char *)), 0, most, a};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;

    *coupons = list.items;
    *count = 0;
    if (most == 0)
        return STORE_OK;
    in_texts(&filter, "_id.code", (const char *const[]){exact, loose}, 2);
    BCON_APPEND(&filter, "_id.c", "{", "$ne", BCON_UTF8(DIRECTORY), "}");
    status = find_sharing(session_of(s), exact, loose, &list);
    if (status == STORE_OK) /* one coupon may have both forms */
        status = session_find(session_of(s), "codes", &filter, NULL, 2 * most, coupon_id_row, &list);
    *count = status == STORE_OK ? list.count : 0;
    return status;
}
