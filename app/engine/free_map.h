/*
 * engine/free_map.h -- how many slots of each bucket are free: one byte a bucket, in memory.
 *
 * Where    read from the stored buckets (an index alone answers), with the redo log applied; from the lane's first bucket on, a part at a
 *          time, as far as a search has come. A bucket without a document is free
 * Rule     as of the tail. It only says where to look: what is free in a bucket, the bucket says
 * Threads  the lane's
 */
#ifndef ENGINE_FREE_MAP_H
#define ENGINE_FREE_MAP_H

#include "engine/lane_state.h"

/* True if all of the lane's buckets are in the map. */
bool free_map_is_whole(const struct lane *l);
/* Read the next part of each lane's map, in one call; of those that do not fit into it, nothing. A bucket ahead of the tail makes its lane
 * stale. */
enum store_status free_map_read(struct store *s, struct lane **lanes, size_t count);
/* Apply a batch, after the tail and the cached buckets have moved to it. */
void free_map_move(struct lane *l, const struct batch *b);
/* This is how the bucket is, as of the tail. */
void free_map_note(struct lane *l, const struct bucket *k);
/*
 * Choose at most `most` buckets with free slots of which none is in the free pool; returns how many.
 * In order: from the lane's cursor on, around to where the search began: *passed counts the buckets that it has passed. It stops where the
 * map does. At random: nothing until the map is whole. The first bucket is drawn with a probability proportional to its free slots, the
 * others uniformly: so when the slots of all of them are shuffled, every free slot of the lane is equally likely to be the first.
 */
size_t free_map_choose(struct lane *l, int64_t *chosen, size_t most, int64_t *passed);
void free_map_forget(struct lane *l);

#endif
