/*
 * bench/ledger.c -- a coupon with N takings, written straight to the database: its ledger, and all that is derived from it, as the service
 * would have left them. PROGRAM [USER:PASSWORD@]HOST:PORT DATABASE COUPON TAKINGS; the server is, or becomes, a replica set of one
 *
 * Each batch has ENTRIES takings, decided by the service's own functions, of users who take once each; time goes on by some
 * milliseconds a batch, so days and quarter hours pass. The database is prepared as the service does it
 */
#include <inttypes.h>
#include <mongoc/mongoc.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/checked.h"
#include "base/config.h"
#include "base/ids.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "store/codec.h"
#include "store/mongo.h"
#include "store/secrets.h"
#include "store/reconcile.h"

#define ENTRIES 64
#define BATCH_MS 60
#define START_MS INT64_C(1750000000000)
#define DOCUMENTS 2000
#define UNAUTHORIZED 13 /* the server is a service's own */

static struct config config;
static struct store *session;
static const struct secret *name_key;
static struct term_key terms;
static const char *coupon_id;
static mongoc_client_t *client;

static void die(const char *what)
{
    fprintf(stderr, "ledger: %s\n", what);
    exit(1);
}

/* ---- documents, many at a time ---- */

struct pile {
    mongoc_collection_t *to;
    mongoc_bulk_operation_t *bulk;
    int count;
};

static void pile_send(struct pile *p)
{
    bson_error_t error;

    if (p->bulk && !mongoc_bulk_operation_execute(p->bulk, NULL, &error))
        die(error.message);
    if (p->bulk)
        mongoc_bulk_operation_destroy(p->bulk);
    p->bulk = NULL;
    p->count = 0;
}

static void pile_add(struct pile *p, bson_t *doc)
{
    bson_t options = BSON_INITIALIZER;

    BSON_APPEND_BOOL(&options, "ordered", false);
    if (!p->bulk)
        p->bulk = mongoc_collection_create_bulk_operation_with_opts(p->to, &options);
    mongoc_bulk_operation_insert(p->bulk, doc);
    bson_destroy(&options);
    bson_destroy(doc);
    if (++p->count == DOCUMENTS)
        pile_send(p);
}

static struct pile pile_of(const char *collection)
{
    return (struct pile){.to = mongoc_client_get_collection(client, config.mongodb_database, collection)};
}

static struct pile ledger, buckets;

/* ---- the lane ---- */

static struct {
    struct head tail;
    const struct coupon *coupon;
    int64_t defined_seq, made_ms;
    struct bucket bucket; /* at hand: slots go out in order */
    struct arena arena;   /* of what stays */
    struct buf scratch;
    struct totals_row row;
    struct report_counts counts;
} lane;

static void put_bucket(void)
{
    bson_t doc = BSON_INITIALIZER, view;

    codec_id(&doc, "_id", coupon_id, "b", lane.bucket.b);
    BSON_APPEND_DOCUMENT_BEGIN(&doc, "view", &view);
    codec_bucket_put(&view, &lane.bucket);
    bson_append_document_end(&doc, &view);
    pile_add(&buckets, &doc);
    bucket_release(&lane.bucket);
    bucket_init(&lane.bucket, lane.bucket.b + 1);
    bucket_fit(&lane.bucket, lane.tail.next_n);
}

static void put_totals(void)
{
    struct rewrite m = {.kind = REWRITE_TOTALS, .coupon = coupon_id, .quarter_ms = lane.row.quarter_ms, .counts = &lane.counts,
                     .seq = lane.row.seq};
    size_t done;

    if (lane.row.seq && mongo_rewrite(session, &m, 1, &done) != STORE_OK)
        die("totals cannot be written");
}

static void append(struct decision *d)
{
    struct batch *b = d->batch;
    bson_t doc = BSON_INITIALIZER;
    struct report_counts counts = {0};
    static const struct report_counts none;

    decide_end(d, &lane.tail, &lane.scratch);
    lane.tail = b->head;
    lane.coupon = fold_definition(lane.coupon, b, &lane.arena);
    codec_batch_put(&doc, b, &terms);
    pile_add(&ledger, &doc);
    if (b->head.at_ms - b->head.at_ms % QUARTER_MS != lane.row.quarter_ms) {
        put_totals();
        lane.row.quarter_ms = b->head.at_ms - b->head.at_ms % QUARTER_MS;
        lane.counts = (struct report_counts){0};
        lane.row.seq = 0;
    }
    fold_report(&counts, b);
    if (memcmp(&counts, &none, sizeof counts) != 0) {
        report_counts_add(&lane.counts, &counts);
        lane.row.seq = b->head.seq;
    }
}

static void begin(struct decision *d)
{
    int64_t at_ms = START_MS + lane.tail.seq * BATCH_MS, day_ms = at_ms - at_ms % DAY_MS;

    decide_begin(d, batch_new(coupon_id, 0), lane.coupon, &lane.tail, at_ms, day_ms, day_ms + DAY_MS);
}

static void define(int64_t takings)
{
    struct outcome out;
    struct decision d = {.coupon = NULL};
    struct job_progress job = {.id = "made"};
    char alias[ID_ALIAS_LEN + 1];
    struct coupon c;

    coupon_init(&c);
    c.id = coupon_id;
    c.title = "a coupon";
    c.state = COUPON_ACTIVE;
    c.cap.total = takings;
    c.cap.per_user = 1;
    begin(&d);
    decide_create(&d, &c, NULL, &out);
    if (out.result != CPN_OK)
        die("the coupon cannot be made");
    append(&d);
    lane.defined_seq = lane.tail.seq;
    lane.made_ms = lane.tail.at_ms;
    batch_free(d.batch);
    id_random(alias, ID_ALIAS_LEN);
    begin(&d);
    decide_generate(&d, &job, 1, takings, 0, &out);
    if (out.result != CPN_OK)
        die("the slots cannot be made");
    append(&d);
    batch_free(d.batch);
    bucket_init(&lane.bucket, 0);
    bucket_fit(&lane.bucket, lane.tail.next_n);
}

static void take(struct decision *d, struct user_state *u, int64_t number, struct arena *a)
{
    struct take t = {.key = arena_printf(a, "key-%" PRId64, number), .state = SLOT_REDEEMED, .code_n = -1,
                     .reserve_s = COUPON_NULL};
    struct order order = {.id = arena_printf(a, "order-%" PRId64, number), .amount_minor = COUPON_NULL};
    char alias[ID_ALIAS_LEN + 1];
    struct outcome out;

    t.order = &order;
    id_random(alias, ID_ALIAS_LEN);
    user_state_init(u, arena_printf(a, "user-%" PRId64, number), arena_strdup(a, alias));
    if (!decide_take(d, u, &t, &out) || out.result != CPN_OK)
        die("a taking was refused");
}

/* The next takings, and their buckets. */
static int64_t live(int64_t from, int64_t until)
{
    struct free_slot free_pool[ENTRIES];
    struct user_state user_states[ENTRIES];
    struct decision d = {.coupon = NULL};
    struct arena a;
    int64_t count = until - from < ENTRIES ? until - from : ENTRIES;

    arena_init(&a, 0);
    begin(&d);
    for (int64_t i = 0; i < count; i++)
        free_pool[i] = (struct free_slot){.n = from + i};
    d.free_pool = free_pool;
    d.free_pool_count = (size_t)count;
    for (int64_t i = 0; i < count; i++)
        take(&d, &user_states[i], from + i, &a);
    decide_events(&d);
    append(&d);
    while (lane.bucket.b * BUCKET_SLOTS < from + count) {
        fold_bucket(&lane.bucket, d.batch);
        if ((lane.bucket.b + 1) * BUCKET_SLOTS > from + count && from + count < until)
            break;
        put_bucket();
    }
    batch_free(d.batch);
    arena_free(&a);
    return from + count;
}

/* What there is one of: the definition, the checkpoint, and the position in the totals. */
static void finish(void)
{
    const struct checkpoint checkpoint = {.seq = lane.tail.seq};
    struct rewrite rewrites[] = {
        {.kind = REWRITE_COUPON, .coupon = coupon_id, .definition = lane.coupon, .seq = lane.defined_seq,
         .created_ms = lane.made_ms, .changed_ms = lane.made_ms},
        {.kind = REWRITE_CHECKPOINT, .coupon = coupon_id, .checkpoint = &checkpoint},
        {.kind = REWRITE_TOTALS_POSITION, .coupon = coupon_id, .seq = lane.tail.seq, .at_ms = lane.tail.at_ms},
    };
    size_t done = 0;

    pile_send(&ledger);
    pile_send(&buckets);
    put_totals();
    if (mongo_rewrite(session, rewrites, sizeof rewrites / sizeof *rewrites, &done) != STORE_OK)
        die("the positions in the totals cannot be written");
}

/* It was written with what memory the machine has to spare; it is read with what a small server has. */
static void shrink_cache(void)
{
    bson_t *command = BCON_NEW("setParameter", BCON_INT32(1), "wiredTigerEngineRuntimeConfig", "cache_size=1G");
    bson_error_t error;

    if (!mongoc_client_command_simple(client, "admin", command, NULL, NULL, &error) && error.code != UNAUTHORIZED)
        die(error.message);
    bson_destroy(command);
}

/* Of a server that was started with --replSet and no more. */
static void initiate(const char *address)
{
    char uri[256];
    mongoc_client_t *direct;
    bson_t *command = BCON_NEW("replSetInitiate", "{", "_id", BCON_UTF8("rs0"), "members", "[", "{", "_id", BCON_INT32(0), "host",
                               BCON_UTF8(address), "}", "]", "}");
    bson_t *ask = BCON_NEW("hello", BCON_INT32(1)), reply;
    bool primary = false;

    snprintf(uri, sizeof uri, "mongodb://%s/?directConnection=true&serverSelectionTimeoutMS=30000", address);
    direct = checked(mongoc_client_new(uri));
    while (!primary) {
        bson_iter_t it;
        bool said;

        mongoc_client_command_simple(direct, "admin", command, NULL, NULL, NULL); /* fails where it is one already */
        said = mongoc_client_command_simple(direct, "admin", ask, NULL, &reply, NULL);
        primary = said && bson_iter_init_find(&it, &reply, "isWritablePrimary") && bson_iter_as_bool(&it);
        bson_destroy(&reply);
        usleep(100000);
    }
    bson_destroy(ask);
    bson_destroy(command);
    mongoc_client_destroy(direct);
}

int main(int argc, char **argv)
{
    char message[1024];
    struct mongo *mongo;
    int64_t takings = argc == 5 ? strtoll(argv[4], NULL, 10) : 0, done = 0;

    if (takings < 1)
        die("usage: ledger HOST:PORT DATABASE COUPON TAKINGS");
    if (sodium_init() < 0 || config_load(&config, NULL, NULL, message, sizeof message) != 0)
        die("cannot begin");
    snprintf(config.mongodb_uri, sizeof config.mongodb_uri, "mongodb://%s/?replicaSet=rs0", argv[1]);
    snprintf(config.mongodb_database, sizeof config.mongodb_database, "%s", argv[2]);
    coupon_id = argv[3];
    mongoc_init();
    initiate(argv[1]);
    mongo = mongo_open(&config, message, sizeof message);
    if (!mongo || mongo_prepare(mongo, message, sizeof message) != 0)
        die(message);
    session = mongo_session(mongo);
    if (mongo_name_key(session, &name_key) != STORE_OK || !(client = mongoc_client_new(config.mongodb_uri)))
        die("the database cannot be reached");
    terms = term_key(name_key);
    arena_init(&lane.arena, 0);
    ledger = pile_of("ledger");
    buckets = pile_of("buckets");
    define(takings);
    while (done < takings)
        done = live(done, takings);
    finish();
    shrink_cache();
    return 0;
}
