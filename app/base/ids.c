/* base/ids.c -- see ids.h. */
#include "base/ids.h"

#include <sodium.h>

void id_random(char *text, size_t len)
{
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned char bytes[64];

    for (size_t i = 0; i < len; i++) {
        if (i % sizeof bytes == 0)
            randombytes_buf(bytes, len - i < sizeof bytes ? len - i : sizeof bytes);
        text[i] = letters[bytes[i % sizeof bytes] & 31];
    }
    text[len] = '\0';
}
