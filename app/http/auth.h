/*
 * http/auth.h -- API keys: a snapshot of all of them in memory, renewed every 500 ms by a thread of its own.
 *
 * New keys    are found at once: a key that the snapshot does not know makes the thread read again, at most every 100 ms,
 *             and its request waits for that
 * Compare     hashes of secrets, in constant time
 * Expiry      is decided by the clock at each request, whether or not the database answers
 */
#ifndef HTTP_AUTH_H
#define HTTP_AUTH_H

#include "http/request.h"

enum auth_answer {
    AUTH_OK,
    AUTH_NO,     /* no key, not a key, expired or revoked */
    AUTH_UNKNOWN /* the snapshot has no such key: auth_wait() */
};

struct auth *auth_start(struct worker *w);
void auth_stop(struct auth *a);

/* Whose key is r's Authorization header: on AUTH_OK r->role, r->by and r->limits are its own. */
enum auth_answer auth_check(struct auth *a, struct request *r);

/* Were the keys read in the last so many ms? Then the database answers. Does not block. */
bool auth_fresh(const struct auth *a, int64_t ms);

/* Let r->then run on an io thread when the keys have been read again; r->auth_failed: they could not be. */
enum handled auth_wait(struct auth *a, struct request *r);

#endif
