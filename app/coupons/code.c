/* coupons/code.c -- see code.h. */
#include "coupons/code.h"

#include <sodium.h>
#include <string.h>

/* Without 0 O 1 I L U, which are easily misread. */
static const char alphabet[] = "23456789ABCDEFGHJKMNPQRSTVWXYZ";

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

bool code_normalise(const char *text, enum codes_match match, char out[CODE_MAX + 1])
{
    size_t len = strlen(text), used = 0;

    if (len < CODE_MIN || len > CODE_MAX)
        return false;
    for (; *text; text++) {
        if (*text < 0x20 || *text > 0x7E)
            return false;
        if (match == MATCH_EXACT)
            out[used++] = *text;
        else if (*text != ' ' && *text != '-')
            out[used++] = upper(*text);
    }
    out[used] = '\0';
    return used > 0;
}

/* Ask for randomness once per code, because each time is a system call. Skip bytes past the last whole multiple of the alphabet, so that
 * all characters are equally likely. */
void code_random(const struct coupon *c, char out[CODE_MAX + 1])
{
    const size_t letters = sizeof alphabet - 1, fair = 256 / letters * letters;
    size_t used = strlen(c->codes.prefix), end = used + (size_t)c->codes.length, left = 0;
    unsigned char bytes[2 * CODE_MAX];

    memcpy(out, c->codes.prefix, used);
    while (used < end) {
        if (left == 0) {
            randombytes_buf(bytes, sizeof bytes);
            left = sizeof bytes;
        }
        if (bytes[--left] < fair)
            out[used++] = alphabet[bytes[left] % letters];
    }
    out[used] = '\0';
    sodium_memzero(bytes, sizeof bytes);
}
