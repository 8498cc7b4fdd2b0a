/*
 * store/name_key.h -- the master key: from it come the keys that hash names (terms.h) and Idempotency-Keys in the ledger.
 *
 * Key     the secret "names" (secrets.h), made with the database and never changed: under another key no user would be found, and every
 *         cap would start over. So it is stored with the ledger, and is in the same backup
 */
#ifndef STORE_NAME_KEY_H
#define STORE_NAME_KEY_H

#include "store/secret.h"
#include "store/store.h"

/* The database's key; the session caches it. STORE_NOT_FOUND: it has none, which is logged. */
enum store_status mongo_name_key(struct store *s, const struct name_key **key);
/* What Idempotency-Keys are hashed under, derived from it: likewise. */
enum store_status name_key_secret(struct store *s, struct key_secret *secret);
/* A new random key. */
struct name_key name_key_random(void);
/* Store the database's key, under which all its users must be hashed. STORE_EXISTS: it has another one, which stays. */
enum store_status mongo_name_key_put(struct store *s, const struct name_key *key);
/* The step of schema.c: make a random key for a database without users. */
enum store_status names_make_key(struct store *s);

#endif
