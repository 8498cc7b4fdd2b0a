/*
 * base/ids.h -- random identifiers, from libsodium's generator.
 * Shape   lower-case base32 without look-alikes (Crockford's letters), 5 bits a character
 */
#ifndef BASE_IDS_H
#define BASE_IDS_H

#include <stddef.h>

#define ID_BATCH_LEN 26 /* 130 random bits: a batch is never mistaken for another */
#define ID_ALIAS_LEN 16 /* 80 random bits: a user's pseudonym in one coupon */
#define ID_SHORT_LEN 16 /* jobs, coupons, request ids */

/* Write len random characters and a NUL to text[len + 1]. Thread-safe. */
void id_random(char *text, size_t len);
/* The same from this many bytes. */
void id_of_bytes(const unsigned char *bytes, char *text, size_t len);

#endif
