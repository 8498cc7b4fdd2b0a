/*
 * store/codec.h -- the documents of the database: BSON to structs and back. No I/O.
 *
 * Writing  appends to a document that the caller began, the _id first
 * Reading  false or NULL where the document is not one of ours; nothing is known of what was filled until then
 * Ledger   {_id: {c, l, seq}, batch, at, v, totals: {slots, due, next_n, issued, reserved, redeemed, ordinal,
 *          discount, elsewhere, minor_elsewhere, turn, low_stock, sold_out, replenish}, day: {start, taken, elsewhere},
 *          e: [{k, n, g, ...}], ended: [ids of redemptions] when any, prev, hash, k: the coupon's lanes where it has several,
 *          who: [{i, a, u, o, m, c, f}] when any: i is the index of the entry}
 * Views    stand in one sub-document `view`, whose first members say how old it is, so that {$max: {view: ...}} keeps
 *          the newest (see views_write.c)
 * Users    {_id: {c, h}, view: {seq, version, alias, total, day, today, erased, erased_lane, part: of the coupon, user: the name, due: only where there are no slots, redemptions: [...], orders: the
 *          hashes of theirs when any have one}}. h is the name's hash (names.h); the emptied view of an erased user, its tombstone,
 *          has no name. A view without orders is one that 1.0 wrote: verify tells, and reconcile mends it
 * Jobs     and accounts between lanes stand among the users, under names of their own (names.h): step, turn, fence; given_*, got_*
 * Parts    coupons fall into USER_STATE_PARTS parts by their id, and users are found by part and hash: new users come in no order, and by
 *          hash alone each would dirty another page of an index of all that ever were; so it is one of a part of it. A view
 *          without its part counts as unreadable
 * Buckets  {_id: {c, b}, view: {hops, seq, lane, pick, free, due, g: [generations up to the last that is not 0],
 *          t: [{i, s, u, at, due, from, issued, current}] of the slots that ever moved}}
 * Coupons  {_id: id, created, cleaned, view: {seq, version, changed, live, cleanup, def: the definition by coupon_fields[], metadata as
 *          text}, remains}. live: until when it is active, where its state is; cleanup: when it is to be cleaned up, once it has an end;
 *          cleaned: true once the sweeper has seen to that, until the view is written again, or "archived"; remains: see removal.c
 * Left     with an archived coupon: {_id, left: true, view: {seq or hops and seq: beyond all}}, of a batch {_id, left, batch, at, k}
 * Defaults what is as it mostly is, is left out: zeros, and what equals another member (last_seq: seq, first: state)
 */
#ifndef STORE_CODEC_H
#define STORE_CODEC_H

#include <bson/bson.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/fold.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"
#include "store/bson_fields.h"
#include "store/names.h"
#include "store/store.h"
#include "store/watermark.h"

#define USER_STATE_PARTS 64 /* stored: never to change */

/* `_id`s, under any name. Their order of fields is part of the key. */
void codec_ledger_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, int64_t seq);
void codec_mark_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, const char *kind);
void codec_user_state_id(bson_t *doc, const char *name, const char *coupon, const struct name_hash *hash);
void codec_bucket_id(bson_t *doc, const char *name, const char *coupon, int64_t b);
/* A filter's {_id: {$gte: {c, b: from}, $lt: {c, b: end}}}. */
void codec_bucket_range(bson_t *filter, const char *coupon, int64_t from, int64_t end);

void codec_batch_put(bson_t *doc, const struct batch *b);
/* When the server took in what it gives that time; 0: from before it did. */
uint64_t codec_arrived_get(const bson_t *doc);
/* The members arrived and held; one that cannot be read is none (arrived 0), whose owner looks at all lanes again. */
void codec_watermark_put(bson_t *doc, const struct watermark *w);
void codec_watermark_get(const bson_t *doc, struct watermark *w);
/* What was in the document has left with an archived coupon (removal.c). */
bool codec_has_left(const bson_t *doc);
/* The caller's to free; NULL: not a batch. */
struct batch *codec_batch_get(const bson_t *doc);
/* The same of a document that has no more than _id, at and entries: the batch has these alone. */
struct batch *codec_entries_get(const bson_t *doc);
/* What a batch's document says of its lane, by no more than _id, at, v, totals, day and k; false: not one of several. */
bool codec_heard_get(const bson_t *doc, struct heard *heard);
/* A batch's head, without its hash, by no more than at, v, totals and day. */
bool codec_head_get(const bson_t *doc, struct head *h);

/* The members of a view, without _id. key: by which its orders are found. */
void codec_user_state_put(bson_t *view, const char *coupon, const struct user_state *u, const struct name_key *key);
/* Whether the view has the hashes of the orders of u, which was read from it. */
bool codec_user_state_orders_fit(const bson_t *view, const struct user_state *u, const struct order_key *key);
/* A whole document. In a; *coupon, if not NULL, too. The user of a tombstone is NULL. */
struct user_state *codec_user_state_get(const bson_t *doc, struct arena *a, const char **coupon);
/* The same of the view alone, of one of the coupon's users. */
struct user_state *codec_user_state_view_get(const bson_t *view, const char *coupon, struct arena *a);
/* The same of a document that stands under this user's hash: a tombstone gets the name. NULL also where it has another one. */
struct user_state *codec_user_state_of(const bson_t *doc, const char *user, struct arena *a, const char **coupon);

/* NULL: it cannot be read, or is not the job's. In a. */
void codec_job_put(bson_t *view, const char *coupon, const struct job_progress *j);
struct job_progress *codec_job_get(const bson_t *doc, const char *job, struct arena *a);
/* The same. */
void codec_account_put(bson_t *view, const char *coupon, const struct lane_account *account);
struct lane_account *codec_account_get(const bson_t *doc, int64_t lane, int64_t peer, struct arena *a);

void codec_bucket_put(bson_t *view, const struct bucket *k);
/* A whole document. k is initialised here; released again when false. */
bool codec_bucket_get(const bson_t *doc, struct bucket *k);

/* The definition's members, into a document begun by the caller; without id and version. */
void codec_definition_put(bson_t *doc, const struct coupon *c);
struct coupon *codec_definition_get(const bson_t *doc, const char *id, int64_t version, struct arena *a);
/* changed_ms: the time of the batch seq. Only queries read it, and what follows from it. */
void codec_coupon_put(bson_t *view, const struct coupon *c, int64_t seq, int64_t changed_ms);
/* A whole document. */
struct coupon *codec_coupon_get(const bson_t *doc, struct arena *a, int64_t *seq);

/* What a lane's document in marks says, whatever its kind; false: it cannot be read. */
bool codec_mark_get(const bson_t *doc, struct mark *mark);

/* What a document of totals has of struct report_counts. */
extern const struct bson_field report_members[];
extern const size_t report_members_count;

/* Which documents are a user's, whatever the coupon: by the index users.user, in each of its parts. Also those whose
 * part cannot be read: who looks for a name is not to take such a view for none. */
void codec_user_filter(bson_t *filter, const struct name_hash *hash);
/* The same of those with an order, by the index users.order. Not what 1.0 wrote, nor another's with the same hash. */
void codec_order_filter(bson_t *filter, const struct name_key *key, const char *order);

/* What a document's _id says, borrowed from it: {c, <name>}. */
bool codec_id_text(const bson_t *doc, const char *name, const char **coupon, const char **text);
bool codec_user_state_id_get(const bson_t *doc, const char **coupon, struct name_hash *hash);
bool codec_id_int(const bson_t *doc, const char *name, const char **coupon, int64_t *value);

#endif
