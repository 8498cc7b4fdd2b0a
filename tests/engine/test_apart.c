/*
 * tests/engine/test_apart.c -- what coupons that one committer has in hand at the same time do not share: damage, and the time to
 * find out that others do not exist.
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "rig.h"

#define COUPONS 5
#define UNKNOWN 100
#define CALLS_MOST 12 /* of the store, for all of them */
#define HOLD_S 3600
#define COLD 30
#define COLD_CALLS_MOST 24 /* the first one's too, which is alone in its round */

static struct {
    /* sessions are counted, and held */
    atomic_size_t calls;
    atomic_bool held;
} t;

static void count_call(void)
{
    atomic_fetch_add(&t.calls, 1);
    while (atomic_load(&t.held))
        rig_nap();
}

#define COUNTED(call, parameters, arguments)                                                                                     \
    static enum store_status counted_##call parameters                                                                           \
    {                                                                                                                            \
        count_call();                                                                                                            \
        return rig.watched[0].plain->call arguments;                                                                                  \
    }
COUNTED(checkpoints, (struct store *s, struct checkpoint_read *reads, size_t count), (s, reads, count))
COUNTED(ledgers, (struct store *s, struct ledger_read *reads, size_t count), (s, reads, count))
COUNTED(ledger, (struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most, struct batch **batches, size_t *count),
        (s, coupon, lane, after, most, batches, count))
COUNTED(coupons, (struct store *s, struct coupon_read *reads, size_t count), (s, reads, count))
COUNTED(confirm, (struct store *s, struct confirm *confirms, size_t count), (s, confirms, count))
COUNTED(users, (struct store *s, struct arena *a, struct user_read *reads, size_t count), (s, a, reads, count))
COUNTED(free_counts, (struct store *s, struct free_counts *reads, size_t count), (s, reads, count))
COUNTED(buckets, (struct store *s, struct bucket_read *reads, size_t count), (s, reads, count))
COUNTED(due_buckets, (struct store *s, struct due_search *searches, size_t count), (s, searches, count))
COUNTED(bucket_codes, (struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count), (s, a, reads, count))
COUNTED(append, (struct store *s, struct append *appends, size_t count), (s, appends, count))

static void count_calls(void)
{
    struct store_ops *ops = &rig.watched[0].ops;

    ops->checkpoints = counted_checkpoints;
    ops->ledgers = counted_ledgers;
    ops->ledger = counted_ledger;
    ops->coupons = counted_coupons;
    ops->confirm = counted_confirm;
    ops->users = counted_users;
    ops->free_counts = counted_free_counts;
    ops->buckets = counted_buckets;
    ops->due_buckets = counted_due_buckets;
    ops->bucket_codes = counted_bucket_codes;
    ops->append = counted_append;
}

FIXTURE(begin)
{
    memset(&t, 0, sizeof t);
    rig_connect(1, 1, 0);
    count_calls();
    rig.config.redo_max = 200;
    rig_start(NULL);
    return 0;
}

static const char *coupon_id(size_t i)
{
    return arena_printf(&rig.arenas[0], "c%zu", i);
}

static void catch_up(const char *coupon)
{
    assert_int_equal(engine_catch_up(rig.engines[0], coupon, 0, PATIENCE_MS), STORE_OK);
}

static void create_with(const char *id, int64_t slots, bool codes)
{
    struct coupon coupon;

    open_coupon(&coupon, id);
    coupon.cap.total = slots;
    coupon.cap.per_user = 5;
    coupon.codes.source = codes ? CODES_IMPORTED : CODES_NONE;
    rig_create(&coupon);
    rig_generate(&coupon, 1, slots);
}

static void create(const char *id, int64_t slots)
{
    create_with(id, slots, false);
}

/* ---- requests that are under way together ---- */

struct asked {
    struct op op;
    struct arena arena;
    struct latch *latch;
    atomic_bool answered;
};

static struct latch all, vain; /* all that can be answered; the one that cannot */

static void answered(struct op *op)
{
    struct asked *a = op->context;

    atomic_store(&a->answered, true);
    latch_down(a->latch);
}

static void submit(struct asked *a, const char *coupon, struct latch *latch)
{
    arena_init(&a->arena, 0);
    a->op.coupon = coupon;
    a->op.arena = &a->arena;
    a->op.deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    a->latch = latch;
    a->op.done = answered;
    a->op.context = a;
    assert_int_equal(engine_submit(rig.engines[0], &a->op), CPN_OK);
}

/* All the others are answered while this one waits, until the engine ends. */
static void assert_waits_alone(struct asked *in_vain)
{
    latch_wait(&all);
    assert_false(atomic_load(&in_vain->answered));
    engine_stop(rig.engines[0]);
    rig.engines[0] = NULL;
    latch_wait(&vain);
    assert_int_equal(in_vain->op.outcome.result, CPN_BUSY);
}

static void release(struct asked *a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        arena_free(&a[i].arena);
}

static void take(const char *coupon, const char *user, const char *key)
{
    struct op op = rig_taking(user, key, SLOT_REDEEMED);

    op.coupon = coupon;
    rig_ask(0, &op);
}

/* ---- damage ---- */

/* "ann" took from the first coupon before; the batch that says so is damaged, and a checkpoint is past it. Nobody else waits for her:
 * neither other coupons' users, nor those of hers. */
TEST(whose_batch_is_damaged_waits_alone)
{
    struct asked asked[COUPONS * 2] = {0};
    int damaged;

    for (size_t i = 0; i < COUPONS; i++)
        create(coupon_id(i), 100);
    take(coupon_id(0), "ann", "k1");
    damaged = fake_batches(rig.fake, coupon_id(0));
    take(coupon_id(0), "eve", "k0");
    rig.coupon = coupon_id(0);
    rig_restart_written();
    fake_damage_batch(rig.fake, coupon_id(0), 0, damaged);
    latch_init(&all, COUPONS * 2 - 1);
    latch_init(&vain, 1);
    for (size_t i = 0; i < COUPONS * 2; i++)
        asked[i].op = rig_taking(i == 0 ? "ann" : "bob", i < COUPONS ? "k2" : "k3", SLOT_REDEEMED);
    submit(&asked[0], coupon_id(0), &vain);
    for (size_t i = 1; i < COUPONS * 2; i++)
        submit(&asked[i], coupon_id(i % COUPONS), &all);
    assert_waits_alone(&asked[0]);
    for (size_t i = 1; i < COUPONS * 2; i++)
        assert_int_equal(asked[i].op.outcome.result, CPN_OK);
    release(asked, COUPONS * 2);
}

TEST(a_damaged_bucket_is_in_the_way_of_its_own_slots_only)
{
    struct asked asked[2] = {{.op = {.kind = OP_SLOT, .in.n = 1}}, {.op = {.kind = OP_SLOT, .in.n = BUCKET_SLOTS + 1}}};

    create(coupon_id(0), 2 * BUCKET_SLOTS);
    rig.coupon = coupon_id(0);
    rig_restart_written();
    fake_damage_bucket(rig.fake, coupon_id(0), 0);
    latch_init(&all, 1);
    latch_init(&vain, 1);
    submit(&asked[0], coupon_id(0), &vain);
    submit(&asked[1], coupon_id(0), &all);
    assert_waits_alone(&asked[0]);
    assert_int_equal(asked[1].op.outcome.result, CPN_OK);
    release(asked, 2);
}

/* ---- coupons that are not in memory ---- */

/* COLD coupons and one more exist, each with `codes` or not, and none is in memory. */
static void make_cold(bool codes)
{
    for (size_t i = 0; i <= COLD; i++)
        create_with(coupon_id(i), 200, codes);
    for (size_t i = 0; i <= COLD; i++) {
        take(coupon_id(i), "ann", "k1");
        catch_up(coupon_id(i));
    }
    rig.coupon = coupon_id(COLD);
    rig_restart_written();
}

/* Hand in one request for each, all but the first in one round. Returns how often the store was called before. */
static size_t ask_cold(struct asked *asked, struct latch *of_second)
{
    size_t before = atomic_load(&t.calls);

    atomic_store(&t.held, true);
    for (size_t i = 0; i <= COLD; i++) {
        asked[i].op = rig_taking("bob", "k2", SLOT_REDEEMED);
        submit(&asked[i], coupon_id(i), i == 1 ? of_second : &all);
        while (i == 0 && atomic_load(&t.calls) == before) /* the first is a round of its own */
            rig_nap();
    }
    atomic_store(&t.held, false);
    return before;
}

TEST(cold_coupons_with_codes_or_without_are_loaded_by_a_few_calls_for_all_of_them)
{
    EACH_ANEW(codes, 2, begin, rig_end) {
        struct asked asked[COLD + 1] = {0};
        size_t before;

        make_cold(codes);
        latch_init(&all, COLD + 1);
        before = ask_cold(asked, &all);
        latch_wait(&all);
        assert_in_range(atomic_load(&t.calls) - before, 1, COLD_CALLS_MOST);
        for (size_t i = 0; i <= COLD; i++)
            assert_int_equal(asked[i].op.outcome.result, CPN_OK);
        release(asked, COLD + 1);
    }
}

/* The second of them cannot be loaded: it waits, and nobody else does. */
TEST(whose_definition_or_ledger_is_damaged_is_loaded_in_vain_alone)
{
    EACH_ANEW(of_ledger, 2, begin, rig_end) {
        struct asked asked[COLD + 1] = {0};

        make_cold(false);
        if (of_ledger)
            fake_damage_batch(rig.fake, coupon_id(1), 0, 3);
        else
            fake_damage_definition(rig.fake, coupon_id(1));
        latch_init(&all, COLD);
        latch_init(&vain, 1);
        ask_cold(asked, &vain);
        assert_waits_alone(&asked[1]);
        for (size_t i = 0; i <= COLD; i++)
            assert_int_equal(asked[i].op.outcome.result, i == 1 ? CPN_BUSY : CPN_OK);
        release(asked, COLD + 1);
    }
}

/* ---- what nobody asks for ---- */

/* A hold in each coupon lapses at the same moment: before its lane sees to it, it looks whether another process does. */
TEST(idle_lanes_look_for_others_by_a_few_calls_for_all_of_them)
{
    size_t before;
    int64_t expired;

    for (size_t i = 0; i < COLD; i++) {
        struct op op = rig_taking("ann", "k1", SLOT_RESERVED);

        create(coupon_id(i), 10);
        op.coupon = coupon_id(i);
        op.in.user.take.reserve_s = HOLD_S;
        rig_ask(0, &op);
    }
    for (size_t i = 0; i < COLD; i++)
        catch_up(coupon_id(i));
    before = atomic_load(&t.calls);
    expired = metrics_get(METRIC_HOLDS_EXPIRED);
    rig_move_clock(HOLD_S + 1);
    while (metrics_get(METRIC_HOLDS_EXPIRED) - expired < COLD)
        rig_nap();
    assert_in_range(atomic_load(&t.calls) - before, 1, COLD_CALLS_MOST);
}

/* ---- coupons that do not exist ---- */

TEST(coupons_that_do_not_exist_are_found_by_a_few_calls_for_all_of_them)
{
    struct asked asked[UNKNOWN + 1] = {0};
    size_t before;

    latch_init(&all, UNKNOWN + 1);
    atomic_store(&t.held, true);
    for (size_t i = 0; i <= UNKNOWN; i++) {
        asked[i].op = (struct op){.kind = OP_COUPON};
        submit(&asked[i], coupon_id(i), &all);
        while (i == 0 && !atomic_load(&t.calls)) /* the first is a round of its own */
            rig_nap();
    }
    before = atomic_load(&t.calls);
    atomic_store(&t.held, false);
    latch_wait(&all);
    for (size_t i = 0; i <= UNKNOWN; i++)
        assert_int_equal(asked[i].op.outcome.result, CPN_COUPON_NOT_FOUND);
    assert_in_range(atomic_load(&t.calls) - before, 1, CALLS_MOST);
    create(coupon_id(7), 10);
    take(coupon_id(7), "ann", "k");
    release(asked, UNKNOWN + 1);
}

RUN_TESTS(.each_setup = begin, .each_teardown = rig_end, .setup = fake_group_setup)
