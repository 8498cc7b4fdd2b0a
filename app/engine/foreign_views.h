/*
 * engine/foreign_views.h -- writing the views of batches that somebody else appended: another worker, or one that died.
 *
 * Shape    an index says once which batches touch which user and which bucket, and which jobs and accounts they touch; then, a chunk at
 *          a time, some views are read, the batches that touch them folded over, and written. A chunk is bounded in views and in bytes
 *          of names, and whoever calls may do other things between two chunks
 * Cost     linear: a batch is folded once for every user and bucket that it touches
 * Owns     its index; the batches stay the caller's, and alive
 * Threads  one at a time
 */
#ifndef ENGINE_FOREIGN_VIEWS_H
#define ENGINE_FOREIGN_VIEWS_H

#include "engine/window.h"
#include "store/store.h"

#define FOREIGN_USERS_MAX 1024
#define FOREIGN_BYTES_MAX (256u << 10) /* of names; one that is longer goes alone */
#define FOREIGN_BUCKETS_MAX 512

struct foreign_user;
struct foreign_job;
struct foreign_bucket;

struct foreign {
    const char *coupon; /* borrowed */
    int64_t lane;
    struct window_batch *const *batches; /* borrowed: all of a window, ascending */
    size_t batch_count;
    struct store_time after; /* for the reads: the mark's, on which the window stands */
    struct arena arena;
    struct foreign_user *users, *next_user;
    struct foreign_job *jobs;
    bool accounts[COUPON_LANES_MAX]; /* by the other lane: a batch of another writer tells of the account with it */
    bool jobs_due, accounts_due;
    struct foreign_bucket *buckets, *next_bucket;
    bool definition_due;
    size_t folds; /* how often a batch was folded over a user or a bucket */
};

struct foreign *foreign_new(const char *coupon, int64_t lane, struct window_batch *const *batches, size_t count,
                            struct store_time after);
void foreign_free(struct foreign *f);
/* Write the next chunk; *when: not before its writing. *done: all are written, by us, or by whoever moved the mark past them.
 * STORE_FAILED: the same chunk is the next one. */
enum store_status foreign_step(struct foreign *f, struct store *s, struct store_time *when, bool *done);

/* Write views, all of them, or STORE_FAILED; *when becomes the later of what it was and the writing. */
enum store_status write_all_views(struct store *s, struct view_write *writes, size_t count, struct store_time *when);

#endif
