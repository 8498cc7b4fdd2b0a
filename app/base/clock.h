/*
 * base/clock.h -- time: a monotonic clock, UTC derived from it, and RFC 3339 text.
 *
 * Units   *_ms: UTC milliseconds since 1970 as int64_t; struct mono: monotonic nanoseconds, so that the two cannot mix
 * UTC     is the monotonic clock plus an offset to the primary's clock (clock_set), plus COUPONS_CLOCK_OFFSET_S
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define DAY_MS (INT64_C(24) * 3600 * 1000)

struct mono {
    int64_t ns;
};

struct mono mono_now(void);
/* m moved by ms milliseconds. */
struct mono mono_add_ms(struct mono m, int64_t ms);
/* Milliseconds from `from` to `to`, rounded toward zero. */
int64_t mono_ms_between(struct mono from, struct mono to);
static inline bool mono_before(struct mono a, struct mono b)
{
    return a.ns < b.ns;
}

/* Milliseconds since this machine booted, including suspension. */
int64_t clock_boot_ms(void);

/* The service's UTC time in ms. Before the first clock_set(): this machine's clock. Thread-safe. */
int64_t clock_now_ms(void);

/* Report that the primary's clock read utc_ms at some moment between `asked` and `answered`. The offset moves only as far as it must, so an
 * answer that took seconds (an election) has little effect. For one thread at a time. */
void clock_set(int64_t utc_ms, struct mono asked, struct mono answered);

/* Read COUPONS_CLOCK_OFFSET_S from the environment (tests only). Call once, before threads. */
void clock_init(void);
/* The shift of the service's time in seconds; 0: none. */
int64_t clock_shift_s(void);

#define CLOCK_TEXT_SIZE 32
/* utc_ms as "2026-11-21T10:00:00.000Z" into text; returns text. Years 0000-9999. */
char *clock_text(int64_t utc_ms, char text[CLOCK_TEXT_SIZE]);

/* Parse RFC 3339 date-time (any offset, fraction truncated to milliseconds). False, and *utc_ms untouched: it is not one. */
bool clock_parse(const char *text, int64_t *utc_ms);

#endif
