/* coupons/list_text.c -- see list_text.h. */
#include "coupons/list_text.h"

#include <string.h>

#define REPLACEMENT 0xFFFD

static const unsigned char mark_utf8[] = {0xEF, 0xBB, 0xBF}, mark_le[] = {0xFF, 0xFE}, mark_be[] = {0xFE, 0xFF};

static char *put_byte(struct list_text *t, unsigned char byte, char *out)
{
    bool ended = t->after_cr && byte == '\n';

    t->after_cr = byte == '\r';
    if (!ended)
        *out++ = byte == '\r' ? '\n' : (char)byte;
    return out;
}

/* ---- UTF-16 ---- */

static char *put_point(struct list_text *t, int32_t point, char *out)
{
    if (point < 0x80)
        return put_byte(t, (unsigned char)point, out);
    t->after_cr = false;
    if (point < 0x800) {
        *out++ = (char)(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            *out++ = (char)(0xE0 | point >> 12);
        } else {
            *out++ = (char)(0xF0 | point >> 18);
            *out++ = (char)(0x80 | (point >> 12 & 0x3F));
        }
        *out++ = (char)(0x80 | (point >> 6 & 0x3F));
    }
    *out++ = (char)(0x80 | (point & 0x3F));
    return out;
}

static char *put_unit(struct list_text *t, int32_t unit, char *out)
{
    bool low = unit >= 0xDC00 && unit <= 0xDFFF;

    if (t->high && low) {
        unit = 0x10000 + ((t->high - 0xD800) << 10) + (unit - 0xDC00);
        t->high = 0;
        return put_point(t, unit, out);
    }
    if (t->high)
        out = put_point(t, REPLACEMENT, out);
    t->high = unit >= 0xD800 && unit <= 0xDBFF ? unit : 0;
    if (t->high)
        return out;
    return put_point(t, low ? REPLACEMENT : unit, out);
}

static char *put_half(struct list_text *t, unsigned char byte, char *out)
{
    int32_t first = t->kept[0];

    if (t->kept_len == 0) {
        t->kept[t->kept_len++] = byte;
        return out;
    }
    t->kept_len = 0;
    return put_unit(t, t->encoding == LIST_TEXT_UTF16_BE ? first << 8 | byte : byte << 8 | first, out);
}

/* ---- the start ---- */

static bool begins(const struct list_text *t, const unsigned char *mark, size_t len)
{
    return t->kept_len < len && memcmp(t->kept, mark, t->kept_len) == 0;
}

static bool is_mark(const struct list_text *t, const unsigned char *mark, size_t len)
{
    return t->kept_len == len && memcmp(t->kept, mark, len) == 0;
}

static char *put_kept(struct list_text *t, char *out)
{
    t->encoding = LIST_TEXT_BYTES;
    for (size_t i = 0; i < t->kept_len; i++)
        out = put_byte(t, t->kept[i], out);
    t->kept_len = 0;
    return out;
}

static char *begin(struct list_text *t, unsigned char byte, char *out)
{
    t->kept[t->kept_len++] = byte;
    if (is_mark(t, mark_le, sizeof mark_le))
        t->encoding = LIST_TEXT_UTF16_LE;
    else if (is_mark(t, mark_be, sizeof mark_be))
        t->encoding = LIST_TEXT_UTF16_BE;
    else if (is_mark(t, mark_utf8, sizeof mark_utf8))
        t->encoding = LIST_TEXT_BYTES;
    else if (begins(t, mark_le, sizeof mark_le) || begins(t, mark_be, sizeof mark_be) || begins(t, mark_utf8, sizeof mark_utf8))
        return out;
    else
        return put_kept(t, out);
    t->kept_len = 0;
    return out;
}

/* ---- pieces ---- */

size_t list_text_add(struct list_text *t, const char *bytes, size_t len, char *out)
{
    char *start = out;

    for (const char *end = bytes + len; bytes < end; bytes++) {
        unsigned char byte = (unsigned char)*bytes;

        if (t->encoding == LIST_TEXT_BYTES)
            out = put_byte(t, byte, out);
        else if (t->encoding == LIST_TEXT_BEGINS)
            out = begin(t, byte, out);
        else
            out = put_half(t, byte, out);
    }
    return (size_t)(out - start);
}

size_t list_text_end(struct list_text *t, char *out)
{
    char *start = out;

    if (t->encoding == LIST_TEXT_BEGINS)
        out = put_kept(t, out);
    else if (t->high || t->kept_len)
        out = put_point(t, REPLACEMENT, out);
    t->high = 0;
    t->kept_len = 0;
    return (size_t)(out - start);
}
