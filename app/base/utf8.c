/* base/utf8.c -- see utf8.h. */
#include "base/utf8.h"

size_t utf8_character(const unsigned char *text, const unsigned char *end, int32_t *point)
{
    int32_t value, least;
    size_t len;

    if (*text < 0x80)
        len = 1, least = 0, value = *text;
    else if (*text >= 0xC2 && *text <= 0xDF)
        len = 2, least = 0x80, value = *text & 0x1F;
    else if (*text >= 0xE0 && *text <= 0xEF)
        len = 3, least = 0x800, value = *text & 0x0F;
    else if (*text >= 0xF0 && *text <= 0xF4)
        len = 4, least = 0x10000, value = *text & 0x07;
    else
        return 0;
    if (end && (size_t)(end - text) < len)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((text[i] & 0xC0) != 0x80) /* includes the NUL at the end */
            return 0;
        value = value << 6 | (text[i] & 0x3F);
    }
    if (value < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    if (point)
        *point = value;
    return len;
}

bool utf8_valid(const char *text, size_t *characters)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t count = 0;

    for (size_t len; *at; at += len, count++)
        if (!(len = utf8_character(at, NULL, NULL)))
            return false;
    if (characters)
        *characters = count;
    return true;
}
