/*
 * verify/scan.h -- reading a coupon for verify/replay.h: its views, codes and ledger, in the order that makes no false drift.
 *
 * Order    marks and the tail, then users, totals, definition, buckets and codes, then the ledger up to the tail as it
 *          stands after them: so no view is ahead of what is replayed, and traffic makes no drift
 * Memory   constant: of a large lane users and buckets are told in parts (replay.h). Everything is read once, and put away for
 *          its part in a temporary file (spill.h)
 * Threads  of a large lane as many as there are processors, each with a session of its own
 * Errors   as store/store.h; each read is tried for some seconds
 */
#ifndef VERIFY_SCAN_H
#define VERIFY_SCAN_H

#include "base/buf.h"
#include "store/mongo.h"
#include "store/reconcile.h"
#include "verify/checkpoint.h"
#include "verify/drift.h"
#include "verify/part.h"

/* How far it is, in steps of any size. */
typedef void scan_progress_fn(void *context, int64_t done, int64_t total);

struct lane_sums;
struct replay;

/* The caller's; what it does not set is zero. */
struct scan {
    struct store *session;
    struct store *(*another_session)(void *context); /* for another thread; stays open. NULL: there is none */
    const struct name_key *name_key; /* by which users are to be found */
    const char *coupon;  /* at hand */
    int64_t parts_asked; /* 1 to PARTS_MOST; 0: by the size of the lane */
    scan_progress_fn *progress;
    void *context; /* of both */
};

/* True: the call, which gave status, is to be made again: after a pause that grows. *tries begins at 0. */
bool scan_again(enum store_status status, int *tries);

/* The lane's last batch, the caller's to free; NULL: it has none. */
enum store_status scan_last(struct scan *v, int64_t lane, struct batch **last);
/* The lane's last batch's totals; all zero when it has none. */
enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail);
enum store_status scan_mark(struct scan *v, int64_t lane, const char *kind, struct stored_mark *mark);

/* How many lanes the coupon has, as its ledger begins. */
enum store_status scan_lanes(struct scan *v, int64_t *lanes);

/* How a lane is to be told. */
struct scan_lane {
    int64_t lane, lanes;
    bool rebuild;           /* totals whose mark is of no use are wanted up to the tail */
    struct lane_sums *sums; /* filled for lane_sums_compare(); or NULL */
    const struct lane_checkpoint *from; /* good by scan_checkpoint(); NULL: from the start */
    bool (*record)(void *context, struct buf *record); /* its next one; false: that was all */
    drift_fn *report;
    /* Each part when it was told and ended, then the replay itself; or NULL. Neither this nor report is called twice at a time. */
    void (*told)(void *context, struct replay *r);
    void *context;
};
/* What keeps a lane from being told from a checkpoint. */
enum checkpoint_fault {
    CHECKPOINT_GOOD,
    CHECKPOINT_AHEAD,     /* the ledger ends before it */
    CHECKPOINT_DIFFERENT, /* one of its batches is missing, or another */
    CHECKPOINT_MARKS      /* views or totals are not written up to it: nothing is wrong with that */
};
/* Read the batches that c names, and set its head and, in a, its definition, if they are as it says. */
enum store_status scan_checkpoint(struct scan *v, int64_t lane, struct lane_checkpoint *c, struct arena *a,
                                  enum checkpoint_fault *fault);

/* Tell the lane again, and compare its views. */
enum store_status scan_lane(struct scan *v, const struct scan_lane *how);

/* Tell sums what lane 0 appended since; *still: no lane of lanes[] moved since it was told. */
enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still);

/* What is there of a coupon that has left for its archive: lanes' last batches, their marks, totals and definition, and what it left
 * behind. *unfinished: something is still to leave. */
enum store_status scan_removed(struct scan *v, int64_t lanes, bool *unfinished, drift_fn *report, void *context);

/* What a coupon has whose id is not one that the service permits. */
extern const struct drift drift_coupon_id;

/* The next coupon after *id (empty: the first) that has a ledger or any view, into *id; empty: there is none. What stands there may be
 * no valid id, and longer. */
enum store_status scan_next_coupon(struct scan *v, struct buf *id);

/* What is wrong with the code of a slot, or with what leads to it. */
enum code_fault {
    CODE_INVALID,
    CODE_DOUBLE,       /* slot `other` has it too */
    LOOK_UP_MISSING,
    LOOK_UP_DIFFERENT, /* it says `other` */
    LOOK_UP_STALE,     /* of a code that is at no slot; harmless */
    DIRECTORY_MISSING,
    DIRECTORY_DIFFERENT, /* it says that slot `other` has it */
    DIRECTORY_FOREIGN    /* it says that the coupon `owner` has it */
};
struct code_finding {
    enum code_fault fault;
    int64_t n, other;
    const char *code; /* normalised, as it is looked up */
    const char *owner;
    int64_t w;        /* of its bucket */
};
typedef void code_finding_fn(void *context, const struct code_finding *f);

/* Go through the codes of slots below next_n of c, which has codes. stale: also look for stale look-ups. Constant
 * memory. */
enum store_status scan_codes(struct scan *v, const struct coupon *c, int64_t next_n, bool stale, code_finding_fn *fn,
                             void *context);

#endif
