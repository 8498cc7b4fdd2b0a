/*
 * verify/pack.h -- the input of a replay's part as bytes, to be stored and replayed later in this process. No I/O.
 *
 * Form     a struct's words without leading zero bytes, then its strings and lists. Definitions are packed by address: they stay in place
 * Trust    the bytes are our own: failing to unpack them is a bug
 */
#ifndef VERIFY_PACK_H
#define VERIFY_PACK_H

#include "base/arena.h"
#include "base/buf.h"
#include "verify/replay_state.h"

void pack_entry(struct buf *out, const struct told_entry *t);
void pack_user_state(struct buf *out, const struct name_hash *hash, const char *user, const struct user_state *view);
/* view NULL: it cannot be read. */
void pack_bucket(struct buf *out, int64_t b, const struct bucket *view);
void pack_codes(struct buf *out, int64_t b, const char *const codes[BUCKET_SLOTS]);

/* Send all that was packed to sink, in order, for the part. */
void unpack_all(const char *bytes, size_t len, unsigned part, const struct replay_sink *sink);

#endif
