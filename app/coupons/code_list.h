/*
 * coupons/code_list.h -- lists of codes as texts: one a line, or CSV with a column `code`.
 *
 * Lines    end with LF or CRLF; lines with nothing but spaces are passed over; a byte order mark at the beginning too
 * CSV      as RFC 4180, but a row is a line: quotes hold commas and doubled quotes, never a line's end. The first line is
 *          the header
 * Spaces   and tabs around a code are not its own
 * Owns     nothing; the text is borrowed
 */
#ifndef COUPONS_CODE_LIST_H
#define COUPONS_CODE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/coupon.h"

/* A part of such a text that consists of whole lines. */
struct code_rows {
    const char *at, *end; /* what is left */
    int64_t line;         /* the number in the whole text of the line that comes next */
    int64_t column;       /* 0: a code a line; else the column of CSV, from 1 */
};

struct code_row {
    int64_t line;
    char code[CODE_MAX + 1]; /* unless it is wrong */
    const char *wrong;       /* why it has no code; static. NULL: it has one */
};

/* Begin with a part whose first line has the number first_line, from 1; line 1 of CSV is passed over. */
void code_rows_begin(struct code_rows *r, const char *text, size_t len, int64_t first_line, int64_t column);
/* The next row; false when there is none. */
bool code_rows_next(struct code_rows *r, struct code_row *row);

/* The column `code` (in any case) of a header, a line with or without its end: from 1; 0: it has none. */
int64_t code_rows_column(const char *line, size_t len);

#endif
