/* tests/engine/test_mongo_connect.c -- how the store connects and prepares, against a real mongod (see mongod.h). */
#include "cmocka_whole.h"

#include "base/config.h"
#include "mongo_fixture.h"
#include "mongod.h"

SERVER_TEST(a_second_preparing_changes_nothing)
{
    char message[1024];

    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
    assert_int_equal(mongo_ping(session, 60000), STORE_OK);
}

typedef struct mongo *opening(const struct config *config, char *message, size_t size);
static opening *const openings[] = {mongo_open, mongo_open_single};
#define OPENINGS (sizeof openings / sizeof *openings)

/* What is said by then. */
static void ask(opening *open, const char *uri, int time_ms, char *message, size_t size)
{
    struct config other = config;
    struct mongo *m;

    message[0] = '\0';
    snprintf(other.mongodb_uri, sizeof other.mongodb_uri, "%s", uri);
    other.mongodb_server_selection_timeout_ms = time_ms;
    m = open(&other, message, size);
    if (m) {
        assert_int_equal(mongo_prepare(m, message, size), -1);
        mongo_close(m);
    }
}

/* A server that has no primary takes all the time that there is, and on a machine with much other work may not answer in it: then it
 * has more. */
static void says(const char *uri, const char *sentence, int time_ms)
{
    for (size_t i = 0; i < OPENINGS; i++) {
        char message[1024];
        int ms = time_ms;

        for (ask(openings[i], uri, ms, message, sizeof message); !strstr(message, sentence) && ms < 60000; ms *= 5)
            ask(openings[i], uri, 5 * ms, message, sizeof message);
        if (!strstr(message, sentence))
            fail_msg("\"%s\" is not in \"%s\"", sentence, message);
    }
}

SERVER_TEST(what_breaks_while_it_is_prepared_is_repeated)
{
    char message[1024];

    if (!fail_command("create", 2, "closeConnection", 0))
        skip();
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
    fail_command("createIndexes", 2, "closeConnection", 0);
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
}

SERVER_TEST(a_server_that_will_not_do_is_refused_with_what_to_do)
{
    char *uri;
    int pid;

    says("nonsense://x", "MONGODB_URI", 500);
    says("mongodb://127.0.0.1:1/", "No MongoDB server answers at 127.0.0.1:1", 500);
    uri = mongod_start(MONGOD_STANDALONE, &pid);
    if (!uri)
        skip();
    says(uri, "is standalone", 60000);
    mongod_stop(uri, pid);
    uri = mongod_start(MONGOD_UNINITIATED, &pid);
    says(uri, "rs.initiate()", 5000);
    mongod_stop(uri, pid);
}

SERVER_TEST(a_server_that_is_gone_is_not_ready)
{
    struct config other = config;
    char message[256];

    snprintf(other.mongodb_uri, sizeof other.mongodb_uri, "mongodb://127.0.0.1:1/");
    other.mongodb_server_selection_timeout_ms = 300;
    for (size_t i = 0; i < OPENINGS; i++) {
        struct mongo *m = openings[i](&other, message, sizeof message);
        struct store *d = mongo_session(m);

        assert_int_equal(mongo_ping(d, 100), STORE_FAILED);
        assert_int_equal(d->ops->now(d, &(int64_t){0}), STORE_FAILED);
        d->ops->close(d);
        mongo_close(m);
    }
}

SERVER_TEST(a_single_session_can_be_opened_again)
{
    char message[1024];
    struct mongo *m = mongo_open_single(&config, message, sizeof message);

    for (int i = 0; i < 2; i++) {
        struct store *d = mongo_session(m);

        assert_int_equal(mongo_ping(d, 60000), STORE_OK);
        d->ops->close(d);
    }
    mongo_close(m);
}

RUN_SERVER_TESTS()
