/*
 * coupons/list_text.h -- the text of a list, as spreadsheets write it, becomes UTF-8 with LF line ends. It may come in pieces.
 *
 * Encoding   UTF-16 if it begins with that byte order mark, of either order; else bytes as they are. Byte order marks are omitted, lone
 *            surrogates become U+FFFD
 * Line ends  CR, LF and CR LF
 */
#ifndef COUPONS_LIST_TEXT_H
#define COUPONS_LIST_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that so many become at the most, with what was kept back before. */
#define LIST_TEXT_ROOM(bytes) (2 * (bytes) + 8)

struct list_text {
    enum { LIST_TEXT_BEGINS, LIST_TEXT_BYTES, LIST_TEXT_UTF16_LE, LIST_TEXT_UTF16_BE } encoding;
    unsigned char kept[3]; /* at the start: what may become a byte order mark; of UTF-16: the first half of a unit */
    size_t kept_len;
    int32_t high; /* the first half of a surrogate pair; 0: none */
    bool after_cr;
};

/* Begin with a zeroed t. Convert the next piece to out, which has LIST_TEXT_ROOM(len). Returns how many bytes. */
size_t list_text_add(struct list_text *t, const char *bytes, size_t len, char *out);
/* The text has ended: what was kept back. out has LIST_TEXT_ROOM(0). */
size_t list_text_end(struct list_text *t, char *out);

#endif
