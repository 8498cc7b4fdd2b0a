/*
 * http/receipt.h -- signed receipts: Ed25519 over "coupon\nid\nordinal\nat".
 *
 * Key     the seed stands in a file: 32 bytes in hex. Without the file there are no receipts (null in answers)
 */
#ifndef HTTP_RECEIPT_H
#define HTTP_RECEIPT_H

#include <stdbool.h>
#include <stdint.h>

#define RECEIPT_SECRET_LEN 64
#define RECEIPT_PUBLIC_LEN 32
#define RECEIPT_TEXT_SIZE 88 /* base64url without padding, and a NUL */

struct receipt_key {
    bool present;
    unsigned char secret[RECEIPT_SECRET_LEN];
    unsigned char public[RECEIPT_PUBLIC_LEN];
};

/* Read the seed file. False, *message (static) saying why: there is none, or it is not a seed; k is then without key. */
bool receipt_key_load(struct receipt_key *k, const char *path, const char **message);

/* Sign into text; returns text, or NULL without key. */
const char *receipt_sign(const struct receipt_key *k, const char *coupon, const char *id, int64_t ordinal, int64_t at_ms,
                         char text[RECEIPT_TEXT_SIZE]);

#endif
