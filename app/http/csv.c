/* http/csv.c -- see csv.h. */
#include "http/csv.h"

#include <string.h>

void csv_field(struct buf *out, const char *text)
{
    if (!text || !strpbrk(text, ",\"\r\n")) {
        buf_puts(out, text ? text : "");
        return;
    }
    buf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"')
            buf_putc(out, '"');
        buf_putc(out, *text);
    }
    buf_putc(out, '"');
}
