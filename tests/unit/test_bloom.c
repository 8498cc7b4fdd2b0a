/* Unit tests of base/bloom: what was added is never denied, and of the rest nearly all is. */
#include "cmocka_whole.h"

#include "base/bloom.h"
#include "base/hash.h"

#define MANY 100000

/* How many of MANY others are said to be there, with MANY added to one of so many bits for each. */
static int others_found(size_t bits)
{
    struct bloom b;
    int found = 0;

    bloom_init(&b, MANY * bits / 8);
    for (uint64_t i = 0; i < MANY; i++)
        bloom_add(&b, hash_mix(i));
    for (uint64_t i = 0; i < MANY; i++)
        if (!bloom_may_have(&b, hash_mix(i)))
            fail_msg("%d was lost", (int)i);
    for (uint64_t i = MANY; i < 2 * MANY; i++)
        found += bloom_may_have(&b, hash_mix(i));
    bloom_release(&b);
    return found;
}

TEST(with_12_bits_for_each_hardly_any_other_is_there)
{
    int found = others_found(12);

    if (found > MANY / 80)
        fail_msg("%d of %d others are said to be there", found, MANY);
}

TEST(with_16_there_are_fewer_and_with_4_many)
{
    assert_in_range(others_found(16), 0, MANY / 200);
    assert_true(others_found(4) > MANY / 20);
}

TEST(an_empty_one_has_nothing_and_none_may_have_all)
{
    struct bloom b;

    bloom_init(&b, 0);
    assert_int_equal(bloom_bytes(&b), BLOOM_BLOCK_BYTES);
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(bloom_may_have(&b, hash_mix(i)));
    bloom_release(&b);
    assert_true(bloom_may_have(&b, 1));
    bloom_add(&b, 1);
}

RUN_TESTS()
