/*
 * coupons/code.h -- codes: what a code is, how it is looked up, and how one is made.
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

/* The form in which `text` is stored and looked up: itself, or (loose) upper case without spaces and hyphens. False: it is not a code:
 * not CODE_MIN to CODE_MAX printable ASCII characters, or nothing is left of it. */
bool code_normalise(const char *text, enum codes_match match, char out[CODE_MAX + 1]);

/* A new code: c's prefix, then codes.length characters, each of the 30 of the alphabet with the same probability. */
void code_random(const struct coupon *c, char out[CODE_MAX + 1]);

#endif
