/* Unit tests of coupons/decide: every refusal in its order, caps, days, budget, repeats, returns, changes, jobs. */
#include "cmocka_whole.h"

#include "unit/lane.h"

#define MONEY_MAX ((INT64_C(1) << 53) - 1)
#define ALIAS "0123456789abcdef"

/* The lane has no bucket: what is free is said by each test, and what is named is one slot, if any. */
static const struct key_secret secret; /* of zeros, as a decision's */
static char ana_name[] = "ana";
static struct order order;
static struct take asked;

static int fresh(void **state)
{
    lane_fresh(state);
    c.cap.total = 100;
    c.codes.source = CODES_NONE;
    tail.slots = tail.next_n = 100;
    memset(tail.hash, 0x33, HASH_LEN);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        free_pool[i] = (struct free_slot){.n = i, .g = (uint32_t)i % 3};
    user_state_init(ana, "ana", ALIAS);
    user_state_init(bob, "bob", "fedcba9876543210");
    order = (struct order){.amount_minor = COUPON_NULL};
    asked = (struct take){.key = "k1", .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    named[0].n = -1;
    return 0;
}

static int release(void **state)
{
    named[0].slot.user = NULL;
    return lane_release(state);
}

static int64_t day_start(int64_t at_ms)
{
    return at_ms - at_ms % DAY_MS;
}

/* A new decision at now_ms on the tail as it stands, with `free_slots` in the free pool. */
static void begin(size_t free_slots)
{
    batch_free(batch);
    batch = batch_new("sale", 0);
    decide_begin(&d, batch, &c, &tail, now_ms, day_start(now_ms), day_start(now_ms) + DAY_MS);
    d.free_pool = free_pool;
    d.free_pool_count = free_slots;
    d.named = named;
    d.named_count = named[0].n >= 0;
}

/* The decision is appended: the tail moves, and the next one stands on it. */
static void commit(struct user_state *u)
{
    assert_true(decide_changed(&d));
    if (u)
        fold_user_state_done(u, &d.head);
    decide_end(&d, &tail, &scratch);
    assert_null(batch_contradiction(&tail, batch));
    tail = batch->head;
    if (d.coupon && d.coupon != &c)
        c = *coupon_copy(d.coupon, &arena);
    *ana = *user_state_copy(ana, &arena, true);
}

static void take_now(struct user_state *u, enum cpn_result want)
{
    assert_true(decide_take(&d, u, &asked, &out));
    expect(want);
}

static void reverse(int64_t n, uint32_t g)
{
    decide_step(&d, ana, &(struct step){.n = n, .g = g, .move = MOVE_REVERSE}, &out);
}

/* As many takings as asked for, each with a key of its own. */
static void take_times(struct user_state *u, int times)
{
    char key[32];

    for (int i = 0; i < times; i++) {
        snprintf(key, sizeof key, "once-%d-%d", (int)d.head.ordinal, i);
        asked.key = key;
        take_now(u, CPN_OK);
    }
    asked.key = "k1";
}

/* The same in a new decision. */
static void take_from(size_t free_slots, enum cpn_result want)
{
    begin(free_slots);
    take_now(ana, want);
}

static void take_many(size_t free_slots, int times)
{
    begin(free_slots);
    take_times(ana, times);
}

static void change_to(const struct coupon *next, int64_t version, enum cpn_result want)
{
    decide_change(&d, next, version, true, &out);
    expect(want);
}

/* ---- refusals and their order ---- */

static void make_key_reused(void)
{
    struct redemption *r = user_state_add(ana, &arena);

    r->state = SLOT_REDEEMED;
    key_hash(&secret, ana->alias, "k1", r->key);
    memset(r->fingerprint, 9, FINGERPRINT_LEN);
}
static void make_changed(void)
{
    static const int64_t another = 999;

    asked.versions = &another;
    asked.version_count = 1;
}
static void make_code_given(void)
{
    asked.code = "ABC";
}
/* The code is of ana's slot 70; unless it is unknown. */
static void make_code_of(enum slot_state state)
{
    if (asked.code)
        return;
    asked.code = "ABC";
    asked.code_n = 70;
    named[0] = (struct named_slot){.n = 70, .slot = {.state = (uint8_t)state, .generation = 1, .current = 1, .user = ana_name}};
}
static void make_code_taken(void)
{
    make_code_of(SLOT_REDEEMED);
}
static void make_code_held(void)
{
    make_code_of(SLOT_RESERVED);
}

static const struct {
    enum cpn_result result;
    bool retry;
    void (*make)(void); /* NULL: members get values */
    struct {
        int64_t *member, value;
    } set[3];
} refusals[] = {
    {CPN_IDEMPOTENCY_KEY_REUSED, false, .make = make_key_reused},
    {CPN_VERSION_CHANGED, false, .make = make_changed},
    {CPN_COUPON_NOT_ACTIVE, true, .set = {{&c.state, COUPON_PAUSED}}},
    {CPN_COUPON_NOT_STARTED, true, .set = {{&c.starts_at_ms, NOON + 1}}},
    {CPN_COUPON_ENDED, false, .set = {{&c.ends_at_ms, NOON}}},
    {CPN_CODE_NOT_FOUND, false, .make = make_code_given},
    {CPN_CODE_TAKEN, false, .make = make_code_taken},
    {CPN_TRANSACTION_IN_PROGRESS, true, .make = make_code_held},
    {CPN_ORDER_NOT_ELIGIBLE, false, .set = {{&order.amount_minor, 1999}, {&c.discount.min_spend_minor, 2000}}},
    {CPN_USER_CAP_REACHED, false, .set = {{&user_states[0].total, 3}, {&c.cap.per_user, 3}}},
    {CPN_USER_DAILY_CAP_REACHED, true, .set = {{&user_states[0].day_ms, MIDNIGHT}, {&user_states[0].today, 2}, {&c.cap.per_user_per_day, 2}}},
    {CPN_DAILY_CAP_REACHED, true, .set = {{&tail.day_taken, 50}, {&c.cap.per_day, 50}}},
    {CPN_BUDGET_REACHED, true, .set = {{&tail.discount_minor, 1000}, {&c.cap.discount_minor, 1499}}},
    {CPN_SOLD_OUT, false, .set = {{&tail.redeemed, 90}, {&c.cap.total, 90}, {&tail.retiring, 10}}},
};
#define REFUSALS (sizeof refusals / sizeof *refusals)

static void make_refusal(size_t i)
{
    if (refusals[i].make)
        refusals[i].make();
    for (size_t k = 0; k < 3 && refusals[i].set[k].member; k++)
        *refusals[i].set[k].member = refusals[i].set[k].value;
}

/* Every set of reasons at once: the first of them in the table is the answer, and nothing is taken. */
TEST(the_first_reason_of_the_table_is_the_answer)
{
    EACH_ANEW(set, 1u << REFUSALS, fresh, release) {
        size_t first = 0;

        discounts(500);
        order = (struct order){.id = "o", .amount_minor = 5000, .currency = "EUR"};
        asked.order = &order;
        for (size_t i = 0; i < REFUSALS; i++)
            if (set & (1u << i))
                make_refusal(i);
        while (first < REFUSALS && !(set & (1u << first)))
            first++;
        begin(10);
        assert_true(decide_take(&d, ana, &asked, &out));
        if (out.result != (first < REFUSALS ? refusals[first].result : CPN_OK))
            fail_msg("%s for the set 0x%zx", result_info(out.result)->name, set);
        assert_int_equal(decide_changed(&d), set == 0);
        if (first < REFUSALS)
            assert_int_equal(out.retry, refusals[first].retry);
        if (first < REFUSALS && first > 0) { /* the same without a key is what a check says */
            int64_t discount_minor = -1;

            decide_check(&d, ana, &asked, &out, &discount_minor);
            expect(refusals[first].result);
        }
    }
}

TEST(a_coupon_in_each_state_and_outside_its_window)
{
    static const struct {
        enum coupon_state state;
        int64_t starts, ends;
        enum cpn_result want;
    } rows[] = {
        {COUPON_DRAFT, COUPON_NULL, COUPON_NULL, CPN_COUPON_NOT_ACTIVE},
        {COUPON_PAUSED, COUPON_NULL, COUPON_NULL, CPN_COUPON_NOT_ACTIVE},
        {COUPON_ENDED, COUPON_NULL, COUPON_NULL, CPN_COUPON_ENDED},
        {COUPON_ACTIVE, NOON, COUPON_NULL, CPN_OK}, /* from its first millisecond */
        {COUPON_ACTIVE, NOON + 1, COUPON_NULL, CPN_COUPON_NOT_STARTED},
        {COUPON_ACTIVE, COUPON_NULL, NOON + 1, CPN_OK},
        {COUPON_ACTIVE, COUPON_NULL, NOON, CPN_COUPON_ENDED}, /* excluded */
        {COUPON_DRAFT, NOON + 1, NOON + 2, CPN_COUPON_NOT_ACTIVE},
        {COUPON_ENDED, NOON - 1, NOON + 1, CPN_COUPON_ENDED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        user_state_init(ana, "ana", ALIAS);
        c.state = rows[i].state;
        c.starts_at_ms = rows[i].starts;
        c.ends_at_ms = rows[i].ends;
        begin(1);
        take_now(ana, rows[i].want);
        assert_int_equal(out.retry_at_ms, rows[i].want == CPN_COUPON_NOT_STARTED ? NOON + 1 : 0);
    }
}

TEST(a_thousand_redemptions_are_too_many)
{
    for (int i = 0; i < USER_STATE_REDEMPTIONS_MAX; i++) {
        struct redemption *r = user_state_add(ana, &arena);

        r->state = SLOT_REVERSED;
        r->ended_ms = NOON - i;
        r->n = i;
        memset(r->key, 0xEE, KEY_HASH_LEN);
    }
    c.state = COUPON_PAUSED;
    take_from(1, CPN_TOO_MANY_ATTEMPTS);
    assert_true(out.retry);
    key_hash(&secret, ana->alias, "k1", ana->redemptions[17].key); /* a known key is answered all the same */
    take_from(1, CPN_OK);
    assert_true(out.replayed);
}

TEST(what_ended_long_ago_does_not_count_as_an_attempt)
{
    for (int i = 0; i < USER_STATE_REDEMPTIONS_MAX; i++) {
        struct redemption *r = user_state_add(ana, &arena);

        r->state = SLOT_REVERSED;
        r->ended_ms = NOON - USER_STATE_KEY_KEPT_MS;
        memset(r->key, 0xEE, KEY_HASH_LEN);
    }
    take_from(1, CPN_TOO_MANY_ATTEMPTS);
    ana->redemptions[0].ended_ms--;
    take_from(1, CPN_OK);
    commit(ana);
    assert_int_equal(ana->count, USER_STATE_REDEMPTIONS_MAX);
}

/* ---- what a taking is ---- */

TEST(a_taking_says_where_it_stands)
{
    struct redemption want = {.n = free_pool[0].n, .g = free_pool[0].g + 1, .seq = 8, .last_seq = 8, .ordinal = 18, .at_ms = NOON,
                              .day_ms = day_start(NOON), .left = 89, .day = 5, .user = 3, .user_day = 2,
                              .state = SLOT_REDEEMED, .first_state = SLOT_REDEEMED, .order = "o-1",
                              .metadata = "{\"a\":1}", .price = {300, 300, 1, "EUR", NULL}, .first_price = {300, 300, 1, "EUR", NULL}};
    const struct entry *e;

    tail.redeemed = 10;
    tail.ordinal = 17;
    tail.day_taken = 4;
    ana->total = 2;
    ana->day_ms = day_start(NOON);
    ana->today = 1;
    discounts(500);
    order = (struct order){.id = "o-1", .amount_minor = 300, .currency = "EUR"};
    asked.order = &order;
    asked.metadata = "{\"a\":1}";
    memset(asked.fingerprint, 5, FINGERPRINT_LEN);
    take_from(5, CPN_OK);
    assert_true(out.created);
    assert_false(out.replayed);
    key_hash(&secret, ALIAS, "k1", want.key);
    memset(want.fingerprint, 5, FINGERPRINT_LEN);
    assert_null(redemption_difference(&out.redemption, &want));
    assert_int_equal(d.free_pool_used, 1);
    e = &batch->entries[0];
    assert_int_equal(e->kind, ENTRY_REDEEM);
    assert_string_equal(e->alias, ALIAS);
    assert_string_equal(e->user, "ana");
    assert_int_equal(e->fingerprint[0], 5);
    commit(ana);
    assert_int_equal(tail.seq, 8);
    assert_int_equal(tail.discount_minor, 300);
    assert_int_equal(ana->seq, 8);
}

TEST(slots_go_out_in_the_order_of_the_free_pool_and_each_once)
{
    take_many(20, 20);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(batch->entries[i].n, free_pool[i].n);
        assert_int_equal(batch->entries[i].g, free_pool[i].g + 1);
        assert_int_equal(batch->entries[i].ordinal, i + 1);
        assert_int_equal(batch->entries[i].left, 99 - (int64_t)i);
    }
    commit(ana);
}

TEST(an_empty_free_pool_asks_again_and_changes_nothing)
{
    take_many(2, 2);
    assert_int_equal(decide_take(&d, ana, &asked, &out), DECIDE_AGAIN);
    assert_int_equal(batch->count, 2);
    assert_int_equal(ana->total, 2);
    assert_int_equal(d.head.ordinal, 2);
    c.state = COUPON_PAUSED; /* a refusal needs no slot */
    take_now(ana, CPN_COUPON_NOT_ACTIVE);
    c.state = COUPON_ACTIVE;
    begin(0);
    d.epoch = 1; /* nor is a restore recorded; Ana's state ended with the batch */
    assert_int_equal(decide_take(&d, bob, &asked, &out), DECIDE_AGAIN);
    assert_int_equal(batch->count, 0);
    assert_int_equal(d.head.epoch, 0);
}

/* ---- caps ---- */

TEST(each_cap_lets_exactly_as_many_through)
{
    static const struct {
        enum cpn_result want;
        size_t cap;
    } rows[] = {
        {CPN_USER_CAP_REACHED, offsetof(struct coupon, cap.per_user)},
        {CPN_USER_DAILY_CAP_REACHED, offsetof(struct coupon, cap.per_user_per_day)},
        {CPN_DAILY_CAP_REACHED, offsetof(struct coupon, cap.per_day)},
    };

    EACH_ANEW(k, 5 * sizeof rows / sizeof *rows, fresh, release) {
        int cap = (int)k % 5 + 1;

        *(int64_t *)((char *)&c + rows[k / 5].cap) = cap;
        take_many(50, cap);
        take_now(ana, rows[k / 5].want);
        commit(ana);
        begin(50);
        take_now(ana, rows[k / 5].want); /* and so in the next batch */
        assert_false(decide_changed(&d));
    }
}

TEST(the_total_is_the_slots_there_are)
{
    tail.slots = tail.next_n = 3;
    take_many(3, 3);
    take_now(ana, CPN_SOLD_OUT);
    assert_int_equal(head_free(&d.head), 0);
}

TEST(daily_caps_open_again_at_the_coupons_midnight)
{
    c.cap.per_day = 2;
    c.cap.per_user_per_day = 1;
    now_ms = day_start(NOON) + DAY_MS - 1;
    take_many(10, 1);
    take_now(ana, CPN_USER_DAILY_CAP_REACHED);
    assert_int_equal(out.retry_at_ms, day_start(NOON) + DAY_MS);
    take_times(bob, 1);
    take_now(ana, CPN_USER_DAILY_CAP_REACHED);
    user_state_init(bob, "eve", "fedcba987654321x");
    take_now(bob, CPN_DAILY_CAP_REACHED);
    assert_int_equal(out.retry_at_ms, day_start(NOON) + DAY_MS);
    commit(ana);
    now_ms++;
    take_many(10, 1);
    assert_int_equal(ana->redemptions[1].day, 1);
    assert_int_equal(ana->redemptions[1].user, 2);
    assert_int_equal(ana->redemptions[1].user_day, 1);
    take_now(ana, CPN_USER_DAILY_CAP_REACHED);
    commit(ana);
    assert_int_equal(tail.day_taken, 1);
}

/* What a day is comes from outside: 23 or 25 hours, or a zone half an hour off, are all the same to it. */
TEST(a_day_is_what_the_zone_says_it_is)
{
    static const int64_t hours_2[] = {46, 47, 48, 49, 50}; /* half hours */

    c.cap.per_day = 1;
    for (size_t i = 0; i < sizeof hours_2 / sizeof *hours_2; i++) {
        int64_t start = day_start(tail.at_ms) + 10 * DAY_MS + HOUR_MS / 2, end = start + hours_2[i] * HOUR_MS / 2;

        for (int step = 0; step < 3; step++) {
            int64_t at = step == 0 ? start : step == 1 ? end - 1 : end;

            batch_free(batch);
            batch = batch_new("sale", 0);
            decide_begin(&d, batch, &c, &tail, at, step < 2 ? start : end, step < 2 ? end : end + DAY_MS);
            d.free_pool = free_pool;
            d.free_pool_count = 1;
            if (step == 1) {
                take_now(ana, CPN_DAILY_CAP_REACHED);
                assert_int_equal(out.retry_at_ms, end);
            } else {
                take_times(ana, 1);
                commit(ana);
            }
        }
    }
}

TEST(the_budget_is_spent_to_the_last_unit)
{
    discounts(500);
    c.cap.discount_minor = 1200;
    order.currency = "EUR";
    asked.order = &order;
    take_many(10, 2);
    take_now(ana, CPN_BUDGET_REACHED);
    assert_true(out.retry);
    order.amount_minor = 201; /* an order of this much earns this much */
    take_now(ana, CPN_BUDGET_REACHED);
    order.amount_minor = 200;
    take_times(ana, 1);
    assert_int_equal(d.head.discount_minor, 1200);
    order.amount_minor = 1;
    take_now(ana, CPN_BUDGET_REACHED);
    order.amount_minor = 0; /* costs nothing */
    take_times(ana, 1);
    order.amount_minor = COUPON_NULL;
    reverse(ana->redemptions[0].n, ana->redemptions[0].g);
    expect(CPN_OK);
    take_times(ana, 1);
    assert_int_equal(d.head.discount_minor, 1200);
    commit(ana);
}

TEST(a_budget_of_nothing_still_gives_what_costs_nothing)
{
    c.cap.discount_minor = 0;
    take_many(1, 1);
}

TEST(without_a_budget_the_sum_stays_one_that_json_can_hold)
{
    c.discount.kind = DISCOUNT_PERCENT;
    c.discount.percent_bp = 10000;
    tail.discount_minor = MONEY_MAX - 10;
    order.amount_minor = 11;
    asked.order = &order;
    take_from(2, CPN_BUDGET_REACHED);
    order.amount_minor = 10;
    take_times(ana, 1);
    assert_int_equal(d.head.discount_minor, MONEY_MAX);
}

TEST(a_budget_lowered_below_what_is_spent_refuses)
{
    discounts(1);
    tail.discount_minor = 1000;
    c.cap.discount_minor = 10;
    take_from(1, CPN_BUDGET_REACHED);
}

TEST(sold_out_says_whether_it_may_change)
{
    static const struct {
        int64_t total, slots, due, redeemed, reserved;
        bool retry, never_any;
    } rows[] = {
        {100, 100, 0, 100, 0, false, false}, {100, 99, 0, 99, 0, true, false},  {100, 100, 0, 99, 1, true, false},
        {100, 100, 1, 99, 0, true, false},   {100, 0, 0, 0, 0, true, true},     {COUPON_NULL, 10, 0, 10, 0, true, false},
        {10, 20, 10, 10, 0, false, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        c.cap.total = rows[i].total;
        tail.slots = tail.next_n = rows[i].slots;
        tail.retiring = rows[i].due;
        tail.redeemed = rows[i].redeemed;
        tail.reserved = rows[i].reserved;
        take_from(5, CPN_SOLD_OUT);
        if (out.retry != rows[i].retry)
            fail_msg("row %zu: retry is %d", i, out.retry);
        assert_int_equal(out.detail != NULL, rows[i].never_any);
    }
}

/* ---- repeats ---- */

TEST(the_same_key_gives_the_same_answer_whatever_happened_since)
{
    struct redemption first;

    take_many(5, 1);
    asked.key = "mine";
    take_now(ana, CPN_OK);
    first = out.redemption;
    take_now(ana, CPN_OK); /* in the same batch */
    assert_true(out.replayed && out.created);
    assert_int_equal(batch->count, 2);
    reverse(first.n, first.g);
    commit(ana);
    c.state = COUPON_ENDED;
    tail.redeemed = 100;
    now_ms += 5 * DAY_MS;
    take_from(0, CPN_OK);
    assert_true(out.created);
    assert_false(decide_changed(&d));
    assert_first(&first); /* redeemed, though it was reversed */
}

TEST(a_key_belongs_to_one_body)
{
    take_from(5, CPN_OK);
    asked.fingerprint[15] ^= 1;
    take_now(ana, CPN_IDEMPOTENCY_KEY_REUSED);
    assert_false(out.retry);
    assert_int_equal(batch->count, 1);
}

TEST(a_taking_that_is_bound_to_a_version_sees_what_the_batch_did)
{
    const int64_t versions[] = {7, 0};

    asked.versions = versions;
    asked.version_count = 1;
    take_from(5, CPN_VERSION_CHANGED);
    assert_false(decide_changed(&d));
    asked.version_count = 2;
    take_now(ana, CPN_OK);
    take_now(ana, CPN_OK); /* the same key: its first answer */
    assert_true(out.replayed);
    asked.key = "k2";
    take_now(ana, CPN_VERSION_CHANGED);
    commit(ana);
    take_from(5, CPN_VERSION_CHANGED);
    asked.version_count = 0;
    take_now(ana, CPN_VERSION_CHANGED);
    asked.versions = &ana->seq;
    asked.version_count = 1;
    take_now(ana, CPN_OK);
}

TEST(the_end_of_a_hold_is_no_change_until_the_ledger_has_it)
{
    int64_t seen;

    c.cap.policy = CAP_NONE; /* no slots to be named */
    c.cap.total = COUPON_NULL;
    tail.slots = tail.next_n = 0;
    asked.state = SLOT_RESERVED;
    asked.reserve_s = 60;
    take_from(0, CPN_OK);
    commit(ana);
    seen = ana->seq;
    now_ms += 61000;
    asked.key = "k2";
    asked.versions = &seen;
    asked.version_count = 1;
    take_from(0, CPN_OK);
    assert_int_equal(batch->count, 2); /* its end, and the taking */
}

TEST(a_key_is_its_users_own)
{
    take_from(5, CPN_OK);
    asked.fingerprint[0] ^= 1;
    take_now(bob, CPN_OK);
    assert_false(out.replayed);
    assert_int_equal(batch->count, 2);
    assert_memory_not_equal(batch->entries[0].key, batch->entries[1].key, KEY_HASH_LEN);
}

TEST(the_same_order_is_a_repeat_while_it_stands)
{
    int64_t n, discount_minor;
    uint32_t g;

    c.cap.per_user = 1;
    order.id = "o-1";
    asked.order = &order;
    take_from(5, CPN_OK);
    n = out.redemption.n;
    g = out.redemption.g;
    asked.key = "k2";
    asked.fingerprint[0] ^= 1; /* whatever else the body says */
    take_now(ana, CPN_OK);
    assert_false(out.created);
    assert_false(out.replayed);
    assert_int_equal(out.redemption.n, n);
    assert_int_equal(batch->count, 1);
    decide_check(&d, ana, &asked, &out, &discount_minor);
    expect(CPN_OK);
    order.id = "o-2";
    take_now(ana, CPN_USER_CAP_REACHED);
    order.id = "o-1";
    reverse(n, g);
    take_now(ana, CPN_OK); /* it stands no longer: a new one */
    assert_true(out.created);
    assert_int_not_equal(out.redemption.n, n);
    commit(ana);
}

TEST(orders_without_id_never_repeat_each_other)
{
    asked.order = &order;
    take_many(5, 3);
    assert_int_equal(batch->count, 3);
}

TEST(a_check_changes_nothing)
{
    struct user_state before;
    int64_t discount_minor = -1;

    discounts(500);
    asked.key = NULL;
    before = *ana;
    begin(0); /* not even a free pool */
    decide_check(&d, ana, &asked, &out, &discount_minor);
    expect(CPN_OK);
    assert_int_equal(discount_minor, 500);
    assert_false(decide_changed(&d));
    assert_memory_equal(&before, ana, sizeof *ana);
}

/* ---- returns ---- */

TEST(a_return_gives_everything_back)
{
    discounts(500);
    c.cap.total = c.cap.per_day = c.cap.per_user = c.cap.per_user_per_day = 1;
    c.cap.discount_minor = 500;
    tail.slots = tail.next_n = 1;
    for (int round = 0; round < 5; round++) {
        char key[16];

        snprintf(key, sizeof key, "r%d", round);
        asked.key = key;
        begin(1);
        free_pool[0] = (struct free_slot){.n = 0, .g = (uint32_t)round};
        take_now(ana, CPN_OK);
        assert_int_equal(out.redemption.g, round + 1);
        assert_int_equal(out.redemption.ordinal, round + 1); /* never given twice */
        commit(ana);
        begin(0);
        reverse(0, (uint32_t)round + 1);
        expect(CPN_OK);
        assert_int_equal(out.redemption.state, SLOT_REVERSED);
        assert_true(batch->entries[0].same_day);
        assert_int_equal(batch->entries[0].since, tail.seq);
        assert_int_equal(batch->entries[0].discount_minor, 500);
        commit(ana);
        assert_int_equal(head_free(&tail), 1);
        assert_int_equal(tail.discount_minor, 0);
        assert_int_equal(tail.day_taken, 0);
        assert_int_equal(ana->total, 0);
        assert_int_equal(user_state_today(ana, tail.day_ms), 0);
    }
}

TEST(a_return_of_another_day_keeps_that_days_counts)
{
    c.cap.per_user = 2;
    c.cap.per_day = 2;
    c.cap.per_user_per_day = 2;
    take_many(9, 2);
    commit(ana);
    now_ms += DAY_MS;
    begin(9);
    reverse(ana->redemptions[0].n, ana->redemptions[0].g);
    assert_false(batch->entries[0].same_day);
    assert_int_equal(d.head.day_taken, 0);
    take_times(ana, 1);
    take_now(ana, CPN_USER_CAP_REACHED);
    reverse(ana->redemptions[1].n, ana->redemptions[1].g);
    take_times(ana, 1); /* the second of today */
    commit(ana);
    assert_int_equal(tail.day_taken, 2);
    assert_int_equal(ana->total, 2);
    assert_int_equal(user_state_today(ana, tail.day_ms), 2);
}

/* ---- definitions ---- */

TEST(a_coupon_is_made_once_and_its_id_never_again)
{
    struct coupon first = c;

    tail = (struct head){.at_ms = 0};
    begin(0);
    d.coupon = NULL;
    assert_false(decide_exists(&d));
    decide_create(&d, &first, NULL, &out);
    expect(CPN_OK);
    assert_int_equal(d.coupon->version, 1);
    assert_int_equal(d.head.version, 1);
    assert_true(decide_exists(&d));
    decide_create(&d, &first, NULL, &out); /* raced in one batch */
    expect(CPN_COUPON_EXISTS);
    commit(NULL);
    begin(0);
    decide_create(&d, &first, NULL, &out);
    expect(CPN_COUPON_EXISTS);
    decide_delete(&d, &out);
    expect(CPN_OK);
    assert_false(decide_exists(&d));
    decide_create(&d, &first, NULL, &out);
    expect(CPN_COUPON_EXISTS);
    commit(NULL);
    assert_int_equal(tail.version, 2);
    assert_int_equal(c.state, COUPON_DELETED);
    assert_int_equal(c.version, 2);
    begin(0);
    decide_create(&d, &first, NULL, &out);
    expect(CPN_COUPON_EXISTS);
}

TEST(a_coupon_can_come_with_its_slots)
{
    struct coupon first = c;
    struct slot_request request = {.key = "k-1", .slots = 40};
    uint8_t key[KEY_HASH_LEN];

    first.cap.total = 100;
    tail = (struct head){.at_ms = 0};
    begin(0);
    d.coupon = NULL;
    decide_create(&d, &first, &request, &out);
    expect(CPN_OK);
    assert_int_equal(batch->count, 2);
    key_hash(&secret, KEY_OF_COUPON, "k-1", key);
    assert_memory_equal(batch->entries[0].key, key, sizeof key);
    assert_int_equal(batch->entries[0].count, 40);
    assert_int_equal(batch->entries[1].kind, ENTRY_GENERATE);
    assert_null(batch->entries[1].job);
    assert_int_equal(d.head.next_n, 40);
    assert_int_equal(head_free(&d.head), 40);
    decide_create(&d, &first, &request, &out); /* raced in one batch */
    expect(CPN_COUPON_EXISTS);
    assert_int_equal(batch->count, 2);
    commit(NULL);
    assert_int_equal(tail.slots, 40);
}

TEST(a_coupon_can_name_the_job_that_makes_its_slots)
{
    struct coupon first = c;
    struct slot_request request = {.slots = 40, .job = job};

    tail = (struct head){.at_ms = 0};
    begin(0);
    d.coupon = NULL;
    decide_create(&d, &first, &request, &out);
    expect(CPN_OK);
    assert_int_equal(batch->count, 1);
    assert_int_equal(batch->entries[0].count, 40);
    assert_string_equal(batch->entries[0].job, "j1");
    assert_false(entry_has_key(&batch->entries[0]));
    assert_int_equal(d.head.slots, 0);
}

TEST(a_change_says_who_asked_for_it)
{
    struct coupon next = c;

    begin(0);
    d.by = "key-1";
    decide_change(&d, &next, 1, true, &out);
    d.by = "key-2";
    decide_delete(&d, &out);
    assert_string_equal(batch->entries[0].by, "key-1");
    assert_string_equal(batch->entries[1].by, "key-2");
}

/* What ends by itself meanwhile, and what follows from it, nobody asked for. */
TEST(what_an_operator_asks_for_says_so_and_nothing_else_does)
{
    asked.state = SLOT_RESERVED;
    asked.reserve_s = 1;
    take_from(1, CPN_OK);
    assert_null(batch->entries[0].by);
    commit(ana);
    named[0] = (struct named_slot){.n = 0, .slot = {.state = SLOT_RESERVED, .generation = 1, .current = 1}};
    now_ms += 2000;
    c.low_stock = 1;
    tail.slots = 2;
    begin(1);
    d.free_pool++; /* slot 0 is not among those that were free */
    d.by = "key-1";
    asked.key = "k2";
    take_now(ana, CPN_OK);
    d.by = NULL;
    decide_events(&d);
    assert_int_equal(batch->count, 3);
    assert_int_equal(batch->entries[0].kind, ENTRY_EXPIRE);
    assert_null(batch->entries[0].by);
    assert_int_equal(batch->entries[1].kind, ENTRY_RESERVE);
    assert_string_equal(batch->entries[1].by, "key-1");
    assert_int_equal(batch->entries[2].kind, ENTRY_LOW_STOCK);
    assert_null(batch->entries[2].by);
}

TEST(a_coupon_with_redemptions_stays)
{
    take_from(1, CPN_OK);
    decide_delete(&d, &out);
    expect(CPN_COUPON_IN_USE);
    reverse(0, 1);
    decide_delete(&d, &out); /* it had one */
    expect(CPN_COUPON_IN_USE);
    assert_int_equal(batch->count, 2);
}

TEST(what_has_ended_with_nothing_standing_is_closed_for_good)
{
    struct coupon next = c;

    begin(5);
    decide_archive(&d, c.version, &out);
    expect(CPN_COUPON_IN_USE); /* it has not ended */
    assert_non_null(out.detail);
    asked.state = SLOT_ISSUED;
    take_now(ana, CPN_OK);
    next.state = COUPON_ENDED;
    decide_change(&d, &next, c.version, true, &out);
    expect(CPN_OK);
    decide_archive(&d, d.coupon->version, &out);
    expect(CPN_COUPON_IN_USE); /* one is issued */
    decide_archive(&d, d.coupon->version - 1, &out);
    expect(CPN_VERSION_CHANGED);
    decide_step(&d, ana, &(struct step){.n = 0, .g = 1, .move = MOVE_CANCEL}, &out);
    expect(CPN_OK);
    d.head.turn = 3;
    decide_archive(&d, d.coupon->version, &out);
    expect(CPN_COUPON_IN_USE); /* a job makes codes */
    d.head.turn = 0;
    d.by = "key-1";
    assert_int_equal(decide_archive(&d, d.coupon->version, &out), DECIDE_AGAIN); /* this batch stays, and names ana */
    assert_int_equal(d.head.archived, 0);
    for (size_t i = 0; i < batch->count; i++)
        batch->entries[i].user = NULL;
    assert_true(decide_archive(&d, d.coupon->version, &out));
    expect(CPN_OK);
    assert_int_equal(d.head.archived, 1);
    assert_int_equal(batch->entries[batch->count - 1].kind, ENTRY_ARCHIVE);
    assert_string_equal(batch->entries[batch->count - 1].by, "key-1");
    decide_archive(&d, 1, &out); /* it was before: whatever the version */
    expect(CPN_OK);
    decide_events(&d);
    assert_int_equal(batch->entries[batch->count - 1].kind, ENTRY_ARCHIVE);
}

TEST(what_is_closed_is_released_once)
{
    begin(5);
    decide_remove(&d, &out);
    expect(CPN_COUPON_IN_USE); /* it is not closed */
    assert_int_equal(batch->count, 0);
    d.head.archived = LANE_CLOSED;
    decide_remove(&d, &out);
    expect(CPN_OK);
    assert_int_equal(d.head.archived, LANE_REMOVED);
    assert_int_equal(batch->count, 1);
    assert_int_equal(batch->entries[0].kind, ENTRY_ARCHIVE);
    decide_remove(&d, &out); /* again */
    expect(CPN_OK);
    assert_int_equal(batch->count, 1);
}

TEST(a_change_rules_from_the_next_request_on)
{
    struct coupon next = c;

    next.state = COUPON_PAUSED;
    take_many(5, 1);
    change_to(&next, 1, CPN_OK);
    assert_int_equal(d.head.version, 2);
    assert_int_equal(d.coupon->version, 2);
    take_now(ana, CPN_COUPON_NOT_ACTIVE);
    decide_change(&d, &next, 1, true, &out); /* made from the version before */
    expect(CPN_VERSION_CHANGED);
    next.state = COUPON_ACTIVE;
    change_to(&next, 2, CPN_OK);
    take_times(ana, 1);
    assert_int_equal(d.head.version, 3);
    assert_int_equal(batch->count, 4);
    commit(ana);
    assert_int_equal(c.version, 3);
}

TEST(refusals_of_a_change_come_in_their_order)
{
    EACH_ANEW(set, 8, fresh, release) {
        struct coupon next;
        enum cpn_result want = set & 1 ? CPN_VERSION_CHANGED : set & 2 ? CPN_FIELD_FIXED : set & 4 ? CPN_CAP_BELOW_TAKEN
                                                                                                  : CPN_OK;

        tail.redeemed = 50;
        tail.ordinal = 60;
        next = c;
        if (set & 2)
            next.time_zone = "Europe/Berlin";
        next.cap.total = set & 4 ? 49 : 50;
        begin(0);
        decide_change(&d, &next, set & 1 ? 2 : 1, true, &out);
        expect(want);
        assert_int_equal(decide_changed(&d), set == 0);
        if (want == CPN_FIELD_FIXED)
            assert_string_equal(out.pointer, "/time_zone");
    }
}

TEST(fields_are_fixed_once_slots_or_redemptions_exist)
{
    struct coupon next = c;

    next.time_zone = "Europe/Berlin";
    tail.slots = tail.next_n = 0;
    begin(0);
    change_to(&next, 1, CPN_OK);
    tail.next_n = 1; /* there was a slot, though it is retired */
    begin(0);
    change_to(&next, 1, CPN_FIELD_FIXED);
    next.time_zone = c.time_zone;
    next.title = "Another";
    next.cap.per_user = 7;
    change_to(&next, 1, CPN_OK);
}

TEST(codes_are_fixed_while_they_are_made)
{
    struct coupon next = c;

    next.codes.length = 12;
    tail.slots = tail.next_n = 0;
    tail.turn = 5;
    begin(0);
    change_to(&next, 1, CPN_FIELD_FIXED);
    assert_string_equal(out.pointer, "/codes/length");
    tail.turn = 0;
    begin(0);
    change_to(&next, 1, CPN_OK);
}

TEST(lowering_the_cap_makes_free_slots_due_at_once)
{
    struct coupon next;

    tail.redeemed = 30;
    tail.ordinal = 30;
    next = c;
    next.cap.total = 32;
    begin(50);
    change_to(&next, 1, CPN_OK);
    assert_int_equal(d.head.retiring, 68);
    assert_int_equal(head_free(&d.head), 2);
    take_times(ana, 2);
    take_now(ana, CPN_SOLD_OUT); /* although the free pool has more */
    assert_false(out.retry);
    next.cap.total = 31;
    change_to(&next, 2, CPN_CAP_BELOW_TAKEN);
    decide_retire(&d, 10);
    assert_int_equal(d.head.retiring, 58);
    assert_int_equal(d.head.slots, 90);
    decide_retire(&d, 1000); /* the free pool has 38 more */
    assert_int_equal(d.head.retiring, 20);
    decide_retire(&d, 1000);
    assert_int_equal(d.head.retiring, 20);
    commit(ana);
    begin(50);
    decide_retire(&d, 1000);
    assert_int_equal(d.head.retiring, 0);
    assert_int_equal(d.head.slots, 32);
    assert_int_equal(head_free(&d.head), 0);
    commit(NULL);
    begin(50);
    decide_retire(&d, 1000);
    assert_false(decide_changed(&d));
    next.cap.total = 40;
    change_to(&next, 2, CPN_OK);
    assert_int_equal(d.head.retiring, 0);
    take_now(ana, CPN_SOLD_OUT);
    assert_true(out.retry); /* more may be generated */
}

TEST(a_lower_total_ends_codes_only_if_the_caller_said_so)
{
    struct coupon next;

    c.codes.source = CODES_IMPORTED;
    tail.redeemed = 30;
    tail.ordinal = 30;
    next = c;
    next.cap.total = 29;
    begin(50);
    decide_change(&d, &next, 1, false, &out);
    expect(CPN_CAP_BELOW_TAKEN);
    next.cap.total = 32;
    decide_change(&d, &next, 1, false, &out);
    expect(CPN_CODES_WOULD_RETIRE);
    assert_int_equal(out.codes, 68);
    assert_false(decide_changed(&d));
    next.cap.total = 100; /* as many as there are */
    next.title = "Changed";
    decide_change(&d, &next, 1, false, &out);
    expect(CPN_OK);
    next.cap.total = 32;
    change_to(&next, 2, CPN_OK);
    assert_int_equal(d.head.retiring, 68);
    commit(NULL);
    c.codes.source = CODES_NONE;
    tail.slots = 32;
    tail.retiring = 0;
    next = c;
    next.cap.total = 31;
    begin(0);
    decide_change(&d, &next, 3, false, &out);
    expect(CPN_OK);
}

/* A list of users gives each a code once: any that stands counts, whoever gave it. */
TEST(who_has_a_code_is_issued_no_other_one_once)
{
    int64_t first;

    c.codes.source = CODES_IMPORTED;
    c.codes.claim = CLAIM_PRESENT;
    for (int i = 0; i < 10; i++)
        free_pool[i].code = i % 2 ? "CODE-ODD" : "CODE-EVEN";
    begin(10);
    asked.state = SLOT_ISSUED;
    take_now(ana, CPN_CODE_REQUIRED);
    asked.once = true;
    asked.key = "list-1";
    take_now(ana, CPN_OK);
    assert_true(out.created);
    first = out.redemption.n;
    take_now(ana, CPN_OK); /* the same row once more */
    assert_true(out.created && out.replayed && out.redemption.n == first);
    asked.key = "list-2";
    take_now(ana, CPN_OK);
    assert_true(!out.created && out.redemption.n == first);
    commit(ana);
    c.state = COUPON_ENDED;
    take_from(10, CPN_OK);
    assert_true(!out.created && out.redemption.n == first);
    c.state = COUPON_ACTIVE;
    decide_step(&d, ana, &(struct step){.n = first, .g = ana->redemptions[0].g, .move = MOVE_CANCEL}, &out);
    take_now(ana, CPN_OK);
    assert_true(out.created);
}

TEST(what_a_return_frees_after_the_cap_was_lowered_can_be_taken)
{
    struct coupon next;

    tail.slots = tail.next_n = 2;
    next = c;
    next.cap.total = 1;
    take_many(2, 1);
    decide_change(&d, &next, 1, true, &out);
    assert_int_equal(d.head.retiring, 1);
    take_now(ana, CPN_SOLD_OUT);
    reverse(ana->redemptions[0].n, ana->redemptions[0].g);
    assert_int_equal(head_free(&d.head), 1);
    take_times(ana, 1);
    take_now(ana, CPN_SOLD_OUT);
    commit(ana);
    assert_true(head_taken(&tail) <= next.cap.total);
}

TEST(retired_slots_next_to_each_other_are_one_entry)
{
    tail.retiring = 50;
    for (int i = 0; i < 10; i++)
        free_pool[i] = (struct free_slot){.n = i < 4 ? 10 + i : i < 8 ? 60 + i : 5 - i, .g = 0};
    begin(10);
    decide_retire(&d, 10);
    assert_int_equal(batch->count, 4); /* 10-13, 64-67, -3 and -4 apart */
    assert_int_equal(batch->entries[0].n, 10);
    assert_int_equal(batch->entries[0].count, 4);
    assert_int_equal(batch->entries[1].n, 64);
    assert_int_equal(batch->entries[1].count, 4);
    assert_int_equal(d.free_pool_used, 10);
    commit(NULL);
}

/* ---- jobs ---- */

TEST(a_generation_is_done_once_per_step)
{
    tail.slots = tail.next_n = 0;
    begin(0);
    decide_generate(&d, job, 1, 40, 0, &out);
    expect(CPN_OK);
    assert_false(out.replayed);
    decide_generate(&d, job, 1, 40, 0, &out);
    expect(CPN_OK);
    assert_true(out.replayed);
    decide_generate(&d, job, 2, 60, 0, &out);
    expect(CPN_OK);
    assert_int_equal(batch->count, 2);
    assert_int_equal(batch->entries[1].n, 40);
    assert_int_equal(batch->entries[1].count, 60);
    assert_string_equal(batch->entries[1].job, "j1");
    assert_int_equal(batch->entries[1].step, 2);
    commit(NULL);
    assert_int_equal(tail.slots, 100);
    assert_int_equal(tail.next_n, 100);
    begin(0);
    decide_generate(&d, job, 2, 60, 0, &out); /* the runner was killed before it noted the step */
    assert_true(out.replayed);
    decide_generate(&d, job, 3, 1, 0, &out);
    expect(CPN_CAP_EXCEEDED);
    assert_false(decide_changed(&d));
    assert_int_equal(job->step, 2);
}

TEST(a_generation_counts_what_exists_not_what_was_numbered)
{
    tail.slots = 90;
    tail.retiring = 5;
    tail.next_n = 1000;
    begin(0);
    decide_generate(&d, job, 1, 16, 0, &out);
    expect(CPN_CAP_EXCEEDED);
    decide_generate(&d, job, 1, 15, 0, &out);
    expect(CPN_OK);
    assert_int_equal(batch->entries[0].n, 1000);
    commit(NULL);
}

TEST(retiring_takes_no_more_than_is_free)
{
    int64_t done = -1;

    tail.redeemed = 95;
    begin(5);
    decide_retiring(&d, job, 1, 3, &done, &out);
    expect(CPN_OK);
    assert_int_equal(done, 3);
    assert_int_equal(d.head.retiring, 3);
    decide_retiring(&d, job, 1, 3, &done, &out);
    assert_true(out.replayed);
    assert_int_equal(d.head.retiring, 3);
    assert_int_equal(done, 3);
    commit(NULL);
    begin(5);
    decide_retiring(&d, job, 2, 50, &done, &out);
    expect(CPN_OK);
    assert_int_equal(d.head.retiring, 5);
    assert_int_equal(head_free(&d.head), 0);
    assert_int_equal(done, 5); /* of the whole job */
    take_now(ana, CPN_SOLD_OUT);
    commit(NULL);
}

TEST(a_tick_moves_time_and_nothing_else)
{
    struct head before;

    tail.day_taken = 9;
    now_ms = NOON + DAY_MS;
    begin(0);
    decide_tick(&d);
    before = tail;
    commit(NULL);
    assert_int_equal(tail.at_ms, NOON + DAY_MS);
    assert_int_equal(tail.day_taken, 0);
    assert_int_equal(tail.seq, before.seq + 1);
    assert_int_equal(head_free(&tail), head_free(&before));
}

TEST(batches_chain_by_their_hashes)
{
    uint8_t hash[HASH_LEN], first[HASH_LEN];

    take_many(5, 1);
    commit(ana);
    assert_int_equal(batch->prev[0], 0x33);
    batch_hash(batch, &scratch, hash);
    assert_memory_equal(hash, tail.hash, HASH_LEN);
    memcpy(first, tail.hash, HASH_LEN);
    begin(5);
    decide_tick(&d);
    commit(NULL);
    assert_memory_equal(batch->prev, first, HASH_LEN);
}

RUN_TESTS(.each_setup = fresh, .each_teardown = release)
