/*
 * ctl/chart.h -- a bar for each of a list of numbers, as wide as the terminal permits. Pure.
 *
 * Bars    the largest number fills the room between label and value; one below zero is drawn hollow
 * Safety  control characters in labels are shown as '?'
 */
#ifndef CTL_CHART_H
#define CTL_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct chart_row {
    const char *label;
    int64_t value;
};

/* width: of a line, in columns. blocks: the terminal shows UTF-8, so a bar can end within a column. */
void chart_print(const struct chart_row *rows, size_t count, int width, bool blocks, FILE *out);

/* What standard output is: its columns ($COLUMNS where it is no terminal, else 80), and whether the locale is UTF-8. */
int chart_width(void);
bool chart_blocks(void);

#endif
