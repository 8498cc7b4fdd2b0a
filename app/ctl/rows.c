/* ctl/rows.c -- see rows.h. */
#include "ctl/rows.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define COLUMNS_MOST 64
#define ROW_MOST ((size_t)1 << 20) /* bytes; metadata has at most 4 KiB */

struct rows {
    FILE *out;               /* borrowed */
    struct buf fields[COLUMNS_MOST];
    char *names[COLUMNS_MOST];
    int columns;             /* 0: still in the first row */
    int field;               /* the current one */
    size_t len;              /* of the current row */
    bool quoted, quote_seen; /* within quotes; after a quote in them, which ends them unless another follows */
};

static void end_row(struct rows *r)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    if (!r->columns) {
        for (; r->columns <= r->field; r->columns++)
            r->names[r->columns] = checked(strdup(r->fields[r->columns].data ? r->fields[r->columns].data : ""));
    } else {
        json_begin_object(&j);
        for (int i = 0; i < r->columns; i++)
            json_key_string(&j, r->names[i], i <= r->field && r->fields[i].len ? r->fields[i].data : NULL);
        json_end_object(&j);
        print_json_text(line.data, r->out);
    }
    for (int i = 0; i <= r->field; i++)
        buf_clear(&r->fields[i]);
    r->field = 0;
    r->len = 0;
    buf_free(&line);
}

static void take(struct rows *r, char c)
{
    if (r->quoted && !r->quote_seen) {
        if (c == '"')
            r->quote_seen = true;
        else
            buf_putc(&r->fields[r->field], c);
        return;
    }
    if (c == '"') {
        if (r->quote_seen)
            buf_putc(&r->fields[r->field], c);
        r->quoted = true;
        r->quote_seen = false;
        return;
    }
    r->quoted = r->quote_seen = false;
    if (c == ',' && r->field < COLUMNS_MOST - 1)
        r->field++;
    else if (c == '\n')
        end_row(r);
    else if (c != '\r')
        buf_putc(&r->fields[r->field], c);
}

static ssize_t write_rows(void *context, const char *bytes, size_t len)
{
    struct rows *r = context;

    for (size_t i = 0; i < len; i++) {
        if (++r->len > ROW_MOST) {
            ctl_complain("a row is longer than %zu MiB", ROW_MOST >> 20);
            return 0;
        }
        take(r, bytes[i]);
    }
    return ferror(r->out) ? 0 : (ssize_t)len;
}

static int close_rows(void *context)
{
    struct rows *r = context;

    if (r->field || r->fields[0].len)
        end_row(r);
    for (int i = 0; i < COLUMNS_MOST; i++)
        buf_free(&r->fields[i]);
    for (int i = 0; i < r->columns; i++)
        free(r->names[i]);
    free(r);
    return 0;
}

FILE *rows_open(FILE *out)
{
    struct rows *r = checked(calloc(1, sizeof *r));

    r->out = out;
    return checked(fopencookie(r, "w", (cookie_io_functions_t){.write = write_rows, .close = close_rows}));
}
