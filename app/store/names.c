/* store/names.c -- see names.h. */
#include "store/names.h"

#include <sodium.h>
#include <string.h>

_Static_assert(SECRET_LEN == crypto_generichash_KEYBYTES, "libsodium's size");
_Static_assert(NAME_HASH_LEN >= crypto_generichash_BYTES_MIN, "libsodium's size");

struct name_hash name_hash(const struct name_key *key, const char *name)
{
    struct name_hash hash;

    crypto_generichash(hash.bytes, sizeof hash.bytes, (const unsigned char *)name, strlen(name), key->secret.bytes,
                       sizeof key->secret.bytes);
    return hash;
}

bool name_hash_same(const struct name_hash *a, const struct name_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}
