/*
 * coupons/code.h -- codes: their form, their look-up form, and how one is made.
 *
 * Shape   text of at most CODE_MAX printable ASCII characters
 * Owns    nothing
 * Source  the HTTP contract, codes.*; unbiased choice from libsodium's generator
 */
#ifndef COUPONS_CODE_H
#define COUPONS_CODE_H

#include <stdbool.h>
#include <stddef.h>

#include "coupons/coupon.h"

/* The form in which `text` is stored and looked up: itself, or (loose) upper case without spaces and hyphens. False: it is no code:
 * not CODE_MIN to CODE_MAX printable ASCII characters, or nothing remains. */
bool code_normalise(const char *text, enum codes_match match, char out[CODE_MAX + 1]);

/* Make a random code: c's prefix, then codes.length characters, each of the alphabet's 30 equally likely. */
void code_random(const struct coupon *c, char out[CODE_MAX + 1]);

#endif
