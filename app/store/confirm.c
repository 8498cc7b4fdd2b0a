/*
 * store/confirm.c -- confirms that a tail was still the tail when asked.
 *
 * How      a majority write, then a majority read not before that write. What was acknowledged before the write began is
 *          in the log of any primary that gets a majority for it, and so in what is read; a replaced primary gets no
 *          majority
 * Why      a linearizable read says the same, but its no-op waits for the journal's timer: 100 ms. A write that asks for
 *          the journal has it flushed at once (measured: 1 ms)
 * Sharded  a write proves nothing about another shard's primary, and a linearizable read is of one document: so there is one such read
 *          per tail, several at a time
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define HELPERS 15 /* linearizable reads at a time, besides the caller's own */
#define PULSES 256 /* documents to write to: bounded, and enough that sessions seldom share one */

/* Tries twice, since two sessions may race to insert their document. */
bool session_pulse(struct session *session)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_INT32((int32_t)(session->number % PULSES)));
    AUTO_BCON u = BCON_NEW("$inc", "{", "count", BCON_INT64(1), "}");
    bool taken = false;

    for (int i = 0; !taken && i < 2; i++)
        taken = session_update(session, "pulses", filter, u, true) == STORE_OK;
    return taken;
}

/* One write serves all who wait for one that begins after they came. */
enum store_status mongo_see_all(struct store *s)
{
    struct session *session = session_of(s);
    struct pulses *p = &session->mongo->pulses;
    uint64_t mine;
    bool seen;

    pthread_mutex_lock(&p->lock);
    mine = p->begun + 1;
    while (p->done < mine) {
        uint64_t round = p->begun + 1;

        if (p->running) {
            pthread_cond_wait(&p->ended, &p->lock);
            continue;
        }
        p->begun = round;
        p->running = true;
        pthread_mutex_unlock(&p->lock);
        seen = session_pulse(session);
        pthread_mutex_lock(&p->lock);
        p->running = false;
        p->done = round;
        if (seen) {
            p->good = round;
            p->when = session_seen(s);
        }
        pthread_cond_broadcast(&p->ended);
    }
    seen = p->good >= mine;
    if (seen)
        session_saw(s, p->when);
    pthread_mutex_unlock(&p->lock);
    return seen ? STORE_OK : STORE_FAILED;
}

struct confirms {
    struct confirm *items;
    size_t count;
};

static bool moved_row(const bson_t *doc, void *context)
{
    struct confirms *list = context;
    const char *coupon;
    int64_t lane, seq;

    if (!codec_id_int(doc, "l", &coupon, &lane) || !codec_id_int(doc, "seq", &coupon, &seq))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        struct confirm *c = &list->items[i];

        if (c->lane == lane && c->tail + 1 == seq && strcmp(c->coupon, coupon) == 0)
            c->unmoved = false;
    }
    return true;
}

static void put_followers(bson_t *command, const struct confirm *confirms, size_t count)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct in_clause in;

    if (count == 1) {
        codec_ledger_id(&filter, "_id", confirms[0].coupon, confirms[0].lane, confirms[0].tail + 1);
    } else {
        in_begin(&in, &filter, "_id");
        for (size_t i = 0; i < count; i++)
            codec_ledger_id(&in.values, in_next(&in), confirms[i].coupon, confirms[i].lane, confirms[i].tail + 1);
        in_end(&in, &filter);
    }
    BCON_APPEND(command, "find", "ledger", "filter", BCON_DOCUMENT(&filter), "projection", "{", "_id", BCON_INT32(1), "}");
}

static enum store_status find_followers(struct session *session, const bson_t *command, struct confirm *confirms, size_t count)
{
    struct confirms list = {confirms, count};
    enum store_status status;

    for (size_t i = 0; i < count; i++)
        confirms[i].unmoved = true;
    status = session_read(session, command, moved_row, &list);
    for (size_t i = 0; i < count && status != STORE_OK; i++)
        confirms[i].unmoved = false;
    return status;
}

static enum store_status confirm_linearizable(struct session *session, struct confirm *c)
{
    AUTO_BSON command = BSON_INITIALIZER;

    put_followers(&command, c, 1);
    BCON_APPEND(&command, "readConcern", "{", "level", BCON_UTF8("linearizable"), "}");
    BSON_APPEND_INT64(&command, "maxTimeMS", session->mongo->server_limit_ms);
    return find_followers(session, &command, c, 1);
}

struct readings {
    struct mongo *mongo;
    struct confirm *items;
    size_t count;
    struct mono until;
    atomic_size_t next;
    atomic_bool failed;
};

static void read_next(struct readings *r, struct session *session)
{
    size_t i;

    while (!atomic_load(&r->failed) && (i = atomic_fetch_add(&r->next, 1)) < r->count)
        if (mono_before(r->until, mono_now()) || confirm_linearizable(session, &r->items[i]) != STORE_OK)
            atomic_store(&r->failed, true);
}

/* Use a client from the pool, if one is free; otherwise the other threads do it all. */
static void *help(void *argument)
{
    struct readings *r = argument;
    struct session *session = session_try_open(r->mongo);

    if (!session)
        return NULL;
    read_next(r, session);
    session_close(&session->store);
    return NULL;
}

enum store_status ledger_confirm(struct store *s, struct confirm *confirms, size_t count)
{
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;

    for (size_t i = 0; i < count; i++) {
        assert(confirms[i].tail >= 0);
        confirms[i].unmoved = false;
    }
    if (count == 0)
        return STORE_OK;
    if (!session_ready(session))
        return STORE_FAILED;
    if (session->mongo->sharded) {
        /* All reads together take no longer than one command may. */
        struct readings r = {.mongo = session->mongo, .items = confirms, .count = count,
                             .until = mono_add_ms(mono_now(), session->mongo->server_limit_ms)};
        pthread_t helpers[HELPERS];
        size_t started = 0;

        while (started < HELPERS && started + 1 < count && pthread_create(&helpers[started], NULL, help, &r) == 0)
            started++;
        read_next(&r, session);
        for (size_t i = 0; i < started; i++)
            pthread_join(helpers[i], NULL);
        return atomic_load(&r.failed) ? STORE_FAILED : STORE_OK;
    }
    if (!session_pulse(session))
        return STORE_FAILED;
    put_followers(&command, confirms, count);
    session_read_options(session, &command, count + 1);
    return find_followers(session, &command, confirms, count);
}
