/*
 * engine/load.c -- see round.h: reads what a round's requests are about, each kind of document in one read for all lanes.
 *
 * Order    lane, day, stash, what ended by itself, codes, buckets, users: each step may need what the one before it found
 * Errors   a part whose read failed is deferred; the others go on
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "coupons/code.h"
#include "coupons/fold.h"
#include "engine/lanes.h"
#include "engine/round.h"
#include "engine/route.h"

static void defer_open(struct committer *c, struct round *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            defer(c, &r->parts[i], c->config.backoff_ms);
}

/* ---- lanes ---- */

/* True when the first request brings the definition. */
static bool is_told(const struct part *p)
{
    return p->ops.first && p->ops.first->kind == OP_FOLLOW;
}

static void load_lane(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    enum store_status status = STORE_OK;

    if (!l->loaded) {
        status = lane_load(l, c->store);
        if (status == STORE_OK && l->window)
            note_unflushed(c, l);
    } else if (l->stale) {
        status = lane_refresh(l, c->store, NULL);
        if (l->window)
            note_unflushed(c, l);
    }
    if (status == STORE_OK)
        l->stale = false;
    if (status == STORE_OK && !is_told(p))
        status = lane_adopt(l, c->store);
    if (status != STORE_OK)
        defer(c, p, c->config.backoff_ms);
}

/* ---- coupons with several lanes ---- */

static bool belongs_elsewhere(const struct lane *l, const struct op *op)
{
    if (op->inner || op->kind == OP_CREATE)
        return false;
    return lanes_does(op->kind) || op->kind == OP_COUPON || lanes_route(op, l->definition->lanes) != l->number;
}

/* Without slots a lane decides only when it has heard of all others. */
static bool has_to_listen(const struct committer *c, const struct lane *l, const struct op *op)
{
    return (op->kind == OP_TAKE || op->kind == OP_CHECK) && !op->looked[SHARE_NONE] && !policy_of(l->definition)->slots &&
           !heard_all(engine_heard(c->engine), l->coupon);
}

/* Now that it is known how many lanes the coupon has, each request goes where it belongs. */
static void sort_by_lanes(struct committer *c, struct part *p)
{
    const struct lane *l = p->lane;
    struct op_list kept = {0};
    struct op *op;

    if (!l->definition || l->definition->lanes == 1)
        return;
    heard_know(engine_heard(c->engine), l->coupon, l->definition->lanes);
    while ((op = op_list_take(&p->ops))) {
        bool elsewhere = belongs_elsewhere(l, op);

        if (!elsewhere && !has_to_listen(c, l, op)) {
            op_list_add(&kept, op);
            continue;
        }
        atomic_fetch_sub(&c->waiting, 1);
        op->outcome = (struct outcome){.result = CPN_OK};
        if (elsewhere)
            engine_reroute(c->engine, op);
        else
            engine_look_around(c->engine, op);
    }
    p->ops = kept;
}

/* ---- days ---- */

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
        if (op->kind == OP_CREATE || op->kind == OP_FOLLOW)
            zone = op->definition->time_zone;
    if (l->tail.at_ms > now + CLOCK_ALARM_MS)
        log_event(LOG_WARNING, "lane.ahead_of_clock", "coupon=%s ahead_ms=%lld", l->coupon,
                  (long long)(l->tail.at_ms - now));
    p->at_ms = now > l->tail.at_ms ? now : l->tail.at_ms;
    if (find_day(c, zone, p) != STORE_OK)
        defer(c, p, c->config.backoff_ms);
}

/* ---- free slots, and what ended by itself ---- */

static bool takes_any_slot(const struct op *op)
{
    return op->kind == OP_TAKE && !op->take.code;
}

static void load_stash(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;
    size_t want = 0;

    if (!l->definition || !policy_of(l->definition)->slots)
        return;
    for (struct op *op = p->ops.first; op; op = op->next)
        want += takes_any_slot(op);
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

static void load_due(struct committer *c, struct part *p)
{
    struct lane *l = p->lane;

    if (!l->definition)
        l->next_due_ms = INT64_MAX; /* until somebody makes the coupon */
    if (l->next_due_ms > p->at_ms)
        return;
    p->sweeping = true; /* from here on: a part that is deferred has the lane looked through again */
    if (lane_find_due(l, c->store, p->at_ms, &p->batch->arena, &p->due_users, &p->due_user_count, &p->more) != STORE_OK)
        defer(c, p, c->config.backoff_ms);
    else if (l->stale)
        defer(c, p, 0);
}

/* ---- slots that requests name ---- */

static const char *code_of(const struct op *op)
{
    if (op->kind == OP_TAKE || op->kind == OP_CHECK)
        return op->take.code;
    return op->kind == OP_CODE || op->kind == OP_RETIRE_ONE ? op->code : NULL;
}

static int64_t slot_in_id(const struct op *op)
{
    if (op->kind == OP_STEP)
        return op->transition.n;
    return op->kind == OP_REDEMPTION || op->kind == OP_SLOT ? op->n : -1;
}

static bool has_codes(const struct lane *l)
{
    return l->definition && l->definition->codes.source != CODES_NONE;
}

/* Which slots the requests name: by their ids, and by the look-ups of their codes. */
static void find_slots(struct committer *c, struct round *r)
{
    struct code_read *reads = arena_array(&r->arena, r->ops + 1, sizeof *reads);
    struct op **whose = arena_array(&r->arena, r->ops + 1, sizeof(struct op *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];
        const struct lane *l = p->lane;

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next) {
            char normal[CODE_MAX + 1];

            op->named_n = slot_in_id(op);
            if (op->named_n >= l->tail.next_n)
                op->named_n = -1;
            if (!code_of(op) || !has_codes(l) ||
                !code_normalise(code_of(op), (enum codes_match)l->definition->codes.match, normal))
                continue;
            whose[count] = op;
            reads[count++] = (struct code_read){.coupon = l->coupon, .code = arena_strdup(&r->arena, normal), .n = -1};
        }
    }
    if (count && c->store->ops->codes(c->store, reads, count) != STORE_OK) {
        defer_open(c, r);
        return;
    }
    for (size_t i = 0; i < count; i++)
        whose[i]->named_n = reads[i].n;
}

/* The bucket that op needs, or -1. */
static int64_t needed_bucket(const struct lane *l, const struct op *op)
{
    if (op->named_n >= 0 && op->named_n < l->tail.next_n)
        return bucket_of(op->named_n);
    if ((op->kind == OP_GENERATE || op->kind == OP_GET) && l->tail.next_n % BUCKET_SLOTS != 0)
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

/* Read and cache those of `count` wanted buckets. */
static void read_wanted(struct committer *c, struct round *r, struct wanted_bucket *wanted, size_t count)
{
    struct bucket_read *reads = arena_array(&r->arena, count + 1, sizeof *reads);
    struct store_time after = {0, 0};

    for (size_t i = 0; i < count; i++) {
        const struct lane *l = wanted[i].part->lane;

        reads[i] = (struct bucket_read){.coupon = l->coupon, .b = wanted[i].bucket.b, .bucket = &wanted[i].bucket};
        after = store_time_later(after, l->mark.when);
    }
    if (count && c->store->ops->buckets(c->store, after, reads, count) != STORE_OK)
        defer_open(c, r);
    cache_wanted(c, wanted, count);
}

static size_t want_bucket(struct wanted_bucket *wanted, size_t count, struct part *p, int64_t b)
{
    if (b < 0 || lane_bucket(p->lane, b) || is_wanted(wanted, count, p, b))
        return count;
    wanted[count].part = p;
    bucket_init(&wanted[count].bucket, b);
    return count + 1;
}

static void load_buckets(struct committer *c, struct round *r)
{
    struct wanted_bucket *wanted = arena_array(&r->arena, r->ops + 1, sizeof *wanted);
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next)
            count = want_bucket(wanted, count, p, needed_bucket(p->lane, op));
    }
    read_wanted(c, r, wanted, count);
}

/* The codes of the slots that are named by their codes, or shown: then it is sure which slot has which code. */
static void load_bucket_codes(struct committer *c, struct round *r)
{
    struct bucket_codes_read *reads = arena_array(&r->arena, r->ops + 1, sizeof *reads);
    struct cached_bucket **wanting = arena_array(&r->arena, r->ops + 1, sizeof(struct cached_bucket *));
    size_t count = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next) {
            bool shows = code_of(op) || op->kind == OP_SLOT;
            int64_t b = shows ? needed_bucket(p->lane, op) : -1;
            struct cached_bucket *k = b >= 0 ? lane_bucket(p->lane, b) : NULL;

            if (!k || !lane_wants_codes(p->lane, k) || (count && wanting[count - 1] == k))
                continue;
            wanting[count] = k;
            reads[count++] = (struct bucket_codes_read){.coupon = p->lane->coupon, .b = b};
        }
    }
    if (!count)
        return;
    if (c->store->ops->bucket_codes(c->store, &r->arena, reads, count) != STORE_OK) {
        defer_open(c, r);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (!wanting[i]->codes) /* two requests may want the same */
            cached_bucket_set_codes(wanting[i], &reads[i]);
}

/* A look-up counts only if the slot has that code. */
static void check_codes(struct round *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next) {
            int64_t b = code_of(op) ? needed_bucket(p->lane, op) : -1;
            const struct cached_bucket *k = b >= 0 ? lane_bucket(p->lane, b) : NULL;
            const char *code = k && k->codes ? k->codes[op->named_n % BUCKET_SLOTS] : NULL;
            char want[CODE_MAX + 1], have[CODE_MAX + 1];
            enum codes_match match;

            if (!code_of(op))
                continue;
            match = has_codes(p->lane) ? (enum codes_match)p->lane->definition->codes.match : MATCH_EXACT;
            if (!code || !code_normalise(code_of(op), match, want) || !code_normalise(code, match, have) ||
                strcmp(want, have) != 0)
                op->named_n = -1;
        }
    }
}

/* ---- users ---- */

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

struct loaded_user *part_user(const struct part *p, const char *user)
{
    struct loaded_user *u;

    HASH_FIND_STR(p->users, user, u);
    return u;
}

/* Whose redemption (n, g) is that has no slot: the entry that made it says. If it is so old that its user's use may have dropped
 * it, *ended gets it from the ledger. */
static enum store_status find_maker(struct committer *c, struct part *p, int64_t n, uint32_t g, const char **user,
                                    struct use **ended)
{
    const struct lane *l = p->lane;
    const struct entry *e;
    struct batch *b = NULL;
    size_t count = 0;
    enum store_status status;
    bool old = false;

    *user = NULL;
    if (-n > l->tail.seq)
        return STORE_OK;
    status = c->store->ops->ledger(c->store, l->coupon, l->number, -n - 1, 1, &b, &count);
    if (status != STORE_OK || !count)
        return status;
    e = b->head.seq == -n ? batch_find_making(b, n, g) : NULL;
    if (e) {
        *user = arena_strdup(&p->batch->arena, e->user);
        old = b->head.at_ms < p->at_ms - USE_KEY_KEPT_MS;
    }
    batch_free(b);
    return old ? rebuild_ended(c->store, l, &p->batch->arena, n, g, ended) : STORE_OK;
}

/* Whose use a redemption, named by its id, is in; NULL: nobody's that stands. What has ended goes to op->working. */
static enum store_status find_holder(struct committer *c, struct part *p, struct op *op, int64_t n, uint32_t g,
                                     const char **user)
{
    const struct cached_bucket *k = op->named_n >= 0 ? lane_bucket(p->lane, bucket_of(op->named_n)) : NULL;
    const struct slot *s = k ? &k->bucket.slots[op->named_n % BUCKET_SLOTS] : NULL;
    enum store_status status;

    *user = NULL;
    if (g < 1 || (n >= 0 && !s))
        return STORE_OK;
    if (n < 0 && op->asked_lane != p->lane->number)
        return STORE_OK;
    if (n < 0)
        return find_maker(c, p, n, g, user, &op->working);
    if (s->user && (s->current == g || (s->state != SLOT_ISSUED && s->from == g))) {
        *user = s->user;
        return STORE_OK;
    }
    if (s->generation < g)
        return STORE_OK;
    status = rebuild_ended(c->store, p->lane, &p->batch->arena, n, g, &op->working);
    if (op->working && op->working->user[0])
        *user = op->working->user; /* whose use knows more, as long as it keeps it: every key, the counts after the taking */
    return status;
}

static enum store_status user_of(struct committer *c, struct part *p, struct op *op, const char **user)
{
    const struct cached_bucket *k;

    *user = NULL;
    op->working = NULL;
    switch (op->kind) {
    case OP_TAKE:
    case OP_CHECK:
    case OP_USE:
    case OP_ERASE:
        *user = op->user;
        return STORE_OK;
    case OP_GENERATE:
    case OP_DUE:
    case OP_TURN:
    case OP_TURN_END:
    case OP_GIVE:
    case OP_GET:
        *user = arena_printf(&p->batch->arena, JOB_USER_PREFIX "%s", op->job);
        return STORE_OK;
    case OP_STEP:
        return find_holder(c, p, op, op->transition.n, op->transition.g, user);
    case OP_REDEMPTION:
        return find_holder(c, p, op, op->n, op->g, user);
    case OP_RETIRE_ONE:
        k = op->named_n >= 0 ? lane_bucket(p->lane, bucket_of(op->named_n)) : NULL;
        *user = k ? k->bucket.slots[op->named_n % BUCKET_SLOTS].user : NULL;
        return STORE_OK;
    default:
        return STORE_OK;
    }
}

/* The users of what ended by itself. */
static void want_due_users(struct part *p)
{
    struct cached_bucket *k, *next;

    for (size_t i = 0; i < p->due_user_count; i++)
        want_user(p, p->due_users[i]);
    HASH_ITER(hh, p->lane->buckets, k, next)
        for (int i = 0; i < k->bucket.size; i++)
            if (k->bucket.slots[i].user && slot_is_due(&k->bucket.slots[i], p->at_ms))
                want_user(p, k->bucket.slots[i].user);
}

/* Of slots that are made in lane 0 every other lane gets its part. */
static void want_accounts(struct part *p)
{
    for (int64_t lane = 1; p->lane->definition && lane < p->lane->definition->lanes; lane++)
        want_user(p, arena_printf(&p->batch->arena, JOB_USER_PREFIX ACCOUNT_FORMAT, INT64_C(0), lane));
}

static void want_users(struct committer *c, struct part *p)
{
    for (struct op *op = p->ops.first; op; op = op->next) {
        const char *user;

        if (user_of(c, p, op, &user) != STORE_OK) {
            defer(c, p, c->config.backoff_ms);
            return;
        }
        op->loaded = user ? want_user(p, user) : NULL;
        if (op->kind == OP_GENERATE)
            want_accounts(p);
    }
    if (p->sweeping)
        want_due_users(p);
}

/* What was read, with the window laid over it, becomes the working copy. It owns all that it points to: the window's batches
 * may go before the batch that is decided now. */
static void settle_use(struct committer *c, struct part *p, struct loaded_user *u, struct use_read *read, bool shared)
{
    struct arena *a = &p->batch->arena;
    struct use *use = read->use;
    char alias[ID_ALIAS_LEN + 1];
    int64_t seq;

    if (p->state != PART_OPEN)
        return;
    if (!use) {
        use = arena_alloc(a, sizeof *use);
        use_init(use, u->user, "");
    }
    seq = use->seq;
    if (!lane_overlay_use(p->lane, use, a)) {
        p->lane->stale = true;
        defer(c, p, 0);
        return;
    }
    u->use = shared || use->seq != seq ? use_copy(use, a, true) : use;
    if (use->seq)
        return;
    id_random(alias, ID_ALIAS_LEN);
    memcpy(u->use->alias, alias, sizeof alias);
}

struct user_reads {
    struct use_read *reads;
    struct loaded_user **loaded;
    struct part **whose;
    size_t count;
    struct store_time after;
};

/* What the window knows is at hand; the rest is to be read. */
static void list_reads(struct part *p, struct user_reads *list)
{
    struct loaded_user *u, *next;

    HASH_ITER(hh, p->users, u, next) {
        const struct use *known = lane_known_use(p->lane, u->user); // cppcheck-suppress uninitvar

        if (known) {
            u->use = use_copy(known, &p->batch->arena, true);
            continue;
        }
        list->reads[list->count] = (struct use_read){.coupon = p->lane->coupon, .user = u->user};
        list->loaded[list->count] = u;
        list->whose[list->count++] = p;
        list->after = store_time_later(list->after, p->lane->mark.when);
    }
}

static void load_users(struct committer *c, struct round *r)
{
    struct user_reads list = {.count = 0};
    struct part *only = NULL;
    struct arena *a;
    size_t most = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (r->parts[i].state == PART_OPEN)
            want_users(c, &r->parts[i]);
        if (r->parts[i].state == PART_OPEN)
            most += HASH_COUNT(r->parts[i].users);
    }
    list.reads = arena_array(&r->arena, most + 1, sizeof *list.reads);
    list.loaded = arena_array(&r->arena, most + 1, sizeof(struct loaded_user *));
    list.whose = arena_array(&r->arena, most + 1, sizeof(struct part *));
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            list_reads(&r->parts[i], &list);
    if (!list.count)
        return;
    /* read into the part's own arena where there is one part: what is read there need not be copied */
    only = list.whose[0] == list.whose[list.count - 1] ? list.whose[0] : NULL;
    a = only ? &only->batch->arena : &r->arena;
    if (c->store->ops->uses(c->store, list.after, a, list.reads, list.count) != STORE_OK) {
        defer_open(c, r);
        return;
    }
    for (size_t i = 0; i < list.count; i++)
        settle_use(c, list.whose[i], list.loaded[i], &list.reads[i], !only);
}

/* The slots in which users stand that are to be erased. */
static void load_erased(struct committer *c, struct round *r)
{
    struct wanted_bucket *wanted;
    size_t most = 0, count = 0;

    for (size_t i = 0; i < r->count; i++)
        for (struct op *op = r->parts[i].state == PART_OPEN ? r->parts[i].ops.first : NULL; op; op = op->next)
            most += op->kind == OP_ERASE ? op->loaded->use->count : 0;
    if (!most)
        return;
    wanted = arena_array(&r->arena, most, sizeof *wanted);
    for (size_t i = 0; i < r->count; i++) {
        struct part *p = &r->parts[i];

        for (struct op *op = p->state == PART_OPEN ? p->ops.first : NULL; op; op = op->next)
            for (size_t k = 0; op->kind == OP_ERASE && k < op->loaded->use->count; k++) {
                const struct redemption *d = &op->loaded->use->redemptions[k];

                if (!d->ended_ms && d->n >= 0)
                    count = want_bucket(wanted, count, p, bucket_of(d->n));
            }
    }
    read_wanted(c, r, wanted, count);
}

/* ---- all of it ---- */

static void each_open(struct committer *c, struct round *r, void (*load)(struct committer *c, struct part *p))
{
    for (size_t i = 0; i < r->count; i++)
        if (r->parts[i].state == PART_OPEN)
            load(c, &r->parts[i]);
}

void load_round(struct committer *c, struct round *r)
{
    struct mono started = mono_now();

    each_open(c, r, load_lane);
    each_open(c, r, sort_by_lanes);
    each_open(c, r, load_day);
    each_open(c, r, load_stash);
    each_open(c, r, load_due); /* after load_stash(), which may drop cached buckets */
    find_slots(c, r);
    load_buckets(c, r);
    load_bucket_codes(c, r);
    check_codes(r);
    load_users(c, r);
    load_erased(c, r);
    r->load_us = (mono_now().ns - started.ns) / 1000;
}
