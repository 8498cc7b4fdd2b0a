/* Unit tests of coupons/use: copies, look-ups, the hash of a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "coupons/use.h"

#define ALIAS "0123456789abcdef"

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static struct redemption *add(struct use *u, int64_t n, enum slot_state now, const char *order, const char *key)
{
    struct redemption *r = use_add(u, &arena);

    r->n = n;
    r->g = 1;
    r->state = (uint8_t)now;
    r->order = order;
    key_hash(u->alias, key, r->key);
    return r;
}

static void a_new_use_took_nothing(void **state)
{
    struct use u;

    (void)state;
    use_init(&u, "ana", ALIAS);
    assert_string_equal(u.user, "ana");
    assert_string_equal(u.alias, ALIAS);
    assert_int_equal(u.total + u.today + u.seq + u.version + (int64_t)u.count, 0);
    assert_int_equal(use_today(&u, 0), 0);
    assert_null(use_by_order(&u, "o"));
    assert_null(use_by_slot(&u, 0, 0));
}

static void many_redemptions_keep_their_order(void **state)
{
    struct use u;

    (void)state;
    use_init(&u, "ana", ALIAS);
    for (int i = 0; i < USE_REDEMPTIONS_MAX; i++) {
        char key[16];

        snprintf(key, sizeof key, "k%d", i);
        add(&u, i, SLOT_REDEEMED, NULL, key);
    }
    assert_int_equal(u.count, USE_REDEMPTIONS_MAX);
    for (int i = 0; i < USE_REDEMPTIONS_MAX; i++)
        assert_int_equal(u.redemptions[i].n, i);
    assert_int_equal(use_by_slot(&u, 517, 1)->n, 517);
    assert_null(use_by_slot(&u, 517, 2));
}

static void a_key_is_found_only_as_it_was_given(void **state)
{
    struct use u;
    uint8_t hash[KEY_HASH_LEN];

    (void)state;
    use_init(&u, "ana", ALIAS);
    add(&u, 1, SLOT_REDEEMED, NULL, "k1");
    add(&u, 2, SLOT_REVERSED, NULL, "k2");
    key_hash(u.alias, "k2", hash);
    assert_int_equal(use_by_key(&u, hash)->n, 2);
    key_hash(u.alias, "k3", hash);
    assert_null(use_by_key(&u, hash));
    key_hash("other alias", "k1", hash);
    assert_null(use_by_key(&u, hash));
}

static void the_border_between_alias_and_key_is_hashed_too(void **state)
{
    uint8_t a[KEY_HASH_LEN], b[KEY_HASH_LEN];

    (void)state;
    key_hash("ab", "c", a);
    key_hash("a", "bc", b);
    assert_memory_not_equal(a, b, KEY_HASH_LEN);
    key_hash("ab", "c", b);
    assert_memory_equal(a, b, KEY_HASH_LEN);
}

static void an_order_is_found_while_its_redemption_stands(void **state)
{
    struct use u;

    (void)state;
    use_init(&u, "ana", ALIAS);
    add(&u, 1, SLOT_REVERSED, "o1", "a");
    add(&u, 2, SLOT_CANCELLED, "o1", "b");
    add(&u, 3, SLOT_EXPIRED, "o1", "c");
    add(&u, 4, SLOT_ISSUED, "o1", "d");
    add(&u, 5, SLOT_REDEEMED, NULL, "e");
    assert_null(use_by_order(&u, "o1"));
    add(&u, 6, SLOT_REDEEMED, "o1", "f");
    add(&u, 7, SLOT_RESERVED, "o2", "g");
    add(&u, 8, SLOT_RESERVED, "o1", "h");
    add(&u, 9, SLOT_REVERSED, "o1", "i");
    assert_int_equal(use_by_order(&u, "o1")->n, 8);
    assert_int_equal(use_by_order(&u, "o2")->n, 7);
    assert_null(use_by_order(&u, "o3"));
    assert_null(use_by_order(&u, "O1"));
}

static void today_counts_only_its_own_day(void **state)
{
    struct use u;

    (void)state;
    use_init(&u, "ana", ALIAS);
    u.day_ms = 1000;
    u.today = 3;
    assert_int_equal(use_today(&u, 1000), 3);
    assert_int_equal(use_today(&u, 2000), 0);
    assert_int_equal(use_today(&u, 0), 0);
}

static void a_copy_can_be_changed_without_the_other_seeing_it(void **state)
{
    struct use u, *copy;

    (void)state;
    use_init(&u, "ana", ALIAS);
    add(&u, 1, SLOT_REDEEMED, "o1", "a");
    copy = use_copy(&u, &arena, false);
    copy->total = 9;
    copy->redemptions[0].state = SLOT_REVERSED;
    add(copy, 2, SLOT_REDEEMED, "o2", "b");
    add(copy, 3, SLOT_REDEEMED, "o3", "c");
    assert_int_equal(u.total, 0);
    assert_int_equal(u.count, 1);
    assert_int_equal(u.redemptions[0].state, SLOT_REDEEMED);
    assert_int_equal(copy->count, 3);
    assert_ptr_equal(copy->redemptions[0].order, u.redemptions[0].order);
}

static void a_deep_copy_outlives_what_it_was_made_of(void **state)
{
    struct arena first;
    struct use u, *copy;
    struct redemption *r;

    (void)state;
    arena_init(&first, 0);
    use_init(&u, arena_strdup(&first, "ana"), ALIAS);
    r = use_add(&u, &first);
    r->order = arena_strdup(&first, "o1");
    r->metadata = arena_strdup(&first, "{\"a\":1}");
    r->code = arena_strdup(&first, "XY");
    copy = use_copy(&u, &arena, true);
    arena_free(&first);
    assert_string_equal(copy->user, "ana");
    assert_string_equal(copy->redemptions[0].order, "o1");
    assert_string_equal(copy->redemptions[0].metadata, "{\"a\":1}");
    assert_string_equal(copy->redemptions[0].code, "XY");
}

static void a_copy_of_an_empty_use_can_grow(void **state)
{
    struct use u, *copy;

    (void)state;
    use_init(&u, "ana", ALIAS);
    copy = use_copy(&u, &arena, true);
    add(copy, 1, SLOT_REDEEMED, NULL, "a");
    add(copy, 2, SLOT_REDEEMED, NULL, "b");
    assert_int_equal(copy->count, 2);
    assert_int_equal(u.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_use_took_nothing),
        cmocka_unit_test(many_redemptions_keep_their_order),
        cmocka_unit_test(a_key_is_found_only_as_it_was_given),
        cmocka_unit_test(the_border_between_alias_and_key_is_hashed_too),
        cmocka_unit_test(an_order_is_found_while_its_redemption_stands),
        cmocka_unit_test(today_counts_only_its_own_day),
        cmocka_unit_test(a_copy_can_be_changed_without_the_other_seeing_it),
        cmocka_unit_test(a_deep_copy_outlives_what_it_was_made_of),
        cmocka_unit_test(a_copy_of_an_empty_use_can_grow),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
