/*
 * store/secrets.h -- secrets that all fronts share, and nobody else has: 32 random bytes each, in the collection `secrets`.
 *
 * Shape    {_id: what it is for, key, at}; made once, never changed
 * names    the key from which those are derived under which names (terms.h) and Idempotency-Keys are hashed in the ledger. Under another
 *          one no user would be found, and every cap would start over: so it is made with the database, and is in the same backup as the
 *          ledger
 * cursors  the key of list cursors
 */
#ifndef STORE_SECRETS_H
#define STORE_SECRETS_H

#include "store/store.h"
#include "store/terms.h"

/* A new random secret. */
struct secret secret_random(void);

/* The key of names; the session caches it. STORE_NOT_FOUND: the database has none, which is logged. */
enum store_status mongo_name_key(struct store *s, const struct secret **key);
/* What Idempotency-Keys are hashed under, derived from it: likewise. */
enum store_status name_key_secret(struct store *s, struct key_secret *secret);
/* Store the key under which all users of the database must be hashed. STORE_EXISTS: it has another one, which stays. */
enum store_status mongo_name_key_put(struct store *s, const struct secret *key);
/* The step of schema.c: make a random key for a database without users. */
enum store_status names_make_key(struct store *s);

/* The key of list cursors; the session caches it. Generated if absent. */
enum store_status mongo_cursor_key(struct store *s, const struct secret **key);

#endif
