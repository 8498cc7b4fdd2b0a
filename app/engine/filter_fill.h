/*
 * engine/filter_fill.h -- the thread that reads the users in the views, for lanes whose filter did not start with their first batch.
 *
 * Shape    committers submit fills (filter.h); it reads a chunk of each in turn, then rests as long as that took, so it loads the database
 *          at most half the time
 * Errors   a chunk that cannot be read is retried a few times; then, or if there is no room, the fill is given back as it is, and its
 *          lane's users are read as before
 * Owns     a fill from fills_submit() until its done()
 * Threads  fills_submit() from any thread; done() is called from the thread, or from fills_submit() after fills_stop()
 */
#ifndef ENGINE_FILTER_FILL_H
#define ENGINE_FILTER_FILL_H

#include "engine/filter.h"

/* A new fill: the coupon's users as of `after`; room is their filter's. */
struct fill *fill_new(const char *coupon, struct store_time after, struct filter_room *room);
void fill_free(struct fill *f);

struct fills;
struct fills *fills_start(struct store_source *source, int backoff_ms);
void fills_submit(struct fills *fills, struct fill *f);
/* Give back unfinished fills, and end the thread. */
void fills_stop(struct fills *fills);
void fills_free(struct fills *fills);

#endif
