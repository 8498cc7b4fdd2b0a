/*
 * ctl/replay.h -- the ledger told again, and compared with everything that is kept beside it. No I/O.
 *
 * Usage    replay_new(); then what was read of the views, codes and marks (replay_view_*, replay_codes, replay_totals,
 *          replay_marks); then every batch of the lane from seq 1 on, at least up to the tail as it stood after the
 *          views were read; then replay_end(), and replay_repairs() where the views are to be mended.
 *          So it may run while the lane is being written: a view is compared at the very seq at which it stands
 * Checks   each batch: seq without gap, hash, chain, running totals, ordinals, and the events that it had to raise;
 *          each entry: the slot's move and owner, what it says of the redemption that it is about, its key, the user's
 *          chain (`before`), the caps and the window as they were in force, turns at making codes, codes; each view,
 *          total and mark, field by field
 * Memory   a part of the users and buckets at a time: state for those alone is kept, and part 0 also checks what
 *          belongs to no user and bucket
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
#include "store/names.h"

/* One thing that is not as the ledger says. */
struct drift {
    const char *what;     /* "ledger", "caps", "codes", "users", "buckets", "coupons", "totals", "marks", "lanes" */
    const char *where;    /* "seq 88 entry 3", "u-17", "slot 1042", ... */
    const char *field;
    const char *expected; /* NULL: no single value can be named */
    const char *found;
};
typedef void drift_fn(void *context, const struct drift *d);

struct replay;

/* Which lane one replay tells again, and which of its users and buckets it looks at: users by a hash of their alias, buckets by
 * number. What belongs to no lane is the last one's. */
struct replay_part {
    unsigned part, parts;
    int64_t buckets; /* in each part; the last one has the rest. 0 where parts is 1 */
    int64_t lane, lanes; /* lanes 0: as 1 */
};
#define LANE_BUCKETS (LANE_SLOTS / BUCKET_SLOTS)
static inline int64_t replay_first_bucket(const struct replay_part *p)
{
    return p->lane * LANE_BUCKETS + p->part * p->buckets;
}
static inline int64_t replay_end_bucket(const struct replay_part *p)
{
    if (p->part + 1 < p->parts)
        return p->lane * LANE_BUCKETS + (p->part + 1) * p->buckets;
    return p->lane + 1 < p->lanes ? (p->lane + 1) * LANE_BUCKETS : INT64_MAX;
}

/* key: by which users are stored; it must outlive the replay. */
struct replay *replay_new(struct replay_part part, const struct name_key *key, drift_fn *report, void *context);
void replay_free(struct replay *r);

/* The marks, read before the views; -1: one that cannot be read. */
void replay_marks(struct replay *r, int64_t views_seq, int64_t totals_seq);
/* The view that stands under this hash, and the name whose hash it is; NULL: none is there. view NULL: it cannot be read. */
void replay_view_use(struct replay *r, const struct name_hash *hash, const char *user, const struct use *view);
void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view);
/* The definition's view, or nothing of it; is_there: one that cannot be read. created_ms: -1: it has no time of making. */
void replay_view_coupon(struct replay *r, const struct coupon *view, bool is_there, int64_t seq, int64_t created_ms);
/* The reporter's rows, those that cannot be read without counts; those of other lanes are left out. */
void replay_totals(struct replay *r, const struct totals_row *rows, size_t count);
/* The codes that stand at the slots of bucket b (NULL: none); and before the first call, which slots must have one:
 * those below next_n, as it was before the codes were read. */
void replay_codes_until(struct replay *r, int64_t next_n);
void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS]);

/* Before the first batch, of part 0: what other lanes must agree with is summed up in *sums, the caller's. */
struct lane_sums;
void replay_sum(struct replay *r, struct lane_sums *sums);
void replay_batch(struct replay *r, const struct batch *b);
/* Users may be erased while the ledger is read, by batches after the last one told: what follows it is peeked at, so
 * that names which are gone by now are not missed. */
void replay_peek(struct replay *r, const struct batch *b);
/* And of those whose names still stood there when they were read: does the batch at seq still have one of this alias? */
typedef bool name_stays_fn(void *context, const char *alias, int64_t seq);
void replay_look_again(struct replay *r, name_stays_fn *stays, void *context);
void replay_end(struct replay *r);

struct replay_sums {
    int64_t batches, entries, users, buckets, drifts; /* users and buckets: of this part */
    int64_t broken; /* of them, in the ledger's chain: what follows from it is not to be believed */
};
struct replay_sums replay_sums(const struct replay *r);
/* As of the last batch told; the definition NULL: there is none. Good until replay_free(). */
const struct head *replay_tail(const struct replay *r);
const struct coupon *replay_definition(const struct replay *r);

/* ---- what would mend the views ---- */
enum fault {
    FAULT_NONE,
    FAULT_MISSING,
    FAULT_BEHIND,     /* right, but of an earlier seq than it should be */
    FAULT_DIFFERENT,  /* not what the ledger says at its seq; or not readable */
    FAULT_SUPERFLUOUS, /* of nothing in the ledger */
    FAULT_COUNT
};

/* A view as it should be: exactly one of use, bucket, definition and totals, or for a superfluous one none. */
struct repair {
    enum fault fault;
    const char *what;  /* "users", "buckets", "coupons", "totals" */
    const char *where; /* as in struct drift */
    struct name_hash hash; /* its key, by kind */
    const char *alias; /* of a use that is superfluous, as it stands; NULL: not known */
    int64_t b;
    int64_t quarter_ms;
    int64_t found_seq; /* at which the stored one stands; -1: there is none, or it cannot be read */
    const struct use *use;
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t seq, created_ms, changed_ms; /* of the definition */
    const struct totals_row *totals;
};
typedef void repair_fn(void *context, const struct repair *repair);

/* After replay_end(): what is to be done, the superfluous first. all: whatever is not as of the tail; else only what is
 * wrong, or missing below the mark: the service writes the rest. */
void replay_repairs(struct replay *r, bool all, repair_fn *tell, void *context);

#endif
