/* Unit tests of coupons/period: where hours, days, weeks and months begin. Where clocks move by whole hours, service/test_reports.py holds
 * them against Python's calendar. */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "coupons/period.h"

static int64_t ms(const char *text)
{
    int64_t at_ms = 0;

    if (!clock_parse(text, &at_ms))
        fail_msg("%s is no time", text);
    return at_ms;
}

struct change {
    const char *at;
    int minutes;
};

/* A zone that began with `before` minutes; changes end with one without time. */
static struct zone make(struct zone_offset *room, int before, const struct change *changes)
{
    struct zone z = {room, 1};

    room[0] = (struct zone_offset){ms("1970-01-01T00:00:00Z"), before};
    for (; changes->at; changes++)
        room[z.count++] = (struct zone_offset){ms(changes->at), changes->minutes};
    return z;
}

/* From the period that holds `from` on, they begin at starts, which end with NULL; every moment is in the one that it should. */
static void check(enum period p, const struct zone *z, const char *from, const char *const *starts)
{
    int64_t start_ms = period_start(p, z, ms(from)), next_ms;
    char text[CLOCK_TEXT_SIZE];

    for (; *starts; starts++) {
        if (start_ms != ms(*starts))
            fail_msg("a %s begins at %s, not at %s", period_names[p], clock_text(start_ms, text), *starts);
        next_ms = period_next(p, z, start_ms);
        assert_true(next_ms > start_ms && next_ms - start_ms <= period_most_ms(p));
        for (int64_t at_ms = start_ms; at_ms < next_ms; at_ms += 15 * 60000)
            if (period_start(p, z, at_ms) != start_ms)
                fail_msg("%s is not in the %s of %s", clock_text(at_ms, text), period_names[p], *starts);
        start_ms = next_ms;
    }
}

#define STARTS(...) (const char *const[]){__VA_ARGS__, NULL}
#define CHANGES(...) (const struct change[]){__VA_ARGS__, {NULL, 0}}

TEST(without_changes_periods_are_the_calendars)
{
    struct zone_offset room[8];
    struct zone z = make(room, 345, CHANGES({NULL, 0}));

    check(PERIOD_HOUR, &z, "2026-03-01T00:20:00Z", STARTS("2026-03-01T00:15:00Z", "2026-03-01T01:15:00Z"));
    check(PERIOD_DAY, &z, "2026-03-01T00:20:00Z", STARTS("2026-02-28T18:15:00Z", "2026-03-01T18:15:00Z"));
    check(PERIOD_WEEK, &z, "2026-03-01T00:20:00Z", STARTS("2026-02-22T18:15:00Z", "2026-03-01T18:15:00Z"));
    check(PERIOD_MONTH, &z, "2028-01-31T18:14:00Z",
          STARTS("2027-12-31T18:15:00Z", "2028-01-31T18:15:00Z", "2028-02-29T18:15:00Z", "2028-03-31T18:15:00Z"));
    check(PERIOD_MONTH, &z, "1970-01-02T00:00:00Z", STARTS("1969-12-31T18:15:00Z", "1970-01-31T18:15:00Z"));
    check(PERIOD_MONTH, &z, "2100-02-10T00:00:00Z", STARTS("2100-01-31T18:15:00Z", "2100-02-28T18:15:00Z"));
}

TEST(a_day_goes_on_where_clocks_go_back_over_its_midnight)
{
    struct zone_offset room[8];
    struct zone z = make(room, -150, CHANGES({"2010-11-07T02:31:00Z", -210})); /* 00:01 becomes 23:01 of the day before */

    check(PERIOD_DAY, &z, "2010-11-07T02:15:00Z",
          STARTS("2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"));
    assert_int_equal(period_start(PERIOD_DAY, &z, ms("2010-11-07T03:00:00Z")), ms("2010-11-07T02:30:00Z"));
}

TEST(hours_follow_clocks_that_move_by_half_an_hour)
{
    struct zone_offset room[8];
    struct zone z = make(room, 660, CHANGES({"2022-04-02T15:00:00Z", 630}, {"2022-10-01T15:30:00Z", 660}));

    /* 02:00 becomes 01:30; 02:00 becomes 02:30 */
    check(PERIOD_HOUR, &z, "2022-04-02T14:00:00Z", STARTS("2022-04-02T14:00:00Z", "2022-04-02T15:30:00Z"));
    check(PERIOD_HOUR, &z, "2022-10-01T14:30:00Z",
          STARTS("2022-10-01T14:30:00Z", "2022-10-01T15:30:00Z", "2022-10-01T16:00:00Z"));
    assert_int_equal(zone_minutes(&z, ms("2022-04-02T14:59:59Z")), 660);
    assert_int_equal(zone_minutes(&z, ms("2022-04-02T15:00:00Z")), 630);
    assert_int_equal(zone_minutes(&z, ms("1960-01-01T00:00:00Z")), 660);
}

RUN_TESTS()
