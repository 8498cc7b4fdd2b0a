/* verify/replay_ends.c -- see replay_ends.h. */
#include "verify/replay_ends.h"

#include <string.h>

static void note_due(void *context, const struct redemption *r)
{
    struct lane_ends *e = context;

    e->due_ms = sooner_ms(redemption_due(r, e->ends_ms), e->due_ms);
}

/* Without slots, a batch is found by the ends that it made, until the sweep has passed them. In an issued redemption, a later batch may
 * have brought back its end: then only a sweep beyond that instant has passed it for certain. */
static bool is_passed(const struct lane_ends *e, const struct redemption *r)
{
    const struct checkpoint *c = &e->found.checkpoint;
    int64_t due_ms = redemption_due(r, 0), seq = r->state == SLOT_RESERVED ? r->last_seq : e->tail_seq;

    if (r->n >= 0 || !due_ms)
        return false;
    return due_ms < c->swept_ms || (due_ms == c->swept_ms && seq <= c->swept_seq);
}

static void note_tail(void *context, const struct redemption *r)
{
    struct lane_ends *e = context;

    e->due_tail_ms = sooner_ms(redemption_due(r, e->ends_ms), e->due_tail_ms);
    if (!is_passed(e, r))
        return;
    e->unswept = true;
    e->unswept_ms = redemption_due(r, 0);
}

void lane_ends_batch(struct lane_ends *e, const struct kept_users *users, const struct code_uses *uses, const struct coupon *definition,
                     int64_t seq)
{
    e->ends_ms = coupon_ends(definition);
    if (seq != e->found.checkpoint.seq)
        return;
    kept_users_each(users, note_due, e);
    if (uses)
        code_uses_copy(&e->uses, uses);
}

void lane_ends_release(struct lane_ends *e)
{
    code_uses_release(&e->uses);
    code_uses_release(&e->uses_tail);
}

void lane_ends_end(struct lane_ends *e, const struct kept_users *users, const struct code_uses *uses, int64_t tail_seq)
{
    if (uses)
        code_uses_copy(&e->uses_tail, uses);
    if (!e->tail_seq || tail_seq < e->tail_seq)
        e->tail_seq = tail_seq; /* parts may be replayed one after another, while the ledger grows */
    kept_users_each(users, note_tail, e);
}

static bool swept_is_ahead(const struct lane_ends *e)
{
    return e->now_ms && e->found.checkpoint.swept_ms > e->now_ms;
}

static bool due_is_wrong(const struct lane_ends *e)
{
    return e->due_ms && (!e->found.checkpoint.due_ms || e->found.checkpoint.due_ms > e->due_ms);
}

/* The first code whose stored row is not the one expected; NULL: none. */
static const char *wrong_use(const struct lane_ends *e)
{
    const struct code_uses *found = e->found.checkpoint.uses, *expected = &e->uses;
    size_t count = found ? found->count : 0;

    for (size_t i = 0; i < count || i < expected->count; i++) {
        const struct code_use *a = i < count ? &found->rows[i] : NULL, *b = i < expected->count ? &expected->rows[i] : NULL;

        if (!a || !b || strcmp(a->code, b->code) != 0 || a->used != b->used || a->held != b->held)
            return b ? b->code : a->code;
    }
    return NULL;
}

static void report_mismatch(drift_fn *report, void *context, const char *field, const char *relation, int64_t expected, int64_t found)
{
    drift_numbers(report, context, (struct drift){"lanes", "checkpoint", field, NULL, NULL}, relation, expected, found);
}

void lane_ends_report(const struct lane_ends *e, drift_fn *report, void *context)
{
    const struct checkpoint *c = &e->found.checkpoint;

    if (!e->found.is_there)
        return;
    if (!e->found.readable) {
        report(context, &(struct drift){"lanes", "checkpoint", "view", "one that can be read", "unreadable"});
        return;
    }
    if (e->found.wrong)
        report(context, &(struct drift){"lanes", "checkpoint", e->found.wrong, "as the service writes it", "another"});
    if (c->seq > e->tail_seq)
        report_mismatch(report, context, "seq, beyond the ledger", "", e->tail_seq, c->seq);
    else if (due_is_wrong(e))
        report_mismatch(report, context, "due", "at most ", e->due_ms, c->due_ms);
    if (c->seq <= e->tail_seq && wrong_use(e))
        report(context, &(struct drift){"lanes", "checkpoint", "codes", "as often as the ledger uses each", wrong_use(e)});
    if (e->unswept)
        report_mismatch(report, context, "swept", "at most ", e->unswept_ms, c->swept_ms);
    else if (swept_is_ahead(e))
        report_mismatch(report, context, "swept", "at most ", e->now_ms, c->swept_ms);
}

enum fault lane_ends_fault(const struct lane_ends *e, bool catch_up)
{
    if (!e->found.is_there)
        return catch_up && e->tail_seq ? FAULT_MISSING : FAULT_NONE;
    if (!e->found.readable || e->found.wrong || e->found.checkpoint.seq > e->tail_seq || due_is_wrong(e) || e->unswept ||
        swept_is_ahead(e) || wrong_use(e))
        return FAULT_DIFFERENT;
    return catch_up && e->found.checkpoint.seq < e->tail_seq ? FAULT_BEHIND : FAULT_NONE;
}

struct checkpoint lane_ends_repaired(const struct lane_ends *e, bool catch_up)
{
    bool keeps = !catch_up && e->found.readable && e->found.checkpoint.seq <= e->tail_seq;

    return (struct checkpoint){.seq = keeps ? e->found.checkpoint.seq : e->tail_seq, .due_ms = keeps ? e->due_ms : e->due_tail_ms,
                               .uses = keeps ? &e->uses : &e->uses_tail};
}
