/*
 * ctl/print.h -- prints text from elsewhere: no title, name or answer can control a terminal, or look like other text.
 *
 * Unsafe    control characters (below U+0020, U+007F to U+009F), those that reorder text or break lines (U+061C, U+200E, U+200F,
 *           U+2028 to U+202E, U+2066 to U+2069), and bytes that are not UTF-8
 * Terminal  nothing unsafe reaches it, whoever prints, but line feeds and tabs. Exports to files and pipes are exact; tables, sentences and
 *           JSON are safe everywhere
 */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "verify/drift.h"

struct json_object;

/* If standard output is a terminal: from now on '?' is printed there for each unsafe character. */
void print_on_terminal(void);
/* Print our own text, such as a sequence that clears the screen, as it is. */
void print_raw(const char *text);
/* Print text, with '?' for each unsafe character; NULL: "-". */
void print_safely(const char *text, FILE *out);
/* Print "subject is fact" as a line. */
void print_fact(const char *subject, const char *fact);
/* Print JSON text and a line feed; unsafe characters as \uXXXX, so it is the same JSON. */
void print_json_text(const char *json, FILE *out);
/* Print o likewise, on one line, or (pretty) on several. */
void print_json(struct json_object *o, FILE *out);
void print_json_pretty(struct json_object *o, FILE *out);
/* Print a line of JSON, or of text for people; free it. */
void print_line(struct buf *line, bool json, FILE *out);
/* Print a difference that a checker found, as a line. coupon: or the file concerned. */
void finding_print(const char *coupon, int64_t lane, const struct drift *d, bool json, FILE *out);

#endif
