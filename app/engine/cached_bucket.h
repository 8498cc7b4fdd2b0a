/*
 * engine/cached_bucket.h -- buckets that a lane keeps in memory, as of its tail.
 *
 * Rule     a bucket stays while it is not written, or while it has slots in the free pool
 * Threads  the lane's
 */
#ifndef ENGINE_CACHED_BUCKET_H
#define ENGINE_CACHED_BUCKET_H

#include "engine/lane_state.h"

struct cached_bucket {
    struct bucket bucket;
    const char **codes; /* [BUCKET_SLOTS], one block of memory, owned; NULL: not read, or the coupon has none */
    bool dirty;     /* what is stored is older, or may be */
    int free_pool_left; /* its slots in the free pool */
    UT_hash_handle hh; /* by bucket.b */
};

/* The cached bucket, or NULL. */
struct cached_bucket *cached_bucket_find(struct lane *l, int64_t b);
/* Apply the redo log to a bucket that was read, and cache it; takes it. NULL: it is ahead of the tail. */
struct cached_bucket *cached_bucket_add(struct lane *l, struct bucket *k);
/* The same for one that may be cached already; NULL: it is ahead of the tail, and the lane is now stale. */
struct cached_bucket *cached_bucket_keep(struct lane *l, struct bucket *k);
/* True if the bucket's codes must be read before its slots can be named or given out. */
bool cached_bucket_wants_codes(const struct lane *l, const struct cached_bucket *c);
/* Keep a copy of the codes that were read. */
void cached_bucket_set_codes(struct cached_bucket *c, const struct bucket_codes_read *read);
/* Drop buckets that are written and that have nothing in the free pool. */
void cached_bucket_evict(struct lane *l);
void cached_bucket_forget_all(struct lane *l);

#endif
