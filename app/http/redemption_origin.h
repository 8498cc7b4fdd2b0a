/*
 * http/redemption_origin.h -- finds the batch in the ledger that made a redemption, going back from any batch that mentions it.
 */
#ifndef HTTP_REDEMPTION_ORIGIN_H
#define HTTP_REDEMPTION_ORIGIN_H

#include "coupons/batch.h"
#include "store/store.h"

/* From the batch that made a redemption. */
struct origin {
    int64_t at_ms;   /* 0: not found */
    int64_t ordinal; /* of a taking; 0 for a hold */
};

/* Look for (n, g) from its lane's batch `since` backward, from one batch that mentions it, or a hold on it, to the one before. Blocks.
 * Takes at most REDEMPTION_ENTRIES_MAX reads, one batch each; STORE_NOT_FOUND: the ledger is damaged.
 * *reads grows by the number of reads. */
enum store_status origin_of(struct store *session, const char *coupon, int64_t lane, int64_t since, int64_t n, uint32_t g,
                            struct origin *m, size_t *reads);

/* The state that an ending entry gave its redemption. */
enum slot_state redemption_ended_as(const struct entry *end);

#endif
