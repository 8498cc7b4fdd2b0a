/*
 * engine/free_pool.c -- see free_pool.h.
 *
 * Where    in touched buckets, which the store finds by an index; in untouched ones, which have no document: a walk over bucket numbers,
 *          skipping touched ones; and, for coupons that pick at random, in some drawn at random
 */
#include "engine/free_pool.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/redo_log.h"

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

/* ---- untouched buckets: without a document, and not named in the redo log ---- */

#define WALK_MOST 256 /* touched buckets skipped at a time */

/* Start the walk after the last touched bucket, since buckets there need not be read; then the rest. If those are few, simply by number. */
static void begin_walk(struct lane *l, int64_t touched_end)
{
    struct redo_batch *w;

    l->touched_end = touched_end;
    DL_FOREACH(l->redo_log, w)
        if (w->end_b > l->touched_end)
            l->touched_end = w->end_b;
    l->walk.next = l->touched_end - lane_first_bucket(l) > WALK_MOST ? l->touched_end : lane_first_bucket(l);
    l->walk.rest = l->walk.next;
    l->walk.stop = INT64_MAX;
}

void free_pool_look_from(struct lane *l, int64_t grows)
{
    if (l->touched_end < 0 || (l->walk.next >= 0 && l->walk.next <= grows && l->walk.stop == INT64_MAX))
        return;
    if (l->walk.next < 0)
        l->walk.rest = lane_first_bucket(l);
    else if (l->walk.stop < INT64_MAX)
        l->walk.rest = l->walk.stop;
    l->walk.next = grows;
    l->walk.stop = INT64_MAX;
}

/* *end: the end of the present stretch; after it comes the rest. False: the walk is over, all untouched buckets were seen. */
static bool walks(struct lane *l, int64_t *end)
{
    *end = l->walk.stop < lane_end_bucket(l) ? l->walk.stop : lane_end_bucket(l);
    if (l->walk.next >= 0 && l->walk.next < *end)
        return true;
    if (l->walk.next < 0 || l->walk.rest <= lane_first_bucket(l)) {
        l->walk.next = -1;
        return false;
    }
    l->walk.next = lane_first_bucket(l);
    *end = l->walk.stop = l->walk.rest;
    l->walk.rest = lane_first_bucket(l);
    return true;
}

/* A bucket without a document, with the redo log applied. */
static struct cached_bucket *untouched_bucket(struct lane *l, int64_t b)
{
    struct cached_bucket *c = cached_bucket_find(l, b);
    struct bucket fresh;

    if (c)
        return c;
    bucket_init(&fresh, b);
    return cached_bucket_add(l, &fresh);
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

static void add_found(struct found_list *found, struct top_up *t, struct cached_bucket *c)
{
    if (!c || c->free_pool_left > 0 || !bucket_has_free(&c->bucket))
        return;
    found->items[found->count++] = (struct found_bucket){t, c};
    t->found++;
}

/* Find touched buckets with free slots: the next ones of each lane, in one read. */
static enum store_status find_touched(struct store *s, struct top_up **open, size_t count, size_t most,
                                      struct found_list *found)
{
    struct free_search *searches = checked(calloc(count + 1, sizeof *searches));
    struct bucket *buckets = checked(malloc((most + 1) * sizeof *buckets));
    size_t given = 0, asked = 0;
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        open[i]->searched = open[i]->searched || l->touched_end == lane_first_bucket(l);
        if (open[i]->searched)
            continue;
        open[i]->from_start = l->cursor == 0;
        searches[asked++] = (struct free_search){.coupon = l->coupon, .lane = l->number, .random = lane_picks_at_random(l),
                                                 .from = l->cursor, .most = l->topup, .buckets = buckets + given};
        given += l->topup;
    }
    status = asked ? s->ops->free_buckets(s, searches, asked) : STORE_OK;
    asked = 0;
    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        struct top_up *t = open[i];
        const struct free_search *search = &searches[asked];

        if (t->searched)
            continue;
        asked++;
        for (size_t k = 0; k < search->count; k++)
            add_found(found, t, cached_bucket_keep(t->lane, &search->buckets[k]));
        t->lane->cursor = search->next;
        t->damaged = t->damaged || search->left_out;
        t->searched = search->next == 0 && (t->from_start || t->wrapped); /* all of them */
        t->wrapped = t->wrapped || search->next == 0;
    }
    free(buckets);
    free(searches);
    return status;
}

/* Draw some buckets of a lane at random: those certainly untouched are found, the others are to be read. */
static void draw(struct top_up *t, struct bucket_read *reads, struct top_up **whose, size_t *count, struct found_list *found)
{
    struct lane *l = t->lane;
    uint64_t random, span = (uint64_t)(lane_end_bucket(l) - lane_first_bucket(l));

    for (size_t i = 0; i < l->topup; i++) {
        int64_t b;

        randombytes_buf(&random, sizeof random);
        b = lane_first_bucket(l) + (int64_t)(random % span);
        if (cached_bucket_find(l, b))
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

/* For lanes that pick at random: find slots where nobody can predict. Most buckets are untouched while a coupon is young. */
static enum store_status find_drawn(struct store *s, struct top_up **open, size_t count, size_t most, struct found_list *found)
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
        if (lane_picks_at_random(open[i]->lane) && walks(open[i]->lane, &end))
            draw(open[i], reads, whose, &read_count, found);
    if (read_count)
        s->ops->buckets(s, reads, read_count);
    for (size_t i = 0; i < read_count; i++) {
        if (reads[i].status == STORE_OK) {
            add_found(found, whose[i], cached_bucket_keep(whose[i]->lane, &buckets[i]));
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

/* The stretch that a lane walks now. */
struct stretch {
    struct top_up *whose;
    int64_t end;
    const struct touched_search *touched; /* NULL: none there */
};

/* Walk on, skipping touched buckets. */
static void walk_on(const struct stretch *stretch, struct found_list *found)
{
    struct top_up *t = stretch->whose;
    const struct touched_search *touched = stretch->touched;
    size_t passed = 0, count = touched ? touched->count : 0, before = t->found;
    int64_t end = count == WALK_MOST ? touched->numbers[WALK_MOST - 1] + 1 : stretch->end;
    struct lane *l = t->lane;

    for (; l->walk.next < end && t->found - before < l->topup; l->walk.next++) {
        if (passed < count && touched->numbers[passed] == l->walk.next)
            passed++;
        else
            add_found(found, t, untouched_bucket(l, l->walk.next));
    }
}

/* Find untouched buckets: for each lane that needs them, the next stretch. Past the last touched bucket nothing is read. */
static enum store_status find_untouched(struct store *s, struct top_up **open, size_t count, struct found_list *found)
{
    struct stretch *stretches = checked(calloc(count + 1, sizeof *stretches));
    struct touched_search *searches = checked(calloc(count + 1, sizeof *searches));
    int64_t *numbers = checked(malloc((count + 1) * WALK_MOST * sizeof *numbers)), end;
    size_t walking = 0, asked = 0;
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        if ((open[i]->found && lane_picks_at_random(l)) || !walks(l, &end))
            continue;
        stretches[walking] = (struct stretch){open[i], end, NULL};
        if (l->walk.next < l->touched_end) {
            searches[asked] = (struct touched_search){.coupon = l->coupon, .from = l->walk.next, .most = WALK_MOST,
                                                      .end = end < l->touched_end ? end : l->touched_end,
                                                      .numbers = numbers + asked * WALK_MOST};
            stretches[walking].touched = &searches[asked++];
        }
        walking++;
    }
    status = asked ? s->ops->touched(s, searches, asked) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < walking; i++)
        walk_on(&stretches[i], found);
    free(numbers);
    free(searches);
    free(stretches);
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
            if (c->free_pool_left == 0) /* otherwise it was found twice */
                add_free_slots_of(t->lane, c);
        }
        if (lane_picks_at_random(t->lane))
            shuffle_from(t->lane, before);
    }
}

/* Search once more for each, for `most` buckets in all. */
static void top_up_once(struct store *s, struct top_up **open, size_t count, size_t most)
{
    struct found_list found = {checked(calloc(3 * most + 1, sizeof *found.items)), 0};
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        open[i]->found = 0;
        open[i]->looks++;
        open[i]->before = open[i]->lane->walk;
    }
    status = find_touched(s, open, count, most, &found);
    if (status == STORE_OK)
        status = find_drawn(s, open, count, most, &found);
    if (status == STORE_OK)
        status = find_untouched(s, open, count, &found);
    if (status == STORE_OK)
        status = read_codes(s, found.items, found.count);
    if (status == STORE_OK)
        add_all_found(&found);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = status;
        if (status != STORE_OK) /* what was found is not in the pool */
            open[i]->lane->walk = open[i]->before;
    }
    free(found.items);
}

/* The last search found enough, or has seen everything, or was the last for now. */
static bool is_topped_up(struct top_up *t)
{
    int64_t end;

    return t->status != STORE_OK || t->lane->free_pool_count >= t->want || (t->searched && !walks(t->lane, &end)) ||
           t->looks == LOOKS_MOST;
}

/* How many buckets the next search is for. */
static size_t grow_topup(struct lane *l, struct mono now)
{
    if (mono_ms_between(l->topped_up, now) < TOPUP_FAST_MS && l->topup < TOPUP_MOST)
        l->topup *= 2;
    l->topped_up = now;
    return l->topup;
}

/* Find where each lane's touched buckets end, in one read. False: the database did not answer. */
static bool find_ends(struct store *s, struct top_up **open, size_t count)
{
    struct touched_search *searches = checked(calloc(count + 1, sizeof *searches));
    int64_t *last = checked(calloc(count + 1, sizeof *last));
    struct lane **whose = checked(calloc(count + 1, sizeof(struct lane *)));
    enum store_status status;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        if (l->touched_end < 0 && l->checkpoint.seq == 0) { /* the redo log has everything */
            begin_walk(l, lane_first_bucket(l));
        } else if (l->touched_end < 0) {
            searches[asked] = (struct touched_search){.coupon = l->coupon, .from = lane_first_bucket(l), .last = true, .most = 1,
                                                      .end = lane_first_bucket(l) + LANE_SLOTS / BUCKET_SLOTS, .numbers = &last[asked]};
            whose[asked++] = l;
        }
    }
    status = asked ? s->ops->touched(s, searches, asked) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < asked; i++)
        begin_walk(whose[i], searches[i].count ? last[i] + 1 : lane_first_bucket(whose[i]));
    free(whose);
    free(last);
    free(searches);
    return status == STORE_OK;
}

void free_pool_top_up(struct store *s, struct top_up *tops, size_t count)
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

/* ---- what an own batch did to slots ---- */

/* True if e leaves its slot free. A hold on an issued one falls back to issued. */
static bool gives_back(const struct entry *e)
{
    return entry_ends(e) && (!e->from || e->kind == ENTRY_REVERSE);
}

void free_pool_note_named(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct cached_bucket *c = e->by_name || gives_back(e) ? cached_bucket_find(l, bucket_of(e->n)) : NULL;
        int at = (int)(e->n % BUCKET_SLOTS);

        if (!c || e->n < 0)
            continue;
        if (e->by_name)
            drop_slot(l, c, e->n);
        if (gives_back(e) && c->bucket.slots[at].state == SLOT_FREE) /* otherwise it was taken again in this batch */
            add_free_slot(l, c, at);
    }
}
