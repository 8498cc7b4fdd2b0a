/*
 * engine/round_decide.c -- see round.h: decides a lane's work in a round, from what was loaded. Pure except for memory.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "engine/round.h"

/* A batch is one document, of up to 16 MiB, which store/ sends with others (COMMAND_BYTES_MAX). A request makes an entry of up to 5.5 kB,
 * and may end all 1,000 redemptions of its user with it, by one of up to 0.5 kB each. So 1,000 requests make 8 MiB at most, if none is
 * decided after so many entries. */
#define ENTRIES_MOST 4096
#define BYTES_MOST (12u << 20) /* a document of the database has at most 16 MiB */
#define EXPIRES_MOST 2048 /* of them, expiries before any request */

/* What the outcome points to is the batch's: the op gets copies of its own. */
static void own_outcome(struct op *op)
{
    struct redemption *r = &op->outcome.redemption;
    size_t held = op->outcome.held_count;
    const char **copy = held ? arena_array(op->arena, held, sizeof *copy) : NULL;

    if (op->outcome.result == CPN_OK) {
        r->order = arena_strdup(op->arena, r->order);
        r->metadata = arena_strdup(op->arena, r->metadata);
        r->code = arena_strdup(op->arena, r->code);
        price_copy(&r->price, op->arena);
    }
    for (size_t i = 0; i < held; i++)
        copy[i] = arena_strdup(op->arena, op->outcome.held[i]);
    op->outcome.held = copy;
}

/* Make as many as asked for; with until, no more than are missing. */
static void generate(struct lane_work *p, struct op *op)
{
    struct decision *d = &p->d;
    struct job_progress *job = op->engine.work->job;
    const struct op_job *in = &op->in.job;
    int64_t missing = in->until - head_stock(&d->head), made = in->until && missing < in->count ? missing : in->count;

    op->out.made = made;
    if (made > 0 || job->step >= in->step) {
        decide_generate(d, job, in->step, made, in->turn, &op->outcome);
        return;
    }
    op->out.made = 0;
    op->outcome = (struct outcome){.result = CPN_OK};
}

/* True: decided. False: ask again. */
static bool decide_write(struct lane_work *p, struct op *op)
{
    struct decision *d = &p->d;
    const struct op_work *w = op->engine.work;
    struct user_state *u = w->subject.state;
    bool decided = true;

    d->by = op->by;
    switch (op->kind) {
    case OP_TAKE:
        op->in.user.take.code_n = w->n;
        d->others.due_ms = op->engine.others_due_ms;
        decided = decide_take(d, u, &op->in.user.take, &op->outcome);
        break;
    case OP_STEP:
        if (u)
            decide_step(d, u, &op->in.redemption, &op->outcome);
        else
            op->outcome = (struct outcome){.result = CPN_REDEMPTION_NOT_FOUND};
        break;
    case OP_RETIRE_ONE:
        if (w->n >= 0)
            decide_retire_one(d, u, w->n, &op->outcome);
        else
            op->outcome = (struct outcome){.result = CPN_CODE_NOT_FOUND};
        break;
    case OP_ERASE:
        decide_erase(d, u, &op->outcome);
        break;
    case OP_TURN:
        decide_turn(d, w->job, op->in.job.fence, &op->out.turn, &op->outcome);
        break;
    case OP_TURN_END:
        decide_turn_end(d, w->job, &op->outcome);
        break;
    case OP_SWEEP: /* done before the requests */
        op->outcome = (struct outcome){.result = CPN_OK};
        break;
    case OP_CREATE:
        decide_create(d, op->in.coupon.definition,
                      &(struct slot_request){.key = op->in.coupon.key, .slots = op->in.coupon.slots, .job = w->job}, &op->outcome);
        break;
    case OP_CHANGE:
        decide_change(d, op->in.coupon.definition, op->in.coupon.expected_version, op->in.coupon.retire, &op->outcome);
        break;
    case OP_DELETE:
        if (op->in.coupon.expected_version && op->in.coupon.expected_version != d->coupon->version)
            op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
        else
            decide_delete(d, &op->outcome);
        break;
    case OP_ARCHIVE:
        decided = decide_archive(d, op->in.coupon.expected_version, &op->outcome);
        break;
    case OP_REMOVE:
        decide_remove(d, &op->outcome);
        break;
    case OP_FOLLOW:
    case OP_EVENTS:
        assert(p->multilane);
        p->multilane->hooks->decide(p->multilane, p, op);
        break;
    case OP_GENERATE:
        generate(p, op);
        break;
    case OP_RETIRING:
        decide_retiring(d, w->job, op->in.job.step, op->in.job.count, &op->out.made, &op->outcome);
        break;
    case OP_TICK:
        decide_tick(d);
        op->outcome = (struct outcome){.result = CPN_OK};
        break;
    default:
        assert(!"not a write");
    }
    d->by = NULL;
    return decided;
}

static void read_slot(struct lane_work *p, struct op *op, enum cpn_result unknown)
{
    int64_t n = op->engine.work->n;
    struct cached_bucket *k = n >= 0 ? cached_bucket_find(p->lane, bucket_of(n)) : NULL;
    struct op_slot *out = &op->out.slot;
    int at = (int)(n % BUCKET_SLOTS);

    if (!k) {
        op->outcome.result = unknown;
        return;
    }
    *out = (struct op_slot){.n = n, .slot = k->bucket.slots[at], .code = arena_strdup(op->arena, k->codes ? k->codes[at] : NULL)};
    out->slot.user = arena_strdup(op->arena, out->slot.user);
}

static void read_redemption(const struct lane_work *p, struct op *op)
{
    struct user_state *u = op->engine.work->subject.state;
    struct redemption *r = u ? user_state_by_slot(u, op->in.redemption.n, op->in.redemption.g) : NULL;

    if (!r) {
        op->outcome.result = CPN_REDEMPTION_NOT_FOUND;
        return;
    }
    op->outcome.redemption = *r;
    op->outcome.redemption.state = (uint8_t)redemption_state(r, p->d.head.at_ms, coupon_ends(p->d.coupon));
    op->outcome.redemption.valid_until_ms = redemption_valid_until(r, coupon_ends(p->d.coupon));
}

static void decide_read(struct lane_work *p, struct op *op)
{
    op->outcome = (struct outcome){.result = CPN_OK};
    switch (op->kind) {
    case OP_CHECK:
        op->in.user.take.code_n = op->engine.work->n;
        p->d.others.due_ms = op->engine.others_due_ms;
        decide_check(&p->d, op->engine.work->subject.state, &op->in.user.take, &op->outcome, &op->out.user.discount_minor);
        break;
    case OP_SLOT:
        read_slot(p, op, CPN_SLOT_NOT_FOUND);
        break;
    case OP_CODE:
        read_slot(p, op, CPN_CODE_NOT_FOUND);
        break;
    case OP_REDEMPTION:
        read_redemption(p, op);
        break;
    case OP_REFUSE:
        op->outcome.result = op->in.refusal.result;
        break;
    default:
        break;
    }
}

/* The working copy belongs to the work, so answers get a copy, with no more than wanted: a user may have 1,000 redemptions of 4 kB, and as
 * many requests may ask about them. */
static void answer_user(const struct lane_work *p, struct op *op)
{
    const struct user_state *u = op->engine.work->subject.state;
    struct op_user_out *out = &op->out.user;

    if (!u) {
        out->state = NULL;
    } else if (op->kind == OP_CHECK) {
        out->state = user_state_counts(u, p->d.head.at_ms, p->d.head.day_ms, coupon_ends(p->d.coupon), op->arena);
    } else if (op->kind == OP_USER_STATE) {
        out->omitted = op->in.user.most && u->count > op->in.user.most;
        out->state = out->omitted ? user_state_without_redemptions(u, op->arena) : user_state_copy(u, op->arena, true);
        out->definition_seq = p->lane->number > 0 ? INT64_MAX
                            : p->d.coupon != p->lane->definition ? p->d.head.seq : p->lane->definition_seq;
    } else {
        out->state = user_state_without_redemptions(u, op->arena);
    }
}

/* Fill in what every answer has, and what is said as of the end of the batch. */
static void fill_answer(struct lane_work *p, struct op *op)
{
    const struct decision *d = &p->d;
    struct job_progress *job;

    op->head = d->head;
    if (!decide_changed(d))
        op->head.seq = p->lane->tail.seq;
    if (op_is(op, OPS_ANSWER_USER)) {
        answer_user(p, op);
    } else if (op->kind == OP_JOB) {
        job = arena_alloc(op->arena, sizeof *job);
        *job = *op->engine.work->job;
        job->id = arena_strdup(op->arena, job->id);
        op->out.job = job;
    } else if (op->kind == OP_HEAD) {
        op->out.due_ms = d->next_due_ms;
    }
    own_outcome(op);
}

/* Put the definition, as of now, into all answers but those of frequent ops: later ops of the batch may change or delete it. Ops that
 * follow lane 0 get its tombstone, too. */
static void answer_definition(const struct decision *d, struct op *op)
{
    bool has_coupon = op->kind == OP_HEAD || op->kind == OP_DELETE ? d->coupon != NULL
                                                             : decide_exists(d) && op->kind != OP_TAKE && op->kind != OP_STEP;

    op->coupon_now = has_coupon ? coupon_copy(d->coupon, op->arena) : NULL;
}

/* What was loaded (the day, each request's lane) follows from the definition before the batch. If the batch changed that in a way that
 * matters, later requests wait for the next batch. */
static bool is_outdated(const struct lane_work *p)
{
    const struct coupon *before = p->lane->definition, *now = p->d.coupon;

    return now && now != before && (!before || strcmp(before->time_zone, now->time_zone) != 0);
}

/* The batch is full: of entries, not of the users that were copied into its arena. */
static bool is_full(const struct lane_work *p)
{
    return p->batch->count >= ENTRIES_MOST || p->batch->arena.bytes - p->loaded_bytes >= BYTES_MOST;
}

/* The batch moved this redemption out of its user's list (the user was erased, or took again): the next batch finds it. */
static bool was_moved(const struct op *op)
{
    const struct loaded_user *u = op->engine.work->subject.user;

    return op_is(op, OPS_OF_REDEMPTION) && op->outcome.result == CPN_REDEMPTION_NOT_FOUND && u && u->changed;
}

/* The answer is that something is taken, or how much: perhaps because of expired redemptions not searched for yet. */
static bool is_early(const struct lane_work *p, const struct op *op)
{
    switch (op->outcome.result) {
    case CPN_SOLD_OUT:
    case CPN_DAILY_CAP_REACHED:
    case CPN_BUDGET_REACHED:
    case CPN_CAP_BELOW_TAKEN:
        return p->more;
    case CPN_CODE_NOT_FOUND: /* another user's, perhaps an expired hold */
    case CPN_TRANSACTION_IN_PROGRESS:
        return p->more && (op->engine.work->n >= 0 || p->d.shared);
    case CPN_CODE_TAKEN: /* a shared code at its cap */
        return p->more && p->d.shared;
    default:
        return p->more && op->kind == OP_HEAD;
    }
}

enum {
    /* of a coupon being removed, or removed, only definition and totals are left */
    OPS_OF_WHAT_STAYS = 1 << OP_COUPON | 1 << OP_HEAD | 1 << OP_CATCH_UP | 1 << OP_CREATE | 1 << OP_ARCHIVE | 1 << OP_REMOVE,
    OPS_CHORES = 1 << OP_SWEEP | 1 << OP_TICK | 1 << OP_FOLLOW | 1 << OP_EVENTS | 1 << OP_TURN_END
};

/* True: the lane is closed, and op says so, or needs nothing there. Erasures go on until it is removed. */
static bool is_closed(const struct lane_work *p, struct op *op)
{
    if (!p->d.head.archived || op_is(op, OPS_OF_WHAT_STAYS))
        return false;
    if (p->d.head.archived == LANE_CLOSED && op->kind != OP_CHECK && !(op->kind == OP_REFUSE && op->in.refusal.changes) &&
        op_is(op, OPS_READ | 1 << OP_ERASE))
        return false;
    op->outcome = (struct outcome){.result = op_is(op, OPS_CHORES) ? CPN_OK : CPN_COUPON_ARCHIVED};
    return true;
}

/* True: decided. False: ask again in a later batch. */
static bool decide_one(struct lane_work *p, struct op *op)
{
    bool reads_only = op_is(op, OPS_READ);

    if (is_outdated(p) || (!reads_only && is_full(p)))
        return false;
    if (op->kind != OP_CREATE && op->kind != OP_FOLLOW && !decide_exists(&p->d)) {
        op->outcome = (struct outcome){.result = CPN_COUPON_NOT_FOUND};
        return true;
    }
    if (is_closed(p, op))
        return true;
    if (reads_only)
        decide_read(p, op);
    else if ((p->again.count && op->kind == OP_TAKE) /* no taking overtakes one that waits */ || !decide_write(p, op))
        return false;
    return !is_early(p, op) && !was_moved(op);
}

/* Decide the ops that may write, or those that only read; the others stay. */
static void decide_ops(struct lane_work *p, bool reads_only)
{
    struct op_list ops = p->ops;
    struct op *op;

    p->ops = (struct op_list){0};
    while ((op = op_list_take(&ops))) {
        struct loaded_user *u = op->engine.work->subject.user;
        size_t before = p->batch->count;

        if (op_is(op, OPS_READ) != reads_only) {
            op_list_add(&p->ops, op);
            continue;
        }
        if (decide_one(p, op)) {
            answer_definition(&p->d, op);
            op_list_add(&p->ops, op);
        } else {
            op_list_add(&p->again, op);
        }
        if (u && p->batch->count > before)
            u->changed = true; /* also if it is asked again: an expiry of its user may be settled already */
    }
}

static void close_user_states(struct lane_work *p)
{
    struct loaded_user *u, *next;

    p->batch->user_states = arena_array(&p->batch->arena, HASH_COUNT(p->users) + 1, sizeof(struct user_state *));
    HASH_ITER(hh, p->users, u, next) {
        if (!u->changed) // cppcheck-suppress uninitvar
            continue;
        fold_user_state_done(u->user_state, &p->d.head);
        p->batch->user_states[p->batch->user_state_count++] = u->user_state;
    }
}

static void close_jobs(struct lane_work *p)
{
    size_t most = 0;

    for (const struct loaded_job *j = p->jobs; j; j = j->next)
        most++;
    p->batch->jobs = arena_array(&p->batch->arena, most + 1, sizeof(struct job_progress *));
    for (struct loaded_job *j = p->jobs; j; j = j->next)
        if (j->state.seq == p->d.head.seq)
            p->batch->jobs[p->batch->job_count++] = &j->state;
}

/* ---- named slots ---- */

static int by_number(const void *a, const void *b)
{
    const struct named_slot *x = a, *y = b;

    return x->n < y->n ? -1 : x->n > y->n;
}

static void name_slot(struct lane_work *p, size_t *capacity, int64_t n)
{
    struct cached_bucket *k = n >= 0 ? cached_bucket_find(p->lane, bucket_of(n)) : NULL;
    struct named_slot *named;
    int at = (int)(n % BUCKET_SLOTS);

    if (!k || at >= k->bucket.size)
        return;
    if (p->d.named_count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 64;
        p->d.named = checked(realloc(p->d.named, *capacity * sizeof *p->d.named));
    }
    named = &p->d.named[p->d.named_count++];
    *named = (struct named_slot){n, k->bucket.slots[at], k->codes ? k->codes[at] : NULL};
    named->slot.user = named->slot.user ? checked(strdup(named->slot.user)) : NULL;
}

static void name_due_slots(struct lane_work *p, size_t *capacity)
{
    int64_t ends_ms = coupon_ends(p->d.coupon);
    struct cached_bucket *k, *next;

    HASH_ITER(hh, p->lane->buckets, k, next)
        for (int i = 0; i < k->bucket.size; i++)
            if (slot_is_due(&k->bucket.slots[i], p->at_ms, ends_ms))
                name_slot(p, capacity, k->bucket.b * BUCKET_SLOTS + i);
}

/* Make working copies of every slot that a request names, or that expired. */
static void name_slots(struct lane_work *p)
{
    size_t capacity = 0, distinct = 0;

    for (struct op *op = p->ops.first; op; op = op->engine.next) {
        const struct user_state *erased = op->kind == OP_ERASE ? op->engine.work->subject.state : NULL;

        name_slot(p, &capacity, op->engine.work->n);
        for (size_t i = 0; erased && i < erased->count; i++)
            if (!erased->redemptions[i].ended_ms)
                name_slot(p, &capacity, erased->redemptions[i].n);
    }
    if (p->sweeping)
        name_due_slots(p, &capacity);
    if (!p->d.named_count)
        return;
    qsort(p->d.named, p->d.named_count, sizeof *p->d.named, by_number);
    for (size_t i = 0; i < p->d.named_count; i++) {
        if (i && p->d.named[i].n == p->d.named[distinct - 1].n)
            free(p->d.named[i].slot.user);
        else
            p->d.named[distinct++] = p->d.named[i];
    }
    p->d.named_count = distinct;
}

static void forget_named(struct lane_work *p)
{
    for (size_t i = 0; i < p->d.named_count; i++)
        free(p->d.named[i].slot.user);
    free(p->d.named);
    p->d.named = NULL;
    p->d.named_count = 0;
    code_uses_release(&p->d.uses);
}

/* ---- expiries ---- */

static void expire(struct lane_work *p, const char *user, int64_t n, uint32_t g)
{
    struct loaded_user *u = user ? work_user(p, user) : NULL;
    size_t before = p->batch->count;

    if (!u || !u->user_state)
        return; /* what is left is found again */
    decide_expire(&p->d, u->user_state, n, g);
    u->changed = u->changed || p->batch->count > before;
}

/* So much has expired that the rest waits for the next batch. */
static bool leaves_some(struct lane_work *p)
{
    if (p->batch->count < EXPIRES_MOST)
        return false;
    p->more = true;
    p->lane->next_due_ms = NEXT_DUE_NOW;
    stay_swept(p);
    return true;
}

static void expire_due(struct lane_work *p)
{
    int64_t ends_ms = coupon_ends(p->d.coupon);

    for (size_t i = 0; i < p->d.named_count && !leaves_some(p); i++) {
        struct named_slot *named = &p->d.named[i];
        const char *user = named->slot.user ? arena_strdup(&p->batch->arena, named->slot.user) : NULL;

        if (slot_is_due(&named->slot, p->at_ms, ends_ms))
            expire(p, user, named->n, 0);
    }
    for (size_t i = 0; i < p->due_user_count; i++) {
        const struct loaded_user *u = work_user(p, p->due_users[i]);

        for (size_t k = 0; u && u->user_state && k < u->user_state->count && !leaves_some(p); k++)
            expire(p, u->user, u->user_state->redemptions[k].n, u->user_state->redemptions[k].g);
    }
}

/* ---- one lane's work ---- */

/* The last check before the ledger: every slot taken from the free pool is free, and taken once. */
static bool free_pool_was_free(const struct lane_work *p)
{
    for (size_t i = 0; i < p->batch->count; i++) {
        const struct entry *e = &p->batch->entries[i];
        const struct cached_bucket *k;
        struct named_slot key = {.n = e->n};

        if (!(entry_members[e->kind] & HAS_TAKING) || e->n < 0 ||
            (p->d.named_count && bsearch(&key, p->d.named, p->d.named_count, sizeof key, by_number)))
            continue;
        k = cached_bucket_find(p->lane, bucket_of(e->n));
        if (!k || k->bucket.slots[e->n % BUCKET_SLOTS].state != SLOT_FREE ||
            head_next_generation(&p->d.head, k->bucket.slots[e->n % BUCKET_SLOTS].generation) != e->g)
            return false;
    }
    return true;
}

static void begin(const struct committer *c, struct lane_work *p)
{
    struct lane *l = p->lane;

    decide_begin(&p->d, p->batch, l->definition, &l->tail, p->at_ms, p->day_ms, p->day_end_ms);
    p->d.epoch = c->epoch;
    p->d.key_secret = c->key_secret;
    code_uses_copy(&p->d.uses, &l->uses);
    if (p->multilane)
        p->multilane->hooks->begin(p->multilane, p);
    p->d.free_pool = l->free_pool + l->free_pool_first;
    p->d.free_pool_count = l->free_pool_count;
    p->d.next_due_ms = l->next_due_ms > p->at_ms && l->next_due_ms < NEXT_DUE_NEVER ? l->next_due_ms : 0;
    name_slots(p);
}

void decide_work(struct committer *c, struct lane_work *p)
{
    struct lane *l = p->lane;

    begin(c, p);
    p->loaded_bytes = p->batch->arena.bytes;
    if (p->sweeping)
        expire_due(p);
    decide_ops(p, false);
    if (l->tail.retiring > 0 && !p->d.head.archived)
        decide_retire(&p->d, RETIRE_STEP);
    decide_events(&p->d);
    close_user_states(p);
    close_jobs(p);
    assert(free_pool_was_free(p));
    if (decide_changed(&p->d))
        decide_end(&p->d, &l->tail, &c->scratch);
    decide_ops(p, true);
    for (struct op *op = p->ops.first; op; op = op->engine.next)
        fill_answer(p, op);
    forget_named(p);
    p->state = WORK_DECIDED;
}
