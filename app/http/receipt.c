/* http/receipt.c -- see receipt.h. */
#include "http/receipt.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

_Static_assert(RECEIPT_SECRET_LEN == crypto_sign_SECRETKEYBYTES, "libsodium's size");
_Static_assert(RECEIPT_PUBLIC_LEN == crypto_sign_PUBLICKEYBYTES, "libsodium's size");

bool receipt_key_load(struct receipt_key *k, const char *path, const char **message)
{
    unsigned char seed[crypto_sign_SEEDBYTES];
    char text[256];
    size_t len = 0;
    const char *end;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    *k = (struct receipt_key){.present = false};
    *message = "the file cannot be read";
    if (fd < 0)
        return false;
    got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got < 0)
        return false;
    text[got] = '\0';
    *message = "the file must hold 32 bytes as 64 hexadecimal digits";
    if (sodium_hex2bin(seed, sizeof seed, text, (size_t)got, NULL, &len, &end) == 0 && len == sizeof seed &&
        strspn(end, " \t\r\n") == strlen(end))
        k->present = crypto_sign_seed_keypair(k->public, k->secret, seed) == 0;
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(text, sizeof text);
    return k->present;
}

const char *receipt_sign(const struct receipt_key *k, const char *coupon, const char *id, int64_t ordinal, int64_t at_ms,
                         char text[RECEIPT_TEXT_SIZE])
{
    unsigned char signature[crypto_sign_BYTES];
    char message[256], at[CLOCK_TEXT_SIZE], digits[24];
    size_t i = sizeof digits, len = 0;
    const char *parts[4] = {coupon, id, NULL, at};

    if (!k->present)
        return NULL;
    digits[--i] = '\0';
    do {
        digits[--i] = (char)('0' + ordinal % 10);
        ordinal /= 10;
    } while (ordinal > 0);
    parts[2] = digits + i;
    clock_text(at_ms, at);
    for (size_t p = 0; p < 4; p++) {
        size_t part = strlen(parts[p]);

        if (len + part + 1 >= sizeof message)
            return NULL;
        memcpy(message + len, parts[p], part);
        len += part;
        if (p < 3)
            message[len++] = '\n';
    }
    crypto_sign_detached(signature, NULL, (const unsigned char *)message, len, k->secret);
    return sodium_bin2base64(text, RECEIPT_TEXT_SIZE, signature, sizeof signature, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}
