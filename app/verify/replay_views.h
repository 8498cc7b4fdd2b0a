/*
 * verify/replay_views.h -- compares the stored views, codes, totals and positions in them with the ledger: kept when read, compared when
 * the replay reaches their seq, the rest checked at the end. No I/O.
 */
#ifndef VERIFY_REPLAY_VIEWS_H
#define VERIFY_REPLAY_VIEWS_H

#include "coupons/batch.h"
#include "coupons/slot.h"
#include "store/reconcile.h"

struct replay;

/* ---- before the first batch ---- */
/* view NULL: it cannot be read. wrong: see reconcile.h. The definition and the totals are borrowed, for as long as r. */
void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view, const char *wrong);
void replay_view_coupon(struct replay *r, const struct stored_coupon *stored);
/* The codes of bucket b's slots (NULL: none). r->codes_next_n is known by then. */
void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS], const char *wrong);
/* The reporter's rows; unreadable ones have no counts; those of other lanes are skipped. */
void replay_totals(struct replay *r, const struct totals_row *rows, size_t count);

/* ---- batch by batch ---- */
/* After b's entries were folded: compare the views that are at its seq. */
void replay_views_batch(struct replay *r, const struct batch *b);
void totals_batch(struct replay *r, const struct batch *b);

/* ---- after the last ---- */
/* Users may be erased while the ledger is read, by batches after the last one replayed: look at those, so as not to report the names
 * that they removed as missing. */
void replay_later_erasures(struct replay *r, const struct batch *b);
/* And for erased users whose names were still there when read, though their batch no longer lists them: does the batch at seq still have a
 * name with this alias? */
typedef bool name_stays_fn(void *context, const char *alias, int64_t seq);
void replay_look_again(struct replay *r, name_stays_fn *stays, void *context);
void replay_views_end(struct replay *r);
void totals_end(struct replay *r);
void totals_release(struct replay *r);

#endif
