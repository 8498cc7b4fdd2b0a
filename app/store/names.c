/* store/names.c -- see names.h. */
#include "store/names.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

_Static_assert(SECRET_LEN == crypto_generichash_KEYBYTES, "libsodium's size");
_Static_assert(NAME_HASH_LEN >= crypto_generichash_BYTES_MIN, "libsodium's size");
_Static_assert(NAME_HASH_LEN == crypto_shorthash_KEYBYTES, "libsodium's size");
_Static_assert(crypto_shorthash_BYTES == sizeof(int64_t), "libsodium's size");

struct name_hash name_hash(const struct name_key *key, const char *name)
{
    struct name_hash hash;

    crypto_generichash(hash.bytes, sizeof hash.bytes, (const unsigned char *)name, strlen(name), key->secret.bytes,
                       sizeof key->secret.bytes);
    return hash;
}

#define ORDERS "\x01orders" /* no user's name: those have no control characters */

struct order_key order_key(const struct name_key *key)
{
    const struct name_hash hash = name_hash(key, ORDERS);
    struct order_key orders;

    memcpy(orders.bytes, hash.bytes, sizeof orders.bytes);
    return orders;
}

int64_t order_hash(const struct order_key *key, const char *order)
{
    uint8_t bytes[crypto_shorthash_BYTES];
    uint64_t hash = 0;

    crypto_shorthash(bytes, (const unsigned char *)order, strlen(order), key->bytes);
    for (size_t i = sizeof bytes; i-- > 0;)
        hash = hash << 8 | bytes[i];
    return (int64_t)hash;
}

#define JOB "\x01job:"
#define JOB_LEN (sizeof JOB - 1)

char *name_of_job(const char *job, char name[STORED_NAME_SIZE])
{
    snprintf(name, STORED_NAME_SIZE, JOB "%s", job);
    return name;
}

struct named_key name_parse(const char *name)
{
    if (strncmp(name, JOB, JOB_LEN) != 0)
        return (struct named_key){.kind = NAMED_USER};
    return (struct named_key){.kind = NAMED_JOB, .job = name + JOB_LEN};
}

bool name_hash_same(const struct name_hash *a, const struct name_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}
