/*
 * coupons/code_uses.h -- how often each shared code is used at the moment, where codes.shared_cap bounds that: folded from the ledger.
 *
 * Shape    rows ascending by the code's form (code.h), so that another spelling is no other code; none for a code that is not used. A code
 *          that is no longer listed keeps its row while it is used
 * Counts   takings, without those that were cancelled, expired or reversed: as cap.total does
 * Owns     its rows: code_uses_release()
 */
#ifndef COUPONS_CODE_USES_H
#define COUPONS_CODE_USES_H

#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"

#define CODE_USES_MOST 1000 /* codes that a coupon has listed or used at a time */

struct code_use {
    char code[CODE_MAX + 1]; /* its form */
    int64_t used;
    int64_t held; /* of them, those that a checkout holds: they may come back */
};

struct code_uses {
    struct code_use *rows;
    size_t count, capacity;
    enum codes_match match; /* the coupon's */
};

/* The code's row, or NULL. */
const struct code_use *code_uses_find(const struct code_uses *u, const char *code);
/* Apply an entry. */
void code_uses_fold(struct code_uses *u, const struct entry *e);
/* Make `to`, initialised, a deep copy. */
void code_uses_copy(struct code_uses *to, const struct code_uses *from);
/* A copy in a. */
struct code_uses *code_uses_in(struct arena *a, const struct code_uses *from);
void code_uses_release(struct code_uses *u);

#endif
