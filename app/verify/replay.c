/* verify/replay.c -- see replay.h: batches and entries. The rules for entries: entry_check.c; what is stored beside the ledger:
 * replay_views.c. */
#include "verify/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/form.h"
#include "verify/compare.h"
#include "verify/entry_check.h"
#include "verify/replay_ends.h"
#include "verify/replay_lanes.h"
#include "verify/replay_state.h"
#include "verify/replay_views.h"

#define RANGE_MOST INT64_C(1000000000) /* our ledgers have no longer ranges: one that has was tampered with */

/* ---- life ---- */

struct replay *replay_new(const struct part *part, drift_fn *report, void *context)
{
    struct replay *r = checked(calloc(1, sizeof *r));

    r->part = *part;
    r->report = report;
    r->context = context;
    r->totals.quarter_ms = -1;
    r->totals.repairs_end = &r->totals.repairs;
    r->index_repairs_end = &r->index_repairs;
    r->slot = -1;
    arena_init(&r->arena, 0);
    return r;
}

void replay_free(struct replay *r)
{
    struct bucket_state *s, *next_state;
    struct job_row *job, *next_job;

    for (s = r->bucket_states; s; s = next_state) {
        next_state = s->hh.next;
        HASH_DELETE(hh, r->bucket_states, s);
        bucket_release(&s->bucket);
        if (s->view)
            bucket_release(s->view);
        free(s->view);
        free(s->codes);
        free(s);
    }
    for (job = r->jobs; job; job = next_job) {
        next_job = job->hh.next;
        HASH_DELETE(hh, r->jobs, job);
    }
    kept_users_release(&r->users);
    code_uses_release(&r->uses);
    totals_release(r);
    buf_free(&r->scratch);
    arena_free(&r->arena);
    free(r->erased_later);
    free(r);
}

/* ---- entries: buckets ---- */

/* fold_bucket() takes a whole batch: to fold one entry, make it a batch of one that is always newer. */
static void fold_one(struct bucket_state *s, const struct batch *b, const struct entry *e)
{
    struct batch one = *b;

    one.entries = (struct entry *)e;
    one.count = 1;
    if (s->bucket.seq > 0)
        s->bucket.seq = b->head.seq - 1;
    fold_bucket(&s->bucket, &one);
}

static void replay_slot(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct bucket_state *s = replay_bucket_of(r, bucket_of(e->n));
    int i = (int)(e->n % BUCKET_SLOTS);
    uint64_t bit = UINT64_C(1) << i;

    if (!s)
        return;
    check_slot(r, s, b, e, e->n);
    fold_one(s, b, e);
    s->owners[i] = s->bucket.slots[i].state == SLOT_FREE ? 0 : replay_hash(e->alias);
    s->forgotten = e->kind == ENTRY_FORGET ? s->forgotten | bit : s->forgotten & ~bit;
    standing_touch(&r->touched_buckets, &s->standing, b->head.seq);
}

/* Retire slots within one bucket. */
static void replay_range_in(struct replay *r, struct bucket_state *s, const struct batch *b, const struct entry *e)
{
    int64_t first = s->b * BUCKET_SLOTS, end = first + BUCKET_SLOTS;

    if (first < e->n)
        first = e->n;
    if (end > e->n + e->count)
        end = e->n + e->count;
    for (int64_t n = first; n < end; n++)
        check_slot(r, s, b, e, n);
    fold_one(s, b, e);
    standing_touch(&r->touched_buckets, &s->standing, b->head.seq);
}

/* Making a range touches no bucket, and its start is checked with the totals. */
static bool range_is_sound(struct replay *r, const struct batch *b, const struct entry *e)
{
    char where[WHERE_SIZE];

    if (e->kind == ENTRY_RETIRE && (e->n < 0 || e->count < 1 || e->n > r->next_n - e->count)) { /* report it once, not per slot */
        replay_drift(r, "ledger", replay_entry_place(r, where, b), "slots", "generated before", "never generated");
        return false;
    }
    if (e->n >= 0 && e->count >= 1 && e->count <= RANGE_MOST && e->n <= INT64_MAX - RANGE_MOST - BUCKET_SLOTS)
        return true;
    replay_drift_int(r, "ledger", replay_entry_place(r, where, b), "count", 1, e->count);
    return false;
}

static void replay_range(struct replay *r, const struct batch *b, const struct entry *e)
{
    int64_t first, end;

    if (!entry_buckets(e, &first, &end))
        return;
    if (first < part_first_bucket(&r->part))
        first = part_first_bucket(&r->part);
    if (end > part_end_bucket(&r->part))
        end = part_end_bucket(&r->part);
    for (; first < end; first++)
        replay_range_in(r, replay_bucket_of(r, first), b, e);
}

/* ---- entries: users ---- */

static bool is_listed(const struct stored_batch *stored, const char *alias)
{
    for (size_t i = 0; stored && i < stored->erasing.count; i++)
        if (strcmp(stored->erasing.items[i], alias) == 0)
            return true;
    return false;
}

static void replay_user(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct live_user *u = kept_users_live(&r->users, e->alias);
    struct entry mine = *e;

    u->kept->nameless = u->kept->nameless || !e->user;
    u->kept->named_seq = e->user ? b->head.seq : u->kept->named_seq;
    check_name(r, b, e);
    check_user(r, u, b, e);
    mine.order = mine.metadata = mine.code = NULL; /* nothing is checked by them */
    mine.shared = kept_users_code(&r->users, e->shared);
    fold_user_state_entry(&u->user_state, &mine, &b->head, b->lane, &r->users.batch);
    check_user_caps(r, u, b, e);
    if (e->kind == ENTRY_ERASE) {
        u->kept->erased_seq = b->head.seq;
        u->kept->listed = is_listed(r->stored, u->kept->alias);
        u->kept->unlistable = r->stored && !r->stored->erasing_readable;
    }
}

/* ---- entries ---- */

static const struct coupon *definition_after(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct batch one = *b;

    one.entries = (struct entry *)e;
    one.count = 1;
    return fold_definition(r->definition, &one, &r->arena);
}

/* Apply e to slots and users of this part. */
static void apply_entry(struct replay *r, const struct batch *b, const struct entry *e)
{
    unsigned has = entry_members[e->kind];

    if ((has & HAS_RANGE) && range_is_sound(r, b, e))
        replay_range(r, b, e);
    else if (!(has & HAS_RANGE) && (has & HAS_SLOT) && e->n >= 0)
        replay_slot(r, b, e);
    if ((has & HAS_USER) && replay_has_user(r, e->alias))
        replay_user(r, b, e);
}

/* follows: and the first part. */
static void replay_entries(struct replay *r, const struct batch *b, bool follows)
{
    struct head h = r->head;

    h.seq = b->head.seq;
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (r->at = 0; r->at < (int64_t)b->count; r->at++) {
        const struct entry *e = &b->entries[r->at];
        struct head before = h;

        fold_head_entry(&h, e);
        r->next_n = fold_next_n(&h, r->part.lane);
        r->definition = definition_after(r, b, e);
        if (replay_is_first(r) && r->definition && r->definition->codes.shared_cap != COUPON_NULL) {
            r->uses.match = (enum codes_match)r->definition->codes.match;
            code_uses_fold(&r->uses, e);
        }
        if (follows) {
            check_coupon(r, &before, &h, b, e);
            check_turn(r, b, e);
            check_lane(r, b, e);
        }
        if (replay_is_first(r) && e->job) {
            struct job_row *row = replay_job_of(r, e->job);

            if (row) {
                check_job(r, &row->progress, b, e);
                fold_job_entry(&row->progress, e, &b->head);
            }
        }
        apply_entry(r, b, e);
    }
    if (follows) {
        check_definition(r, b);
        check_first_slots(r, b);
        check_events(r, b);
    }
}

/* ---- a batch ---- */

static void check_head(struct replay *r, const struct batch *b, const char *wrong)
{
    struct head h = r->head;
    char where[WHERE_SIZE];
    struct place place = {r, "ledger", where, false};

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    h.seq = b->head.seq;
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++)
        fold_head_entry(&h, &b->entries[i]);
    compare_head(&h, &b->head, replay_differ, &place);
    if (!place.differed)
        replay_drift(r, "ledger", where, wrong, NULL, NULL);
}

/* Check seq, hash, chain and totals. Later checks start from b's own totals, so that a drift is not reported again with every batch
 * after it. */
static void check_batch(struct replay *r, const struct batch *b, const uint8_t hash[HASH_LEN])
{
    char where[WHERE_SIZE];
    const char *wrong;
    int64_t gap = b->head.seq - r->head.seq - 1, before = r->sums.drifts;

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    if (memcmp(hash, b->head.hash, HASH_LEN) != 0)
        replay_drift(r, "ledger", where, "hash", "that of its line", "another");
    if (gap != 0) {
        snprintf(where, sizeof where, "seq %" PRId64, r->head.seq + 1);
        replay_drift_int(r, "ledger", where, gap > 0 ? "batches missing" : "batches in order", 0, gap);
    } else { /* after a gap its chain and totals cannot be checked */
        wrong = batch_contradiction(&r->head, b);
        if (wrong)
            check_head(r, b, wrong);
    }
    r->sums.broken += r->sums.drifts - before;
}

/* ---- what is stored with a batch ---- */

static bool erases(const struct batch *b, const char *alias)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].kind == ENTRY_ERASE && strcmp(b->entries[i].alias, alias) == 0)
            return true;
    return false;
}

static void check_stored(struct replay *r, const struct stored_batch *stored)
{
    const struct batch *b = stored->batch;
    char where[WHERE_SIZE];

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    if (stored->wrong) {
        bool is_index = form_is_index(stored->wrong);

        replay_drift(r, "ledger", where, stored->wrong,
                     is_index ? "what its entries and names say" : "as the service writes it", "another");
        if (is_index) {
            struct index_repair *repair = arena_alloc(&r->arena, sizeof *repair);

            repair->seq = b->head.seq;
            *r->index_repairs_end = repair;
            r->index_repairs_end = &repair->next;
        } else {
            r->sums.kept++;
        }
    }
    if (!stored->erasing_readable) {
        replay_drift(r, "ledger", where, "erasing", "a list of aliases", "another");
        r->sums.kept++;
    }
    for (size_t i = 0; i < stored->erasing.count; i++)
        if (!erases(b, stored->erasing.items[i])) {
            replay_drift(r, "ledger", where, "erasing", "an alias that the batch erases", stored->erasing.items[i]);
            r->sums.kept++;
        }
}

/* hash NULL: unknown, and not needed. */
static void replay_one(struct replay *r, const struct batch *b, const struct stored_batch *stored, const uint8_t *hash)
{
    bool first = replay_is_first(r);

    r->stored = stored;
    if (r->head.seq == 0)
        r->first_ms = b->head.at_ms;
    if (first) {
        r->sums.batches++;
        r->sums.entries += (int64_t)b->count;
        check_batch(r, b, hash);
    }
    replay_entries(r, b, first && b->head.seq == r->head.seq + 1);
    kept_users_settle(&r->users, &b->head);
    if (r->lane_ends)
        lane_ends_batch(r->lane_ends, &r->users, first ? &r->uses : NULL, r->definition, b->head.seq);
    replay_views_batch(r, b);
    if (first) {
        totals_batch(r, b);
        if (stored)
            check_stored(r, stored);
        if (r->lane_sums)
            lane_sums_batch(r->lane_sums, b);
    }
    r->head = b->head;
    r->stored = NULL;
}

void replay_stored(struct replay *r, const struct stored_batch *stored, const uint8_t hash[HASH_LEN])
{
    replay_one(r, stored->batch, stored, hash);
}

void replay_batch(struct replay *r, const struct batch *b)
{
    uint8_t hash[HASH_LEN];

    if (replay_is_first(r))
        batch_hash(b, &r->scratch, hash);
    replay_one(r, b, NULL, hash);
}

/* ---- the end ---- */

void replay_end(struct replay *r)
{
    replay_views_end(r);
    if (r->lane_ends)
        lane_ends_end(r->lane_ends, &r->users, replay_is_first(r) ? &r->uses : NULL, r->head.seq);
    if (!replay_is_first(r))
        return;
    totals_end(r);
    if (r->written.totals_seq < 0)
        replay_drift(r, "totals_positions", "totals", "position", "one that can be read", "unreadable");
    else if (r->written.totals_seq > r->head.seq)
        replay_drift_int(r, "totals_positions", "totals", "seq, beyond the ledger", r->head.seq, r->written.totals_seq);
}
