/* engine/lane.c -- see lane.h. */
#include "engine/lane.h"

#include <assert.h>
#include <sodium.h>
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
#define DUE_MOST 64    /* buckets, or users, whose ends are looked for in one round: the next one looks for the rest */
#define KNOWN_MOST 4096 /* of them that it need not look for */
#define LISTED_MOST 2048 /* redemptions of users who are listed as due, but for the last one: they are loaded at once */

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
    l->next_due_ms = INT64_MIN;
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

static void forget_window_bucket(struct lane *l, struct window_bucket *wb)
{
    HASH_DEL(l->window_buckets, wb);
    free(wb->batches);
    free(wb);
}

static void forget_bucket(struct lane *l, struct cached_bucket *c)
{
    HASH_DEL(l->buckets, c);
    bucket_release(&c->bucket);
    free(c->codes);
    free(c);
}

/* Back to the state before loading; the queue stays. */
static void unload(struct lane *l)
{
    struct window_batch *w, *next_w;
    struct window_user *u, *next_u;
    struct cached_bucket *c, *next_c;
    struct window_bucket *wb, *next_wb;

    HASH_ITER(hh, l->window_buckets, wb, next_wb)
        forget_window_bucket(l, wb);
    HASH_ITER(hh, l->users, u, next_u)
        forget_user(l, u);
    HASH_ITER(hh, l->buckets, c, next_c)
        forget_bucket(l, c);
    DL_FOREACH_SAFE(l->window, w, next_w) {
        DL_DELETE(l->window, w);
        window_release(w);
    }
    arena_free(&l->definition_arena);
    l->window_entries = l->window_ranges = 0;
    l->next_due_ms = INT64_MIN;
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

static void stash_add(struct lane *l, int64_t n, uint32_t g, const char *code)
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
    l->stash[l->stash_first + l->stash_count++] = (struct free_slot){n, g, code};
}

static bool has_codes(const struct lane *l)
{
    return l->definition && l->definition->codes.source != CODES_NONE;
}

static void stash_slot(struct lane *l, struct cached_bucket *c, int i)
{
    const struct slot *slot = &c->bucket.slots[i];

    if (slot->state != SLOT_FREE || lane_wants_codes(l, c))
        return;
    stash_add(l, c->bucket.b * BUCKET_SLOTS + i, slot->generation, c->codes ? c->codes[i] : NULL);
    c->stash_left++;
}

static void stash_bucket(struct lane *l, struct cached_bucket *c)
{
    for (int i = 0; i < c->bucket.size; i++)
        stash_slot(l, c, i);
}

/* Slot n was taken by its name: it is not free any more. */
static void stash_drop(struct lane *l, struct cached_bucket *c, int64_t n)
{
    struct free_slot *stash = l->stash + l->stash_first;
    size_t i = 0;

    if (c->stash_left == 0)
        return;
    while (i < l->stash_count && stash[i].n != n)
        i++;
    if (i == l->stash_count)
        return;
    memmove(stash + i, stash + i + 1, (l->stash_count - i - 1) * sizeof *stash);
    l->stash_count--;
    c->stash_left--;
}

/* So that what stands side by side in the list of codes does not go out side by side. */
static void stash_shuffle(struct lane *l, size_t from)
{
    struct free_slot *stash = l->stash + l->stash_first;

    for (size_t i = l->stash_count; i-- > from + 1;) {
        size_t k = from + randombytes_uniform((uint32_t)(i - from + 1));
        struct free_slot moved = stash[i];

        stash[i] = stash[k];
        stash[k] = moved;
    }
}

static bool picks_at_random(const struct lane *l)
{
    return l->definition && l->definition->codes.pick == PICK_RANDOM;
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
    if (picks_at_random(l))
        stash_shuffle(l, 0);
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

/* Lay the window over k. */
static void overlay_bucket(const struct lane *l, struct bucket *k)
{
    struct window_bucket *wb;
    struct window_batch *w;

    if (l->window_ranges) {
        DL_FOREACH(l->window, w)
            if (k->b >= w->first_b && k->b < w->end_b)
                fold_bucket(k, w->batch);
        return;
    }
    HASH_FIND(hh, l->window_buckets, &k->b, sizeof k->b, wb);
    for (size_t i = 0; wb && i < wb->count; i++)
        fold_bucket(k, wb->batches[i]->batch);
}

struct cached_bucket *lane_cache_bucket(struct lane *l, struct bucket *k)
{
    assert(!lane_bucket(l, k->b));
    if (k->seq > l->tail.seq) {
        bucket_release(k);
        return NULL;
    }
    overlay_bucket(l, k);
    return add_bucket(l, k);
}

bool lane_wants_codes(const struct lane *l, const struct cached_bucket *c)
{
    return has_codes(l) && !c->codes;
}

void cached_bucket_set_codes(struct cached_bucket *c, const struct bucket_codes_read *read)
{
    size_t size = BUCKET_SLOTS * sizeof *c->codes;
    char *text;

    for (int i = 0; i < BUCKET_SLOTS; i++)
        size += read->codes[i] ? strlen(read->codes[i]) + 1 : 0;
    free(c->codes);
    c->codes = checked(calloc(1, size));
    text = (char *)(c->codes + BUCKET_SLOTS);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        size_t len = read->codes[i] ? strlen(read->codes[i]) + 1 : 0;

        if (!len)
            continue;
        memcpy(text, read->codes[i], len);
        c->codes[i] = text;
        text += len;
    }
}

void lane_evict_buckets(struct lane *l)
{
    struct cached_bucket *c, *next;

    HASH_ITER(hh, l->buckets, c, next)
        if (!c->dirty && c->stash_left == 0)
            forget_bucket(l, c);
}

/* Cache what was read. False: it is ahead of the tail, and the lane stale. */
static struct cached_bucket *cache_or_stale(struct lane *l, struct bucket *k)
{
    struct cached_bucket *c = lane_bucket(l, k->b);

    if (c) {
        bucket_release(k);
        return c;
    }
    c = lane_cache_bucket(l, k);
    l->stale = l->stale || !c;
    return c;
}

static enum store_status read_codes(const struct lane *l, struct store *s, struct cached_bucket **buckets, size_t count)
{
    struct bucket_codes_read reads[TOPUP_MOST];
    struct cached_bucket *wanting[TOPUP_MOST];
    enum store_status status;
    struct arena a;
    size_t want = 0;

    for (size_t i = 0; i < count; i++) {
        if (!lane_wants_codes(l, buckets[i]))
            continue;
        wanting[want] = buckets[i];
        reads[want++] = (struct bucket_codes_read){.coupon = l->coupon, .b = buckets[i]->bucket.b};
    }
    if (!want)
        return STORE_OK;
    arena_init(&a, 64 * 1024);
    status = s->ops->bucket_codes(s, &a, reads, want);
    for (size_t i = 0; status == STORE_OK && i < want; i++)
        cached_bucket_set_codes(wanting[i], &reads[i]);
    arena_free(&a);
    return status;
}

static enum store_status top_up_once(struct lane *l, struct store *s, size_t *added)
{
    bool random = picks_at_random(l);
    struct free_search search = {.coupon = l->coupon, .lane = l->number, .random = random, .from = l->cursor,
                                 .most = l->topup};
    struct bucket buckets[TOPUP_MOST];
    struct cached_bucket *cached[TOPUP_MOST];
    size_t count = 0, usable = 0, before = l->stash_count;
    enum store_status status;

    *added = 0;
    status = s->ops->free_buckets(s, l->mark.when, &search, buckets, &count);
    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        l->cursor = (random ? buckets[i].pick : buckets[i].b) + 1;
        cached[usable] = cache_or_stale(l, &buckets[i]);
        usable += cached[usable] && cached[usable]->stash_left == 0;
    }
    if (status == STORE_OK)
        status = read_codes(l, s, cached, usable);
    for (size_t i = 0; status == STORE_OK && i < usable; i++) {
        stash_bucket(l, cached[i]);
        *added += (size_t)cached[i]->stash_left;
    }
    if (status == STORE_OK && count < search.most)
        l->cursor = 0;
    if (random)
        stash_shuffle(l, before);
    return status;
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

/* ---- what ends by itself ---- */

/* Something ends by itself at due_ms. */
static void note_due(struct lane *l, int64_t due_ms)
{
    if (due_ms && due_ms < l->next_due_ms)
        l->next_due_ms = due_ms;
}

/* When what e made, extended or left standing ends by itself; 0: never. */
static int64_t entry_due(const struct entry *e)
{
    return e->reserved_until_ms ? e->reserved_until_ms : e->valid_until_ms;
}

/* The earliest end after at_ms that the cache and the window know of: the views may not have it yet. */
static void note_later_dues(struct lane *l, int64_t at_ms)
{
    struct cached_bucket *c, *next;
    struct window_batch *w;

    HASH_ITER(hh, l->buckets, c, next)
        for (int i = 0; i < c->bucket.size; i++)
            if (c->bucket.slots[i].due_ms > at_ms)
                note_due(l, c->bucket.slots[i].due_ms);
    DL_FOREACH(l->window, w)
        for (size_t i = 0; i < w->batch->count; i++)
            if (entry_due(&w->batch->entries[i]) > at_ms)
                note_due(l, entry_due(&w->batch->entries[i]));
}

/* Entries of the window whose end has come, in buckets that are not cached: the views may not have them yet. */
static enum store_status cache_due_of_window(struct lane *l, struct store *s, int64_t at_ms, bool *more)
{
    struct bucket_read reads[DUE_MOST];
    struct bucket buckets[DUE_MOST];
    size_t count = 0;
    struct window_batch *w;
    enum store_status status;

    DL_FOREACH(l->window, w)
        for (size_t i = 0; i < w->batch->count && !*more; i++) {
            const struct entry *e = &w->batch->entries[i];
            bool due = entry_due(e) && entry_due(e) <= at_ms && e->n >= 0 && !lane_bucket(l, bucket_of(e->n));

            for (size_t k = 0; due && k < count; k++)
                due = reads[k].b != bucket_of(e->n);
            *more = due && count == DUE_MOST;
            if (!due || *more)
                continue;
            bucket_init(&buckets[count], bucket_of(e->n));
            reads[count] = (struct bucket_read){.coupon = l->coupon, .b = bucket_of(e->n), .bucket = &buckets[count]};
            count++;
        }
    status = count ? s->ops->buckets(s, l->mark.when, reads, count) : STORE_OK;
    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK)
            cache_or_stale(l, &buckets[i]);
        else
            bucket_release(&buckets[i]);
    }
    return status;
}

/* The look before this one did not find all, and views may still show what it found. */
static bool looks_again(const struct lane *l)
{
    return l->next_due_ms == INT64_MIN;
}

static enum store_status find_due_buckets(struct lane *l, struct store *s, struct due_search *search, int64_t *next_due_ms,
                                          bool *more)
{
    int64_t cached[KNOWN_MOST];
    struct bucket buckets[DUE_MOST];
    size_t count = 0;
    enum store_status status;

    search->but_buckets = cached;
    for (const struct cached_bucket *c = l->buckets; looks_again(l) && c && search->but_count < KNOWN_MOST; c = c->hh.next)
        cached[search->but_count++] = c->bucket.b;
    status = s->ops->due_buckets(s, l->mark.when, search, buckets, &count, next_due_ms);
    for (size_t i = 0; status == STORE_OK && i < count; i++)
        cache_or_stale(l, &buckets[i]);
    return status == STORE_OK ? cache_due_of_window(l, s, search->at_ms, more) : status;
}

/* The earliest end after at_ms among u's redemptions that is before next_ms, else next_ms (0: none): u's view tells only the
 * earliest of all, which is being dealt with. */
static int64_t later_due(const struct use *u, int64_t at_ms, int64_t next_ms)
{
    for (size_t i = 0; i < u->count; i++) {
        int64_t due_ms = redemption_due(&u->redemptions[i]);

        if (due_ms > at_ms)
            next_ms = sooner_ms(next_ms, due_ms);
    }
    return next_ms;
}

/* Something of u has ended by itself, and its view may not say so yet. */
static bool has_expired(const struct lane *l, const struct use *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->redemptions[i].state == SLOT_EXPIRED && u->redemptions[i].last_seq > l->mark.seq)
            return true;
    return false;
}

static enum store_status find_due_users(struct lane *l, struct store *s, struct due_search *search, struct arena *a,
                                        const char ***users, size_t *count, int64_t *next_due_ms, bool *more)
{
    struct use **uses = arena_array(a, DUE_MOST, sizeof *uses);
    const char *known[KNOWN_MOST];
    struct window_user *wu, *next;
    enum store_status status;
    size_t read = 0, listed = 0;

    search->but_users = known;
    for (wu = l->users; looks_again(l) && wu && search->but_count < KNOWN_MOST; wu = wu->hh.next)
        if (wu->state && has_expired(l, wu->state))
            known[search->but_count++] = wu->user;
    status = s->ops->due_uses(s, l->mark.when, search, a, uses, &read, next_due_ms);
    if (status != STORE_OK)
        return status;
    *users = arena_array(a, read + HASH_COUNT(l->users) + 1, sizeof **users);
    for (size_t i = 0; i < read && listed < LISTED_MOST; i++) {
        (*users)[(*count)++] = uses[i]->user;
        listed += uses[i]->count;
        *next_due_ms = later_due(uses[i], search->at_ms, *next_due_ms);
    }
    HASH_ITER(hh, l->users, wu, next) {
        int64_t due_ms = wu->state ? use_due(wu->state) : search->at_ms;

        if (!due_ms || due_ms > search->at_ms || listed >= LISTED_MOST) {
            *next_due_ms = sooner_ms(*next_due_ms, due_ms);
            continue;
        }
        (*users)[(*count)++] = arena_strdup(a, wu->user);
        listed += wu->state ? wu->state->count : 1;
    }
    *more = listed >= LISTED_MOST;
    return STORE_OK;
}

enum store_status lane_find_due(struct lane *l, struct store *s, int64_t at_ms, struct arena *a, const char ***users,
                                size_t *count, bool *more)
{
    struct due_search search = {.coupon = l->coupon, .lane = l->number, .at_ms = at_ms, .most = DUE_MOST};
    bool slots = !l->definition || policy_of(l->definition)->slots;
    int64_t next_due_ms = 0;
    enum store_status status;

    *count = 0;
    *more = false;
    status = slots ? find_due_buckets(l, s, &search, &next_due_ms, more)
                   : find_due_users(l, s, &search, a, users, count, &next_due_ms, more);
    if (status != STORE_OK)
        return status;
    *more = *more || (next_due_ms && next_due_ms <= at_ms);
    l->next_due_ms = *more ? INT64_MIN : INT64_MAX;
    note_due(l, next_due_ms);
    note_later_dues(l, at_ms);
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

/* An entry whose name was emptied: another worker erased who had this alias, and what we know of them is no more so. Their view
 * says it: it was written before the names went. */
static void forget_alias(struct lane *l, const char *alias)
{
    struct window_user *wu, *next;

    HASH_ITER(hh, l->users, wu, next)
        if (wu->state && strcmp(wu->state->alias, alias) == 0)
            wu->state = NULL;
}

static void index_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    char scratch[64];
    const char *user = entry_key(e, scratch);
    struct window_user *wu;

    if (!user && entry_members[e->kind] & HAS_USER)
        forget_alias(l, e->alias);
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

static bool has_ranges(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (entry_members[b->entries[i].kind] & HAS_RANGE)
            return true;
    return false;
}

static void index_bucket(struct lane *l, struct window_batch *w, int64_t b)
{
    struct window_bucket *wb;

    HASH_FIND(hh, l->window_buckets, &b, sizeof b, wb);
    if (!wb) {
        wb = checked(calloc(1, sizeof *wb));
        wb->b = b;
        HASH_ADD(hh, l->window_buckets, b, sizeof wb->b, wb);
    }
    if (wb->count && wb->batches[wb->count - 1] == w)
        return;
    if (wb->count == wb->capacity) {
        wb->capacity = wb->capacity ? wb->capacity * 2 : 1;
        wb->batches = checked(realloc(wb->batches, wb->capacity * sizeof *wb->batches));
    }
    wb->batches[wb->count++] = w;
}

static void unindex_bucket(struct lane *l, struct window_batch *w, int64_t b)
{
    struct window_bucket *wb;

    HASH_FIND(hh, l->window_buckets, &b, sizeof b, wb);
    if (!wb || wb->batches[0] != w)
        return;
    if (wb->count == 1) {
        forget_window_bucket(l, wb);
        return;
    }
    wb->count--;
    memmove(wb->batches, wb->batches + 1, wb->count * sizeof *wb->batches);
}

static void note_buckets(struct lane *l, struct window_batch *w, const struct entry *e)
{
    int64_t first, end;

    if (!entry_buckets(e, &first, &end))
        return;
    if (w->end_b == 0 || first < w->first_b)
        w->first_b = first;
    if (end > w->end_b)
        w->end_b = end;
    if (entry_members[e->kind] & HAS_SLOT)
        index_bucket(l, w, first);
}

static struct window_batch *window_add(struct lane *l, struct batch *b, bool own)
{
    struct window_batch *w = checked(calloc(1, sizeof *w));

    w->batch = b;
    w->refs = 1;
    w->own = own;
    DL_APPEND(l->window, w);
    l->window_entries += b->count + 1;
    l->window_ranges += has_ranges(b);
    for (size_t i = 0; i < b->count; i++) {
        note_buckets(l, w, &b->entries[i]);
        index_entry(l, w, &b->entries[i]);
        note_due(l, entry_due(&b->entries[i]));
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
        for (size_t i = 0; i < w->batch->count; i++) {
            const struct entry *e = &w->batch->entries[i];

            unindex_entry(l, w, e);
            if ((entry_members[e->kind] & HAS_SLOT) && e->n >= 0)
                unindex_bucket(l, w, bucket_of(e->n));
        }
        l->window_ranges -= has_ranges(w->batch);
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

    if (l->number == 0 && b->head.seq <= l->definition_seq)
        return;
    arena_init(&fresh, 2048);
    next = fold_definition(l->definition, b, &fresh);
    if (next == l->definition || (l->number > 0 && l->definition && next->version <= l->definition->version)) {
        arena_free(&fresh);
        return;
    }
    arena_free(&l->definition_arena);
    l->definition_arena = fresh;
    l->definition = next;
    if (l->number == 0) /* in whose order the view of the definition is written */
        l->definition_seq = b->head.seq;
}

static bool move_bucket(struct lane *l, struct cached_bucket *c, const struct batch *b)
{
    int size = c->bucket.size;

    if (!fold_bucket(&c->bucket, b))
        return false;
    c->dirty = true;
    if (c->bucket.size != size && has_codes(l)) { /* what was read of the new slots' codes was a draft */
        free(c->codes);
        c->codes = NULL;
    }
    return true;
}

/* Lay w's batch into the cached buckets that it touches; true if there were any. */
static bool move_buckets(struct lane *l, const struct window_batch *w)
{
    const struct batch *b = w->batch;
    struct cached_bucket *c, *next;
    bool any = false;

    if (w->end_b == 0)
        return false;
    if (has_ranges(b)) {
        HASH_ITER(hh, l->buckets, c, next)
            if (c->bucket.b >= w->first_b && c->bucket.b < w->end_b)
                any = move_bucket(l, c, b) || any;
        return any;
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        c = (entry_members[e->kind] & HAS_SLOT) && e->n >= 0 ? lane_bucket(l, bucket_of(e->n)) : NULL;
        if (c)
            any = move_bucket(l, c, b) || any;
    }
    return any;
}

/* New buckets that an own batch generated are cached until their views are written. */
static void make_generated_buckets(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if ((e->kind != ENTRY_GENERATE && e->kind != ENTRY_GET) || !e->count)
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

#define STASHED_MOST 8192

/* Slots that came from another lane are wanted at once. */
static void stash_got(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        for (int64_t n = e->n; e->kind == ENTRY_GET && n < e->n + e->count && l->stash_count < STASHED_MOST; n++)
            stash_slot(l, lane_bucket(l, bucket_of(n)), (int)(n % BUCKET_SLOTS));
    }
}

/* Its slot is free after e. A hold on an issued one falls back to that. */
static bool gives_back(const struct entry *e)
{
    return entry_ends(e) && (!e->from || e->kind == ENTRY_REVERSE);
}

/* What the batch did to slots that it named: they leave the stash; those that came back go to its end. */
static void stash_named(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct cached_bucket *c = e->by_name || gives_back(e) ? lane_bucket(l, bucket_of(e->n)) : NULL;
        int at = (int)(e->n % BUCKET_SLOTS);

        if (!c || e->n < 0)
            continue;
        if (e->by_name)
            stash_drop(l, c, e->n);
        if (gives_back(e) && c->bucket.slots[at].state == SLOT_FREE) /* else it was taken again in this batch */
            stash_slot(l, c, at);
    }
}

/* What an own batch touches must have been cached, or its view would never be written, and the mark pass it. */
static bool own_buckets_laid(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        int64_t first, end;

        if (!entry_buckets(&b->entries[i], &first, &end))
            continue;
        for (int64_t k = first; k < end; k++) {
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
    stash_named(l, b);
    stash_got(l, b);
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

static int64_t definition_version(const struct lane *l)
{
    return l->definition ? l->definition->version : 0;
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
    if (l->number > 0)
        l->definition_seq = 0;
    if (status == STORE_OK)
        status = lane_refresh(l, s, NULL);
    if (status == STORE_OK && l->definition_seq > l->tail.seq)
        status = STORE_FAILED; /* the view came after our look at the ledger: look again */
    if (status == STORE_OK && l->number > 0 && definition_version(l) < l->tail.version)
        status = STORE_FAILED; /* the view is older than what the lane follows: it will be written */
    if (status != STORE_OK) {
        unload(l);
        return status;
    }
    if (picks_at_random(l))
        randombytes_buf(&l->cursor, sizeof l->cursor);
    if (l->cursor < 0)
        l->cursor = -(l->cursor + 1);
    l->loaded = true;
    return STORE_OK;
}

enum store_status lane_adopt(struct lane *l, struct store *s)
{
    struct coupon *definition = NULL;
    int64_t seq;
    enum store_status status;

    if (l->number == 0 || l->definition)
        return STORE_OK;
    status = s->ops->coupon(s, l->coupon, l->mark.when, &l->definition_arena, &definition, &seq);
    l->definition = definition;
    return status == STORE_OK && !definition ? STORE_NOT_FOUND : status;
}
