/*
 * verify/replay.h -- replays a lane's ledger, and compares everything stored beside it. No I/O.
 *
 * Usage    replay_new(); then its first members, as replay_state.h says; then what was read of buckets, definition, codes and totals
 *          (replay_view_*, replay_codes, replay_totals); then all batches of the lane from seq 1, at least up to the tail read after the
 *          buckets; then replay_end(), and replay_repairs() if something is to be repaired; then its head, definition and sums say what
 *          was found. Each view is compared at its own seq, so the lane may be written meanwhile
 * Checks   each batch: seq without gap, hash, chain, running totals, ordinals, the events that it had to raise, and what is stored with it;
 *          each entry: the slot's move and owner, what it repeats of its redemption, its key, the user's chain (`before`), the caps and the
 *          window then in force, turns at making codes, codes; each view, the totals and the position in them, field by field; that no
 *          erased user's name is left, unless its batch still lists the alias
 * Parts    if users and buckets do not fit in memory, one replay for each part gets all batches. The first also checks what belongs to no
 *          user or bucket; the others believe the ledger's chain. Views of other parts' buckets are skipped
 * Owns     copies of what it keeps, but for the stored definition and totals
 */
#ifndef VERIFY_REPLAY_H
#define VERIFY_REPLAY_H

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "store/reconcile.h"
#include "verify/drift.h"
#include "verify/part.h"
#include "verify/replay_state.h"

struct replay *replay_new(const struct part *part, drift_fn *report, void *context);
void replay_free(struct replay *r);

void replay_batch(struct replay *r, const struct batch *b);
/* The same with what is stored with the batch, and its hash (batch_hash()), which only the first part needs. */
void replay_stored(struct replay *r, const struct stored_batch *stored, const uint8_t hash[HASH_LEN]);
/* After all input. */
void replay_end(struct replay *r);

#endif
