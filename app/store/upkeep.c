/* store/upkeep.c -- the sweeper's and the runner's work across coupons: what is due, what is over, what must be deleted. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codes.h"
#include "store/session.h"

/* ---- lanes in which something is due ---- */

struct due_lanes {
    struct due_lane *items; /* room for `most` */
    size_t count, most;
    struct arena *arena;
};

static bool due_row(const bson_t *doc, void *context)
{
    struct due_lanes *list = context;
    const char *coupon;
    int64_t lane;

    if (list->count == list->most)
        return false;
    if (!codec_id_int(doc, "l", &coupon, &lane)) {
        log_unreadable("lanes", doc);
        return true;
    }
    list->items[list->count++] = (struct due_lane){arena_strdup(list->arena, coupon), lane};
    return true;
}

enum store_status mongo_due_lanes(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct due_lane *into, size_t *count)
{
    struct due_lanes list = {into, 0, most, a};
    AUTO_BCON filter = BCON_NEW("view.due", "{", "$gt", BCON_DATE_TIME(0), "$lt", BCON_DATE_TIME(before_ms), "}");
    AUTO_BCON tail = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "view.due", BCON_INT32(1), "}");
    enum store_status status = most ? session_find(session_of(s), "lanes", filter, tail, most, due_row, &list) : STORE_OK;

    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* ---- coupons that are over ---- */

#define OVER_MEMBERS "projection", "{", "view.cleanup", BCON_INT32(1), "view.def.state", BCON_INT32(1), "}"

struct over_list {
    struct over_coupon *items; /* room for `most` */
    size_t count, most;
    struct arena *arena;
};

static bool over_row(const bson_t *doc, void *context)
{
    struct over_list *list = context;
    struct over_coupon over;
    bson_t view, def;
    const char *state;

    if (list->count == list->most)
        return false;
    if (!find_text(doc, "_id", &over.id) || !find_document(doc, "view", &view) || !find_time(&view, "cleanup", &over.cleanup_ms) ||
        !find_document(&view, "def", &def) || !find_text(&def, "state", &state)) {
        log_unreadable("coupons", doc);
        return true;
    }
    over.ended = strcmp(state, "ended") == 0;
    over.id = arena_strdup(list->arena, over.id);
    list->items[list->count++] = over;
    return true;
}

enum store_status mongo_over_coupons(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct over_coupon **coupons,
                                     size_t *count)
{
    struct over_list list = {arena_array(a, most + 1, sizeof *list.items), 0, most, a};
    AUTO_BCON filter = BCON_NEW("cleaned", BCON_NULL, "view.cleanup", "{", "$lte", BCON_DATE_TIME(now_ms), "}");
    AUTO_BCON tail = BCON_NEW(OVER_MEMBERS);
    enum store_status status = most ? session_find(session_of(s), "coupons", filter, tail, most, over_row, &list) : STORE_OK;

    *coupons = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

enum store_status mongo_old_coupons(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct over_coupon **coupons,
                                    size_t *count)
{
    struct over_list list = {arena_array(a, most + 1, sizeof *list.items), 0, most, a};
    AUTO_BCON filter = BCON_NEW("cleaned", BCON_BOOL(true), "view.cleanup", "{", "$lt", BCON_DATE_TIME(before_ms), "}");
    AUTO_BCON tail = BCON_NEW(OVER_MEMBERS, "sort", "{", "cleaned", BCON_INT32(1), "view.cleanup", BCON_INT32(1), "}", "hint", "cleanup");
    enum store_status status = session_find(session_of(s), "coupons", filter, tail, most, over_row, &list);

    *coupons = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* A definition written since with another clean-up time is not marked: it must be handled again. */
enum store_status mongo_over_seen(struct store *s, const struct over_coupon *over)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(over->id), "cleaned", BCON_NULL, "view.cleanup", BCON_DATE_TIME(over->cleanup_ms));
    AUTO_BCON u = BCON_NEW("$set", "{", "cleaned", BCON_BOOL(true), "}");
    enum store_status status = session_update(session_of(s), "coupons", filter, u, false);

    return status == STORE_NOT_FOUND ? STORE_OK : status;
}

/* ---- the codes of a coupon that is over ---- */

/* Statements that remove the codes of retired slots. */
struct cleaning {
    const char *coupon;
    code_kept *kept; /* NULL: no retired code has a twin */
    void *context;
    const struct bucket *buckets; /* of consecutive numbers */
    bson_t look_ups, updates, deletes; /* statements; updates and deletes are of code buckets */
    size_t look_up_count, update_count, delete_count;
};

static void put_delete(bson_t *deletes, size_t *count, const char *coupon, const char *code, int64_t n,
                       const char *owner)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    codes_put_id(&filter, "_id", coupon, code);
    if (owner)
        BSON_APPEND_UTF8(&filter, "o", owner);
    else
        BSON_APPEND_INT64(&filter, "n", n);
    session_put_delete(deletes, (*count)++, &filter);
}

static void put_nulls(struct cleaning *c, const struct bucket *k, const char *const codes[BUCKET_SLOTS])
{
    AUTO_BSON filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    char name[32];
    bson_t set;

    codec_bucket_id(&filter, "_id", c->coupon, k->b);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        if (codes[i] && k->slots[i].state == SLOT_RETIRED) {
            snprintf(name, sizeof name, "codes.%d", i);
            BSON_APPEND_NULL(&set, name);
        }
    bson_append_document_end(&update, &set);
    session_put_update(&c->updates, c->update_count++, &filter, &update, false);
}

static bool has_kept_twin(const struct cleaning *c, const char *code)
{
    char form[CODE_MAX + 1];

    return c->kept && directory_form(code, form) && c->kept(c->context, form);
}

static bool cleaning_row(const bson_t *doc, void *context)
{
    struct cleaning *c = context;
    const char *coupon, *codes[BUCKET_SLOTS];
    const struct bucket *k;
    int retired = 0, with_codes = 0;
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b) || !code_bucket_get(doc, codes))
        return false;
    k = &c->buckets[b - c->buckets[0].b];
    for (int i = 0; i < k->size; i++) {
        int64_t n;
        char loose[CODE_MAX + 1];

        if (k->slots[i].state != SLOT_RETIRED)
            continue;
        retired++;
        if (!codes[i])
            continue;
        if (has_kept_twin(c, codes[i])) {
            retired--;
            codes[i] = NULL;
            continue;
        }
        with_codes++;
        /* The look-up may be under either form, and in the directory: deleting what does not exist does nothing. */
        n = b * BUCKET_SLOTS + i;
        directory_form(codes[i], loose);
        put_delete(&c->look_ups, &c->look_up_count, c->coupon, codes[i], n, NULL);
        if (strcmp(codes[i], loose) != 0)
            put_delete(&c->look_ups, &c->look_up_count, c->coupon, loose, n, NULL);
        put_delete(&c->look_ups, &c->look_up_count, DIRECTORY, loose, n, c->coupon);
    }
    if (retired == BUCKET_SLOTS) {
        AUTO_BSON filter = BSON_INITIALIZER;

        codec_bucket_id(&filter, "_id", c->coupon, b);
        session_put_delete(&c->deletes, c->delete_count++, &filter);
    } else if (with_codes > 0) {
        put_nulls(c, k, codes);
    }
    return true;
}

/* Run the statements, if any, as one command. */
static enum store_status run_statements(struct session *session, const char *verb, const char *collection, const char *list,
                                        const bson_t *statements, size_t count)
{
    AUTO_BSON command = BSON_INITIALIZER;

    if (count == 0)
        return STORE_OK;
    bson_append_utf8(&command, verb, -1, collection, -1);
    bson_append_array(&command, list, -1, statements);
    return session_write(session, &command, NULL);
}

/* Look-ups first: while a code bucket has its codes, cleaning up can be repeated. */
static enum store_status clean_buckets(struct session *session, struct cleaning *c, int64_t from_b, int64_t to_b)
{
    enum store_status status;

    bson_init(&c->look_ups);
    bson_init(&c->updates);
    bson_init(&c->deletes);
    status = code_buckets_find(session, c->coupon, from_b, to_b, (size_t)(to_b - from_b), cleaning_row, c);
    if (status == STORE_OK)
        status = run_statements(session, "delete", "codes", "deletes", &c->look_ups, c->look_up_count);
    if (status == STORE_OK)
        status = run_statements(session, "update", "code_buckets", "updates", &c->updates, c->update_count);
    if (status == STORE_OK)
        status = run_statements(session, "delete", "code_buckets", "deletes", &c->deletes, c->delete_count);
    bson_destroy(&c->look_ups);
    bson_destroy(&c->updates);
    bson_destroy(&c->deletes);
    return status;
}

enum store_status mongo_codes_clean(struct store *s, const char *coupon, int64_t from_b, size_t most, code_kept *kept, void *context,
                                    bool *more)
{
    struct bucket *buckets = checked(calloc(most + 1, sizeof *buckets));
    int64_t to_b = from_b + (int64_t)most;
    enum store_status status;

    *more = false;
    status = mongo_buckets(s, coupon, from_b, to_b, to_b * BUCKET_SLOTS, buckets);
    if (status == STORE_OK) {
        struct cleaning cleaning = {.coupon = coupon, .kept = kept, .context = context, .buckets = buckets};

        status = clean_buckets(session_of(s), &cleaning, from_b, to_b);
        for (size_t i = 0; i < most; i++)
            bucket_release(&buckets[i]);
    }
    free(buckets);
    return status == STORE_OK ? code_buckets_find(session_of(s), coupon, to_b, INT64_MAX, 1, session_any_row, more) : status;
}
