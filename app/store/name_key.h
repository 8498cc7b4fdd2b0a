/*
 * store/name_key.h -- the key by which a database's users are found (names.h).
 *
 * Key     the secret "names" (secrets.h), made with the database and never changed: under another one no user would
 *         be found, and every cap would begin anew. So it is where the users are, and in the same backup
 */
#ifndef STORE_NAME_KEY_H
#define STORE_NAME_KEY_H

#include "store/names.h"
#include "store/store.h"

/* The database's key, which the session keeps. STORE_NOT_FOUND: it has none, which is logged. */
enum store_status mongo_name_key(struct store *s, const struct name_key **key);
/* Another key than any. */
struct name_key name_key_random(void);
/* Let this be the database's key: when its users are all found by it. STORE_EXISTS: it has another one, which stays. */
enum store_status mongo_name_key_put(struct store *s, const struct name_key *key);
/* The step of schema.c: a random one, for a database that has no users. */
enum store_status names_make_key(struct store *s);

#endif
