/*
 * store/arrivals.c -- batches of all lanes in the order in which the server took them in, and the watermark below which everything that
 * follows from them is written: {_id: "reporter", arrived}.
 *
 * Why      marks say exactly what of a lane is written, but to ask which lanes have more than that is to look at all of them. What came
 *          since the watermark is little, however many lanes there are
 * Time     `arrived` is the cluster time that the server gives a batch when it takes it in, whenever that batch was decided. So the one
 *          that a worker decided long ago and sends now, or sends again, does not come below the watermark
 */
#include "store/codec.h"
#include "store/door.h"
#include "store/members.h"

#define WATERMARKS "watermarks"
#define WATERMARK "reporter"
#define PAGE 200

/* ---- a page of batches ---- */

struct arrival_list {
    struct arrival *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool arrival_row(const bson_t *doc, void *context)
{
    struct arrival_list *list = context;
    struct arrival a = {.lanes = 1};
    bson_t id;

    a.arrived = codec_arrived_get(doc);
    if (!a.arrived || !find_document(doc, "_id", &id) || !find_text(&id, "c", &a.coupon) || !find_exact(&id, "l", &a.lane) ||
        !find_exact(&id, "seq", &a.seq))
        return false;
    find_exact(doc, "k", &a.lanes);
    a.coupon = arena_strdup(list->arena, a.coupon);
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof a);
    list->items[list->count++] = a;
    return true;
}

enum store_status mongo_arrivals(struct store *s, struct arrivals_at *at, struct arena *a, struct arrival **arrivals, size_t *count)
{
    struct arrival_list list = {.arena = a};
    size_t most = at->most ? at->most : PAGE;
    enum store_status status;
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "aggregate", "ledger",
        "pipeline", "[",
            "{", "$match", "{", "arrived", "{", "$gte",
                BCON_TIMESTAMP((uint32_t)(at->from >> 32), (uint32_t)at->from), "}", "}", "}",
            "{", "$sort", "{", "arrived", BCON_INT32(1), "}", "}",
            "{", "$limit", BCON_INT64((int64_t)most), "}",
            "{", "$project", "{", "arrived", BCON_INT32(1), "_id.c", BCON_INT32(1), "_id.l", BCON_INT32(1),
                "_id.seq", BCON_INT32(1), "k", BCON_INT32(1), "}", "}",
        "]",
        "cursor", "{", "batchSize", BCON_INT64((int64_t)most), "}");
    /* clang-format on */

    door_read_options(door_of(s), command, (struct store_time){0}, 0);
    status = door_read(door_of(s), command, arrival_row, &list);
    *arrivals = list.items;
    *count = status == STORE_OK ? list.count : 0;
    if (status != STORE_OK)
        return status;
    at->more = list.count == most;
    if (at->more && list.items[most - 1].arrived == at->from) /* shards may give the same time: the page is to reach beyond it */
        at->most = 2 * most;
    else if (at->more)
        at->from = list.items[most - 1].arrived;
    return STORE_OK;
}

/* ---- who is in the ledger, and perhaps in no view yet ---- */

struct coupon_list {
    const char **ids; /* room for `most` */
    size_t count, most;
    struct arena *arena;
};

static bool coupon_row(const bson_t *doc, void *context)
{
    struct coupon_list *list = context;
    const char *id;

    if (!find_text(doc, "_id", &id))
        return false;
    if (list->count < list->most)
        list->ids[list->count++] = arena_strdup(list->arena, id);
    return true;
}

#define MARK_ID "{", "c", "$$c", "l", "$$l", "kind", "views", "}"
#define LEDGER_ID(seq) "{", "c", "$$c", "l", "$$l", "seq", seq, "}"

/* Of the lanes of what came since, the batches behind the marks of their views. */
static enum store_status find_behind(struct door *d, uint64_t since, const char *user, struct coupon_list *list)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "aggregate", "ledger",
        "pipeline", "[",
            "{", "$match", "{", "arrived", "{", "$gte", BCON_TIMESTAMP((uint32_t)(since >> 32), (uint32_t)since), "}", "}", "}",
            "{", "$group", "{", "_id", "{", "c", "$_id.c", "l", "$_id.l", "}", "seq", "{", "$max", "$_id.seq", "}", "}", "}",
            "{", "$lookup", "{", "from", "marks", "as", "mark",
                "let", "{", "c", "$_id.c", "l", "$_id.l", "}",
                "pipeline", "[",
                    "{", "$match", "{", "$expr", "{", "$and", "[",
                        "{", "$eq", "[", "$_id.c", "$$c", "]", "}",
                        "{", "$eq", "[", "$_id", MARK_ID, "]", "}", "]", "}", "}", "}",
                "]", "}", "}",
            "{", "$set", "{", "mark", "{", "$ifNull", "[", "{", "$first", "$mark.seq", "}", BCON_INT64(0), "]", "}", "}", "}",
            "{", "$match", "{", "$expr", "{", "$lt", "[", "$mark", "$seq", "]", "}", "}", "}",
            "{", "$lookup", "{", "from", "ledger", "as", "behind",
                "let", "{", "c", "$_id.c", "l", "$_id.l", "mark", "$mark", "}",
                "pipeline", "[",
                    "{", "$match", "{", "$expr", "{", "$and", "[",
                        "{", "$eq", "[", "$_id.c", "$$c", "]", "}",
                        "{", "$gt", "[", "$_id", LEDGER_ID("$$mark"), "]", "}",
                        "{", "$lt", "[", "$_id", LEDGER_ID(BCON_MAXKEY), "]", "}", "]", "}", "}", "}",
                    "{", "$match", "{", "who.u", BCON_UTF8(user), "}", "}",
                    "{", "$limit", BCON_INT32(1), "}",
                    "{", "$project", "{", "_id", BCON_INT32(1), "}", "}",
                "]", "}", "}",
            "{", "$match", "{", "behind", "{", "$ne", "[", "]", "}", "}", "}",
            "{", "$group", "{", "_id", "$_id.c", "}", "}",
            "{", "$limit", BCON_INT64((int64_t)list->most), "}",
        "]",
        "cursor", "{", "}");
    /* clang-format on */

    door_read_options(d, command, (struct store_time){0}, 0);
    return door_read(d, command, coupon_row, list);
}

enum store_status mongo_user_unseen(struct store *s, const char *user, size_t most, struct arena *a, const char ***ids, size_t *count)
{
    struct coupon_list list = {arena_array(a, most + 1, sizeof(const char *)), 0, most, a};
    uint64_t since;
    enum store_status status = mongo_watermark(s, &since, NULL);

    if (status == STORE_OK && most > 0)
        status = find_behind(door_of(s), since, user, &list);
    *ids = list.ids;
    *count = status == STORE_OK ? list.count : 0;
    return status == STORE_OK ? STORE_OK : STORE_FAILED;
}

/* ---- the watermark ---- */

static bool watermark_row(const bson_t *doc, void *context)
{
    *(uint64_t *)context = codec_arrived_get(doc); /* one that cannot be read is none: it will be written again */
    return true;
}

enum store_status mongo_watermark(struct store *s, uint64_t *arrived, uint64_t *now)
{
    AUTO_BCON command = BCON_NEW("find", WATERMARKS, "filter", "{", "_id", WATERMARK, "}");
    enum store_status status;

    *arrived = 0;
    door_read_options(door_of(s), command, (struct store_time){0}, 1);
    status = door_read(door_of(s), command, watermark_row, arrived);
    if (now) {
        struct store_time when = door_time(door_of(s));

        *now = (uint64_t)when.seconds << 32 | when.increment;
    }
    return status == STORE_OK && !*arrived ? STORE_NOT_FOUND : status;
}

static enum store_status set_watermark(struct store *s, const char *operator, uint64_t arrived)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", WATERMARKS,
        "updates", "[", "{",
            "q", "{", "_id", WATERMARK, "}",
            "u", "{", operator, "{", "arrived", BCON_TIMESTAMP((uint32_t)(arrived >> 32), (uint32_t)arrived), "}", "}",
            "upsert", BCON_BOOL(true),
        "}", "]");
    /* clang-format on */

    return door_write(door_of(s), command, NULL);
}

enum store_status mongo_watermark_write(struct store *s, uint64_t arrived)
{
    return set_watermark(s, "$set", arrived);
}

static bool any_row(const bson_t *doc, void *context)
{
    (void)doc;
    *(bool *)context = true;
    return true;
}

/* Two who do this at once: the slower one's is a duplicate key, or changes nothing. */
enum store_status mongo_watermark_begin(struct store *s)
{
    AUTO_BCON command = BCON_NEW("find", "ledger", "projection", "{", "_id", BCON_INT32(1), "}", "limit", BCON_INT32(1));
    bool any = false;
    uint64_t arrived;
    enum store_status status = mongo_watermark(s, &arrived, NULL);

    if (status != STORE_NOT_FOUND)
        return status;
    door_read_options(door_of(s), command, (struct store_time){0}, 1);
    status = door_read(door_of(s), command, any_row, &any);
    if (status != STORE_OK || any)
        return status;
    for (int attempt = 1; attempt <= 2; attempt++) {
        status = set_watermark(s, "$setOnInsert", 1);
        if (status == STORE_OK)
            break;
    }
    return status;
}
