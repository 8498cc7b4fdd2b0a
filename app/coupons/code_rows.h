/*
 * coupons/code_rows.h -- lists of codes, or of users, as text: one per line, or CSV with a header that names their column.
 *
 * Text     UTF-8 with LF line ends, see list_text.h; blank lines are skipped
 * CSV      as RFC 4180, with one of the separators , ; tab |, where a row is one line: csv_lines.h makes it so. Quotes may enclose
 *          separators and doubled quotes. Before the header a line such as sep=; may name the separator, as Excel has it
 * Blanks   around a code or a user are removed, see code_trim()
 * Owns     nothing; the text is borrowed
 */
#ifndef COUPONS_CODE_ROWS_H
#define COUPONS_CODE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/coupon.h"

#define CODE_COLUMN "code"
#define USER_COLUMN "user"

/* How a list is read. */
struct list_shape {
    int64_t column; /* 0: one code per line; else the CSV column, from 1 */
    char separator; /* of CSV */
    bool users;     /* it has users, not codes */
};

/* A part of such a text, of whole lines. */
struct code_rows {
    const char *at, *end; /* what is left */
    int64_t line;         /* number of the next line, in the whole text */
    struct list_shape shape;
};

struct code_row {
    int64_t line;
    const char *text; /* the row without outer blanks; borrowed */
    size_t text_len;
    char value[USER_MAX + 1]; /* the code, of up to CODE_MAX bytes, or the user; empty if wrong */
    const char *wrong;        /* why it has none; static. NULL: it has one */
};

/* Begin with a part whose first line has the number first_line, from 1. Of CSV: after code_rows_header(). */
void code_rows_begin(struct code_rows *r, const char *text, size_t len, int64_t first_line, struct list_shape shape);
/* Read the next row; false: none is left. */
bool code_rows_next(struct code_rows *r, struct code_row *row);

/* Read the start of CSV up to its header; column: the name of the one with the codes, in any case. Returns the header's length with what is
 * before it; shape->column is 0 if there is no such column. */
size_t code_rows_header(const char *text, size_t len, const char *column, struct list_shape *shape);
/* The names in the header that ends the first len bytes of text, separated by commas, as far as they fit in out. */
void code_rows_columns(const char *text, size_t len, struct list_shape shape, char *out, size_t size);

/* The row's text as it may be shown and stored: what is no UTF-8 or no character to be seen becomes ?, and what is too long is cut. */
#define CODE_ROW_SHOWN 128 /* bytes */
void code_row_shown(const struct code_row *row, char out[CODE_ROW_SHOWN + 1]);

/* Why a row of a plain list looks as if the list were another: `first` of the list and a heading, or with quotes or separators; static.
 * NULL: it does not. */
const char *code_row_suspicion(const struct code_row *row, bool first);

#endif
