/*
 * http/guess.h -- whoever looks for codes that are not there is slowed down: per key, and per address that nginx tells.
 *
 * Counted   what answers code_not_found, or finds no coupon: whether the code is unknown or somebody else's
 * Not       keys of the role ops, which may list all codes; what is found
 */
#ifndef HTTP_GUESS_H
#define HTTP_GUESS_H

#include "http/request.h"

/* May this request look for a code? False: it is answered, rate_limited. */
bool guess_may(struct request *r);
/* So many codes that it named were not found. */
void guess_failed(struct request *r, int count);

#endif
