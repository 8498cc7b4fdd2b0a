/*
 * verify/replay_repair.h -- what would repair the views, so that they agree with the replay. No I/O.
 */
#ifndef VERIFY_REPLAY_REPAIR_H
#define VERIFY_REPLAY_REPAIR_H

#include <stdbool.h>

#include "coupons/fold.h"
#include "store/reconcile.h"
#include "verify/drift.h"

struct replay;

/* What is wrong with one view, and the write that repairs it: without its coupon, guard and term key. */
struct repair {
    enum fault fault;
    const char *where; /* as in struct drift */
    struct rewrite write;
};
typedef void repair_fn(void *context, const struct repair *repair);

/* After replay_end(): report what must be done, superfluous views first. all: whatever is not as of the tail; else only what is wrong, or
 * missing up to the checkpoint: the service writes the rest. Call it for each part. */
void replay_repairs(struct replay *r, bool all, repair_fn *report, void *context);

/* What is wrong with the position of a lane in the totals, after the replay of its first part. */
enum fault repair_of_totals_position(const struct stored_totals_position *m, const struct replay *r);

#endif
