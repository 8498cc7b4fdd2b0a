/* base/buf.c -- see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf)BUF_INIT;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t need, cap = b->cap ? b->cap : 128;

    if (more > SIZE_MAX / 2 - b->len)
        out_of_memory();
    need = b->len + more + 1;
    if (need <= b->cap)
        return;
    while (cap < need)
        cap *= 2;
    b->data = checked(realloc(b->data, cap));
    b->cap = cap;
}

/* The call is only made if there is no room. */
static inline void make_room(struct buf *b, size_t more)
{
    if (b->cap - b->len <= more)
        buf_reserve(b, more);
}

void buf_put(struct buf *b, const void *bytes, size_t len)
{
    make_room(b, len);
    if (len)
        memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
    buf_put(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
    make_room(b, 1);
    b->data[b->len++] = c;
    b->data[b->len] = '\0';
}

void buf_int(struct buf *b, int64_t value)
{
    char digits[20];
    size_t i = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do {
        digits[--i] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        buf_putc(b, '-');
    buf_put(b, digits + i, sizeof digits - i);
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    int len;

    va_start(args, format);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0)
        abort();
    buf_reserve(b, (size_t)len);
    vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
    va_end(again);
    b->len += (size_t)len;
}
