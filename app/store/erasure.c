/*
 * store/erasure.c -- erasing a user's name from the ledger, and the erasures that are not finished.
 *
 * Unfinished  noted in the user's document, beside the view: {_id: {c, h}, view, erasing: [{a: alias, seq}]}. Nothing else
 *             leads to the alias of a user who took again before their erasure was finished
 * Finished    by the caller who asked, by the user's next erasure, or by the sweeper
 */
#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

/* ---- the ledger ---- */

/* Erase the names from rows with this alias, in the batches that match filter. The fingerprint goes too: it would confirm a guess of the
 * request. */
static enum store_status erase_names(struct session *session, const bson_t *filter, const char *alias, bool many)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", "ledger",
        "updates", "[", "{",
            "q", BCON_DOCUMENT(filter),
            "u", "{", "$unset", "{", "who.$[x].u", BCON_INT32(1), "who.$[x].o", BCON_INT32(1), "who.$[x].m", BCON_INT32(1),
                "who.$[x].c", BCON_INT32(1), "who.$[x].f", BCON_INT32(1), "}", "}",
            "arrayFilters", "[", "{", "x.a", BCON_UTF8(alias), "}", "]",
            "multi", BCON_BOOL(many),
        "}", "]");
    /* clang-format on */

    return session_write(session, command, NULL);
}

/* In all batches after seq, which the server must scan. */
static enum store_status erase_names_after(struct session *session, const char *coupon, int64_t lane, int64_t seq, const char *alias)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    ledger_range(&filter, coupon, lane, seq, INT64_MAX);
    session_add_coupon(session, &filter, coupon);
    BSON_APPEND_UTF8(&filter, "who.a", alias);
    return erase_names(session, &filter, alias, true);
}

struct emptying {
    struct session *session;
    const char *alias;
};

static enum store_status erase_names_of(void *emptying, const struct batch *b)
{
    const struct emptying *of = emptying;
    AUTO_BSON filter = BSON_INITIALIZER;

    codec_ledger_id(&filter, "_id", b->coupon, b->lane, b->head.seq);
    BSON_APPEND_UTF8(&filter, "who.a", of->alias);
    return erase_names(of->session, &filter, of->alias, false);
}

enum store_status mongo_erasure_empty(struct store *s, int64_t lane, const struct erasure *e)
{
    struct emptying of = {session_of(s), e->alias};
    enum store_status status = mongo_chain(s, e->coupon, lane, e->seq, e->alias, erase_names_of, &of);

    return status == STORE_OK ? erase_names_after(of.session, e->coupon, lane, e->seq, e->alias) : status;
}

/* ---- unfinished erasures ---- */

enum store_status mongo_erasure_begin(struct store *s, const char *user, struct erasure *e, bool *noted)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    int64_t matched = 0;

    *noted = false;
    if (!session_finds_names(session_of(s)))
        return STORE_FAILED;
    e->user = session_name_hash(session_of(s), user);
    codec_user_state_id(&filter, "_id", e->coupon, &e->user);
    BCON_APPEND(&filter, "left", "{", "$exists", BCON_BOOL(false), "}"); /* nothing to erase in what has left */
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", "users",
        "updates", "[", "{",
            "q", BCON_DOCUMENT(&filter),
            "u", "{", "$addToSet", "{", "erasing", "{", "a", BCON_UTF8(e->alias), "seq", BCON_INT64(e->seq), "}", "}", "}",
        "}", "]");
    /* clang-format on */

    status = session_write(session_of(s), command, &matched);
    *noted = matched > 0;
    return status;
}

enum store_status mongo_erasure_end(struct store *s, const struct erasure *e)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    codec_user_state_id(&filter, "_id", e->coupon, &e->user);
    BSON_APPEND_UTF8(&filter, "erasing.a", e->alias);
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", "users",
        "updates", "[", "{",
            "q", BCON_DOCUMENT(&filter),
            "u", "[", "{", "$set", "{", "erasing", "{", "$let", "{",
                "vars", "{", "left", "{", "$filter", "{",
                    "input", "$erasing", "cond", "{", "$ne", "[", "$$this.a", BCON_UTF8(e->alias), "]", "}", "}", "}", "}",
                "in", "{", "$cond", "[", "{", "$eq", "[", "$$left", "[", "]", "]", "}", "$$REMOVE", "$$left", "]", "}",
            "}", "}", "}", "}", "]",
        "}", "]");
    /* clang-format on */

    return session_write(session_of(s), command, NULL);
}

struct erasure_list {
    struct erasure *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool erasure_row(const bson_t *doc, void *context)
{
    struct erasure_list *list = context;
    struct erasure e;
    bson_t erasing, one;
    bson_iter_t it;

    if (!bson_has_field(doc, "erasing"))
        return true;
    if (!codec_user_state_id_get(doc, &e.coupon, &e.user) || !find_array(doc, "erasing", &erasing) || !bson_iter_init(&it, &erasing))
        return false;
    e.coupon = arena_strdup(list->arena, e.coupon);
    while (bson_iter_next(&it)) {
        const uint8_t *data;
        uint32_t len;

        if (!BSON_ITER_HOLDS_DOCUMENT(&it))
            return false;
        bson_iter_document(&it, &len, &data);
        if (!bson_init_static(&one, data, len) || !find_text(&one, "a", &e.alias) || !find_exact(&one, "seq", &e.seq))
            return false;
        e.alias = arena_strdup(list->arena, e.alias);
        list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
        list->items[list->count++] = e;
    }
    return true;
}

enum store_status mongo_erasures(struct store *s, const char *user, struct arena *a, struct erasure **erasures, size_t *count)
{
    struct erasure_list list = {.arena = a};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    struct name_hash hash;

    *count = 0;
    if (!session_finds_names(session_of(s)))
        return STORE_FAILED;
    hash = session_name_hash(session_of(s), user);
    codec_user_filter(&filter, &hash);
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "find", "users",
        "filter", BCON_DOCUMENT(&filter),
        "projection", "{", "erasing", BCON_INT32(1), "}");
    /* clang-format on */

    session_read_options(session_of(s), command, (struct store_time){0}, 0);
    status = session_read(session_of(s), command, erasure_row, &list);
    *erasures = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* ---- of all users ---- */

/* Keep those whose alias has been erased, by the view: it says so, or it is later than the note and has another alias. */
static bool left_row(const bson_t *doc, void *context)
{
    struct erasure_list *list = context;
    size_t count = list->count;
    const char *alias;
    bson_t view;
    int64_t seq;

    if (codec_has_left(doc))
        return true;
    if (!erasure_row(doc, list) || !find_document(doc, "view", &view) || !find_exact(&view, "seq", &seq) ||
        !find_text(&view, "alias", &alias))
        return false;
    for (size_t i = list->count; i-- > count;) {
        struct erasure *e = &list->items[i];
        bool same = strcmp(e->alias, alias) == 0;

        if (same ? !bson_has_field(&view, "erased") : seq <= e->seq)
            *e = list->items[--list->count];
        else if (same)
            e->seq = seq; /* the erasure's: the alias does not occur after it */
    }
    return true;
}

enum store_status mongo_erasures_left(struct store *s, struct arena *a, struct erasure **erasures, size_t *count)
{
    struct erasure_list list = {.arena = a};
    enum store_status status;
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "find", "users",
        "filter", "{", "erasing", "{", "$exists", BCON_BOOL(true), "}", "}",
        "projection", "{", "erasing", BCON_INT32(1), "left", BCON_INT32(1), "view.seq", BCON_INT32(1), "view.alias", BCON_INT32(1),
            "view.erased", BCON_INT32(1), "}",
        "hint", "erasing");
    /* clang-format on */

    session_read_options(session_of(s), command, (struct store_time){0}, 0);
    status = session_read(session_of(s), command, left_row, &list);
    *erasures = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

static bool any_row(const bson_t *doc, void *context)
{
    (void)doc;
    *(bool *)context = true;
    return true;
}

/* *erased: the lane's ledger has the erasure of this alias. */
static enum store_status is_erased(struct session *session, const struct erasure *e, int64_t lane, bool *erased)
{
    AUTO_BSON filter = BSON_INITIALIZER, command = BSON_INITIALIZER;
    bson_t entries, entry, projection;

    *erased = false;
    ledger_range(&filter, e->coupon, lane, 0, INT64_MAX);
    session_add_coupon(session, &filter, e->coupon);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "e", &entries);
    BSON_APPEND_DOCUMENT_BEGIN(&entries, "$elemMatch", &entry);
    BSON_APPEND_UTF8(&entry, "k", entry_kind_name(ENTRY_ERASE));
    BSON_APPEND_UTF8(&entry, "a", e->alias);
    bson_append_document_end(&entries, &entry);
    bson_append_document_end(&filter, &entries);
    BSON_APPEND_UTF8(&command, "find", "ledger");
    BSON_APPEND_DOCUMENT(&command, "filter", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "projection", &projection);
    BSON_APPEND_INT32(&projection, "_id", 1);
    bson_append_document_end(&command, &projection);
    BSON_APPEND_INT64(&command, "limit", 1);
    session_read_options(session, &command, (struct store_time){0}, 1);
    return session_read(session, &command, any_row, erased);
}

static enum store_status finish(struct store *s, const struct erasure *e)
{
    int64_t lanes = 1;
    enum store_status status = mongo_coupon_lanes(s, e->coupon, &lanes);

    for (int64_t lane = 0; lane < lanes && status == STORE_OK; lane++) {
        bool erased;

        status = is_erased(session_of(s), e, lane, &erased);
        if (status == STORE_OK && erased)
            status = erase_names_after(session_of(s), e->coupon, lane, 0, e->alias);
    }
    return status;
}

enum store_status mongo_erasures_finish(struct store *s)
{
    struct erasure_list list = {0};
    enum store_status status;
    struct arena a;
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "find", "users",
        "filter", "{", "erasing", "{", "$exists", BCON_BOOL(true), "}", "}",
        "projection", "{", "erasing", BCON_INT32(1), "}");
    /* clang-format on */

    arena_init(&a, 0);
    list.arena = &a;
    session_read_options(session_of(s), command, (struct store_time){0}, 0);
    status = session_read(session_of(s), command, erasure_row, &list);
    for (size_t i = 0; i < list.count && status == STORE_OK; i++)
        status = finish(s, &list.items[i]);
    arena_free(&a);
    return status;
}
