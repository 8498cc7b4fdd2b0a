/* Unit tests of http/shares: how much of a room each of its users may hold, and who counts as one. */
#include "cmocka_whole.h"

#include "http/shares.h"

/* How often `count` are taken until they are refused. */
static int take_all(struct shares *s, const char *name, int count)
{
    int times = 0;

    while (shares_take(s, name, count))
        times++;
    return times;
}

TEST(one_gets_half_and_each_further_one_what_is_free_then)
{
    struct shares *s = shares_new(1200, 1200);

    assert_int_equal(take_all(s, "a", 1), 600);
    assert_int_equal(take_all(s, "b", 1), 300);
    assert_int_equal(take_all(s, "c", 1), 150);
    assert_true(shares_take(s, "d", 1));
    shares_give(s, "a", 600);
    assert_true(shares_take(s, "d", 200));
    shares_give(s, "d", 201);
    shares_give(s, "b", 300);
    shares_give(s, "c", 150);
    assert_int_equal(take_all(s, "a", 600), 1); /* nothing was lost */
    shares_free(s);
}

TEST(what_is_refused_takes_nothing)
{
    struct shares *s = shares_new(100, 100);

    assert_false(shares_take(s, "a", 51));
    assert_true(shares_take(s, "a", 50));
    assert_false(shares_take(s, "a", 1));
    assert_false(shares_take(s, "b", 26));
    assert_true(shares_take(s, "b", 25));
    shares_free(s);
}

TEST(nobody_holds_more_than_the_most_for_one)
{
    struct shares *s = shares_new(1000, 10);

    assert_false(shares_take(s, "a", 11));
    assert_int_equal(take_all(s, "a", 3), 3);
    assert_int_equal(take_all(s, "b", 10), 1);
    shares_free(s);
}

TEST(visitors_of_a_page_count_by_address_though_they_have_one_key)
{
    struct request shop = {.role = ROLE_STOREFRONT, .by = "0123456789ab"}, page = {.role = ROLE_PUBLIC, .by = "ba9876543210"};
    char name[ADDRESS_OWNER_SIZE];

    shop.header.remote_addr = page.header.remote_addr = "192.0.2.1";
    assert_string_equal(shares_name(&shop, name), "0123456789ab");
    assert_string_equal(shares_name(&page, name), "192.0.2.1");
    page.header.remote_addr = NULL;
    assert_string_equal(shares_name(&page, name), "ba9876543210");
}

RUN_TESTS()
