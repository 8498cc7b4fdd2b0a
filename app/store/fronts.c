/* store/fronts.c -- see fronts.h. */
#include "store/fronts.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "store/bson_fields.h"
#include "store/session.h"

#define FRONTS "fronts"

void front_id(const char *run_dir, char id[FRONT_ID_SIZE])
{
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof host - 1);
    snprintf(id, FRONT_ID_SIZE, "%s:%s", host, run_dir);
}

enum store_status mongo_front_write(struct store *s, const struct front *front)
{
    AUTO_BCON command = BCON_NEW(
        "update", FRONTS,
        "updates", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "}",
            "u", "{", "$set", "{", "receipts", BCON_UTF8(front->receipts), "seen", BCON_DATE_TIME(front->seen_ms), "}", "}",
            "upsert", BCON_BOOL(true),
        "}", "]");

    return session_write(session_of(s), command, NULL);
}

enum store_status mongo_front_gone(struct store *s, const struct front *front)
{
    AUTO_BCON command = BCON_NEW(
        "delete", FRONTS,
        "deletes", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "seen", BCON_DATE_TIME(front->seen_ms), "}",
            "limit", BCON_INT32(1),
        "}", "]");

    return session_write(session_of(s), command, NULL);
}

struct front_list {
    struct front *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool front_row(const bson_t *doc, void *context)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("_id", BSON_FIELD_TEXT, struct front, id, false, 0),
        BSON_FIELD("receipts", BSON_FIELD_TEXT, struct front, receipts, true, 0),
        BSON_FIELD("seen", BSON_FIELD_TIME, struct front, seen_ms, true, 0),
    };
    struct front_list *list = context;
    struct front *front;

    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    front = &list->items[list->count++];
    *front = (struct front){.receipts = ""};
    return bson_fields_read(doc, rows, sizeof rows / sizeof *rows, 0, front, list->arena);
}

enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count)
{
    struct front_list list = {.arena = a};
    AUTO_BCON command = BCON_NEW("find", FRONTS, "sort", "{", "_id", BCON_INT32(1), "}");
    enum store_status status;

    session_read_options(session_of(s), command, 0);
    status = session_read(session_of(s), command, front_row, &list);
    *fronts = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

bool front_is_here(const struct front *front, int64_t now_ms)
{
    return front->seen_ms >= now_ms - FRONT_GONE_MS;
}
