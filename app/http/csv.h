/*
 * http/csv.h -- writes fields of CSV. Source: RFC 4180.
 */
#ifndef HTTP_CSV_H
#define HTTP_CSV_H

#include "base/buf.h"

/* Append text as a field: quoted where it must be; NULL: an empty one. */
void csv_field(struct buf *out, const char *text);

#endif
