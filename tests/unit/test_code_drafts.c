/* Unit tests of the filter of a coupon's codes: what was added is always found, and little else. */
#include "cmocka_whole.h"

#include "runner/code_drafts.h"

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
    struct bloom b;
    int found = 0;

    code_bloom_init(&b, expected);
    for (int i = 0; i < CODES; i++)
        bloom_add(&b, code_hash(code(i)));
    for (int i = 0; i < CODES; i++)
        if (!bloom_may_have(&b, code_hash(code(i))))
            fail_msg("%s was lost", code(i));
    for (int i = CODES; i < 2 * CODES; i++)
        found += bloom_may_have(&b, code_hash(code(i)));
    bloom_release(&b);
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

TEST(one_for_no_codes_has_none)
{
    struct bloom b;

    code_bloom_init(&b, 0);
    assert_false(bloom_may_have(&b, code_hash("AAAA")));
    assert_false(bloom_may_have(&b, code_hash("")));
    bloom_release(&b);
}

TEST(its_memory_is_bounded)
{
    struct bloom b;

    code_bloom_init(&b, INT64_MAX);
    assert_int_equal(bloom_bytes(&b), CODE_BLOOM_BYTES_MOST);
    bloom_release(&b);
}

RUN_TESTS()
