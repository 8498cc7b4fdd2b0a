/*
 * engine/committer.c -- see committer.h. Reading order: committer_main(), run_round(), then what it calls, going up.
 */
#include "engine/committer.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "engine/internal.h"
#include "engine/multilane.h"
#include "engine/round.h"

#define PAUSE_NS_MAX INT64_C(50000000)
#define CHECKPOINT_ENTRIES 4096 /* of a lane's redo log: with so many, its checkpoint is written at once */
#define TOGETHER_MS 50     /* deadlines fall on multiples of this, so that lanes are written together */

/* ---- answering ---- */

/* From here on the op does not count as waiting. */
static void count_out(struct committer *c)
{
    int before = atomic_fetch_sub(&c->waiting, 1);

    assert(before > 0); /* none is answered twice */
}

static void answer(struct committer *c, struct op *op)
{
    count_out(c);
    c->answered++;
    op->seen = c->store->ops->seen(c->store);
    engine_answer(c->engine, op);
}

void hand_off(struct committer *c)
{
    count_out(c);
}

static void answer_unavailable(struct committer *c, struct op *op, enum cpn_result result)
{
    assert(result == CPN_BUSY || result == CPN_OUTCOME_UNKNOWN);
    op->outcome = (struct outcome){.result = result, .retry = true};
    answer(c, op);
}

static void answer_each(struct committer *c, struct op_list *l, enum cpn_result result)
{
    struct op *op;

    while ((op = op_list_take(l)))
        answer_unavailable(c, op, result);
}

/* Answer ops in the list whose deadline has passed. */
static void answer_late(struct committer *c, struct op_list *l, enum cpn_result result)
{
    struct op_list kept = {0}, late = {0};
    struct mono now = mono_now();
    struct op *op;

    while ((op = op_list_take(l)))
        op_list_add(mono_before(op->deadline, now) ? &late : &kept, op);
    *l = kept;
    answer_each(c, &late, result);
}

/* ---- lanes and their lists ---- */

static void make_ready(struct committer *c, struct lane *l)
{
    if (l->ready)
        return;
    l->ready = true;
    DL_APPEND2(c->ready, l, ready_prev, ready_next);
}

static void make_ready_in(struct committer *c, struct lane *l, int64_t ms)
{
    l->not_before = mono_add_ms(mono_now(), ms);
    make_ready(c, l);
}

static struct lane *find_lane(struct committer *c, const char *coupon, int64_t number)
{
    struct lane *l;
    char key[LANE_KEY_SIZE];

    snprintf(key, sizeof key, "%s\n%lld", coupon, (long long)number);
    HASH_FIND_STR(c->lanes, key, l);
    if (!l) {
        l = lane_new(coupon, number, &c->filters, &c->users);
        HASH_ADD_STR(c->lanes, key, l);
    } else {
        DL_DELETE2(c->lru, l, lru_prev, lru_next);
    }
    DL_APPEND2(c->lru, l, lru_prev, lru_next);
    return l;
}

static void remove_lane(struct committer *c, struct lane *l)
{
    if (l->multilane_counted)
        c->multilane->hooks->gone(c->multilane, l);
    assert(c->lanes);
    HASH_DEL(c->lanes, l);
    lane_free(l);
}

static void evict_lanes(struct committer *c)
{
    struct lane *l, *next;
    int over = (int)HASH_COUNT(c->lanes) - c->config.lanes_max;

    DL_FOREACH_SAFE2(c->lru, l, next, lru_next) {
        if (over <= 0)
            return;
        if (!lane_idle(l))
            continue;
        assert(!l->pending_ops.count);
        DL_DELETE2(c->lru, l, lru_prev, lru_next);
        remove_lane(c, l);
        over--;
    }
}

static void enqueue(struct committer *c, struct op *op)
{
    struct lane *l = find_lane(c, op->coupon, op->lane);

    if (!op->engine.inner && l->queue.count >= (size_t)c->config.queue_max) {
        answer_unavailable(c, op, CPN_BUSY);
        return;
    }
    op_list_add(&l->queue, op);
    make_ready(c, l);
}

/* ---- checkpoints ---- */

static void job_done(struct checkpoint_job *job)
{
    struct committer *c = job->context;

    pthread_mutex_lock(&c->lock);
    job->next = c->finished;
    c->finished = job;
    if (c->sleeping)
        pthread_cond_signal(&c->some);
    pthread_mutex_unlock(&c->lock);
}

static void set_deadline(struct committer *c, struct lane *l, int64_t ms)
{
    struct mono at = mono_add_ms(mono_now(), ms);
    struct lane *later;

    assert(ms >= 0);
    if (ms > TOGETHER_MS)
        at.ns -= at.ns % (TOGETHER_MS * INT64_C(1000000));
    if (l->lagging && !mono_before(at, l->checkpoint_at))
        return;
    if (l->lagging)
        DL_DELETE2(c->lagging, l, lagging_prev, lagging_next);
    l->lagging = true;
    l->checkpoint_at = at;
    /* The list is by deadline. A new one mostly belongs at the end; one that failed comes behind those due before it tries again. */
    later = c->lagging;
    if (!later || !mono_before(at, later->lagging_prev->checkpoint_at)) {
        DL_APPEND2(c->lagging, l, lagging_prev, lagging_next);
        return;
    }
    while (!mono_before(at, later->checkpoint_at))
        later = later->lagging_next;
    DL_PREPEND_ELEM2(c->lagging, later, l, lagging_prev, lagging_next);
}

void note_lagging(struct committer *c, struct lane *l)
{
    bool at_once = l->definition_seq > l->definition_stored_seq || l->watchers.count || l->redo_entries >= CHECKPOINT_ENTRIES;

    set_deadline(c, l, at_once ? 0 : c->config.checkpoint_ms);
}

static void leave_lagging(struct committer *c, struct lane *l)
{
    if (l->lagging)
        DL_DELETE2(c->lagging, l, lagging_prev, lagging_next);
    l->lagging = false;
}

static void copy_dirty_buckets(struct lane *l, struct checkpoint_job *job)
{
    struct cached_bucket *k, *next;
    size_t most = HASH_COUNT(l->buckets);

    job->buckets = most ? checked(calloc(most, sizeof *job->buckets)) : NULL;
    HASH_ITER(hh, l->buckets, k, next) {
        if (!k->dirty)
            continue;
        assert(k->bucket.seq <= l->tail.seq);
        bucket_copy(&job->buckets[job->bucket_count++], &k->bucket);
        k->bucket.stored = true;
        k->dirty = false;
    }
}

/* When the lane's next redemption ends, as the checkpoint has it: what has ended, and is not settled, counts as long ago. */
static int64_t due_of(const struct lane *l)
{
    return l->next_due_ms == NEXT_DUE_NEVER ? 0 : l->next_due_ms > 0 ? l->next_due_ms : 1;
}

/* Have a checkpoint written that covers the tail. */
static void submit_checkpoint(struct committer *c, struct lane *l)
{
    struct checkpoint_job *job = checked(calloc(1, sizeof *job));

    assert(l->loaded && !l->writing_checkpoint);
    assert(l->checkpoint.seq <= l->tail.seq && l->definition_seq <= l->tail.seq);
    job->lane = l;
    job->context = c;
    job->done = job_done;
    arena_init(&job->arena, 1024);
    copy_dirty_buckets(l, job);
    if (l->definition_seq > l->definition_stored_seq) {
        job->definition = coupon_copy(l->definition, &job->arena);
        job->definition_seq = l->definition_seq;
    }
    l->checkpoint.due_ms = due_of(l);
    l->checkpoint_late = false;
    job->checkpoint = l->checkpoint;
    job->checkpoint.seq = l->tail.seq;
    job->checkpoint.uses = code_uses_in(&job->arena, &l->uses);
    if (!l->pending) /* its batch will be applied to the buckets it read */
        cached_bucket_evict(l);
    l->writing_checkpoint = true;
    checkpoint_writer_submit(c->writer, job);
}

static void forget_lane(struct committer *c, struct lane *l);
static void count_redo(struct committer *c, struct lane *l);

/* Others wrote a checkpoint that covers the tail, or more. */
static void note_covered(struct committer *c, struct lane *l, int64_t seq)
{
    assert(seq >= l->tail.seq);
    if (seq == l->tail.seq) {
        lane_checkpointed(l, seq);
        count_redo(c, l);
        answer_watchers(c, l);
        return;
    }
    l->checkpoint.seq = l->tail.seq;
    answer_watchers(c, l);
    if (!l->pending)
        forget_lane(c, l);
}

/* The lane's deadline has come: what others appended is gathered first. If that fails, or takes longer, there is another deadline. A stale
 * lane is written up to its tail, too: requests may wait for free slots that only a checkpoint lets them find. */
static void checkpoint_lane(struct committer *c, struct lane *l)
{
    bool more = false;
    int64_t covered = 0;
    enum store_status status;

    leave_lagging(c, l);
    if (l->writing_checkpoint || (!l->redo_log && !l->checkpoint_late))
        return; /* finish_job() sets a new deadline */
    assert(l->loaded);
    status = lane_gather(l, c->store, &more, &covered);
    if (covered)
        note_covered(c, l, covered);
    else if (more)
        set_deadline(c, l, 0);
    else if (status != STORE_OK)
        set_deadline(c, l, c->config.backoff_ms);
    else
        submit_checkpoint(c, l);
}

void answer_watchers(struct committer *c, struct lane *l)
{
    struct op_list kept = {0};
    struct op *op;

    while ((op = op_list_take(&l->watchers))) {
        if (l->checkpoint.seq < op->engine.until_seq) {
            op_list_add(&kept, op);
            continue;
        }
        answer(c, op);
    }
    l->watchers = kept;
}

/* No checkpoint is waited for any longer: what the watcher asked for is in the ledger, but a reader may not see it yet. */
static void give_up_watcher(struct committer *c, struct op *op)
{
    answer_unavailable(c, op, op->kind == OP_CATCH_UP ? CPN_BUSY : CPN_OUTCOME_UNKNOWN);
}

static void give_up_watchers(struct committer *c, struct lane *l)
{
    struct op *op;

    while ((op = op_list_take(&l->watchers)))
        give_up_watcher(c, op);
}

/* Answer those who have waited long enough. */
static void answer_late_watchers(struct committer *c, struct lane *l)
{
    struct op_list kept = {0};
    struct mono now = mono_now();
    struct op *op;

    while ((op = op_list_take(&l->watchers))) {
        if (mono_before(op->deadline, now))
            give_up_watcher(c, op);
        else
            op_list_add(&kept, op);
    }
    l->watchers = kept;
}

static void count_redo(struct committer *c, struct lane *l)
{
    int64_t more = (int64_t)l->redo_entries - (int64_t)l->counted_entries;
    size_t bytes = l->redo_bytes + (l->pending ? l->pending->arena.bytes : 0);

    c->redo_bytes += (int64_t)bytes - (int64_t)l->counted_bytes;
    l->counted_bytes = bytes;
    l->counted_entries = l->redo_entries;
    c->redo_entries += more;
    assert(c->redo_entries >= 0 && c->redo_bytes >= 0);
    if (more)
        metrics_add(METRIC_REDO_ENTRIES, more);
}

/* True if the lane's own share exceeds the room that remains of `most` (0: unbounded): so the largest waits first. */
static bool has_most(size_t own, int64_t all, int64_t most)
{
    return most && (int64_t)own > most - all;
}

static void finish_job(struct committer *c, struct checkpoint_job *job)
{
    struct lane *l = job->lane;

    assert(job->context == c && l->writing_checkpoint);
    c->store->ops->saw(c->store, job->when); /* what was written is read by this session */
    l->writing_checkpoint = false;
    if (job->written && l->loaded && job->checkpoint.seq <= l->tail.seq) {
        if (job->definition && job->definition_seq > l->definition_stored_seq)
            l->definition_stored_seq = job->definition_seq;
        lane_checkpointed(l, job->checkpoint.seq);
        answer_watchers(c, l);
    }
    if (l->redo_log || l->checkpoint_late)
        note_lagging(c, l);
    count_redo(c, l);
    checkpoint_job_free(job);
}

static void finish_jobs(struct committer *c, struct checkpoint_job *jobs)
{
    struct checkpoint_job *next;

    for (; jobs; jobs = next) {
        next = jobs->next;
        finish_job(c, jobs);
    }
}

/* ---- filters of users ---- */

void note_users(struct committer *c, struct lane *l)
{
    while (!redo_log_note_users(l, c->store)) {
        struct lane *other = c->lru;

        /* the least recently used of those with a filter gives it up: l itself, if used less recently than all others */
        while (other && other != l && !other->filter.bytes)
            other = other->lru_next;
        filter_drop(other ? &other->filter : &l->filter);
    }
}

static void report_memory(struct committer *c)
{
    int64_t filters = atomic_load(&c->filters.bytes), users = c->users.bytes;

    if (filters != c->filter_bytes)
        metrics_add(METRIC_FILTER_BYTES, filters - c->filter_bytes);
    if (users != c->user_bytes)
        metrics_add(METRIC_USER_BYTES, users - c->user_bytes);
    c->filter_bytes = filters;
    c->user_bytes = users;
}

/* ---- a round: what it is about ---- */

static void work_free_users(struct lane_work *p)
{
    struct loaded_user *u, *next;

    HASH_ITER(hh, p->users, u, next)
        HASH_DEL(p->users, u);
}

void defer(struct committer *c, struct lane_work *p, int64_t ms)
{
    if (p->state == WORK_DEFERRED)
        return;
    assert(p->state != WORK_DONE && p->batch && ms >= 0);
    if (p->sweeping)
        p->lane->next_due_ms = NEXT_DUE_NOW; /* what was found expired is not in the ledger yet */
    work_free_users(p);
    op_list_prepend(&p->lane->queue, &p->unread);
    op_list_prepend(&p->lane->queue, &p->again);
    if (p->state == WORK_RETRY) {
        assert(!p->lane->pending && !p->lane->pending_ops.count);
        p->lane->pending = p->batch;
        p->lane->pending_ops = p->ops;
        p->lane->pending_free_pool_used = p->d.free_pool_used;
    } else {
        batch_free(p->batch);
        op_list_prepend(&p->lane->queue, &p->ops);
    }
    p->state = WORK_DEFERRED;
    make_ready_in(c, p->lane, ms);
}

static void pick_ops(struct committer *c, struct round *r, struct lane_work *p)
{
    struct lane *l = p->lane;
    struct mono now = mono_now();

    while (p->ops.count < (size_t)c->config.batch_max && r->ops < c->ops_most) {
        struct op *op = op_list_take(&l->queue);

        if (!op)
            return;
        if (mono_before(op->deadline, now)) {
            answer_unavailable(c, op, CPN_BUSY);
            continue;
        }
        op->engine.work = arena_alloc(&r->arena, sizeof *op->engine.work);
        op_list_add(&p->ops, op);
        r->ops++;
    }
}

/* Work without requests: slots to retire, redemptions that expired. A stale lane's is somebody else's. */
static bool has_chores(const struct lane *l)
{
    return l->loaded && !l->stale && (l->tail.retiring > 0 || l->next_due_ms <= clock_now_ms());
}

/* The lane is so old that it cannot tell a seq that was never appended from one since deleted. */
static bool is_too_old(const struct committer *c, const struct lane *l)
{
    return l->loaded && c->config.trusted_ms && clock_boot_ms() - l->newest_ms > c->config.trusted_ms;
}

/* Drop what it has in memory, as a kill would. */
static void forget_lane(struct committer *c, struct lane *l)
{
    if (l->pending) {
        answer_each(c, &l->pending_ops, CPN_OUTCOME_UNKNOWN);
        batch_free(l->pending);
        l->pending = NULL;
    }
    leave_lagging(c, l);
    give_up_watchers(c, l);
    lane_unload(l);
    l->stale = false;
    count_redo(c, l);
}

/* Take a lane into the round. False: not now. */
static bool pick_lane(struct committer *c, struct round *r, struct lane *l)
{
    struct lane_work *p = &r->work[r->count];
    const struct engine_config *most = &c->config;

    assert(r->count < ROUND_LANES_MAX && !l->ready);
    *p = (struct lane_work){.lane = l};
    if (is_too_old(c, l))
        forget_lane(c, l);
    if (l->pending) {
        assert(l->loaded && l->pending->head.seq == l->tail.seq + 1);
        answer_late(c, &l->pending_ops, CPN_OUTCOME_UNKNOWN);
        answer_late(c, &l->queue, CPN_BUSY);
        p->state = WORK_RETRY;
        p->batch = l->pending;
        p->ops = l->pending_ops;
        p->d.free_pool_used = l->pending_free_pool_used;
        l->pending = NULL;
        l->pending_ops = (struct op_list){0};
        r->count++;
        return true;
    }
    /* the redo log is at its own bound, or at its part of the common one, in entries or in memory: appends wait for the checkpoint */
    if (l->redo_entries > (size_t)most->redo_max || has_most(l->redo_entries, c->redo_entries, most->redo_max_all) ||
        has_most(l->redo_bytes, c->redo_bytes, (int64_t)most->redo_mb << 20)) {
        answer_late(c, &l->queue, CPN_BUSY); /* and no other request; have the checkpoint written now */
        if (l->redo_log)
            set_deadline(c, l, 0);
        return false;
    }
    pick_ops(c, r, p);
    if (!p->ops.count && !has_chores(l))
        return true;
    p->batch = batch_new(l->coupon, l->number);
    r->count++;
    return true;
}

static void pick(struct committer *c, struct round *r)
{
    struct lane *l, *next;
    struct mono now = mono_now();
    int cold = 0;

    DL_FOREACH_SAFE2(c->ready, l, next, ready_next) {
        if (r->count == ROUND_LANES_MAX || r->ops >= c->ops_most)
            return;
        if (mono_before(now, l->not_before) || (!l->loaded && cold == ROUND_COLD_MAX))
            continue;
        cold += !l->loaded;
        DL_DELETE2(c->ready, l, ready_prev, ready_next);
        l->ready = false;
        if (!pick_lane(c, r, l))
            make_ready_in(c, l, c->config.backoff_ms);
    }
}

/* ---- appending, confirming, settling ---- */

static void answer_work(struct committer *c, struct lane_work *p)
{
    struct lane *l = p->lane;
    struct op *op;

    assert(p->state == WORK_DECIDED || p->state == WORK_RETRY);
    p->state = WORK_DONE;
    while ((op = op_list_take(&p->ops))) {
        /* a changed definition is stored before the answer: a reader of definitions waits for nothing */
        bool unstored = l->definition_seq > l->definition_stored_seq && op_is(op, 1 << OP_CREATE | 1 << OP_CHANGE | 1 << OP_DELETE);

        if (op->outcome.result == CPN_OK && (op->kind == OP_CATCH_UP || unstored)) { /* once a checkpoint covers the tail */
            assert(l->loaded);
            op->engine.until_seq = l->tail.seq;
            op_list_add(&l->watchers, op);
            answer_watchers(c, l);
            if (l->watchers.count)
                note_lagging(c, l);
        } else if (op->outcome.need && !op->engine.inner && !op->engine.looked) { /* other lanes may have the slots that it lacks */
            assert(c->multilane && op->outcome.result != CPN_OK);
            hand_off(c);
            c->multilane->hooks->lacks(c->multilane, op);
        } else {
            answer(c, op);
        }
    }
    op_list_prepend(&l->queue, &p->unread);
    if (p->again.count) {
        l->stale = true; /* slots are free but none is found: perhaps somebody else took them; read the ledger */
        op_list_prepend(&l->queue, &p->again);
        make_ready_in(c, l, p->damaged ? AGAIN_DAMAGED_MS : AGAIN_MS);
    }
    if (l->queue.count)
        make_ready(c, l);
    else if (l->tail.retiring > 0)
        make_ready_in(c, l, p->damaged ? AGAIN_DAMAGED_MS : AGAIN_MS);
}

/* What p found expired is in the ledger, or ended before. */
static void note_swept(struct lane_work *p)
{
    struct lane *l = p->lane;

    if (!p->sweeping)
        return;
    assert(l->loaded);
    l->checkpoint.swept_ms = p->swept_ms;
    l->checkpoint.swept_seq = p->swept_seq;
    l->ended = p->ended;
    l->checkpoint_late = l->checkpoint_late || due_of(l) != l->checkpoint.due_ms;
}

static void work_committed(struct committer *c, const struct round *r, struct lane_work *p)
{
    struct lane *l = p->lane;
    int expired = 0;

    /* Let the lane's other writer append next. It must read our batch first, so it would lose every race; it needs about as long as this
     * round took. */
    if (l->pauses) {
        struct mono now = mono_now();
        int64_t ns = now.ns - r->started.ns;

        l->pauses--;
        l->not_before = (struct mono){now.ns + (ns < PAUSE_NS_MAX ? ns : PAUSE_NS_MAX)};
    }
    for (size_t i = 0; i < p->batch->count; i++)
        expired += p->batch->entries[i].kind == ENTRY_EXPIRE;
    if (expired)
        metrics_add(METRIC_HOLDS_EXPIRED, expired);
    metrics_add(METRIC_BATCHES, 1);
    metrics_add(METRIC_ENTRIES, (int64_t)p->batch->count);
    metrics_observe(METRIC_BATCH_SIZE, (int64_t)p->ops.count);
    metrics_observe(METRIC_COMMIT_TIME, r->append_us);
    metrics_observe(METRIC_LOAD_TIME, r->load_us);
    work_free_users(p);
    note_swept(p);
    lane_commit(l, p->batch, p->d.free_pool_used);
    note_users(c, l);
    crash_at(CRASH_APPENDED);
    if (multilane_of(c, l))
        c->multilane->hooks->committed(c->multilane, l);
    note_lagging(c, l);
    answer_work(c, p);
}

/* Somebody else appended: read that and decide again. */
static void work_lost(struct committer *c, struct lane_work *p)
{
    metrics_add(METRIC_CONFLICTS, 1);
    p->lane->stale = true;
    if (p->state == WORK_RETRY)
        p->state = WORK_OPEN; /* its requests are decided again */
    defer(c, p, 0);
}

/* Append them. Each is then committed (ours), lost and decided again (somebody else's), or sent again (unknown). */
static void append_decided(struct committer *c, struct round *r)
{
    struct append *appends = arena_array(&r->arena, r->count, sizeof *appends);
    struct lane_work **whose = arena_array(&r->arena, r->count, sizeof *whose);
    struct mono started;
    int64_t boot_ms;
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        if (p->state != WORK_RETRY && !(p->state == WORK_DECIDED && decide_changed(&p->d)))
            continue;
        if (is_too_old(c, p->lane)) {
            defer(c, p, 0);
            continue;
        }
        assert(p->lane->loaded && p->batch->count > 0 && p->batch->head.seq == p->lane->tail.seq + 1);
        appends[count] = (struct append){.batch = p->batch, .result = APPEND_UNKNOWN};
        whose[count++] = p;
    }
    if (!count)
        return;
    crash_at(CRASH_DECIDED);
    started = mono_now();
    boot_ms = clock_boot_ms();
    c->store->ops->append(c->store, appends, count);
    r->append_us = (mono_now().ns - started.ns) / 1000;
    for (size_t i = 0; i < count; i++) {
        if (appends[i].result == APPEND_OURS) {
            whose[i]->lane->newest_ms = boot_ms;
            work_committed(c, r, whose[i]);
        } else if (appends[i].result == APPEND_THEIRS) {
            work_lost(c, whose[i]);
        } else {
            metrics_add(METRIC_APPEND_RETRIES, 1);
            whose[i]->state = WORK_RETRY;
            defer(c, whose[i], c->config.backoff_ms);
        }
    }
}

static void work_unchanged(struct committer *c, struct lane_work *p)
{
    assert(p->state == WORK_DECIDED && p->batch->count == 0);
    work_free_users(p);
    note_swept(p);
    if (p->lane->checkpoint_late)
        note_lagging(c, p->lane);
    batch_free(p->batch);
    if (multilane_of(c, p->lane))
        c->multilane->hooks->confirmed(c->multilane, p->lane);
    answer_work(c, p);
}

/* Lanes with nothing to append: their answers hold only if the tail has not moved. */
static void confirm_unchanged(struct committer *c, struct round *r)
{
    struct confirm *confirms = arena_array(&r->arena, r->count, sizeof *confirms);
    struct lane_work **whose = arena_array(&r->arena, r->count, sizeof *whose);
    enum store_status status;
    int64_t boot_ms;
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        if (p->state != WORK_DECIDED || decide_changed(&p->d))
            continue;
        if (!p->ops.count) {
            work_unchanged(c, p);
            continue;
        }
        if (is_too_old(c, p->lane)) {
            defer(c, p, 0);
            continue;
        }
        assert(p->lane->loaded && p->batch->count == 0);
        confirms[count] = (struct confirm){p->lane->coupon, p->lane->number, p->lane->tail.seq, false};
        whose[count++] = p;
    }
    if (!count)
        return;
    boot_ms = clock_boot_ms();
    status = c->store->ops->confirm(c->store, confirms, count);
    for (size_t i = 0; i < count; i++) {
        struct lane_work *p = whose[i];

        if (status != STORE_OK) {
            defer(c, p, c->config.backoff_ms);
        } else if (!confirms[i].unmoved) {
            work_lost(c, p);
        } else {
            p->lane->newest_ms = boot_ms;
            work_unchanged(c, p);
        }
    }
}

static void run_round(struct committer *c, struct round *r)
{
    r->started = mono_now();
    r->count = r->ops = 0;
    r->unread = false;
    c->answered = 0;
    pick(c, r);
    if (!r->count)
        return;
    load_round(c, r);
    for (size_t i = 0; i < r->count; i++)
        if (r->work[i].state == WORK_OPEN)
            decide_work(c, &r->work[i]);
    confirm_unchanged(c, r);
    append_decided(c, r);
    for (size_t i = 0; i < r->count; i++) {
        assert(r->work[i].state == WORK_DONE || r->work[i].state == WORK_DEFERRED); /* no request is forgotten */
        count_redo(c, r->work[i].lane);
    }
    /* If its users did not fit into memory, the next round takes half as many requests, and so on: so the first in a queue is put off only
     * a few times, whichever users the store reads first, and other lanes come between. */
    if (r->unread)
        c->ops_most = r->ops > 1 ? r->ops / 2 : 1;
    else
        c->ops_most = c->ops_most * 2 < ROUND_OPS_MAX ? c->ops_most * 2 : ROUND_OPS_MAX;
    report_memory(c);
    arena_reset(&r->arena);
    gather_answered(&c->gather, c->answered, atomic_load(&c->waiting), r->started, mono_now());
}

/* ---- the thread ---- */

static void checkpoint_due(struct committer *c)
{
    struct mono now = mono_now();

    while (c->lagging && !mono_before(now, c->lagging->checkpoint_at)) {
        if (is_too_old(c, c->lagging))
            forget_lane(c, c->lagging);
        else
            checkpoint_lane(c, c->lagging);
    }
}

#define CHORES_EVERY_MS 500

/* Look for lanes without requests in which redemptions expire, requests were set aside, or someone has waited long enough for a
 * checkpoint; and for lanes unused for too long. */
static void look_for_chores(struct committer *c)
{
    struct mono now = mono_now();
    struct lane *l, *next;

    if (mono_ms_between(c->looked_for_chores, now) < CHORES_EVERY_MS)
        return;
    c->looked_for_chores = now;
    HASH_ITER(hh, c->lanes, l, next) {
        if (is_too_old(c, l))
            forget_lane(c, l);
        if (l->watchers.count)
            answer_late_watchers(c, l);
        op_list_prepend(&l->queue, &l->aside);
        if (l->queue.count || (!l->pending && has_chores(l)))
            make_ready(c, l);
    }
}

/* For how long there is nothing to do, in ms; 0: there is work. */
static int64_t idle_ms(const struct committer *c)
{
    struct mono now = mono_now();
    int64_t ms = CHORES_EVERY_MS, wait_ms;

    for (const struct lane *l = c->ready; l; l = l->ready_next) {
        wait_ms = mono_ms_between(now, l->not_before);
        if (!mono_before(now, l->not_before))
            return 0;
        if (wait_ms + 1 < ms)
            ms = wait_ms + 1;
    }
    if (c->lagging) {
        wait_ms = mono_ms_between(now, c->lagging->checkpoint_at) + 1;
        if (wait_ms < ms)
            ms = wait_ms < 0 ? 0 : wait_ms;
    }
    assert(ms >= 0 && ms <= CHORES_EVERY_MS);
    return ms;
}

/* Sleep until `awaited` requests or other news are there, or `until`. */
static void sleep_until_some(struct committer *c, int awaited, struct mono until)
{
    c->awaited = awaited;
    c->sleeping = true;
    cond_wait_until(&c->some, &c->lock, until);
    c->sleeping = false;
}

/* If something can be decided and waiting pays, wait for those just answered to come back. True: they may have. */
static bool await_company(struct committer *c)
{
    bool waited = false;
    struct mono now = mono_now();
    int64_t wait_ns;

    if (idle_ms(c) > 0)
        return false;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && (wait_ns = gather_wait_ns(&c->gather, atomic_load(&c->waiting), now)) > 0) {
        sleep_until_some(c, c->gather.expected, (struct mono){now.ns + wait_ns});
        now = mono_now();
        waited = true;
    }
    pthread_mutex_unlock(&c->lock);
    return waited;
}

/* Take what has come in; wait if there is nothing to do. True: stop. */
static bool collect(struct committer *c)
{
    struct op_list queue;
    struct checkpoint_job *finished;
    struct op *op;
    int64_t ms = idle_ms(c);
    struct mono until = mono_add_ms(mono_now(), ms);
    bool stop;

    pthread_mutex_lock(&c->lock);
    if (!c->queue.count && !c->finished && !c->stop && ms > 0)
        sleep_until_some(c, 0, until);
    else if (c->stop && !c->queue.count && ms > 0 && c->ready)
        sleep_until_some(c, 0, until);
    queue = c->queue;
    c->queue = (struct op_list){0};
    finished = c->finished;
    c->finished = NULL;
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    finish_jobs(c, finished);
    while ((op = op_list_take(&queue)))
        enqueue(c, op);
    return stop;
}

/* Asked to stop: write what is to be written, while there is time. */
static void checkpoint_all(struct committer *c)
{
    while (mono_before(mono_now(), c->give_up)) {
        struct checkpoint_job *finished;
        struct lane *one;
        size_t left; /* those that fail are in the list again */
        bool writing = false;

        for (one = c->lanes; one; one = one->hh.next)
            writing = writing || one->writing_checkpoint;
        if (!c->lagging && !writing)
            return;
        DL_COUNT2(c->lagging, one, left, lagging_next);
        for (struct lane *l = c->lagging, *next; l && left > 0; l = next, left--) {
            next = l->lagging_next;
            checkpoint_lane(c, l);
        }
        pthread_mutex_lock(&c->lock);
        if (!c->finished)
            sleep_until_some(c, 0, mono_add_ms(mono_now(), CHORES_EVERY_MS));
        finished = c->finished;
        c->finished = NULL;
        pthread_mutex_unlock(&c->lock);
        finish_jobs(c, finished);
    }
}

static void *committer_main(void *argument)
{
    struct committer *c = argument;
    struct round *r = checked(calloc(1, sizeof *r));
    struct lane *l, *next;
    bool stop;

    arena_init(&r->arena, 64 * 1024);
    do {
        stop = collect(c);
        if (await_company(c))
            stop = collect(c);
        metrics_set(METRIC_QUEUE, atomic_load(&c->waiting));
        look_for_chores(c);
        run_round(c, r);
        checkpoint_due(c);
        evict_lanes(c);
        if (stop && mono_before(c->give_up, mono_now()))
            break;
    } while (!stop || c->ready);
    checkpoint_all(c);
    HASH_ITER(hh, c->lanes, l, next) {
        answer_each(c, &l->pending_ops, CPN_OUTCOME_UNKNOWN);
        answer_each(c, &l->queue, CPN_BUSY);
        answer_each(c, &l->aside, CPN_BUSY);
        give_up_watchers(c, l);
    }
    arena_free(&r->arena);
    free(r);
    return NULL;
}

/* ---- from outside ---- */

struct committer *committer_start(const struct engine_config *config, struct store_source *source,
                                  struct engine *engine, struct multilane *multilane, struct checkpoint_writer *writer)
{
    struct committer *c = checked(calloc(1, sizeof *c));

    assert(config->batch_max > 0 && config->queue_max > 0 && config->redo_max > 0 && config->lanes_max > 0);
    c->config = *config;
    c->engine = engine;
    c->multilane = multilane;
    c->writer = writer;
    c->users.bytes_max = config->user_bytes;
    c->filters.bytes_max = config->filter_bytes;
    gather_init(&c->gather, config->batch_max);
    c->store = source->open(source);
    c->epoch = -1;
    c->ops_most = ROUND_OPS_MAX;
    pthread_mutex_init(&c->lock, NULL);
    cond_init(&c->some);
    thread_start(&c->thread, committer_main, c, "committer");
    return c;
}

void committer_submit(struct committer *c, struct op *op)
{
    assert(op->kind < OP_KIND_COUNT && op->coupon && op->arena && op->done);
    pthread_mutex_lock(&c->lock);
    op_list_add(&c->queue, op);
    if (atomic_fetch_add(&c->waiting, 1) + 1 >= c->awaited && c->sleeping)
        pthread_cond_signal(&c->some);
    pthread_mutex_unlock(&c->lock);
}

int committer_waiting(const struct committer *c)
{
    return atomic_load(&c->waiting);
}

void committer_stop(struct committer *c, int patience_ms)
{
    assert(patience_ms >= 0);
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    c->give_up = mono_add_ms(mono_now(), patience_ms);
    pthread_cond_signal(&c->some);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
}

void committer_free(struct committer *c)
{
    struct lane *l, *next;

    finish_jobs(c, c->finished);
    HASH_ITER(hh, c->lanes, l, next) {
        if (l->pending)
            batch_free(l->pending);
        remove_lane(c, l);
    }
    buf_free(&c->scratch);
    c->store->ops->close(c->store);
    pthread_cond_destroy(&c->some);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
