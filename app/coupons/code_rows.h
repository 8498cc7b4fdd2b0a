/*
 * coupons/code_rows.h -- lists of codes as text: one per line, or CSV with a column `code`.
 *
 * Lines    end with LF or CRLF; blank lines and a byte order mark at the start are skipped
 * CSV      as RFC 4180, but a row is one line: quotes may enclose commas and doubled quotes, but no line end. The first line
 *          is the header
 * Spaces   and tabs around a code are removed
 * Owns     nothing; the text is borrowed
 */
#ifndef COUPONS_CODE_ROWS_H
#define COUPONS_CODE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/coupon.h"

/* A part of such a text, of whole lines. */
struct code_rows {
    const char *at, *end; /* what is left */
    int64_t line;         /* number of the next line, in the whole text */
    int64_t column;       /* 0: one code per line; else the CSV column, from 1 */
};

struct code_row {
    int64_t line;
    char code[CODE_MAX + 1]; /* empty if wrong */
    const char *wrong;       /* why it has no code; static. NULL: it has one */
};

/* Begin with a part whose first line has the number first_line, from 1; line 1 of CSV is skipped. */
void code_rows_begin(struct code_rows *r, const char *text, size_t len, int64_t first_line, int64_t column);
/* Read the next row; false: none is left. */
bool code_rows_next(struct code_rows *r, struct code_row *row);

/* The number of the column `code` (in any case) in a header line, with or without its line end: from 1; 0: none. */
int64_t code_rows_column(const char *line, size_t len);

#endif
