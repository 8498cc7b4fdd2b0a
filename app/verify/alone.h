/*
 * verify/alone.h -- replays a lane's ledger alone, batch by batch, from any source: without views, names and codes.
 *
 * Memory   constant: a large lane's users and buckets are replayed in parts, as in scan.h
 */
#ifndef VERIFY_ALONE_H
#define VERIFY_ALONE_H

#include "coupons/batch.h"
#include "verify/drift.h"
#include "verify/replay_lanes.h"

struct alone;

/* takings and slots: about how many the lane has; if it has more, that takes more memory. sums (or NULL): see replay_sum(). Returns NULL if
 * no temporary file can be made (errno). */
struct alone *alone_begin(int64_t lane, int64_t lanes, int64_t takings, int64_t slots, struct lane_sums *sums, drift_fn *report,
                          void *context);
void alone_batch(struct alone *t, const struct batch *b);
/* Replay the parts, and free it. *tail: the last batch's totals; *entries: how many entries there were. False: the temporary file failed
 * (errno), and nothing is known. */
bool alone_end(struct alone *t, struct head *tail, int64_t *entries);

#endif
