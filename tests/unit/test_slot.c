/* Unit tests of coupons/slot: the table of moves is the design's, buckets own their names. */
#include "cmocka_whole.h"

#include "coupons/slot.h"

/* The design's chapter "States of a slot", written out once more. */
static const struct {
    const char *from;
    enum slot_move move;
    const char *to;
    bool new_generation;
} design[] = {
    {"free", MOVE_ISSUE, "issued", true},          {"issued", MOVE_RESERVE, "reserved", true},
    {"reserved", MOVE_REDEEM, "redeemed", false},  {"free", MOVE_RESERVE, "reserved", true},
    {"free", MOVE_REDEEM, "redeemed", true},       {"issued", MOVE_REDEEM, "redeemed", false},
    {"issued", MOVE_CANCEL, "free", false},        {"issued", MOVE_EXPIRE, "free", false},
    {"reserved", MOVE_CANCEL, "free", false},      {"reserved", MOVE_EXPIRE, "free", false},
    {"redeemed", MOVE_REVERSE, "free", false},     {"reserved", MOVE_RESERVE, "reserved", false},
    {"free", MOVE_RETIRE, "retired", false},       {"issued", MOVE_RETIRE, "retired", false},
};
#define DESIGN_ROWS (sizeof design / sizeof *design)

TEST(a_slot_moves_as_the_design_says_and_no_other_way)
{
    size_t found = 0;

    assert_int_equal(slot_moves_count, DESIGN_ROWS);
    for (unsigned from = 0; from < SLOT_STATE_COUNT; from++) {
        for (unsigned move = 0; move < SLOT_MOVE_COUNT; move++) {
            const struct slot_rule *rule = slot_rule((enum slot_state)from, (enum slot_move)move);
            size_t i = 0;

            while (i < DESIGN_ROWS &&
                   (design[i].move != move || strcmp(design[i].from, slot_state_name((enum slot_state)from)) != 0))
                i++;
            if ((rule != NULL) != (i < DESIGN_ROWS))
                fail_msg("from %s by move %u: %s", slot_state_name((enum slot_state)from), move,
                         rule ? "possible" : "not possible");
            if (!rule)
                continue;
            found++;
            assert_string_equal(slot_state_name(rule->to), design[i].to);
            assert_int_equal(rule->new_generation, design[i].new_generation);
        }
    }
    assert_int_equal(found, DESIGN_ROWS);
}

TEST(what_is_taken_can_come_back_and_only_that)
{
    for (size_t i = 0; i < slot_moves_count; i++) {
        const struct slot_rule *r = &slot_moves[i];
        bool leaves = r->from == SLOT_FREE && r->to != SLOT_RETIRED;

        assert_int_equal(r->takes, leaves);
        assert_int_equal(r->gives_back, r->to == SLOT_FREE);
        assert_false(r->takes && !r->new_generation);
    }
}

TEST(an_ended_generation_never_moves_again)
{
    static const enum slot_state ended[] = {SLOT_RETIRED, SLOT_CANCELLED, SLOT_EXPIRED, SLOT_REVERSED};

    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++)
        for (unsigned move = 0; move < SLOT_MOVE_COUNT; move++)
            assert_null(slot_rule(ended[i], (enum slot_move)move));
}

TEST(states_have_names_and_names_states)
{
    for (unsigned s = 0; s < SLOT_STATE_COUNT; s++)
        assert_int_equal(slot_state_of_name(slot_state_name((enum slot_state)s)), s);
    assert_int_equal(slot_state_of_name("Free"), SLOT_STATE_COUNT);
    assert_int_equal(slot_state_of_name(""), SLOT_STATE_COUNT);
}

TEST(slot_n_lives_in_bucket_n_by_64)
{
    assert_int_equal(bucket_of(0), 0);
    assert_int_equal(bucket_of(63), 0);
    assert_int_equal(bucket_of(64), 1);
    assert_int_equal(bucket_of(10000000), 156250);
}

TEST(a_copy_of_a_bucket_is_its_own)
{
    struct bucket a, b;

    bucket_init(&a, 7);
    bucket_init(&b, 8);
    a.size = BUCKET_SLOTS;
    a.seq = 12;
    a.slots[3] = (struct slot){.generation = 2, .state = SLOT_REDEEMED, .user = strdup("ana"), .at_ms = 5};
    b.slots[3].user = strdup("dropped by the copy");
    bucket_copy(&b, &a);
    assert_int_equal(b.b, 7);
    assert_int_equal(b.seq, 12);
    assert_ptr_not_equal(b.slots[3].user, a.slots[3].user);
    bucket_release(&a);
    assert_null(a.slots[3].user);
    assert_string_equal(b.slots[3].user, "ana");
    assert_int_equal(b.slots[3].generation, 2);
    bucket_release(&b);
    bucket_release(&b);
}

TEST(free_slots_and_due_times)
{
    struct bucket k;

    bucket_init(&k, 0);
    assert_int_equal(bucket_free_count(&k), BUCKET_SLOTS);
    assert_int_equal(bucket_due(&k), 0);
    k.slots[0].state = SLOT_REDEEMED;
    k.slots[1] = (struct slot){.state = SLOT_RESERVED, .due_ms = 900};
    k.slots[2] = (struct slot){.state = SLOT_ISSUED, .due_ms = 800};
    k.slots[9].state = SLOT_RETIRED;
    assert_int_equal(bucket_free_count(&k), BUCKET_SLOTS - 4);
    assert_int_equal(bucket_due(&k), 800);
    bucket_release(&k);
}

TEST(a_bucket_has_the_slots_that_its_lane_has_made)
{
    static const int64_t next_n[] = {0, 64, 65, 127, 128, 1000};
    static const int size[] = {0, 0, 1, 63, 64, 64};
    struct bucket k;

    bucket_init(&k, 1);
    for (size_t i = 0; i < sizeof next_n / sizeof *next_n; i++) {
        bucket_fit(&k, next_n[i]);
        assert_int_equal(k.size, size[i]);
    }
    bucket_init(&k, bucket_of(3 * LANE_SLOTS));
    assert_int_equal(k.lane, 3);
    bucket_fit(&k, 0); /* the lane has none yet */
    assert_int_equal(k.size, 0);
    bucket_fit(&k, 3 * LANE_SLOTS + 2);
    assert_int_equal(k.size, 2);
}

TEST(a_slot_is_due_from_its_last_millisecond_on)
{
    struct slot s = {.state = SLOT_RESERVED};

    assert_false(slot_is_due(&s, INT64_MAX, 0)); /* never */
    s.due_ms = 100;
    assert_false(slot_is_due(&s, 99, 0));
    assert_true(slot_is_due(&s, 100, 0));
}

/* The coupon's end ends what is issued, and what falls back to issued; a hold stands. */
TEST(the_coupon_s_end_ends_what_is_issued)
{
    static const struct {
        enum slot_state state;
        uint32_t from;
        int64_t due_ms;
        enum slot_state at_90, at_100;
    } rows[] = {
        {SLOT_ISSUED, 0, 0, SLOT_ISSUED, SLOT_FREE},         {SLOT_ISSUED, 0, 200, SLOT_ISSUED, SLOT_FREE},
        {SLOT_ISSUED, 0, 80, SLOT_FREE, SLOT_FREE},          {SLOT_RESERVED, 0, 200, SLOT_RESERVED, SLOT_RESERVED},
        {SLOT_RESERVED, 1, 200, SLOT_RESERVED, SLOT_RESERVED}, {SLOT_RESERVED, 1, 80, SLOT_ISSUED, SLOT_FREE},
        {SLOT_REDEEMED, 0, 0, SLOT_REDEEMED, SLOT_REDEEMED}, {SLOT_FREE, 0, 0, SLOT_FREE, SLOT_FREE},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slot s = {.state = (uint8_t)rows[i].state, .from = rows[i].from, .due_ms = rows[i].due_ms};

        assert_int_equal(slot_state_at(&s, 90, 100), rows[i].at_90);
        assert_int_equal(slot_state_at(&s, 100, 100), rows[i].at_100);
    }
}

RUN_TESTS()
