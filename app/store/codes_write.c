/*
 * store/codes_write.c -- writing codes: drafts, in the turn of a job, and deleting those of earlier turns.
 *
 * Guard    every document has `w` (see codes.h): new ones are inserted, many in a command; those that exist already,
 *          from earlier drafts, are replaced if their w is not higher: a higher one is a later turn's, the same one is
 *          this very writing. Replacing is slow, so known leftovers are deleted first, under the same guard
 * Order    the directory first, since another coupon's codes must not be announced; then the code buckets, one
 *          document per 64 codes, which tell a writer that its turn has ended; then the look-ups
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codes.h"

#define TURN_MAX (INT64_C(1) << (62 - ATTEMPT_BITS))

/* A number for this call, above those of earlier calls in the same turn. A turn belongs to one process; if the attempts
 * wrap, the turn counts as lost, and the next one begins. */
static int64_t new_writing(int64_t turn)
{
    static atomic_uint_fast32_t attempts;

    assert(turn > 0 && turn < TURN_MAX);
    return turn << ATTEMPT_BITS | (int64_t)(atomic_fetch_add(&attempts, 1) & ((1u << ATTEMPT_BITS) - 1));
}

/* ---- guarded documents ---- */

struct draft {
    const struct coupon *coupon;
    int64_t next_n;
    int64_t writing;
    const char *job;
    struct code_draft *codes;
    size_t count;
    int64_t first_b; /* the first entirely new bucket */
    struct directory_entry *directory;
    struct arena *arena; /* for the names of owners */
};

/* An entry of the directory to be written. Codes that differ only in what the loose form ignores share one. */
struct directory_entry {
    char form[CODE_MAX + 1];
    size_t code; /* the first of the draft's codes with this form */
    char owner[COUPON_ID_MAX + 1]; /* another coupon that has it; "": none */
};

/* One kind of document in a draft. */
struct document_type {
    const char *collection;
    void (*put_id)(bson_t *doc, const struct draft *draft, size_t i);
    void (*put_rest)(bson_t *doc, const struct draft *draft, size_t i);
};

/* Documents of one type, and which of them existed already. */
struct documents {
    const struct document_type *type;
    const struct draft *draft;
    size_t count;
    size_t *found, found_count;
};

static void documents_init(struct documents *list, const struct document_type *type, const struct draft *draft,
                           size_t count)
{
    *list = (struct documents){.type = type, .draft = draft, .count = count};
    list->found = checked(calloc(count + 1, sizeof *list->found));
}

/* Note the duplicates among the errors of an unordered insert from `first` on. False: there is another error. */
static bool note_found(struct documents *list, const bson_t *reply, size_t first)
{
    int64_t index, code;
    bson_iter_t errors;

    if (!reply_errors(reply, &errors))
        return true;
    while (reply_next_error(&errors, &index, &code)) {
        if (code != CODE_DUPLICATE_KEY || index < 0 || first + (uint64_t)index >= list->count) {
            log_event(LOG_ERROR, "store.codes_refused", F_WORD("collection", list->type->collection),
                      F_WORD("coupon", list->draft->coupon->id), F_INT("code", code));
            return false;
        }
        list->found[list->found_count++] = first + (size_t)index;
    }
    return true;
}

static enum store_status insert_new(struct session *session, struct documents *list)
{
    for (size_t next = 0; next < list->count;) {
        size_t first = next;
        struct bulk inserts;
        AUTO_BSON reply;

        bulk_begin(&inserts, "insert", list->type->collection);
        for (; next < list->count && inserts.count < CODES_PER_COMMAND && inserts.list.len < COMMAND_BYTES_MAX; ++next) {
            bson_t *doc = bulk_next(&inserts);

            list->type->put_id(doc, list->draft, next);
            list->type->put_rest(doc, list->draft, next);
            bulk_end(&inserts);
        }
        if (!bulk_run(session, &inserts, &reply) || !note_found(list, &reply, first))
            return STORE_FAILED;
    }
    return STORE_OK;
}

/* Replace as many of those found as fit, from *next on. STORE_EXISTS: one has a higher w. */
static enum store_status replace_some(struct session *session, const struct documents *list, size_t *next)
{
    enum store_status status;
    int64_t replaced = 0;
    struct bulk updates;
    size_t count;

    bulk_begin(&updates, "update", list->type->collection);
    for (; *next < list->found_count && updates.count < CODES_PER_UPDATE && updates.list.len < COMMAND_BYTES_MAX; ++*next) {
        size_t i = list->found[*next];
        AUTO_BSON filter = BSON_INITIALIZER, rest = BSON_INITIALIZER;

        list->type->put_id(&filter, list->draft, i);
        BCON_APPEND(&filter, "w", "{", "$lte", BCON_INT64(list->draft->writing), "}");
        list->type->put_rest(&rest, list->draft, i);
        bulk_update(&updates, &filter, &rest, false);
    }
    count = updates.count;
    status = bulk_send(session, &updates, &replaced);
    return status == STORE_OK && replaced < (int64_t)count ? STORE_EXISTS : status;
}

static enum store_status write_documents(struct session *session, const struct document_type *type, const struct draft *draft,
                                         size_t count)
{
    struct documents list;
    enum store_status status;

    documents_init(&list, type, draft, count);
    status = insert_new(session, &list);
    for (size_t next = 0; status == STORE_OK && next < list.found_count;)
        status = replace_some(session, &list, &next);
    free(list.found);
    return status;
}

/* ---- the directory ---- */

static void directory_put_id(bson_t *doc, const struct draft *draft, size_t i)
{
    codes_put_id(doc, "_id", DIRECTORY, draft->directory[i].form);
}

static void directory_put_rest(bson_t *doc, const struct draft *draft, size_t i)
{
    bson_append_utf8(doc, "o", 1, draft->coupon->id, -1);
    bson_append_int64(doc, "n", 1, draft->next_n + (int64_t)draft->directory[i].code);
    bson_append_int64(doc, "w", 1, draft->writing);
}

static const struct document_type directory_type = {"codes", directory_put_id, directory_put_rest};

/* True for an entry that nobody announced, unless this very draft has written it. */
static bool is_to_take(const struct draft *draft, const struct look_up *met, enum standing standing)
{
    return standing == STANDING_ABANDONED || (standing == STANDING_OWN_DRAFT && met->writing != draft->writing);
}

/* Take the next CODES_PER_UPDATE, from *next on. */
static enum store_status take_some(struct session *session, const struct documents *list, const struct look_up *met,
                                   const enum standing *standings, size_t *next)
{
    struct bulk updates;
    int64_t taken = 0, count;

    bulk_begin(&updates, "update", "codes");
    for (; *next < list->found_count && updates.count < CODES_PER_UPDATE; ++*next)
        if (is_to_take(list->draft, &met[*next], standings[*next])) {
            /* {q: the entry as it was read, u: ours} */
            size_t i = list->found[*next];
            const struct look_up *was = &met[*next];
            AUTO_BSON filter = BSON_INITIALIZER, rest = BSON_INITIALIZER;

            directory_put_id(&filter, list->draft, i);
            BCON_APPEND(&filter, "o", BCON_UTF8(was->owner), "w", BCON_INT64(was->writing));
            directory_put_rest(&rest, list->draft, i);
            bulk_update(&updates, &filter, &rest, false);
        }
    count = (int64_t)updates.count;
    return bulk_send(session, &updates, &taken) == STORE_OK && taken == count ? STORE_OK : STORE_FAILED;
}

/* Read and judge the entries that existed already, not before the insert that met them: sets their `owner`. */
static enum store_status settle_met(struct session *session, const struct documents *list)
{
    const struct draft *draft = list->draft;
    struct look_up *met = checked(calloc(list->found_count + 1, sizeof *met));
    enum standing *standings = checked(calloc(list->found_count + 1, sizeof *standings));
    enum store_status status;

    for (size_t k = 0; k < list->found_count; k++)
        met[k] = (struct look_up){.coupon = DIRECTORY, .code = draft->directory[list->found[k]].form};
    status = codes_find(session, met, list->found_count);
    if (status == STORE_OK)
        status = directory_judge(session, draft->coupon->id, draft->next_n, met, standings, list->found_count);
    for (size_t k = 0; status == STORE_OK && k < list->found_count; k++) {
        if (standings[k] == STANDING_NONE)
            status = STORE_FAILED; /* deleted in the meantime */
        else if (standings[k] == STANDING_OWN_DRAFT && met[k].writing > draft->writing)
            status = STORE_EXISTS;
        if (standings[k] == STANDING_ELSEWHERE)
            snprintf(draft->directory[list->found[k]].owner, COUPON_ID_MAX + 1, "%s", met[k].owner);
    }
    for (size_t next = 0; status == STORE_OK && next < list->found_count;)
        status = take_some(session, list, met, standings, &next);
    free(standings);
    free(met);
    return status;
}

/* List the entries of the draft's codes; entry_of[i]: that of code i. Returns how many. */
static size_t list_entries(const struct draft *draft, struct directory_entry *entries, size_t *entry_of)
{
    struct hash_index index;
    size_t count = 0;

    hash_index_init(&index, draft->count);
    for (size_t i = 0; i < draft->count; i++) {
        struct directory_entry *e = &entries[count];
        uint64_t hash;
        size_t at, k;

        directory_form(draft->codes[i].code, e->form);
        hash = hash_text(HASH_NONE, e->form);
        for (at = hash_index_begin(&index, hash); (k = hash_index_item(&index, at)) != HASH_INDEX_END; at++)
            if (strcmp(entries[k].form, e->form) == 0)
                break;
        entry_of[i] = k == HASH_INDEX_END ? count : k;
        if (k != HASH_INDEX_END)
            continue;
        e->code = i;
        hash_index_add(&index, hash, count++);
    }
    hash_index_free(&index);
    return count;
}

static enum store_status claim_directory(struct session *session, struct draft *draft, bool *elsewhere)
{
    struct directory_entry *entries = checked(calloc(draft->count + 1, sizeof *entries));
    size_t *entry_of = checked(calloc(draft->count + 1, sizeof *entry_of));
    struct documents list;
    enum store_status status;

    draft->directory = entries;
    documents_init(&list, &directory_type, draft, list_entries(draft, entries, entry_of));
    status = insert_new(session, &list);
    if (status == STORE_OK && list.found_count > 0)
        status = settle_met(session, &list);
    for (size_t i = 0; i < draft->count; i++) {
        const char *owner = entries[entry_of[i]].owner;

        codes_set_elsewhere(&draft->codes[i], *owner ? owner : NULL, draft->arena);
        *elsewhere = *elsewhere || *owner;
    }
    draft->directory = NULL;
    free(list.found);
    free(entry_of);
    free(entries);
    return status;
}

/* ---- code buckets ---- */

static int64_t draft_end(const struct draft *draft)
{
    return draft->next_n + (int64_t)draft->count;
}

/* Append the codes of slots [from, end of bucket b or of the draft), as an array that begins with `nulls` empty places. */
static void put_codes(bson_t *doc, const char *name, const struct draft *draft, int64_t b, int64_t from, int nulls)
{
    size_t k = 0;
    char buffer[16];
    bson_t array;

    bson_append_array_begin(doc, name, -1, &array);
    for (; k < (size_t)nulls; k++)
        bson_append_null(&array, array_key(k, buffer), -1);
    for (int64_t n = from; n < draft_end(draft) && bucket_of(n) == b; n++)
        bson_append_utf8(&array, array_key(k++, buffer), -1, draft->codes[n - draft->next_n].code, -1);
    bson_append_array_end(doc, &array);
}

static void bucket_put_id(bson_t *doc, const struct draft *draft, size_t i)
{
    codec_id(doc, "_id", draft->coupon->id, "b", draft->first_b + (int64_t)i);
}

static void bucket_put_rest(bson_t *doc, const struct draft *draft, size_t i)
{
    int64_t b = draft->first_b + (int64_t)i, from = b * BUCKET_SLOTS;

    bson_append_int64(doc, "w", 1, draft->writing);
    if (from < draft->next_n) /* a begun bucket that no longer exists: see insert_begun_bucket() */
        put_codes(doc, "codes", draft, b, draft->next_n, (int)(draft->next_n - from));
    else
        put_codes(doc, "codes", draft, b, from, 0);
}

static const struct document_type bucket_type = {"code_buckets", bucket_put_id, bucket_put_rest};

/* The bucket with the first, announced slots was cleaned up, and its coupon continues after its end. */
static enum store_status insert_begun_bucket(struct session *session, const struct draft *draft)
{
    struct documents list;
    enum store_status status;

    documents_init(&list, &bucket_type, draft, 1);
    status = insert_new(session, &list);
    if (status == STORE_OK && list.found_count > 0)
        status = STORE_EXISTS; /* it exists after all, and is a later turn's */
    free(list.found);
    return status;
}

/* {codes: [$slice: the first stored ones, then ours]}, in the server: announced codes are not ours to write. A bucket with fewer does not
 * match. */
static enum store_status write_begun_bucket(struct session *session, const struct draft *draft)
{
    int begun = (int)(draft->next_n % BUCKET_SLOTS);
    AUTO_BSON filter = BSON_INITIALIZER, own = BSON_INITIALIZER;
    int64_t written = 0;
    char last[32];

    snprintf(last, sizeof last, "codes.%d", begun - 1);
    bucket_put_id(&filter, draft, 0);
    BCON_APPEND(&filter, "w", "{", "$lte", BCON_INT64(draft->writing), "}", last, "{", "$exists", BCON_BOOL(true), "}");
    put_codes(&own, "$literal", draft, draft->first_b, draft->next_n, 0); /* a code may begin with a dollar sign */
    AUTO_BCON command = BCON_NEW(
        "update", BCON_UTF8(bucket_type.collection),
        "updates", "[", "{",
            "q", BCON_DOCUMENT(&filter),
            "u", "[", "{", "$set", "{",
                "w", BCON_INT64(draft->writing),
                "codes", "{", "$concatArrays", "[",
                    "{", "$slice", "[", "$codes", BCON_INT32(begun), "]", "}", BCON_DOCUMENT(&own), "]", "}",
            "}", "}", "]",
        "}", "]");

    if (session_write(session, command, &written) != STORE_OK)
        return STORE_FAILED;
    return written == 1 ? STORE_OK : insert_begun_bucket(session, draft);
}

/* ---- look-ups ---- */

static void look_up_put_id(bson_t *doc, const struct draft *draft, size_t i)
{
    codes_put_id(doc, "_id", draft->coupon->id, draft->codes[i].normal);
}

static void look_up_put_rest(bson_t *doc, const struct draft *draft, size_t i)
{
    bson_append_int64(doc, "n", 1, draft->next_n + (int64_t)i);
    bson_append_int64(doc, "w", 1, draft->writing);
    if (draft->codes[i].row <= 0)
        return;
    bson_append_utf8(doc, "j", 1, draft->job, -1);
    bson_append_int64(doc, "r", 1, draft->codes[i].row);
}

static const struct document_type look_up_type = {"codes", look_up_put_id, look_up_put_rest};

enum store_status mongo_codes_draft(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn,
                                    const char *job, struct code_draft *codes, size_t count, struct arena *a)
{
    struct draft draft = {.coupon = c, .next_n = next_n, .writing = new_writing(turn), .job = job, .codes = codes,
                          .count = count, .arena = a};
    struct session *session = session_of(s);
    enum store_status status = STORE_OK;
    bool elsewhere = false;

    if (count == 0)
        return STORE_OK;
    for (size_t i = 0; i < count; i++)
        codes[i].elsewhere = false;
    if (c->codes.unique == UNIQUE_SERVICE)
        status = claim_directory(session, &draft, &elsewhere);
    if (status != STORE_OK || elsewhere)
        return status;
    status = STORE_OK;
    draft.first_b = bucket_of(draft.next_n);
    if (draft.next_n % BUCKET_SLOTS) {
        status = write_begun_bucket(session, &draft);
        draft.first_b++;
    }
    if (status == STORE_OK)
        status = write_documents(session, &bucket_type, &draft,
                                 (size_t)(bucket_of(draft_end(&draft) + BUCKET_SLOTS - 1) - draft.first_b));
    return status == STORE_OK ? write_documents(session, &look_up_type, &draft, count) : status;
}

/* ---- leftovers of earlier turns ---- */

/* Look-ups of drafts, as many as one command deletes. */
struct leftovers {
    struct session *session;
    const struct coupon *coupon;
    int64_t next_n, writing;
    char (*forms)[CODE_MAX + 1]; /* room for CODES_PER_UPDATE */
    size_t count;
    int64_t next_b; /* after the last bucket read */
};

static bool leftovers_row(const bson_t *doc, void *context)
{
    struct leftovers *l = context;
    const char *coupon, *codes[BUCKET_SLOTS];
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b) || !code_bucket_get(doc, codes))
        return false;
    for (int i = 0; i < BUCKET_SLOTS; i++)
        if (b * BUCKET_SLOTS + i >= l->next_n && codes[i] &&
            code_normalise(codes[i], (enum codes_match)l->coupon->codes.match, l->forms[l->count]))
            l->count++;
    l->next_b = b + 1;
    return true;
}

/* delete {_id: {$in: forms}, n: {$gte: next_n}, w: {$lt: writing}} */
static enum store_status delete_leftovers(struct leftovers *l)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < l->count; i++)
        codes_put_id(&in.values, in_next(&in), l->coupon->id, l->forms[i]);
    in_end(&in, &filter);
    BCON_APPEND(&filter, "n", "{", "$gte", BCON_INT64(l->next_n), "}", "w", "{", "$lt", BCON_INT64(l->writing), "}");
    return session_delete(l->session, look_up_type.collection, &filter, NULL);
}

enum store_status mongo_codes_forget_drafts(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn)
{
    struct leftovers l = {.session = session_of(s), .coupon = c, .next_n = next_n, .writing = new_writing(turn),
                          .next_b = bucket_of(next_n)};
    enum store_status status = STORE_OK;
    int64_t from = -1;

    l.forms = checked(calloc(CODES_PER_UPDATE, sizeof *l.forms));
    while (status == STORE_OK && from != l.next_b) {
        from = l.next_b;
        l.count = 0;
        status = code_buckets_find(l.session, c->id, from, INT64_MAX, CODES_PER_UPDATE / BUCKET_SLOTS, leftovers_row, &l);
        if (status == STORE_OK && l.count > 0)
            status = delete_leftovers(&l);
    }
    free(l.forms);
    return status;
}
