/* ctl/table.c -- see table.h. */
#include "ctl/table.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "ctl/print.h"

void table_init(struct table *t, const char *const *heads)
{
    *t = (struct table){.heads = heads};
    while (heads[t->columns])
        t->columns++;
    assert(t->columns > 0 && t->columns <= TABLE_COLUMNS_MOST);
}

void table_release(struct table *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){.heads = t->heads};
}

void table_add(struct table *t, const char *text)
{
    t->cells = checked_grown(t->cells, t->count, &t->capacity, sizeof *t->cells);
    t->cells[t->count++] = checked(strdup(text ? text : "-"));
}

/* The number of UTF-8 characters, close enough to columns. */
static int width_of(const char *text)
{
    int width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static bool is_number(const struct table *t, int column)
{
    return t->heads[column][0] == '>';
}

static const char *head_of(const struct table *t, int column)
{
    return t->heads[column] + is_number(t, column);
}

static void print_cell(const struct table *t, int column, int width, const char *text, FILE *out)
{
    int pad = width - width_of(text);
    bool last = column == t->columns - 1;

    if (is_number(t, column))
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
    print_safely(text, out);
    if (!is_number(t, column) && !last)
        fprintf(out, "%*s", pad > 0 ? pad : 0, "");
    fputs(last ? "\n" : "  ", out);
}

void table_print(const struct table *t, FILE *out)
{
    int widths[TABLE_COLUMNS_MOST] = {0};

    for (int c = 0; c < t->columns; c++)
        widths[c] = width_of(head_of(t, c));
    for (size_t i = 0; i < t->count; i++) {
        int *width = &widths[i % (size_t)t->columns];

        if (*width < width_of(t->cells[i]))
            *width = width_of(t->cells[i]);
    }
    for (int c = 0; c < t->columns; c++)
        print_cell(t, c, widths[c], head_of(t, c), out);
    for (size_t i = 0; i < t->count; i++) {
        int c = (int)(i % (size_t)t->columns);

        print_cell(t, c, widths[c], t->cells[i], out);
    }
}
