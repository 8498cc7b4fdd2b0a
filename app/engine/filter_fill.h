/*
 * engine/filter_fill.h -- the thread that reads which users the views have, for lanes whose filter was not kept from their first batch.
 *
 * Shape    committers hand it fills (filter.h); it reads a chunk of each in turn, and rests as long as each took, so that it takes half
 *          of the database's patience at the most
 * Errors   a chunk that cannot be read is tried again a few times; then, or where there is no room, the fill is given back as it is,
 *          and its lane's users are read as before
 * Owns     a fill from fills_submit() until its done()
 * Threads  fills_submit() from any thread; done() is called from the thread, or from fills_submit() after fills_stop()
 */
#ifndef ENGINE_FILTER_FILL_H
#define ENGINE_FILTER_FILL_H

#include "engine/filter.h"

/* A new fill of the coupon's users as they stand `after`; room is where their filter is. */
struct fill *fill_new(const char *coupon, struct store_time after, struct filter_room *room);
void fill_free(struct fill *f);

struct fills;
struct fills *fills_start(struct store_source *source, int backoff_ms);
void fills_submit(struct fills *fills, struct fill *f);
/* Give back what is not finished, and end the thread. */
void fills_stop(struct fills *fills);
void fills_free(struct fills *fills);

#endif
