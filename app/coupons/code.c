/* coupons/code.c -- see code.h. */
#include "coupons/code.h"

#include <sodium.h>
#include <string.h>

/* Without 0 O 1 I L U: nothing that is read as another. */
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

void code_random(const struct coupon *c, char out[CODE_MAX + 1])
{
    size_t used = strlen(c->codes.prefix);

    memcpy(out, c->codes.prefix, used);
    for (int64_t i = 0; i < c->codes.length; i++)
        out[used++] = alphabet[randombytes_uniform(sizeof alphabet - 1)];
    out[used] = '\0';
}
