/*
 * engine/free_pool.h -- free slots that a lane keeps in memory, in the order in which they will be taken.
 *
 * Rule     each is in a cached bucket, and free there; whether anything is free is for the running totals to say, not the pool
 * Threads  the lane's
 */
#ifndef ENGINE_FREE_POOL_H
#define ENGINE_FREE_POOL_H

#include "engine/cached_bucket.h"

#define FREE_POOL_TOPUP_FIRST 2 /* buckets */

/* A free pool to fill, if it has less than `want` although more are free. */
struct top_up {
    struct lane *lane;
    size_t want;
    /* out */
    bool damaged; /* something free cannot be decoded */
    enum store_status status;
    /* within */
    size_t looks, chosen;
    bool searched;  /* nothing is left to choose */
    int64_t passed; /* buckets, in order */
    int64_t before; /* the cursor at the start of the last look */
};
/* Fill free pools of different lanes, all in the same reads. A bucket ahead of the tail makes its lane stale. */
void free_pool_top_up(struct store *s, struct top_up *tops, size_t count);

/* The first `used` slots were taken or skipped. */
void free_pool_spend(struct lane *l, size_t used);
/* Remove all slots of the bucket from the free pool. */
void free_pool_drop_bucket(struct lane *l, struct cached_bucket *c);
/* After somebody else's batch: refill from the cached buckets only. */
void free_pool_rebuild(struct lane *l);
/* An own batch named slots: remove them from the pool; append those that became free. */
void free_pool_note_named(struct lane *l, const struct batch *b);

#endif
