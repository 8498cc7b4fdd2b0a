/*
 * base/guesses.h -- how often a key, or an address, may look for a code that is not there, and how often a key with a rate of its own
 *                   may call: all workers count together.
 *
 * Shape    a table in shared memory, made by the master before it forks. An entry is when its owner's debt is paid: each
 *          look-up adds a minute / per_minute to it before it is made, and takes that back if it finds something. Who owes
 *          less than a minute may go on; who owes nothing has no entry
 * Promise  of the failures of a longer time, no more than per_minute a minute, and per_minute at first, however many are
 *          sent at once. A request that names several codes is let in or refused as a whole: what it misses is all owed
 * Bounds   nobody waits longer than GUESSES_WAIT_MAX_MS. When all entries near an owner's are taken, the one that owes
 *          least goes
 * Rates    the same by the second: each call is owed and never forgiven
 * Threads  any, of any process; no locks, so that whoever dies leaves none behind
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
/* `who` is about to look for so many codes, or to call. 0: may, and owes them; else nothing is owed, and how many ms `who` has to wait.
 * most: in a minute, of GUESSER_CALLER in a second; 0: there is no limit. */
int64_t guesses_owe(enum guesser kind, const char *who, int most, int count);
/* Of the `count` codes that `who` owes since guesses_owe(), `missed` were not found: forgive the others. */
void guesses_settle(enum guesser kind, const char *who, int most, int count, int missed);

#endif
