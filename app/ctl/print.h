/*
 * ctl/print.h -- text from elsewhere on a terminal: no title, name or answer can drive it, or show other text than it holds.
 *
 * Unsafe  control characters (below U+0020, U+007F to U+009F), and those that reorder text or break lines (U+2028 to U+202E,
 *         U+2066 to U+2069)
 */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <stdio.h>

struct json_object; /* json-c's: its header and base/json.h have names in common */

/* text, with '?' for each unsafe character. */
void print_safely(const char *text, FILE *out);
/* o in one line, or (pretty) in several; unsafe characters as \uXXXX, so that it is the same JSON. */
void print_json(struct json_object *o, FILE *out);
void print_json_pretty(struct json_object *o, FILE *out);

#endif
