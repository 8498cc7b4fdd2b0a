/*
 * coupons/record.h -- how records are described: each has one list of its fields, from which what reads, writes and compares it is made.
 *
 * Lists    X macros beside the structs: HEAD_TOTALS_FIELDS, HEAD_DAY_FIELDS, ENTRY_FIELDS (batch.h), USER_STATE_FIELDS,
 *          REDEMPTION_FIELDS, EXTENSION_FIELDS (user_state.h), BUCKET_FIELDS, SLOT_FIELDS (slot.h), REPORT_COUNTS_FIELDS (fold.h)
 * Made     the ledger's line (batch.c) and a batch from it (ctl/batch_in.c), documents and what is read from them (store/codec.c),
 *          what batch_contradiction() finds in a head (fold.c), what verify tells of two records (verify/compare.c)
 * Rows     X(kind, member, ...): each list names its columns. APART(...) is the row of a member that codec.c writes and reads by itself
 * Columns  kind      what the member is: an enum value_kind, without its VALUE_
 *          has       the kinds of entries that have it: bits of enum entry_member, one of which is enough. 0: all kinds
 *          name      in the line. The rows are in the order of these names, as RFC 8785 wants the members of the line
 *          in_line   a condition: the line has it only where this is true
 *          stored    its name in the document
 *          when      the document has it ALWAYS, or IF_SET: unless it is 0 or NULL
 *          place     in the document, from 0: never to change. A new field has the next one. Without this column the document has
 *                    the order of the list
 *          told      the place in the order in which differences are told. Without this column that is the order of the list
 */
#ifndef COUPONS_RECORD_H
#define COUPONS_RECORD_H

enum value_kind {
    VALUE_INT,       /* int64_t, exact in JSON */
    VALUE_WIDE,      /* int64_t, whatever it is; in the line COUPON_NULL is null */
    VALUE_U32,       /* uint32_t */
    VALUE_BOOL,      /* bool */
    VALUE_TIME,      /* int64_t, UTC ms; a text in the line, a date in documents */
    VALUE_TEXT,      /* const char * */
    VALUE_CHARS,     /* char[], with its NUL: an alias, which needs no escapes, and by which records are found: it is not compared */
    VALUE_BYTES,     /* uint8_t[]; hex in the line */
    VALUE_STATE,     /* uint8_t, an enum slot_state; by name */
    VALUE_KIND,      /* enum entry_kind; by name */
    VALUE_DEFINITION /* const struct coupon * */
};

enum value_when { ALWAYS, IF_SET };

#endif
