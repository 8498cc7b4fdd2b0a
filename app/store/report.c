/*
 * store/report.c -- what a report covers: its coupons, how far their lanes are in the totals, and its time zone.
 *
 * Zones  are known by the server, and only their offsets are read: one a day, then each quarter hour of the days on which the offset
 *        changed. Since 1970 offsets change on quarter hours, and not twice a day
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define QUARTERS_PER_DAY (DAY_MS / QUARTER_MS)
#define BATCHES "batchSize", BCON_INT32(10000)
#define LANES_AT_ONCE 1000 /* whose batches one find looks up */

/* ---- coupons ---- */

static bool get_coupon(const bson_t *doc, void *item, struct arena *a)
{
    struct report_coupon *c = item;
    const char *state = NULL;
    bson_t view, def;

    if (!find_text(doc, "_id", &c->id) || !find_time(doc, "created", &c->created_ms) || !find_document(doc, "view", &view) ||
        !find_int(&view, "seq", &c->seq))
        return false;
    c->id = arena_strdup(a, c->id);
    c->deleted = !find_document(&view, "def", &def) || !find_text(&def, "state", &state) || strcmp(state, "deleted") == 0;
    c->ended = !c->deleted && strcmp(state, "ended") == 0;
    if (c->deleted || !find_int(&def, "lanes", &c->lanes))
        c->lanes = 1;
    return true;
}

enum store_status mongo_report_coupons(struct store *s, const char *const *ids, size_t count, const char *prefix, struct arena *a,
                                       struct report_coupon **coupons, size_t *coupon_count)
{
    const struct doc_list list = {"coupons", get_coupon, sizeof **coupons, count == 0}; /* each that is named must be there */
    AUTO_BCON options = BCON_NEW("projection", "{", "created", BCON_INT32(1), "view.seq", BCON_INT32(1), "view.def.state", BCON_INT32(1),
                                 "view.def.lanes", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(1), "}", BATCHES);
    AUTO_BSON filter = BSON_INITIALIZER;

    in_texts(&filter, "_id", ids, count);
    if (!count && prefix)
        session_add_prefix(&filter, "_id", prefix);
    return session_list(session_of(s), &list, &filter, options, 0, a, coupons, coupon_count);
}

/* ---- lanes: their positions in the totals, then the batches of positions without a time, and of lanes that may be closed ---- */

struct lane_list {
    struct report_lane *items;
    size_t count;
    const struct report_coupon *coupons; /* ascending by id */
    size_t coupon_count;
};

static bool get_lane(const bson_t *doc, void *item, struct arena *a)
{
    struct report_lane *lane = item;

    if (!codec_id_int(doc, "l", &lane->coupon, &lane->lane) || !find_int(doc, "seq", &lane->seq))
        return false;
    find_time(doc, "at", &lane->at_ms);
    lane->coupon = arena_strdup(a, lane->coupon);
    return true;
}

/* Both sorts give the same order. */
static enum store_status read_totals_positions(struct session *session, const char *const *ids, size_t count, struct arena *a,
                                    struct lane_list *list)
{
    static const struct doc_list positions = {"totals_positions", get_lane, sizeof *list->items, false};
    AUTO_BCON options = BCON_NEW("projection", "{", "seq", BCON_INT32(1), "at", BCON_INT32(1), "}", "hint",
                                 count ? "_id_" : REPORT_POSITIONS, BATCHES);
    AUTO_BSON filter = BSON_INITIALIZER;
    bson_t any, one;
    char buffer[16];

    if (session->mongo->sharded)
        in_texts(&filter, "_id.c", ids, count);
    if (count) {
        BSON_APPEND_ARRAY_BEGIN(&filter, "$or", &any);
        for (size_t i = 0; i < count; i++) {
            bson_append_document_begin(&any, array_key(i, buffer), -1, &one);
            session_add_range(&one, ids[i], "l", NULL, NULL);
            bson_append_document_end(&any, &one);
        }
        bson_append_array_end(&filter, &any);
    }
    if (count)
        BCON_APPEND(options, "sort", "{", "_id", BCON_INT32(1), "}");
    else
        BCON_APPEND(options, "sort", "{", "_id.c", BCON_INT32(1), "_id.l", BCON_INT32(1), "}");
    return session_list(session, &positions, &filter, options, 0, a, &list->items, &list->count);
}

static int by_coupon_and_lane(const void *key, const void *item)
{
    const struct report_lane *a = key, *b = item;
    int order = strcmp(a->coupon, b->coupon);

    return order ? order : (a->lane > b->lane) - (a->lane < b->lane);
}

/* A batch that a position points to. */
static bool stand_row(const bson_t *doc, void *context)
{
    struct lane_list *list = context;
    struct report_lane key = {.at_ms = 0}, *lane;
    int64_t at_ms, archived = 0;
    bson_t totals;

    if (!codec_id_int(doc, "l", &key.coupon, &key.lane) || !find_time(doc, "at", &at_ms))
        return false;
    if (find_document(doc, "totals", &totals))
        find_int(&totals, "archived", &archived);
    lane = bsearch(&key, list->items, list->count, sizeof key, by_coupon_and_lane);
    if (lane) {
        lane->at_ms = at_ms;
        lane->closed = archived > 0;
    }
    return true;
}

static int by_coupon_id(const void *key, const void *coupon)
{
    return strcmp(key, ((const struct report_coupon *)coupon)->id);
}

/* Only what has ended is ever archived. */
static bool may_be_closed(const struct lane_list *list, const char *coupon)
{
    const struct report_coupon *c = list->coupon_count
                                        ? bsearch(coupon, list->coupons, list->coupon_count, sizeof *c, by_coupon_id) : NULL;

    return c && c->ended;
}

/* Read the batches of lanes whose positions do not say all, from *next on: those without a time, which were repaired, and those that may be
 * closed. At most LANES_AT_ONCE. */
static enum store_status read_stands(struct session *session, struct lane_list *list, size_t *next)
{
    AUTO_BCON options = BCON_NEW("projection", "{", "at", BCON_INT32(1), "totals.archived", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    in_begin(&in, &filter, "_id");
    for (; *next < list->count && in.count < LANES_AT_ONCE; ++*next) {
        const struct report_lane *lane = &list->items[*next];

        if (!lane->at_ms || may_be_closed(list, lane->coupon))
            codec_ledger_id(&in.values, in_next(&in), lane->coupon, lane->lane, lane->seq);
    }
    in_end(&in, &filter);
    return in.count ? session_find(session, "ledger", &filter, options, in.count, stand_row, list) : STORE_OK;
}

enum store_status mongo_report_lanes(struct store *s, const char *const *ids, size_t count, const struct report_coupon *coupons,
                                     size_t coupon_count, struct arena *a, struct report_lane **lanes, size_t *lane_count)
{
    struct lane_list list = {.coupons = coupons, .coupon_count = coupon_count};
    struct session *session = session_of(s);
    enum store_status status = read_totals_positions(session, ids, count, a, &list);

    for (size_t next = 0; status == STORE_OK && next < list.count;)
        status = read_stands(session, &list, &next);
    *lanes = list.items;
    *lane_count = status == STORE_OK ? list.count : 0;
    return status;
}

/* ---- the oldest totals ---- */

static bool oldest_row(const bson_t *doc, void *context)
{
    int64_t *at_ms = context;
    bson_t id;

    return find_document(doc, "_id", &id) && find_time(&id, "at", at_ms);
}

enum store_status mongo_report_oldest(struct store *s, const char *const *ids, size_t count, int64_t *at_ms)
{
    AUTO_BCON options = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id.at", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    in_texts(&filter, "_id.c", ids, count);
    return session_find(session_of(s), "totals", &filter, options, 1, oldest_row, at_ms);
}

/* ---- zones ---- */

struct offset_list {
    struct zone_offset *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool offset_row(const bson_t *doc, void *context)
{
    struct offset_list *list = context;
    struct zone_offset o;
    const char *minutes;

    if (!find_time(doc, "at", &o.from_ms) || !find_text(doc, "minutes", &minutes))
        return false;
    o.minutes = (int)strtol(minutes, NULL, 10);
    if (list->count && list->items[list->count - 1].minutes == o.minutes)
        return true;
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof o);
    list->items[list->count++] = o;
    return true;
}

/* The offsets at each of firsts[], and at the steps - 1 moments after it, step_ms apart. */
static enum store_status read_offsets(struct session *session, const char *time_zone, const int64_t *firsts, size_t count,
                                      int64_t step_ms, int64_t steps, struct offset_list *list)
{
    AUTO_BSON times = BSON_INITIALIZER;
    char buffer[16];

    for (size_t i = 0; i < count; i++)
        bson_append_date_time(&times, array_key(i, buffer), -1, firsts[i]);
    AUTO_BCON command = BCON_NEW(
        "aggregate", BCON_INT32(1),
        "pipeline", "[",
            "{", "$documents", "[", "{", "first", BCON_ARRAY(&times), "i", "{", "$range", "[", BCON_INT32(0),
                BCON_INT32((int32_t)steps), "]", "}", "}", "]", "}",
            "{", "$unwind", "$first", "}",
            "{", "$unwind", "$i", "}",
            "{", "$project", "{", "at", "{", "$add", "[", "$first", "{", "$multiply", "[", "$i", BCON_INT64(step_ms), "]", "}",
                "]", "}", "}", "}",
            "{", "$set", "{", "minutes", "{", "$dateToString", "{",
                "date", "$at", "format", "%Z", "timezone", "{", "$literal", BCON_UTF8(time_zone), "}",
            "}", "}", "}", "}",
        "]",
        "cursor", "{", BATCHES, "}",
        "maxTimeMS", BCON_INT64(session->mongo->server_limit_ms));

    return session_read(session, command, offset_row, list);
}

enum store_status mongo_zone(struct store *s, const char *time_zone, int64_t from_ms, int64_t to_ms, struct arena *a,
                             struct zone *zone)
{
    int64_t begin_ms = from_ms - from_ms % DAY_MS - 2 * period_most_ms(PERIOD_MONTH);
    int64_t days = (to_ms + 2 * period_most_ms(PERIOD_MONTH) - begin_ms) / DAY_MS + 1;
    struct offset_list rough = {.arena = a}, fine = {.arena = a};
    struct session *session = session_of(s);
    enum store_status status = read_offsets(session, time_zone, &begin_ms, 1, DAY_MS, days, &rough);

    assert(status != STORE_OK || rough.count > 0);
    if (status == STORE_OK && rough.count > 1) {
        int64_t *changes = arena_array(a, rough.count, sizeof *changes);

        for (size_t i = 1; i < rough.count; i++)
            changes[i - 1] = rough.items[i].from_ms - DAY_MS;
        status = read_offsets(session, time_zone, changes, rough.count - 1, QUARTER_MS, QUARTERS_PER_DAY + 1, &fine);
    }
    zone->offsets = rough.count > 1 ? fine.items : rough.items;
    zone->count = rough.count > 1 ? fine.count : rough.count;
    return status;
}
