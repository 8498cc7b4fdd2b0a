/*
 * http/redemption_origin.h -- where in the ledger a redemption was made: back from any batch that says something of it.
 */
#ifndef HTTP_REDEMPTION_ORIGIN_H
#define HTTP_REDEMPTION_ORIGIN_H

#include "coupons/batch.h"
#include "store/store.h"

/* What the batch that made a redemption says of it. */
struct origin {
    int64_t at_ms;   /* 0: not found */
    int64_t ordinal; /* of a taking; 0 for a hold */
};

/* Look for (n, g) from its lane's batch `since` back, following what each batch says of it, or of a hold on it. Blocks.
 * At most ORIGIN_READS_MAX reads of one batch each, as there are at most so many entries: STORE_NOT_FOUND where there are more, which
 * is damage. *reads grows by how many it took. */
enum store_status origin_of(struct store *session, const char *coupon, int64_t lane, int64_t since, int64_t n, uint32_t g,
                            struct origin *m, size_t *reads);
#define ORIGIN_READS_MAX (USER_STATE_EXTENSIONS_MAX + 4)

/* The state that a redemption got by the entry that ended it. */
enum slot_state redemption_ended_as(const struct entry *end);

#endif
