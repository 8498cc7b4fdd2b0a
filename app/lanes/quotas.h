/*
 * lanes/quotas.h -- the lanes' quotas of a coupon's stock, daily cap and budget, and how they move between lanes.
 *
 * Shape    goes through lane 0: a lane that runs dry asks lane 0; if that is dry too, all others give to lane 0
 * Repeats  the next attempt finds what was given and not taken
 * Owns     records of coupons that ran dry: their lanes as of then
 * Threads  one
 */
#ifndef LANES_QUOTAS_H
#define LANES_QUOTAS_H

#include <stdatomic.h>

#include "lanes/fanout.h"

struct empty;

struct quotas {
    const struct asker *asker; /* borrowed, like `stopping`: true once nothing more should be tried */
    const atomic_bool *stopping;
    struct empty *empties;
};

void quotas_init(struct quotas *s, const struct asker *asker, const atomic_bool *stopping);
void quotas_release(struct quotas *s);

enum found { FOUND_SOME, FOUND_NOTHING, FOUND_BUSY };

/* Fetch what lane x lacks. FOUND_NOTHING: at one moment all lanes together had less, and none was on its way; *due_ms: when the first hold
 * of any lane ends, 0: none or unknown. FOUND_BUSY: lanes moved during every attempt, or time ran out. */
enum found quotas_fetch(struct quotas *s, const char *coupon, int64_t lanes, int64_t x, const struct outcome *lack, int tries,
                        int64_t *due_ms);
/* Lane 0 gives every other lane its quota of new stock. */
enum cpn_result quotas_spread(struct quotas *s, const char *coupon, int64_t lanes);
/* Bring this many slots to lane 0, as far as the others have them. */
enum cpn_result quotas_collect(struct quotas *s, const char *coupon, int64_t lanes, int64_t slots);
/* Settle shares of caps that may be new or lower: see decide_change(). BUSY: some lanes are still below 0, others above. */
enum cpn_result quotas_settle(struct quotas *s, const struct coupon *definition);

#endif
