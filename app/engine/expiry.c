/* engine/expiry.c -- see expiry.h. */
#include "engine/expiry.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/cached_bucket.h"
#include "engine/redo_log.h"

#define DUE_MOST 64    /* buckets, or batches, searched in one round: the next one goes on */
#define KNOWN_MOST 4096 /* of those already known */
#define LISTED_MOST 1024 /* entries listed as due, besides the last batch's: their users are loaded together */

/* True if the coupon has ended, and something issued may still be left. */
static bool has_ended(const struct expiry_look *k)
{
    int64_t end_ms = lane_end(k->lane);

    return end_ms && end_ms <= k->at_ms;
}

/* True if e leaves something issued. */
static bool leaves_issued(const struct entry *e)
{
    return e->kind == ENTRY_ISSUE || (e->from && (e->kind == ENTRY_CANCEL || e->kind == ENTRY_EXPIRE));
}

/* The earliest of what ends after at_ms. */
static void note_later(struct lane *l, int64_t due_ms, int64_t at_ms)
{
    if (due_ms > at_ms && due_ms < l->next_due_ms)
        l->next_due_ms = due_ms;
}

/* Of the cache and the redo log: what is stored may not have it yet. */
static void note_later_dues(struct lane *l, int64_t at_ms)
{
    struct cached_bucket *c, *next;
    struct redo_batch *w;

    HASH_ITER(hh, l->buckets, c, next)
        for (int i = 0; i < c->bucket.size; i++)
            note_later(l, c->bucket.slots[i].due_ms, at_ms);
    DL_FOREACH(l->redo_log, w)
        for (size_t i = 0; i < w->batch->count; i++)
            note_later(l, entry_due(&w->batch->entries[i]), at_ms);
}

static bool has_issued(const struct bucket *b)
{
    for (int i = 0; i < BUCKET_SLOTS; i++)
        if (b->slots[i].state == SLOT_ISSUED)
            return true;
    return false;
}

/* Cache the buckets that were read, if something is issued there. STORE_FAILED: one was not read. */
static enum store_status keep_issued(struct expiry_look *k, struct bucket_read *reads, size_t count)
{
    enum store_status status = STORE_OK;

    for (size_t i = 0; i < count; i++) {
        if (reads[i].status == STORE_OK && has_issued(reads[i].bucket)) {
            cached_bucket_keep(k->lane, reads[i].bucket);
            continue;
        }
        bucket_release(reads[i].bucket);
        if (reads[i].status == STORE_UNREADABLE)
            k->damaged = k->more = true;
        else if (reads[i].status != STORE_OK)
            status = STORE_FAILED;
    }
    return status;
}

/* The coupon has ended: cache the next stored buckets in which something is issued. No index has them: a walk over all, once. */
static enum store_status walk_issued(struct store *s, struct expiry_look *k)
{
    struct lane *l = k->lane;
    int64_t first = lane_first_bucket(l);
    struct free_count rows[DUE_MOST];
    struct free_counts stored = {.coupon = l->coupon, .from = l->ended.bucket > first ? l->ended.bucket : first,
                                 .end = lane_end_bucket(l), .most = DUE_MOST, .rows = rows};
    struct bucket_read reads[DUE_MOST];
    struct bucket buckets[DUE_MOST];
    enum store_status status;
    size_t count = 0;

    assert(has_ended(k));
    status = s->ops->free_counts(s, &stored, 1);
    assert(stored.count <= DUE_MOST);
    for (size_t i = 0; status == STORE_OK && i < stored.count; i++) {
        if (cached_bucket_find(l, rows[i].b)) // cppcheck-suppress uninitvar
            continue;
        bucket_init(&buckets[count], rows[i].b);
        reads[count] = (struct bucket_read){.coupon = l->coupon, .b = rows[i].b, .bucket = &buckets[count]};
        count++;
    }
    if (count)
        s->ops->buckets(s, reads, count);
    if (status == STORE_OK)
        status = keep_issued(k, reads, count);
    if (status != STORE_OK || k->damaged)
        return status;
    k->ended.done = stored.count < DUE_MOST;
    k->ended.bucket = k->ended.done ? 0 : rows[DUE_MOST - 1].b + 1;
    k->more = !k->ended.done;
    return STORE_OK;
}

/* Cache the buckets of due entries in the redo log: what is stored may not have them yet. */
static enum store_status cache_due_of_redo_log(struct store *s, struct expiry_look *k)
{
    struct bucket_read reads[DUE_MOST];
    struct bucket buckets[DUE_MOST];
    struct lane *l = k->lane;
    size_t count = 0;
    struct redo_batch *w;
    enum store_status status = STORE_OK;

    DL_FOREACH(l->redo_log, w)
        for (size_t i = 0; i < w->batch->count && !k->more; i++) {
            const struct entry *e = &w->batch->entries[i];
            bool due = (entry_due(e) && entry_due(e) <= k->at_ms) || (has_ended(k) && leaves_issued(e));

            due = due && e->n >= 0 && !cached_bucket_find(l, bucket_of(e->n));
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
        s->ops->buckets(s, reads, count);
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

/* The search before this one did not find all, and what is stored may still show what it found. */
static bool looks_again(const struct lane *l)
{
    return l->next_due_ms == NEXT_DUE_NOW;
}

/* Apart from what was found, nothing that was searched expires before next_due_ms; 0: nothing will. */
static void set_next_due(struct expiry_look *k, int64_t next_due_ms)
{
    struct lane *l = k->lane;

    l->next_due_ms = k->more ? NEXT_DUE_NOW : NEXT_DUE_NEVER;
    note_later(l, next_due_ms, k->at_ms);
    note_later(l, lane_end(l), k->at_ms);
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
    assert(search->count <= search->most);
    for (size_t i = 0; i < search->count; i++)
        cached_bucket_keep(k->lane, &search->buckets[i]);
    k->damaged = search->damaged;
    k->status = cache_due_of_redo_log(s, k);
    k->more = k->more || k->damaged || (search->next_due_ms && search->next_due_ms <= k->at_ms);
    if (k->status == STORE_OK && !k->more && has_ended(k))
        k->status = walk_issued(s, k);
    if (k->status != STORE_OK)
        return;
    k->swept_ms = k->more ? k->lane->checkpoint.swept_ms : k->at_ms;
    k->swept_seq = k->more ? k->lane->checkpoint.swept_seq : 0;
    set_next_due(k, search->next_due_ms);
    note_later_dues(k->lane, k->at_ms);
}

static void find_due_buckets(struct store *s, struct expiry_look **looks, size_t count)
{
    struct due_search *searches = checked(calloc(count + 1, sizeof *searches));
    struct bucket *buckets = checked(malloc((count + 1) * DUE_MOST * sizeof *buckets));
    enum store_status status;

    for (size_t i = 0; i < count; i++)
        begin_due_search(looks[i], &searches[i], buckets + i * DUE_MOST);
    status = s->ops->due_buckets(s, searches, count);
    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK)
            keep_due(s, looks[i], &searches[i]);
        else
            looks[i]->status = status;
    }
    free(buckets);
    free(searches);
}

/* ---- without slots: batches, by when what they made ends ---- */

/* The first of b's ends after the place, as the index has them; INT64_MAX: none. */
static int64_t first_due(const struct batch *b, int64_t after_ms, int64_t after_seq)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < b->count; i++) {
        int64_t due_ms = b->entries[i].n < 0 ? entry_due_key(&b->entries[i]) : 0;

        if ((due_ms > after_ms || (due_ms == after_ms && b->head.seq > after_seq)) && due_ms < first)
            first = due_ms;
    }
    return first;
}

static void list_user(struct expiry_look *k, const char *user, size_t *capacity)
{
    k->users = arena_grown(k->arena, k->users, k->user_count, capacity, sizeof *k->users);
    k->users[k->user_count++] = arena_strdup(k->arena, user);
}

/* List the users of what b made and what ended by then; most of it may have ended before. */
static void list_users(struct expiry_look *k, const struct batch *b, int64_t after_ms, size_t *capacity)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (!e->user || e->n >= 0 || !entry_due(e) || entry_due(e) < after_ms || entry_due(e) > k->at_ms)
            continue;
        list_user(k, e->user, capacity);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each user once: one may have made all that ended. */
static void list_once(struct expiry_look *k)
{
    size_t count = 0;

    if (k->user_count)
        qsort(k->users, k->user_count, sizeof *k->users, by_text);
    for (size_t i = 0; i < k->user_count; i++)
        if (count == 0 || strcmp(k->users[count - 1], k->users[i]) != 0)
            k->users[count++] = k->users[i];
    k->user_count = count;
}

/* The coupon has ended: list the users of what the next batches issued, LISTED_MOST and a batch's at most. The search begins where the one
 * for what ends by itself has come to. What cannot be read is skipped. */
static void find_issued_users(struct store *s, struct expiry_look *k, size_t *capacity)
{
    struct lane *l = k->lane;
    bool begins = !l->ended.ms;
    struct batch *batches[DUE_MOST];
    struct due_batches search = {.coupon = l->coupon, .lane = l->number, .after_ms = begins ? k->swept_ms : l->ended.ms,
                                 .after_seq = begins ? k->swept_seq : l->ended.seq, .at_ms = DUE_OPEN, .most = DUE_MOST,
                                 .batches = batches};
    size_t listed = 0;

    k->status = s->ops->due_batches(s, &search);
    if (k->status != STORE_OK)
        return;
    assert(search.count <= DUE_MOST);
    for (; listed < search.count && k->user_count < LISTED_MOST; listed++) {
        const struct batch *b = batches[listed]; // cppcheck-suppress uninitvar

        for (size_t e = 0; e < b->count; e++) {
            if (b->entries[e].kind != ENTRY_ISSUE || b->entries[e].n >= 0 || !b->entries[e].user)
                continue;
            list_user(k, b->entries[e].user, capacity);
        }
        k->ended.ms = first_due(b, search.after_ms, search.after_seq);
        k->ended.seq = b->head.seq;
    }
    if (listed == search.count) {
        k->ended.ms = search.past_ms;
        k->ended.seq = search.past_seq;
    }
    k->ended.done = !search.more && listed == search.count;
    k->more = !k->ended.done;
    for (size_t i = 0; i < search.count; i++)
        batch_free(batches[i]);
}

/* What cannot be read is skipped: what it holds stays taken until it can be read, and all others go on. */
static void find_due_users(struct store *s, struct expiry_look *k)
{
    struct lane *l = k->lane;
    struct batch *batches[DUE_MOST];
    struct due_batches search = {.coupon = l->coupon, .lane = l->number, .after_ms = l->checkpoint.swept_ms,
                                 .after_seq = l->checkpoint.swept_seq, .at_ms = k->at_ms, .most = DUE_MOST, .batches = batches};
    size_t capacity = 0, listed = 0;

    k->swept_ms = search.after_ms;
    k->swept_seq = search.after_seq;
    k->status = s->ops->due_batches(s, &search);
    if (k->status != STORE_OK)
        return;
    assert(search.count <= DUE_MOST);
    for (; listed < search.count && k->user_count < LISTED_MOST; listed++) {
        const struct batch *b = batches[listed]; // cppcheck-suppress uninitvar
        int64_t due_ms = first_due(b, search.after_ms, search.after_seq);

        list_users(k, b, search.after_ms, &capacity);
        if (due_ms > k->at_ms) /* its `due` is wrong */
            continue;
        k->swept_ms = due_ms;
        k->swept_seq = b->head.seq;
    }
    k->more = search.more || listed < search.count;
    if (listed == search.count) {
        k->swept_ms = search.past_ms;
        k->swept_seq = search.past_seq;
    }
    for (size_t i = 0; i < search.count; i++)
        batch_free(batches[i]);
    if (!k->more && has_ended(k))
        find_issued_users(s, k, &capacity);
    list_once(k);
    set_next_due(k, search.next_due_ms < DUE_OPEN ? search.next_due_ms : 0);
}

#define DUE_TOGETHER 32 /* lanes whose buckets are searched at a time */

void expiry_find(struct store *s, struct expiry_look *looks, size_t count)
{
    struct expiry_look *slots[DUE_TOGETHER];
    size_t together = 0;

    for (size_t i = 0; i < count; i++) {
        const struct coupon *d = looks[i].lane->definition;

        assert(looks[i].lane->loaded && looks[i].at_ms >= looks[i].lane->tail.at_ms && !looks[i].user_count);
        looks[i].ended = looks[i].lane->ended;
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
