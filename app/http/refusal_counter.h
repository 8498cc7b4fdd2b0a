/*
 * http/refusal_counter.h -- what this worker refuses, counted per coupon and quarter hour, and written to the database by a thread that
 * no request waits for.
 *
 * Exact   each refusal counts once or not at all: a worker that is killed loses those of its last few seconds, REFUSALS_EVERY_MS
 *         where the database answers. What it refused is in no ledger
 * Bounds  REFUSALS_MAX counts in memory, in batches of REFUSALS_AT_ONCE; what is above, the log tells (refusals.uncounted)
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
/* A coupon that exists has refused. Any thread; quick. */
void refusal_counter_add(struct refusal_counter *c, const char *coupon, enum cpn_refusal r);
/* Write what is left, if the database takes it at once; else the log tells (refusals.unwritten). After the last add. */
void refusal_counter_stop(struct refusal_counter *c);

#endif
