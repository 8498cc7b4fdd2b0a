/*
 * base/rates.h -- limits how often a user, or an address, may look up unknown codes, and how often a key with a rate of its own may call:
 * counted over all workers.
 *
 * Shape    a table in shared memory, made by the master before it forks. An entry is the time when its owner's debt is paid: each look-up
 *          first adds a minute / per_minute to it, and takes that back if it finds something. An owner who owes less than a minute may go
 *          on; one who owes nothing has no entry
 * Promise  at most per_minute failures a minute, after a first burst of as many. Look-ups under way count as failures, so sending many at
 *          once gains nothing. What an owner looks up together is accepted or refused as a whole: all its misses are charged
 * Bounds   nobody waits longer than RATE_WAIT_MAX_MS. If all entries near an owner's are taken, the one that owes least is dropped
 * Rates    the same per second: each call is charged and never refunded
 * Threads  any, of any process; no locks, so a process that dies leaves none behind
 */
#ifndef BASE_RATES_H
#define BASE_RATES_H

#include <stdint.h>

#include "base/result.h"

#define RATE_WAIT_MAX_MS 3600000

/* Unknown codes: a user, an address; unknown keys: an address; calls: a key, per second. */
enum rate { RATE_CODES_OF_USER, RATE_CODES_OF_ADDRESS, RATE_UNKNOWN_KEYS, RATE_CALLS };

/* Make the shared memory, once, before the first fork. Without it (tools, unit tests) this process counts alone. 0, or -1 with errno. */
int rates_create(void) CPN_CHECKED;
/* `who` is about to look up this many codes, or to call. 0: allowed, and charged; otherwise nothing is charged, and the result is how many
 * ms `who` has to wait. most: per minute, for RATE_CALLS per second; 0: unlimited. */
int64_t rate_charge(enum rate kind, const char *who, int most, int count);
/* Of the `count` codes charged to `who` by rate_charge(), `missed` were not found: refund the others. */
void rate_settle(enum rate kind, const char *who, int most, int count, int missed);

#endif
