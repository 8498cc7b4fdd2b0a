/*
 * store/secrets.h -- secrets that all fronts share, and nobody else has: 32 random bytes each, in the collection `secrets`.
 *
 * Shape   {_id: what it is for, key, at}; made once, never changed
 * Ids     "names": see name_key.h; "cursors": the key of list cursors
 */
#ifndef STORE_SECRETS_H
#define STORE_SECRETS_H

#include "store/secret.h"
#include "store/store.h"

/* Read the secret with this id; STORE_NOT_FOUND. */
enum store_status secrets_read(struct store *s, const char *id, struct secret *secret);
/* Store the secret, unless there is one, which stays: STORE_OK either way. */
enum store_status secrets_put(struct store *s, const char *id, const struct secret *secret);
/* A new random secret. */
struct secret secrets_random(void);

/* The key of list cursors; the session caches it. Generated if absent. */
enum store_status mongo_cursor_key(struct store *s, const struct secret **key);

#endif
