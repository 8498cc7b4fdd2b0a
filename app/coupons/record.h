/*
 * coupons/record.h -- how records are described: each has one list of its fields, from which its readers, writers and comparisons are made.
 *
 * Lists    X macros beside the structs: HEAD_TOTALS_FIELDS, HEAD_DAY_FIELDS, ENTRY_FIELDS (batch.h), USER_STATE_FIELDS,
 *          REDEMPTION_FIELDS, EXTENSION_FIELDS (user_state.h), BUCKET_FIELDS, SLOT_FIELDS (slot.h), REPORT_COUNTS_FIELDS (fold.h)
 * Made     the ledger's line (batch.c) and its parser (ctl/batch_in.c), documents and their decoders (store/codec.c), the check of heads in
 *          batch_contradiction() (fold.c), verify's comparison of two records (verify/compare.c)
 * Rows     X(kind, member, ...): each list names its columns. APART(...) is the row of a member with its own code in codec.c
 * Columns  kind      the member's type: an enum value_kind, without its VALUE_
 *          has       the kinds of entries that have it: those with one of these bits of enum entry_member. 0: all kinds
 *          name      in the line. Rows are sorted by these names, as RFC 8785 demands of the line's members
 *          in_line   a condition: the line has the member only if true
 *          stored    its name in the document
 *          when      the document has it ALWAYS, or IF_SET: unless it is 0 or NULL
 *          place     in the document, from 0; must never change. A new field gets the next one. Without this column the document has the
 *                    order of the list
 *          reported      the order in which differences are reported. Without this column that of the list
 */
#ifndef COUPONS_RECORD_H
#define COUPONS_RECORD_H

enum value_kind {
    VALUE_INT,       /* int64_t, exact in JSON */
    VALUE_WIDE,      /* any int64_t; in the line COUPON_NULL is null */
    VALUE_U32,       /* uint32_t */
    VALUE_BOOL,      /* bool */
    VALUE_TIME,      /* int64_t, UTC ms; text in the line, a date in documents */
    VALUE_TEXT,      /* const char * */
    VALUE_CHARS,     /* char[], with its NUL: an alias. It needs no escapes, and is not compared, because records are found by it */
    VALUE_BYTES,     /* uint8_t[]; hex in the line */
    VALUE_STATE,     /* uint8_t, an enum slot_state; by name */
    VALUE_KIND,      /* enum entry_kind; by name */
    VALUE_DEFINITION /* const struct coupon * */
};

enum value_when { ALWAYS, IF_SET };

#endif
