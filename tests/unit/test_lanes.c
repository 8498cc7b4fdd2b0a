/*
 * unit/test_lanes -- the lanes of one coupon in memory: how slots move between them, and random lives of them.
 *
 * Lives      by seed: takings and steps; moves of slots by several processes at once, each of which may die between any two of its
 *            requests; decisions that are never appended; midnights, which no two lanes reach together; and changes of the cap
 * Checks     after each batch: it contradicts nothing, folding it gives the working copies; and over all lanes: no slot is lost or
 *            doubled, the cap is not passed. Now and then: what a lane is refused, no lane has; at the end nothing is left over
 * Verify     a life's ledgers, replayed by verify/replay, have no drift; and what is changed in them behind its back is found
 * Repeat one LANES_SEED=n build/tests/unit/test_lanes; more of them: LANES_SEEDS=count
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "coupons/transfer.h"
#include "unit/drifts.h"
#include "unit/views.h"
#include "verify/replay_lanes.h"
#include "verify/replay_repair.h"
#include "verify/replay_views.h"

#define SEEDS 400
#define OPS 400
#define LANES_MOST 5
#define USERS 10
#define BUCKETS 40
#define NAMED_MOST 512
#define MOVERS 4
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
    struct job_progress to[LANES_MOST], from[LANES_MOST]; /* of moves, by the other lane */
    struct user_state users[USERS];         /* those who belong to it */
    struct job_progress job;
    struct batch *ledger[BATCHES_MOST];
    size_t count;
};

/* A process that moves slots, between two of its requests. */
struct mover {
    int64_t giver, taker, most;
    int done; /* of the three */
    int64_t step, total, made;
};

static struct world {
    struct arena arena;
    uint64_t random;
    int64_t lanes, now_ms;
    struct one_lane lane[LANES_MOST];
    struct mover movers[MOVERS];
    int64_t stock;              /* slots made, less those retired for good */
    int64_t job_step;
    int events;                 /* of low stock and sold out since slots were made */
    size_t seen[CPN_RESULT_COUNT], lacked, crashes, replayed;
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
    struct job_progress to[LANES_MOST], from[LANES_MOST], job;
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
    for (int64_t i = 0; i < lanes; i++) {
        struct one_lane *l = &w.lane[i];

        *l = (struct one_lane){.number = i};
        for (int64_t k = 0; k < BUCKETS; k++)
            bucket_init(&l->buckets[k], i * LANE_SLOTS / BUCKET_SLOTS + k);
        for (int64_t k = 0; k < lanes; k++) {
            l->to[k].id = transfer_job(&(struct transfer_side){true, i, k}, arena_alloc(&w.arena, TRANSFER_JOB_SIZE));
            l->from[k].id = transfer_job(&(struct transfer_side){false, i, k}, arena_alloc(&w.arena, TRANSFER_JOB_SIZE));
        }
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

FIXTURE(world_teardown)
{
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
    memcpy(t.to, l->to, sizeof t.to);
    memcpy(t.from, l->from, sizeof t.from);
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
    if (existing != l->tail.slots || free_slots != head_free(&l->tail) + l->tail.retiring)
        FAIL("lane %d has %d slots, %d free; its totals say %d, %d", (int)l->number, (int)existing, (int)free_slots,
             (int)l->tail.slots, (int)(head_free(&l->tail) + l->tail.retiring));
    assert_int_equal(l->number, lane_of_slot(fold_next_n(&l->tail, l->number)));
}

static void check_sums(void);

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
    l->tail = t.batch->head;
    for (int i = 0; i < USERS; i++)
        close_user_state(&l->users[i], &t.users[i]);
    for (int64_t i = 0; i < w.lanes; i++) {
        close_job(&l->to[i], &t.to[i]);
        close_job(&l->from[i], &t.from[i]);
    }
    close_job(&l->job, &t.job);
    close_buckets(l);
    if (t.d.coupon != l->c)
        l->c = coupon_copy(t.d.coupon, &w.arena);
    check_sums();
    assert_in_range(l->count, 0, BATCHES_MOST - 1);
    l->ledger[l->count++] = t.batch;
    t.appended = t.batch;
    t.batch = NULL;
    return true;
}

/* ---- what must hold over all lanes ---- */

/* What left the giver for the taker, and has not come: never less than nothing. */
static int64_t on_its_way(int64_t giver, int64_t taker)
{
    const struct job_progress *to = &w.lane[giver].to[taker], *from = &w.lane[taker].from[giver];
    int64_t slots = to->total - from->total;

    if (slots < 0 || to->step - from->step != (slots > 0))
        FAIL("to lane %d of lane %d: step %d with %d slots, and %d with %d", (int)taker, (int)giver, (int)to->step, (int)to->total,
             (int)from->step, (int)from->total);
    return slots;
}

static void check_sums(void)
{
    int64_t here = 0, moving = 0, elsewhere = 0;

    for (int64_t i = 0; i < w.lanes; i++) {
        const struct head *h = &w.lane[i].tail;

        here += h->slots - h->retiring;
        elsewhere += h->elsewhere;
        assert_true(h->version <= w.lane[0].tail.version);
        if (w.lane[i].c && head_free(h) < 0)
            FAIL("lane %d has less than nothing", (int)i);
        if (i > 0)
            moving += on_its_way(0, i) + on_its_way(i, 0);
    }
    if (here + moving != w.stock || head_stock(&w.lane[0].tail) != w.stock || elsewhere != moving)
        FAIL("%d slots in lanes and %d on their way (totals: %d), lane 0 says %d, there are %d", (int)here, (int)moving, (int)elsewhere,
             (int)head_stock(&w.lane[0].tail), (int)w.stock);
    assert_true(w.stock <= w.lane[0].c->cap.total);
}

/* ---- what lanes and their users do ---- */

static void count_outcome(const struct outcome *out)
{
    w.seen[out->result]++;
    w.lacked += out->need > 0;
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

/* The mover's next request. False: it is at its end, or died. */
static bool go_on(struct mover *m, int crash_percent)
{
    const struct job_progress *from = &w.lane[m->taker].from[m->giver];
    struct outcome out = {.result = CPN_OK};
    bool changed = false;

    switch (m->done++) {
    case 0:
        m->step = from->step + 1;
        m->total = from->total;
        return true;
    case 1:
        begin(m->giver);
        decide_retiring(&t.d, &t.to[m->taker], m->step, m->most, &m->made, &out);
        changed = decide_changed(&t.d);
        break;
    default:
        if (m->made <= m->total)
            return false;
        begin(m->taker);
        decide_generate(&t.d, &t.from[m->giver], m->step, m->made - m->total, 0, &out);
        changed = decide_changed(&t.d);
    }
    assert_int_equal(out.result, CPN_OK);
    w.replayed += out.replayed;
    return append_or_crash(crash_percent) == changed && m->done < 3;
}

static void move(int64_t giver, int64_t taker, int64_t most)
{
    struct mover m = {.giver = giver, .taker = taker, .most = most};

    while (go_on(&m, 0))
        continue;
}

static void follow(int64_t lane, int crash_percent)
{
    begin(lane);
    decide_follow(&t.d, w.lane[0].c);
    append_or_crash(crash_percent);
}

/* One of the processes that move slots does what comes next: where no lane follows yet, nothing. */
static void move_somewhere(void)
{
    struct mover *m = &w.movers[up_to(MOVERS - 1)];
    int64_t other = 1 + up_to(w.lanes - 2);
    bool out = chance(60);

    if (!m->most)
        *m = (struct mover){.giver = out ? 0 : other, .taker = out ? other : 0, .most = 1 + up_to(20)};
    if (!w.lane[m->giver].c || !w.lane[m->taker].c || !go_on(m, 10))
        m->most = 0;
}

static void generate(int64_t count)
{
    bool again = w.job_step > 0 && chance(20);
    int64_t step = again ? w.job_step : w.job_step + 1;
    struct outcome out;

    begin(0);
    decide_generate(&t.d, &t.job, step, count, 0, &out);
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

/* What was begun is ended, and every lane but one gives lane 0 what it wants. */
static void collect(int64_t most, int64_t but)
{
    for (int64_t i = 1; i < w.lanes; i++) {
        if (!w.lane[i].c)
            follow(i, 0);
        move(0, i, 0);
        move(i, 0, i == but ? 0 : most);
        if (i != but)
            move(i, 0, most); /* the one before may just have ended what was begun */
    }
}

static void fetch(int64_t lane, int64_t need)
{
    collect(need, lane);
    if (lane != 0)
        move(0, lane, need);
}

/* A user takes; what the lane lacks is looked for everywhere. What is refused then, there is none of. */
static void take_somewhere(void)
{
    int64_t lane = up_to(w.lanes - 1);
    int user = (int)up_to(USERS - 1);
    struct outcome out;
    bool appended;

    if (!w.lane[lane].c)
        return;
    out = take(lane, user, 5, &appended);
    if (!out.need || chance(40))
        return;
    fetch(lane, out.need);
    out = take(lane, user, 0, &appended);
    if (out.need && free_in_all() > 0)
        FAIL("%s, with %d left", result_info(out.result)->name, (int)free_in_all());
}

static void change(void)
{
    struct coupon *next = coupon_copy(w.lane[0].c, &w.arena);
    int64_t version = next->version, excess, before = w.stock;
    struct outcome out = {.result = CPN_OK};

    next->cap.total = 1 + up_to(250);
    for (int tries = 0; tries < 3; tries++) {
        begin(0);
        decide_change(&t.d, next, version, true, &out);
        count_outcome(&out);
        if (!out.need)
            break;
        collect(out.need, 0);
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
    case 3:
    case 4:
        move_somewhere();
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
            change();
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

/* Everything that was on its way comes, and goes to lane 0: there is as much as was never taken, and it can be taken. */
static void come_to_rest(void)
{
    bool appended;

    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = 0;
    w.now_ms = start_of_day(w.now_ms) + DAY_MS + DAY_MS / 2;
    for (int64_t i = 1; i < w.lanes; i++)
        follow(i, 0);
    collect(ALL, 0);
    for (int64_t i = 1; i < w.lanes; i++) {
        assert_int_equal(on_its_way(0, i) + on_its_way(i, 0), 0);
        assert_int_equal(head_free(&w.lane[i].tail), 0);
    }
    for (int64_t left = head_free(&w.lane[0].tail); left > 0; left--) {
        assert_int_equal(take(0, (int)up_to(USERS - 1), 0, &appended).result, CPN_OK);
        assert_true(appended);
    }
}

static void live(void)
{
    struct slot_request request = {.slots = 0};
    struct coupon *c;
    struct outcome out;

    w.random = seed * 2654435761u + 7;
    world_init(2 + up_to(LANES_MOST - 2));
    c = new_coupon();
    c->low_stock = chance(50) ? 10 : COUPON_NULL;
    c->replenish.below = chance(30) ? 5 : COUPON_NULL;
    c->replenish.add = c->replenish.below != COUPON_NULL ? 20 : COUPON_NULL;
    begin(0);
    if (chance(50))
        w.stock = request.slots = 1 + up_to(100);
    decide_create(&t.d, c, &request, &out);
    assert_true(append_or_crash(0));
    for (int64_t i = 0; i < w.lanes; i++)
        w.lane[i].skew_ms = chance(30) ? up_to(SKEW_MS) : 0;
    for (int i = 0; i < OPS; i++)
        live_a_moment();
    come_to_rest();
}

/* ---- replayed ---- */

static struct lane_sums sums[LANES_MOST];

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

/* The views of all lanes: which are the lane's is for the replay to know. */
static void give_views(struct replay *r)
{
    for (int64_t i = 0; i < w.lanes; i++)
        for (int k = 0; k < BUCKETS; k++)
            if (w.lane[i].buckets[k].seq)
                replay_view_bucket(r, w.lane[i].buckets[k].b, &w.lane[i].buckets[k], NULL);
}

static void give_definition(struct replay *r, const struct one_lane *l)
{
    int64_t seq = seq_of_definition();

    replay_view_coupon(r, &(struct stored_coupon){.is_there = true, .definition = (struct coupon *)l->c, .seq = seq,
                                                  .created_ms = l->ledger[0]->head.at_ms, .changed_ms = l->ledger[seq - 1]->head.at_ms});
}

/* Part `number` of `parts`, of the lane's batches but the last `less`. */
static struct replay *tell_part(int64_t lane, size_t less, unsigned number, unsigned parts)
{
    const struct one_lane *l = &w.lane[lane];
    const struct part part = {number, parts, parts > 1 ? 3 : INT64_C(1) << 30, lane, w.lanes};
    struct replay *r = replay_new(&part, note, NULL);

    r->written.checkpoint_seq = l->tail.seq;
    if (lane == 0 && number == 0)
        give_definition(r, l);
    give_views(r);
    r->lane_sums = &sums[lane];
    for (size_t k = 0; k + less < l->count; k++)
        replay_batch(r, l->ledger[k]);
    replay_end(r);
    return r;
}

static struct replay *tell_lane(int64_t lane, size_t less)
{
    return tell_part(lane, less, 0, 1);
}

static void forget_sums(void)
{
    memset(sums, 0, sizeof sums);
}

static void tell_all(void)
{
    forget_found();
    forget_sums();
    for (int64_t i = 0; i < w.lanes; i++) {
        replay_free(tell_lane(i, 0));
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

TEST_WITH(nothing_is_lost_or_doubled_in_random_lives, NULL, world_teardown)
{
    const char *only = getenv("LANES_SEED"), *count = getenv("LANES_SEEDS");
    unsigned last = only ? (unsigned)strtoul(only, NULL, 10) : count ? (unsigned)strtoul(count, NULL, 10) : SEEDS;
    size_t lacked = 0, crashes = 0, replayed = 0, below = 0;

    for (seed = only ? last : 1; seed <= last; seed++) {
        live();
        expect_no_drift();
        forget_sums();
        lacked += w.lacked;
        crashes += w.crashes;
        replayed += w.replayed;
        below += w.seen[CPN_CAP_BELOW_TAKEN];
        world_teardown(NULL);
    }
    if (only)
        return;
    assert_in_range(lacked, last, 1000000);
    assert_in_range(crashes, last, 1000000);
    assert_in_range(replayed, last, 1000000);
    assert_in_range(below, last / 10, 1000000);
}

/* ---- one by one ---- */

static struct coupon *definition;

static struct outcome out;

static void create_in_three(void)
{
    seed = 0;
    world_init(3);
    definition = new_coupon();
    begin(0);
    decide_create(&t.d, definition, NULL, &out);
    assert_true(append_or_crash(0));
}

/* Three lanes of a coupon of 200 slots, none of them made. */
FIXTURE(three_lanes)
{
    create_in_three();
    for (int64_t i = 1; i < 3; i++)
        follow(i, 0);
    return 0;
}

static void change_to(const struct coupon *next)
{
    begin(0);
    decide_change(&t.d, next, 1, true, &out);
    assert_true(append_or_crash(0));
}

static void make(int64_t count)
{
    begin(0);
    decide_generate(&t.d, &t.job, ++w.job_step, count, 0, &out);
    assert_int_equal(out.result, CPN_OK);
    w.stock += count;
    assert_true(append_or_crash(0));
}

TEST(slots_that_move_are_numbered_anew)
{
    make(101);
    assert_int_equal(w.lane[0].tail.slots, 101);
    move(0, 2, 33);
    assert_string_equal(t.appended->entries[0].job, "lane-2-from-0");
    assert_int_equal(w.lane[0].tail.retiring, 33);
    assert_int_equal(w.lane[0].tail.elsewhere, 33);
    assert_int_equal(w.lane[2].tail.slots, 33);
    assert_int_equal(w.lane[2].tail.elsewhere, -33);
    assert_int_equal(w.lane[2].tail.next_n, 2 * LANE_SLOTS + 33);
    assert_int_equal(w.lane[0].job.total, 101);
    move(0, 2, 0); /* nothing was begun */
    assert_int_equal(w.lane[2].tail.slots, 33);
    move(2, 0, 10);
    assert_string_equal(t.appended->entries[0].job, "lane-0-from-2");
    assert_int_equal(w.lane[0].tail.slots, 111);
    assert_int_equal(head_free(&w.lane[0].tail), 78);
    assert_int_equal(w.lane[0].tail.next_n, 111);
    move(1, 0, 5); /* it has none */
    assert_int_equal(w.lane[1].tail.seq, 1);
}

/* Two processes move slots to the same lane; one of them is late with each of its requests. */
TEST(a_step_that_is_asked_for_late_is_not_made_again)
{
    struct mover late = {.taker = 1, .most = 7};

    make(100);
    assert_true(go_on(&late, 0));
    move(0, 1, 5);
    move(0, 1, 5);
    assert_true(go_on(&late, 0)); /* the first step, made already */
    assert_false(go_on(&late, 0));
    assert_int_equal(w.lane[0].tail.elsewhere, 10);
    assert_int_equal(w.lane[1].tail.slots, 10);
    late = (struct mover){.taker = 1, .most = 7};
    assert_true(go_on(&late, 0) && go_on(&late, 0));
    move(0, 1, 5); /* ends what the late one began */
    assert_int_equal(w.lane[1].tail.slots, 17);
    assert_false(go_on(&late, 0));
    assert_int_equal(w.lane[1].tail.slots, 17);
}

TEST(a_cap_counts_the_slots_of_all_lanes)
{
    make(150);
    move(0, 1, 50);
    begin(0);
    decide_generate(&t.d, &t.job, 2, 51, 0, &out);
    assert_int_equal(out.result, CPN_CAP_EXCEEDED);
    make(50);
    move(1, 0, 50); /* though the cap is reached */
    assert_int_equal(head_free(&w.lane[0].tail), 200);
}

TEST(a_lane_says_what_it_lacks)
{
    bool appended;

    out = take(1, 0, 0, &appended);
    assert_int_equal(out.result, CPN_SOLD_OUT);
    assert_int_equal(out.need, 1);
    assert_non_null(out.detail); /* none were made */
    make(30);
    out = take(1, 0, 0, &appended);
    assert_null(out.detail);
    move(0, 1, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(take(1, 0, 0, &appended).result, CPN_OK);
    assert_int_equal(take(1, 0, 0, &appended).need, 1);
}

/* Whoever moved slots here did not make more of them. */
TEST(slots_that_move_raise_no_event_and_settle_none)
{
    definition = coupon_copy(w.lane[0].c, &w.arena);
    definition->low_stock = 10;
    change_to(definition);
    make(30);
    move(0, 1, 20);
    begin(0);
    decide_events_of_all(&t.d, 25);
    assert_true(append_or_crash(0));
    assert_int_equal(w.lane[0].tail.low_stock, 1);
    move(1, 0, 5);
    assert_int_equal(w.lane[0].tail.low_stock, 1);
    make(1);
    assert_int_equal(w.lane[0].tail.low_stock, 0);
}

TEST(slots_that_come_while_the_lanes_are_asked_are_not_missed)
{
    definition = coupon_copy(w.lane[0].c, &w.arena);
    definition->low_stock = 10;
    definition->replenish.below = 20;
    definition->replenish.add = 30;
    change_to(definition);
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

TEST(a_follower_takes_each_version_once_and_the_end_too)
{
    struct coupon *next = coupon_copy(definition, &w.arena), *tombstone;
    struct one_lane *l = &w.lane[1];
    int64_t seq = l->tail.seq;

    follow(1, 0);
    assert_int_equal(l->tail.seq, seq);
    next->title = "Another";
    change_to(next);
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

/* What the next batch of lane 1 contradicts, with this entry in it, and these totals after it. */
static const char *contradiction(struct entry e, int64_t slots, int64_t elsewhere)
{
    struct batch *b = batch_new("sale", 1);
    const char *wrong;

    *batch_add(b, e.kind) = e;
    b->head = w.lane[1].tail;
    b->head.seq++;
    memcpy(b->prev, w.lane[1].tail.hash, HASH_LEN);
    b->head.slots += slots;
    b->head.next_n = e.count ? e.n + e.count : b->head.next_n;
    b->head.elsewhere += elsewhere;
    wrong = batch_contradiction(&w.lane[1].tail, b);
    batch_free(b);
    return wrong;
}

TEST(a_move_that_does_not_add_up_is_found)
{
    struct entry from = {.kind = ENTRY_GENERATE, .job = "lane-1-from-0", .n = LANE_SLOTS, .count = 3}, bad;

    assert_null(contradiction(from, 3, -3));
    assert_string_equal(contradiction(from, 4, -3), "slots");
    assert_string_equal(contradiction(from, 3, -2), "elsewhere");
    bad = from;
    bad.n = 5;
    assert_string_equal(contradiction(bad, 3, -3), "n");
    bad = (struct entry){.kind = ENTRY_RETIRING, .count = 1, .job = "j1"};
    assert_string_equal(contradiction(bad, 0, 0), "due");
    bad = from;
    bad.job = "j1";
    assert_string_equal(contradiction(bad, 3, 0), "elsewhere"); /* slots that came from nowhere */
}

/* ---- what is changed behind the ledgers' back ---- */

/* A life of three lanes. */
FIXTURE(a_life)
{
    w.random = 12;
    create_in_three();
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

/* moves: of a move between lanes. */
static struct entry *entry_of(int64_t lane, enum entry_kind kind, bool moves)
{
    for (size_t k = 0; k < w.lane[lane].count; k++)
        for (size_t i = 0; i < w.lane[lane].ledger[k]->count; i++) {
            struct entry *e = &w.lane[lane].ledger[k]->entries[i];

            if (e->kind == kind && (!moves || job_transfers(e->job)))
                return e;
        }
    fail_msg("lane %d has no %s", (int)lane, entry_kind_name(kind));
    return NULL;
}

TEST_WITH(no_lane_has_drift_in_parts_either, a_life, end_life)
{
    expect_no_drift();
    for (int64_t i = 0; i < w.lanes; i++) {
        forget_sums();
        for (unsigned part = 0; part < 4; part++)
            replay_free(tell_part(i, 0, part, 4));
    }
    assert_string_equal(found, "");
}

TEST_WITH(what_is_of_another_lane_is_found, a_life, end_life)
{
    static const char *const wrong[] = {"lane-0-to-0", "lane-0-to-3", "lane-1-to-0", "lane-0-to-01", "lane-0-from-1", "lane-0"};
    struct entry *e = entry_of(1, ENTRY_REDEEM, false), *due = entry_of(0, ENTRY_RETIRING, true);
    const char *user = e->user, *job = due->job;
    int64_t n = e->n;

    e->user = w.lane[2].users[0].user;
    tell_all();
    expect_drift("|lane|a user of this lane|of another");
    e->user = user;
    e->n += LANE_SLOTS;
    tell_all();
    expect_drift("|lane|a slot of this lane|of another");
    e->n = n;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[128];

        due->job = wrong[i];
        tell_all();
        snprintf(line, sizeof line, "|job|a move between this lane and another|%s", wrong[i]);
        expect_drift(line);
    }
    due->job = job;
    w.lane[1].ledger[2]->lanes = 4;
    tell_all();
    assert_string_equal(found, "ledger|seq 3 entry 0|lanes of the coupon|3|4\n");
}

TEST_WITH(an_event_that_is_not_lane_0s_is_found, a_life, end_life)
{
    entry_of(1, ENTRY_GENERATE, true)->kind = ENTRY_SOLD_OUT;
    tell_all();
    expect_drift("|sold_out|no event|one");
}

/* As after a restored backup of one shard: each ledger chains, and is one of its own. */
TEST_WITH(a_lane_that_lost_what_went_from_it_is_found, a_life, end_life)
{
    size_t less = 0;

    tell_all();
    while (!strstr(found, "|step|at most") && less < w.lane[0].count) {
        forget_found();
        sums[0] = (struct lane_sums){.deleted = false};
        replay_free(tell_lane(0, ++less));
        forget_found(); /* its views are ahead */
        lane_sums_rest(&sums[0]);
        lane_sums_compare(sums, 3, true, note, NULL);
    }
    expect_drift("lanes|lane ");
    expect_drift(" of lane 0|step|at most ");
}

TEST_WITH(what_lanes_say_of_each_other_is_compared, a_life, end_life)
{
    static const struct {
        const char *line;
        size_t offset;
        int64_t by;
    } rows[] = {
        {"lanes|lane 1 of lane 0|slots|", offsetof(struct lane_sums, moves[0].from.total), 1},
        {"lanes|lane 1 of lane 0|slots|", offsetof(struct lane_sums, moves[0].from.total), -1},
        {"lanes|lane 1 of lane 0|step|at most ", offsetof(struct lane_sums, moves[0].from.step), 1},
        {"lanes|lane 1 of lane 0|slots|", offsetof(struct lane_sums, moves[0].from.step), -1},
        {"lanes|lane 1 of lane 0|steps on their way|at most 1|2", offsetof(struct lane_sums, moves[0].from.step), -2},
        {"lanes|lane 0 of lane 1|slots|", offsetof(struct lane_sums, moves[0].to.total), -1000},
        {"lanes|lane 1|elsewhere|", offsetof(struct lane_sums, head.elsewhere), 1},
        {"lanes|lane 1|version|at most ", offsetof(struct lane_sums, head.version), 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tell_all();
        assert_string_equal(found, "");
        *(int64_t *)((char *)&sums[1] + rows[i].offset) += rows[i].by;
        lane_sums_compare(sums, 3, true, note, NULL);
        expect_drift(rows[i].line);
    }
}

TEST_WITH(a_deleted_coupon_with_takings_in_any_lane_is_found, a_life, end_life)
{
    char line[128];

    tell_all();
    sums[0].deleted = true; /* as if it were, though lane 2 took */
    lane_sums_compare(sums, 3, false, note, NULL);
    snprintf(line, sizeof line, "lanes|lane 2|takings of a deleted coupon|0|%d\n", (int)head_takings(&w.lane[2].tail));
    expect_drift(line);
}

/* While lanes go on: what is of different times is not compared. */
TEST_WITH(lanes_that_move_make_no_drift, a_life, end_life)
{
    tell_all();
    sums[1].moves[0].from.step -= 2;
    lane_sums_compare(sums, 3, false, note, NULL);
    assert_string_equal(found, "");
}

static int64_t repairs[FAULT_COUNT];

static void count_repair(void *context, const struct repair *p)
{
    (void)context;
    repairs[p->fault]++;
}

TEST_WITH(a_lane_mends_its_own_views_alone, a_life, end_life)
{
    struct replay *r;

    w.lane[1].buckets[0].seq = w.lane[2].buckets[0].seq = 0; /* their views are missing */
    memset(repairs, 0, sizeof repairs);
    r = tell_lane(1, 0);
    replay_repairs(r, true, count_repair, NULL);
    replay_free(r);
    assert_int_equal(repairs[FAULT_MISSING], 1);
    assert_int_equal(repairs[FAULT_SUPERFLUOUS] + repairs[FAULT_DIFFERENT] + repairs[FAULT_BEHIND], 0);
}

RUN_TESTS(.each_setup = three_lanes, .each_teardown = world_teardown)
