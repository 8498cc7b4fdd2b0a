/* engine/free_map.c -- see free_map.h. */
#include "engine/free_map.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/cached_bucket.h"
#include "engine/redo_log.h"

#define PART_FIRST 64  /* buckets of a lane read first, in order; as many again as there are from then on, up to */
#define PART_MOST 4096 /* so many: some 10 ms. At random these, since nothing is chosen before the map is whole */
#define CALL_MOST (4 * PART_MOST)
#define HIDDEN 0x80 /* in the free pool, or chosen */

static int64_t bucket_count(const struct lane *l)
{
    return lane_end_bucket(l) - lane_first_bucket(l);
}

bool free_map_is_whole(const struct lane *l)
{
    return l->mapped >= bucket_count(l);
}

void free_map_forget(struct lane *l)
{
    free(l->free_map);
    l->free_map = NULL;
    l->mapped = 0;
    l->cursor = 0;
}

void free_map_note(struct lane *l, const struct bucket *k)
{
    int64_t at = k->b - lane_first_bucket(l);

    if (at < l->mapped)
        l->free_map[at] = (uint8_t)bucket_free_count(k);
}

/* The slots of bucket b that e moves. */
static int64_t slots_in(const struct entry *e, int64_t b)
{
    int64_t from = b * BUCKET_SLOTS, end = from + BUCKET_SLOTS;

    if (e->kind != ENTRY_RETIRE)
        return 1;
    from = e->n > from ? e->n : from;
    end = e->n + e->count < end ? e->n + e->count : end;
    return end - from;
}

/* Apply b to what is mapped from `from` on; cached buckets have it. seqs: the last batch that each other one has; NULL: an older one. */
static void apply(struct lane *l, const struct batch *b, int64_t from, const int64_t *seqs)
{
    int64_t noted = -1; /* entries about one bucket often follow on each other: it is counted once */

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        int change = entry_frees(e);
        int64_t first, end;

        if (!change || !entry_buckets(e, &first, &end))
            continue;
        for (int64_t k = first; k < end; k++) {
            const struct cached_bucket *c = cached_bucket_find(l, k);
            int64_t at = k - lane_first_bucket(l), now;

            if (c && k != noted)
                free_map_note(l, &c->bucket);
            noted = c ? k : noted;
            if (c || at < from || at >= l->mapped || (seqs && b->head.seq <= seqs[at - from]))
                continue;
            now = l->free_map[at] + change * slots_in(e, k);
            l->free_map[at] = (uint8_t)(now < 0 ? 0 : now > BUCKET_SLOTS ? BUCKET_SLOTS : now);
        }
    }
}

void free_map_move(struct lane *l, const struct batch *b)
{
    apply(l, b, 0, NULL);
}

/* ---- reading ---- */

/* Add what was read to the map. */
static void add_part(struct lane *l, const struct free_counts *part)
{
    int64_t from = l->mapped, count = part->end - part->from, *seqs;
    const struct redo_batch *w;

    for (size_t i = 0; i < part->count; i++)
        l->stale = l->stale || part->rows[i].seq > l->tail.seq;
    if (l->stale)
        return;
    seqs = checked(calloc((size_t)count, sizeof *seqs));
    l->free_map = checked(realloc(l->free_map, (size_t)(from + count)));
    memset(l->free_map + from, BUCKET_SLOTS, (size_t)count);
    l->mapped += count;
    for (size_t i = 0; i < part->count; i++) {
        l->free_map[part->rows[i].b - lane_first_bucket(l)] = (uint8_t)part->rows[i].free;
        seqs[part->rows[i].b - part->from] = part->rows[i].seq;
    }
    DL_FOREACH(l->redo_log, w)
        apply(l, w->batch, from, seqs);
    free(seqs);
}

enum store_status free_map_read(struct store *s, struct lane **lanes, size_t count)
{
    struct free_counts *parts = checked(calloc(count + 1, sizeof *parts));
    size_t asked = 0, used = 0;
    struct free_count *rows;
    enum store_status status;

    for (; asked < count; asked++) {
        const struct lane *l = lanes[asked];
        int64_t left = bucket_count(l) - l->mapped, most = l->mapped < PART_FIRST ? PART_FIRST : l->mapped, part;

        if (most > PART_MOST || lane_picks_at_random(l))
            most = PART_MOST;
        part = left < most ? left : most;
        assert(part > 0);
        if (used + (size_t)part > CALL_MOST)
            break;
        parts[asked] = (struct free_counts){.coupon = l->coupon, .from = lane_first_bucket(l) + l->mapped, .most = (size_t)part,
                                            .end = lane_first_bucket(l) + l->mapped + part};
        used += (size_t)part;
    }
    rows = checked(malloc((used + 1) * sizeof *rows));
    for (size_t i = 0, first = 0; i < asked; first += parts[i++].most)
        parts[i].rows = rows + first;
    status = asked ? s->ops->free_counts(s, parts, asked) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < asked; i++)
        add_part(lanes[i], &parts[i]);
    free(rows);
    free(parts);
    return status;
}

/* ---- choosing ---- */

/* How many slots of its bucket `at` can be taken; 0 if it is hidden. The lane's last bucket may have less than 64. */
static int64_t weight(const struct lane *l, int64_t at)
{
    int64_t unmade = (lane_first_bucket(l) + at + 1) * BUCKET_SLOTS - l->tail.next_n;
    int64_t left = l->free_map[at] & HIDDEN ? 0 : l->free_map[at] - (unmade > 0 ? unmade : 0);

    return left > 0 ? left : 0;
}

/* Hide, or show again, what is in the free pool. */
static void toggle_pool(struct lane *l)
{
    for (const struct cached_bucket *c = l->buckets; c; c = c->hh.next)
        if (c->free_pool_left > 0 && c->bucket.b - lane_first_bucket(l) < l->mapped)
            l->free_map[c->bucket.b - lane_first_bucket(l)] ^= HIDDEN;
}

static void choose(struct lane *l, int64_t at, int64_t *chosen, size_t *count)
{
    l->free_map[at] |= HIDDEN;
    chosen[(*count)++] = lane_first_bucket(l) + at;
}

static size_t choose_in_order(struct lane *l, int64_t *chosen, size_t most, int64_t *passed)
{
    int64_t all = bucket_count(l);
    size_t count = 0;

    for (; count < most && *passed < all && l->cursor < l->mapped; ++*passed) {
        if (weight(l, l->cursor))
            choose(l, l->cursor, chosen, &count);
        l->cursor = l->cursor + 1 < all ? l->cursor + 1 : 0;
    }
    return count;
}

static int64_t random_below(int64_t end)
{
    uint64_t random;

    randombytes_buf(&random, sizeof random);
    return (int64_t)(random % (uint64_t)end); /* end is far below 2^64 */
}

static size_t choose_at_random(struct lane *l, int64_t *chosen, size_t most)
{
    int64_t total = 0, at = 0;
    size_t count = 0;

    if (!free_map_is_whole(l))
        return 0;
    for (int64_t i = 0; i < l->mapped; i++)
        total += weight(l, i);
    if (total == 0)
        return 0;
    for (int64_t left = random_below(total); left >= weight(l, at); at++)
        left -= weight(l, at);
    choose(l, at, chosen, &count);
    for (size_t tries = 0; tries < 4 * most && count < most; tries++) {
        at = random_below(l->mapped);
        if (weight(l, at))
            choose(l, at, chosen, &count);
    }
    return count;
}

size_t free_map_choose(struct lane *l, int64_t *chosen, size_t most, int64_t *passed)
{
    size_t count;

    toggle_pool(l);
    count = lane_picks_at_random(l) ? choose_at_random(l, chosen, most) : choose_in_order(l, chosen, most, passed);
    toggle_pool(l);
    for (size_t i = 0; i < count; i++)
        l->free_map[chosen[i] - lane_first_bucket(l)] &= (uint8_t)~HIDDEN;
    return count;
}
