/*
 * http/auth.h -- API keys: a snapshot of all of them in memory, reread every 500 ms by its own thread.
 *
 * New keys    work at once: a key missing from the snapshot makes the thread reread, at most every 100 ms, while its request waits
 * Compare     hashes of secrets, in constant time
 * Expiry      is checked against the clock at each request, whether or not the database answers
 */
#ifndef HTTP_AUTH_H
#define HTTP_AUTH_H

#include "http/request.h"

enum auth_answer {
    AUTH_OK,
    AUTH_NO,     /* no key, or malformed, expired or revoked */
    AUTH_UNKNOWN /* not in the snapshot: call auth_wait() */
};

struct auth *auth_start(struct worker *w);
void auth_stop(struct auth *a);

/* Check r's Authorization header. AUTH_OK: r->role, r->by and r->limits are the key's. */
enum auth_answer auth_check(struct auth *a, struct request *r);

/* True if the keys were read within the last ms milliseconds, so the database is reachable. Does not block. */
bool auth_fresh(const struct auth *a, int64_t ms);

/* Run r->then on an I/O thread once the keys have been reread; r->auth_failed: they could not be. */
enum handled auth_wait(struct auth *a, struct request *r);

#endif
