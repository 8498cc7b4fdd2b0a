/*
 * verify/checkpoint.h -- a lane's state at a seq: what a replay up to there knows, as records from which a later one continues, with only
 * the batches after seq. No I/O.
 *
 * Usage    after replay_end(), checkpoint_put() of each part, then of the replay itself, yields the records. Later, after the views:
 *          replay_go_on(), all records in any order (except that quarter hours keep theirs), then the batches after seq
 * Holds    what the chain covers: aliases, slots, times, counts, hashes of keys. No name, order, metadata, code or fingerprint: so an
 *          erasure does not change what was true at seq. Those from before seq are taken from the views, unchecked
 * Marks    must have reached seq, so that each view is as of seq or later
 * Trust    records may say anything: an unreadable one is a drift. The others are believed, so it matters who wrote them
 */
#ifndef VERIFY_CHECKPOINT_H
#define VERIFY_CHECKPOINT_H

#include <stddef.h>

#include "verify/lane_checkpoint.h"

struct replay;

typedef void record_fn(void *context, const char *bytes, size_t len);
/* Put the records of a part, or the replay's own. */
void checkpoint_put(const struct replay *r, record_fn *put, void *context);
/* The replay's position: after its last batch. The definition is valid until replay_free(). */
struct lane_checkpoint checkpoint_of(const struct replay *r);

/* Before the first batch: continue from c. */
void replay_go_on(struct replay *r, const struct lane_checkpoint *c);
/* Take a record; a replay in parts sends a part's there. */
void replay_record(struct replay *r, const char *bytes, size_t len);

#endif
