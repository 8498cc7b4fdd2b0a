/* Unit tests of http/turns: whose request runs next, how many of one key run and wait, and what a key's share is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "http/router.h"
#include "http/turns.h"

#define REQUESTS 64

static const struct route long_one = {.flags = ROUTE_STREAM}, short_one = {.flags = 0};
static struct request *requests;
static size_t made;

static int set_up(void **state)
{
    (void)state;
    requests = calloc(REQUESTS, sizeof *requests);
    made = 0;
    return requests ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(requests);
    return 0;
}

static struct request *request(const char *key, enum role role, enum method method)
{
    struct request *r = &requests[made++];

    assert_true(made <= REQUESTS);
    memcpy(r->by, key, strlen(key) + 1);
    r->role = role;
    r->method = method;
    r->route = &long_one;
    return r;
}

static struct request *list(const char *key)
{
    return request(key, ROLE_REPORTING, METHOD_GET);
}

static void add(struct turns *t, const char *key, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(turns_add(t, list(key)), TURNS_WAITS);
}

/* Take, run and answer one; the first letter of its key, or '-'. */
static char serve(struct turns *t)
{
    struct turn *turn;
    struct request *r = turns_take(t, &turn);

    if (!r)
        return '-';
    turns_answered(t, r);
    turns_done(t, turn);
    return *r->by;
}

static void assert_served(struct turns *t, const char *order)
{
    char seen[REQUESTS + 1];
    size_t n = 0;

    do
        seen[n] = serve(t);
    while (seen[n++] != '-');
    seen[n - 1] = '\0';
    assert_string_equal(seen, order);
    assert_null(t->turns);
    assert_int_equal(t->waiting, 0);
}

static void test_keys_take_turns_and_each_keeps_its_order(void **state)
{
    struct turns t = {.waiting_max = 100, .share = 100, .running_max = 2};
    struct turn *turn;

    (void)state;
    add(&t, "a", 5);
    assert_ptr_equal(turns_take(&t, &turn), &requests[0]);
    turns_answered(&t, &requests[0]);
    turns_done(&t, turn);
    add(&t, "b", 2);
    add(&t, "c", 1);
    assert_ptr_equal(turns_take(&t, &turn), &requests[1]);
    turns_answered(&t, &requests[1]);
    turns_done(&t, turn);
    assert_served(&t, "bcabaa");
    add(&t, "a", 1);
    assert_served(&t, "a");
}

static void test_a_key_runs_no_more_than_it_may(void **state)
{
    struct turns t = {.waiting_max = 100, .share = 100, .running_max = 2};
    struct turn *first, *second, *other, *none;
    struct request *r;

    (void)state;
    add(&t, "a", 3);
    assert_non_null(turns_take(&t, &first));
    assert_non_null(turns_take(&t, &second));
    assert_null(turns_take(&t, &none));
    add(&t, "b", 1);
    r = turns_take(&t, &other);
    assert_string_equal(r->by, "b");
    turns_answered(&t, r);
    turns_done(&t, other);
    assert_null(turns_take(&t, &none));
    turns_done(&t, first);
    assert_ptr_equal(turns_take(&t, &first), &requests[2]);
    turns_done(&t, first);
    turns_done(&t, second);
    for (int i = 0; i < 3; i++)
        turns_answered(&t, &requests[i]);
    assert_null(t.turns);
}

/* Until they are answered, whether they wait or run. */
static void test_a_key_has_its_share_of_long_reads(void **state)
{
    struct turns t = {.waiting_max = 100, .share = 3, .running_max = 2};
    struct turn *turn;
    struct request *r;

    (void)state;
    add(&t, "a", 3);
    assert_int_equal(turns_add(&t, list("a")), TURNS_SHARE);
    r = turns_take(&t, &turn);
    assert_int_equal(turns_add(&t, list("a")), TURNS_SHARE);
    add(&t, "b", 3);
    turns_answered(&t, r);
    add(&t, "a", 1); /* its thread is not yet back */
    assert_int_equal(turns_add(&t, list("a")), TURNS_SHARE);
    turns_done(&t, turn);
    assert_int_equal(turns_add(&t, list("a")), TURNS_SHARE);
    assert_served(&t, "ababab");
}

static void test_changes_short_reads_and_a_shop_have_no_share(void **state)
{
    struct turns t = {.waiting_max = 100, .share = 1, .running_max = 2};

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct request *user = list("u");

        user->route = &short_one; /* of whom there is so much to say that it came here */
        assert_int_equal(turns_add(&t, user), TURNS_WAITS);
        assert_int_equal(turns_add(&t, request("s", ROLE_STOREFRONT, METHOD_GET)), TURNS_WAITS);
        assert_int_equal(turns_add(&t, request("o", ROLE_OPS, METHOD_PATCH)), TURNS_WAITS);
    }
    add(&t, "o", 1);
    assert_int_equal(turns_add(&t, list("o")), TURNS_SHARE);
    assert_served(&t, "usousousousousoo");
}

static void test_one_key_leaves_room_for_others(void **state)
{
    struct turns t = {.waiting_max = 8, .share = 100, .running_max = 2};

    (void)state;
    add(&t, "a", 4);
    assert_int_equal(turns_add(&t, list("a")), TURNS_FULL);
    add(&t, "b", 4);
    assert_int_equal(turns_add(&t, list("c")), TURNS_FULL);
    assert_served(&t, "abababab");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_take_turns_and_each_keeps_its_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_runs_no_more_than_it_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_has_its_share_of_long_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_short_reads_and_a_shop_have_no_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_key_leaves_room_for_others, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
