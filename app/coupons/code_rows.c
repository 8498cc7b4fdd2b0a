/* coupons/code_rows.c -- see code_rows.h. */
#include "coupons/code_rows.h"

#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "coupons/code.h"

#define FIELD_SIZE 256 /* a longer field is neither a code nor a column's name */

static const char separators[] = ",;\t|";

struct piece {
    const char *at, *end;
};

static struct piece trimmed(struct piece p)
{
    size_t len = code_trim(&p.at, (size_t)(p.end - p.at));

    return (struct piece){p.at, p.at + len};
}

/* The line starting at `at`, without its line end; *next: the start of the next line. */
static struct piece line_at(const char *at, const char *end, const char **next)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    *next = newline ? newline + 1 : end;
    return (struct piece){at, newline ? newline : end};
}

/* Copy what may be shown of text to out, as far as it fits. Returns how many bytes. */
static size_t put_shown(const char *text, size_t len, char *out, size_t most)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + len;
    size_t used = 0;

    for (size_t step; at < end && used + (step = utf8_character(at, end, NULL)) <= most && used < most; at += step ? step : 1) {
        if (step == 0 || (*at < 0x20 && *at != '\t') || *at == 0x7F) {
            out[used++] = '?';
        } else {
            memcpy(out + used, at, step);
            used += step;
        }
    }
    return used;
}

/* ---- fields ---- */

/* Skip what may be between a separator and a quote. */
static void skip_spaces(struct piece *p, char separator)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t') && *p->at != separator)
        p->at++;
}

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

static void keep_trimmed(struct piece from, char field[FIELD_SIZE], size_t *len)
{
    struct piece bare = trimmed(from);

    *len = (size_t)(bare.end - bare.at) < FIELD_SIZE ? (size_t)(bare.end - bare.at) : FIELD_SIZE - 1;
    memmove(field, bare.at, *len);
}

/* Copy the field at p->at, trimmed, to field; p moves past its separator, or past its own end after the last. Returns what is wrong, or
 * NULL. */
static const char *next_field(struct piece *p, char separator, char field[FIELD_SIZE], size_t *len)
{
    const char *end, *wrong;

    *len = 0;
    skip_spaces(p, separator);
    if (p->at < p->end && *p->at == '"') {
        p->at++;
        wrong = unquote(p, field, len);
        keep_trimmed((struct piece){field, field + *len}, field, len);
        skip_spaces(p, separator);
        if (!wrong && p->at < p->end && *p->at != separator)
            wrong = "text after a closing quote";
        p->at++;
        return wrong;
    }
    end = memchr(p->at, separator, (size_t)(p->end - p->at));
    keep_trimmed((struct piece){p->at, end ? end : p->end}, field, len);
    p->at = (end ? end : p->end) + 1;
    return NULL;
}

/* ---- the header ---- */

/* The number of the column with that name, from 1; 0: none. */
static int64_t column_of(struct piece header, char separator, const char *name)
{
    char field[FIELD_SIZE];
    size_t len;

    for (int64_t column = 1; header.at <= header.end; column++) {
        if (next_field(&header, separator, field, &len))
            return 0;
        if (len == strlen(name) && strncasecmp(field, name, len) == 0)
            return column;
    }
    return 0;
}

static int64_t count_fields(struct piece header, char separator)
{
    char field[FIELD_SIZE];
    int64_t count = 0;
    size_t len;

    while (header.at <= header.end && !next_field(&header, separator, field, &len))
        count++;
    return count;
}

/* A line such as sep=; */
static bool names_separator(struct piece line, char *separator)
{
    size_t len = (size_t)(line.end - line.at);

    if (len == 7 && line.at[0] == '"' && line.at[6] == '"') { /* as a field */
        line.at++;
        len -= 2;
    }
    if ((len != 5 && len != 4) || strncasecmp(line.at, "sep=", 4) != 0)
        return false;
    *separator = len == 5 ? line.at[4] : '\t'; /* a tab is trimmed as a blank */
    return true;
}

/* Of the separators by which the header has the column, else of all, the one that gives most columns. */
static void find_column(struct piece header, const char *choice, const char *column, struct list_shape *shape)
{
    int64_t most = 0;

    for (const char *s = choice; *s; s++) {
        int64_t found = column_of(header, *s, column), count = count_fields(header, *s);
        bool has = found > 0, had = shape->column > 0;

        if ((has && !had) || (has == had && count > most)) {
            *shape = (struct list_shape){.column = found, .separator = *s};
            most = count;
        }
    }
}

size_t code_rows_header(const char *text, size_t len, const char *column, struct list_shape *shape)
{
    const char *at = text, *end = text + len;
    char named[2] = "";

    *shape = (struct list_shape){.separator = *separators};
    while (at < end) {
        struct piece line = line_at(at, end, &at), bare = trimmed(line);

        if (bare.at == bare.end || (!*named && names_separator(bare, named)))
            continue;
        find_column(line, *named ? named : separators, column, shape);
        break;
    }
    return (size_t)(at - text);
}

void code_rows_columns(const char *text, size_t len, struct list_shape shape, char *out, size_t size)
{
    struct piece header = {text, text + len};
    const char *next;
    char field[FIELD_SIZE];
    size_t used = 0, field_len;

    for (const char *at = text; at < text + len; at = next)
        header = trimmed(line_at(at, text + len, &next));
    while (header.at < header.end && !next_field(&header, shape.separator, field, &field_len)) {
        if (used + field_len + 3 > size)
            break;
        if (used) {
            memcpy(out + used, ", ", 2);
            used += 2;
        }
        used += put_shown(field, field_len, out + used, size - used - 1);
    }
    out[used] = '\0';
}

/* ---- rows ---- */

static size_t digits(const char *text, size_t len)
{
    size_t count = 0;

    while (count < len && text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* As spreadsheets show a long number: 8.71235E+12. The rest of its digits is lost. */
static bool is_scientific(const char *code, size_t len)
{
    size_t at = 1;

    if (digits(code, len) != 1)
        return false;
    if (at < len && (code[at] == '.' || code[at] == ',')) {
        at++;
        at += digits(code + at, len - at);
    }
    if (len - at < 4 || len - at > 5 || (code[at] != 'E' && code[at] != 'e') || code[at + 1] != '+')
        return false;
    at += 2;
    return digits(code + at, len - at) == len - at;
}

static const char *check_code(const char *code, size_t len)
{
    if (len == 0)
        return "no code";
    for (size_t i = 0; i < len; i++)
        if (code[i] < 0x20 || code[i] > 0x7E)
            return "not printable ASCII";
    if (is_scientific(code, len))
        return "a number in scientific notation";
    return len < CODE_MIN ? "too short" : len > CODE_MAX ? "too long" : NULL;
}

static const char *check_user(const char *user, size_t len)
{
    char text[FIELD_SIZE];

    if (len == 0)
        return "no user";
    if (len > USER_MAX)
        return "too long";
    memcpy(text, user, len);
    text[len] = '\0';
    if (strlen(text) != len || !coupon_user_valid(text))
        return "not a user: it has control characters or is not UTF-8";
    return is_scientific(user, len) ? "a number in scientific notation" : NULL;
}

static void read_row(struct code_row *row, struct piece line, struct list_shape shape)
{
    char field[FIELD_SIZE];
    const char *code = line.at;
    size_t len = (size_t)(line.end - line.at);

    row->text = code;
    row->text_len = len;
    row->wrong = NULL;
    if (shape.column) {
        code = field;
        len = 0;
        for (int64_t i = 1; i <= shape.column && !row->wrong; i++)
            row->wrong = line.at > line.end ? "too few columns" : next_field(&line, shape.separator, field, &len);
    }
    if (!row->wrong)
        row->wrong = (shape.users ? check_user : check_code)(code, len);
    row->value[0] = '\0';
    if (row->wrong)
        return;
    memcpy(row->value, code, len);
    row->value[len] = '\0';
}

void code_rows_begin(struct code_rows *r, const char *text, size_t len, int64_t first_line, struct list_shape shape)
{
    *r = (struct code_rows){text, text + len, first_line, shape};
}

bool code_rows_next(struct code_rows *r, struct code_row *row)
{
    while (r->at < r->end) {
        struct piece line = line_at(r->at, r->end, &r->at), bare = trimmed(line);

        row->line = r->line++;
        if (bare.at == bare.end)
            continue;
        /* where tabs separate, those at the ends do, too */
        read_row(row, r->shape.column && r->shape.separator == '\t' ? line : bare, r->shape);
        return true;
    }
    return false;
}

void code_row_shown(const struct code_row *row, char out[CODE_ROW_SHOWN + 1])
{
    out[put_shown(row->text, row->text_len, out, CODE_ROW_SHOWN)] = '\0';
}

/* ---- lists that are not what they are sent as ---- */

static bool ends_with(const char *text, size_t len, const char *end)
{
    return len >= strlen(end) && strncasecmp(text + len - strlen(end), end, strlen(end)) == 0;
}

/* Words of letters that end in one of these: a code that is such a word is in upper case, but for these words alone. */
static bool is_heading(const char *text, size_t len)
{
    static const char *const words[] = {"code", "codes", "coupon", "coupons", "voucher", "vouchers"};
    bool lower = false;

    for (size_t i = 0; i < len; i++) {
        if (text[i] >= '0' && text[i] <= '9')
            return false;
        lower = lower || (text[i] >= 'a' && text[i] <= 'z');
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ends_with(text, len, words[i]) && (lower || len == strlen(words[i])))
            return true;
    return false;
}

const char *code_row_suspicion(const struct code_row *row, bool first)
{
    for (size_t i = 0; i < row->text_len; i++)
        if (row->text[i] == '"' || (row->text[i] && strchr(separators, row->text[i])))
            return "quotes or separators, as in CSV";
    return first && is_heading(row->text, row->text_len) ? "a heading" : NULL;
}
