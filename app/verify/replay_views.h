/*
 * verify/replay_views.h -- the stored views, codes and marks against the ledger: kept when read, compared when a batch reaches
 * them, and what is left of them in the end. No I/O.
 */
#ifndef VERIFY_REPLAY_VIEWS_H
#define VERIFY_REPLAY_VIEWS_H

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"
#include "store/names.h"

struct replay;

/* ---- before the first batch ---- */
/* The marks, read before the views; -1: one that cannot be read. */
void replay_marks(struct replay *r, int64_t views_seq, int64_t totals_seq);
/* The view that stands under this hash, and the name whose hash it is; NULL: none is there. view NULL: it cannot be read. */
void replay_view_user_state(struct replay *r, const struct name_hash *hash, const char *user, const struct user_state *view);
void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view);
/* The definition's view, or nothing of it; is_there: one that cannot be read. created_ms: -1: it has no time of making. */
void replay_view_coupon(struct replay *r, const struct coupon *view, bool is_there, int64_t seq, int64_t created_ms);
/* The codes that stand at the slots of bucket b (NULL: none); and before the first call, which slots must have one:
 * those below next_n, as it was before the codes were read. */
void replay_codes_until(struct replay *r, int64_t next_n);
void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS]);

/* ---- from a checkpoint: as they stood at its seq ---- */
struct user;
struct shelf;
void replay_views_go_on_user(struct replay *r, struct user *u);
void replay_views_go_on_shelf(struct replay *r, struct shelf *s);
void replay_views_go_on_definition(struct replay *r);
void replay_views_go_on_erasure(struct replay *r, int64_t seq, int64_t at_ms);

/* ---- batch by batch ---- */
/* Compare what b reaches, after its entries were folded. */
void replay_views_batch(struct replay *r, const struct batch *b);

/* ---- after the last ---- */
/* Users may be erased while the ledger is read, by batches after the last one told: what follows it is peeked at, so
 * that names which are gone by now are not missed. */
void replay_peek(struct replay *r, const struct batch *b);
/* And of those whose names still stood there when they were read: does the batch at seq still have one of this alias? */
typedef bool name_stays_fn(void *context, const char *alias, int64_t seq);
void replay_look_again(struct replay *r, name_stays_fn *stays, void *context);
void replay_views_end(struct replay *r);

#endif
