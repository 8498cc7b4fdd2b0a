/* engine/free_pool.c -- see free_pool.h. */
#include "engine/free_pool.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/free_map.h"

#define TOPUP_MOST 64
#define TOPUP_FAST_MS 1000
#define LOOKS_MOST 16 /* per top-up: the next round's looks for the rest */
#define TOGETHER_MOST 512 /* buckets read at a time for all lanes; the last one's may exceed it */

static void append_slot(struct lane *l, int64_t n, uint32_t g, const char *code)
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

static void add_free_slot(struct lane *l, struct cached_bucket *c, int i)
{
    const struct slot *slot = &c->bucket.slots[i];

    if (slot->state != SLOT_FREE || cached_bucket_wants_codes(l, c))
        return;
    append_slot(l, c->bucket.b * BUCKET_SLOTS + i, slot->generation, c->codes ? c->codes[i] : NULL);
    c->free_pool_left++;
}

static void add_free_slots_of(struct lane *l, struct cached_bucket *c)
{
    for (int i = 0; i < c->bucket.size; i++)
        add_free_slot(l, c, i);
}

/* Slot n was taken by name: remove it. */
static void drop_slot(struct lane *l, struct cached_bucket *c, int64_t n)
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

void free_pool_drop_bucket(struct lane *l, struct cached_bucket *c)
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

/* Shuffle, so that neighbours in the list of codes are not given out one after the other. */
static void shuffle_from(struct lane *l, size_t from)
{
    struct free_slot *free_pool = l->free_pool + l->free_pool_first;

    for (size_t i = l->free_pool_count; i-- > from + 1;) {
        size_t k = from + randombytes_uniform((uint32_t)(i - from + 1));
        struct free_slot moved = free_pool[i];

        free_pool[i] = free_pool[k];
        free_pool[k] = moved;
    }
}

static int by_number(struct cached_bucket *a, struct cached_bucket *b)
{
    return a->bucket.b < b->bucket.b ? -1 : a->bucket.b > b->bucket.b;
}

void free_pool_rebuild(struct lane *l)
{
    struct cached_bucket *c, *next;

    l->free_pool_first = l->free_pool_count = 0;
    HASH_SORT(l->buckets, by_number);
    HASH_ITER(hh, l->buckets, c, next) {
        c->free_pool_left = 0;
        add_free_slots_of(l, c); // cppcheck-suppress uninitvar
    }
    if (lane_picks_at_random(l))
        shuffle_from(l, 0);
}

void free_pool_spend(struct lane *l, size_t used)
{
    assert(used <= l->free_pool_count);
    for (size_t i = 0; i < used; i++) {
        struct cached_bucket *c = cached_bucket_find(l, bucket_of(l->free_pool[l->free_pool_first + i].n));

        assert(c && c->free_pool_left > 0);
        c->free_pool_left--;
    }
    l->free_pool_first += used;
    l->free_pool_count -= used;
}

/* ---- topping up ---- */

/* A bucket in which a search found free slots. */
struct found_bucket {
    struct top_up *whose;
    struct cached_bucket *bucket;
};

struct found_list {
    struct found_bucket *items;
    size_t count;
};

/* Read the codes they lack. A bucket whose codes are damaged has none: no slot of it goes to the free pool. */
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

        if (!cached_bucket_wants_codes(l, found[i].bucket))
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

/* What is free in it, the bucket says. */
static void add_found(struct found_list *found, struct top_up *t, struct cached_bucket *c)
{
    if (!c)
        return;
    free_map_note(t->lane, &c->bucket);
    if (c->free_pool_left == 0 && bucket_has_free(&c->bucket))
        found->items[found->count++] = (struct found_bucket){t, c};
}

/* Read those chosen buckets that are not cached, in one read. */
static enum store_status read_buckets(struct store *s, struct bucket_read *reads, struct top_up **whose, size_t count,
                                      struct found_list *found)
{
    enum store_status status = STORE_OK;

    if (count)
        s->ops->buckets(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (reads[i].status == STORE_OK) {
            add_found(found, whose[i], cached_bucket_keep(whose[i]->lane, reads[i].bucket));
            continue;
        }
        bucket_release(reads[i].bucket);
        if (reads[i].status == STORE_UNREADABLE)
            whose[i]->damaged = true;
        else
            status = STORE_FAILED;
    }
    return status;
}

/* Choose buckets for each, `most` in all, and find what is free in them. */
static enum store_status find_chosen(struct store *s, struct top_up **open, size_t count, size_t most, struct found_list *found)
{
    struct bucket_read *reads = checked(calloc(most + 1, sizeof *reads));
    struct bucket *buckets = checked(calloc(most + 1, sizeof *buckets));
    struct top_up **whose = checked(calloc(most + 1, sizeof(struct top_up *)));
    int64_t chosen[TOPUP_MOST];
    enum store_status status;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        open[i]->chosen = free_map_choose(l, chosen, l->topup, &open[i]->passed);
        open[i]->searched = open[i]->chosen == 0 && free_map_is_whole(l);
        for (size_t k = 0; k < open[i]->chosen; k++) {
            struct cached_bucket *c = cached_bucket_find(l, chosen[k]);

            if (c) {
                add_found(found, open[i], c);
                continue;
            }
            bucket_init(&buckets[asked], chosen[k]);
            reads[asked] = (struct bucket_read){.coupon = l->coupon, .b = chosen[k], .bucket = &buckets[asked]};
            whose[asked++] = open[i];
        }
    }
    status = read_buckets(s, reads, whose, asked, found);
    free(whose);
    free(buckets);
    free(reads);
    return status;
}

/* Read on in the maps in which nothing, or too little, could be chosen. */
static enum store_status read_maps(struct store *s, struct top_up **open, size_t count)
{
    struct lane **lanes = checked(calloc(count + 1, sizeof(struct lane *)));
    enum store_status status;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++)
        if (open[i]->chosen < open[i]->lane->topup && !free_map_is_whole(open[i]->lane))
            lanes[asked++] = open[i]->lane;
    status = free_map_read(s, lanes, asked);
    free(lanes);
    return status;
}

static void add_all_found(const struct found_list *found)
{
    for (size_t first = 0, next; first < found->count; first = next) {
        struct top_up *t = found->items[first].whose;
        size_t before = t->lane->free_pool_count;

        for (next = first; next < found->count && found->items[next].whose == t; next++) {
            struct cached_bucket *c = found->items[next].bucket;

            t->damaged = t->damaged || cached_bucket_wants_codes(t->lane, c);
            add_free_slots_of(t->lane, c);
        }
        if (lane_picks_at_random(t->lane))
            shuffle_from(t->lane, before);
    }
}

/* Look once more for each, for `most` buckets in all. */
static void look(struct store *s, struct top_up **open, size_t count, size_t most)
{
    struct found_list found = {checked(calloc(most + 1, sizeof *found.items)), 0};
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        open[i]->looks++;
        open[i]->before = open[i]->lane->cursor;
    }
    status = find_chosen(s, open, count, most, &found);
    if (status == STORE_OK)
        status = read_codes(s, found.items, found.count);
    if (status == STORE_OK)
        add_all_found(&found);
    if (status == STORE_OK)
        status = read_maps(s, open, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = status;
        if (status != STORE_OK) /* what was found may not be in the pool */
            open[i]->lane->cursor = open[i]->before;
    }
    free(found.items);
}

/* The last look found enough, or all there is, or was the last for now. */
static bool is_topped_up(const struct top_up *t)
{
    return t->status != STORE_OK || t->lane->stale || t->lane->free_pool_count >= t->want || t->searched || t->looks == LOOKS_MOST;
}

/* How many buckets the next search is for. */
static size_t grow_topup(struct lane *l, struct mono now)
{
    if (mono_ms_between(l->topped_up, now) < TOPUP_FAST_MS && l->topup < TOPUP_MOST)
        l->topup *= 2;
    l->topped_up = now;
    return l->topup;
}

void free_pool_top_up(struct store *s, struct top_up *tops, size_t count)
{
    struct top_up **open = checked(calloc(count + 1, sizeof(struct top_up *)));
    struct mono now = mono_now();
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t most = tops[i].lane->tail.slots - head_taken(&tops[i].lane->tail);

        tops[i].status = STORE_OK;
        if (most >= 0 && tops[i].want > (size_t)most)
            tops[i].want = (size_t)most;
        if (most > 0 && tops[i].lane->free_pool_count < tops[i].want)
            open[left++] = &tops[i];
    }
    while (left) {
        size_t together = 0, most = 0, kept = 0;

        while (together < left && most < TOGETHER_MOST)
            most += grow_topup(open[together++]->lane, now);
        look(s, open, together, most);
        for (size_t i = 0; i < left; i++)
            if (i >= together || !is_topped_up(open[i]))
                open[kept++] = open[i];
        left = kept;
    }
    free(open);
}

/* ---- what an own batch did to slots ---- */

void free_pool_note_named(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct cached_bucket *c = e->by_name || entry_frees(e) > 0 ? cached_bucket_find(l, bucket_of(e->n)) : NULL;
        int at = (int)(e->n % BUCKET_SLOTS);

        if (!c || e->n < 0)
            continue;
        if (e->by_name)
            drop_slot(l, c, e->n);
        if (entry_frees(e) > 0 && c->bucket.slots[at].state == SLOT_FREE) /* otherwise it was taken again in this batch */
            add_free_slot(l, c, at);
    }
}
