/* Unit tests of the reporter's pure parts: tallies become runs, and which lanes are looked after. */
#include "cmocka_whole.h"

#include "reporter/backstop.h"
#include "reporter/batch_counts.h"

static struct counted_lane hot = {.coupon = "hot"}, cold = {.coupon = "cold"};

static struct batch_counts one(struct counted_lane *of, int64_t seq, int64_t at_ms, int64_t redeemed)
{
    struct batch_counts t = {.lane = of->lane, .seq = seq, .at_ms = at_ms, .counts = {.redeemed = redeemed}, .of = of};

    snprintf(t.coupon, sizeof t.coupon, "%s", of->coupon);
    return t;
}

TEST(batches_of_one_lane_and_quarter_become_one_run)
{
    struct batch_counts t[] = {one(&hot, 5, 100, 1), one(&cold, 9, 100, 7), one(&hot, 6, 200, 2), one(&hot, 7, QUARTER_MS - 1, 3)};
    struct run runs[4];
    struct totals_write w;

    assert_int_equal(runs_build(t, 4, runs), 2);
    assert_int_equal(runs[0].first_seq, 5);
    assert_int_equal(runs[0].last_seq, 7);
    assert_int_equal(runs[0].counts.redeemed, 6);
    assert_int_equal(runs[1].counts.redeemed, 7);
    w = run_write(&runs[0]);
    assert_string_equal(w.coupon, "hot");
    assert_ptr_equal(w.counts, &runs[0].counts);
}

TEST(counts_of_codes_are_merged_and_trimmed_with_the_run)
{
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&hot, 2, 0, 2), one(&hot, 3, 0, 4)};
    struct run runs[3];
    struct totals_write w;

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

TEST(a_new_quarter_begins_a_new_run)
{
    struct batch_counts t[] = {one(&hot, 1, QUARTER_MS - 1, 1), one(&hot, 2, QUARTER_MS, 2), one(&hot, 3, QUARTER_MS + 5, 4)};
    struct run runs[3];

    assert_int_equal(runs_build(t, 3, runs), 2);
    assert_int_equal(runs[0].quarter_ms, 0);
    assert_int_equal(runs[0].counts.redeemed, 1);
    assert_int_equal(runs[1].quarter_ms, QUARTER_MS);
    assert_int_equal(runs[1].first_seq, 2);
    assert_int_equal(runs[1].counts.redeemed, 6);
}

TEST(what_is_not_counted_and_what_adds_nothing_makes_no_run)
{
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&cold, 1, 0, 0)};
    struct run runs[2];

    t[0].of = NULL;
    assert_int_equal(runs_build(t, 2, runs), 0);
}

TEST(a_run_is_trimmed_to_what_the_totals_do_not_hold)
{
    struct batch_counts t[] = {one(&hot, 1, 0, 1), one(&hot, 2, 0, 2), one(&cold, 3, 0, 64), one(&hot, 3, 0, 4)};
    struct run runs[4];

    assert_int_equal(runs_build(t, 4, runs), 2);
    assert_true(run_trim(&runs[0], 1, t, 4));
    assert_int_equal(runs[0].first_seq, 2);
    assert_int_equal(runs[0].last_seq, 3);
    assert_int_equal(runs[0].counts.redeemed, 6);
    assert_false(run_trim(&runs[0], 3, t, 4));
}

TEST(a_batch_that_asks_for_slots_says_so_in_its_counts)
{
    struct batch *b = batch_new("hot", 0);
    struct batch_counts t;

    batch_add(b, ENTRY_TICK);
    batch_counts_of(&t, b);
    assert_int_equal(t.replenish_until, 0);
    batch_add(b, ENTRY_REPLENISH)->count = 300;
    batch_add(b, ENTRY_TICK);
    batch_counts_of(&t, b);
    assert_int_equal(t.replenish_until, 300);
    batch_free(b);
}

TEST(a_new_coupon_that_wants_slots_of_a_job_says_so_in_its_counts)
{
    struct batch *b = batch_new("hot", 0);
    struct entry *e = batch_add(b, ENTRY_DEFINE);
    struct batch_counts t;

    e->count = 300; /* made in the same batch */
    batch_counts_of(&t, b);
    assert_int_equal(t.first_slots, 0);
    e->job = "0123456789abcdef";
    batch_counts_of(&t, b);
    assert_int_equal(t.first_slots, 300);
    assert_string_equal(t.job, "0123456789abcdef");
    batch_free(b);
}

TEST(a_definition_that_other_lanes_follow_is_reported)
{
    static const struct {
        int64_t lane, lanes;
        enum entry_kind kind;
        bool leads;
    } rows[] = {{0, 4, ENTRY_DEFINE, true}, {0, 4, ENTRY_DELETE, true}, {0, 4, ENTRY_TICK, false},
                {1, 4, ENTRY_DEFINE, false}, {0, 1, ENTRY_DEFINE, false}, {0, 0, ENTRY_DELETE, false}};

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

/* Milliseconds of a pretended clock. */
static struct mono at(int64_t ms)
{
    return (struct mono){ms * 1000000};
}

#define AGE_MS 1000
#define LOOK_MS 2500

static struct backstop *k;
static struct backstop_due due;

FIXTURE(begin)
{
    k = backstop_new(AGE_MS);
    return 0;
}

FIXTURE(end)
{
    backstop_free(k);
    return 0;
}

/* The one lane that is due at ms. */
static struct backstop_due due_at(int64_t ms)
{
    struct backstop_due all[4] = {{.changes = -1}};

    assert_int_equal(backstop_due(k, at(ms), all, 4), 1);
    return all[0];
}

static void nothing_is_due_at(int64_t ms)
{
    struct backstop_due none[4];

    assert_int_equal(backstop_due(k, at(ms), none, 4), 0);
}

/* One lane is due, and its checkpoint is read. */
static bool behind_at(int64_t ms, int64_t seq)
{
    due = due_at(ms);
    return backstop_read(k, &due, seq, at(ms));
}

static struct backstop_due lane_of(const char *coupon, int64_t lane)
{
    struct backstop_due of = {.lane.lane = lane};

    snprintf(of.lane.coupon, sizeof of.lane.coupon, "%s", coupon);
    return of;
}

/* The lane's checkpoint was read. */
static bool is_behind(const char *coupon, int64_t lane, int64_t seq, int64_t ms)
{
    struct backstop_due of = lane_of(coupon, lane);

    return backstop_read(k, &of, seq, at(ms));
}

TEST(lanes_are_made_to_follow_once_and_again_where_that_failed)
{
    backstop_changed(k, "hot", at(0));
    backstop_changed(k, "cold", at(500));
    backstop_changed(k, "hot", at(900)); /* is one with the first */
    nothing_is_due_at(999);
    assert_false(behind_at(1000, 7)); /* it has no batch that we know */
    assert_string_equal(due.lane.coupon, "hot");
    assert_true(due.changes > 0);
    backstop_failed(k, &due, at(1000));
    nothing_is_due_at(1499);
    assert_false(behind_at(1500, 7));
    assert_string_equal(due.lane.coupon, "cold");
    backstop_followed(k, &due);
    nothing_is_due_at(1000 + 2 * LOOK_MS - 1);
    due = due_at(1000 + 2 * LOOK_MS);
    assert_string_equal(due.lane.coupon, "hot");
    backstop_followed(k, &due);
    nothing_is_due_at(100000000);
    backstop_changed(k, "left", at(63000));
}

TEST(a_checkpoint_that_has_not_moved_between_two_looks_is_behind)
{
    backstop_seen(k, "hot", 0, 7, at(0));
    nothing_is_due_at(LOOK_MS - 1);
    assert_false(behind_at(LOOK_MS, 5));
    assert_string_equal(due.lane.coupon, "hot");
    assert_int_equal(due.changes, 0);
    nothing_is_due_at(2 * LOOK_MS - 1);
    assert_true(behind_at(2 * LOOK_MS, 5));
    assert_false(behind_at(3 * LOOK_MS, 7));
    nothing_is_due_at(100000000);
}

TEST(a_look_that_follows_soon_on_another_says_nothing)
{
    backstop_seen(k, "hot", 0, 7, at(0));
    assert_false(behind_at(LOOK_MS, 5));
    backstop_changed(k, "hot", at(LOOK_MS));
    assert_false(behind_at(LOOK_MS + BACKSTOP_FOLLOW_MS, 5));
    backstop_followed(k, &due);
    assert_true(behind_at(2 * LOOK_MS + BACKSTOP_FOLLOW_MS, 5)); /* its checkpoint is not written */
    assert_int_equal(due.changes, 0);
}

TEST(however_short_the_age_a_lane_is_left_alone_for_a_moment)
{
    backstop_free(k);
    k = backstop_new(1);
    backstop_seen(k, "hot", 0, 7, at(0));
    nothing_is_due_at(BACKSTOP_LEAST_MS - 1);
    assert_false(behind_at(BACKSTOP_LEAST_MS, 5));
    nothing_is_due_at(2 * BACKSTOP_LEAST_MS - 1);
    assert_true(behind_at(2 * BACKSTOP_LEAST_MS, 5));
}

TEST(a_checkpoint_that_moves_is_not_behind_however_busy_its_lane)
{
    for (int64_t look = 1; look < 20; look++) {
        backstop_seen(k, "slow", 0, 90 + look, at(LOOK_MS * (look - 1)));
        assert_false(behind_at(LOOK_MS * look, look));
    }
}

TEST(a_lane_that_cannot_be_written_is_tried_less_and_less_often)
{
    int64_t now = LOOK_MS;

    backstop_seen(k, "hot", 0, 7, at(0));
    for (int64_t pause_ms = 2 * LOOK_MS; pause_ms < BACKSTOP_MOST_MS; pause_ms *= 2) {
        due = due_at(now);
        backstop_failed(k, &due, at(now));
        nothing_is_due_at(now + pause_ms - 1);
        now += pause_ms;
    }
    for (int i = 0; i < 5; i++, now += BACKSTOP_MOST_MS) {
        due = due_at(now);
        backstop_failed(k, &due, at(now));
        nothing_is_due_at(now + BACKSTOP_MOST_MS - 1);
    }
    assert_false(behind_at(now, 5)); /* somebody writes again */
    due = due_at(now + LOOK_MS);
}

TEST(lanes_that_cannot_follow_are_tried_less_and_less_often_while_others_write)
{
    int64_t now = BACKSTOP_FOLLOW_MS, seq = 1;

    backstop_changed(k, "hot", at(0));
    for (int64_t pause_ms = 2 * LOOK_MS; pause_ms < BACKSTOP_MOST_MS; pause_ms *= 2) {
        backstop_seen(k, "hot", 0, seq + 1, at(now));
        assert_false(behind_at(now, seq++));
        backstop_failed(k, &due, at(now));
        nothing_is_due_at(now + pause_ms - 1);
        now += pause_ms;
    }
    assert_false(behind_at(now, seq));
    backstop_followed(k, &due);
    nothing_is_due_at(100000000);
}

TEST(many_lanes_are_looked_at_in_turns)
{
    struct backstop_due two[2];
    char seen[5] = "";

    for (int64_t lane = 0; lane < 4; lane++)
        backstop_seen(k, "many", lane, 1, at(0));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(backstop_due(k, at(LOOK_MS + round), two, 2), 2);
        for (int i = 0; i < 2; i++)
            seen[two[i].lane.lane] = 'x';
    }
    assert_memory_equal(seen, "xxxx", 4);
}

/* Nothing failed. */
static bool all_is_done(void)
{
    struct lane_behind failed[2];
    size_t count;

    return backstop_is_done(k, failed, 2, &count) && count == 0;
}

TEST(what_was_undone_when_a_wait_began_is_waited_for_and_nothing_later)
{
    backstop_begin(k);
    assert_true(all_is_done());
    backstop_seen(k, "hot", 0, 7, at(0));
    backstop_seen(k, "cold", 0, 3, at(0));
    assert_true(all_is_done());
    backstop_begin(k);
    backstop_seen(k, "hot", 0, 9, at(100));
    backstop_seen(k, "late", 0, 1, at(100));
    assert_false(is_behind("hot", 0, 6, 500));
    assert_false(is_behind("cold", 0, 3, 500));
    assert_false(all_is_done());
    assert_false(is_behind("hot", 0, 7, 500));
    assert_true(all_is_done());
    backstop_begin(k); /* for hot, 9, and late, 1 */
    assert_false(is_behind("late", 0, 1, 600));
    assert_false(all_is_done());
    backstop_begin(k);
    assert_false(is_behind("hot", 0, 9, 600));
    assert_true(all_is_done());
}

TEST(what_cannot_be_done_is_not_waited_for_but_named)
{
    struct lane_behind failed[2];
    struct backstop_due hurt[2] = {lane_of("hurt", 1), lane_of("hurt", 2)};
    size_t count;

    for (int64_t lane = 0; lane < 3; lane++)
        backstop_seen(k, "hurt", lane, 7, at(0));
    backstop_seen(k, "well", 0, 7, at(0));
    backstop_begin(k);
    backstop_failed(k, &hurt[0], at(100));
    backstop_failed(k, &hurt[1], at(100));
    assert_false(is_behind("hurt", 0, 7, 500));
    assert_false(backstop_is_done(k, failed, 2, &count)); /* well */
    assert_false(is_behind("well", 0, 7, 500));
    assert_true(backstop_is_done(k, failed, 2, &count));
    assert_int_equal(count, 2);
    assert_true(failed[0].lane + failed[1].lane == 3 && strcmp(failed[0].coupon, "hurt") == 0);
    assert_false(backstop_is_done(k, failed, 1, &count));
    backstop_seen(k, "hurt", 1, 8, at(600)); /* what comes on top repairs nothing */
    assert_true(backstop_is_done(k, failed, 2, &count));
    assert_false(is_behind("hurt", 1, 6, 700)); /* but who writes again may come to the end */
    assert_false(backstop_is_done(k, failed, 2, &count));
    assert_false(is_behind("hurt", 1, 7, 800));
    assert_true(backstop_is_done(k, failed, 2, &count));
    assert_true(count == 1 && failed[0].lane == 2);
}

TEST(who_cannot_be_made_to_follow_is_not_waited_for_but_named)
{
    struct lane_behind failed[2];
    size_t count;

    backstop_seen(k, "hurt", 0, 2, at(0));
    backstop_changed(k, "hurt", at(0));
    backstop_begin(k);
    assert_false(behind_at(BACKSTOP_FOLLOW_MS, 2));
    assert_false(backstop_is_done(k, failed, 2, &count)); /* it does not follow yet */
    backstop_changed(k, "hurt", at(BACKSTOP_FOLLOW_MS)); /* while it is tried */
    backstop_failed(k, &due, at(BACKSTOP_FOLLOW_MS));
    assert_true(backstop_is_done(k, failed, 2, &count));
    assert_true(count == 1 && failed[0].lane == 0 && strcmp(failed[0].coupon, "hurt") == 0);
    assert_false(backstop_is_done(k, failed, 0, &count));
    due = due_at(BACKSTOP_FOLLOW_MS + 2 * LOOK_MS);
    assert_true(backstop_is_done(k, failed, 2, &count)); /* it is tried once more: named nevertheless */
    backstop_followed(k, &due);
    assert_true(all_is_done());
    nothing_is_due_at(100000000);
}

TEST(changes_that_come_on_and_on_are_not_waited_for)
{
    backstop_changed(k, "busy", at(0));
    backstop_begin(k);
    backstop_changed(k, "busy", at(500));
    due = due_at(BACKSTOP_FOLLOW_MS);
    assert_false(all_is_done());
    backstop_changed(k, "busy", at(BACKSTOP_FOLLOW_MS)); /* and while it is made to follow */
    backstop_followed(k, &due);
    assert_true(all_is_done()); /* though it has changed again */
    backstop_begin(k);
    assert_false(all_is_done());
    due = due_at(2 * BACKSTOP_FOLLOW_MS);
    assert_true(due.changes > 0);
}

RUN_TESTS(.each_setup = begin, .each_teardown = end)
