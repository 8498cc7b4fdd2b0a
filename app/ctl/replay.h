/*
 * ctl/replay.h -- the ledger told again, and compared with everything that is kept beside it. No I/O.
 *
 * Usage    replay_new(); then what was read of the views and marks (replay_view_*, replay_totals, replay_marks); then every
 *          batch of the lane from seq 1 on, at least up to the tail as it stood after the views were read; then replay_end().
 *          So it may run while the lane is being written: a view is compared at the very seq at which it stands
 * Checks   each batch: seq without gap, hash, chain, running totals, ordinals; each entry: the slot's move and owner, the
 *          caps as they were in force, keys, returns; each view, total and mark, field by field
 * Memory   a part of the users and buckets at a time: state for those alone is kept, and part 0 also checks what belongs to
 *          no user and bucket
 * Owns     copies of everything that it keeps
 */
#ifndef CTL_REPLAY_H
#define CTL_REPLAY_H

#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"
#include "coupons/use.h"
#include "store/mongo.h"

/* One thing that is not as the ledger says. */
struct drift {
    const char *what;     /* "ledger", "caps", "users", "buckets", "coupon", "totals", "marks" */
    const char *where;    /* "seq 88 entry 3", "u-17", "slot 1042", ... */
    const char *field;
    const char *expected; /* NULL: no single value can be named */
    const char *found;
};
typedef void drift_fn(void *context, const struct drift *d);

struct replay;

/* Which users and buckets one replay looks at: users by a hash of their alias, buckets by number. */
struct replay_part {
    unsigned part, parts;
    int64_t buckets; /* in each part; the last one has the rest. 0 where parts is 1 */
};
static inline int64_t replay_first_bucket(const struct replay_part *p)
{
    return p->part * p->buckets;
}
static inline int64_t replay_end_bucket(const struct replay_part *p)
{
    return p->part + 1 == p->parts ? INT64_MAX : (p->part + 1) * p->buckets;
}

struct replay *replay_new(int64_t lane, struct replay_part part, drift_fn *report, void *context);
void replay_free(struct replay *r);

/* The marks, read before the views. */
void replay_marks(struct replay *r, int64_t views_seq, int64_t totals_seq);
void replay_view_use(struct replay *r, const struct use *view);
void replay_view_bucket(struct replay *r, const struct bucket *view);
/* The definition's view; NULL: there is none. */
void replay_view_coupon(struct replay *r, const struct coupon *view, int64_t seq);
/* The reporter's rows; those of other lanes are left out. */
void replay_totals(struct replay *r, const struct totals_row *rows, size_t count);

void replay_batch(struct replay *r, const struct batch *b);
void replay_end(struct replay *r);

struct replay_sums {
    int64_t batches, entries, users, buckets, drifts; /* users and buckets: of this part */
};
struct replay_sums replay_sums(const struct replay *r);

#endif
