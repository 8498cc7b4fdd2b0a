/* coupons/code_rows.c -- see code_rows.h. */
#include "coupons/code_rows.h"

#include <string.h>
#include <strings.h>

#define COLUMN_NAME "code"
#define FIELD_SIZE 256 /* a longer field is neither a code nor the header's `code` */

static const char bom[] = "\xEF\xBB\xBF";

struct piece {
    const char *at, *end;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct piece trimmed(struct piece p)
{
    while (p.at < p.end && is_space(*p.at))
        p.at++;
    while (p.end > p.at && is_space(p.end[-1]))
        p.end--;
    return p;
}

/* The line starting at `at`, without its line end and a byte order mark; *next: the start of the next line. */
static struct piece line_at(const char *at, const char *end, bool first, const char **next)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    struct piece line = {at, newline ? newline : end};

    *next = newline ? newline + 1 : end;
    if (first && line.end - line.at >= 3 && memcmp(line.at, bom, 3) == 0)
        line.at += 3;
    return line;
}

/* ---- fields ---- */

/* Copy quoted text to field; p starts after the opening quote, and moves past the closing one. */
static const char *unquote(struct piece *p, char field[FIELD_SIZE], size_t *len)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '"' && (++p->at == p->end || *p->at != '"'))
            return NULL;
        if (*len < FIELD_SIZE - 1)
            field[(*len)++] = *p->at;
    }
    return "unclosed quote";
}

/* Copy the field at p->at, trimmed, to field; p moves past its comma, or past its own end after the last. Returns what is wrong, or
 * NULL. */
static const char *next_field(struct piece *p, char field[FIELD_SIZE], size_t *len)
{
    const char *comma, *wrong;
    struct piece bare;

    *len = 0;
    while (p->at < p->end && is_space(*p->at))
        p->at++;
    if (p->at < p->end && *p->at == '"') {
        p->at++;
        wrong = unquote(p, field, len);
        bare = trimmed((struct piece){field, field + *len});
        *len = (size_t)(bare.end - bare.at);
        memmove(field, bare.at, *len);
        while (p->at < p->end && is_space(*p->at))
            p->at++;
        if (!wrong && p->at < p->end && *p->at != ',')
            wrong = "text after a closing quote";
        p->at++;
        return wrong;
    }
    comma = memchr(p->at, ',', (size_t)(p->end - p->at));
    bare = trimmed((struct piece){p->at, comma ? comma : p->end});
    *len = (size_t)(bare.end - bare.at) < FIELD_SIZE ? (size_t)(bare.end - bare.at) : FIELD_SIZE - 1;
    memcpy(field, bare.at, *len);
    p->at = (comma ? comma : p->end) + 1;
    return NULL;
}

int64_t code_rows_column(const char *line, size_t len)
{
    const char *next;
    struct piece p = line_at(line, line + len, true, &next);
    char field[FIELD_SIZE];
    size_t field_len;

    for (int64_t column = 1; p.at <= p.end; column++) {
        if (next_field(&p, field, &field_len))
            return 0;
        if (field_len == sizeof COLUMN_NAME - 1 && strncasecmp(field, COLUMN_NAME, field_len) == 0)
            return column;
    }
    return 0;
}

/* ---- rows ---- */

static const char *check_code(const char *code, size_t len)
{
    if (len == 0)
        return "no code";
    for (size_t i = 0; i < len; i++)
        if (code[i] < 0x20 || code[i] > 0x7E)
            return "not printable ASCII";
    return len < CODE_MIN ? "too short" : len > CODE_MAX ? "too long" : NULL;
}

static void read_row(struct code_row *row, struct piece line, int64_t column)
{
    char field[FIELD_SIZE];
    const char *code = line.at;
    size_t len = (size_t)(line.end - line.at);

    row->wrong = NULL;
    if (column) {
        code = field;
        len = 0;
        for (int64_t i = 1; i <= column && !row->wrong; i++)
            row->wrong = line.at > line.end ? "too few columns" : next_field(&line, field, &len);
    }
    if (!row->wrong)
        row->wrong = check_code(code, len);
    row->code[0] = '\0';
    if (row->wrong)
        return;
    memcpy(row->code, code, len);
    row->code[len] = '\0';
}

void code_rows_begin(struct code_rows *r, const char *text, size_t len, int64_t first_line, int64_t column)
{
    *r = (struct code_rows){text, text + len, first_line, column};
}

bool code_rows_next(struct code_rows *r, struct code_row *row)
{
    while (r->at < r->end) {
        struct piece line = trimmed(line_at(r->at, r->end, r->line == 1, &r->at));

        row->line = r->line++;
        if (line.at == line.end || (r->column && row->line == 1))
            continue;
        read_row(row, line, r->column);
        return true;
    }
    return false;
}
