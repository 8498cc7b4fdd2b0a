/* verify/replay_lanes.c -- see replay_lanes.h. */
#include "verify/replay_lanes.h"

#include <stdio.h>
#include <string.h>

#include "coupons/transfer.h"

#define PLACE_SIZE 64

/* ---- one lane ---- */

void lane_sums_batch(struct lane_sums *s, const struct batch *b)
{
    s->head = b->head;
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct transfer_side m;
        struct moved *moved;

        s->deleted = s->deleted || e->kind == ENTRY_DELETE;
        if (!transfer_parse(e->job, COUPON_LANES_MAX, &m))
            continue;
        moved = m.gives ? &s->moves[m.other].to : &s->moves[m.other].from;
        *moved = (struct moved){e->step, moved->total + e->count, moved->total};
    }
}

void lane_sums_rest(struct lane_sums *s)
{
    memcpy(s->before, s->moves, sizeof s->before);
}

/* ---- all of them ---- */

struct across {
    const struct lane_sums *lanes;
    size_t count;
    bool still;
    drift_fn *report;
    void *context;
};

static void report_across(const struct across *a, const char *where, const char *field, const char *relation, int64_t expected,
                 int64_t found)
{
    drift_numbers(a->report, a->context, (struct drift){"lanes", where, field, NULL, NULL}, relation, expected, found);
}

static void most_across(const struct across *a, const char *where, const char *field, int64_t bound, int64_t found)
{
    if (found > bound)
        report_across(a, where, field, "at most ", bound, found);
}

static void expect_across(const struct across *a, const char *where, const char *field, int64_t expected, int64_t found)
{
    if (found != expected)
        report_across(a, where, field, "", expected, found);
}

/* What the lane has elsewhere must be what went to other lanes, less what came from them. */
static void compare_elsewhere(const struct across *a, size_t lane)
{
    const struct lane_sums *s = &a->lanes[lane];
    int64_t elsewhere = 0;
    char where[PLACE_SIZE];

    for (size_t i = 0; i < a->count; i++)
        elsewhere += s->moves[i].to.total - s->moves[i].from.total;
    snprintf(where, sizeof where, "lane %zu", lane);
    expect_across(a, where, "elsewhere", elsewhere, s->head.elsewhere);
}

/* The taker is at the giver's step or, at one time, at the one before it. The giver's side is not older than the taker's. */
static void compare_moves(const struct across *a, size_t giver, size_t taker, const struct moved *to, const struct moved *from)
{
    char where[PLACE_SIZE];

    snprintf(where, sizeof where, "lane %zu of lane %zu", taker, giver);
    most_across(a, where, "step", to->step, from->step);
    if (from->step == to->step)
        expect_across(a, where, "slots", to->total, from->total);
    else if (from->step == to->step - 1)
        expect_across(a, where, "slots", to->before, from->total);
    else
        most_across(a, where, "slots", to->total, from->total);
    if (a->still)
        most_across(a, where, "steps on their way", 1, to->step - from->step);
}

void lane_sums_compare(const struct lane_sums *lanes, size_t count, bool still, drift_fn *report, void *context)
{
    const struct across a = {lanes, count, still, report, context};
    char where[PLACE_SIZE];

    for (size_t i = 0; i < count; i++) {
        compare_elsewhere(&a, i);
        snprintf(where, sizeof where, "lane %zu", i);
        if (lanes[0].deleted)
            expect_across(&a, where, "takings of a deleted coupon", 0, head_takings(&lanes[i].head));
        if (i == 0)
            continue;
        compare_moves(&a, 0, i, &lanes[0].moves[i].to, &lanes[i].moves[0].from);
        compare_moves(&a, i, 0, &lanes[i].moves[0].to, &lanes[0].before[i].from);
        most_across(&a, where, "version", lanes[0].head.version, lanes[i].head.version);
    }
}
