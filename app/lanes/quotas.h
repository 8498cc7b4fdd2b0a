/*
 * lanes/quotas.h -- what the lanes of a coupon have of its stock, of the day's cap and of its budget, and how that moves between them.
 *
 * Shape    lane 0 in the middle: a lane that has nothing left asks lane 0; if that has nothing either, all others give to lane 0
 * Repeats  the next attempt finds what was given and not taken
 * Owns     the lanes of coupons that had nothing left, as they were then
 * Threads  one
 */
#ifndef LANES_QUOTAS_H
#define LANES_QUOTAS_H

#include <stdatomic.h>

#include "lanes/fanout.h"

struct empty;

struct quotas {
    const struct asker *asker; /* borrowed, like `stopping`: true when nothing should be tried any more */
    const atomic_bool *stopping;
    struct empty *empties;
};

void quotas_init(struct quotas *s, const struct asker *asker, const atomic_bool *stopping);
void quotas_release(struct quotas *s);

enum found { FOUND_SOME, FOUND_NOTHING, FOUND_BUSY };

/* Have lane x get what it lacks. FOUND_NOTHING: there was a moment at which all lanes together had less, and none was under way; *due_ms:
 * when the first hold of any lane ends, 0: none, or not known. FOUND_BUSY: lanes moved during every attempt, or there was no time. */
enum found quotas_fetch(struct quotas *s, const char *coupon, int64_t lanes, int64_t x, const struct outcome *lack, int tries,
                        int64_t *due_ms);
/* Lane 0 gives every other lane its quota of what is new. */
enum cpn_result quotas_spread(struct quotas *s, const char *coupon, int64_t lanes);
/* So many slots come to lane 0, as far as the others have them. */
enum cpn_result quotas_collect(struct quotas *s, const char *coupon, int64_t lanes, int64_t slots);
/* Shares of caps that may be new, or lower: see decide_change(). BUSY: lanes are still below and above 0. */
enum cpn_result quotas_settle(struct quotas *s, const struct coupon *definition);

#endif
