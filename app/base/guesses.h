/*
 * base/guesses.h -- how often a key, or an address, may look for a code that is not there, and how often a key with a rate of its own
 *                   may call: all workers count together.
 *
 * Shape    a table in shared memory, made by the master before it forks. An entry is the time when its owner's debt is paid: each look-up
 *          first adds a minute / per_minute to it, and takes that back if it finds something. An owner who owes less than a minute may go
 *          on; one who owes nothing has no entry
 * Promise  over a longer time, no more than per_minute failures a minute, and per_minute at first, however many are sent at once. A
 *          request that names several codes is accepted or refused as a whole: all its misses are owed
 * Bounds   nobody waits longer than GUESSES_WAIT_MAX_MS. When all entries near an owner's are taken, the one that owes
 *          least goes
 * Rates    the same by the second: each call is owed and never forgiven
 * Threads  any, of any process; no locks, so a process that dies leaves none behind
 */
#ifndef BASE_GUESSES_H
#define BASE_GUESSES_H

#include <stdint.h>

#include "base/result.h"

#define GUESSES_WAIT_MAX_MS 3600000

/* Of codes: a key, and an address; of keys, an address; a key that calls, by the second. */
enum guesser { GUESSER_KEY, GUESSER_ADDRESS, GUESSER_COUNT, GUESSER_OF_KEYS = GUESSER_COUNT, GUESSER_CALLER };

/* Make the shared memory, once, before the first fork. Without it (tools, unit tests) this process counts alone.
 * 0, or -1 with errno. */
int guesses_create(void) CPN_CHECKED;
/* `who` is about to look up this many codes, or to call. 0: it may, and owes them; otherwise nothing is owed, and the result is how many
 * ms `who` has to wait. most: in a minute, of GUESSER_CALLER in a second; 0: there is no limit. */
int64_t guesses_owe(enum guesser kind, const char *who, int most, int count);
/* Of the `count` codes that `who` has owed since guesses_owe(), `missed` were not found: forgive the others. */
void guesses_settle(enum guesser kind, const char *who, int most, int count, int missed);

#endif
