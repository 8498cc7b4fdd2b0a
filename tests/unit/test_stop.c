/* Unit tests of base/stop and of waits with a deadline: resting until the end is asked for, and the signals that ask. */
#include "cmocka_whole.h"
#include <signal.h>
#include <unistd.h>

#include "base/stop.h"
#include "base/thread.h"

static void *ask_soon(void *context)
{
    usleep(20000);
    stop_ask(context);
    return NULL;
}

TEST(a_rest_ends_when_the_stop_is_asked_for)
{
    struct mono began = mono_now();
    struct stop s;
    pthread_t other;

    stop_init(&s);
    assert_false(stop_asked(&s));
    assert_int_equal(pthread_create(&other, NULL, ask_soon, &s), 0);
    stop_rest(&s, 600000);
    assert_true(stop_asked(&s));
    stop_rest(&s, 600000);
    assert_true(mono_ms_between(began, mono_now()) < 300000);
    pthread_join(other, NULL);
    stop_release(&s);
}

TEST(a_rest_lasts_as_long_as_it_should)
{
    static const int64_t rests[] = {30, 1, 0, -1000};
    struct stop s;

    stop_init(&s);
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        struct mono until = mono_add_ms(mono_now(), rests[i]);

        stop_rest(&s, rests[i]);
        assert_false(mono_before(mono_now(), until));
    }
    assert_false(stop_asked(&s));
    stop_release(&s);
}

TEST(backing_off_takes_longer_each_time_up_to_a_limit)
{
    int64_t ms = 0, expected = STOP_BACKOFF_FIRST_MS;
    struct stop s;

    stop_init(&s);
    stop_ask(&s); /* so that it only counts */
    for (int i = 0; i < 100; i++) {
        stop_back_off(&s, &ms);
        assert_int_equal(ms, expected);
        expected = expected * 2 < STOP_BACKOFF_LAST_MS ? expected * 2 : STOP_BACKOFF_LAST_MS;
    }
    stop_release(&s);
}

TEST(only_the_signals_of_the_end_end_the_wait)
{
    static const int ends[] = {SIGTERM, SIGINT};
    sigset_t all, pending;

    sigemptyset(&all);
    for (const int *number = (const int[]){SIGTERM, SIGINT, SIGUSR1, SIGHUP, 0}; *number; number++)
        sigaddset(&all, *number);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        raise(SIGUSR1);
        raise(SIGHUP);
        raise(ends[i]);
        stop_await_signal();
        assert_int_equal(sigpending(&pending), 0);
        assert_false(sigismember(&pending, ends[i]));
        assert_true(sigismember(&pending, SIGHUP)); /* nobody's */
    }
}

RUN_TESTS()
