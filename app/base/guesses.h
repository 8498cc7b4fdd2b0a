/*
 * base/guesses.h -- how often a key, or an address, may look for a code that is not there: all workers count together.
 *
 * Shape    a table in shared memory, made by the master before it forks. An entry is when its owner's debt is paid: each
 *          failure adds a minute / per_minute to it. Who owes less than a minute may go on; who owes nothing has no entry
 * Promise  of the failures of a longer time, no more than per_minute a minute, and per_minute at first: those that were
 *          under way together when the limit was reached are all owed, and make the wait longer
 * Bounds   nobody waits longer than GUESSES_WAIT_MAX_MS. When all entries near an owner's are taken, the one that owes
 *          least goes
 * Threads  any, of any process; no locks, so that whoever dies leaves none behind
 */
#ifndef BASE_GUESSES_H
#define BASE_GUESSES_H

#include <stdint.h>

#include "base/result.h"

#define GUESSES_WAIT_MAX_MS 3600000

enum guesser { GUESSER_KEY, GUESSER_ADDRESS, GUESSER_COUNT };

/* Make the shared memory, once, before the first fork. Without it (tools, unit tests) this process counts alone.
 * 0, or -1 with errno. */
int guesses_create(void) CPN_CHECKED;
/* How many ms `who` has to wait; 0: may look. per_minute 0: there is no limit. */
int64_t guesses_wait_ms(enum guesser kind, const char *who, int per_minute);
/* So many look-ups of theirs found nothing. */
void guesses_failed(enum guesser kind, const char *who, int per_minute, int count);

#endif
