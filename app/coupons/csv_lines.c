/* coupons/csv_lines.c -- see csv_lines.h. */
#include "coupons/csv_lines.h"

#include <stdbool.h>
#include <string.h>

static bool ends_field(char byte)
{
    return byte == '\n' || byte == ',' || byte == ';' || byte == '\t' || byte == '|';
}

/* The next byte of the row. False: there is text after a closing quote. */
static bool step(struct csv_lines *c, char byte)
{
    bool quotes = c->state == CSV_FIELD_BEGINS || c->state == CSV_QUOTE_CLOSED;

    if (c->state == CSV_QUOTED) {
        if (byte == '"')
            c->state = CSV_QUOTE_CLOSED;
        return true;
    }
    if (ends_field(byte)) {
        c->state = CSV_FIELD_BEGINS;
    } else if (quotes && byte == '"') {
        c->state = CSV_QUOTED; /* opened, or doubled */
    } else if (!quotes || byte != ' ') {
        bool text_after = c->state == CSV_QUOTE_CLOSED;

        c->state = CSV_BARE;
        return !text_after;
    }
    return true;
}

static char *put_row_end(struct csv_lines *c, char *out)
{
    *out++ = '\n';
    for (; c->owed; c->owed--)
        *out++ = '\n';
    return out;
}

/* What is pending belongs to the row. */
static char *join(struct csv_lines *c, char *out)
{
    for (; c->from < c->at - 1; c->from++)
        *out++ = c->pending[c->from] == '\n' ? '\r' : c->pending[c->from];
    c->owed += c->open;
    c->open = 0;
    return out;
}

/* The row ends with the first pending line end; look at the rest again. */
static char *give_up(struct csv_lines *c, char *out)
{
    c->at = ++c->from;
    c->open = 0;
    c->state = CSV_FIELD_BEGINS;
    return put_row_end(c, out);
}

/* Look at the next pending byte. */
static char *look(struct csv_lines *c, char *out)
{
    char byte = c->pending[c->at++];
    bool fits = step(c, byte);

    if (c->state == CSV_QUOTED && byte == '\n')
        c->open++;
    if (c->open) {
        if (!fits || c->owed + c->open >= CSV_LINES_MOST)
            return give_up(c, out);
        if (c->state != CSV_FIELD_BEGINS)
            return out;
        out = join(c, out);
    }
    c->from = c->at;
    if (byte == '\n')
        return put_row_end(c, out);
    *out++ = byte;
    return out;
}

static char *look_at_all(struct csv_lines *c, char *out)
{
    while (c->at < c->len)
        out = look(c, out);
    return out;
}

size_t csv_lines_add(struct csv_lines *c, const char *bytes, size_t len, char *out)
{
    char *start = out;

    for (const char *end = bytes + len; bytes < end; bytes++) {
        if (c->from == c->len)
            c->from = c->at = c->len = 0;
        while (c->len == sizeof c->pending && c->from == 0)
            out = look_at_all(c, give_up(c, out));
        if (c->len == sizeof c->pending) {
            c->len -= c->from;
            c->at -= c->from;
            memmove(c->pending, c->pending + c->from, c->len);
            c->from = 0;
        }
        c->pending[c->len++] = *bytes;
        out = look_at_all(c, out);
    }
    return (size_t)(out - start);
}

size_t csv_lines_end(struct csv_lines *c, char *out)
{
    char *start = out;

    while (c->open)
        out = look_at_all(c, give_up(c, out));
    return (size_t)(out - start);
}
