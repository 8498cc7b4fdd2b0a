/* verify/replay_lanes.c -- see replay_lanes.h. */
#include "verify/replay_lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/decide.h" /* policy_of() */
#include "coupons/fold.h"

#define DAY_MOST_MS (INT64_C(26) * 3600 * 1000) /* after its start, nobody takes on a day any more */
#define SLACK_MS INT64_C(60000)                 /* until all lanes have followed a definition */
#define PLACE_SIZE 64
#define NUMBER_SIZE 48

/* ---- one lane ---- */

static void sum_day(struct lane_sums *s, const struct head *h)
{
    if (!s->day_count || s->days[s->day_count - 1].day_ms != h->day_ms) {
        s->days = checked_grown(s->days, s->day_count, &s->day_capacity, sizeof *s->days);
        s->days[s->day_count++].day_ms = h->day_ms;
    }
    s->days[s->day_count - 1].taken = h->day_taken;
}

static void sum_definition(struct lane_sums *s, const struct batch *b, const struct coupon *c)
{
    s->caps = checked_grown(s->caps, s->caps_count, &s->caps_capacity, sizeof *s->caps);
    s->caps[s->caps_count++] = (struct lane_caps){
        b->head.at_ms, c->cap.per_day, c->cap.discount_minor, policy_of(c)->slots};
}

void lane_sums_batch(struct lane_sums *s, const struct batch *b)
{
    s->head = b->head;
    sum_day(s, &b->head);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        int64_t peer = entry_peer(e, b->lane);

        if (peer >= 0)
            fold_account_entry(&s->peers[peer], e, &b->head);
        else if (e->kind == ENTRY_DEFINE)
            sum_definition(s, b, e->definition);
    }
}

void lane_sums_rest(struct lane_sums *s)
{
    memcpy(s->before, s->peers, sizeof s->before);
}

void lane_sums_release(struct lane_sums *s)
{
    free(s->days);
    free(s->caps);
    *s = (struct lane_sums){.day_count = 0};
}

/* ---- all of them ---- */

struct across {
    const struct lane_sums *lanes;
    size_t count;
    bool still;
    drift_fn *report;
    void *context;
};

static void tell_across(const struct across *a, const char *where, const char *field, const char *relation, int64_t expected,
                 int64_t found)
{
    char want[NUMBER_SIZE], have[NUMBER_SIZE];
    const struct drift d = {"lanes", where, field, want, have};

    snprintf(want, sizeof want, "%s%" PRId64, relation, expected);
    snprintf(have, sizeof have, "%" PRId64, found);
    a->report(a->context, &d);
}

static void most_across(const struct across *a, const char *where, const char *field, int64_t bound, int64_t found)
{
    if (found > bound)
        tell_across(a, where, field, "at most ", bound, found);
}

static void expect_across(const struct across *a, const char *where, const char *field, int64_t expected, int64_t found)
{
    if (found != expected)
        tell_across(a, where, field, "", expected, found);
}

/* What the lane has elsewhere must be what it gave less what it got. */
static void compare_elsewhere(const struct across *a, size_t lane)
{
    const struct lane_sums *s = &a->lanes[lane];
    struct gift sum = {0, 0, 0};
    char where[PLACE_SIZE];

    for (size_t i = 0; i < a->count; i++) {
        const struct lane_account *p = &s->peers[i];

        sum.slots += p->given.slots - p->got.slots;
        sum.minor += p->given.minor - p->got.minor;
        sum.day += p->day_ms == s->head.day_ms ? p->given.day - p->got.day : 0;
    }
    snprintf(where, sizeof where, "lane %zu", lane);
    expect_across(a, where, "elsewhere", sum.slots, s->head.elsewhere);
    expect_across(a, where, "day.elsewhere", sum.day, s->head.day_elsewhere);
    expect_across(a, where, "minor_elsewhere", sum.minor, s->head.minor_elsewhere);
}

/* taker must not have got more than giver gave; the giver's account is not older than the taker's. */
static void compare_accounts(const struct across *a, size_t giver, size_t taker, const struct lane_account *from,
                             const struct lane_account *to)
{
    char where[PLACE_SIZE];

    snprintf(where, sizeof where, "lane %zu of lane %zu", taker, giver);
    most_across(a, where, "slots got", from->given.slots, to->got.slots);
    most_across(a, where, "minor got", from->given.minor, to->got.minor);
    if (from->day_ms == to->day_ms)
        most_across(a, where, "day got", from->given.day, to->got.day);
}

/* The highest cap in force at any time between from_ms and to_ms; INT64_MAX: there was no cap, or no slots. */
static int64_t cap_between(const struct lane_sums *s, int64_t from_ms, int64_t to_ms, bool of_day)
{
    int64_t cap = 0;

    for (size_t i = 0; i < s->caps_count && s->caps[i].at_ms <= to_ms; i++) {
        const struct lane_caps *c = &s->caps[i];
        int64_t one = of_day ? c->per_day : c->discount_minor;

        if (i + 1 < s->caps_count && s->caps[i + 1].at_ms < from_ms)
            continue;
        if (one == COUPON_NULL || !c->slots)
            return INT64_MAX;
        cap = one > cap ? one : cap;
    }
    return cap;
}

static int64_t taken_on(const struct lane_sums *s, int64_t day_ms)
{
    for (size_t i = s->day_count; i-- > 0 && s->days[i].day_ms >= day_ms;)
        if (s->days[i].day_ms == day_ms)
            return s->days[i].taken;
    return 0;
}

static void compare_day(const struct across *a, int64_t day_ms)
{
    int64_t taken = 0, cap = cap_between(&a->lanes[0], day_ms - SLACK_MS, day_ms + DAY_MOST_MS, true);
    char where[PLACE_SIZE];

    for (size_t i = 0; i < a->count; i++)
        taken += taken_on(&a->lanes[i], day_ms);
    snprintf(where, sizeof where, "day %" PRId64, day_ms);
    most_across(a, where, "per_day", cap, taken);
}

/* Compare each day once, with the first lane that has it, if it is over, or all lanes are as of one time. */
static void compare_days(const struct across *a)
{
    int64_t last_ms = INT64_MIN;

    for (size_t i = 0; i < a->count; i++)
        last_ms = a->lanes[i].head.day_ms > last_ms ? a->lanes[i].head.day_ms : last_ms;
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < a->lanes[i].day_count; k++) {
            int64_t day_ms = a->lanes[i].days[k].day_ms;
            bool told = false;

            for (size_t j = 0; j < i && !told; j++)
                told = taken_on(&a->lanes[j], day_ms) > 0;
            if (!told && (a->still || day_ms < last_ms))
                compare_day(a, day_ms);
        }
}

static void compare_discount(const struct across *a)
{
    int64_t minor = 0;

    for (size_t i = 0; i < a->count; i++)
        minor += a->lanes[i].head.discount_minor;
    if (a->still)
        most_across(a, "all lanes", "discount_minor", cap_between(&a->lanes[0], INT64_MIN, INT64_MAX, false), minor);
}

void lane_sums_compare(const struct lane_sums *lanes, size_t count, bool still, drift_fn *report, void *context)
{
    const struct across a = {lanes, count, still, report, context};
    char where[PLACE_SIZE];

    for (size_t i = 0; i < count; i++) {
        compare_elsewhere(&a, i);
        if (i == 0)
            continue;
        compare_accounts(&a, 0, i, &lanes[0].peers[i], &lanes[i].peers[0]);
        compare_accounts(&a, i, 0, &lanes[i].peers[0], &lanes[0].before[i]);
        snprintf(where, sizeof where, "lane %zu", i);
        most_across(&a, where, "version", lanes[0].head.version, lanes[i].head.version);
    }
    compare_days(&a);
    compare_discount(&a);
}
