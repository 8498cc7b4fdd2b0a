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
#define LOOK_FIRST 8 /* batches: who is further behind asks first how far views are written */
#define TOPUP_FIRST 2
#define TOPUP_MOST 64
#define TOPUP_FAST_MS 1000
#define LOOKS_MOST 16 /* of one top-up: what is still wanted then is looked for by the next round's */
#define TOGETHER_MOST 512 /* buckets that are read at a time, of all lanes, but for the last one's */
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

struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room)
{
    struct lane *l = checked(calloc(1, sizeof *l));

    assert(strlen(coupon) <= COUPON_ID_MAX);
    snprintf(l->coupon, sizeof l->coupon, "%s", coupon);
    snprintf(l->key, sizeof l->key, "%s\n%lld", coupon, (long long)number);
    l->number = number;
    l->topup = TOPUP_FIRST;
    l->next_due_ms = INT64_MIN;
    l->touched_end = -1;
    arena_init(&l->definition_arena, 2048);
    filter_init(&l->filter, room);
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
    filter_restart(&l->filter);
    l->window_entries = l->window_bytes = l->window_ranges = 0;
    l->next_due_ms = INT64_MIN;
    l->free_pool_first = l->free_pool_count = 0;
    l->definition = NULL;
    l->definition_seq = 0;
    l->cursor = 0;
    l->touched_end = -1;
    l->tail = (struct head){0};
    l->mark = (struct mark){0};
    l->loaded = false;
}

void lane_free(struct lane *l)
{
    unload(l);
    free(l->free_pool);
    free(l);
}

/* ---- the free pool ---- */

static void free_pool_add(struct lane *l, int64_t n, uint32_t g, const char *code)
{
    if (l->free_pool_first + l->free_pool_count == l->free_pool_capacity) {
        if (l->free_pool_first > l->free_pool_capacity / 2) {
            memmove(l->free_pool, l->free_pool + l->free_pool_first, l->free_pool_count * sizeof *l->free_pool);
        } else {
            struct free_slot *larger;

            l->free_pool_capacity = l->free_pool_capacity ? l->free_pool_capacity * 2 : 256;
            larger = checked(malloc(l->free_pool_capacity * sizeof *larger));
            if (l->free_pool_count)
                memcpy(larger, l->free_pool + l->free_pool_first, l->free_pool_count * sizeof *larger);
            free(l->free_pool);
            l->free_pool = larger;
        }
        l->free_pool_first = 0;
    }
    l->free_pool[l->free_pool_first + l->free_pool_count++] = (struct free_slot){n, g, code};
}

static bool has_codes(const struct lane *l)
{
    return l->definition && l->definition->codes.source != CODES_NONE;
}

static void free_pool_slot(struct lane *l, struct cached_bucket *c, int i)
{
    const struct slot *slot = &c->bucket.slots[i];

    if (slot->state != SLOT_FREE || lane_wants_codes(l, c))
        return;
    free_pool_add(l, c->bucket.b * BUCKET_SLOTS + i, slot->generation, c->codes ? c->codes[i] : NULL);
    c->free_pool_left++;
}

static void free_pool_bucket(struct lane *l, struct cached_bucket *c)
{
    for (int i = 0; i < c->bucket.size; i++)
        free_pool_slot(l, c, i);
}

/* Slot n was taken by its name: it is not free any more. */
static void free_pool_drop(struct lane *l, struct cached_bucket *c, int64_t n)
{
    struct free_slot *free_pool = l->free_pool + l->free_pool_first;
    size_t i = 0;

    if (c->free_pool_left == 0)
        return;
    while (i < l->free_pool_count && free_pool[i].n != n)
        i++;
    if (i == l->free_pool_count)
        return;
    memmove(free_pool + i, free_pool + i + 1, (l->free_pool_count - i - 1) * sizeof *free_pool);
    l->free_pool_count--;
    c->free_pool_left--;
}

/* All slots of the bucket leave the free pool. */
static void free_pool_drop_bucket(struct lane *l, struct cached_bucket *c)
{
    struct free_slot *free_pool = l->free_pool + l->free_pool_first;
    size_t kept = 0;

    if (c->free_pool_left == 0)
        return;
    for (size_t i = 0; i < l->free_pool_count; i++)
        if (bucket_of(free_pool[i].n) != c->bucket.b)
            free_pool[kept++] = free_pool[i];
    l->free_pool_count = kept;
    c->free_pool_left = 0;
}

/* So that what stands side by side in the list of codes does not go out side by side. */
static void free_pool_shuffle(struct lane *l, size_t from)
{
    struct free_slot *free_pool = l->free_pool + l->free_pool_first;

    for (size_t i = l->free_pool_count; i-- > from + 1;) {
        size_t k = from + randombytes_uniform((uint32_t)(i - from + 1));
        struct free_slot moved = free_pool[i];

        free_pool[i] = free_pool[k];
        free_pool[k] = moved;
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
static void free_pool_rebuild(struct lane *l)
{
    struct cached_bucket *c, *next;

    l->free_pool_first = l->free_pool_count = 0;
    HASH_SORT(l->buckets, by_number);
    HASH_ITER(hh, l->buckets, c, next) {
        c->free_pool_left = 0;
        free_pool_bucket(l, c);
    }
    if (picks_at_random(l))
        free_pool_shuffle(l, 0);
}

static void free_pool_spend(struct lane *l, size_t used)
{
    assert(used <= l->free_pool_count);
    for (size_t i = 0; i < used; i++) {
        struct cached_bucket *c = lane_bucket(l, bucket_of(l->free_pool[l->free_pool_first + i].n));

        assert(c && c->free_pool_left > 0);
        c->free_pool_left--;
    }
    l->free_pool_first += used;
    l->free_pool_count -= used;
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
    bucket_fit(k, l->tail.next_n);
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
        if (!c->dirty && c->free_pool_left == 0)
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

/* ---- buckets that nobody touched: they have no view, and nothing in the window names them ---- */

#define WALK_MOST 256 /* touched buckets that are passed over at a time */

static int64_t first_bucket(const struct lane *l)
{
    return bucket_of(l->number * LANE_SLOTS);
}

static int64_t end_bucket(const struct lane *l)
{
    return bucket_of(fold_next_n(&l->tail, l->number) + BUCKET_SLOTS - 1);
}

/* Where the walk for untouched buckets begins: behind the last one that was touched, since those there need not be read; then come
 * those among the others. Where these are few, in the order of their numbers. */
static void begin_walk(struct lane *l, int64_t touched_end)
{
    struct window_batch *w;

    l->touched_end = touched_end;
    DL_FOREACH(l->window, w)
        if (w->end_b > l->touched_end)
            l->touched_end = w->end_b;
    l->walk = l->touched_end - first_bucket(l) > WALK_MOST ? l->touched_end : first_bucket(l);
    l->walk_rest = l->walk;
    l->walk_stop = INT64_MAX;
}

/* Slots were made in buckets from `grows` on: the walk goes there next, and to what it has not seen after that. */
static void extend_walk(struct lane *l, int64_t grows)
{
    if (l->touched_end < 0 || (l->walk >= 0 && l->walk <= grows && l->walk_stop == INT64_MAX))
        return;
    if (l->walk < 0)
        l->walk_rest = first_bucket(l);
    else if (l->walk_stop < INT64_MAX)
        l->walk_rest = l->walk_stop;
    l->walk = grows;
    l->walk_stop = INT64_MAX;
}

/* The end of what is walked now; at it, the rest is next. False: the walk is over, and no bucket is untouched that was not seen. */
static bool walks(struct lane *l, int64_t *end)
{
    *end = l->walk_stop < end_bucket(l) ? l->walk_stop : end_bucket(l);
    if (l->walk >= 0 && l->walk < *end)
        return true;
    if (l->walk < 0 || l->walk_rest <= first_bucket(l)) {
        l->walk = -1;
        return false;
    }
    l->walk = first_bucket(l);
    *end = l->walk_stop = l->walk_rest;
    l->walk_rest = first_bucket(l);
    return true;
}

/* A bucket without a view, as the window leaves it. */
static struct cached_bucket *untouched_bucket(struct lane *l, int64_t b)
{
    struct cached_bucket *c = lane_bucket(l, b);
    struct bucket fresh;

    if (c)
        return c;
    bucket_init(&fresh, b);
    return lane_cache_bucket(l, &fresh);
}

/* A bucket in which a search found free slots. */
struct found_bucket {
    struct top_up *whose;
    struct cached_bucket *bucket;
};

struct found_list {
    struct found_bucket *items;
    size_t count;
};

/* What codes they lack. A damaged one leaves its bucket without: no slot of it goes to the free pool. */
static enum store_status read_codes(struct store *s, const struct found_bucket *found, size_t count)
{
    struct bucket_codes_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct cached_bucket **wanting = checked(calloc(count + 1, sizeof(struct cached_bucket *)));
    enum store_status status = STORE_OK;
    struct arena a;
    size_t want = 0;

    arena_init(&a, 64 * 1024);
    for (size_t i = 0; i < count; i++) {
        const struct lane *l = found[i].whose->lane;

        if (!lane_wants_codes(l, found[i].bucket))
            continue;
        wanting[want] = found[i].bucket;
        reads[want++] = (struct bucket_codes_read){.coupon = l->coupon, .b = found[i].bucket->bucket.b};
    }
    if (want)
        s->ops->bucket_codes(s, &a, reads, want);
    for (size_t i = 0; i < want; i++) {
        if (reads[i].status == STORE_OK)
            cached_bucket_set_codes(wanting[i], &reads[i]);
        else if (reads[i].status != STORE_UNREADABLE)
            status = STORE_FAILED;
    }
    arena_free(&a);
    free(wanting);
    free(reads);
    return status;
}

static void add_found(struct found_list *found, struct top_up *t, struct cached_bucket *c)
{
    if (!c || c->free_pool_left > 0 || !bucket_has_free(&c->bucket))
        return;
    found->items[found->count++] = (struct found_bucket){t, c};
    t->found++;
}

/* Touched buckets in which something is free: the next ones of each lane, in one read. */
static enum store_status find_touched(struct store *s, struct top_up **open, size_t count, size_t most, struct store_time after,
                                      struct found_list *found)
{
    struct free_search *searches = checked(calloc(count + 1, sizeof *searches));
    struct bucket *buckets = checked(malloc((most + 1) * sizeof *buckets));
    size_t given = 0, asked = 0;
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        open[i]->searched = open[i]->searched || l->touched_end == first_bucket(l);
        if (open[i]->searched)
            continue;
        open[i]->from_start = l->cursor == 0;
        searches[asked++] = (struct free_search){.coupon = l->coupon, .lane = l->number, .random = picks_at_random(l),
                                                 .from = l->cursor, .most = l->topup, .buckets = buckets + given};
        given += l->topup;
    }
    status = asked ? s->ops->free_buckets(s, after, searches, asked) : STORE_OK;
    asked = 0;
    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        struct top_up *t = open[i];
        const struct free_search *search = &searches[asked];

        if (t->searched)
            continue;
        asked++;
        for (size_t k = 0; k < search->count; k++)
            add_found(found, t, cache_or_stale(t->lane, &search->buckets[k]));
        t->lane->cursor = search->next;
        t->damaged = t->damaged || search->left_out;
        t->searched = search->next == 0 && (t->from_start || t->wrapped); /* all there are */
        t->wrapped = t->wrapped || search->next == 0;
    }
    free(buckets);
    free(searches);
    return status;
}

/* Some buckets of a lane at random: those that are surely untouched are found, the others are to be read. */
static void draw(struct top_up *t, struct bucket_read *reads, struct top_up **whose, size_t *count, struct found_list *found)
{
    struct lane *l = t->lane;
    uint64_t random, span = (uint64_t)(end_bucket(l) - first_bucket(l));

    for (size_t i = 0; i < l->topup; i++) {
        int64_t b;

        randombytes_buf(&random, sizeof random);
        b = first_bucket(l) + (int64_t)(random % span);
        if (lane_bucket(l, b))
            continue;
        if (b >= l->touched_end) {
            add_found(found, t, untouched_bucket(l, b));
            continue;
        }
        bucket_init(reads[*count].bucket, b);
        reads[*count].coupon = l->coupon;
        reads[*count].b = b;
        whose[(*count)++] = t;
    }
}

/* Of the lanes that pick at random: what is found where nobody knows to look. Most are untouched while a coupon is young. */
static enum store_status find_drawn(struct store *s, struct top_up **open, size_t count, size_t most, struct store_time after,
                                    struct found_list *found)
{
    struct bucket_read *reads = checked(calloc(most + 1, sizeof *reads));
    struct bucket *buckets = checked(calloc(most + 1, sizeof *buckets));
    struct top_up **whose = checked(calloc(most + 1, sizeof(struct top_up *)));
    enum store_status status = STORE_OK;
    size_t read_count = 0;
    int64_t end;

    for (size_t i = 0; i < most; i++)
        reads[i].bucket = &buckets[i];
    for (size_t i = 0; i < count; i++)
        if (picks_at_random(open[i]->lane) && walks(open[i]->lane, &end))
            draw(open[i], reads, whose, &read_count, found);
    if (read_count)
        s->ops->buckets(s, after, reads, read_count);
    for (size_t i = 0; i < read_count; i++) {
        if (reads[i].status == STORE_OK) {
            add_found(found, whose[i], cache_or_stale(whose[i]->lane, &buckets[i]));
            continue;
        }
        bucket_release(&buckets[i]);
        if (reads[i].status == STORE_UNREADABLE)
            whose[i]->damaged = true;
        else
            status = STORE_FAILED;
    }
    free(whose);
    free(buckets);
    free(reads);
    return status;
}

/* Where a lane walks now. */
struct stretch {
    struct top_up *whose;
    int64_t end;
    const struct touched_search *touched; /* NULL: nothing there is */
};

/* Walk on, over the touched buckets. */
static void walk_on(const struct stretch *stretch, struct found_list *found)
{
    struct top_up *t = stretch->whose;
    const struct touched_search *touched = stretch->touched;
    size_t passed = 0, count = touched ? touched->count : 0, before = t->found;
    int64_t end = count == WALK_MOST ? touched->numbers[WALK_MOST - 1] + 1 : stretch->end;
    struct lane *l = t->lane;

    for (; l->walk < end && t->found - before < l->topup; l->walk++) {
        if (passed < count && touched->numbers[passed] == l->walk)
            passed++;
        else
            add_found(found, t, untouched_bucket(l, l->walk));
    }
}

/* Untouched buckets: of each lane that needs them, those of the next stretch. What lies behind the last touched bucket is not read. */
static enum store_status find_untouched(struct store *s, struct top_up **open, size_t count, struct store_time after,
                                        struct found_list *found)
{
    struct stretch *stretches = checked(calloc(count + 1, sizeof *stretches));
    struct touched_search *searches = checked(calloc(count + 1, sizeof *searches));
    int64_t *numbers = checked(malloc((count + 1) * WALK_MOST * sizeof *numbers)), end;
    size_t walking = 0, asked = 0;
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        if ((open[i]->found && picks_at_random(l)) || !walks(l, &end))
            continue;
        stretches[walking] = (struct stretch){open[i], end, NULL};
        if (l->walk < l->touched_end) {
            searches[asked] = (struct touched_search){.coupon = l->coupon, .from = l->walk, .most = WALK_MOST,
                                                      .end = end < l->touched_end ? end : l->touched_end,
                                                      .numbers = numbers + asked * WALK_MOST};
            stretches[walking].touched = &searches[asked++];
        }
        walking++;
    }
    status = asked ? s->ops->touched(s, after, searches, asked) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < walking; i++)
        walk_on(&stretches[i], found);
    free(numbers);
    free(searches);
    free(stretches);
    return status;
}

static void free_pool_found(const struct found_list *found)
{
    for (size_t first = 0, next; first < found->count; first = next) {
        struct top_up *t = found->items[first].whose;
        size_t before = t->lane->free_pool_count;

        for (next = first; next < found->count && found->items[next].whose == t; next++) {
            struct cached_bucket *c = found->items[next].bucket;

            t->damaged = t->damaged || lane_wants_codes(t->lane, c);
            if (c->free_pool_left == 0) /* else it was found twice */
                free_pool_bucket(t->lane, c);
        }
        if (picks_at_random(t->lane))
            free_pool_shuffle(t->lane, before);
    }
}

/* One more look for each, for `most` buckets in all. */
static void top_up_once(struct store *s, struct top_up **open, size_t count, size_t most)
{
    struct found_list found = {checked(calloc(3 * most + 1, sizeof *found.items)), 0};
    struct store_time after = {0, 0};
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        after = store_time_later(after, open[i]->lane->mark.when);
        open[i]->found = 0;
        open[i]->looks++;
    }
    status = find_touched(s, open, count, most, after, &found);
    if (status == STORE_OK)
        status = find_drawn(s, open, count, most, after, &found);
    if (status == STORE_OK)
        status = find_untouched(s, open, count, after, &found);
    if (status == STORE_OK)
        status = read_codes(s, found.items, found.count);
    if (status == STORE_OK)
        free_pool_found(&found);
    for (size_t i = 0; i < count; i++)
        open[i]->status = status;
    free(found.items);
}

/* The look before this one found enough, or has seen all there is, or was the last for now. */
static bool is_topped_up(struct top_up *t)
{
    int64_t end;

    return t->status != STORE_OK || t->lane->free_pool_count >= t->want || (t->searched && !walks(t->lane, &end)) ||
           t->looks == LOOKS_MOST;
}

/* How many buckets the next look is for. */
static size_t grow_topup(struct lane *l, struct mono now)
{
    if (mono_ms_between(l->topped_up, now) < TOPUP_FAST_MS && l->topup < TOPUP_MOST)
        l->topup *= 2;
    l->topped_up = now;
    return l->topup;
}

/* Where each lane's touched buckets end, in one read. False: the database did not answer. */
static bool find_ends(struct store *s, struct top_up **open, size_t count)
{
    struct touched_search *searches = checked(calloc(count + 1, sizeof *searches));
    int64_t *last = checked(calloc(count + 1, sizeof *last));
    struct lane **whose = checked(calloc(count + 1, sizeof(struct lane *)));
    struct store_time after = {0, 0};
    enum store_status status;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        if (l->touched_end < 0 && l->mark.seq == 0) { /* the window has all there is */
            begin_walk(l, first_bucket(l));
        } else if (l->touched_end < 0) {
            searches[asked] = (struct touched_search){.coupon = l->coupon, .from = first_bucket(l), .last = true, .most = 1,
                                                      .end = first_bucket(l) + LANE_SLOTS / BUCKET_SLOTS, .numbers = &last[asked]};
            after = store_time_later(after, l->mark.when);
            whose[asked++] = l;
        }
    }
    status = asked ? s->ops->touched(s, after, searches, asked) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < asked; i++)
        begin_walk(whose[i], searches[i].count ? last[i] + 1 : first_bucket(whose[i]));
    free(whose);
    free(last);
    free(searches);
    return status == STORE_OK;
}

void lane_top_up(struct store *s, struct top_up *tops, size_t count)
{
    struct top_up **open = checked(calloc(count + 1, sizeof(struct top_up *)));
    struct mono now = mono_now();
    size_t left = 0;
    bool found_ends;

    for (size_t i = 0; i < count; i++) {
        int64_t most = tops[i].lane->tail.slots - head_taken(&tops[i].lane->tail);

        tops[i].status = STORE_OK;
        if (most >= 0 && tops[i].want > (size_t)most)
            tops[i].want = (size_t)most;
        if (most > 0 && tops[i].lane->free_pool_count < tops[i].want)
            open[left++] = &tops[i];
    }
    found_ends = find_ends(s, open, left);
    for (size_t i = 0; i < left && !found_ends; i++)
        open[i]->status = STORE_FAILED;
    while (left && found_ends) {
        size_t together = 0, most = 0, kept = 0;

        while (together < left && most < TOGETHER_MOST)
            most += grow_topup(open[together++]->lane, now);
        top_up_once(s, open, together, most);
        for (size_t i = 0; i < left; i++)
            if (i >= together || !is_topped_up(open[i]))
                open[kept++] = open[i];
        left = kept;
    }
    free(open);
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

/* Entries of the window whose end has come, in buckets that are not cached: the views may not have it yet. */
static enum store_status cache_due_of_window(struct store *s, struct due_look *k)
{
    struct bucket_read reads[DUE_MOST];
    struct bucket buckets[DUE_MOST];
    struct lane *l = k->lane;
    size_t count = 0;
    struct window_batch *w;
    enum store_status status = STORE_OK;

    DL_FOREACH(l->window, w)
        for (size_t i = 0; i < w->batch->count && !k->more; i++) {
            const struct entry *e = &w->batch->entries[i];
            bool due = entry_due(e) && entry_due(e) <= k->at_ms && e->n >= 0 && !lane_bucket(l, bucket_of(e->n));

            for (size_t j = 0; due && j < count; j++)
                due = reads[j].b != bucket_of(e->n);
            k->more = due && count == DUE_MOST;
            if (!due || k->more)
                continue;
            bucket_init(&buckets[count], bucket_of(e->n));
            reads[count] = (struct bucket_read){.coupon = l->coupon, .b = bucket_of(e->n), .bucket = &buckets[count]};
            count++;
        }
    if (count)
        s->ops->buckets(s, l->mark.when, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (reads[i].status == STORE_OK) {
            cache_or_stale(l, &buckets[i]);
            continue;
        }
        bucket_release(&buckets[i]);
        if (reads[i].status == STORE_UNREADABLE)
            k->damaged = true;
        else
            status = STORE_FAILED;
    }
    return status;
}

/* The look before this one did not find all, and views may still show what it found. */
static bool looks_again(const struct lane *l)
{
    return l->next_due_ms == INT64_MIN;
}

/* Something ends by itself at next_due_ms at the earliest, beside what was found. */
static void found_due(struct due_look *k, int64_t next_due_ms)
{
    struct lane *l = k->lane;

    k->more = k->more || k->damaged || (next_due_ms && next_due_ms <= k->at_ms);
    l->next_due_ms = k->more ? INT64_MIN : INT64_MAX;
    note_due(l, next_due_ms);
    note_later_dues(l, k->at_ms);
}

static void begin_due_search(struct due_look *k, struct due_search *search, struct bucket *buckets)
{
    const struct lane *l = k->lane;
    int64_t *cached;

    *search = (struct due_search){.coupon = l->coupon, .lane = l->number, .at_ms = k->at_ms, .most = DUE_MOST, .buckets = buckets};
    if (!looks_again(l))
        return;
    search->but_buckets = cached = arena_array(k->arena, KNOWN_MOST, sizeof *cached);
    for (const struct cached_bucket *c = l->buckets; c && search->but_count < KNOWN_MOST; c = c->hh.next)
        cached[search->but_count++] = c->bucket.b;
}

static void keep_due(struct store *s, struct due_look *k, const struct due_search *search)
{
    for (size_t i = 0; i < search->count; i++)
        cache_or_stale(k->lane, &search->buckets[i]);
    k->damaged = search->left_out;
    k->status = cache_due_of_window(s, k);
    if (k->status == STORE_OK)
        found_due(k, search->next_due_ms);
}

static void find_due_buckets(struct store *s, struct due_look **looks, size_t count)
{
    struct due_search *searches = checked(calloc(count + 1, sizeof *searches));
    struct bucket *buckets = checked(malloc((count + 1) * DUE_MOST * sizeof *buckets));
    struct store_time after = {0, 0};
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        begin_due_search(looks[i], &searches[i], buckets + i * DUE_MOST);
        after = store_time_later(after, looks[i]->lane->mark.when);
    }
    status = s->ops->due_buckets(s, after, searches, count);
    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK)
            keep_due(s, looks[i], &searches[i]);
        else
            looks[i]->status = status;
    }
    free(buckets);
    free(searches);
}

/* The earliest end after at_ms among u's redemptions that is before next_ms, else next_ms (0: none): u's view tells only the
 * earliest of all, which is being dealt with. */
static int64_t later_due(const struct user_state *u, int64_t at_ms, int64_t next_ms)
{
    for (size_t i = 0; i < u->count; i++) {
        int64_t due_ms = redemption_due(&u->redemptions[i]);

        if (due_ms > at_ms)
            next_ms = sooner_ms(next_ms, due_ms);
    }
    return next_ms;
}

/* Something of u has ended by itself, and its view may not say so yet. */
static bool has_expired(const struct lane *l, const struct user_state *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->redemptions[i].state == SLOT_EXPIRED && u->redemptions[i].last_seq > l->mark.seq)
            return true;
    return false;
}

static void find_due_users(struct store *s, struct due_look *k)
{
    struct lane *l = k->lane;
    struct due_search search = {.coupon = l->coupon, .lane = l->number, .at_ms = k->at_ms, .most = DUE_MOST};
    struct user_state *user_states[DUE_MOST];
    const char *known[KNOWN_MOST];
    struct arena whole;
    struct window_user *wu, *next;
    size_t listed = 0;

    search.but_users = known;
    for (wu = l->users; looks_again(l) && wu && search.but_count < KNOWN_MOST; wu = wu->hh.next)
        if (wu->state && has_expired(l, wu->state))
            known[search.but_count++] = wu->user;
    arena_init(&whole, 64 * 1024);
    k->status = s->ops->due_user_states(s, l->mark.when, &search, &whole, user_states);
    k->users = arena_array(k->arena, search.count + HASH_COUNT(l->users) + 1, sizeof *k->users);
    for (size_t i = 0; k->status == STORE_OK && i < search.count && listed < LISTED_MOST; i++) {
        k->users[k->user_count++] = arena_strdup(k->arena, user_states[i]->user);
        listed += user_states[i]->count;
        search.next_due_ms = later_due(user_states[i], k->at_ms, search.next_due_ms);
    }
    arena_free(&whole);
    if (k->status != STORE_OK)
        return;
    HASH_ITER(hh, l->users, wu, next) {
        int64_t due_ms = wu->state ? user_state_due(wu->state) : k->at_ms;

        if (!due_ms || due_ms > k->at_ms || listed >= LISTED_MOST) {
            search.next_due_ms = sooner_ms(search.next_due_ms, due_ms);
            continue;
        }
        k->users[k->user_count++] = arena_strdup(k->arena, wu->user);
        listed += wu->state ? wu->state->count : 1;
    }
    k->more = listed >= LISTED_MOST;
    k->damaged = search.left_out;
    found_due(k, search.next_due_ms);
}

#define DUE_TOGETHER 32 /* lanes whose buckets are looked for at a time */

void lane_find_due(struct store *s, struct due_look *looks, size_t count)
{
    struct due_look *slots[DUE_TOGETHER];
    size_t together = 0;

    for (size_t i = 0; i < count; i++) {
        const struct coupon *d = looks[i].lane->definition;

        if (d && !policy_of(d)->slots)
            find_due_users(s, &looks[i]);
        else
            slots[together++] = &looks[i];
        if (together && (together == DUE_TOGETHER || i + 1 == count)) {
            find_due_buckets(s, slots, together);
            together = 0;
        }
    }
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
    struct window_user *wu;

    if (!e->user && entry_members[e->kind] & HAS_USER)
        forget_alias(l, e->alias);
    if (!e->user)
        return;
    wu = window_user(l, e->user);
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
    if (l->touched_end >= 0 && end > l->touched_end)
        l->touched_end = end;
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
    w->bytes = b->arena.bytes;
    l->window_bytes += w->bytes;
    l->window_ranges += has_ranges(b);
    for (size_t i = 0; i < b->count; i++) {
        note_buckets(l, w, &b->entries[i]);
        index_entry(l, w, &b->entries[i]);
        w->has_jobs = w->has_jobs || b->entries[i].job;
        note_due(l, entry_due(&b->entries[i]));
    }
    for (size_t i = 0; own && i < b->user_state_count; i++)
        window_user(l, b->user_states[i]->user)->state = b->user_states[i];
    return w;
}

static void unindex_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    struct window_user *wu = NULL;

    if (e->user)
        HASH_FIND_STR(l->users, e->user, wu);
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
        l->window_bytes -= w->bytes;
        window_release(w);
    }
}

/* The first batch of the window after what the filter has; NULL: none. */
static const struct window_batch *first_unlaid(const struct lane *l)
{
    const struct window_batch *w = l->window ? l->window->prev : NULL; /* the last one */

    if (!w || w->batch->head.seq <= l->filter.seq)
        return NULL;
    while (w != l->window && w->prev->batch->head.seq > l->filter.seq)
        w = w->prev;
    return w;
}

bool lane_note_users(struct lane *l, struct store *s)
{
    if (l->filter.state == FILTER_NONE)
        return true;
    for (const struct window_batch *w = first_unlaid(l); w; w = w->next)
        if (!filter_lay(&l->filter, s, w->batch))
            return false;
    if (l->filter.seq != l->tail.seq) /* what is between was never in the window: it was loaded past it */
        filter_drop(&l->filter);
    return true;
}

bool lane_overlay_user_state(const struct lane *l, struct user_state *u, struct arena *a)
{
    struct window_user *wu;

    if (u->seq > l->tail.seq)
        return false;
    HASH_FIND_STR(l->users, u->user, wu);
    for (size_t i = 0; wu && i < wu->count; i++)
        fold_user_state(u, wu->batches[i]->batch, a);
    return true;
}

const struct user_state *lane_known_user_state(const struct lane *l, const char *user)
{
    struct window_user *wu;

    HASH_FIND_STR(l->users, user, wu);
    return wu ? wu->state : NULL;
}

/* Of jobs and accounts there is no index: few batches tell of any. */

bool lane_overlay_job(const struct lane *l, struct job_progress *j)
{
    if (j->seq > l->tail.seq)
        return false;
    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs)
            fold_job(j, w->batch);
    return true;
}

static bool tells_of_job(const struct batch *b, const char *job)
{
    const char *other;

    for (size_t i = 0; i < b->count; i++)
        if ((other = entry_job(&b->entries[i])) && strcmp(other, job) == 0)
            return true;
    return false;
}

const struct job_progress *lane_known_job(const struct lane *l, const char *job)
{
    const struct batch *last = NULL;

    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs && tells_of_job(w->batch, job))
            last = w->batch;
    for (size_t i = 0; last && i < last->job_count; i++)
        if (strcmp(last->jobs[i]->id, job) == 0)
            return last->jobs[i];
    return NULL;
}

bool lane_overlay_account(const struct lane *l, struct lane_account *account)
{
    if (account->seq > l->tail.seq)
        return false;
    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs)
            fold_account(account, w->batch);
    return true;
}

static bool tells_of_account(const struct batch *b, int64_t peer)
{
    for (size_t i = 0; i < b->count; i++)
        if (entry_peer(&b->entries[i], b->lane) == peer)
            return true;
    return false;
}

const struct lane_account *lane_known_account(const struct lane *l, int64_t peer)
{
    const struct batch *last = NULL;

    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs && tells_of_account(w->batch, peer))
            last = w->batch;
    for (size_t i = 0; last && i < last->account_count; i++)
        if (last->accounts[i]->peer == peer)
            return last->accounts[i];
    return NULL;
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

static bool move_bucket(struct cached_bucket *c, const struct batch *b)
{
    bool moved = fold_bucket(&c->bucket, b);

    c->dirty = c->dirty || moved;
    return moved;
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
                any = move_bucket(c, b) || any;
        return any;
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        c = (entry_members[e->kind] & HAS_SLOT) && e->n >= 0 ? lane_bucket(l, bucket_of(e->n)) : NULL;
        if (c)
            any = move_bucket(c, b) || any;
    }
    return any;
}

/* The tail moves to h. Where slots were made, the last bucket grows, and the untouched ones are looked for from there on. */
static void move_tail(struct lane *l, const struct head *h)
{
    int64_t grows = bucket_of(fold_next_n(&l->tail, l->number));
    bool made = h->next_n != l->tail.next_n;
    struct cached_bucket *c = made ? lane_bucket(l, grows) : NULL;

    l->tail = *h;
    if (!made)
        return;
    if (c) {
        bucket_fit(&c->bucket, h->next_n);
        if (has_codes(l)) { /* what was read of the new slots' codes was a draft */
            free_pool_drop_bucket(l, c); /* it points to them; what is free is found again by whoever tops it up */
            free(c->codes);
            c->codes = NULL;
        }
    }
    extend_walk(l, grows);
}

#define STASHED_MOST 8192

/* Slots that came from another lane are wanted at once. */
static void free_pool_got(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        for (int64_t n = e->n; e->kind == ENTRY_GET && n < e->n + e->count && l->free_pool_count < STASHED_MOST; n++) {
            bool is_new = bucket_of(n) * BUCKET_SLOTS >= e->n; /* else it had slots before: whoever tops up finds it */
            struct cached_bucket *c = is_new ? untouched_bucket(l, bucket_of(n)) : lane_bucket(l, bucket_of(n));

            if (c)
                free_pool_slot(l, c, (int)(n % BUCKET_SLOTS));
        }
    }
}

/* Its slot is free after e. A hold on an issued one falls back to that. */
static bool gives_back(const struct entry *e)
{
    return entry_ends(e) && (!e->from || e->kind == ENTRY_REVERSE);
}

/* What the batch did to slots that it named: they leave the free pool; those that came back go to its end. */
static void free_pool_named(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct cached_bucket *c = e->by_name || gives_back(e) ? lane_bucket(l, bucket_of(e->n)) : NULL;
        int at = (int)(e->n % BUCKET_SLOTS);

        if (!c || e->n < 0)
            continue;
        if (e->by_name)
            free_pool_drop(l, c, e->n);
        if (gives_back(e) && c->bucket.slots[at].state == SLOT_FREE) /* else it was taken again in this batch */
            free_pool_slot(l, c, at);
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

void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used)
{
    struct window_batch *w;

    assert(b->head.seq == l->tail.seq + 1);
    free_pool_spend(l, free_pool_used);
    w = window_add(l, b, true);
    move_buckets(l, w);
    assert(own_buckets_laid(l, b));
    free_pool_named(l, b);
    move_definition(l, b);
    move_tail(l, &b->head);
    free_pool_got(l, b);
}

static void lay_foreign(struct lane *l, struct batch *b, bool *free_pool_changed)
{
    struct window_batch *w = window_add(l, b, false);

    *free_pool_changed = move_buckets(l, w) || *free_pool_changed;
    move_definition(l, b);
    move_tail(l, &b->head);
}

/* Lay `count` batches that follow the tail; takes them all. A gap is damage: STORE_FAILED. */
static enum store_status lay_all(struct lane *l, struct batch **batches, size_t count)
{
    enum store_status status = STORE_OK;
    bool free_pool_changed = false;

    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK && batches[i]->head.seq == l->tail.seq + 1) {
            lay_foreign(l, batches[i], &free_pool_changed);
            continue;
        }
        if (status == STORE_OK)
            log_event(LOG_ERROR, "lane.gap", "coupon=%s lane=%lld tail=%lld next=%lld", l->coupon,
                      (long long)l->number, (long long)l->tail.seq, (long long)batches[i]->head.seq);
        status = STORE_FAILED;
        batch_free(batches[i]);
    }
    if (free_pool_changed)
        free_pool_rebuild(l);
    return status;
}

/* Read at most `most` batches after the tail, and lay them. *more: they were as many. */
static enum store_status read_on(struct lane *l, struct store *s, size_t most, bool *more)
{
    struct batch *batches[LEDGER_CHUNK];
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, most, batches, &count);

    *more = count == most;
    return status == STORE_OK ? lay_all(l, batches, count) : status;
}

static enum store_status read_to_end(struct lane *l, struct store *s)
{
    enum store_status status = STORE_OK;

    for (bool more = true; status == STORE_OK && more;)
        status = read_on(l, s, LEDGER_CHUNK, &more);
    return status;
}

enum store_status lane_refresh(struct lane *l, struct store *s)
{
    struct lane_loading load = {.lane = l};
    struct mark mark = {0};
    bool more;
    enum store_status status = read_on(l, s, LOOK_FIRST, &more);

    assert(l->loaded && !l->pending);
    if (status != STORE_OK || !more)
        return status;
    status = s->ops->mark(s, l->coupon, l->number, "views", &mark);
    if (status != STORE_OK)
        return status;
    if (mark.seq <= l->tail.seq)
        return read_to_end(l, s);
    unload(l); /* nothing is owed: whoever moved the mark has written the views of our batches too */
    lane_load(s, &load, 1);
    return load.status;
}

/* ---- loading ---- */

#define LOADED_FIRST (LOOK_FIRST + 1) /* batches of each lane: the one at the mark, and those after it. Few have more */

/* Those of loads[] that nothing failed of yet; returns how many. */
static size_t list_open(struct lane_loading *loads, size_t count, struct lane_loading **open)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++)
        if (loads[i].status == STORE_OK)
            open[left++] = &loads[i];
    return left;
}

static void load_marks(struct store *s, struct lane_loading **open, size_t count)
{
    struct mark_read *reads = checked(calloc(count + 1, sizeof *reads));

    for (size_t i = 0; i < count; i++)
        reads[i] = (struct mark_read){.coupon = open[i]->lane->coupon, .lane = open[i]->lane->number, .kind = "views"};
    if (count)
        s->ops->marks(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->lane->mark = reads[i].mark;
        open[i]->status = reads[i].status;
    }
    free(reads);
}

static void load_definitions(struct store *s, struct lane_loading **open, size_t count)
{
    struct coupon_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct store_time after = {0, 0};

    for (size_t i = 0; i < count; i++) {
        reads[i] = (struct coupon_read){.coupon = open[i]->lane->coupon, .arena = &open[i]->lane->definition_arena};
        after = store_time_later(after, open[i]->lane->mark.when);
    }
    if (count)
        s->ops->coupons(s, after, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        open[i]->lane->definition = reads[i].definition;
        open[i]->lane->definition_seq = open[i]->lane->number > 0 ? 0 : reads[i].seq;
    }
    free(reads);
}

/* The batch at the mark, if there is one, is the tail that the window starts from. Takes it, and those after it. */
static enum store_status lay_first(struct lane *l, struct batch **batches, size_t count)
{
    size_t base = l->mark.seq > 0;

    if (base && (!count || batches[0]->head.seq != l->mark.seq)) {
        log_event(LOG_ERROR, "lane.no_batch_at_mark", "coupon=%s lane=%lld mark=%lld", l->coupon,
                  (long long)l->number, (long long)l->mark.seq);
        while (count > 0)
            batch_free(batches[--count]);
        return STORE_FAILED;
    }
    if (base) {
        l->tail = batches[0]->head;
        batch_free(batches[0]);
    }
    return lay_all(l, batches + base, count - base);
}

static void load_ledgers(struct store *s, struct lane_loading **open, size_t count)
{
    struct ledger_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct batch **batches = checked(calloc((count + 1) * LOADED_FIRST, sizeof(struct batch *)));

    for (size_t i = 0; i < count; i++) {
        const struct lane *l = open[i]->lane;

        reads[i] = (struct ledger_read){.coupon = l->coupon, .lane = l->number, .after = l->mark.seq ? l->mark.seq - 1 : 0,
                                        .most = LOADED_FIRST, .batches = batches + i * LOADED_FIRST};
    }
    if (count)
        s->ops->ledgers(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        if (open[i]->status == STORE_OK)
            open[i]->status = lay_first(open[i]->lane, reads[i].batches, reads[i].count);
        if (open[i]->status == STORE_OK && reads[i].count == LOADED_FIRST)
            open[i]->status = read_to_end(open[i]->lane, s);
    }
    free(batches);
    free(reads);
}

static int64_t definition_version(const struct lane *l)
{
    return l->definition ? l->definition->version : 0;
}

static enum store_status finish_load(struct lane *l)
{
    if (l->definition_seq > l->tail.seq)
        return STORE_FAILED; /* the view came after our look at the ledger: look again */
    if (l->number > 0 && definition_version(l) < l->tail.version)
        return STORE_FAILED; /* the view is older than what the lane follows: it will be written */
    if (picks_at_random(l))
        randombytes_buf(&l->cursor, sizeof l->cursor);
    if (l->cursor < 0)
        l->cursor = -(l->cursor + 1);
    l->loaded = true;
    return STORE_OK;
}

/* The definitions before the ledgers: what is newer than a definition's view is laid over it. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count)
{
    struct lane_loading **open = checked(calloc(count + 1, sizeof(struct lane_loading *)));

    for (size_t i = 0; i < count; i++) {
        assert(!loads[i].lane->loaded && !loads[i].lane->window && !loads[i].lane->pending);
        loads[i].status = STORE_OK;
    }
    load_marks(s, open, list_open(loads, count, open));
    load_definitions(s, open, list_open(loads, count, open));
    load_ledgers(s, open, list_open(loads, count, open));
    for (size_t i = 0; i < count; i++) {
        if (loads[i].status == STORE_OK)
            loads[i].status = finish_load(loads[i].lane);
        if (loads[i].status != STORE_OK)
            unload(loads[i].lane);
    }
    free(open);
}

void lane_load_none(struct lane *l)
{
    assert(!l->loaded && !l->window && l->number == 0);
    l->loaded = true;
}
