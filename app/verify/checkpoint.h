/*
 * verify/checkpoint.h -- a lane's state at a seq: what a replay that was told everything up to there knows, as records from which a
 * later one goes on, and reads only the batches that follow. No I/O.
 *
 * Usage    after replay_end(), checkpoint_put() of each part and then of the replay itself gives the records. Later, when the views
 *          were told, replay_go_on(), each record in any order but the one in which quarter hours came, then the batches after seq
 * Holds    what the chain covers: aliases, slots, times, counts, hashes of keys. No name, order, metadata, code or fingerprint: so an
 *          erasure does not change what was true at seq, and those of before are taken as the views have them
 * Marks    must have reached seq: a view of before it then stands as it stood there, or later
 * Trust    records may say anything: one that cannot be read is a drift. What they say is believed, so who wrote them matters
 */
#ifndef VERIFY_CHECKPOINT_H
#define VERIFY_CHECKPOINT_H

#include <stddef.h>

#include "verify/lane_checkpoint.h"

struct replay;

typedef void record_fn(void *context, const char *bytes, size_t len);
/* The records of a part, or of the replay itself: what it has of its own. */
void checkpoint_put(const struct replay *r, record_fn *put, void *context);
/* Of the replay itself: as of its last batch. The definition is good until replay_free(). */
struct lane_checkpoint checkpoint_of(const struct replay *r);

/* Of a replay that was told no batch yet. */
void replay_go_on(struct replay *r, const struct lane_checkpoint *c);
/* Of a replay in parts: what is a part's is sent there. */
void replay_record(struct replay *r, const char *bytes, size_t len);

#endif
