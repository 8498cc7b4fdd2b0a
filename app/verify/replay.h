/*
 * verify/replay.h -- the ledger told again, and compared with everything that is kept beside it. No I/O.
 *
 * Usage    replay_new(); then what was read of the views, codes and marks (replay_view_*, replay_codes, replay_totals,
 *          replay_marks); then every batch of the lane from seq 1 on, at least up to the tail as it stood after the
 *          views were read; then replay_end(), and replay_repairs() where the views are to be mended.
 *          So it may run while the lane is being written: a view is compared at the very seq at which it stands
 * Checks   each batch: seq without gap, hash, chain, running totals, ordinals, and the events that it had to raise;
 *          each entry: the slot's move and owner, what it says of the redemption that it is about, its key, the user's
 *          chain (`before`), the caps and the window as they were in force, turns at making codes, codes; each view,
 *          total and mark, field by field
 * Parts    a large lane is told in parts: the replay itself checks what belongs to no user and bucket, and sends the rest on
 *          (replay_send()); then each part (replay_part()) is told what was sent to it, and ended. Parts may be told side by side
 * Owns     copies of everything that it keeps
 */
#ifndef VERIFY_REPLAY_H
#define VERIFY_REPLAY_H

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "store/names.h"
#include "verify/drift.h"
#include "verify/part.h"
#include "verify/replay_state.h"

/* key: by which users are stored; it must outlive the replay. */
struct replay *replay_new(struct replay_parts parts, const struct name_key *key, drift_fn *report, void *context);
void replay_free(struct replay *r);

/* Of several parts: before anything is told, where what is theirs goes. What the sink gets is good during the call; definitions
 * as long as the replay. */
void replay_send(struct replay *whole, const struct replay_sink *sink);
/* Part `part` of a replay that was told everything; its views and entries come in the order in which they were sent. The whole is
 * freed after its parts. */
struct replay *replay_part(struct replay *whole, unsigned part, drift_fn *report, void *context);
void replay_entry(struct replay *r, const struct told_entry *t);

/* Before the first batch: names are not told, so none is missed. */
void replay_nameless(struct replay *r);
/* Before the first batch: what other lanes must agree with is summed up in *sums, the caller's. */
struct lane_sums;
void replay_sum(struct replay *r, struct lane_sums *sums);
void replay_batch(struct replay *r, const struct batch *b);
/* The same, where hash is b's own already (batch_hash()). */
void replay_hashed(struct replay *r, const struct batch *b, const uint8_t hash[HASH_LEN]);
/* A part's after the whole's. */
void replay_end(struct replay *r);

struct replay_sums replay_sums(const struct replay *r);
/* Of what is broken in the chain; a part's is the whole's. */
int64_t replay_broken(const struct replay *r);
/* As of the last batch told; the definition NULL: there is none. Good until replay_free(). */
const struct head *replay_tail(const struct replay *r);
const struct coupon *replay_definition(const struct replay *r);

#endif
