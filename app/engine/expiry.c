/* engine/expiry.c -- see expiry.h. */
#include "engine/expiry.h"

#include <stdlib.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/cached_bucket.h"
#include "engine/window.h"

#define DUE_MOST 64    /* buckets, or users, searched in one round: the next one goes on */
#define KNOWN_MOST 4096 /* of those already known */
#define LISTED_MOST 2048 /* redemptions of users listed as due, except the last one's: they are loaded together */

/* Note the earliest end after at_ms in the cache and the window: the views may not have it yet. */
static void note_later_dues(struct lane *l, int64_t at_ms)
{
    struct cached_bucket *c, *next;
    struct window_batch *w;

    HASH_ITER(hh, l->buckets, c, next)
        for (int i = 0; i < c->bucket.size; i++)
            if (c->bucket.slots[i].due_ms > at_ms)
                lane_note_due(l, c->bucket.slots[i].due_ms);
    DL_FOREACH(l->window, w)
        for (size_t i = 0; i < w->batch->count; i++)
            if (entry_due(&w->batch->entries[i]) > at_ms)
                lane_note_due(l, entry_due(&w->batch->entries[i]));
}

/* Cache the buckets of due entries in the window: their views may not have them yet. */
static enum store_status cache_due_of_window(struct store *s, struct expiry_look *k)
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
            bool due = entry_due(e) && entry_due(e) <= k->at_ms && e->n >= 0 && !cached_bucket_find(l, bucket_of(e->n));

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
        if (reads[i].status == STORE_OK) { // cppcheck-suppress uninitvar
            cached_bucket_keep(l, &buckets[i]);
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

/* The search before this one did not find all, and views may still show what it found. */
static bool looks_again(const struct lane *l)
{
    return l->next_due_ms == INT64_MIN;
}

/* The next one expires at next_due_ms at the earliest, apart from those found. */
static void found_due(struct expiry_look *k, int64_t next_due_ms)
{
    struct lane *l = k->lane;

    k->more = k->more || k->damaged || (next_due_ms && next_due_ms <= k->at_ms);
    l->next_due_ms = k->more ? INT64_MIN : INT64_MAX;
    lane_note_due(l, next_due_ms);
    note_later_dues(l, k->at_ms);
}

static void begin_due_search(struct expiry_look *k, struct due_search *search, struct bucket *buckets)
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

static void keep_due(struct store *s, struct expiry_look *k, const struct due_search *search)
{
    for (size_t i = 0; i < search->count; i++)
        cached_bucket_keep(k->lane, &search->buckets[i]);
    k->damaged = search->left_out;
    k->status = cache_due_of_window(s, k);
    if (k->status == STORE_OK)
        found_due(k, search->next_due_ms);
}

static void find_due_buckets(struct store *s, struct expiry_look **looks, size_t count)
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

/* The earliest end after at_ms among u's redemptions if before next_ms, else next_ms (0: none): u's view tells only the earliest of all,
 * which is being handled. */
static int64_t later_due(const struct user_state *u, int64_t at_ms, int64_t next_ms)
{
    for (size_t i = 0; i < u->count; i++) {
        int64_t due_ms = redemption_due(&u->redemptions[i]);

        if (due_ms > at_ms)
            next_ms = sooner_ms(next_ms, due_ms);
    }
    return next_ms;
}

/* Something of u's has expired, and its view may not say so yet. */
static bool has_expired(const struct lane *l, const struct user_state *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->redemptions[i].state == SLOT_EXPIRED && u->redemptions[i].last_seq > l->mark.seq)
            return true;
    return false;
}

static void find_due_users(struct store *s, struct expiry_look *k)
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

#define DUE_TOGETHER 32 /* lanes whose buckets are searched at a time */

void expiry_find(struct store *s, struct expiry_look *looks, size_t count)
{
    struct expiry_look *slots[DUE_TOGETHER];
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
