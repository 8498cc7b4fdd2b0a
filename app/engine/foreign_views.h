/*
 * engine/foreign_views.h -- writes the views of batches that somebody else appended: another worker, or one that died.
 *
 * Shape    an index is built once of which batches touch which users and buckets, and of the jobs they touch; then, chunk by
 *          chunk, views are read, the batches that touch them folded over, and written. A chunk is bounded in views and in bytes of names;
 *          the caller may do other work between chunks
 * Cost     linear: a batch is folded once per user and bucket it touches
 * Owns     its index; the batches stay the caller's, and alive
 * Threads  one at a time
 */
#ifndef ENGINE_FOREIGN_VIEWS_H
#define ENGINE_FOREIGN_VIEWS_H

#include "engine/window.h"
#include "store/store.h"

#define FOREIGN_USERS_MAX 1024
#define FOREIGN_BYTES_MAX (256u << 10) /* of names; a longer one goes alone */
#define FOREIGN_BUCKETS_MAX 512

struct foreign_user;
struct foreign_job;
struct foreign_bucket;

struct foreign {
    const char *coupon; /* borrowed */
    int64_t lane;
    struct window_batch *const *batches; /* borrowed: all of a window, ascending */
    size_t batch_count;
    struct store_time after; /* for the reads: that of the mark before the window */
    struct arena arena;
    struct foreign_user *users, *next_user;
    struct foreign_job *jobs;
    bool jobs_due;
    struct foreign_bucket *buckets, *next_bucket;
    bool definition_due;
    size_t folds; /* folds so far, of a batch over a user or a bucket */
};

struct foreign *foreign_new(const char *coupon, int64_t lane, struct window_batch *const *batches, size_t count,
                            struct store_time after);
void foreign_free(struct foreign *f);
/* Write the next chunk; *when: not before its writing. *done: all are written, by us or by whoever moved the mark past them. STORE_FAILED:
 * the next call repeats the chunk. */
enum store_status foreign_step(struct foreign *f, struct store *s, struct store_time *when, bool *done);

/* Write all these views, or STORE_FAILED; *when becomes the later of itself and the writing. */
enum store_status write_all_views(struct store *s, struct view_write *writes, size_t count, struct store_time *when);

#endif
