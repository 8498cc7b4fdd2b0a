/*
 * engine/lane.h -- a lane: loaded from the store, and advanced by its own batches and those of others.
 *
 * Parts    its state (lane_state.h): the redo log, the cached buckets, users, the free pool, what expires
 * Threads  the committer's; nothing here is shared
 * Errors   enum store_status; after STORE_FAILED the lane is as before and the call may be repeated
 */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

#include "engine/cached_bucket.h"
#include "engine/lane_state.h"
#include "engine/redo_log.h"

/* room: for its filter of users; cache: for their states. */
struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room, struct user_cache *cache);
void lane_free(struct lane *l);

struct lane_loading {
    struct lane *lane;
    enum store_status status; /* out */
};
/* Read checkpoint, definition, and the ledger after the checkpoint, of different lanes in the same reads; a lane that cannot be read
 * fails alone. One without a ledger loads as empty: tail.seq 0, no definition. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count);
/* Lane 0's ledger has no first batch: load the lane as that of no coupon. */
void lane_load_none(struct lane *l);
/* Return to the state before loading, as after a kill; the queues stay. Nothing may be pending. */
void lane_unload(struct lane *l);
/* Read what others appended after the tail, and add it to the redo log; or, if they wrote a checkpoint past the tail, forget what is in
 * memory and reload, so that no more is read than the redo log may hold, however long ago the last look was. STORE_FAILED may leave the
 * lane not loaded. */
enum store_status lane_refresh(struct lane *l, struct store *s);
/* Apply a batch that this process appended: tail, definition, redo log, buckets, users, jobs; used slots, and slots taken by name, leave
 * the free pool. Takes b. */
void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used);
/* Before a checkpoint: cache the buckets that others' batches touched, as not written. *more: call again. *covered: if not 0, others wrote
 * a checkpoint up to it, which is the tail or past it, and nothing was done. STORE_FAILED also if a bucket is ahead of the tail: then the
 * lane is stale. */
enum store_status lane_gather(struct lane *l, struct store *s, bool *more, int64_t *covered);
/* A checkpoint up to seq is written. */
void lane_checkpointed(struct lane *l, int64_t seq);

/* A job's progress as of the tail; NULL: not known in memory. */
const struct job_progress *lane_known_job(const struct lane *l, const char *job);
void lane_keep_job(struct lane *l, const struct job_progress *state);

#endif
