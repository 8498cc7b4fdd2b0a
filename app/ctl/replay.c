/* ctl/replay.c -- see replay.h: a lane's life told again. What entries must obey: replay_check.c. */
#include "ctl/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool replay_is_job(const char *user)
{
    return strncmp(user, JOB_USER_PREFIX, sizeof JOB_USER_PREFIX - 1) == 0;
}

static const char *name_place(char where[WHERE_SIZE], const char *user)
{
    if (replay_is_job(user))
        snprintf(where, WHERE_SIZE, "job %s", user + sizeof JOB_USER_PREFIX - 1);
    else
        snprintf(where, WHERE_SIZE, "%s", user);
    return where;
}

const char *replay_user_place(char where[WHERE_SIZE], const struct user *u, const char *stored)
{
    const char *name = stored ? stored : u->use.user;

    if (name || replay_is_job(u->key))
        return name_place(where, name ? name : u->key);
    snprintf(where, WHERE_SIZE, "alias %s", u->key);
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

/* ---- rows ---- */

uint64_t replay_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* The row of that key, made if need be; NULL: it belongs to another part. */
static struct user *user_of(struct replay *r, const char *key)
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

static void add_odd(struct replay *r, enum odd odd, const char *user, const struct use *view)
{
    struct odd_view *o = arena_alloc(&r->arena, sizeof *o);

    *o = (struct odd_view){.user = arena_strdup(&r->arena, user), .odd = odd, .seq = -1, .next = r->odd_views};
    if (view) {
        o->alias = arena_strdup(&r->arena, view->alias);
        o->seq = view->seq;
        o->erased_ms = view->erased_ms;
    }
    r->odd_views = o;
}

/* The emptied view of an erased user has no alias, by which it could be found: it is known by its seq. */
static void add_tombstone(struct replay *r, const char *user, const struct use *view)
{
    char where[WHERE_SIZE];

    if (!replay_is_first(r))
        return;
    add_odd(r, ODD_TOMBSTONE, user, view);
    r->odd_views->wrong = view->count || view->total || view->today;
    if (r->odd_views->wrong)
        replay_drift(r, "users", name_place(where, user), "redemptions", "none: an erased user's", "some");
}

static struct use *keep_use(struct replay *r, const char *user, const struct use *view)
{
    struct use *copy = use_copy(view, &r->arena, false);

    copy->user = arena_strdup(&r->arena, user);
    for (size_t i = 0; i < copy->count; i++) {
        struct redemption *one = &copy->redemptions[i];

        one->order = arena_strdup(&r->arena, one->order);
        one->first_order = arena_strdup(&r->arena, one->first_order);
        one->metadata = arena_strdup(&r->arena, one->metadata);
        one->code = arena_strdup(&r->arena, one->code);
    }
    return copy;
}

void replay_view_use(struct replay *r, const char *user, const struct use *view)
{
    char where[WHERE_SIZE];
    struct user *u;

    if (!view) {
        add_odd(r, ODD_UNREADABLE, user, NULL);
        if (replay_is_first(r))
            replay_drift(r, "users", name_place(where, user), "view", "one that can be read", "unreadable");
        return;
    }
    if (!view->alias[0] && !replay_is_job(user)) {
        add_tombstone(r, user, view);
        return;
    }
    u = user_of(r, replay_is_job(user) ? user : view->alias);
    if (!u)
        return;
    if (u->view) {
        add_odd(r, ODD_DOUBLE, user, view);
        replay_drift(r, "users", name_place(where, user), "alias", "of one user", u->view->user);
        return;
    }
    u->view = keep_use(r, user, view);
    u->standing.stored = true;
    u->standing.view_seq = view->seq;
}

void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view)
{
    struct shelf *s = shelf_of(r, b);
    char where[WHERE_SIZE];

    if (!s || s->standing.stored)
        return;
    s->standing.stored = true;
    s->standing.unreadable = !view;
    if (!view) {
        snprintf(where, sizeof where, "bucket %" PRId64, b);
        replay_drift(r, "buckets", where, "view", "one that can be read", "unreadable");
        return;
    }
    s->view = calloc(1, sizeof *s->view);
    if (!s->view)
        abort();
    bucket_copy(s->view, view);
    s->standing.view_seq = view->seq;
}

void replay_view_coupon(struct replay *r, const struct coupon *view, bool is_there, int64_t seq, int64_t created_ms)
{
    r->definition_view.view = view ? coupon_copy(view, &r->arena) : NULL;
    r->definition_view.created_ms = created_ms;
    r->definition_view.standing =
        (struct standing){.stored = view || is_there, .unreadable = is_there && !view, .view_seq = view ? seq : 0};
    if (is_there && !view)
        replay_drift(r, "coupons", "definition", "view", "one that can be read", "unreadable");
}

void replay_codes_until(struct replay *r, int64_t next_n)
{
    r->codes_next_n = next_n;
}

void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    struct shelf *s = b * BUCKET_SLOTS < r->codes_next_n ? shelf_of(r, b) : NULL; /* else: drafts */

    if (!s)
        return;
    if (!s->codes && !(s->codes = calloc(BUCKET_SLOTS, sizeof *s->codes)))
        abort();
    for (int i = 0; i < BUCKET_SLOTS; i++)
        s->codes[i] = codes[i] && b * BUCKET_SLOTS + i < r->codes_next_n ? replay_hash(codes[i]) : 0;
}

/* ---- entries: buckets ---- */

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
    uint64_t bit = UINT64_C(1) << i;

    if (!s)
        return;
    check_slot(r, s, b, e, e->n);
    fold_one(s, b, e);
    s->owners[i] = s->bucket.slots[i].state == SLOT_FREE ? 0 : replay_hash(e->alias);
    s->forgotten = e->kind == ENTRY_FORGET ? s->forgotten | bit : s->forgotten & ~bit;
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

/* Part of a range within one bucket. */
static void replay_range_in(struct replay *r, struct shelf *s, const struct batch *b, const struct entry *e)
{
    int64_t first = s->b * BUCKET_SLOTS, end = first + BUCKET_SLOTS;
    char where[WHERE_SIZE];

    if (first < e->n)
        first = e->n;
    if (end > e->n + e->count)
        end = e->n + e->count;
    if (e->kind == ENTRY_GENERATE && first % BUCKET_SLOTS < s->bucket.size) {
        snprintf(where, sizeof where, "seq %" PRId64 " entry %zu slot %" PRId64, b->head.seq, (size_t)(e - b->entries),
                 first);
        replay_drift(r, "ledger", where, "slot", "not generated before", "generated twice");
        return;
    }
    for (int64_t n = first; n < end && e->kind != ENTRY_GENERATE; n++)
        check_slot(r, s, b, e, n);
    fold_one(s, b, e);
    touch(&r->touched_shelves, &s->standing, b->head.seq);
}

static void replay_range(struct replay *r, const struct batch *b, const struct entry *e)
{
    char where[WHERE_SIZE];
    int64_t first, end;

    if (e->n < 0 || e->count < 1 || e->count > RANGE_MOST || e->n > INT64_MAX - RANGE_MOST - BUCKET_SLOTS) {
        replay_drift_int(r, "ledger", replay_entry_place(where, b, e), "count", 1, e->count);
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

static void note_name(struct replay *r, struct user *u, const struct entry *e, int64_t seq)
{
    if (u->standing.touched == 0)
        u->maybe_back = r->erasures > 0;
    if (replay_is_job(u->key)) {
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
    struct user *u = user_of(r, key);
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
        r->definition = definition_after(r, b, e);
        if (follows && replay_is_first(r)) {
            check_coupon(r, &before, &h, b, e);
            check_turn(r, b, e);
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

/* Note that s was touched by b, and say whether its view stands at b. */
static bool passes_view(const struct replay *r, struct standing *s, int64_t seq)
{
    if (seq <= r->views_mark)
        s->needed = seq;
    if (!s->stored || s->unreadable || s->view_seq != seq)
        return false;
    s->compared = true;
    return true;
}

/* Whoever came back after an erasure has the versions of before beneath: the ledger no longer says whose they were. */
static void compare_user(struct replay *r, struct user *u)
{
    struct use view = *u->view;
    char where[WHERE_SIZE];
    struct place place = {r, "users", where, false};

    replay_user_place(where, u, u->view->user);
    if (u->maybe_back && view.version > u->use.version)
        view.version = u->use.version;
    compare_use(&u->use, &view, replay_differ, &place);
    u->standing.differs = place.differed;
}

static void close_users(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_users, *next; s; s = next) {
        struct user *u = (struct user *)s; /* its first member */

        next = s->next_touched;
        fold_use_done(&u->use, &b->head);
        /* of an erased user the ledger lacks what the view had before; that it is gone is asked for in the end */
        if (passes_view(r, s, b->head.seq) && !u->nameless && !u->erased_seq)
            compare_user(r, u);
    }
    r->touched_users = NULL;
}

/* Names that the ledger no longer has, of users who were erased later: the view cannot be asked for them yet. */
static void pass_names(const struct shelf *s)
{
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];

        if (slot->user || slot->state == SLOT_FREE || slot->state == SLOT_RETIRED || s->forgotten >> i & 1)
            continue;
        free(s->view->slots[i].user);
        s->view->slots[i].user = NULL;
    }
}

static void close_shelves(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_shelves, *next; s; s = next) {
        struct shelf *shelf = (struct shelf *)s; /* its first member */
        char where[WHERE_SIZE];
        struct place place = {r, "buckets", where, false};

        next = s->next_touched;
        if (!passes_view(r, s, b->head.seq))
            continue;
        snprintf(where, sizeof where, "bucket %" PRId64, shelf->b);
        pass_names(shelf);
        compare_bucket(&shelf->bucket, shelf->view, replay_differ, &place);
        s->differs = place.differed;
        bucket_release(shelf->view);
        free(shelf->view);
        shelf->view = NULL;
    }
    r->touched_shelves = NULL;
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
    struct standing *s = &r->definition_view.standing;

    if (!has_entry(b, ENTRY_DEFINE, ENTRY_DELETE))
        return;
    s->touched = b->head.seq;
    r->changed_ms = b->head.at_ms;
    if (!passes_view(r, s, b->head.seq) || !r->definition)
        return;
    compare_coupon(r->definition, r->definition_view.view, replay_differ, &place);
    if (r->definition_view.created_ms != r->first_ms) {
        replay_drift_int(r, "coupons", "definition", "created", r->first_ms, r->definition_view.created_ms);
        place.differed = true;
    }
    s->differs = place.differed;
}

static void close_tombstones(struct replay *r, const struct batch *b)
{
    if (!has_entry(b, ENTRY_ERASE, ENTRY_ERASE))
        return;
    for (struct odd_view *o = r->odd_views; o; o = o->next)
        if (o->odd == ODD_TOMBSTONE && !o->wrong && o->seq == b->head.seq && o->erased_ms == b->head.at_ms)
            o->settled = true;
}

void replay_batch(struct replay *r, const struct batch *b)
{
    if (r->sums.batches++ == 0)
        r->first_ms = b->head.at_ms;
    r->sums.entries += (int64_t)b->count;
    if (replay_is_first(r))
        check_batch(r, b);
    replay_entries(r, b, b->head.seq == r->head.seq + 1);
    close_users(r, b);
    close_shelves(r, b);
    close_tombstones(r, b);
    if (replay_is_first(r)) {
        close_definition(r, b);
        totals_batch(r, b);
    }
    r->head = b->head;
}

/* ---- users who are erased meanwhile ---- */

void replay_peek(struct replay *r, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        struct user *u = NULL;

        if (b->entries[i].kind != ENTRY_ERASE)
            continue;
        HASH_FIND_STR(r->users, b->entries[i].alias, u);
        if (u)
            u->erased_later = true;
        if (r->erased_later_count == r->erased_later_capacity) {
            size_t capacity = r->erased_later_capacity ? 2 * r->erased_later_capacity : 16;

            r->erased_later = realloc(r->erased_later, capacity * sizeof *r->erased_later);
            if (!r->erased_later)
                abort();
            r->erased_later_capacity = capacity;
        }
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

void replay_look_again(struct replay *r, name_stays_fn *stays, void *context)
{
    for (struct user *u = r->users; u; u = u->hh.next)
        if (u->erased_seq && u->named_seq && !stays(context, u->key, u->named_seq))
            u->named_seq = 0;
}

/* ---- the end ---- */

static void check_standing(struct replay *r, const struct standing *s, const char *what, const char *where)
{
    if (s->unreadable) /* told when it was read */
        return;
    if (s->stored && !s->compared)
        replay_drift_int(r, what, where, s->touched ? "seq" : "seq of a view of nothing in the ledger", s->touched,
                         s->view_seq);
    else if (!s->stored && s->needed)
        replay_drift_int(r, what, where, "seq of a view that is missing", s->needed, 0);
    else if (s->view_seq < s->needed)
        replay_drift_int(r, what, where, "seq, below the mark", s->needed, s->view_seq);
}

/* An alias without a name is an erased user's; an erased user has no name, and no view by it. */
static void check_erased(struct replay *r, const struct user *u)
{
    char where[WHERE_SIZE];

    snprintf(where, sizeof where, "alias %s", u->key);
    if (u->nameless && !u->erased_seq && !u->erased_later)
        replay_drift(r, "ledger", where, "user", "a name: not erased", "none");
    if (u->erased_seq && u->named_seq)
        replay_drift(r, "ledger", where, "user", "no name: erased", "one");
    if (u->erased_seq && u->standing.stored && u->erased_seq <= r->views_mark)
        replay_drift(r, "users", replay_user_place(where, u, u->view->user), "view", "none: erased", "one");
}

static void end_users(struct replay *r)
{
    char where[WHERE_SIZE];

    for (struct user *u = r->users; u; u = u->hh.next) {
        if (!replay_is_job(u->key))
            check_erased(r, u);
        if (!u->erased_seq)
            check_standing(r, &u->standing, "users", replay_user_place(where, u, u->view ? u->view->user : NULL));
    }
    for (const struct odd_view *o = r->odd_views; o; o = o->next)
        if (o->odd == ODD_TOMBSTONE && !o->settled && !o->wrong)
            replay_drift_int(r, "users", name_place(where, o->user), "seq of a view of nothing in the ledger", 0,
                             o->seq);
}

/* What is left in the slots when all is told: a name, or that it was forgotten; and a code, where the coupon has codes. */
static void end_slots(struct replay *r, const struct shelf *s)
{
    bool coded = r->definition && r->definition->codes.source != CODES_NONE;
    char where[WHERE_SIZE];

    for (int i = 0; i < s->bucket.size; i++) {
        const struct slot *slot = &s->bucket.slots[i];
        int64_t n = s->b * BUCKET_SLOTS + i;
        bool taken = slot->state != SLOT_FREE && slot->state != SLOT_RETIRED;

        snprintf(where, sizeof where, "slot %" PRId64, n);
        if (taken && !slot->user && !(s->forgotten >> i & 1) && !is_erased_later(r, s->owners[i]))
            replay_drift(r, "ledger", where, "user", "a name, or forgotten", "neither");
        /* what is over may have been cleaned up */
        if (coded && slot->state != SLOT_RETIRED && n < r->codes_next_n && !(s->codes && s->codes[i]))
            replay_drift(r, "codes", where, "code", "one", "none");
    }
}

static void check_mark(struct replay *r, const char *kind, int64_t seq)
{
    if (seq < 0)
        replay_drift(r, "marks", kind, "mark", "one that can be read", "unreadable");
    else if (seq > r->head.seq)
        replay_drift_int(r, "marks", kind, "seq, beyond the ledger", r->head.seq, seq);
}

void replay_end(struct replay *r)
{
    char where[WHERE_SIZE];

    end_users(r);
    for (struct shelf *s = r->shelves; s; s = s->hh.next) {
        if (s->standing.touched || s->standing.stored) { /* codes alone make no bucket */
            snprintf(where, sizeof where, "bucket %" PRId64, s->b);
            check_standing(r, &s->standing, "buckets", where);
        }
        end_slots(r, s);
    }
    if (!replay_is_first(r))
        return;
    check_standing(r, &r->definition_view.standing, "coupons", "definition");
    totals_end(r);
    check_mark(r, "views", r->views_mark);
    check_mark(r, "totals", r->totals_mark);
}
