/*
 * ctl/print.h -- text from elsewhere on a terminal: no title, name or answer can drive it, or show other text than it holds.
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

/* text, with '?' for each unsafe character. */
void print_safely(const char *text, FILE *out);
/* "subject is fact" as a line on standard output; the fact is ours. */
void print_fact(const char *subject, const char *fact);
/* JSON text and a line feed; unsafe characters as \uXXXX, so that it is the same JSON. */
void print_json_text(const char *json, FILE *out);
/* The same of o, in one line, or (pretty) in several. */
void print_json(struct json_object *o, FILE *out);
void print_json_pretty(struct json_object *o, FILE *out);
/* A line of JSON, or of text for people, on standard output; and free it. */
void print_line(struct buf *line, bool json);

#endif
