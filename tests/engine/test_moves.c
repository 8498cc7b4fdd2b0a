/*
 * tests/engine/test_moves.c -- a slot that a process was moving when it died is not lost, nor made twice: whoever asks next has it.
 *
 * Way  one engine asks for a slot of a coupon that has none. Before its k-th question whether lanes have moved, for every k, another
 *      engine makes one, takes it out of lane 0 for lane 1, and dies before lane 1 has it
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "coupons/transfer.h"
#include "engine/engine.h"
#include "fake_store.h"
#include "lanes/lanes.h"

#define COUPON "c1"
#define LANES 2
#define PATIENCE_MS 300000
#define DYING_MS 50 /* how long the one that died is waited for */
#define QUESTIONS_MOST 40

enum { ASKING, DYING };

static struct {
    struct fake *fake;
    struct store_source *sources[2];
    struct watched watched[2];
    struct engine *engines[2];
    struct arena arenas[2];
    atomic_int questions; /* before so many more the other engine comes; 0: it has been, or is not to come */
    atomic_bool dies;
    atomic_int users;
} t;

/* ---- sessions that are watched ---- */

static void move_and_die(void);

static enum store_status asking_confirm(struct store *s, struct confirm *confirms, size_t count)
{
    if (t.questions && atomic_fetch_sub(&t.questions, 1) == 1)
        move_and_die();
    return t.watched[ASKING].plain->confirm(s, confirms, count);
}

static enum store_status dying_append(struct store *s, struct append *appends, size_t count)
{
    for (size_t i = 0; i < count && t.dies; i++)
        if (appends[i].batch->lane == 1 && job_transfers(appends[i].batch->entries[0].job))
            fake_cut(t.sources[DYING]);
    return t.watched[DYING].plain->append(s, appends, count);
}

/* ---- two engines, and what is asked of them ---- */

static void start_engines(void)
{
    const struct engine_config config = {
        .batch_max = 16, .queue_max = 16, .requests_max = 16, .lanes_max = 8, .redo_max = 200,
        .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 10,
    };

    memset(&t, 0, sizeof t);
    t.fake = fake_new(1, 0);
    for (int i = 0; i < 2; i++) {
        arena_init(&t.arenas[i], 0);
        t.sources[i] = fake_connect(t.fake);
        fake_watch(&t.watched[i], t.sources[i]);
    }
    t.watched[ASKING].ops.confirm = asking_confirm;
    t.watched[DYING].ops.append = dying_append;
    for (int i = 0; i < 2; i++)
        t.engines[i] = engine_start(&config, &t.watched[i].source, lanes_start);
}

static void stop_engines(void)
{
    for (int i = 0; i < 2; i++) {
        engine_stop(t.engines[i]);
        fake_disconnect(t.sources[i]);
        arena_free(&t.arenas[i]);
    }
    fake_free(t.fake);
}

static enum cpn_result call_within(int engine, struct op *op, int64_t ms)
{
    op->coupon = COUPON;
    op->arena = &t.arenas[engine];
    op->deadline = mono_add_ms(mono_now(), ms);
    return engine_call(t.engines[engine], op);
}

static enum cpn_result call(int engine, struct op *op)
{
    return call_within(engine, op, PATIENCE_MS);
}

/* Another user each time. */
static enum cpn_result take(int engine, int64_t lane, int64_t ms)
{
    struct op op = {.kind = OP_TAKE};

    do
        op.in.user.name = arena_printf(&t.arenas[engine], "u%d", atomic_fetch_add(&t.users, 1));
    while (coupon_lane_of(op.in.user.name, LANES) != lane);
    op.in.user.take = (struct take){.key = op.in.user.name, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    return call_within(engine, &op, ms);
}

static void generate(int engine, const char *job, int64_t count)
{
    struct op op = {.kind = OP_GENERATE, .in.job = {.id = job, .step = 1, .count = count}};

    assert_int_equal(call(engine, &op), CPN_OK);
}

static void create(void)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};

    open_coupon(&coupon, COUPON);
    coupon.cap.total = 1000;
    coupon.lanes = LANES;
    assert_int_equal(call(ASKING, &op), CPN_OK);
}

/* Lane 0 has the only slot that there is; lane 1 does not get it, and its user no answer that means anything. */
static void move_and_die(void)
{
    generate(DYING, "more", 1);
    t.dies = true;
    assert_int_not_equal(take(DYING, 1, DYING_MS), CPN_OK);
}

/* True: the other engine came before the k-th question. */
static bool moved_before_question(int k)
{
    enum cpn_result first, second = CPN_OK;
    bool came;

    create();
    t.questions = k;
    first = take(ASKING, 0, PATIENCE_MS);
    came = !atomic_exchange(&t.questions, 0);
    if (came && first != CPN_OK)
        second = take(ASKING, 0, PATIENCE_MS);
    if (first != CPN_OK && first != CPN_SOLD_OUT)
        fail_msg("moved before question %d: the one who asked was told %s", k, result_info(first)->name);
    if (second != CPN_OK)
        fail_msg("moved before question %d: who asked then was told %s, and one is free", k, result_info(second)->name);
    if (came && take(ASKING, 0, PATIENCE_MS) != CPN_SOLD_OUT)
        fail_msg("moved before question %d: one was made, and two were taken", k);
    return came;
}

TEST(a_slot_that_the_dead_were_moving_is_taken_once)
{
    bool came = true;
    int k;

    for (k = 1; came && k < QUESTIONS_MOST; k++) {
        start_engines();
        came = moved_before_question(k);
        stop_engines();
    }
    assert_in_range(k, 4, QUESTIONS_MOST - 1); /* it came in between, and not for ever */
}

RUN_TESTS(.setup = fake_group_setup)
