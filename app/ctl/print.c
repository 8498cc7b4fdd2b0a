/* ctl/print.c -- see print.h. */
#include "ctl/print.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/utf8.h"

#define INVALID 0xfffd /* U+FFFD, the replacement character */

/* The unsafe character that text begins with, its length in *len; else 0. A byte that is not UTF-8 counts as INVALID. */
static unsigned unsafe_at(const char *text, const char *end, size_t *len)
{
    int32_t c = INVALID;

    *len = utf8_character((const unsigned char *)text, (const unsigned char *)end, &c);
    if (*len == 0) {
        *len = 1;
        return INVALID;
    }
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
        (c >= 0x2066 && c <= 0x2069))
        return (unsigned)c;
    return 0;
}

void print_safely(const char *text, FILE *out)
{
    if (!text)
        text = "-";
    for (size_t len; *text; text += len)
        if (unsafe_at(text, NULL, &len))
            fputc('?', out);
        else
            fwrite(text, 1, len, out);
}

/* ---- a terminal ---- */

/* Standard output, if it is a terminal, and the bytes of a character whose end has not come yet. Until the end of the process. */
static struct terminal {
    FILE *out; /* NULL: it is none */
    struct buf pending;
} terminal;

/* True if what is left begins a character, and may be continued by what is written next. */
static bool is_cut(const char *at, const char *end)
{
    unsigned char first = (unsigned char)*at;
    ptrdiff_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;

    return end - at < length;
}

static ssize_t write_terminal(void *context, const char *bytes, size_t len)
{
    struct terminal *t = context;
    const char *at, *end;
    size_t length;

    buf_put(&t->pending, bytes, len);
    end = t->pending.data + t->pending.len;
    for (at = t->pending.data; at < end; at += length) {
        unsigned c = unsafe_at(at, end, &length);

        if (c == INVALID && is_cut(at, end))
            break;
        if (c && c != '\n' && c != '\t')
            fputc('?', t->out);
        else
            fwrite(at, 1, length, t->out);
    }
    t->pending.len = (size_t)(end - at);
    memmove(t->pending.data, at, t->pending.len);
    return fflush(t->out) == 0 ? (ssize_t)len : 0;
}

void print_on_terminal(void)
{
    if (!isatty(STDOUT_FILENO))
        return;
    terminal.out = stdout;
    stdout = checked(fopencookie(&terminal, "w", (cookie_io_functions_t){.write = write_terminal}));
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

void print_raw(const char *text)
{
    FILE *to = terminal.out ? terminal.out : stdout;

    fflush(stdout);
    fputs(text, to);
    fflush(to);
}

/* ---- lines ---- */

void print_fact(const char *subject, const char *fact)
{
    print_safely(subject, stdout);
    fputs(" is ", stdout);
    print_safely(fact, stdout);
    putchar('\n');
}

/* Below U+0020, JSON's strings are escaped already; outside strings these characters are line breaks. */
void print_json_text(const char *json, FILE *out)
{
    size_t len;

    for (const char *text = json; *text; text += len) {
        unsigned c = unsafe_at(text, NULL, &len);

        if (c > 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text, 1, len, out);
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

void print_line(struct buf *line, bool json, FILE *out)
{
    if (json) {
        print_json_text(line->data, out);
    } else {
        print_safely(line->data, out);
        fputc('\n', out);
    }
    buf_free(line);
}

/* ---- differences that a checker found ---- */

static void put_json(const char *coupon, int64_t lane, const struct drift *d, struct buf *line)
{
    struct json j = json_to(line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", coupon);
    json_key_int(&j, "lane", lane);
    json_key_string(&j, "what", d->what);
    json_key_string(&j, "where", d->where);
    json_key_string(&j, "field", d->field);
    json_key_string(&j, "expected", d->expected);
    json_key_string(&j, "found", d->expected ? d->found : NULL);
    json_end_object(&j);
}

static void put_text(const char *coupon, int64_t lane, const struct drift *d, struct buf *line)
{
    buf_printf(line, "%s", coupon);
    if (lane)
        buf_printf(line, " lane %" PRId64, lane);
    buf_printf(line, ": %s %s: %s", d->what, d->where, d->field);
    if (d->expected)
        buf_printf(line, ": expected %s, found %s", d->expected, d->found);
}

void finding_print(const char *coupon, int64_t lane, const struct drift *d, bool json, FILE *out)
{
    struct buf line = BUF_INIT;

    (json ? put_json : put_text)(coupon, lane, d, &line);
    print_line(&line, json, out);
}
