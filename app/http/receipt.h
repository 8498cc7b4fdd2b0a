/*
 * http/receipt.h -- a receipt: a signed statement that the published ledger has a redemption in this state.
 *
 * Form    a compact JWS (base/jws.h). Its payload: coupon, id, user, state, ordinal, at, slot, order, discount_minor, lane, seq, hash
 * Batch   seq and hash are those of the batch that put the redemption into its state; at, user (the alias) and discount_minor are from its
 *         entry; for one issued, then redeemed or reversed through a hold, the hold's entry
 * Beside  the order, and the name if the call gave one, are not under the hash: only the signature vouches for them
 * Cost    one read of a batch per entry since, at least one; then 20-25 us for the signature
 */
#ifndef HTTP_RECEIPT_H
#define HTTP_RECEIPT_H

#include "http/request.h"

/* On a blocking thread: make the receipt of r->coupon's redemption `of` in its current state, into r->receipt. If it expired and has no
 * entry for that yet, the entry is made first. name: as in the call, or NULL.
 * CPN_OK; CPN_NOT_FOUND: no key signs here; CPN_BUSY: not now; CPN_INTERNAL: the ledger does not explain its state. */
enum cpn_result receipt_make(struct request *r, const struct redemption *of, const char *name);

#endif
