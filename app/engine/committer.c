/*
 * engine/committer.c -- see committer.h. Reading order: committer_main(), run_round(), then what it calls, upwards.
 *
 * A round takes what waits on the ready lanes, loads what their requests are about in one read, decides each lane,
 * appends all that changed in one insert, confirms the tails of those that did not change, and answers.
 */
#include "engine/committer.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/log.h"
#include "coupons/fold.h"

#define ROUND_PARTS_MAX 512    /* lanes in a round */
#define ROUND_OPS_MAX 2048     /* requests in a round */
#define ROUND_LOADS_MAX 32     /* lanes loaded in a round, so that cold ones do not hold up the warm */
#define RETIRE_STEP 4096       /* slots retired in a batch */
#define AGAIN_MS 2             /* slots are free, but their views not readable yet */
#define CLOCK_ALARM_MS 2000    /* a tail this far ahead of now */

struct zone_day {
    char *zone;
    int64_t start_ms, end_ms;
    UT_hash_handle hh;
};

struct committer {
    struct engine_config config;
    const struct engine_hooks *hooks;
    struct store *store;
    struct views *views;
    int lanes_max;
    pthread_t thread;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list inbox;
    struct view_job *finished;
    bool sleeping, stop;
    struct mono give_up;
    /* the thread's own */
    atomic_int waiting;
    struct lane *lanes;
    struct lane *lru; /* least recently used first */
    struct lane *ready;
    struct lane *unflushed;
    struct zone_day *zones;
    struct buf scratch;
    uint32_t random;
    int answered;            /* requests answered in the last round */
    int expected;            /* requests that may wait before the next one: see gather() */
    struct mono round_ended;
};

/* A user whom a part of a round is about. */
struct loaded_user {
    const char *user;
    struct use *use; /* the working copy; NULL until loaded */
    bool changed;
    UT_hash_handle hh;
};

enum part_state {
    PART_OPEN,     /* to be decided */
    PART_RETRY,    /* an append whose outcome is unknown */
    PART_DECIDED,  /* decided: to be appended, or confirmed */
    PART_DEFERRED, /* given back to its lane */
    PART_DONE      /* answered; its batch is the lane's, or gone */
};

/* One lane's share of a round. */
struct part {
    struct lane *lane;
    enum part_state state;
    struct op_list ops;     /* decided, or to be */
    struct op_list again;   /* back to the queue when the round is over: the stash was empty */
    struct batch *batch;
    struct decision d;
    struct loaded_user *users;
    int64_t day_ms, day_end_ms, at_ms;
};

struct round {
    struct part parts[ROUND_PARTS_MAX];
    size_t count;
    size_t ops;
    struct arena arena;
    int64_t load_us, append_us; /* how long its loading and its append took */
};

static void crash_point(struct committer *c, const char *name)
{
    if (c->hooks->crash_point)
        c->hooks->crash_point(name);
}

/* ---- answering ---- */

static void answer(struct committer *c, struct op *op)
{
    atomic_fetch_sub(&c->waiting, 1);
    c->answered++;
    if (c->hooks->decided)
        c->hooks->decided(op->kind, op->outcome.result);
    op->done(op);
}

static void answer_unavailable(struct committer *c, struct op *op, enum cpn_result result)
{
    op->outcome = (struct outcome){.result = result, .retry = true};
    answer(c, op);
}

/* Answer those of the list whose deadline has passed. */
static void answer_late(struct committer *c, struct op_list *l, enum cpn_result result, bool all)
{
    struct op_list kept = {0};
    struct mono now = mono_now();
    struct op *op;

    while ((op = op_list_take(l))) {
        if (all || mono_before(op->deadline, now))
            answer_unavailable(c, op, result);
        else
            op_list_add(&kept, op);
    }
    *l = kept;
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
        l = lane_new(coupon, number);
        HASH_ADD_STR(c->lanes, key, l);
    } else {
        DL_DELETE2(c->lru, l, lru_prev, lru_next);
    }
    DL_APPEND2(c->lru, l, lru_prev, lru_next);
    return l;
}

static void evict_lanes(struct committer *c)
{
    struct lane *l, *next;
    int over = (int)HASH_COUNT(c->lanes) - c->lanes_max;

    DL_FOREACH_SAFE2(c->lru, l, next, lru_next) {
        if (over <= 0)
            return;
        if (!lane_idle(l))
            continue;
        DL_DELETE2(c->lru, l, lru_prev, lru_next);
        HASH_DEL(c->lanes, l);
        lane_free(l);
        over--;
    }
}

static void enqueue(struct committer *c, struct op *op)
{
    struct lane *l = find_lane(c, op->coupon, op->lane);

    if (l->queue.count >= (size_t)c->config.queue_max) {
        answer_unavailable(c, op, CPN_BUSY);
        return;
    }
    op_list_add(&l->queue, op);
    make_ready(c, l);
}

/* ---- view jobs ---- */

static void job_done(struct view_job *job)
{
    struct committer *c = job->context;

    pthread_mutex_lock(&c->lock);
    job->next = c->finished;
    c->finished = job;
    if (c->sleeping)
        pthread_cond_signal(&c->some);
    pthread_mutex_unlock(&c->lock);
}

static struct view_job *new_job(struct committer *c, struct lane *l)
{
    struct view_job *job = checked(calloc(1, sizeof *job));

    job->lane = l;
    job->context = c;
    job->done = job_done;
    job->after = l->mark.when;
    arena_init(&job->arena, 1024);
    l->jobs++;
    return job;
}

static void unflushed(struct committer *c, struct lane *l)
{
    if (l->unflushed)
        return;
    l->unflushed = true;
    l->flush_at = mono_add_ms(mono_now(), c->config.flush_ms);
    DL_APPEND2(c->unflushed, l, unflushed_prev, unflushed_next);
}

/* The users' views of a batch that was just committed, and the definition if it changed. */
static void submit_own(struct committer *c, struct lane *l)
{
    struct view_job *job = new_job(c, l);

    job->own = l->window->prev; /* the list's tail: what was committed last */
    job->own->refs++;
    if (l->definition_seq == l->tail.seq) {
        job->definition = coupon_copy(l->definition, &job->arena);
        job->definition_seq = l->definition_seq;
    }
    views_submit(c->views, job);
    unflushed(c, l);
}

static void copy_dirty_buckets(struct lane *l, struct view_job *job)
{
    struct cached_bucket *k, *next;
    size_t most = HASH_COUNT(l->buckets);

    job->buckets = most ? checked(calloc(most, sizeof *job->buckets)) : NULL;
    HASH_ITER(hh, l->buckets, k, next) {
        if (!k->dirty)
            continue;
        bucket_copy(&job->buckets[job->bucket_count++], &k->bucket);
        k->dirty = false;
    }
}

/* Hand over everything that is not written yet; when it is, the mark moves to the present tail. */
static void flush_lane(struct committer *c, struct lane *l)
{
    struct view_job *job = new_job(c, l);
    struct window_batch *w;
    size_t most = 0;
    bool foreign = false;

    l->unflushed = false;
    DL_DELETE2(c->unflushed, l, unflushed_prev, unflushed_next);
    DL_FOREACH(l->window, w) {
        most++;
        foreign = foreign || (!w->own && !w->ensured);
    }
    if (foreign) {
        job->batches = checked(calloc(most, sizeof(struct window_batch *)));
        DL_FOREACH(l->window, w) {
            job->batches[job->batch_count++] = w;
            w->refs++;
            w->ensured = true;
        }
    }
    copy_dirty_buckets(l, job);
    job->upto = l->tail.seq;
    if (!l->pending) /* its batch will be laid into the buckets that it read */
        lane_evict_buckets(l);
    views_submit(c->views, job);
}

static void answer_watchers(struct committer *c, struct lane *l)
{
    struct op_list kept = {0};
    struct op *op;

    while ((op = op_list_take(&l->watchers))) {
        if (l->mark.seq < op->until_seq) {
            op_list_add(&kept, op);
            continue;
        }
        op->outcome = (struct outcome){.result = CPN_OK};
        answer(c, op);
    }
    l->watchers = kept;
}

static void finish_job(struct committer *c, struct view_job *job)
{
    struct lane *l = job->lane;

    if (job->own)
        window_release(job->own);
    for (size_t i = 0; i < job->batch_count; i++)
        window_release(job->batches[i]);
    if (job->upto) {
        lane_trim(l, &(struct mark){job->upto, job->when});
        answer_watchers(c, l);
    }
    l->jobs--;
    view_job_free(job);
}

/* ---- a round: what it is about ---- */

static void part_free_users(struct part *p)
{
    struct loaded_user *u, *next;

    HASH_ITER(hh, p->users, u, next)
        HASH_DEL(p->users, u);
}

/* Give the part's requests back to its lane, to be decided in another round. */
static void defer(struct committer *c, struct part *p, int64_t ms)
{
    if (p->state == PART_DEFERRED)
        return;
    part_free_users(p);
    op_list_prepend(&p->lane->queue, &p->again);
    if (p->state == PART_RETRY) {
        p->lane->pending = p->batch;
        p->lane->pending_ops = p->ops;
        p->lane->pending_stash_used = p->d.stash_used;
    } else {
        batch_free(p->batch);
        op_list_prepend(&p->lane->queue, &p->ops);
    }
    p->state = PART_DEFERRED;
    make_ready_in(c, p->lane, ms);
}

static void defer_all(struct committer *c, struct round *r, int64_t ms)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            defer(c, &r->parts[i], ms);
}

static void pick_ops(struct committer *c, struct round *r, struct part *p)
{
    struct lane *l = p->lane;
    struct mono now = mono_now();

    while (p->ops.count < (size_t)c->config.batch_max && r->ops < ROUND_OPS_MAX) {
        struct op *op = op_list_take(&l->queue);

        if (!op)
            return;
        if (mono_before(op->deadline, now)) {
            answer_unavailable(c, op, CPN_BUSY);
            continue;
        }
        op_list_add(&p->ops, op);
        r->ops++;
    }
}

/* Take one lane into the round. False: not now. */
static bool pick_lane(struct committer *c, struct round *r, struct lane *l)
{
    struct part *p = &r->parts[r->count];

    *p = (struct part){.lane = l};
    if (l->pending) {
        answer_late(c, &l->pending_ops, CPN_OUTCOME_UNKNOWN, false);
        answer_late(c, &l->queue, CPN_BUSY, false);
        p->state = PART_RETRY;
        p->batch = l->pending;
        p->ops = l->pending_ops;
        p->d.stash_used = l->pending_stash_used;
        l->pending = NULL;
        l->pending_ops = (struct op_list){0};
        r->count++;
        return true;
    }
    if (l->window_entries > (size_t)c->config.window_max) {
        answer_late(c, &l->queue, CPN_BUSY, false);
        return false;
    }
    pick_ops(c, r, p);
    if (!p->ops.count && !(l->loaded && l->tail.due > 0))
        return true;
    p->batch = batch_new(l->coupon, l->number);
    r->count++;
    return true;
}

static void pick(struct committer *c, struct round *r)
{
    struct lane *l, *next;
    struct mono now = mono_now();
    int loads = 0;

    DL_FOREACH_SAFE2(c->ready, l, next, ready_next) {
        if (r->count == ROUND_PARTS_MAX || r->ops >= ROUND_OPS_MAX)
            return;
        if (mono_before(now, l->not_before) || (!l->loaded && loads == ROUND_LOADS_MAX))
            continue;
        loads += !l->loaded;
        DL_DELETE2(c->ready, l, ready_prev, ready_next);
        l->ready = false;
        if (!pick_lane(c, r, l))
            make_ready_in(c, l, c->config.backoff_ms);
    }
}

static void load_lane(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    enum store_status status = STORE_OK;

    if (!l->loaded) {
        status = lane_load(l, c->store);
        if (status == STORE_OK && l->window)
            unflushed(c, l);
    } else if (l->stale) {
        status = lane_refresh(l, c->store, NULL);
        if (l->window)
            unflushed(c, l);
    }
    if (status == STORE_OK)
        l->stale = false;
    else
        defer(c, p, c->config.backoff_ms);
}

/* ---- loading: slots that requests name ---- */

static bool names_slot(const struct op *op)
{
    return op->kind == OP_REVERSE || op->kind == OP_REDEMPTION || op->kind == OP_SLOT;
}

/* The bucket that op needs, or -1. */
static int64_t needed_bucket(const struct lane *l, const struct op *op)
{
    if (names_slot(op))
        return op->n >= 0 && op->n < l->tail.next_n ? bucket_of(op->n) : -1;
    if (op->kind == OP_GENERATE && l->tail.next_n % BUCKET_SLOTS != 0)
        return bucket_of(l->tail.next_n);
    return -1;
}

struct wanted_bucket {
    struct part *part;
    struct bucket bucket;
};

static bool is_wanted(const struct wanted_bucket *wanted, size_t count, const struct part *p, int64_t b)
{
    for (size_t i = count; i-- > 0 && wanted[i].part == p;)
        if (wanted[i].bucket.b == b)
            return true;
    return false;
}

static void cache_wanted(struct committer *c, struct wanted_bucket *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct lane *l = wanted[i].part->lane;

        if (wanted[i].part->state != PART_OPEN) {
            bucket_release(&wanted[i].bucket);
        } else if (!lane_cache_bucket(l, &wanted[i].bucket)) {
            l->stale = true;
            defer(c, wanted[i].part, 0);
        }
    }
}

static void load_buckets(struct committer *c, struct round *r)
{
    struct wanted_bucket *wanted = arena_array(&r->arena, r->ops + 1, sizeof *wanted);
    struct bucket_read *reads = arena_array(&r->arena, r->ops + 1, sizeof *reads);
    struct store_time after = {0, 0};
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next) {
            int64_t b = needed_bucket(p->lane, op);

            if (b < 0 || lane_bucket(p->lane, b) || is_wanted(wanted, count, p, b))
                continue;
            wanted[count].part = p;
            bucket_init(&wanted[count].bucket, b);
            reads[count] = (struct bucket_read){.coupon = p->lane->coupon, .b = b, .bucket = &wanted[count].bucket};
            count++;
            after = store_time_later(after, p->lane->mark.when);
        }
    }
    if (count && c->store->ops->buckets(c->store, after, reads, count) != STORE_OK)
        defer_all(c, r, c->config.backoff_ms);
    cache_wanted(c, wanted, count);
}

/* ---- loading: redemptions whose generation has ended ---- */

/* Build, from the ledger alone, a use that holds only the ended redemption that op names; NULL: there was none. */
static enum store_status rebuild_ended(struct committer *c, struct part *p, const struct op *op, struct use **found)
{
    struct batch *ended = NULL, *taken = NULL;
    const struct entry *end, *start;
    struct use *u;
    size_t count = 0;
    enum store_status status = c->store->ops->ended(c->store, p->lane->coupon, op->n, op->g, &ended);

    *found = NULL;
    if (status != STORE_OK)
        return status == STORE_NOT_FOUND ? STORE_OK : status;
    end = batch_find(ended, op->n, op->g, true);
    if (end)
        status = c->store->ops->ledger(c->store, p->lane->coupon, p->lane->number, end->since - 1, 1, &taken, &count);
    start = status == STORE_OK && count ? batch_find(taken, op->n, op->g, false) : NULL;
    if (start) {
        u = arena_alloc(&p->batch->arena, sizeof *u);
        use_init(u, end->user ? end->user : "", end->alias);
        fold_use_entry(u, start, &taken->head, taken->lane, &p->batch->arena);
        fold_use_entry(u, end, &ended->head, ended->lane, &p->batch->arena);
        *found = use_copy(u, &p->batch->arena, true);
    }
    if (count)
        batch_free(taken);
    batch_free(ended);
    return status;
}

/* ---- loading: users ---- */

static struct loaded_user *want_user(struct part *p, const char *user)
{
    struct loaded_user *u;

    HASH_FIND_STR(p->users, user, u);
    if (u)
        return u;
    u = arena_alloc(&p->batch->arena, sizeof *u);
    u->user = arena_strdup(&p->batch->arena, user);
    HASH_ADD_KEYPTR(hh, p->users, u->user, strlen(u->user), u);
    return u;
}

/* Whose use op is about; NULL: nobody's. *status is not OK when that could not be found out. */
static const char *user_of(struct committer *c, struct part *p, struct op *op, enum store_status *status)
{
    struct cached_bucket *k;
    const struct slot *s;

    *status = STORE_OK;
    op->working = NULL;
    if (op->kind == OP_TAKE || op->kind == OP_CHECK || op->kind == OP_USE)
        return op->user;
    if (op->kind == OP_GENERATE || op->kind == OP_DUE)
        return arena_printf(&p->batch->arena, JOB_USER_PREFIX "%s", op->job);
    if ((op->kind != OP_REVERSE && op->kind != OP_REDEMPTION) || needed_bucket(p->lane, op) < 0 || op->g < 1)
        return NULL;
    k = lane_bucket(p->lane, bucket_of(op->n));
    s = &k->bucket.slots[op->n % BUCKET_SLOTS];
    if (s->generation == op->g && s->user)
        return s->user;
    if (s->generation >= op->g)
        *status = rebuild_ended(c, p, op, &op->working);
    return NULL;
}

static size_t want_users(struct committer *c, struct part *p, struct use_read *reads, struct loaded_user **loaded)
{
    struct loaded_user *u, *next;
    size_t count = 0;

    for (struct op *op = p->ops.first; op; op = op->next) {
        enum store_status status;
        const char *user = user_of(c, p, op, &status);

        if (status != STORE_OK) {
            defer(c, p, c->config.backoff_ms);
            return 0;
        }
        op->loaded = user ? want_user(p, user) : NULL;
    }
    HASH_ITER(hh, p->users, u, next) {
        const struct use *known = lane_known_use(p->lane, u->user);

        if (known) {
            u->use = use_copy(known, &p->batch->arena, true);
            continue;
        }
        reads[count] = (struct use_read){.coupon = p->lane->coupon, .user = u->user};
        loaded[count++] = u;
    }
    return count;
}

/* What was read, with the window laid over it, becomes the working copy. */
static void settle_use(struct committer *c, struct part *p, struct loaded_user *u, struct use_read *read, bool shared)
{
    char alias[ID_ALIAS_LEN + 1];

    if (p->state != PART_OPEN)
        return;
    if (!read->use) {
        u->use = arena_alloc(&p->batch->arena, sizeof *u->use);
        use_init(u->use, u->user, "");
        lane_overlay_use(p->lane, u->use, &p->batch->arena);
        id_random(alias, ID_ALIAS_LEN);
        if (!u->use->alias[0])
            memcpy(u->use->alias, alias, sizeof alias);
        return;
    }
    u->use = shared ? use_copy(read->use, &p->batch->arena, true) : read->use;
    if (!lane_overlay_use(p->lane, u->use, &p->batch->arena)) {
        p->lane->stale = true;
        defer(c, p, 0);
    }
}

static void load_users(struct committer *c, struct round *r)
{
    struct use_read *reads = arena_array(&r->arena, r->ops + 1, sizeof *reads);
    struct loaded_user **loaded = arena_array(&r->arena, r->ops + 1, sizeof *loaded);
    struct part **whose = arena_array(&r->arena, r->ops + 1, sizeof *whose);
    struct store_time after = {0, 0};
    struct part *only = NULL;
    size_t count = 0;
    bool shared = false;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];
        size_t more = p->state == PART_OPEN ? want_users(c, p, reads + count, loaded + count) : 0;

        for (size_t k = 0; k < more; k++)
            whose[count + k] = p;
        if (more) {
            after = store_time_later(after, p->lane->mark.when);
            shared = shared || only;
            only = p;
        }
        count += more;
    }
    if (count && c->store->ops->uses(c->store, after, shared ? &r->arena : &only->batch->arena, reads, count) != STORE_OK) {
        defer_all(c, r, c->config.backoff_ms);
        return;
    }
    for (size_t i = 0; i < count; i++)
        settle_use(c, whose[i], loaded[i], &reads[i], shared);
}

/* ---- loading: days and free slots ---- */

static enum store_status find_day(struct committer *c, const char *zone, struct part *p)
{
    struct zone_day *z;
    enum store_status status;

    HASH_FIND_STR(c->zones, zone, z);
    if (!z) {
        z = checked(calloc(1, sizeof *z));
        z->zone = checked(strdup(zone));
        HASH_ADD_KEYPTR(hh, c->zones, z->zone, strlen(z->zone), z);
    }
    if (p->at_ms < z->start_ms || p->at_ms >= z->end_ms) {
        status = c->store->ops->day(c->store, zone, p->at_ms, &z->start_ms, &z->end_ms);
        if (status != STORE_OK) {
            z->start_ms = z->end_ms = 0;
            return status;
        }
    }
    p->day_ms = z->start_ms;
    p->day_end_ms = z->end_ms;
    return STORE_OK;
}

static void load_day(struct committer *c, struct part *p)
{
    const struct lane *l = p->lane;
    int64_t now = clock_now_ms();
    const char *zone = l->definition ? l->definition->time_zone : "UTC";

    for (struct op *op = p->ops.first; op && !l->definition; op = op->next)
        if (op->kind == OP_CREATE)
            zone = op->definition->time_zone;
    if (l->tail.at_ms > now + CLOCK_ALARM_MS)
        log_event(LOG_WARNING, "lane.ahead_of_clock", "coupon=%s ahead_ms=%lld", l->coupon,
                  (long long)(l->tail.at_ms - now));
    p->at_ms = now > l->tail.at_ms ? now : l->tail.at_ms;
    if (find_day(c, zone, p) != STORE_OK)
        defer(c, p, c->config.backoff_ms);
}

static void load_stash(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    size_t want = 0;

    for (struct op *op = p->ops.first; op; op = op->next)
        want += op->kind == OP_TAKE;
    if (l->tail.due > 0)
        want += RETIRE_STEP;
    if (want <= l->stash_count)
        return;
    lane_evict_buckets(l);
    if (lane_top_up(l, c->store, want) != STORE_OK)
        defer(c, p, c->config.backoff_ms);
    else if (l->stale)
        defer(c, p, 0);
}

/* ---- deciding ---- */

static bool reads_only(enum op_kind k)
{
    return k == OP_CHECK || k == OP_COUPON || k == OP_USE || k == OP_REDEMPTION || k == OP_SLOT || k == OP_REFUSE ||
           k == OP_CATCH_UP;
}

static void own_strings(struct op *op, struct redemption *r)
{
    r->order = arena_strdup(op->arena, r->order);
    r->metadata = arena_strdup(op->arena, r->metadata);
    r->code = arena_strdup(op->arena, r->code);
}

/* As many as are asked for; with until, no more than are missing. */
static void generate(struct decision *d, struct op *op)
{
    int64_t missing = op->until - (d->head.slots - d->head.due);

    op->made = op->until && missing < op->count ? missing : op->count;
    if (op->made > 0 || op->working->job_step >= op->step) {
        decide_generate(d, op->working, op->step, op->made, &op->outcome);
        return;
    }
    op->made = 0;
    op->outcome = (struct outcome){.result = CPN_OK};
}

/* True: decided. False: ask again. */
static bool decide_write(struct part *p, struct op *op)
{
    struct decision *d = &p->d;
    bool decided = true;

    switch (op->kind) {
    case OP_TAKE:
        decided = decide_take(d, op->working, &op->take, &op->outcome);
        break;
    case OP_REVERSE:
        if (op->working)
            decide_reverse(d, op->working, op->n, op->g, &op->outcome);
        else
            op->outcome = (struct outcome){.result = CPN_REDEMPTION_NOT_FOUND};
        break;
    case OP_CREATE:
        decide_create(d, op->definition, &op->outcome);
        break;
    case OP_CHANGE:
        decide_change(d, op->definition, op->expected_version, &op->outcome);
        break;
    case OP_DELETE:
        decide_delete(d, &op->outcome);
        break;
    case OP_GENERATE:
        generate(d, op);
        break;
    case OP_DUE:
        decide_due(d, op->working, op->step, op->count, &op->made, &op->outcome);
        break;
    case OP_TICK:
        decide_tick(d);
        op->outcome = (struct outcome){.result = CPN_OK};
        break;
    default:
        assert(!"not a write");
    }
    return decided;
}

static void read_slot(struct part *p, struct op *op)
{
    struct cached_bucket *k = lane_bucket(p->lane, bucket_of(op->n));

    if (op->n < 0 || op->n >= p->lane->tail.next_n || !k) {
        op->outcome.result = CPN_SLOT_NOT_FOUND;
        return;
    }
    op->slot = k->bucket.slots[op->n % BUCKET_SLOTS];
    op->slot.user = arena_strdup(op->arena, op->slot.user);
}

static void read_redemption(struct op *op)
{
    struct redemption *r = op->working ? use_by_slot(op->working, op->n, op->g) : NULL;

    if (r)
        op->outcome.redemption = *r;
    else
        op->outcome.result = CPN_REDEMPTION_NOT_FOUND;
}

static void decide_read(struct part *p, struct op *op)
{
    op->outcome = (struct outcome){.result = CPN_OK};
    switch (op->kind) {
    case OP_CHECK:
        decide_check(&p->d, op->working, &op->take, &op->outcome, &op->discount_minor);
        break;
    case OP_SLOT:
        read_slot(p, op);
        break;
    case OP_REDEMPTION:
        read_redemption(op);
        break;
    case OP_REFUSE:
        op->outcome.result = op->refusal;
        break;
    default:
        break;
    }
}

/* What every answer carries. */
static void fill(struct part *p, struct op *op)
{
    const struct decision *d = &p->d;

    op->head = d->head;
    if (!decide_changed(d))
        op->head.seq = p->lane->tail.seq;
    op->seq = op->head.seq;
    op->at_ms = d->head.at_ms;
    op->coupon_now = NULL;
    if (decide_exists(d) && op->kind != OP_TAKE)
        op->coupon_now = coupon_copy(d->coupon, op->arena);
    op->use = op->working && op->kind != OP_TAKE ? use_copy(op->working, op->arena, true) : NULL;
    if (op->outcome.result == CPN_OK)
        own_strings(op, &op->outcome.redemption);
}

static void decide_pass(struct part *p, bool writes)
{
    struct op_list ops = p->ops;
    struct op *op;

    p->ops = (struct op_list){0};
    while ((op = op_list_take(&ops))) {
        size_t before = p->batch->count;

        if (reads_only(op->kind) == writes) {
            op_list_add(&p->ops, op);
            continue;
        }
        if (op->kind != OP_CREATE && !decide_exists(&p->d)) {
            op->outcome = (struct outcome){.result = CPN_COUPON_NOT_FOUND};
        } else if (!writes) {
            decide_read(p, op);
        } else if (!decide_write(p, op)) {
            op_list_add(&p->again, op);
            continue;
        }
        op_list_add(&p->ops, op);
        if (p->batch->count > before && op->loaded)
            op->loaded->changed = true;
    }
}

static void close_uses(struct part *p)
{
    struct loaded_user *u, *next;

    p->batch->uses = arena_array(&p->batch->arena, HASH_COUNT(p->users) + 1, sizeof(struct use *));
    HASH_ITER(hh, p->users, u, next) {
        if (!u->changed)
            continue;
        fold_use_done(u->use, &p->d.head);
        p->batch->uses[p->batch->use_count++] = u->use;
    }
}

static void decide_part(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;

    decide_begin(&p->d, p->batch, l->definition, &l->tail, p->at_ms, p->day_ms, p->day_end_ms);
    p->d.stash = l->stash + l->stash_first;
    p->d.stash_count = l->stash_count;
    for (struct op *op = p->ops.first; op; op = op->next)
        if (op->loaded)
            op->working = op->loaded->use;
    decide_pass(p, true);
    if (l->tail.due > 0)
        decide_retire(&p->d, RETIRE_STEP);
    close_uses(p);
    if (decide_changed(&p->d))
        decide_end(&p->d, &l->tail, &c->scratch);
    decide_pass(p, false);
    for (struct op *op = p->ops.first; op; op = op->next)
        fill(p, op);
    p->state = PART_DECIDED;
}

/* ---- appending, confirming, settling ---- */

static void watch(struct committer *c, struct lane *l, struct op *op)
{
    op->until_seq = l->tail.seq;
    op_list_add(&l->watchers, op);
    answer_watchers(c, l);
    if (!l->watchers.count)
        return;
    unflushed(c, l);
    flush_lane(c, l);
}

static void answer_part(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    struct op *op;

    p->state = PART_DONE;
    while ((op = op_list_take(&p->ops))) {
        if (op->kind == OP_CATCH_UP && op->outcome.result == CPN_OK)
            watch(c, l, op);
        else
            answer(c, op);
    }
    l->conflicts = 0;
    if (p->again.count) {
        op_list_prepend(&l->queue, &p->again);
        make_ready_in(c, l, AGAIN_MS);
    }
    if (l->queue.count)
        make_ready(c, l);
    else if (l->tail.due > 0)
        make_ready_in(c, l, AGAIN_MS);
}

static void part_committed(struct committer *c, const struct round *r, struct part *p)
{
    struct lane *l = p->lane;

    if (c->hooks->batch)
        c->hooks->batch((int)p->ops.count, (int)p->batch->count, r->append_us, r->load_us);
    part_free_users(p);
    lane_commit(l, p->batch, p->d.stash_used);
    if (c->hooks->appended)
        c->hooks->appended();
    crash_point(c, "appended");
    submit_own(c, l);
    answer_part(c, p);
}

/* Somebody else appended: read it, and decide again -- with jitter after the second time. */
static void part_lost(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    int64_t ms = 0;

    if (c->hooks->conflict)
        c->hooks->conflict();
    l->stale = true;
    if (++l->conflicts > 2) {
        int spread = 1 << (l->conflicts < 8 ? l->conflicts - 2 : 6);

        c->random = c->random * 1664525u + 1013904223u;
        ms = (int64_t)((c->random >> 16) % (uint32_t)spread);
    }
    if (p->state == PART_RETRY)
        p->state = PART_OPEN; /* its requests are decided anew */
    defer(c, p, ms);
}

static void part_unknown(struct committer *c, struct part *p)
{
    if (c->hooks->retry)
        c->hooks->retry();
    p->state = PART_RETRY;
    defer(c, p, c->config.backoff_ms);
}

static void append_parts(struct committer *c, struct round *r)
{
    struct append *appends = arena_array(&r->arena, r->count, sizeof *appends);
    struct part **whose = arena_array(&r->arena, r->count, sizeof *whose);
    struct mono started;
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        if (p->state != PART_RETRY && !(p->state == PART_DECIDED && decide_changed(&p->d)))
            continue;
        appends[count] = (struct append){.batch = p->batch, .result = APPEND_UNKNOWN};
        whose[count++] = p;
    }
    if (!count)
        return;
    crash_point(c, "decided");
    started = mono_now();
    c->store->ops->append(c->store, appends, count);
    r->append_us = (mono_now().ns - started.ns) / 1000;
    for (size_t i = 0; i < count; i++) {
        if (appends[i].result == APPEND_OURS)
            part_committed(c, r, whose[i]);
        else if (appends[i].result == APPEND_THEIRS)
            part_lost(c, whose[i]);
        else
            part_unknown(c, whose[i]);
    }
}

static void part_unchanged(struct committer *c, struct part *p)
{
    part_free_users(p);
    batch_free(p->batch);
    answer_part(c, p);
}

/* Parts with nothing to append: their answers count only if the tail has not moved. */
static void confirm_parts(struct committer *c, struct round *r)
{
    struct confirm *confirms = arena_array(&r->arena, r->count, sizeof *confirms);
    struct part **whose = arena_array(&r->arena, r->count, sizeof *whose);
    enum store_status status;
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        if (p->state != PART_DECIDED || decide_changed(&p->d))
            continue;
        if (!p->ops.count) {
            part_unchanged(c, p);
            continue;
        }
        confirms[count] = (struct confirm){p->lane->coupon, p->lane->number, p->lane->tail.seq, false};
        whose[count++] = p;
    }
    if (!count)
        return;
    status = c->store->ops->confirm(c->store, confirms, count);
    for (size_t i = 0; i < count; i++) {
        struct part *p = whose[i];

        if (status != STORE_OK) {
            defer(c, p, c->config.backoff_ms);
        } else if (!confirms[i].unmoved) {
            part_lost(c, p);
        } else {
            part_unchanged(c, p);
        }
    }
}

static void load(struct committer *c, struct round *r)
{
    struct mono started = mono_now();

    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            load_lane(c, &r->parts[i]);
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            load_stash(c, &r->parts[i]);
    load_buckets(c, r); /* after load_stash(), which may drop cached buckets */
    load_users(c, r);
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            load_day(c, &r->parts[i]);
    r->load_us = (mono_now().ns - started.ns) / 1000;
}

static void run_round(struct committer *c, struct round *r)
{
    r->count = r->ops = 0;
    c->answered = 0;
    pick(c, r);
    if (!r->count)
        return;
    load(c, r);
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            decide_part(c, &r->parts[i]);
    confirm_parts(c, r);
    append_parts(c, r);
    arena_reset(&r->arena);
    c->expected = atomic_load(&c->waiting) + c->answered;
    c->round_ended = mono_now();
}

/* ---- the thread ---- */

static void flush_due(struct committer *c, bool all)
{
    struct mono now = mono_now();

    while (c->unflushed && (all || !mono_before(now, c->unflushed->flush_at)))
        flush_lane(c, c->unflushed);
}

#define GATHER_STEP_NS 50000

/* Callers that were just answered come back within a moment: one batch with them costs less than two without. Wait for
 * them, but never longer than gather_us after the round that answered them. True: waited, and there may be more. */
static bool gather(struct committer *c)
{
    bool waited = false;
    struct timespec step = {0, GATHER_STEP_NS};

    if (!c->config.gather_us || c->expected < 2 || !c->ready)
        return false;
    while (atomic_load(&c->waiting) < c->expected &&
           mono_now().ns - c->round_ended.ns < (int64_t)c->config.gather_us * 1000) {
        nanosleep(&step, NULL);
        waited = true;
    }
    c->expected = 0;
    return waited;
}

/* How long there is nothing to do, in ms; 0: there is. */
static int64_t idle_ms(const struct committer *c)
{
    struct mono now = mono_now();
    int64_t ms = 1000, left;

    for (const struct lane *l = c->ready; l; l = l->ready_next) {
        left = mono_ms_between(now, l->not_before);
        if (!mono_before(now, l->not_before))
            return 0;
        if (left + 1 < ms)
            ms = left + 1;
    }
    if (c->unflushed) {
        left = mono_ms_between(now, c->unflushed->flush_at) + 1;
        if (left < ms)
            ms = left < 0 ? 0 : left;
    }
    return ms;
}

static void sleep_until_some(struct committer *c, int64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec += ns % 1000000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    c->sleeping = true;
    pthread_cond_timedwait(&c->some, &c->lock, &until);
    c->sleeping = false;
}

/* Take what has come in, waiting for it if there is nothing to do. True: stop. */
static bool take_in(struct committer *c)
{
    struct op_list inbox;
    struct view_job *finished;
    struct op *op;
    int64_t ms = idle_ms(c);
    bool stop;

    pthread_mutex_lock(&c->lock);
    if (!c->inbox.count && !c->finished && !c->stop && ms > 0)
        sleep_until_some(c, ms * 1000000);
    else if (c->stop && !c->inbox.count && ms > 0 && c->ready)
        sleep_until_some(c, ms * 1000000);
    inbox = c->inbox;
    c->inbox = (struct op_list){0};
    finished = c->finished;
    c->finished = NULL;
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    while (finished) {
        struct view_job *job = finished;

        finished = job->next;
        finish_job(c, job);
    }
    while ((op = op_list_take(&inbox)))
        enqueue(c, op);
    return stop;
}

static void answer_all(struct committer *c)
{
    struct lane *l, *next;

    HASH_ITER(hh, c->lanes, l, next) {
        answer_late(c, &l->pending_ops, CPN_OUTCOME_UNKNOWN, true);
        answer_late(c, &l->queue, CPN_BUSY, true);
        answer_late(c, &l->watchers, CPN_BUSY, true);
    }
}

static void *committer_main(void *argument)
{
    struct committer *c = argument;
    struct round *r = checked(calloc(1, sizeof *r));
    bool stop;

    arena_init(&r->arena, 64 * 1024);
    do {
        stop = take_in(c);
        if (gather(c))
            stop = take_in(c);
        if (c->hooks->queue)
            c->hooks->queue(atomic_load(&c->waiting));
        run_round(c, r);
        flush_due(c, false);
        evict_lanes(c);
        if (stop && mono_before(c->give_up, mono_now()))
            break;
    } while (!stop || c->ready);
    answer_all(c);
    flush_due(c, true);
    arena_free(&r->arena);
    free(r);
    return NULL;
}

/* ---- from outside ---- */

struct committer *committer_start(const struct engine_config *config, struct store_source *source,
                                  const struct engine_hooks *hooks, struct views *views, int lanes_max)
{
    struct committer *c = checked(calloc(1, sizeof *c));
    pthread_condattr_t monotonic;

    c->config = *config;
    c->hooks = hooks;
    c->views = views;
    c->lanes_max = lanes_max;
    c->store = source->open(source);
    c->random = (uint32_t)mono_now().ns;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->some, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&c->thread, NULL, committer_main, c) != 0)
        abort();
    return c;
}

void committer_submit(struct committer *c, struct op *op)
{
    atomic_fetch_add(&c->waiting, 1);
    pthread_mutex_lock(&c->lock);
    op_list_add(&c->inbox, op);
    if (c->sleeping)
        pthread_cond_signal(&c->some);
    pthread_mutex_unlock(&c->lock);
}

int committer_waiting(const struct committer *c)
{
    return atomic_load(&c->waiting);
}

void committer_stop(struct committer *c, int patience_ms)
{
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
    struct zone_day *z, *next_z;

    while (c->finished) {
        struct view_job *job = c->finished;

        c->finished = job->next;
        finish_job(c, job);
    }
    HASH_ITER(hh, c->lanes, l, next) {
        HASH_DEL(c->lanes, l);
        if (l->pending)
            batch_free(l->pending);
        lane_free(l);
    }
    HASH_ITER(hh, c->zones, z, next_z) {
        HASH_DEL(c->zones, z);
        free(z->zone);
        free(z);
    }
    buf_free(&c->scratch);
    c->store->ops->close(c->store);
    pthread_cond_destroy(&c->some);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
