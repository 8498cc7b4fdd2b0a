/* store/upkeep.c -- the sweeper's and the runner's work across coupons: what is due, what has ended, what must be deleted. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codes.h"
#include "store/session.h"

/* ---- lanes in which something is due ---- */

static bool get_due(const bson_t *doc, void *item, struct arena *a)
{
    struct due_lane *due = item;

    if (!codec_id_int(doc, "l", &due->coupon, &due->lane))
        return false;
    due->coupon = arena_strdup(a, due->coupon);
    return true;
}

enum store_status mongo_due_lanes(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct due_lane **lanes, size_t *count)
{
    static const struct doc_list list = {"lanes", get_due, sizeof **lanes, true};
    AUTO_BCON filter = BCON_NEW("view.due", "{", "$gt", BCON_DATE_TIME(0), "$lt", BCON_DATE_TIME(before_ms), "}");
    AUTO_BCON options = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "view.due", BCON_INT32(1), "}");

    return session_list(session_of(s), &list, filter, options, most, a, lanes, count);
}

/* ---- coupons that have ended ---- */

#define ENDED_MEMBERS "projection", "{", "view.cleanup", BCON_INT32(1), "view.def.state", BCON_INT32(1), "}"

static bool get_ended(const bson_t *doc, void *item, struct arena *a)
{
    struct ended_coupon *coupon = item;
    bson_t view, def;
    const char *state;

    if (!find_text(doc, "_id", &coupon->id) || !find_document(doc, "view", &view) || !find_time(&view, "cleanup", &coupon->cleanup_ms) ||
        !find_document(&view, "def", &def) || !find_text(&def, "state", &state))
        return false;
    coupon->ended = strcmp(state, "ended") == 0;
    coupon->id = arena_strdup(a, coupon->id);
    return true;
}

static const struct doc_list ended_list = {"coupons", get_ended, sizeof(struct ended_coupon), true};

enum store_status mongo_ended_coupons(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct ended_coupon **coupons,
                                     size_t *count)
{
    AUTO_BCON filter = BCON_NEW("cleaned", BCON_NULL, "view.cleanup", "{", "$lte", BCON_DATE_TIME(now_ms), "}");
    AUTO_BCON options = BCON_NEW(ENDED_MEMBERS);

    return session_list(session_of(s), &ended_list, filter, options, most, a, coupons, count);
}

enum store_status mongo_old_coupons(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct ended_coupon **coupons,
                                    size_t *count)
{
    AUTO_BCON filter = BCON_NEW("cleaned", BCON_BOOL(true), "view.cleanup", "{", "$lt", BCON_DATE_TIME(before_ms), "}");
    AUTO_BCON options = BCON_NEW(ENDED_MEMBERS, "sort", "{", "cleaned", BCON_INT32(1), "view.cleanup", BCON_INT32(1), "}", "hint",
                                 "cleanup");

    return session_list(session_of(s), &ended_list, filter, options, most, a, coupons, count);
}

/* A definition written since with another clean-up time is not noted: it must be handled again. */
enum store_status mongo_ended_seen(struct store *s, const struct ended_coupon *coupon)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(coupon->id), "cleaned", BCON_NULL, "view.cleanup", BCON_DATE_TIME(coupon->cleanup_ms));
    AUTO_BCON u = BCON_NEW("$set", "{", "cleaned", BCON_BOOL(true), "}");
    enum store_status status = session_update(session_of(s), "coupons", filter, u, false);

    return status == STORE_NOT_FOUND ? STORE_OK : status;
}

/* ---- the codes of a coupon that has ended ---- */

/* Statements that remove the codes of retired slots. */
struct cleaning {
    const char *coupon;
    code_kept *kept; /* NULL: no retired code has a twin */
    void *context;
    const struct bucket *buckets; /* of consecutive numbers */
    struct bulk look_ups, updates, deletes; /* updates and deletes are of code buckets */
};

static void delete_look_up(struct cleaning *c, const char *coupon, const char *code, int64_t n, const char *owner)
{
    AUTO_BSON filter = BSON_INITIALIZER;

    codes_put_id(&filter, "_id", coupon, code);
    if (owner)
        BSON_APPEND_UTF8(&filter, "o", owner);
    else
        BSON_APPEND_INT64(&filter, "n", n);
    bulk_delete(&c->look_ups, &filter);
}

static void put_nulls(struct cleaning *c, const struct bucket *k, const char *const codes[BUCKET_SLOTS])
{
    AUTO_BSON filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
    char name[32];
    bson_t set;

    codec_id(&filter, "_id", c->coupon, "b", k->b);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        if (codes[i] && k->slots[i].state == SLOT_RETIRED) {
            snprintf(name, sizeof name, "codes.%d", i);
            BSON_APPEND_NULL(&set, name);
        }
    bson_append_document_end(&update, &set);
    bulk_update(&c->updates, &filter, &update, false);
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
        delete_look_up(c, c->coupon, codes[i], n, NULL);
        if (strcmp(codes[i], loose) != 0)
            delete_look_up(c, c->coupon, loose, n, NULL);
        delete_look_up(c, DIRECTORY, loose, n, c->coupon);
    }
    if (retired == BUCKET_SLOTS) {
        AUTO_BSON filter = BSON_INITIALIZER;

        codec_id(&filter, "_id", c->coupon, "b", b);
        bulk_delete(&c->deletes, &filter);
    } else if (with_codes > 0) {
        put_nulls(c, k, codes);
    }
    return true;
}

/* Look-ups first: while a code bucket has its codes, cleaning up can be repeated. */
static enum store_status clean_buckets(struct session *session, struct cleaning *c, int64_t from_b, int64_t to_b)
{
    struct bulk *const bulks[] = {&c->look_ups, &c->updates, &c->deletes};
    enum store_status status;

    bulk_begin(&c->look_ups, "delete", "codes");
    bulk_begin(&c->updates, "update", "code_buckets");
    bulk_begin(&c->deletes, "delete", "code_buckets");
    status = code_buckets_find(session, c->coupon, from_b, to_b, (size_t)(to_b - from_b), cleaning_row, c);
    for (size_t i = 0; i < sizeof bulks / sizeof *bulks; i++)
        if (status == STORE_OK)
            status = bulk_send(session, bulks[i], NULL);
        else
            bulk_free(bulks[i]);
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
