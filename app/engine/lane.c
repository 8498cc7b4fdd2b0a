/* engine/lane.c -- see lane.h. */
#include "engine/lane.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/log.h"
#include "coupons/fold.h"

#define LEDGER_CHUNK 256
#define TOPUP_FIRST 2
#define TOPUP_MOST 64
#define TOPUP_FAST_MS 1000

/* ---- lists of ops ---- */

void op_list_add(struct op_list *l, struct op *op)
{
    op->next = NULL;
    if (l->last)
        l->last->next = op;
    else
        l->first = op;
    l->last = op;
    l->count++;
}

struct op *op_list_take(struct op_list *l)
{
    struct op *op = l->first;

    if (!op)
        return NULL;
    l->first = op->next;
    if (!l->first)
        l->last = NULL;
    l->count--;
    op->next = NULL;
    return op;
}

void op_list_prepend(struct op_list *l, struct op_list *front)
{
    if (!front->count)
        return;
    front->last->next = l->first;
    if (!l->last)
        l->last = front->last;
    l->first = front->first;
    l->count += front->count;
    *front = (struct op_list){0};
}

/* ---- making and freeing ---- */

struct lane *lane_new(const char *coupon, int64_t number)
{
    struct lane *l = checked(calloc(1, sizeof *l));

    assert(strlen(coupon) <= COUPON_ID_MAX);
    snprintf(l->coupon, sizeof l->coupon, "%s", coupon);
    snprintf(l->key, sizeof l->key, "%s\n%lld", coupon, (long long)number);
    l->number = number;
    l->topup = TOPUP_FIRST;
    arena_init(&l->definition_arena, 2048);
    return l;
}

void window_release(struct window_batch *w)
{
    if (--w->refs > 0)
        return;
    batch_free(w->batch);
    free(w);
}

static void forget_user(struct lane *l, struct window_user *wu)
{
    HASH_DEL(l->users, wu);
    free(wu->user);
    free(wu->batches);
    free(wu);
}

static void forget_bucket(struct lane *l, struct cached_bucket *c)
{
    HASH_DEL(l->buckets, c);
    bucket_release(&c->bucket);
    free(c);
}

/* Back to the state before loading; the queue stays. */
static void unload(struct lane *l)
{
    struct window_batch *w, *next_w;
    struct window_user *u, *next_u;
    struct cached_bucket *c, *next_c;

    HASH_ITER(hh, l->users, u, next_u)
        forget_user(l, u);
    HASH_ITER(hh, l->buckets, c, next_c)
        forget_bucket(l, c);
    DL_FOREACH_SAFE(l->window, w, next_w) {
        DL_DELETE(l->window, w);
        window_release(w);
    }
    arena_free(&l->definition_arena);
    l->window_entries = 0;
    l->stash_first = l->stash_count = 0;
    l->definition = NULL;
    l->definition_seq = 0;
    l->cursor = 0;
    l->tail = (struct head){0};
    l->mark = (struct mark){0};
    l->loaded = false;
}

void lane_free(struct lane *l)
{
    unload(l);
    free(l->stash);
    free(l);
}

/* ---- the stash ---- */

static void stash_add(struct lane *l, int64_t n, uint32_t g)
{
    if (l->stash_first + l->stash_count == l->stash_capacity) {
        if (l->stash_first > l->stash_capacity / 2) {
            memmove(l->stash, l->stash + l->stash_first, l->stash_count * sizeof *l->stash);
        } else {
            struct free_slot *larger;

            l->stash_capacity = l->stash_capacity ? l->stash_capacity * 2 : 256;
            larger = checked(malloc(l->stash_capacity * sizeof *larger));
            if (l->stash_count)
                memcpy(larger, l->stash + l->stash_first, l->stash_count * sizeof *larger);
            free(l->stash);
            l->stash = larger;
        }
        l->stash_first = 0;
    }
    l->stash[l->stash_first + l->stash_count++] = (struct free_slot){n, g};
}

static void stash_bucket(struct lane *l, struct cached_bucket *c)
{
    for (int i = 0; i < c->bucket.size; i++) {
        if (c->bucket.slots[i].state != SLOT_FREE)
            continue;
        stash_add(l, c->bucket.b * BUCKET_SLOTS + i, c->bucket.slots[i].generation);
        c->stash_left++;
    }
}

static int by_number(struct cached_bucket *a, struct cached_bucket *b)
{
    return a->bucket.b < b->bucket.b ? -1 : a->bucket.b > b->bucket.b;
}

/* After somebody else's batch: whatever is free in the cached buckets, and nothing else. */
static void stash_rebuild(struct lane *l)
{
    struct cached_bucket *c, *next;

    l->stash_first = l->stash_count = 0;
    HASH_SORT(l->buckets, by_number);
    HASH_ITER(hh, l->buckets, c, next) {
        c->stash_left = 0;
        stash_bucket(l, c);
    }
}

static void stash_use(struct lane *l, size_t used)
{
    assert(used <= l->stash_count);
    for (size_t i = 0; i < used; i++) {
        struct cached_bucket *c = lane_bucket(l, bucket_of(l->stash[l->stash_first + i].n));

        assert(c && c->stash_left > 0);
        c->stash_left--;
    }
    l->stash_first += used;
    l->stash_count -= used;
}

/* ---- buckets ---- */

struct cached_bucket *lane_bucket(struct lane *l, int64_t b)
{
    struct cached_bucket *c;

    HASH_FIND(hh, l->buckets, &b, sizeof b, c);
    return c;
}

static struct cached_bucket *add_bucket(struct lane *l, const struct bucket *k)
{
    struct cached_bucket *c = checked(calloc(1, sizeof *c));

    c->bucket = *k;
    HASH_ADD(hh, l->buckets, bucket.b, sizeof c->bucket.b, c);
    return c;
}

struct cached_bucket *lane_cache_bucket(struct lane *l, struct bucket *k)
{
    struct window_batch *w;

    assert(!lane_bucket(l, k->b));
    if (k->seq > l->tail.seq) {
        bucket_release(k);
        return NULL;
    }
    DL_FOREACH(l->window, w)
        if (k->b >= w->first_b && k->b < w->end_b)
            fold_bucket(k, w->batch);
    return add_bucket(l, k);
}

void lane_evict_buckets(struct lane *l)
{
    struct cached_bucket *c, *next;

    HASH_ITER(hh, l->buckets, c, next)
        if (!c->dirty && c->stash_left == 0)
            forget_bucket(l, c);
}

static enum store_status top_up_once(struct lane *l, struct store *s, size_t *added)
{
    struct bucket buckets[TOPUP_MOST];
    size_t count = 0, most = l->topup;
    enum store_status status;

    *added = 0;
    status = s->ops->free_buckets(s, l->mark.when, l->coupon, l->number, l->cursor, most, buckets, &count);
    if (status != STORE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        struct cached_bucket *c;

        l->cursor = buckets[i].b + 1;
        if (lane_bucket(l, buckets[i].b)) {
            bucket_release(&buckets[i]);
            continue;
        }
        c = lane_cache_bucket(l, &buckets[i]);
        if (!c) {
            l->stale = true; /* it is ahead of the tail */
            continue;
        }
        stash_bucket(l, c);
        *added += (size_t)c->stash_left;
    }
    if (count < most)
        l->cursor = 0;
    return STORE_OK;
}

enum store_status lane_top_up(struct lane *l, struct store *s, size_t want)
{
    struct mono now = mono_now();
    int64_t free_slots = l->tail.slots - head_taken(&l->tail);
    size_t most = free_slots < 0 ? 0 : (size_t)free_slots;
    bool wrapped = false;

    if (want > most)
        want = most;
    while (l->stash_count < want) {
        bool from_start = l->cursor == 0;
        size_t added;
        enum store_status status;

        if (mono_ms_between(l->topped_up, now) < TOPUP_FAST_MS && l->topup < TOPUP_MOST)
            l->topup *= 2;
        status = top_up_once(l, s, &added);
        if (status != STORE_OK)
            return status;
        l->topped_up = now;
        if (l->cursor == 0 && (from_start || wrapped))
            break; /* seen all there is */
        wrapped = wrapped || l->cursor == 0;
    }
    return STORE_OK;
}

/* ---- the window ---- */

static struct window_user *window_user(struct lane *l, const char *user)
{
    struct window_user *wu;

    HASH_FIND_STR(l->users, user, wu);
    if (wu)
        return wu;
    wu = checked(calloc(1, sizeof *wu));
    wu->user = checked(strdup(user));
    HASH_ADD_KEYPTR(hh, l->users, wu->user, strlen(wu->user), wu);
    return wu;
}

/* Whom e is about, as a use's key; NULL: nobody. scratch holds a job's pseudo-user. */
static const char *entry_key(const struct entry *e, char scratch[64])
{
    if (e->user)
        return e->user;
    if (!e->job)
        return NULL;
    snprintf(scratch, 64, JOB_USER_PREFIX "%s", e->job);
    return scratch;
}

static void index_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    char scratch[64];
    const char *user = entry_key(e, scratch);
    struct window_user *wu;

    if (!user)
        return;
    wu = window_user(l, user);
    wu->state = NULL;
    if (wu->count && wu->batches[wu->count - 1] == w)
        return;
    if (wu->count == wu->capacity) {
        wu->capacity = wu->capacity ? wu->capacity * 2 : 1;
        wu->batches = checked(realloc(wu->batches, wu->capacity * sizeof *wu->batches));
    }
    wu->batches[wu->count++] = w;
}

static void note_buckets(struct window_batch *w, const struct entry *e)
{
    unsigned has = entry_members[e->kind];
    int64_t first, end;

    if (!(has & (HAS_RANGE | HAS_SLOT)))
        return;
    first = bucket_of(e->n);
    end = bucket_of(e->n + ((has & HAS_RANGE) ? e->count - 1 : 0)) + 1;
    if (w->end_b == 0 || first < w->first_b)
        w->first_b = first;
    if (end > w->end_b)
        w->end_b = end;
}

static struct window_batch *window_add(struct lane *l, struct batch *b, bool own)
{
    struct window_batch *w = checked(calloc(1, sizeof *w));

    w->batch = b;
    w->refs = 1;
    w->own = own;
    DL_APPEND(l->window, w);
    l->window_entries += b->count + 1;
    for (size_t i = 0; i < b->count; i++) {
        note_buckets(w, &b->entries[i]);
        index_entry(l, w, &b->entries[i]);
    }
    for (size_t i = 0; own && i < b->use_count; i++)
        window_user(l, b->uses[i]->user)->state = b->uses[i];
    return w;
}

static void unindex_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    char scratch[64];
    const char *user = entry_key(e, scratch);
    struct window_user *wu = NULL;

    if (user)
        HASH_FIND_STR(l->users, user, wu);
    if (!wu || wu->batches[0] != w)
        return;
    if (wu->count == 1) {
        forget_user(l, wu);
        return;
    }
    wu->count--;
    memmove(wu->batches, wu->batches + 1, wu->count * sizeof *wu->batches);
}

void lane_trim(struct lane *l, const struct mark *m)
{
    struct window_batch *w, *next;

    if (m->seq <= l->mark.seq)
        return;
    l->mark = (struct mark){m->seq, store_time_later(l->mark.when, m->when)};
    DL_FOREACH_SAFE(l->window, w, next) {
        if (w->batch->head.seq > m->seq)
            break;
        for (size_t i = 0; i < w->batch->count; i++)
            unindex_entry(l, w, &w->batch->entries[i]);
        DL_DELETE(l->window, w);
        l->window_entries -= w->batch->count + 1;
        window_release(w);
    }
}

bool lane_overlay_use(const struct lane *l, struct use *u, struct arena *a)
{
    struct window_user *wu;

    if (u->seq > l->tail.seq)
        return false;
    HASH_FIND_STR(l->users, u->user, wu);
    for (size_t i = 0; wu && i < wu->count; i++)
        fold_use(u, wu->batches[i]->batch, a);
    return true;
}

const struct use *lane_known_use(const struct lane *l, const char *user)
{
    struct window_user *wu;

    HASH_FIND_STR(l->users, user, wu);
    return wu ? wu->state : NULL;
}

/* ---- moving the tail ---- */

static void move_definition(struct lane *l, const struct batch *b)
{
    const struct coupon *next;
    struct arena fresh;

    if (b->head.seq <= l->definition_seq)
        return;
    arena_init(&fresh, 2048);
    next = fold_definition(l->definition, b, &fresh);
    if (next == l->definition) {
        arena_free(&fresh);
        return;
    }
    arena_free(&l->definition_arena);
    l->definition_arena = fresh;
    l->definition = next;
    l->definition_seq = b->head.seq;
}

/* Lay b into the cached buckets that it touches; true if there were any. */
static bool move_buckets(struct lane *l, const struct window_batch *w)
{
    struct cached_bucket *c, *next;
    bool any = false;

    if (w->end_b == 0)
        return false;
    HASH_ITER(hh, l->buckets, c, next) {
        if (c->bucket.b < w->first_b || c->bucket.b >= w->end_b || !fold_bucket(&c->bucket, w->batch))
            continue;
        c->dirty = true;
        any = true;
    }
    return any;
}

/* New buckets that an own batch generated are cached until their views are written. */
static void make_generated_buckets(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->kind != ENTRY_GENERATE)
            continue;
        for (int64_t k = bucket_of(e->n); k <= bucket_of(e->n + e->count - 1); k++) {
            struct bucket fresh;

            if (lane_bucket(l, k) || k * BUCKET_SLOTS < e->n)
                continue; /* the first may hold older slots: whoever decided this has read it */
            bucket_init(&fresh, k);
            add_bucket(l, &fresh);
        }
    }
}

/* Slots that came back go to the end of the stash, where their bucket is cached. */
static void stash_returned(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct cached_bucket *c = e->kind == ENTRY_REVERSE ? lane_bucket(l, bucket_of(e->n)) : NULL;

        if (!c)
            continue;
        assert(c->bucket.slots[e->n % BUCKET_SLOTS].state == SLOT_FREE);
        stash_add(l, e->n, c->bucket.slots[e->n % BUCKET_SLOTS].generation);
        c->stash_left++;
    }
}

/* What an own batch touches must have been cached, or its view would never be written, and the mark pass it. */
static bool own_buckets_laid(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        unsigned has = entry_members[e->kind];
        int64_t last;

        if (!(has & (HAS_RANGE | HAS_SLOT)))
            continue;
        last = bucket_of(e->n + ((has & HAS_RANGE) ? e->count - 1 : 0));
        for (int64_t k = bucket_of(e->n); k <= last; k++) {
            const struct cached_bucket *c = lane_bucket(l, k);

            if (!c || c->bucket.seq != b->head.seq)
                return false;
        }
    }
    return true;
}

void lane_commit(struct lane *l, struct batch *b, size_t stash_used)
{
    struct window_batch *w;

    assert(b->head.seq == l->tail.seq + 1);
    stash_use(l, stash_used);
    make_generated_buckets(l, b);
    w = window_add(l, b, true);
    move_buckets(l, w);
    assert(own_buckets_laid(l, b));
    stash_returned(l, b);
    move_definition(l, b);
    l->tail = b->head;
}

static void lay_foreign(struct lane *l, struct batch *b, bool *stash_changed)
{
    struct window_batch *w = window_add(l, b, false);

    *stash_changed = move_buckets(l, w) || *stash_changed;
    move_definition(l, b);
    l->tail = b->head;
}

/* Lay `count` batches that follow the tail; takes them all. A gap is damage: STORE_FAILED. */
static enum store_status lay_all(struct lane *l, struct batch **batches, size_t count)
{
    enum store_status status = STORE_OK;
    bool stash_changed = false;

    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK && batches[i]->head.seq == l->tail.seq + 1) {
            lay_foreign(l, batches[i], &stash_changed);
            continue;
        }
        if (status == STORE_OK)
            log_event(LOG_ERROR, "lane.gap", "coupon=%s lane=%lld tail=%lld next=%lld", l->coupon,
                      (long long)l->number, (long long)l->tail.seq, (long long)batches[i]->head.seq);
        status = STORE_FAILED;
        batch_free(batches[i]);
    }
    if (stash_changed)
        stash_rebuild(l);
    return status;
}

enum store_status lane_refresh(struct lane *l, struct store *s, bool *moved)
{
    struct batch *batches[LEDGER_CHUNK];
    int64_t before = l->tail.seq;
    enum store_status status;
    size_t count;

    do {
        count = 0;
        status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, LEDGER_CHUNK, batches, &count);
        if (status == STORE_OK)
            status = lay_all(l, batches, count);
    } while (status == STORE_OK && count == LEDGER_CHUNK);
    if (moved)
        *moved = l->tail.seq != before;
    return status;
}

/* The batch at the mark is the tail that the window starts from. */
static enum store_status load_base(struct lane *l, struct store *s)
{
    struct batch *base = NULL;
    size_t count = 0;
    enum store_status status;

    if (l->mark.seq == 0)
        return STORE_OK;
    status = s->ops->ledger(s, l->coupon, l->number, l->mark.seq - 1, 1, &base, &count);
    if (status != STORE_OK)
        return status;
    if (count != 1 || base->head.seq != l->mark.seq) {
        log_event(LOG_ERROR, "lane.no_batch_at_mark", "coupon=%s lane=%lld mark=%lld", l->coupon,
                  (long long)l->number, (long long)l->mark.seq);
        status = STORE_FAILED;
    } else {
        l->tail = base->head;
    }
    if (count)
        batch_free(base);
    return status;
}

enum store_status lane_load(struct lane *l, struct store *s)
{
    struct coupon *definition = NULL;
    enum store_status status;

    assert(!l->loaded && !l->window && !l->pending);
    status = s->ops->mark(s, l->coupon, l->number, "views", &l->mark);
    if (status == STORE_OK)
        status = load_base(l, s);
    if (status == STORE_OK)
        status = s->ops->coupon(s, l->coupon, l->mark.when, &l->definition_arena, &definition, &l->definition_seq);
    l->definition = definition;
    if (status == STORE_OK)
        status = lane_refresh(l, s, NULL);
    if (status == STORE_OK && l->definition_seq > l->tail.seq)
        status = STORE_FAILED; /* the view came after our look at the ledger: look again */
    if (status != STORE_OK) {
        unload(l);
        return status;
    }
    l->loaded = true;
    return STORE_OK;
}
