/*
 * ctl/rows.h -- CSV to JSON: an object for each row, on a line.
 *
 * Members  are named by the first row; an empty field is null, all others are strings. Source: RFC 4180
 */
#ifndef CTL_ROWS_H
#define CTL_ROWS_H

#include <stdio.h>

/* A stream: CSV that is written to it comes out of `out` as JSON. The caller closes it, and looks for errors of out. */
FILE *rows_open(FILE *out);

#endif
