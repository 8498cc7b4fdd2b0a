/* reporter/batch_counts.c -- see batch_counts.h. */
#include "reporter/batch_counts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void batch_counts_of(struct batch_counts *t, const struct batch *b)
{
    *t = (struct batch_counts){.lane = b->lane, .seq = b->head.seq, .at_ms = b->head.at_ms, .arrived = b->arrived};
    snprintf(t->coupon, sizeof t->coupon, "%s", b->coupon);
    fold_report(&t->counts, b);
    code_counts_fold(&t->codes, b);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->kind == ENTRY_REPLENISH)
            t->replenish_until = e->count;
        else if (e->kind == ENTRY_DEFINE || e->kind == ENTRY_DELETE)
            t->leads = b->lanes > 1 && b->lane == 0;
        if (e->kind == ENTRY_DEFINE && e->job && strlen(e->job) < sizeof t->job) {
            t->first_slots = e->count;
            memcpy(t->job, e->job, strlen(e->job) + 1);
            snprintf(t->by, sizeof t->by, "%s", e->by ? e->by : "");
        }
    }
}

void batch_counts_release(struct batch_counts *t)
{
    code_counts_release(&t->codes);
}

void run_release(struct run *run)
{
    code_counts_release(&run->codes);
}

void batch_counts_of_unread(struct batch_counts *t, const struct batch_key *unread, int64_t now_ms)
{
    *t = (struct batch_counts){.lane = unread->lane, .seq = unread->seq, .at_ms = now_ms, .arrived = unread->arrived, .unread = true};
    snprintf(t->coupon, sizeof t->coupon, "%s", unread->coupon);
}

static bool lay_into(struct run *run, const struct batch_counts *t)
{
    if (run->of != t->of || run->quarter_ms != quarter_of(t->at_ms) || run->last_seq + 1 != t->seq)
        return false;
    run->last_seq = t->seq;
    report_counts_add(&run->counts, &t->counts);
    code_counts_merge(&run->codes, &t->codes);
    return true;
}

static struct run run_of(const struct batch_counts *t)
{
    struct run run = {t->of, quarter_of(t->at_ms), t->seq, t->seq, t->counts, {.rows = NULL}};

    code_counts_merge(&run.codes, &t->codes);
    return run;
}

static bool adds_nothing(const struct run *run)
{
    static const struct report_counts none;

    return memcmp(&run->counts, &none, sizeof none) == 0;
}

size_t runs_build(const struct batch_counts *batches, size_t count, struct run *runs)
{
    size_t made = 0, kept = 0;

    for (size_t i = 0; i < count; i++) {
        size_t r = made;

        if (!batches[i].of)
            continue;
        while (r > 0 && !lay_into(&runs[r - 1], &batches[i]))
            r--;
        if (r == 0)
            runs[made++] = run_of(&batches[i]);
    }
    for (size_t r = 0; r < made; r++)
        if (!adds_nothing(&runs[r]))
            runs[kept++] = runs[r];
    return kept;
}

bool run_trim(struct run *run, int64_t stored_seq, const struct batch_counts *batches, size_t count)
{
    const struct run whole = *run;
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        const struct batch_counts *t = &batches[i];

        if (t->of != whole.of || t->seq <= stored_seq || t->seq < whole.first_seq || t->seq > whole.last_seq)
            continue;
        if (any) {
            bool laid = lay_into(run, t);

            assert(laid); /* it was in the same run before */
            continue;
        }
        run_release(run);
        *run = run_of(t);
        any = true;
    }
    return any;
}

struct totals_write run_write(struct run *run)
{
    assert(run->of && run->first_seq > 0 && run->first_seq <= run->last_seq);
    return (struct totals_write){
        .coupon = run->of->coupon, .lane = run->of->lane, .quarter_ms = run->quarter_ms,
        .first_seq = run->first_seq, .last_seq = run->last_seq, .counts = &run->counts, .by = &run->codes,
    };
}
