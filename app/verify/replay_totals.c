/* verify/replay_totals.c -- see replay_totals.h. */
#include "verify/replay_totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "verify/compare.h"
#include "verify/replay_state.h"

static const struct report_counts no_counts;

static int by_quarter(const void *a, const void *b)
{
    const struct totals_row *x = a, *y = b;

    return (x->quarter_ms > y->quarter_ms) - (x->quarter_ms < y->quarter_ms);
}

void replay_totals(struct replay *r, const struct totals_row *rows, size_t count)
{
    struct totals_state *t = &r->totals;

    t->rows = arena_array(&r->arena, count + 1, sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        struct totals_row *row = &t->rows[t->count];

        if (rows[i].lane != r->part.lane)
            continue;
        *row = rows[i];
        if (rows[i].counts) {
            row->counts = arena_alloc(&r->arena, sizeof *row->counts);
            *row->counts = *rows[i].counts;
            row->by = rows[i].by ? code_counts_in(&r->arena, rows[i].by) : NULL;
        }
        t->count++;
    }
    if (t->count)
        qsort(t->rows, t->count, sizeof *rows, by_quarter);
}

static const char *quarter_place(char where[WHERE_SIZE], int64_t quarter_ms)
{
    char text[CLOCK_TEXT_SIZE];

    snprintf(where, WHERE_SIZE, "quarter hour %s", clock_text(quarter_ms, text));
    return where;
}

/* seq 0: there should be no row. */
static void note_repair(struct replay *r, enum fault fault, const struct totals_row *found, int64_t quarter_ms,
                        int64_t seq, const struct report_counts *counts, const struct code_counts *by)
{
    struct totals_repair *repair = arena_alloc(&r->arena, sizeof *repair);

    *repair = (struct totals_repair){.fault = fault, .found_seq = found && found->counts ? found->seq : -1};
    repair->row = (struct totals_row){.lane = r->part.lane, .quarter_ms = quarter_ms, .seq = seq};
    if (seq) {
        repair->row.counts = arena_alloc(&r->arena, sizeof *repair->row.counts);
        *repair->row.counts = *counts;
        if (by->count || (found && found->by))
            repair->row.by = code_counts_in(&r->arena, by);
    }
    *r->totals.repairs_end = repair;
    r->totals.repairs_end = &repair->next;
}

/* Report rows before quarter_ms that no batch led to. */
static void pass_rows(struct replay *r, int64_t quarter_ms)
{
    struct totals_state *t = &r->totals;
    char where[WHERE_SIZE];

    for (; t->next < t->count && t->rows[t->next].quarter_ms < quarter_ms; t->next++) {
        const struct totals_row *row = &t->rows[t->next];

        replay_drift(r, "totals", quarter_place(where, row->quarter_ms), "row", "none", "one");
        note_repair(r, FAULT_SUPERFLUOUS, row, row->quarter_ms, 0, NULL, NULL);
    }
}

static const struct totals_row *row_at_hand(const struct replay *r)
{
    const struct totals_state *t = &r->totals;

    if (t->next >= t->count || t->rows[t->next].quarter_ms != t->quarter_ms)
        return NULL;
    return &t->rows[t->next];
}

/* Report and return what is wrong with the current quarter hour's row. */
static enum fault judge_row(struct replay *r, const struct totals_row *row)
{
    const struct totals_state *t = &r->totals;
    char where[WHERE_SIZE];

    quarter_place(where, t->quarter_ms);
    if (!row && !t->needed)
        return FAULT_NONE;
    if (row && !row->counts) {
        replay_drift(r, "totals", where, "row", "one that can be read", "unreadable");
        return FAULT_DIFFERENT;
    }
    if (row && !t->last && !(t->compared && !t->differs)) { /* a row of zeros does no harm */
        replay_drift(r, "totals", where, "row", "none", "one");
        return FAULT_SUPERFLUOUS;
    }
    if (!row || row->seq < t->needed) {
        replay_drift_int(r, "totals", where, "seq", t->needed, row ? row->seq : 0);
        return !row ? FAULT_MISSING : t->compared && !t->differs ? FAULT_BEHIND : FAULT_DIFFERENT;
    }
    if (!t->compared)
        replay_drift(r, "totals", where, "seq", "of a batch in it", "of none");
    return t->compared && !t->differs ? FAULT_NONE : FAULT_DIFFERENT;
}

static void close_quarter(struct replay *r)
{
    struct totals_state *t = &r->totals;
    const struct totals_row *row = row_at_hand(r);
    bool ahead = row && row->counts && t->compared && row->seq > t->needed; /* the mark follows the rows */
    enum fault fault;

    if (t->quarter_ms < 0)
        return;
    fault = judge_row(r, row);
    if (fault == FAULT_SUPERFLUOUS || (fault && !ahead && !t->needed))
        note_repair(r, FAULT_SUPERFLUOUS, row, t->quarter_ms, 0, NULL, NULL);
    else if (fault)
        note_repair(r, fault, row, t->quarter_ms, ahead ? row->seq : t->needed, ahead ? &t->sum_row : &t->sum_needed,
                    ahead ? &t->by_row : &t->by_needed);
    if (row)
        t->next++;
    t->needed = t->last = 0;
    t->compared = t->differs = false;
    t->sum = no_counts;
    t->by.count = 0;
}

/* The row is as of this batch: compare it. */
static void compare_row(struct replay *r, const struct totals_row *row)
{
    static const struct code_counts no_codes;
    struct totals_state *t = &r->totals;
    char where[WHERE_SIZE];
    const struct code_count *differs = code_counts_difference(&t->by, row->by ? row->by : &no_codes);
    struct place place = {r, "totals", where, false};

    t->compared = true;
    t->sum_row = t->sum;
    code_counts_copy(&t->by_row, &t->by);
    quarter_place(where, t->quarter_ms);
    compare_counts(&t->sum, row->counts, replay_differ, &place);
    if (differs)
        replay_differ(&place, "by", "what the ledger says of each code and currency", differs->code[0] ? differs->code : differs->currency);
    t->differs = place.differed;
}

void totals_batch(struct replay *r, const struct batch *b)
{
    struct totals_state *t = &r->totals;
    struct report_counts counts = no_counts;
    const struct totals_row *row;
    int64_t quarter_ms = quarter_of(b->head.at_ms);

    if (quarter_ms != r->totals.quarter_ms) {
        close_quarter(r);
        pass_rows(r, quarter_ms);
        r->totals.quarter_ms = quarter_ms;
    }
    fold_report(&counts, b);
    fold_report(&t->sum, b);
    code_counts_fold(&t->by, b);
    if (memcmp(&counts, &no_counts, sizeof counts) != 0) {
        t->last = b->head.seq;
        if (b->head.seq <= r->marks.totals_seq) {
            t->needed = b->head.seq;
            t->sum_needed = t->sum;
            code_counts_copy(&t->by_needed, &t->by);
        }
    }
    row = row_at_hand(r);
    if (row && row->counts && row->seq == b->head.seq)
        compare_row(r, row);
}

void totals_release(struct replay *r)
{
    code_counts_release(&r->totals.by);
    code_counts_release(&r->totals.by_needed);
    code_counts_release(&r->totals.by_row);
}

void totals_end(struct replay *r)
{
    close_quarter(r);
    pass_rows(r, INT64_MAX);
}
