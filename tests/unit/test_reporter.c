/* Unit tests of the reporter's pure parts: tallies become runs, the queue, and which lanes are looked after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "reporter/batch_counts.h"
#include "reporter/definition_sync.h"
#include "reporter/queue.h"
#include "reporter/checkpoint_lag.h"

static struct counted_lane hot = {.coupon = "hot"}, cold = {.coupon = "cold"};

static struct batch_counts one(struct counted_lane *of, int64_t seq, int64_t at_ms, int64_t redeemed)
{
    struct batch_counts t = {.lane = of->lane, .seq = seq, .at_ms = at_ms, .counts = {.redeemed = redeemed}, .of = of};

    snprintf(t.coupon, sizeof t.coupon, "%s", of->coupon);
    return t;
}

static void batches_of_one_lane_and_quarter_become_one_run(void **state)
{
    struct batch_counts t[] = {one(&hot, 5, 100, 1), one(&cold, 9, 100, 7), one(&hot, 6, 200, 2), one(&hot, 7, QUARTER_MS - 1, 3)};
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

static void counts_of_codes_are_merged_and_trimmed_with_the_run(void **state)
{
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&hot, 2, 0, 2), one(&hot, 3, 0, 4)};
    struct run runs[3];
    struct totals_write w;

    (void)state;
    for (int i = 0; i < 3; i++)
        code_counts_add(&t[i].codes, i == 1 ? "BEA" : "ANNA", "EUR", &t[i].counts);
    assert_int_equal(runs_build(t, 3, runs), 1);
    w = run_write(&runs[0]);
    assert_int_equal(w.by->count, 2);
    assert_int_equal(w.by->rows[0].counts.redeemed, 5);
    assert_true(run_trim(&runs[0], 1, t, 3));
    w = run_write(&runs[0]);
    assert_int_equal(w.by->rows[0].counts.redeemed, 4);
    assert_int_equal(w.by->rows[1].counts.redeemed, 2);
    run_release(&runs[0]);
    for (int i = 0; i < 3; i++)
        batch_counts_release(&t[i]);
}

static void a_new_quarter_begins_a_new_run(void **state)
{
    struct batch_counts t[] = {one(&hot, 1, QUARTER_MS - 1, 1), one(&hot, 2, QUARTER_MS, 2), one(&hot, 3, QUARTER_MS + 5, 4)};
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
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&cold, 1, 0, 0)};
    struct run runs[2];

    (void)state;
    t[0].of = NULL;
    assert_int_equal(runs_build(t, 2, runs), 0);
}

static void a_run_is_trimmed_to_what_the_totals_do_not_hold(void **state)
{
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&hot, 2, 0, 2), one(&cold, 3, 0, 64), one(&hot, 3, 0, 4)};
    struct run runs[4];

    (void)state;
    assert_int_equal(runs_build(t, 4, runs), 2);
    assert_true(run_trim(&runs[0], 1, t, 4));
    assert_int_equal(runs[0].first_seq, 2);
    assert_int_equal(runs[0].last_seq, 3);
    assert_int_equal(runs[0].counts.redeemed, 6);
    assert_false(run_trim(&runs[0], 3, t, 4));
}

static void a_batch_that_asks_for_slots_says_so_in_its_counts(void **state)
{
    struct batch *b = batch_new("hot", 0);
    struct batch_counts t;

    (void)state;
    batch_add(b, ENTRY_TICK);
    batch_counts_of(&t, b);
    assert_int_equal(t.replenish_until, 0);
    batch_add(b, ENTRY_REPLENISH)->count = 300;
    batch_add(b, ENTRY_TICK);
    batch_counts_of(&t, b);
    assert_int_equal(t.replenish_until, 300);
    batch_free(b);
}

static void a_new_coupon_that_wants_slots_of_a_job_says_so_in_its_counts(void **state)
{
    struct batch *b = batch_new("hot", 0);
    struct entry *e = batch_add(b, ENTRY_DEFINE);
    struct batch_counts t;

    (void)state;
    e->count = 300; /* made in the same batch */
    batch_counts_of(&t, b);
    assert_int_equal(t.first_slots, 0);
    e->job = "0123456789abcdef";
    batch_counts_of(&t, b);
    assert_int_equal(t.first_slots, 300);
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
        struct batch_counts t;

        b->lanes = rows[i].lanes;
        batch_add(b, rows[i].kind);
        batch_counts_of(&t, b);
        assert_int_equal(t.leads, rows[i].leads);
        batch_free(b);
    }
}

static void the_queue_keeps_order_and_requests(void **state)
{
    struct queue in;
    struct batch_counts t, taken[8];
    const struct mono past = {0};
    bool sweep;

    (void)state;
    queue_init(&in);
    for (int64_t seq = 1; seq <= 3; seq++) {
        t = one(&hot, seq, 0, 1);
        assert_true(queue_put(&in, &t));
    }
    queue_ask_sweep(&in);
    queue_ask_sweep(&in);
    assert_int_equal(queue_take(&in, taken, 2, past, past, &sweep), 2);
    assert_true(sweep);
    assert_int_equal(taken[1].seq, 2);
    assert_int_equal(queue_take(&in, taken, 8, past, mono_add_ms(mono_now(), 10), &sweep), 1);
    assert_false(sweep);
    assert_int_equal(taken[0].seq, 3);
    assert_int_equal(queue_take(&in, taken, 8, past, mono_add_ms(mono_now(), 1), &sweep), 0);
    queue_close(&in);
    assert_false(queue_put(&in, &t));
    queue_release(&in);
}

static void *put_four(void *context)
{
    for (int64_t seq = 1; seq <= 4; seq++) {
        struct batch_counts t = one(&hot, seq, 0, 1);

        if (!queue_put(context, &t))
            return context;
    }
    return NULL;
}

static void the_queue_waits_until_it_is_full_enough_or_asked_to_sweep(void **state)
{
    struct mono now = mono_now(), late = mono_add_ms(now, 60000);
    struct batch_counts taken[8];
    struct queue in;
    pthread_t feed;
    void *failed;
    bool sweep;

    (void)state;
    queue_init(&in);
    assert_int_equal(pthread_create(&feed, NULL, put_four, &in), 0);
    assert_int_equal(queue_take(&in, taken, 4, late, late, &sweep), 4);
    pthread_join(feed, &failed);
    assert_null(failed);
    assert_null(put_four(&in));
    assert_int_equal(queue_take(&in, taken, 8, mono_add_ms(now, 20), late, &sweep), 4);
    assert_true(mono_ms_between(now, mono_now()) >= 20);
    queue_ask_sweep(&in);
    assert_int_equal(queue_take(&in, taken, 8, late, late, &sweep), 0);
    assert_true(sweep);
    assert_true(mono_before(mono_now(), late));
    queue_release(&in);
}

/* Milliseconds of a pretended clock. */
static struct mono at(int64_t ms)
{
    return (struct mono){ms * 1000000};
}

static void lanes_are_made_to_follow_once_and_again_where_that_failed(void **state)
{
    struct definition_sync *f = definition_sync_new();
    char coupon[COUPON_ID_MAX + 1];
    int failures;

    (void)state;
    definition_sync_changed(f, "hot", at(0));
    definition_sync_changed(f, "cold", at(500));
    definition_sync_changed(f, "hot", at(900)); /* is one with the first */
    assert_false(definition_sync_due(f, at(999), coupon, &failures));
    assert_true(definition_sync_due(f, at(1000), coupon, &failures));
    assert_string_equal(coupon, "hot");
    assert_int_equal(failures, 0);
    assert_false(definition_sync_due(f, at(1499), coupon, &failures));
    definition_sync_failed(f, "hot", 1, at(1000));
    assert_true(definition_sync_due(f, at(2999), coupon, &failures));
    assert_string_equal(coupon, "cold");
    assert_false(definition_sync_due(f, at(2999), coupon, &failures));
    assert_true(definition_sync_due(f, at(3000), coupon, &failures));
    assert_int_equal(failures, 1);
    definition_sync_failed(f, "hot", 100, at(3000));
    assert_false(definition_sync_due(f, at(62999), coupon, &failures));
    assert_true(definition_sync_due(f, at(63000), coupon, &failures));
    definition_sync_changed(f, "left", at(63000));
    definition_sync_free(f);
}

#define AGE_MS 1000

static void a_quiet_lane_whose_mark_stands_still_for_three_ages_is_behind(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due due[4];

    (void)state;
    checkpoint_lag_seen(w, "hot", 0, 7, at(0));
    assert_int_equal(checkpoint_lag_due(w, at(1900), due, 4), 0);
    assert_int_equal(checkpoint_lag_due(w, at(2000), due, 4), 1);
    assert_string_equal(due[0].coupon, "hot");
    assert_false(checkpoint_lag_read(w, "hot", 0, 5, at(2000)));
    assert_int_equal(checkpoint_lag_due(w, at(5000), due, 4), 0);
    assert_int_equal(checkpoint_lag_due(w, at(5001), due, 4), 1);
    assert_true(checkpoint_lag_read(w, "hot", 0, 5, at(5001)));
    assert_int_equal(checkpoint_lag_due(w, at(8002), due, 4), 1);
    assert_false(checkpoint_lag_read(w, "hot", 0, 7, at(8002)));
    assert_int_equal(checkpoint_lag_due(w, at(100000000), due, 4), 0);
    checkpoint_lag_free(w);
}

static void however_young_marks_move_a_lane_is_left_alone_for_a_moment(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(1);
    struct checkpoint_lag_due due[4];

    (void)state;
    checkpoint_lag_seen(w, "hot", 0, 7, at(0));
    assert_int_equal(checkpoint_lag_due(w, at(399), due, 4), 0);
    assert_int_equal(checkpoint_lag_due(w, at(400), due, 4), 1);
    assert_false(checkpoint_lag_read(w, "hot", 0, 5, at(400)));
    assert_int_equal(checkpoint_lag_due(w, at(1400), due, 4), 0);
    assert_int_equal(checkpoint_lag_due(w, at(1401), due, 4), 1);
    assert_true(checkpoint_lag_read(w, "hot", 0, 5, at(1401)));
    checkpoint_lag_free(w);
}

static void a_mark_that_moves_is_not_behind(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due due[4];

    (void)state;
    checkpoint_lag_seen(w, "slow", 0, 90, at(0));
    for (int64_t look = 1; look < 20; look++) {
        assert_int_equal(checkpoint_lag_due(w, at(3001 * look), due, 4), 1);
        assert_false(checkpoint_lag_read(w, "slow", 0, look, at(3001 * look)));
    }
    checkpoint_lag_free(w);
}

static void a_busy_lane_is_left_alone_while_its_mark_moves(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due due[4];
    int64_t ms;

    (void)state;
    for (ms = 0; ms <= 10000; ms += 100) {
        checkpoint_lag_seen(w, "hot", 0, 10 + ms, at(ms));
        assert_int_equal(checkpoint_lag_due(w, at(ms), due, 4), 0);
    }
    checkpoint_lag_seen(w, "hot", 0, 10 + ms, at(ms));
    assert_int_equal(checkpoint_lag_due(w, at(ms), due, 4), 1);
    assert_false(checkpoint_lag_read(w, "hot", 0, 9000, at(ms)));
    for (int64_t end = ms + 10000; ms < end; ms += 100)
        checkpoint_lag_seen(w, "hot", 0, 10 + ms, at(ms));
    assert_int_equal(checkpoint_lag_due(w, at(ms + 1), due, 4), 1);
    assert_true(checkpoint_lag_read(w, "hot", 0, 9000, at(ms + 1)));
    checkpoint_lag_free(w);
}

static void a_lane_that_cannot_be_written_is_tried_less_and_less_often(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due due[4];

    (void)state;
    checkpoint_lag_seen(w, "hot", 0, 7, at(0));
    assert_int_equal(checkpoint_lag_due(w, at(2000), due, 4), 1);
    checkpoint_lag_failed(w, "hot", 0, at(2000));
    assert_int_equal(checkpoint_lag_due(w, at(7900), due, 4), 0);
    assert_int_equal(checkpoint_lag_due(w, at(8001), due, 4), 1);
    checkpoint_lag_failed(w, "hot", 0, at(8001));
    assert_int_equal(checkpoint_lag_due(w, at(19900), due, 4), 0);
    checkpoint_lag_seen(w, "hot", 0, 8, at(19900));
    assert_int_equal(checkpoint_lag_due(w, at(21900), due, 4), 1);
    checkpoint_lag_free(w);
}

static void many_lanes_are_looked_at_in_turns(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due due[2];
    char seen[5] = "";

    (void)state;
    for (int64_t lane = 0; lane < 4; lane++)
        checkpoint_lag_seen(w, "many", lane, 1, at(0));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(checkpoint_lag_due(w, at(2000 + round), due, 2), 2);
        for (int i = 0; i < 2; i++)
            seen[due[i].lane] = 'x';
    }
    assert_memory_equal(seen, "xxxx", 4);
    checkpoint_lag_free(w);
}

/* None failed. */
static bool views_are_written(struct checkpoint_lag *w)
{
    struct checkpoint_lag_due failed[2];
    size_t count;

    return checkpoint_lag_is_done(w, failed, 2, &count) && count == 0;
}

static void what_was_behind_when_a_wait_began_is_waited_for_and_nothing_later(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);

    (void)state;
    checkpoint_lag_begin(w);
    assert_true(views_are_written(w));
    checkpoint_lag_seen(w, "hot", 0, 7, at(0));
    checkpoint_lag_seen(w, "cold", 0, 3, at(0));
    assert_true(views_are_written(w));
    checkpoint_lag_begin(w);
    checkpoint_lag_seen(w, "hot", 0, 9, at(100));
    checkpoint_lag_seen(w, "late", 0, 1, at(100));
    assert_false(checkpoint_lag_read(w, "hot", 0, 6, at(500)));
    assert_false(checkpoint_lag_read(w, "cold", 0, 3, at(500)));
    assert_false(views_are_written(w));
    assert_false(checkpoint_lag_read(w, "hot", 0, 7, at(500)));
    assert_true(views_are_written(w));
    checkpoint_lag_begin(w); /* for hot, 9, and late, 1 */
    assert_false(checkpoint_lag_read(w, "late", 0, 1, at(600)));
    assert_false(views_are_written(w));
    checkpoint_lag_begin(w);
    assert_false(checkpoint_lag_read(w, "hot", 0, 9, at(600)));
    assert_true(views_are_written(w));
    checkpoint_lag_free(w);
}

static void views_that_cannot_be_written_are_not_waited_for_but_named(void **state)
{
    struct checkpoint_lag *w = checkpoint_lag_new(AGE_MS);
    struct checkpoint_lag_due failed[2];
    size_t count;

    (void)state;
    for (int64_t lane = 0; lane < 3; lane++)
        checkpoint_lag_seen(w, "hurt", lane, 7, at(0));
    checkpoint_lag_seen(w, "well", 0, 7, at(0));
    checkpoint_lag_begin(w);
    checkpoint_lag_failed(w, "hurt", 1, at(100));
    checkpoint_lag_failed(w, "hurt", 2, at(100));
    assert_false(checkpoint_lag_read(w, "hurt", 0, 7, at(500)));
    assert_false(checkpoint_lag_is_done(w, failed, 2, &count)); /* well */
    assert_false(checkpoint_lag_read(w, "well", 0, 7, at(500)));
    assert_true(checkpoint_lag_is_done(w, failed, 2, &count));
    assert_int_equal(count, 2);
    assert_true(failed[0].lane + failed[1].lane == 3 && strcmp(failed[0].coupon, "hurt") == 0);
    assert_false(checkpoint_lag_is_done(w, failed, 1, &count));
    checkpoint_lag_seen(w, "hurt", 1, 8, at(600)); /* what comes on top mends nothing */
    assert_true(checkpoint_lag_is_done(w, failed, 2, &count));
    assert_false(checkpoint_lag_read(w, "hurt", 1, 6, at(700))); /* but who writes again may come to the end */
    assert_false(checkpoint_lag_is_done(w, failed, 2, &count));
    assert_false(checkpoint_lag_read(w, "hurt", 1, 7, at(800)));
    assert_true(checkpoint_lag_is_done(w, failed, 2, &count));
    assert_true(count == 1 && failed[0].lane == 2);
    checkpoint_lag_free(w);
}

/* None failed. */
static bool all_follow(struct definition_sync *f)
{
    definition_sync_coupon failed[2];
    size_t count;

    return definition_sync_is_done(f, failed, 2, &count) && count == 0;
}

static void who_is_taken_out_to_follow_is_not_done_before_it_has_ended(void **state)
{
    struct definition_sync *f = definition_sync_new();
    char coupon[COUPON_ID_MAX + 1];
    int failures;

    (void)state;
    assert_true(all_follow(f));
    definition_sync_changed(f, "wide", at(0));
    definition_sync_begin(f);
    assert_false(all_follow(f));
    assert_true(definition_sync_due(f, at(FOLLOW_WAIT_MS), coupon, &failures));
    assert_false(all_follow(f));
    definition_sync_failed(f, coupon, failures + 1, at(FOLLOW_WAIT_MS));
    definition_sync_ended(f);
    assert_false(all_follow(f));
    assert_true(definition_sync_due(f, at(3 * FOLLOW_WAIT_MS), coupon, &failures));
    definition_sync_ended(f);
    assert_true(all_follow(f));
    definition_sync_free(f);
}

static void who_cannot_be_made_to_follow_is_not_waited_for_but_named(void **state)
{
    struct definition_sync *f = definition_sync_new();
    definition_sync_coupon failed[2], coupon;
    int failures;
    size_t count;

    (void)state;
    definition_sync_changed(f, "hurt", at(0));
    definition_sync_begin(f);
    assert_false(definition_sync_is_done(f, failed, 2, &count));
    assert_true(definition_sync_due(f, at(FOLLOW_WAIT_MS), coupon, &failures));
    definition_sync_changed(f, "hurt", at(FOLLOW_WAIT_MS)); /* while it is tried */
    definition_sync_failed(f, coupon, failures + 1, at(FOLLOW_WAIT_MS));
    definition_sync_ended(f);
    assert_true(definition_sync_is_done(f, failed, 2, &count));
    assert_true(count == 1 && strcmp(failed[0], "hurt") == 0);
    assert_false(definition_sync_is_done(f, failed, 0, &count));
    definition_sync_changed(f, "well", at(FOLLOW_WAIT_MS));
    definition_sync_begin(f);
    assert_false(definition_sync_is_done(f, failed, 2, &count));
    assert_true(definition_sync_due(f, at(2 * FOLLOW_WAIT_MS), coupon, &failures));
    assert_string_equal(coupon, "hurt");
    assert_false(definition_sync_is_done(f, failed, 2, &count));
    definition_sync_failed(f, coupon, failures + 1, at(2 * FOLLOW_WAIT_MS));
    definition_sync_ended(f);
    assert_true(definition_sync_due(f, at(2 * FOLLOW_WAIT_MS), coupon, &failures));
    assert_string_equal(coupon, "well");
    definition_sync_ended(f);
    assert_true(definition_sync_is_done(f, failed, 2, &count));
    assert_true(definition_sync_due(f, at(100 * FOLLOW_WAIT_MS), coupon, &failures));
    assert_true(definition_sync_is_done(f, failed, 2, &count)); /* it is tried once more: named nevertheless */
    assert_true(count == 1 && strcmp(failed[0], "hurt") == 0);
    definition_sync_ended(f);
    assert_true(all_follow(f));
    definition_sync_free(f);
}

static void changes_that_come_on_and_on_are_not_waited_for(void **state)
{
    struct definition_sync *f = definition_sync_new();
    char coupon[COUPON_ID_MAX + 1];
    int64_t now = 0;
    int failures;

    (void)state;
    definition_sync_changed(f, "busy", at(0));
    definition_sync_changed(f, "other", at(0));
    definition_sync_begin(f);
    for (int taken = 0; taken < 2; now += 100) {
        definition_sync_changed(f, "busy", at(now));
        if (!definition_sync_due(f, at(now), coupon, &failures))
            continue;
        assert_false(all_follow(f));
        definition_sync_changed(f, coupon, at(now)); /* and while it is made to follow */
        definition_sync_ended(f);
        taken++;
    }
    assert_true(all_follow(f)); /* though both have changed again */
    definition_sync_begin(f);
    assert_false(all_follow(f));
    definition_sync_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_coupon_that_wants_slots_of_a_job_says_so_in_its_counts),
        cmocka_unit_test(a_definition_that_other_lanes_follow_is_told_of),
        cmocka_unit_test(lanes_are_made_to_follow_once_and_again_where_that_failed),
        cmocka_unit_test(batches_of_one_lane_and_quarter_become_one_run),
        cmocka_unit_test(counts_of_codes_are_merged_and_trimmed_with_the_run),
        cmocka_unit_test(a_new_quarter_begins_a_new_run),
        cmocka_unit_test(what_is_not_counted_and_what_adds_nothing_makes_no_run),
        cmocka_unit_test(a_run_is_trimmed_to_what_the_totals_do_not_hold),
        cmocka_unit_test(a_batch_that_asks_for_slots_says_so_in_its_counts),
        cmocka_unit_test(the_queue_keeps_order_and_requests),
        cmocka_unit_test(the_queue_waits_until_it_is_full_enough_or_asked_to_sweep),
        cmocka_unit_test(a_quiet_lane_whose_mark_stands_still_for_three_ages_is_behind),
        cmocka_unit_test(however_young_marks_move_a_lane_is_left_alone_for_a_moment),
        cmocka_unit_test(a_mark_that_moves_is_not_behind),
        cmocka_unit_test(a_busy_lane_is_left_alone_while_its_mark_moves),
        cmocka_unit_test(a_lane_that_cannot_be_written_is_tried_less_and_less_often),
        cmocka_unit_test(many_lanes_are_looked_at_in_turns),
        cmocka_unit_test(what_was_behind_when_a_wait_began_is_waited_for_and_nothing_later),
        cmocka_unit_test(views_that_cannot_be_written_are_not_waited_for_but_named),
        cmocka_unit_test(who_is_taken_out_to_follow_is_not_done_before_it_has_ended),
        cmocka_unit_test(who_cannot_be_made_to_follow_is_not_waited_for_but_named),
        cmocka_unit_test(changes_that_come_on_and_on_are_not_waited_for),
    };

    return cmocka_run_group_tests_name("reporter", tests, NULL, NULL);
}
