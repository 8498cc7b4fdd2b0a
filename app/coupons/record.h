/*
 * coupons/record.h -- how records are described: each has one list of its fields, from which what reads, writes and compares it is made.
 *
 * Lists    X macros beside the structs: USER_STATE_FIELDS, REDEMPTION_FIELDS, EXTENSION_FIELDS (user_state.h), BUCKET_FIELDS,
 *          SLOT_FIELDS (slot.h), REPORT_COUNTS_FIELDS (fold.h)
 * Made     documents and what is read from them (store/codec.c), what verify tells of two records (verify/compare.c)
 * Rows     X(kind, member, ...): each list names its columns. APART(...) is the row of a member that codec.c writes and reads by itself
 * Columns  kind      what the member is: an enum value_kind, without its VALUE_
 *          stored    its name in the document
 *          when      the document has it ALWAYS, or IF_SET: unless it is 0 or NULL
 *          place     in the document, from 0: never to change. A new field has the next one. Without this column the document has
 *                    the order of the list
 */
#ifndef COUPONS_RECORD_H
#define COUPONS_RECORD_H

enum value_kind {
    VALUE_INT,       /* int64_t, within 2^53 */
    VALUE_WIDE,      /* int64_t, whatever it is */
    VALUE_U32,       /* uint32_t */
    VALUE_BOOL,      /* bool */
    VALUE_TIME,      /* int64_t, UTC ms */
    VALUE_TEXT,      /* const char * */
    VALUE_CHARS,     /* char[], with its NUL: an alias, by which records are found: it is not compared */
    VALUE_BYTES,     /* uint8_t[] */
    VALUE_STATE      /* uint8_t, an enum slot_state; by name */
};

enum value_when { ALWAYS, IF_SET };

#endif
