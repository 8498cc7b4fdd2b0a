/*
 * verify/replay_repair.h -- what would repair the views, so that they agree with the replay. No I/O.
 */
#ifndef VERIFY_REPLAY_REPAIR_H
#define VERIFY_REPLAY_REPAIR_H

#include "coupons/fold.h"
#include "store/reconcile.h"
#include "verify/drift.h"

struct replay;

/* A view as it should be: exactly one of user state, job, bucket, definition and totals; none of them: remove it. */
struct repair {
    enum fault fault;
    const char *what;  /* "users", "buckets", "coupons", "totals" */
    const char *where; /* as in struct drift */
    struct name_hash hash; /* its key, by kind */
    const char *alias; /* of a superfluous user state, as stored; NULL: unknown */
    int64_t b;
    int64_t quarter_ms;
    int64_t found_seq; /* the stored view's; -1: there is none, or it cannot be read */
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq, created_ms, changed_ms; /* of the definition */
    const struct totals_row *totals;
};
typedef void repair_fn(void *context, const struct repair *repair);

/* After replay_end(): tell what must be done, superfluous views first. all: whatever is not as of the tail; else only what is wrong, or
 * missing up to the mark: the service writes the rest. With parts: call it for each part, then for the whole, which has what no part
 * claimed. After a checkpoint: only count them, since earlier names and orders are missing. */
void replay_repairs(struct replay *r, bool all, repair_fn *tell, void *context);

/* What is wrong with the mark of a lane whose last batch is `tail`; catch_up: also if it is behind. A mark with another cluster's time
 * (from a backup) is wrong: readers would wait for a time that does not come. */
enum fault repair_of_mark(const struct stored_mark *m, int64_t tail, bool catch_up, struct store_time now);

#endif
