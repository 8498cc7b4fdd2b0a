/* base/signature.c -- see signature.h. */
#include "base/signature.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "whsec_"
#define NEW_BYTES 32
#define VERSION "v1,"

_Static_assert(sizeof PREFIX + (SECRET_BYTES_MAX + 2) / 3 * 4 <= SECRET_TEXT_SIZE, "a secret's text is longer");

/* Decode a secret's bytes; false: it is not a secret. */
static bool decode(const char *text, uint8_t key[SECRET_BYTES_MAX], size_t *len)
{
    const char *base64 = text + sizeof PREFIX - 1, *end;

    if (strncmp(text, PREFIX, sizeof PREFIX - 1) != 0 || strlen(text) >= SECRET_TEXT_SIZE)
        return false;
    return sodium_base642bin(key, SECRET_BYTES_MAX, base64, strlen(base64), NULL, len, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           *end == '\0' && *len >= SECRET_BYTES_MIN;
}

void secret_make(char text[SECRET_TEXT_SIZE])
{
    uint8_t key[NEW_BYTES];
    size_t at = sizeof PREFIX - 1;

    randombytes_buf(key, sizeof key);
    memcpy(text, PREFIX, at);
    sodium_bin2base64(text + at, SECRET_TEXT_SIZE - at, key, sizeof key, sodium_base64_VARIANT_ORIGINAL);
    sodium_memzero(key, sizeof key);
}

bool secret_valid(const char *text)
{
    uint8_t key[SECRET_BYTES_MAX];
    size_t len;
    bool valid = decode(text, key, &len);

    sodium_memzero(key, sizeof key);
    return valid;
}

void signature_put(struct buf *out, const char *secret, const char *id, int64_t time_s, const void *body, size_t len)
{
    uint8_t key[SECRET_BYTES_MAX], mac[crypto_auth_hmacsha256_BYTES];
    char text[sodium_base64_ENCODED_LEN(sizeof mac, sodium_base64_VARIANT_ORIGINAL)], time[24];
    crypto_auth_hmacsha256_state state;
    size_t key_len = 0;
    bool valid = decode(secret, key, &key_len);

    assert(valid);
    snprintf(time, sizeof time, ".%" PRId64 ".", time_s);
    crypto_auth_hmacsha256_init(&state, key, key_len);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)id, strlen(id));
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)time, strlen(time));
    crypto_auth_hmacsha256_update(&state, body, len);
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_memzero(key, sizeof key);
    sodium_memzero(&state, sizeof state);
    sodium_bin2base64(text, sizeof text, mac, sizeof mac, sodium_base64_VARIANT_ORIGINAL);
    buf_puts(out, VERSION);
    buf_puts(out, text);
}
