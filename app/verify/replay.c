/* verify/replay.c -- see replay.h: batches and entries. The rules for entries: entry_check.c; what is stored beside the ledger:
 * replay_views.c. */
#include "verify/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "verify/compare.h"
#include "verify/entry_check.h"
#include "verify/replay_jobs.h"
#include "verify/replay_lanes.h"
#include "verify/replay_state.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"

#define RANGE_MOST INT64_C(1000000000) /* our ledgers have no longer ranges: one that has was tampered with */

/* ---- life ---- */

static struct replay *new_replay(const struct replay_parts *parts, const struct name_key *key, drift_fn *report, void *context)
{
    struct replay *r = checked(calloc(1, sizeof *r));

    r->trunk = r;
    r->name_key = key;
    r->lane = parts->lane;
    r->parts = *parts;
    r->report = report;
    r->context = context;
    r->totals.quarter_ms = -1;
    r->totals.repairs_end = &r->totals.repairs;
    arena_init(&r->arena, 0);
    if (pthread_mutex_init(&r->odd, NULL) != 0)
        abort();
    return r;
}

struct replay *replay_new(struct replay_parts parts, const struct name_key *key, drift_fn *report, void *context)
{
    return new_replay(&parts, key, report, context);
}

void replay_send(struct replay *whole, const struct replay_sink *sink)
{
    whole->sink = *sink;
}

struct replay *replay_part(struct replay *whole, unsigned part, drift_fn *report, void *context)
{
    struct replay *r = new_replay(&whole->parts, whole->name_key, report, context);

    r->trunk = whole;
    r->part = part;
    r->views_mark = whole->views_mark;
    r->codes_next_n = whole->codes_next_n;
    return r;
}

static void free_shelf(struct shelf *s)
{
    bucket_release(&s->bucket);
    if (s->view)
        bucket_release(s->view);
    free(s->view);
    free(s->codes);
    free(s);
}

void replay_free(struct replay *r)
{
    struct user *u, *next_user;
    struct shelf *s, *next_shelf;

    for (u = r->users; u; u = next_user) {
        next_user = u->hh.next;
        HASH_DELETE(hh, r->users, u);
    }
    for (s = r->shelves; s; s = next_shelf) {
        next_shelf = s->hh.next;
        HASH_DELETE(hh, r->shelves, s);
        free_shelf(s);
    }
    jobs_free(r);
    buf_free(&r->scratch);
    arena_free(&r->arena);
    pthread_mutex_destroy(&r->odd);
    free(r->erased_later);
    free(r);
}

struct replay_sums replay_sums(const struct replay *r)
{
    struct replay_sums sums = r->sums;

    sums.users = (int64_t)HASH_COUNT(r->users) + jobs_count(r);
    sums.buckets = (int64_t)HASH_COUNT(r->shelves);
    return sums;
}

int64_t replay_broken(const struct replay *r)
{
    return r->trunk->sums.broken;
}

const struct head *replay_tail(const struct replay *r)
{
    return &r->head;
}

const struct coupon *replay_definition(const struct replay *r)
{
    return r->definition;
}

void replay_sum(struct replay *r, struct lane_sums *sums)
{
    r->lane_sums = sums;
}

void replay_nameless(struct replay *r)
{
    r->nameless = true;
}

/* ---- entries: buckets ---- */

/* fold_bucket() takes a whole batch: to fold one entry, make it a batch of one that is always newer. */
static void fold_one(struct shelf *s, const struct batch *b, const struct entry *e)
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
    struct shelf *s = replay_shelf_of(r, bucket_of(e->n));
    int i = (int)(e->n % BUCKET_SLOTS);
    uint64_t bit = UINT64_C(1) << i;

    if (!s)
        return;
    check_slot(r, s, b, e, e->n);
    fold_one(s, b, e);
    s->owners[i] = s->bucket.slots[i].state == SLOT_FREE ? 0 : replay_hash(e->alias);
    s->forgotten = e->kind == ENTRY_FORGET ? s->forgotten | bit : s->forgotten & ~bit;
    s->unnamed = e->kind == ENTRY_EXTEND ? s->unnamed : s->unnamed & ~bit;
    standing_touch(&r->touched_shelves, &s->standing, b->head.seq);
}

/* Retire slots within one bucket. */
static void replay_range_in(struct replay *r, struct shelf *s, const struct batch *b, const struct entry *e)
{
    int64_t first = s->b * BUCKET_SLOTS, end = first + BUCKET_SLOTS;

    if (first < e->n)
        first = e->n;
    if (end > e->n + e->count)
        end = e->n + e->count;
    for (int64_t n = first; n < end; n++)
        check_slot(r, s, b, e, n);
    fold_one(s, b, e);
    standing_touch(&r->touched_shelves, &s->standing, b->head.seq);
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

/* The buckets of part `part` that e touches: [*first, *end); false: none. */
static bool buckets_in_part(const struct replay *r, unsigned part, const struct entry *e, int64_t *first, int64_t *end)
{
    if (!entry_buckets(e, first, end))
        return false;
    if (*first < part_first_bucket(&r->parts, part))
        *first = part_first_bucket(&r->parts, part);
    if (*end > part_end_bucket(&r->parts, part))
        *end = part_end_bucket(&r->parts, part);
    return *first < *end;
}

static void replay_range(struct replay *r, const struct batch *b, const struct entry *e)
{
    int64_t first, end;

    if (buckets_in_part(r, r->part, e, &first, &end))
        for (; first < end; first++)
            replay_range_in(r, replay_shelf_of(r, first), b, e);
}

/* ---- entries: users ---- */

static void note_name(struct replay *r, struct user *u, const struct entry *e, int64_t seq)
{
    if (u->standing.touched == 0)
        u->maybe_back = r->erasures > 0;
    u->nameless = u->nameless || !e->user;
    u->named_seq = e->user ? seq : u->named_seq;
    if (!u->user_state.user && e->user)
        u->user_state.user = arena_strdup(&r->arena, e->user);
}

static void replay_user(struct replay *r, const struct batch *b, const struct entry *e, const char *key)
{
    struct user *u = replay_user_of(r, key);
    struct entry mine = *e;

    if (!u)
        return;
    note_name(r, u, e, b->head.seq);
    check_user(r, u, b, e);
    mine.order = arena_strdup(&r->arena, e->order);
    mine.metadata = arena_strdup(&r->arena, e->metadata);
    mine.code = arena_strdup(&r->arena, e->code);
    fold_user_state_entry(&u->user_state, &mine, &b->head, b->lane, &r->arena);
    check_user_caps(r, u, b, e);
    if (e->kind == ENTRY_ERASE)
        u->erased_seq = b->head.seq;
    standing_touch(&r->touched_users, &u->standing, b->head.seq);
}

/* The key of its user; NULL: it has none. */
static const char *user_key(const struct entry *e)
{
    return entry_members[e->kind] & HAS_USER ? e->alias : NULL;
}

/* ---- entries: parts ---- */

static void send_entry(const struct replay *r, struct told_entry *t, unsigned part, bool of_slot, bool of_user)
{
    t->of_slot = of_slot;
    t->of_user = of_user;
    r->sink.entry(r->sink.context, part, t);
}

/* Send e to its user's part, and to each part that has one of its buckets. */
static void send_to_parts(const struct replay *r, const struct batch *b, const struct entry *e, bool of_slot)
{
    struct told_entry t = {.seq = b->head.seq, .at_ms = b->head.at_ms, .day_ms = b->head.day_ms, .epoch = b->head.epoch, .at = r->at,
                     .next_n = r->next_n, .after_erasure = r->erasures > 0, .definition = r->definition, .entry = *e};
    const char *key = user_key(e);
    unsigned users = key ? replay_part_of_user(r, key) : r->parts.parts, first, last;
    int64_t from, end;

    memcpy(t.batch_id, b->id, sizeof t.batch_id);
    first = last = (unsigned)-1;
    if (of_slot && !(entry_members[e->kind] & HAS_RANGE)) {
        first = last = part_of_bucket(&r->parts, bucket_of(e->n));
    } else if (of_slot && entry_buckets(e, &from, &end)) {
        first = part_of_bucket(&r->parts, from);
        last = part_of_bucket(&r->parts, end - 1);
        last = last == (unsigned)-1 ? r->parts.parts - 1 : last;
    }
    if (first != (unsigned)-1)
        for (unsigned part = first; part <= last; part++)
            send_entry(r, &t, part, true, part == users);
    if (key && (first == (unsigned)-1 || users < first || users > last))
        send_entry(r, &t, users, false, true);
}

/* ---- entries ---- */

static const struct coupon *definition_after(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct batch one = *b;

    one.entries = (struct entry *)e;
    one.count = 1;
    return fold_definition(r->definition, &one, &r->arena);
}

/* Apply e to slots and users. */
static void lay_entry(struct replay *r, const struct batch *b, const struct entry *e, bool of_slot, bool of_user)
{
    if (of_slot && (entry_members[e->kind] & HAS_RANGE))
        replay_range(r, b, e);
    else if (of_slot)
        replay_slot(r, b, e);
    if (of_user && user_key(e))
        replay_user(r, b, e, user_key(e));
}

static bool says_of_slots(struct replay *r, const struct batch *b, const struct entry *e)
{
    if (entry_members[e->kind] & HAS_RANGE)
        return range_is_sound(r, b, e);
    return (entry_members[e->kind] & HAS_SLOT) && e->n >= 0;
}

static void replay_entries(struct replay *r, const struct batch *b, bool follows)
{
    struct head h = r->head;

    h.seq = b->head.seq;
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (r->at = 0; r->at < (int64_t)b->count; r->at++) {
        const struct entry *e = &b->entries[r->at];
        struct head before = h;
        bool of_slot;

        fold_head_entry(&h, e);
        r->next_n = fold_next_n(&h, r->lane);
        r->definition = definition_after(r, b, e);
        if (follows) {
            check_coupon(r, &before, &h, b, e);
            check_turn(r, b, e);
            check_lane(r, b, e);
        }
        jobs_entry(r, b, e);
        of_slot = says_of_slots(r, b, e);
        if (replay_has_leaves(r))
            lay_entry(r, b, e, of_slot, true);
        else
            send_to_parts(r, b, e, of_slot);
        r->erasures += e->kind == ENTRY_ERASE;
    }
    if (follows) {
        check_definition(r, b);
        check_wish(r, b);
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

/* Note what a checkpoint must know of this batch. */
static void note_batch(struct replay *r, const struct batch *b, const uint8_t hash[HASH_LEN])
{
    bool erases = false;

    for (size_t i = 0; i < b->count; i++) {
        struct known_batch *known = b->entries[i].kind == ENTRY_DEFINE   ? &r->defined
                                    : b->entries[i].kind == ENTRY_DELETE ? &r->deleted
                                                                         : NULL;

        erases = erases || b->entries[i].kind == ENTRY_ERASE;
        if (!known)
            continue;
        known->seq = b->head.seq;
        memcpy(known->hash, hash, HASH_LEN);
    }
    if (!erases)
        return;
    r->erasures_told = arena_grown(&r->arena, r->erasures_told, r->erasures_told_count, &r->erasures_told_capacity,
                                   sizeof *r->erasures_told);
    r->erasures_told[r->erasures_told_count++] = (struct told_erasure){b->head.seq, b->head.at_ms};
}

void replay_hashed(struct replay *r, const struct batch *b, const uint8_t hash[HASH_LEN])
{
    r->sums.batches++;
    if (r->head.seq == 0)
        r->first_ms = b->head.at_ms;
    r->sums.entries += (int64_t)b->count;
    check_batch(r, b, hash);
    replay_entries(r, b, b->head.seq == r->head.seq + 1);
    replay_views_batch(r, b);
    totals_batch(r, b);
    note_batch(r, b, hash);
    if (r->lane_sums)
        lane_sums_batch(r->lane_sums, b);
    r->head = b->head;
}

void replay_batch(struct replay *r, const struct batch *b)
{
    uint8_t hash[HASH_LEN];

    batch_hash(b, &r->scratch, hash);
    replay_hashed(r, b, hash);
}

/* ---- a part ---- */

static void close_open(struct replay *r)
{
    if (r->is_open)
        replay_views_batch(r, &r->open);
    r->is_open = false;
}

void replay_entry(struct replay *r, const struct told_entry *t)
{
    if (!r->is_open || r->open.head.seq != t->seq) {
        close_open(r);
        r->is_open = true;
        memcpy(r->open.id, t->batch_id, sizeof r->open.id);
        r->open.lane = r->lane;
        r->open.head = (struct head){.seq = t->seq, .at_ms = t->at_ms, .day_ms = t->day_ms, .epoch = t->epoch};
    }
    r->at = t->at;
    r->next_n = t->next_n;
    r->erasures = t->after_erasure;
    r->definition = t->definition;
    lay_entry(r, &r->open, &t->entry, t->of_slot, t->of_user);
}

/* ---- the end ---- */

static void check_mark(struct replay *r, const char *kind, int64_t seq)
{
    if (seq < 0)
        replay_drift(r, "marks", kind, "mark", "one that can be read", "unreadable");
    else if (seq > r->head.seq)
        replay_drift_int(r, "marks", kind, "seq, beyond the ledger", r->head.seq, seq);
}

void replay_end(struct replay *r)
{
    close_open(r);
    r->definition = r->trunk->definition;
    replay_views_end(r);
    if (!replay_is_trunk(r))
        return;
    totals_end(r);
    check_mark(r, "views", r->views_mark);
    check_mark(r, "totals", r->totals_mark);
}
