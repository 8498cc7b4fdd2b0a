/*
 * tests/engine/test_engine.c -- two engines on one fake database that fails, conflicts and loses replies by a seed.
 *
 * Each seed: clients take, repeat, return, change the cap and read through either engine; one engine is cut off half way;
 * afterwards the ledger is replayed and compared with what the clients were answered, with what each engine says of each user, and with the
 * checkpoints.
 *
 * A seed mostly waits, so several processes share the seeds, a group at a time.
 *
 * Replay   test_engine SEED runs one seed. COUPONS_SEEDS sets how many run (1000).
 */
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sodium.h>

#include "base/log.h"
#include "base/metrics.h"
#include "coupons/fold.h"
#include "coupons/transfer.h"
#include "engine/engine.h"
#include "fake_store.h"
#include "lanes/lanes.h"
#include "unit/views.h"

#define COUPON "c1"
#define CLIENTS 6
#define CLIENT_OPS 14
#define USERS 9
#define SLOTS 20
#define SLOTS_AT_FIRST 150 /* every other seed: three buckets, then a cap lowered to SLOTS */
#define PER_USER 3
#define SHARED 4     /* codes that many use */
#define SHARED_CAP 3 /* of each */
#define LANES 3
#define TRIES_MAX 3000
#define CHECKPOINT_MS 100 /* time enough for a checkpoint, mostly */
#define ERASED (USERS - 1) /* the user who is erased now and then: what they were answered is not compared */
#define GROUP 20 /* seeds to a line of the report (TAP) */
#define PROCESSES 6
/* For what is left to do at the end: where the store may fail, and where it does not, and all is to be written. */
#define FAILS_MS 50
#define WELL_MS 30000

struct reply {
    char key[24];
    char user[16];
    enum op_kind kind;
    enum cpn_result result;
    bool doubtful; /* an earlier try ended in doubt: a refusal does not say that it took nothing */
    struct redemption r;
};

/* What the coupon is like: by the seed. */
struct flavour {
    bool codes;    /* every slot has one, picked at random */
    bool slotless; /* policy approximate */
    bool shares;   /* there are shared codes, each of which has a cap */
    int64_t lanes;
    bool lopsided; /* the second engine is asked seldom: it falls behind by more than it reads to follow */
};

struct scenario {
    uint32_t seed;
    struct flavour flavour;
    struct fake *fake;
    struct store_source *sources[2];
    struct engine *engines[2];
    atomic_int alive; /* bit i: engine i may be asked */
    pthread_mutex_t lock;
    struct reply replies[2 * CLIENTS * CLIENT_OPS]; /* take_once() comes beside another */
    size_t reply_count;
};

struct client {
    struct scenario *s;
    int number;
    uint32_t random;
};

static uint32_t failed_seed;

/* Of all processes together. What never happens is not tested. */
struct shared {
    atomic_uint next; /* seed that nobody has begun */
    atomic_bool failed;
    atomic_int spent, held; /* answers that a shared code is used up, or may come back */
    atomic_int busy; /* answers that were not asked for again */
    atomic_int cached, fresh, read; /* users: in the cache, surely new, read from the ledger */
    atomic_size_t kinds[ENTRY_KIND_COUNT]; /* in all ledgers */
};

static struct shared *shared;

static void fail(uint32_t seed, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(uint32_t seed, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "seed %u: ", seed);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    failed_seed = seed;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static struct engine *pick_engine(struct client *c)
{
    int alive = atomic_load(&c->s->alive);
    int i = next_random(&c->random) % (c->s->flavour.lopsided ? 20 : 2) == 0;

    return c->s->engines[alive & (1 << i) ? i : !i];
}

/* Ask until there is a definite answer. */
static enum cpn_result ask(struct client *c, struct op *op, bool *doubtful)
{
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        enum cpn_result r;

        op->deadline = mono_add_ms(mono_now(), c->s->flavour.lanes > 1 ? 200 : 30);
        r = engine_call(pick_engine(c), op);
        if (r == CPN_OUTCOME_UNKNOWN)
            *doubtful = true;
        else if (r != CPN_BUSY)
            return r;
    }
    fail(c->s->seed, "no definite answer after %d tries", TRIES_MAX);
    return CPN_BUSY;
}

static void tell(struct scenario *s, const struct reply *t)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->reply_count; i++) {
        const struct reply *o = &s->replies[i];

        if (strcmp(o->key, t->key) != 0 || o->result != CPN_OK || t->result != CPN_OK)
            continue;
        if (o->r.n != t->r.n || o->r.g != t->r.g || o->r.ordinal != t->r.ordinal || o->r.left != t->r.left ||
            o->r.state != t->r.state || o->r.user != t->r.user || o->r.reserved_until_ms != t->r.reserved_until_ms)
            fail(s->seed, "key %s got two answers: %lld-%u %s and %lld-%u %s", t->key, (long long)o->r.n, o->r.g,
                 slot_state_name(o->r.state), (long long)t->r.n, t->r.g, slot_state_name(t->r.state));
    }
    s->replies[s->reply_count++] = *t;
    pthread_mutex_unlock(&s->lock);
}

static void record(struct client *c, struct reply *t, const struct op *op)
{
    t->r = op->outcome.redemption;
    t->r.order = t->r.metadata = t->r.code = t->r.first_order = t->r.price.currency = t->r.first_price.currency = t->r.price.shares =
        t->r.first_price.shares = NULL;
    if (strcmp(t->user, "u8") != 0)
        tell(c->s, t);
}

#define OPERATOR "ops"

/* The shared codes from the given one on; odd: otherwise spelled. */
static struct string_list shared_codes(uint32_t from)
{
    static const char *const spelled[2][SHARED] = {{"ANNA-10", "BEA-10", "CID-10", "DAN-10"}, {"anna10", "bea10", "cid10", "dan10"}};

    from %= 2 * SHARED;
    return (struct string_list){(const char **)(spelled[from % 2] + from / 2), SHARED - from / 2};
}

/* The API key of whoever asks with this Idempotency-Key: some are operators. */
static const char *operator_of(const char *key)
{
    return key[strlen(key) - 1] % 2 ? key : NULL;
}

static void take(struct client *c, struct arena *a, const char *key, int user)
{
    static const enum slot_state states[] = {SLOT_REDEEMED, SLOT_ISSUED, SLOT_RESERVED, SLOT_RESERVED};
    struct reply t = {.kind = OP_TAKE};
    struct op op = {.kind = OP_TAKE, .coupon = COUPON, .arena = a};
    uint32_t shape = (uint32_t)key[1] * 7 + (uint32_t)key[strlen(key) - 1]; /* a key always asks the same */

    snprintf(t.key, sizeof t.key, "%s", key);
    snprintf(t.user, sizeof t.user, "u%d", user);
    op.in.user.name = t.user;
    op.by = operator_of(t.key);
    op.in.user.take.key = t.key;
    op.in.user.take.state = states[shape % 4];
    op.in.user.take.reserve_s = shape % 8 == 2 ? 0 : COUPON_NULL; /* 0: it ends in the next round */
    if (c->s->flavour.codes && shape % 3 == 0)
        op.in.user.take.code = arena_printf(a, "code%u", shape % SLOTS); /* loose: upper case is looked up */
    if (c->s->flavour.shares && shape % 3)
        op.in.user.take.code = shared_codes(0).items[shape % SHARED];
    t.result = ask(c, &op, &t.doubtful);
    atomic_fetch_add(&shared->spent, c->s->flavour.shares && t.result == CPN_CODE_TAKEN);
    atomic_fetch_add(&shared->held, c->s->flavour.shares && t.result == CPN_TRANSACTION_IN_PROGRESS);
    record(c, &t, &op);
}

/* Ask once, in a hurry, and take `busy` for an answer: nobody asks with this key again, and the ledger must not have it. */
static void take_once(struct client *c, struct arena *a, const char *key, int user)
{
    struct reply t = {.kind = OP_TAKE};
    struct op op = {.kind = OP_TAKE, .coupon = COUPON, .arena = a,
                    .in.user = {.name = t.user, .take = {.key = t.key, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL}}};

    snprintf(t.key, sizeof t.key, "%s", key);
    snprintf(t.user, sizeof t.user, "u%d", user);
    op.by = operator_of(t.key);
    op.deadline = mono_add_ms(mono_now(), next_random(&c->random) % 4);
    t.result = engine_call(pick_engine(c), &op);
    if (t.result == CPN_BUSY)
        atomic_fetch_add(&shared->busy, 1);
    if (t.result != CPN_OUTCOME_UNKNOWN)
        record(c, &t, &op);
}

/* A step of something that somebody got. */
static void step(struct client *c, struct arena *a, const char *key)
{
    static const enum slot_move moves[] = {MOVE_RESERVE, MOVE_REDEEM, MOVE_REDEEM, MOVE_CANCEL, MOVE_REVERSE};
    struct scenario *s = c->s;
    struct reply t = {0};
    struct op op = {.kind = OP_STEP, .coupon = COUPON, .arena = a};
    enum slot_state ends;

    pthread_mutex_lock(&s->lock);
    if (s->reply_count)
        t = s->replies[next_random(&c->random) % s->reply_count];
    pthread_mutex_unlock(&s->lock);
    if (!t.key[0] || t.result != CPN_OK)
        return;
    op.lane = t.r.n < 0 ? t.r.lane : 0;
    op.in.redemption = (struct step){.n = t.r.n, .g = t.r.g, .move = moves[next_random(&c->random) % 5],
                                  .reserve_s = next_random(&c->random) % 2 ? 0 : COUPON_NULL};
    op.in.redemption.adjusts = next_random(&c->random) % 6 == 0;
    op.in.redemption.keep_use = op.in.redemption.move == MOVE_REVERSE && next_random(&c->random) % 3 == 0;
    if (op.in.redemption.adjusts || op.in.redemption.move == MOVE_RESERVE || op.in.redemption.move == MOVE_REDEEM)
        op.in.redemption.key = key;
    op.by = op.in.redemption.key ? operator_of(key) : op.in.redemption.move == MOVE_REVERSE ? OPERATOR : NULL;
    snprintf(t.key, sizeof t.key, "%s", key);
    t.kind = OP_STEP;
    t.doubtful = false;
    t.result = ask(c, &op, &t.doubtful);
    if (t.result == CPN_REDEMPTION_NOT_FOUND)
        fail(s->seed, "%lld-%u of lane %lld is not found", (long long)t.r.n, t.r.g, (long long)t.r.lane);
    if (op.in.redemption.key) {
        record(c, &t, &op);
        return;
    }
    ends = op.in.redemption.move == MOVE_REVERSE ? SLOT_REVERSED : SLOT_CANCELLED;
    if (t.result == CPN_OK && op.outcome.redemption.state != ends && op.outcome.redemption.state != SLOT_EXPIRED &&
        op.outcome.redemption.state != SLOT_REVERSED)
        fail(s->seed, "%lld-%u ended as %s", (long long)t.r.n, t.r.g, slot_state_name(op.outcome.redemption.state));
}

static void erase(struct client *c, struct arena *a)
{
    struct op op = {.kind = OP_ERASE, .coupon = COUPON, .arena = a, .in.user.name = "u8", .by = OPERATOR};
    bool doubtful = false;
    enum cpn_result r = ask(c, &op, &doubtful);

    if (r != CPN_OK)
        fail(c->s->seed, "erase: %s", result_info(r)->name);
}

/* Read the coupon, change its cap; until: again and again until it is changed. */
static void set_cap(struct client *c, struct arena *a, int64_t total, bool until)
{
    bool doubtful = false; /* a change of which nothing was heard may be made later */
    enum cpn_result r;

    do {
        struct op read = {.kind = OP_COUPON, .coupon = COUPON, .arena = a};
        struct op op = {.kind = OP_CHANGE, .coupon = COUPON, .arena = a, .by = OPERATOR, .in.coupon.retire = true};
        bool ignored = false;

        r = ask(c, &read, &ignored);
        if (r != CPN_OK) {
            fail(c->s->seed, "reading the coupon: %s", result_info(r)->name);
            return;
        }
        op.in.coupon.definition = coupon_copy(read.coupon_now, a);
        op.in.coupon.definition->cap.total = total;
        if (c->s->flavour.shares)
            op.in.coupon.definition->codes.shared = shared_codes((uint32_t)total);
        op.in.coupon.expected_version = read.coupon_now->version;
        r = ask(c, &op, &doubtful);
        if (r != CPN_OK && r != CPN_VERSION_CHANGED && r != CPN_CAP_BELOW_TAKEN) {
            fail(c->s->seed, "changing the cap: %s", result_info(r)->name);
            return;
        }
        if (until && r == CPN_VERSION_CHANGED && !doubtful)
            fail(c->s->seed, "a change whose reply was lost met itself"); /* nobody else changes anything */
    } while (until && r != CPN_OK);
}

static void look(struct client *c, struct arena *a)
{
    char user[16];
    struct op op = {.kind = OP_USER_STATE, .coupon = COUPON, .arena = a, .in.user.name = user};
    const struct user_state *u;
    bool doubtful;
    enum cpn_result r;

    snprintf(user, sizeof user, "u%u", next_random(&c->random) % USERS);
    r = ask(c, &op, &doubtful);
    u = op.out.user.state;
    if (r != CPN_OK || !u || u->total - user_state_lapsed(u, op.head.at_ms, 0) > PER_USER || u->total < 0)
        fail(c->s->seed, "user %s: %s, total %lld", user, result_info(r)->name, u ? (long long)u->total : -1);
    if (r == CPN_OK && !c->s->flavour.slotless && (head_free(&op.head) < 0 || head_taken(&op.head) > SLOTS))
        fail(c->s->seed, "counts: free %lld, taken %lld", (long long)head_free(&op.head), (long long)head_taken(&op.head));
}

/* An empty batch, as a report asks for of a lane that has been quiet. */
static void tick(struct client *c, struct arena *a)
{
    struct op op = {.kind = OP_TICK, .coupon = COUPON, .arena = a,
                    .lane = next_random(&c->random) % c->s->flavour.lanes};
    bool doubtful;
    enum cpn_result r = ask(c, &op, &doubtful);

    if (r != CPN_OK)
        fail(c->s->seed, "tick: %s", result_info(r)->name);
}

/* A few slots more, if the cap permits it: by a job of its own. */
static void add_slots(struct client *c, struct arena *a, const char *job)
{
    struct op op = {.kind = OP_GENERATE, .coupon = COUPON, .arena = a, .by = OPERATOR,
                    .in.job = {.id = job, .step = 1, .count = 1 + next_random(&c->random) % 4}};
    bool doubtful;
    enum cpn_result r = ask(c, &op, &doubtful);

    if (r != CPN_OK && r != CPN_CAP_EXCEEDED)
        fail(c->s->seed, "generate: %s", result_info(r)->name);
}

static void *client_main(void *argument)
{
    struct client *c = argument;
    struct arena a;

    arena_init(&a, 0);
    for (int i = 0; i < CLIENT_OPS; i++) {
        uint32_t what = next_random(&c->random) % 100;
        char key[24];

        snprintf(key, sizeof key, "k%d-%d", c->number, what < 15 && i ? i - 1 : i);
        if (what % 10 == 9)
            take_once(c, &a, arena_printf(&a, "o%d-%d", c->number, i), (int)(what % USERS));
        if (what < 55)
            take(c, &a, key, (c->number * 3 + (what < 15 && i ? i - 1 : i)) % USERS);
        else if (what < 83)
            step(c, &a, arena_printf(&a, "s%d-%d", c->number, i));
        else if (what < 86)
            erase(c, &a);
        else if (what < 91 && (!c->s->flavour.slotless || c->s->flavour.shares))
            set_cap(c, &a, SLOTS - (int64_t)(next_random(&c->random) % 8), false);
        else if (what < 93 && !c->s->flavour.slotless && !c->s->flavour.codes)
            add_slots(c, &a, arena_printf(&a, "g%d-%d", c->number, i));
        else if (what < 96)
            tick(c, &a);
        else
            look(c, &a);
    }
    arena_free(&a);
    return NULL;
}

/* ---- set-up ---- */

/* A coupon with one lane needs nothing of lanes/. */
static struct engine *start(const struct scenario *s, struct store_source *source, int patience_ms)
{
    static const int64_t user_bytes[] = {0, 4000, 1 << 20};
    struct engine_config config = {
        .batch_max = 16, .queue_max = 64, .requests_max = 256, .lanes_max = 8, .redo_max = 200,
        .filter_bytes = s->seed % 5 ? 1 << 16 : 0, .user_bytes = user_bytes[s->seed / 2 % 3], .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = patience_ms,
    };

    return engine_start(&config, source, s->flavour.lanes > 1 ? lanes_start : NULL);
}

/* Twice: a step is made once, also where the redo log has forgotten it and no user is known yet. With codes the job takes its turn
 * first, and another cannot have it meanwhile. */
static void generate(struct client *c, struct arena *a, int64_t n, int64_t count)
{
    bool doubtful = false;
    enum cpn_result r;

    for (int repeat = 0; repeat < 2; repeat++) {
        struct op turn = {.kind = OP_TURN, .coupon = COUPON, .arena = a, .in.job = {.id = "j", .fence = n}};
        struct op more = {.kind = OP_GENERATE, .coupon = COUPON, .arena = a, .in.job = {.id = "j", .step = n, .count = count},
                          .by = OPERATOR};

        r = c->s->flavour.codes ? ask(c, &turn, &doubtful) : CPN_OK;
        if (r != CPN_OK)
            fail(c->s->seed, "turn %lld: %s", (long long)n, result_info(r)->name);
        more.in.job.turn = turn.out.turn;
        r = ask(c, &more, &doubtful);
        if (r != CPN_OK)
            fail(c->s->seed, "generate step %lld: %s", (long long)n, result_info(r)->name);
        for (int64_t lane = 0; c->s->seed % 2 && repeat == 0 && lane < c->s->flavour.lanes; lane++)
            (void)engine_catch_up(c->s->engines[lane % 2], COUPON, lane, CHECKPOINT_MS);
    }
}

static void set_up_coupon(struct scenario *s)
{
    struct client c = {s, 0, s->seed};
    struct coupon coupon;
    struct arena a;
    struct op op = {.kind = OP_CREATE, .coupon = COUPON, .arena = &a, .by = OPERATOR};
    int64_t at_first = s->seed % 2 ? SLOTS : SLOTS_AT_FIRST;
    bool with_slots = s->seed / 2 % 2 && !s->flavour.slotless && !s->flavour.codes;
    bool doubtful = false;
    enum cpn_result r;

    arena_init(&a, 0);
    coupon_init(&coupon);
    coupon.id = COUPON;
    coupon.title = "t";
    coupon.state = COUPON_ACTIVE;
    coupon.cap.total = at_first;
    coupon.cap.per_user = PER_USER;
    coupon.low_stock = SLOTS / 2;
    coupon.lanes = s->flavour.lanes;
    if (s->flavour.slotless)
        coupon.cap.policy = CAP_APPROXIMATE;
    if (s->flavour.codes) {
        coupon.codes.source = CODES_IMPORTED;
        coupon.codes.match = MATCH_LOOSE;
        coupon.codes.pick = PICK_RANDOM;
    }
    if (s->flavour.shares) {
        coupon.codes.source = CODES_SHARED;
        coupon.codes.shared = shared_codes(0);
        coupon.codes.shared_cap = SHARED_CAP;
    }
    op.in.coupon.definition = &coupon;
    op.in.coupon.slots = with_slots ? at_first : 0;
    r = ask(&c, &op, &doubtful);
    if (r != CPN_OK && !(r == CPN_COUPON_EXISTS && doubtful)) /* nobody else makes it */
        fail(s->seed, "create: %s", result_info(r)->name);
    for (int n = 1; n <= 2 && !s->flavour.slotless && !with_slots; n++)
        generate(&c, &a, n, at_first / 2);
    if (at_first > SLOTS && !s->flavour.slotless)
        set_cap(&c, &a, SLOTS, true);
    arena_free(&a);
}

/* ---- checking ---- */

struct replay {
    struct batch **batches; /* of one lane after the other */
    size_t count;
    size_t starts[LANES + 1]; /* lane i has batches[starts[i]] and on, to starts[i + 1] */
    struct arena arena;
};

/* A refused key may be asked again, and then take. */
static bool taken_by_another_try(const struct scenario *s, const struct reply *t)
{
    for (size_t i = 0; i < s->reply_count; i++)
        if (strcmp(s->replies[i].key, t->key) == 0 && (s->replies[i].result == CPN_OK || s->replies[i].doubtful))
            return true;
    return false;
}

/* How many entries were made by the call with t's key. */
static size_t entries_of(const struct replay *r, const struct reply *t, const struct entry **entry)
{
    uint8_t hash[KEY_HASH_LEN];
    size_t count = 0;

    *entry = NULL;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->batches[i]->count; k++) {
            const struct entry *e = &r->batches[i]->entries[k];

            if (!(entry_members[e->kind] & HAS_KEY))
                continue;
            key_hash(&fake_key_secret, e->alias, t->key, hash);
            if (memcmp(hash, e->key, sizeof hash) != 0)
                continue;
            *entry = e;
            count++;
        }
    return count;
}

static bool was_redeemed(const struct replay *r, const struct reply *t)
{
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->batches[i]->count; k++) {
            const struct entry *e = &r->batches[i]->entries[k];

            if ((e->kind == ENTRY_REDEEM || e->kind == ENTRY_SPEND) && e->n == t->r.n && e->g == t->r.g)
                return true;
        }
    return false;
}

/* An answer without an entry of its own: a slot that was issued to this user before, or a redemption that another call had redeemed. */
static bool may_be_without(const struct replay *r, const struct reply *t)
{
    return t->kind == OP_TAKE ? t->r.state == SLOT_ISSUED : t->r.state == SLOT_REDEEMED && was_redeemed(r, t);
}

/* Of what has no Idempotency-Key. What a lane does by itself, and what it takes over from lane 0, is by nobody. */
static void check_operator(const struct scenario *s, const struct batch *b, const struct entry *e)
{
    bool free_choice = entry_members[e->kind] & HAS_KEY || (e->kind == ENTRY_CANCEL && !e->by); /* the user's own */
    bool theirs = entry_members[e->kind] & HAS_BY && e->kind != ENTRY_RETIRE && !job_transfers(e->job) &&
                  (b->lane == 0 || entry_members[e->kind] & HAS_USER);

    if (!free_choice && !same_text(e->by, theirs ? OPERATOR : NULL))
        fail(s->seed, "batch %lld: %s is by %s", (long long)b->head.seq, entry_kind_name(e->kind), e->by ? e->by : "nobody");
}

static void check_replies(const struct scenario *s, const struct replay *r)
{
    for (size_t i = 0; i < s->reply_count; i++) {
        const struct reply *t = &s->replies[i];
        const struct entry *e;
        size_t count = entries_of(r, t, &e);

        if (t->result != CPN_OK) {
            if (count && !t->doubtful && !taken_by_another_try(s, t))
                fail(s->seed, "key %s was refused (%s), but the ledger has it", t->key, result_info(t->result)->name);
            continue;
        }
        if (count == 0 && may_be_without(r, t))
            continue;
        if (count != 1 || e->n != t->r.n || e->g != t->r.g || strcmp(e->user, t->user) != 0)
            fail(s->seed, "key %s was given %lld-%u %s: %zu times in the ledger, as %lld-%u", t->key, (long long)t->r.n,
                 t->r.g, slot_state_name(t->r.state), count, e ? (long long)e->n : 0, e ? e->g : 0);
        else if (!same_text(e->by, operator_of(t->key)))
            fail(s->seed, "key %s: the ledger has it by %s", t->key, e->by ? e->by : "nobody");
    }
}

static size_t count_kind(const struct batch *b, enum entry_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < b->count; i++)
        count += b->entries[i].kind == kind;
    return count;
}

static void check_lane(const struct scenario *s, const struct replay *r, size_t lane)
{
    struct head before = {0};
    struct buf scratch = BUF_INIT;
    size_t events = 0, additions = 0;

    for (size_t i = r->starts[lane]; i < r->starts[lane + 1]; i++) {
        const char *wrong = batch_contradiction(&before, r->batches[i]);
        uint8_t hash[HASH_LEN];

        if (wrong)
            fail(s->seed, "batch %lld contradicts the one before: %s", (long long)r->batches[i]->head.seq, wrong);
        batch_hash(r->batches[i], &scratch, hash);
        if (memcmp(hash, r->batches[i]->head.hash, HASH_LEN) != 0)
            fail(s->seed, "batch %lld: its hash is another", (long long)r->batches[i]->head.seq);
        if (!s->flavour.slotless && (head_taken(&r->batches[i]->head) > SLOTS || head_free(&r->batches[i]->head) < 0))
            fail(s->seed, "batch %lld: more taken than there are", (long long)r->batches[i]->head.seq);
        events += count_kind(r->batches[i], ENTRY_LOW_STOCK);
        additions += count_kind(r->batches[i], ENTRY_GENERATE);
        for (size_t k = 0; k < r->batches[i]->count; k++)
            check_operator(s, r->batches[i], &r->batches[i]->entries[k]);
        for (unsigned k = 0; k < ENTRY_KIND_COUNT; k++)
            atomic_fetch_add(&shared->kinds[k], count_kind(r->batches[i], (enum entry_kind)k));
        before = r->batches[i]->head;
    }
    if (events > additions)
        fail(s->seed, "low_stock was raised %zu times, for %zu additions", events, additions);
    buf_free(&scratch);
}

/* No shared code was used more often than its cap, and the checkpoint knows how often each is. */
static void check_uses(const struct scenario *s, struct batch **batches, size_t count, const struct checkpoint *checkpoint)
{
    struct code_uses uses = {.match = MATCH_LOOSE};
    size_t stored = checkpoint->uses ? checkpoint->uses->count : 0;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < batches[i]->count; k++) {
            const struct entry *e = &batches[i]->entries[k];
            const struct code_use *use;

            code_uses_fold(&uses, e);
            use = e->shared ? code_uses_find(&uses, e->shared) : NULL;
            if (use && (use->used > SHARED_CAP || use->held < 0 || use->held > use->used))
                fail(s->seed, "batch %lld: %s is used %lld times, %lld of them held", (long long)batches[i]->head.seq, use->code,
                     (long long)use->used, (long long)use->held);
        }
    if (uses.count != stored)
        fail(s->seed, "%zu codes are used, and the checkpoint says %zu", uses.count, stored);
    for (size_t i = 0; i < uses.count && i < stored; i++) {
        const struct code_use *have = &checkpoint->uses->rows[i], *want = &uses.rows[i];

        if (strcmp(have->code, want->code) != 0 || have->used != want->used || have->held != want->held)
            fail(s->seed, "%s is used %lld times, and the checkpoint says %lld of %s", want->code, (long long)want->used,
                 (long long)have->used, have->code);
    }
    code_uses_release(&uses);
}

/* The lanes together keep to the cap, and nothing was lost or doubled between them. */
static void check_lanes(const struct scenario *s, const struct replay *r)
{
    int64_t taken = 0, elsewhere = 0, under_way = 0;
    const struct head *middle = &r->batches[r->starts[1] - 1]->head;

    for (int64_t lane = 0; lane < s->flavour.lanes; lane++) {
        const struct head *h = &r->batches[r->starts[lane + 1] - 1]->head;

        taken += head_taken(h);
        elsewhere += h->elsewhere;
        under_way -= lane ? head_taken(h) + head_free(h) : 0;
    }
    if (s->flavour.slotless)
        return;
    under_way += middle->elsewhere;
    if (taken > SLOTS)
        fail(s->seed, "%lld taken", (long long)taken);
    if (elsewhere < 0 || under_way != elsewhere)
        fail(s->seed, "between the lanes are %lld slots; lane 0 misses %lld", (long long)elsewhere, (long long)under_way);
}

static void compare_user_state(const struct scenario *s, const struct user_state *want, const struct user_state *have, int64_t at_ms)
{
    const char *wrong = have ? user_state_difference(want, have) : "everything";

    if (wrong)
        fail(s->seed, "view of %s differs in %s: have seq %lld total %lld count %zu, want seq %lld total %lld count %zu", want->user, wrong,
             have ? (long long)have->seq : -1, have ? (long long)have->total : -1, have ? have->count : 0,
             (long long)want->seq, (long long)want->total, want->count);
    if (want->total - user_state_lapsed(want, at_ms, 0) > PER_USER)
        fail(s->seed, "%s has %lld", want->user, (long long)want->total);
}

/* What an engine said of each user, while all was quiet. */
struct said {
    struct arena arena;
    struct op ops[USERS];
    char names[USERS][16];
    bool asked;
};

static void ask_of_users(const struct scenario *s, struct engine *e, struct said *said)
{
    arena_init(&said->arena, 0);
    said->asked = true;
    for (int u = 0; u < USERS; u++) {
        struct op *op = &said->ops[u];
        enum cpn_result r = CPN_BUSY;

        snprintf(said->names[u], sizeof said->names[u], "u%d", u);
        for (int tries = 0; r == CPN_BUSY && tries < TRIES_MAX; tries++) {
            *op = (struct op){.kind = OP_USER_STATE, .coupon = COUPON, .arena = &said->arena, .in.user.name = said->names[u],
                              .deadline = mono_add_ms(mono_now(), 1000)};
            r = engine_call(e, op);
        }
        if (r != CPN_OK)
            fail(s->seed, "user %s, at the end: %s", said->names[u], result_info(r)->name);
    }
}

static void check_user_states(const struct scenario *s, struct replay *r, struct said *said)
{
    for (int u = 0; said->asked && u < USERS; u++) {
        const struct op *op = &said->ops[u];
        int64_t lane = coupon_lane_of(said->names[u], s->flavour.lanes);
        struct user_state want;

        user_state_init(&want, said->names[u], "");
        for (size_t i = 0; i < r->count; i++)
            if (r->batches[i]->lane == lane && r->batches[i]->head.seq <= op->head.seq)
                fold_user_state(&want, r->batches[i], &r->arena);
        if (!user_state_is_nobody(&want))
            compare_user_state(s, &want, op->out.user.state, r->batches[r->starts[lane + 1] - 1]->head.at_ms);
        else if (!user_state_is_nobody(op->out.user.state))
            fail(s->seed, "a state of %s, of whom the ledger knows nothing", said->names[u]);
    }
    arena_free(&said->arena);
}

static void check_bucket(const struct scenario *s, const struct replay *r, struct store *session, int64_t b)
{
    struct bucket want, have;
    struct bucket_read read = {.coupon = COUPON, .b = b, .bucket = &have};

    bucket_init(&want, b);
    bucket_init(&have, b);
    for (size_t i = 0; i < r->count; i++)
        if (r->batches[i]->lane == lane_of_slot(b * BUCKET_SLOTS))
            fold_bucket(&want, r->batches[i]);
    session->ops->buckets(session, &read, 1);
    if (read.found != (want.seq > 0) || have.seq != want.seq)
        fail(s->seed, "bucket %lld: have %s of seq %lld, want seq %lld", (long long)b, read.found ? "a view" : "none", (long long)have.seq,
             (long long)want.seq);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *w = &want.slots[i], *h = &have.slots[i];
        const char *wrong = slot_difference(w, h);

        if (wrong)
            fail(s->seed, "slot %d of bucket %lld differs in %s: have %u %s, want %u %s", i, (long long)b, wrong, h->generation,
                 slot_state_name(h->state), w->generation, slot_state_name(w->state));
    }
    bucket_release(&want);
    bucket_release(&have);
}

/* Nothing ends before the time that the checkpoint says. */
static void check_due(const struct scenario *s, struct batch **batches, size_t count, const struct checkpoint *checkpoint)
{
    int64_t due_ms = 0;
    struct arena a;

    arena_init(&a, 0);
    for (int u = 0; u < USERS; u++) {
        struct user_state state;
        char name[16];

        snprintf(name, sizeof name, "u%d", u);
        user_state_init(&state, name, "");
        for (size_t i = 0; i < count; i++)
            fold_user_state(&state, batches[i], &a);
        due_ms = sooner_ms(due_ms, user_state_due(&state, 0));
    }
    arena_free(&a);
    if (due_ms && (!checkpoint->due_ms || checkpoint->due_ms > due_ms))
        fail(s->seed, "something ends at %lld, and the checkpoint says %lld", (long long)due_ms, (long long)checkpoint->due_ms);
}

/* The ledger and the checkpoint of a lane, after every engine was stopped: a lane that is loaded may
 * still retire slots that it gave away. */
static void read_lane(const struct scenario *s, struct store *session, struct replay *r, int64_t lane)
{
    struct checkpoint_read read = {.coupon = COUPON, .lane = lane, .arena = &r->arena};
    size_t count = 0;

    r->starts[lane] = r->count;
    session->ops->ledger(session, COUPON, lane, 0, 4096, r->batches + r->count, &count);
    session->ops->checkpoints(session, &read, 1);
    if (!count || read.checkpoint.seq != r->batches[r->count + count - 1]->head.seq)
        fail(s->seed, "the checkpoint of lane %lld is of %lld, of %zu batches", (long long)lane, (long long)read.checkpoint.seq, count);
    check_due(s, r->batches + r->count, count, &read.checkpoint);
    check_uses(s, r->batches + r->count, count, &read.checkpoint);
    r->count += count;
    r->starts[lane + 1] = r->count;
}

static void check_buckets(const struct scenario *s, const struct replay *r, struct store *session)
{
    for (int64_t lane = 0; lane < s->flavour.lanes && !s->flavour.slotless; lane++)
        for (int64_t n = lane * LANE_SLOTS; n < r->batches[r->starts[lane + 1] - 1]->head.next_n; n += BUCKET_SLOTS)
            check_bucket(s, r, session, bucket_of(n));
}

static void check(struct scenario *s, struct said said[2])
{
    struct store_source *source = fake_connect(s->fake);
    struct store *session = source->open(source);
    struct engine *fresh = start(s, source, WELL_MS);
    struct replay r = {.batches = calloc(4096 * LANES, sizeof *r.batches)};

    arena_init(&r.arena, 0);
    session->ops->saw(session, (struct store_time){UINT32_MAX, 0});
    for (int64_t lane = 0; lane < s->flavour.lanes; lane++)
        if (engine_catch_up(fresh, COUPON, lane, ENGINE_CATCH_UP_MS) != STORE_OK)
            fail(s->seed, "catch up of lane %lld failed", (long long)lane);
    engine_stop(fresh);
    for (int64_t lane = 0; lane < s->flavour.lanes; lane++)
        read_lane(s, session, &r, lane);
    for (int64_t lane = 0; lane < s->flavour.lanes; lane++)
        check_lane(s, &r, (size_t)lane);
    if (s->flavour.lanes > 1)
        check_lanes(s, &r);
    check_replies(s, &r);
    for (int i = 0; i < 2; i++)
        check_user_states(s, &r, &said[i]);
    check_buckets(s, &r, session);
    for (size_t i = 0; i < r.count; i++)
        batch_free(r.batches[i]);
    free(r.batches);
    arena_free(&r.arena);
    session->ops->close(session);
    fake_disconnect(source);
}

static void run_clients(struct scenario *s)
{
    struct client clients[CLIENTS];
    pthread_t threads[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){s, i, s->seed * 31 + (uint32_t)i};
        pthread_create(&threads[i], NULL, client_main, &clients[i]);
    }
    if (s->seed % 3 == 0) {
        struct timespec pause = {0, (long)(s->seed % 17) * 1000000};

        nanosleep(&pause, NULL);
        atomic_store(&s->alive, 2);
        fake_cut(s->sources[0]);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
}

static int run(uint32_t seed)
{
    struct scenario *s = calloc(1, sizeof *s);
    struct said *said = calloc(2, sizeof *said);
    int faults;

    assert(s && said);
    s->seed = seed;
    s->flavour = (struct flavour){.codes = seed % 3 == 1, .slotless = seed % 7 == 5 && seed % 3 != 1,
                                  .lanes = seed % 3 != 1 && seed % 5 < 2 ? LANES : 1,
                                  .lopsided = seed % 4 < 2};
    s->flavour.shares = s->flavour.lanes == 1 && !s->flavour.codes && seed % 8 >= 3;
    s->fake = fake_new(seed, (int)(seed % 4) * 7);
    fake_set_epoch(s->fake, seed % 11 < 3);
    pthread_mutex_init(&s->lock, NULL);
    atomic_init(&s->alive, 3);
    for (int i = 0; i < 2; i++) {
        s->sources[i] = fake_connect(s->fake);
        s->engines[i] = start(s, s->sources[i], FAILS_MS);
    }
    set_up_coupon(s);
    run_clients(s);
    faults = fake_faults(s->fake);
    fake_set_faults(s->fake, 0);
    for (int i = 0; i < 2; i++)
        if (atomic_load(&s->alive) & (1 << i))
            ask_of_users(s, s->engines[i], &said[i]);
    for (int i = 0; i < 2; i++)
        engine_stop(s->engines[i]);
    check(s, said);
    for (int i = 0; i < 2; i++)
        fake_disconnect(s->sources[i]);
    fake_free(s->fake);
    pthread_mutex_destroy(&s->lock);
    free(said);
    free(s);
    return faults;
}

static bool everything_happened(void)
{
    static const enum entry_kind elsewhere[] = {ENTRY_DELETE, ENTRY_ARCHIVE, ENTRY_TURN_END, ENTRY_REPLENISH};
    bool all = true;

    for (unsigned k = 0; k < ENTRY_KIND_COUNT; k++) {
        bool expected = true;

        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            expected = expected && elsewhere[i] != k;
        if (expected && !atomic_load(&shared->kinds[k])) {
            fprintf(stderr, "no ledger has an entry of kind %s\n", entry_kind_name((enum entry_kind)k));
            all = false;
        }
    }
    if (!atomic_load(&shared->cached) || !atomic_load(&shared->fresh) || !atomic_load(&shared->read)) {
        fprintf(stderr, "users: %d in the cache, %d new, %d read\n", atomic_load(&shared->cached), atomic_load(&shared->fresh),
                atomic_load(&shared->read));
        all = false;
    }
    if (!atomic_load(&shared->spent) || !atomic_load(&shared->held)) {
        fprintf(stderr, "shared codes: %d answers that one is spent, %d that it is held\n", atomic_load(&shared->spent),
                atomic_load(&shared->held));
        all = false;
    }
    if (!atomic_load(&shared->busy)) {
        fprintf(stderr, "nobody got busy\n");
        all = false;
    }
    return all;
}

/* Group after group, until all seeds up to the last are taken. */
static void run_groups(uint32_t last)
{
    for (uint32_t from = atomic_fetch_add(&shared->next, GROUP); from <= last; from = atomic_fetch_add(&shared->next, GROUP)) {
        uint32_t to = last - from < GROUP ? last : from + GROUP - 1;
        bool good = true;
        long faults = 0;

        for (uint32_t seed = from; seed <= to; seed++) {
            faults += run(seed);
            good = good && failed_seed != seed;
        }
        printf("%s %u - seeds %u to %u, %ld faults\n", good ? "ok" : "not ok", from / GROUP + 1, from, to, faults);
        fflush(stdout);
        if (!good)
            atomic_store(&shared->failed, true);
    }
    atomic_fetch_add(&shared->cached, (int)metrics_get(METRIC_USERS_CACHED));
    atomic_fetch_add(&shared->fresh, (int)metrics_get(METRIC_USERS_NEW));
    atomic_fetch_add(&shared->read, (int)metrics_get(METRIC_USERS_READ));
}

/* A process that dies has failed, too. */
static void run_side_by_side(uint32_t last)
{
    int status;

    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_groups(last);
            exit(0);
        }
        assert(pid > 0);
    }
    while (wait(&status) > 0)
        if (status != 0)
            atomic_store(&shared->failed, true);
}

int main(int argc, char **argv)
{
    const char *seeds = getenv("COUPONS_SEEDS");
    uint32_t last = seeds ? (uint32_t)strtoul(seeds, NULL, 10) : 1000;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || sodium_init() < 0 || log_init(NULL, LOG_ERROR) < 0)
        return 1;
    if (argc > 1) {
        run((uint32_t)strtoul(argv[1], NULL, 10));
        return failed_seed != 0;
    }
    atomic_store(&shared->next, 1);
    run_side_by_side(last);
    return atomic_load(&shared->failed) || (last >= 100 && !everything_happened());
}
