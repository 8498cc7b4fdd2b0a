/*
 * store/names.h -- how users are found without their names: by a keyed hash.
 *
 * Why     a document's _id, and the keys of an index, cannot be emptied: they have h, and the name stands in the view alone. So what is
 *         left of an erased user, for a day, is a hash
 * Hash    BLAKE2b-128 of the name: two names with one hash are not to be expected in any number of users
 * Key     the secret "names" (secrets.h), made with the database and never changed: under another one no user would
 *         be found, and every cap would begin anew. So it is where the users are, and in the same backup
 */
#ifndef STORE_NAMES_H
#define STORE_NAMES_H

#include <stdint.h>

#include "store/secrets.h"

#define NAME_HASH_LEN 16

struct name_key {
    struct secret secret;
};

struct name_hash {
    uint8_t bytes[NAME_HASH_LEN];
};

struct name_hash name_hash(const struct name_key *key, const char *name);
bool name_hash_same(const struct name_hash *a, const struct name_hash *b);

/* The database's key, which the door keeps. STORE_NOT_FOUND: it has none, which is logged. */
enum store_status mongo_name_key(struct store *s, const struct name_key **key);
/* Another key than any. */
struct name_key name_key_random(void);
/* Let this be the database's key: when its users are all found by it. STORE_EXISTS: it has another one, which stays. */
enum store_status mongo_name_key_put(struct store *s, const struct name_key *key);
/* The step of schema.c: a random one, for a database that has no users. */
enum store_status names_make_key(struct store *s);

#endif
