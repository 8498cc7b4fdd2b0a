/*
 * store/erasure.c -- removing an erased user's names and terms from the ledger.
 *
 * Note     the batch with the `erase` entry lists the alias in `erasing` from its append on (codec.c), so whoever finds it there can
 *          finish. It is the last to be emptied, in one update with the note
 * Writes   are conditional on the terms that were read: another user's erasure may empty the same batch at the same time
 * Repeats  change nothing
 * Damage   a batch that cannot be read is passed over, and the note stays: when it can be read again, whoever comes next finishes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define AT_ONCE 64     /* batches in one command */
#define ROUNDS_MAX 100 /* without progress, while others write the same batches */

/* ---- what to empty ---- */

/* One batch to empty, with the members as read that a write compares. */
struct emptying {
    struct batch *batch;
    bson_t terms;   /* {terms: [...]}, or {} */
    bson_t erasing; /* {erasing: [...]}, or {} */
};

struct emptyings {
    const char *alias;
    struct emptying items[AT_ONCE];
    size_t count;
    size_t unreadable; /* batches beside them, of which so many were logged: */
    size_t logged;
};

static void copy_member(const bson_t *doc, const char *name, bson_t *copy)
{
    bson_iter_t it;

    bson_init(copy);
    if (bson_iter_init_find(&it, doc, name))
        bson_append_iter(copy, name, -1, &it);
}

static bool emptying_row(const bson_t *doc, void *context)
{
    struct emptyings *list = context;
    struct emptying *e = &list->items[list->count];

    if (list->count == AT_ONCE)
        return true;
    e->batch = codec_batch_get(doc);
    if (!e->batch) {
        if (list->unreadable++ == list->logged) {
            log_unreadable("ledger", doc);
            list->logged++;
        }
        return true;
    }
    copy_member(doc, "terms", &e->terms);
    copy_member(doc, "erasing", &e->erasing);
    list->count++;
    return true;
}

static void emptyings_free(struct emptyings *list)
{
    for (size_t i = 0; i < list->count; i++) {
        batch_free(list->items[i].batch);
        bson_destroy(&list->items[i].terms);
        bson_destroy(&list->items[i].erasing);
    }
    list->count = 0;
}

static const char *name_of(const struct batch *b, const char *alias)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].user && strcmp(b->entries[i].alias, alias) == 0)
            return b->entries[i].user;
    return NULL;
}

/* ---- emptying ---- */

/* Equal to what was read, or absent like it. */
static void put_as_read(bson_t *filter, const char *name, const bson_t *member)
{
    if (!bson_empty(member)) {
        bson_concat(filter, member);
        return;
    }
    BCON_APPEND(filter, name, "{", "$exists", BCON_BOOL(false), "}");
}

/* The aliases of the note but this one: absent if there are none. */
static void put_other_aliases(bson_t *doc, const bson_t *erasing, const char *alias)
{
    bson_t array, others;
    char buffer[16];
    size_t count = 0;
    bson_iter_t it;

    if (!find_array(erasing, "erasing", &array) || !bson_iter_init(&it, &array))
        return;
    bson_init(&others);
    while (bson_iter_next(&it))
        if (!BSON_ITER_HOLDS_UTF8(&it) || strcmp(bson_iter_utf8(&it, NULL), alias) != 0)
            bson_append_iter(&others, array_key(count++, buffer), -1, &it);
    if (count)
        bson_append_array(doc, "erasing", 7, &others);
    bson_destroy(&others);
}

static void put_update(bson_t *update, const struct emptying *e, const char *alias, const struct term_key *key, bool last)
{
    bson_t sub, set = BSON_INITIALIZER, unset;
    const struct batch *b = e->batch;
    char path[32];

    for (size_t i = 0; i < b->count; i++)
        if ((entry_members[b->entries[i].kind] & HAS_USER) && strcmp(b->entries[i].alias, alias) == 0)
            b->entries[i].user = b->entries[i].order = b->entries[i].metadata = b->entries[i].code = NULL;
    codec_terms_put(&set, b, key);
    if (last)
        put_other_aliases(&set, &e->erasing, alias);
    BSON_APPEND_DOCUMENT_BEGIN(update, "q", &sub);
    codec_ledger_id(&sub, "_id", b->coupon, b->lane, b->head.seq);
    BSON_APPEND_UTF8(&sub, "who.a", alias);
    put_as_read(&sub, "terms", &e->terms);
    if (last)
        put_as_read(&sub, "erasing", &e->erasing);
    bson_append_document_end(update, &sub);
    BSON_APPEND_DOCUMENT_BEGIN(update, "u", &sub);
    if (!bson_empty(&set))
        BSON_APPEND_DOCUMENT(&sub, "$set", &set);
    BSON_APPEND_DOCUMENT_BEGIN(&sub, "$unset", &unset);
    for (size_t i = 0; codec_who_member(i); i++) {
        snprintf(path, sizeof path, "who.$[x].%s", codec_who_member(i));
        BSON_APPEND_INT32(&unset, path, 1);
    }
    if (!bson_has_field(&set, "terms"))
        BSON_APPEND_INT32(&unset, "terms", 1);
    if (last && !bson_has_field(&set, "erasing"))
        BSON_APPEND_INT32(&unset, "erasing", 1);
    bson_append_document_end(&sub, &unset);
    bson_append_document_end(update, &sub);
    BCON_APPEND(update, "arrayFilters", "[", "{", "x.a", BCON_UTF8(alias), "}", "]");
    bson_destroy(&set);
}

/* Fingerprints go too: they would confirm a guess of the request. */
static enum store_status empty_all(struct session *session, const struct emptyings *list, bool last)
{
    struct bulk updates;

    bulk_begin(&updates, "update", "ledger");
    for (size_t i = 0; i < list->count; i++) {
        put_update(bulk_next(&updates), &list->items[i], list->alias, &session->term_key, last);
        bulk_end(&updates);
    }
    return bulk_send(session, &updates, NULL);
}

/* ---- finding ---- */

/* Read some of the batches that still name the alias, but for batch seq: by the user's term. Those that cannot be read come again each
 * time. *more: there may be others. */
static enum store_status find_named(struct session *session, const struct erasure *e, const char *user, struct emptyings *list, bool *more)
{
    AUTO_BCON by_terms = BCON_NEW("hint", "terms");
    AUTO_BSON filter = BSON_INITIALIZER;
    size_t most = AT_ONCE + list->unreadable;
    enum store_status status;

    put_int(&filter, "part", term_part(e->coupon));
    BCON_APPEND(&filter, "terms", BCON_INT64(term_of_user(&session->term_key, user)), "_id.c", BCON_UTF8(e->coupon),
                "_id.l", BCON_INT64(e->lane), "_id.seq", "{", "$ne", BCON_INT64(e->seq), "}", "who", "{", "$elemMatch", "{",
                "a", BCON_UTF8(e->alias), "u", "{", "$exists", BCON_BOOL(true), "}", "}", "}");
    list->unreadable = 0;
    status = session_find(session, "ledger", &filter, by_terms, most, emptying_row, list);
    *more = list->count == AT_ONCE || list->count + list->unreadable == most;
    return status;
}

/* Read the erasure's own batch, if it notes the alias. */
static enum store_status find_noted(struct session *session, const struct erasure *e, struct emptyings *list)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    codec_ledger_id(&filter, "_id", e->coupon, e->lane, e->seq);
    BSON_APPEND_UTF8(&filter, "erasing", e->alias);
    return session_find(session, "ledger", &filter, NULL, 1, emptying_row, list);
}

/* Empty all batches but the erasure's own. STORE_UNREADABLE: all that can be read. */
static enum store_status empty_others(struct session *session, const struct erasure *e, const char *user)
{
    struct emptyings list = {.alias = e->alias};
    enum store_status status = STORE_OK;
    bool more;

    for (int i = 0; i < ROUNDS_MAX && status == STORE_OK; i++) {
        status = find_named(session, e, user, &list, &more);
        if (status == STORE_OK && list.count == 0 && !more)
            return list.unreadable ? STORE_UNREADABLE : STORE_OK;
        if (status == STORE_OK && list.count)
            status = empty_all(session, &list, false);
        i = more ? 0 : i; /* that many were not seen before */
        emptyings_free(&list);
    }
    emptyings_free(&list);
    return STORE_FAILED;
}

enum store_status mongo_erase_names(struct store *s, const struct erasure *e)
{
    struct session *session = session_of(s);
    struct emptyings own = {.alias = e->alias};
    enum store_status status = STORE_FAILED;
    const char *user;

    if (!session_finds_names(session))
        return STORE_FAILED;
    for (int i = 0; i < ROUNDS_MAX; i++) {
        status = find_noted(session, e, &own);
        if (status != STORE_OK || own.count == 0) {
            emptyings_free(&own);
            return status == STORE_OK && own.unreadable ? STORE_UNREADABLE : status;
        }
        user = name_of(own.items[0].batch, e->alias);
        status = user ? empty_others(session, e, user) : STORE_OK;
        if (status == STORE_OK)
            status = empty_all(session, &own, true);
        emptyings_free(&own);
        if (status != STORE_OK)
            return status;
    }
    return STORE_FAILED; /* others changed it each time: the note is still there */
}

/* ---- unfinished erasures ---- */

struct erasure_list {
    struct arena *arena;
    struct erasure *items;
    size_t count, capacity;
};

static bool erasure_row(const bson_t *doc, void *context)
{
    struct erasure_list *list = context;
    struct erasure e;
    bson_t erasing;
    bson_iter_t it;

    if (!codec_id_int(doc, "l", &e.coupon, &e.lane) || !codec_id_int(doc, "seq", &e.coupon, &e.seq) ||
        !find_array(doc, "erasing", &erasing) || !bson_iter_init(&it, &erasing)) {
        log_unreadable("ledger", doc);
        return true;
    }
    e.coupon = arena_strdup(list->arena, e.coupon);
    while (bson_iter_next(&it)) {
        if (!get_text(&it, &e.alias)) {
            log_unreadable("ledger", doc);
            return true;
        }
        e.alias = arena_strdup(list->arena, e.alias);
        list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
        list->items[list->count++] = e;
    }
    return true;
}

enum store_status mongo_erasures(struct store *s, const char *user, size_t most, struct arena *a, struct erasure **erasures, size_t *count)
{
    struct erasure_list list = {.arena = a};
    struct session *session = session_of(s);
    AUTO_BCON filter = BCON_NEW("erasing", "{", "$exists", BCON_BOOL(true), "}");
    AUTO_BCON options = BCON_NEW("projection", "{", "erasing", BCON_INT32(1), "}", "hint", "erasing");
    enum store_status status;

    *count = 0;
    if (!session_finds_names(session))
        return STORE_FAILED;
    if (user)
        BSON_APPEND_INT64(filter, "terms", term_of_user(&session->term_key, user));
    status = session_find(session, "ledger", filter, options, most, erasure_row, &list);
    *erasures = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}
