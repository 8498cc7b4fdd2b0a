/*
 * store/erasure.c -- erasing a user's name from the ledger, and what of that is not finished yet.
 *
 * Unfinished  stands in the user's document, beside the view: {_id: {c, h}, view, erasing: [{a: alias, seq}]}. Nothing else
 *             leads to the alias of somebody who took again before their erasure was finished
 */
#include "base/checked.h"
#include "store/codec.h"
#include "store/door.h"
#include "store/members.h"

/* ---- the ledger ---- */

/* Empty the names of the rows with this alias in the batches of filter. The fingerprint goes too: whoever guesses the request
 * could check the guess by it. */
static enum store_status erase_names(struct door *d, const bson_t *filter, const char *alias, bool many)
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

    return door_write(d, command, NULL);
}

enum store_status mongo_erase_names(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    codec_ledger_id(&filter, "_id", coupon, lane, seq);
    BSON_APPEND_UTF8(&filter, "who.a", alias);
    return erase_names(door_of(s), &filter, alias, false);
}

enum store_status mongo_erase_names_after(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    ledger_range(&filter, coupon, lane, seq, INT64_MAX);
    door_add_coupon(door_of(s), &filter, coupon);
    BSON_APPEND_UTF8(&filter, "who.a", alias);
    return erase_names(door_of(s), &filter, alias, true);
}

/* ---- what is not finished ---- */

enum store_status mongo_erasure_begin(struct store *s, const char *user, const struct erasure *e, bool *noted)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct name_hash hash;
    enum store_status status;
    int64_t matched = 0;

    *noted = false;
    if (!door_finds_names(door_of(s)))
        return STORE_FAILED;
    hash = door_name_hash(door_of(s), user);
    codec_use_id(&filter, "_id", e->coupon, &hash);
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", "users",
        "updates", "[", "{",
            "q", BCON_DOCUMENT(&filter),
            "u", "{", "$addToSet", "{", "erasing", "{", "a", BCON_UTF8(e->alias), "seq", BCON_INT64(e->seq), "}", "}", "}",
        "}", "]");
    /* clang-format on */

    status = door_write(door_of(s), command, &matched);
    *noted = matched > 0;
    return status;
}

enum store_status mongo_erasure_end(struct store *s, const char *user, const struct erasure *e)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct name_hash hash;

    if (!door_finds_names(door_of(s)))
        return STORE_FAILED;
    hash = door_name_hash(door_of(s), user);
    codec_use_id(&filter, "_id", e->coupon, &hash);
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

    return door_write(door_of(s), command, NULL);
}

struct erasure_list {
    struct erasure *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool erasure_row(const bson_t *doc, void *context)
{
    struct erasure_list *list = context;
    const char *coupon, *alias;
    bson_t id, erasing, one;
    bson_iter_t it;
    int64_t seq;

    if (!bson_has_field(doc, "erasing"))
        return true;
    if (!find_document(doc, "_id", &id) || !find_text(&id, "c", &coupon) || !find_array(doc, "erasing", &erasing) ||
        !bson_iter_init(&it, &erasing))
        return false;
    while (bson_iter_next(&it)) {
        const uint8_t *data;
        uint32_t len;

        if (!BSON_ITER_HOLDS_DOCUMENT(&it))
            return false;
        bson_iter_document(&it, &len, &data);
        if (!bson_init_static(&one, data, len) || !find_text(&one, "a", &alias) || !find_exact(&one, "seq", &seq))
            return false;
        list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
        list->items[list->count++] =
            (struct erasure){arena_strdup(list->arena, coupon), arena_strdup(list->arena, alias), seq};
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
    if (!door_finds_names(door_of(s)))
        return STORE_FAILED;
    hash = door_name_hash(door_of(s), user);
    codec_user_filter(&filter, &hash);
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "find", "users",
        "filter", BCON_DOCUMENT(&filter),
        "projection", "{", "erasing", BCON_INT32(1), "}");
    /* clang-format on */

    door_read_options(door_of(s), command, (struct store_time){0}, 0);
    status = door_read(door_of(s), command, erasure_row, &list);
    *erasures = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* ---- all users' at once ---- */

static bool any_row(const bson_t *doc, void *context)
{
    (void)doc;
    *(bool *)context = true;
    return true;
}

/* Whether the lane's ledger has the erasure of this alias. */
static enum store_status is_erased(struct door *d, const struct erasure *e, int64_t lane, bool *erased)
{
    AUTO_BSON filter = BSON_INITIALIZER, command = BSON_INITIALIZER;
    bson_t entries, entry, projection;

    *erased = false;
    ledger_range(&filter, e->coupon, lane, 0, INT64_MAX);
    door_add_coupon(d, &filter, e->coupon);
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
    door_read_options(d, &command, (struct store_time){0}, 1);
    return door_read(d, &command, any_row, erased);
}

static enum store_status finish(struct store *s, const struct erasure *e)
{
    int64_t lanes = 1;
    enum store_status status = mongo_coupon_lanes(s, e->coupon, &lanes);

    for (int64_t lane = 0; lane < lanes && status == STORE_OK; lane++) {
        bool erased;

        status = is_erased(door_of(s), e, lane, &erased);
        if (status == STORE_OK && erased)
            status = mongo_erase_names_after(s, e->coupon, lane, 0, e->alias);
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
    door_read_options(door_of(s), command, (struct store_time){0}, 0);
    status = door_read(door_of(s), command, erasure_row, &list);
    for (size_t i = 0; i < list.count && status == STORE_OK; i++)
        status = finish(s, &list.items[i]);
    arena_free(&a);
    return status;
}
