/*
 * tests/engine/test_free_map.c -- where a lane looks for free slots: in order from the first on, or at random, all equally likely;
 * whatever is stored, and whatever happened since.
 */
#include "cmocka_whole.h"
#include <math.h>

#include "base/log.h"
#include "engine/free_map.h"
#include "engine/free_pool.h"
#include "engine/redo_log.h"
#include "rig.h"

#define PART 4096 /* buckets of which the counts are read at a time */

static struct {
    struct store *session;
    struct coupon coupon;
    struct lane lane;
} t;

FIXTURE(begin)
{
    memset(&t, 0, sizeof t);
    rig_connect(1, 1, 0);
    t.session = rig_session();
    coupon_init(&t.coupon);
    return 0;
}

static void forget(void)
{
    redo_log_clear(&t.lane);
    cached_bucket_forget_all(&t.lane);
    free_map_forget(&t.lane);
    free(t.lane.free_pool);
}

static int end(void **state)
{
    forget();
    t.session->ops->close(t.session);
    return rig_end(state);
}

/* The lane as just loaded, with slots before next_n, of which `taken` are. */
static void load(int64_t next_n, int64_t taken, int64_t seq)
{
    forget();
    t.lane = (struct lane){.coupon = COUPON, .topup = FREE_POOL_TOPUP_FIRST, .next_due_ms = INT64_MAX, .definition = &t.coupon,
                           .checkpoint = {.seq = seq}, .tail = {.seq = seq, .slots = next_n, .next_n = next_n, .redeemed = taken}};
}

/* Store bucket b as of batch 1, of which the first `taken` slots are. */
static void put(int64_t b, int taken)
{
    struct store_time when;
    struct view_write view = {.coupon = COUPON};
    struct bucket k;

    bucket_init(&k, b);
    k.seq = 1;
    for (int i = 0; i < taken; i++)
        k.slots[i] = (struct slot){.generation = 1, .current = 1, .state = SLOT_REDEEMED};
    view.bucket = &k;
    assert_int_equal(t.session->ops->write_views(t.session, &view, 1, &when), STORE_OK);
    bucket_release(&k);
}

/* Want so many in the free pool; returns how many there are. */
static size_t want(size_t count)
{
    struct top_up top = {.lane = &t.lane, .want = count};

    free_pool_top_up(t.session, &top, 1);
    assert_int_equal(top.status, STORE_OK);
    assert_false(top.damaged);
    return t.lane.free_pool_count;
}

static int64_t pooled(size_t i)
{
    return t.lane.free_pool[t.lane.free_pool_first + i].n;
}

/* Several parts of the map lie before the first free slot; the lane's last bucket is made in part. */
TEST(the_first_free_slot_is_found_behind_many_that_are_taken)
{
    int64_t next_n = 2 * PART * BUCKET_SLOTS + BUCKET_SLOTS + 5;

    for (int64_t b = 0; b <= 2 * PART; b++)
        put(b, b == 2 * PART ? 60 : BUCKET_SLOTS);
    load(next_n, next_n - 9, 1);
    assert_int_equal(want(20), 9);
    for (int i = 0; i < 9; i++)
        assert_int_equal(pooled((size_t)i), next_n - 9 + i);
    assert_int_equal(want(9), 9);
}

/* Once around, from where the search is. */
TEST(what_is_given_back_behind_the_search_is_found)
{
    struct batch *b = batch_new(COUPON, 0);

    put(0, BUCKET_SLOTS);
    load(8 * BUCKET_SLOTS, BUCKET_SLOTS, 1);
    assert_int_equal(want(7 * BUCKET_SLOTS), 7 * BUCKET_SLOTS);
    assert_int_equal(pooled(0), BUCKET_SLOTS);
    *batch_add(b, ENTRY_REVERSE) = (struct entry){.kind = ENTRY_REVERSE, .n = 3, .g = 1};
    b->head.seq = 2;
    t.lane.tail.seq = 2;
    t.lane.tail.redeemed--;
    redo_log_add(&t.lane, b, false);
    free_map_move(&t.lane, b);
    assert_int_equal(want(7 * BUCKET_SLOTS + 1), 7 * BUCKET_SLOTS + 1);
    assert_int_equal(pooled(7 * BUCKET_SLOTS), 3);
}

/* What a batch did is in some of the stored buckets already, and in others not: each counts once. */
TEST(the_redo_log_counts_where_it_is_not_stored_yet)
{
    struct batch *b = batch_new(COUPON, 0);

    for (int64_t k = 0; k < 3; k++)
        if (k < 2)
            put(k, BUCKET_SLOTS - 2);
    for (int64_t k = 0; k < 3; k++)
        *batch_add(b, ENTRY_REDEEM) = (struct entry){.kind = ENTRY_REDEEM, .n = k * BUCKET_SLOTS + BUCKET_SLOTS - 1, .g = 1};
    *batch_add(b, ENTRY_RETIRE) = (struct entry){.kind = ENTRY_RETIRE, .n = 3 * BUCKET_SLOTS - 5, .count = 70};
    b->head.seq = 1;
    load(6 * BUCKET_SLOTS, 0, 1);
    t.lane.checkpoint.seq = 0;
    redo_log_add(&t.lane, b, false);
    assert_int_equal(free_map_read(t.session, (struct lane *[]){&t.lane}, 1), STORE_OK);
    assert_true(free_map_is_whole(&t.lane));
    assert_int_equal(t.lane.free_map[0], 2); /* of batch 1 itself */
    assert_int_equal(t.lane.free_map[1], 2);
    assert_int_equal(t.lane.free_map[2], BUCKET_SLOTS - 1 - 5);
    assert_int_equal(t.lane.free_map[3], 0);
    assert_int_equal(t.lane.free_map[4], BUCKET_SLOTS - 1);
    assert_int_equal(t.lane.free_map[5], BUCKET_SLOTS);
}

TEST(a_bucket_ahead_of_the_tail_makes_the_lane_stale)
{
    put(1, 5);
    load(3 * BUCKET_SLOTS, 0, 0);
    assert_int_equal(want(1), 0);
    assert_true(t.lane.stale);
    assert_int_equal(t.lane.mapped, 0);
}

/* ---- at random ---- */

#define BUCKETS 40
#define EXPECTED 20 /* times that each is picked */
#define PLACES 3    /* of the free pool: the next one, and those after it */

/* The bound that chi squared with so many degrees of freedom exceeds once in ten million times (Wilson and Hilferty). */
static double bound_of(double degrees)
{
    double z = 5.2, part = 2 / (9 * degrees);

    return degrees * pow(1 - part + z * sqrt(part), 3);
}

/* Buckets with 1 to 64 free slots, some with none: whichever place in the free pool is taken, each free slot is there equally often. */
TEST(each_free_slot_is_picked_equally_often)
{
    static int picked[PLACES][BUCKETS * BUCKET_SLOTS];
    int64_t next_n = BUCKETS * BUCKET_SLOTS - 7, open = 0;

    t.coupon.codes.pick = PICK_RANDOM;
    for (int64_t b = 0; b < BUCKETS; b++) {
        int taken = b % 8 == 7 ? BUCKET_SLOTS : b % 4 == 0 ? BUCKET_SLOTS - 3 : (int)(b * 13 % 50);

        if (taken)
            put(b, taken);
        open += (b == BUCKETS - 1 ? BUCKET_SLOTS - 7 : BUCKET_SLOTS) - taken;
    }
    open += 7; /* none is free in the last bucket, which is made in part */
    memset(picked, 0, sizeof picked);
    for (int64_t i = 0; i < EXPECTED * open; i++) {
        load(next_n, next_n - open, 1);
        assert_true(want(PLACES) >= PLACES);
        for (size_t k = 0; k < PLACES; k++)
            picked[k][pooled(k)]++;
    }
    for (size_t k = 0; k < PLACES; k++) {
        double chi = 0;
        int64_t slots = 0;

        for (int64_t n = 0; n < BUCKETS * BUCKET_SLOTS; n++) {
            chi += picked[k][n] ? (picked[k][n] - EXPECTED) * (double)(picked[k][n] - EXPECTED) / EXPECTED : 0;
            slots += picked[k][n] > 0;
        }
        chi += (double)(open - slots) * EXPECTED; /* never picked */
        if (slots > open || chi > bound_of((double)open - 1))
            fail_msg("place %zu: chi squared %.0f of %lld free slots, %lld picked; at most %.0f", k, chi, (long long)open,
                     (long long)slots, bound_of((double)open - 1));
    }
}

TEST(at_random_all_are_found_once)
{
    static bool found[BUCKETS * BUCKET_SLOTS];

    t.coupon.codes.pick = PICK_RANDOM;
    memset(found, 0, sizeof found);
    put(3, BUCKET_SLOTS);
    load(BUCKETS * BUCKET_SLOTS, BUCKET_SLOTS, 1);
    for (int i = 0; want(BUCKETS * BUCKET_SLOTS) < (BUCKETS - 1) * BUCKET_SLOTS; i++)
        assert_true(i < 100);
    for (size_t i = 0; i < (BUCKETS - 1) * BUCKET_SLOTS; i++) {
        assert_false(found[pooled(i)]);
        found[pooled(i)] = true;
    }
    for (int64_t n = 3 * BUCKET_SLOTS; n < 4 * BUCKET_SLOTS; n++)
        assert_false(found[n]);
}

RUN_TESTS(.each_setup = begin, .each_teardown = end, .setup = fake_group_setup)
