/*
 * store/feed.c -- the ledger's change stream: batches as they are inserted, for the reporter; and which they are, for webhooks.
 *
 * Owns     a client of its own, since a stream keeps it busy
 * Token    the post-batch token where nothing came: a quiet stream must not age out of the server's history
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/codec.h"
#include "store/door.h"
#include "store/hooks.h"
#include "store/members.h"

#define WAIT_MS 1000
#define WORK_MS 10   /* after so long */
#define GATHER_MS 90 /* leave the stream alone for so long: a question per batch costs the server more than the answer */
#define CODE_HISTORY_LOST 286

struct feed {
    struct door *door;
    mongoc_collection_t *ledger;
    mongoc_change_stream_t *stream;
    struct mono gathered; /* when it was last left alone */
};

static struct feed *open_with(struct store *s, const void *token, size_t token_size, const bson_t *pipeline)
{
    struct feed *f = calloc(1, sizeof *f);
    AUTO_BSON options = BSON_INITIALIZER;
    bson_t after;

    if (!f)
        abort();
    BSON_APPEND_INT64(&options, "maxAwaitTimeMS", WAIT_MS);
    if (token && token_size <= UINT32_MAX && bson_init_static(&after, token, token_size))
        BSON_APPEND_DOCUMENT(&options, "startAfter", &after);
    f->door = door_open(door_of(s)->mongo);
    f->ledger = mongoc_client_get_collection(f->door->client, f->door->mongo->database, "ledger");
    f->stream = mongoc_collection_watch(f->ledger, pipeline, &options);
    return f;
}

struct feed *feed_open(struct store *s, const void *token, size_t token_size)
{
    /* clang-format off */
    AUTO_BCON pipeline = BCON_NEW("pipeline", "[", "{", "$match", "{", "operationType", "insert", "}", "}", "]");
    /* clang-format on */

    return open_with(s, token, token_size, pipeline);
}

static int explain(const struct feed *f)
{
    bson_error_t error = {0};
    const bson_t *reply;

    if (!mongoc_change_stream_error_document(f->stream, &error, &reply))
        return 0;
    log_event(LOG_WARNING, "store.feed_broken", "code=%" PRIu32 " reason=\"%s\"", error.code, error.message);
    return error.code == CODE_HISTORY_LOST ? -2 : -1;
}

/* Under load the server would be asked anew for every batch; what comes together costs it a third less. */
static void gather(struct feed *f)
{
    struct timespec pause = {0, GATHER_MS * 1000000L};

    if (mono_ms_between(f->gathered, mono_now()) < WORK_MS)
        return;
    nanosleep(&pause, NULL);
    f->gathered = mono_now();
}

int feed_next(struct feed *f, struct batch **batch)
{
    const bson_t *event;
    bson_t doc;

    gather(f);
    if (!mongoc_change_stream_next(f->stream, &event))
        return explain(f);
    *batch = find_document(event, "fullDocument", &doc) ? codec_batch_get(&doc) : NULL;
    if (*batch)
        return 1;
    /* passed over here: whoever follows the seqs sees the gap */
    log_unreadable("ledger", event);
    return 0;
}

const void *feed_token(const struct feed *f, size_t *size)
{
    const bson_t *token = mongoc_change_stream_get_resume_token(f->stream);

    *size = token ? token->len : 0;
    return token ? bson_get_data(token) : NULL;
}

void feed_close(struct feed *f)
{
    mongoc_change_stream_destroy(f->stream);
    mongoc_collection_destroy(f->ledger);
    door_close(&f->door->store);
    free(f);
}

/* ---- the doorbell ---- */

struct bells {
    struct feed *feed;
};

struct bells *bells_open(struct store *s, const void *token, size_t token_size)
{
    /* clang-format off */
    AUTO_BCON pipeline = BCON_NEW(
        "pipeline", "[",
            "{", "$match", "{", "operationType", "insert", "}", "}",
            "{", "$project", "{", "documentKey", BCON_INT32(1), "}", "}",
        "]");
    /* clang-format on */
    struct bells *b = calloc(1, sizeof *b);

    if (!b)
        abort();
    b->feed = open_with(s, token, token_size, pipeline);
    return b;
}

int bells_next(struct bells *b, struct bell *bell)
{
    const char *coupon;
    const bson_t *event;
    bson_t key, id;

    gather(b->feed);
    if (!mongoc_change_stream_next(b->feed->stream, &event))
        return explain(b->feed);
    if (find_document(event, "documentKey", &key) && find_document(&key, "_id", &id) && find_text(&id, "c", &coupon) &&
        find_int(&id, "l", &bell->lane) && find_int(&id, "seq", &bell->seq) && strlen(coupon) < sizeof bell->coupon) {
        memcpy(bell->coupon, coupon, strlen(coupon) + 1);
        return 1;
    }
    log_unreadable("ledger", event);
    return 0;
}

const void *bells_token(const struct bells *b, size_t *size)
{
    return feed_token(b->feed, size);
}

void bells_close(struct bells *b)
{
    feed_close(b->feed);
    free(b);
}
