/* Unit tests of base/utf8. */
#include "cmocka_whole.h"

#include "base/utf8.h"

/* Every sequence of one to four bytes from the interesting ones, against the standard's table of well-formed ones. */
static bool table_says_valid(const unsigned char *s)
{
    static const struct {
        unsigned char low[4], high[4];
        int len;
    } rows[] = {
        {{0x01}, {0x7F}, 1},
        {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
        {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
        {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
        {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
        {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
        {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
        {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
        {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
    };

    while (*s) {
        bool matched = false;

        for (size_t r = 0; r < sizeof rows / sizeof *rows && !matched; r++) {
            int i = 0;

            while (i < rows[r].len && s[i] >= rows[r].low[i] && s[i] <= rows[r].high[i])
                i++;
            matched = i == rows[r].len;
            if (matched)
                s += i;
        }
        if (!matched)
            return false;
    }
    return true;
}

TEST(utf8_is_what_the_standard_says)
{
    static const unsigned char bytes[] = {0x01, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                          0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    enum { COUNT = sizeof bytes };

    for (unsigned i = 0; i < COUNT * COUNT * COUNT * COUNT; i++) {
        unsigned char text[5] = {bytes[i % COUNT], bytes[i / COUNT % COUNT], bytes[i / COUNT / COUNT % COUNT],
                                 bytes[i / COUNT / COUNT / COUNT], 0};

        for (int len = 1; len <= 4; len++) {
            unsigned char cut[5] = {0};

            memcpy(cut, text, (size_t)len);
            if (utf8_valid((const char *)cut, NULL) != table_says_valid(cut))
                fail_msg("%02x %02x %02x %02x is judged wrongly", cut[0], cut[1], cut[2], cut[3]);
        }
    }
}

TEST(characters_are_counted)
{
    size_t characters = 99;

    assert_true(utf8_valid("", &characters));
    assert_int_equal(characters, 0);
    assert_true(utf8_valid("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", &characters));
    assert_int_equal(characters, 4);
}

TEST(a_character_ends_before_the_end)
{
    static const unsigned char text[] = "\xF0\x9F\x98\x80";
    int32_t point = 0;

    for (int len = 1; len < 4; len++)
        assert_int_equal(utf8_character(text, text + len, &point), 0);
    assert_int_equal(utf8_character(text, text + 4, &point), 4);
    assert_int_equal(point, 0x1F600);
    assert_int_equal(utf8_character(text + 4, text + 5, &point), 1);
    assert_int_equal(point, 0);
}

RUN_TESTS()
