/* base/clock.c -- see clock.h. */
#include "base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

static _Atomic int64_t offset_ns;      /* UTC minus monotonic */
static _Atomic bool offset_known;
static int64_t test_shift_ms;          /* COUPONS_CLOCK_OFFSET_S */

struct mono mono_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (struct mono){(int64_t)t.tv_sec * 1000 * NS_PER_MS + t.tv_nsec};
}

int64_t clock_boot_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

struct mono mono_add_ms(struct mono m, int64_t ms)
{
    return (struct mono){m.ns + ms * NS_PER_MS};
}

int64_t mono_ms_between(struct mono from, struct mono to)
{
    return (to.ns - from.ns) / NS_PER_MS;
}

void clock_init(void)
{
    const char *shift = getenv("COUPONS_CLOCK_OFFSET_S");

    test_shift_ms = shift ? strtoll(shift, NULL, 10) * 1000 : 0;
}

int64_t clock_shift_s(void)
{
    return test_shift_ms / 1000;
}

static int64_t utc_ns(void)
{
    struct timespec t;

    if (atomic_load(&offset_known))
        return mono_now().ns + atomic_load(&offset_ns);
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* In nanoseconds, so that the processes of a machine agree: if each rounded to milliseconds, two could be two apart. */
void clock_set(int64_t utc_ms, struct mono asked, struct mono answered)
{
    int64_t least = utc_ms * NS_PER_MS - answered.ns, most = (utc_ms + 1) * NS_PER_MS - asked.ns;
    int64_t offset = utc_ns() - mono_now().ns;

    atomic_store(&offset_ns, offset < least ? least : offset > most ? most : offset);
    atomic_store(&offset_known, true);
}

int64_t clock_now_ms(void)
{
    return utc_ns() / NS_PER_MS + test_shift_ms;
}

/* Days since 1970-01-01 of a Gregorian date. Source: the era arithmetic of proleptic calendars (400 years = 146097 days). */
static int64_t days_of_date(int64_t y, int m, int d)
{
    int64_t era, day_of_year, year_of_era;

    y -= m <= 2;
    era = (y >= 0 ? y : y - 399) / 400;
    year_of_era = y - era * 400;
    day_of_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/* The last `count` digits of value, with leading zeros. */
static void put_digits(char *at, int count, unsigned value)
{
    for (; count > 0; value /= 10)
        at[--count] = (char)('0' + value % 10);
}

char *clock_text(int64_t utc_ms, char text[CLOCK_TEXT_SIZE])
{
    int64_t seconds = utc_ms / 1000;
    int ms = (int)(utc_ms % 1000);
    struct tm t;
    time_t s;

    if (ms < 0) {
        ms += 1000;
        seconds--;
    }
    s = (time_t)seconds;
    gmtime_r(&s, &t);
    strcpy(text, "0000-00-00T00:00:00.000Z");
    put_digits(text, 4, (unsigned)(t.tm_year + 1900));
    put_digits(text + 5, 2, (unsigned)t.tm_mon + 1);
    put_digits(text + 8, 2, (unsigned)t.tm_mday);
    put_digits(text + 11, 2, (unsigned)t.tm_hour);
    put_digits(text + 14, 2, (unsigned)t.tm_min);
    put_digits(text + 17, 2, (unsigned)t.tm_sec);
    put_digits(text + 20, 3, (unsigned)ms);
    return text;
}

/* Read count digits at *p into *value; moves *p. */
static bool digits(const char **p, int count, int *value)
{
    int v = 0;

    for (int i = 0; i < count; i++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (*(*p)++ - '0');
    }
    *value = v;
    return true;
}

static bool literal(const char **p, char upper)
{
    char c = **p;

    if (c != upper && !(upper >= 'A' && upper <= 'Z' && c == upper + ('a' - 'A')))
        return false;
    (*p)++;
    return true;
}

/* ".123456" to milliseconds, truncated; at least one digit after the point. */
static bool fraction(const char **p, int *ms)
{
    int scale = 100, seen = 0;

    *ms = 0;
    if (**p != '.')
        return true;
    for ((*p)++; **p >= '0' && **p <= '9'; (*p)++, seen++) {
        *ms += (**p - '0') * scale;
        scale /= 10;
    }
    return seen > 0;
}

static bool zone_offset(const char **p, int *minutes)
{
    int sign = **p == '-' ? -1 : 1, h, m;

    *minutes = 0;
    if (literal(p, 'Z'))
        return true;
    if (**p != '+' && **p != '-')
        return false;
    (*p)++;
    if (!digits(p, 2, &h) || !literal(p, ':') || !digits(p, 2, &m) || h > 23 || m > 59)
        return false;
    *minutes = sign * (h * 60 + m);
    return true;
}

static int days_in_month(int y, int m)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[m - 1] + (m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0));
}

bool clock_parse(const char *text, int64_t *utc_ms)
{
    const char *p = text;
    int y, mo, d, h, mi, s, ms, offset;

    if (!digits(&p, 4, &y) || !literal(&p, '-') || !digits(&p, 2, &mo) || !literal(&p, '-') || !digits(&p, 2, &d))
        return false;
    if (!literal(&p, 'T') || !digits(&p, 2, &h) || !literal(&p, ':') || !digits(&p, 2, &mi) || !literal(&p, ':') ||
        !digits(&p, 2, &s) || !fraction(&p, &ms) || !zone_offset(&p, &offset) || *p != '\0')
        return false;
    if (mo < 1 || mo > 12 || d < 1 || d > days_in_month(y, mo) || h > 23 || mi > 59 || s > 60)
        return false;
    *utc_ms = (((days_of_date(y, mo, d) * 24 + h) * 60 + mi - offset) * 60 + s) * 1000 + ms;
    return true;
}
