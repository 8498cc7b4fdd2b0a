/*
 * tests/engine/test_moves.c -- a slot that a process was moving when it died is not lost, nor made twice: whoever asks next has it.
 *
 * Way  one engine asks for a slot of a coupon that has none. Before its k-th question whether lanes have moved, for every k, another
 *      engine makes one, takes it out of lane 0 for lane 1, and dies before lane 1 has it
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "coupons/transfer.h"
#include "lanes/lanes.h"
#include "rig.h"

#define LANES 2
#define DYING_MS 50 /* how long the one that died is waited for */
#define QUESTIONS_MOST 40

enum { ASKING, DYING };

static struct {
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
    return rig.watched[ASKING].plain->confirm(s, confirms, count);
}

static enum store_status dying_append(struct store *s, struct append *appends, size_t count)
{
    for (size_t i = 0; i < count && t.dies; i++)
        if (appends[i].batch->lane == 1 && job_transfers(appends[i].batch->entries[0].job))
            fake_cut(rig.sources[DYING]);
    return rig.watched[DYING].plain->append(s, appends, count);
}

/* ---- two engines, and what is asked of them ---- */

static void start_engines(void)
{
    memset(&t, 0, sizeof t);
    rig_connect(2, 1, 0);
    rig.config.patience_ms = 10;
    rig.watched[ASKING].ops.confirm = asking_confirm;
    rig.watched[DYING].ops.append = dying_append;
    rig_start(lanes_start);
}

/* Another user each time. */
static enum cpn_result take(int engine, int64_t lane, int64_t ms)
{
    const char *user;
    struct op op;

    do
        user = arena_printf(&rig.arenas[engine], "u%d", atomic_fetch_add(&t.users, 1));
    while (coupon_lane_of(user, LANES) != lane);
    op = rig_taking(user, user, SLOT_REDEEMED);
    return rig_call_within(engine, &op, ms);
}

static void create(void)
{
    struct coupon coupon;

    open_coupon(&coupon, COUPON);
    coupon.cap.total = 1000;
    coupon.lanes = LANES;
    rig_create(&coupon);
}

/* Lane 0 has the only slot that there is; lane 1 does not get it, and its user no answer that means anything. */
static void move_and_die(void)
{
    rig_ask(DYING, &(struct op){.kind = OP_GENERATE, .in.job = {.id = "more", .step = 1, .count = 1}});
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
        fail_msg("moved before question %d: the one who asked got %s", k, result_info(first)->name);
    if (second != CPN_OK)
        fail_msg("moved before question %d: who asked then got %s, and one is free", k, result_info(second)->name);
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
        rig_end(state);
    }
    assert_in_range(k, 4, QUESTIONS_MOST - 1); /* it came in between, and not for ever */
}

RUN_TESTS(.setup = fake_group_setup)
