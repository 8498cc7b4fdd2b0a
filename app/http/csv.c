/* http/csv.c -- see csv.h. */
#include "http/csv.h"

#include <string.h>

#include "base/clock.h"

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

void csv_code(struct buf *out, const char *code, enum slot_state state, const char *user, int64_t at_ms)
{
    char at[CLOCK_TEXT_SIZE];

    csv_field(out, code);
    buf_putc(out, ',');
    buf_puts(out, slot_state_name(state));
    buf_putc(out, ',');
    csv_field(out, state == SLOT_FREE ? NULL : user);
    buf_putc(out, ',');
    if (at_ms)
        buf_puts(out, clock_text(at_ms, at));
    buf_puts(out, "\r\n");
}
