/* Unit tests of the Bloom filter: what was added is always found, and little else. */
#include "cmocka_whole.h"

#include "runner/code_bloom.h"

#define CODES 20000

static const char *code(int i)
{
    static char text[32];

    snprintf(text, sizeof text, "CODE-%05d", i);
    return text;
}

/* How many of CODES others are said to be there, with so many added to a Bloom filter made for `expected`. */
static int others_found(int64_t expected)
{
    struct code_bloom s;
    int found = 0;

    code_bloom_init(&s, expected);
    for (int i = 0; i < CODES; i++)
        code_bloom_add(&s, code(i));
    for (int i = 0; i < CODES; i++)
        if (!code_bloom_may_have(&s, code(i)))
            fail_msg("%s was lost", code(i));
    for (int i = CODES; i < 2 * CODES; i++)
        found += code_bloom_may_have(&s, code(i));
    code_bloom_release(&s);
    return found;
}

TEST(what_was_added_is_there_and_hardly_anything_else)
{
    int found = others_found(CODES);

    if (found > CODES / 100)
        fail_msg("%d of %d others are said to be there", found, CODES);
}

TEST(one_that_is_too_small_says_too_much_but_never_too_little)
{
    assert_true(others_found(1) > CODES / 100);
}

TEST(an_empty_one_has_nothing_and_none_may_have_all)
{
    struct code_bloom s;

    code_bloom_init(&s, 0);
    assert_false(code_bloom_may_have(&s, "AAAA"));
    assert_false(code_bloom_may_have(&s, ""));
    code_bloom_release(&s);
    assert_true(code_bloom_may_have(&s, "AAAA"));
    code_bloom_add(&s, "AAAA");
}

TEST(its_memory_is_bounded)
{
    struct code_bloom s;

    code_bloom_init(&s, INT64_MAX);
    assert_int_equal(bloom_bytes(&s.bloom), CODE_BLOOM_BYTES_MOST);
    code_bloom_release(&s);
}

RUN_TESTS()
