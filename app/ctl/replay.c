/* ctl/replay.c -- see replay.h. */
#include "ctl/replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/arena.h"
#include "base/clock.h"
#include "coupons/fold.h"
#include "ctl/compare.h"

#define WHERE_SIZE 192
#define VALUE_SIZE 64
#define RANGE_MOST INT64_C(1000000000) /* no ledger of ours has longer ranges: what says so was tampered with */

/* What users and buckets have in common: a state that is folded, and a view that it must equal at the view's seq. */
struct standing {
    int64_t view_seq;  /* 0: there is no view */
    int64_t touched;   /* seq of the last batch that touched it */
    int64_t needed;    /* the same, as far as the mark reaches */
    bool compared;     /* the replay came by view_seq */
    struct standing *next_touched; /* in this batch */
};

struct user {
    struct standing standing;
    const char *key; /* alias; for a job its pseudo-user's name */
    struct use use;
    const struct use *view;
    UT_hash_handle hh;
};

struct shelf {
    struct standing standing;
    int64_t b;
    struct bucket bucket;
    struct bucket *view;
    uint64_t owners[BUCKET_SLOTS]; /* hash of the alias that has the slot; 0: nobody */
    UT_hash_handle hh;
};

struct replay {
    int64_t lane;
    struct replay_part part;
    drift_fn *report;
    void *context;
    struct arena arena;
    struct buf scratch;
    struct head head; /* of the last batch, as the ledger has it */
    const struct coupon *definition;
    struct user *users;
    struct shelf *shelves;
    struct standing *touched_users, *touched_shelves; /* by the batch at hand */
    int64_t views_mark, totals_mark;
    struct {
        const struct coupon *view;
        struct standing standing;
    } definition_view;
    struct {
        struct totals_row *rows; /* by quarter hour */
        struct report_counts *counts;
        size_t count, next;      /* next: the first row that the replay has not passed */
        int64_t quarter_ms;      /* at hand; -1: none yet */
        int64_t needed;          /* the last seq in it that counts and is below the mark; 0: none */
        struct report_counts sum;
        bool compared;
    } totals;
    struct replay_sums sums;
};

/* ---- reporting ---- */

static void drift(struct replay *r, const char *what, const char *where, const char *field, const char *expected,
                  const char *found)
{
    const struct drift d = {what, where, field, expected, found};

    r->sums.drifts++;
    r->report(r->context, &d);
}

static void drift_int(struct replay *r, const char *what, const char *where, const char *field, int64_t expected,
                      int64_t found)
{
    char a[VALUE_SIZE], b[VALUE_SIZE];

    snprintf(a, sizeof a, "%" PRId64, expected);
    snprintf(b, sizeof b, "%" PRId64, found);
    drift(r, what, where, field, a, b);
}

/* An upper bound that does not hold. */
static void drift_most(struct replay *r, const char *where, const char *field, int64_t most, int64_t found)
{
    char a[VALUE_SIZE], b[VALUE_SIZE];

    snprintf(a, sizeof a, "at most %" PRId64, most);
    snprintf(b, sizeof b, "%" PRId64, found);
    drift(r, "caps", where, field, a, b);
}

struct place {
    struct replay *replay;
    const char *what, *where;
};

static void differ(void *context, const char *field, const char *expected, const char *found)
{
    const struct place *p = context;

    drift(p->replay, p->what, p->where, field, expected, found);
}

static const char *entry_place(char where[WHERE_SIZE], const struct batch *b, const struct entry *e)
{
    snprintf(where, WHERE_SIZE, "seq %" PRId64 " entry %zu", b->head.seq, (size_t)(e - b->entries));
    return where;
}

/* ---- life ---- */

struct replay *replay_new(int64_t lane, struct replay_part part, drift_fn *report, void *context)
{
    struct replay *r = calloc(1, sizeof *r);

    if (!r)
        abort();
    r->lane = lane;
    r->part = part;
    r->report = report;
    r->context = context;
    r->totals.quarter_ms = -1;
    arena_init(&r->arena, 0);
    return r;
}

static void free_shelf(struct shelf *s)
{
    bucket_release(&s->bucket);
    if (s->view)
        bucket_release(s->view);
    free(s->view);
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
    free(r);
}

struct replay_sums replay_sums(const struct replay *r)
{
    struct replay_sums sums = r->sums;

    sums.users = (int64_t)HASH_COUNT(r->users);
    sums.buckets = (int64_t)HASH_COUNT(r->shelves);
    return sums;
}

/* ---- rows ---- */

/* FNV-1a; never 0. */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

static bool is_first_part(const struct replay *r)
{
    return r->part.part == 0;
}

/* The row of that key, made if need be; NULL: it belongs to another part. */
static struct user *user_of(struct replay *r, const char *key)
{
    struct user *u;

    if (r->part.parts > 1 && hash_text(key) % r->part.parts != r->part.part)
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

static struct shelf *shelf_of(struct replay *r, int64_t b)
{
    struct shelf *s;

    if (b < replay_first_bucket(&r->part) || b >= replay_end_bucket(&r->part))
        return NULL;
    HASH_FIND(hh, r->shelves, &b, sizeof b, s);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        abort();
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

/* ---- what was read beforehand ---- */

void replay_marks(struct replay *r, int64_t views_seq, int64_t totals_seq)
{
    r->views_mark = views_seq;
    r->totals_mark = totals_seq;
}

static bool is_job(const char *user)
{
    return strncmp(user, JOB_USER_PREFIX, sizeof JOB_USER_PREFIX - 1) == 0;
}

/* How a user is named to people. */
static const char *user_place(char where[WHERE_SIZE], const char *user, const char *key)
{
    if (is_job(user ? user : key))
        snprintf(where, WHERE_SIZE, "job %s", (user ? user : key) + sizeof JOB_USER_PREFIX - 1);
    else if (user)
        snprintf(where, WHERE_SIZE, "%s", user);
    else
        snprintf(where, WHERE_SIZE, "alias %s", key);
    return where;
}

void replay_view_use(struct replay *r, const struct use *view)
{
    struct user *u = user_of(r, is_job(view->user) ? view->user : view->alias);
    char where[WHERE_SIZE];
    struct use *copy;

    if (!u)
        return;
    if (u->view) {
        drift(r, "users", user_place(where, view->user, u->key), "alias", "of one user", u->view->user);
        return;
    }
    copy = arena_alloc(&r->arena, sizeof *copy);
    *copy = *view;
    copy->user = arena_strdup(&r->arena, view->user);
    copy->redemptions = arena_array(&r->arena, view->count, sizeof *copy->redemptions);
    for (size_t i = 0; i < view->count; i++) {
        copy->redemptions[i] = view->redemptions[i];
        copy->redemptions[i].order = arena_strdup(&r->arena, view->redemptions[i].order);
        copy->redemptions[i].metadata = arena_strdup(&r->arena, view->redemptions[i].metadata);
        copy->redemptions[i].code = arena_strdup(&r->arena, view->redemptions[i].code);
    }
    u->view = copy;
    u->standing.view_seq = view->seq;
}

void replay_view_bucket(struct replay *r, const struct bucket *view)
{
    struct shelf *s = shelf_of(r, view->b);

    if (!s || s->view)
        return;
    s->view = calloc(1, sizeof *s->view);
    if (!s->view)
        abort();
    bucket_copy(s->view, view);
    s->standing.view_seq = view->seq;
}

void replay_view_coupon(struct replay *r, const struct coupon *view, int64_t seq)
{
    r->definition_view.view = view ? coupon_copy(view, &r->arena) : NULL;
    r->definition_view.standing.view_seq = view ? seq : 0;
}

static int by_quarter(const void *a, const void *b)
{
    const struct totals_row *x = a, *y = b;

    return (x->quarter_ms > y->quarter_ms) - (x->quarter_ms < y->quarter_ms);
}

void replay_totals(struct replay *r, const struct totals_row *rows, size_t count)
{
    r->totals.rows = arena_array(&r->arena, count, sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        struct totals_row *row = &r->totals.rows[r->totals.count];

        if (rows[i].lane != r->lane)
            continue;
        *row = rows[i];
        row->counts = arena_alloc(&r->arena, sizeof *row->counts);
        *row->counts = *rows[i].counts;
        r->totals.count++;
    }
    if (r->totals.count)
        qsort(r->totals.rows, r->totals.count, sizeof *rows, by_quarter);
}

/* ---- entries: buckets ---- */

static enum slot_move move_of(enum entry_kind k)
{
    static const enum slot_move moves[ENTRY_KIND_COUNT] = {
        [ENTRY_ISSUE] = MOVE_ISSUE,   [ENTRY_RESERVE] = MOVE_RESERVE, [ENTRY_REDEEM] = MOVE_REDEEM,
        [ENTRY_CANCEL] = MOVE_CANCEL, [ENTRY_EXPIRE] = MOVE_EXPIRE,   [ENTRY_REVERSE] = MOVE_REVERSE,
        [ENTRY_RETIRE] = MOVE_RETIRE,
    };

    return moves[k];
}

static void slot_drift(struct replay *r, const struct batch *b, const struct entry *e, int64_t n, const char *field,
                       const char *expected, const char *found)
{
    char where[WHERE_SIZE];

    snprintf(where, sizeof where, "seq %" PRId64 " entry %zu slot %" PRId64, b->head.seq, (size_t)(e - b->entries), n);
    drift(r, "ledger", where, field, expected, found);
}

/* May e move the slot as it stands? */
static void check_move(struct replay *r, const struct shelf *s, const struct batch *b, const struct entry *e, int64_t n)
{
    const struct slot *slot = &s->bucket.slots[n % BUCKET_SLOTS];
    const struct slot_rule *rule = slot_rule((enum slot_state)slot->state, move_of(e->kind));
    uint64_t owner = s->owners[n % BUCKET_SLOTS];
    char expected[VALUE_SIZE], found[VALUE_SIZE];

    if (n % BUCKET_SLOTS >= s->bucket.size) {
        slot_drift(r, b, e, n, "slot", "generated before", "never generated");
        return;
    }
    if (!rule) {
        snprintf(expected, sizeof expected, "a state that permits %s", entry_kind_name(e->kind));
        slot_drift(r, b, e, n, "state", expected, slot_state_name((enum slot_state)slot->state));
        return;
    }
    if (!(entry_members[e->kind] & HAS_USER))
        return;
    if (owner && owner != hash_text(e->alias))
        slot_drift(r, b, e, n, "owner", "the user who has it", e->alias);
    if (e->g != slot->generation + rule->new_generation) {
        snprintf(expected, sizeof expected, "%" PRIu32, slot->generation + rule->new_generation);
        snprintf(found, sizeof found, "%" PRIu32, e->g);
        slot_drift(r, b, e, n, "generation", expected, found);
    }
}

/* fold_bucket() takes a batch whole; one entry at a time is a batch of one that is always newer. */
static void fold_one(struct shelf *s, const struct batch *b, const struct entry *e)
{
    struct batch one = *b;

    one.entries = (struct entry *)e;
    one.count = 1;
    s->bucket.seq = b->head.seq - 1;
    fold_bucket(&s->bucket, &one);
}

static void replay_slot(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct shelf *s = shelf_of(r, bucket_of(e->n));
    int i = (int)(e->n % BUCKET_SLOTS);

    if (!s)
        return;
    check_move(r, s, b, e, e->n);
    fold_one(s, b, e);
    s->owners[i] = s->bucket.slots[i].state == SLOT_FREE ? 0 : hash_text(e->alias);
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

/* Part of a range within one bucket. */
static void replay_range_in(struct replay *r, struct shelf *s, const struct batch *b, const struct entry *e)
{
    int64_t first = s->b * BUCKET_SLOTS, end = first + BUCKET_SLOTS;

    if (first < e->n)
        first = e->n;
    if (end > e->n + e->count)
        end = e->n + e->count;
    if (e->kind == ENTRY_GENERATE && first % BUCKET_SLOTS < s->bucket.size) {
        slot_drift(r, b, e, first, "slot", "not generated before", "generated twice");
        return;
    }
    for (int64_t n = first; n < end && e->kind != ENTRY_GENERATE; n++)
        check_move(r, s, b, e, n);
    fold_one(s, b, e);
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

static void replay_range(struct replay *r, const struct batch *b, const struct entry *e)
{
    char where[WHERE_SIZE];
    int64_t first, end;

    if (e->n < 0 || e->count < 1 || e->count > RANGE_MOST || e->n > INT64_MAX - RANGE_MOST - BUCKET_SLOTS) {
        drift_int(r, "ledger", entry_place(where, b, e), "count", 1, e->count);
        return;
    }
    first = bucket_of(e->n);
    end = bucket_of(e->n + e->count - 1) + 1;
    if (first < replay_first_bucket(&r->part))
        first = replay_first_bucket(&r->part);
    if (end > replay_end_bucket(&r->part))
        end = replay_end_bucket(&r->part);
    for (; first < end; first++)
        replay_range_in(r, shelf_of(r, first), b, e);
}

/* ---- entries: users ---- */

static bool is_taking(const struct entry *e)
{
    return (entry_members[e->kind] & HAS_TAKING) && e->ordinal > 0;
}

static bool exceeds(int64_t value, int64_t cap)
{
    return cap != COUPON_NULL && value > cap;
}

static void check_user_caps(struct replay *r, const struct user *u, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    int64_t today = use_today(&u->use, b->head.day_ms);
    char where[WHERE_SIZE];

    if (!c)
        return;
    if (exceeds(u->use.total, c->cap.per_user))
        drift_most(r, entry_place(where, b, e), "per_user", c->cap.per_user, u->use.total);
    if (exceeds(today, c->cap.per_user_per_day))
        drift_most(r, entry_place(where, b, e), "per_user_per_day", c->cap.per_user_per_day, today);
}

/* An entry that ends a redemption must say of it what it was. */
static void check_return(struct replay *r, const struct user *u, const struct batch *b, const struct entry *e)
{
    const struct redemption *was = use_by_slot(&u->use, e->n, e->g);
    char where[WHERE_SIZE];

    entry_place(where, b, e);
    if (!was || was->ended_ms) {
        drift(r, "ledger", where, "redemption", "one that stands", was ? "one that has ended" : "none");
        return;
    }
    if ((entry_members[e->kind] & HAS_SINCE) && e->since != was->seq)
        drift_int(r, "ledger", where, "since", was->seq, e->since);
    if ((entry_members[e->kind] & HAS_MONEY) && e->discount_minor != was->discount_minor)
        drift_int(r, "ledger", where, "discount_minor", was->discount_minor, e->discount_minor);
    if ((entry_members[e->kind] & HAS_SAME_DAY) && e->same_day != (was->day_ms == b->head.day_ms))
        drift_int(r, "ledger", where, "same_day", was->day_ms == b->head.day_ms, e->same_day);
}

static void replay_user(struct replay *r, const struct batch *b, const struct entry *e, const char *key)
{
    struct user *u = user_of(r, key);
    struct entry mine = *e;
    enum key_of which;
    char where[WHERE_SIZE];

    if (!u)
        return;
    if (!u->use.user)
        u->use.user = is_job(key) ? u->key : arena_strdup(&r->arena, e->user);
    if (is_taking(e) && use_by_key(&u->use, e->key, &which))
        drift(r, "ledger", entry_place(where, b, e), "key", "used once", "used for another taking");
    if (entry_ends(e))
        check_return(r, u, b, e);
    mine.order = arena_strdup(&r->arena, e->order);
    mine.metadata = arena_strdup(&r->arena, e->metadata);
    fold_use_entry(&u->use, &mine, &b->head, b->lane, &r->arena);
    if (is_taking(e))
        check_user_caps(r, u, b, e);
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

/* ---- entries: the coupon as a whole ---- */

/* h: the totals after e, as they follow from the entries. */
static void check_coupon_caps(struct replay *r, const struct head *h, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    char where[WHERE_SIZE];

    entry_place(where, b, e);
    if (!c || c->cap.policy != CAP_EXACT)
        return;
    if (head_free(h) < 0)
        drift_most(r, where, "slots", h->slots - h->due, head_taken(h));
    if (e->kind == ENTRY_GENERATE && exceeds(h->slots - h->due, c->cap.total))
        drift_most(r, where, "total", c->cap.total, h->slots - h->due);
    if (!is_taking(e))
        return;
    if (exceeds(h->day_taken, c->cap.per_day))
        drift_most(r, where, "per_day", c->cap.per_day, h->day_taken);
    if (e->discount_minor > 0 && exceeds(h->discount_minor, c->cap.discount_minor))
        drift_most(r, where, "discount_minor", c->cap.discount_minor, h->discount_minor);
}

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

    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        fold_head_entry(&h, e);
        r->definition = definition_after(r, b, e);
        if (follows && is_first_part(r))
            check_coupon_caps(r, &h, b, e);
        if (entry_members[e->kind] & HAS_RANGE)
            replay_range(r, b, e);
        else if ((entry_members[e->kind] & HAS_SLOT) && e->n >= 0)
            replay_slot(r, b, e);
        replay_entry_of_user(r, b, e);
    }
}

/* ---- a batch ---- */

static void check_head(struct replay *r, const struct batch *b, const char *wrong)
{
    struct head h = r->head;
    char where[WHERE_SIZE];
    struct place place = {r, "ledger", where};
    int64_t before = r->sums.drifts;

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++)
        fold_head_entry(&h, &b->entries[i]);
    compare_head(&h, &b->head, differ, &place);
    if (r->sums.drifts == before)
        drift(r, "ledger", where, wrong, NULL, NULL);
}

/* Seq, hash, chain and totals. What follows is told from what b itself says, so that one drift is not told again with every
 * batch after it. */
static void check_batch(struct replay *r, const struct batch *b)
{
    uint8_t hash[HASH_LEN];
    char where[WHERE_SIZE];
    const char *wrong;
    int64_t gap = b->head.seq - r->head.seq - 1;

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    batch_hash(b, &r->scratch, hash);
    if (memcmp(hash, b->head.hash, HASH_LEN) != 0)
        drift(r, "ledger", where, "hash", "that of its line", "another");
    if (gap != 0) {
        snprintf(where, sizeof where, "seq %" PRId64, r->head.seq + 1);
        drift_int(r, "ledger", where, gap > 0 ? "batches missing" : "batches in order", 0, gap);
        return; /* nothing can be said of its chain and totals */
    }
    wrong = batch_contradiction(&r->head, b);
    if (wrong)
        check_head(r, b, wrong);
}

/* Note that s was touched by b, and say whether its view stands at b. */
static bool passes_view(const struct replay *r, struct standing *s, int64_t seq)
{
    if (seq <= r->views_mark)
        s->needed = seq;
    if (s->view_seq != seq)
        return false;
    s->compared = true;
    return true;
}

static void close_users(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_users, *next; s; s = next) {
        struct user *u = (struct user *)s; /* its first member */
        char where[WHERE_SIZE];
        struct place place = {r, "users", where};

        next = s->next_touched;
        fold_use_done(&u->use, &b->head);
        if (!passes_view(r, s, b->head.seq))
            continue;
        user_place(where, u->use.user ? u->use.user : u->view->user, u->key);
        if (!u->use.user) /* erased: the ledger no longer has the name */
            u->use.user = u->view->user;
        compare_use(&u->use, u->view, differ, &place);
    }
    r->touched_users = NULL;
}

static void close_shelves(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_shelves, *next; s; s = next) {
        struct shelf *shelf = (struct shelf *)s; /* its first member */
        char where[WHERE_SIZE];
        struct place place = {r, "buckets", where};

        next = s->next_touched;
        if (!passes_view(r, s, b->head.seq))
            continue;
        snprintf(where, sizeof where, "bucket %" PRId64, shelf->b);
        compare_bucket(&shelf->bucket, shelf->view, differ, &place);
        bucket_release(shelf->view);
        free(shelf->view);
        shelf->view = NULL;
    }
    r->touched_shelves = NULL;
}

static bool changes_definition(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].kind == ENTRY_DEFINE || b->entries[i].kind == ENTRY_DELETE)
            return true;
    return false;
}

static void close_definition(struct replay *r, const struct batch *b)
{
    struct place place = {r, "coupon", "definition"};

    if (!changes_definition(b))
        return;
    r->definition_view.standing.touched = b->head.seq;
    if (passes_view(r, &r->definition_view.standing, b->head.seq) && r->definition)
        compare_coupon(r->definition, r->definition_view.view, differ, &place);
}

/* ---- totals of the reporter ---- */

static const char *quarter_place(char where[WHERE_SIZE], int64_t quarter_ms)
{
    char text[CLOCK_TEXT_SIZE];

    snprintf(where, WHERE_SIZE, "quarter hour %s", clock_text(quarter_ms, text));
    return where;
}

/* Rows before quarter_ms that no batch led to. */
static void pass_rows(struct replay *r, int64_t quarter_ms)
{
    char where[WHERE_SIZE];

    for (; r->totals.next < r->totals.count && r->totals.rows[r->totals.next].quarter_ms < quarter_ms; r->totals.next++)
        drift(r, "totals", quarter_place(where, r->totals.rows[r->totals.next].quarter_ms), "row", "none", "one");
}

static struct totals_row *row_at_hand(struct replay *r)
{
    struct totals_row *row = r->totals.rows + r->totals.next;

    return r->totals.next < r->totals.count && row->quarter_ms == r->totals.quarter_ms ? row : NULL;
}

static void close_quarter(struct replay *r)
{
    struct totals_row *row = row_at_hand(r);
    int64_t row_seq = row ? row->seq : 0;
    char where[WHERE_SIZE];

    if (r->totals.quarter_ms < 0)
        return;
    quarter_place(where, r->totals.quarter_ms);
    if (row_seq < r->totals.needed)
        drift_int(r, "totals", where, "seq", r->totals.needed, row_seq);
    else if (row && !r->totals.compared)
        drift(r, "totals", where, "seq", "of a batch in it", "of none");
    if (row)
        r->totals.next++;
    r->totals.needed = 0;
    r->totals.compared = false;
    memset(&r->totals.sum, 0, sizeof r->totals.sum);
}

static void replay_quarter(struct replay *r, const struct batch *b)
{
    static const struct report_counts nothing;
    struct report_counts counts = nothing;
    int64_t quarter_ms = b->head.at_ms - b->head.at_ms % QUARTER_MS;
    struct totals_row *row;
    char where[WHERE_SIZE];
    struct place place = {r, "totals", where};

    if (quarter_ms != r->totals.quarter_ms) {
        close_quarter(r);
        pass_rows(r, quarter_ms);
        r->totals.quarter_ms = quarter_ms;
    }
    fold_report(&counts, b);
    if (memcmp(&counts, &nothing, sizeof counts) != 0 && b->head.seq <= r->totals_mark)
        r->totals.needed = b->head.seq;
    fold_report(&r->totals.sum, b);
    row = row_at_hand(r);
    if (!row || row->seq != b->head.seq)
        return;
    r->totals.compared = true;
    quarter_place(where, quarter_ms);
    compare_counts(&r->totals.sum, row->counts, differ, &place);
}

void replay_batch(struct replay *r, const struct batch *b)
{
    r->sums.batches++;
    r->sums.entries += (int64_t)b->count;
    if (is_first_part(r))
        check_batch(r, b);
    replay_entries(r, b, b->head.seq == r->head.seq + 1);
    close_users(r, b);
    close_shelves(r, b);
    if (is_first_part(r)) {
        close_definition(r, b);
        replay_quarter(r, b);
    }
    r->head = b->head;
}

/* ---- the end ---- */

static void check_standing(struct replay *r, const struct standing *s, const char *what, const char *where)
{
    if (s->view_seq && !s->compared)
        drift_int(r, what, where, s->touched ? "seq" : "seq of a view of nothing in the ledger", s->touched, s->view_seq);
    else if (s->view_seq < s->needed)
        drift_int(r, what, where, s->view_seq ? "seq, below the mark" : "seq of a view that is missing", s->needed,
                  s->view_seq);
}

void replay_end(struct replay *r)
{
    char where[WHERE_SIZE];

    for (struct user *u = r->users; u; u = u->hh.next) {
        user_place(where, u->use.user ? u->use.user : u->view ? u->view->user : NULL, u->key);
        check_standing(r, &u->standing, "users", where);
    }
    for (struct shelf *s = r->shelves; s; s = s->hh.next) {
        snprintf(where, sizeof where, "bucket %" PRId64, s->b);
        check_standing(r, &s->standing, "buckets", where);
    }
    if (!is_first_part(r))
        return;
    check_standing(r, &r->definition_view.standing, "coupon", "definition");
    close_quarter(r);
    pass_rows(r, INT64_MAX);
    if (r->views_mark > r->head.seq)
        drift_int(r, "marks", "views", "seq, beyond the ledger", r->head.seq, r->views_mark);
    if (r->totals_mark > r->head.seq)
        drift_int(r, "marks", "totals", "seq, beyond the ledger", r->head.seq, r->totals_mark);
}
