/* Unit tests of coupons/code_uses, and of deciding with shared codes: who may use them, what bounds them, what counts. */
#include "cmocka_whole.h"

#include "unit/lane.h"

static const char *codes[] = {"SUMMER10", "ANNA-10"};
static struct code_uses uses; /* as of the tail */

static int fresh(void **state)
{
    lane_fresh(state);
    c.codes.source = CODES_SHARED;
    c.codes.claim = CLAIM_PRESENT;
    c.codes.shared = (struct string_list){codes, 2};
    c.codes.shared_cap = 2;
    return 0;
}

static int release(void **state)
{
    code_uses_release(&uses);
    code_uses_release(&d.uses);
    return lane_release(state);
}

static void open(void)
{
    lane_open();
    code_uses_copy(&d.uses, &uses);
}

/* What deciding counted is what the batch says. */
static void close(void)
{
    lane_close();
    uses.match = (enum codes_match)c.codes.match;
    for (size_t i = 0; i < batch->count; i++)
        code_uses_fold(&uses, &batch->entries[i]);
    assert_int_equal(uses.count, d.uses.count);
    for (size_t i = 0; i < uses.count; i++)
        assert_memory_equal(&uses.rows[i], &d.uses.rows[i], sizeof uses.rows[i]);
    code_uses_release(&d.uses);
}

static void drop(void)
{
    lane_drop();
    code_uses_release(&d.uses);
}

static struct redemption with(struct user_state *u, enum slot_state state, const char *key, const char *order, const char *code)
{
    post(u, state, key, order ? order_of(order) : NULL, code, -1, CPN_OK);
    return out.redemption;
}

static void refused(struct user_state *u, const char *code, enum cpn_result want)
{
    open();
    post(u, SLOT_REDEEMED, "refused", NULL, code, -1, want);
    drop();
}

static void assert_used(const char *code, int64_t used, int64_t held)
{
    const struct code_use *use = code_uses_find(&uses, code);

    assert_int_equal(use ? use->used : 0, used);
    assert_int_equal(use ? use->held : 0, held);
}

TEST(a_code_is_used_by_whoever_types_it)
{
    open();
    assert_string_equal(with(ana, SLOT_REDEEMED, "k1", NULL, " summer-10").code, "SUMMER10");
    assert_string_equal(with(bob, SLOT_REDEEMED, "k2", NULL, "\xEF\xBC\xA1nna10").code, "ANNA-10"); /* a full-width A */
    assert_string_equal(batch->entries[0].shared, "SUMMER10");
    assert_null(batch->entries[0].code); /* the slot has none */
    close();
    assert_int_equal(the_bucket.slots[0].state, SLOT_REDEEMED);
    assert_int_equal(the_bucket.slots[1].state, SLOT_REDEEMED);
}

TEST(a_code_that_the_coupon_does_not_list_is_not_found)
{
    static const char *const texts[] = {"SUMMER1", "SUMMER100", "", "   ", "\xF0\x9F\x8E\x81"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        refused(ana, texts[i], CPN_CODE_NOT_FOUND);
        assert_true(out.not_theirs); /* a guess */
    }
    c.codes.match = MATCH_EXACT;
    refused(ana, "summer10", CPN_CODE_NOT_FOUND);
}

TEST(a_code_must_be_presented_unless_any_claim_will_do)
{
    refused(ana, NULL, CPN_CODE_REQUIRED);
    c.codes.claim = CLAIM_ANY;
    open();
    assert_null(take(ana, SLOT_REDEEMED, "k1", NULL).code);
    close();
    assert_int_equal(uses.count, 0);
}

/* Each row: what is done with two uses of a code, and what that leaves. */
TEST(what_is_given_back_can_be_used_again)
{
    static const struct {
        enum slot_state state;
        enum slot_move move;
        int64_t used, held;
        enum cpn_result next;
    } rows[] = {
        {SLOT_ISSUED, MOVE_CANCEL, 1, 0, CPN_OK},
        {SLOT_RESERVED, MOVE_CANCEL, 1, 0, CPN_OK},
        {SLOT_RESERVED, MOVE_REDEEM, 2, 0, CPN_CODE_TAKEN},
        {SLOT_REDEEMED, MOVE_REVERSE, 1, 0, CPN_OK},
        {SLOT_ISSUED, MOVE_REDEEM, 2, 0, CPN_CODE_TAKEN},
    };

    EACH_ANEW(i, sizeof rows / sizeof *rows, fresh, release) {
        struct redemption r;

        open();
        with(bob, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
        r = with(ana, rows[i].state, "k2", NULL, "SUMMER10");
        close();
        assert_used("SUMMER10", 2, rows[i].state == SLOT_RESERVED);
        open();
        step(ana, r, rows[i].move, "k3", NULL, CPN_OK);
        assert_string_equal(batch->entries[0].shared, "SUMMER10");
        close();
        assert_used("SUMMER10", rows[i].used, rows[i].held);
        open();
        post(bob, SLOT_REDEEMED, "k4", NULL, "SUMMER10", -1, rows[i].next);
        if (rows[i].next == CPN_OK)
            close();
        else
            drop();
    }
}

TEST(a_code_at_its_cap_is_spent_and_the_other_is_not)
{
    open();
    with(ana, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
    with(ana, SLOT_REDEEMED, "k2", NULL, "SUMMER10");
    post(bob, SLOT_REDEEMED, "k3", NULL, "SUMMER10", -1, CPN_CODE_TAKEN); /* in the same batch, too */
    assert_false(out.retry);
    assert_false(out.not_theirs); /* no guess */
    with(bob, SLOT_REDEEMED, "k4", NULL, "ANNA10");
    close();
    refused(bob, "SUMMER10", CPN_CODE_TAKEN);
}

/* A checkout that holds a use may give it back. */
TEST(while_a_use_is_held_the_code_is_in_a_transaction)
{
    struct redemption held;

    open();
    with(ana, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
    held = with(ana, SLOT_RESERVED, "k2", "o1", "SUMMER10");
    close();
    open();
    d.next_due_ms = held.reserved_until_ms;
    post(bob, SLOT_REDEEMED, "k3", NULL, "SUMMER10", -1, CPN_TRANSACTION_IN_PROGRESS);
    assert_true(out.retry);
    assert_int_equal(out.retry_at_ms, held.reserved_until_ms);
    drop();
    now_ms = held.reserved_until_ms;
    open();
    decide_expire(&d, ana, held.n, held.g);
    with(bob, SLOT_REDEEMED, "k3", NULL, "SUMMER10");
    close();
    assert_used("SUMMER10", 2, 0);
}

/* The use is that of the issued one. */
TEST(a_hold_on_an_issued_one_is_no_use)
{
    struct redemption base, held;

    open();
    base = with(ana, SLOT_ISSUED, "k1", NULL, "ANNA10");
    held = step(ana, base, MOVE_RESERVE, "k2", "o1", CPN_OK);
    assert_string_equal(held.code, "ANNA-10");
    close();
    assert_used("ANNA10", 1, 0);
    open();
    step(ana, held, MOVE_CANCEL, NULL, NULL, CPN_OK);
    close();
    assert_used("ANNA10", 1, 0);
    open();
    held = step(ana, base, MOVE_RESERVE, "k3", "o2", CPN_OK);
    step(ana, held, MOVE_REDEEM, "k4", NULL, CPN_OK);
    close();
    assert_used("ANNA10", 1, 0);
    open();
    step(ana, held, MOVE_REVERSE, NULL, NULL, CPN_OK);
    close();
    assert_used("ANNA10", 0, 0);
    assert_int_equal(uses.count, 0);
}

TEST(the_same_order_with_the_same_code_is_a_repeat)
{
    struct redemption first;

    open();
    first = with(ana, SLOT_REDEEMED, "k1", "o1", "SUMMER10");
    assert_int_equal(with(ana, SLOT_REDEEMED, "k2", "o1", "summer 10").n, first.n);
    assert_false(out.created);
    assert_int_not_equal(with(ana, SLOT_REDEEMED, "k3", "o1", "ANNA10").n, first.n); /* another code is no repeat */
    assert_int_equal(with(ana, SLOT_REDEEMED, "k4", "o1", "SUMMER10").n, first.n);
    close();
    assert_used("SUMMER10", 1, 0);
}

TEST(a_change_of_the_list_keeps_what_was_used)
{
    static const char *respelled[] = {"Summer-10", "NEW10"};
    struct coupon next;

    open();
    with(ana, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
    with(ana, SLOT_REDEEMED, "k2", NULL, "SUMMER10");
    with(bob, SLOT_ISSUED, "k3", NULL, "ANNA10");
    next = c;
    next.codes.shared = (struct string_list){respelled, 2};
    decide_change(&d, &next, 1, false, &out);
    expect(CPN_OK);
    post(bob, SLOT_REDEEMED, "k4", NULL, "summer10", -1, CPN_CODE_TAKEN);
    post(bob, SLOT_REDEEMED, "k5", NULL, "ANNA10", -1, CPN_CODE_NOT_FOUND);
    assert_string_equal(with(bob, SLOT_REDEEMED, "k6", NULL, "new10").code, "NEW10");
    close();
    assert_used("ANNA10", 1, 0); /* it is still theirs */
    open();
    next.codes.shared_cap = 3;
    decide_change(&d, &next, 2, false, &out);
    expect(CPN_FIELD_FIXED);
    assert_string_equal(out.pointer, "/codes/shared_cap");
    drop();
}

TEST(codes_that_are_counted_are_bounded)
{
    struct coupon next;

    open();
    with(ana, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
    close();
    for (int i = 0; i < CODE_USES_MOST - 1; i++) {
        const struct entry e = {.kind = ENTRY_REDEEM, .shared = arena_printf(&arena, "USED%d", i)};

        code_uses_fold(&uses, &e);
    }
    open();
    next = c;
    next.codes.shared.count = 1;
    decide_change(&d, &next, 1, false, &out);
    expect(CPN_OK);
    next = *d.coupon;
    next.codes.shared.count = 2;
    next.codes.shared.items = codes;
    decide_change(&d, &next, 2, false, &out);
    expect(CPN_FIELD_FIXED);
    assert_string_equal(out.pointer, "/codes/shared");
    code_uses_release(&d.uses);
}

TEST(coupons_without_slots_have_shared_codes_too)
{
    EACH_ANEW(i, 2, fresh, release) {
        struct redemption r;

        without_slots(i ? CAP_NONE : CAP_APPROXIMATE);
        c.codes.source = CODES_SHARED;
        open();
        r = with(ana, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
        assert_true(r.n < 0);
        assert_string_equal(r.code, "SUMMER10");
        with(bob, SLOT_REDEEMED, "k2", NULL, "SUMMER10");
        post(bob, SLOT_REDEEMED, "k3", NULL, "SUMMER10", -1, CPN_CODE_TAKEN);
        step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_OK);
        close();
        assert_used("SUMMER10", 1, 0);
    }
}

TEST(a_check_says_the_same)
{
    struct take t = {.code = "summer10", .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    int64_t discount_minor;

    discounts(500);
    open();
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_OK);
    assert_int_equal(discount_minor, 500);
    with(bob, SLOT_REDEEMED, "k1", NULL, "SUMMER10");
    with(bob, SLOT_REDEEMED, "k2", NULL, "SUMMER10");
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_CODE_TAKEN);
    t.code = "WINTER10";
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_CODE_NOT_FOUND);
    close();
}

RUN_TESTS(.each_setup = fresh, .each_teardown = release)
