/* Unit tests of runner/failing: which failures in a row are logged, and which end the job. */
#include "cmocka_whole.h"

#include "runner/failing.h"

#define SECOND INT64_C(1000)

static struct mono at(int64_t ms)
{
    return mono_add_ms((struct mono){.ns = 1}, ms);
}

TEST(every_tenth_failure_in_a_row_is_logged)
{
    struct failing f = {.count = 0};

    for (int i = 1; i <= 40; i++)
        assert_int_equal(failing_again(&f, at(i * SECOND)), i % 10 == 0 ? FAILING_LOG : FAILING_REPEAT);
    failing_over(&f);
    for (int i = 1; i <= 9; i++)
        assert_int_equal(failing_again(&f, at(i * SECOND)), FAILING_REPEAT);
}

TEST(after_an_hour_of_them_the_job_ends)
{
    struct failing f = {.count = 0};

    for (int i = 0; i < 3600; i++)
        assert_int_not_equal(failing_again(&f, at(i * SECOND)), FAILING_END);
    for (int i = 3600; i < 3609; i++)
        assert_int_equal(failing_again(&f, at(i * SECOND)), FAILING_REPEAT);
    assert_int_equal(failing_again(&f, at(3609 * SECOND)), FAILING_END);
}

TEST(a_database_that_was_away_for_an_hour_is_asked_again)
{
    struct failing f = {.count = 0};

    assert_int_equal(failing_again(&f, at(0)), FAILING_REPEAT);
    for (int i = 2; i <= 9; i++)
        assert_int_equal(failing_again(&f, at(7200 * SECOND + i)), FAILING_REPEAT);
}

RUN_TESTS()
