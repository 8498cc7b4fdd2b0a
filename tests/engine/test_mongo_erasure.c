/* tests/engine/test_mongo_erasure.c -- an erased user's names leave the ledger of a real mongod, wherever that is stopped and repeated. */
#include "cmocka_whole.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mongo_fixture.h"
#include "store/codec.h"
#include "store/form.h"
#include "store/session.h"

#define BATCHES 150 /* more than are emptied in two commands */

static struct entry *take(struct batch *b, const char *user, int64_t n)
{
    struct entry *e = add_taking(b, ENTRY_REDEEM, user, n, arena_printf(&b->arena, "order-of-%s", user));

    e->metadata = arena_printf(&b->arena, "{\"name\":\"%s\"}", user);
    e->code = arena_printf(&b->arena, "CODE-%s", user);
    e->fingerprint[0] = 7;
    return e;
}

/* `batches` batches in which ann, bob and cid take something, then one that erases ann and bob, then one in which ann is somebody new. */
static void append_history(const char *coupon, int64_t lane, int64_t batches)
{
    struct batch *b;

    for (int64_t seq = 1; seq <= batches; seq++) {
        b = begin_batch(coupon, lane, seq);
        take(b, "ann", 3 * seq);
        if (seq % 2)
            take(b, "bob", 3 * seq + 1);
        take(b, "cid", 3 * seq + 2);
        append_and_free(b);
    }
    b = begin_batch(coupon, lane, batches + 1);
    take(b, "ann", 9000);
    add_erasure(b, "ann");
    take(b, "cid", 9001);
    add_erasure(b, "bob");
    append_and_free(b);
    b = begin_batch(coupon, lane, batches + 2);
    memcpy(take(b, "ann", 9002)->alias, "aaaabbbbccccdddd", ID_ALIAS_LEN);
    append_and_free(b);
}

static struct erasure erasure_of(const char *coupon, int64_t seq, const char *user)
{
    return (struct erasure){.coupon = coupon, .alias = arena_strdup(&arena, alias_of(user).text), .seq = seq};
}

static int64_t count_in_ledger(bson_t *filter)
{
    return count_documents("ledger", filter);
}

static int64_t count_names(const char *coupon, const char *member, const char *text)
{
    return count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), member, BCON_UTF8(text)));
}

static int64_t count_term(const char *coupon, int64_t term)
{
    return count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "terms", BCON_INT64(term)));
}

static int64_t count_noted(const char *coupon)
{
    return count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "erasing", "{", "$exists", BCON_BOOL(true), "}"));
}

/* In whole or in part: batches that still have the user's name beside this alias. */
static int64_t count_named(const char *coupon, const char *user)
{
    return count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "who", "{", "$elemMatch", "{", "a", BCON_UTF8(alias_of(user).text),
                                    "$or", "[", "{", "u", "{", "$exists", BCON_BOOL(true), "}", "}",
                                    "{", "o", "{", "$exists", BCON_BOOL(true), "}", "}",
                                    "{", "m", "{", "$exists", BCON_BOOL(true), "}", "}",
                                    "{", "c", "{", "$exists", BCON_BOOL(true), "}", "}",
                                    "{", "f", "{", "$exists", BCON_BOOL(true), "}", "}", "]", "}", "}"));
}

/* Each batch is what the codec writes of what is read of it, and its hash holds. */
static void assert_well_formed(const char *coupon, int64_t lane)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *ledger = mongoc_client_get_collection(client, config.mongodb_database, "ledger");
    bson_t *filter = BCON_NEW("_id.c", BCON_UTF8(coupon), "_id.l", BCON_INT64(lane));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(ledger, filter, NULL, NULL);
    struct buf scratch = BUF_INIT;
    const bson_t *doc;

    while (mongoc_cursor_next(cursor, &doc)) {
        struct batch *b = codec_batch_get(doc);
        uint8_t hash[HASH_LEN];
        const char *wrong;

        assert_non_null(b);
        wrong = form_of_batch(doc, b, &((struct session *)(void *)session)->term_key);
        if (wrong && strcmp(wrong, "erasing") != 0 && strcmp(wrong, "arrived") != 0)
            fail_msg("batch %d: %s", (int)b->head.seq, wrong);
        batch_hash(b, &scratch, hash);
        assert_memory_equal(hash, b->head.hash, HASH_LEN);
        batch_free(b);
    }
    buf_free(&scratch);
    mongoc_cursor_destroy(cursor);
    bson_destroy(filter);
    mongoc_collection_destroy(ledger);
    mongoc_client_destroy(client);
}

static bool take_nothing(void *context, const char *coupon, const struct user_state *u)
{
    (void)u;
    return strcmp(coupon, context) != 0;
}

/* What a reader sees at any moment: ann is only who they are since, bob is nobody, cid has everything. */
static void assert_readers_see_nobody(const char *coupon, int64_t batches)
{
    struct user_read reads[] = {{.coupon = coupon, .user = "ann"}, {.coupon = coupon, .user = "bob"}, {.coupon = coupon, .user = "cid"}};
    bool bob_is_left = count_names(coupon, "who.u", "bob") > 0;

    assert_int_equal(session->ops->users(session, &arena, reads, 3), STORE_OK);
    assert_non_null(reads[0].user_state);
    assert_int_equal(reads[0].user_state->count, 1);
    assert_int_equal(reads[0].user_state->total, 1);
    assert_int_equal(reads[0].user_state->redemptions[0].n, 9002);
    assert_int_equal(reads[0].seq, batches + 2);
    assert_null(reads[1].user_state);
    assert_int_equal(reads[1].seq, bob_is_left ? batches + 1 : 0);
    assert_non_null(reads[2].user_state);
    assert_int_equal(reads[2].user_state->count, batches + 1);
    assert_string_equal(reads[2].user_state->redemptions[0].order, "order-of-cid");
    assert_int_equal(mongo_user_everywhere(session, "bob", take_nothing, (void *)coupon), STORE_OK);
    assert_int_equal(mongo_order_everywhere(session, "order-of-bob", take_nothing, (void *)coupon), STORE_OK);
}

static void assert_done(const char *coupon, int64_t batches)
{
    const struct session *own = (struct session *)(void *)session;

    assert_int_equal(count_named(coupon, "ann"), 0);
    assert_int_equal(count_named(coupon, "bob"), 0);
    assert_int_equal(count_noted(coupon), 0);
    assert_int_equal(count_names(coupon, "who.u", "bob"), 0);
    assert_int_equal(count_names(coupon, "who.u", "ann"), 1); /* who they are since */
    assert_int_equal(count_names(coupon, "who.o", "order-of-ann"), 1);
    assert_int_equal(count_names(coupon, "who.a", alias_of("ann").text), batches + 1);
    assert_int_equal(count_names(coupon, "who.u", "cid"), batches + 1);
    assert_int_equal(count_names(coupon, "who.c", "CODE-cid"), batches + 1);
    assert_int_equal(count_term(coupon, term_of_user(&own->term_key, "bob")), 0);
    assert_int_equal(count_term(coupon, term_of_order(&own->term_key, "order-of-bob")), 0);
    assert_int_equal(count_term(coupon, term_of_user(&own->term_key, "ann")), 1);
    assert_int_equal(count_term(coupon, term_of_order(&own->term_key, "order-of-ann")), 1);
    assert_int_equal(count_term(coupon, term_of_user(&own->term_key, "cid")), batches + 1);
    assert_well_formed(coupon, 0);
    assert_readers_see_nobody(coupon, batches);
}

static size_t noted_of(const char *user, const char *coupon, struct erasure *one)
{
    struct erasure *list;
    size_t count, of = 0;

    assert_int_equal(mongo_erasures(session, user, 1000, &arena, &list, &count), STORE_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].coupon, coupon) == 0 && (!user || strcmp(list[i].alias, alias_of(user).text) == 0)) {
            of++;
            if (one)
                *one = list[i];
        }
    return of;
}

SERVER_TEST(a_name_leaves_every_batch_and_all_else_stays)
{
    const char *coupon = new_coupon();
    struct erasure ann = erasure_of(coupon, BATCHES + 1, "ann"), found;

    append_history(coupon, 0, BATCHES);
    assert_int_equal(noted_of(NULL, coupon, NULL), 2);
    assert_int_equal(noted_of("ann", coupon, &found), 1);
    assert_true(found.seq == ann.seq && found.lane == 0);
    assert_readers_see_nobody(coupon, BATCHES);
    assert_int_equal(mongo_erase_names(session, &found), STORE_OK);
    assert_int_equal(count_named(coupon, "ann"), 0);
    assert_int_equal(count_named(coupon, "bob"), BATCHES / 2 + 1);
    assert_int_equal(noted_of(NULL, coupon, &found), 1);
    assert_string_equal(found.alias, alias_of("bob").text);
    assert_well_formed(coupon, 0);
    assert_readers_see_nobody(coupon, BATCHES);
    assert_int_equal(mongo_erase_names(session, &found), STORE_OK);
    assert_int_equal(noted_of(NULL, coupon, NULL), 0);
    assert_done(coupon, BATCHES);
    assert_int_equal(mongo_erase_names(session, &ann), STORE_OK); /* again */
    assert_int_equal(mongo_erase_names(session, &found), STORE_OK);
    assert_done(coupon, BATCHES);
}

/* Nobody else is in them. */
SERVER_TEST(batches_of_one_user_have_no_terms_left)
{
    const char *coupon = new_coupon();
    struct erasure ann = erasure_of(coupon, 2, "ann");
    struct batch *b = begin_batch(coupon, 0, 1);

    take(b, "ann", 1);
    append_and_free(b);
    b = begin_batch(coupon, 0, 2);
    add_erasure(b, "ann");
    append_and_free(b);
    assert_int_equal(mongo_erase_names(session, &ann), STORE_OK);
    assert_int_equal(count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "terms", "{", "$exists", BCON_BOOL(true), "}")), 0);
    assert_int_equal(count_named(coupon, "ann") + count_noted(coupon), 0);
    assert_well_formed(coupon, 0);
}

/* It stops before the command after `spared` of its kind; the rest of them fail, until another one comes. False: it came to its end. */
static bool stop_after(const struct erasure *e, const char *command, int spared, const char *how, int64_t value)
{
    enum store_status status;

    assert_true(fail_after(command, spared, how, value));
    status = mongo_erase_names(session, e);
    fail_nothing();
    return status != STORE_OK;
}

static void stop_everywhere(const char *command, const char *how, int64_t value)
{
    for (int spared = 0, stopped = 1; stopped; spared++) {
        const char *coupon = new_coupon();
        struct erasure ann = erasure_of(coupon, BATCHES + 1, "ann"), bob = erasure_of(coupon, BATCHES + 1, "bob");

        append_history(coupon, 0, BATCHES);
        stopped = stop_after(&ann, command, spared, how, value);
        if (!stopped)
            assert_true(spared >= 3); /* else it was not stopped in the middle */
        assert_readers_see_nobody(coupon, BATCHES);
        assert_well_formed(coupon, 0);
        if (count_named(coupon, "ann"))
            assert_int_equal(noted_of("ann", coupon, NULL), 1); /* whoever comes next finds it */
        assert_true(stop_after(&bob, command, 0, how, value));
        assert_readers_see_nobody(coupon, BATCHES);
        if (count_named(coupon, "bob"))
            assert_int_equal(noted_of("bob", coupon, NULL), 1);
        assert_int_equal(mongo_erase_names(session, &ann), STORE_OK);
        assert_int_equal(mongo_erase_names(session, &bob), STORE_OK);
        assert_done(coupon, BATCHES);
    }
}

/* Before any write, before any read, and without learning of its writes. */
SERVER_TEST(an_erasure_that_stops_anywhere_is_finished_by_the_next)
{
    if (!fail_after("update", 0, "errorCode", 8))
        skip();
    fail_nothing();
    stop_everywhere("update", "errorCode", 8);
    stop_everywhere("find", "errorCode", 8);
    stop_everywhere("update", "writeConcernError", 64);
}

/* ---- what cannot be read ---- */

#define DAMAGED 70 /* more than are emptied in a command */

static void repair(const char *coupon, int64_t seq)
{
    struct batch *b = begin_batch(coupon, 0, seq);

    change_document("ledger", BCON_NEW("_id.c", BCON_UTF8(coupon), "_id.seq", BCON_INT64(seq)),
                    BCON_NEW("$set", "{", "at", BCON_DATE_TIME(b->head.at_ms), "}"));
    batch_free(b);
}

/* The damaged ones are `damaged`, from seq `first` on: all others are emptied, and who comes when they are repaired finishes. */
static void assert_others_are_emptied(int64_t first, int64_t damaged)
{
    const char *coupon = new_coupon();
    struct erasure ann = erasure_of(coupon, BATCHES + 1, "ann"), bob = erasure_of(coupon, BATCHES + 1, "bob");

    append_history(coupon, 0, BATCHES);
    for (int64_t seq = first; seq < first + damaged; seq++)
        damage("ledger", coupon, "_id.seq", seq, NULL, "at");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mongo_erase_names(session, &ann), STORE_UNREADABLE);
        assert_int_equal(count_named(coupon, "ann"), damaged + 1); /* and the erasure's own */
        assert_int_equal(noted_of("ann", coupon, NULL), 1);
    }
    for (int64_t seq = first; seq < first + damaged; seq++)
        repair(coupon, seq);
    assert_int_equal(mongo_erase_names(session, &ann), STORE_OK);
    assert_int_equal(mongo_erase_names(session, &bob), STORE_OK);
    assert_done(coupon, BATCHES);
}

SERVER_TEST(what_cannot_be_read_keeps_its_names_and_all_else_loses_them)
{
    assert_others_are_emptied(1, 1);
    assert_others_are_emptied(1, DAMAGED);
    assert_others_are_emptied(BATCHES - DAMAGED + 1, DAMAGED);
}

SERVER_TEST(an_erasure_whose_own_batch_cannot_be_read_says_so)
{
    const char *coupon = new_coupon();
    struct erasure ann = erasure_of(coupon, 5, "ann");

    append_history(coupon, 0, 4);
    damage("ledger", coupon, "_id.seq", 5, NULL, "at");
    assert_int_equal(mongo_erase_names(session, &ann), STORE_UNREADABLE);
    assert_int_equal(noted_of("ann", coupon, NULL), 1);
    repair(coupon, 5); /* other tests read all that there is of ann and bob */
    assert_int_equal(mongo_erase_names(session, &ann), STORE_OK);
}

SERVER_TEST(a_note_that_cannot_be_read_hides_no_other)
{
    const char *coupons[] = {new_coupon(), new_coupon(), new_coupon()};

    for (int i = 0; i < 3; i++)
        append_history(coupons[i], 0, 2);
    damage("ledger", coupons[0], "_id.seq", 3, NULL, "erasing");
    damage("ledger", coupons[1], "_id.seq", 3, NULL, "erasing");
    assert_int_equal(noted_of(NULL, coupons[2], NULL), 2);
    assert_int_equal(noted_of(NULL, coupons[0], NULL), 0);
}

/* ---- at the same time ---- */

struct eraser {
    struct store *session;
    struct erasure erasure;
    pthread_t thread;
    enum store_status status;
};

static void *erase(void *context)
{
    struct eraser *e = context;

    e->status = mongo_erase_names(e->session, &e->erasure);
    return NULL;
}

SERVER_TEST(two_users_of_the_same_batches_are_erased_at_the_same_time_each_twice)
{
    for (int round = 0; round < 5; round++) {
        const char *coupon = new_coupon();
        struct eraser erasers[4];

        append_history(coupon, 0, BATCHES);
        for (int i = 0; i < 4; i++) {
            erasers[i] = (struct eraser){.session = mongo_session(mongo)};
            erasers[i].erasure = erasure_of(coupon, BATCHES + 1, i % 2 ? "ann" : "bob");
            pthread_create(&erasers[i].thread, NULL, erase, &erasers[i]);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(erasers[i].thread, NULL);
            assert_int_equal(erasers[i].status, STORE_OK);
            erasers[i].session->ops->close(erasers[i].session);
        }
        assert_done(coupon, BATCHES);
    }
}

struct reader {
    struct store *session;
    const char *coupon;
    pthread_t thread;
    atomic_bool stop;
    int reads, failed, seen; /* seen: how often bob was somebody */
};

static void *read_bob(void *context)
{
    struct reader *r = context;

    while (!r->stop) {
        struct user_read read = {.coupon = r->coupon, .user = "bob"};
        struct arena own;

        arena_init(&own, 0);
        r->failed += r->session->ops->users(r->session, &own, &read, 1) != STORE_OK;
        r->seen += read.user_state != NULL;
        r->reads++;
        arena_free(&own);
    }
    return NULL;
}

/* A read sees one moment: not batches from before the erasure without the one that erased. */
SERVER_TEST(a_reader_meanwhile_never_sees_somebody)
{
    for (int round = 0; round < 4; round++) {
        const char *coupon = new_coupon();
        struct erasure bob = erasure_of(coupon, (round % 2 ? 2000 : 100) + 1, "bob");
        struct reader readers[2];

        append_history(coupon, 0, bob.seq - 1);
        for (int i = 0; i < 2; i++) {
            readers[i] = (struct reader){.session = mongo_session(mongo), .coupon = coupon};
            pthread_create(&readers[i].thread, NULL, read_bob, &readers[i]);
        }
        assert_int_equal(mongo_erase_names(session, &bob), STORE_OK);
        for (int i = 0; i < 2; i++) {
            readers[i].stop = true;
            pthread_join(readers[i].thread, NULL);
            readers[i].session->ops->close(readers[i].session);
            print_message("figure: %d reads\n", readers[i].reads);
            assert_int_equal(readers[i].failed, 0);
            assert_int_equal(readers[i].seen, 0);
        }
    }
}

/* The server lets go of what it reads after so many steps; and then, the first time in our ledger, for so long. */
static bool make_slow(int steps, int ms)
{
    return run_command("admin", BCON_NEW("setParameter", BCON_INT32(1), "internalQueryExecYieldIterations", BCON_INT32(steps))) &&
           (!ms || run_command("admin", BCON_NEW("configureFailPoint", "setYieldAllLocksWait", "mode", "{", "times", BCON_INT32(1), "}",
                                                 "data", "{", "waitForMillis", BCON_INT32(ms), "namespace",
                                                 BCON_UTF8(arena_printf(&arena, "%s.ledger", config.mongodb_database)), "}")));
}

static void *read_once(void *context)
{
    struct reader *r = context;
    struct user_read read = {.coupon = r->coupon, .user = "bob"};
    struct arena own;

    arena_init(&own, 0);
    r->failed += r->session->ops->users(r->session, &own, &read, 1) != STORE_OK;
    r->seen += read.user_state != NULL;
    arena_free(&own);
    return NULL;
}

/* Also if the whole erasure comes in the middle of it. */
SERVER_TEST(a_slow_read_sees_one_moment)
{
    for (int64_t batches = 40; batches <= 100; batches += 60) { /* in both ways of reading */
        const char *coupon = new_coupon();
        struct erasure bob = erasure_of(coupon, batches + 1, "bob");
        struct reader reader = {.session = mongo_session(mongo), .coupon = coupon};
        struct batch *b;

        for (int64_t seq = 1; seq <= batches; seq++) {
            b = begin_batch(coupon, 0, seq);
            take(b, "bob", seq);
            append_and_free(b);
        }
        b = begin_batch(coupon, 0, batches + 1);
        add_erasure(b, "bob");
        append_and_free(b);
        if (!make_slow(8, 3000)) {
            reader.session->ops->close(reader.session);
            skip();
        }
        pthread_create(&reader.thread, NULL, read_once, &reader);
        usleep(1000000);
        assert_int_equal(mongo_erase_names(session, &bob), STORE_OK);
        pthread_join(reader.thread, NULL);
        assert_true(make_slow(1000, 0));
        reader.session->ops->close(reader.session);
        assert_int_equal(reader.failed, 0);
        assert_int_equal(reader.seen, 0);
    }
}

SERVER_TEST(an_erasure_in_one_lane_leaves_the_others_alone)
{
    const char *coupon = new_coupon();
    struct erasure e = erasure_of(coupon, 5, "ann");

    append_history(coupon, 0, 4);
    append_history(coupon, 1, 4);
    e.lane = 1;
    assert_int_equal(mongo_erase_names(session, &e), STORE_OK);
    assert_int_equal(count_named(coupon, "ann"), 5); /* of lane 0 */
    assert_int_equal(count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "_id.l", BCON_INT64(1), "erasing", BCON_UTF8(e.alias))), 0);
    assert_int_equal(count_in_ledger(BCON_NEW("_id.c", BCON_UTF8(coupon), "_id.l", BCON_INT64(0), "erasing", BCON_UTF8(e.alias))), 1);
    for (int64_t lane = 0; lane < 2; lane++)
        for (int i = 0; i < 2; i++) {
            e = erasure_of(coupon, 5, i ? "ann" : "bob");
            e.lane = lane;
            assert_int_equal(mongo_erase_names(session, &e), STORE_OK);
        }
    assert_int_equal(count_noted(coupon), 0);
    assert_int_equal(count_named(coupon, "ann") + count_named(coupon, "bob"), 0);
}

RUN_SERVER_TESTS()
