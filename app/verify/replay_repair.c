/* verify/replay_repair.c -- see replay_repair.h. */
#include "verify/replay_repair.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "verify/replay_state.h"

struct reporting {
    struct replay *replay;
    bool all, superfluous; /* which repairs to report */
    repair_fn *report;
    void *context;
};

static void report_one(const struct reporting *t, enum fault fault, const char *where, struct rewrite write)
{
    if (!fault || (fault == FAULT_SUPERFLUOUS) != t->superfluous)
        return;
    write.remove = t->superfluous;
    write.lane = t->replay->part.lane;
    t->report(t->context, &(struct repair){fault, where, write});
}

static enum fault fault_of(const struct standing *s, bool all)
{
    int64_t wanted = all ? s->touched : s->needed;

    if (!s->stored)
        return wanted ? FAULT_MISSING : FAULT_NONE;
    if (!s->touched)
        return FAULT_SUPERFLUOUS;
    if (s->unreadable || !s->compared || s->differs)
        return FAULT_DIFFERENT;
    return s->view_seq < wanted ? FAULT_BEHIND : FAULT_NONE;
}

static int64_t found_seq(const struct standing *s)
{
    return s->stored && !s->unreadable ? s->view_seq : -1;
}

static void repair_definition(const struct reporting *t)
{
    const struct replay *r = t->replay;
    const struct standing *s = &r->definition_view.standing;

    if (r->part.lane == 0)
        report_one(t, fault_of(s, t->all), "definition",
                   (struct rewrite){.kind = REWRITE_COUPON, .found_seq = found_seq(s), .definition = r->definition, .seq = s->touched,
                                    .created_ms = r->first_ms, .changed_ms = r->changed_ms});
}

static void repair_totals(const struct reporting *t)
{
    char where[WHERE_SIZE], text[CLOCK_TEXT_SIZE];

    for (const struct totals_repair *one = t->replay->totals.repairs; one; one = one->next) {
        const struct totals_row *row = &one->row;

        snprintf(where, sizeof where, "quarter hour %s", clock_text(row->quarter_ms, text));
        report_one(t, one->fault, where,
                   (struct rewrite){.kind = REWRITE_TOTALS, .quarter_ms = row->quarter_ms, .found_seq = one->found_seq,
                                    .counts = row->counts, .by = row->by, .seq = row->seq});
    }
}

/* ---- the ledger ---- */

static void repair_indexes(const struct reporting *t)
{
    char where[WHERE_SIZE];

    for (const struct index_repair *one = t->replay->index_repairs; one; one = one->next) {
        snprintf(where, sizeof where, "seq %" PRId64, one->seq);
        report_one(t, FAULT_DIFFERENT, where, (struct rewrite){.kind = REWRITE_INDEX, .seq = one->seq});
    }
}

static void repair_erasures(const struct reporting *t)
{
    char where[WHERE_SIZE];

    for (const struct kept_user *u = t->replay->users.by_alias; u; u = u->hh.next) {
        if (!u->erased_seq || !u->named_seq || u->listed || u->unlistable)
            continue;
        snprintf(where, sizeof where, "alias %s", u->alias);
        report_one(t, FAULT_MISSING, where, (struct rewrite){.kind = REWRITE_ERASING, .alias = u->alias, .seq = u->erased_seq});
    }
}

void replay_repairs(struct replay *r, bool all, repair_fn *report, void *context)
{
    for (int pass = 0; pass < 2; pass++) {
        struct reporting t = {r, all, pass == 0, report, context};

        for (const struct bucket_state *s = r->bucket_states; s; s = s->hh.next) {
            char where[WHERE_SIZE];

            snprintf(where, sizeof where, "bucket %" PRId64, s->b);
            report_one(&t, fault_of(&s->standing, all), where,
                       (struct rewrite){.kind = REWRITE_BUCKET, .b = s->b, .found_seq = found_seq(&s->standing), .bucket = &s->bucket});
        }
        repair_erasures(&t);
        if (replay_is_first(r)) {
            repair_indexes(&t);
            repair_definition(&t);
            repair_totals(&t);
        }
    }
}

/* ---- positions in the totals ---- */

enum fault repair_of_totals_position(const struct stored_totals_position *m, const struct replay *r)
{
    if (!m->is_there)
        return FAULT_MISSING;
    if (!m->readable || m->seq > r->head.seq)
        return FAULT_DIFFERENT;
    return m->seq == r->written.totals_seq && r->position_at_ms && m->at_ms != r->position_at_ms ? FAULT_DIFFERENT : FAULT_NONE;
}
