/*
 * http/receipt.h -- a receipt: a signed statement that a redemption stands, in this state, in the published ledger.
 *
 * Form    a compact JWS (base/jws.h). Its payload: coupon, id, user, state, ordinal, at, slot, order, discount_minor, lane, seq, hash
 * Batch   seq and hash are those of the batch that put the redemption into its state; at, user (the alias) and discount_minor are
 *         as its entry has them. Of an issued one that was redeemed or reversed through a hold, that is the hold's entry
 * Beside  the order, and the name where the call gave it, are not under the hash: the signature alone vouches for them
 * Cost    a read of a batch for each entry since; one, where nothing happened since. Then 20-25 us for the signature
 */
#ifndef HTTP_RECEIPT_H
#define HTTP_RECEIPT_H

#include "http/request.h"

/* On a blocking thread: the receipt of r->coupon's redemption `of` in the state that it has, into r->receipt. A state that came by
 * itself, and has no entry yet, is entered first. name: as the call gave it, or NULL.
 * CPN_OK; CPN_NOT_FOUND: no key signs here; CPN_BUSY: not now; CPN_INTERNAL: the ledger does not say how it came into that state. */
enum cpn_result receipt_make(struct request *r, const struct redemption *of, const char *name);

#endif
