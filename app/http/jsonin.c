/* http/jsonin.c -- see jsonin.h. The scanner is a recursive descent over RFC 8259's grammar, bounded by JSON_DEPTH_MAX. */
#include "http/jsonin.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"

struct cursor {
    const unsigned char *start, *at, *end;
    struct json_scan *scan;
    int depth;
    struct arena *arena; /* for scan->repaired; NULL: escapes of no character are faults */
    bool in_name;
};

static bool fault(struct cursor *c, const char *what)
{
    if (!c->scan->fault) {
        c->scan->fault = what;
        c->scan->fault_at = (size_t)(c->at - c->start);
    }
    return false;
}

static int next_byte(const struct cursor *c)
{
    return c->at < c->end ? *c->at : -1;
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* ---- strings ---- */

/* Read four hex digits at c->at into *unit. */
static bool hex4(struct cursor *c, unsigned *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int d = next_byte(c);

        if (d >= '0' && d <= '9')
            d -= '0';
        else if ((d | 32) >= 'a' && (d | 32) <= 'f')
            d = (d | 32) - 'a' + 10;
        else
            return fault(c, "\\u needs four hexadecimal digits");
        *unit = *unit * 16 + (unsigned)d;
    }
    return true;
}

/* The escape that begins at `from`, with \u and four digits, is no character. */
static bool scan_no_character(struct cursor *c, const unsigned char *from, const char *what)
{
    if (!c->arena || c->in_name)
        return fault(c, what);
    if (!c->scan->repaired)
        c->scan->repaired = arena_memdup(c->arena, c->start, (size_t)(c->end - c->start));
    memcpy(c->scan->repaired + (from - c->start), NO_CHARACTER, sizeof NO_CHARACTER - 1);
    c->at = from + sizeof NO_CHARACTER - 1;
    return true;
}

/* After a backslash. */
static bool scan_escape(struct cursor *c)
{
    const unsigned char *from = c->at - 1;
    unsigned unit, low;
    int kind = next_byte(c);

    if (kind != 'u') {
        if (kind < 0 || !strchr("\"\\/bfnrt", kind) || kind == 0)
            return fault(c, "unknown escape in a string");
        c->at++;
        return true;
    }
    c->at++;
    if (!hex4(c, &unit))
        return false;
    if (unit == 0)
        return scan_no_character(c, from, "a string must not contain U+0000");
    if (unit >= 0xDC00 && unit <= 0xDFFF)
        return scan_no_character(c, from, "lone surrogate in a string");
    if (unit < 0xD800 || unit > 0xDBFF)
        return true;
    if (c->end - c->at < 2 || c->at[0] != '\\' || c->at[1] != 'u')
        return scan_no_character(c, from, "lone surrogate in a string");
    c->at += 2;
    if (!hex4(c, &low))
        return false;
    return low >= 0xDC00 && low <= 0xDFFF ? true : scan_no_character(c, from, "lone surrogate in a string");
}

static bool scan_string(struct cursor *c)
{
    if (next_byte(c) != '"')
        return fault(c, "expected a string in double quotes");
    c->at++;
    for (;;) {
        int ch = next_byte(c);

        if (ch < 0)
            return fault(c, "unclosed string");
        if (ch == '"')
            break;
        if (ch < 0x20)
            return fault(c, "unescaped control character in a string");
        if (ch == '\\') {
            c->at++;
            if (!scan_escape(c))
                return false;
        } else if (ch < 0x80) {
            c->at++;
        } else {
            size_t length = utf8_character(c->at, c->end, NULL);

            if (!length)
                return fault(c, "not UTF-8");
            c->at += length;
        }
    }
    c->at++;
    return true;
}

/* ---- numbers ---- */

static bool scan_digits(struct cursor *c)
{
    if (next_byte(c) < '0' || next_byte(c) > '9')
        return fault(c, "expected a digit");
    while (next_byte(c) >= '0' && next_byte(c) <= '9')
        c->at++;
    return true;
}

/* True if we can hold the number [from, c->at): strtoll and strtod agree with what json-c will do. */
static bool number_fits(struct cursor *c, const unsigned char *from, bool integer)
{
    char text[400];
    size_t len = (size_t)(c->at - from);

    if (integer && len <= 18)
        return true;
    if (len >= sizeof text)
        return fault(c, "number has too many digits");
    memcpy(text, from, len);
    text[len] = '\0';
    errno = 0;
    if (integer) {
        strtoll(text, NULL, 10);
        if (errno == ERANGE)
            return fault(c, "integer does not fit into 64 bits");
    } else if (!isfinite(strtod(text, NULL))) {
        return fault(c, "number is too large");
    }
    return true;
}

static bool scan_number(struct cursor *c)
{
    const unsigned char *from = c->at;
    bool integer = true;

    if (next_byte(c) == '-')
        c->at++;
    if (next_byte(c) == '0')
        c->at++;
    else if (!scan_digits(c))
        return false;
    if (next_byte(c) == '.') {
        integer = false;
        c->at++;
        if (!scan_digits(c))
            return false;
    }
    if (next_byte(c) == 'e' || next_byte(c) == 'E') {
        integer = false;
        c->at++;
        if (next_byte(c) == '+' || next_byte(c) == '-')
            c->at++;
        if (!scan_digits(c))
            return false;
    }
    return number_fits(c, from, integer);
}

/* ---- values ---- */

static bool scan_value(struct cursor *c);

static bool scan_word(struct cursor *c, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len) != 0)
        return fault(c, "expected a JSON value");
    c->at += len;
    return true;
}

static bool scan_member(struct cursor *c)
{
    bool good;

    skip_blanks(c);
    c->in_name = true;
    good = scan_string(c);
    c->in_name = false;
    if (!good)
        return false;
    c->scan->members++;
    skip_blanks(c);
    if (next_byte(c) != ':')
        return fault(c, "expected a colon");
    c->at++;
    return scan_value(c);
}

/* An object or an array: c->at is at its '{' or '['. */
static bool scan_container(struct cursor *c, int close, bool (*item)(struct cursor *))
{
    size_t items = 0;

    if (++c->depth > JSON_DEPTH_MAX)
        return fault(c, "nested too deeply");
    if (++c->scan->containers > JSON_CONTAINERS_MAX)
        return fault(c, "too many objects and arrays");
    c->at++;
    skip_blanks(c);
    if (next_byte(c) == close) {
        c->at++;
        c->depth--;
        return true;
    }
    for (;;) {
        if (++items > (close == '}' ? JSON_MEMBERS_MAX : JSON_ITEMS_MAX))
            return fault(c, close == '}' ? "too many members in an object" : "too many items in an array");
        if (!item(c))
            return false;
        if (next_byte(c) == close)
            break;
        if (next_byte(c) != ',')
            return fault(c, close == '}' ? "expected a comma or }" : "expected a comma or ]");
        c->at++;
    }
    c->at++;
    c->depth--;
    return true;
}

/* A value with the white space around it. NOLINTNEXTLINE(misc-no-recursion): bounded by JSON_DEPTH_MAX */
static bool scan_value(struct cursor *c)
{
    bool ok;

    skip_blanks(c);
    if (++c->scan->values > JSON_VALUES_MAX)
        return fault(c, "too many values");
    switch (next_byte(c)) {
    case '{':
        ok = scan_container(c, '}', scan_member);
        break;
    case '[':
        ok = scan_container(c, ']', scan_value);
        break;
    case '"':
        ok = scan_string(c);
        break;
    case 't':
        ok = scan_word(c, "true");
        break;
    case 'f':
        ok = scan_word(c, "false");
        break;
    case 'n':
        ok = scan_word(c, "null");
        break;
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        ok = scan_number(c);
        break;
    default:
        ok = fault(c, next_byte(c) < 0 ? "unexpected end of input" : "expected a JSON value");
    }
    if (ok)
        skip_blanks(c);
    return ok;
}

static bool scan_text(const char *text, size_t len, struct json_scan *scan, struct arena *a)
{
    const unsigned char *start = (const unsigned char *)text;
    struct cursor c = {start, start, start + len, scan, .arena = a};

    *scan = (struct json_scan){.start = 0};
    skip_blanks(&c);
    scan->start = (size_t)(c.at - start);
    if (!scan_value(&c))
        return false;
    if (c.at != c.end)
        return fault(&c, "unexpected text after the value");
    scan->end = len;
    while (scan->end > scan->start && strchr(" \t\r\n", text[scan->end - 1]))
        scan->end--;
    return true;
}

bool json_scan(const char *text, size_t len, struct json_scan *scan)
{
    return scan_text(text, len, scan, NULL);
}

/* ---- parsing ---- */

/* Members of all objects in o. NOLINTNEXTLINE(misc-no-recursion): bounded by JSON_DEPTH_MAX */
static size_t count_members(struct json_object *o)
{
    size_t count = 0;

    if (json_object_is_type(o, json_type_object)) {
        JSONC_FOREACH(o, member)
            count += 1 + count_members(jsonc_value(member));
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            count += count_members(json_object_array_get_idx(o, i));
    }
    return count;
}

static struct json_object *parse(const char *text, size_t len, struct errors *e, struct arena *a)
{
    struct json_scan scan = {.start = 0};
    struct json_tokener *t;
    struct json_object *o;
    bool complete;

    if (!scan_text(text, len, &scan, a)) {
        errors_add(e, "", arena_printf(e->arena, "invalid JSON at byte %zu: %s", scan.fault_at, scan.fault));
        return NULL;
    }
    if (text[scan.start] != '{') {
        errors_add(e, "", "the body must be a JSON object");
        return NULL;
    }
    t = checked(json_tokener_new_ex(JSON_DEPTH_MAX + 2));
    json_tokener_set_flags(t, JSON_TOKENER_STRICT);
    o = json_tokener_parse_ex(t, (scan.repaired ? scan.repaired : text) + scan.start, (int)(scan.end - scan.start));
    complete = json_tokener_get_error(t) == json_tokener_success;
    json_tokener_free(t);
    if (!o || !complete) {
        json_object_put(o);
        errors_add(e, "", "invalid JSON");
        return NULL;
    }
    if (count_members(o) != scan.members) {
        json_object_put(o);
        errors_add(e, "", "duplicate member");
        return NULL;
    }
    return o;
}

struct json_object *json_in(const char *text, size_t len, struct errors *e)
{
    return parse(text, len, e, NULL);
}

struct json_object *json_in_typed(const char *text, size_t len, struct errors *e)
{
    return parse(text, len, e, e->arena);
}
