/* coupons/period.c -- see period.h. A label is a period's nominal local start, written as if it were UTC. */
#include "coupons/period.h"

#include <assert.h>
#include <stdbool.h>

#include "base/clock.h"

#define MINUTE_MS (INT64_C(60) * 1000)
#define HOUR_MS (60 * MINUTE_MS)
#define MONDAY_MS (-3 * DAY_MS) /* the Monday before 1970 */

const char *const period_names[PERIOD_COUNT + 1] = {"hour", "day", "week", "month", "total", NULL};

int64_t period_most_ms(enum period p)
{
    /* clocks move by less than 12 hours, and a zone may repeat a date */
    static const int64_t most_ms[PERIOD_TOTAL] = {
        [PERIOD_HOUR] = 2 * HOUR_MS, [PERIOD_DAY] = 2 * DAY_MS, [PERIOD_WEEK] = 8 * DAY_MS, [PERIOD_MONTH] = 32 * DAY_MS};

    assert(p < PERIOD_TOTAL);
    return most_ms[p];
}

/* ---- the zone ---- */

/* The index of the offset in force at at_ms. */
static size_t offset_at(const struct zone *z, int64_t at_ms)
{
    size_t low = 0, high = z->count;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (z->offsets[mid].from_ms <= at_ms)
            low = mid;
        else
            high = mid;
    }
    return low;
}

int zone_minutes(const struct zone *z, int64_t at_ms)
{
    return z->offsets[offset_at(z, at_ms)].minutes;
}

static int64_t begin_of(const struct zone *z, size_t i)
{
    return i == 0 ? INT64_MIN : z->offsets[i].from_ms;
}

static int64_t end_of(const struct zone *z, size_t i)
{
    return i + 1 < z->count ? z->offsets[i + 1].from_ms : INT64_MAX;
}

static int64_t ahead_ms(const struct zone *z, size_t i)
{
    return z->offsets[i].minutes * MINUTE_MS;
}

static int64_t local_of(const struct zone *z, int64_t at_ms)
{
    return at_ms + ahead_ms(z, offset_at(z, at_ms));
}

/* The first instant near `label` at which the clocks show it or later. */
static int64_t instant_of(const struct zone *z, int64_t label)
{
    size_t i = offset_at(z, label - 2 * DAY_MS);
    int64_t at_ms = label - ahead_ms(z, i);

    while (at_ms >= end_of(z, i)) {
        i++;
        at_ms = label - ahead_ms(z, i);
    }
    return at_ms > begin_of(z, i) ? at_ms : begin_of(z, i);
}

/* ---- labels of days, weeks and months ---- */

static int64_t floor_to(int64_t value, int64_t unit)
{
    int64_t rest = value % unit;

    return value - rest - (rest < 0 ? unit : 0);
}

/* Convert a day (since 1970-01-01) to its month (since January 1970), and a month to its first day; after Howard Hinnant's chrono
 * algorithms: years begin in March, so the leap day comes last. */
static int64_t month_of_day(int64_t day)
{
    int64_t era, day_of_era, year_of_era, month_of_year;

    day += 719468;
    era = floor_to(day, 146097) / 146097;
    day_of_era = day - era * 146097;
    year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    month_of_year = (5 * (day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100)) + 2) / 153;
    return (era * 400 + year_of_era - 1970) * 12 + month_of_year + 2; /* March is month 2 of its year */
}

static int64_t day_of_month(int64_t month)
{
    int64_t year = floor_to(month - 2, 12) / 12 + 1970, month_of_year = month - 2 - (year - 1970) * 12;
    int64_t era = floor_to(year, 400) / 400, year_of_era = year - era * 400;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month_of_year + 2) / 5 - 719468;
}

static int64_t label_of(enum period p, int64_t local_ms)
{
    if (p == PERIOD_DAY)
        return floor_to(local_ms, DAY_MS);
    if (p == PERIOD_WEEK)
        return floor_to(local_ms - MONDAY_MS, 7 * DAY_MS) + MONDAY_MS;
    return day_of_month(month_of_day(floor_to(local_ms, DAY_MS) / DAY_MS)) * DAY_MS;
}

/* ---- hours: they continue unchanged where the clocks move by whole hours ---- */

/* True if the change to offset i is not by whole hours and puts the clocks into another hour. */
static bool breaks_hour(const struct zone *z, size_t i)
{
    int64_t at_ms = z->offsets[i].from_ms;

    return (z->offsets[i].minutes - z->offsets[i - 1].minutes) % 60 != 0 &&
           floor_to(at_ms - 1 + ahead_ms(z, i - 1), HOUR_MS) != floor_to(at_ms + ahead_ms(z, i), HOUR_MS);
}

static bool keeps_hours(const struct zone *z, size_t i)
{
    return (z->offsets[i].minutes - z->offsets[i - 1].minutes) % 60 == 0;
}

static int64_t hour_start(const struct zone *z, int64_t at_ms)
{
    size_t i = offset_at(z, at_ms);

    for (;;) {
        int64_t start_ms = floor_to(at_ms + ahead_ms(z, i), HOUR_MS) - ahead_ms(z, i);

        if (start_ms > begin_of(z, i) || keeps_hours(z, i))
            return start_ms;
        if (breaks_hour(z, i))
            return begin_of(z, i);
        at_ms = begin_of(z, i) - 1;
        i--;
    }
}

static int64_t hour_next(const struct zone *z, int64_t start_ms)
{
    size_t i = offset_at(z, start_ms);

    for (;;) {
        int64_t next_ms = floor_to(start_ms + ahead_ms(z, i), HOUR_MS) + HOUR_MS - ahead_ms(z, i);

        if (next_ms < end_of(z, i) || keeps_hours(z, i + 1))
            return next_ms;
        i++;
        if (breaks_hour(z, i))
            return begin_of(z, i);
        start_ms = begin_of(z, i);
    }
}

/* ---- all of them ---- */

/* The clocks may go back across a midnight: the time until they show it again belongs to the day that has begun. */
int64_t period_start(enum period p, const struct zone *z, int64_t at_ms)
{
    int64_t start_ms, next_ms;

    assert(p < PERIOD_TOTAL && z->count > 0);
    if (p == PERIOD_HOUR)
        return hour_start(z, at_ms);
    start_ms = instant_of(z, label_of(p, local_of(z, at_ms)));
    next_ms = period_next(p, z, start_ms);
    return next_ms <= at_ms ? next_ms : start_ms;
}

int64_t period_next(enum period p, const struct zone *z, int64_t start_ms)
{
    int64_t label, next_ms;

    assert(p < PERIOD_TOTAL && z->count > 0);
    if (p == PERIOD_HOUR)
        return hour_next(z, start_ms);
    label = label_of(p, local_of(z, start_ms));
    do {
        label = p == PERIOD_DAY ? label + DAY_MS : p == PERIOD_WEEK ? label + 7 * DAY_MS : label_of(p, label + 31 * DAY_MS);
        next_ms = instant_of(z, label);
    } while (next_ms <= start_ms);
    return next_ms;
}
