/*
 * deliver/backoff.h -- when a delivery that failed is attempted again.
 */
#ifndef DELIVER_BACKOFF_H
#define DELIVER_BACKOFF_H

#include <stdint.h>

#include "base/config.h"

/* How many ms to wait after this many failures, from 1: each wait is three times the last, up to webhooks.retry_most_s, plus a random
 * fifth; at least what the receiver asked for by Retry-After (0: nothing), but of that at most webhooks.retry_most_s. */
int64_t backoff_ms(const struct config *config, int64_t failures, int64_t retry_after_ms);

#endif
