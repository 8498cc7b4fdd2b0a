/*
 * http/refusal_counter.c -- see refusal_counter.h.
 *
 * Books  counts only grow within a book, which has its own id in the database: so they can be written again and again, as totals. A book of
 *        another quarter hour, or half full, is closed: written to its end, then dropped. There are at most two
 */
#include "http/refusal_counter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "store/mongo.h"

#define LAST_PING_MS 500 /* how long an ending process waits for the database */

/* A coupon's refusals in a quarter hour. */
struct count {
    struct refusals_write write; /* zeroed before it is filled: coupon and quarter_ms, adjacent, are the key */
    bool changed;                /* since last written; then it is in the book's list */
    struct count *next_changed;
    UT_hash_handle hh;
};
#define KEY_SIZE (offsetof(struct refusals_write, quarter_ms) + sizeof(int64_t))

struct book {
    char writer[REFUSAL_WRITER_LEN + 1];
    struct count *counts, *changed;
    int64_t quarter_ms; /* when it was opened */
    unsigned size;
};

struct refusal_counter {
    struct mongo *mongo;
    struct stop stop;
    pthread_t thread;
    pthread_mutex_t lock;
    struct book open, closed; /* under the lock; only the thread removes counts */
    int64_t uncounted;        /* likewise */
};

static void begin_book(struct book *b)
{
    *b = (struct book){.quarter_ms = quarter_of(clock_now_ms())};
    id_random(b->writer, REFUSAL_WRITER_LEN);
}

static void note_change(struct book *b, struct count *count)
{
    if (count->changed)
        return;
    count->changed = true;
    count->next_changed = b->changed;
    b->changed = count;
}

/* NULL: no room. */
static struct count *count_of(struct book *b, const char *coupon)
{
    struct refusals_write key;
    struct count *found;

    memset(&key, 0, sizeof key);
    memcpy(key.coupon, coupon, strnlen(coupon, COUPON_ID_MAX));
    key.quarter_ms = quarter_of(clock_now_ms());
    HASH_FIND(hh, b->counts, &key, KEY_SIZE, found);
    if (found || b->size == REFUSALS_MAX)
        return found;
    found = checked(calloc(1, sizeof *found));
    memcpy(&found->write, &key, sizeof key); /* with padding */
    HASH_ADD_KEYPTR(hh, b->counts, &found->write, KEY_SIZE, found);
    b->size++;
    return found;
}

void refusal_counter_add(struct refusal_counter *c, const char *coupon, enum cpn_refusal r)
{
    struct count *count;

    pthread_mutex_lock(&c->lock);
    count = count_of(&c->open, coupon);
    if (count) {
        count->write.counts.of[r]++;
        note_change(&c->open, count);
    } else {
        c->uncounted++;
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ---- */

/* Take a book's next changed counts, and copies of them as of now. */
static size_t take_changed(struct refusal_counter *c, struct book *b, struct count *taken[REFUSALS_AT_ONCE],
                           struct refusals_write writes[REFUSALS_AT_ONCE])
{
    size_t n = 0;

    pthread_mutex_lock(&c->lock);
    while (b->changed && n < REFUSALS_AT_ONCE) {
        struct count *count = b->changed;

        b->changed = count->next_changed;
        count->changed = false;
        writes[n] = count->write;
        taken[n++] = count;
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* False: counts not written stay changed. */
static bool write_book(struct refusal_counter *c, struct store *session, struct book *b)
{
    struct refusals_write writes[REFUSALS_AT_ONCE];
    struct count *taken[REFUSALS_AT_ONCE];
    int most = REFUSALS_MAX / REFUSALS_AT_ONCE + 1; /* later refusals wait for the next time */
    size_t n;

    while (most-- && (n = take_changed(c, b, taken, writes)) > 0) {
        if (mongo_refusals_write(session, b->writer, writes, n) == STORE_OK)
            continue;
        pthread_mutex_lock(&c->lock);
        for (size_t i = 0; i < n; i++)
            note_change(b, taken[i]);
        pthread_mutex_unlock(&c->lock);
        return false;
    }
    return true;
}

static void forget_book(struct book *b)
{
    struct count *count, *next;

    HASH_ITER (hh, b->counts, count, next) {
        HASH_DEL(b->counts, count);
        free(count);
    }
    *b = (struct book){.size = 0};
}

/* Under the lock. */
static void close_book(struct refusal_counter *c)
{
    if (c->closed.size || !c->open.size || (c->open.size < REFUSALS_MAX / 2 && c->open.quarter_ms == quarter_of(clock_now_ms())))
        return;
    c->closed = c->open;
    begin_book(&c->open);
}

static bool has_changes(struct refusal_counter *c)
{
    int64_t uncounted;
    bool any;

    pthread_mutex_lock(&c->lock);
    close_book(c);
    any = c->open.changed || c->closed.changed;
    uncounted = c->uncounted;
    c->uncounted = 0;
    pthread_mutex_unlock(&c->lock);
    if (uncounted)
        log_event(LOG_WARNING, "refusals.uncounted", F_INT("count", uncounted));
    return any;
}

static void write_changes(struct refusal_counter *c)
{
    bool any = has_changes(c), good = true;

    if (any) {
        struct store *session = mongo_session(c->mongo);

        good = !stop_asked(&c->stop) || mongo_ping(session, LAST_PING_MS) == STORE_OK;
        good = good && write_book(c, session, &c->closed) && write_book(c, session, &c->open);
        session->ops->close(session);
    }
    if (good || !c->closed.changed)
        forget_book(&c->closed);
}

static void *counter_thread(void *context)
{
    struct refusal_counter *c = context;

    while (!stop_asked(&c->stop)) {
        write_changes(c);
        stop_rest(&c->stop, REFUSALS_EVERY_MS);
    }
    write_changes(c);
    return NULL;
}

struct refusal_counter *refusal_counter_start(struct mongo *m)
{
    struct refusal_counter *c = checked(calloc(1, sizeof *c));

    c->mongo = m;
    stop_init(&c->stop);
    pthread_mutex_init(&c->lock, NULL);
    begin_book(&c->open);
    thread_start(&c->thread, counter_thread, c, "refusals");
    return c;
}

static int unwritten(const struct book *b)
{
    int n = 0;

    for (const struct count *count = b->changed; count; count = count->next_changed)
        n++;
    return n;
}

void refusal_counter_stop(struct refusal_counter *c)
{
    int lost;

    stop_ask(&c->stop);
    pthread_join(c->thread, NULL);
    lost = unwritten(&c->open) + unwritten(&c->closed);
    if (lost)
        log_event(LOG_WARNING, "refusals.unwritten", F_INT("counts", lost));
    forget_book(&c->open);
    forget_book(&c->closed);
    pthread_mutex_destroy(&c->lock);
    stop_release(&c->stop);
    free(c);
}
