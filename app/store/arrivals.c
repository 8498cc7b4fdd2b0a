/*
 * store/arrivals.c -- the batches of all lanes in order of arrival, and the watermark: {_id: "reporter", arrived, behind: [{c, l}]}. All
 * that follows from batches that arrived before it is written, except in the lanes that it names.
 *
 * Why      few batches arrive after the watermark, however many lanes there are: see "What is behind" in README.md
 * Time     `arrived` is the cluster time that the server gives a batch on arrival, whenever that batch was decided. So a batch that a
 *          worker decided long ago and sends now, or sends again, does not fall below the watermark
 * Behind   a damaged lane would keep the watermark where it is, and arrivals above it would pile up: the watermark names the lane and
 *          moves on without it. {c, 0} also means a coupon whose lanes cannot be made to follow its definition
 * Whole    nothing is missed, because
 *          - `arrived` and `behind` are one document: a reader sees both as they were written together
 *          - what is done stays done: a watermark that was true when read stays true while its reader looks above it
 *          - a reporter starts from the watermark that it reads, looks at the lanes above it and at those behind, and writes what it
 *            knows itself. So if two run at once, the one that writes last is right, and so is its successor
 *          - a lane that is behind when a move begins is still behind when it ends. Only a later move removes it from the list: that one
 *            has waited for the lane's checkpoint too, and so for whatever was read of it meanwhile
 *          - a batch that arrives below the watermark moves it back; lanes behind stay so
 */
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define WATERMARKS "watermarks"
#define WATERMARK "reporter"
#define REPORTER_LEASE "reporter-lease"
#define PAGE 200

/* ---- a page of batches ---- */

static bool get_arrival(const bson_t *doc, void *item, struct arena *arena)
{
    struct arrival *a = item;
    bson_t id;

    a->arrived = codec_arrived_get(doc);
    if (!a->arrived || !find_document(doc, "_id", &id) || !find_text(&id, "c", &a->coupon) || !find_exact(&id, "l", &a->lane) ||
        !find_exact(&id, "seq", &a->seq))
        return false;
    if (!find_exact(doc, "k", &a->lanes))
        a->lanes = 1;
    a->coupon = arena_strdup(arena, a->coupon);
    return true;
}

enum store_status mongo_arrivals(struct store *s, struct arrivals_at *at, struct arena *a, struct arrival **arrivals, size_t *count)
{
    static const struct doc_list list = {"ledger", get_arrival, sizeof **arrivals, false};
    size_t most = at->most ? at->most : PAGE;
    enum store_status status;
    AUTO_BCON filter = BCON_NEW("arrived", "{", "$gte", BCON_TIMESTAMP((uint32_t)(at->from >> 32), (uint32_t)at->from), "}");
    AUTO_BCON options = BCON_NEW("sort", "{", "arrived", BCON_INT32(1), "}", "projection", "{", "arrived", BCON_INT32(1),
                                 "_id.c", BCON_INT32(1), "_id.l", BCON_INT32(1), "_id.seq", BCON_INT32(1), "k", BCON_INT32(1), "}");

    status = session_list(session_of(s), &list, filter, options, most, a, arrivals, count);
    if (status != STORE_OK)
        return status;
    at->more = *count == most;
    if (at->more && (*arrivals)[most - 1].arrived == at->from) /* shards may give the same time: the page must reach beyond it */
        at->most = 2 * most;
    else if (at->more)
        at->from = (*arrivals)[most - 1].arrived;
    return STORE_OK;
}

static bool tail_row(const bson_t *doc, void *context)
{
    bson_t id;

    return find_document(doc, "_id", &id) && find_exact(&id, "seq", context);
}

enum store_status mongo_lane_tail(struct store *s, const char *coupon, int64_t lane, int64_t *seq)
{
    AUTO_BCON options = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}", "sort", "{", "_id", BCON_INT32(-1), "}");
    AUTO_BSON range = BSON_INITIALIZER;

    ledger_range(&range, coupon, lane, 0, INT64_MAX);
    *seq = 0;
    return session_find(session_of(s), "ledger", &range, options, 1, tail_row, seq);
}

/* ---- the watermark ---- */

static bool watermark_row(const bson_t *doc, void *context)
{
    codec_watermark_get(doc, context);
    return true;
}

enum store_status mongo_watermark(struct store *s, struct watermark *w, uint64_t *now)
{
    AUTO_BCON filter = BCON_NEW("_id", WATERMARK);
    enum store_status status;

    *w = (struct watermark){.arrived = 0};
    status = session_find(session_of(s), WATERMARKS, filter, NULL, 1, watermark_row, w);
    if (now) {
        struct store_time when = session_seen(s);

        *now = status == STORE_OK ? (uint64_t)when.seconds << 32 | when.increment : 0;
    }
    return status == STORE_OK && !w->arrived ? STORE_NOT_FOUND : status;
}

static enum store_status set_watermark(struct store *s, const char *operator, const struct watermark *w)
{
    AUTO_BSON members = BSON_INITIALIZER;

    codec_watermark_put(&members, w);
    AUTO_BCON filter = BCON_NEW("_id", WATERMARK);
    AUTO_BCON u = BCON_NEW(operator, BCON_DOCUMENT(&members));

    return session_update(session_of(s), WATERMARKS, filter, u, true);
}

enum store_status mongo_watermark_write(struct store *s, const struct watermark *w)
{
    return set_watermark(s, "$set", w);
}

/* If another front has the lease, nothing matches, and the upsert meets a duplicate key. */
enum store_status mongo_reporter_claim(struct store *s, const char *front, int64_t now_ms, int64_t until_ms)
{
    AUTO_BCON filter = BCON_NEW("_id", REPORTER_LEASE, "$or", "[", "{", "by", BCON_UTF8(front), "}",
                                "{", "until", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}", "]");
    AUTO_BCON u = BCON_NEW("$set", "{", "by", BCON_UTF8(front), "until", BCON_DATE_TIME(until_ms), "}");

    return session_update(session_of(s), WATERMARKS, filter, u, true);
}

enum store_status mongo_reporter_release(struct store *s, const char *front)
{
    AUTO_BCON filter = BCON_NEW("_id", REPORTER_LEASE, "by", BCON_UTF8(front));

    return session_delete(session_of(s), WATERMARKS, filter, NULL);
}

/* If two do this at once, the slower one changes nothing, or meets a duplicate key and tries again. */
enum store_status mongo_watermark_begin(struct store *s)
{
    AUTO_BCON ids = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON all = BSON_INITIALIZER;
    const struct watermark first = {.arrived = 1};
    bool any = false;
    struct watermark w;
    enum store_status status = mongo_watermark(s, &w, NULL);

    if (status != STORE_NOT_FOUND)
        return status;
    status = session_find(session_of(s), "ledger", &all, ids, 1, session_any_row, &any);
    if (status != STORE_OK || any)
        return status;
    status = set_watermark(s, "$setOnInsert", &first);
    return status == STORE_OK ? status : set_watermark(s, "$setOnInsert", &first);
}
