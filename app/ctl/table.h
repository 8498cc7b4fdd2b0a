/*
 * ctl/table.h -- tables for people: columns as wide as needed, numbers to the right.
 *
 * Owns    its cells, copied
 * Safety  cells are printed by print_safely()
 */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MOST 16

struct table {
    const char *const *heads; /* borrowed; a leading '>' means a column of numbers */
    int columns;
    char **cells;             /* row by row */
    size_t count, capacity;
};

/* heads: NULL-terminated, at most TABLE_COLUMNS_MOST. */
void table_init(struct table *t, const char *const *heads);
void table_release(struct table *t);
/* Add the next cell; text NULL: "-". */
void table_add(struct table *t, const char *text);
void table_print(const struct table *t, FILE *out);

#endif
