/* ctl/print.c -- see print.h. */
#include "ctl/print.h"

#include <json-c/json.h>
#include <stddef.h>

/* The unsafe character that text begins with, its length in *len; else 0, and 1. */
static unsigned unsafe_at(const char *text, size_t *len)
{
    const unsigned char *c = (const unsigned char *)text;
    unsigned value;

    *len = 1;
    if (c[0] < 0x20 || c[0] == 0x7f)
        return c[0];
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f) {
        *len = 2;
        return c[1];
    }
    if (c[0] != 0xe2 || (c[1] & 0xc0) != 0x80 || (c[2] & 0xc0) != 0x80)
        return 0;
    value = 0x2000u | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    if ((value < 0x2028 || value > 0x202e) && (value < 0x2066 || value > 0x2069))
        return 0;
    *len = 3;
    return value;
}

void print_safely(const char *text, FILE *out)
{
    for (size_t len; *text; text += len)
        fputc(unsafe_at(text, &len) ? '?' : *text, out);
}

void print_fact(const char *subject, const char *fact)
{
    print_safely(subject, stdout);
    printf(" is %s\n", fact);
}

/* Below U+0020, JSON's strings are escaped already; outside strings these characters are line breaks. */
void print_json_text(const char *json, FILE *out)
{
    size_t len;

    for (const char *text = json; *text; text += len) {
        unsigned c = unsafe_at(text, &len);

        if (c > 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fputc(*text, out);
    }
    fputc('\n', out);
}

void print_json(struct json_object *o, FILE *out)
{
    print_json_text(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE), out);
}

void print_json_pretty(struct json_object *o, FILE *out)
{
    print_json_text(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE),
                    out);
}

void print_line(struct buf *line, bool json)
{
    if (json) {
        print_json_text(line->data, stdout);
    } else {
        print_safely(line->data, stdout);
        putchar('\n');
    }
    buf_free(line);
}
