/*
 * verify/scan.h -- reading a coupon for verify/replay.h: its views, codes and ledger, in the order that makes no false drift.
 *
 * Order    marks and the tail, then totals, definition, users, buckets and codes, then the ledger up to the tail as it
 *          stands after them: so no view is ahead of what is replayed, and traffic makes no drift
 * Memory   a large coupon is gone through in parts, each of which reads its views and the ledger anew
 * Errors   as store/store.h; each read is tried for some seconds
 */
#ifndef VERIFY_SCAN_H
#define VERIFY_SCAN_H

#include "store/mongo.h"
#include "store/reconcile.h"
#include "verify/part.h"

#define PARTS_MOST 100000

/* How far the reading is, in batches. */
typedef void scan_progress_fn(void *context, int64_t done, int64_t total);

struct replay;

/* The caller's; what it does not set is zero. */
struct scan {
    struct store *door;
    const struct name_key *name_key; /* by which users are to be found */
    const char *coupon;  /* at hand */
    int64_t parts_asked; /* 0: by the memory that is available */
    scan_progress_fn *progress;
    void *context; /* of progress */
};

/* True: the call, which gave status, is to be made again: after a pause that grows. *tries begins at 0. */
bool scan_again(enum store_status status, int *tries);

/* The lane's last batch's totals; all zero when it has none. */
enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail);
enum store_status scan_mark(struct scan *v, int64_t lane, const char *kind, struct stored_mark *mark);

/* How many lanes the coupon has, as its ledger begins. */
enum store_status scan_lanes(struct scan *v, int64_t *lanes);

/* Tell r everything of its part. rebuild: totals whose mark is of no use are wanted up to the tail. */
enum store_status scan_part(struct scan *v, struct replay_part part, bool rebuild, struct replay *r);

/* Into how many parts the lane is to be gone through: the i-th is scan_part_of(). */
unsigned scan_parts(const struct scan *v, const struct head *tail);
struct replay_part scan_part_of(unsigned part, unsigned parts, const struct head *tail, int64_t lane, int64_t lanes);

/* Tell sums what lane 0 appended since; *still: no lane of lanes[] moved since it was told. */
struct lane_sums;
enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still);

/* The next coupon after `after` ("": the first) that has a ledger or any view, into id; "": there is none. */
enum store_status scan_next_coupon(struct scan *v, const char *after, char id[COUPON_ID_MAX + 1]);

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
