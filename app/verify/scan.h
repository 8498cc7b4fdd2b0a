/*
 * verify/scan.h -- reads a coupon for verify/replay.h: its views, codes and ledger, in an order that makes no false drift.
 *
 * Order    the tail, the checkpoint and the position in the totals; totals, definition, buckets and codes; then the tail again, and the
 *          ledger up to it (a small one in one read): so no view is ahead of the replay, and traffic makes no drift
 * Memory   bounded: users and buckets that do not fit are replayed in parts (part.h), each of which reads its own buckets, and the ledger
 * Errors   as store/store.h; each read is retried for some seconds
 */
#ifndef VERIFY_SCAN_H
#define VERIFY_SCAN_H

#include "base/buf.h"
#include "coupons/user_fold.h"
#include "store/mongo.h"
#include "store/reconcile.h"
#include "verify/drift.h"
#include "verify/part.h"

struct progress; /* the caller's */
/* Called with the progress, in steps of any size. */
typedef void scan_progress_fn(struct progress *p, int64_t done, int64_t total);

struct lane_ends;
struct lane_sums;
struct replay;

/* The caller's; members not set are zero. */
struct scan {
    struct store *session;
    struct term_key term_key; /* of the ledger's index */
    enum user_fold fold;      /* of users' names */
    const char *coupon;  /* the current one */
    struct buf ids;      /* the next coupons, each with its NUL, from ids_at on: scan_next_coupon()'s; the caller frees it */
    size_t ids_at;
    struct buf foreign;  /* documents whose _id names no coupon, once scan_next_coupon() found no further one; the caller frees it */
    int64_t parts_asked; /* 1 to PARTS_MOST; 0: by the size of the lane */
    scan_progress_fn *show; /* NULL: nothing is shown */
    struct progress *progress;
};

/* True if the call that returned status must be repeated: pauses first, each time for longer. *tries starts at 0. */
bool scan_again(enum store_status status, int *tries);

/* The lane's last batch, the caller's to free; NULL: it has none. */
enum store_status scan_last(struct scan *v, int64_t lane, struct batch **last);
/* The totals of the lane's last batch; all zero: it has none. */
enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail);
/* The hash of the lane's batch at seq, as it is stored; *is_there false: none. */
enum store_status scan_hash(struct scan *v, int64_t lane, int64_t seq, uint8_t hash[HASH_LEN], bool *is_there);
enum store_status scan_totals_position(struct scan *v, int64_t lane, struct stored_totals_position *position);
enum store_status scan_checkpoint(struct scan *v, int64_t lane, struct arena *a, struct stored_checkpoint *found);

/* Give the lane's batches with after < seq <= until, ascending, to take(). */
typedef void scan_batch_fn(void *context, const struct batch *b);
enum store_status scan_ledger(struct scan *v, int64_t lane, int64_t after, int64_t until, scan_batch_fn *take, void *context);

/* How many lanes the coupon has, by the first batch of its ledger. */
enum store_status scan_lanes(struct scan *v, int64_t *lanes);

/* How to scan a lane. */
struct scan_lane {
    int64_t lane, lanes;
    const struct head *tail; /* as it was before this; NULL: scan_lane() reads it */
    bool rebuild;           /* if the position is useless, require totals up to the tail */
    struct lane_sums *sums; /* filled for lane_sums_compare(); or NULL */
    drift_fn *report;
    /* Called with each part once ended; false: the others need not be read. Or NULL. */
    bool (*replayed)(void *context, struct replay *r);
    /* Called after the last part, to repair the checkpoint: if that is useless, buckets are required up to the tail. Or NULL: what is wrong
     * with it is reported. */
    void (*ended)(void *context, const struct lane_ends *ends);
    void *context;
};

/* Replay the lane, and compare its views. */
enum store_status scan_lane(struct scan *v, const struct scan_lane *how);

/* Add to lane 0's sums what it appended since; *still: no lane of lanes[] moved since it was replayed. */
enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still);

/* Check what stays of a coupon that was archived and removed: each lane's batches from the closing one on, checkpoint and position; totals
 * and the definition. *unfinished: something is still to be removed. */
enum store_status scan_removed(struct scan *v, int64_t lanes, bool *unfinished, drift_fn *report, void *context);

/* The drift of a coupon whose id is not valid. */
extern const struct drift drift_coupon_id;

/* Put into *id the next coupon after it (empty: the first) that has a ledger or any view; empty: none. The result may be no valid id, and
 * longer than one. */
enum store_status scan_next_coupon(struct scan *v, struct buf *id);

/* What is wrong with a slot's code, or with its look-up. */
enum code_fault {
    CODE_INVALID,
    CODE_DOUBLE,       /* slot `other` has it too */
    LOOK_UP_MISSING,
    LOOK_UP_DIFFERENT, /* it names slot `other` */
    LOOK_UP_STALE,     /* of a code that no slot has; or its slot cannot be read */
    LOOK_UP_WRONG,       /* it has a member that nobody writes */
    DIRECTORY_MISSING,
    DIRECTORY_DIFFERENT, /* it names slot `other` */
    DIRECTORY_FOREIGN    /* it names the coupon `owner` */
};
struct code_finding {
    enum code_fault fault;
    int64_t n, other;
    const char *code; /* normalised, as it is looked up */
    const char *owner;
    int64_t w;        /* of its bucket */
};
typedef void code_finding_fn(void *context, const struct code_finding *f);

/* Check the codes of c at slots below next_n, and all look-ups of such slots; a coupon without codes must have none. Constant memory. */
enum store_status scan_codes(struct scan *v, const struct coupon *c, int64_t next_n, code_finding_fn *fn, void *context);

#endif
