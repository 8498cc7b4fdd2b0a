/* verify/replay_views.c -- see replay_views.h. */
#include "verify/replay_views.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "verify/compare.h"
#include "verify/replay_state.h"

/* ---- before the first batch ---- */

static void report_wrong(struct replay *r, const char *what, const char *where, const char *wrong)
{
    replay_drift(r, what, where, wrong, "as the service writes it", "another");
}

void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view, const char *wrong)
{
    struct bucket_state *s = replay_bucket_of(r, b);
    char where[WHERE_SIZE];

    if (!s || s->standing.stored)
        return;
    s->standing.stored = true;
    s->standing.unreadable = !view;
    if (!view)
        return;
    if (wrong) {
        snprintf(where, sizeof where, "bucket %" PRId64, b);
        report_wrong(r, "buckets", where, wrong);
        s->standing.differs = true;
    }
    s->view = checked(calloc(1, sizeof *s->view));
    bucket_copy(s->view, view);
    s->standing.view_seq = view->seq;
}

void replay_view_coupon(struct replay *r, const struct stored_coupon *stored)
{
    bool good = stored->definition != NULL;

    r->definition_view.view = stored->definition;
    r->definition_view.created_ms = stored->created_ms;
    r->definition_view.changed_ms = stored->changed_ms;
    r->definition_view.standing =
        (struct standing){.stored = stored->is_there, .unreadable = stored->is_there && !good, .view_seq = good ? stored->seq : 0};
    if (good && stored->wrong) {
        report_wrong(r, "coupons", "definition", stored->wrong);
        r->definition_view.standing.differs = true;
    }
}

void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS], const char *wrong)
{
    struct bucket_state *s = b < 0 || b * BUCKET_SLOTS >= r->codes_next_n ? NULL : replay_bucket_of(r, b); /* NULL: drafts, or another's */
    char where[WHERE_SIZE];

    if (!s)
        return;
    if (wrong) {
        snprintf(where, sizeof where, "bucket %" PRId64, b);
        report_wrong(r, "codes", where, wrong);
        r->sums.kept++;
    }
    if (!s->codes)
        s->codes = checked(calloc(BUCKET_SLOTS, sizeof *s->codes));
    for (int i = 0; i < BUCKET_SLOTS; i++)
        s->codes[i] = codes[i] && b * BUCKET_SLOTS + i < r->codes_next_n ? replay_hash(codes[i]) : 0;
}

/* ---- when a batch reaches them ---- */

/* Ignore the view's names of users erased later: the ledger no longer has them to compare. */
static void pass_names(const struct bucket_state *s)
{
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];

        if (slot->user || slot->state == SLOT_FREE || slot->state == SLOT_RETIRED || s->forgotten >> i & 1)
            continue;
        free(s->view->slots[i].user);
        s->view->slots[i].user = NULL;
    }
}

static void reach_bucket(struct replay *r, struct bucket_state *state, int64_t seq)
{
    char where[WHERE_SIZE];
    struct place place = {r, "buckets", where, false};

    if (!standing_passes(r, &state->standing, seq))
        return;
    snprintf(where, sizeof where, "bucket %" PRId64, state->b);
    pass_names(state);
    compare_bucket(&state->bucket, state->view, replay_differ, &place);
    state->standing.differs = state->standing.differs || place.differed;
    bucket_release(state->view);
    free(state->view);
    state->view = NULL;
}

static bool has_entry(const struct batch *b, enum entry_kind one, enum entry_kind other)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].kind == one || b->entries[i].kind == other)
            return true;
    return false;
}

static void close_definition(struct replay *r, const struct batch *b)
{
    struct place place = {r, "coupons", "definition", false};
    struct standing *s;

    if (r->part.lane > 0 || !has_entry(b, ENTRY_DEFINE, ENTRY_DELETE)) /* the view is lane 0's */
        return;
    r->changed_ms = b->head.at_ms;
    s = &r->definition_view.standing;
    s->touched = b->head.seq;
    if (!standing_passes(r, s, b->head.seq) || !r->definition)
        return;
    compare_coupon(r->definition, r->definition_view.view, replay_differ, &place);
    if (r->definition_view.created_ms != r->first_ms) {
        replay_drift_int(r, "coupons", "definition", "created", r->first_ms, r->definition_view.created_ms);
        place.differed = true;
    }
    if (r->definition_view.changed_ms != r->changed_ms) {
        replay_drift_int(r, "coupons", "definition", "changed", r->changed_ms, r->definition_view.changed_ms);
        place.differed = true;
    }
    s->differs = s->differs || place.differed;
}

void replay_views_batch(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_buckets, *next; s; s = next) {
        next = s->next_touched;
        reach_bucket(r, (struct bucket_state *)s, b->head.seq); /* its first member */
    }
    r->touched_buckets = NULL;
    if (!replay_is_first(r))
        return;
    close_definition(r, b);
    /* The position's time is that of its batch. */
    if (b->head.seq != r->written.totals_seq)
        return;
    r->position_at_ms = b->head.at_ms;
    if (r->written.totals_at_ms != r->position_at_ms)
        replay_drift_int(r, "totals_positions", "totals", "at", b->head.at_ms, r->written.totals_at_ms);
}

/* ---- users who are erased meanwhile ---- */

void replay_later_erasures(struct replay *r, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->entries[i].kind != ENTRY_ERASE)
            continue;
        r->erased_later = checked_grown(r->erased_later, r->erased_later_count, &r->erased_later_capacity,
                                        sizeof *r->erased_later);
        r->erased_later[r->erased_later_count++] = replay_hash(b->entries[i].alias);
    }
}

static bool is_erased_later(const struct replay *r, uint64_t owner)
{
    for (size_t i = 0; i < r->erased_later_count; i++)
        if (r->erased_later[i] == owner)
            return true;
    return false;
}

static bool has_unlisted_name(const struct kept_user *u)
{
    return u->erased_seq && u->named_seq && !u->listed && !u->unlistable;
}

void replay_look_again(struct replay *r, name_stays_fn *stays, void *context)
{
    for (struct kept_user *u = r->users.by_alias; u; u = u->hh.next)
        if (has_unlisted_name(u) && !stays(context, u->alias, u->named_seq))
            u->named_seq = 0;
}

/* ---- the end ---- */

/* Only an erased user's alias may lack the name; and the batch that erases a user lists the alias until no name is left. */
static void end_users(struct replay *r)
{
    char where[WHERE_SIZE];

    for (const struct kept_user *u = r->users.by_alias; u; u = u->hh.next) {
        snprintf(where, sizeof where, "alias %s", u->alias);
        if (u->nameless && !u->erased_seq && !r->nameless && !is_erased_later(r, replay_hash(u->alias)))
            replay_drift(r, "ledger", where, "user", "a name: not erased", "none");
        if (has_unlisted_name(u))
            replay_drift(r, "ledger", where, "erasing", "listed: there are still names", "not listed");
    }
}

/* At the end each taken slot must have a name, or be forgotten. */
static void end_slots(struct replay *r, const struct bucket_state *s)
{
    char where[WHERE_SIZE];

    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];
        bool taken = slot->state != SLOT_FREE && slot->state != SLOT_RETIRED;

        if (!taken || slot->user || r->nameless || s->forgotten >> i & 1 || is_erased_later(r, s->owners[i]))
            continue;
        snprintf(where, sizeof where, "slot %" PRId64, s->b * BUCKET_SLOTS + i);
        replay_drift(r, "ledger", where, "user", "a name, or forgotten", "neither");
    }
}

/* If the coupon has codes, each slot must have one, touched or not. A retired slot's may have been cleaned up. */
static void end_codes(struct replay *r)
{
    int64_t b = part_first_bucket(&r->part), end = bucket_of(r->codes_next_n + BUCKET_SLOTS - 1);
    char where[WHERE_SIZE];

    if (!r->definition || !coupon_slots_have_codes(r->definition))
        return;
    if (end > part_end_bucket(&r->part))
        end = part_end_bucket(&r->part);
    for (; b < end; b++) {
        struct bucket_state *s;

        HASH_FIND(hh, r->bucket_states, &b, sizeof b, s);
        for (int i = 0; i < BUCKET_SLOTS && b * BUCKET_SLOTS + i < r->codes_next_n; i++) {
            if ((s && s->codes && s->codes[i]) || (s && s->bucket.slots[i].state == SLOT_RETIRED))
                continue;
            snprintf(where, sizeof where, "slot %" PRId64, b * BUCKET_SLOTS + i);
            replay_drift(r, "codes", where, "code", "one", "none");
        }
    }
}

void replay_views_end(struct replay *r)
{
    char where[WHERE_SIZE];

    end_users(r);
    for (struct bucket_state *s = r->bucket_states; s; s = s->hh.next) {
        if (s->standing.touched || s->standing.stored) { /* codes alone make no bucket */
            snprintf(where, sizeof where, "bucket %" PRId64, s->b);
            standing_end(r, &s->standing, "buckets", where);
        }
        end_slots(r, s);
    }
    end_codes(r);
    if (replay_is_first(r))
        standing_end(r, &r->definition_view.standing, "coupons", "definition");
}

/* ---- totals, one quarter hour after the other ---- */

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
    for (size_t i = 0; i < count; i++)
        if (rows[i].lane == r->part.lane)
            t->rows[t->count++] = rows[i];
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
    bool ahead = row && row->counts && t->compared && row->seq > t->needed; /* the position follows the rows */
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
        if (b->head.seq <= r->written.totals_seq) {
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
