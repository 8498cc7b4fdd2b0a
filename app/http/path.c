/* http/path.c -- see path.h. Source: RFC 3986; in the query, + is a blank, as forms send it. */
#include "http/path.h"

#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode from[0..len) into the arena; NULL: an invalid escape, or a NUL. typed: it is a code that somebody typed, in which a NUL is read as
 * a byte that is not UTF-8. */
static const char *decode(const char *from, size_t len, bool plus_is_blank, bool typed, struct arena *a)
{
    char *text = arena_memdup(a, from, len), *to;

    if (!memchr(from, '%', len) && !(plus_is_blank && memchr(from, '+', len)))
        return text;
    to = text;
    for (size_t i = 0; i < len; i++) {
        if (from[i] == '%') {
            int high = len - i > 2 ? hex(from[i + 1]) : -1, low = len - i > 2 ? hex(from[i + 2]) : -1;

            if (high < 0 || low < 0 || (high + low == 0 && !typed))
                return NULL;
            *to++ = high + low ? (char)(high * 16 + low) : '\xFF';
            i += 2;
        } else {
            *to++ = plus_is_blank && from[i] == '+' ? ' ' : from[i];
        }
    }
    *to = '\0';
    return text;
}

static bool parse_query(struct path *p, const char *text, struct arena *a)
{
    while (*text) {
        size_t len = strcspn(text, "&"), name_len = 0;
        struct query_param *q;

        if (len) {
            if (p->query_count == QUERY_MAX)
                return false;
            while (name_len < len && text[name_len] != '=')
                name_len++;
            q = &p->query[p->query_count++];
            q->name = decode(text, name_len, true, false, a);
            if (!q->name)
                return false;
            q->value = name_len < len ? decode(text + name_len + 1, len - name_len - 1, true, strcmp(q->name, "code") == 0, a) : "";
            if (!q->value)
                return false;
        }
        text += len;
        if (*text)
            text++;
    }
    return true;
}

bool path_parse(struct path *p, const char *target, struct arena *a)
{
    size_t len = strcspn(target, "?");
    const char *at = target, *end = target + len;

    p->count = p->query_count = 0;
    p->raw = arena_memdup(a, target, len);
    if (*target != '/')
        return false;
    while (at < end) {
        size_t part;

        at++; /* the slash */
        part = 0;
        while (at + part < end && at[part] != '/')
            part++;
        if (p->count == PATH_SEGMENTS_MAX) {
            p->count++; /* deeper than any route */
            break;
        }
        p->escaped[p->count] = memchr(at, '%', part) != NULL;
        p->segments[p->count] = decode(at, part, false, false, a);
        if (!p->segments[p->count++])
            return false;
        at += part;
    }
    return target[len] ? parse_query(p, target + len + 1, a) : true;
}

const char *path_query(const struct path *p, const char *name)
{
    for (size_t i = 0; i < p->query_count; i++)
        if (strcmp(p->query[i].name, name) == 0)
            return p->query[i].value;
    return NULL;
}

void path_encode(const char *text, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~", c))) {
            buf_putc(out, (char)c);
        } else {
            char escape[3] = {'%', digits[c >> 4], digits[c & 15]};

            buf_put(out, escape, 3);
        }
    }
}
