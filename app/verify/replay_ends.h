/*
 * verify/replay_ends.h -- a lane's checkpoint against what ends in the lane (holds, and what was issued with an end) and against how often
 * each shared code is used. No I/O.
 *
 * Rules    seq: not beyond the ledger. due: not later than the first end as of that seq, and there if anything ends: an earlier one only
 *          wakes a sweeper in vain. swept: without slots, nothing whose end is before that place is still open, and it is not in
 *          the future, where holds are yet to end. codes: how often they are used as of that seq
 * Usage    zero it but for `found`; each part's replay, which has it as lane_ends, notes what it knows; then ask; lane_ends_release()
 */
#ifndef VERIFY_REPLAY_ENDS_H
#define VERIFY_REPLAY_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "coupons/coupon.h"
#include "coupons/user_state.h"
#include "store/reconcile.h"
#include "verify/drift.h"
#include "verify/replay_users.h"

struct lane_ends {
    struct stored_checkpoint found;
    int64_t now_ms; /* swept may be up to this instant; 0: unknown */
    /* by the replays */
    int64_t tail_seq;
    int64_t ends_ms;      /* the coupon's ends_at as of the batch replayed last; 0: none */
    int64_t due_ms;       /* the first end as of found's seq; 0: none */
    int64_t due_tail_ms;  /* as of the tail */
    bool unswept;         /* something passed by swept has not ended: its end, and the place that was swept; any of them */
    int64_t unswept_ms;
    struct code_uses uses, uses_tail; /* as of found's seq, and of the tail */
};

/* Batch seq was replayed; and the last one was. uses NULL: another part has them. */
void lane_ends_batch(struct lane_ends *e, const struct kept_users *users, const struct code_uses *uses, const struct coupon *definition,
                     int64_t seq);
void lane_ends_end(struct lane_ends *e, const struct kept_users *users, const struct code_uses *uses, int64_t tail_seq);
void lane_ends_release(struct lane_ends *e);

/* Report what is wrong, after all parts. */
void lane_ends_report(const struct lane_ends *e, drift_fn *report, void *context);
/* What is wrong with it; catch_up: also if it is behind the tail, or missing. */
enum fault lane_ends_fault(const struct lane_ends *e, bool catch_up);
/* What it should be. catch_up: as of the tail. Nothing counts as swept, which is always true. Its uses are e's. */
struct checkpoint lane_ends_repaired(const struct lane_ends *e, bool catch_up);

#endif
