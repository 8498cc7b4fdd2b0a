/* Unit tests of http/turns: whose request runs next, how many of one key run and wait, and what a key's share is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "http/fair_queue.h"
#include "http/router.h"

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

static void add(struct fair_queue *t, const char *key, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(fair_queue_add(t, list(key)), FAIR_QUEUE_WAITS);
}

/* Take, run and answer one; the first letter of its key, or '-'. */
static char serve(struct fair_queue *t)
{
    struct turn *turn;
    struct request *r = fair_queue_take(t, &turn);

    if (!r)
        return '-';
    fair_queue_answered(t, r);
    fair_queue_done(t, turn);
    return *r->by;
}

static void assert_served(struct fair_queue *t, const char *order)
{
    char seen[REQUESTS + 1];
    size_t n = 0;

    do
        seen[n] = serve(t);
    while (seen[n++] != '-');
    seen[n - 1] = '\0';
    assert_string_equal(seen, order);
    assert_null(t->queue);
    assert_int_equal(t->waiting, 0);
}

static void test_keys_take_turns_and_each_keeps_its_order(void **state)
{
    struct fair_queue t = {.waiting_max = 100, .share = 100, .running_max = 2};
    struct turn *turn;

    (void)state;
    add(&t, "a", 5);
    assert_ptr_equal(fair_queue_take(&t, &turn), &requests[0]);
    fair_queue_answered(&t, &requests[0]);
    fair_queue_done(&t, turn);
    add(&t, "b", 2);
    add(&t, "c", 1);
    assert_ptr_equal(fair_queue_take(&t, &turn), &requests[1]);
    fair_queue_answered(&t, &requests[1]);
    fair_queue_done(&t, turn);
    assert_served(&t, "bcabaa");
    add(&t, "a", 1);
    assert_served(&t, "a");
}

static void test_a_key_runs_no_more_than_it_may(void **state)
{
    struct fair_queue t = {.waiting_max = 100, .share = 100, .running_max = 2};
    struct turn *first, *second, *other, *none;
    struct request *r;

    (void)state;
    add(&t, "a", 3);
    assert_non_null(fair_queue_take(&t, &first));
    assert_non_null(fair_queue_take(&t, &second));
    assert_null(fair_queue_take(&t, &none));
    add(&t, "b", 1);
    r = fair_queue_take(&t, &other);
    assert_string_equal(r->by, "b");
    fair_queue_answered(&t, r);
    fair_queue_done(&t, other);
    assert_null(fair_queue_take(&t, &none));
    fair_queue_done(&t, first);
    assert_ptr_equal(fair_queue_take(&t, &first), &requests[2]);
    fair_queue_done(&t, first);
    fair_queue_done(&t, second);
    for (int i = 0; i < 3; i++)
        fair_queue_answered(&t, &requests[i]);
    assert_null(t.queue);
}

/* Until they are answered, whether they wait or run. */
static void test_a_key_has_its_share_of_long_reads(void **state)
{
    struct fair_queue t = {.waiting_max = 100, .share = 3, .running_max = 2};
    struct turn *turn;
    struct request *r;

    (void)state;
    add(&t, "a", 3);
    assert_int_equal(fair_queue_add(&t, list("a")), FAIR_QUEUE_SHARE);
    r = fair_queue_take(&t, &turn);
    assert_int_equal(fair_queue_add(&t, list("a")), FAIR_QUEUE_SHARE);
    add(&t, "b", 3);
    fair_queue_answered(&t, r);
    add(&t, "a", 1); /* its thread is not yet back */
    assert_int_equal(fair_queue_add(&t, list("a")), FAIR_QUEUE_SHARE);
    fair_queue_done(&t, turn);
    assert_int_equal(fair_queue_add(&t, list("a")), FAIR_QUEUE_SHARE);
    assert_served(&t, "ababab");
}

static void test_changes_short_reads_and_a_shop_have_no_share(void **state)
{
    struct fair_queue t = {.waiting_max = 100, .share = 1, .running_max = 2};

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct request *user = list("u");

        user->route = &short_one; /* of whom there is so much to say that it came here */
        assert_int_equal(fair_queue_add(&t, user), FAIR_QUEUE_WAITS);
        assert_int_equal(fair_queue_add(&t, request("s", ROLE_STOREFRONT, METHOD_GET)), FAIR_QUEUE_WAITS);
        assert_int_equal(fair_queue_add(&t, request("o", ROLE_OPS, METHOD_PATCH)), FAIR_QUEUE_WAITS);
    }
    add(&t, "o", 1);
    assert_int_equal(fair_queue_add(&t, list("o")), FAIR_QUEUE_SHARE);
    assert_served(&t, "usousousousousoo");
}

static void test_one_key_leaves_room_for_others(void **state)
{
    struct fair_queue t = {.waiting_max = 8, .share = 100, .running_max = 2};

    (void)state;
    add(&t, "a", 4);
    assert_int_equal(fair_queue_add(&t, list("a")), FAIR_QUEUE_FULL);
    add(&t, "b", 4);
    assert_int_equal(fair_queue_add(&t, list("c")), FAIR_QUEUE_FULL);
    assert_served(&t, "abababab");
}

/* A visitor's crowd is that visitor's alone, and not the key's, which stands in the page for everybody. */
static void test_visitors_of_a_page_take_turns_though_they_have_one_key(void **state)
{
    static const char *const addresses[] = {"192.0.2.1", "2001:db8::2"};
    struct fair_queue t = {.waiting_max = 8, .share = 100, .running_max = 2};
    struct request *of[2][3], *r;
    struct turn *turn;

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            r = of[k][i] = request("page", ROLE_PUBLIC, METHOD_POST);
            r->header.remote_addr = addresses[k];
            if (k == 0)
                assert_int_equal(fair_queue_add(&t, r), FAIR_QUEUE_WAITS);
        }
    r = request("page", ROLE_PUBLIC, METHOD_POST);
    r->header.remote_addr = addresses[0];
    assert_int_equal(fair_queue_add(&t, r), FAIR_QUEUE_WAITS);
    assert_int_equal(fair_queue_add(&t, request("page", ROLE_PUBLIC, METHOD_POST)), FAIR_QUEUE_WAITS); /* from a socket: its key's own */
    r = request("page", ROLE_PUBLIC, METHOD_POST);
    r->header.remote_addr = addresses[0];
    assert_int_equal(fair_queue_add(&t, r), FAIR_QUEUE_FULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fair_queue_add(&t, of[1][i]), FAIR_QUEUE_WAITS);
    assert_int_equal(fair_queue_add(&t, request("other", ROLE_OPS, METHOD_POST)), FAIR_QUEUE_FULL); /* of them all */
    assert_ptr_equal(fair_queue_take(&t, &turn), of[0][0]);
    fair_queue_done(&t, turn);
    fair_queue_take(&t, &turn);
    fair_queue_done(&t, turn);
    assert_ptr_equal(fair_queue_take(&t, &turn), of[1][0]);
    fair_queue_done(&t, turn);
    while (fair_queue_take(&t, &turn))
        fair_queue_done(&t, turn);
    assert_null(t.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_take_turns_and_each_keeps_its_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_runs_no_more_than_it_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_has_its_share_of_long_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_short_reads_and_a_shop_have_no_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_key_leaves_room_for_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_visitors_of_a_page_take_turns_though_they_have_one_key, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
