/*
 * tests/engine/mongo_fixture.h -- a prepared database of its own on a real mongod, for tests of the store.
 *
 * Usage   mongo_group_setup and mongo_group_teardown around the program, mongo_setup and mongo_teardown around each
 *         test, which begins with NEEDS_SERVER()
 */
#ifndef TESTS_ENGINE_MONGO_FIXTURE_H
#define TESTS_ENGINE_MONGO_FIXTURE_H

#include <mongoc/mongoc.h>

#include "base/config.h"
#include "store/mongo.h"

extern struct config config;
extern struct mongo *mongo;
extern struct store *session; /* NULL: there is no server */
extern struct arena arena; /* the test's */
static const struct store_time no_time = {0, 0};

int mongo_group_setup(void **state);
int mongo_group_teardown(void **state);
int mongo_setup(void **state);
int mongo_teardown(void **state);

/* Set a member of the coupon's document whose _id has that text, or number, under that name, to what cannot be decoded. */
void damage(const char *collection, const char *coupon, const char *name, int64_t number, const char *text,
            const char *member);

/* Have the server mistreat the next `times` commands of that name: "closeConnection"; "writeConcernError" or "errorCode" with the
 * code; "blockTimeMS" with the time. False: it has no test commands. */
bool fail_command(const char *command, int times, const char *how, int64_t value);

/* A client beside the store's, the caller's to destroy. */
mongoc_client_t *own_client(void);
/* An id that no test had before, in the arena. */
const char *new_coupon(void);

#define NEEDS_SERVER()                                                                                                 \
    (void)state;                                                                                                       \
    if (!session)                                                                                                      \
        skip()

#endif
