/*
 * engine/lane.h -- a lane: loaded from the store, and moved on by its own batches and those of others.
 *
 * Parts    its state (lane_state.h): the window, the cached buckets, the pool of free slots, what ends by itself
 * Threads  a lane belongs to one committer thread; nothing here is shared
 * Errors   enum store_status; after STORE_FAILED the lane is as before and the call may be repeated
 */
#ifndef ENGINE_LANE_H
#define ENGINE_LANE_H

#include "engine/cached_bucket.h"
#include "engine/lane_state.h"
#include "engine/window.h"

/* room: for its filter of users. */
struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room);
void lane_free(struct lane *l);

struct lane_loading {
    struct lane *lane;
    enum store_status status; /* out */
};
/* Read mark, definition, ledger after the mark, of different lanes in the same reads; a lane of which something cannot be read fails
 * alone. One without ledger loads as empty: tail.seq 0, no definition. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count);
/* The ledger of lane 0 has no first batch: there is no such coupon. */
void lane_load_none(struct lane *l);
/* Back to the state before loading, like after a kill; the queues stay. Nothing is pending. */
void lane_unload(struct lane *l);
/* Follow what others appended after the tail: lay it into the window; or, where views are written past the tail, forget what is in
 * memory and load anew, so that as much is read as the window may hold, however long nobody looked. Watchers may be due then.
 * STORE_FAILED may leave the lane not loaded. */
enum store_status lane_refresh(struct lane *l, struct store *s);
/* Lay a batch that this process appended: tail, definition, window, buckets; used slots, and those that were taken by their
 * name, leave the free pool. Takes b. */
void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used);

#endif
