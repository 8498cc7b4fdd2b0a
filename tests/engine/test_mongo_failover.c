/*
 * tests/engine/test_mongo_failover.c -- a replica set of three loses its primary again and again: nothing acknowledged is
 * lost, nothing is there twice, and no tail is confirmed that had moved; nor any while its secondaries stand still. Needs a mongod
 * to start (see mongod.h).
 */
#include "cmocka_whole.h"
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "mongod.h"
#include "store/mongo.h"

#define COUPON "hot"
#define SEQS_MAX 1000000
#define WRITERS 3
#define ASKERS 2

static struct mongo *mongo; /* NULL: no mongod to start */
static int pids[3];
static char (*acknowledged)[ID_BATCH_LEN + 1]; /* by seq */
static atomic_llong newest;                    /* acknowledged */
static atomic_llong appended, refused, repeated, confirmed_moved;
static atomic_bool stopping, wrong;

static struct batch *next_batch(int64_t seq)
{
    struct batch *b = batch_new(COUPON, 0);

    batch_add(b, ENTRY_TICK);
    b->head.seq = seq;
    b->head.at_ms = clock_now_ms();
    return b;
}

/* Insert it until it is known whose seq it is. False: stopped before. */
static bool settle(struct store *session, struct append *a)
{
    while (session->ops->append(session, a, 1) != STORE_OK) {
        repeated++;
        if (stopping)
            return false;
        usleep(20000);
    }
    return true;
}

static int64_t tail_of(struct store *session, int64_t tail)
{
    struct batch *batches[100];
    size_t count;

    do {
        if (session->ops->ledger(session, COUPON, 0, tail, 100, batches, &count) != STORE_OK)
            return tail;
        for (size_t i = 0; i < count; i++) {
            tail = batches[i]->head.seq;
            batch_free(batches[i]);
        }
    } while (count == 100);
    return tail;
}

static void note(const struct batch *b)
{
    long long seen = newest;

    if (acknowledged[b->head.seq][0])
        wrong = true;
    memcpy(acknowledged[b->head.seq], b->id, sizeof b->id);
    while (seen < b->head.seq && !atomic_compare_exchange_weak(&newest, &seen, b->head.seq))
        ;
}

/* Append at the tail, as a committer does; and write a bucket as of that seq. */
static void *write_batches(void *context)
{
    struct store *session = mongo_session(mongo);
    int64_t tail = 0;

    (void)context;
    while (!stopping) {
        struct append a = {next_batch(tail + 1), APPEND_UNKNOWN};
        bool settled = settle(session, &a);

        if (settled && a.result == APPEND_OURS) {
            struct bucket k;
            struct view_write view = {.coupon = COUPON, .bucket = &k};
            struct store_time when;

            note(a.batch);
            appended++;
            tail++;
            bucket_init(&k, 0);
            k.seq = tail;
            k.size = BUCKET_SLOTS;
            while (session->ops->write_views(session, &view, 1, &when) != STORE_OK && !stopping)
                usleep(20000);
            bucket_release(&k);
        } else if (settled) {
            refused++;
            tail = tail_of(session, tail);
        }
        batch_free((struct batch *)a.batch);
    }
    session->ops->close(session);
    return NULL;
}

/* A tail that an acknowledged batch follows must never be confirmed, whichever server answers. */
static void *ask_tails(void *context)
{
    struct store *session = mongo_session(mongo);

    (void)context;
    while (!stopping) {
        struct confirm c = {COUPON, 0, newest - 1, false};

        if (c.tail < 0 || session->ops->confirm(session, &c, 1) != STORE_OK) {
            usleep(20000);
            continue;
        }
        if (c.unmoved)
            wrong = true;
        confirmed_moved++;
    }
    session->ops->close(session);
    return NULL;
}

static void check_everything(void)
{
    struct store *session = mongo_session(mongo);
    struct batch *batches[100];
    struct bucket bucket;
    struct bucket_read read = {.coupon = COUPON, .bucket = &bucket};
    int64_t seq = 0;
    size_t count;

    do {
        while (session->ops->ledger(session, COUPON, 0, seq, 100, batches, &count) != STORE_OK) /* a member may not be back yet */
            usleep(50000);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(batches[i]->head.seq, ++seq);
            if (acknowledged[seq][0])
                assert_string_equal(acknowledged[seq], batches[i]->id);
            batch_free(batches[i]);
        }
    } while (count == 100);
    assert_true(seq >= newest);
    bucket_init(&bucket, 0);
    while (session->ops->buckets(session, &read, 1) != STORE_OK)
        usleep(50000);
    assert_true(read.found);
    assert_true(bucket.seq >= newest);
    bucket_release(&bucket);
    session->ops->close(session);
}

static void wait_for_progress(void)
{
    long long before = newest;

    for (int i = 0; i < 3600 && newest < before + 20; i++)
        usleep(50000);
    assert_true(newest >= before + 20);
}

/* ---- secondaries that stand still ---- */

/* All members stop to copy what the primary writes, or go on. Whoever is primary, the others stand still. */
static void hold_members(bool hold)
{
    for (int i = 0; i < 3; i++)
        while (!mongod_run(pids[i], hold ? "{\"configureFailPoint\": \"stopReplProducer\", \"mode\": \"alwaysOn\"}"
                                         : "{\"configureFailPoint\": \"stopReplProducer\", \"mode\": \"off\"}"))
            usleep(50000);
}

FIXTURE(let_members_go)
{
    if (mongo)
        hold_members(false);
    return 0;
}

/* The primary has said so: one that does not answer may yet have its writes taken. */
static bool no_majority_writes(void)
{
    return mongod_concern_fails(mongod_primary(), "{\"insert\": \"probe\", \"documents\": [{\"held\": true}],"
                                                  " \"writeConcern\": {\"w\": \"majority\", \"wtimeout\": 300}}");
}

/* A primary that cannot have a write taken may have been replaced: it does not know whether the tail has moved. */
TEST(no_tail_is_confirmed_while_no_majority_takes_a_write)
{
    struct confirm both[] = {{COUPON, 0, 0, false}, {"another", 0, 0, false}};
    struct store *session;

    if (!mongo)
        skip();
    session = mongo_session(mongo);
    while (session->ops->confirm(session, both, 2) != STORE_OK) /* the set has just begun */
        usleep(50000);
    assert_true(both[0].unmoved && both[1].unmoved);
    hold_members(true);
    while (!no_majority_writes())
        usleep(50000);
    for (size_t count = 1; count <= 2; count++) {
        (void)session->ops->confirm(session, both, count);
        assert_false(both[0].unmoved);
        assert_false(count == 2 && both[1].unmoved);
    }
    hold_members(false);
    while (session->ops->confirm(session, both, 2) != STORE_OK)
        usleep(50000);
    assert_true(both[0].unmoved && both[1].unmoved);
    session->ops->close(session);
}

/* ---- fail-overs ---- */

TEST_WITH(what_was_acknowledged_survives_every_fail_over, NULL, NULL)
{
    pthread_t threads[WRITERS + ASKERS];

    if (!mongo)
        skip();
    acknowledged = calloc(SEQS_MAX, sizeof *acknowledged);

    for (int i = 0; i < WRITERS + ASKERS; i++)
        pthread_create(&threads[i], NULL, i < WRITERS ? write_batches : ask_tails, NULL);
    for (int round = 0; round < 2; round++) {
        int pid;

        wait_for_progress();
        while (!(pid = mongod_primary()))
            usleep(50000);
        if (round % 2) {
            mongod_kill_and_restart(pid);
        } else { /* it comes back and still believes that it is primary */
            kill(pid, SIGSTOP);
            usleep(4000000);
            kill(pid, SIGCONT);
        }
    }
    wait_for_progress();
    for (int i = 0; i < 3600 && (appended <= 100 || confirmed_moved <= 100); i++)
        usleep(50000);
    stopping = true;
    for (int i = 0; i < WRITERS + ASKERS; i++)
        pthread_join(threads[i], NULL);
    printf("# %lld batches, %lld lost races, %lld repeated, %lld tails asked\n", (long long)appended, (long long)refused,
           (long long)repeated, (long long)confirmed_moved);
    assert_false(wrong);
    assert_true(appended > 100 && confirmed_moved > 100);
    check_everything();
    free(acknowledged);
}

FIXTURE(start_set)
{
    static struct config config;
    char message[1024];
    char *uri;

    uri = sodium_init() < 0 ? NULL : mongod_start_set(3, pids);
    if (!uri) {
        printf("# skipped: no mongod to start; set COUPONS_TEST_MONGOD, or have it on PATH\n");
        return 0;
    }
    if (config_load(&config, NULL, NULL, message, sizeof message) != 0 || log_init("/dev/null", LOG_ERROR) < 0)
        return -1;
    snprintf(config.mongodb_uri, sizeof config.mongodb_uri, "%s", uri);
    free(uri);
    config.mongodb_socket_timeout_ms = 60000;
    config.mongodb_server_selection_timeout_ms = 60000;
    mongo = mongo_open(&config, message, sizeof message);
    if (!mongo || mongo_prepare(mongo, message, sizeof message) != 0) {
        printf("# %s\n", message);
        return -1;
    }
    mongo_close(mongo);
    /* Now that the collections are there: a server that stands still is soon given up. */
    config.mongodb_socket_timeout_ms = 2000;
    config.mongodb_server_selection_timeout_ms = 1000;
    mongo = mongo_open(&config, message, sizeof message);
    return mongo ? 0 : -1;
}

FIXTURE(stop_set)
{
    if (mongo)
        mongo_close(mongo);
    mongod_stop_all();
    return 0;
}

RUN_TESTS(.each_teardown = let_members_go, .setup = start_set, .teardown = stop_set)
