/*
 * ctl/rows.h -- CSV to JSON: one object per row, one per line.
 *
 * Members  are named by the first row; an empty field is null, all others are strings. Source: RFC 4180
 */
#ifndef CTL_ROWS_H
#define CTL_ROWS_H

#include <stdio.h>

/* A stream: writes its CSV to `out` as JSON. The caller closes it, and checks out for errors. */
FILE *rows_open(FILE *out);

#endif
