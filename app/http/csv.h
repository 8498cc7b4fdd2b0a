/*
 * http/csv.h -- writes CSV: fields, and rows of codes. Fields are as stored, also those that a spreadsheet takes for a formula: see
 * conf/SECURITY.md. Source: RFC 4180.
 */
#ifndef HTTP_CSV_H
#define HTTP_CSV_H

#include "base/buf.h"
#include "coupons/slot.h"

/* Append text as a field, quoted if necessary; NULL: an empty one. */
void csv_field(struct buf *out, const char *text);

#define CSV_CODES "code,state,user,at\r\n"
/* Append a code's row under that header; user NULL: nobody's. */
void csv_code(struct buf *out, const char *code, enum slot_state state, const char *user, int64_t at_ms);

#endif
