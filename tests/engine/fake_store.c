/* tests/engine/fake_store.c -- see fake_store.h. */
#include "fake_store.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "coupons/fold.h"

#define HEAR_WAIT_MS 5 /* a database waits for as long as a second */
#define AGED_PERCENT 40 /* of reads that see a moment before the present one */

/* A batch in the ledger; until a majority has it, it is seen by no read, and can roll back. */
struct stored_batch {
    struct batch *batch;
    bool majority;
    bool damaged;
    uint64_t streamed; /* its place in the stream of those that a majority has; 0: not yet */
    uint32_t time; /* since when a majority has it */
    struct stored_batch *next;
    struct stored_batch *earlier, *later; /* of its lane */
};

/* VIEW_CODES, of a bucket, are nowhere but where they are damaged. */
enum view_kind { VIEW_BUCKET, VIEW_CODES, VIEW_DEFINITION, VIEW_CHECKPOINT, VIEW_TOTALS_POSITION };

/* A document beside the ledger, as it stood from `time` on. */
struct stored_view {
    enum view_kind kind;
    uint32_t time;
    char *coupon;
    int64_t number; /* of its bucket, or of its lane; a definition has 0 */
    struct bucket bucket;
    struct arena arena;
    struct coupon *definition;
    struct checkpoint checkpoint;
    int64_t seq;
    bool damaged;
    int miscount; /* of a bucket's free slots */
    struct stored_view *older;       /* what stood before */
    const struct stored_view *shown; /* of the newest: the version that a search sees */
    struct stored_view *next;        /* of the newest: another view */
};

/* A write whose caller heard nothing, and that lands later. */
struct late_write {
    struct batch *batch;
    struct late_write *next;
};

struct fake {
    pthread_mutex_t lock;
    uint64_t random;
    int fault_percent, aged_percent;
    int faults;
    int64_t epoch;
    bool failed; /* the call that has the lock, as a whole */
    bool hurt;   /* it met what cannot be decoded */
    struct stored_batch *ledger;
    struct stored_view *views;
    struct late_write *late;
    uint32_t time;
    uint64_t streamed; /* how many batches a majority has: the last one's place in the stream */
};

struct fake_source {
    struct store_source source;
    struct fake *fake;
    bool cut;
};

struct fake_session {
    struct store store;
    struct fake_source *source;
    bool hearing;
    uint64_t heard; /* place in the stream of the last batch that it heard */
    uint32_t seen;  /* no read sees a moment before this */
    int64_t day_end_ms; /* of the day that was read last: it needs no second read */
};

static uint32_t next_random(struct fake *f)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->random >> 33);
}

static bool chance(struct fake *f, int percent)
{
    return (int)(next_random(f) % 100) < percent;
}

static bool fault(struct fake *f)
{
    if (!chance(f, f->fault_percent))
        return false;
    f->faults++;
    return true;
}

/* ---- copies ---- */

static struct batch *copy_batch(const struct batch *b)
{
    struct batch *copy = batch_new(b->coupon, b->lane);

    memcpy(copy->id, b->id, sizeof copy->id);
    copy->head = b->head;
    copy->lanes = b->lanes;
    memcpy(copy->prev, b->prev, HASH_LEN);
    for (size_t i = 0; i < b->count; i++) {
        struct entry *e = batch_add(copy, b->entries[i].kind);

        *e = b->entries[i];
        e->job = arena_strdup(&copy->arena, e->job);
        e->user = arena_strdup(&copy->arena, e->user);
        e->order = arena_strdup(&copy->arena, e->order);
        e->metadata = arena_strdup(&copy->arena, e->metadata);
        e->code = arena_strdup(&copy->arena, e->code);
        e->shared = arena_strdup(&copy->arena, e->shared);
        e->by = arena_strdup(&copy->arena, e->by);
        e->by_name = false; /* not stored */
        if (e->definition)
            e->definition = e->kind == ENTRY_DEFINE ? coupon_copy(e->definition, &copy->arena) : NULL;
    }
    return copy;
}

/* ---- the ledger ---- */

static struct stored_batch *find_batch(struct fake *f, const char *coupon, int64_t lane, int64_t seq)
{
    struct stored_batch *s = f->ledger;

    while (s && !(s->batch->head.seq == seq && s->batch->lane == lane && strcmp(s->batch->coupon, coupon) == 0))
        s = s->next;
    return s;
}

static void remove_batch(struct fake *f, struct stored_batch *gone)
{
    struct stored_batch **p = &f->ledger;

    while (*p != gone)
        p = &(*p)->next;
    *p = gone->next;
    if (gone->earlier)
        gone->earlier->later = gone->later;
    if (gone->later)
        gone->later->earlier = gone->earlier;
    batch_free(gone->batch);
    free(gone);
}

/* The last batch of a lane before seq. */
static struct stored_batch *batch_before(struct fake *f, const char *coupon, int64_t lane, int64_t seq)
{
    struct stored_batch *s = f->ledger;

    while (s && !(s->batch->lane == lane && strcmp(s->batch->coupon, coupon) == 0))
        s = s->next;
    while (s && s->later)
        s = s->later;
    while (s && s->batch->head.seq >= seq)
        s = s->earlier;
    return s;
}

/* A majority has it from now on, and the stream tells of it. */
static void make_safe(struct fake *f, struct stored_batch *s)
{
    if (s->majority)
        return;
    s->majority = true;
    s->streamed = ++f->streamed;
    s->time = ++f->time;
}

static struct stored_batch *store_batch(struct fake *f, const struct batch *b, bool majority)
{
    struct stored_batch *s = calloc(1, sizeof *s);

    assert(s && !find_batch(f, b->coupon, b->lane, b->head.seq));
    s->batch = copy_batch(b);
    s->earlier = batch_before(f, b->coupon, b->lane, b->head.seq);
    if (s->earlier) {
        s->later = s->earlier->later;
        s->earlier->later = s;
    }
    if (s->later)
        s->later->earlier = s;
    s->next = f->ledger;
    f->ledger = s;
    if (majority)
        make_safe(f, s);
    return s;
}

/* A batch that stands on one that can roll back cannot exist: the engine never decides on such. */
static bool may_stand(struct fake *f, const struct batch *b)
{
    struct stored_batch *before = b->head.seq == 1 ? NULL : find_batch(f, b->coupon, b->lane, b->head.seq - 1);

    return b->head.seq == 1 || (before && before->majority && memcmp(before->batch->head.hash, b->prev, HASH_LEN) == 0);
}

/* What is on its way arrives, what is not safe becomes safe or is gone: a little of it at every call. */
static void pass_time(struct fake *f)
{
    struct late_write **late = &f->late;

    while (*late) {
        struct late_write *w = *late;

        if (!chance(f, 20)) {
            late = &w->next;
            continue;
        }
        *late = w->next;
        if (!find_batch(f, w->batch->coupon, w->batch->lane, w->batch->head.seq) && may_stand(f, w->batch))
            store_batch(f, w->batch, chance(f, 50));
        batch_free(w->batch);
        free(w);
    }
    for (struct stored_batch *s = f->ledger, *next; s; s = next) {
        next = s->next;
        if (s->majority || !chance(f, 10))
            continue;
        if (chance(f, 50))
            make_safe(f, s);
        else
            remove_batch(f, s);
    }
}

static struct fake *enter(struct store *store)
{
    struct fake *f = ((struct fake_session *)store)->source->fake;

    pthread_mutex_lock(&f->lock);
    f->failed = f->hurt = false;
    pass_time(f);
    return f;
}

static bool is_cut(const struct store *store)
{
    return ((const struct fake_session *)store)->source->cut;
}

/* The same for a call that may fail as a whole. */
static struct fake *enter_or_fail(struct store *store)
{
    struct fake *f = enter(store);

    f->failed = is_cut(store) || fault(f);
    return f;
}

static enum store_status leave(struct fake *f)
{
    enum store_status status = f->failed || f->hurt ? STORE_FAILED : STORE_OK;

    pthread_mutex_unlock(&f->lock);
    return status;
}

static void see(struct store *store, uint32_t time)
{
    struct fake_session *session = (struct fake_session *)store;

    if (time > session->seen)
        session->seen = time;
}

/* The moment that a read sees: the present one, or one before that the session has not seen. */
static uint32_t moment(struct fake *f, struct store *store)
{
    uint32_t seen = ((struct fake_session *)store)->seen, at = f->time;

    if (seen < at && chance(f, f->aged_percent))
        at = seen + next_random(f) % (at - seen + 1);
    see(store, at);
    return at;
}

static enum append_result append_one(struct fake *f, struct store *store, const struct batch *b)
{
    struct stored_batch *there = find_batch(f, b->coupon, b->lane, b->head.seq);
    struct late_write *w;

    if (there && strcmp(there->batch->id, b->id) == 0) {
        if (fault(f))
            return APPEND_UNKNOWN;
        make_safe(f, there);
        see(store, there->time);
        return APPEND_OURS;
    }
    if (there && !there->majority)
        return APPEND_UNKNOWN; /* whose it is cannot be said until it is safe */
    if (there && fault(f))
        return APPEND_UNKNOWN;
    if (there) {
        see(store, there->time);
        return APPEND_THEIRS;
    }
    assert(may_stand(f, b));
    if (!fault(f)) {
        see(store, store_batch(f, b, true)->time);
        return APPEND_OURS;
    }
    switch (next_random(f) % 4) {
    case 0: /* never arrived */
        break;
    case 1: /* done, the reply lost */
        store_batch(f, b, true);
        break;
    case 2: /* written, not safe */
        store_batch(f, b, false);
        break;
    default:
        w = calloc(1, sizeof *w);
        assert(w);
        w->batch = copy_batch(b);
        w->next = f->late;
        f->late = w;
    }
    return APPEND_UNKNOWN;
}

static enum store_status fake_append(struct store *store, struct append *appends, size_t count)
{
    struct fake *f = enter(store);

    for (size_t i = 0; i < count; i++) {
        appends[i].result = is_cut(store) ? APPEND_UNKNOWN : append_one(f, store, appends[i].batch);
        f->failed = f->failed || appends[i].result == APPEND_UNKNOWN;
    }
    return leave(f);
}

static enum store_status fake_confirm(struct store *store, struct confirm *confirms, size_t count)
{
    struct fake *f = enter_or_fail(store);

    for (size_t i = 0; i < count && !f->failed; i++) {
        struct stored_batch *s = find_batch(f, confirms[i].coupon, confirms[i].lane, confirms[i].tail + 1);

        if (s)
            make_safe(f, s); /* a linearizable read waits for the majority */
        confirms[i].unmoved = !s;
    }
    if (!f->failed)
        see(store, f->time);
    return leave(f);
}

static enum store_status read_ledger(struct fake *f, struct ledger_read *r, uint32_t at)
{
    r->count = 0;
    while (r->count < r->most) {
        struct stored_batch *s = find_batch(f, r->coupon, r->lane, r->after + 1 + (int64_t)r->count);

        if (!s || !s->majority || s->time > at)
            return STORE_OK;
        if (s->damaged)
            break;
        r->batches[r->count++] = copy_batch(s->batch);
    }
    if (r->count == r->most)
        return STORE_OK;
    while (r->count > 0)
        batch_free(r->batches[--r->count]);
    return STORE_UNREADABLE;
}

static enum store_status fake_ledgers(struct store *store, struct ledger_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);

    for (size_t i = 0; i < count; i++) {
        reads[i].count = 0;
        reads[i].status = f->failed ? STORE_FAILED : read_ledger(f, &reads[i], at);
        f->hurt = f->hurt || reads[i].status != STORE_OK;
    }
    return leave(f);
}

static enum store_status fake_ledger(struct store *store, const char *coupon, int64_t lane, int64_t after, size_t most,
                                     struct batch **batches, size_t *count)
{
    struct ledger_read read = {.coupon = coupon, .lane = lane, .after = after, .most = most, .batches = batches};
    enum store_status status = fake_ledgers(store, &read, 1);

    *count = read.count;
    return status;
}

static enum store_status fake_ended(struct store *store, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                                    struct batch **batch)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);
    struct stored_batch *s = f->ledger;

    while (s && (!s->majority || s->time > at || s->batch->lane != lane || strcmp(s->batch->coupon, coupon) != 0 ||
                 !batch_find_end(s->batch, n, g)))
        s = s->next;
    if (s && !f->failed)
        *batch = copy_batch(s->batch);
    return leave(f) != STORE_OK ? STORE_FAILED : s ? STORE_OK : STORE_NOT_FOUND;
}

/* The first batch of a coupon with several lanes after that place in the stream. */
static const struct stored_batch *next_streamed(const struct fake *f, uint64_t place)
{
    const struct stored_batch *first = NULL;

    for (const struct stored_batch *s = f->ledger; s; s = s->next)
        if (s->streamed > place && s->batch->lanes > 1 && (!first || s->streamed < first->streamed))
            first = s;
    return first;
}

/* Whoever begins anew has missed what was streamed meanwhile. */
static int hear_next(struct fake *f, struct fake_session *session, struct heard *heard)
{
    const struct stored_batch *s;

    if (session->source->cut || fault(f)) {
        session->hearing = false;
        return -1;
    }
    if (!session->hearing) {
        session->hearing = true;
        session->heard = f->streamed;
        return 0;
    }
    s = next_streamed(f, session->heard);
    if (!s)
        return 0;
    session->heard = s->streamed;
    *heard = (struct heard){.lane = s->batch->lane, .lanes = s->batch->lanes, .head = s->batch->head};
    memset(heard->head.hash, 0, sizeof heard->head.hash);
    snprintf(heard->coupon, sizeof heard->coupon, "%s", s->batch->coupon);
    return 1;
}

static int fake_hear(struct store *store, struct heard *heard)
{
    struct timespec pause = {0, HEAR_WAIT_MS * 1000000L};
    struct fake_session *session = (struct fake_session *)store;
    struct fake *f = enter(store);
    int result = hear_next(f, session, heard);

    leave(f);
    if (result <= 0)
        nanosleep(&pause, NULL);
    return result;
}

/* ---- what is stored beside the ledger ---- */

/* Its newest version. */
static struct stored_view *find_view(struct fake *f, enum view_kind kind, const char *coupon, int64_t number)
{
    struct stored_view *v = f->views;

    while (v && !(v->kind == kind && v->number == number && strcmp(v->coupon, coupon) == 0))
        v = v->next;
    return v;
}

/* Put v before what stood until now, which may be nothing. */
static void supersede(struct fake *f, struct stored_view *v, struct stored_view *old)
{
    struct stored_view **p = &f->views;

    while (old && *p != old)
        p = &(*p)->next;
    v->next = old ? old->next : f->views;
    v->older = old;
    *p = v;
}

/* The version that stood then; NULL: none. */
static const struct stored_view *as_of(const struct stored_view *v, uint32_t at)
{
    while (v && v->time > at)
        v = v->older;
    return v;
}

/* What a search, which looks at all of them, sees of each. */
static void show_views(struct fake *f, uint32_t at)
{
    for (struct stored_view *v = f->views; v; v = v->next)
        v->shown = as_of(v, at);
}

static struct stored_view *new_view(struct fake *f, enum view_kind kind, const char *coupon, int64_t number, int64_t seq,
                                    struct stored_view *old)
{
    struct stored_view *v = calloc(1, sizeof *v);

    assert(v);
    v->kind = kind;
    v->time = f->time;
    v->coupon = strdup(coupon);
    v->number = number;
    v->seq = seq;
    arena_init(&v->arena, 1024);
    supersede(f, v, old);
    return v;
}

static void write_view(struct fake *f, const struct view_write *w)
{
    enum view_kind kind = w->bucket ? VIEW_BUCKET : VIEW_DEFINITION;
    int64_t seq = w->bucket ? w->bucket->seq : w->seq, number = w->bucket ? w->bucket->b : 0;
    struct stored_view *old = find_view(f, kind, w->coupon, number), *v;

    if (old && old->seq >= seq)
        return;
    v = new_view(f, kind, w->coupon, number, seq, old);
    if (w->bucket)
        bucket_copy(&v->bucket, w->bucket);
    else
        v->definition = coupon_copy(w->definition, &v->arena);
}

static enum store_status fake_write_views(struct store *store, struct view_write *views, size_t count, struct store_time *when)
{
    struct fake *f = enter_or_fail(store);

    f->time++;
    for (size_t i = 0; i < count; i++) {
        views[i].written = false;
        if (is_cut(store) || (f->failed && chance(f, 50)))
            continue;
        write_view(f, &views[i]);
        views[i].written = !f->failed;
    }
    *when = (struct store_time){f->time, 1};
    if (!f->failed)
        see(store, f->time);
    return leave(f);
}

static bool is_older(const struct checkpoint *a, const struct checkpoint *b)
{
    if (a->seq != b->seq)
        return a->seq < b->seq;
    if (a->swept_ms != b->swept_ms)
        return a->swept_ms < b->swept_ms;
    return a->swept_seq != b->swept_seq ? a->swept_seq < b->swept_seq : a->due_ms < b->due_ms;
}

static enum store_status fake_write_checkpoints(struct store *store, const struct checkpoint_write *checkpoints, size_t count)
{
    struct fake *f = enter_or_fail(store);

    f->time++;
    for (size_t i = 0; i < count; i++) {
        const struct checkpoint_write *w = &checkpoints[i];
        struct stored_view *old = find_view(f, VIEW_CHECKPOINT, w->coupon, w->lane), *v;

        if (is_cut(store) || (f->failed && chance(f, 50)) || (old && !is_older(&old->checkpoint, &w->checkpoint)))
            continue;
        v = new_view(f, VIEW_CHECKPOINT, w->coupon, w->lane, w->checkpoint.seq, old);
        v->checkpoint = w->checkpoint;
        if (w->checkpoint.uses)
            v->checkpoint.uses = code_uses_in(&v->arena, w->checkpoint.uses);
    }
    if (!f->failed)
        see(store, f->time);
    return leave(f);
}

static enum store_status fake_checkpoints(struct store *store, struct checkpoint_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);

    for (size_t i = 0; i < count; i++) {
        const struct stored_view *v = f->failed ? NULL : as_of(find_view(f, VIEW_CHECKPOINT, reads[i].coupon, reads[i].lane), at);

        reads[i].checkpoint = v ? v->checkpoint : (struct checkpoint){0};
        if (v && v->checkpoint.uses)
            reads[i].checkpoint.uses = reads[i].arena ? code_uses_in(reads[i].arena, v->checkpoint.uses) : NULL;
        reads[i].status = f->failed ? STORE_FAILED : STORE_OK;
    }
    return leave(f);
}

static void fake_saw(struct store *store, struct store_time when)
{
    struct fake *f = enter(store);

    see(store, when.seconds);
    leave(f);
}

static struct store_time fake_seen(const struct store *store)
{
    return (struct store_time){((const struct fake_session *)store)->seen, 0};
}

/* Of one read of a call. */
static enum store_status read_of(struct fake *f, const struct stored_view *v)
{
    f->hurt = f->hurt || (v && v->damaged);
    return f->failed ? STORE_FAILED : v && v->damaged ? STORE_UNREADABLE : STORE_OK;
}

/* ---- what users and jobs did ---- */

static bool names(const struct batch *b, const char *user)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].user && strcmp(b->entries[i].user, user) == 0)
            return true;
    return false;
}

/* The first of s and those after it in its lane that a read sees as of a moment; NULL: none. */
static const struct stored_batch *seen_from(const struct stored_batch *s, uint32_t at)
{
    while (s && !(s->majority && s->time <= at))
        s = s->later;
    return s;
}

static const struct stored_batch *first_seen(struct fake *f, const char *coupon, int64_t lane, uint32_t at)
{
    const struct stored_batch *s = batch_before(f, coupon, lane, INT64_MAX);

    while (s && s->earlier)
        s = s->earlier;
    return seen_from(s, at);
}

static enum store_status read_user(struct fake *f, struct user_read *r, uint32_t at, struct arena *a)
{
    struct user_state *u = NULL;
    struct arena whole;
    bool damaged = false;

    arena_init(&whole, 0);
    for (const struct stored_batch *s = first_seen(f, r->coupon, r->lane, at); s; s = seen_from(s->later, at)) {
        if (!names(s->batch, r->user))
            continue;
        damaged = damaged || s->damaged;
        if (!u) {
            u = arena_alloc(&whole, sizeof *u);
            user_state_init(u, r->user, "");
        }
        fold_user_state(u, s->batch, &whole);
        r->seq = s->batch->head.seq;
    }
    r->user_state = u && !damaged && !user_state_is_nobody(u) ? user_state_copy(u, a, true) : NULL;
    arena_free(&whole);
    return damaged ? STORE_UNREADABLE : STORE_OK;
}

static enum store_status fake_users(struct store *store, struct arena *a, struct user_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);
    size_t before = a->bytes;

    for (size_t i = 0; i < count; i++) {
        struct user_read *r = &reads[i];

        r->user_state = NULL;
        r->seq = 0;
        if (f->failed)
            r->status = STORE_FAILED;
        else if (a->bytes - before >= STORE_USERS_BYTES)
            r->status = STORE_NOT_READ;
        else
            r->status = read_user(f, r, at, a);
        f->hurt = f->hurt || r->status == STORE_UNREADABLE;
    }
    return leave(f);
}

static bool has_job(const struct batch *b, const char *job)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].job && strcmp(b->entries[i].job, job) == 0)
            return true;
    return false;
}

static enum store_status fake_job(struct store *store, const char *coupon, int64_t lane, const char *job, struct arena *a,
                                  struct job_progress **progress)
{
    struct fake *f = enter_or_fail(store);
    struct job_progress *j = arena_alloc(a, sizeof *j);
    uint32_t at = moment(f, store);
    enum store_status status;

    j->id = arena_strdup(a, job);
    for (const struct stored_batch *s = first_seen(f, coupon, lane, at); s; s = seen_from(s->later, at)) {
        f->hurt = f->hurt || (s->damaged && has_job(s->batch, job));
        fold_job(j, s->batch);
    }
    status = f->failed ? STORE_FAILED : f->hurt ? STORE_UNREADABLE : STORE_OK;
    *progress = status == STORE_OK && j->seq ? j : NULL;
    leave(f);
    return status;
}

/* The first of b's ends after the place; INT64_MAX: none. */
static int64_t first_due(const struct batch *b, int64_t after_ms, int64_t after_seq)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < b->count; i++) {
        int64_t due_ms = (entry_members[b->entries[i].kind] & HAS_SLOT) && b->entries[i].n < 0 ? entry_due_key(&b->entries[i]) : 0;

        if ((due_ms > after_ms || (due_ms == after_ms && b->head.seq > after_seq)) && due_ms < first)
            first = due_ms;
    }
    return first;
}

static enum store_status fake_due_batches(struct store *store, struct due_batches *search)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);
    size_t due = 0;

    search->count = 0;
    search->past_ms = search->after_ms;
    search->past_seq = search->after_seq;
    search->more = false;
    search->next_due_ms = 0;
    for (bool found = !f->failed; found && !search->more;) {
        const struct stored_batch *best = NULL;
        int64_t best_ms = INT64_MAX, ms = search->past_ms, seq = search->past_seq;

        for (const struct stored_batch *s = first_seen(f, search->coupon, search->lane, at); s; s = seen_from(s->later, at)) {
            int64_t due_ms = first_due(s->batch, search->after_ms, search->after_seq), later_ms = first_due(s->batch, search->at_ms, INT64_MAX);

            if (later_ms < INT64_MAX && (!search->next_due_ms || later_ms < search->next_due_ms))
                search->next_due_ms = later_ms;
            if (due_ms > search->at_ms || due_ms < ms || (due_ms == ms && s->batch->head.seq <= seq) || due_ms >= best_ms)
                continue;
            best = s;
            best_ms = due_ms;
        }
        found = best != NULL;
        if (!found)
            continue;
        if (!best->damaged)
            search->batches[search->count++] = copy_batch(best->batch);
        search->past_ms = best_ms;
        search->past_seq = best->batch->head.seq;
        search->more = ++due == search->most;
    }
    return leave(f);
}

static enum store_status fake_user_hash(struct store *store, const char *user, uint64_t *hash)
{
    (void)store;
    *hash = hash_mix(hash_text(HASH_NONE, user)); /* known without a look: the key is kept */
    return STORE_OK;
}

const struct key_secret fake_key_secret = {{7}};

static enum store_status fake_secret(struct store *store, struct key_secret *secret)
{
    (void)store;
    *secret = fake_key_secret;
    return STORE_OK;
}

static enum store_status fake_buckets(struct store *store, struct bucket_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);

    for (size_t i = 0; i < count; i++) {
        const struct stored_view *v = as_of(find_view(f, VIEW_BUCKET, reads[i].coupon, reads[i].b), at);

        reads[i].status = read_of(f, v);
        reads[i].found = v && reads[i].status == STORE_OK;
        if (reads[i].found)
            bucket_copy(reads[i].bucket, &v->bucket);
    }
    return leave(f);
}

/* The lane's first bucket in the order of `key`, from `from` on. */
static const struct bucket *first_bucket(const struct fake *f, const char *coupon, int64_t lane,
                                         int64_t (*key)(const struct bucket *k), int64_t from)
{
    const struct bucket *best = NULL;

    for (const struct stored_view *newest = f->views; newest; newest = newest->next) {
        const struct stored_view *v = newest->shown;

        if (v && v->kind == VIEW_BUCKET && v->bucket.lane == lane && strcmp(v->coupon, coupon) == 0 &&
            key(&v->bucket) >= from && (!best || key(&v->bucket) < key(best)))
            best = &v->bucket;
    }
    return best;
}

static const struct stored_view *shown_bucket(struct fake *f, const char *coupon, int64_t b)
{
    return find_view(f, VIEW_BUCKET, coupon, b)->shown;
}

static void list_bucket(const struct bucket *k, struct bucket *buckets, size_t *count)
{
    bucket_init(&buckets[*count], k->b);
    bucket_copy(&buckets[(*count)++], k);
}

static int64_t number_of(const struct bucket *k)
{
    return k->b;
}

static void find_counts(struct fake *f, struct free_counts *read)
{
    int64_t lane = lane_of_slot(read->from * BUCKET_SLOTS);
    const struct bucket *k = first_bucket(f, read->coupon, lane, number_of, read->from);

    for (; k && k->b < read->end && read->count < read->most; k = first_bucket(f, read->coupon, lane, number_of, k->b + 1))
        read->rows[read->count++] = (struct free_count){k->b, k->seq, bucket_free_count(k) +
                                                        shown_bucket(f, read->coupon, k->b)->miscount};
}

static enum store_status fake_free_counts(struct store *store, struct free_counts *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);

    show_views(f, moment(f, store));
    for (size_t i = 0; i < count; i++) {
        reads[i].count = 0;
        if (!f->failed)
            find_counts(f, &reads[i]);
    }
    return leave(f);
}

static int64_t due_order(const struct bucket *k)
{
    return bucket_due(k) ? bucket_due(k) * 64 + k->b % 64 : -1; /* distinct */
}

static bool is_known_bucket(const struct due_search *search, int64_t b)
{
    for (size_t i = 0; i < search->but_count; i++)
        if (search->but_buckets[i] == b)
            return true;
    return false;
}

static void find_due(struct fake *f, struct due_search *search)
{
    const struct bucket *k = first_bucket(f, search->coupon, search->lane, due_order, 0);

    for (; k && !search->next_due_ms; k = first_bucket(f, search->coupon, search->lane, due_order, due_order(k) + 1)) {
        if (is_known_bucket(search, k->b))
            continue;
        if (bucket_due(k) > search->at_ms || search->count == search->most)
            search->next_due_ms = bucket_due(k);
        else if (shown_bucket(f, search->coupon, k->b)->damaged)
            search->damaged = true;
        else
            list_bucket(k, search->buckets, &search->count);
    }
}

static enum store_status fake_due_buckets(struct store *store, struct due_search *searches, size_t count)
{
    struct fake *f = enter_or_fail(store);

    show_views(f, moment(f, store));
    for (size_t i = 0; i < count; i++) {
        searches[i].count = 0;
        searches[i].next_due_ms = 0;
        searches[i].damaged = false;
        if (!f->failed)
            find_due(f, &searches[i]);
    }
    return leave(f);
}

/* Every slot's code says its number, announced or not: the engine has to know which are. */
static enum store_status fake_codes(struct store *store, struct code_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);

    for (size_t i = 0; i < count; i++) {
        reads[i].status = f->failed ? STORE_FAILED : STORE_OK;
        reads[i].n = strncmp(reads[i].code, "CODE", 4) == 0 ? strtoll(reads[i].code + 4, NULL, 10) : -1;
    }
    return leave(f);
}

static enum store_status fake_bucket_codes(struct store *store, struct arena *a, struct bucket_codes_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);

    for (size_t i = 0; i < count; i++) {
        reads[i].status = read_of(f, find_view(f, VIEW_CODES, reads[i].coupon, reads[i].b));
        for (int k = 0; k < BUCKET_SLOTS; k++)
            reads[i].codes[k] = reads[i].status != STORE_OK ? NULL : arena_printf(a, "CODE%lld", (long long)(reads[i].b * BUCKET_SLOTS + k));
    }
    return leave(f);
}

static enum store_status fake_coupons(struct store *store, struct coupon_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);
    uint32_t at = moment(f, store);

    for (size_t i = 0; i < count; i++) {
        const struct stored_view *v = as_of(find_view(f, VIEW_DEFINITION, reads[i].coupon, 0), at);

        reads[i].status = read_of(f, v);
        if (reads[i].status != STORE_OK)
            v = NULL;
        reads[i].definition = v ? coupon_copy(v->definition, reads[i].arena) : NULL;
        reads[i].seq = v ? v->seq : 0;
    }
    return leave(f);
}

/* ---- positions, days, time ---- */

static enum store_status fake_totals_positions(struct store *store, struct totals_position_read *reads, size_t count)
{
    struct fake *f = enter_or_fail(store);

    for (size_t i = 0; i < count; i++) {
        const struct stored_view *m = f->failed ? NULL : find_view(f, VIEW_TOTALS_POSITION, reads[i].coupon, reads[i].lane);

        reads[i].seq = m ? m->seq : 0;
        reads[i].status = f->failed ? STORE_FAILED : STORE_OK;
    }
    return leave(f);
}

static enum store_status fake_write_totals_positions(struct store *store, const struct totals_position_write *positions, size_t count)
{
    struct fake *f = enter_or_fail(store);

    for (size_t i = 0; i < count; i++) {
        struct stored_view *old = find_view(f, VIEW_TOTALS_POSITION, positions[i].coupon, positions[i].lane);

        if (!is_cut(store) && !(f->failed && chance(f, 50)) && (!old || old->seq < positions[i].seq))
            new_view(f, VIEW_TOTALS_POSITION, positions[i].coupon, positions[i].lane, positions[i].seq, old);
    }
    return leave(f);
}

static enum store_status fake_day(struct store *store, const char *zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms)
{
    struct fake_session *session = (struct fake_session *)store;
    struct fake *f = enter(store);

    (void)zone;
    *start_ms = at_ms - at_ms % DAY_MS;
    *end_ms = *start_ms + DAY_MS;
    f->failed = *end_ms != session->day_end_ms && (is_cut(store) || fault(f));
    if (!f->failed)
        session->day_end_ms = *end_ms;
    return leave(f);
}

static enum store_status fake_now(struct store *store, int64_t *utc_ms)
{
    (void)store;
    (void)utc_ms;
    return STORE_FAILED; /* the machine's clock will do */
}

static enum store_status fake_epoch(struct store *store, int64_t *epoch)
{
    struct fake *f = enter_or_fail(store);

    *epoch = f->failed ? 0 : f->epoch;
    return leave(f);
}

static void fake_close(struct store *store)
{
    free(store);
}

/* ---- outside ---- */

static void unlock(struct fake **f)
{
    pthread_mutex_unlock(&(*f)->lock);
}
/* Until the end of the block. */
#define LOCK(f)                                                                                                                  \
    __attribute__((cleanup(unlock))) struct fake *locked = (f);                                                                  \
    pthread_mutex_lock(&locked->lock)

static struct store *open_session(struct store_source *source)
{
    static const struct store_ops ops = {
        .seen = fake_seen, .saw = fake_saw, .checkpoints = fake_checkpoints, .totals_positions = fake_totals_positions,
        .ledger = fake_ledger, .ledgers = fake_ledgers,
        .ended = fake_ended, .coupons = fake_coupons, .users = fake_users, .job = fake_job,
        .user_hash = fake_user_hash, .key_secret = fake_secret, .buckets = fake_buckets, .free_counts = fake_free_counts,
        .due_buckets = fake_due_buckets, .due_batches = fake_due_batches, .codes = fake_codes, .bucket_codes = fake_bucket_codes,
        .append = fake_append, .confirm = fake_confirm, .write_views = fake_write_views, .write_checkpoints = fake_write_checkpoints,
        .write_totals_positions = fake_write_totals_positions, .day = fake_day, .hear = fake_hear, .now = fake_now, .epoch = fake_epoch,
        .close = fake_close,
    };
    struct fake_session *session = calloc(1, sizeof *session);

    assert(session);
    session->store.ops = &ops;
    session->source = (struct fake_source *)source;
    return &session->store;
}

struct fake *fake_new(uint32_t seed, int fault_percent)
{
    struct fake *f = calloc(1, sizeof *f);

    assert(f);
    pthread_mutex_init(&f->lock, NULL);
    f->random = seed * 2654435761u + 1;
    f->fault_percent = fault_percent;
    f->aged_percent = AGED_PERCENT;
    return f;
}

/* All its versions. */
static void remove_view(struct fake *f, struct stored_view *v)
{
    struct stored_view **p = &f->views, *older;

    while (*p != v)
        p = &(*p)->next;
    *p = v->next;
    for (; v; v = older) {
        older = v->older;
        bucket_release(&v->bucket);
        arena_free(&v->arena);
        free(v->coupon);
        free(v);
    }
}

void fake_free(struct fake *f)
{
    while (f->ledger)
        remove_batch(f, f->ledger);
    while (f->late) {
        struct late_write *w = f->late;

        f->late = w->next;
        batch_free(w->batch);
        free(w);
    }
    while (f->views)
        remove_view(f, f->views);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void fake_set_epoch(struct fake *f, int64_t epoch)
{
    LOCK(f);
    f->epoch = epoch;
}

void fake_set_faults(struct fake *f, int fault_percent)
{
    LOCK(f);
    f->fault_percent = fault_percent;
}

void fake_read_present(struct fake *f)
{
    LOCK(f);
    f->aged_percent = 0;
}

/* All versions of it, one at least. */
static void damage_view(struct fake *f, enum view_kind kind, const char *coupon, int64_t number)
{
    struct stored_view *v;

    LOCK(f);
    v = find_view(f, kind, coupon, number);
    if (!v) { /* a bucket that nobody has touched, or its codes, which are stored nowhere */
        assert(kind == VIEW_BUCKET || kind == VIEW_CODES);
        v = new_view(f, kind, coupon, number, 1, NULL);
        bucket_init(&v->bucket, number);
        v->bucket.seq = 1;
    }
    for (; v; v = v->older)
        v->damaged = true;
}

void fake_damage_bucket(struct fake *f, const char *coupon, int64_t b)
{
    damage_view(f, VIEW_BUCKET, coupon, b);
}

void fake_damage_codes(struct fake *f, const char *coupon, int64_t b)
{
    damage_view(f, VIEW_CODES, coupon, b);
}

void fake_damage_definition(struct fake *f, const char *coupon)
{
    damage_view(f, VIEW_DEFINITION, coupon, 0);
}

void fake_miscount_bucket(struct fake *f, const char *coupon, int64_t b, int by)
{
    LOCK(f);
    for (struct stored_view *v = find_view(f, VIEW_BUCKET, coupon, b); v; v = v->older)
        v->miscount = by;
}

void fake_damage_batch(struct fake *f, const char *coupon, int64_t lane, int64_t seq)
{
    struct stored_batch *s;

    LOCK(f);
    s = find_batch(f, coupon, lane, seq);
    assert(s);
    s->damaged = true;
}

void fake_remove(struct fake *f, const char *coupon)
{
    LOCK(f);
    for (struct stored_batch *s = f->ledger, *next; s; s = next) {
        next = s->next;
        if (!s->batch->head.archived && strcmp(s->batch->coupon, coupon) == 0)
            remove_batch(f, s);
    }
    for (struct stored_view *v = f->views, *next; v; v = next) {
        next = v->next;
        if (v->kind == VIEW_BUCKET && strcmp(v->coupon, coupon) == 0)
            remove_view(f, v);
    }
}

int fake_batches(struct fake *f, const char *coupon)
{
    int count = 0;

    LOCK(f);
    for (const struct stored_batch *s = f->ledger; s; s = s->next)
        count += strcmp(s->batch->coupon, coupon) == 0;
    return count;
}

int fake_count_buckets(struct fake *f, const char *coupon)
{
    int count = 0;

    LOCK(f);
    for (struct stored_view *v = f->views; v; v = v->next)
        count += v->kind == VIEW_BUCKET && strcmp(v->coupon, coupon) == 0;
    return count;
}

bool fake_has_taking(struct fake *f, const char *coupon, const char *user)
{
    bool found = false;

    LOCK(f);
    for (struct stored_batch *s = f->ledger; s; s = s->next)
        found = found || (strcmp(s->batch->coupon, coupon) == 0 && names(s->batch, user));
    return found;
}

struct store_source *fake_connect(struct fake *f)
{
    struct fake_source *s = calloc(1, sizeof *s);

    assert(s);
    s->source.open = open_session;
    s->fake = f;
    return &s->source;
}

void fake_cut(struct store_source *source)
{
    struct fake_source *s = (struct fake_source *)source;

    LOCK(s->fake);
    s->cut = true;
}

void fake_disconnect(struct store_source *source)
{
    free(source);
}

int fake_faults(struct fake *f)
{
    LOCK(f);
    return f->faults;
}

static struct store *open_watched(struct store_source *source)
{
    struct watched *w = (struct watched *)source;
    struct store *session = w->inner->open(w->inner);

    session->ops = &w->ops;
    return session;
}

void fake_watch(struct watched *w, struct store_source *inner)
{
    struct store *session = inner->open(inner);

    *w = (struct watched){.source = {.open = open_watched}, .inner = inner, .plain = session->ops, .ops = *session->ops};
    session->ops->close(session);
}

void open_coupon(struct coupon *c, const char *id)
{
    coupon_init(c);
    c->id = id;
    c->title = "t";
    c->state = COUPON_ACTIVE;
}

int fake_group_setup(void **state)
{
    (void)state;
    return sodium_init() < 0 || log_init(NULL, LOG_ERROR) < 0 ? -1 : 0;
}
