/* Unit tests of coupons/decide: the life of a slot: every call in every state, holds, codes, expiry, repeats. */
#include "cmocka_whole.h"

#include "unit/lane.h"

static void assert_id(const struct redemption *r, int64_t n, uint32_t g, uint32_t from, enum slot_state state)
{
    assert_int_equal(r->n, n);
    assert_int_equal(r->g, g);
    assert_int_equal(r->from, from);
    assert_string_equal(slot_state_name((enum slot_state)r->state), slot_state_name(state));
}

/* ---- the contract's table of calls and states ---- */

static struct redemption issued(void)
{
    return take(ana, SLOT_ISSUED, "issue", NULL);
}

static struct redemption reserved(void)
{
    return take(ana, SLOT_RESERVED, "reserve", "o1");
}

/* What ana did, a letter each: issue (I: for 60 s), reserve or take; then, of what is named, hold, spend, cancel, reverse (v), lapse,
 * and expire (x). A hold is what is named from then on; < names the first again. Whether the ledger says that its time has passed is
 * up to x. Returns what is named. */
static struct redemption did(const char *story)
{
    struct redemption first = {.n = -1}, r = first;

    for (; *story; story++) {
        switch (*story) {
        case 'I':
            c.valid_for_s = 60;
            first = r = issued();
            break;
        case 'i':
            first = r = issued();
            break;
        case 'r':
            r = reserved();
            break;
        case 't':
            r = take(ana, SLOT_REDEEMED, "take", "o1");
            break;
        case 'h':
            r = step(ana, r, MOVE_RESERVE, "hold", "o1", CPN_OK);
            break;
        case 's':
            step(ana, r, MOVE_REDEEM, "redeem", r.state == SLOT_ISSUED ? "o1" : NULL, CPN_OK);
            break;
        case 'c':
            step(ana, r, MOVE_CANCEL, NULL, NULL, CPN_OK);
            break;
        case 'v':
            step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_OK);
            break;
        case 'l':
            lane_lapse();
            break;
        case 'x':
            decide_expire(&d, ana, r.n, r.g);
            break;
        case '<':
            r = first;
            break;
        default:
            fail_msg("no such letter: %s", story);
        }
    }
    return r;
}

enum answer { NEW, OKAY, BUSY_ELSEWHERE, TAKEN, NOT_POSSIBLE, LATE };
static const enum cpn_result results[] = {CPN_OK,         CPN_OK,
                                          CPN_TRANSACTION_IN_PROGRESS, CPN_CODE_TAKEN,
                                          CPN_INVALID_TRANSITION,      CPN_RESERVATION_EXPIRED};
#define T NOT_POSSIBLE
#define E LATE
#define TIP BUSY_ELSEWHERE

static const struct {
    const char *now, *story;
    const char *order; /* of the call; NULL: none */
    enum answer answers[4]; /* reserve, redeem, cancel, reverse */
} cells[] = {
    {"issued", "i", NULL, {NEW, OKAY, OKAY, T}},
    {"issued", "i", "o1", {NEW, OKAY, OKAY, T}},
    {"issued again", "ihc<", "o1", {NEW, OKAY, OKAY, T}},
    {"issued under a lapsed hold", "ihl<", "o1", {NEW, OKAY, OKAY, T}},
    {"issued under a lapsed hold", "ihl<", "o2", {NEW, OKAY, OKAY, T}},
    {"issued, held by another order", "ih<", "o2", {TIP, TIP, TIP, T}},
    {"issued, held by another device", "ih<", NULL, {TIP, TIP, TIP, T}},
    {"issued, held by its own order", "ih<", "o1", {OKAY, OKAY, TIP, T}},
    {"reserved", "r", NULL, {OKAY, OKAY, OKAY, T}},
    {"reserved", "r", "o1", {OKAY, OKAY, OKAY, T}},
    {"a hold", "ih", NULL, {OKAY, OKAY, OKAY, T}},
    {"redeemed", "t", NULL, {TAKEN, OKAY, T, OKAY}},
    {"redeemed", "t", "o2", {TAKEN, TAKEN, T, OKAY}},
    {"redeemed, same order", "t", "o1", {TAKEN, OKAY, T, OKAY}},
    {"redeemed after issue", "is", "o2", {TAKEN, TAKEN, T, OKAY}},
    {"redeemed after issue, same order", "is", "o1", {TAKEN, OKAY, T, OKAY}},
    {"redeemed after hold, same order", "rs", "o1", {TAKEN, OKAY, T, OKAY}},
    {"redeemed beneath a hold", "ihs<", "o2", {TAKEN, TAKEN, T, OKAY}},
    {"redeemed beneath a hold, same order", "ihs<", "o1", {TAKEN, OKAY, T, OKAY}},
    {"a redeemed hold", "ihs", NULL, {TAKEN, OKAY, T, OKAY}},
    {"a redeemed hold, same order", "ihs", "o1", {TAKEN, OKAY, T, OKAY}},
    {"cancelled", "rc", NULL, {T, T, OKAY, T}},
    {"cancelled, same order", "rc", "o1", {T, T, OKAY, T}},
    {"cancelled issue", "ic", NULL, {T, T, OKAY, T}},
    {"cancelled hold", "ihc", NULL, {T, T, OKAY, T}},
    {"lapsed", "rl", "o1", {E, E, OKAY, T}},
    {"lapsed issue", "Il", NULL, {E, E, OKAY, T}},
    {"lapsed hold", "ihl", "o1", {E, E, OKAY, T}},
    {"expired", "rlx", "o1", {E, E, OKAY, T}},
    {"expired issue", "Ilx", NULL, {E, E, OKAY, T}},
    {"expired hold", "ihlx", NULL, {E, E, OKAY, T}},
    {"reversed", "tv", "o1", {T, T, T, OKAY}},
    {"reversed beneath a hold", "ihs<v", NULL, {T, T, T, OKAY}},
    {"reversed hold", "ihsv", NULL, {T, T, T, OKAY}},
};
#define CELLS (sizeof cells / sizeof *cells)

/* Once as the next call of the same batch, once in the next batch. */
static void check_cell(size_t i, enum slot_move move, bool next_batch)
{
    static const enum slot_state after[][2] = {/* after a call that was carried out: on what it names, or on its hold */
        [MOVE_RESERVE] = {SLOT_RESERVED, SLOT_RESERVED},
        [MOVE_REDEEM] = {SLOT_REDEEMED, SLOT_REDEEMED},
        [MOVE_REVERSE] = {SLOT_REVERSED, SLOT_REVERSED},
        [MOVE_CANCEL] = {SLOT_CANCELLED, SLOT_EXPIRED}, /* an expired one stays so */
    };
    enum answer want = cells[i].answers[move == MOVE_REVERSE ? 3 : move - MOVE_RESERVE];
    const struct order *order;
    struct redemption r;
    struct step s;

    discounts(500);
    lane_open();
    r = did(cells[i].story);
    if (next_batch) {
        if (decide_changed(&d))
            lane_next();
    }
    order = cells[i].order ? order_of(cells[i].order) : NULL;
    s = (struct step){.n = r.n, .g = r.g, .move = move, .order = order, .reserve_s = COUPON_NULL};
    s.key = move == MOVE_RESERVE || move == MOVE_REDEEM ? "the call" : NULL;
    decide_step(&d, ana, &s, &out);
    if (out.result != results[want] || out.created != (want == NEW))
        fail_msg("%s, move %d: %s", cells[i].now, (int)move, result_info(out.result)->name);
    if (want == TIP)
        assert_int_equal(out.retry_at_ms, ana->redemptions[1].reserved_until_ms);
    if (want <= OKAY && out.redemption.state != after[move][0] && out.redemption.state != after[move][1])
        fail_msg("%s, move %d: it is %s", cells[i].now, (int)move, slot_state_name((enum slot_state)out.redemption.state));
    if (decide_changed(&d))
        lane_close();
    assert_true(tail.issued >= 0 && tail.reserved >= 0 && tail.redeemed >= 0);
    assert_int_equal(ana->total, head_taken(&tail));
    assert_int_equal(tail.day_taken, user_state_today(ana, tail.day_ms));
    assert_int_equal(tail.discount_minor, 500 * (tail.reserved + tail.redeemed));
}

TEST(every_cell_of_the_table_whatever_the_cap)
{
    static const enum slot_move moves[] = {MOVE_RESERVE, MOVE_REDEEM, MOVE_CANCEL, MOVE_REVERSE};
    static const enum cap_policy caps[] = {CAP_EXACT, CAP_NONE, CAP_APPROXIMATE};

    EACH_ANEW(k, CELLS * 8 * 3, lane_fresh, lane_release) {
        if (caps[k % 3] != CAP_EXACT)
            without_slots(caps[k % 3]);
        check_cell(k / 24, moves[k / 6 % 4], k / 3 % 2);
    }
}

TEST(what_was_never_there_is_not_found)
{
    struct redemption r;

    lane_open();
    r = issued();
    step(bob, r, MOVE_CANCEL, NULL, NULL, CPN_REDEMPTION_NOT_FOUND);
    r.g++;
    step(ana, r, MOVE_REDEEM, "k", NULL, CPN_REDEMPTION_NOT_FOUND);
    step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_REDEMPTION_NOT_FOUND);
    r.g--;
    r.n++;
    step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_REDEMPTION_NOT_FOUND);
    assert_int_equal(batch->count, 1);
}

/* ---- ids and fencing ---- */

TEST(a_hold_is_a_redemption_of_its_own)
{
    struct redemption base, hold;

    lane_open();
    base = issued();
    assert_id(&base, 0, 1, 0, SLOT_ISSUED);
    hold = step(ana, base, MOVE_RESERVE, "h1", "o1", CPN_OK);
    assert_true(out.created);
    assert_id(&hold, 0, 2, 1, SLOT_RESERVED);
    assert_int_equal(hold.from_n, 0);
    assert_int_equal(hold.ordinal, base.ordinal); /* no new taking */
    assert_int_equal(hold.left, base.left);
    assert_string_equal(hold.code, "CODE-0");
    assert_int_equal(d.head.ordinal, 1);
    assert_int_equal(head_free(&d.head), 63);
    lane_next();
    step(ana, hold, MOVE_CANCEL, NULL, NULL, CPN_OK);
    assert_int_equal(ana->total, 1);
    assert_int_equal(user_state_by_slot(ana, 0, 1)->state, SLOT_ISSUED);
    hold = step(ana, base, MOVE_RESERVE, "h2", "o2", CPN_OK);
    assert_id(&hold, 0, 3, 1, SLOT_RESERVED); /* the generation is never given twice */
    lane_next();
    step(ana, hold, MOVE_REDEEM, "r", NULL, CPN_OK);
    assert_id(&out.redemption, 0, 3, 1, SLOT_REDEEMED);
    assert_int_equal(user_state_by_slot(ana, 0, 1)->state, SLOT_REDEEMED);
    assert_int_equal(d.head.redeemed, 1);
    lane_close();
    assert_int_equal(the_bucket.slots[0].current, 3);
}

TEST(a_reversal_by_either_id_ends_both)
{
    EACH_ANEW(by_hold, 2, lane_fresh, lane_release) {
        struct redemption base, hold, next;

        lane_open();
        base = did("ihs<");
        hold = ana->redemptions[1];
        lane_next();
        step(ana, by_hold ? hold : base, MOVE_REVERSE, NULL, NULL, CPN_OK);
        assert_id(&out.redemption, 0, by_hold ? 2 : 1, by_hold, SLOT_REVERSED);
        assert_int_equal(batch->count, 1);
        assert_int_equal(user_state_by_slot(ana, 0, 1)->state, SLOT_REVERSED);
        assert_int_equal(user_state_by_slot(ana, 0, 2)->state, SLOT_REVERSED);
        assert_int_equal(ana->total, 0);
        lane_close();
        assert_int_equal(head_free(&tail), 64);
        lane_open();
        next = take(bob, SLOT_REDEEMED, "k", NULL);
        assert_id(&next, 0, 3, 0, SLOT_REDEEMED);
        step(ana, by_hold ? base : hold, MOVE_REVERSE, NULL, NULL, CPN_OK); /* once more: nothing is given back again */
        assert_int_equal(batch->count, 1);
        lane_close();
    }
}

TEST(a_late_call_never_touches_the_next_holder)
{
    struct redemption late, next;

    lane_open();
    late = reserved();
    lane_lapse();
    decide_expire(&d, ana, late.n, 0);
    lane_next();
    next = take(bob, SLOT_RESERVED, "b", NULL);
    assert_int_equal(next.n, late.n);
    assert_int_equal(next.g, late.g + 1);
    step(ana, late, MOVE_REDEEM, "late", "o1", CPN_RESERVATION_EXPIRED);
    assert_false(out.retry);
    step(ana, late, MOVE_CANCEL, NULL, NULL, CPN_OK); /* it has ended; that is all */
    assert_int_equal(out.redemption.state, SLOT_EXPIRED);
    lane_close();
    assert_string_equal(the_bucket.slots[next.n].user, "bob");
    assert_int_equal(the_bucket.slots[next.n].state, SLOT_RESERVED);
}

TEST(the_same_order_finds_its_hold_in_a_new_post)
{
    struct redemption r, again;

    c.cap.per_user = 1;
    lane_open();
    r = reserved();
    again = take(ana, SLOT_REDEEMED, "another key", "o1");
    assert_false(out.created || out.replayed);
    assert_id(&again, r.n, r.g, 0, SLOT_RESERVED);
    post(ana, SLOT_RESERVED, "k2", order_of("o2"), NULL, -1, CPN_USER_CAP_REACHED);
    step(ana, r, MOVE_REDEEM, "k3", NULL, CPN_OK);
    again = take(ana, SLOT_RESERVED, "k4", "o1");
    assert_id(&again, r.n, r.g, 0, SLOT_REDEEMED);
    assert_int_equal(batch->count, 2);
    lane_close();
}

/* ---- codes ---- */

static void post_code(struct user_state *u, enum slot_state state, const char *key, const char *order, int64_t n, enum cpn_result want)
{
    post(u, state, key, order ? order_of(order) : NULL, "CODE", n, want);
}

TEST(a_free_code_is_taken_whatever_comes_next)
{
    lane_open();
    post_code(ana, SLOT_REDEEMED, "a", NULL, 1, CPN_OK);
    assert_id(&out.redemption, 1, 1, 0, SLOT_REDEEMED);
    assert_string_equal(out.redemption.code, "CODE-1");
    assert_true(out.created);
    for (int i = 0; i < 3; i++) { /* the free pool passes it over */
        struct redemption r = take(bob, SLOT_ISSUED, arena_printf(&arena, "b%d", i), NULL);

        assert_int_equal(r.n, i == 0 ? 0 : i + 1);
    }
    lane_close();
}

TEST(a_code_that_is_not_to_be_had_is_not_found)
{
    lane_open();
    post_code(bob, SLOT_ISSUED, "b1", NULL, 1, CPN_OK);
    post_code(bob, SLOT_RESERVED, "b2", NULL, 2, CPN_OK);
    post_code(bob, SLOT_REDEEMED, "b3", NULL, 3, CPN_OK);
    decide_retire_one(&d, NULL, 4, &out);
    lane_next();
    post_code(ana, SLOT_REDEEMED, "a", NULL, -1, CPN_CODE_NOT_FOUND); /* unknown */
    for (int n = 1; n <= 4; n++)
        for (int to = SLOT_ISSUED; to <= SLOT_REDEEMED; to++)
            post_code(ana, (enum slot_state)to, "a", NULL, n, CPN_CODE_NOT_FOUND);
    lane_drop();
    c.codes.source = CODES_NONE;
    lane_open();
    post_code(ana, SLOT_REDEEMED, "a", NULL, -1, CPN_CODE_NOT_FOUND);
}

TEST(the_code_of_an_issued_one_acts_on_it)
{
    struct redemption base, hold;

    c.cap.per_user = 1; /* it is no new taking */
    lane_open();
    base = issued();
    post_code(ana, SLOT_ISSUED, "i2", NULL, base.n, CPN_OK);
    assert_false(out.created);
    assert_id(&out.redemption, base.n, 1, 0, SLOT_ISSUED);
    post_code(ana, SLOT_RESERVED, "h", "o1", base.n, CPN_OK);
    assert_true(out.created);
    hold = out.redemption;
    assert_id(&hold, base.n, 2, 1, SLOT_RESERVED);
    lane_next();
    for (int to = SLOT_ISSUED; to <= SLOT_REDEEMED; to++) { /* held by me: by its own order, another, none */
        post_code(ana, (enum slot_state)to, "h2", "o1", base.n, CPN_OK);
        assert_id(&out.redemption, base.n, 2, 1, SLOT_RESERVED);
        post_code(ana, (enum slot_state)to, "h3", "o2", base.n, CPN_TRANSACTION_IN_PROGRESS);
        assert_int_equal(out.retry_at_ms, hold.reserved_until_ms);
        post_code(ana, (enum slot_state)to, "h4", NULL, base.n, CPN_TRANSACTION_IN_PROGRESS);
    }
    step(ana, hold, MOVE_REDEEM, "r", NULL, CPN_OK);
    lane_next();
    for (int to = SLOT_ISSUED; to <= SLOT_REDEEMED; to++) { /* spent by me */
        post_code(ana, (enum slot_state)to, "s1", "o1", base.n, CPN_OK);
        assert_int_equal(out.redemption.state, SLOT_REDEEMED);
        post_code(ana, (enum slot_state)to, "s2", "o2", base.n, CPN_CODE_TAKEN);
        assert_false(out.retry);
        post_code(ana, (enum slot_state)to, "s3", NULL, base.n, CPN_CODE_TAKEN);
    }
    lane_drop();
}

TEST(an_issued_code_can_be_redeemed_at_once)
{
    struct redemption base;

    discounts(500);
    lane_open();
    base = issued();
    post_code(ana, SLOT_REDEEMED, "r", "o1", base.n, CPN_OK);
    assert_false(out.created);
    assert_id(&out.redemption, base.n, 1, 0, SLOT_REDEEMED);
    assert_int_equal(out.redemption.price.discount_minor, 500);
    post_code(ana, SLOT_REDEEMED, "r", "o1", base.n, CPN_OK);
    assert_true(out.replayed);
    assert_false(out.created);
    lane_close();
    assert_int_equal(tail.redeemed, 1);
    assert_int_equal(tail.ordinal, 1);
}

/* The newest standing redemption of the order may be of another code. */
TEST(each_code_of_an_order_finds_its_own)
{
    lane_open();
    post_code(ana, SLOT_REDEEMED, "a", "o1", 1, CPN_OK);
    post_code(ana, SLOT_REDEEMED, "b", "o1", 2, CPN_OK);
    assert_true(out.created);
    post_code(ana, SLOT_REDEEMED, "c", "o1", 1, CPN_OK);
    assert_false(out.created);
    assert_int_equal(out.redemption.n, 1);
    post_code(ana, SLOT_REDEEMED, "d", "o1", 2, CPN_OK);
    assert_int_equal(out.redemption.n, 2);
    lane_close();
}

TEST(a_lapsed_code_is_free_again_for_its_user_too)
{
    c.cap.per_user = 1;
    lane_open();
    post_code(ana, SLOT_RESERVED, "a", "o1", 1, CPN_OK);
    lane_lapse();
    post_code(ana, SLOT_RESERVED, "b", "o1", 1, CPN_OK); /* nobody swept; the order's hold stands no longer */
    assert_true(out.created);
    assert_id(&out.redemption, 1, 2, 0, SLOT_RESERVED);
    lane_lapse();
    decide_expire(&d, ana, 1, 0); /* as is done before somebody else's request */
    post_code(bob, SLOT_REDEEMED, "c", NULL, 1, CPN_OK);
    assert_id(&out.redemption, 1, 3, 0, SLOT_REDEEMED);
    lane_close();
}

TEST(a_coupon_may_ask_for_its_code)
{
    c.codes.claim = CLAIM_PRESENT;
    lane_open();
    post(ana, SLOT_REDEEMED, "a", NULL, NULL, -1, CPN_CODE_REQUIRED);
    post_code(ana, SLOT_REDEEMED, "a", NULL, 3, CPN_OK);
    lane_close();
}

/* Of whatever state is asked for; ana and bob alike learn of themselves as of others. */
static void refused_to(struct user_state *u, int64_t n, enum cpn_result want, bool theirs)
{
    for (int to = SLOT_ISSUED; to <= SLOT_REDEEMED; to++) {
        post_code(u, (enum slot_state)to, "t", NULL, n, want);
        assert_int_equal(out.not_theirs, !theirs);
    }
}

TEST(a_bearer_code_is_nobodys_until_it_is_spent)
{
    struct redemption hold;

    c.codes.claim = CLAIM_PRESENT;
    lane_open();
    post_code(bob, SLOT_RESERVED, "b1", NULL, 1, CPN_OK);
    hold = out.redemption;
    post_code(bob, SLOT_REDEEMED, "b2", NULL, 2, CPN_OK);
    decide_retire_one(&d, NULL, 3, &out);
    lane_next();
    refused_to(ana, 1, CPN_TRANSACTION_IN_PROGRESS, false);
    assert_int_equal(out.retry_at_ms, hold.reserved_until_ms);
    assert_true(out.retry);
    refused_to(bob, 1, CPN_TRANSACTION_IN_PROGRESS, true);
    refused_to(ana, 2, CPN_CODE_TAKEN, false);
    refused_to(bob, 2, CPN_CODE_TAKEN, true);
    refused_to(ana, 3, CPN_CODE_NOT_FOUND, false);
    refused_to(ana, -1, CPN_CODE_NOT_FOUND, false);
    step_with(bob, &hold, MOVE_RESERVE, "e", NULL, 7200, CPN_OK);
    refused_to(ana, 1, CPN_TRANSACTION_IN_PROGRESS, false);
    assert_int_equal(out.retry_at_ms, now_ms + 7200 * SECOND_MS);
    step(bob, hold, MOVE_REDEEM, "s", NULL, CPN_OK);
    refused_to(ana, 1, CPN_CODE_TAKEN, false);
    lane_next();
    decide_erase(&d, bob, &out);
    lane_next();
    refused_to(ana, 1, CPN_CODE_TAKEN, false);
    refused_to(bob, 2, CPN_CODE_TAKEN, false); /* whoever comes back under the name */
    lane_drop();
}

TEST(a_bearer_code_that_is_returned_is_free)
{
    struct redemption r;

    c.codes.claim = CLAIM_PRESENT;
    lane_open();
    post_code(bob, SLOT_RESERVED, "b1", NULL, 1, CPN_OK);
    r = out.redemption;
    step(bob, r, MOVE_CANCEL, NULL, NULL, CPN_OK);
    post_code(ana, SLOT_REDEEMED, "a1", NULL, 1, CPN_OK);
    r = out.redemption;
    step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_OK);
    post_code(bob, SLOT_REDEEMED, "b2", NULL, 1, CPN_OK);
    lane_close();
}

/* Also one that others might present: it was handed to its user. */
TEST(an_issued_code_stays_its_users)
{
    struct redemption base, hold;

    c.codes.claim = CLAIM_PRESENT;
    lane_open();
    post_code(bob, SLOT_ISSUED, "b1", NULL, 1, CPN_OK);
    base = out.redemption;
    refused_to(ana, 1, CPN_CODE_NOT_FOUND, false);
    hold = step(bob, base, MOVE_RESERVE, "b2", NULL, CPN_OK);
    refused_to(ana, 1, CPN_CODE_NOT_FOUND, false);
    step(bob, hold, MOVE_REDEEM, "b3", NULL, CPN_OK);
    refused_to(ana, 1, CPN_CODE_NOT_FOUND, false);
    refused_to(bob, 1, CPN_CODE_TAKEN, true);
    post_code(bob, SLOT_ISSUED, "b4", NULL, 2, CPN_OK);
    post_code(bob, SLOT_REDEEMED, "b5", NULL, 2, CPN_OK); /* without a hold */
    refused_to(ana, 2, CPN_CODE_NOT_FOUND, false);
    lane_next();
    decide_erase(&d, bob, &out);
    lane_next();
    refused_to(ana, 1, CPN_CODE_NOT_FOUND, false);
    refused_to(ana, 2, CPN_CODE_NOT_FOUND, false);
    lane_drop();
}

TEST(a_named_code_does_not_pass_the_cap)
{
    lane_open();
    decide_retiring(&d, job, 1, 63, &(int64_t){0}, &out);
    post_code(ana, SLOT_REDEEMED, "a", NULL, 3, CPN_OK);
    post_code(ana, SLOT_REDEEMED, "b", NULL, 4, CPN_SOLD_OUT); /* free, but due */
    lane_close();
}

/* ---- hand-out ---- */

TEST(a_user_at_the_cap_gets_the_existing_one)
{
    struct redemption first, second;

    c.cap.per_user = 2;
    c.on_user_cap = ON_USER_CAP_EXISTING;
    lane_open();
    first = take(ana, SLOT_ISSUED, "a", NULL);
    second = take(ana, SLOT_ISSUED, "b", NULL);
    post(ana, SLOT_ISSUED, "c", NULL, NULL, -1, CPN_OK);
    assert_false(out.created || out.replayed);
    assert_int_equal(out.redemption.n, second.n); /* the newest */
    post(ana, SLOT_RESERVED, "d", NULL, NULL, -1, CPN_USER_CAP_REACHED); /* for issued only */
    post(ana, SLOT_REDEEMED, "e", NULL, NULL, -1, CPN_USER_CAP_REACHED);
    step(ana, second, MOVE_RESERVE, "h", "o1", CPN_OK);
    post(ana, SLOT_ISSUED, "f", NULL, NULL, -1, CPN_OK);
    assert_int_equal(out.redemption.n, first.n); /* unheld */
    step(ana, first, MOVE_REDEEM, "r", NULL, CPN_OK);
    post(ana, SLOT_ISSUED, "g", NULL, NULL, -1, CPN_USER_CAP_REACHED); /* unspent */
    assert_int_equal(batch->count, 4);
    lane_close();
    c.on_user_cap = ON_USER_CAP_REFUSE;
    lane_open();
    post(ana, SLOT_ISSUED, "f", NULL, NULL, -1, CPN_USER_CAP_REACHED);
}

TEST(an_issued_one_ends_by_the_earlier_of_two_times)
{
    static const struct {
        int64_t valid_for_s, ends_in_ms, until_ms;
    } rows[] = {
        {COUPON_NULL, COUPON_NULL, 0},  {60, COUPON_NULL, 60000},   {COUPON_NULL, 5000, 5000},
        {60, 5000, 5000},               {60, 100000, 60000},
    };

    EACH_ANEW(i, sizeof rows / sizeof *rows, lane_fresh, lane_release) {
        struct redemption r;

        c.valid_for_s = rows[i].valid_for_s;
        c.ends_at_ms = rows[i].ends_in_ms == COUPON_NULL ? COUPON_NULL : NOON + rows[i].ends_in_ms;
        lane_open();
        r = issued();
        assert_int_equal(r.valid_until_ms, rows[i].until_ms ? NOON + rows[i].until_ms : 0);
        assert_int_equal(take(ana, SLOT_REDEEMED, "r", NULL).valid_until_ms, 0);
        assert_int_equal(take(ana, SLOT_RESERVED, "h", NULL).valid_until_ms, 0);
        lane_close();
        assert_int_equal(the_bucket.slots[0].due_ms, rows[i].valid_for_s == COUPON_NULL ? 0 : NOON + rows[i].valid_for_s * SECOND_MS);
    }
}

/* Moving the end helps those who have it, or hits them. The first answer is repeated as it was given. */
TEST(an_issued_one_follows_the_coupon_s_end)
{
    struct redemption base;

    c.valid_for_s = 3600;
    c.ends_at_ms = NOON + HOUR_MS / 2;
    lane_open();
    base = take(ana, SLOT_ISSUED, "i", NULL);
    lane_close();
    c.ends_at_ms = NOON + 2 * HOUR_MS;
    lane_open();
    assert_int_equal(redemption_valid_until(&ana->redemptions[0], coupon_ends(&c)), NOON + HOUR_MS);
    c.ends_at_ms = NOON + HOUR_MS / 4;
    assert_int_equal(redemption_valid_until(&ana->redemptions[0], coupon_ends(&c)), NOON + HOUR_MS / 4);
    assert_int_equal(take(ana, SLOT_ISSUED, "i", NULL).valid_until_ms, base.valid_until_ms);
    assert_true(out.replayed);
    lane_drop();
    now_ms = NOON + HOUR_MS / 4;
    lane_open();
    step(ana, base, MOVE_REDEEM, "late", NULL, CPN_RESERVATION_EXPIRED);
    c.ends_at_ms = COUPON_NULL; /* before the ledger says that it ended */
    step(ana, base, MOVE_REDEEM, "in time", NULL, CPN_OK);
    assert_int_equal(out.redemption.valid_until_ms, NOON + HOUR_MS);
    lane_close();
    c.ends_at_ms = NOON;
    lane_open();
    step(ana, base, MOVE_REDEEM, "in time", NULL, CPN_OK);
    assert_true(out.replayed);
    assert_int_equal(out.redemption.valid_until_ms, NOON + HOUR_MS);
}

TEST(handing_out_asks_nothing_of_an_order)
{
    struct redemption base;

    discounts(500);
    c.discount.min_spend_minor = 2000;
    lane_open();
    base = issued();
    assert_int_equal(base.price.discount_minor, 0);
    step(ana, base, MOVE_RESERVE, "h", NULL, CPN_ORDER_NOT_ELIGIBLE);
    step(ana, base, MOVE_REDEEM, "r", "o1", CPN_ORDER_NOT_ELIGIBLE);
    c.discount.min_spend_minor = 1000;
    step(ana, base, MOVE_REDEEM, "r", "o1", CPN_OK);
    lane_close();
}

/* ---- window ---- */

TEST(what_was_held_in_time_may_be_redeemed_when_it_is_over)
{
    static const enum coupon_state states[] = {COUPON_PAUSED, COUPON_ENDED};
    static const enum cpn_result want[] = {CPN_COUPON_NOT_ACTIVE, CPN_COUPON_ENDED};

    EACH_ANEW(i, 2, lane_fresh, lane_release) {
        struct redemption one, two, held, hold, direct;

        lane_open();
        one = take(ana, SLOT_ISSUED, "1", NULL);
        two = take(ana, SLOT_ISSUED, "2", NULL);
        held = take(ana, SLOT_ISSUED, "3", NULL);
        hold = step(ana, held, MOVE_RESERVE, "h", "o1", CPN_OK);
        direct = take(ana, SLOT_RESERVED, "4", "o4");
        lane_close();
        c.state = states[i];
        lane_open();
        step(ana, one, MOVE_RESERVE, "h1", "o2", want[i]);
        step(ana, one, MOVE_REDEEM, "r1", "o2", want[i]);
        step(ana, held, MOVE_REDEEM, "r2", "o2", want[i]); /* before transaction_in_progress */
        step(ana, two, MOVE_CANCEL, NULL, NULL, CPN_OK);
        step(ana, direct, MOVE_RESERVE, "x", NULL, CPN_OK); /* extended */
        step(ana, direct, MOVE_REDEEM, "r4", NULL, CPN_OK);
        step(ana, held, MOVE_REDEEM, "r3", "o1", CPN_OK); /* its own hold, by the issued id */
        assert_int_equal(out.redemption.g, hold.g);
        lane_close();
    }
}

/* ---- extension ---- */

TEST(a_hold_lasts_24_hours_in_all)
{
    static const enum slot_state ways[] = {SLOT_RESERVED, SLOT_ISSUED};

    EACH_ANEW(i, 2, lane_fresh, lane_release) {
        struct redemption r;
        int64_t made_ms;

        lane_open();
        r = ways[i] == SLOT_RESERVED ? reserved() : did("ih");
        made_ms = now_ms;
        assert_int_equal(r.reserved_until_ms, made_ms + 900 * SECOND_MS);
        lane_next();
        step_with(ana, &r, MOVE_RESERVE, "x1", NULL, 60, CPN_OK); /* never shorter */
        assert_int_equal(out.redemption.reserved_until_ms, made_ms + 900 * SECOND_MS);
        step_with(ana, &r, MOVE_RESERVE, "x2", NULL, 3600, CPN_OK);
        assert_int_equal(out.redemption.reserved_until_ms, now_ms + HOUR_MS);
        assert_int_equal(out.redemption.g, r.g);
        assert_false(out.created);
        lane_next();
        step_with(ana, &r, MOVE_RESERVE, "x3", NULL, 86400, CPN_OK);
        assert_int_equal(out.redemption.reserved_until_ms, made_ms + DAY_MS);
        lane_close();
        assert_int_equal(the_bucket.slots[0].due_ms, made_ms + DAY_MS);
        now_ms = made_ms + DAY_MS - 1;
        lane_open();
        step(ana, r, MOVE_RESERVE, "x4", NULL, CPN_INVALID_TRANSITION);
        lane_drop();
        now_ms++;
        lane_open();
        step(ana, r, MOVE_RESERVE, "x5", NULL, CPN_RESERVATION_EXPIRED);
        lane_drop();
    }
}

TEST(a_hold_is_extended_32_times_in_all)
{
    static const enum slot_state ways[] = {SLOT_RESERVED, SLOT_ISSUED};

    EACH_ANEW(i, 2, lane_fresh, lane_release) {
        struct redemption r;
        char key[16];

        lane_open();
        r = ways[i] == SLOT_RESERVED ? reserved() : did("ih");
        for (int k = 1; k <= 32; k++) {
            snprintf(key, sizeof key, "x%d", k);
            step_with(ana, &r, MOVE_RESERVE, key, NULL, 900 + k, CPN_OK);
            if (k % 5)
                continue;
            lane_next();
        }
        step_with(ana, &r, MOVE_RESERVE, "x33", NULL, 7200, CPN_INVALID_TRANSITION);
        assert_non_null(out.detail);
        lane_next();
        step_with(ana, &r, MOVE_RESERVE, "x33", NULL, 7200, CPN_INVALID_TRANSITION);
        for (int k = 1; k <= 32; k++) { /* a known key comes first, and all are known */
            snprintf(key, sizeof key, "x%d", k);
            step_with(ana, &r, MOVE_RESERVE, key, NULL, 900 + k, CPN_OK);
            assert_true(out.replayed);
            assert_true(out.redemption.reserved_until_ms >= NOON + (900 + k) * SECOND_MS);
        }
        step_with(ana, &r, MOVE_REDEEM, "spend", NULL, COUPON_NULL, CPN_OK);
        lane_close();
    }
}

TEST(a_thousand_redemptions_are_too_many_for_a_hold_not_for_an_extension)
{
    struct redemption base, r;

    lane_open();
    base = issued();
    r = reserved();
    for (int i = 2; i < USER_STATE_REDEMPTIONS_MAX; i++) {
        struct redemption *ended = user_state_add(ana, &arena);

        ended->n = 1000 + i;
        ended->state = SLOT_CANCELLED;
        ended->ended_ms = now_ms;
    }
    step(ana, base, MOVE_RESERVE, "h", NULL, CPN_TOO_MANY_ATTEMPTS);
    step(ana, r, MOVE_RESERVE, "x", NULL, CPN_OK);
    step(ana, base, MOVE_REDEEM, "r", NULL, CPN_OK);
    assert_int_equal(ana->count, USER_STATE_REDEMPTIONS_MAX);
}

/* ---- expiry ---- */

TEST(expiry_is_exact_to_the_millisecond)
{
    struct redemption r;

    lane_open();
    r = reserved();
    lane_close();
    now_ms = r.reserved_until_ms - 1;
    lane_open();
    decide_expire(&d, ana, r.n, r.g);
    assert_false(decide_changed(&d));
    step(ana, r, MOVE_REDEEM, "r", NULL, CPN_OK);
    batch_free(batch); /* the race is lost */
    batch = NULL;
    user_states[0] = user_states_before[0];
    now_ms++;
    lane_open();
    step(ana, r, MOVE_REDEEM, "r", NULL, CPN_RESERVATION_EXPIRED);
    decide_expire(&d, ana, r.n, r.g);
    assert_int_equal(batch->entries[0].kind, ENTRY_EXPIRE);
    decide_expire(&d, ana, r.n, r.g); /* once */
    assert_int_equal(batch->count, 1);
    lane_close();
    assert_int_equal(ana->total, 0);
    assert_int_equal(head_free(&tail), 64);
}

TEST(an_expired_hold_falls_back_to_issued)
{
    struct redemption hold;

    c.valid_for_s = 3600;
    lane_open();
    hold = did("ih");
    lane_close();
    now_ms += 900 * SECOND_MS;
    lane_open();
    decide_expire(&d, ana, hold.n, 0);
    assert_int_equal(batch->count, 1);
    assert_int_equal(batch->entries[0].valid_until_ms, NOON + HOUR_MS);
    lane_close();
    assert_int_equal(tail.issued, 1);
    assert_int_equal(the_bucket.slots[0].state, SLOT_ISSUED);
    assert_int_equal(the_bucket.slots[0].due_ms, NOON + HOUR_MS);
    assert_int_equal(the_bucket.slots[0].current, 1);
    now_ms = NOON + HOUR_MS;
    lane_open();
    decide_expire(&d, ana, hold.n, 0);
    lane_close();
    assert_int_equal(tail.issued, 0);
    assert_int_equal(ana->total, 0);
}

/* The hold outlives the issued one's own time: it stands as long as the hold does, and ends with it. */
TEST(an_issued_one_past_its_time_ends_with_the_hold_on_it)
{
    static const enum slot_move ends[] = {MOVE_EXPIRE, MOVE_CANCEL, MOVE_REDEEM};

    EACH_ANEW(i, 3, lane_fresh, lane_release) {
        struct redemption base, hold;

        if (i == 0)
            without_slots(CAP_NONE);
        c.valid_for_s = 60;
        lane_open();
        base = issued();
        hold = step(ana, base, MOVE_RESERVE, "hold", "o1", CPN_OK);
        lane_close();
        now_ms += 100 * SECOND_MS;
        lane_open();
        decide_expire(&d, ana, base.n, base.g); /* the hold stands */
        step(ana, base, MOVE_RESERVE, "x", "o2", CPN_TRANSACTION_IN_PROGRESS);
        assert_false(decide_changed(&d));
        assert_int_equal(user_state_lapsed(ana, now_ms, 0), 0);
        assert_int_equal(user_state_due(ana, 0), hold.reserved_until_ms);
        if (ends[i] == MOVE_EXPIRE) {
            lane_drop();
            now_ms = hold.reserved_until_ms;
            lane_open();
            assert_int_equal(user_state_lapsed(ana, now_ms, 0), 1);
            decide_expire(&d, ana, base.n, base.g);
            assert_int_equal(batch->count, 2); /* the hold, then what is beneath it */
            assert_int_equal(batch->entries[0].from, base.g);
        } else {
            step(ana, hold, ends[i], ends[i] == MOVE_REDEEM ? "r" : NULL, NULL, CPN_OK);
            decide_expire(&d, ana, base.n, base.g);
            assert_int_equal(batch->count, ends[i] == MOVE_CANCEL ? 2 : 1);
        }
        lane_close();
        assert_int_equal(tail.issued + tail.reserved, 0);
        assert_int_equal(ana->total, ends[i] == MOVE_REDEEM);
        assert_int_equal(user_state_by_slot(ana, base.n, base.g)->state, ends[i] == MOVE_REDEEM ? SLOT_REDEEMED : SLOT_EXPIRED);
    }
}

TEST(what_lapsed_counts_in_no_cap_of_its_user)
{
    c.cap.per_user = 2;
    c.cap.per_user_per_day = 1;
    lane_open();
    take(ana, SLOT_RESERVED, "a", NULL);
    post(ana, SLOT_RESERVED, "b", NULL, NULL, -1, CPN_USER_DAILY_CAP_REACHED);
    lane_lapse();
    take(ana, SLOT_RESERVED, "c", NULL);
    lane_close();
    now_ms += DAY_MS;
    lane_open();
    take(ana, SLOT_REDEEMED, "d", NULL);
    post(ana, SLOT_REDEEMED, "e", NULL, NULL, -1, CPN_USER_DAILY_CAP_REACHED);
    lane_close();
}

/* ---- what is given back ---- */

TEST(days_get_back_only_what_was_theirs)
{
    static const struct {
        enum slot_state state;
        enum slot_move end;
    } rows[] = {
        {SLOT_ISSUED, MOVE_CANCEL}, {SLOT_RESERVED, MOVE_CANCEL},  {SLOT_RESERVED, MOVE_EXPIRE},
        {SLOT_ISSUED, MOVE_EXPIRE}, {SLOT_REDEEMED, MOVE_REVERSE},
    };

    EACH_ANEW(k, 2 * sizeof rows / sizeof *rows, lane_fresh, lane_release) {
        enum slot_move end = rows[k / 2].end;
        bool days = k % 2;
        struct redemption r;

        c.reserve_s = c.valid_for_s = days ? 86400 : 60;
        lane_open();
        r = take(ana, rows[k / 2].state, "k", NULL);
        lane_close();
        now_ms += days ? DAY_MS : 60 * SECOND_MS;
        if (end == MOVE_CANCEL) {
            now_ms = now_ms - now_ms % DAY_MS; /* before its time, on this day or the next */
            now_ms = days ? now_ms : NOON + 5;
        }
        lane_open();
        if (end == MOVE_EXPIRE)
            decide_expire(&d, ana, r.n, r.g);
        else
            step(ana, r, end, NULL, NULL, CPN_OK);
        take(bob, SLOT_REDEEMED, "b", NULL);
        assert_int_equal(batch->entries[0].same_day, !days);
        lane_close();
        assert_int_equal(tail.day_taken, 1);
        assert_int_equal(user_state_today(ana, tail.day_ms), 0);
        assert_int_equal(ana->total, 0);
    }
}

TEST(a_hold_that_ends_gives_no_days_count_back)
{
    lane_open();
    did("ihc");
    lane_close();
    assert_int_equal(tail.day_taken, 1);
    assert_int_equal(user_state_today(ana, tail.day_ms), 1);
}

/* ---- budget ---- */

TEST(the_budget_holds_what_is_held)
{
    struct redemption base, r;
    struct order *small = order_of("o1"), *large = order_of("o1");

    discounts(500);
    c.cap.discount_minor = 1000;
    small->amount_minor = 300;
    lane_open();
    base = issued(); /* holds nothing yet */
    assert_int_equal(d.head.discount_minor, 0);
    step_with(ana, &base, MOVE_RESERVE, "h", small, COUPON_NULL, CPN_OK);
    r = out.redemption;
    assert_int_equal(d.head.discount_minor, 300);
    take(bob, SLOT_RESERVED, "b1", NULL);
    assert_int_equal(d.head.discount_minor, 800);
    post(bob, SLOT_RESERVED, "b2", NULL, NULL, -1, CPN_BUDGET_REACHED);
    step_with(ana, &r, MOVE_REDEEM, "r", large, COUPON_NULL, CPN_OK); /* 200 more, to the last unit */
    assert_int_equal(out.redemption.price.discount_minor, 500);
    assert_int_equal(d.head.discount_minor, 1000);
    step(bob, bob->redemptions[0], MOVE_CANCEL, NULL, NULL, CPN_OK);
    assert_int_equal(d.head.discount_minor, 500);
    step_with(ana, &base, MOVE_REVERSE, NULL, NULL, COUPON_NULL, CPN_OK);
    assert_int_equal(d.head.discount_minor, 0);
    lane_close();
}

TEST(a_larger_order_may_pass_the_budget)
{
    struct redemption r;
    struct order *small = order_of("o1"), *large = order_of("o2");

    discounts(500);
    c.cap.discount_minor = 400;
    small->amount_minor = 300;
    lane_open();
    post(ana, SLOT_RESERVED, "h", small, NULL, -1, CPN_OK);
    r = out.redemption;
    step_with(ana, &r, MOVE_REDEEM, "r", large, COUPON_NULL, CPN_BUDGET_REACHED);
    large->amount_minor = 401;
    step_with(ana, &r, MOVE_REDEEM, "r", large, COUPON_NULL, CPN_BUDGET_REACHED);
    large->currency = "USD";
    step_with(ana, &r, MOVE_REDEEM, "r", large, COUPON_NULL, CPN_ORDER_NOT_ELIGIBLE);
    assert_int_equal(batch->count, 1);
    c.cap.discount_minor = 100; /* lowered: what was held may be redeemed */
    step_with(ana, &r, MOVE_REDEEM, "r", NULL, COUPON_NULL, CPN_OK);
    assert_int_equal(out.redemption.price.discount_minor, 300);
    lane_close();
}

/* ---- what was promised at the hold ---- */

/* The definition changes between hold and redemption: what the customer was shown stands, unless the order is another. */
TEST(what_was_promised_at_the_hold_stands)
{
    struct order_line line = {.sku = "A1", .amount_minor = 1000, .quantity = 1}, less = {.sku = "A1", .amount_minor = 1000, .quantity = 2};
    struct order held = {"o1", COUPON_NULL, "EUR", &line, 1}, id_alone = {.id = "o1", .amount_minor = COUPON_NULL}, same = held,
                 other = {"o1", COUPON_NULL, "EUR", &less, 1};
    const struct {
        const struct order *order;
        int64_t discount_minor, version;
    } rows[] = {{NULL, 500, 1}, {&id_alone, 500, 1}, {&same, 500, 1}, {&other, 200, 2}};

    EACH_ANEW(i, sizeof rows / sizeof *rows, lane_fresh, lane_release) {
        struct redemption r;

        discounts(500);
        c.version = 1;
        lane_open();
        post(ana, SLOT_RESERVED, "h", &held, NULL, -1, CPN_OK);
        r = out.redemption;
        assert_int_equal(r.price.version, 1);
        assert_int_equal(r.price.order_minor, 1000);
        assert_string_equal(r.price.currency, "EUR");
        discounts(200);
        c.version = 2;
        c.discount.min_spend_minor = 1000;
        step_with(ana, &r, MOVE_REDEEM, "r", rows[i].order, COUPON_NULL, CPN_OK);
        assert_int_equal(out.redemption.price.discount_minor, rows[i].discount_minor);
        assert_int_equal(out.redemption.price.version, rows[i].version);
        assert_int_equal(out.redemption.price.order_minor, 1000);
        assert_int_equal(d.head.discount_minor, rows[i].discount_minor);
        post(ana, SLOT_RESERVED, "h", &held, NULL, -1, CPN_OK); /* the first answer says what it said */
        assert_true(out.replayed);
        assert_int_equal(out.redemption.price.discount_minor, 500);
        assert_int_equal(out.redemption.price.version, 1);
        lane_close();
    }
}

/* A hold without an order has no numbers: whatever is sent later is another order. */
TEST(a_hold_without_numbers_is_priced_by_those_that_come)
{
    struct redemption r;

    discounts(500);
    lane_open();
    take(ana, SLOT_RESERVED, "h", NULL);
    r = out.redemption;
    assert_string_equal(r.price.currency, "EUR");
    discounts(200);
    step_with(ana, &r, MOVE_REDEEM, "r", order_of("o1"), COUPON_NULL, CPN_OK);
    assert_int_equal(out.redemption.price.discount_minor, 200);
    lane_close();
}

/* ---- what is given back ---- */

TEST(the_money_may_come_back_and_the_use_not)
{
    struct redemption r;
    struct step s = {.move = MOVE_REVERSE, .reserve_s = COUPON_NULL, .keep_use = true};

    discounts(500);
    c.cap.per_user = 1;
    lane_open();
    take(ana, SLOT_REDEEMED, "t", NULL);
    r = out.redemption;
    s.n = r.n;
    s.g = r.g;
    decide_step(&d, ana, &s, &out);
    expect(CPN_OK);
    assert_int_equal(out.redemption.state, SLOT_REVERSED);
    assert_int_equal(d.head.redeemed + d.head.discount_minor + d.head.day_taken, 0);
    assert_int_equal(ana->total, 1);
    assert_int_equal(user_state_today(ana, d.head.day_ms), 1);
    post(ana, SLOT_REDEEMED, "again", NULL, NULL, -1, CPN_USER_CAP_REACHED);
    take(bob, SLOT_REDEEMED, "b", NULL); /* the slot is anybody's */
    s.keep_use = false;
    decide_step(&d, ana, &s, &out); /* what was given back once stays as it is */
    expect(CPN_OK);
    assert_int_equal(ana->total, 1);
    lane_close();
}

TEST(the_shares_of_the_lines_stand_like_the_price)
{
    struct order_line lines[] = {{"A1", NULL, 300, 1}, {"B2", NULL, 600, 1}};
    struct order two = {"o1", COUPON_NULL, "EUR", lines, 2}, one = {"o1", COUPON_NULL, "EUR", lines, 1};
    struct redemption r;

    discounts(500);
    lane_open();
    post(ana, SLOT_RESERVED, "h", &two, NULL, -1, CPN_OK);
    r = out.redemption;
    assert_string_equal(r.price.shares, "167,333");
    step_with(ana, &r, MOVE_REDEEM, "r", NULL, COUPON_NULL, CPN_OK);
    assert_string_equal(out.redemption.price.shares, "167,333");
    post(bob, SLOT_RESERVED, "h", &two, NULL, -1, CPN_OK);
    r = out.redemption;
    step_with(bob, &r, MOVE_REDEEM, "r", &one, COUPON_NULL, CPN_OK);
    assert_string_equal(out.redemption.price.shares, "300");
    post(bob, SLOT_RESERVED, "h", &two, NULL, -1, CPN_OK);
    assert_string_equal(out.redemption.price.shares, "167,333");
    lane_close();
}

/* order NULL: to this discount. */
static void adjust_to(struct user_state *u, const struct redemption *r, const char *key, int64_t discount_minor, const struct order *order,
                      enum cpn_result want)
{
    struct step s = {.n = r->n, .g = r->g, .adjusts = true, .key = key, .discount_minor = discount_minor, .order = order,
                     .reserve_s = COUPON_NULL};

    s.fingerprint[0] = (uint8_t)(order ? 255 : discount_minor);
    decide_step(&d, u, &s, &out);
    expect(want);
}

TEST(a_discount_is_adjusted_in_place)
{
    struct order_line lines[] = {{"A1", NULL, 300, 1}, {"B2", NULL, 600, 1}};
    struct order two = {"o1", COUPON_NULL, "EUR", lines, 2}, one = {"o1", COUPON_NULL, "EUR", lines, 1}, other = {"o2", 900, "EUR", NULL, 0};
    struct redemption r;

    discounts(500);
    c.cap.discount_minor = 700;
    lane_open();
    post(ana, SLOT_REDEEMED, "t", &two, NULL, -1, CPN_OK);
    r = out.redemption;
    adjust_to(ana, &r, "up", 501, NULL, CPN_BAD_REQUEST);
    adjust_to(ana, &r, "a1", 100, NULL, CPN_OK);
    assert_int_equal(out.redemption.price.discount_minor, 100);
    assert_int_equal(out.redemption.price.order_minor, 900);
    assert_string_equal(out.redemption.price.shares, "33,67");
    assert_int_equal(d.head.discount_minor, 100);
    assert_int_equal(d.head.redeemed, 1);
    adjust_to(ana, &r, "a2", 0, &other, CPN_BAD_REQUEST);
    discounts(250);
    c.cap.discount_minor = 700;
    c.version = 2;
    adjust_to(ana, &r, "a2", 0, &one, CPN_OK); /* anew, by the definition of now */
    assert_int_equal(out.redemption.price.discount_minor, 250);
    assert_int_equal(out.redemption.price.order_minor, 300);
    assert_int_equal(out.redemption.price.version, 2);
    assert_string_equal(out.redemption.price.shares, "250");
    adjust_to(ana, &r, "a1", 100, NULL, CPN_OK); /* each key has its first answer */
    assert_true(out.replayed);
    assert_int_equal(out.redemption.price.discount_minor, 100);
    adjust_to(ana, &r, "a1", 99, NULL, CPN_IDEMPOTENCY_KEY_REUSED);
    post(ana, SLOT_REDEEMED, "t", &two, NULL, -1, CPN_OK);
    assert_true(out.replayed);
    assert_int_equal(out.redemption.price.discount_minor, 500);
    c.cap.discount_minor = 249;
    lines[0].amount_minor = 200;
    adjust_to(ana, &r, "a3", 0, &one, CPN_OK); /* less is always possible */
    lines[0].amount_minor = 250;
    adjust_to(ana, &r, "a4", 0, &one, CPN_BUDGET_REACHED);
    adjust_to(bob, &r, "b", 0, NULL, CPN_REDEMPTION_NOT_FOUND);
    step(ana, r, MOVE_REVERSE, NULL, NULL, CPN_OK);
    assert_int_equal(d.head.discount_minor, 0);
    adjust_to(ana, &r, "late", 0, NULL, CPN_INVALID_TRANSITION);
    adjust_to(ana, &r, "a1", 100, NULL, CPN_OK);
    assert_int_equal(out.redemption.state, SLOT_REDEEMED);
    lane_close();
}

/* who[] is not hashed, so its shares may be anything. */
TEST(shares_that_do_not_add_up_are_not_divided)
{
    static const char *const damaged[] = {"33", "33,66", "", ",", "100,", "nothing", "-400,500", "33,67,x", "99999999999999999999,1",
                                          "9223372036854775807,9223372036854775807,102"};
    struct order_line lines[] = {{"A1", NULL, 300, 1}, {"B2", NULL, 600, 1}};
    struct order two = {"o1", COUPON_NULL, "EUR", lines, 2};

    discounts(100);
    lane_open();
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct redemption r;

        two.id = arena_printf(&arena, "o%zu", i);
        post(ana, SLOT_REDEEMED, arena_printf(&arena, "t%zu", i), &two, NULL, -1, CPN_OK);
        r = out.redemption;
        assert_string_equal(r.price.shares, "33,67");
        ana->redemptions[ana->count - 1].price.shares = damaged[i];
        adjust_to(ana, &r, arena_printf(&arena, "a%zu", i), 90, NULL, CPN_OK);
        assert_int_equal(out.redemption.price.discount_minor, 90);
        assert_null(out.redemption.price.shares);
    }
}

TEST(only_what_is_redeemed_is_adjusted)
{
    struct redemption base, held;

    discounts(500);
    lane_open();
    base = issued();
    adjust_to(ana, &base, "a", 0, NULL, CPN_INVALID_TRANSITION);
    step(ana, base, MOVE_RESERVE, "h", "o1", CPN_OK);
    held = out.redemption;
    adjust_to(ana, &base, "a", 0, NULL, CPN_INVALID_TRANSITION);
    adjust_to(ana, &held, "a", 0, NULL, CPN_INVALID_TRANSITION);
    step(ana, held, MOVE_REDEEM, "r", NULL, CPN_OK);
    adjust_to(ana, &base, "a", 200, NULL, CPN_OK); /* the money is that of the hold */
    assert_int_equal(out.redemption.g, held.g);
    assert_int_equal(d.head.discount_minor, 200);
    step(ana, held, MOVE_REDEEM, "r", NULL, CPN_OK);
    assert_true(out.replayed);
    assert_int_equal(out.redemption.price.discount_minor, 500);
    for (int i = 1; i < 32; i++)
        adjust_to(ana, &held, arena_printf(&arena, "n%d", i), 200 - i, NULL, CPN_OK);
    adjust_to(ana, &held, "n32", 0, NULL, CPN_INVALID_TRANSITION);
    lane_close();
}

TEST(a_lapsed_hold_frees_its_budget_for_the_next)
{
    struct redemption base;

    discounts(500);
    c.cap.discount_minor = 500;
    lane_open();
    base = issued();
    step(ana, base, MOVE_RESERVE, "h1", "o1", CPN_OK);
    lane_lapse();
    step(ana, base, MOVE_RESERVE, "h2", "o2", CPN_OK);
    assert_int_equal(out.redemption.g, 3);
    lane_close();
    assert_int_equal(tail.discount_minor, 500);
}

/* ---- first answers ---- */

/* Every call of a life, repeated after each later one, gives its first answer. */
TEST(each_call_is_answered_as_first_whatever_happened_since)
{
    struct redemption first[5], base;
    struct order *o1 = order_of("o1"), *o2 = order_of("o2");

    discounts(500);
    o1->amount_minor = 200;
    lane_open();
    base = issued();
    first[0] = base;
    lane_close();
    for (int stage = 1; stage <= 5; stage++) {
        struct redemption *r = stage > 1 ? &first[1] : &base;

        lane_open();
        if (stage == 1)
            step_with(ana, r, MOVE_RESERVE, "hold", o1, COUPON_NULL, CPN_OK);
        else if (stage == 2)
            step_with(ana, r, MOVE_RESERVE, "extend", NULL, 7200, CPN_OK);
        else if (stage == 3)
            step_with(ana, r, MOVE_REDEEM, "spend", o2, COUPON_NULL, CPN_OK);
        else if (stage == 4)
            step(ana, *r, MOVE_REVERSE, NULL, NULL, CPN_OK);
        else
            decide_tick(&d);
        if (stage <= 3)
            first[stage] = out.redemption;
        lane_close();
        now_ms += stage == 5 ? DAY_MS : 0;
        c.state = stage == 5 ? COUPON_ENDED : COUPON_ACTIVE;
        lane_open();
        take(ana, SLOT_ISSUED, "issue", NULL);
        assert_true(out.created);
        assert_first(&first[0]);
        step_with(ana, &base, MOVE_RESERVE, "hold", o1, COUPON_NULL, CPN_OK);
        assert_true(out.created);
        assert_first(&first[1]);
        if (stage >= 2) {
            step_with(ana, &first[1], MOVE_RESERVE, "extend", NULL, 7200, CPN_OK);
            assert_false(out.created);
            assert_first(&first[2]);
        }
        if (stage >= 3) {
            step_with(ana, &first[1], MOVE_REDEEM, "spend", o2, COUPON_NULL, CPN_OK);
            assert_false(out.created);
            assert_first(&first[3]);
            assert_string_equal(out.redemption.order, "o2");
            assert_int_equal(out.redemption.price.discount_minor, 500);
        }
        lane_drop();
    }
}

TEST(a_key_of_a_step_belongs_to_one_body)
{
    struct redemption base;
    struct step s = {.reserve_s = COUPON_NULL};

    lane_open();
    base = issued();
    s.n = base.n;
    s.g = base.g;
    s.key = "h";
    s.move = MOVE_RESERVE;
    decide_step(&d, ana, &s, &out);
    expect(CPN_OK);
    s.fingerprint[3] = 1;
    decide_step(&d, ana, &s, &out);
    expect(CPN_IDEMPOTENCY_KEY_REUSED);
    s.g = 2;
    s.key = "x";
    decide_step(&d, ana, &s, &out);
    expect(CPN_OK);
    s.fingerprint[3] = 0;
    decide_step(&d, ana, &s, &out);
    expect(CPN_IDEMPOTENCY_KEY_REUSED);
    s.key = "r";
    s.move = MOVE_REDEEM;
    decide_step(&d, ana, &s, &out);
    expect(CPN_OK);
    s.fingerprint[3] = 1;
    decide_step(&d, ana, &s, &out);
    expect(CPN_IDEMPOTENCY_KEY_REUSED);
    s.fingerprint[3] = 0;
    decide_step(&d, ana, &s, &out);
    expect(CPN_OK);
    assert_true(out.replayed);
    lane_close();
}

/* ---- checks ---- */

TEST(a_check_says_what_a_taking_would)
{
    struct redemption base;
    struct take t = {.code = "CODE", .code_n = 0, .state = SLOT_RESERVED, .reserve_s = COUPON_NULL};
    int64_t discount_minor = -1;

    discounts(500);
    c.cap.per_user = 1;
    lane_open();
    base = issued();
    lane_next();
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_OK);
    assert_int_equal(discount_minor, 500);
    decide_check(&d, bob, &t, &out, &discount_minor);
    expect(CPN_CODE_NOT_FOUND);
    assert_int_equal(discount_minor, 0);
    t.code = NULL;
    t.code_n = -1;
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_USER_CAP_REACHED);
    lane_drop();
    lane_open();
    step(ana, base, MOVE_RESERVE, "h", "o1", CPN_OK);
    t.code = "CODE";
    t.code_n = 0;
    decide_check(&d, ana, &t, &out, &discount_minor);
    expect(CPN_TRANSACTION_IN_PROGRESS);
    lane_close();
}

/* ---- after a restore ---- */

TEST(a_restore_lifts_what_a_lane_gives_out_next)
{
    struct redemption before, after;

    lane_open();
    before = take(ana, SLOT_REDEEMED, "k1", NULL);
    lane_next();
    d.epoch = 1;
    after = take(ana, SLOT_ISSUED, "k2", NULL);
    assert_int_equal(batch->entries[0].kind, ENTRY_RESTORED);
    assert_int_equal(batch->entries[0].count, 1);
    assert_int_equal(batch->count, 2);
    assert_int_equal(after.g, EPOCH_GENERATIONS + 1);
    assert_int_equal(after.ordinal, EPOCH_ORDINALS + before.ordinal + 1);
    assert_int_equal(head_takings(&d.head), 2);
    step(ana, before, MOVE_REVERSE, NULL, NULL, CPN_OK); /* what is not lost goes by its old id */
    after = step(ana, after, MOVE_RESERVE, "hold", "o1", CPN_OK);
    assert_int_equal(after.g, EPOCH_GENERATIONS + 2);
    lane_next();
    d.epoch = 1;
    take(bob, SLOT_REDEEMED, "k1", NULL);
    assert_int_equal(batch->count, 1); /* it was said */
    lane_next();
    d.epoch = 3; /* it was restored twice before anything happened here */
    post(bob, SLOT_REDEEMED, "k2", NULL, named[9].code, 9, CPN_OK); /* by its code */
    assert_int_equal(out.redemption.n, 9);
    assert_int_equal(out.redemption.g, 3 * EPOCH_GENERATIONS + 1);
    assert_int_equal(out.redemption.ordinal, 3 * EPOCH_ORDINALS + 4);
    lane_close();
}

TEST(a_restore_lifts_ids_without_slots)
{
    without_slots(CAP_NONE);
    for (int64_t epoch = 0; epoch <= 2; epoch++) {
        lane_open();
        d.epoch = epoch;
        out.redemption = take(ana, SLOT_ISSUED, arena_printf(&arena, "take-%d", (int)epoch), NULL);
        assert_int_equal(out.redemption.n, -tail.seq - 1);
        assert_int_equal(out.redemption.g, epoch * EPOCH_GENERATIONS + (epoch ? 2 : 1)); /* its place in the batch */
        step(ana, out.redemption, MOVE_RESERVE, arena_printf(&arena, "hold-%d", (int)epoch), "o", CPN_OK);
        assert_int_equal(out.redemption.g, epoch * EPOCH_GENERATIONS + (epoch ? 3 : 2));
        step(ana, out.redemption, MOVE_CANCEL, NULL, NULL, CPN_OK);
        lane_close();
    }
}

TEST(a_restore_is_not_recorded_where_nothing_happens)
{
    c.state = COUPON_PAUSED;
    lane_open();
    d.epoch = 1;
    post(ana, SLOT_REDEEMED, "k1", NULL, NULL, -1, CPN_COUPON_NOT_ACTIVE);
    lane_drop();
}

RUN_TESTS(.each_setup = lane_fresh, .each_teardown = lane_release)
