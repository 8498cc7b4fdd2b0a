/*
 * store/names.h -- users are found by a keyed hash of their names, not by the names.
 *
 * Why     a document's _id and an index's keys cannot be emptied: they have only the hash h, and the name is only in the view. So an
 *         erased user leaves, for a day, nothing but a hash
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
/* Orders are found the same way, by 64 bits under a key derived from that one; whoever reads by them also checks the order itself.
 * SipHash-2-4: a user's view has one hash per order. */
struct order_key {
    uint8_t bytes[NAME_HASH_LEN];
};
struct order_key order_key(const struct name_key *key);
int64_t order_hash(const struct order_key *key, const char *order);
bool name_hash_same(const struct name_hash *a, const struct name_hash *b);

/* Job states are stored among the users, under names that no user has: users' names have no control characters. Each
 * returns name. */
#define STORED_NAME_SIZE 128
char *name_of_job(const char *job, char name[STORED_NAME_SIZE]);
/* The reverse. job: points into name. */
enum named { NAMED_USER, NAMED_JOB };
struct named_key {
    enum named kind;
    const char *job;
};
struct named_key name_parse(const char *name);

#endif
