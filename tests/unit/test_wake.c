/* Unit tests of base/wake: calls between the processes of a master. */
#include "cmocka_whole.h"
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wake.h"

#define LONG_MS 600000

TEST(without_a_master_nobody_is_woken)
{
    struct mono began = mono_now();

    assert_int_equal(wake_fd(WAKE_RUNNER), -1);
    wake_process(WAKE_RUNNER);
    assert_false(wake_take(WAKE_RUNNER));
    wake_await(WAKE_RUNNER, 20);
    assert_true(mono_ms_between(began, mono_now()) >= 19);
}

TEST(a_call_of_another_process_ends_the_wait)
{
    struct mono began = mono_now();
    pid_t child;

    assert_int_equal(wake_create(), 0);
    child = fork();
    if (child == 0) {
        wake_process(WAKE_DELIVERER);
        _exit(0);
    }
    assert_true(child > 0);
    wake_await(WAKE_DELIVERER, LONG_MS);
    assert_true(mono_ms_between(began, mono_now()) < LONG_MS);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(wake_take(WAKE_DELIVERER));
    assert_false(wake_take(WAKE_RUNNER));
}

TEST(each_call_is_taken_once_and_none_is_lost)
{
    for (int i = 0; i < 3; i++)
        wake_process(WAKE_RUNNER);
    for (int i = 0; i < 2; i++)
        assert_true(wake_take(WAKE_RUNNER));
    wake_await(WAKE_RUNNER, LONG_MS); /* the third came before the wait */
    assert_false(wake_take(WAKE_RUNNER));
}

RUN_TESTS()
