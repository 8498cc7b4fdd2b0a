/* Unit tests of base/guesses: what may be missed, for how long whoever passed it waits, who counts as one, many processes. */
#include "cmocka_whole.h"
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rates.h"

FIXTURE(fresh)
{
    return rates_create();
}

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

/* A look-up that finds nothing: charged, and never refunded. */
static int64_t miss(enum rate kind, const char *who, int per_minute, int count)
{
    return rate_charge(kind, who, per_minute, count);
}

/* How long `who` has to wait, without owing more for the question. */
static int64_t wait_ms(enum rate kind, const char *who, int per_minute)
{
    int64_t ms = rate_charge(kind, who, per_minute, 1);

    if (ms == 0)
        rate_settle(kind, who, per_minute, 1, 0);
    return ms;
}

/* As many as the limit are let in, and one more for each of these times that pass meanwhile; the next one waits for such a time. */
static void assert_let_in(enum rate kind, const char *who, int limit, int64_t each_ms)
{
    struct mono began = mono_now();
    int let_in = 0;
    int64_t wait;

    while ((wait = rate_charge(kind, who, limit, 1)) == 0)
        let_in++;
    assert_in_range(let_in, limit, limit + (1 + mono_ms_between(began, mono_now())) / each_ms);
    assert_in_range(wait, 1, each_ms);
}

/* Of a wait that was so long when `began`, or up to a second less. */
static void assert_waits(int64_t ms, int64_t most, struct mono began)
{
    int64_t least = most - 1000 - mono_ms_between(began, mono_now());

    if (ms < least || ms > most)
        fail_msg("the wait is %lld ms, and it should be %lld to %lld", (long long)ms, (long long)least, (long long)most);
}

TEST(as_many_as_the_limit_may_fail_at_once)
{
    assert_let_in(RATE_CODES_OF_USER, "k", 60, 1000);
}

TEST(a_rate_is_by_the_second_and_beside_what_is_guessed)
{
    assert_let_in(RATE_CALLS, "rated", 5, 200);
    assert_int_equal(rate_charge(RATE_CODES_OF_USER, "rated", 5, 1), 0);
    pause_ms(210);
    assert_int_equal(rate_charge(RATE_CALLS, "rated", 5, 1), 0);
}

TEST(who_waited_may_look_again)
{
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60000, 63000), 0);
    assert_in_range(wait_ms(RATE_CODES_OF_USER, "k", 60000), 1, 3001);
    pause_ms(3010);
    assert_int_equal(wait_ms(RATE_CODES_OF_USER, "k", 60000), 0);
}

TEST(what_is_under_way_is_owed_and_what_is_found_forgiven)
{
    struct mono began = mono_now();

    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60, 1000), 0);
    assert_waits(miss(RATE_CODES_OF_USER, "k", 60, 1), 941000, began);
    rate_settle(RATE_CODES_OF_USER, "k", 60, 1000, 180);
    assert_waits(miss(RATE_CODES_OF_USER, "k", 60, 1000), 121000, began); /* and a refusal adds nothing */
    assert_waits(miss(RATE_CODES_OF_USER, "k", 60, 1000), 121000, began);
    rate_settle(RATE_CODES_OF_USER, "k", 60, 180, 0);
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60, 1), 0);
}

TEST(what_is_forgiven_late_is_no_credit)
{
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60000, 100), 0);
    pause_ms(110);
    rate_settle(RATE_CODES_OF_USER, "k", 60000, 100, 0);
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60, 60), 0);
    assert_true(miss(RATE_CODES_OF_USER, "k", 60, 1) > 0);
}

TEST(nobody_waits_longer_than_the_bound)
{
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 60, 1000000), 0);
    assert_in_range(wait_ms(RATE_CODES_OF_USER, "k", 60), RATE_WAIT_MAX_MS - 61000, RATE_WAIT_MAX_MS);
}

TEST(the_bound_forgives_nothing_that_was_missed)
{
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 10, 1000), 0);
    rate_settle(RATE_CODES_OF_USER, "k", 10, 1000, 100);
    assert_in_range(wait_ms(RATE_CODES_OF_USER, "k", 10), 540000, 546000 + 1);
}

TEST(without_a_limit_nobody_waits)
{
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 0, 1000), 0);
    assert_int_equal(miss(RATE_CODES_OF_USER, "k", 0, 1), 0);
    assert_int_equal(wait_ms(RATE_CODES_OF_USER, "k", 1), 0);
}

TEST_WITH(who_counts_as_one, NULL, NULL)
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

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(rates_create(), 0);
        assert_int_equal(miss(RATE_CODES_OF_ADDRESS, rows[i].guilty, 1, 5), 0);
        if ((wait_ms(RATE_CODES_OF_ADDRESS, rows[i].other, 1) > 0) != rows[i].same)
            fail_msg("%s failed: %s should%s wait", rows[i].guilty, rows[i].other, rows[i].same ? "" : " not");
        assert_int_equal(wait_ms(RATE_CODES_OF_USER, rows[i].guilty, 1), 0);
    }
}

TEST(a_crowd_hides_nobody_who_owes_more)
{
    char address[32];

    assert_int_equal(miss(RATE_CODES_OF_ADDRESS, "192.0.2.1", 60, 120), 0);
    for (int i = 0; i < 200000; i++) {
        snprintf(address, sizeof address, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        miss(RATE_CODES_OF_ADDRESS, address, 60, 1);
    }
    assert_true(wait_ms(RATE_CODES_OF_ADDRESS, "192.0.2.1", 60) > 0);
    assert_int_equal(miss(RATE_CODES_OF_ADDRESS, "192.0.2.2", 60, 61), 0); /* and there is room for one more */
    assert_true(wait_ms(RATE_CODES_OF_ADDRESS, "192.0.2.2", 60) > 0);
}

/* Four processes that look for 250 codes each at a time: 100 are let in, all together. */
TEST(processes_count_together)
{
    int status, let_in = 0;
    struct mono began = mono_now();

    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            int mine = 0;

            for (int k = 0; k < 250; k++)
                mine += miss(RATE_CODES_OF_USER, "k", 100, 1) == 0;
            _exit(mine);
        }
    for (int i = 0; i < 4; i++) {
        assert_true(wait(&status) > 0 && WIFEXITED(status));
        let_in += WEXITSTATUS(status);
    }
    assert_in_range(let_in, 100, 100 + (1 + mono_ms_between(began, mono_now())) / 600); /* one is paid every 0.6 s */
}

RUN_TESTS(.each_setup = fresh)
