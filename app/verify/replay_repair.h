/*
 * verify/replay_repair.h -- what would mend the views, from how they stand to what was told. No I/O.
 */
#ifndef VERIFY_REPLAY_REPAIR_H
#define VERIFY_REPLAY_REPAIR_H

#include "coupons/fold.h"
#include "store/reconcile.h"
#include "verify/drift.h"

struct replay;

/* A view as it should be: exactly one of user state, job, account, bucket, definition and totals, or for a superfluous one none. */
struct repair {
    enum fault fault;
    const char *what;  /* "users", "buckets", "coupons", "totals" */
    const char *where; /* as in struct drift */
    struct name_hash hash; /* its key, by kind */
    const char *alias; /* of a user state that is superfluous, as it stands; NULL: not known */
    int64_t b;
    int64_t quarter_ms;
    int64_t found_seq; /* at which the stored one stands; -1: there is none, or it cannot be read */
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct lane_account *account;
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq, created_ms, changed_ms; /* of the definition */
    const struct totals_row *totals;
};
typedef void repair_fn(void *context, const struct repair *repair);

/* After replay_end(): what is to be done, the superfluous first. all: whatever is not as of the tail; else only what is
 * wrong, or missing below the mark: the service writes the rest. Of a replay in parts: of each part, then of the whole, which
 * has what no part claimed. From a checkpoint: to be counted, not carried out, for names and orders of before are lacking. */
void replay_repairs(struct replay *r, bool all, repair_fn *tell, void *context);

/* What is wrong with the mark of a lane whose last batch is `tail`; catch_up: also that it is behind. The mark of another cluster's
 * time (of a backup) makes readers wait for a time that does not come. */
enum fault repair_of_mark(const struct stored_mark *m, int64_t tail, bool catch_up, struct store_time now);

#endif
