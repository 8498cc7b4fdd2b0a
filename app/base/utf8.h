/*
 * base/utf8.h -- UTF-8, character by character: no overlong forms, no surrogates, nothing beyond U+10FFFF.
 * Source  RFC 3629, section 4
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the character at text, 1 to 4 bytes; 0: invalid. It must end before end; end NULL: a NUL ends the text. *point, if not
 * NULL, gets its code point. */
size_t utf8_character(const unsigned char *text, const unsigned char *end, int32_t *point);

/* True if all of text is UTF-8. *characters, if not NULL, gets its length. */
bool utf8_valid(const char *text, size_t *characters);

#endif
