/* tests/engine/mongo_fixture.c -- see mongo_fixture.h. */
#include "mongo_fixture.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "mongod.h"

struct config config;
struct mongo *mongo;
struct store *session;
struct arena arena;
static int coupons;

int mongo_group_setup(UNUSED_STATE)
{
    const char *uri = mongod_uri();
    char message[1024];

    if (!uri)
        return 0;
    if (sodium_init() < 0 || log_init(NULL, LOG_ERROR) != 0 || config_load(&config, NULL, NULL, message, sizeof message) != 0)
        return -1;
    snprintf(config.mongodb_uri, sizeof config.mongodb_uri, "%s", uri);
    snprintf(config.mongodb_database, sizeof config.mongodb_database, "coupons_test_%d", (int)getpid());
    config.mongodb_socket_timeout_ms = 60000; /* the machine may have much other work */
    mongo = mongo_open(&config, message, sizeof message);
    if (!mongo || mongo_prepare(mongo, message, sizeof message) != 0) {
        printf("# %s\n", message);
        return -1;
    }
    session = mongo_session(mongo);
    return 0;
}

mongoc_client_t *own_client(void)
{
    return mongoc_client_new(config.mongodb_uri);
}

bool run_command(const char *database, bson_t *command)
{
    mongoc_client_t *client = own_client();
    bson_error_t error;
    bool good = mongoc_client_command_simple(client, database ? database : config.mongodb_database, command, NULL, NULL, &error);

    if (!good)
        print_message("# %s\n", error.message);
    bson_destroy(command);
    mongoc_client_destroy(client);
    return good;
}

void change_document(const char *collection, bson_t *which, bson_t *change)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *c = mongoc_client_get_collection(client, config.mongodb_database, collection);
    bson_iter_t it;
    bson_t reply;

    if (!mongoc_collection_update_one(c, which, change, NULL, &reply, NULL) || !bson_iter_init_find(&it, &reply, "modifiedCount") ||
        bson_iter_as_int64(&it) != 1)
        abort();
    bson_destroy(&reply);
    bson_destroy(which);
    bson_destroy(change);
    mongoc_collection_destroy(c);
    mongoc_client_destroy(client);
}

int64_t count_documents(const char *collection, bson_t *filter)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *c = mongoc_client_get_collection(client, config.mongodb_database, collection);
    int64_t count = mongoc_collection_count_documents(c, filter, NULL, NULL, NULL, NULL);

    if (count < 0)
        abort();
    bson_destroy(filter);
    mongoc_collection_destroy(c);
    mongoc_client_destroy(client);
    return count;
}

void damage(const char *collection, const char *coupon, const char *name, int64_t number, const char *text,
            const char *member)
{
    change_document(collection,
                    text ? BCON_NEW("_id.c", BCON_UTF8(coupon), name, BCON_UTF8(text))
                         : BCON_NEW("_id.c", BCON_UTF8(coupon), name, BCON_INT64(number)),
                    BCON_NEW("$set", "{", member, BCON_UTF8("damaged"), "}"));
}

void drop_database(void)
{
    mongoc_client_t *client = own_client();
    mongoc_database_t *database = mongoc_client_get_database(client, config.mongodb_database);

    mongoc_database_drop(database, NULL);
    mongoc_database_destroy(database);
    mongoc_client_destroy(client);
}

/* mode: "times" or "skip". */
static bool fail_as(const char *mode, int number, const char *command, const char *how, int64_t value)
{
    bson_t *fail = BCON_NEW("configureFailPoint", "failCommand", "mode", "{", mode, BCON_INT32(number), "}"), data, commands;

    BSON_APPEND_DOCUMENT_BEGIN(fail, "data", &data);
    BSON_APPEND_UTF8(&data, "appName", "coupons");
    BSON_APPEND_ARRAY_BEGIN(&data, "failCommands", &commands);
    BSON_APPEND_UTF8(&commands, "0", command);
    bson_append_array_end(&data, &commands);
    if (strcmp(how, "closeConnection") == 0) {
        BSON_APPEND_BOOL(&data, how, true);
    } else if (strcmp(how, "writeConcernError") == 0) {
        bson_t error;

        BSON_APPEND_DOCUMENT_BEGIN(&data, how, &error);
        BSON_APPEND_INT32(&error, "code", (int32_t)value);
        BSON_APPEND_UTF8(&error, "errmsg", "by the test");
        bson_append_document_end(&data, &error);
    } else if (strcmp(how, "errorCode") == 0) {
        BSON_APPEND_INT32(&data, how, (int32_t)value);
    } else {
        BSON_APPEND_BOOL(&data, "blockConnection", true);
        BSON_APPEND_INT64(&data, how, value);
    }
    bson_append_document_end(fail, &data);
    return run_command("admin", fail);
}

bool fail_command(const char *command, int times, const char *how, int64_t value)
{
    return fail_as("times", times, command, how, value);
}

bool fail_after(const char *command, int spared, const char *how, int64_t value)
{
    return fail_as("skip", spared, command, how, value);
}

void fail_nothing(void)
{
    if (!run_command("admin", BCON_NEW("configureFailPoint", "failCommand", "mode", "off")))
        abort();
}

int mongo_group_teardown(UNUSED_STATE)
{
    if (session) {
        drop_database();
        session->ops->close(session);
        mongo_close(mongo);
    }
    mongod_stop_all();
    mongoc_cleanup();
    return 0;
}

int mongo_setup(UNUSED_STATE)
{
    arena_init(&arena, 0);
    return 0;
}

int mongo_teardown(UNUSED_STATE)
{
    arena_free(&arena);
    return 0;
}

const char *new_coupon(void)
{
    return arena_printf(&arena, "c-%d", ++coupons);
}

struct coupon *make_coupon(const char *id)
{
    struct coupon *c = arena_alloc(&arena, sizeof *c);

    coupon_init(c);
    c->id = id;
    c->version = 1;
    c->title = "title";
    return c;
}

/* ---- batches ---- */

struct alias alias_of(const char *user)
{
    struct alias alias;
    uint64_t hash = hash_mix(hash_text(HASH_NONE, user));

    _Static_assert(ID_ALIAS_LEN == 16, "16 digits of a number");
    snprintf(alias.text, sizeof alias.text, "%016" PRIx64, hash);
    return alias;
}

struct batch *begin_batch(const char *coupon, int64_t lane, int64_t seq)
{
    struct batch *b = batch_new(coupon, lane);

    b->head.seq = seq;
    b->head.at_ms = FIXTURE_DAY + seq * 1000;
    b->head.day_ms = FIXTURE_DAY;
    b->head.version = 1;
    return b;
}

struct entry *add_taking(struct batch *b, enum entry_kind kind, const char *user, int64_t n, const char *order)
{
    struct entry *e = batch_add(b, kind);

    e->n = n;
    e->g = 1;
    e->ordinal = n;
    e->user = user;
    e->order = order;
    memcpy(e->alias, alias_of(user).text, sizeof e->alias);
    return e;
}

struct entry *add_erasure(struct batch *b, const char *user)
{
    struct entry *e = batch_add(b, ENTRY_ERASE);

    e->user = user;
    memcpy(e->alias, alias_of(user).text, sizeof e->alias);
    return e;
}

enum append_result append_one(const struct batch *b)
{
    struct append a = {b, APPEND_UNKNOWN};
    enum store_status status = session->ops->append(session, &a, 1);

    assert_int_equal(status == STORE_FAILED, a.result == APPEND_UNKNOWN);
    return a.result;
}

void append_and_free(struct batch *b)
{
    struct buf scratch = BUF_INIT;

    batch_hash(b, &scratch, b->head.hash);
    buf_free(&scratch);
    if (append_one(b) != APPEND_OURS)
        abort();
    batch_free(b);
}

void append_taking(const char *coupon, int64_t lane, int64_t seq, const char *user, const char *order)
{
    struct batch *b = begin_batch(coupon, lane, seq);

    add_taking(b, ENTRY_REDEEM, user, seq, order);
    append_and_free(b);
}
