/* store/fronts.c -- see fronts.h. */
#include "store/fronts.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "store/door.h"
#include "store/members.h"

#define FRONTS "fronts"

void front_id(const char *run_dir, char id[FRONT_ID_SIZE])
{
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof host - 1);
    snprintf(id, FRONT_ID_SIZE, "%s:%s", host, run_dir);
}

enum store_status mongo_front_tell(struct store *s, const struct front *front)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", FRONTS,
        "updates", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "}",
            "u", "{", "$set", "{", "receipts", BCON_UTF8(front->receipts), "seen", BCON_DATE_TIME(front->seen_ms), "}", "}",
            "upsert", BCON_BOOL(true),
        "}", "]");
    /* clang-format on */

    return door_write(door_of(s), command, NULL);
}

enum store_status mongo_front_gone(struct store *s, const struct front *front)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "delete", FRONTS,
        "deletes", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "seen", BCON_DATE_TIME(front->seen_ms), "}",
            "limit", BCON_INT32(1),
        "}", "]");
    /* clang-format on */

    return door_write(door_of(s), command, NULL);
}

struct front_list {
    struct front *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool front_row(const bson_t *doc, void *context)
{
    static const struct member rows[] = {
        MEMBER("_id", MEMBER_TEXT, struct front, id, false, 0),
        MEMBER("receipts", MEMBER_TEXT, struct front, receipts, false, 0),
        MEMBER("seen", MEMBER_TIME, struct front, seen_ms, false, 0),
    };
    struct front_list *list = context;
    struct front *front;

    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    front = &list->items[list->count++];
    *front = (struct front){.id = NULL};
    return members_read(doc, rows, sizeof rows / sizeof *rows, 0, front, list->arena);
}

enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count)
{
    struct front_list list = {NULL, 0, 0, a};
    AUTO_BCON command = BCON_NEW("find", FRONTS, "sort", "{", "_id", BCON_INT32(1), "}");
    enum store_status status;

    door_read_options(door_of(s), command, (struct store_time){0, 0}, 0);
    status = door_read(door_of(s), command, front_row, &list);
    *fronts = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}
