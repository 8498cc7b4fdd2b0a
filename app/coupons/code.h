/*
 * coupons/code.h -- codes: their form, their look-up form, and how one is made.
 *
 * Shape   a coupon's code: at most CODE_MAX printable ASCII characters. What people type as one: any text
 * Forms   exact: without outer blanks. Loose: also in upper case, full-width characters as ASCII, and without any of Unicode's spaces,
 *         dashes and characters without width
 * Owns    nothing
 * Source  static/docs/openapi.json, codes.*; Unicode 15 for what is a space and a dash; unbiased choice from libsodium's generator
 */
#ifndef COUPONS_CODE_H
#define COUPONS_CODE_H

#include <stdbool.h>
#include <stddef.h>

#include "coupons/coupon.h"

#define CODE_TYPED_MAX 256 /* characters that are read of what somebody typed */

/* The form in which `text` is stored and looked up. False: it can be nobody's code, because its form is empty, longer than CODE_MAX, or
 * not printable ASCII. */
bool code_normalise(const char *text, enum codes_match match, char out[CODE_MAX + 1]);

/* Move *text past the blanks at its start; returns its length without those at its end, too. Blank are spaces, and characters without
 * width. */
size_t code_trim(const char **text, size_t len);

/* The shared code that was typed, as c lists it; NULL: none. */
const char *code_shared(const struct coupon *c, const char *typed);

/* Make a random code: c's prefix, then codes.length characters, each of the alphabet's 27 equally likely: 4.75 bits each. */
void code_random(const struct coupon *c, char out[CODE_MAX + 1]);

#endif
