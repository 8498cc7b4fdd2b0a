/* deliver/backoff.c -- see backoff.h. */
#include "deliver/backoff.h"

#include <sodium.h>

#define FACTOR 3

int64_t backoff_ms(const struct config *config, int64_t failures, int64_t retry_after_ms)
{
    int64_t most = (int64_t)config->webhooks_retry_most_s * 1000, ms = config->webhooks_retry_first_ms;

    for (int64_t i = 1; i < failures && ms < most; i++)
        ms *= FACTOR;
    if (ms > most)
        ms = most;
    ms += randombytes_uniform((uint32_t)(ms / 5 + 1));
    if (ms < retry_after_ms)
        ms = retry_after_ms < most ? retry_after_ms : most;
    return ms;
}
