/* Unit tests of coupons/fold: what each kind of entry does to each view, and that a lie in a batch is found. */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "coupons/fold.h"
#include "unit/views.h"

#define NOON (INT64_C(20000) * DAY_MS + DAY_MS / 2)
#define ALIAS "0123456789abcdef"

static struct arena arena;
static struct batch *made[80];
static size_t made_count;
static struct user_state u; /* ana's */

FIXTURE(fresh)
{
    arena_init(&arena, 0);
    made_count = 0;
    user_state_init(&u, "ana", "");
    return 0;
}

FIXTURE(release)
{
    while (made_count)
        batch_free(made[--made_count]);
    arena_free(&arena);
    return 0;
}

static void assert_redemption(const struct redemption *have, const struct redemption *want)
{
    const char *wrong = redemption_difference(have, want);

    if (wrong)
        fail_msg("%lld-%u differs in %s", (long long)have->n, have->g, wrong);
}

static int64_t day_of(int64_t at_ms)
{
    return at_ms - at_ms % DAY_MS;
}

/* An empty batch with that seq and time. */
static struct batch *batch_at(int64_t seq, int64_t at_ms)
{
    struct batch *b = batch_new("sale", 0);

    assert_true(made_count < sizeof made / sizeof *made);
    made[made_count++] = b;
    b->head.seq = seq;
    b->head.at_ms = at_ms;
    b->head.day_ms = day_of(at_ms);
    return b;
}

/* An entry of this user about slot n. */
static struct entry *by_user(struct batch *b, enum entry_kind kind, const char *user, int64_t n, uint32_t g)
{
    struct entry *e = batch_add(b, kind);

    e->n = n;
    e->g = g;
    e->user = user;
    memcpy(e->alias, ALIAS, sizeof ALIAS);
    return e;
}

static struct entry *redeem(struct batch *b, const char *user, int64_t n, uint32_t g)
{
    return by_user(b, ENTRY_REDEEM, user, n, g);
}

static struct entry *reverse(struct batch *b, int64_t n, bool same_day)
{
    struct entry *e = by_user(b, ENTRY_REVERSE, "ana", n, 1);

    e->same_day = same_day;
    return e;
}

/* An entry of ana about slot n. */
static struct entry *of_slot(struct batch *b, enum entry_kind kind, int64_t n, uint32_t g, uint32_t from)
{
    struct entry *e = by_user(b, kind, "ana", n, g);

    e->from_n = n;
    e->from = from;
    return e;
}

static struct entry *range(struct batch *b, enum entry_kind kind, int64_t n, int64_t count)
{
    struct entry *e = batch_add(b, kind);

    e->n = n;
    e->count = count;
    return e;
}

/* Lay these batches into ana's state, one after another. */
#define fold(...) fold_all((struct batch *const[]){__VA_ARGS__, NULL})
static void fold_all(struct batch *const batches[])
{
    for (; *batches; batches++)
        fold_user_state(&u, *batches, &arena);
}

/* ---- user states ---- */

TEST(a_taking_is_laid_into_its_users_user_state)
{
    struct batch *b = batch_at(5, NOON);
    struct entry *e = redeem(b, "ana", 70, 3);
    struct redemption want = {.n = 70, .g = 3, .seq = 5, .last_seq = 5, .ordinal = 12, .at_ms = NOON, .day_ms = day_of(NOON),
                              .state = SLOT_REDEEMED, .first_state = SLOT_REDEEMED, .left = 88, .day = 2, .user = 1, .user_day = 1,
                              .price.discount_minor = 500, .first_price.discount_minor = 500, .order = "o1",
                              .metadata = "{\"a\":1}"};

    e->ordinal = 12;
    e->left = 88;
    e->day = 2;
    e->discount_minor = 500;
    e->order = "o1";
    e->metadata = "{\"a\":1}";
    memset(e->key, 7, sizeof e->key);
    memset(e->fingerprint, 8, sizeof e->fingerprint);
    memset(want.key, 7, sizeof want.key);
    memset(want.fingerprint, 8, sizeof want.fingerprint);
    assert_true(fold_user_state(&u, b, &arena));
    assert_string_equal(u.alias, ALIAS);
    assert_int_equal(u.seq, 5);
    assert_int_equal(u.total, 1);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 1);
    assert_int_equal(u.count, 1);
    assert_redemption(&u.redemptions[0], &want);
}

TEST(others_entries_leave_a_user_state_alone)
{
    struct batch *b = batch_at(1, NOON);

    redeem(b, "bob", 1, 1);
    redeem(b, "ana ", 2, 1);
    redeem(b, "an", 2, 1);
    redeem(b, NULL, 3, 1); /* erased */
    user_state_init(&u, "ana", ALIAS);
    assert_false(fold_user_state(&u, b, &arena));
    assert_int_equal(u.seq, 0);
    assert_int_equal(u.count, 0);
}

TEST(a_batch_counts_once_for_a_user_state)
{
    struct batch *b = batch_at(4, NOON);

    redeem(b, "ana", 1, 1);
    redeem(b, "ana", 2, 1);
    assert_true(fold_user_state(&u, b, &arena));
    assert_false(fold_user_state(&u, b, &arena));
    u.seq = 9; /* a view ahead of the batch */
    assert_false(fold_user_state(&u, b, &arena));
    assert_int_equal(u.total, 2);
    assert_int_equal(u.redemptions[1].user, 2);
    assert_int_equal(u.redemptions[1].user_day, 2);
}

TEST(todays_count_starts_anew_with_the_day)
{
    struct batch *b = batch_at(1, NOON), *next = batch_at(2, NOON + DAY_MS);

    redeem(b, "ana", 1, 1);
    redeem(b, "ana", 2, 1);
    redeem(next, "ana", 3, 1);
    fold(b);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 2);
    fold(next);
    assert_int_equal(u.total, 3);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 0);
    assert_int_equal(user_state_today(&u, day_of(NOON + DAY_MS)), 1);
    assert_int_equal(u.redemptions[2].user_day, 1);
}

TEST(a_return_gives_back_the_day_only_on_its_day)
{
    struct batch *b = batch_at(1, NOON), *same = batch_at(2, NOON + 1), *later = batch_at(3, NOON + DAY_MS);

    redeem(b, "ana", 1, 1);
    redeem(b, "ana", 2, 1);
    redeem(b, "ana", 3, 1);
    reverse(same, 2, true);
    redeem(later, "ana", 4, 1);
    reverse(later, 1, false);
    fold(b, same);
    assert_int_equal(u.total, 2);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 2);
    assert_int_equal(user_state_by_slot(&u, 2, 1)->state, SLOT_REVERSED);
    assert_int_equal(user_state_by_slot(&u, 2, 1)->first_state, SLOT_REDEEMED);
    assert_int_equal(user_state_by_slot(&u, 2, 1)->ended_ms, NOON + 1);
    fold(later);
    assert_int_equal(u.total, 2);
    assert_int_equal(user_state_today(&u, day_of(NOON + DAY_MS)), 1);
    assert_int_equal(user_state_by_slot(&u, 1, 1)->ended_ms, NOON + DAY_MS);
    assert_int_equal(user_state_by_slot(&u, 3, 1)->state, SLOT_REDEEMED);
}

TEST(ended_redemptions_leave_after_seven_days)
{
    struct batch *b = batch_at(1, NOON), *end = batch_at(2, NOON);
    struct batch *at_seven = batch_at(3, NOON + USER_STATE_KEY_KEPT_MS), *after = batch_at(4, NOON + USER_STATE_KEY_KEPT_MS + 1);

    for (int i = 0; i < 4; i++)
        redeem(b, "ana", i, 1);
    reverse(end, 0, true);
    reverse(end, 2, true);
    redeem(at_seven, "ana", 10, 1);
    redeem(after, "ana", 11, 1);
    fold(b, end, at_seven);
    assert_int_equal(u.count, 5);
    fold(after);
    assert_int_equal(u.count, 4);
    assert_null(user_state_by_slot(&u, 0, 1));
    assert_null(user_state_by_slot(&u, 2, 1));
    assert_int_equal(u.redemptions[0].n, 1); /* the order of taking stays */
    assert_int_equal(u.redemptions[1].n, 3);
    assert_int_equal(u.redemptions[2].n, 10);
    assert_int_equal(u.redemptions[3].n, 11);
    assert_int_equal(u.total, 4);
}

/* 70-1 is issued until 900; 70-2 holds it until 500, then until 950. */
static void issue_and_hold(struct batch *issue, struct batch *hold, struct batch *extend)
{
    struct entry *e = of_slot(issue, ENTRY_ISSUE, 70, 1, 0);

    e->ordinal = 12;
    e->left = 88;
    e->day = 2;
    e->valid_until_ms = NOON + 900;
    e->metadata = "{\"a\":1}";
    e->code = "CODE";
    e = of_slot(hold, ENTRY_HOLD, 70, 2, 1);
    e->reserved_until_ms = NOON + 500;
    e->discount_minor = 30;
    e->order = "o1";
    memset(e->key, 2, sizeof e->key);
    e = of_slot(extend, ENTRY_EXTEND, 70, 2, 1);
    e->reserved_until_ms = NOON + 950;
    memset(e->key, 3, sizeof e->key);
    memset(e->fingerprint, 4, sizeof e->fingerprint);
}

TEST(a_hold_is_no_new_taking)
{
    struct batch *issue = batch_at(1, NOON), *hold = batch_at(2, NOON + DAY_MS), *extend = batch_at(3, NOON + DAY_MS + 1);
    struct redemption *base, *r;
    struct redemption want = {.n = 70, .g = 2, .from_n = 70, .from = 1, .seq = 2, .last_seq = 2, .ordinal = 12, .at_ms = NOON + DAY_MS,
                              .day_ms = day_of(NOON), /* of the taking */
                              .state = SLOT_RESERVED, .first_state = SLOT_RESERVED, .left = 88, .day = 2, .user = 1, .user_day = 1,
                              .reserved_until_ms = NOON + 500, .first_until_ms = NOON + 500, .price.discount_minor = 30,
                              .first_price.discount_minor = 30, .order = "o1", .code = "CODE",
                              .metadata = "{\"a\":1}"};

    memset(want.key, 2, sizeof want.key);
    issue_and_hold(issue, hold, extend);
    fold(issue, hold);
    base = user_state_by_slot(&u, 70, 1);
    r = user_state_by_slot(&u, 70, 2);
    assert_int_equal(u.total, 1);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 1);
    assert_redemption(r, &want);
    assert_int_equal(base->state, SLOT_ISSUED);
    assert_int_equal(base->reserved_until_ms, NOON + 500);
    fold(extend);
    want.reserved_until_ms = NOON + 950; /* first_until_ms as first answered */
    want.last_seq = 3;
    memset(want.extended_key, 3, sizeof want.extended_key);
    memset(want.extended_fingerprint, 4, sizeof want.extended_fingerprint);
    assert_redemption(r, &want);
    assert_int_equal(base->reserved_until_ms, NOON + 950);
}

TEST(all_of_a_holds_extensions_are_kept)
{
    struct batch *issue = batch_at(1, NOON), *hold = batch_at(2, NOON), *extend = batch_at(3, NOON), *more;
    const struct redemption *r;
    const struct extension *first;
    struct entry *e;

    issue_and_hold(issue, hold, extend);
    fold(issue, hold, extend);
    r = &u.redemptions[1];
    for (int i = 1; i < USER_STATE_EXTENSIONS_MAX; i++) {
        more = batch_at(3 + i, NOON);
        e = of_slot(more, ENTRY_EXTEND, 70, 2, 1);
        memset(e->key, 100 + i, sizeof e->key);
        memset(e->fingerprint, 200 + i, sizeof e->fingerprint);
        e->reserved_until_ms = NOON + 1000 + i;
        first = r->earlier;
        fold(more);
        assert_int_equal(r->extended_key[0], 100 + i);
        assert_int_equal(r->earlier_count, i);
        assert_int_equal(redemption_extensions(r), i + 1);
        if (i > 1)
            assert_int_equal(first[0].until_ms, NOON + 950); /* whoever has it may keep it */
    }
    assert_int_equal(r->earlier[0].key[0], 3);
    assert_int_equal(r->earlier[0].fingerprint[0], 4);
    for (int i = 1; i < USER_STATE_EXTENSIONS_MAX - 1; i++) {
        assert_int_equal(r->earlier[i].key[0], 100 + i);
        assert_int_equal(r->earlier[i].fingerprint[0], 200 + i);
        assert_int_equal(r->earlier[i].until_ms, NOON + 1000 + i);
    }
}

TEST(a_hold_that_ends_leaves_the_issued_one_as_before)
{
    EACH_ANEW(i, 2, fresh, release) {
        enum entry_kind kind = i ? ENTRY_EXPIRE : ENTRY_CANCEL;
        struct batch *issue = batch_at(1, NOON), *hold = batch_at(2, NOON), *extend = batch_at(3, NOON), *end = batch_at(4, NOON);

        issue_and_hold(issue, hold, extend);
        of_slot(end, kind, 70, 2, 1)->same_day = true;
        fold(issue, hold, extend, end);
        assert_int_equal(u.total, 1);
        assert_int_equal(user_state_today(&u, day_of(NOON)), 1);
        assert_int_equal(u.redemptions[0].state, SLOT_ISSUED);
        assert_int_equal(u.redemptions[0].reserved_until_ms, 0);
        assert_int_equal(u.redemptions[0].ended_ms, 0);
        assert_int_equal(u.redemptions[1].state, kind == ENTRY_CANCEL ? SLOT_CANCELLED : SLOT_EXPIRED);
        assert_int_equal(u.redemptions[1].ended_ms, NOON);
    }
}

TEST(what_is_spent_or_reversed_through_a_hold_is_so_beneath_it)
{
    struct batch *issue = batch_at(1, NOON), *hold = batch_at(2, NOON), *extend = batch_at(3, NOON), *spend = batch_at(4, NOON);
    struct batch *back = batch_at(5, NOON + 1);
    struct entry *e = of_slot(spend, ENTRY_SPEND, 70, 2, 1);

    issue_and_hold(issue, hold, extend);
    e->discount_minor = 25;
    e->order = "o2";
    memset(e->key, 5, sizeof e->key);
    of_slot(back, ENTRY_REVERSE, 70, 2, 1)->same_day = true;
    fold(issue, hold, spend);
    assert_int_equal(u.redemptions[0].state, SLOT_REDEEMED);
    assert_int_equal(u.redemptions[0].reserved_until_ms, 0);
    assert_int_equal(u.redemptions[1].state, SLOT_REDEEMED);
    assert_int_equal(u.redemptions[1].spent_key[0], 5);
    assert_int_equal(u.redemptions[1].price.discount_minor, 25);
    assert_int_equal(u.redemptions[1].first_price.discount_minor, 30);
    assert_string_equal(u.redemptions[1].order, "o2");
    assert_string_equal(u.redemptions[1].first_order, "o1");
    assert_int_equal(u.total, 1);
    fold(back);
    assert_int_equal(u.redemptions[0].state, SLOT_REVERSED);
    assert_int_equal(u.redemptions[1].state, SLOT_REVERSED);
    assert_int_equal(u.redemptions[0].ended_ms, NOON + 1);
    assert_int_equal(u.total, 0);
    assert_int_equal(user_state_today(&u, day_of(NOON)), 0);
}

TEST(an_erased_user_state_starts_anew_under_another_alias)
{
    struct batch *b = batch_at(1, NOON), *gone = batch_at(2, NOON + 1), *again = batch_at(3, NOON + 2);

    redeem(b, "ana", 1, 1);
    of_slot(gone, ENTRY_FORGET, 1, 1, 0);
    of_slot(gone, ENTRY_ERASE, 0, 0, 0);
    memcpy(redeem(again, "ana", 2, 1)->alias, "fedcba9876543210", sizeof ALIAS);
    fold(b, gone);
    assert_string_equal(u.alias, "");
    assert_int_equal(u.total + u.today + (int64_t)u.count, 0);
    assert_true(user_state_is_nobody(&u));
    assert_int_equal(u.seq, 0);
    fold(again);
    assert_string_equal(u.alias, "fedcba9876543210");
    assert_false(user_state_is_nobody(&u));
    assert_int_equal(u.total, 1);
    assert_int_equal(u.seq, 3);
}

TEST(a_job_that_has_its_turn_knows_it)
{
    struct batch *b = batch_at(9, NOON);
    struct entry *e = batch_add(b, ENTRY_TURN);
    struct job_progress j = {.id = "j1"};

    e->job = "j1";
    e->step = 4;
    fold_job(&j, b);
    assert_int_equal(j.seq, 9);
    assert_int_equal(j.turn, 9);
    assert_int_equal(j.fence, 4);
    assert_int_equal(j.total, 0);
}

TEST(a_jobs_progress_is_laid_into_its_own_view)
{
    struct batch *b = batch_at(1, NOON), *next = batch_at(2, NOON);
    struct entry *e = range(b, ENTRY_GENERATE, 0, 64), *f = range(next, ENTRY_GENERATE, 64, 36);
    struct job_progress j = {.id = "j1"}, other = {.id = "j2"};
    struct user_state user;

    e->job = f->job = "j1";
    e->step = 1;
    f->step = 2;
    user_state_init(&user, "j1", "");
    fold_job(&j, b);
    assert_int_equal(j.step, 1);
    fold_job(&j, b); /* what it holds already changes nothing */
    assert_int_equal(j.total, 64);
    fold_job(&j, next);
    assert_int_equal(j.step, 2);
    assert_int_equal(j.total, 100);
    assert_int_equal(j.seq, 2);
    assert_int_equal(j.version, 2);
    fold_job(&other, b);
    assert_int_equal(other.seq, 0);
    assert_false(fold_user_state(&user, b, &arena));
}

/* ---- totals ---- */

static const struct {
    const char *name;
    size_t offset;
} totals[] = {
#define TOTAL(kind, member, name, in_line, stored, when, place, reported) {name, offsetof(struct head, member)},
    HEAD_TOTALS_FIELDS(TOTAL)
#undef TOTAL
    {"seq", offsetof(struct head, seq)},
    {"version", offsetof(struct head, version)},
    {"day.taken", offsetof(struct head, day_taken)},
};
#define TOTALS (sizeof totals / sizeof *totals)

static int64_t *total_of(struct head *h, size_t i)
{
    return (int64_t *)((char *)h + totals[i].offset);
}

/* An entry, by how much it changes each total, and how many slots are free. */
struct change {
    struct entry entry;
    struct head by;
    int64_t free;
};

/* Each entry changes what it should, and nothing else. */
static void assert_changes(struct head *h, const struct change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct head before = *h, by = changes[i].by;

        fold_head_entry(h, &changes[i].entry);
        for (size_t k = 0; k < TOTALS; k++)
            if (*total_of(h, k) != *total_of(&before, k) + *total_of(&by, k))
                fail_msg("change %zu, %s: %s is %d, and was %d", i, entry_kind_name(changes[i].entry.kind), totals[k].name,
                         (int)*total_of(h, k), (int)*total_of(&before, k));
        assert_int_equal(head_free(h), head_free(&before) + changes[i].free);
    }
}

TEST(each_kind_moves_the_totals)
{
    struct coupon c = {.version = 3};
    const struct change changes[] = {
        {{.kind = ENTRY_DEFINE, .definition = &c}, {.version = 3}, 0},
        {{.kind = ENTRY_GENERATE, .n = 0, .count = 100}, {.slots = 100, .next_n = 100}, 100},
        {{.kind = ENTRY_REDEEM, .ordinal = 1, .discount_minor = 500},
         {.redeemed = 1, .ordinal = 1, .discount_minor = 500, .day_taken = 1}, -1},
        {{.kind = ENTRY_REDEEM, .ordinal = 2, .discount_minor = 70},
         {.redeemed = 1, .ordinal = 1, .discount_minor = 70, .day_taken = 1}, -1},
        {{.kind = ENTRY_REVERSE, .discount_minor = 500, .same_day = true}, {.redeemed = -1, .discount_minor = -500, .day_taken = -1}, 1},
        {{.kind = ENTRY_REVERSE, .discount_minor = 70}, {.redeemed = -1, .discount_minor = -70}, 1},
        {{.kind = ENTRY_RETIRING, .count = 10}, {.retiring = 10}, -10},
        {{.kind = ENTRY_RETIRE, .n = 5, .count = 4}, {.retiring = -4, .slots = -4}, 0}, /* a number is never given twice */
        {{.kind = ENTRY_TICK}, {.seq = 0}, 0},
        {{.kind = ENTRY_DELETE}, {.version = 1}, 0},
    };
    struct head h = {0};

    assert_changes(&h, changes, sizeof changes / sizeof *changes);
}

TEST(holds_move_between_the_totals)
{
    static const struct change changes[] = {
        {{.kind = ENTRY_ISSUE, .ordinal = 1}, {.issued = 1, .ordinal = 1, .day_taken = 1}, -1},
        {{.kind = ENTRY_HOLD, .from = 1, .discount_minor = 30}, {.issued = -1, .reserved = 1, .discount_minor = 30}, 0},
        {{.kind = ENTRY_EXPIRE, .from = 1, .was = SLOT_RESERVED, .discount_minor = 30, .same_day = true}, /* as before */
         {.issued = 1, .reserved = -1, .discount_minor = -30}, 0},
        {{.kind = ENTRY_HOLD, .from = 1, .discount_minor = 30}, {.issued = -1, .reserved = 1, .discount_minor = 30}, 0},
        {{.kind = ENTRY_EXTEND, .from = 1}, {.seq = 0}, 0},
        {{.kind = ENTRY_SPEND, .from = 1, .was = SLOT_RESERVED, .held_minor = 30, .discount_minor = 20},
         {.reserved = -1, .redeemed = 1, .discount_minor = -10}, 0},
        {{.kind = ENTRY_FORGET}, {.seq = 0}, 0},
        {{.kind = ENTRY_ERASE}, {.seq = 0}, 0},
        {{.kind = ENTRY_REVERSE, .from = 1, .discount_minor = 20, .same_day = true},
         {.redeemed = -1, .discount_minor = -20, .day_taken = -1}, 1},
        {{.kind = ENTRY_RESERVE, .ordinal = 2, .discount_minor = 5},
         {.reserved = 1, .ordinal = 1, .discount_minor = 5, .day_taken = 1}, -1},
        {{.kind = ENTRY_CANCEL, .was = SLOT_RESERVED, .discount_minor = 5, .same_day = true},
         {.reserved = -1, .discount_minor = -5, .day_taken = -1}, 1},
        {{.kind = ENTRY_ISSUE, .ordinal = 3}, {.issued = 1, .ordinal = 1, .day_taken = 1}, -1},
        {{.kind = ENTRY_EXPIRE, .was = SLOT_ISSUED}, {.issued = -1}, 1}, /* it was of another day */
    };
    struct head h = {.slots = 10, .next_n = 10};

    assert_changes(&h, changes, sizeof changes / sizeof *changes);
}

TEST(events_and_turns_are_remembered_until_they_are_over)
{
    struct coupon c, lower, without;
    const struct change changes[] = {
        {{.kind = ENTRY_TURN}, {.turn = 5}, 0},
        {{.kind = ENTRY_TURN_END}, {.turn = -5}, 0},
        {{.kind = ENTRY_LOW_STOCK, .count = 3}, {.low_stock = 1}, 0},
        {{.kind = ENTRY_SOLD_OUT}, {.sold_out = 1}, 0},
        {{.kind = ENTRY_REPLENISH, .count = 30}, {.replenish_until = 30}, 0},
        {{.kind = ENTRY_DEFINE, .definition = &c}, {.seq = 0}, 0},
        {{.kind = ENTRY_GENERATE, .n = 10, .count = 19}, {.slots = 19, .next_n = 19, .low_stock = -1, .sold_out = -1}, 19},
        {{.kind = ENTRY_GENERATE, .n = 29, .count = 1}, {.slots = 1, .next_n = 1, .replenish_until = -30}, 1},
        {{.kind = ENTRY_REPLENISH, .count = 50}, {.replenish_until = 50}, 0},
        {{.kind = ENTRY_DEFINE, .definition = &lower}, {.replenish_until = -50}, 0}, /* cannot be reached any longer */
        {{.kind = ENTRY_REPLENISH, .count = 49}, {.replenish_until = 49}, 0},
        {{.kind = ENTRY_DEFINE, .definition = &without}, {.replenish_until = -49}, 0},
    };
    struct head h = {.seq = 5, .slots = 10, .next_n = 10};

    coupon_init(&c);
    c.replenish.below = c.replenish.add = 20;
    c.cap.total = 100;
    lower = c;
    lower.cap.total = 49;
    without = lower;
    without.replenish.below = without.replenish.add = COUPON_NULL;
    assert_changes(&h, changes, sizeof changes / sizeof *changes);
}

TEST(a_new_day_starts_its_count_at_nothing)
{
    struct head h = {.at_ms = NOON, .day_ms = day_of(NOON), .day_taken = 7, .redeemed = 9};

    fold_day(&h, NOON + 5, day_of(NOON));
    assert_int_equal(h.at_ms, NOON + 5);
    assert_int_equal(h.day_taken, 7);
    fold_day(&h, NOON + DAY_MS, day_of(NOON) + DAY_MS);
    assert_int_equal(h.day_taken, 0);
    assert_int_equal(h.day_ms, day_of(NOON) + DAY_MS);
    assert_int_equal(h.redeemed, 9);
}

/* ---- definitions ---- */

TEST(the_definition_follows_its_entries)
{
    struct batch *none = batch_at(1, NOON), *two = batch_at(2, NOON), *gone = batch_at(3, NOON);
    struct coupon first, second;
    const struct coupon *now;

    coupon_init(&first);
    coupon_init(&second);
    first.title = "First";
    first.version = 1;
    second.title = "Second";
    second.version = 2;
    batch_add(none, ENTRY_TICK);
    batch_add(two, ENTRY_DEFINE)->definition = &first;
    batch_add(two, ENTRY_DEFINE)->definition = &second;
    batch_add(gone, ENTRY_DELETE);
    assert_null(fold_definition(NULL, none, &arena));
    assert_null(fold_definition(NULL, gone, &arena));
    assert_ptr_equal(fold_definition(&first, none, &arena), &first);
    now = fold_definition(NULL, two, &arena);
    assert_string_equal(now->title, "Second");
    assert_ptr_not_equal(now, &second);
    now = fold_definition(now, gone, &arena);
    assert_int_equal(now->state, COUPON_DELETED);
    assert_int_equal(now->version, 3);
    assert_string_equal(now->title, "Second");
}

/* ---- buckets ---- */

TEST(buckets_are_as_large_as_there_are_slots)
{
    static const int sizes[] = {64, 64, 2, 0};

    for (int i = 0; i < 4; i++) {
        struct bucket k;

        bucket_init(&k, i);
        bucket_fit(&k, 130);
        assert_int_equal(k.size, sizes[i]);
        assert_int_equal(bucket_free_count(&k), BUCKET_SLOTS);
        bucket_release(&k);
    }
}

/* What an entry says about its slots' freedom is what folding it does to them. */
TEST(an_entry_frees_or_takes_what_folding_it_does)
{
    static const struct {
        enum entry_kind kind;
        uint32_t from;
        enum slot_state before;
    } moves[] = {
        {ENTRY_ISSUE, 0, SLOT_FREE}, {ENTRY_RESERVE, 0, SLOT_FREE}, {ENTRY_REDEEM, 0, SLOT_FREE}, {ENTRY_RETIRE, 0, SLOT_FREE},
        {ENTRY_HOLD, 1, SLOT_ISSUED}, {ENTRY_EXTEND, 0, SLOT_RESERVED}, {ENTRY_SPEND, 0, SLOT_RESERVED}, {ENTRY_SPEND, 1, SLOT_RESERVED},
        {ENTRY_CANCEL, 0, SLOT_ISSUED}, {ENTRY_CANCEL, 0, SLOT_RESERVED}, {ENTRY_CANCEL, 1, SLOT_RESERVED},
        {ENTRY_EXPIRE, 0, SLOT_ISSUED}, {ENTRY_EXPIRE, 0, SLOT_RESERVED}, {ENTRY_EXPIRE, 1, SLOT_RESERVED},
        {ENTRY_REVERSE, 0, SLOT_REDEEMED}, {ENTRY_REVERSE, 1, SLOT_REDEEMED}, {ENTRY_ADJUST, 0, SLOT_REDEEMED},
        {ENTRY_FORGET, 0, SLOT_REDEEMED},
    };

    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        struct entry e = {.kind = moves[i].kind, .n = 3, .g = 2, .count = 1, .from = moves[i].from, .from_n = moves[i].from ? 3 : 0};
        struct slot s = {.state = moves[i].before, .generation = 1, .current = moves[i].before == SLOT_FREE ? 0 : 1, .from = moves[i].from};
        int was_free = s.state == SLOT_FREE;

        fold_slot(&s, &e, NOON);
        assert_int_equal(entry_frees(&e), (s.state == SLOT_FREE) - was_free);
        free(s.user);
    }
    for (enum entry_kind kind = 0; kind < ENTRY_KIND_COUNT; kind++) {
        struct entry e = {.kind = kind};
        bool listed = false;

        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
            listed = listed || moves[i].kind == kind;
        assert_true(listed || !entry_frees(&e));
    }
}

TEST(a_slot_is_taken_returned_and_taken_again)
{
    struct batch *b = batch_at(1, NOON), *back = batch_at(2, NOON + 1), *again = batch_at(3, NOON + 2);
    struct bucket k;

    range(b, ENTRY_GENERATE, 64, 64);
    redeem(b, "ana", 70, 1);
    reverse(back, 70, true);
    redeem(again, "bob", 70, 2);
    bucket_init(&k, 1);
    fold_bucket(&k, b);
    assert_int_equal(k.slots[6].state, SLOT_REDEEMED);
    assert_int_equal(k.slots[6].generation, 1);
    assert_string_equal(k.slots[6].user, "ana");
    assert_int_equal(k.slots[6].at_ms, NOON);
    assert_int_equal(bucket_free_count(&k), 63);
    fold_bucket(&k, back);
    assert_int_equal(k.slots[6].state, SLOT_FREE);
    assert_int_equal(k.slots[6].generation, 1); /* kept for ever */
    assert_null(k.slots[6].user);
    assert_int_equal(bucket_free_count(&k), 64);
    fold_bucket(&k, again);
    assert_string_equal(k.slots[6].user, "bob");
    assert_int_equal(k.slots[6].generation, 2);
    assert_int_equal(k.seq, 3);
    assert_false(fold_bucket(&k, back)); /* late: changes nothing */
    assert_string_equal(k.slots[6].user, "bob");
    bucket_release(&k);
}

static void assert_slot(const struct slot *s, enum slot_state state, uint32_t generation, uint32_t current, uint32_t from,
                        int64_t due_ms)
{
    assert_int_equal(s->state, state);
    assert_int_equal(s->generation, generation);
    assert_int_equal(s->current, current);
    assert_int_equal(s->from, from);
    assert_int_equal(s->due_ms, due_ms);
    assert_int_equal(s->user != NULL, current != 0);
}

/* Until it is free again, by whatever way it is spent. */
TEST(a_slot_knows_that_it_was_issued)
{
    static const struct {
        enum entry_kind kinds[4];
        bool issued;
    } lives[] = {
        {{ENTRY_ISSUE}, true},
        {{ENTRY_ISSUE, ENTRY_SPEND}, true},
        {{ENTRY_ISSUE, ENTRY_SPEND, ENTRY_FORGET}, true},
        {{ENTRY_ISSUE, ENTRY_HOLD, ENTRY_EXTEND, ENTRY_SPEND}, true},
        {{ENTRY_ISSUE, ENTRY_HOLD, ENTRY_EXPIRE}, true},
        {{ENTRY_ISSUE, ENTRY_HOLD, ENTRY_CANCEL, ENTRY_SPEND}, true},
        {{ENTRY_ISSUE, ENTRY_SPEND, ENTRY_REVERSE}, false},
        {{ENTRY_ISSUE, ENTRY_CANCEL, ENTRY_REDEEM}, false},
        {{ENTRY_ISSUE, ENTRY_RETIRE}, false},
        {{ENTRY_RESERVE, ENTRY_EXTEND, ENTRY_SPEND}, false},
        {{ENTRY_REDEEM, ENTRY_FORGET}, false},
    };

    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        struct slot s = {.generation = 0};
        bool holds = false;

        for (int k = 0; k < 4 && (k == 0 || lives[i].kinds[k]); k++) {
            struct entry e = {.kind = lives[i].kinds[k], .g = s.generation + entry_makes(lives[i].kinds[k]), .user = "ana"};

            holds = e.kind == ENTRY_HOLD || (holds && e.kind != ENTRY_CANCEL && e.kind != ENTRY_EXPIRE);
            e.from = holds || (k && lives[i].kinds[k - 1] == ENTRY_HOLD) ? 1 : 0;
            fold_slot(&s, &e, 10);
        }
        if (s.issued != lives[i].issued)
            fail_msg("life %zu ends %s", i, s.issued ? "issued" : "not issued");
        free(s.user);
    }
}

TEST(a_slot_falls_back_to_where_it_came_from)
{
    struct slot s = {.generation = 4};
    struct entry e = {.kind = ENTRY_ISSUE, .n = 6, .g = 5, .user = "ana", .valid_until_ms = 900};

    fold_slot(&s, &e, 10);
    assert_slot(&s, SLOT_ISSUED, 5, 5, 0, 900);
    e = (struct entry){.kind = ENTRY_HOLD, .n = 6, .g = 6, .from_n = 6, .from = 5, .user = "ana", .reserved_until_ms = 50};
    fold_slot(&s, &e, 11);
    assert_slot(&s, SLOT_RESERVED, 6, 6, 5, 50);
    e.kind = ENTRY_EXTEND;
    e.reserved_until_ms = 70;
    fold_slot(&s, &e, 12);
    assert_slot(&s, SLOT_RESERVED, 6, 6, 5, 70);
    e.kind = ENTRY_EXPIRE;
    e.valid_until_ms = 900;
    fold_slot(&s, &e, 70);
    assert_slot(&s, SLOT_ISSUED, 6, 5, 0, 900); /* the generation is kept, and 6-5 stands again */
    assert_int_equal(s.at_ms, 70);
    e = (struct entry){.kind = ENTRY_HOLD, .n = 6, .g = 7, .from_n = 6, .from = 5, .user = "ana", .reserved_until_ms = 150};
    fold_slot(&s, &e, 100);
    e.kind = ENTRY_SPEND;
    e.reserved_until_ms = 0;
    fold_slot(&s, &e, 110);
    assert_slot(&s, SLOT_REDEEMED, 7, 7, 5, 0);
    e.kind = ENTRY_REVERSE;
    fold_slot(&s, &e, 120);
    assert_slot(&s, SLOT_FREE, 7, 0, 0, 0);
    e = (struct entry){.kind = ENTRY_RESERVE, .n = 6, .g = 8, .user = "bob", .reserved_until_ms = 200};
    fold_slot(&s, &e, 130);
    e.kind = ENTRY_CANCEL;
    fold_slot(&s, &e, 140);
    assert_slot(&s, SLOT_FREE, 8, 0, 0, 0);
    e = (struct entry){.kind = ENTRY_REDEEM, .n = 6, .g = 9, .user = "bob"};
    fold_slot(&s, &e, 150);
    e.kind = ENTRY_FORGET;
    fold_slot(&s, &e, 160);
    assert_null(s.user);
    assert_int_equal(s.state, SLOT_REDEEMED);
    assert_int_equal(s.current, 9);
}

/* Slots that are made, slots that are none, and what is not of slots. */
TEST(what_touches_no_slot_touches_no_bucket)
{
    struct batch *b = batch_at(1, NOON);
    int64_t first, end;

    range(b, ENTRY_GENERATE, 0, 130);
    for (int i = 1; i < 200; i++)
        redeem(b, "ana", -i, 1);
    batch_add(b, ENTRY_TICK);
    batch_add(b, ENTRY_DELETE);
    batch_add(b, ENTRY_DEFINE);
    batch_add(b, ENTRY_RETIRING)->count = 5;
    for (int i = 0; i < 4; i++) {
        struct bucket k;

        bucket_init(&k, i);
        assert_false(fold_bucket(&k, b));
        assert_int_equal(k.seq, 0);
        bucket_release(&k);
    }
    assert_false(entry_buckets(&b->entries[0], &first, &end));
    assert_false(entry_buckets(&b->entries[1], &first, &end));
    assert_true(entry_buckets(range(b, ENTRY_RETIRE, 60, 10), &first, &end));
    assert_int_equal(first, 0);
    assert_int_equal(end, 2);
    assert_true(entry_buckets(redeem(b, "ana", 64, 1), &first, &end));
    assert_int_equal(first, 1);
    assert_int_equal(end, 2);
}

TEST(retired_slots_are_those_of_the_range)
{
    struct batch *b = batch_at(1, NOON), *gone = batch_at(2, NOON);
    struct bucket k;

    range(b, ENTRY_GENERATE, 0, 200);
    range(gone, ENTRY_RETIRE, 60, 10);
    bucket_init(&k, 0);
    fold_bucket(&k, gone);
    assert_int_equal(bucket_free_count(&k), 60);
    assert_int_equal(k.slots[59].state, SLOT_FREE);
    assert_int_equal(k.slots[60].state, SLOT_RETIRED);
    assert_int_equal(k.slots[63].state, SLOT_RETIRED);
    bucket_release(&k);
    bucket_init(&k, 1);
    fold_bucket(&k, b);
    assert_true(fold_bucket(&k, gone));
    assert_int_equal(bucket_free_count(&k), 58);
    bucket_release(&k);
    bucket_init(&k, 2);
    fold_bucket(&k, b);
    assert_false(fold_bucket(&k, gone));
    bucket_release(&k);
}

/* ---- reports ---- */

TEST(reports_count_entries_and_net_money)
{
    struct batch *b = batch_at(1, NOON);
    struct report_counts r = {0};

    for (unsigned kind = 0; kind < ENTRY_KIND_COUNT; kind++)
        for (unsigned i = 0; i <= kind; i++) {
            struct entry *e = batch_add(b, (enum entry_kind)kind);

            e->discount_minor = kind == ENTRY_REVERSE ? 10 : 100;
            e->order_minor = 3 * e->discount_minor;
        }
    fold_report(&r, b);
    assert_int_equal(r.issued, ENTRY_ISSUE + 1);
    assert_int_equal(r.reserved, ENTRY_RESERVE + 1 + ENTRY_HOLD + 1);
    assert_int_equal(r.redeemed, ENTRY_REDEEM + 1 + ENTRY_SPEND + 1);
    assert_int_equal(r.cancelled, ENTRY_CANCEL + 1);
    assert_int_equal(r.expired, ENTRY_EXPIRE + 1);
    assert_int_equal(r.reversed, ENTRY_REVERSE + 1);
    assert_int_equal(r.discount_minor, 100 * (ENTRY_REDEEM + 1 + ENTRY_SPEND + 1 + ENTRY_ADJUST + 1) - 10 * (ENTRY_REVERSE + 1));
    assert_int_equal(r.order_minor, 3 * r.discount_minor);
}

/* ---- lies ---- */

static struct coupon definition;
static struct head before;

/* The head before, and an honest batch with something of everything after it. */
static struct batch *honest(void)
{
    struct batch *b = batch_at(8, NOON);
    struct entry *e;

    before = (struct head){
        .seq = 7, .at_ms = NOON - 1000, .version = 3, .slots = 100, .retiring = 5, .next_n = 110, .redeemed = 40, .ordinal = 44,
        .discount_minor = 2000, .day_ms = day_of(NOON), .day_taken = 4,
    };
    memset(before.hash, 0x5C, HASH_LEN);
    memcpy(b->prev, before.hash, HASH_LEN);
    coupon_init(&definition);
    definition.title = "x";
    definition.version = 4;
    batch_add(b, ENTRY_DEFINE)->definition = &definition;
    range(b, ENTRY_GENERATE, 110, 20);
    e = redeem(b, "ana", 3, 1);
    e->ordinal = 45;
    e->left = 74;
    e->day = 5;
    e->discount_minor = 50;
    e = redeem(b, "bob", 4, 1);
    e->ordinal = 46;
    e->left = 73;
    e->day = 6;
    e->discount_minor = 60;
    reverse(b, 3, true)->discount_minor = 50;
    range(b, ENTRY_RETIRING, 0, 10);
    range(b, ENTRY_RETIRE, 50, 15);
    b->head = (struct head){
        .seq = 8, .at_ms = NOON, .version = 4, .slots = 105, .retiring = 0, .next_n = 130, .redeemed = 41, .ordinal = 46,
        .discount_minor = 2060, .day_ms = day_of(NOON), .day_taken = 5,
    };
    return b;
}

static void assert_found(const struct batch *b, const char *lie)
{
    if (!batch_contradiction(&before, b))
        fail_msg("not found: %s", lie);
}

TEST(an_honest_batch_holds_no_contradiction)
{
    struct batch *b = honest();
    const char *found = batch_contradiction(&before, b);

    if (found)
        fail_msg("contradiction in %s", found);
}

TEST(a_first_batch_follows_nothing)
{
    struct batch *b = batch_at(1, NOON);

    before = (struct head){0};
    coupon_init(&definition);
    definition.version = 1;
    batch_add(b, ENTRY_DEFINE)->definition = &definition;
    b->head.version = 1;
    assert_null(batch_contradiction(&before, b));
    b->prev[31] = 1;
    assert_string_equal(batch_contradiction(&before, b), "prev");
}

TEST(a_lie_in_the_head_is_reported_by_its_name)
{
    static const char *const anew[] = {"version", "low_stock", "sold_out", "replenish_until"}; /* whatever they were before */

    for (size_t i = 0; i < TOTALS; i++) {
        for (int64_t step = -1; step <= 1; step += 2) {
            struct batch *b = honest();
            bool matters = true;

            *total_of(&b->head, i) += step;
            assert_string_equal(batch_contradiction(&before, b), totals[i].name);
            /* and the same lie in the batch before */
            b = honest();
            *total_of(&before, i) += step;
            for (size_t k = 0; k < sizeof anew / sizeof *anew; k++)
                matters = matters && strcmp(totals[i].name, anew[k]) != 0;
            if (matters && !batch_contradiction(&before, b))
                fail_msg("not found: %s moved by %d before", totals[i].name, (int)step);
        }
    }
}

TEST(time_that_runs_backwards_is_found)
{
    struct batch *b = honest();

    b->head.at_ms = before.at_ms - 1;
    assert_string_equal(batch_contradiction(&before, b), "at");
    b = honest();
    b->head.day_ms -= DAY_MS;
    assert_string_equal(batch_contradiction(&before, b), "day.start");
    b = honest();
    b->head.day_ms += DAY_MS; /* a new day counts from nothing */
    assert_non_null(batch_contradiction(&before, b));
}

TEST(a_lie_in_an_entry_is_found)
{
    static const struct {
        size_t entry, member;
        const char *lie;
    } rows[] = {
        {1, offsetof(struct entry, n), "a gap, or an overlap, between generated ranges"},
        {1, offsetof(struct entry, count), "more slots generated than counted"},
        {2, offsetof(struct entry, ordinal), "an ordinal that was given, or never"},
        {2, offsetof(struct entry, left), "another number of free slots"},
        {2, offsetof(struct entry, day), "another number of the day"},
        {2, offsetof(struct entry, discount_minor), "another discount"},
        {3, offsetof(struct entry, ordinal), "an ordinal that was given, or never"},
        {3, offsetof(struct entry, left), "another number of free slots"},
        {3, offsetof(struct entry, day), "another number of the day"},
        {4, offsetof(struct entry, discount_minor), "another discount given back"},
        {5, offsetof(struct entry, count), "more slots retiring than counted"},
        {6, offsetof(struct entry, count), "more slots retired than counted"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int64_t step = -1; step <= 1; step += 2) {
            struct batch *b = honest();

            *(int64_t *)((char *)&b->entries[rows[i].entry] + rows[i].member) += step;
            assert_found(b, rows[i].lie);
        }
    }
}

TEST(a_return_of_another_day_is_found)
{
    struct batch *b = honest();

    b->entries[4].same_day = false;
    assert_found(b, "a return that keeps the day's count");
}

/* Entries and head may agree, and still not be possible. */
TEST(totals_below_nothing_are_found)
{
    static const enum entry_kind kinds[] = {ENTRY_CANCEL, ENTRY_EXPIRE, ENTRY_REVERSE, ENTRY_HOLD, ENTRY_SPEND};
    static const struct head empty = {.seq = 7, .slots = 10, .next_n = 10};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct batch *b = batch_at(8, 0);
        struct entry *e = of_slot(b, kinds[i], 3, 2, kinds[i] == ENTRY_HOLD);

        e->was = SLOT_ISSUED;
        b->head = empty;
        fold_head_entry(&b->head, e);
        b->head.seq = 8;
        assert_string_equal(batch_contradiction(&empty, b), "taken");
    }
    for (int count = 10; count <= 11; count++) {
        struct batch *b = batch_at(8, 0);

        batch_add(b, ENTRY_RETIRING)->count = count;
        b->head = empty;
        b->head.seq = 8;
        b->head.retiring = count;
        if (count == 10)
            assert_null(batch_contradiction(&empty, b));
        else
            assert_string_equal(batch_contradiction(&empty, b), "free");
    }
}

TEST(a_missing_or_doubled_entry_is_found)
{
    for (size_t i = 1; i < 7; i++) { /* a definition once more with the same version is no contradiction of totals */
        struct batch *b = honest();
        struct entry copy = b->entries[i];

        *batch_add(b, copy.kind) = copy;
        assert_found(b, "an entry that stands twice");
        b = honest();
        memmove(&b->entries[i], &b->entries[i + 1], (b->count - i - 1) * sizeof *b->entries);
        b->count--;
        assert_found(b, "an entry that is missing");
    }
}

RUN_TESTS(.each_setup = fresh, .each_teardown = release)
