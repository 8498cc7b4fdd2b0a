/* base/ids.c -- see ids.h. */
#include "base/ids.h"

#include <sodium.h>

static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";

void id_random(char *text, size_t len)
{
    unsigned char bytes[64];

    for (size_t i = 0; i < len; i++) {
        if (i % sizeof bytes == 0)
            randombytes_buf(bytes, len - i < sizeof bytes ? len - i : sizeof bytes);
        text[i] = letters[bytes[i % sizeof bytes] & 31];
    }
    text[len] = '\0';
}

void id_of_bytes(const unsigned char *bytes, char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        text[i] = letters[bytes[i] & 31];
    text[len] = '\0';
}
