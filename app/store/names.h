/*
 * store/names.h -- how users are found without their names: by a keyed hash.
 *
 * Why     a document's _id, and the keys of an index, cannot be emptied: they have h, and the name stands in the view alone. So what is
 *         left of an erased user, for a day, is a hash
 * Hash    BLAKE2b-128 of the name: two names with one hash are not to be expected in any number of users
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
/* Orders are found likewise, by 64 bits under a key of their own that follows from it: whoever reads by them looks at the order
 * itself, too. SipHash-2-4: a user's view has one for each of its orders. */
struct order_key {
    uint8_t bytes[NAME_HASH_LEN];
};
struct order_key order_key(const struct name_key *key);
int64_t order_hash(const struct order_key *key, const char *order);
bool name_hash_same(const struct name_hash *a, const struct name_hash *b);

/* Jobs' states and lanes' accounts are stored beside the users, under names that no user has: those hold no control characters.
 * Each returns name. */
#define STORED_NAME_SIZE 128
char *name_of_job(const char *job, char name[STORED_NAME_SIZE]);
char *name_of_account(int64_t lane, int64_t peer, char name[STORED_NAME_SIZE]);
/* The other way round. job: within name. */
enum named { NAMED_USER, NAMED_JOB, NAMED_ACCOUNT };
struct named_key {
    enum named kind;
    const char *job;
    int64_t lane, peer;
};
struct named_key name_parse(const char *name);

#endif
