/*
 * engine/round_load.c -- see round.h: reads what a round's requests need, each kind of document in one read for all lanes.
 *
 * Order    lane, day, free pool, expired redemptions, codes, buckets, users: each step may need what the one before it found. Requests
 *          about past redemptions go to history.c before their users would be read, and come back in another round
 * Errors   a lane whose read failed is deferred; if a document cannot be decoded, only the requests that need it are set aside
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/metrics.h"
#include "coupons/code.h"
#include "coupons/fold.h"
#include "engine/expiry.h"
#include "engine/free_pool.h"
#include "engine/internal.h"
#include "engine/round.h"

/* Move the lane's requests that need what was not read to a list; the others go on. False: none needs it. */
static bool move_ops(struct lane_work *p, struct op_list *to, about *is_about, const void *what)
{
    struct op_list kept = {0};
    struct op *op;
    size_t before = to->count;

    while ((op = op_list_take(&p->ops)))
        op_list_add(is_about(p, op, what) ? to : &kept, op);
    p->ops = kept;
    return to->count > before;
}

/* Set aside requests whose data cannot be read. */
static bool set_aside(struct lane_work *p, about *is_about, const void *what)
{
    return move_ops(p, &p->lane->aside, is_about, what);
}

void miss(struct committer *c, struct lane_work *p, enum store_status status, about *is_about, const void *what)
{
    if (p->state == WORK_OPEN && !(status == STORE_UNREADABLE && set_aside(p, is_about, what)))
        defer(c, p, c->config.backoff_ms);
}

/* ---- lanes ---- */

/* Only the process that appended last does a lane's chores. If that was another, leave the lane alone, after one read for all such
 * lanes, just to find out. Chores that nobody does any more are found by the sweeper, by the indexes. */
static void leave_chores(struct committer *c, struct round *r)
{
    struct ledger_read *reads = arena_array(&r->arena, r->count + 1, sizeof *reads);
    struct batch **next = arena_array(&r->arena, r->count + 1, sizeof(struct batch *));
    struct lane_work **whose = arena_array(&r->arena, r->count + 1, sizeof(struct lane_work *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        if (p->state != WORK_OPEN || p->ops.count)
            continue;
        reads[count] = (struct ledger_read){.coupon = p->lane->coupon, .lane = p->lane->number, .after = p->lane->tail.seq,
                                            .most = 1, .batches = &next[count]};
        whose[count++] = p;
    }
    if (count)
        c->store->ops->ledgers(c->store, reads, count);
    for (size_t i = 0; i < count; i++) {
        struct lane_work *p = whose[i];

        assert(reads[i].status == STORE_OK || reads[i].count == 0); /* defer() frees its batch */
        if (reads[i].status != STORE_OK)
            defer(c, p, c->config.backoff_ms);
        if (!reads[i].count)
            continue;
        batch_free(next[i]);
        batch_free(p->batch);
        p->lane->stale = true;
        p->state = WORK_DONE;
    }
}

/* Find which of the coupons not in memory do not exist, by one look at where their ledgers would begin. */
static void find_unknown(struct committer *c, struct round *r)
{
    struct confirm *looks = arena_array(&r->arena, r->count + 1, sizeof *looks);
    struct lane_work **whose = arena_array(&r->arena, r->count + 1, sizeof(struct lane_work *));
    enum store_status status;
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        if (p->state != WORK_OPEN || p->lane->loaded || p->lane->number > 0)
            continue;
        looks[count] = (struct confirm){.coupon = p->lane->coupon, .lane = 0, .tail = 0};
        whose[count++] = p;
    }
    if (count < 2) /* loading it shows that as fast */
        return;
    status = c->store->ops->confirm(c->store, looks, count);
    for (size_t i = 0; i < count; i++) {
        if (status != STORE_OK)
            defer(c, whose[i], c->config.backoff_ms);
        else if (looks[i].unmoved)
            lane_load_none(whose[i]->lane);
    }
}

static void load_cold(struct committer *c, struct round *r)
{
    struct lane_loading *loads = arena_array(&r->arena, r->count + 1, sizeof *loads);
    struct lane_work **whose = arena_array(&r->arena, r->count + 1, sizeof(struct lane_work *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (r->work[i].state != WORK_OPEN || r->work[i].lane->loaded)
            continue;
        if (count == ROUND_LOADS_MAX) { /* cold lanes do not hold up warm ones */
            defer(c, &r->work[i], 0);
            continue;
        }
        loads[count] = (struct lane_loading){.lane = r->work[i].lane};
        whose[count++] = &r->work[i];
    }
    lane_load(c->store, loads, count);
    for (size_t i = 0; i < count; i++) {
        struct lane *l = whose[i]->lane;

        l->stale = l->stale && !l->loaded;
        if (l->loaded && l->redo_log)
            note_lagging(c, l);
        if (l->loaded)
            answer_watchers(c, l);
        else
            defer(c, whose[i], c->config.backoff_ms);
    }
}

/* Read what others appended, and lane 0's definition. */
static void follow_others(struct committer *c, struct lane_work *p)
{
    struct lane *l = p->lane;
    enum store_status status = STORE_OK;
    int64_t seq = l->tail.seq;
    bool brought = p->ops.first && p->ops.first->kind == OP_FOLLOW; /* the definition, by a request */

    if (l->stale || l->pauses) {
        status = lane_refresh(l, c->store);
        if (l->tail.seq > seq)
            l->pauses = PAUSES;
        if (l->redo_log)
            note_lagging(c, l);
        answer_watchers(c, l);
    }
    if (l->loaded)
        note_users(c, l);
    if (status == STORE_OK)
        l->stale = false;
    if (status == STORE_OK && l->number > 0 && !l->definition && !brought)
        status = c->multilane->hooks->adopt(c->multilane, c->store, l);
    if (status != STORE_OK)
        defer(c, p, c->config.backoff_ms);
}

/* ---- coupons with several lanes ---- */

/* The coupon has several lanes, or a request creates it with several. */
static void sort_multilane(struct committer *c, struct lane_work *p)
{
    const struct coupon *d = p->lane->definition;
    bool many = d ? d->lanes > 1 : p->lane->number > 0;

    for (const struct op *op = p->ops.first; op && !d && !many; op = op->engine.next)
        many = op->kind == OP_CREATE && op_coupon(op)->definition->lanes > 1;
    if (!many)
        return;
    assert(c->multilane);
    p->multilane = c->multilane;
    p->multilane->hooks->sort(p->multilane, c, p);
}

/* ---- days ---- */

static void load_day(struct committer *c, struct lane_work *p)
{
    const struct lane *l = p->lane;
    int64_t now = clock_now_ms();
    const char *zone = l->definition ? l->definition->time_zone : "UTC";

    for (struct op *op = p->ops.first; op && !l->definition; op = op->engine.next)
        if (op->kind == OP_CREATE || op->kind == OP_FOLLOW)
            zone = op_coupon(op)->definition->time_zone;
    if (l->tail.at_ms > now + CLOCK_ALARM_MS)
        log_event(LOG_WARNING, "lane.ahead_of_clock", F_WORD("coupon", l->coupon), F_INT("ahead_ms", l->tail.at_ms - now));
    p->at_ms = now > l->tail.at_ms ? now : l->tail.at_ms;
    if (c->store->ops->day(c->store, zone, p->at_ms, &p->day_ms, &p->day_end_ms) != STORE_OK)
        defer(c, p, c->config.backoff_ms);
}

/* ---- free slots, and expiries ---- */

/* How many free slots p's requests want in its free pool. */
static size_t wanted_slots(const struct lane_work *p)
{
    const struct lane *l = p->lane;
    size_t want = 0;

    if (!l->definition || !policy_of(l->definition)->slots)
        return 0;
    for (const struct op *op = p->ops.first; op; op = op->engine.next)
        want += op->kind == OP_TAKE && (!op_user(op)->take.code || !lane_has_codes(l));
    if (l->tail.retiring > 0)
        want += RETIRE_STEP;
    return want;
}

static void load_free_pools(struct committer *c, struct round *r)
{
    struct top_up *tops = arena_array(&r->arena, r->count + 1, sizeof *tops);
    struct lane_work **whose = arena_array(&r->arena, r->count + 1, sizeof(struct lane_work *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];
        size_t want = p->state == WORK_OPEN ? wanted_slots(p) : 0;

        if (want <= p->lane->free_pool_count)
            continue;
        cached_bucket_evict(p->lane);
        tops[count] = (struct top_up){.lane = p->lane, .want = want};
        whose[count++] = p;
    }
    free_pool_top_up(c->store, tops, count);
    for (size_t i = 0; i < count; i++) {
        whose[i]->damaged = tops[i].damaged;
        if (tops[i].status != STORE_OK)
            defer(c, whose[i], c->config.backoff_ms);
        else if (whose[i]->lane->stale)
            defer(c, whose[i], 0);
    }
}

static void load_due(struct committer *c, struct round *r)
{
    struct expiry_look *looks = arena_array(&r->arena, r->count + 1, sizeof *looks);
    struct lane_work **whose = arena_array(&r->arena, r->count + 1, sizeof(struct lane_work *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        if (p->state != WORK_OPEN)
            continue;
        if (!p->lane->definition)
            p->lane->next_due_ms = NEXT_DUE_NEVER; /* until the coupon is created */
        if (p->lane->next_due_ms > p->at_ms)
            continue;
        p->sweeping = true; /* from here on, so that a deferred lane is searched again */
        looks[count] = (struct expiry_look){.lane = p->lane, .at_ms = p->at_ms, .arena = &p->batch->arena};
        whose[count++] = p;
    }
    expiry_find(c->store, looks, count);
    for (size_t i = 0; i < count; i++) {
        struct lane_work *p = whose[i];

        p->due_users = looks[i].users;
        p->due_user_count = looks[i].user_count;
        p->swept_ms = looks[i].swept_ms;
        p->swept_seq = looks[i].swept_seq;
        p->ended = looks[i].ended;
        p->more = looks[i].more;
        p->damaged = p->damaged || looks[i].damaged;
        if (looks[i].status != STORE_OK)
            defer(c, p, c->config.backoff_ms);
        else if (p->lane->stale)
            defer(c, p, 0);
    }
}

/* ---- named slots ---- */

static const char *code_of(const struct op *op)
{
    if (op->kind == OP_TAKE || op->kind == OP_CHECK)
        return op_user(op)->take.code;
    return op_is(op, OPS_OF_CODE) ? op->in.code : NULL;
}

static bool is_this(const struct lane_work *p, const struct op *op, const void *what)
{
    (void)p;
    return op == what;
}

/* Find the slots that requests name: by id, or by looking up codes. */
static void find_slots(struct committer *c, struct round *r)
{
    struct code_read *reads = arena_array(&r->arena, r->ops + 1, sizeof *reads);
    struct op **whose = arena_array(&r->arena, r->ops + 1, sizeof(struct op *));
    struct lane_work **work = arena_array(&r->arena, r->ops + 1, sizeof(struct lane_work *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];
        const struct lane *l = p->lane;

        for (struct op *op = p->state == WORK_OPEN ? p->ops.first : NULL; op; op = op->engine.next) {
            char normal[CODE_MAX + 1];

            op->engine.work->code = NULL;
            op->engine.work->n = op_slot_named(op);
            if (op->engine.work->n >= l->tail.next_n)
                op->engine.work->n = -1;
            if (!code_of(op) || !lane_has_codes(l) ||
                !code_normalise(code_of(op), (enum codes_match)l->definition->codes.match, normal))
                continue;
            op->engine.work->code = arena_strdup(&r->arena, normal);
            whose[count] = op;
            work[count] = p;
            reads[count++] = (struct code_read){.coupon = l->coupon, .code = op->engine.work->code, .n = -1};
        }
    }
    if (count)
        c->store->ops->codes(c->store, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (reads[i].status == STORE_OK)
            whose[i]->engine.work->n = reads[i].n;
        else
            miss(c, work[i], reads[i].status, is_this, whose[i]);
    }
}

/* The bucket that op needs, or -1. */
static int64_t needed_bucket(const struct lane *l, const struct op *op)
{
    int64_t n = op->engine.work->n;

    return n >= 0 && n < l->tail.next_n ? bucket_of(n) : -1;
}

struct wanted_bucket {
    struct lane_work *work;
    struct bucket bucket;
};

/* Grows as buckets are wanted: they are large, and most requests name no slot. */
struct wanted_list {
    struct wanted_bucket *items;
    size_t count, capacity;
};

static bool needs_bucket(const struct lane_work *p, const struct op *op, const void *b)
{
    return needed_bucket(p->lane, op) == *(const int64_t *)b;
}

static void cache_wanted(struct committer *c, struct wanted_list *wanted, const struct bucket_read *reads, about *is_about)
{
    for (size_t i = 0; i < wanted->count; i++) {
        struct lane_work *p = wanted->items[i].work;
        struct bucket *bucket = &wanted->items[i].bucket;
        struct lane *l = p->lane;

        assert(bucket->b == reads[i].b);
        if (p->state != WORK_OPEN) {
            bucket_release(bucket);
        } else if (reads[i].status != STORE_OK) {
            bucket_release(bucket);
            miss(c, p, reads[i].status, is_about, &reads[i].b);
        } else if (!cached_bucket_add(l, bucket)) {
            l->stale = true;
            defer(c, p, 0);
        }
    }
}

/* Read and cache the wanted buckets, which requests need, as is_about() says. */
static void read_wanted(struct committer *c, struct round *r, struct wanted_list *wanted, about *is_about)
{
    struct bucket_read *reads = arena_array(&r->arena, wanted->count + 1, sizeof *reads);

    for (size_t i = 0; i < wanted->count; i++) {
        struct wanted_bucket *one = &wanted->items[i];

        reads[i] = (struct bucket_read){.coupon = one->work->lane->coupon, .b = one->bucket.b, .bucket = &one->bucket};
    }
    if (wanted->count)
        c->store->ops->buckets(c->store, reads, wanted->count);
    cache_wanted(c, wanted, reads, is_about);
}

static void want_bucket(struct round *r, struct wanted_list *wanted, struct lane_work *p, int64_t b)
{
    struct wanted_bucket *one;

    if (b < 0 || cached_bucket_find(p->lane, b))
        return;
    for (size_t i = wanted->count; i-- > 0 && wanted->items[i].work == p;)
        if (wanted->items[i].bucket.b == b)
            return;
    wanted->items = arena_grown(&r->arena, wanted->items, wanted->count, &wanted->capacity, sizeof *one);
    one = &wanted->items[wanted->count++];
    one->work = p;
    bucket_init(&one->bucket, b);
}

static void load_buckets(struct committer *c, struct round *r)
{
    struct wanted_list wanted = {.count = 0};

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        for (struct op *op = p->state == WORK_OPEN ? p->ops.first : NULL; op; op = op->engine.next)
            want_bucket(r, &wanted, p, needed_bucket(p->lane, op));
    }
    read_wanted(c, r, &wanted, needs_bucket);
}

/* Read the codes of slots that are named by code, or shown: only they prove which slot has which code. */
static void load_bucket_codes(struct committer *c, struct round *r)
{
    struct bucket_codes_read *reads = NULL; /* large, and most requests have no code */
    struct cached_bucket **wanting = arena_array(&r->arena, r->ops + 1, sizeof(struct cached_bucket *));
    struct lane_work **work = arena_array(&r->arena, r->ops + 1, sizeof(struct lane_work *));
    size_t count = 0, capacity = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        for (struct op *op = p->state == WORK_OPEN ? p->ops.first : NULL; op; op = op->engine.next) {
            bool shows = code_of(op) || op->kind == OP_SLOT;
            int64_t b = shows ? needed_bucket(p->lane, op) : -1;
            struct cached_bucket *k = b >= 0 ? cached_bucket_find(p->lane, b) : NULL;

            if (!k || !cached_bucket_wants_codes(p->lane, k) || (count && wanting[count - 1] == k))
                continue;
            reads = arena_grown(&r->arena, reads, count, &capacity, sizeof *reads);
            wanting[count] = k;
            work[count] = p;
            reads[count++] = (struct bucket_codes_read){.coupon = p->lane->coupon, .b = b};
        }
    }
    if (!count)
        return;
    c->store->ops->bucket_codes(c->store, &r->arena, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (reads[i].status != STORE_OK)
            miss(c, work[i], reads[i].status, needs_bucket, &reads[i].b);
        else if (!wanting[i]->codes) /* two requests may want the same bucket */
            cached_bucket_set_codes(wanting[i], &reads[i]);
    }
}

/* Accept a look-up only if the slot has that code. */
static void check_codes(struct round *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        for (struct op *op = p->state == WORK_OPEN ? p->ops.first : NULL; op; op = op->engine.next) {
            int64_t b = code_of(op) ? needed_bucket(p->lane, op) : -1;
            const struct cached_bucket *k = b >= 0 ? cached_bucket_find(p->lane, b) : NULL;
            const char *code = k && k->codes ? k->codes[op->engine.work->n % BUCKET_SLOTS] : NULL, *named = op->engine.work->code;
            char own[CODE_MAX + 1];

            if (code_of(op) && !(code && named && code_normalise(code, (enum codes_match)p->lane->definition->codes.match, own) &&
                                 strcmp(own, named) == 0))
                op->engine.work->n = -1;
        }
    }
}

/* ---- users ---- */

/* How users were found. */
struct looked_up {
    int cached, fresh;
};

static struct loaded_user *want_user(struct lane_work *p, const char *user)
{
    struct loaded_user *u;

    HASH_FIND_STR(p->users, user, u);
    if (!u) {
        u = arena_alloc(&p->batch->arena, sizeof *u);
        u->user = arena_strdup(&p->batch->arena, user);
        HASH_ADD_KEYPTR(hh, p->users, u->user, strlen(u->user), u);
    }
    return u;
}

struct loaded_user *work_user(const struct lane_work *p, const char *user)
{
    struct loaded_user *u;

    HASH_FIND_STR(p->users, user, u);
    return u;
}

/* The slot that op names, by code or by a redemption's id; NULL: none, or none that exists. */
static const struct slot *slot_of(const struct lane_work *p, const struct op *op)
{
    int64_t n = op->engine.work->n;
    const struct cached_bucket *k = n >= 0 ? cached_bucket_find(p->lane, bucket_of(n)) : NULL;

    assert(n < 0 || n < p->lane->tail.next_n);
    return k ? &k->bucket.slots[n % BUCKET_SLOTS] : NULL;
}

static bool is_current(const struct slot *s, uint32_t g)
{
    return s->user && (s->current == g || (s->state != SLOT_ISSUED && s->from == g));
}

/* Only the ledger knows it: it has ended, or has no slot. */
static bool is_past(const struct lane_work *p, const struct op *op)
{
    const struct step *named = op_is(op, OPS_OF_REDEMPTION) ? op_redemption(op) : NULL;
    const struct slot *s = slot_of(p, op);

    if (!named || op->engine.sought || named->g < 1)
        return false;
    if (named->n < 0)
        return op->engine.asked_lane == p->lane->number && -named->n <= p->lane->tail.seq;
    return s && s->generation >= named->g && !is_current(s, named->g);
}

/* Send them to the history: each takes several reads, so not on this thread. */
static void look_back(struct committer *c, struct lane_work *p)
{
    struct op_list kept = {0};
    struct op *op;

    while ((op = op_list_take(&p->ops))) {
        if (!is_past(p, op)) {
            op_list_add(&kept, op);
            continue;
        }
        op->seen = c->store->ops->seen(c->store);
        hand_off(c);
        engine_look_back(c->engine, op);
    }
    p->ops = kept;
}

/* Whose is it? The first that applies:
 *   named      the user whom the request names
 *   slot       of the slot that it names: by code; or by the id of a redemption that the slot has
 *   ledger     of the redemption that it names, as history.c found it. If that has ended, *ended is a state with it
 * NULL: nobody's, or erased. */
static const char *find_user(const struct lane_work *p, const struct op *op, struct user_state **ended)
{
    const struct slot *s = slot_of(p, op);
    bool of_redemption = op_is(op, OPS_OF_REDEMPTION);

    *ended = NULL;
    if (op_is(op, OPS_OF_USER))
        return op_user(op)->name;
    if (s && (op->kind == OP_RETIRE_ONE || (of_redemption && is_current(s, op_redemption(op)->g))))
        return s->user;
    if (!of_redemption)
        return NULL;
    *ended = op->engine.ended;
    return op->engine.holder;
}

/* The users of requests, and those whose redemptions expired. */
static void want_users(struct lane_work *p)
{
    int64_t ends_ms = coupon_ends(p->lane->definition);
    struct cached_bucket *k, *next;

    for (struct op *op = p->ops.first; op; op = op->engine.next) {
        struct subject *subject = &op->engine.work->subject;
        const char *user = find_user(p, op, &subject->state);

        subject->user = user ? want_user(p, user) : NULL;
    }
    if (!p->sweeping)
        return;
    for (size_t i = 0; i < p->due_user_count; i++)
        want_user(p, p->due_users[i]);
    HASH_ITER(hh, p->lane->buckets, k, next)
        for (int i = 0; i < k->bucket.size; i++)
            if (k->bucket.slots[i].user && slot_is_due(&k->bucket.slots[i], p->at_ms, ends_ms))
                want_user(p, k->bucket.slots[i].user);
}

static bool is_of_user(const struct lane_work *p, const struct op *op, const void *loaded)
{
    (void)p;
    return op->engine.work->subject.user == loaded;
}

/* Something of this user's may have expired: that is not settled, and what seems taken may be free. */
static void leave_unsettled(struct lane_work *p)
{
    p->more = true;
    p->lane->next_due_ms = NEXT_DUE_NOW;
    stay_swept(p);
}

/* A user was not read. */
static void miss_user(struct committer *c, struct lane_work *p, struct loaded_user *u, enum store_status status)
{
    if (status != STORE_UNREADABLE || !p->sweeping) {
        miss(c, p, status, is_of_user, u);
    } else {
        set_aside(p, is_of_user, u);
        if (policy_of(p->lane->definition)->slots) { /* without, the search skips what cannot be read */
            p->damaged = true;
            leave_unsettled(p);
        }
    }
    if (p->state == WORK_OPEN)
        HASH_DEL(p->users, u);
}

/* A user of whom there is nothing; the alias is for what comes. */
static void make_new_user(struct lane_work *p, struct loaded_user *u)
{
    char alias[ID_ALIAS_LEN + 1];

    id_random(alias, ID_ALIAS_LEN);
    u->user_state = arena_alloc(&p->batch->arena, sizeof *u->user_state);
    user_state_init(u->user_state, u->user, alias);
}

/* Take what was read: as a copy, for a batch may outlive the round. It is in the cache from now on, whatever becomes of this round: a
 * writer that read its users again each time would lose every race to one that has them in memory. If the state is ahead of the lane's
 * tail, the lane must catch up with it first. */
static void take_user(struct committer *c, struct round *r, struct lane_work *p, struct loaded_user *u, const struct user_read *read)
{
    bool ahead = read->status == STORE_OK && read->seq > p->lane->tail.seq;

    if (read->status == STORE_OK && read->user_state)
        user_cache_keep(&p->lane->users, read->user_state);
    p->lane->stale = p->lane->stale || ahead;
    if (p->state != WORK_OPEN)
        return;
    if (read->status == STORE_NOT_READ) { /* the store has read as much as it may: another round reads on */
        r->unread = true;
        if (!move_ops(p, &p->unread, is_of_user, u) && !p->sweeping) {
            defer(c, p, 0);
            return;
        }
        if (p->sweeping)
            leave_unsettled(p);
        HASH_DEL(p->users, u);
    } else if (read->status != STORE_OK) {
        miss_user(c, p, u, read->status);
    } else if (ahead) {
        defer(c, p, 0);
    } else if (!read->user_state) {
        make_new_user(p, u);
    } else {
        u->user_state = user_state_copy(read->user_state, &p->batch->arena, true);
    }
}

struct user_reads {
    struct user_read *reads;
    struct loaded_user **loaded;
    struct lane_work **whose;
    size_t count;
};

/* List the users to be read: not those in the cache, nor the certainly new ones. */
static void list_reads(struct committer *c, struct lane_work *p, struct user_reads *list, struct looked_up *looked)
{
    struct loaded_user *u, *next;

    HASH_ITER(hh, p->users, u, next) {
        const struct user_state *known;

        if (filter_lacks(&p->lane->filter, c->store, p->lane->tail.seq, u->user)) { // cppcheck-suppress uninitvar
            looked->fresh++;
            make_new_user(p, u);
        } else if ((known = user_cache_find(&p->lane->users, u->user))) {
            looked->cached++;
            assert(known->seq <= p->lane->tail.seq);
            u->user_state = user_state_copy(known, &p->batch->arena, true);
        } else {
            list->reads[list->count] = (struct user_read){.coupon = p->lane->coupon, .lane = p->lane->number, .user = u->user};
            list->loaded[list->count] = u;
            list->whose[list->count++] = p;
        }
    }
}

static void load_users(struct committer *c, struct round *r)
{
    struct user_reads list = {.count = 0};
    struct looked_up looked = {0};
    size_t most = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (r->work[i].state != WORK_OPEN)
            continue;
        want_users(&r->work[i]);
        most += HASH_COUNT(r->work[i].users);
    }
    list.reads = arena_array(&r->arena, most + 1, sizeof *list.reads);
    list.loaded = arena_array(&r->arena, most + 1, sizeof(struct loaded_user *));
    list.whose = arena_array(&r->arena, most + 1, sizeof(struct lane_work *));
    for (size_t i = 0; i < r->count; i++)
        if (r->work[i].state == WORK_OPEN)
            list_reads(c, &r->work[i], &list, &looked);
    if (looked.cached)
        metrics_add(METRIC_USERS_CACHED, looked.cached);
    if (looked.fresh)
        metrics_add(METRIC_USERS_NEW, looked.fresh);
    if (list.count)
        metrics_add(METRIC_USERS_READ, (int64_t)list.count);
    if (!list.count)
        return;
    c->store->ops->users(c->store, &r->arena, list.reads, list.count);
    for (size_t i = 0; i < list.count; i++)
        take_user(c, r, list.whose[i], list.loaded[i], &list.reads[i]);
}

/* All users are read. What has ended is decided with the user's state, if that still has it, else with the one rebuilt from the ledger. */
static void fill_subjects(struct committer *c, struct lane_work *p)
{
    (void)c;
    for (struct op *op = p->ops.first; op; op = op->engine.next) {
        struct subject *subject = &op->engine.work->subject;
        struct user_state *u = subject->user ? subject->user->user_state : NULL;

        assert(!subject->user || u);
        if (u && (!subject->state || user_state_by_slot(u, op_redemption(op)->n, op_redemption(op)->g)))
            subject->state = u;
    }
}

/* ---- jobs: few, and of few requests ---- */

/* The job that op names; NULL: none. */
static const char *job_named(const struct op *op)
{
    if (op->kind == OP_CREATE)
        return op_coupon(op)->job;
    return op_is(op, OPS_OF_JOB) ? op->in.job.id : NULL;
}

static bool is_of_job(const struct lane_work *p, const struct op *op, const void *job)
{
    (void)p;
    return job_named(op) && strcmp(job_named(op), job) == 0;
}

static void load_job(struct committer *c, struct lane_work *p, const char *job)
{
    const struct job_progress *known = lane_known_job(p->lane, job);
    struct arena *a = &p->batch->arena;
    struct job_progress *read = NULL;
    struct loaded_job *j;
    enum store_status status = STORE_OK;

    if (!known)
        status = c->store->ops->job(c->store, p->lane->coupon, p->lane->number, job, a, &read);
    if (status != STORE_OK) {
        miss(c, p, status, is_of_job, job);
        return;
    }
    if (read && read->seq > p->lane->tail.seq) {
        p->lane->stale = true;
        defer(c, p, 0);
        return;
    }
    j = arena_alloc(a, sizeof *j);
    j->state = known ? *known : read ? *read : (struct job_progress){0};
    j->state.id = arena_strdup(a, job);
    j->next = p->jobs;
    p->jobs = j;
}

static struct job_progress *job_of(const struct lane_work *p, const char *job)
{
    for (struct loaded_job *j = p->jobs; j; j = j->next)
        if (strcmp(j->state.id, job) == 0)
            return &j->state;
    return NULL;
}

static void load_jobs(struct committer *c, struct lane_work *p)
{
    struct op *op = p->ops.first;

    while (op && p->state == WORK_OPEN) {
        bool loads = job_named(op) && !job_of(p, job_named(op));

        if (loads)
            load_job(c, p, job_named(op));
        op = loads ? p->ops.first : op->engine.next; /* a job that cannot be read removes its requests from the list: start over */
    }
    for (op = p->ops.first; op; op = op->engine.next)
        op->engine.work->job = job_named(op) ? job_of(p, job_named(op)) : NULL;
}

/* The bucket of a slot that the redemption has; -1: none. */
static int64_t bucket_of_redemption(const struct redemption *r)
{
    return r->ended_ms || r->n < 0 ? -1 : bucket_of(r->n);
}

static bool erases_in_bucket(const struct lane_work *p, const struct op *op, const void *b)
{
    const struct user_state *u = op->engine.work->subject.state;

    (void)p;
    assert(op->kind != OP_ERASE || u);
    for (size_t k = 0; op->kind == OP_ERASE && k < u->count; k++)
        if (bucket_of_redemption(&u->redemptions[k]) == *(const int64_t *)b)
            return true;
    return false;
}

/* Load the slots of users who are to be erased. */
static void load_erased(struct committer *c, struct round *r)
{
    struct wanted_list wanted = {.count = 0};

    for (size_t i = 0; i < r->count; i++) {
        struct lane_work *p = &r->work[i];

        for (struct op *op = p->state == WORK_OPEN ? p->ops.first : NULL; op; op = op->engine.next) {
            const struct user_state *u = op->engine.work->subject.state;

            assert(op->kind != OP_ERASE || u);
            for (size_t k = 0; op->kind == OP_ERASE && k < u->count; k++)
                want_bucket(r, &wanted, p, bucket_of_redemption(&u->redemptions[k]));
        }
    }
    read_wanted(c, r, &wanted, erases_in_bucket);
}

/* ---- all of it ---- */

static void each_open(struct committer *c, struct round *r, void (*load)(struct committer *c, struct lane_work *p))
{
    for (size_t i = 0; i < r->count; i++)
        if (r->work[i].state == WORK_OPEN)
            load(c, &r->work[i]);
}

/* A plain taking in a warm lane needs only its day, a free slot and its user: all other steps find nothing to do. */
void load_round(struct committer *c, struct round *r)
{
    struct mono started = mono_now();

    /* the epoch and the keys' secret are read once: they change only while no process runs, see store/high_water.h */
    if (c->epoch < 0 &&
        (c->store->ops->key_secret(c->store, &c->key_secret) != STORE_OK || c->store->ops->epoch(c->store, &c->epoch) != STORE_OK)) {
        c->epoch = -1;
        for (size_t i = 0; i < r->count; i++)
            if (r->work[i].state == WORK_OPEN)
                defer(c, &r->work[i], c->config.backoff_ms);
    }
    leave_chores(c, r); /* each lane as of its tail, with its definition */
    find_unknown(c, r);
    load_cold(c, r);
    each_open(c, r, follow_others);
    each_open(c, r, sort_multilane);
    each_open(c, r, load_day); /* p->at_ms, which decides what has expired */
    load_free_pools(c, r);
    load_due(c, r); /* after load_free_pools(), which may drop cached buckets */
    find_slots(c, r); /* each request's work->n, that slot's bucket and code */
    load_buckets(c, r);
    load_bucket_codes(c, r);
    check_codes(r);
    each_open(c, r, look_back);
    each_open(c, r, load_jobs);
    load_users(c, r); /* of requests, of named slots, and of expired redemptions */
    each_open(c, r, fill_subjects);
    load_erased(c, r);
    r->load_us = (mono_now().ns - started.ns) / 1000;
}
