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
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(front->id));
    AUTO_BCON u = BCON_NEW("$set", "{", "receipts", BCON_UTF8(front->receipts), "seen", BCON_DATE_TIME(front->seen_ms), "}");

    return session_update(session_of(s), FRONTS, filter, u, true);
}

enum store_status mongo_front_gone(struct store *s, const struct front *front)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(front->id), "seen", BCON_DATE_TIME(front->seen_ms));

    return session_delete(session_of(s), FRONTS, filter, NULL);
}

static bool get_front(const bson_t *doc, void *item, struct arena *a)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("_id", BSON_FIELD_TEXT, struct front, id, false, 0),
        BSON_FIELD("receipts", BSON_FIELD_TEXT, struct front, receipts, true, 0),
        BSON_FIELD("seen", BSON_FIELD_TIME, struct front, seen_ms, true, 0),
    };
    struct front *front = item;

    front->receipts = "";
    return bson_fields_read(doc, rows, sizeof rows / sizeof *rows, 0, front, a);
}

enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count)
{
    static const struct doc_list list = {FRONTS, get_front, sizeof **fronts, false};
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON all = BSON_INITIALIZER;

    return session_list(session_of(s), &list, &all, sort, 0, a, fronts, count);
}

bool front_is_here(const struct front *front, int64_t now_ms)
{
    return front->seen_ms >= now_ms - FRONT_GONE_MS;
}
