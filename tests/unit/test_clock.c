/* Unit tests of base/clock: RFC 3339 both ways, the offset to another clock. */
#include "cmocka_whole.h"
#include <time.h>

#include "base/clock.h"

TEST(times_are_read_with_any_offset)
{
    static const struct {
        const char *text;
        int64_t utc_ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"1970-01-01t00:00:00z", 0},
        {"1969-12-31T23:59:59.999Z", -1},
        {"1970-01-01T01:00:00+01:00", 0},
        {"1969-12-31T20:30:00-03:30", 0},
        {"1970-01-01T00:00:00-00:00", 0},
        {"2026-11-21T10:00:00.123456789Z", 1795255200123},
        {"2026-11-21T10:00:00.9Z", 1795255200900},
        {"2024-02-29T00:00:00Z", 1709164800000},
        {"2000-02-29T00:00:00Z", 951782400000},
        {"2016-12-31T23:59:60Z", 1483228800000}, /* a leap second is the next second */
        {"0000-01-01T00:00:00Z", -62167219200000},
        {"9999-12-31T23:59:59.999Z", 253402300799999},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ms = 42;

        if (!clock_parse(rows[i].text, &ms) || ms != rows[i].utc_ms)
            fail_msg("%s: %lld instead of %lld", rows[i].text, (long long)ms, (long long)rows[i].utc_ms);
    }
}

TEST(what_is_no_time_is_refused_and_changes_nothing)
{
    static const char *const texts[] = {
        "", "2026", "2026-11-21", "2026-11-21T10:00:00", "2026-11-21 10:00:00Z", "2026-11-21T10:00Z",
        "2026-11-21T10:00:00.Z", "2026-11-21T10:00:00+01", "2026-11-21T10:00:00+0100", "2026-11-21T10:00:00+24:00",
        "2026-11-21T10:00:00+01:60", "2026-11-21T24:00:00Z", "2026-11-21T10:60:00Z", "2026-11-21T10:00:61Z",
        "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z",
        "2026-04-31T00:00:00Z", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-11-21T10:00:00Zx",
        " 2026-11-21T10:00:00Z", "+026-11-21T10:00:00Z", "2026-1-21T10:00:00Z", "-001-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z", "2026-11-21T10:00:00,5Z", "2026-11-21T10:00:00Z+01:00",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t ms = 42;

        if (clock_parse(texts[i], &ms) || ms != 42)
            fail_msg("\"%s\" was read as %lld", texts[i], (long long)ms);
    }
}

TEST(text_and_time_are_each_others_inverse)
{
    char text[CLOCK_TEXT_SIZE], again[CLOCK_TEXT_SIZE];
    int64_t last = INT64_C(253402300799999);

    for (int64_t ms = -62167219200000; ms <= last; ms += 97 * DAY_MS + 12345677) {
        int64_t back = 42;

        assert_true(clock_parse(clock_text(ms, text), &back));
        if (back != ms)
            fail_msg("%lld became %s, and that %lld", (long long)ms, text, (long long)back);
    }
    assert_string_equal(clock_text(last, text), "9999-12-31T23:59:59.999Z");
    assert_string_equal(clock_text(-1, text), "1969-12-31T23:59:59.999Z");
    /* RFC 3339 in UTC sorts as text like the times it stands for */
    assert_true(strcmp(clock_text(1795255200123, text), clock_text(1795255200124, again)) < 0);
}

TEST(monotonic_time_only_goes_on)
{
    struct mono a = mono_now(), b = mono_now();

    assert_false(mono_before(b, a));
    assert_int_equal(mono_ms_between(a, mono_add_ms(a, 1500)), 1500);
    assert_int_equal(mono_ms_between(mono_add_ms(a, 1500), a), -1500);
    assert_true(mono_before(a, mono_add_ms(a, 1)));
}

static struct mono begun; /* the test */

FIXTURE(begin)
{
    begun = mono_now();
    return 0;
}

/* What was wanted at some moment of the test: since then no more time has passed than since it began. */
static void near(int64_t have, int64_t want)
{
    if (have < want - 1 || have > want + mono_ms_between(begun, mono_now()) + 1)
        fail_msg("the clock reads %lld, about %lld was expected", (long long)have, (long long)want);
}

static int64_t machine_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* The first test that sets the clock: two workers begin like this, and their times are compared. */
TEST(a_primary_on_this_machine_leaves_the_clock_as_it_is)
{
    for (int i = 0; i < 2000; i++) {
        struct mono asked = mono_now();
        int64_t before = machine_ms(), now;

        clock_set(before, asked, mono_now());
        now = clock_now_ms();
        assert_true(before <= now && now <= machine_ms());
    }
}

TEST(utc_follows_the_clock_it_was_given)
{
    int64_t own = clock_now_ms();

    clock_set(1000000, mono_now(), mono_now());
    near(clock_now_ms(), 1000000);
    setenv("COUPONS_CLOCK_OFFSET_S", "3600", 1);
    clock_init();
    near(clock_now_ms(), 1000000 + 3600000);
    unsetenv("COUPONS_CLOCK_OFFSET_S");
    clock_init();
    clock_set(own, mono_add_ms(mono_now(), -250), mono_add_ms(mono_now(), -250)); /* so it read a quarter of a second ago */
    near(clock_now_ms(), own + 250);
}

/* An election takes seconds, in which nobody answers: half of that is not how far the clock is off. */
TEST(a_slow_answer_moves_the_clock_no_further_than_it_must)
{
    struct mono now = mono_now();

    clock_set(5000000, now, now);
    clock_set(5000000, mono_add_ms(now, -60000), now); /* a minute before now it read this, or now */
    near(clock_now_ms(), 5000000);
    clock_set(5000000 - 60000, mono_add_ms(now, -60000), now);
    near(clock_now_ms(), 5000000);
    clock_set(5000000 + 3600000, mono_add_ms(now, -60000), now); /* it has jumped: forward by an hour at least */
    near(clock_now_ms(), 5000000 + 3600000);
    clock_set(5000000, now, now);
    near(clock_now_ms(), 5000000);
}

RUN_TESTS(.each_setup = begin)
