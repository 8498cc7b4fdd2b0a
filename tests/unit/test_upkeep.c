/* Unit tests of coupons/decide: events, turns at making codes, single slots retired, users erased, coupons without slots. */
#include "cmocka_whole.h"

#include "unit/lane.h"

static int count_of(enum entry_kind kind)
{
    int count = 0;

    for (size_t i = 0; i < batch->count; i++)
        count += batch->entries[i].kind == kind;
    return count;
}

static const struct entry *last_of(enum entry_kind kind)
{
    for (size_t i = batch->count; i-- > 0;)
        if (batch->entries[i].kind == kind)
            return &batch->entries[i];
    return NULL;
}

static void take_times(struct user_state *u, int times)
{
    for (int i = 0; i < times; i++)
        take(u, SLOT_REDEEMED, arena_printf(&arena, "%d-%d", (int)d.head.seq, i), NULL);
}

/* ---- events ---- */

/* Room for more in the bucket. */
static void start_with(int slots)
{
    c.codes.source = CODES_NONE;
    tail.slots = tail.next_n = the_bucket.size = slots;
}

/* A batch of so many takings and, before them, returns; which of the events it raised. */
static unsigned events_of(int returns, int takings)
{
    unsigned seen;

    lane_open();
    for (size_t i = 0; i < ana->count && returns; i++)
        if (ana->redemptions[i].state == SLOT_REDEEMED) {
            step(ana, ana->redemptions[i], MOVE_REVERSE, NULL, NULL, CPN_OK);
            returns--;
        }
    take_times(ana, takings);
    decide_events(&d);
    assert_true(count_of(ENTRY_LOW_STOCK) <= 1 && count_of(ENTRY_SOLD_OUT) <= 1 && count_of(ENTRY_REPLENISH) <= 1);
    seen = (count_of(ENTRY_LOW_STOCK) ? 1 : 0) | (count_of(ENTRY_SOLD_OUT) ? 2 : 0) | (count_of(ENTRY_REPLENISH) ? 4 : 0);
    if (seen & 1)
        assert_int_equal(last_of(ENTRY_LOW_STOCK)->count, head_free(&d.head));
    lane_close();
    return seen;
}

static void generate(int64_t step_number, int64_t count, enum cpn_result want)
{
    lane_open();
    decide_generate(&d, job, step_number, count, 0, &out);
    expect(want);
    if (want == CPN_OK)
        lane_close();
}

TEST(events_come_once_on_the_way_down)
{
    start_with(40);
    c.low_stock = 10;
    assert_int_equal(events_of(0, 29), 0); /* 11 are free */
    assert_int_equal(events_of(0, 1), 1);
    assert_int_equal(events_of(0, 1), 0);
    assert_int_equal(events_of(20, 1), 0); /* up, and down again: no refill */
    assert_int_equal(events_of(0, 27), 0);
    assert_int_equal(events_of(0, 1), 2);
    assert_int_equal(events_of(1, 0), 0);
    assert_int_equal(events_of(0, 1), 0);
    generate(1, 12, CPN_OK); /* a refill */
    assert_int_equal(tail.low_stock + tail.sold_out, 0);
    assert_int_equal(events_of(5, 5), 0); /* 12 to 17 to 12 */
    assert_int_equal(events_of(0, 2), 1);
    assert_int_equal(events_of(0, 10), 2);
}

TEST(one_batch_may_raise_everything)
{
    c.codes.source = CODES_NONE;
    c.low_stock = 10;
    c.replenish.below = 5;
    c.replenish.add = 100;
    c.cap.total = 100;
    lane_open();
    take_times(ana, 64);
    decide_events(&d);
    assert_int_equal(last_of(ENTRY_LOW_STOCK)->count, 0);
    assert_non_null(last_of(ENTRY_SOLD_OUT));
    assert_int_equal(last_of(ENTRY_REPLENISH)->count, 100); /* up to cap.total */
    decide_events(&d);
    assert_int_equal(batch->count, 67); /* nothing twice */
    lane_next();
    decide_events(&d);
    assert_false(decide_changed(&d)); /* they follow from something, or are not */
}

TEST(stock_that_came_back_within_the_batch_was_there)
{
    c.codes.source = CODES_NONE;
    c.low_stock = 10;
    tail.retiring = 54; /* 10 are free */
    lane_open();
    take_times(ana, 3);
    decide_events(&d);
    assert_int_equal(count_of(ENTRY_LOW_STOCK), 0); /* it was no more before */
    lane_close();
    tail.retiring = 50; /* 11 are free */
    assert_int_equal(events_of(3, 4), 1);
}

TEST(replenishing_goes_on_until_it_is_done_and_is_asked_for_once)
{
    start_with(40);
    c.replenish.below = 10;
    c.replenish.add = 20;
    assert_int_equal(events_of(0, 30), 0); /* 10 are free: not below */
    assert_int_equal(events_of(0, 1), 4);
    assert_int_equal(tail.replenish_until, 60);
    assert_int_equal(events_of(0, 1), 0);
    generate(1, 19, CPN_OK);
    assert_int_equal(tail.replenish_until, 60);
    assert_int_equal(events_of(30, 1), 0);
    generate(2, 1, CPN_OK);
    assert_int_equal(tail.replenish_until, 0);
    assert_int_equal(events_of(0, 38), 0);
    assert_int_equal(head_free(&tail), 19);
    assert_int_equal(events_of(0, 10), 4);
    assert_int_equal(tail.replenish_until, 64); /* no more than the cap */
}

TEST(nothing_is_replenished_where_nothing_should)
{
    EACH_ANEW(i, 4, lane_fresh, lane_release) {
        c.codes.source = i == 0 ? CODES_IMPORTED : CODES_NONE;
        c.replenish.below = 10;
        c.replenish.add = 20;
        c.cap.total = i == 1 ? 64 : 200;
        lane_open();
        take_times(ana, 60);
        if (i == 2)
            c.state = COUPON_PAUSED;
        decide_events(&d);
        assert_int_equal(count_of(ENTRY_REPLENISH), i == 3);
        assert_int_equal(count_of(ENTRY_LOW_STOCK), i == 0); /* a list cannot be added to: it is said */
        lane_close();
    }
}

TEST(a_coupon_without_slots_has_no_stock_to_be_low)
{
    without_slots(CAP_APPROXIMATE);
    c.low_stock = 100;
    lane_open();
    take_times(ana, 1);
    decide_events(&d);
    assert_int_equal(batch->count, 1);
    lane_close();
}

/* ---- turns ---- */

static struct job_progress other;

static void turn(struct job_progress *of, int64_t fence, enum cpn_result want, int64_t want_turn)
{
    int64_t given = -1;

    decide_turn(&d, of, fence, &given, &out);
    expect(want);
    assert_int_equal(given, want_turn);
}

TEST(one_job_at_a_time_makes_codes)
{
    int64_t first;

    other = (struct job_progress){.id = "j2"};
    c.cap.total = 1000;
    lane_open();
    turn(job, 1, CPN_OK, 8);
    turn(job, 1, CPN_OK, 8); /* asked again */
    turn(&other, 1, CPN_BUSY, 0);
    assert_int_equal(batch->count, 1);
    lane_close();
    first = tail.turn;
    lane_open();
    decide_generate(&d, job, 1, 10, 0, &out);
    expect(CPN_BUSY);
    decide_generate(&d, job, 1, 10, first + 1, &out);
    expect(CPN_BUSY);
    decide_generate(&d, job, 1, 10, first, &out);
    expect(CPN_OK);
    lane_next();
    turn(job, 2, CPN_OK, 10); /* the next runner of the same job */
    decide_generate(&d, job, 2, 10, first, &out); /* what the first one made is not announced */
    expect(CPN_BUSY);
    decide_generate(&d, job, 1, 10, first, &out);
    assert_true(out.replayed);
    lane_next();
    turn(job, 1, CPN_BUSY, 0); /* the first one comes back */
    decide_turn_end(&d, &other, &out);
    assert_false(decide_changed(&d));
    decide_turn_end(&d, job, &out);
    assert_int_equal(d.head.turn, 0);
    decide_turn_end(&d, job, &out);
    assert_int_equal(batch->count, 1);
    turn(&other, 1, CPN_OK, 11);
    decide_generate(&d, job, 2, 10, 10, &out);
    expect(CPN_BUSY);
    lane_close();
}

TEST(a_batch_gives_one_turn_at_the_most)
{
    other = (struct job_progress){.id = "j2"};
    lane_open();
    turn(job, 1, CPN_OK, 8);
    turn(job, 2, CPN_BUSY, 0); /* the number would not tell the runners apart */
    decide_turn_end(&d, job, &out);
    turn(&other, 1, CPN_BUSY, 0);
    assert_int_equal(d.head.turn, 0);
    lane_next();
    turn(&other, 1, CPN_OK, 9);
}

TEST(where_there_are_no_codes_nobody_needs_a_turn)
{
    c.codes.source = CODES_NONE;
    c.cap.total = 100;
    generate(1, 36, CPN_OK);
    generate(2, 1, CPN_CAP_EXCEEDED);
}

/* ---- one slot retired ---- */

static void retire(struct user_state *u, int64_t n, enum cpn_result want)
{
    decide_retire_one(&d, u, n, &out);
    expect(want);
}

TEST(a_slot_is_retired_once_from_free_or_issued)
{
    struct redemption issued, reserved;

    lane_open();
    issued = take(ana, SLOT_ISSUED, "i", NULL);
    reserved = take(ana, SLOT_RESERVED, "h", NULL);
    take(ana, SLOT_REDEEMED, "r", NULL);
    lane_next();
    retire(NULL, 64, CPN_SLOT_NOT_FOUND);
    retire(ana, 1, CPN_TRANSACTION_IN_PROGRESS);
    assert_int_equal(out.retry_at_ms, reserved.reserved_until_ms);
    retire(ana, 2, CPN_CODE_TAKEN);
    lane_drop();
    lane_open();
    retire(ana, issued.n, CPN_OK);
    retire(NULL, 3, CPN_OK); /* the next of the free pool */
    retire(NULL, 3, CPN_OK);
    assert_int_equal(take(bob, SLOT_ISSUED, "b", NULL).n, 4);
    step(ana, issued, MOVE_REDEEM, "late", NULL, CPN_INVALID_TRANSITION);
    lane_close();
    assert_int_equal(tail.slots, 62);
    assert_int_equal(tail.retiring, 0);
    assert_int_equal(head_free(&tail), 59);
    assert_int_equal(ana->total, 2);
    assert_int_equal(the_bucket.slots[0].state, SLOT_RETIRED);
    assert_int_equal(the_bucket.slots[3].state, SLOT_RETIRED);
    lane_open();
    retire(NULL, 0, CPN_OK);
    assert_false(decide_changed(&d));
}

TEST(what_lapsed_can_be_retired)
{
    lane_open();
    step(ana, take(ana, SLOT_ISSUED, "i", NULL), MOVE_RESERVE, "h", NULL, CPN_OK);
    lane_lapse();
    retire(ana, 0, CPN_OK);
    lane_close();
    assert_int_equal(tail.reserved + tail.issued, 0);
    assert_int_equal(ana->total, 0);
}

/* All free slots are due for retirement: the one that is named is one of them. */
TEST(a_slot_that_is_due_is_not_counted_twice)
{
    int64_t done;

    lane_open();
    take_times(ana, 60);
    decide_retiring(&d, job, 1, 100, &done, &out);
    assert_int_equal(done, 4);
    retire(NULL, 63, CPN_OK);
    assert_int_equal(d.head.retiring, 3);
    assert_int_equal(head_free(&d.head), 0);
    decide_retire(&d, 100);
    assert_int_equal(d.head.retiring, 0);
    assert_int_equal(d.head.slots, 60);
    lane_close();
    for (int i = 60; i < 64; i++)
        assert_int_equal(the_bucket.slots[i].state, SLOT_RETIRED);
}

TEST(a_slot_retired_from_the_free_pool_cannot_be_taken_by_its_code)
{
    tail.retiring = 1;
    lane_open();
    decide_retire(&d, 1);
    post(ana, SLOT_REDEEMED, "k", NULL, "CODE", 0, CPN_CODE_NOT_FOUND);
    lane_close();
}

/* ---- erasure ---- */

/* Something in every state that there is. */
static void live_a_little(struct user_state *u)
{
    struct redemption r;

    take(u, SLOT_ISSUED, "1", NULL);
    take(u, SLOT_RESERVED, "2", "o2");
    take(u, SLOT_REDEEMED, "3", "o3");
    r = take(u, SLOT_ISSUED, "4", NULL);
    step(u, r, MOVE_RESERVE, "4h", "o4", CPN_OK);
    r = take(u, SLOT_ISSUED, "5", NULL);
    step(u, step(u, r, MOVE_RESERVE, "5h", "o5", CPN_OK), MOVE_REDEEM, "5r", NULL, CPN_OK);
    step(u, take(u, SLOT_REDEEMED, "6", NULL), MOVE_REVERSE, NULL, NULL, CPN_OK);
}

static void an_erased_user_leaves_no_name_and_starts_anew(bool slots)
{
    char alias[ID_ALIAS_LEN + 1];
    int64_t slots_with_names = 0;

    if (!slots)
        without_slots(CAP_NONE);
    c.cap.per_user = 6;
    discounts(500);
    lane_open();
    live_a_little(ana);
    take(bob, SLOT_REDEEMED, "b", NULL);
    lane_close();
    memcpy(alias, ana->alias, sizeof alias);
    lane_open();
    decide_erase(&d, ana, &out);
    expect(CPN_OK);
    assert_int_equal(last_of(ENTRY_ERASE)->before, 8);
    assert_string_equal(last_of(ENTRY_ERASE)->alias, alias);
    assert_int_equal(count_of(ENTRY_FORGET), slots ? 2 : 0); /* what was redeemed stays redeemed, by nobody */
    assert_int_equal(count_of(ENTRY_CANCEL), 4);
    decide_erase(&d, ana, &out); /* once */
    expect(CPN_OK);
    assert_int_equal(count_of(ENTRY_ERASE), 1);
    /* the same user comes back in the same batch, and nothing links the two */
    take_times(ana, 6);
    post(ana, SLOT_REDEEMED, "one more", NULL, NULL, -1, CPN_USER_CAP_REACHED);
    assert_string_not_equal(ana->alias, alias);
    for (size_t i = batch->count - 6; i < batch->count; i++) {
        assert_string_equal(batch->entries[i].alias, ana->alias);
        assert_int_equal(batch->entries[i].before, 0);
    }
    lane_close();
    assert_int_equal(ana->total, 6);
    assert_false(user_state_is_nobody(ana));
    assert_int_equal(tail.redeemed, 2 + 1 + 6);
    assert_int_equal(tail.issued + tail.reserved, 0);
    for (int i = 0; i < the_bucket.size; i++)
        slots_with_names += the_bucket.slots[i].user && strcmp(the_bucket.slots[i].user, "ana") == 0;
    assert_int_equal(slots_with_names, slots ? 6 : 0);
    lane_open();
    step(ana, ana->redemptions[0], MOVE_REVERSE, NULL, NULL, CPN_OK);
    assert_int_equal(batch->entries[0].before, 9); /* a chain again */
    lane_close();
}

TEST(an_erased_user_starts_anew_with_and_without_slots)
{
    EACH_ANEW(i, 2, lane_fresh, lane_release)
        an_erased_user_leaves_no_name_and_starts_anew(i == 0);
}

TEST(an_erased_user_who_comes_back_later_is_not_linked_either)
{
    lane_open();
    take(ana, SLOT_REDEEMED, "k", NULL);
    lane_next();
    decide_erase(&d, ana, &out);
    lane_close();
    assert_string_equal(ana->alias, "");
    assert_true(user_state_is_nobody(ana));
    lane_open();
    post(ana, SLOT_REDEEMED, "k", NULL, "no such code", -1, CPN_CODE_NOT_FOUND); /* gives a name, but writes nothing */
    decide_erase(&d, ana, &out);
    expect(CPN_OK);
    assert_false(decide_changed(&d));
    take(ana, SLOT_REDEEMED, "k", NULL); /* the old key is nobody's */
    assert_true(out.created);
    take(ana, SLOT_REDEEMED, "k2", NULL);
    assert_int_equal(batch->entries[0].before, 0);
    assert_int_equal(batch->entries[1].before, 0);
    decide_erase(&d, ana, &out); /* and goes again, in the same batch */
    take(ana, SLOT_REDEEMED, "k", NULL);
    assert_true(out.created);
    for (size_t i = 0; i < batch->count; i++)
        assert_int_equal(batch->entries[i].before, 0);
    lane_close();
    assert_int_equal(ana->total, 1);
    assert_int_equal(tail.redeemed, 4);
}

TEST(who_was_never_there_is_erased_without_a_trace)
{
    lane_open();
    decide_erase(&d, ana, &out);
    expect(CPN_OK);
    post(ana, SLOT_REDEEMED, "k", NULL, "no such code", -1, CPN_CODE_NOT_FOUND);
    decide_erase(&d, ana, &out);
    expect(CPN_OK);
    lane_drop();
}

TEST(the_slots_of_an_erased_user_must_be_at_hand)
{
    lane_open();
    take_times(ana, 2);
    lane_next();
    d.named_count = 1;
    decide_erase(&d, ana, &out);
    expect(CPN_BUSY);
    lane_drop();
}

/* ---- without slots ---- */

TEST(what_has_no_slot_is_known_by_its_place_in_the_ledger)
{
    struct redemption a, b, hold;

    without_slots(CAP_NONE);
    lane_open();
    a = take(ana, SLOT_REDEEMED, "a", NULL);
    b = take(bob, SLOT_ISSUED, "b", NULL);
    assert_int_equal(a.n, -8);
    assert_int_equal(a.g, 1);
    assert_int_equal(b.n, -8);
    assert_int_equal(b.g, 2);
    assert_int_equal(a.left, COUPON_NULL);
    assert_int_equal(b.day, 2);
    lane_next();
    hold = step(bob, b, MOVE_RESERVE, "h", NULL, CPN_OK);
    assert_int_equal(hold.n, -9);
    assert_int_equal(hold.g, 1);
    assert_int_equal(hold.from_n, -8);
    assert_int_equal(hold.from, 2);
    lane_next();
    step(bob, hold, MOVE_CANCEL, NULL, NULL, CPN_OK);
    lane_close();
    assert_int_equal(tail.issued, 1);
    assert_int_equal(tail.reserved, 0);
}

TEST(an_approximate_cap_adds_what_others_were_heard_to_have_taken)
{
    struct coupon next;

    without_slots(CAP_APPROXIMATE);
    c.cap.total = 10;
    lane_open();
    d.others.taken = 7;
    take_times(ana, 3);
    post(ana, SLOT_REDEEMED, "k", NULL, NULL, -1, CPN_SOLD_OUT);
    assert_false(out.retry);
    assert_null(out.detail);
    step(ana, ana->redemptions[0], MOVE_REVERSE, NULL, NULL, CPN_OK);
    take(ana, SLOT_RESERVED, "h", NULL);
    post(ana, SLOT_REDEEMED, "k", NULL, NULL, -1, CPN_SOLD_OUT);
    assert_true(out.retry);
    d.others.taken = 12; /* heard late: more than the cap; what was taken stays */
    next = c;
    next.title = "Another";
    decide_change(&d, &next, 1, true, &out);
    expect(CPN_OK);
    next.cap.total = 9;
    decide_change(&d, &next, 2, true, &out);
    expect(CPN_CAP_BELOW_TAKEN);
    next.cap.total = 16;
    decide_change(&d, &next, 2, true, &out);
    expect(CPN_OK);
    take(ana, SLOT_REDEEMED, "k", NULL);
    post(ana, SLOT_REDEEMED, "l", NULL, NULL, -1, CPN_SOLD_OUT);
    lane_close();
}

TEST(no_cap_lets_everything_through_but_the_users_own)
{
    without_slots(CAP_NONE);
    c.cap.total = 1;
    c.cap.per_user = 50;
    c.cap.per_day = 80;
    lane_open();
    take_times(ana, 50);
    post(ana, SLOT_REDEEMED, "k", NULL, NULL, -1, CPN_USER_CAP_REACHED);
    take_times(bob, 30);
    post(bob, SLOT_REDEEMED, "k", NULL, NULL, -1, CPN_DAILY_CAP_REACHED);
    lane_close();
}

TEST(slots_are_not_made_where_there_are_none)
{
    without_slots(CAP_NONE);
    generate(1, 5, CPN_CAP_EXCEEDED);
    assert_non_null(out.detail);
    lane_drop();
}

RUN_TESTS(.each_setup = lane_fresh, .each_teardown = lane_release)
