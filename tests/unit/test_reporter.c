/* Unit tests of the reporter's pure parts: tallies become runs, the inbox, and which lanes are looked after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "reporter/follow.h"
#include "reporter/inbox.h"
#include "reporter/tally.h"
#include "reporter/watch.h"

static struct tally_lane hot = {.coupon = "hot"}, cold = {.coupon = "cold"};

static struct tally one(struct tally_lane *of, int64_t seq, int64_t at_ms, int64_t redeemed)
{
    struct tally t = {.lane = of->lane, .seq = seq, .at_ms = at_ms, .counts = {.redeemed = redeemed}, .of = of};

    snprintf(t.coupon, sizeof t.coupon, "%s", of->coupon);
    return t;
}

static void batches_of_one_lane_and_quarter_become_one_run(void **state)
{
    struct tally t[] = {one(&hot, 5, 100, 1), one(&cold, 9, 100, 7), one(&hot, 6, 200, 2), one(&hot, 7, QUARTER_MS - 1, 3)};
    struct run runs[4];
    struct totals_write w;

    (void)state;
    assert_int_equal(runs_build(t, 4, runs), 2);
    assert_int_equal(runs[0].first_seq, 5);
    assert_int_equal(runs[0].last_seq, 7);
    assert_int_equal(runs[0].counts.redeemed, 6);
    assert_int_equal(runs[1].counts.redeemed, 7);
    w = run_write(&runs[0]);
    assert_string_equal(w.coupon, "hot");
    assert_ptr_equal(w.counts, &runs[0].counts);
}

static void a_new_quarter_begins_a_new_run(void **state)
{
    struct tally t[] = {one(&hot, 1, QUARTER_MS - 1, 1), one(&hot, 2, QUARTER_MS, 2), one(&hot, 3, QUARTER_MS + 5, 4)};
    struct run runs[3];

    (void)state;
    assert_int_equal(runs_build(t, 3, runs), 2);
    assert_int_equal(runs[0].quarter_ms, 0);
    assert_int_equal(runs[0].counts.redeemed, 1);
    assert_int_equal(runs[1].quarter_ms, QUARTER_MS);
    assert_int_equal(runs[1].first_seq, 2);
    assert_int_equal(runs[1].counts.redeemed, 6);
}

static void what_is_not_counted_and_what_adds_nothing_makes_no_run(void **state)
{
    struct tally t[] = {one(&hot, 1, 0, 1), one(&cold, 1, 0, 0)};
    struct run runs[2];

    (void)state;
    t[0].of = NULL;
    assert_int_equal(runs_build(t, 2, runs), 0);
}

static void a_run_is_trimmed_to_what_the_totals_do_not_hold(void **state)
{
    struct tally t[] = {one(&hot, 1, 0, 1), one(&hot, 2, 0, 2), one(&cold, 3, 0, 64), one(&hot, 3, 0, 4)};
    struct run runs[4];

    (void)state;
    assert_int_equal(runs_build(t, 4, runs), 2);
    assert_true(run_trim(&runs[0], 1, t, 4));
    assert_int_equal(runs[0].first_seq, 2);
    assert_int_equal(runs[0].last_seq, 3);
    assert_int_equal(runs[0].counts.redeemed, 6);
    assert_false(run_trim(&runs[0], 3, t, 4));
}

static void a_batch_that_asks_for_slots_says_so_in_its_tally(void **state)
{
    struct batch *b = batch_new("hot", 0);
    struct tally t;

    (void)state;
    batch_add(b, ENTRY_TICK);
    tally_of_batch(&t, b);
    assert_int_equal(t.replenish_until, 0);
    batch_add(b, ENTRY_REPLENISH)->count = 300;
    batch_add(b, ENTRY_TICK);
    tally_of_batch(&t, b);
    assert_int_equal(t.replenish_until, 300);
    batch_free(b);
}

static void a_new_coupon_that_wants_slots_of_a_job_says_so_in_its_tally(void **state)
{
    struct batch *b = batch_new("hot", 0);
    struct entry *e = batch_add(b, ENTRY_DEFINE);
    struct tally t;

    (void)state;
    e->count = 300; /* made in the same batch */
    tally_of_batch(&t, b);
    assert_int_equal(t.wished, 0);
    e->job = "0123456789abcdef";
    tally_of_batch(&t, b);
    assert_int_equal(t.wished, 300);
    assert_string_equal(t.job, "0123456789abcdef");
    batch_free(b);
}

static void a_definition_that_other_lanes_follow_is_told_of(void **state)
{
    static const struct {
        int64_t lane, lanes;
        enum entry_kind kind;
        bool leads;
    } rows[] = {{0, 4, ENTRY_DEFINE, true}, {0, 4, ENTRY_DELETE, true}, {0, 4, ENTRY_TICK, false},
                {1, 4, ENTRY_DEFINE, false}, {0, 1, ENTRY_DEFINE, false}, {0, 0, ENTRY_DELETE, false}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct batch *b = batch_new("hot", rows[i].lane);
        struct tally t;

        b->lanes = rows[i].lanes;
        batch_add(b, rows[i].kind);
        tally_of_batch(&t, b);
        assert_int_equal(t.leads, rows[i].leads);
        batch_free(b);
    }
}

static void the_inbox_keeps_order_and_wishes(void **state)
{
    struct inbox in;
    struct tally t, taken[8];
    bool sweep;

    (void)state;
    inbox_init(&in);
    for (int64_t seq = 1; seq <= 3; seq++) {
        t = one(&hot, seq, 0, 1);
        assert_true(inbox_put(&in, &t));
    }
    inbox_ask_sweep(&in);
    inbox_ask_sweep(&in);
    assert_int_equal(inbox_take(&in, taken, 2, 0, &sweep), 2);
    assert_true(sweep);
    assert_int_equal(taken[1].seq, 2);
    assert_int_equal(inbox_take(&in, taken, 8, 10, &sweep), 1);
    assert_false(sweep);
    assert_int_equal(taken[0].seq, 3);
    assert_int_equal(inbox_take(&in, taken, 8, 1, &sweep), 0);
    inbox_close(&in);
    assert_false(inbox_put(&in, &t));
    inbox_release(&in);
}

/* Milliseconds of a pretended clock. */
static struct mono at(int64_t ms)
{
    return (struct mono){ms * 1000000};
}

static void lanes_are_made_to_follow_once_and_again_where_that_failed(void **state)
{
    struct follow *f = follow_new();
    char coupon[COUPON_ID_MAX + 1];
    int failures;

    (void)state;
    follow_changed(f, "hot", at(0));
    follow_changed(f, "cold", at(500));
    follow_changed(f, "hot", at(900)); /* is one with the first */
    assert_false(follow_due(f, at(999), coupon, &failures));
    assert_true(follow_due(f, at(1000), coupon, &failures));
    assert_string_equal(coupon, "hot");
    assert_int_equal(failures, 0);
    assert_false(follow_due(f, at(1499), coupon, &failures));
    follow_failed(f, "hot", 1, at(1000));
    assert_true(follow_due(f, at(2999), coupon, &failures));
    assert_string_equal(coupon, "cold");
    assert_false(follow_due(f, at(2999), coupon, &failures));
    assert_true(follow_due(f, at(3000), coupon, &failures));
    assert_int_equal(failures, 1);
    follow_failed(f, "hot", 100, at(3000));
    assert_false(follow_due(f, at(62999), coupon, &failures));
    assert_true(follow_due(f, at(63000), coupon, &failures));
    follow_changed(f, "left", at(63000));
    follow_free(f);
}

static void a_quiet_lane_whose_mark_stands_still_for_a_second_is_behind(void **state)
{
    struct watch *w = watch_new();
    struct watch_due due[4];

    (void)state;
    watch_seen(w, "hot", 0, 7, at(0));
    assert_int_equal(watch_due(w, at(300), due, 4), 0);
    assert_int_equal(watch_due(w, at(400), due, 4), 1);
    assert_string_equal(due[0].coupon, "hot");
    assert_false(watch_marked(w, "hot", 0, 5, at(400)));
    assert_int_equal(watch_due(w, at(1400), due, 4), 0);
    assert_int_equal(watch_due(w, at(1401), due, 4), 1);
    assert_true(watch_marked(w, "hot", 0, 5, at(1401)));
    assert_int_equal(watch_due(w, at(2402), due, 4), 1);
    assert_false(watch_marked(w, "hot", 0, 7, at(2402)));
    assert_int_equal(watch_due(w, at(100000000), due, 4), 0);
    watch_free(w);
}

static void a_mark_that_moves_is_not_behind(void **state)
{
    struct watch *w = watch_new();
    struct watch_due due[4];

    (void)state;
    watch_seen(w, "slow", 0, 90, at(0));
    for (int64_t second = 1; second < 20; second++) {
        assert_int_equal(watch_due(w, at(1001 * second), due, 4), 1);
        assert_false(watch_marked(w, "slow", 0, second, at(1001 * second)));
    }
    watch_free(w);
}

static void a_busy_lane_is_left_alone_while_its_mark_moves(void **state)
{
    struct watch *w = watch_new();
    struct watch_due due[4];
    int64_t ms;

    (void)state;
    for (ms = 0; ms <= 10000; ms += 100) {
        watch_seen(w, "hot", 0, 10 + ms, at(ms));
        assert_int_equal(watch_due(w, at(ms), due, 4), 0);
    }
    watch_seen(w, "hot", 0, 10 + ms, at(ms));
    assert_int_equal(watch_due(w, at(ms), due, 4), 1);
    assert_false(watch_marked(w, "hot", 0, 9000, at(ms)));
    for (int64_t end = ms + 10000; ms < end; ms += 100)
        watch_seen(w, "hot", 0, 10 + ms, at(ms));
    assert_int_equal(watch_due(w, at(ms + 1), due, 4), 1);
    assert_true(watch_marked(w, "hot", 0, 9000, at(ms + 1)));
    watch_free(w);
}

static void a_lane_that_cannot_be_written_is_tried_less_and_less_often(void **state)
{
    struct watch *w = watch_new();
    struct watch_due due[4];

    (void)state;
    watch_seen(w, "hot", 0, 7, at(0));
    assert_int_equal(watch_due(w, at(1000), due, 4), 1);
    watch_failed(w, "hot", 0, at(1000));
    assert_int_equal(watch_due(w, at(2900), due, 4), 0);
    assert_int_equal(watch_due(w, at(3001), due, 4), 1);
    watch_failed(w, "hot", 0, at(3001));
    assert_int_equal(watch_due(w, at(6900), due, 4), 0);
    watch_seen(w, "hot", 0, 8, at(6900));
    assert_int_equal(watch_due(w, at(7900), due, 4), 1);
    watch_free(w);
}

static void many_lanes_are_looked_at_in_turns(void **state)
{
    struct watch *w = watch_new();
    struct watch_due due[2];
    char seen[5] = "";

    (void)state;
    for (int64_t lane = 0; lane < 4; lane++)
        watch_seen(w, "many", lane, 1, at(0));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(watch_due(w, at(1000 + round), due, 2), 2);
        for (int i = 0; i < 2; i++)
            seen[due[i].lane] = 'x';
    }
    assert_memory_equal(seen, "xxxx", 4);
    watch_free(w);
}

static void what_was_behind_when_a_wait_began_is_waited_for_and_nothing_later(void **state)
{
    struct watch *w = watch_new();

    (void)state;
    watch_begin(w);
    assert_true(watch_is_done(w));
    watch_seen(w, "hot", 0, 7, at(0));
    watch_seen(w, "cold", 0, 3, at(0));
    assert_true(watch_is_done(w));
    watch_begin(w);
    watch_seen(w, "hot", 0, 9, at(100));
    watch_seen(w, "late", 0, 1, at(100));
    assert_false(watch_marked(w, "hot", 0, 6, at(500)));
    assert_false(watch_marked(w, "cold", 0, 3, at(500)));
    assert_false(watch_is_done(w));
    assert_false(watch_marked(w, "hot", 0, 7, at(500)));
    assert_true(watch_is_done(w));
    watch_begin(w); /* for hot, 9, and late, 1 */
    assert_false(watch_marked(w, "late", 0, 1, at(600)));
    assert_false(watch_is_done(w));
    watch_begin(w);
    assert_false(watch_marked(w, "hot", 0, 9, at(600)));
    assert_true(watch_is_done(w));
    watch_free(w);
}

static void who_is_taken_out_to_follow_is_not_done_before_it_has_ended(void **state)
{
    struct follow *f = follow_new();
    char coupon[COUPON_ID_MAX + 1];
    int failures;

    (void)state;
    assert_true(follow_is_done(f));
    follow_changed(f, "wide", at(0));
    assert_false(follow_is_done(f));
    assert_true(follow_due(f, at(FOLLOW_WAIT_MS), coupon, &failures));
    assert_false(follow_is_done(f));
    follow_failed(f, coupon, failures + 1, at(FOLLOW_WAIT_MS));
    follow_ended(f);
    assert_false(follow_is_done(f));
    assert_true(follow_due(f, at(3 * FOLLOW_WAIT_MS), coupon, &failures));
    follow_ended(f);
    assert_true(follow_is_done(f));
    follow_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_coupon_that_wants_slots_of_a_job_says_so_in_its_tally),
        cmocka_unit_test(a_definition_that_other_lanes_follow_is_told_of),
        cmocka_unit_test(lanes_are_made_to_follow_once_and_again_where_that_failed),
        cmocka_unit_test(batches_of_one_lane_and_quarter_become_one_run),
        cmocka_unit_test(a_new_quarter_begins_a_new_run),
        cmocka_unit_test(what_is_not_counted_and_what_adds_nothing_makes_no_run),
        cmocka_unit_test(a_run_is_trimmed_to_what_the_totals_do_not_hold),
        cmocka_unit_test(a_batch_that_asks_for_slots_says_so_in_its_tally),
        cmocka_unit_test(the_inbox_keeps_order_and_wishes),
        cmocka_unit_test(a_quiet_lane_whose_mark_stands_still_for_a_second_is_behind),
        cmocka_unit_test(a_mark_that_moves_is_not_behind),
        cmocka_unit_test(a_busy_lane_is_left_alone_while_its_mark_moves),
        cmocka_unit_test(a_lane_that_cannot_be_written_is_tried_less_and_less_often),
        cmocka_unit_test(many_lanes_are_looked_at_in_turns),
        cmocka_unit_test(what_was_behind_when_a_wait_began_is_waited_for_and_nothing_later),
        cmocka_unit_test(who_is_taken_out_to_follow_is_not_done_before_it_has_ended),
    };

    return cmocka_run_group_tests_name("reporter", tests, NULL, NULL);
}
