/* Unit tests of backoff_ms() of deliver/delivery: how long a receiver that fails is left alone. */
#include "cmocka_whole.h"

#include <inttypes.h>
#include <sodium.h>

#include "deliver/state.h"

#define HOUR_MS INT64_C(3600000)

static struct config defaults;

FIXTURE(setup)
{
    char message[512];

    return sodium_init() < 0 || config_load(&defaults, NULL, NULL, message, sizeof message) != 0;
}

/* What is waited is this, or a fifth more. */
static void waits(int64_t failures, int64_t least_ms)
{
    for (int i = 0; i < 200; i++) {
        int64_t ms = backoff_ms(&defaults, failures, 0);

        if (ms < least_ms || ms > least_ms + least_ms / 5)
            fail_msg("after %" PRId64 " failures %" PRId64 " ms, not %" PRId64, failures, ms, least_ms);
    }
}

TEST(each_wait_is_three_times_the_last_up_to_six_hours)
{
    waits(1, 5000);
    waits(2, 15000);
    waits(3, 45000);
    waits(8, INT64_C(5000) * 2187);
    for (int64_t failures = 9; failures < 100; failures++)
        waits(failures, 6 * HOUR_MS);
    waits(INT64_MAX, 6 * HOUR_MS);
}

TEST(a_receiver_that_is_away_for_days_is_asked_until_it_is_given_up)
{
    int64_t waited_ms = 0, failures = 0;

    while (waited_ms < (int64_t)defaults.webhooks_give_up_s * 1000)
        waited_ms += backoff_ms(&defaults, ++failures, 0);
    assert_int_equal(defaults.webhooks_give_up_s, 5 * 24 * 3600);
    assert_in_range(failures, 24, 30);
}

TEST(waits_differ_so_that_receivers_are_not_asked_all_at_once)
{
    int64_t first = backoff_ms(&defaults, 5, 0);
    bool differs = false;

    for (int i = 0; i < 100; i++)
        differs = differs || backoff_ms(&defaults, 5, 0) != first;
    assert_true(differs);
}

TEST(a_receiver_that_says_when_is_not_asked_before)
{
    assert_int_equal(backoff_ms(&defaults, 1, HOUR_MS), HOUR_MS);
    assert_int_equal(backoff_ms(&defaults, 1, 7 * HOUR_MS), 6 * HOUR_MS);
    assert_in_range(backoff_ms(&defaults, 1, 1), 5000, 6000);
}

RUN_TESTS(.setup = setup)
