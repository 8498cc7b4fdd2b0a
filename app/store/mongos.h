/*
 * store/mongos.h -- which kind of server answers: a sharded cluster's mongos, or a member of a replica set.
 *
 * Tests have no mongos. Those that check the commands for a sharded cluster link tests/hooks/mongos.c instead of mongos.c, and send
 * them to a replica set.
 */
#ifndef STORE_MONGOS_H
#define STORE_MONGOS_H

#include <bson/bson.h>
#include <stdbool.h>

/* True if a mongos gave this answer to `hello`. */
bool is_mongos(const bson_t *hello);

#endif
