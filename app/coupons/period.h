/*
 * coupons/period.h -- the hours, days, weeks and months of a time zone, as instants. Pure.
 *
 * Shape   struct zone: its offsets, ascending; the first one also applies before its time
 * Units   *_ms: UTC milliseconds since 1970; *_minutes: minutes ahead of UTC
 * Rules   a period begins when its first moment first occurs: a day whose midnight is skipped begins when the clocks jump,
 *         one whose midnight occurs twice at the first. Weeks begin on Monday. An hour that the clocks repeat is two hours;
 *         if they move by less than an hour, hours are shorter or longer. A date that a zone skips is no day
 */
#ifndef COUPONS_PERIOD_H
#define COUPONS_PERIOD_H

#include <stddef.h>
#include <stdint.h>

enum period { PERIOD_HOUR, PERIOD_DAY, PERIOD_WEEK, PERIOD_MONTH, PERIOD_TOTAL, PERIOD_COUNT };
extern const char *const period_names[PERIOD_COUNT + 1]; /* NULL-terminated */

struct zone_offset {
    int64_t from_ms;
    int minutes;
};

struct zone {
    struct zone_offset *offsets; /* borrowed */
    size_t count;                /* at least 1 */
};

/* The offset at at_ms. */
int zone_minutes(const struct zone *z, int64_t at_ms);

/* The start of the period that contains at_ms; the start of the next period. Not for PERIOD_TOTAL. */
int64_t period_start(enum period p, const struct zone *z, int64_t at_ms);
int64_t period_next(enum period p, const struct zone *z, int64_t start_ms);

/* An upper bound for a period's length. Not for PERIOD_TOTAL. */
int64_t period_most_ms(enum period p);

#endif
