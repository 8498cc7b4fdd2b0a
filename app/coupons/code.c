/* coupons/code.c -- see code.h. */
#include "coupons/code.h"

#include <sodium.h>
#include <string.h>

#include "base/utf8.h"

/* Without 0 O 1 I L U, which are easily misread, and without A E Y, so that no code spells a word. */
static const char alphabet[] = "23456789BCDFGHJKMNPQRSTVWXZ";

/* ---- what people type ---- */

/* Code points, both ends included; lists of them ascend. */
struct range {
    int32_t from, to;
};

/* Characters with the property White_Space. */
static const struct range spaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

/* Those of the general category Pd, and hyphen bullet and minus. */
static const struct range dashes[] = {{0x2D, 0x2D},     {0x58A, 0x58A},   {0x5BE, 0x5BE},   {0x1400, 0x1400}, {0x1806, 0x1806},
                                      {0x2010, 0x2015}, {0x2043, 0x2043}, {0x2212, 0x2212}, {0x2E17, 0x2E17}, {0x2E1A, 0x2E1A},
                                      {0x2E3A, 0x2E3B}, {0x2E40, 0x2E40}, {0x2E5D, 0x2E5D}, {0x301C, 0x301C}, {0x3030, 0x3030},
                                      {0x30A0, 0x30A0}, {0xFE31, 0xFE32}, {0xFE58, 0xFE58}, {0xFE63, 0xFE63}, {0xFF0D, 0xFF0D},
                                      {0x10EAD, 0x10EAD}};

/* Those without width: soft hyphen, joiners, marks of direction, variation selectors, byte order mark. */
static const struct range unseen[] = {{0xAD, 0xAD},     {0x34F, 0x34F},   {0x61C, 0x61C},   {0x180B, 0x180F}, {0x200B, 0x200F},
                                      {0x202A, 0x202E}, {0x2060, 0x206F}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}};

/* The full-width forms of printable ASCII. */
#define WIDE_FIRST 0xFF01
#define WIDE_LAST 0xFF5E
#define WIDE_OFFSET 0xFEE0

static bool is_among(const struct range *ranges, size_t count, int32_t point)
{
    size_t i = 0;

    while (i < count && point > ranges[i].to)
        i++;
    return i < count && point >= ranges[i].from;
}

#define IS_AMONG(ranges, point) is_among(ranges, sizeof(ranges) / sizeof *(ranges), point)

static bool is_blank(int32_t point)
{
    return IS_AMONG(spaces, point) || IS_AMONG(unseen, point);
}

/* The character of the loose form; 0: it has none. */
static int32_t loosened(int32_t point)
{
    if (is_blank(point) || IS_AMONG(dashes, point))
        return 0;
    if (point >= WIDE_FIRST && point <= WIDE_LAST)
        point -= WIDE_OFFSET;
    return point >= 'a' && point <= 'z' ? point - 'a' + 'A' : point;
}

size_t code_trim(const char **text, size_t len)
{
    const unsigned char *at = (const unsigned char *)*text, *end = at + len, *first = end, *last = end;
    int32_t point;

    for (size_t size; at < end; at += size) {
        size = utf8_character(at, end, &point);
        if (size && is_blank(point))
            continue;
        size = size ? size : 1;
        first = first == end ? at : first;
        last = at + size;
    }
    *text = (const char *)first;
    return (size_t)(last - first);
}

bool code_normalise(const char *text, enum codes_match match, char out[CODE_MAX + 1])
{
    size_t len = code_trim(&text, strlen(text)), used = 0;
    const unsigned char *at = (const unsigned char *)text;

    for (size_t size; len > 0; at += size, len -= size) {
        int32_t point;

        size = utf8_character(at, at + len, &point);
        if (!size)
            return false;
        if (match == MATCH_LOOSE && (point = loosened(point)) == 0)
            continue;
        if (point < 0x20 || point > 0x7E || used == CODE_MAX)
            return false;
        out[used++] = (char)point;
    }
    out[used] = '\0';
    return used > 0;
}

const char *code_shared(const struct coupon *c, const char *typed)
{
    enum codes_match match = (enum codes_match)c->codes.match;
    char form[CODE_MAX + 1];

    if (c->codes.source != CODES_SHARED || !code_normalise(typed, match, form))
        return NULL;
    for (size_t i = 0; i < c->codes.shared.count; i++)
        if (code_text_same(c->codes.shared.items[i], form, match))
            return c->codes.shared.items[i];
    return NULL;
}

/* ---- new ones ---- */

/* Ask for randomness once per code, because each time is a system call. Skip bytes past the last whole multiple of the alphabet, so that
 * all characters are equally likely. */
void code_random(const struct coupon *c, char out[CODE_MAX + 1])
{
    const size_t letters = sizeof alphabet - 1, fair = 256 / letters * letters;
    size_t used = strlen(c->codes.prefix), end = used + (size_t)c->codes.length, unused = 0;
    unsigned char bytes[2 * CODE_MAX];

    memcpy(out, c->codes.prefix, used);
    while (used < end) {
        if (unused == 0) {
            randombytes_buf(bytes, sizeof bytes);
            unused = sizeof bytes;
        }
        if (bytes[--unused] < fair)
            out[used++] = alphabet[bytes[unused] % letters];
    }
    out[used] = '\0';
    sodium_memzero(bytes, sizeof bytes);
}
