/*
 * http/canonical.h -- canonical JSON (RFC 8785) of a parsed value: equal values give equal text, which can be hashed and compared.
 *
 * Form    members sorted by UTF-16 code units, numbers as ECMAScript prints them, no white space
 */
#ifndef HTTP_CANONICAL_H
#define HTTP_CANONICAL_H

#include "base/buf.h"
#include "http/jsonin.h"

/* Append o to out. NULL, or a static sentence that says why not: longer than `most` bytes, text that is not UTF-8, or an integer beyond
 * 2^53 (RFC 8785 knows only doubles, and would change it silently). */
const char *canonical_write(struct json_object *o, struct buf *out, size_t most);

/* Append value as ECMAScript's Number::toString does; it must be finite. */
void canonical_number(double value, struct buf *out);

/* Compare by UTF-16 code units: <0, 0, >0. Both are UTF-8. */
int canonical_compare(const char *a, const char *b);

#endif
