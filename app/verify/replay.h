/*
 * verify/replay.h -- replays a lane's ledger, and compares everything stored beside it. No I/O.
 *
 * Usage    replay_new(); then what was read of the views, codes and marks (replay_view_*, replay_codes, replay_totals,
 *          replay_marks); then all batches of the lane from seq 1, at least up to the tail read after the views;
 *          then replay_end(), and replay_repairs() if the views are to be repaired.
 *          Each view is compared at its own seq, so the lane may be written meanwhile
 * Checks   each batch: seq without gap, hash, chain, running totals, ordinals, and the events that it had to raise;
 *          each entry: the slot's move and owner, what it repeats of its redemption, its key, the user's chain (`before`),
 *          the caps and the window then in force, turns at making codes, codes; each view, total and mark, field by field
 * Parts    a large lane is replayed in parts: the replay itself checks what belongs to no user or bucket, and sends the rest
 *          on (replay_send()); then each part (replay_part()) gets what was sent to it, and is ended. Parts may run in parallel
 * Owns     copies of everything it keeps
 */
#ifndef VERIFY_REPLAY_H
#define VERIFY_REPLAY_H

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "store/names.h"
#include "verify/drift.h"
#include "verify/part.h"
#include "verify/replay_state.h"

/* key: that users are stored by; it must outlive the replay. */
struct replay *replay_new(struct replay_parts parts, const struct name_key *key, drift_fn *report, void *context);
void replay_free(struct replay *r);

/* With several parts, before any input: set where to send theirs. What the sink gets is valid during the call; definitions, as long as the
 * replay. */
void replay_send(struct replay *whole, const struct replay_sink *sink);
/* Part `part` of a replay that had all its input; give it its views and entries in the order in which they were sent. Free the whole after
 * its parts. */
struct replay *replay_part(struct replay *whole, unsigned part, drift_fn *report, void *context);
void replay_entry(struct replay *r, const struct told_entry *t);

/* Before the first batch: expect no names in the ledger. */
void replay_nameless(struct replay *r);
/* Before the first batch: sum up in *sums, the caller's, what other lanes must agree with. */
struct lane_sums;
void replay_sum(struct replay *r, struct lane_sums *sums);
void replay_batch(struct replay *r, const struct batch *b);
/* The same, given b's hash (batch_hash()). */
void replay_hashed(struct replay *r, const struct batch *b, const uint8_t hash[HASH_LEN]);
/* After all input. For a part, after the whole had all its batches. */
void replay_end(struct replay *r);

struct replay_sums replay_sums(const struct replay *r);
/* Drifts in the chain; for a part, the whole's. */
int64_t replay_broken(const struct replay *r);
/* As of the last batch; definition NULL: none. Valid until replay_free(). */
const struct head *replay_tail(const struct replay *r);
const struct coupon *replay_definition(const struct replay *r);

#endif
