/*
 * store/names.h -- users are found by a keyed hash of their names, not by the names.
 *
 * Why     an index's keys are kept longer than what they were made of, in logs and free pages: so they have only a keyed hash of the name
 * Hash    BLAKE2b-128 of the name: no number of users makes collisions likely
 * Key     name_key.h
 */
#ifndef STORE_NAMES_H
#define STORE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "store/secret.h"

#define NAME_HASH_LEN 16

struct name_key {
    struct secret secret;
};

struct name_hash {
    uint8_t bytes[NAME_HASH_LEN];
};

struct name_hash name_hash(const struct name_key *key, const char *name);
bool name_hash_same(const struct name_hash *a, const struct name_hash *b);

#endif
