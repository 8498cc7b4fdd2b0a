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
#include "engine/free_map.h"
#include "engine/free_pool.h"

#define LEDGER_CHUNK 256
#define LOOK_FIRST 8 /* batches: a lane further behind first looks for a newer checkpoint */
#define GATHER_MOST 512 /* buckets read at a time before a checkpoint */
#define JOBS_MOST 16 /* whose progress is kept */
#define JOB_ID_MOST 64

/* ---- making and freeing ---- */

struct lane *lane_new(const char *coupon, int64_t number, struct filter_room *room, struct user_cache *cache)
{
    struct lane *l = checked(calloc(1, sizeof *l));

    assert(strlen(coupon) <= COUPON_ID_MAX);
    snprintf(l->coupon, sizeof l->coupon, "%s", coupon);
    snprintf(l->key, sizeof l->key, "%s\n%lld", coupon, (long long)number);
    l->number = number;
    l->topup = FREE_POOL_TOPUP_FIRST;
    l->next_due_ms = NEXT_DUE_NEVER;
    l->users.cache = cache;
    arena_init(&l->definition_arena, 2048);
    filter_init(&l->filter, room);
    return l;
}

struct lane_job {
    struct job_progress state;
    char id[JOB_ID_MOST];
    struct lane_job *prev, *next;
};

static void forget_job(struct lane *l, struct lane_job *j)
{
    DL_DELETE(l->known_jobs, j);
    free(j);
}

static struct lane_job *find_job(const struct lane *l, const char *job)
{
    struct lane_job *j;

    DL_FOREACH(l->known_jobs, j)
        if (strcmp(j->id, job) == 0)
            return j;
    return NULL;
}

const struct job_progress *lane_known_job(const struct lane *l, const char *job)
{
    const struct lane_job *j = find_job(l, job);

    return j ? &j->state : NULL;
}

void lane_keep_job(struct lane *l, const struct job_progress *state)
{
    struct lane_job *j = find_job(l, state->id);
    int count;

    if (strlen(state->id) >= sizeof j->id)
        return;
    if (j)
        forget_job(l, j);
    j = checked(calloc(1, sizeof *j));
    j->state = *state;
    memcpy(j->id, state->id, strlen(state->id) + 1);
    j->state.id = j->id;
    DL_PREPEND(l->known_jobs, j);
    DL_COUNT(l->known_jobs, j, count);
    if (count > JOBS_MOST)
        forget_job(l, l->known_jobs->prev); /* the list's last */
}

void lane_unload(struct lane *l)
{
    redo_log_clear(l);
    cached_bucket_forget_all(l);
    user_cache_forget_all(&l->users);
    while (l->known_jobs)
        forget_job(l, l->known_jobs);
    arena_free(&l->definition_arena);
    filter_restart(&l->filter);
    l->next_due_ms = NEXT_DUE_NEVER;
    l->ended = (struct ended_walk){0};
    l->free_pool_first = l->free_pool_count = 0;
    l->definition = NULL;
    l->definition_seq = l->definition_stored_seq = 0;
    free_map_forget(l);
    l->tail = (struct head){0};
    l->checkpoint = (struct checkpoint){0};
    code_uses_release(&l->uses);
    l->checkpoint_late = false;
    l->loaded = false;
}

void lane_free(struct lane *l)
{
    lane_unload(l);
    free(l->free_pool);
    free(l);
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
    l->ended = (struct ended_walk){0};
    if (l->number == 0) /* the stored definition is lane 0's */
        l->definition_seq = b->head.seq;
}

/* After the definition: it may be in the same batch. */
static void move_uses(struct lane *l, const struct batch *b)
{
    if (!l->definition || l->definition->codes.shared_cap == COUPON_NULL)
        return;
    l->uses.match = (enum codes_match)l->definition->codes.match;
    for (size_t i = 0; i < b->count; i++)
        code_uses_fold(&l->uses, &b->entries[i]);
}

static bool move_bucket(struct cached_bucket *c, const struct batch *b)
{
    bool moved = fold_bucket(&c->bucket, b);

    c->dirty = c->dirty || moved;
    return moved;
}

/* Apply w's batch to the cached buckets that it touches; true if any. */
static bool move_buckets(struct lane *l, const struct redo_batch *w)
{
    const struct batch *b = w->batch;
    struct cached_bucket *c, *next;
    bool any = false;

    if (w->end_b == 0)
        return false;
    if (batch_has_ranges(b)) {
        HASH_ITER(hh, l->buckets, c, next)
            if (c->bucket.b >= w->first_b && c->bucket.b < w->end_b)
                any = move_bucket(c, b) || any;
        return any;
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        c = (entry_members[e->kind] & HAS_SLOT) && e->n >= 0 ? cached_bucket_find(l, bucket_of(e->n)) : NULL;
        if (c)
            any = move_bucket(c, b) || any;
    }
    return any;
}

/* Move the tail to b. If slots were made, the last bucket grows. */
static void move_tail(struct lane *l, const struct batch *b)
{
    const struct head *h = &b->head;
    int64_t grows = bucket_of(fold_next_n(&l->tail, l->number));
    bool made = h->next_n != l->tail.next_n;
    struct cached_bucket *c = made ? cached_bucket_find(l, grows) : NULL;

    l->tail = *h;
    lane_note_end(l);
    free_map_move(l, b);
    if (!c)
        return;
    bucket_fit(&c->bucket, h->next_n);
    if (lane_has_codes(l)) { /* codes read for the new slots were drafts */
        free_pool_drop_bucket(l, c); /* the pool points to them; a top-up finds the free ones again */
        free(c->codes);
        c->codes = NULL;
    }
}

/* The buckets that an own batch touches must be cached, or they would never be written, and the checkpoint pass them. */
static bool own_buckets_applied(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        int64_t first, end;

        if (!entry_buckets(&b->entries[i], &first, &end))
            continue;
        for (int64_t k = first; k < end; k++) {
            const struct cached_bucket *c = cached_bucket_find(l, k);

            if (!c || c->bucket.seq != b->head.seq)
                return false;
        }
    }
    return true;
}

void lane_commit(struct lane *l, struct batch *b, size_t free_pool_used)
{
    struct redo_batch *w;

    assert(b->head.seq == l->tail.seq + 1);
    free_pool_spend(l, free_pool_used);
    user_cache_apply(&l->users, b, true);
    for (size_t i = 0; i < b->job_count; i++)
        lane_keep_job(l, b->jobs[i]);
    w = redo_log_add(l, b, true);
    move_buckets(l, w);
    assert(own_buckets_applied(l, b));
    free_pool_note_named(l, b);
    move_definition(l, b);
    move_uses(l, b);
    move_tail(l, b);
}

/* Another writer's batch has progress of these: it is read when it is needed. */
static void drop_jobs(struct lane *l, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        struct lane_job *j = b->entries[i].job ? find_job(l, b->entries[i].job) : NULL;

        if (j)
            forget_job(l, j);
    }
}

static void apply_foreign(struct lane *l, struct batch *b, bool *free_pool_changed)
{
    struct redo_batch *w = redo_log_add(l, b, false);

    user_cache_apply(&l->users, b, false);
    drop_jobs(l, b);
    *free_pool_changed = move_buckets(l, w) || *free_pool_changed;
    move_definition(l, b);
    move_uses(l, b);
    move_tail(l, b);
}

/* Apply `count` batches after the tail; takes them all. STORE_FAILED: a gap, which is damage. */
static enum store_status apply_batches(struct lane *l, struct batch **batches, size_t count)
{
    enum store_status status = STORE_OK;
    bool free_pool_changed = false;

    for (size_t i = 0; i < count; i++) {
        if (status == STORE_OK && batches[i]->head.seq == l->tail.seq + 1) {
            apply_foreign(l, batches[i], &free_pool_changed);
            continue;
        }
        if (status == STORE_OK)
            log_event(LOG_ERROR, "lane.gap", F_WORD("coupon", l->coupon), F_INT("lane", l->number), F_INT("tail", l->tail.seq),
                      F_INT("next", batches[i]->head.seq));
        status = STORE_FAILED;
        batch_free(batches[i]);
    }
    if (free_pool_changed)
        free_pool_rebuild(l);
    return status;
}

/* Read at most `most` batches after the tail, and apply them. *more: there were that many. */
static enum store_status read_on(struct lane *l, struct store *s, size_t most, bool *more)
{
    struct batch *batches[LEDGER_CHUNK];
    size_t count = 0;
    enum store_status status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, most, batches, &count);

    *more = count == most;
    return status == STORE_OK ? apply_batches(l, batches, count) : status;
}

static enum store_status read_to_end(struct lane *l, struct store *s)
{
    enum store_status status = STORE_OK;

    for (bool more = true; status == STORE_OK && more;)
        status = read_on(l, s, LEDGER_CHUNK, &more);
    return status;
}

/* The batches after the tail were removed, as the lane was closed long ago. */
static bool is_removed(const struct lane *l, const struct batch *next)
{
    return next->head.archived && next->head.seq > l->tail.seq + 1;
}

static enum store_status read_checkpoint(struct lane *l, struct store *s, struct checkpoint *checkpoint)
{
    struct checkpoint_read read = {.coupon = l->coupon, .lane = l->number};
    enum store_status status = s->ops->checkpoints(s, &read, 1);

    *checkpoint = read.checkpoint;
    return status;
}

enum store_status lane_refresh(struct lane *l, struct store *s)
{
    struct lane_loading load = {.lane = l};
    struct batch *batches[LOOK_FIRST];
    struct checkpoint checkpoint;
    size_t count = 0;
    enum store_status status;
    bool removed;

    assert(l->loaded && !l->pending);
    status = s->ops->ledger(s, l->coupon, l->number, l->tail.seq, LOOK_FIRST, batches, &count);
    removed = status == STORE_OK && count && is_removed(l, batches[0]);
    for (size_t i = 0; removed && i < count; i++)
        batch_free(batches[i]);
    if (status == STORE_OK && !removed)
        status = apply_batches(l, batches, count);
    if (status != STORE_OK || !(removed || count == LOOK_FIRST))
        return status;
    status = read_checkpoint(l, s, &checkpoint);
    if (status != STORE_OK)
        return status;
    if (checkpoint.seq <= l->tail.seq)
        return read_to_end(l, s);
    lane_unload(l); /* whoever wrote it wrote what our batches touched, too */
    lane_load(s, &load, 1);
    return load.status;
}

/* ---- checkpoints ---- */

void lane_checkpointed(struct lane *l, int64_t seq)
{
    struct cached_bucket *c, *next;

    assert(seq <= l->tail.seq);
    redo_log_trim(l, seq);
    if (seq > l->checkpoint.seq)
        l->checkpoint.seq = seq;
    if (seq < l->tail.seq)
        return;
    l->definition_stored_seq = l->definition_seq;
    HASH_ITER(hh, l->buckets, c, next)
        c->dirty = false;
}

/* List a bucket that is to be read, unless it is cached or listed. False: there are too many. */
static bool want_bucket(struct lane *l, struct bucket_read *reads, struct bucket *buckets, size_t *count, int64_t b)
{
    bool wanted = !cached_bucket_find(l, b);

    for (size_t i = *count; wanted && i-- > 0;)
        wanted = reads[i].b != b;
    if (!wanted)
        return true;
    if (*count == GATHER_MOST)
        return false;
    bucket_init(&buckets[*count], b);
    reads[*count] = (struct bucket_read){.coupon = l->coupon, .b = b, .bucket = &buckets[*count]};
    ++*count;
    return true;
}

/* The same for all that w touches. */
static bool want_buckets_of(struct lane *l, struct bucket_read *reads, struct bucket *buckets, size_t *count, const struct redo_batch *w)
{
    bool fits = true;

    for (size_t i = 0; i < w->batch->count && fits; i++) {
        int64_t first, end;

        if (!entry_buckets(&w->batch->entries[i], &first, &end))
            continue;
        for (int64_t b = first; b < end && fits; b++)
            fits = want_bucket(l, reads, buckets, count, b);
    }
    return fits;
}

static enum store_status read_wanted(struct lane *l, struct store *s, struct bucket_read *reads, struct bucket *buckets, size_t count)
{
    enum store_status status = count ? s->ops->buckets(s, reads, count) : STORE_OK;

    for (size_t i = 0; i < count; i++) {
        struct cached_bucket *c = NULL;

        if (reads[i].status == STORE_OK)
            c = cached_bucket_keep(l, &buckets[i]);
        else
            bucket_release(&buckets[i]);
        if (c)
            c->dirty = true;
        else
            status = STORE_FAILED; /* not read, or ahead of the tail */
    }
    return status;
}

enum store_status lane_gather(struct lane *l, struct store *s, bool *more, int64_t *covered)
{
    struct bucket_read *reads;
    struct checkpoint stored;
    enum store_status status;
    struct bucket *buckets;
    struct redo_batch *w;
    size_t count = 0;

    assert(l->loaded);
    *more = false;
    *covered = 0;
    for (w = l->redo_log; w && w->cached; w = w->next)
        ;
    if (!w)
        return STORE_OK;
    status = read_checkpoint(l, s, &stored); /* whoever appended has normally written one, too */
    if (status != STORE_OK)
        return status;
    if (stored.seq >= l->tail.seq) {
        *covered = stored.seq;
        return STORE_OK;
    }
    reads = checked(calloc(GATHER_MOST, sizeof *reads));
    buckets = checked(calloc(GATHER_MOST, sizeof *buckets));
    for (; w && !*more; w = w->next)
        *more = !w->cached && !want_buckets_of(l, reads, buckets, &count, w);
    status = read_wanted(l, s, reads, buckets, count);
    for (w = l->redo_log; w && !*more && status == STORE_OK; w = w->next)
        w->cached = true;
    free(buckets);
    free(reads);
    return status;
}

/* ---- loading ---- */

#define LOADED_FIRST (LOOK_FIRST + 1) /* batches per lane: the one of the checkpoint, and those after it. Few have more */

/* List the loads[] that have not failed; returns how many. */
static size_t list_open(struct lane_loading *loads, size_t count, struct lane_loading **open)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++)
        if (loads[i].status == STORE_OK)
            open[left++] = &loads[i];
    return left;
}

static void load_checkpoints(struct store *s, struct lane_loading **open, size_t count)
{
    struct checkpoint_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct arena a;

    arena_init(&a, 0);
    for (size_t i = 0; i < count; i++)
        reads[i] = (struct checkpoint_read){.coupon = open[i]->lane->coupon, .lane = open[i]->lane->number, .arena = &a};
    if (count)
        s->ops->checkpoints(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        struct lane *l = open[i]->lane;

        l->checkpoint = reads[i].checkpoint;
        l->checkpoint.uses = NULL;
        if (reads[i].checkpoint.uses)
            code_uses_copy(&l->uses, reads[i].checkpoint.uses);
        l->next_due_ms = l->checkpoint.due_ms ? l->checkpoint.due_ms : NEXT_DUE_NEVER;
        open[i]->status = reads[i].status;
    }
    arena_free(&a);
    free(reads);
}

static void load_definitions(struct store *s, struct lane_loading **open, size_t count)
{
    struct coupon_read *reads = checked(calloc(count + 1, sizeof *reads));

    for (size_t i = 0; i < count; i++)
        reads[i] = (struct coupon_read){.coupon = open[i]->lane->coupon, .arena = &open[i]->lane->definition_arena};
    if (count)
        s->ops->coupons(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        open[i]->lane->definition = reads[i].definition;
        open[i]->lane->definition_seq = open[i]->lane->number > 0 ? 0 : reads[i].seq;
        open[i]->lane->definition_stored_seq = open[i]->lane->definition_seq;
    }
    free(reads);
}

/* The batch of the checkpoint, if any, is the tail that the redo log starts from. Takes it, and those after it. */
static enum store_status apply_first(struct lane *l, struct batch **batches, size_t count)
{
    size_t base = l->checkpoint.seq > 0;

    if (base && (!count || batches[0]->head.seq != l->checkpoint.seq)) {
        log_event(LOG_ERROR, "lane.no_batch_at_checkpoint", F_WORD("coupon", l->coupon), F_INT("lane", l->number),
                  F_INT("seq", l->checkpoint.seq));
        while (count > 0)
            batch_free(batches[--count]);
        return STORE_FAILED;
    }
    if (base) {
        l->tail = batches[0]->head;
        if (l->tail.ordinal == 0)
            l->filter.seq = l->tail.seq; /* nothing was taken up to here, so it misses nobody */
        batch_free(batches[0]);
    }
    return apply_batches(l, batches + base, count - base);
}

static void load_ledgers(struct store *s, struct lane_loading **open, size_t count)
{
    struct ledger_read *reads = checked(calloc(count + 1, sizeof *reads));
    struct batch **batches = checked(calloc((count + 1) * LOADED_FIRST, sizeof(struct batch *)));

    for (size_t i = 0; i < count; i++) {
        const struct lane *l = open[i]->lane;

        reads[i] = (struct ledger_read){.coupon = l->coupon, .lane = l->number, .after = l->checkpoint.seq ? l->checkpoint.seq - 1 : 0,
                                        .most = LOADED_FIRST, .batches = batches + i * LOADED_FIRST};
    }
    if (count)
        s->ops->ledgers(s, reads, count);
    for (size_t i = 0; i < count; i++) {
        open[i]->status = reads[i].status;
        if (open[i]->status == STORE_OK)
            open[i]->status = apply_first(open[i]->lane, reads[i].batches, reads[i].count);
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

static enum store_status finish_load(struct lane *l, int64_t boot_ms)
{
    if (l->definition_seq > l->tail.seq)
        return STORE_FAILED; /* it is newer than our read of the ledger: read again */
    if (l->number > 0 && definition_version(l) < l->tail.version)
        return STORE_FAILED; /* the stored one is older than the definition that the lane follows: it will be written */
    lane_note_end(l);
    l->loaded = true;
    l->newest_ms = boot_ms;
    return STORE_OK;
}

/* Definitions before ledgers: batches newer than a stored definition are applied to it. */
void lane_load(struct store *s, struct lane_loading *loads, size_t count)
{
    struct lane_loading **open = checked(calloc(count + 1, sizeof(struct lane_loading *)));
    int64_t boot_ms = clock_boot_ms();

    for (size_t i = 0; i < count; i++) {
        assert(!loads[i].lane->loaded && !loads[i].lane->redo_log && !loads[i].lane->pending);
        loads[i].status = STORE_OK;
    }
    load_checkpoints(s, open, list_open(loads, count, open));
    load_definitions(s, open, list_open(loads, count, open));
    load_ledgers(s, open, list_open(loads, count, open));
    for (size_t i = 0; i < count; i++) {
        if (loads[i].status == STORE_OK)
            loads[i].status = finish_load(loads[i].lane, boot_ms);
        if (loads[i].status != STORE_OK)
            lane_unload(loads[i].lane);
    }
    free(open);
}

void lane_load_none(struct lane *l)
{
    assert(!l->loaded && !l->redo_log && l->number == 0);
    l->loaded = true;
    l->newest_ms = clock_boot_ms();
}
