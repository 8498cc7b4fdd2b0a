/*
 * http/guess_limit.h -- whoever looks for codes that are not there is slowed down: per key (but for those of pages), and per address that
 *                 nginx tells; and so is an address that shows keys that are none, each of which has a rate of its own in nginx.
 *
 * Counted   a code that is unknown or somebody else's, whatever is answered
 * Not       keys of the role ops, which may list all codes; what is found
 * Owed      before anything is looked up, so that it does not matter how many requests are sent at once; what was found, and
 *           what was not decided, is forgiven before the answer goes out
 */
#ifndef HTTP_GUESS_LIMIT_H
#define HTTP_GUESS_LIMIT_H

#include "http/request.h"

/* Its key is none that is known yet. May its address show one more? Then it owes it. False: it is answered, rate_limited. */
bool guess_limit_key(struct request *r);
/* The key is known after all, or could not be looked for: forgive it. */
void guess_limit_key_end(struct request *r);

/* May this request look for so many codes? Then it owes them. False: it is answered, rate_limited. Once a request. */
bool guess_limit_may(struct request *r, int count);
/* So many of them were not found: these stay owed. */
void guess_limit_failed(struct request *r, int count);
/* The request is decided: forgive the others. Before its header is gone. */
void guess_limit_end(struct request *r);

#endif
