/*
 * http/guess_limit.h -- slows down callers that guess codes: per key (except keys embedded in pages), and per client address as nginx
 * reports it; and addresses that try unknown API keys, each of which has its own rate in nginx.
 *
 * Counted   a code that is unknown or somebody else's, whatever the answer
 * Not       keys of role ops, which may list all codes; codes that were found
 * Charged   before the look-up, so that sending many at once gains nothing; refunded before the answer if found or not decided
 */
#ifndef HTTP_GUESS_LIMIT_H
#define HTTP_GUESS_LIMIT_H

#include "http/request.h"

/* The request's key is not in the snapshot. True if its address may try another unknown key; the try is charged until
 * guess_limit_key_end(). False: answered, rate_limited. */
bool guess_limit_key(struct request *r);
/* The key is known after all, or could not be looked up: refund the try. */
void guess_limit_key_end(struct request *r);

/* True if the request may look for `count` codes, which are charged. False: answered, rate_limited. Call once per request. */
bool guess_limit_may(struct request *r, int count);
/* `count` of them were not found: they stay charged. */
void guess_limit_failed(struct request *r, int count);
/* The request is decided: refund the others. Call while its header is valid. */
void guess_limit_end(struct request *r);

#endif
