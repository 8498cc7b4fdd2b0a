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
/* Start `count` (at most 3) of them as one replica set that elects within about a second. NULL: no program. */
char *mongod_start_set(int count, int pids[]);
/* The pid of the one that is primary now, or 0. */
int mongod_primary(void);
/* Run a command, given as JSON, on the admin database of the one with that pid, whatever its role. False: it failed, or its
 * write concern did. */
bool mongod_run(int pid, const char *json);
/* The same; true: it was carried out, and its write concern failed. False also where no answer came. */
bool mongod_concern_fails(int pid, const char *json);
/* kill -9, and start again on the same files; the new pid. */
int mongod_kill_and_restart(int pid);
/* Stop all that were started here. */
void mongod_stop_all(void);

#endif
