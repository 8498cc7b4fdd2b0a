/*
 * http/refusal_counter.h -- this worker's refusals, counted per coupon and quarter hour, and written to the database by a thread of its
 * own.
 *
 * Exact   each refusal counts at most once: a worker that is killed loses those of the last REFUSALS_EVERY_MS, or since the database last
 *         answered. The ledger has no refusals
 * Bounds  REFUSALS_MAX counts in memory, written REFUSALS_AT_ONCE at a time; any above that are logged (refusals.uncounted)
 */
#ifndef HTTP_REFUSAL_COUNTER_H
#define HTTP_REFUSAL_COUNTER_H

#include "base/result.h"

#define REFUSALS_EVERY_MS 2000
#define REFUSALS_MAX 16384
#define REFUSALS_AT_ONCE 200

struct mongo;
struct refusal_counter;

struct refusal_counter *refusal_counter_start(struct mongo *m);
/* Count a refusal by an existing coupon. Any thread; quick. */
void refusal_counter_add(struct refusal_counter *c, const char *coupon, enum cpn_refusal r);
/* Write what is left if the database takes it at once; else log it (refusals.unwritten). After the last add. */
void refusal_counter_stop(struct refusal_counter *c);

#endif
