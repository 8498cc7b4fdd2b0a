/*
 * unit/test_lanes -- the lanes of one coupon in memory: how they hand each other slots and quotas, and random lives of them.
 *
 * Lives      by seed: takings and steps, gifts, gifts told of twice, late, out of order or never, decisions that are never
 *            appended, midnights, which no two lanes reach together, and changes of every cap
 * Checks     after each batch: it contradicts nothing, folding it gives the working copies; and over all lanes: no slot is lost or
 *            doubled, no cap is passed. Now and then: what a lane is refused, no lane has; at the end nothing is left over
 * Verify     a life's ledgers, told again by verify/replay, have no drift; and what is changed in them behind its back is found
 * Repeat one LANES_SEED=n build/tests/unit/test_lanes; more of them: LANES_SEEDS=count
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "unit/parts.h"
#include "unit/views.h"
#include "verify/replay.h"
#include "verify/replay_jobs.h"
#include "verify/replay_lanes.h"
#include "verify/replay_repair.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"

#define SEEDS 400
#define OPS 400
#define LANES_MOST 5
#define USERS 10
#define BUCKETS 40
#define NAMED_MOST 512
#define TOLD_MOST 2000
#define SECOND_MS INT64_C(1000)
#define MIDNIGHT (INT64_C(20000) * DAY_MS)
#define AMOUNT 100
#define SKEW_MS 2000
#define ALL (INT64_C(1) << 53)
#define BATCHES_MOST 4000

struct one_lane {
    int64_t number, skew_ms;
    const struct coupon *c; /* NULL: it does not follow yet */
    struct head tail;
    struct bucket buckets[BUCKETS];
    struct lane_account accounts[LANES_MOST]; /* by the other lane */
    struct user_state users[USERS];         /* those who belong to it */
    struct job_progress job;
    int64_t day_before_ms, day_before_taken; /* the day before its tail's */
    struct batch *ledger[BATCHES_MOST];
    size_t count;
};

/* What a giver's account said at some time. */
struct told {
    int64_t giver, taker, day_ms;
    struct gift given;
};

static struct world {
    struct arena arena;
    uint64_t random;
    int64_t lanes, now_ms;
    struct one_lane lane[LANES_MOST];
    struct told told[TOLD_MOST];
    size_t told_count;
    int64_t stock;              /* slots made, less those retired for good */
    int64_t job_step;
    int64_t day_most, minor_most; /* takings of a day, and discount, that may be counted: the caps; or what was when they changed */
    int64_t changed_day_ms, changed_day_most; /* the day on which that of a day changed last */
    bool changes;
    int events;                 /* of low stock and sold out since slots were made */
    size_t seen[CPN_RESULT_COUNT], lacked[QUOTA_COUNT], crashes, settled;
} w;

/* The decision that is being made, and the working copies. */
static struct {
    struct one_lane *l;
    struct batch *batch;
    const struct batch *appended; /* the last one */
    struct decision d;
    struct named_slot named[NAMED_MOST];
    struct free_slot free_pool[BUCKETS * BUCKET_SLOTS];
    struct user_state users[USERS];
    struct lane_account accounts[LANES_MOST];
    struct job_progress job;
} t;

static struct buf scratch;
static unsigned seed;

static uint32_t next_random(void)
{
    w.random = w.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w.random >> 33);
}

static bool chance(int percent)
{
    return (int)(next_random() % 100) < percent;
}

static int64_t up_to(int64_t most)
{
    return (int64_t)(next_random() % (uint32_t)(most + 1));
}

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        print_error("LANES_SEED=%u: ", seed);                                                                          \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

/* ---- the world ---- */

static void world_init(int64_t lanes)
{
    char name[64];

    arena_init(&w.arena, 0);
    w.lanes = lanes;
    w.now_ms = MIDNIGHT + DAY_MS / 2;
    w.day_most = w.minor_most = INT64_MAX;
    for (int64_t i = 0; i < lanes; i++) {
        struct one_lane *l = &w.lane[i];

        *l = (struct one_lane){.number = i};
        for (int64_t k = 0; k < BUCKETS; k++)
            bucket_init(&l->buckets[k], i * LANE_SLOTS / BUCKET_SLOTS + k);
        for (int64_t k = 0; k < lanes; k++)
            l->accounts[k] = (struct lane_account){.lane = i, .peer = k};
        for (int k = 0, number = 0; k < USERS; number++) {
            snprintf(name, sizeof name, "user-%d", number);
            if (coupon_lane_of(name, lanes) == i)
                user_state_init(&l->users[k++], arena_strdup(&w.arena, name), "");
        }
        l->job.id = "j1";
    }
}

static void forget_named(void)
{
    for (size_t i = 0; i < t.d.named_count; i++)
        free(t.named[i].slot.user);
    t.d.named_count = 0;
}

static void world_free(void)
{
    forget_named();
    batch_free(t.batch);
    t.batch = NULL;
    for (int64_t i = 0; i < w.lanes; i++) {
        for (int k = 0; k < BUCKETS; k++)
            bucket_release(&w.lane[i].buckets[k]);
        for (size_t k = 0; k < w.lane[i].count; k++)
            batch_free(w.lane[i].ledger[k]);
    }
    arena_free(&w.arena);
    buf_free(&scratch);
}

static int world_teardown(void **state)
{
    (void)state;
    world_free();
    memset(&w, 0, sizeof w);
    return 0;
}

static struct coupon *new_coupon(void)
{
    struct coupon *c = arena_alloc(&w.arena, sizeof *c);

    coupon_init(c);
    c->id = "sale";
    c->title = "Sale";
    c->state = COUPON_ACTIVE;
    c->cap.total = 200;
    c->cap.per_user = COUPON_NULL;
    c->discount.kind = DISCOUNT_AMOUNT;
    c->discount.amount_minor = AMOUNT;
    c->discount.currency = "EUR";
    c->lanes = w.lanes;
    return c;
}

/* ---- a decision ---- */

static int by_number(const void *a, const void *b)
{
    const struct named_slot *x = a, *y = b;

    return x->n < y->n ? -1 : x->n > y->n;
}

/* The slots in which the lane's users stand. */
static void name_slots(void)
{
    for (int i = 0; i < USERS; i++)
        for (size_t k = 0; k < t.users[i].count; k++) {
            const struct redemption *r = &t.users[i].redemptions[k];
            struct slot *s = &t.l->buckets[bucket_of(r->n % LANE_SLOTS)].slots[r->n % BUCKET_SLOTS];

            if (r->ended_ms || s->current != r->g)
                continue;
            assert_in_range(t.d.named_count, 0, NAMED_MOST - 1);
            t.named[t.d.named_count] = (struct named_slot){.n = r->n, .slot = *s};
            if (s->user)
                t.named[t.d.named_count].slot.user = strdup(s->user);
            t.d.named_count++;
        }
    qsort(t.named, t.d.named_count, sizeof *t.named, by_number);
    t.d.named = t.named;
}

static void fill_free_pool(void)
{
    int64_t first = up_to(BUCKETS - 1);

    for (int64_t b = 0; b < BUCKETS; b++) {
        const struct bucket *k = &t.l->buckets[(first + b) % BUCKETS];

        for (int i = 0; i < k->size; i++)
            if (k->slots[i].state == SLOT_FREE)
                t.free_pool[t.d.free_pool_count++] = (struct free_slot){k->b * BUCKET_SLOTS + i, k->slots[i].generation, NULL};
    }
    t.d.free_pool = t.free_pool;
}

static int64_t start_of_day(int64_t at_ms)
{
    return at_ms - at_ms % DAY_MS;
}

static void others_of(const struct one_lane *l, struct others *others)
{
    for (int64_t i = 0; i < w.lanes; i++) {
        const struct head *h = &w.lane[i].tail;

        if (i == 0)
            others->stock = head_stock(h);
        if (i == l->number)
            continue;
        others->taken += head_taken(h);
        others->reserved += h->reserved;
        others->takings += head_takings(h);
        others->discount_minor += h->discount_minor;
        if (h->day_ms == start_of_day(w.now_ms))
            others->day_taken += h->day_taken;
    }
}

static void begin(int64_t lane)
{
    struct one_lane *l = &w.lane[lane];
    int64_t at_ms = w.now_ms + l->skew_ms > l->tail.at_ms ? w.now_ms + l->skew_ms : l->tail.at_ms;

    forget_named();
    batch_free(t.batch);
    t.l = l;
    t.batch = batch_new("sale", lane);
    decide_begin(&t.d, t.batch, l->c, &l->tail, at_ms, start_of_day(at_ms), start_of_day(at_ms) + DAY_MS);
    for (int i = 0; i < USERS; i++)
        t.users[i] = *user_state_copy(&l->users[i], &w.arena, true);
    for (int64_t i = 0; i < w.lanes; i++)
        t.accounts[i] = l->accounts[i];
    t.job = l->job;
    others_of(l, &t.d.others);
    name_slots();
    fill_free_pool();
}

/* The view, folded over the batch, is the working copy. */
static void close_user_state(struct user_state *view, struct user_state *working)
{
    struct user_state folded = *user_state_copy(view, &w.arena, true);
    const char *wrong;

    if (!fold_user_state(&folded, t.batch, &w.arena))
        return;
    fold_user_state_done(working, &t.d.head);
    wrong = user_state_difference(&folded, working);
    if (wrong)
        FAIL("folding differs in %s of %s", wrong, view->user);
    *view = *user_state_copy(working, &w.arena, true);
}

static void close_account(struct lane_account *view, const struct lane_account *working)
{
    const char *wrong;

    fold_account(view, t.batch);
    wrong = account_difference(view, working);
    if (wrong)
        FAIL("folding differs in %s of the account of lane %d with %d", wrong, (int)view->lane, (int)view->peer);
}

static void close_job(struct job_progress *view, const struct job_progress *working)
{
    const char *wrong;

    fold_job(view, t.batch);
    wrong = job_difference(view, working);
    if (wrong)
        FAIL("folding differs in %s of job %s", wrong, view->id);
}

static void close_buckets(struct one_lane *l)
{
    int64_t existing = 0, free_slots = 0;

    for (int k = 0; k < BUCKETS; k++) {
        struct bucket *bucket = &l->buckets[k];

        fold_bucket(bucket, t.batch);
        bucket_fit(bucket, l->tail.next_n);
        assert_int_equal(bucket->lane, l->number);
        free_slots += bucket_free_count(bucket) - (BUCKET_SLOTS - bucket->size);
        for (int i = 0; i < bucket->size; i++)
            existing += bucket->slots[i].state != SLOT_RETIRED;
    }
    if (existing != l->tail.slots || free_slots != head_free(&l->tail) + l->tail.due)
        FAIL("lane %d has %d slots, %d free; its totals say %d, %d", (int)l->number, (int)existing, (int)free_slots,
             (int)l->tail.slots, (int)(head_free(&l->tail) + l->tail.due));
    assert_int_equal(l->number, lane_of_slot(fold_next_n(&l->tail, l->number)));
}

static void check_sums(void);

static void remember_account(const struct one_lane *l, int64_t peer)
{
    const struct lane_account *a = &l->accounts[peer];
    struct told told = {l->number, peer, a->day_ms, a->given};

    if (a->seq && w.told_count < TOLD_MOST)
        w.told[w.told_count++] = told;
}

/* Append what was decided. False: nothing was, or the process died before. */
static bool append_or_crash(int crash_percent)
{
    struct one_lane *l = t.l;
    const char *wrong;

    if (!decide_changed(&t.d))
        return false;
    if (chance(crash_percent)) {
        w.crashes++;
        return false;
    }
    decide_end(&t.d, &l->tail, &scratch);
    wrong = batch_contradiction(&l->tail, t.batch);
    if (wrong)
        FAIL("contradiction in %s", wrong);
    assert_int_equal(t.batch->lanes, w.lanes);
    if (l->tail.day_ms != t.batch->head.day_ms) {
        l->day_before_ms = l->tail.day_ms;
        l->day_before_taken = l->tail.day_taken;
    }
    l->tail = t.batch->head;
    for (int i = 0; i < USERS; i++)
        close_user_state(&l->users[i], &t.users[i]);
    for (int64_t i = 0; i < w.lanes; i++)
        close_account(&l->accounts[i], &t.accounts[i]);
    close_job(&l->job, &t.job);
    close_buckets(l);
    if (t.d.coupon != l->c)
        l->c = coupon_copy(t.d.coupon, &w.arena);
    for (int64_t i = 0; i < w.lanes; i++)
        remember_account(l, i);
    check_sums();
    assert_in_range(l->count, 0, BATCHES_MOST - 1);
    l->ledger[l->count++] = t.batch;
    t.appended = t.batch;
    t.batch = NULL;
    return true;
}

/* ---- what must hold over all lanes ---- */

/* What `giver` gave `taker` and was not taken: never less than nothing. */
static struct gift under_way(int64_t giver, int64_t taker)
{
    const struct lane_account *from = &w.lane[giver].accounts[taker], *to = &w.lane[taker].accounts[giver];
    struct gift g = {from->given.slots - to->got.slots, 0, from->given.minor - to->got.minor};

    if (from->day_ms == to->day_ms)
        g.day = from->given.day - to->got.day;
    if (g.slots < 0 || g.minor < 0 || g.day < 0)
        FAIL("lane %d got more of lane %d than that gave", (int)taker, (int)giver);
    return g;
}

static int64_t taken_in(const struct one_lane *l, int64_t day_ms)
{
    return l->tail.day_ms == day_ms ? l->tail.day_taken : l->day_before_ms == day_ms ? l->day_before_taken : 0;
}

static int64_t taken_on_day(int64_t day_ms)
{
    int64_t taken = 0;

    for (int64_t i = 0; i < w.lanes; i++)
        taken += taken_in(&w.lane[i], day_ms);
    return taken;
}

static int64_t discount_of_all(void)
{
    int64_t minor = 0;

    for (int64_t i = 0; i < w.lanes; i++)
        minor += w.lane[i].tail.discount_minor;
    return minor;
}

static void check_caps(void)
{
    int64_t day_ms = start_of_day(w.now_ms), minor = discount_of_all();

    for (int k = 0; k < 2; k++, day_ms += DAY_MS) { /* a lane's clock may be ahead */
        int64_t most = day_ms == w.changed_day_ms ? w.changed_day_most : w.day_most;

        if (taken_on_day(day_ms) > most)
            FAIL("%d taken on a day, of %d", (int)taken_on_day(day_ms), (int)most);
    }
    if (minor > w.minor_most)
        FAIL("%d of discount, of %d", (int)minor, (int)w.minor_most);
    if (w.changes)
        return;
    for (int64_t i = 0; i < w.lanes; i++)
        for (enum quota quota = QUOTA_SLOTS; quota < QUOTA_COUNT; quota++)
            if (w.lane[i].c && quota_left(w.lane[i].c, i, &w.lane[i].tail, quota) < 0)
                FAIL("lane %d has less than nothing of quota %d", (int)i, (int)quota);
}

static void check_sums(void)
{
    const struct coupon *c = w.lane[0].c;
    int64_t here = 0, moving = 0, elsewhere = 0, minor_elsewhere = 0, minor_moving = 0;

    for (int64_t i = 0; i < w.lanes; i++) {
        const struct head *h = &w.lane[i].tail;

        here += h->slots - h->due;
        elsewhere += h->elsewhere;
        minor_elsewhere += h->minor_elsewhere;
        assert_true(w.lane[i].tail.version <= w.lane[0].tail.version);
        if (i == 0)
            continue;
        moving += under_way(0, i).slots + under_way(i, 0).slots;
        minor_moving += under_way(0, i).minor + under_way(i, 0).minor;
    }
    if (here + moving != w.stock || head_stock(&w.lane[0].tail) != w.stock || elsewhere != moving)
        FAIL("%d slots in lanes and %d under way (totals: %d), lane 0 says %d, there are %d", (int)here, (int)moving,
             (int)elsewhere, (int)head_stock(&w.lane[0].tail), (int)w.stock);
    assert_int_equal(minor_elsewhere, minor_moving);
    assert_true(w.stock <= c->cap.total);
    check_caps();
}

/* ---- what lanes and their users do ---- */

static void count_outcome(const struct outcome *out)
{
    w.seen[out->result]++;
    w.lacked[out->lacks]++;
}

static struct order order = {.amount_minor = 1000, .currency = "EUR"};

/* The outcome of a taking by a user of this lane. *appended: it was. */
static struct outcome take(int64_t lane, int user, int crash_percent, bool *appended)
{
    static const enum slot_state states[] = {SLOT_REDEEMED, SLOT_RESERVED, SLOT_ISSUED};
    static int keys;
    struct take take = {.order = &order, .code_n = -1, .state = states[up_to(2)], .reserve_s = 1 + up_to(100)};
    char key[32];
    struct outcome out;

    snprintf(key, sizeof key, "k-%d", keys++);
    take.key = key;
    begin(lane);
    if (!decide_take(&t.d, &t.users[user], &take, &out)) { /* what is free now was this user's, and lapsed */
        assert_true(append_or_crash(0));
        begin(lane);
        assert_true(decide_take(&t.d, &t.users[user], &take, &out));
    }
    count_outcome(&out);
    *appended = append_or_crash(crash_percent);
    return out;
}

static void step_somewhere(void)
{
    static const enum slot_move steps[] = {MOVE_RESERVE, MOVE_REDEEM, MOVE_CANCEL, MOVE_CANCEL, MOVE_REVERSE};
    int64_t lane = up_to(w.lanes - 1);
    int user = (int)up_to(USERS - 1);
    const struct user_state *u = &w.lane[lane].users[user];
    static int keys;
    struct outcome out;
    char key[32];

    if (!u->count || !w.lane[lane].c)
        return;
    snprintf(key, sizeof key, "s-%d", keys++);
    const struct redemption *r = &u->redemptions[up_to((int64_t)u->count - 1)];
    struct step s = {.n = r->n, .g = r->g, .move = steps[up_to(4)], .key = key, .order = &order, .reserve_s = COUPON_NULL};

    begin(lane);
    decide_step(&t.d, &t.users[user], &s, &out);
    count_outcome(&out);
    append_or_crash(5);
}

static bool give(int64_t giver, int64_t taker, struct gift want, int crash_percent)
{
    struct outcome out;

    begin(giver);
    decide_give(&t.d, &t.accounts[taker], &want, &out);
    return append_or_crash(crash_percent);
}

static bool get(const struct told *told, int64_t most, int crash_percent)
{
    struct outcome out;

    begin(told->taker);
    decide_get(&t.d, &t.accounts[told->giver], &told->given, told->day_ms, most, &out);
    if (decide_changed(&t.d))
        assert_in_range(t.batch->entries[0].count, 0, most);
    return append_or_crash(crash_percent);
}

/* All that was ever given. True: something was new. */
static bool get_now(int64_t giver, int64_t taker)
{
    const struct lane_account *a = &w.lane[giver].accounts[taker];
    struct told told = {giver, taker, a->day_ms, a->given};
    bool moved = false;

    if (!a->seq || !w.lane[taker].c)
        return false;
    while (get(&told, 64, 0))
        moved = true;
    return moved;
}

static void follow(int64_t lane, int crash_percent)
{
    begin(lane);
    decide_follow(&t.d, w.lane[0].c);
    append_or_crash(crash_percent);
}

static struct gift random_want(void)
{
    return (struct gift){up_to(20) - 2, up_to(10) - 2, up_to(10 * AMOUNT) - 100};
}

static void give_somewhere(void)
{
    int64_t other = 1 + up_to(w.lanes - 2);
    bool out = chance(60);

    if (!w.lane[out ? 0 : other].c)
        return;
    if (give(out ? 0 : other, out ? other : 0, random_want(), 10) && chance(60))
        get_now(out ? 0 : other, out ? other : 0);
}

/* Somebody tells of a gift: lately, or long ago. */
static void get_somewhere(void)
{
    size_t back = chance(50) ? (size_t)up_to(5) : (size_t)up_to(TOLD_MOST);

    if (back < w.told_count && w.lane[w.told[w.told_count - 1 - back].taker].c)
        get(&w.told[w.told_count - 1 - back], 1 + up_to(30), 10);
}

static void generate(int64_t count)
{
    struct lane_account *accounts[LANES_MOST];
    bool again = w.job_step > 0 && chance(20);
    int64_t step = again ? w.job_step : w.job_step + 1;
    struct outcome out;

    begin(0);
    for (int64_t i = 0; i < w.lanes; i++)
        accounts[i] = &t.accounts[i];
    decide_generate(&t.d, &t.job, accounts, step, count, 0, &out);
    count_outcome(&out);
    assert_int_equal(out.replayed, again);
    if (out.result != CPN_OK || again)
        return;
    if (chance(10))
        return; /* it died before the append */
    w.stock += count;
    w.job_step = step;
    w.events = 0;
    assert_true(append_or_crash(0));
}

static void retire_somewhere(void)
{
    int64_t lane = up_to(w.lanes - 1);

    if (!w.lane[lane].c)
        return;
    begin(lane);
    decide_retire(&t.d, up_to(64));
    append_or_crash(10);
}

static void count_events(void)
{
    for (size_t i = 0; i < t.appended->count; i++) {
        const struct entry *e = &t.appended->entries[i];

        w.events += e->kind == ENTRY_SOLD_OUT || e->kind == ENTRY_LOW_STOCK;
        if (e->kind == ENTRY_REPLENISH)
            assert_true(e->count > w.stock && e->count <= w.lane[0].c->cap.total);
    }
    assert_in_range(w.events, 0, 2); /* each once, until slots are made */
}

static int64_t free_in_all(void)
{
    int64_t left = 0;

    for (int64_t i = 0; i < w.lanes; i++)
        left += head_free(&w.lane[i].tail);
    return left;
}

static int64_t taken_in_all(void)
{
    int64_t taken = 0;

    for (int64_t i = 0; i < w.lanes; i++)
        taken += head_taken(&w.lane[i].tail);
    return taken;
}

static void raise_events(void)
{
    begin(0);
    decide_events_of_all(&t.d, taken_in_all());
    if (append_or_crash(10))
        count_events();
}

/* ---- looking for more, and settling, as the engine does ---- */

static void collect(struct gift want, int64_t but)
{
    for (int64_t i = 1; i < w.lanes; i++) {
        if (!w.lane[i].c)
            follow(i, 0);
        get_now(0, i);
        if (i != but)
            give(i, 0, want, 0);
        get_now(i, 0);
    }
}

static void fetch(int64_t lane, enum quota quota, int64_t need)
{
    struct gift want = {-1, -1, -1};

    *(quota == QUOTA_SLOTS ? &want.slots : quota == QUOTA_DAY ? &want.day : &want.minor) = need;
    collect(want, lane);
    if (lane == 0)
        return;
    give(0, lane, want, 0);
    get_now(0, lane);
}

/* Today, though the lane may not have been told of it. */
static int64_t left_of(int64_t lane, enum quota quota)
{
    struct head h = w.lane[lane].tail;

    fold_day(&h, w.now_ms, start_of_day(w.now_ms));
    return quota_left(w.lane[lane].c, lane, &h, quota);
}

static int64_t left_in_all(enum quota quota)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < w.lanes; i++) {
        int64_t left = left_of(i, quota);

        if (left == INT64_MAX) /* there is no cap */
            return left;
        sum += left > 0 ? left : 0;
    }
    return sum;
}

/* Some lane is below 0 of a quota, and another one above. */
static bool is_unsettled(enum quota quota)
{
    bool below = false, above = false;

    for (int64_t i = 0; i < w.lanes; i++) {
        below = below || left_of(i, quota) < 0;
        above = above || left_of(i, quota) > 0;
    }
    return below && above;
}

/* A user takes; what the lane lacks is looked for everywhere. What is refused then, there is none of. */
static void take_somewhere(void)
{
    int64_t lane = up_to(w.lanes - 1), day_ms = start_of_day(w.now_ms), left;
    int user = (int)up_to(USERS - 1);
    struct outcome out;
    enum quota lacked;
    bool appended;

    if (!w.lane[lane].c)
        return;
    out = take(lane, user, 5, &appended);
    if (!out.lacks || chance(40))
        return;
    for (int64_t i = 0; i < w.lanes; i++)
        if (w.lane[i].skew_ms || w.lane[i].tail.day_ms > day_ms)
            return; /* their clocks differ */
    lacked = out.lacks;
    fetch(lane, lacked, out.need);
    out = take(lane, user, 0, &appended);
    left = left_in_all(lacked);
    if (out.lacks == lacked && !is_unsettled(lacked) && left >= (lacked == QUOTA_BUDGET ? AMOUNT : 1))
        FAIL("%s, with %d left of quota %d", result_info(out.result)->name, (int)left, (int)lacked);
}

/* After a change, before it is answered: see decide.h. Meanwhile users go on. */
static void settle(void)
{
    int tries = 0;

    do {
        if (++tries == 100)
            FAIL("the lanes do not settle");
        for (int64_t i = 1; i < w.lanes; i++)
            follow(i, 0);
        if (chance(50))
            take_somewhere();
        collect((struct gift){-1, ALL, ALL}, 0);
        if (chance(50))
            take_somewhere();
        for (int64_t i = 1; i < w.lanes; i++) {
            int64_t day = -left_of(i, QUOTA_DAY), minor = -left_of(i, QUOTA_BUDGET);

            if (day > 0 || minor > 0)
                give(0, i, (struct gift){-1, day > 0 ? day : -1, minor > 0 ? minor : -1}, 0);
            get_now(0, i);
        }
        w.now_ms += 500;
    } while (is_unsettled(QUOTA_DAY) || is_unsettled(QUOTA_BUDGET));
    w.settled++;
}

static int64_t most_of(int64_t cap, int64_t taken)
{
    return cap == COUPON_NULL ? INT64_MAX : cap > taken ? cap : taken;
}

static void change(void)
{
    struct coupon *next = coupon_copy(w.lane[0].c, &w.arena);
    int64_t version = next->version, excess, before = w.stock;
    struct outcome out = {.result = CPN_OK};

    if (chance(40))
        next->cap.total = 1 + up_to(250);
    if (w.changes && chance(50))
        next->cap.per_day = chance(20) ? COUPON_NULL : 1 + up_to(60);
    if (w.changes && chance(50))
        next->cap.discount_minor = chance(20) ? COUPON_NULL : 1 + up_to(60 * AMOUNT);
    if (w.changes)
        w.minor_most = w.changed_day_most = INT64_MAX;
    w.changed_day_ms = start_of_day(w.now_ms);
    for (int tries = 0; tries < 3; tries++) {
        begin(0);
        decide_change(&t.d, next, version, &out);
        count_outcome(&out);
        if (out.lacks != QUOTA_SLOTS)
            break;
        collect((struct gift){out.need, -1, -1}, 0);
    }
    excess = w.stock - next->cap.total;
    if (out.result == CPN_OK) {
        w.stock -= excess > 0 ? excess : 0;
        assert_true(append_or_crash(0));
    } else {
        assert_int_equal(out.result, CPN_CAP_BELOW_TAKEN);
        if (before - free_in_all() <= next->cap.total)
            FAIL("%d are taken, and the cap may not be %d", (int)(before - free_in_all()), (int)next->cap.total);
    }
    if (!w.changes)
        return;
    settle();
    w.day_most = most_of(w.lane[0].c->cap.per_day, 0);
    w.changed_day_most = most_of(w.lane[0].c->cap.per_day, taken_on_day(w.changed_day_ms));
    w.minor_most = most_of(w.lane[0].c->cap.discount_minor, discount_of_all());
}

/* Clocks that agree, and are not about to strike: what a cap means on a day when it changes is hard enough to say. */
static void change_somewhat(void)
{
    if (DAY_MS - w.now_ms % DAY_MS < 120 * SECOND_MS)
        return;
    w.now_ms += SKEW_MS;
    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = 0;
    change();
    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = chance(30) ? up_to(SKEW_MS) : 0;
}

/* ---- lives ---- */

static void pass_time(void)
{
    int64_t to_midnight = DAY_MS - w.now_ms % DAY_MS;

    if (chance(10))
        w.now_ms += to_midnight > 5000 ? to_midnight - 5000 : 500;
    else
        w.now_ms += up_to(chance(50) ? 300 : 100 * SECOND_MS);
}

static void live_a_moment(void)
{
    switch (up_to(20)) {
    case 0:
        generate(1 + up_to(40));
        break;
    case 1:
    case 2:
        give_somewhere();
        break;
    case 3:
    case 4:
        get_somewhere();
        break;
    case 5:
        retire_somewhere();
        break;
    case 6:
        raise_events();
        break;
    case 7:
        follow(1 + up_to(w.lanes - 2), 10);
        break;
    case 8:
        if (chance(30))
            change_somewhat();
        break;
    case 9:
    case 10:
    case 11:
    case 12:
        step_somewhere();
        break;
    case 13:
        pass_time();
        break;
    default:
        take_somewhere();
    }
}

/* Everything that was given is taken, and comes back to lane 0: there is as much as was never taken, and it can be taken. */
static void come_to_rest(void)
{
    const struct coupon *c;
    bool appended;

    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = 0;
    w.now_ms = start_of_day(w.now_ms) + DAY_MS + DAY_MS / 2;
    for (int64_t i = 1; i < w.lanes; i++)
        follow(i, 0);
    collect((struct gift){ALL, ALL, ALL}, 0);
    c = w.lane[0].c;
    for (int64_t i = 1; i < w.lanes; i++) {
        assert_int_equal(under_way(0, i).slots + under_way(i, 0).slots, 0);
        assert_int_equal(head_free(&w.lane[i].tail), 0);
    }
    if (c->cap.discount_minor != COUPON_NULL && !w.changes)
        assert_int_equal(left_in_all(QUOTA_BUDGET), c->cap.discount_minor - discount_of_all());
    for (int64_t left = head_free(&w.lane[0].tail); left > 0 && left_in_all(QUOTA_DAY) > 0 &&
                                                  left_in_all(QUOTA_BUDGET) >= AMOUNT; left--) {
        assert_int_equal(take(0, (int)up_to(USERS - 1), 0, &appended).result, CPN_OK);
        assert_true(appended);
    }
}

static void live(void)
{
    struct lane_account *accounts[LANES_MOST];
    struct wish wish = {.accounts = accounts};
    struct coupon *c;
    struct outcome out;

    w.random = seed * 2654435761u + 7;
    world_init(2 + up_to(LANES_MOST - 2));
    w.changes = chance(50);
    c = new_coupon();
    c->cap.per_day = chance(50) ? 1 + up_to(60) : COUPON_NULL;
    c->cap.discount_minor = chance(50) ? 1 + up_to(80 * AMOUNT) : COUPON_NULL;
    c->low_stock = chance(50) ? 10 : COUPON_NULL;
    c->replenish.below = chance(30) ? 5 : COUPON_NULL;
    c->replenish.add = c->replenish.below != COUPON_NULL ? 20 : COUPON_NULL;
    w.day_most = w.changed_day_most = most_of(c->cap.per_day, 0);
    w.minor_most = most_of(c->cap.discount_minor, 0);
    begin(0);
    if (chance(50))
        w.stock = wish.slots = 1 + up_to(100);
    for (int64_t i = 0; i < w.lanes; i++)
        accounts[i] = &t.accounts[i];
    decide_create(&t.d, c, &wish, &out);
    assert_true(append_or_crash(0));
    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = chance(30) ? up_to(SKEW_MS) : 0;
    for (int i = 0; i < OPS; i++)
        live_a_moment();
    come_to_rest();
}

/* ---- told again ---- */

static struct lane_sums sums[LANES_MOST];
static const struct name_key name_key = {{{7}}};
static char found[16384]; /* the drifts, a line each */

static void note(void *context, const struct drift *d)
{
    size_t len = strlen(found);

    (void)context;
    snprintf(found + len, sizeof found - len, "%s|%s|%s|%s|%s\n", d->what, d->where, d->field,
             d->expected ? d->expected : "-", d->found ? d->found : "-");
}

static int64_t seq_of_definition(void)
{
    int64_t seq = 0;

    for (size_t k = 0; k < w.lane[0].count; k++)
        for (size_t i = 0; i < w.lane[0].ledger[k]->count; i++) {
            enum entry_kind kind = w.lane[0].ledger[k]->entries[i].kind;

            if (kind == ENTRY_DEFINE || kind == ENTRY_DELETE)
                seq = w.lane[0].ledger[k]->head.seq;
        }
    return seq;
}

/* A tombstone has no name. */
static void give_user_state(struct replay *r, const struct user_state *u)
{
    const struct name_hash hash = name_hash(&name_key, u->user);
    struct user_state stored = *u;

    if (u->erased_ms)
        stored.user = NULL;
    replay_view_user_state(r, &hash, stored.user, &stored);
}

/* All views of all lanes: which are the lane's is for the replay to know. */
static void give_views(struct replay *r)
{
    for (int64_t i = 0; i < w.lanes; i++) {
        const struct one_lane *l = &w.lane[i];

        for (int k = 0; k < USERS; k++)
            if (l->users[k].seq)
                give_user_state(r, &l->users[k]);
        for (int64_t k = 0; k < w.lanes; k++)
            if (l->accounts[k].seq)
                replay_view_account(r, i, k, &l->accounts[k]);
        if (l->job.seq)
            replay_view_job(r, l->job.id, &l->job);
        for (int k = 0; k < BUCKETS; k++)
            if (l->buckets[k].seq)
                replay_view_bucket(r, l->buckets[k].b, &l->buckets[k]);
    }
}

/* The lane's batches but the last `less`. */
static struct replay *tell_lane(int64_t lane, size_t less, unsigned parts)
{
    const struct one_lane *l = &w.lane[lane];
    struct replay *r = replay_new((struct replay_parts){parts, parts > 1 ? 3 : 0, lane, w.lanes}, &name_key, note, NULL);
    struct parts p;

    parts_begin(&p, r);
    replay_marks(r, l->tail.seq, 0);
    if (lane == 0)
        replay_view_coupon(r, l->c, true, seq_of_definition(), l->ledger[0]->head.at_ms);
    give_views(r);
    replay_sum(r, &sums[lane]);
    for (size_t k = 0; k + less < l->count; k++)
        replay_batch(r, l->ledger[k]);
    if (parts > 1)
        parts_end(&p, r, note, NULL, NULL, false, NULL);
    replay_end(r);
    return r;
}

static void forget_sums(void)
{
    for (int64_t i = 0; i < LANES_MOST; i++)
        lane_sums_release(&sums[i]);
}

static void tell_all(void)
{
    found[0] = '\0';
    forget_sums();
    for (int64_t i = 0; i < w.lanes; i++) {
        replay_free(tell_lane(i, 0, 1));
        lane_sums_rest(&sums[i]);
    }
    lane_sums_compare(sums, (size_t)w.lanes, true, note, NULL);
}

static void expect_no_drift(void)
{
    tell_all();
    if (found[0])
        FAIL("%s", found);
}

static void expect_drift(const char *line)
{
    if (!strstr(found, line))
        fail_msg("no drift \"%s\" in:\n%s", line, found);
}

static void nothing_is_lost_or_doubled_in_random_lives(void **state)
{
    const char *only = getenv("LANES_SEED"), *count = getenv("LANES_SEEDS");
    unsigned last = only ? (unsigned)strtoul(only, NULL, 10) : count ? (unsigned)strtoul(count, NULL, 10) : SEEDS;
    size_t lacked[QUOTA_COUNT] = {0}, crashes = 0, settled = 0, below = 0;

    (void)state;
    for (seed = only ? last : 1; seed <= last; seed++) {
        live();
        expect_no_drift();
        forget_sums();
        for (int i = 0; i < QUOTA_COUNT; i++)
            lacked[i] += w.lacked[i];
        crashes += w.crashes;
        settled += w.settled;
        below += w.seen[CPN_CAP_BELOW_TAKEN];
        world_teardown(NULL);
    }
    if (only)
        return;
    for (enum quota quota = QUOTA_SLOTS; quota < QUOTA_COUNT; quota++)
        assert_in_range(lacked[quota], last, 1000000);
    assert_in_range(crashes, last, 1000000);
    assert_in_range(settled, last, 1000000);
    assert_in_range(below, last / 10, 1000000);
}

/* ---- one by one ---- */

static struct coupon *definition;

/* Three lanes of a coupon of 200 slots, none of them made. */
static int three_lanes(void **state)
{
    struct outcome out;

    (void)state;
    seed = 0;
    world_init(3);
    definition = new_coupon();
    begin(0);
    decide_create(&t.d, definition, NULL, &out);
    assert_true(append_or_crash(0));
    for (int64_t i = 1; i < 3; i++)
        follow(i, 0);
    return 0;
}

static void make(int64_t count)
{
    struct lane_account *accounts[] = {NULL, &t.accounts[1], &t.accounts[2]};
    struct outcome out;

    begin(0);
    decide_generate(&t.d, &t.job, accounts, ++w.job_step, count, 0, &out);
    assert_int_equal(out.result, CPN_OK);
    w.stock += count;
    assert_true(append_or_crash(0));
}

static void each_lane_gets_its_part_of_what_is_made_and_numbers_it_itself(void **state)
{
    (void)state;
    make(101);
    assert_int_equal(t.appended->count, 3);
    assert_int_equal(t.appended->entries[0].count, 35);
    assert_int_equal(t.appended->entries[0].gift.slots, 66);
    assert_true(t.appended->entries[1].fresh);
    assert_string_equal(t.appended->entries[1].job, "lane-0-1");
    assert_int_equal(w.lane[0].tail.slots, 35);
    assert_int_equal(w.lane[0].tail.due, 0);
    assert_int_equal(w.lane[0].job.total, 101);
    assert_true(get_now(0, 2));
    assert_int_equal(w.lane[2].tail.slots, 33);
    assert_int_equal(w.lane[2].tail.next_n, 2 * LANE_SLOTS + 33);
    assert_false(get_now(0, 2)); /* told again */
    assert_int_equal(w.lane[1].tail.slots, 0);
}

static void a_cap_counts_the_slots_of_all_lanes(void **state)
{
    struct outcome out;

    (void)state;
    make(150);
    get_now(0, 1);
    begin(0);
    decide_generate(&t.d, &t.job, NULL, 2, 51, 0, &out);
    assert_int_equal(out.result, CPN_CAP_EXCEEDED);
    make(50);
}

static void a_lane_says_what_it_lacks(void **state)
{
    struct outcome out;
    bool appended;

    (void)state;
    out = take(1, 0, 0, &appended);
    assert_int_equal(out.result, CPN_SOLD_OUT);
    assert_int_equal(out.lacks, QUOTA_SLOTS);
    assert_int_equal(out.need, 1);
    assert_non_null(out.detail); /* none were made */
    make(30);
    out = take(1, 0, 0, &appended);
    assert_null(out.detail);
    get_now(0, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(take(1, 0, 0, &appended).result, CPN_OK);
    definition = coupon_copy(w.lane[0].c, &w.arena);
    definition->cap.per_day = 20;
    begin(0);
    decide_change(&t.d, definition, 1, &out);
    w.changes = true;
    assert_true(append_or_crash(0));
    follow(1, 0);
    out = take(1, 0, 0, &appended);
    assert_int_equal(out.result, CPN_DAILY_CAP_REACHED);
    assert_int_equal(out.lacks, QUOTA_DAY);
    assert_int_equal(out.need, 6); /* five were taken while there was no cap */
    give(0, 1, (struct gift){-1, out.need, -1}, 0);
    get_now(0, 1);
    assert_int_equal(take(1, 0, 0, &appended).result, CPN_OK);
    assert_int_equal(w.lane[1].tail.day_elsewhere, -w.lane[0].tail.day_elsewhere);
}

static void slots_that_come_while_the_lanes_are_asked_are_not_missed(void **state)
{
    struct outcome out;

    (void)state;
    definition = coupon_copy(w.lane[0].c, &w.arena);
    definition->low_stock = 10;
    definition->replenish.below = 20;
    definition->replenish.add = 30;
    begin(0);
    decide_change(&t.d, definition, 1, &out);
    assert_true(append_or_crash(0));
    make(30);
    make(30); /* of 30, 25 were taken */
    begin(0);
    decide_events_of_all(&t.d, 25);
    assert_false(decide_changed(&t.d));
    decide_events_of_all(&t.d, 50);
    assert_int_equal(t.batch->count, 2);
    assert_int_equal(t.batch->entries[0].kind, ENTRY_LOW_STOCK);
    assert_int_equal(t.batch->entries[0].count, 10);
    assert_int_equal(t.batch->entries[1].kind, ENTRY_REPLENISH);
    assert_int_equal(t.batch->entries[1].count, 90);
    decide_events_of_all(&t.d, 50);
    assert_int_equal(t.batch->count, 2);
}

static void a_follower_takes_each_version_once_and_the_end_too(void **state)
{
    struct coupon *next = coupon_copy(definition, &w.arena), *tombstone;
    struct one_lane *l = &w.lane[1];
    struct outcome out;
    int64_t seq = l->tail.seq;

    (void)state;
    follow(1, 0);
    assert_int_equal(l->tail.seq, seq);
    next->title = "Another";
    begin(0);
    decide_change(&t.d, next, 1, &out);
    assert_true(append_or_crash(0));
    follow(1, 0);
    assert_int_equal(l->tail.version, 2);
    assert_string_equal(l->c->title, "Another");
    assert_null(t.appended->entries[0].by);
    begin(0);
    decide_delete(&t.d, &out);
    assert_int_equal(out.result, CPN_OK);
    assert_true(append_or_crash(0));
    follow(1, 0); /* which has what came before */
    assert_int_equal(t.appended->count, 1);
    assert_int_equal(fold_definition(w.lane[0].c, t.appended, &w.arena)->version, 3); /* where it is known from the view */
    follow(2, 0); /* which has not */
    assert_int_equal(t.appended->count, 2);
    for (int64_t i = 1; i < 3; i++) {
        assert_int_equal(w.lane[i].c->state, COUPON_DELETED);
        assert_int_equal(w.lane[i].tail.version, 3);
    }
    tombstone = coupon_copy(w.lane[0].c, &w.arena);
    begin(1);
    decide_follow(&t.d, tombstone);
    assert_false(decide_changed(&t.d));
}

/* What the next batch of the lane contradicts, with this entry of a gift in it, and these totals after it. */
static const char *contradiction(int64_t lane, struct entry e, int64_t slots, int64_t elsewhere)
{
    struct batch *b = batch_new("sale", lane);
    const char *wrong;

    e.job = "lane-1-0";
    *batch_add(b, e.kind) = e;
    b->head = w.lane[lane].tail;
    b->head.seq++;
    memcpy(b->prev, w.lane[lane].tail.hash, HASH_LEN);
    b->head.slots += slots;
    b->head.next_n = e.count ? e.n + e.count : b->head.next_n;
    b->head.elsewhere += elsewhere;
    wrong = batch_contradiction(&w.lane[lane].tail, b);
    batch_free(b);
    return wrong;
}

static void a_gift_that_does_not_add_up_is_found(void **state)
{
    struct entry get = {.kind = ENTRY_GET, .n = LANE_SLOTS, .count = 3, .gift.slots = 3};
    struct entry fresh = {.kind = ENTRY_GIVE, .gift.slots = 3, .fresh = true}, bad;

    (void)state;
    assert_null(contradiction(1, get, 3, -3));
    assert_string_equal(contradiction(1, get, 4, -3), "slots");
    assert_string_equal(contradiction(1, get, 3, -2), "elsewhere");
    bad = get;
    bad.n = 5;
    assert_string_equal(contradiction(1, bad, 3, -3), "n");
    bad = get;
    bad.count = 2;
    assert_string_equal(contradiction(1, bad, 2, -3), "count");
    bad = (struct entry){.kind = ENTRY_GET, .gift.day = -1};
    assert_string_equal(contradiction(1, bad, 0, 0), "gift");
    assert_string_equal(contradiction(0, fresh, 0, 3), "fresh"); /* nothing was made */
    bad = (struct entry){.kind = ENTRY_DUE, .count = 1};
    assert_string_equal(contradiction(1, bad, 0, 0), "due");
    bad = (struct entry){.kind = ENTRY_GENERATE, .n = LANE_SLOTS, .count = 4};
    assert_string_equal(contradiction(1, bad, 4, 0), "elsewhere"); /* slots that nobody gave */
}

/* ---- what is changed behind the ledgers' back ---- */

/* A life of three lanes with caps of a day and of the discount, which do not change. */
static int a_life(void **state)
{
    struct outcome out;

    (void)state;
    seed = 0;
    w.random = 12;
    world_init(3);
    definition = new_coupon();
    definition->cap.per_day = 50;
    definition->cap.discount_minor = 400 * AMOUNT;
    w.day_most = w.changed_day_most = 50;
    w.minor_most = definition->cap.discount_minor;
    begin(0);
    decide_create(&t.d, definition, NULL, &out);
    assert_true(append_or_crash(0));
    for (int i = 0; i < OPS; i++)
        live_a_moment();
    come_to_rest();
    return 0;
}

static int end_life(void **state)
{
    forget_sums();
    return world_teardown(state);
}

static struct entry *entry_of(int64_t lane, enum entry_kind kind)
{
    for (size_t k = 0; k < w.lane[lane].count; k++)
        for (size_t i = 0; i < w.lane[lane].ledger[k]->count; i++)
            if (w.lane[lane].ledger[k]->entries[i].kind == kind)
                return &w.lane[lane].ledger[k]->entries[i];
    fail_msg("lane %d has no %s", (int)lane, entry_kind_name(kind));
    return NULL;
}

static void no_lane_has_drift_in_parts_either(void **state)
{
    (void)state;
    expect_no_drift();
    for (int64_t i = 0; i < w.lanes; i++) {
        forget_sums();
        replay_free(tell_lane(i, 0, 4));
    }
    assert_string_equal(found, "");
}

static void what_is_of_another_lane_is_found(void **state)
{
    struct entry *e = entry_of(1, ENTRY_REDEEM), *gift = entry_of(0, ENTRY_GIVE);
    const char *user = e->user, *job = gift->job;
    int64_t n = e->n;

    (void)state;
    e->user = w.lane[2].users[0].user;
    tell_all();
    expect_drift("|lane|a user of this lane|of another");
    e->user = user;
    e->n += LANE_SLOTS;
    tell_all();
    expect_drift("|lane|a slot of this lane|of another");
    e->n = n;
    for (int i = 0; i < 4; i++) {
        static const char *const wrong[] = {"lane-0-0", "lane-0-3", "lane-1-0", "lane-0-01"};
        char line[128];

        gift->job = wrong[i];
        tell_all();
        snprintf(line, sizeof line, "|account|of this lane with one that it knows|%s", wrong[i]);
        expect_drift(line);
    }
    gift->job = job;
    w.lane[1].ledger[2]->lanes = 4;
    tell_all();
    assert_string_equal(found, "ledger|seq 3 entry 0|lanes of the coupon|3|4\n");
}

static void a_quota_that_nobody_had_is_found(void **state)
{
    struct entry *gift = entry_of(0, ENTRY_GIVE);

    (void)state;
    gift->gift.day = 1000;
    tell_all();
    expect_drift("caps|");
    expect_drift("|per_day|at most ");
    gift->gift.day = 0;
    gift->gift.minor = 1000 * AMOUNT;
    tell_all();
    expect_drift("|discount_minor|at most ");
}

static void an_event_that_is_not_lane_0s_is_found(void **state)
{
    (void)state;
    entry_of(1, ENTRY_GET)->kind = ENTRY_SOLD_OUT;
    tell_all();
    expect_drift("|sold_out|no event|one");
}

static void an_account_that_says_something_else_is_found(void **state)
{
    (void)state;
    w.lane[0].accounts[1].given.slots++;
    tell_all();
    expect_drift("users|job lane-0-1|given.slots|");
    w.lane[0].accounts[1].given.slots--;
    w.lane[2].accounts[0].got.minor--;
    tell_all();
    expect_drift("users|job lane-2-0|got.minor|");
}

/* As after a restored backup of one shard: each ledger chains, and is one of its own. */
static void a_lane_that_lost_what_it_gave_is_found(void **state)
{
    size_t less = 0;

    (void)state;
    tell_all();
    while (!strstr(found, "slots got") && less < w.lane[0].count) {
        found[0] = '\0';
        lane_sums_release(&sums[0]);
        replay_free(tell_lane(0, ++less, 1));
        found[0] = '\0'; /* its views are ahead */
        lane_sums_rest(&sums[0]);
        lane_sums_compare(sums, 3, true, note, NULL);
    }
    expect_drift("lanes|lane ");
    expect_drift(" of lane 0|slots got|at most ");
}

static void what_lanes_say_of_each_other_is_compared(void **state)
{
    static const struct {
        const char *line;
        size_t offset;
        int64_t by;
    } rows[] = {
        {"lanes|lane 1 of lane 0|slots got|at most ", offsetof(struct lane_sums, peers[0].got.slots), 1000},
        {"lanes|lane 1 of lane 0|minor got|at most ", offsetof(struct lane_sums, peers[0].got.minor), 1 << 30},
        {"lanes|lane 0 of lane 1|slots got|at most ", offsetof(struct lane_sums, peers[0].given.slots), -1000},
        {"lanes|lane 1|elsewhere|", offsetof(struct lane_sums, head.elsewhere), 1},
        {"lanes|lane 1|minor_elsewhere|", offsetof(struct lane_sums, head.minor_elsewhere), -1},
        {"lanes|lane 1|day.elsewhere|", offsetof(struct lane_sums, head.day_elsewhere), 1},
        {"lanes|lane 1|version|at most ", offsetof(struct lane_sums, head.version), 1},
        {"lanes|all lanes|discount_minor|at most 40000|", offsetof(struct lane_sums, head.discount_minor), 40001},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tell_all();
        assert_string_equal(found, "");
        *(int64_t *)((char *)&sums[1] + rows[i].offset) += rows[i].by;
        lane_sums_compare(sums, 3, true, note, NULL);
        expect_drift(rows[i].line);
    }
    tell_all();
    sums[2].days[0].taken += 51;
    lane_sums_compare(sums, 3, true, note, NULL);
    expect_drift("lanes|day ");
    expect_drift("|per_day|at most 50|");
}

/* While lanes go on: what is of different times is not compared. */
static void lanes_that_move_make_no_drift(void **state)
{
    (void)state;
    tell_all();
    sums[2].days[sums[2].day_count - 1].taken += 51;
    sums[1].head.discount_minor += 40001;
    lane_sums_compare(sums, 3, false, note, NULL);
    assert_string_equal(found, "");
}

static int64_t repairs[FAULT_COUNT];

static void count_repair(void *context, const struct repair *p)
{
    (void)context;
    repairs[p->fault]++;
}

static void a_lane_mends_its_own_views_alone(void **state)
{
    struct replay *r;

    (void)state;
    w.lane[1].users[0].seq = w.lane[2].users[0].seq = 0; /* their views are missing */
    w.lane[1].buckets[0].seq = w.lane[1].accounts[0].seq = 0;
    memset(repairs, 0, sizeof repairs);
    r = tell_lane(1, 0, 1);
    replay_repairs(r, true, count_repair, NULL);
    replay_free(r);
    assert_int_equal(repairs[FAULT_MISSING], 3);
    assert_int_equal(repairs[FAULT_SUPERFLUOUS] + repairs[FAULT_DIFFERENT] + repairs[FAULT_BEHIND], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_lane_gets_its_part_of_what_is_made_and_numbers_it_itself, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(a_cap_counts_the_slots_of_all_lanes, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(a_lane_says_what_it_lacks, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(slots_that_come_while_the_lanes_are_asked_are_not_missed, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(a_follower_takes_each_version_once_and_the_end_too, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(a_gift_that_does_not_add_up_is_found, three_lanes, world_teardown),
        cmocka_unit_test_setup_teardown(no_lane_has_drift_in_parts_either, a_life, end_life),
        cmocka_unit_test_setup_teardown(what_is_of_another_lane_is_found, a_life, end_life),
        cmocka_unit_test_setup_teardown(a_quota_that_nobody_had_is_found, a_life, end_life),
        cmocka_unit_test_setup_teardown(an_event_that_is_not_lane_0s_is_found, a_life, end_life),
        cmocka_unit_test_setup_teardown(an_account_that_says_something_else_is_found, a_life, end_life),
        cmocka_unit_test_setup_teardown(a_lane_that_lost_what_it_gave_is_found, a_life, end_life),
        cmocka_unit_test_setup_teardown(what_lanes_say_of_each_other_is_compared, a_life, end_life),
        cmocka_unit_test_setup_teardown(lanes_that_move_make_no_drift, a_life, end_life),
        cmocka_unit_test_setup_teardown(a_lane_mends_its_own_views_alone, a_life, end_life),
        cmocka_unit_test_teardown(nothing_is_lost_or_doubled_in_random_lives, world_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
