/*
 * store/feed.c -- the ledger's change stream: batches as they are inserted, for the reporter; their keys, for webhooks; and the
 * totals of lanes, for the other lanes of their coupon.
 *
 * Owns     a feed its own client, since a stream keeps it busy; feed_hear() uses its session's
 * Token    the post-batch token if nothing came: a quiet stream must not age out of the server's history
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define WAIT_MS 1000 /* of the server, for something to come */
#define FOLD_WAIT_MS 250 /* the same for the reporter, which does other things in between */
#define WORK_MS 10   /* read for this long, then */
#define GATHER_MS 90 /* do not ask the stream for so long: a request per batch costs the server more than the reply */
#define HEAR_GATHER_MS 10 /* the same for lanes, which take too many until they hear of each other */

/* The server's errors for a token from which it can never resume: it does not find it, or cannot read it. */
static const uint32_t lost[] = {
    2,   /* BadValue */
    9,   /* FailedToParse */
    14,  /* TypeMismatch */
    15,  /* Overflow */
    207, /* InvalidUUID */
    260, /* InvalidResumeToken */
    280, /* ChangeStreamFatalError: the token is not found */
    286, /* ChangeStreamHistoryLost */
};
#define ASSERTIONS_FROM 40000 /* errors without a name: a token cannot be decoded. Primaries that step down use lower codes */

struct feed {
    struct session *session;
    mongoc_collection_t *ledger;
    mongoc_change_stream_t *stream;
    struct mono gathered; /* when its last pause ended */
    long gather_ms;
};

static struct feed *open_on(struct session *session, int wait_ms, long gather_ms, const struct feed_position *p, const bson_t *pipeline)
{
    struct feed *f = checked(calloc(1, sizeof *f));
    AUTO_BSON options = BSON_INITIALIZER;
    bson_t after;

    BSON_APPEND_INT64(&options, "maxAwaitTimeMS", wait_ms);
    if (p && p->size && bson_init_static(&after, p->token, p->size))
        BSON_APPEND_DOCUMENT(&options, "startAfter", &after);
    f->session = session;
    f->gather_ms = gather_ms;
    f->ledger = mongoc_client_get_collection(f->session->client, f->session->mongo->database, "ledger");
    f->stream = mongoc_collection_watch(f->ledger, pipeline, &options);
    return f;
}

static struct feed *open_with(struct store *s, int wait_ms, const struct feed_position *after, const bson_t *pipeline)
{
    return open_on(session_open(session_of(s)->mongo), wait_ms, GATHER_MS, after, pipeline);
}

/* Leaves the session open. */
static void close_on(struct feed *f)
{
    mongoc_change_stream_destroy(f->stream);
    mongoc_collection_destroy(f->ledger);
    free(f);
}

struct feed *feed_open(struct store *s, const struct feed_position *after)
{
    AUTO_BCON pipeline = BCON_NEW("pipeline", "[", "{", "$match", "{", "operationType", "insert", "}", "}", "]");

    return open_with(s, FOLD_WAIT_MS, after, pipeline);
}

static bool is_lost(const bson_error_t *error)
{
    bool found = error->code >= ASSERTIONS_FROM;

    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        found = found || error->code == lost[i];
    return found && error->domain == MONGOC_ERROR_SERVER;
}

static int explain(const struct feed *f)
{
    bson_error_t error = {0};
    const bson_t *reply;

    if (!mongoc_change_stream_error_document(f->stream, &error, &reply))
        return 0;
    log_event(LOG_WARNING, "store.feed_broken", F_INT("code", error.code), F_TEXT("reason", error.message));
    return is_lost(&error) ? -2 : -1;
}

/* Under load each batch would take a request of its own; batches read together cost the server a third less. */
static void gather(struct feed *f)
{
    struct timespec pause = {0, f->gather_ms * 1000000L};

    if (mono_ms_between(f->gathered, mono_now()) < WORK_MS)
        return;
    nanosleep(&pause, NULL);
    f->gathered = mono_now();
}

static bool get_batch_key(const bson_t *event, struct batch_key *batch_key)
{
    const char *coupon;
    bson_t key, id, doc;

    if (!find_document(event, "documentKey", &key) || !find_document(&key, "_id", &id) || !find_text(&id, "c", &coupon) ||
        !find_int(&id, "l", &batch_key->lane) || !find_int(&id, "seq", &batch_key->seq) || strlen(coupon) >= sizeof batch_key->coupon)
        return false;
    memcpy(batch_key->coupon, coupon, strlen(coupon) + 1);
    batch_key->arrived = find_document(event, "fullDocument", &doc) ? codec_arrived_get(&doc) : 0;
    return true;
}

int feed_next(struct feed *f, struct batch **batch, struct batch_key *unread)
{
    const bson_t *event;
    bson_t doc;

    gather(f);
    if (!mongoc_change_stream_next(f->stream, &event))
        return explain(f);
    *batch = find_document(event, "fullDocument", &doc) ? codec_batch_get(&doc) : NULL;
    if (*batch)
        return 1;
    log_unreadable("ledger", event);
    return get_batch_key(event, unread);
}

void feed_keep(const struct feed *f, struct feed_position *p)
{
    const bson_t *token = mongoc_change_stream_get_resume_token(f->stream);

    if (!token)
        return;
    p->token = checked(realloc(p->token, token->len));
    memcpy(p->token, bson_get_data(token), token->len);
    p->size = token->len;
}

void feed_forget(struct feed_position *p)
{
    free(p->token);
    *p = (struct feed_position){NULL, 0};
}

void feed_close(struct feed *f)
{
    struct session *session = f->session;

    close_on(f);
    session_close(&session->store);
}

/* ---- keys of batches ---- */

struct feed *feed_open_keys(struct store *s, const struct feed_position *after)
{
    AUTO_BCON pipeline = BCON_NEW(
        "pipeline", "[",
            "{", "$match", "{", "operationType", "insert", "}", "}",
            "{", "$project", "{", "documentKey", BCON_INT32(1), "fullDocument.arrived", BCON_INT32(1), "}", "}",
        "]");

    return open_with(s, WAIT_MS, after, pipeline);
}

int feed_next_key(struct feed *f, struct batch_key *batch_key)
{
    const bson_t *event;

    gather(f);
    if (!mongoc_change_stream_next(f->stream, &event))
        return explain(f);
    if (get_batch_key(event, batch_key))
        return 1;
    log_unreadable("ledger", event);
    return 0;
}

/* ---- totals of a coupon's lanes, for each other ---- */

void feed_stop_hearing(struct session *session)
{
    if (session->hearing)
        close_on(session->hearing);
    session->hearing = NULL;
}

/* The driver resumes the stream if it can; otherwise the stream has ended. */
static int stop_if_broken(struct session *session)
{
    if (explain(session->hearing) == 0)
        return 0;
    feed_stop_hearing(session);
    return -1;
}

int feed_hear(struct store *s, struct heard *heard)
{
    struct session *session = session_of(s);
    const bson_t *event;
    bson_t doc;

    if (!session->hearing) {
        AUTO_BCON pipeline = BCON_NEW(
            "pipeline", "[",
                "{", "$match", "{", "operationType", "insert", "fullDocument.k", "{", "$gt", BCON_INT32(1), "}", "}", "}",
                "{", "$project", "{", "fullDocument._id", BCON_INT32(1), "fullDocument.at", BCON_INT32(1),
                    "fullDocument.v", BCON_INT32(1), "fullDocument.totals", BCON_INT32(1), "fullDocument.day", BCON_INT32(1),
                    "fullDocument.k", BCON_INT32(1),
                "}", "}",
            "]");

        /* Only totals, and only of coupons with several lanes. */
        session->hearing = open_on(session, WAIT_MS, HEAR_GATHER_MS, NULL, pipeline);
        return stop_if_broken(session);
    }
    gather(session->hearing);
    if (!mongoc_change_stream_next(session->hearing->stream, &event))
        return stop_if_broken(session);
    if (find_document(event, "fullDocument", &doc) && codec_heard_get(&doc, heard))
        return 1;
    log_unreadable("ledger", event);
    feed_stop_hearing(session);
    return -1;
}
