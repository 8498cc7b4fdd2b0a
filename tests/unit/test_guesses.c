/* Unit tests of base/guesses: what may be missed, for how long whoever passed it waits, who counts as one, many processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/guesses.h"

static int fresh(void **state)
{
    (void)state;
    return guesses_create();
}

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static void as_many_as_the_limit_may_fail_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        assert_int_equal(guesses_wait_ms(GUESSER_KEY, "k", 60), 0);
        guesses_failed(GUESSER_KEY, "k", 60, 1);
    }
    assert_in_range(guesses_wait_ms(GUESSER_KEY, "k", 60), 1, 1000);
}

static void who_waited_may_look_again(void **state)
{
    (void)state;
    guesses_failed(GUESSER_KEY, "k", 60000, 60300);
    assert_in_range(guesses_wait_ms(GUESSER_KEY, "k", 60000), 1, 301);
    pause_ms(310);
    assert_int_equal(guesses_wait_ms(GUESSER_KEY, "k", 60000), 0);
}

static void what_was_under_way_together_is_owed(void **state)
{
    (void)state;
    guesses_failed(GUESSER_KEY, "k", 60, 180);
    assert_in_range(guesses_wait_ms(GUESSER_KEY, "k", 60), 120000, 121000);
    guesses_failed(GUESSER_KEY, "k", 60, 1000000);
    assert_in_range(guesses_wait_ms(GUESSER_KEY, "k", 60), GUESSES_WAIT_MAX_MS - 61000, GUESSES_WAIT_MAX_MS);
}

static void without_a_limit_nobody_waits(void **state)
{
    (void)state;
    guesses_failed(GUESSER_KEY, "k", 0, 1000);
    assert_int_equal(guesses_wait_ms(GUESSER_KEY, "k", 0), 0);
    assert_int_equal(guesses_wait_ms(GUESSER_KEY, "k", 1), 0);
}

static void who_counts_as_one(void **state)
{
    static const struct {
        const char *guilty, *other;
        bool same;
    } rows[] = {
        {"192.0.2.1", "192.0.2.1", true},
        {"192.0.2.1", "192.0.2.2", false},
        {"192.0.2.1", "::ffff:192.0.2.1", true},
        {"::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"unix:", "unix:", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(guesses_create(), 0);
        guesses_failed(GUESSER_ADDRESS, rows[i].guilty, 1, 5);
        if ((guesses_wait_ms(GUESSER_ADDRESS, rows[i].other, 1) > 0) != rows[i].same)
            fail_msg("%s failed: %s should%s wait", rows[i].guilty, rows[i].other, rows[i].same ? "" : " not");
        assert_int_equal(guesses_wait_ms(GUESSER_KEY, rows[i].guilty, 1), 0);
    }
}

static void a_crowd_hides_nobody_who_owes_more(void **state)
{
    char address[32];

    (void)state;
    guesses_failed(GUESSER_ADDRESS, "192.0.2.1", 60, 120);
    for (int i = 0; i < 200000; i++) {
        snprintf(address, sizeof address, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        guesses_failed(GUESSER_ADDRESS, address, 60, 1);
    }
    assert_true(guesses_wait_ms(GUESSER_ADDRESS, "192.0.2.1", 60) > 0);
    guesses_failed(GUESSER_ADDRESS, "192.0.2.2", 60, 61); /* and there is room for one more */
    assert_true(guesses_wait_ms(GUESSER_ADDRESS, "192.0.2.2", 60) > 0);
}

static void processes_count_together(void **state)
{
    int status;

    (void)state;
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            for (int k = 0; k < 250; k++)
                guesses_failed(GUESSER_KEY, "k", 60, 1);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        assert_true(wait(&status) > 0 && status == 0);
    assert_in_range(guesses_wait_ms(GUESSER_KEY, "k", 60), 930000, 941000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(as_many_as_the_limit_may_fail_at_once, fresh),
        cmocka_unit_test_setup(who_waited_may_look_again, fresh),
        cmocka_unit_test_setup(what_was_under_way_together_is_owed, fresh),
        cmocka_unit_test_setup(without_a_limit_nobody_waits, fresh),
        cmocka_unit_test(who_counts_as_one),
        cmocka_unit_test_setup(a_crowd_hides_nobody_who_owes_more, fresh),
        cmocka_unit_test_setup(processes_count_together, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
