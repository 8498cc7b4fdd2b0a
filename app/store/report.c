/*
 * store/report.c -- the reporter's totals added up by the periods of a time zone.
 *
 * Periods  are the server's work: $dateTrunc with the zone, weeks from Monday; a quarter hour lies in one period of any
 *          zone. A period counts whole, also where the range asked for cuts it
 */
#include <stdlib.h>
#include <string.h>

#include "store/codec.h"
#include "store/door.h"

#define BATCH_ROWS 10000

/* Rows in ascending order of start. */
struct report_list {
    struct report_row *items;
    size_t count, capacity;
    int64_t to_ms;  /* rows begin before it */
    int64_t end_ms; /* out: where the last row ends */
    struct arena *arena;
};

static struct report_row *add_row(struct report_list *list, int64_t start_ms)
{
    struct report_row *row;

    if (list->count == list->capacity) {
        struct report_row *grown;

        list->capacity = list->capacity ? list->capacity * 2 : 64;
        grown = arena_array(list->arena, list->capacity, sizeof *grown);
        if (list->count)
            memcpy(grown, list->items, list->count * sizeof *grown);
        list->items = grown;
    }
    row = &list->items[list->count++];
    *row = (struct report_row){start_ms, 0, arena_alloc(list->arena, sizeof *row->counts)};
    return row;
}

static bool period_row(const bson_t *doc, void *context)
{
    struct report_list *list = context;
    const char *offset;
    int64_t start_ms;

    if (!find_time(doc, "start", &start_ms) || !find_text(doc, "offset", &offset))
        return false;
    if (list->count && start_ms <= list->items[list->count - 1].start_ms)
        return true; /* an hour that the zone has twice */
    if (start_ms >= list->to_ms)
        list->end_ms = list->end_ms ? list->end_ms : start_ms;
    else
        add_row(list, start_ms)->offset_minutes = (int)strtol(offset, NULL, 10);
    return true;
}

static bool sums_row(const bson_t *doc, void *context)
{
    struct report_list *list = context;
    int64_t start_ms;

    if (!find_time(doc, "_id", &start_ms))
        return false;
    for (size_t i = list->count; i-- > 0;)
        if (list->items[i].start_ms <= start_ms)
            return members_read(doc, report_members, report_members_count, 0, list->items[i].counts, NULL);
    return true;
}

/* name: {$dateTrunc: {date, unit, timezone, startOfWeek}} */
static void put_trunc(bson_t *doc, const char *name, const bson_t *date, const char *unit, const char *time_zone)
{
    bson_t op, args, zone;

    bson_append_document_begin(doc, name, -1, &op);
    BSON_APPEND_DOCUMENT_BEGIN(&op, "$dateTrunc", &args);
    bson_concat(&args, date);
    BSON_APPEND_UTF8(&args, "unit", unit);
    BSON_APPEND_DOCUMENT_BEGIN(&args, "timezone", &zone);
    BSON_APPEND_UTF8(&zone, "$literal", time_zone);
    bson_append_document_end(&args, &zone);
    BSON_APPEND_UTF8(&args, "startOfWeek", "monday");
    bson_append_document_end(&op, &args);
    bson_append_document_end(doc, &op);
}

/* Every period from the one that holds from_ms to the one after the last that begins before to_ms. */
static bson_t *periods_command(struct door *d, const char *unit, const char *time_zone, int64_t from_ms, int64_t to_ms)
{
    AUTO_BCON from = BCON_NEW("date", BCON_DATE_TIME(from_ms));
    AUTO_BSON first = BSON_INITIALIZER, start = BSON_INITIALIZER;
    /* clang-format off */
    AUTO_BCON next = BCON_NEW("date", "{", "$dateAdd", "{",
        "startDate", "$first", "unit", BCON_UTF8(unit), "amount", "$i",
        "timezone", "{", "$literal", BCON_UTF8(time_zone), "}", "}", "}");

    put_trunc(&first, "first", from, unit, time_zone);
    put_trunc(&start, "start", next, unit, time_zone);
    return BCON_NEW(
        "aggregate", BCON_INT32(1),
        "pipeline", "[",
            "{", "$documents", "[", "{", "_id", BCON_INT32(0), "}", "]", "}",
            "{", "$set", BCON_DOCUMENT(&first), "}",
            "{", "$set", "{", "i", "{", "$range", "[", BCON_INT32(0), "{", "$add", "[", BCON_INT32(2),
                "{", "$dateDiff", "{",
                    "startDate", "$first", "endDate", BCON_DATE_TIME(to_ms), "unit", BCON_UTF8(unit),
                    "timezone", "{", "$literal", BCON_UTF8(time_zone), "}", "startOfWeek", "monday",
                "}", "}", "]", "}", "]", "}", "}", "}",
            "{", "$unwind", "$i", "}",
            "{", "$project", BCON_DOCUMENT(&start), "}",
            "{", "$set", "{", "offset", "{", "$dateToString", "{",
                "date", "$start", "format", "%Z", "timezone", "{", "$literal", BCON_UTF8(time_zone), "}",
            "}", "}", "}", "}",
        "]",
        "cursor", "{", "batchSize", BCON_INT32(BATCH_ROWS), "}",
        "maxTimeMS", BCON_INT64(d->mongo->server_limit_ms));
    /* clang-format on */
}

static void put_match(bson_t *pipeline, const char *const *coupons, size_t coupon_count, int64_t from_ms, int64_t to_ms)
{
    bson_t stage, match, clause, list;
    char buffer[16];

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$match", &match);
    if (coupon_count) {
        BSON_APPEND_DOCUMENT_BEGIN(&match, "_id.c", &clause);
        BSON_APPEND_ARRAY_BEGIN(&clause, "$in", &list);
        for (size_t i = 0; i < coupon_count; i++)
            bson_append_utf8(&list, array_key(i, buffer), -1, coupons[i], -1);
        bson_append_array_end(&clause, &list);
        bson_append_document_end(&match, &clause);
    }
    BSON_APPEND_DOCUMENT_BEGIN(&match, "_id.at", &clause);
    BSON_APPEND_DATE_TIME(&clause, "$gte", from_ms);
    BSON_APPEND_DATE_TIME(&clause, "$lt", to_ms);
    bson_append_document_end(&match, &clause);
    bson_append_document_end(&stage, &match);
    bson_append_document_end(pipeline, &stage);
}

static void put_group(bson_t *pipeline, const char *unit, const char *time_zone)
{
    AUTO_BCON at = BCON_NEW("date", "$_id.at");
    bson_t stage, group, sum;
    char path[32];

    BSON_APPEND_DOCUMENT_BEGIN(pipeline, "1", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$group", &group);
    put_trunc(&group, "_id", at, unit, time_zone);
    for (size_t i = 0; i < report_members_count; i++) {
        snprintf(path, sizeof path, "$%s", report_members[i].name);
        bson_append_document_begin(&group, report_members[i].name, -1, &sum);
        BSON_APPEND_UTF8(&sum, "$sum", path);
        bson_append_document_end(&group, &sum);
    }
    bson_append_document_end(&stage, &group);
    bson_append_document_end(pipeline, &stage);
}

enum store_status mongo_report(struct store *s, const char *const *coupons, size_t coupon_count, const char *unit,
                               const char *time_zone, int64_t from_ms, int64_t to_ms, struct arena *a,
                               struct report_row **rows, size_t *count)
{
    struct report_list list = {.to_ms = to_ms, .arena = a};
    struct door *d = door_of(s);
    AUTO_BCON periods = periods_command(d, unit, time_zone, from_ms, to_ms);
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;
    bson_t pipeline, cursor;

    *rows = NULL;
    *count = 0;
    status = door_read(d, periods, period_row, &list);
    if (status != STORE_OK || list.count == 0)
        return status;
    BSON_APPEND_UTF8(&command, "aggregate", "totals");
    BSON_APPEND_ARRAY_BEGIN(&command, "pipeline", &pipeline);
    put_match(&pipeline, coupons, coupon_count, list.items[0].start_ms, list.end_ms);
    put_group(&pipeline, unit, time_zone);
    bson_append_array_end(&command, &pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&command, "cursor", &cursor);
    BSON_APPEND_INT32(&cursor, "batchSize", BATCH_ROWS);
    bson_append_document_end(&command, &cursor);
    door_read_options(d, &command, (struct store_time){0}, 0);
    status = door_read(d, &command, sums_row, &list);
    *rows = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}
