/* Unit tests of coupons/code: what a new code looks like, that each character is as likely, and the loose form. */
#include "cmocka_whole.h"

#include "coupons/code.h"

#define ALPHABET "23456789BCDFGHJKMNPQRSTVWXZ"
#define LETTERS 27
#define LENGTH 10
#define DRAWN 100000

static struct coupon c;

FIXTURE(fresh)
{
    coupon_init(&c);
    c.codes.source = CODES_GENERATED;
    c.codes.length = LENGTH;
    return 0;
}

TEST(a_code_is_its_prefix_and_letters_of_the_alphabet)
{
    static const struct {
        const char *prefix;
        int64_t length;
    } rows[] = {{"", 6}, {"", 32}, {"X-", 10}, {"1234567890abcdef", 32}};
    char code[CODE_MAX + 1];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t prefix = strlen(rows[i].prefix);

        c.codes.prefix = rows[i].prefix;
        c.codes.length = rows[i].length;
        for (int k = 0; k < 100; k++) {
            code_random(&c, code);
            assert_memory_equal(code, rows[i].prefix, prefix);
            assert_int_equal(strlen(code), prefix + (size_t)rows[i].length);
            assert_int_equal(strspn(code + prefix, ALPHABET), rows[i].length);
        }
    }
}

/* Chi-square over the letters of each place, 26 degrees of freedom: above 90 less than once in 100 million times. A generator that takes
 * a byte modulo 27 would get some 960. */
TEST(each_letter_is_as_likely_in_each_place)
{
    static int counts[LENGTH][LETTERS];
    char code[CODE_MAX + 1];

    memset(counts, 0, sizeof counts);
    for (int i = 0; i < DRAWN; i++) {
        code_random(&c, code);
        for (int place = 0; place < LENGTH; place++)
            counts[place][strchr(ALPHABET, code[place]) - ALPHABET]++;
    }
    for (int place = 0; place < LENGTH; place++) {
        double want = (double)DRAWN / LETTERS, chi_square = 0;

        for (int i = 0; i < LETTERS; i++)
            chi_square += (counts[place][i] - want) * (counts[place][i] - want) / want;
        if (chi_square > 90)
            fail_msg("place %d: chi-square %.1f", place, chi_square);
    }
}

/* Neighbours share no more letters than chance gives them: one place in 27. */
TEST(one_code_says_nothing_of_the_next)
{
    char code[CODE_MAX + 1], last[CODE_MAX + 1];
    double want = (double)DRAWN * LENGTH / LETTERS;
    int same = 0;

    code_random(&c, last);
    for (int i = 0; i < DRAWN; i++) {
        code_random(&c, code);
        for (int place = 0; place < LENGTH; place++)
            same += code[place] == last[place];
        memcpy(last, code, sizeof code);
    }
    assert_true(same > want * 0.9 && same < want * 1.1);
}

TEST(an_exact_code_is_looked_up_as_it_is)
{
    char out[CODE_MAX + 1];

    assert_true(code_normalise("Ab-c D", MATCH_EXACT, out));
    assert_string_equal(out, "Ab-c D");
    assert_true(code_normalise(" \t\xC2\xA0" "Ab-c D\xE3\x80\x80\r\n\xE2\x80\x8B ", MATCH_EXACT, out)); /* but for blanks around it */
    assert_string_equal(out, "Ab-c D");
}

/* Each of these between all characters of a code, and around it. */
TEST(a_loose_code_may_have_any_space_dash_or_unseen_character_in_it)
{
    static const char *const ignored[] = {
        " ", "\t", "\n", "\r", "\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xAF",
        "\xE2\x81\x9F", "\xE3\x80\x80", /* spaces */
        "-", "\xD6\x8A", "\xE2\x80\x90", "\xE2\x80\x91", "\xE2\x80\x92", "\xE2\x80\x93", "\xE2\x80\x94", "\xE2\x80\x95", "\xE2\x88\x92",
        "\xEF\xB9\x98", "\xEF\xB9\xA3", "\xEF\xBC\x8D", "\xE3\x80\x9C", "\xF0\x90\xBA\xAD", /* dashes */
        "\xC2\xAD", "\xE2\x80\x8B", "\xE2\x80\x8C", "\xE2\x80\x8D", "\xE2\x80\x8E", "\xE2\x81\xA0", "\xEF\xBB\xBF", "\xEF\xB8\x8F"};
    char typed[200], out[CODE_MAX + 1];

    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        const char *s = ignored[i];

        snprintf(typed, sizeof typed, "%sb%s%s2%sK%s", s, s, s, s, s);
        if (!code_normalise(typed, MATCH_LOOSE, out) || strcmp(out, "B2K") != 0)
            fail_msg("row %zu", i);
        if (i > 0 && s[0] != '-' && (unsigned char)s[0] > 0x7F)
            assert_false(code_normalise(typed, MATCH_EXACT, out));
    }
}

TEST(full_width_characters_are_their_ascii_ones)
{
    char out[CODE_MAX + 1];

    assert_true(code_normalise("\xEF\xBC\xA2\xEF\xBD\x82\xEF\xBC\x92_\xEF\xBC\xBF", MATCH_LOOSE, out));
    assert_string_equal(out, "BB2__");
    assert_false(code_normalise("\xEF\xBC\xA2" "BBB", MATCH_EXACT, out));
}

TEST(a_code_may_be_typed_with_more_than_it_has)
{
    static char typed[CODE_TYPED_MAX + 1];
    char out[CODE_MAX + 1];

    for (int i = 0; i < CODE_TYPED_MAX; i++)
        typed[i] = i % 4 == 0 ? 'B' : ' ';
    assert_true(code_normalise(typed, MATCH_LOOSE, out));
    assert_int_equal(strlen(out), CODE_MAX);
    assert_false(code_normalise(typed, MATCH_EXACT, out));
}

TEST(a_loose_code_is_the_same_however_it_is_written)
{
    static const char *const spellings[] = {"SUMMER2026", "summer2026", "Summer-2026", " SUM MER-20 26 ", "s-u-m-m-e-r-2-0-2-6"};
    char out[CODE_MAX + 1];

    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        assert_true(code_normalise(spellings[i], MATCH_LOOSE, out));
        assert_string_equal(out, "SUMMER2026");
    }
    assert_true(code_normalise("a_b.c", MATCH_LOOSE, out)); /* nothing else is left out */
    assert_string_equal(out, "A_B.C");
}

TEST(what_is_no_code_is_refused)
{
    static const char longest[] = "1234567890123456789012345678901234567890123456789012345678901234";
    char longer[sizeof longest + 1], out[CODE_MAX + 1];

    for (int match = MATCH_LOOSE; match <= MATCH_EXACT; match++) {
        assert_true(code_normalise("abcd", (enum codes_match)match, out));
        assert_true(code_normalise(longest, (enum codes_match)match, out));
        memcpy(longer, longest, sizeof longest - 1);
        memcpy(longer + sizeof longest - 1, "5", 2);
        assert_false(code_normalise(longer, (enum codes_match)match, out));
        assert_true(code_normalise("abc", (enum codes_match)match, out)); /* no coupon has it, but its form may be a longer code's */
        assert_false(code_normalise(" \xC2\xA0 ", (enum codes_match)match, out));
        assert_false(code_normalise("", (enum codes_match)match, out));
        assert_false(code_normalise("abc\x7F" "d", (enum codes_match)match, out));
        assert_false(code_normalise("\xC3\xA4\xC3\xA4", (enum codes_match)match, out));
        assert_false(code_normalise("abc\xFF" "d", (enum codes_match)match, out));
        assert_false(code_normalise("abc\xE2\x80", (enum codes_match)match, out));
    }
    assert_false(code_normalise("abc\nd", MATCH_EXACT, out));
    assert_false(code_normalise("- - -", MATCH_LOOSE, out)); /* nothing is left of it */
    assert_true(code_normalise("- - -", MATCH_EXACT, out));
}

RUN_TESTS(.each_setup = fresh)
