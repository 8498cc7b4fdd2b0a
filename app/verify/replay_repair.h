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

/* What should be stored: exactly one of bucket, definition, totals, index and erasing; none of them: remove it. */
struct repair {
    enum fault fault;
    const char *what;  /* "buckets", "coupons", "totals", "ledger" */
    const char *where; /* as in struct drift */
    int64_t b;
    int64_t quarter_ms;
    int64_t found_seq; /* the stored view's; -1: there is none, or it cannot be read */
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq, created_ms, changed_ms; /* of the definition */
    const struct totals_row *totals;
    bool index;          /* of batch seq */
    const char *erasing; /* the alias, which batch seq must list */
};
typedef void repair_fn(void *context, const struct repair *repair);

/* After replay_end(): report what must be done, superfluous views first. all: whatever is not as of the tail; else only what is wrong, or
 * missing up to the checkpoint: the service writes the rest. Call it for each part. */
void replay_repairs(struct replay *r, bool all, repair_fn *report, void *context);

/* What is wrong with the totals' mark of a lane, after the replay of its first part. */
enum fault repair_of_mark(const struct stored_mark *m, const struct replay *r);

#endif
