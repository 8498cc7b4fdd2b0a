/*
 * tests/unit/fake_mongos.h -- a server that answers as a mongos of a sharded cluster does, with replies that a test lays out.
 *
 * Usage    mongos_start(); mongos_will() for each command that the store is to send, in order; the store's calls; mongos_done();
 *          mongos_stop(). It answers `hello`, and what ends sessions and cursors, by itself
 * Replies  as JSON; each gets what every reply of a cluster has: ok (1) and operationTime, unless it has its own, and $clusterTime
 * Fails    a command that nobody laid out is answered by an error, and mongos_done() tells it
 */
#ifndef TESTS_UNIT_FAKE_MONGOS_H
#define TESTS_UNIT_FAKE_MONGOS_H

#include <bson/bson.h>
#include <stdint.h>

/* The port on 127.0.0.1. */
uint16_t mongos_start(void);
/* The same, for a server that is a replica set's only member instead. */
uint16_t mongos_start_member(void);
void mongos_stop(void);

/* The next command is to be `name`; it is answered by the reply, or, where that is NULL, by the end of the connection. */
void mongos_will(const char *name, const char *reply);
/* The k-th command that was laid out, as it came: until the next mongos_done(). */
const bson_t *mongos_asked(size_t k);
/* All that was laid out has come, and nothing else. Forgets it. */
void mongos_done(void);

#endif
