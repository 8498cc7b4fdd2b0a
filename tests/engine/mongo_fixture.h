/*
 * tests/engine/mongo_fixture.h -- a prepared database of its own on a real mongod, for tests of the store.
 *
 * Usage   SERVER_TEST(name) { ... } for each test; the file ends with RUN_SERVER_TESTS()
 */
#ifndef TESTS_ENGINE_MONGO_FIXTURE_H
#define TESTS_ENGINE_MONGO_FIXTURE_H

#include "cmocka_whole.h"
#include <mongoc/mongoc.h>

#include "base/config.h"
#include "coupons/batch.h"
#include "store/mongo.h"

extern struct config config;
extern struct mongo *mongo;
extern struct store *session; /* NULL: there is no server */
extern struct arena arena; /* the test's */

/* Of the program, and of each test. */
int mongo_group_setup(void **state);
int mongo_group_teardown(void **state);
int mongo_setup(void **state);
int mongo_teardown(void **state);

#define FIXTURE_DAY INT64_C(1795132800000) /* 2026-11-20T00:00Z */

/* A user's alias, made of the name. */
struct alias {
    char text[ID_ALIAS_LEN + 1];
};
struct alias alias_of(const char *user);

/* A batch without entries, a second after the one before. */
struct batch *begin_batch(const char *coupon, int64_t lane, int64_t seq);
/* Append an entry about slot n, in its first generation, of this user. Texts are not copied; order may be NULL. */
struct entry *add_taking(struct batch *b, enum entry_kind kind, const char *user, int64_t n, const char *order);
/* Append the erasure of this user. */
struct entry *add_erasure(struct batch *b, const char *user);
/* What becomes of it when it is appended to the ledger once. */
enum append_result append_one(const struct batch *b);
/* Append it, and free it; aborts if that fails. */
void append_and_free(struct batch *b);
/* A batch of this taking alone. */
void append_taking(const char *coupon, int64_t lane, int64_t seq, const char *user, const char *order);

/* These free their documents. database: NULL for the tests' own. The second aborts unless it changed one, the third if it fails. */
bool run_command(const char *database, bson_t *command);
void change_document(const char *collection, bson_t *which, bson_t *change);
int64_t count_documents(const char *collection, bson_t *filter);

/* Set a member of the coupon's document whose _id has that text, or number, under that name, to what cannot be decoded. */
void damage(const char *collection, const char *coupon, const char *name, int64_t number, const char *text,
            const char *member);

/* Have the server mistreat the next `times` commands of that name: "closeConnection"; "writeConcernError" or "errorCode" with the
 * code; "blockTimeMS" with the time. False: it has no test commands. */
bool fail_command(const char *command, int times, const char *how, int64_t value);
/* The same for all commands of that name but the next `spared`, until fail_nothing(). */
bool fail_after(const char *command, int spared, const char *how, int64_t value);
void fail_nothing(void);

/* A client beside the store's, the caller's to destroy. */
mongoc_client_t *own_client(void);
void drop_database(void);
/* An id that no test had before, in the arena. */
const char *new_coupon(void);
/* The first version of a coupon with a title, in the arena. */
struct coupon *make_coupon(const char *id);

/* Skipped where there is no server. */
#define SERVER_TEST(name)                                                                                                        \
    static void name(void);                                                                                                      \
    TEST_OF_KIND(name, on_server_##name, true, NULL, NULL)                                                                       \
    {                                                                                                                            \
        if (!session)                                                                                                            \
            skip();                                                                                                              \
        name();                                                                                                                  \
    }                                                                                                                            \
    static void name(void)
#define RUN_SERVER_TESTS()                                                                                                       \
    RUN_TESTS(.each_setup = mongo_setup, .each_teardown = mongo_teardown, .setup = mongo_group_setup, .teardown = mongo_group_teardown)

#endif
