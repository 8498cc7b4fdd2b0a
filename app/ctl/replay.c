/* ctl/replay.c -- see replay.h: a lane's life told again. What entries must obey: replay_check.c;
 * what is stored beside the ledger: replay_views.c. */
#include "ctl/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "ctl/compare.h"
#include "ctl/replay_state.h"

#define RANGE_MOST INT64_C(1000000000) /* no ledger of ours has longer ranges: what says so was tampered with */

/* ---- reporting ---- */

void replay_drift(struct replay *r, const char *what, const char *where, const char *field, const char *expected,
                  const char *found)
{
    const struct drift d = {what, where, field, expected, found};

    r->sums.drifts++;
    r->report(r->context, &d);
}

void replay_drift_int(struct replay *r, const char *what, const char *where, const char *field, int64_t expected,
                      int64_t found)
{
    char a[VALUE_SIZE], b[VALUE_SIZE];

    snprintf(a, sizeof a, "%" PRId64, expected);
    snprintf(b, sizeof b, "%" PRId64, found);
    replay_drift(r, what, where, field, a, b);
}

void replay_differ(void *context, const char *field, const char *expected, const char *found)
{
    struct place *p = context;

    p->differed = true;
    replay_drift(p->replay, p->what, p->where, field, expected, found);
}

const char *replay_entry_place(char where[WHERE_SIZE], const struct batch *b, const struct entry *e)
{
    snprintf(where, WHERE_SIZE, "seq %" PRId64 " entry %zu", b->head.seq, (size_t)(e - b->entries));
    return where;
}

const char *replay_name_place(char where[WHERE_SIZE], const char *user)
{
    if (user_is_job(user))
        snprintf(where, WHERE_SIZE, "job %s", user + sizeof JOB_USER_PREFIX - 1);
    else
        snprintf(where, WHERE_SIZE, "%s", user);
    return where;
}

const char *replay_view_place(char where[WHERE_SIZE], const struct name_hash *hash, const char *user)
{
    size_t len;

    if (user)
        return replay_name_place(where, user);
    len = (size_t)snprintf(where, WHERE_SIZE, "the user of hash ");
    for (size_t i = 0; i < sizeof hash->bytes; i++)
        len += (size_t)snprintf(where + len, WHERE_SIZE - len, "%02x", hash->bytes[i]);
    return where;
}

const char *replay_user_place(char where[WHERE_SIZE], const struct user *u, const char *stored)
{
    const char *name = stored ? stored : u->use.user;

    if (name || user_is_job(u->key))
        return replay_name_place(where, name ? name : u->key);
    snprintf(where, WHERE_SIZE, "alias %s", u->key);
    return where;
}

/* ---- life ---- */

struct replay *replay_new(struct replay_part part, const struct name_key *key, drift_fn *report, void *context)
{
    struct replay *r = checked(calloc(1, sizeof *r));

    r->name_key = key;
    r->lane = part.lane;
    r->part = part;
    r->report = report;
    r->context = context;
    r->totals.quarter_ms = -1;
    r->totals.repairs_end = &r->totals.repairs;
    arena_init(&r->arena, 0);
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
    buf_free(&r->scratch);
    arena_free(&r->arena);
    free(r->erased_later);
    free(r);
}

struct replay_sums replay_sums(const struct replay *r)
{
    struct replay_sums sums = r->sums;

    sums.users = (int64_t)HASH_COUNT(r->users);
    sums.buckets = (int64_t)HASH_COUNT(r->shelves);
    return sums;
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
    if (replay_is_first(r))
        r->lane_sums = sums;
}

/* ---- rows ---- */

uint64_t replay_hash(const char *text)
{
    uint64_t hash = hash_text(HASH_NONE, text);

    return hash ? hash : 1;
}

struct user *replay_user_of(struct replay *r, const char *key)
{
    struct user *u;

    if (r->part.parts > 1 && replay_hash(key) % r->part.parts != r->part.part)
        return NULL;
    HASH_FIND_STR(r->users, key, u);
    if (u)
        return u;
    u = arena_alloc(&r->arena, sizeof *u);
    u->key = arena_strdup(&r->arena, key);
    use_init(&u->use, NULL, "");
    /* most users take once: room for one, then as it grows */
    u->use.redemptions = arena_array(&r->arena, 1, sizeof *u->use.redemptions);
    u->use.capacity = 1;
    HASH_ADD_KEYPTR(hh, r->users, u->key, strlen(u->key), u);
    return u;
}

struct shelf *replay_shelf_of(struct replay *r, int64_t b)
{
    struct shelf *s;

    if (b < replay_first_bucket(&r->part) || b >= replay_end_bucket(&r->part))
        return NULL;
    HASH_FIND(hh, r->shelves, &b, sizeof b, s);
    if (s)
        return s;
    s = checked(calloc(1, sizeof *s));
    s->b = b;
    bucket_init(&s->bucket, b);
    HASH_ADD(hh, r->shelves, b, sizeof s->b, s);
    return s;
}

static void touch(struct standing **list, struct standing *s, int64_t seq)
{
    if (s->touched == seq)
        return;
    s->touched = seq;
    s->next_touched = *list;
    *list = s;
}

/* ---- entries: buckets ---- */

/* fold_bucket() takes a batch whole; one entry at a time is a batch of one that is always newer. */
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
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

/* Slots that are retired, within one bucket. */
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
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

/* A range that is made touches no bucket: where it begins is a matter of the totals. */
static void replay_range(struct replay *r, const struct batch *b, const struct entry *e)
{
    char where[WHERE_SIZE];
    int64_t first, end;

    if (e->kind == ENTRY_GET && e->count == 0) /* of shares alone */
        return;
    if (e->n < 0 || e->count < 1 || e->count > RANGE_MOST || e->n > INT64_MAX - RANGE_MOST - BUCKET_SLOTS) {
        replay_drift_int(r, "ledger", replay_entry_place(where, b, e), "count", 1, e->count);
        return;
    }
    if (!entry_buckets(e, &first, &end))
        return;
    if (first < replay_first_bucket(&r->part))
        first = replay_first_bucket(&r->part);
    if (end > replay_end_bucket(&r->part))
        end = replay_end_bucket(&r->part);
    for (; first < end; first++)
        replay_range_in(r, replay_shelf_of(r, first), b, e);
}

/* ---- entries: users ---- */

static void note_name(struct replay *r, struct user *u, const struct entry *e, int64_t seq)
{
    if (u->standing.touched == 0)
        u->maybe_back = r->erasures > 0;
    if (user_is_job(u->key)) {
        u->use.user = u->key;
        return;
    }
    u->nameless = u->nameless || !e->user;
    u->named_seq = e->user ? seq : u->named_seq;
    if (!u->use.user && e->user)
        u->use.user = arena_strdup(&r->arena, e->user);
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
    fold_use_entry(&u->use, &mine, &b->head, b->lane, &r->arena);
    check_user_caps(r, u, b, e);
    if (e->kind == ENTRY_ERASE)
        u->erased_seq = b->head.seq;
    touch(&r->touched_users, &u->standing, b->head.seq);
}

static void replay_entry_of_user(struct replay *r, const struct batch *b, const struct entry *e)
{
    char key[sizeof JOB_USER_PREFIX + 64];

    if (entry_members[e->kind] & HAS_USER) {
        replay_user(r, b, e, e->alias);
    } else if (e->job) {
        snprintf(key, sizeof key, JOB_USER_PREFIX "%s", e->job);
        replay_user(r, b, e, key);
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

static void replay_entries(struct replay *r, const struct batch *b, bool follows)
{
    struct head h = r->head;

    h.seq = b->head.seq;
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct head before = h;

        fold_head_entry(&h, e);
        r->next_n = fold_next_n(&h, r->lane);
        r->definition = definition_after(r, b, e);
        if (follows && replay_is_first(r)) {
            check_coupon(r, &before, &h, b, e);
            check_turn(r, b, e);
            check_lane(r, b, e);
        }
        if (entry_members[e->kind] & HAS_RANGE)
            replay_range(r, b, e);
        else if ((entry_members[e->kind] & HAS_SLOT) && e->n >= 0)
            replay_slot(r, b, e);
        replay_entry_of_user(r, b, e);
        r->erasures += e->kind == ENTRY_ERASE;
    }
    if (follows && replay_is_first(r)) {
        check_definition(r, b);
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

/* Seq, hash, chain and totals. What follows is told from what b itself says, so that one drift is not told again with
 * every batch after it. */
static void check_batch(struct replay *r, const struct batch *b)
{
    uint8_t hash[HASH_LEN];
    char where[WHERE_SIZE];
    const char *wrong;
    int64_t gap = b->head.seq - r->head.seq - 1, before = r->sums.drifts;

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    batch_hash(b, &r->scratch, hash);
    if (memcmp(hash, b->head.hash, HASH_LEN) != 0)
        replay_drift(r, "ledger", where, "hash", "that of its line", "another");
    if (gap != 0) {
        snprintf(where, sizeof where, "seq %" PRId64, r->head.seq + 1);
        replay_drift_int(r, "ledger", where, gap > 0 ? "batches missing" : "batches in order", 0, gap);
    } else { /* else nothing can be said of its chain and totals */
        wrong = batch_contradiction(&r->head, b);
        if (wrong)
            check_head(r, b, wrong);
    }
    r->sums.broken += r->sums.drifts - before;
}

void replay_batch(struct replay *r, const struct batch *b)
{
    if (r->sums.batches++ == 0)
        r->first_ms = b->head.at_ms;
    r->sums.entries += (int64_t)b->count;
    if (replay_is_first(r))
        check_batch(r, b);
    replay_entries(r, b, b->head.seq == r->head.seq + 1);
    views_batch(r, b);
    if (replay_is_first(r)) {
        totals_batch(r, b);
        if (r->lane_sums)
            lane_sums_batch(r->lane_sums, b);
    }
    r->head = b->head;
}
