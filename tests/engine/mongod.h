/*
 * tests/engine/mongod.h -- a real mongod for tests: the one of COUPONS_TEST_MONGODB_URI, or one started here.
 *
 * Program  $COUPONS_TEST_MONGOD, or mongod on PATH; a replica set of one node, in a directory of its own that is removed
 * Stops    with the test, also when that dies
 */
#ifndef TESTS_ENGINE_MONGOD_H
#define TESTS_ENGINE_MONGOD_H

#include <stdbool.h>

enum mongod_kind {
    MONGOD_SET,         /* a replica set, initiated */
    MONGOD_UNINITIATED, /* started with --replSet, and no more */
    MONGOD_STANDALONE
};

/* The URI of a running server, static; NULL: there is none and none can be started, said on standard output. */
const char *mongod_uri(void);
/* Start one of that kind, beside the other. NULL: no program. The URI is to be freed by mongod_stop(). */
char *mongod_start(enum mongod_kind kind, int *pid);
void mongod_stop(char *uri, int pid);
/* Stop what mongod_uri() started. */
void mongod_stop_shared(void);

#endif
