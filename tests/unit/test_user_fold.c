/* Unit tests of coupons/user_fold, and of how http/user_name uses it. */
#include "cmocka_whole.h"
#include <locale.h>
#include <time.h>

#include "base/config.h"
#include "base/utf8.h"
#include "coupons/user_fold.h"
#include "http/user_name.h"
#include "unit/in_arena.h"

static char folded[USER_MAX + 1];

static const char *fold(enum user_fold how, const char *user)
{
    assert_true(coupon_user_valid(user));
    return user_fold(how, user, folded);
}

TEST(the_words_are_those_of_the_setting)
{
    char words[64];
    enum user_fold how;

    snprintf(words, sizeof words, "%s|%s|%s", user_fold_name(USERS_NONE), user_fold_name(USERS_CASE), user_fold_name(USERS_EMAIL));
    assert_string_equal(words, CONFIG_USER_FOLDS);
    for (int i = 0; i < USER_FOLD_COUNT; i++)
        assert_true(user_fold_parse(user_fold_name((enum user_fold)i), &how) && (int)how == i);
    assert_false(user_fold_parse("None", &how));
    assert_false(user_fold_parse("", &how));
}

/* What a name is with case, and with email. */
static const struct {
    const char *user, *as_case, *as_email;
} rows[] = {
    {"u-17", "u-17", "u-17"},
    {"Anna@x.de", "anna@x.de", "anna@x.de"},
    {"anna+1@X.de", "anna+1@x.de", "anna@x.de"},
    {" A b ", " a b ", " a b "},
    {"[\\]^_`{|}~Z", "[\\]^_`{|}~z", "[\\]^_`{|}~z"},
    /* composed and decomposed: a single umlaut; an accent below, then above, in either order; Hangul; an Angstrom and a kelvin sign */
    {"\xC3\x84", "\xC3\xA4", "\xC3\xA4"},
    {"A\xCC\x88", "\xC3\xA4", "\xC3\xA4"},
    {"e\xCC\x81\xCC\xA3", "\xE1\xBA\xB9\xCC\x81", "\xE1\xBA\xB9\xCC\x81"},
    {"\xC3\x89\xCC\xA3", "\xE1\xBA\xB9\xCC\x81", "\xE1\xBA\xB9\xCC\x81"},
    {"\xE1\x84\x80\xE1\x85\xA1", "\xEA\xB0\x80", "\xEA\xB0\x80"},
    {"\xE2\x84\xAB", "\xC3\xA5", "\xC3\xA5"},
    {"\xE2\x84\xAA", "k", "k"},
    /* an iota below, before and after an accent: one, whatever the order */
    {"\xCE\xB1\xCD\x85\xCC\x81", "\xCE\xAC\xCE\xB9", "\xCE\xAC\xCE\xB9"},
    {"\xCE\xB1\xCC\x81\xCD\x85", "\xCE\xAC\xCE\xB9", "\xCE\xAC\xCE\xB9"},
    {"\xE1\xBE\xB4", "\xCE\xAC\xCE\xB9", "\xCE\xAC\xCE\xB9"},
    /* sharp s, small and capital; a ligature; the sigmas */
    {"Stra\xC3\x9F" "e", "strasse", "strasse"},
    {"STRA\xE1\xBA\x9E" "E", "strasse", "strasse"},
    {"\xEF\xAC\x81", "fi", "fi"},
    {"\xCE\xA3\xCF\x83\xCF\x82", "\xCF\x83\xCF\x83\xCF\x83", "\xCF\x83\xCF\x83\xCF\x83"},
    /* Turkish letters: I is i in every locale; the dotless one is another; the dotted capital is i and a dot */
    {"I", "i", "i"},
    {"\xC4\xB1", "\xC4\xB1", "\xC4\xB1"},
    {"\xC4\xB0", "i\xCC\x87", "i\xCC\x87"},
    /* compatibility is not equivalence: a full-width A and @ stay wide */
    {"\xEF\xBC\xA1\xEF\xBC\xA0x", "\xEF\xBD\x81\xEF\xBC\xA0x", "\xEF\xBD\x81\xEF\xBC\xA0x"},
    {"\xF0\x90\x90\x80", "\xF0\x90\x90\xA8", "\xF0\x90\x90\xA8"},
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    /* what is an address with a tag, and what is none */
    {"a+b+c@x", "a+b+c@x", "a@x"},
    {"a+@x", "a+@x", "a@x"},
    {"+a@x", "+a@x", "+a@x"},
    {"a+b", "a+b", "a+b"},
    {"a+b@", "a+b@", "a+b@"},
    {"@x+y", "@x+y", "@x+y"},
    {"a@x+y", "a@x+y", "a@x+y"},
    {"a+b@x@y", "a+b@x@y", "a+b@x@y"},
    {"\"a+b\"@x", "\"a+b\"@x", "\"a+b\"@x"},
    {"\"a@b\"@x", "\"a@b\"@x", "\"a@b\"@x"},
    {"\xC3\x84+\xC3\x9F@\xC3\x96.de", "\xC3\xA4+ss@\xC3\xB6.de", "\xC3\xA4@\xC3\xB6.de"},
    {"Zo\x65\xCC\x88+x@x", "zo\xC3\xAB+x@x", "zo\xC3\xAB@x"},
};

TEST(spellings_are_folded_as_said)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ptr_equal(fold(USERS_NONE, rows[i].user), rows[i].user);
        assert_string_equal(fold(USERS_CASE, rows[i].user), rows[i].as_case);
        assert_string_equal(fold(USERS_EMAIL, rows[i].user), rows[i].as_email);
    }
}

TEST(the_locale_plays_no_part)
{
    setlocale(LC_ALL, "tr_TR.UTF-8"); /* where there is one */
    spellings_are_folded_as_said(state);
    setlocale(LC_ALL, "C");
}

static const char *repeated(const char *text, size_t count)
{
    static char many[4 * USER_MAX + 1];

    many[0] = '\0';
    while (count-- > 0)
        strcat(many, text);
    return many;
}

#define GROWS "\xC5\x89" /* n after an apostrophe: 2 bytes, folded 3 */

TEST(a_name_that_is_too_long_when_folded_is_none)
{
    char lower[USER_MAX + 1] = "";

    memset(lower, 'x', USER_MAX);
    assert_string_equal(fold(USERS_CASE, repeated("X", USER_MAX)), lower);
    assert_non_null(fold(USERS_CASE, repeated("\xC3\x9F", 64))); /* ss is as long */
    assert_non_null(fold(USERS_CASE, repeated(GROWS, 42)));
    assert_null(fold(USERS_CASE, repeated(GROWS, 43)));
    assert_null(fold(USERS_EMAIL, repeated(GROWS, 64)));
    assert_non_null(fold(USERS_NONE, repeated(GROWS, 64)));
}

/* Folded with how: it is a user, and folds to itself. */
static void check(enum user_fold how, const char *user)
{
    char once[USER_MAX + 1], twice[USER_MAX + 1];
    const char *name;

    if (!coupon_user_valid(user))
        return;
    name = user_fold(how, user, once);
    if (name && !coupon_user_valid(name))
        fail_msg("\"%s\" folds to \"%s\", which is no user", user, name);
    if (name && user_fold(how, name, twice) != name)
        fail_msg("\"%s\" folds to \"%s\", and that to \"%s\"", user, name, twice);
}

static size_t put_point(uint32_t point, char *out)
{
    size_t len = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = len; i-- > 1; point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3F));
    out[0] = (char)(first[len] | point);
    out[len] = '\0';
    return len;
}

/* Each alone, and as often as it fits: no character is larger than what the buffers allow for. */
TEST(every_character_folds_once)
{
    char one[8];

    for (uint32_t point = 1; point <= 0x10FFFF; point++) {
        size_t len = put_point(point, one);

        if (!coupon_user_valid(one))
            continue;
        check(USERS_EMAIL, one);
        if (point < 0x32000 || point % 0x400 == 0)
            (void)fold(USERS_CASE, repeated(one, USER_MAX / len));
    }
}

/* A random character; half of them from blocks in which folding and composing have most to do. */
static uint32_t random_point(void)
{
    static const struct {
        uint32_t first, count;
    } blocks[] = {{0x20, 95}, {0xA0, 0x1B0}, {0x300, 0x70}, {0x370, 0x90}, {0x1E00, 0x200}, {0x1100, 0x100}, {0xAC00, 0x400},
                  {0x340, 6}, {0xFB00, 0x50}, {0x1D158, 16}, {'+', 1}, {'@', 1}};
    size_t block = (size_t)rand() % (2 * sizeof blocks / sizeof *blocks);
    uint32_t point = ((uint32_t)rand() << 8 ^ (uint32_t)rand()) % 0x110000;

    return block < sizeof blocks / sizeof *blocks ? blocks[block].first + point % blocks[block].count : point;
}

TEST(random_names_fold_once)
{
    unsigned seed = (unsigned)time(NULL);

    srand(seed);
    print_message("seed %u\n", seed);
    for (int i = 0; i < 200000; i++) {
        char user[USER_MAX + 8];
        size_t len = 0, most = 1 + (size_t)rand() % (i % 16 ? 24 : USER_MAX);

        while (len < most)
            len += put_point(random_point(), user + len);
        check(USERS_CASE, user);
        check(USERS_EMAIL, user);
    }
}

/* ---- where names come in ---- */

static int fold_nothing(void **state)
{
    user_names_fold(USERS_NONE);
    return release_arena(state);
}

TEST_WITH(a_name_is_checked_and_then_folded, make_arena, fold_nothing)
{
    const char *long_one = arena_strdup(&arena, repeated(GROWS, 64)), *text = "Anna+1@X.de", *plain = "anna@x.de";

    assert_ptr_equal(user_name(text, &arena), text);
    assert_ptr_equal(user_name(long_one, &arena), long_one);
    user_names_fold(USERS_EMAIL);
    assert_string_equal(user_name(text, &arena), plain);
    assert_ptr_equal(user_name(plain, &arena), plain);
    assert_null(user_name(long_one, &arena));
    assert_null(user_name("", &arena));
    assert_null(user_name("a\x01", &arena));
    assert_null(user_name("\xFF", &arena));
    assert_null(user_name(repeated("x", 129), &arena));
}

RUN_TESTS()
