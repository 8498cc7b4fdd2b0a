/* store/fronts.c -- see fronts.h. */
#include "store/fronts.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/view_barrier.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define FRONTS "fronts"
#define QUESTIONS "-" /* not a front's id: that has a colon */
#define TELL_ATTEMPTS 3

void front_id(const char *run_dir, char id[FRONT_ID_SIZE])
{
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof host - 1);
    snprintf(id, FRONT_ID_SIZE, "%s:%s", host, run_dir);
}

/* *value: the document before or after, as command asks, borrowed from reply; *found false: there was none. */
static enum store_status modify(struct store *s, bson_t *command, bson_t *reply, bson_t *value, bool *found)
{
    struct session *session = session_of(s);

    BSON_APPEND_INT64(command, "maxTimeMS", session->mongo->server_limit_ms);
    session_write_concern(session, command);
    if (!session_run(session, command, reply) || !reply_is_clean(reply))
        return STORE_FAILED;
    *found = reply_value(reply, value);
    return STORE_OK;
}

void mongo_front_serves(struct store *s, const char *run_dir)
{
    char id[FRONT_ID_SIZE];
    enum store_status status = STORE_FAILED;
    int64_t master = view_barrier_master(), before_master = 0;
    bool found = true;

    front_id(run_dir, id);
    for (int attempt = 0; attempt < TELL_ATTEMPTS && status != STORE_OK; attempt++) {
        /* clang-format off */
        AUTO_BCON command = BCON_NEW(
            "findAndModify", FRONTS,
            "query", "{", "_id", BCON_UTF8(id), "}",
            "update", "{", "$set", "{", "serves", BCON_DATE_TIME(clock_now_ms()), "master", BCON_INT64(master), "}", "}",
            "upsert", BCON_BOOL(true));
        /* clang-format on */
        AUTO_BSON reply;
        bson_t before;

        status = modify(s, command, &reply, &before, &found);
        if (status == STORE_OK && found)
            (void)find_exact(&before, "master", &before_master);
    }
    if (status != STORE_OK)
        log_event(LOG_WARNING, "front.untold", F_DETAILS("the database does not answer"));
    if (status == STORE_OK && before_master == master)
        return; /* another process of this master came first, and knows */
    if (status == STORE_OK && !found)
        view_barrier_none_lost();
    else
        view_barrier_some_lost();
}

#define QUESTIONS_KEPT 64 /* a front that misses one assumes that it asked for all views */

/* A pipeline stores the question under the number that it gets. */
enum store_status mongo_fronts_ask(struct store *s, const uint32_t *keys, size_t count, int64_t *number)
{
    bson_t list = BSON_INITIALIZER;
    char buffer[16];

    for (size_t i = 0; i < count; i++)
        BSON_APPEND_INT32(&list, array_key(i, buffer), (int32_t)keys[i]);
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "findAndModify", FRONTS,
        "query", "{", "_id", QUESTIONS, "}",
        "update", "[", "{", "$set", "{", "asked", "{", "$add", "[", "{", "$ifNull", "[", "$asked", BCON_INT64(0), "]", "}",
                BCON_INT64(1), "]", "}", "}", "}",
            "{", "$set", "{", "questions", "{", "$slice", "[", "{", "$concatArrays", "[",
                "{", "$ifNull", "[", "$questions", "[", "]", "]", "}",
                "[", "{", "n", "$asked", "keys", BCON_ARRAY(&list), "}", "]", "]", "}", BCON_INT32(-QUESTIONS_KEPT),
                "]", "}", "}", "}", "]",
        "upsert", BCON_BOOL(true), "new", BCON_BOOL(true), "fields", "{", "asked", BCON_INT32(1), "}");
    /* clang-format on */
    AUTO_BSON reply;
    bson_t after;
    bool found;

    bson_destroy(&list);
    if (modify(s, command, &reply, &after, &found) != STORE_OK || !found || !find_exact(&after, "asked", number))
        return STORE_FAILED;
    return STORE_OK;
}

enum store_status mongo_front_tell(struct store *s, const struct front *front)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "update", FRONTS,
        "updates", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "}",
            "u", "{", "$set", "{", "receipts", BCON_UTF8(front->receipts), "seen", BCON_DATE_TIME(front->seen_ms),
                "heard", BCON_INT64(front->heard), "unsure", BCON_INT64(front->unsure), "}", "}",
            "upsert", BCON_BOOL(true),
        "}", "]");
    /* clang-format on */

    return session_write(session_of(s), command, NULL);
}

enum store_status mongo_front_gone(struct store *s, const struct front *front)
{
    /* clang-format off */
    AUTO_BCON command = BCON_NEW(
        "delete", FRONTS,
        "deletes", "[", "{",
            "q", "{", "_id", BCON_UTF8(front->id), "seen", BCON_DATE_TIME(front->seen_ms),
                "serves", BCON_DATE_TIME(front->serves_ms), "}",
            "limit", BCON_INT32(1),
        "}", "]");
    /* clang-format on */

    return session_write(session_of(s), command, NULL);
}

struct front_list {
    struct front *items;
    size_t count, capacity;
    struct arena *arena;
    struct front_questions *questions; /* NULL: not wanted */
};

static bool read_question(const bson_t *doc, struct front_question *q, struct arena *a)
{
    uint32_t *keys = arena_array(a, FRONT_KEYS_MAX, sizeof *keys);
    bson_t list;
    bson_iter_t it;
    int64_t key;

    *q = (struct front_question){.keys = keys};
    if (!find_exact(doc, "n", &q->number) || !find_array(doc, "keys", &list) || !bson_iter_init(&it, &list))
        return false;
    while (bson_iter_next(&it)) {
        if (q->count == FRONT_KEYS_MAX || !get_int(&it, &key) || key < 0 || key >= VIEW_KEYS)
            return false;
        keys[q->count++] = (uint32_t)key;
    }
    return true;
}

/* Read the last ones, after any that cannot be read: the others count as not kept. */
static void read_questions(const bson_t *doc, struct front_questions *all, struct arena *a)
{
    bson_t list, one;
    bson_iter_t it;

    if (!find_array(doc, "questions", &list) || !bson_iter_init(&it, &list))
        return;
    all->items = arena_array(a, array_count(&list) + 1, sizeof *all->items);
    while (bson_iter_next(&it)) {
        bool good = get_document(&it, &one) && read_question(&one, &all->items[all->count], a);

        all->count = good ? all->count + 1 : 0;
    }
}

static bool front_row(const bson_t *doc, void *context)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("_id", BSON_FIELD_TEXT, struct front, id, false, 0),
        BSON_FIELD("receipts", BSON_FIELD_TEXT, struct front, receipts, true, 0),
        BSON_FIELD("seen", BSON_FIELD_TIME, struct front, seen_ms, true, 0),
        BSON_FIELD("serves", BSON_FIELD_TIME, struct front, serves_ms, true, 0),
        BSON_FIELD("heard", BSON_FIELD_INT, struct front, heard, true, 0),
        BSON_FIELD("unsure", BSON_FIELD_INT, struct front, unsure, true, 0),
    };
    struct front_list *list = context;
    struct front *front;
    int64_t asked;

    if (find_exact(doc, "asked", &asked)) {
        if (list->questions) {
            list->questions->asked = asked;
            read_questions(doc, list->questions, list->arena);
        }
        return true;
    }
    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    front = &list->items[list->count++];
    *front = (struct front){.receipts = ""};
    return bson_fields_read(doc, rows, sizeof rows / sizeof *rows, 0, front, list->arena);
}

enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count, struct front_questions *questions)
{
    struct front_list list = {.arena = a, .questions = questions};
    AUTO_BCON command = BCON_NEW("find", FRONTS, "sort", "{", "_id", BCON_INT32(1), "}");
    enum store_status status;

    if (questions)
        *questions = (struct front_questions){.asked = 0};
    else
        BCON_APPEND(command, "projection", "{", "questions", BCON_INT32(0), "}");
    session_read_options(session_of(s), command, (struct store_time){0, 0}, 0);
    status = session_read(session_of(s), command, front_row, &list);
    *fronts = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

bool front_is_here(const struct front *front, int64_t now_ms)
{
    return front->seen_ms >= now_ms - FRONT_GONE_MS || front->serves_ms >= now_ms - FRONT_GONE_MS;
}
