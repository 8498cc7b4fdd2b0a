/*
 * engine/free_pool.h -- free slots that a lane keeps in memory, in the order in which they go out.
 *
 * Rule     each is of a cached bucket, and free in it; the running totals, not the pool, say whether anything is free
 * Threads  the lane's
 */
#ifndef ENGINE_FREE_POOL_H
#define ENGINE_FREE_POOL_H

#include "engine/cached_bucket.h"

#define FREE_POOL_TOPUP_FIRST 2 /* buckets */

/* A free pool to be filled, when it holds less than `want` although more are free. */
struct top_up {
    struct lane *lane;
    size_t want;
    /* out */
    bool damaged; /* something that is free cannot be decoded */
    enum store_status status;
    /* within */
    bool from_start, wrapped, searched; /* the touched buckets */
    size_t found, looks;
};
/* Fill free pools of different lanes, all in the same reads. A bucket ahead of the tail makes its lane stale. */
void free_pool_top_up(struct store *s, struct top_up *tops, size_t count);

/* The first `used` went out, or were passed over. */
void free_pool_spend(struct lane *l, size_t used);
/* All slots of the bucket leave the free pool. */
void free_pool_drop_bucket(struct lane *l, struct cached_bucket *c);
/* After somebody else's batch: whatever is free in the cached buckets, and nothing else. */
void free_pool_rebuild(struct lane *l);
/* What an own batch did to slots that it named: they leave the free pool; those that came back go to its end. */
void free_pool_note_named(struct lane *l, const struct batch *b);
/* Slots that came from another lane by an own batch are wanted at once. */
void free_pool_add_received(struct lane *l, const struct batch *b);
/* Slots were made in buckets from `grows` on: they are looked for there next, and then where was not looked yet. */
void free_pool_look_from(struct lane *l, int64_t grows);

#endif
