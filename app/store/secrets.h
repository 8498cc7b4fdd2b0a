/*
 * store/secrets.h -- what all fronts must have alike, and nobody else: 32 random bytes each, in the collection `secrets`.
 *
 * Shape   {_id: what it is for, key, at}; made once, never changed
 * Ids     "names": see names.h; "cursors": the key of lists' cursors
 */
#ifndef STORE_SECRETS_H
#define STORE_SECRETS_H

#include "store/secret.h"
#include "store/store.h"

/* The one of this id; STORE_NOT_FOUND. */
enum store_status secrets_read(struct store *s, const char *id, struct secret *secret);
/* Let this be it, unless there is one: of two that put one at once the other's stays. */
enum store_status secrets_put(struct store *s, const char *id, const struct secret *secret);
/* Another one than any. */
struct secret secrets_random(void);

/* The key of cursors, which the session keeps; made where there is none. */
enum store_status mongo_cursor_key(struct store *s, const struct secret **key);

#endif
