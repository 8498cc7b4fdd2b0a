/*
 * store/codec.h -- the documents of the database: BSON to structs and back. No I/O.
 *
 * Writing  appends to a document that the caller has begun, _id first
 * Reading  false or NULL if the document is not one of ours; what was filled in by then is undefined
 * Ledger   {_id: {c, l, seq}, batch, at, v, totals: {slots, due, next_n, issued, reserved, redeemed, ordinal, discount, elsewhere,
 *          turn, low_stock, sold_out, replenish, archived, epoch}, day: {start, taken},
 *          e: [{k, n, g, ...}], prev, hash, k: the coupon's lanes if it has several, who: [{i: the entry's index, a, u, o, m, c, f}] if
 *          any, part, terms and due (terms.h), erasing: [aliases whose names this batch erases, until none is left], arrived}
 * View     what is stored beside the ledger is one sub-document `view`, which begins with its seq, so that {$max: {view: ...}} keeps the
 *          newest (see checkpoint_write.c)
 * Lanes    {_id: {c, l}, view: {seq, swept, swept_seq, due}}: the lane's checkpoint
 * Buckets  {_id: {c, b}, view: {seq, lane, free, due, g: [generations up to the last that is not 0],
 *          t: [{i, s, u, at, due, from, issued, current}] of the slots that ever moved}}
 * Coupons  {_id: id, created, cleaned, view: {seq, version, changed, live, cleanup, def: the definition by coupon_fields[], metadata as
 *          text}}. live: until when it is active, if its state says so; cleanup: when to clean it up, once it has an end;
 *          cleaned: true once the sweeper has asked for that job, until the view is written again; "archived" once its removal
 *          was asked for
 * Defaults usual values are omitted: zeros, and what equals another member (last_seq: seq, first: state)
 */
#ifndef STORE_CODEC_H
#define STORE_CODEC_H

#include <bson/bson.h>

#include "coupons/batch.h"
#include "coupons/code_counts.h"
#include "coupons/coupon.h"
#include "coupons/fold.h"
#include "coupons/slot.h"
#include "coupons/user_state.h"
#include "store/bson_fields.h"
#include "store/store.h"
#include "store/terms.h"

struct watermark;

/* Append an `_id`, under any name: {c, <member>: number}, of a lane ("l") or a bucket ("b"); or a batch's. The order of its fields is part
 * of the key. */
void codec_id(bson_t *doc, const char *name, const char *coupon, const char *member, int64_t number);
void codec_ledger_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, int64_t seq);

/* key: for its terms. */
void codec_batch_put(bson_t *doc, const struct batch *b, const struct term_key *key);
/* Append the members that are derived from entries and names: terms; due. Absent if empty. */
void codec_terms_put(bson_t *doc, const struct batch *b, const struct term_key *key);
void codec_due_put(bson_t *doc, const struct batch *b);
/* The cluster time at which the server received it; 0: it is older than this member. */
uint64_t codec_arrived_get(const bson_t *doc);
/* The members arrived and behind. A watermark that cannot be read counts as none (arrived 0): its owner looks at all lanes again. */
void codec_watermark_put(bson_t *doc, const struct watermark *w);
void codec_watermark_get(const bson_t *doc, struct watermark *w);
/* The caller frees it; NULL: not a batch. */
struct batch *codec_batch_get(const bson_t *doc);
/* The same for a document with only _id, at and entries: the batch has only these. */
struct batch *codec_entries_get(const bson_t *doc);
/* What a batch's document says about its lane, from _id, at, v, totals, day and k alone. False: it cannot be read, or has no k. */
bool codec_heard_get(const bson_t *doc, struct heard *heard);
/* A batch's head, without seq and hash, from at, v, totals and day alone. */
bool codec_head_get(const bson_t *doc, struct head *h);

/* An entry with a name, and what its batch adds. */
struct named_entry {
    const char *coupon; /* borrowed from the document */
    int64_t lane, index;
    struct head head;   /* seq, at_ms, version and day_ms alone */
    struct entry entry; /* in the arena */
};
/* The members of a row of who[] that name somebody, or what they did: NULL after the last. Erasing removes them all. */
const char *codec_who_member(size_t i);

/* Give take() each entry of a batch's document that has a name which wants() wants. only: the document has the entries of these names, and
 * no others. */
typedef bool name_wanted(void *context, const char *coupon, int64_t lane, const char *user);
bool codec_named_entries(const bson_t *doc, bool only, struct arena *a, name_wanted *wants,
                         void (*take)(void *context, const struct named_entry *named), void *context);

/* A checkpoint's members, without _id; from a whole document. a: for its uses; NULL: they are not wanted. */
void codec_checkpoint_put(bson_t *view, const struct checkpoint *c);
bool codec_checkpoint_get(const bson_t *doc, struct arena *a, struct checkpoint *c);

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

/* The members of struct report_counts in a document of totals. */
extern const struct bson_field report_members[];
extern const size_t report_members_count;
/* A totals row's member `by`: the counts of each shared code and currency, under CODE|CURRENCY, where . $ and % of the code are written as
 * %2E and so on; if there are any, unless always. Increments are written as paths. */
void codec_by_code_put(bson_t *doc, const struct code_counts *by, bool always);
void codec_by_code_inc(bson_t *doc, const struct code_counts *by);
/* Add those of a row. False: unreadable. */
bool codec_by_code_get(const bson_t *doc, struct code_counts *by);

/* Read a document's _id, {c, <name>}; texts are borrowed from it. */
bool codec_id_text(const bson_t *doc, const char *name, const char **coupon, const char **text);
bool codec_id_int(const bson_t *doc, const char *name, const char **coupon, int64_t *value);

#endif
