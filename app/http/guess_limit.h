/*
 * http/guess_limit.h -- slows down callers that guess codes: per user that a call names, over all keys; where it names none (keys of role
 * public), per client address as nginx reports it. And addresses that try unknown API keys, each of which has its own rate in nginx.
 *
 * Counted   a code that is unknown or somebody else's, whatever the answer
 * Not       keys of role ops, which may list all codes; codes that were found
 * Charged   before the look-up, so that no more than the limit are under way, and sending many at once gains nothing; settled when the
 *           request is decided: only misses stay charged
 */
#ifndef HTTP_GUESS_LIMIT_H
#define HTTP_GUESS_LIMIT_H

#include "http/request.h"

/* The request's key is not in the snapshot. True if its address may try another unknown key; the try is charged until
 * guess_limit_key_end(). False: answered, rate_limited. */
bool guess_limit_key(struct request *r);
/* The key is known after all, or could not be looked up: refund the try. */
void guess_limit_key_end(struct request *r);

/* True if the request, which names one code, may look for it; user is ignored for keys of role public. False: answered, rate_limited. */
bool guess_limit_may(struct request *r, const char *user);
/* True if a batch may look for `count` codes of this user: once for each user. False: those items are rate_limited. */
bool guess_limit_may_of(struct request *r, const char *user, int count);
/* `count` of that user's were not found: they stay charged. Of a single call, user is as for guess_limit_may(). */
void guess_limit_failed(struct request *r, const char *user, int count);
/* The request is decided: refund the others. Call while its header is valid. */
void guess_limit_end(struct request *r);

#endif
