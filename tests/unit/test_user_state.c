/* Unit tests of coupons/user_state: copies, look-ups, what ends by itself, the hash of a key, ids. */
#include "cmocka_whole.h"

#include "coupons/user_state.h"
#include "unit/in_arena.h"

#define ALIAS "0123456789abcdef"
#define NOW 1000000

static const struct key_secret secret; /* of zeros, as a decision's */
static struct user_state u;

FIXTURE(fresh)
{
    user_state_init(&u, "ana", ALIAS);
    return 0;
}

static struct redemption *add(struct user_state *to, int64_t n, enum slot_state now, const char *order, const char *key)
{
    struct redemption *r = user_state_add(to, &arena);

    r->n = n;
    r->g = 1;
    r->state = (uint8_t)now;
    r->order = order;
    key_hash(&secret, to->alias, key, r->key);
    return r;
}

TEST(a_new_user_state_took_nothing)
{
    assert_string_equal(u.user, "ana");
    assert_string_equal(u.alias, ALIAS);
    assert_int_equal(u.total + u.today + u.seq + (int64_t)u.count, 0);
    assert_true(user_state_is_nobody(&u));
    assert_int_equal(user_state_today(&u, 0), 0);
    assert_null(user_state_by_order(&u, "o", NOW));
    assert_null(user_state_by_slot(&u, 0, 0));
}

TEST(many_redemptions_keep_their_order)
{
    for (int i = 0; i < USER_STATE_REDEMPTIONS_MAX; i++) {
        char key[16];

        snprintf(key, sizeof key, "k%d", i);
        add(&u, i, SLOT_REDEEMED, NULL, key);
    }
    assert_int_equal(u.count, USER_STATE_REDEMPTIONS_MAX);
    for (int i = 0; i < USER_STATE_REDEMPTIONS_MAX; i++)
        assert_int_equal(u.redemptions[i].n, i);
    assert_int_equal(user_state_by_slot(&u, 517, 1)->n, 517);
    assert_null(user_state_by_slot(&u, 517, 2));
}

TEST(a_key_is_found_only_as_it_was_given)
{
    uint8_t hash[KEY_HASH_LEN];
    enum key_of which = KEY_OF_SPENDING;

    add(&u, 1, SLOT_REDEEMED, NULL, "k1");
    add(&u, 2, SLOT_REVERSED, NULL, "k2");
    key_hash(&secret, u.alias, "k2", hash);
    assert_int_equal(user_state_by_key(&u, hash, &which)->n, 2);
    assert_int_equal(which, KEY_OF_FIRST);
    key_hash(&secret, u.alias, "k3", hash);
    assert_null(user_state_by_key(&u, hash, &which));
    assert_int_equal(which, KEY_OF_NONE);
    key_hash(&secret, "other alias", "k1", hash);
    assert_null(user_state_by_key(&u, hash, &which));
}

TEST(a_key_says_which_call_it_was)
{
    static const struct {
        const char *key;
        enum key_of which;
    } calls[] = {{"make", KEY_OF_FIRST}, {"extend", KEY_OF_EXTENSION}, {"first", KEY_OF_EARLIER}, {"spend", KEY_OF_SPENDING}};
    uint8_t hash[KEY_HASH_LEN];
    enum key_of which;
    struct extension earlier[2] = {{.until_ms = 1}, {.until_ms = 2}};
    struct redemption *r;

    add(&u, 1, SLOT_REDEEMED, NULL, "other");
    r = add(&u, 2, SLOT_REDEEMED, NULL, "make");
    key_hash(&secret, u.alias, "extend", r->extended_key);
    key_hash(&secret, u.alias, "first", earlier[0].key);
    key_hash(&secret, u.alias, "second", earlier[1].key);
    r->earlier = earlier;
    r->earlier_count = 2;
    key_hash(&secret, u.alias, "spend", r->spent_key);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        key_hash(&secret, u.alias, calls[i].key, hash);
        assert_int_equal(user_state_by_key(&u, hash, &which)->n, 2);
        assert_int_equal(which, calls[i].which);
    }
    key_hash(&secret, u.alias, "first", hash);
    assert_int_equal(redemption_earlier(r, hash)->until_ms, 1);
}

TEST(the_border_between_alias_and_key_is_hashed_too)
{
    uint8_t a[KEY_HASH_LEN], b[KEY_HASH_LEN];

    key_hash(&secret, "ab", "c", a);
    key_hash(&secret, "a", "bc", b);
    assert_memory_not_equal(a, b, KEY_HASH_LEN);
    key_hash(&secret, "ab", "c", b);
    assert_memory_equal(a, b, KEY_HASH_LEN);
    key_hash(&(struct key_secret){{1}}, "ab", "c", b);
    assert_memory_not_equal(a, b, KEY_HASH_LEN);
}

TEST(an_order_is_found_while_its_redemption_stands)
{
    add(&u, 1, SLOT_REVERSED, "o1", "a");
    add(&u, 2, SLOT_CANCELLED, "o1", "b");
    add(&u, 3, SLOT_EXPIRED, "o1", "c");
    add(&u, 4, SLOT_ISSUED, "o1", "d");
    add(&u, 5, SLOT_REDEEMED, NULL, "e");
    assert_null(user_state_by_order(&u, "o1", NOW));
    add(&u, 6, SLOT_REDEEMED, "o1", "f");
    add(&u, 7, SLOT_RESERVED, "o2", "g");
    add(&u, 8, SLOT_RESERVED, "o1", "h");
    add(&u, 9, SLOT_REVERSED, "o1", "i");
    assert_int_equal(user_state_by_order(&u, "o1", NOW)->n, 8);
    assert_int_equal(user_state_by_order(&u, "o2", NOW)->n, 7);
    assert_null(user_state_by_order(&u, "o3", NOW));
    assert_null(user_state_by_order(&u, "O1", NOW));
}

TEST(an_order_whose_hold_ran_out_stands_no_longer)
{
    add(&u, 1, SLOT_RESERVED, "o1", "a")->reserved_until_ms = NOW;
    assert_int_equal(user_state_by_order(&u, "o1", NOW - 1)->n, 1);
    assert_null(user_state_by_order(&u, "o1", NOW)); /* to the millisecond */
}

/* ---- what ends by itself ---- */

TEST(a_state_is_read_at_a_time)
{
    static const struct {
        enum slot_state now;
        int64_t reserved_until_ms, valid_until_ms, due_ms;
    } rows[] = {
        {SLOT_ISSUED, 0, 0, 0},      {SLOT_ISSUED, 0, 70, 70},     {SLOT_ISSUED, 50, 0, 0},      {SLOT_ISSUED, 50, 70, 70},
        {SLOT_ISSUED, 90, 70, 90},   {SLOT_RESERVED, 50, 0, 50},   {SLOT_RESERVED, 50, 40, 50},  {SLOT_REDEEMED, 50, 40, 0},
        {SLOT_CANCELLED, 50, 40, 0}, {SLOT_EXPIRED, 50, 40, 0},    {SLOT_REVERSED, 50, 40, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct redemption r = {.state = (uint8_t)rows[i].now, .reserved_until_ms = rows[i].reserved_until_ms,
                               .valid_until_ms = rows[i].valid_until_ms};

        assert_int_equal(redemption_due(&r, 0), rows[i].due_ms);
        assert_int_equal(redemption_state(&r, rows[i].due_ms ? rows[i].due_ms - 1 : NOW, 0), rows[i].now);
        if (rows[i].due_ms)
            assert_int_equal(redemption_state(&r, rows[i].due_ms, 0), SLOT_EXPIRED);
    }
}

TEST(a_coupon_s_end_ends_what_is_issued)
{
    static const struct {
        int64_t valid_until_ms, reserved_until_ms, ends_ms, due_ms;
    } rows[] = {{0, 0, 60, 60}, {70, 0, 60, 60}, {50, 0, 60, 50}, {70, 0, 0, 70}, {0, 90, 60, 90}, {0, 50, 60, 60}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct redemption r = {.state = SLOT_ISSUED, .first_state = SLOT_ISSUED, .valid_until_ms = rows[i].valid_until_ms,
                               .reserved_until_ms = rows[i].reserved_until_ms, .ends_ms = 40};

        assert_int_equal(redemption_due(&r, rows[i].ends_ms), rows[i].due_ms);
        assert_int_equal(redemption_state(&r, rows[i].due_ms - 1, rows[i].ends_ms), SLOT_ISSUED);
        assert_int_equal(redemption_state(&r, rows[i].due_ms, rows[i].ends_ms), SLOT_EXPIRED);
        assert_int_equal(redemption_valid_until(&r, rows[i].ends_ms), sooner_ms(rows[i].valid_until_ms, rows[i].ends_ms));
        r.state = SLOT_REDEEMED; /* as it was then */
        assert_int_equal(redemption_due(&r, rows[i].ends_ms), 0);
        assert_int_equal(redemption_valid_until(&r, rows[i].ends_ms), 40);
        r.first_state = SLOT_REDEEMED; /* it never was issued */
        assert_int_equal(redemption_valid_until(&r, rows[i].ends_ms), 0);
    }
}

/* One issued until 100, and a hold on it until 200; another one issued, without end. */
static void issue_and_hold(void)
{
    struct redemption *r = add(&u, 1, SLOT_ISSUED, NULL, "a");

    r->valid_until_ms = 100;
    r->reserved_until_ms = 200;
    add(&u, 2, SLOT_ISSUED, NULL, "b");
    r = add(&u, 1, SLOT_RESERVED, "o1", "c");
    r->g = 2;
    r->from_n = 1;
    r->from = 1;
    r->reserved_until_ms = 200;
}

TEST(a_hold_is_found_while_it_stands_or_was_redeemed)
{
    issue_and_hold();
    assert_ptr_equal(user_state_hold_on(&u, &u.redemptions[0], 199), &u.redemptions[2]);
    assert_null(user_state_hold_on(&u, &u.redemptions[0], 200));
    assert_null(user_state_hold_on(&u, &u.redemptions[1], 0));
    assert_null(user_state_hold_on(&u, &u.redemptions[2], 0));
    u.redemptions[2].state = SLOT_REDEEMED;
    assert_ptr_equal(user_state_hold_on(&u, &u.redemptions[0], 200), &u.redemptions[2]);
    u.redemptions[2].state = SLOT_CANCELLED;
    assert_null(user_state_hold_on(&u, &u.redemptions[0], 0));
}

TEST(the_newest_unspent_one_is_not_held)
{
    issue_and_hold();
    assert_int_equal(user_state_unspent(&u, 50, 0)->n, 2);
    u.redemptions[1].state = SLOT_REDEEMED;
    assert_null(user_state_unspent(&u, 50, 0));
    u.redemptions[0].reserved_until_ms = 60; /* the hold runs out before it does */
    u.redemptions[2].reserved_until_ms = 60;
    assert_null(user_state_unspent(&u, 59, 0));
    assert_int_equal(user_state_unspent(&u, 60, 0)->n, 1);
    assert_null(user_state_unspent(&u, 100, 0));
}

TEST(what_lapsed_is_counted_once_and_a_hold_not_at_all)
{
    issue_and_hold();
    u.redemptions[0].day_ms = 50;
    assert_int_equal(user_state_lapsed(&u, 199, 0), 0); /* the hold puts it off */
    assert_int_equal(user_state_lapsed(&u, 200, 0), 1);
    assert_int_equal(user_state_lapsed_today(&u, 200, 50, 0), 1);
    assert_int_equal(user_state_lapsed_today(&u, 200, 0, 0), 0);
    add(&u, 3, SLOT_RESERVED, NULL, "d")->reserved_until_ms = 150;
    assert_int_equal(user_state_lapsed(&u, 199, 0), 1);
    assert_int_equal(user_state_lapsed(&u, 200, 0), 2);
    assert_int_equal(user_state_due(&u, 0), 150);
    u.redemptions[3].state = SLOT_EXPIRED; /* the ledger says so now */
    assert_int_equal(user_state_lapsed(&u, 199, 0), 0);
    assert_int_equal(user_state_due(&u, 0), 200);
}

TEST(today_counts_only_its_own_day)
{
    u.day_ms = 1000;
    u.today = 3;
    assert_int_equal(user_state_today(&u, 1000), 3);
    assert_int_equal(user_state_today(&u, 2000), 0);
    assert_int_equal(user_state_today(&u, 0), 0);
}

TEST(a_copy_can_be_changed_without_the_other_seeing_it)
{
    struct user_state *copy;

    add(&u, 1, SLOT_REDEEMED, "o1", "a");
    copy = user_state_copy(&u, &arena, false);
    copy->total = 9;
    copy->redemptions[0].state = SLOT_REVERSED;
    add(copy, 2, SLOT_REDEEMED, "o2", "b");
    add(copy, 3, SLOT_REDEEMED, "o3", "c");
    assert_int_equal(u.total, 0);
    assert_int_equal(u.count, 1);
    assert_int_equal(u.redemptions[0].state, SLOT_REDEEMED);
    assert_int_equal(copy->count, 3);
    assert_ptr_equal(copy->redemptions[0].order, u.redemptions[0].order);
}

TEST(a_deep_copy_outlives_what_it_was_made_of)
{
    struct arena first;
    struct user_state *copy;
    struct redemption *r;

    arena_init(&first, 0);
    user_state_init(&u, arena_strdup(&first, "ana"), ALIAS);
    r = user_state_add(&u, &first);
    r->order = arena_strdup(&first, "o1");
    r->metadata = arena_strdup(&first, "{\"a\":1}");
    r->code = arena_strdup(&first, "XY");
    r->first_order = arena_strdup(&first, "o0");
    copy = user_state_copy(&u, &arena, true);
    arena_free(&first);
    assert_string_equal(copy->user, "ana");
    assert_string_equal(copy->redemptions[0].order, "o1");
    assert_string_equal(copy->redemptions[0].metadata, "{\"a\":1}");
    assert_string_equal(copy->redemptions[0].code, "XY");
    assert_string_equal(copy->redemptions[0].first_order, "o0");
}

TEST(a_copy_of_an_empty_user_state_can_grow)
{
    struct user_state *copy;

    copy = user_state_copy(&u, &arena, true);
    add(copy, 1, SLOT_REDEEMED, NULL, "a");
    add(copy, 2, SLOT_REDEEMED, NULL, "b");
    assert_int_equal(copy->count, 2);
    assert_int_equal(u.count, 0);
}

/* ---- ids ---- */

TEST(an_id_says_its_slot_or_its_place)
{
    static const struct {
        int64_t n, lane;
        uint32_t g;
        const char *text;
    } rows[] = {
        {0, -1, 1, "0-1"},
        {1042, -1, 2, "1042-2"},
        {(INT64_C(1) << 53) - 1, -1, UINT32_MAX, "9007199254740991-4294967295"},
        {-88, 0, 3, "L0-88-3"},
        {-((INT64_C(1) << 53) - 1), 63, UINT32_MAX, "L63-9007199254740991-4294967295"},
    };
    char text[REDEMPTION_ID_SIZE];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n = 7, lane = 7;
        uint32_t g = 7;

        assert_string_equal(redemption_id_text(rows[i].n, rows[i].g, rows[i].lane, text), rows[i].text);
        assert_true(redemption_id_parse(rows[i].text, &n, &g, &lane));
        assert_int_equal(n, rows[i].n);
        assert_int_equal(g, rows[i].g);
        assert_int_equal(lane, rows[i].lane);
    }
}

TEST(what_is_no_id_is_refused)
{
    static const char *const texts[] = {
        "", "-", "1", "1-", "-1", "1-0", "01-1", "1-01", "1-1-1", "1-1 ", " 1-1", "+1-1", "1--1", "a-1", "1-a", "1-4294967296",
        "9007199254740992-1", "99999999999999999999-1", "L", "L0", "L0-1", "L0-0-1", "L0-1-0", "L64-1-1", "L00-1-1", "L0-1-1-1",
        "L-1-1", "l0-1-1", "L0-1-4294967296", "L0-9007199254740992-1",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t n, lane;
        uint32_t g;

        if (redemption_id_parse(texts[i], &n, &g, &lane))
            fail_msg("\"%s\" passes as an id", texts[i]);
    }
}

RUN_TESTS(.each_setup = fresh, .setup = make_arena, .teardown = release_arena)
