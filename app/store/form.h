/*
 * store/form.h -- is a stored document what the codec writes? For verify: what is read back of it says nothing of members that only an
 * index or nobody reads. No I/O.
 *
 * Check    the document is written again from what was read of it, and compared member by member, byte by byte. So a member that is a
 *          function of others (due, free, live, cleanup, part, terms) must have that value, and a member that nobody writes is found.
 *          What was read is compared with the ledger by verify
 * Table    every member of the documents that a coupon's redemptions have, and who checks it
 */
#ifndef STORE_FORM_H
#define STORE_FORM_H

#include <bson/bson.h>
#include <stdbool.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"
#include "store/store.h"
#include "store/terms.h"

enum form_check {
    FORM_WRITTEN,    /* the document is written again: here */
    FORM_ROWS,       /* likewise, but a batch's erased names are missing. What names say is in no hash, and proves nothing */
    FORM_REPLAYED,   /* compared with the ledger by its reader, in verify */
    FORM_NOT_DERIVED /* nothing in the ledger says what it must be */
};

struct form_member {
    const char *collection, *member;
    enum form_check check;
    const char *why; /* of those that are not derived */
};
extern const struct form_member form_members[];
extern const size_t form_members_count;

/* The first member that is not as it should be, or "view.<member>": static, or borrowed from doc. NULL: none. */
const char *form_of_batch(const bson_t *doc, const struct batch *b, const struct term_key *key);
const char *form_of_bucket(const bson_t *doc, const struct bucket *k);
/* changed_ms: out, when the definition last changed, by the document; -1: it does not say. */
const char *form_of_coupon(const bson_t *doc, const struct coupon *c, int64_t seq, int64_t *changed_ms);
const char *form_of_checkpoint(const bson_t *doc, const struct checkpoint *c);
/* The first member of another collection's document that is not in the table. */
const char *form_unknown(const bson_t *doc, const char *collection);

/* True if mongo_rewrite() writes this member of a batch. */
bool form_is_index(const char *member);

#endif
