/*
 * fuzz/fuzz_period.c -- hours, days, weeks and months of any time zone, as the database could tell its offsets: a moment, then
 * changes of three bytes: how many quarter hours later, and by how many minutes the clocks move. As zones do: by less than 12
 * hours, or by exactly 24 (a date twice, or skipped), not twice within a month, and never farther than 16 hours from UTC.
 *
 * Holds   a moment is in its period; the next one begins later, and is the period of its own beginning; none is too long
 */
#include "coupons/period.h"
#include "fuzz/fuzz.h"

#define CHANGES_MAX 16
#define QUARTER_MS (INT64_C(15) * 60000)
#define MOST_MS INT64_C(253402300800000) /* the year 10000 */
#define OFFSET_MOST (16 * 60) /* minutes; in history near 16 hours */
#define DATE (24 * 60)

/* The offset after one of `before`, as a byte says. */
static int next_offset(int before, uint8_t how)
{
    int minutes = before + (how == 255 ? DATE : how == 254 ? -DATE : (how - 127) * 5);

    return minutes < -OFFSET_MOST || minutes > OFFSET_MOST ? before : minutes;
}

static void check(enum period p, const struct zone *z, int64_t at_ms)
{
    int64_t start_ms = period_start(p, z, at_ms), next_ms = period_next(p, z, start_ms);

    REQUIRE_OR(start_ms <= at_ms && at_ms < next_ms, "%lld is not in %lld..%lld", (long long)at_ms, (long long)start_ms,
            (long long)next_ms);
    REQUIRE_OR(period_start(p, z, start_ms) == start_ms, "%lld", (long long)start_ms);
    REQUIRE_OR(period_start(p, z, next_ms) == next_ms, "%lld", (long long)next_ms);
    REQUIRE_OR(period_start(p, z, next_ms - 1) == start_ms, "%lld", (long long)next_ms);
    REQUIRE_OR(next_ms - start_ms <= period_most_ms(p), "%lld..%lld", (long long)start_ms, (long long)next_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zone_offset offsets[CHANGES_MAX];
    struct zone z = {offsets, 0};
    struct input input = {data, size};
    int64_t at_ms = input_number(&input, 8) % MOST_MS, change_ms = at_ms - input_byte(&input) * 96 * QUARTER_MS;

    for (int minutes = 0; z.count == 0 || (input.left >= 3 && z.count < CHANGES_MAX); z.count++) {
        minutes = next_offset(minutes, input_byte(&input));
        offsets[z.count] = (struct zone_offset){change_ms, minutes};
        change_ms += (32 * 96 + input_number(&input, 2)) * QUARTER_MS;
    }
    for (int p = 0; p < PERIOD_TOTAL; p++)
        check((enum period)p, &z, at_ms);
    return 0;
}
