/*
 * base/signature.h -- signatures of Standard Webhooks 1.0: secrets, and HMAC-SHA256 over id, time and body.
 *
 * Shape   a secret is "whsec_" and the base64 of 24 to 64 random bytes; a signature is "v1," and the base64 of the MAC
 * Source  https://www.standardwebhooks.com/ (symmetric signatures)
 */
#ifndef BASE_SIGNATURE_H
#define BASE_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define SECRET_BYTES_MIN 24
#define SECRET_BYTES_MAX 64
#define SECRET_TEXT_SIZE 96 /* bytes of the longest secret, with its NUL */

/* Make a new secret of 32 bytes. */
void secret_make(char text[SECRET_TEXT_SIZE]);
/* True if text is a secret. */
bool secret_valid(const char *text);
/* Append the signature made with a valid secret. */
void signature_put(struct buf *out, const char *secret, const char *id, int64_t time_s, const void *body, size_t len);

#endif
