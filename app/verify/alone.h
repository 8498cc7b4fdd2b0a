/*
 * verify/alone.h -- a lane's ledger told by itself, batch by batch, from wherever it comes: without views, names and codes.
 *
 * Memory   constant: of a large lane users and buckets are told in parts, as in scan.h
 */
#ifndef VERIFY_ALONE_H
#define VERIFY_ALONE_H

#include "coupons/batch.h"
#include "verify/drift.h"
#include "verify/replay_lanes.h"

struct alone;

/* takings and slots: about as many as the lane has; what does not fit them is told too, in more memory. sums (or NULL): replay_sum(). NULL:
 * no temporary file can be made (errno). */
struct alone *alone_begin(int64_t lane, int64_t lanes, int64_t takings, int64_t slots, struct lane_sums *sums, drift_fn *report,
                          void *context);
void alone_batch(struct alone *t, const struct batch *b);
/* Tell the parts, and free it. *tail gets the last batch's totals, *entries how many there were. False: the temporary file failed (errno);
 * nothing is known. */
bool alone_end(struct alone *t, struct head *tail, int64_t *entries);

#endif
