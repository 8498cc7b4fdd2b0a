/*
 * http/canonical.h -- RFC 8785 text of a parsed value: one text for one meaning, so that it can be hashed and compared.
 *
 * Form    members sorted by UTF-16 code units, numbers as ECMAScript prints them, no white space
 */
#ifndef HTTP_CANONICAL_H
#define HTTP_CANONICAL_H

#include "base/buf.h"
#include "http/jsonc.h"

/* Append o to out. NULL; or a static sentence that says why not: longer than `most` bytes, or an integer beyond 2^53
 * (RFC 8785 knows only doubles, and would change it silently). */
const char *canonical_write(struct json_object *o, struct buf *out, size_t most);

/* Append value as ECMAScript's Number::toString does. value is finite. */
void canonical_number(double value, struct buf *out);

/* <0, 0, >0: a before b in the order of UTF-16 code units. Both are UTF-8. */
int canonical_compare(const char *a, const char *b);

#endif
