/*
 * base/buf.h -- a growing byte buffer, always followed by a NUL that does not count.
 *
 * Owns    data; freed by buf_free()
 * Errors  out of memory aborts
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL until the first byte */
    size_t len; /* bytes in use, without the NUL */
    size_t cap; /* bytes allocated */
};

#define BUF_INIT {NULL, 0, 0}

void buf_free(struct buf *b);
/* Empty b, keeping its memory. */
void buf_clear(struct buf *b);
/* Make room for `more` bytes beyond len. */
void buf_reserve(struct buf *b, size_t more);
void buf_put(struct buf *b, const void *bytes, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
/* Append value in decimal. */
void buf_int(struct buf *b, int64_t value);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
