/*
 * verify/pack.h -- what a part of a replay is told, as bytes that can be put away and told later, in this process. No I/O.
 *
 * Form     a struct's words without their upper bytes that are zero, then its strings and lists. Definitions go by their address: they
 *          stay where they are
 * Trust    the bytes are our own: what cannot be unpacked is a bug of ours
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
/* Of a checkpoint. */
void pack_record(struct buf *out, const char *bytes, size_t len);
void pack_codes(struct buf *out, int64_t b, const char *const codes[BUCKET_SLOTS]);

/* Send each of the packed things to sink, in order, as the part's. */
void unpack_all(const char *bytes, size_t len, unsigned part, const struct replay_sink *sink);

#endif
