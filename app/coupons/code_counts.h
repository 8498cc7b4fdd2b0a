/*
 * coupons/code_counts.h -- what reports count, for each shared code and currency: folded from the ledger, like the sum of all.
 *
 * Shape    rows ascending by code, as it is in the entries, then by currency; either may be empty, not both. What has neither is in the sum
 *          alone
 * Owns     its rows: code_counts_release()
 */
#ifndef COUPONS_CODE_COUNTS_H
#define COUPONS_CODE_COUNTS_H

#include <stddef.h>

#include "coupons/fold.h"

struct code_count {
    char code[CODE_MAX + 1];
    char currency[CURRENCY_LEN + 1];
    struct report_counts counts;
};

struct code_counts {
    struct code_count *rows;
    size_t count, capacity;
};

/* Add to the row. Texts that are no codes and no currencies are taken as empty. */
void code_counts_add(struct code_counts *to, const char *code, const char *currency, const struct report_counts *more);
/* Add all rows. */
void code_counts_merge(struct code_counts *to, const struct code_counts *more);
/* Add what b's entries count. */
void code_counts_fold(struct code_counts *to, const struct batch *b);
/* Make `to`, initialised, a copy. */
void code_counts_copy(struct code_counts *to, const struct code_counts *from);
/* A copy in a. */
const struct code_counts *code_counts_in(struct arena *a, const struct code_counts *from);
/* The first row that differs, of a or of b; NULL: none. */
const struct code_count *code_counts_difference(const struct code_counts *a, const struct code_counts *b);
void code_counts_release(struct code_counts *c);

#endif
