/*
 * ctl/print.h -- prints text from elsewhere on a terminal: no title, name or answer can control it, or look like other text.
 *
 * Unsafe  control characters (below U+0020, U+007F to U+009F), and those that reorder text or break lines (U+2028 to U+202E,
 *         U+2066 to U+2069)
 */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"

struct json_object; /* json-c's: its header and base/json.h have names in common */

/* Print text, with '?' for each unsafe character. */
void print_safely(const char *text, FILE *out);
/* Print "subject is fact" as a line; fact is our own text. */
void print_fact(const char *subject, const char *fact);
/* Print JSON text and a line feed; unsafe characters as \uXXXX, so it is the same JSON. */
void print_json_text(const char *json, FILE *out);
/* Print o likewise, on one line, or (pretty) on several. */
void print_json(struct json_object *o, FILE *out);
void print_json_pretty(struct json_object *o, FILE *out);
/* Print a line of JSON, or of text for people, on standard output; free it. */
void print_line(struct buf *line, bool json);

#endif
