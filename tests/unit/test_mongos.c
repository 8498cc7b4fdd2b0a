/*
 * tests/unit/test_mongos.c -- what a mongos answers that a replica set does not, through the store: batches of several shards of which a
 * part fails, stale routing tables, shards that cannot be reached, errors in the middle of a result, tokens of change streams.
 *
 * Replies  have the form of MongoDB's manual ("Database Commands", "Error Codes", "Change Streams") and of jstests/sharding there
 */
#include "cmocka_whole.h"
#include <sodium.h>

#include "base/buf.h"
#include "base/config.h"
#include "ctl/doctor.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/mongo.h"
#include "store/schema.h"
#include "unit/fake_mongos.h"

#define T0 INT64_C(1795132800000)
#define BATCHES 4

static struct config config;
static struct mongo *mongo;
static struct store *session;
static struct batch *batches[BATCHES]; /* of several coupons, each on some shard */
static struct append appends[BATCHES];

static void make_batches(void)
{
    static const char *const coupons[BATCHES] = {"a", "b", "c", "d"};

    for (size_t i = 0; i < BATCHES; i++) {
        batches[i] = batch_new(coupons[i], 0);
        batch_add(batches[i], ENTRY_TICK);
        batches[i]->head.seq = 7;
        batches[i]->head.at_ms = T0;
        batches[i]->head.version = 1;
        appends[i] = (struct append){batches[i], APPEND_THEIRS};
    }
}

/* Appends need it; the session keeps it. */
static bool read_name_key(void)
{
    uint64_t hash;

    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.secrets\", \"firstBatch\": [{\"_id\": \"names\", \"key\":"
                        " {\"$binary\": {\"base64\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\", \"subType\": \"00\"}}}]}}");
    if (session->ops->user_hash(session, "u", &hash) != STORE_OK)
        return false;
    mongos_done();
    return true;
}

static int start_at(uint16_t port)
{
    char message[1024];

    if (sodium_init() < 0 || config_load(&config, NULL, NULL, message, sizeof message) != 0)
        return -1;
    snprintf(config.mongodb_uri, sizeof config.mongodb_uri, "mongodb://127.0.0.1:%u/", port);
    config.mongodb_socket_timeout_ms = 60000; /* the machine may have much other work */
    mongo = mongo_open(&config, message, sizeof message);
    session = mongo ? mongo_session(mongo) : NULL;
    make_batches();
    return session && read_name_key() ? 0 : -1;
}

FIXTURE(start)
{
    return start_at(mongos_start());
}

FIXTURE(start_member)
{
    return start_at(mongos_start_member());
}

FIXTURE(stop)
{
    for (size_t i = 0; i < BATCHES; i++)
        batch_free(batches[i]);
    session->ops->close(session);
    mongo_close(mongo);
    mongos_stop();
    return 0;
}

/* ---- an append of the batches ---- */

/* An append of four that is answered so has these results. */
static void append_is(enum store_status status, const enum append_result results[BATCHES])
{
    assert_int_equal(session->ops->append(session, appends, BATCHES), status);
    for (size_t i = 0; i < BATCHES; i++)
        assert_int_equal(appends[i].result, results[i]);
    mongos_done();
}

static const enum append_result all_unknown[BATCHES] = {APPEND_UNKNOWN, APPEND_UNKNOWN, APPEND_UNKNOWN, APPEND_UNKNOWN};

TEST(an_insert_names_majority_journal_and_no_order)
{
    const enum append_result ours[BATCHES] = {APPEND_OURS, APPEND_OURS, APPEND_OURS, APPEND_OURS};
    bson_t concern;
    const char *w;
    bson_iter_t it;

    mongos_will("insert", "{\"n\": 4}");
    assert_int_equal(session->ops->append(session, appends, BATCHES), STORE_OK);
    assert_true(bson_iter_init_find(&it, mongos_asked(0), "ordered") && !bson_iter_bool(&it));
    assert_true(find_document(mongos_asked(0), "writeConcern", &concern));
    assert_true(find_text(&concern, "w", &w) && strcmp(w, "majority") == 0);
    assert_true(bson_iter_init_find(&it, &concern, "j") && bson_iter_bool(&it));
    mongos_done();
    for (size_t i = 0; i < BATCHES; i++)
        assert_int_equal(appends[i].result, ours[i]);
}

/* One shard has taken its part, one has the seq already, one is not reached, and of one the routing stayed stale. */
TEST(each_batch_of_an_insert_stands_for_itself)
{
    const enum append_result results[BATCHES] = {APPEND_OURS, APPEND_THEIRS, APPEND_UNKNOWN, APPEND_UNKNOWN};

    mongos_will("insert",
                "{\"n\": 1, \"writeErrors\": ["
                "{\"index\": 1, \"code\": 11000, \"keyPattern\": {\"_id\": 1}, \"keyValue\": {\"_id\": {\"c\": \"b\", \"l\": 0, \"seq\": 7}},"
                " \"errmsg\": \"E11000 duplicate key error collection: coupons.ledger index: _id_ dup key: { _id: { c: \\\"b\\\" } }\"},"
                "{\"index\": 2, \"code\": 6, \"codeName\": \"HostUnreachable\","
                " \"errmsg\": \"Write results unavailable from failing to target a host in the shard shard01 :: caused by :: Error connecting\"},"
                "{\"index\": 3, \"code\": 13388, \"codeName\": \"StaleConfig\", \"errmsg\": \"epoch mismatch detected for coupons.ledger\","
                " \"errInfo\": {\"ns\": \"coupons.ledger\", \"shardId\": \"shard02\"}}]}");
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": ["
                        "{\"_id\": {\"c\": \"b\", \"l\": 0, \"seq\": 7}, \"batch\": \"another's\"}]}}");
    append_is(STORE_FAILED, results);
}

/* A reply was lost on the way from a shard, and mongos has sent the batch again: the duplicate is its own. */
TEST(a_duplicate_that_is_ours_counts_as_appended)
{
    const enum append_result results[BATCHES] = {APPEND_OURS, APPEND_OURS, APPEND_OURS, APPEND_OURS};
    char reply[512];
    bson_t filter, coupons;

    snprintf(reply, sizeof reply, "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": ["
             "{\"_id\": {\"c\": \"d\", \"l\": 0, \"seq\": 7}, \"batch\": \"%s\"}]}}", batches[3]->id);
    mongos_will("insert", "{\"n\": 3, \"writeErrors\": [{\"index\": 3, \"code\": 11000, \"errmsg\": \"\"}]}");
    /* It is not there with majority at once. */
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
    assert_int_equal(session->ops->append(session, appends, BATCHES), STORE_FAILED);
    assert_true(find_document(mongos_asked(1), "filter", &filter) && find_document(&filter, "_id.c", &coupons));
    assert_int_equal(appends[3].result, APPEND_UNKNOWN);
    mongos_done();
    mongos_will("insert", "{\"n\": 0, \"writeErrors\": [{\"index\": 0, \"code\": 11000, \"errmsg\": \"\"}]}");
    mongos_will("find", reply);
    assert_int_equal(session->ops->append(session, &appends[3], 1), STORE_OK);
    mongos_done();
    for (size_t i = 0; i < BATCHES; i++)
        assert_int_equal(appends[i].result, results[i]);
}

/* Of what a majority of some shard has not acknowledged nothing is known, duplicates and other errors included. */
static const char *const open_replies[] = {
    /* the write concerns of two shards failed, in one field */
    "{\"n\": 4, \"writeConcernError\": {\"code\": 64, \"codeName\": \"WriteConcernFailed\", \"errmsg\": \"Multiple errors reported :: "
    "{ shard01: waiting for replication timed out, shard02: waiting for replication timed out }\"}}",
    "{\"n\": 3, \"writeErrors\": [{\"index\": 0, \"code\": 11000, \"errmsg\": \"E11000\"}],"
    " \"writeConcernError\": {\"code\": 91, \"codeName\": \"ShutdownInProgress\", \"errmsg\": \"\", \"errInfo\": {}}}",
    /* the whole command failed: nothing says which shards have done their part */
    "{\"ok\": 0, \"code\": 6, \"codeName\": \"HostUnreachable\", \"errmsg\": \"connection refused\", \"errorLabels\": [\"RetryableWriteError\"]}",
    "{\"ok\": 0, \"code\": 13388, \"codeName\": \"StaleConfig\", \"errmsg\": \"version mismatch detected for coupons.ledger\"}",
    "{\"ok\": 0, \"code\": 249, \"codeName\": \"StaleDbVersion\", \"errmsg\": \"database version mismatch for coupons\"}",
    "{\"ok\": 0, \"code\": 82, \"codeName\": \"NoProgressMade\", \"errmsg\": \"no progress was made executing batch write op in "
    "coupons.ledger after 5 rounds (0 ops completed in 6 rounds total)\"}",
    "{\"ok\": 0, \"code\": 133, \"codeName\": \"FailedToSatisfyReadPreference\", \"errmsg\": \"Could not find host matching read preference "
    "{ mode: \\\"primary\\\" } for set shard01\"}",
    "{\"ok\": 0, \"code\": 70, \"codeName\": \"ShardNotFound\", \"errmsg\": \"Shard shard01 not found\"}",
    "{\"ok\": 0, \"code\": 202, \"codeName\": \"NetworkInterfaceExceededTimeLimit\", \"errmsg\": \"timed out\"}",
    /* an error of a document that nobody sent */
    "{\"n\": 3, \"writeErrors\": [{\"index\": 4, \"code\": 11000, \"errmsg\": \"E11000\"}]}",
    "{\"n\": 3, \"writeErrors\": [{\"code\": 11000, \"errmsg\": \"E11000\"}]}",
    /* and none at all: the router has ended */
    NULL,
};

TEST(what_a_reply_leaves_open_is_unknown)
{
    for (size_t i = 0; i < sizeof open_replies / sizeof *open_replies; i++) {
        mongos_will("insert", open_replies[i]);
        append_is(STORE_FAILED, all_unknown);
    }
}

/* ---- other writes ---- */

TEST(a_mark_that_one_shard_refuses_is_not_moved)
{
    struct totals_position_write positions[] = {{.coupon = "a", .seq = 3},
                                 {.coupon = "b", .seq = 4}};
    static const char refused[] = "{\"n\": 1, \"nModified\": 1, \"writeErrors\": [{\"index\": 1, \"code\": 6, \"codeName\": "
                                  "\"HostUnreachable\", \"errmsg\": \"Write results unavailable\"}]}";

    mongos_will("update", refused);
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_FAILED);
    mongos_done();
    /* Both are newer there already: the second time, without insert, nothing matches, and nothing need. */
    mongos_will("update", "{\"n\": 0, \"nModified\": 0, \"writeErrors\": [{\"index\": 0, \"code\": 11000, \"errmsg\": \"E11000\"},"
                          "{\"index\": 1, \"code\": 11000, \"errmsg\": \"E11000\"}]}");
    mongos_will("update", "{\"n\": 0, \"nModified\": 0}");
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_OK);
    mongos_done();
    mongos_will("update", "{\"n\": 2, \"nModified\": 2, \"writeConcernError\": {\"code\": 64, \"errmsg\": \"timed out\"}}");
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_FAILED);
    mongos_done();
}

/* Buckets that are new: of those refused, the one that exists is updated, the other one is the caller's to write again. */
TEST(buckets_are_written_but_those_that_a_shard_refuses)
{
    struct bucket buckets[] = {{.b = 0, .seq = 1}, {.b = 1, .seq = 1}, {.b = 2, .seq = 1}};
    struct view_write views[] = {{.coupon = "a", .bucket = &buckets[0]},
                                 {.coupon = "b", .bucket = &buckets[1]},
                                 {.coupon = "c", .bucket = &buckets[2]}};
    struct store_time when;

    mongos_will("insert", "{\"n\": 1, \"writeErrors\": [{\"index\": 1, \"code\": 11000, \"errmsg\": \"E11000\"},"
                          "{\"index\": 2, \"code\": 6, \"codeName\": \"HostUnreachable\", \"errmsg\": \"Write results unavailable\"}]}");
    mongos_will("update", "{\"n\": 1, \"nModified\": 1}");
    assert_int_equal(session->ops->write_views(session, views, 3, &when), STORE_FAILED);
    assert_true(views[0].written && views[1].written && !views[2].written);
    assert_true(when.seconds > 0);
    mongos_done();
    /* What a majority of a shard has not acknowledged is not written, whichever shard it was. */
    mongos_will("insert", "{\"n\": 3, \"writeConcernError\": {\"code\": 64, \"codeName\": \"WriteConcernFailed\", \"errmsg\": \"\"}}");
    assert_int_equal(session->ops->write_views(session, views, 3, &when), STORE_FAILED);
    assert_true(!views[0].written && !views[1].written && !views[2].written);
    mongos_done();
}

/* ---- reads ---- */

static const char *const failed_reads[] = {
    "{\"ok\": 0, \"code\": 13388, \"codeName\": \"StaleConfig\", \"errmsg\": \"\"}",
    "{\"ok\": 0, \"code\": 6, \"codeName\": \"HostUnreachable\", \"errmsg\": \"\"}",
    "{\"ok\": 0, \"code\": 50, \"codeName\": \"MaxTimeMSExpired\", \"errmsg\": \"operation exceeded time limit\"}",
    "{\"ok\": 0, \"code\": 134, \"codeName\": \"ReadConcernMajorityNotAvailableYet\", \"errmsg\": \"\"}",
    NULL,
};

TEST(a_read_that_some_shard_fails_has_failed)
{
    struct totals_position_read reads[] = {{.coupon = "a"}, {.coupon = "b"}};

    for (size_t i = 0; i < sizeof failed_reads / sizeof *failed_reads; i++) {
        mongos_will("find", failed_reads[i]);
        assert_int_equal(session->ops->totals_positions(session, reads, 2), STORE_FAILED);
        assert_int_equal(reads[0].status, STORE_FAILED);
        mongos_done();
    }
}

/* mongos may have nothing yet and go on; and the shard that it waits for may go away. */
TEST(a_result_comes_in_pieces_or_not_at_all)
{
    struct totals_position_read reads[] = {{.coupon = "a"}, {.coupon = "b"}};

    mongos_will("find", "{\"cursor\": {\"id\": 77, \"ns\": \"coupons.totals_positions\", \"firstBatch\": []}}");
    mongos_will("getMore", "{\"cursor\": {\"id\": 77, \"ns\": \"coupons.totals_positions\", \"nextBatch\": ["
                           "{\"_id\": {\"c\": \"b\", \"l\": 0}, \"seq\": 9}]}}");
    mongos_will("getMore", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.totals_positions\", \"nextBatch\": []}}");
    assert_int_equal(session->ops->totals_positions(session, reads, 2), STORE_OK);
    assert_int_equal(reads[0].seq, 0);
    assert_int_equal(reads[1].seq, 9);
    mongos_done();
    mongos_will("find", "{\"cursor\": {\"id\": 77, \"ns\": \"coupons.totals_positions\", \"firstBatch\": []}}");
    mongos_will("getMore", "{\"ok\": 0, \"code\": 43, \"codeName\": \"CursorNotFound\", \"errmsg\": \"cursor id 77 not found\"}");
    assert_int_equal(session->ops->totals_positions(session, reads, 2), STORE_FAILED);
    assert_int_equal(reads[1].seq, 0);
    mongos_done();
}

/* ---- confirming a tail: one linearizable read of the shard that the lane is on ---- */

TEST(a_tail_is_confirmed_by_a_linearizable_read)
{
    struct confirm c = {.coupon = "a", .lane = 0, .tail = 6};
    const char *level;
    bson_t concern;

    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
    assert_int_equal(session->ops->confirm(session, &c, 1), STORE_OK);
    assert_true(c.unmoved);
    assert_true(find_document(mongos_asked(0), "readConcern", &concern) && find_text(&concern, "level", &level));
    assert_string_equal(level, "linearizable");
    mongos_done();
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": [{\"_id\": {\"c\": \"a\", \"l\": 0, \"seq\": 7}}]}}");
    assert_int_equal(session->ops->confirm(session, &c, 1), STORE_OK);
    assert_false(c.unmoved);
    mongos_done();
    for (size_t i = 0; i < sizeof failed_reads / sizeof *failed_reads; i++) {
        mongos_will("find", failed_reads[i]);
        assert_int_equal(session->ops->confirm(session, &c, 1), STORE_FAILED);
        assert_false(c.unmoved);
        mongos_done();
    }
}

/* ---- of a replica set: what a read is not before ---- */

#define NOTHING(collection) "{\"cursor\": {\"id\": 0, \"ns\": \"coupons." collection "\", \"firstBatch\": []}}"
#define LATE INT64_C(1800000000) /* seconds: later than any that the server tells by itself */

/* The k-th command reads what a majority has, not before that moment. */
static void assert_not_before(size_t k, uint32_t increment)
{
    uint32_t seconds, count;
    const char *level;
    bson_t concern;
    bson_iter_t it;

    assert_true(find_document(mongos_asked(k), "readConcern", &concern) && find_text(&concern, "level", &level));
    assert_true(strcmp(level, "majority") == 0 || strcmp(level, "snapshot") == 0);
    assert_true(bson_iter_init_find(&it, &concern, "afterClusterTime"));
    bson_iter_timestamp(&it, &seconds, &count);
    assert_int_equal(seconds, LATE);
    assert_int_equal(count, increment);
}

TEST_WITH(a_tail_is_confirmed_by_a_read_that_is_not_before_its_own_write, start_member, stop)
{
    struct confirm c = {.coupon = "a", .lane = 0, .tail = 6};

    mongos_will("update", "{\"n\": 1, \"operationTime\": {\"$timestamp\": {\"t\": 1800000000, \"i\": 7}}}");
    mongos_will("find", NOTHING("ledger"));
    assert_int_equal(session->ops->confirm(session, &c, 1), STORE_OK);
    assert_true(c.unmoved);
    assert_not_before(1, 7);
    mongos_done();
}

TEST_WITH(whose_a_duplicate_is_tells_a_read_that_is_not_before_the_insert, start_member, stop)
{
    mongos_will("insert", "{\"n\": 3, \"writeErrors\": [{\"index\": 1, \"code\": 11000, \"errmsg\": \"\"}],"
                          " \"operationTime\": {\"$timestamp\": {\"t\": 1800000000, \"i\": 9}}}");
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": ["
                        "{\"_id\": {\"c\": \"b\", \"l\": 0, \"seq\": 7}, \"batch\": \"another's\"}]}}");
    assert_int_equal(session->ops->append(session, appends, BATCHES), STORE_OK);
    assert_int_equal(appends[1].result, APPEND_THEIRS);
    assert_not_before(1, 9);
    mongos_done();
}

/* As of a tail that this session heard of: a read before it would miss what the tail has. */
TEST_WITH(no_read_of_a_lane_is_before_what_the_session_heard_of, start_member, stop)
{
    struct arena a;
    struct batch *found[2];
    struct bucket bucket = {0};
    struct job_progress *job;
    struct checkpoint_read checkpoint = {.coupon = "a"};
    struct coupon_read definition = {.coupon = "a", .arena = &a};
    struct user_read user = {.coupon = "a", .user = "ann"};
    struct bucket_read bucket_read = {.coupon = "a", .bucket = &bucket};
    struct code_read code = {.coupon = "a", .code = "C"};
    struct due_batches due = {.coupon = "a", .most = 2, .batches = found};
    size_t count;

    arena_init(&a, 0);
    session->ops->saw(session, (struct store_time){(uint32_t)LATE, 3});
    mongos_will("find", NOTHING("lanes"));
    assert_int_equal(session->ops->checkpoints(session, &checkpoint, 1), STORE_OK);
    mongos_will("find", NOTHING("coupons"));
    assert_int_equal(session->ops->coupons(session, &definition, 1), STORE_OK);
    mongos_will("find", NOTHING("ledger"));
    assert_int_equal(session->ops->ledger(session, "a", 0, 6, 2, found, &count), STORE_OK);
    mongos_will("find", NOTHING("ledger"));
    assert_int_equal(session->ops->users(session, &a, &user, 1), STORE_OK);
    mongos_will("aggregate", NOTHING("ledger"));
    assert_int_equal(session->ops->job(session, "a", 0, "j", &a, &job), STORE_OK);
    mongos_will("find", NOTHING("ledger"));
    assert_int_equal(session->ops->due_batches(session, &due), STORE_OK);
    mongos_will("find", NOTHING("buckets"));
    assert_int_equal(session->ops->buckets(session, &bucket_read, 1), STORE_OK);
    mongos_will("find", NOTHING("codes"));
    assert_int_equal(session->ops->codes(session, &code, 1), STORE_OK);
    for (size_t k = 0; k < 8; k++)
        assert_not_before(k, 3);
    mongos_done();
    bucket_release(&bucket);
    arena_free(&a);
}

/* ---- an erasure whose batch others change each time ---- */

#define ERASURE_ROUNDS 100 /* as in erasure.c */

TEST_WITH(an_erasure_that_changed_nothing_each_time_has_failed, start_member, stop)
{
    const struct erasure e = {.coupon = "a", .alias = "0123456789abcdef", .seq = 1};
    struct batch *b = batch_new("a", 0);
    struct entry *entry = batch_add(b, ENTRY_ERASE);
    const struct term_key key = {{0}};
    bson_t doc = BSON_INITIALIZER;
    char *json, *reply;

    entry->user = "ann";
    memcpy(entry->alias, e.alias, sizeof entry->alias);
    b->head = (struct head){.seq = 1, .at_ms = T0, .version = 1};
    codec_batch_put(&doc, b, &key);
    json = bson_as_canonical_extended_json(&doc, NULL);
    assert_true(asprintf(&reply, "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": [%s]}}", json) > 0);
    for (int i = 0; i < ERASURE_ROUNDS; i++) {
        mongos_will("find", reply); /* the note is still there */
        mongos_will("find", NOTHING("ledger"));
        mongos_will("update", "{\"n\": 0, \"nModified\": 0}");
    }
    assert_int_equal(mongo_erase_names(session, &e), STORE_FAILED);
    mongos_done();
    free(reply);
    bson_free(json);
    bson_destroy(&doc);
    batch_free(b);
}

/* ---- change streams ---- */

#define EVENT(token, seq)                                                                                              \
    "{\"_id\": {\"_data\": \"" token "\"}, \"operationType\": \"insert\", \"ns\": {\"db\": \"coupons\", \"coll\": \"ledger\"},"        \
    " \"documentKey\": {\"_id\": {\"c\": \"a\", \"l\": 0, \"seq\": " #seq "}}}"
#define PAGE(batch, token, events)                                                                                     \
    "{\"cursor\": {\"id\": 99, \"ns\": \"coupons.ledger\", \"" batch "\": [" events "], \"postBatchResumeToken\": {\"_data\": \"" token "\"}}}"

/* What the last `aggregate` that the k-th command was goes on from; NULL: from now. */
static const char *begins_after(size_t k, const char *member)
{
    const char *token = NULL;
    bson_t pipeline, first, stage, after;

    assert_true(find_array(mongos_asked(k), "pipeline", &pipeline) && find_document(&pipeline, "0", &first));
    assert_true(find_document(&first, "$changeStream", &stage));
    if (find_document(&stage, member, &after))
        assert_true(find_text(&after, "_data", &token));
    return token;
}

static void assert_token(const struct feed *f, const char *wanted)
{
    struct feed_position p = {NULL, 0};
    const char *data;
    bson_t token;

    feed_keep(f, &p);
    assert_true(bson_init_static(&token, p.token, p.size) && find_text(&token, "_data", &data));
    assert_string_equal(data, wanted);
    feed_forget(&p);
}

/* The token of a quiet stream is mongos' own, of the time that all shards have reached. */
TEST(a_quiet_stream_goes_on_from_the_token_of_all_shards)
{
    struct feed_position p = {NULL, 0};
    struct batch_key key;
    struct feed *f;

    mongos_will("aggregate", PAGE("firstBatch", "8265AA01", ""));
    mongos_will("getMore", PAGE("nextBatch", "8265AA02", ""));
    f = feed_open_keys(session, NULL);
    assert_null(begins_after(0, "startAfter"));
    assert_int_equal(feed_next_key(f, &key), 0);
    assert_token(f, "8265AA02");
    mongos_will("getMore", PAGE("nextBatch", "8265AA09", EVENT("8265AA03", 5) ", " EVENT("8265AA04", 6)));
    assert_int_equal(feed_next_key(f, &key), 1);
    assert_int_equal(key.seq, 5);
    assert_token(f, "8265AA03"); /* in the middle: that event's own */
    assert_int_equal(feed_next_key(f, &key), 1);
    assert_int_equal(key.seq, 6);
    assert_token(f, "8265AA09");
    feed_keep(f, &p);
    feed_close(f);
    mongos_done();
    mongos_will("aggregate", PAGE("firstBatch", "8265AA0A", ""));
    f = feed_open_keys(session, &p);
    assert_string_equal(begins_after(0, "startAfter"), "8265AA09");
    feed_close(f);
    feed_forget(&p);
    mongos_done();
}

/* A shard's primary changes, or a router ends: the driver goes on from the last event, and none comes twice. */
TEST(a_stream_that_can_go_on_goes_on)
{
    static const char *const breaks[] = {
        "{\"ok\": 0, \"code\": 10107, \"codeName\": \"NotWritablePrimary\", \"errmsg\": \"\", \"errorLabels\": [\"ResumableChangeStreamError\"]}",
        "{\"ok\": 0, \"code\": 133, \"codeName\": \"FailedToSatisfyReadPreference\", \"errmsg\": \"\","
        " \"errorLabels\": [\"ResumableChangeStreamError\"]}",
        "{\"ok\": 0, \"code\": 13388, \"codeName\": \"StaleConfig\", \"errmsg\": \"\", \"errorLabels\": [\"ResumableChangeStreamError\"]}",
        "{\"ok\": 0, \"code\": 43, \"codeName\": \"CursorNotFound\", \"errmsg\": \"\"}",
        NULL,
    };
    struct batch_key key;

    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        struct feed *f;
        int got;

        mongos_will("aggregate", PAGE("firstBatch", "8265AA03", EVENT("8265AA03", 5)));
        f = feed_open_keys(session, NULL);
        assert_int_equal(feed_next_key(f, &key), 1);
        mongos_will("getMore", breaks[i]);
        mongos_will("aggregate", PAGE("firstBatch", "8265AA04", EVENT("8265AA04", 6)));
        while ((got = feed_next_key(f, &key)) == 0) /* it resumes on the way */
            ;
        assert_int_equal(got, 1);
        assert_int_equal(key.seq, 6);
        assert_string_equal(begins_after(2, "resumeAfter"), "8265AA03");
        feed_close(f);
        mongos_done();
    }
}

/* A token that no shard's history has any more: catch up from the ledger. */
TEST(a_stream_whose_history_is_lost_says_so)
{
    static const char *const ends[] = {
        "{\"ok\": 0, \"code\": 286, \"codeName\": \"ChangeStreamHistoryLost\", \"errmsg\": \"Executor error during getMore :: caused by :: "
        "Resume of change stream was not possible, as the resume point may no longer be in the oplog.\","
        " \"errorLabels\": [\"NonResumableChangeStreamError\"]}",
        ("{\"ok\": 0, \"code\": 280, \"codeName\": \"ChangeStreamFatalError\", \"errmsg\": \"cannot resume stream; the resume token was not "
        "found. {_data: \\\"8265AA03\\\"}\", \"errorLabels\": [\"NonResumableChangeStreamError\"]}"),
        "{\"ok\": 0, \"code\": 260, \"codeName\": \"InvalidResumeToken\", \"errmsg\": \"\"}",
    };
    struct batch_key key;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct feed *f;

        mongos_will("aggregate", PAGE("firstBatch", "8265AA03", ""));
        mongos_will("getMore", ends[i]);
        f = feed_open_keys(session, NULL);
        assert_int_equal(feed_next_key(f, &key), -2);
        feed_close(f);
        mongos_done();
    }
}

/* ---- what doctor asks ---- */

TEST_WITH(doctor_knows_which_versions_leak, NULL, NULL)
{
    static const struct {
        const char *version;
        bool fixed;
    } rows[] = {{"4.2.25", false}, {"4.4.29", false}, {"4.4.30", true}, {"5.0.31", false}, {"5.0.32", true}, {"6.0.5", false}, {"6.0.26", false},
                {"6.0.27", true}, {"6.0.27-23", true}, {"6.3.2", false}, {"7.0.27", false}, {"7.0.28", true}, {"7.3.4", false}, {"8.0.16", false},
                {"8.0.17", true}, {"8.1.2", false}, {"8.2.2", false}, {"8.2.3", true}, {"8.3.0", true}, {"9.0.0", true}, {"", false}, {"x", false}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (doctor_is_fixed(rows[i].version) != rows[i].fixed)
            fail_msg("%s", rows[i].version);
}

#define SHARDED(collection) "{\"_id\": \"coupons." collection "\", \"key\": {\"_id.c\": \"hashed\"}, \"unique\": false}, "
#define FOUND(collection, documents)                                                                                   \
    "{\"cursor\": {\"id\": 0, \"ns\": \"config." collection "\", \"firstBatch\": [" documents "]}}"
#define SHARDS FOUND("shards", "{\"_id\": \"shard01\", \"host\": \"a/a:1\", \"state\": 1}, {\"_id\": \"shard02\", \"host\": \"b/b:1\", \"state\": 1}")
#define MOST                                                                                                                         \
    SHARDED("ledger") SHARDED("buckets") SHARDED("totals") SHARDED("totals_positions") SHARDED("codes") SHARDED("code_buckets")     \
    SHARDED("refusals")
#define COUPONS "{\"_id\": \"coupons.coupons\", \"key\": {\"_id\": \"hashed\"}}"
#define BALANCER(mode) "{\"mode\": \"" mode "\", \"inBalancerRound\": false, \"numBalancerRounds\": {\"$numberLong\": \"86\"}}"

static const struct {
    const char *collections, *balancer;
    struct shard_facts facts;
} clusters[] = {
    {FOUND("collections", MOST SHARDED("lanes") COUPONS), BALANCER("full"), {.shards = 2, .balances = true}},
    {FOUND("collections", MOST SHARDED("lanes") COUPONS), BALANCER("off"), {.shards = 2}},
    {FOUND("collections", MOST COUPONS), BALANCER("full"), {.shards = 2, .balances = true, .whole = "lanes"}},
    /* of MongoDB 8.0: it is known, and not sharded */
    {FOUND("collections", MOST COUPONS ", {\"_id\": \"coupons.lanes\", \"key\": {\"_id\": 1}, \"unsplittable\": true},"
           " {\"_id\": \"coupons.jobs\", \"key\": {\"_id\": 1}, \"unsplittable\": true}"), BALANCER("full"),
     {.shards = 2, .balances = true, .whole = "lanes"}},
    {FOUND("collections", MOST COUPONS ", {\"_id\": \"coupons.lanes\", \"key\": {\"_id.c\": 1}, \"noBalance\": true},"
           " {\"_id\": \"coupons.jobs\", \"key\": {\"coupon\": 1}}"), BALANCER("full"),
     {.shards = 2, .balances = true, .other = "lanes by { \"_id.c\" : 1 }, jobs by { \"coupon\" : 1 }", .still = "lanes"}},
    {FOUND("collections", ""), BALANCER("full"),
     {.shards = 2, .balances = true, .whole = "ledger, coupons, buckets, totals, refusals, lanes, totals_positions, codes, code_buckets"}},
};

TEST(doctor_sees_keys_and_balancer)
{
    struct shard_facts facts;
    const char *database;

    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        mongos_will("find", SHARDS);
        mongos_will("find", clusters[i].collections);
        mongos_will("balancerStatus", clusters[i].balancer);
        assert_int_equal(server_shards(session, &facts), STORE_OK);
        assert_true(find_text(mongos_asked(1), "$db", &database) && strcmp(database, "config") == 0);
        mongos_done();
        assert_int_equal(facts.shards, clusters[i].facts.shards);
        assert_string_equal(facts.other, clusters[i].facts.other);
        assert_string_equal(facts.whole, clusters[i].facts.whole);
        assert_string_equal(facts.still, clusters[i].facts.still);
        assert_int_equal(facts.balances, clusters[i].facts.balances);
    }
    mongos_will("find", "{\"ok\": 0, \"code\": 13, \"codeName\": \"Unauthorized\", \"errmsg\": \"not authorized on config\"}");
    assert_int_equal(server_shards(session, &facts), STORE_FAILED);
    mongos_done();
}

TEST(doctor_reads_as_the_service_does)
{
    static const char *const levels[] = {"majority", "linearizable"};
    int64_t majority_us, linearizable_us;
    const char *level;
    bson_t concern;

    for (size_t i = 0; i < 2; i++)
        mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
    assert_int_equal(server_reads(session, &majority_us, &linearizable_us), STORE_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_true(find_document(mongos_asked(i), "readConcern", &concern) && find_text(&concern, "level", &level));
        assert_string_equal(level, levels[i]);
    }
    mongos_done();
    for (size_t i = 0; i < sizeof failed_reads / sizeof *failed_reads; i++) {
        mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
        mongos_will("find", failed_reads[i]);
        assert_int_equal(server_reads(session, &majority_us, &linearizable_us), STORE_FAILED);
        mongos_done();
    }
}

/* What doctor says, a line for each thing. */
static struct buf reported = BUF_INIT;

void doctor_report(struct doctor *d, enum doctor_level level, const char *format, ...)
{
    static const char *const names[] = {"ok", "warn", "fail"};
    char text[4096];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    buf_printf(&reported, "%s %s: %s\n", d->check, names[level], text);
}

void doctor_report_space(struct doctor *d, const char *where, int64_t total, int64_t unused)
{
    (void)d;
    (void)where;
    (void)total;
    (void)unused;
    fail();
}

static void assert_reported(const char *words)
{
    if (!strstr(reported.data, words))
        fail_msg("not reported: %s\n%s", words, reported.data);
}

/* The lines of doctor where the cluster has these answers. */
static void let_doctor_look(const char *collections, const char *balancer, const char *linearizable)
{
    struct doctor d = {.config = &config, .check = "database"};

    reported.len = 0;
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
    mongos_will("buildInfo", "{\"version\": \"7.0.14\"}");
    mongos_will("dbStats", "{\"ok\": 0, \"code\": 13, \"codeName\": \"Unauthorized\", \"errmsg\": \"\"}");
    mongos_will("find", SHARDS);
    mongos_will("find", collections);
    if (balancer)
        mongos_will("balancerStatus", balancer);
    mongos_will("find", "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}");
    mongos_will("find", linearizable);
    doctor_connect(&d);
    assert_non_null(d.database);
    d.check = "replicas";
    doctor_replica_set(&d);
    d.check = "shards";
    doctor_shards(&d);
    d.check = "reads";
    doctor_reads(&d);
    doctor_disconnect(&d);
    mongos_done();
    assert_reported("database ok: MongoDB 7.0.14 at mongos, ");
    assert_reported("replicas ok: a sharded cluster");
}

TEST(doctor_says_what_is_wrong_with_a_cluster)
{
    static const char none[] = "{\"cursor\": {\"id\": 0, \"ns\": \"coupons.ledger\", \"firstBatch\": []}}";

    let_doctor_look(clusters[0].collections, BALANCER("full"), none);
    assert_reported("shards ok: 2, all keys are as they should be, the balancer is on\n");
    assert_reported("reads ok: a majority read took ");
    let_doctor_look(clusters[4].collections, BALANCER("off"), failed_reads[3]);
    assert_reported("shards fail: lanes by { \"_id.c\" : 1 }, jobs by { \"coupon\" : 1 }: commands use a different key");
    assert_reported("shards warn: lanes: not balanced");
    assert_reported("shards warn: the balancer is off");
    assert_reported("reads fail: majority or linearizable reads are not answered");
    let_doctor_look(clusters[2].collections, BALANCER("full"), none);
    assert_reported("shards warn: lanes: not sharded");
    assert_null(strstr(reported.data, "balancer"));
    let_doctor_look("{\"ok\": 0, \"code\": 13, \"codeName\": \"Unauthorized\", \"errmsg\": \"\"}", NULL, none);
    assert_reported("shards warn: cannot read the shard keys and the balancer");
    buf_free(&reported);
}

RUN_TESTS(.each_setup = start, .each_teardown = stop)
