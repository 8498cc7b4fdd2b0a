/*
 * store/codec.h -- the documents of the database: BSON to structs and back. No I/O.
 *
 * Writing  appends to a document that the caller has begun, _id first
 * Reading  false or NULL if the document is not one of ours; what was filled in by then is undefined
 * Ledger   {_id: {c, l, seq}, batch, at, v, totals: {slots, due, next_n, issued, reserved, redeemed, ordinal, discount, elsewhere,
 *          turn, low_stock, sold_out, replenish, archived, epoch}, day: {start, taken},
 *          e: [{k, n, g, ...}], ended: [ids of redemptions] if any, prev, hash, k: the coupon's lanes if it has several,
 *          who: [{i: the entry's index, a, u, o, m, c, f}] if any, arrived}
 * Views    are one sub-document `view`, whose first members are its age, so that {$max: {view: ...}} keeps the newest (see views_write.c)
 * Users    {_id: {c, h}, view: {seq, version, alias, total, day, today, erased, erased_lane, part: the coupon's, user: the name, due: only
 *          without slots, redemptions: [...], orders: the hashes of their orders, if any}}. h is the name's hash (names.h). A tombstone,
 *          the emptied view of an erased user, has no name. A view that lacks the hashes was written by 1.0: verify reports it, and
 *          reconcile repairs it
 * Jobs     are stored among the users, under names of their own (names.h): step, turn, fence
 * Parts    coupons fall into USER_STATE_PARTS parts by their id, and users are found by part and hash. New users come in no order: by hash
 *          alone, each would dirty another page of an index of all users ever; by part, of only a part of it. A view without its part
 *          counts as unreadable
 * Buckets  {_id: {c, b}, view: {hops, seq, lane, pick, free, due, g: [generations up to the last that is not 0],
 *          t: [{i, s, u, at, due, from, issued, current}] of the slots that ever moved}}
 * Coupons  {_id: id, created, cleaned, view: {seq, version, changed, live, cleanup, def: the definition by coupon_fields[], metadata as
 *          text}, remains}. live: until when it is active, if its state says so; cleanup: when to clean it up, once it has an end;
 *          cleaned: true once the sweeper has handled that, until the view is written again, or "archived"; remains: see removal.c
 * Left     with an archived coupon: {_id, left: true, view: {seq or hops and seq: above all others}}, of a batch {_id, left, batch, at, k}
 * Defaults usual values are left out: zeros, and what equals another member (last_seq: seq, first: state)
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

#define USER_STATE_PARTS 64 /* stored: must never change */

/* Append an `_id`, under any name. The order of its fields is part of the key. */
void codec_ledger_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, int64_t seq);
void codec_mark_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, const char *kind);
void codec_user_state_id(bson_t *doc, const char *name, const char *coupon, const struct name_hash *hash);
void codec_bucket_id(bson_t *doc, const char *name, const char *coupon, int64_t b);
/* Append {_id: {$gte: {c, b: from}, $lt: {c, b: end}}} to a filter. */
void codec_bucket_range(bson_t *filter, const char *coupon, int64_t from, int64_t end);

void codec_batch_put(bson_t *doc, const struct batch *b);
/* The cluster time at which the server received it; 0: it is older than this member. */
uint64_t codec_arrived_get(const bson_t *doc);
/* The members arrived and held. A watermark that cannot be read counts as none (arrived 0): its owner looks at all lanes again. */
void codec_watermark_put(bson_t *doc, const struct watermark *w);
void codec_watermark_get(const bson_t *doc, struct watermark *w);
/* True if the document's content has left with an archived coupon (removal.c). */
bool codec_has_left(const bson_t *doc);
/* The caller frees it; NULL: not a batch. */
struct batch *codec_batch_get(const bson_t *doc);
/* The same for a document with only _id, at and entries: the batch has only these. */
struct batch *codec_entries_get(const bson_t *doc);
/* What a batch's document says about its lane, from _id, at, v, totals, day and k alone. False: it cannot be read, or has no k. */
bool codec_heard_get(const bson_t *doc, struct heard *heard);
/* A batch's head, without seq and hash, from at, v, totals and day alone. */
bool codec_head_get(const bson_t *doc, struct head *h);

/* Append a view's members, without _id. key: for the hashes of its orders. */
void codec_user_state_put(bson_t *view, const char *coupon, const struct user_state *u, const struct name_key *key);
/* True if the view has the hashes of u's orders; u was read from it. */
bool codec_user_state_orders_fit(const bson_t *view, const struct user_state *u, const struct order_key *key);
/* From a whole document, into a; also *coupon, unless coupon is NULL. A tombstone's user is NULL. */
struct user_state *codec_user_state_get(const bson_t *doc, struct arena *a, const char **coupon);
/* The same from the view alone, of one of the coupon's users. */
struct user_state *codec_user_state_view_get(const bson_t *view, const char *coupon, struct arena *a);
/* The same from a document under this user's hash: a tombstone gets the name. NULL also if it has another name. */
struct user_state *codec_user_state_of(const bson_t *doc, const char *user, struct arena *a, const char **coupon);

/* Read into a. NULL: it cannot be read, or is not this job's. */
void codec_job_put(bson_t *view, const char *coupon, const struct job_progress *j);
struct job_progress *codec_job_get(const bson_t *doc, const char *job, struct arena *a);

void codec_bucket_put(bson_t *view, const struct bucket *k);
/* From a whole document. Initialises k, and releases it again if false. */
bool codec_bucket_get(const bson_t *doc, struct bucket *k);

/* Append the definition's members, without id and version. */
void codec_definition_put(bson_t *doc, const struct coupon *c);
struct coupon *codec_definition_get(const bson_t *doc, const char *id, int64_t version, struct arena *a);
/* changed_ms: the time of batch seq. Only queries read it, and what is derived from it. */
void codec_coupon_put(bson_t *view, const struct coupon *c, int64_t seq, int64_t changed_ms);
/* From a whole document. */
struct coupon *codec_coupon_get(const bson_t *doc, struct arena *a, int64_t *seq);

/* Read a lane's mark, of any kind; false: it cannot be read. */
bool codec_mark_get(const bson_t *doc, struct mark *mark);

/* The members of struct report_counts in a document of totals. */
extern const struct bson_field report_members[];
extern const size_t report_members_count;

/* Filter for a user's documents, of any coupon: by the index users.user, in each of its parts. Includes those whose
 * part cannot be read: a search for a name must not miss such a view. */
void codec_user_filter(bson_t *filter, const struct name_hash *hash);
/* The same for those with an order, by the index users.order. Misses what 1.0 wrote; also matches an order with the same hash. */
void codec_order_filter(bson_t *filter, const struct name_key *key, const char *order);

/* Read a document's _id, {c, <name>}; texts are borrowed from it. */
bool codec_id_text(const bson_t *doc, const char *name, const char **coupon, const char **text);
bool codec_user_state_id_get(const bson_t *doc, const char **coupon, struct name_hash *hash);
bool codec_id_int(const bson_t *doc, const char *name, const char **coupon, int64_t *value);

#endif
