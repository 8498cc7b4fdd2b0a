/* Unit tests of coupons/event: which events a batch makes, how large batches are cut, and what erasing changes. */
#include "cmocka_whole.h"

#include "coupons/event.h"
#include "unit/in_arena.h"

static const struct head nothing_before;

static struct batch *b;
static struct buf text;
static struct event *events;

static void make(const char *coupon, int64_t seq)
{
    batch_free(b);
    b = batch_new(coupon, 0);
    b->head.seq = seq;
    b->head.at_ms = INT64_C(1795000000000);
}

static int begin(void **state)
{
    make("c", 7);
    return make_arena(state);
}

static int end(void **state)
{
    batch_free(b);
    b = NULL;
    buf_free(&text);
    return release_arena(state);
}

static void add_taking(int64_t n, const char *user, const char *order)
{
    struct entry *e = batch_add(b, ENTRY_REDEEM);

    e->n = n;
    e->g = 1;
    e->ordinal = n + 1;
    e->user = user;
    e->order = order;
    snprintf(e->alias, sizeof e->alias, "%s", "0123456789abcdef");
}

/* The types of b's events, "redemption.batch coupon.sold_out", each with its index in order. */
static void assert_events(const struct head *before, const char *expected)
{
    size_t count = events_of(b, before, &arena, &events);

    buf_clear(&text);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(events[i].index, i);
        buf_printf(&text, "%s%s", i ? " " : "", event_type_name(events[i].type));
    }
    assert_string_equal(text.len ? text.data : "", expected);
    buf_clear(&text);
}

TEST(kinds_that_concern_redemptions_are_one_event)
{
    static const enum entry_kind kinds[] = {ENTRY_ISSUE, ENTRY_RESERVE, ENTRY_REDEEM, ENTRY_HOLD, ENTRY_EXTEND, ENTRY_SPEND,
                                            ENTRY_CANCEL, ENTRY_EXPIRE, ENTRY_REVERSE, ENTRY_FORGET};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        batch_add(b, kinds[i])->g = (uint32_t)i + 1;
    assert_events(&nothing_before, "redemption.batch");
    events_of(b, &nothing_before, &arena, &events);
    event_write(b, &events[0], &text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char part[64];

        snprintf(part, sizeof part, "{\"kind\":\"%s\",\"id\":\"0-%zu\",", entry_kind_name(kinds[i]), i + 1);
        if (!strstr(text.data, part))
            fail_msg("no %s in %s", part, text.data);
    }
}

TEST(other_kinds_are_passed_over)
{
    static const enum entry_kind kinds[] = {ENTRY_TICK, ENTRY_TURN, ENTRY_TURN_END, ENTRY_RETIRING, ENTRY_RETIRE, ENTRY_REPLENISH,
                                            ENTRY_GENERATE, ENTRY_ERASE};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        batch_add(b, kinds[i]);
    assert_events(&nothing_before, "");
    add_taking(1, "u", NULL);
    batch_add(b, ENTRY_TICK);
    add_taking(2, "u", NULL);
    assert_events(&nothing_before, "redemption.batch");
}

TEST(events_of_the_stock_stand_where_they_happened)
{
    add_taking(1, "u", NULL);
    batch_add(b, ENTRY_LOW_STOCK)->count = 3;
    add_taking(2, "v", NULL);
    batch_add(b, ENTRY_SOLD_OUT);
    batch_add(b, ENTRY_GENERATE)->count = 5;
    batch_add(b, ENTRY_GENERATE)->count = 6;
    assert_events(&nothing_before,
                  "redemption.batch coupon.low_stock redemption.batch coupon.sold_out coupon.refilled");
}

TEST(a_refill_is_one_only_after_something_was_raised)
{
    const struct head low = {.low_stock = 1}, sold_out = {.sold_out = 1};

    batch_add(b, ENTRY_GENERATE)->count = 5;
    assert_events(&nothing_before, "");
    assert_events(&low, "coupon.refilled");
    assert_events(&sold_out, "coupon.refilled");
}

TEST(a_change_is_reported_by_the_first_lane)
{
    struct coupon definition;

    coupon_init(&definition);
    definition.id = "c";
    definition.title = "t";
    definition.version = 4;
    batch_add(b, ENTRY_DEFINE)->definition = &definition;
    batch_add(b, ENTRY_DELETE);
    assert_events(&nothing_before, "coupon.changed coupon.changed");
    b->lane = 1;
    assert_events(&nothing_before, "");
}

TEST(a_definition_that_is_too_long_is_left_out)
{
    static char description[25000];
    struct coupon definition;

    memset(description, 'x', sizeof description - 1);
    coupon_init(&definition);
    definition.id = "c";
    definition.title = "t";
    definition.version = 4;
    definition.description = description;
    batch_add(b, ENTRY_DEFINE)->definition = &definition;
    assert_int_equal(events_of(b, &nothing_before, &arena, &events), 1);
    event_write(b, events, &text);
    assert_true(text.len <= EVENT_BYTES_MAX);
    assert_non_null(strstr(text.data, "\"version\":4,\"by\":null,\"definition\":null}}"));
}

/* Write all events of b, check each one's size, and count the entries in them. */
static size_t entries_in_events(size_t *count)
{
    size_t entries = 0;

    *count = events_of(b, &nothing_before, &arena, &events);
    for (size_t i = 0; i < *count; i++) {
        buf_clear(&text);
        event_write(b, &events[i], &text);
        if (text.len > EVENT_BYTES_MAX)
            fail_msg("event %zu has %zu bytes", i, text.len);
        for (const char *at = text.data; (at = strstr(at, "\"kind\":")); at++)
            entries++;
        if (i + 1 < *count)
            assert_int_equal(events[i].first + events[i].count, events[i + 1].first);
    }
    return entries;
}

TEST(the_largest_entries_fit)
{
    char coupon[COUPON_ID_MAX + 1], user[129], order[129];
    size_t count;

    memset(coupon, 'c', sizeof coupon - 1);
    memset(user, '"', sizeof user - 1);
    memset(order, 1, sizeof order - 1);
    coupon[sizeof coupon - 1] = user[sizeof user - 1] = order[sizeof order - 1] = '\0';
    make(coupon, INT64_MAX / 2);
    b->lane = 63;
    for (int i = 0; i < 1000; i++) {
        struct entry *e = batch_add(b, i % 2 ? ENTRY_RESERVE : ENTRY_SPEND);

        e->n = e->from_n = INT64_MAX / 2 + i;
        e->g = e->from = UINT32_MAX;
        e->ordinal = e->left = e->day = e->discount_minor = e->held_minor = INT64_MIN + 1;
        e->reserved_until_ms = e->valid_until_ms = INT64_C(253402300799999);
        e->was = SLOT_RESERVED;
        e->user = user;
        e->order = order;
    }
    assert_int_equal(entries_in_events(&count), 1000);
    assert_true(count > 1000 / 20 && count < 1000 / 8);
}

TEST(erasing_a_user_does_not_move_the_cuts)
{
    struct event *named, *erased;
    size_t count, named_count;

    for (int i = 0; i < 500; i++)
        add_taking(i, "a user with a name", "and an order");
    named_count = events_of(b, &nothing_before, &arena, &named);
    for (size_t i = 0; i < b->count; i += 3)
        b->entries[i].user = b->entries[i].order = NULL;
    count = events_of(b, &nothing_before, &arena, &erased);
    assert_int_equal(count, named_count);
    assert_memory_equal(named, erased, count * sizeof *named);
    assert_int_equal(entries_in_events(&count), 500);
}

TEST(an_event_is_json_with_names_and_without_secrets)
{
    struct entry *e;

    make("c", 88);
    add_taking(1042, "u-17", "o-99");
    e = &b->entries[0];
    e->left = COUPON_NULL;
    e->day = 3;
    e->discount_minor = 500;
    e->order_minor = 4200;
    e->currency = "EUR";
    e->code = "SECRET-CODE";
    e->metadata = "{\"secret\":1}";
    events_of(b, &nothing_before, &arena, &events);
    event_write(b, events, &text);
    assert_string_equal(text.data,
                        "{\"type\":\"redemption.batch\",\"timestamp\":\"2026-11-18T11:06:40.000Z\",\"data\":{\"coupon\":\"c\",\"lane\":0,"
                        "\"seq\":88,\"entries\":[{\"kind\":\"redeem\",\"id\":\"1042-1\",\"slot\":1042,\"user\":\"u-17\","
                        "\"order\":\"o-99\",\"ordinal\":1043,\"left\":null,\"day\":3,\"discount_minor\":500,"
                        "\"order_minor\":4200,\"currency\":\"EUR\"}]}}");
    buf_clear(&text);
    event_id("a_1", 2, 0, 88, 3, &text);
    assert_string_equal(text.data, "evt_a_1_2_88_3");
    buf_clear(&text);
    event_id("a_1", 2, 12, 88, 3, &text); /* after a restore */
    assert_string_equal(text.data, "evt12_a_1_2_88_3");
}

TEST(without_slots_an_id_names_its_lane)
{
    make("c", 88);
    add_taking(-88, "u", NULL);
    events_of(b, &nothing_before, &arena, &events);
    event_write(b, events, &text);
    assert_non_null(strstr(text.data, "\"id\":\"L0-88-1\",\"slot\":null,"));
}

TEST_WITH(types_have_names, NULL, NULL)
{
    for (unsigned t = 0; t < EVENT_NONE; t++)
        assert_int_equal(event_type_of_name(event_type_name((enum event_type)t)), t);
    assert_int_equal(event_type_of_name("coupon.nothing"), EVENT_NONE);
}

RUN_TESTS(.each_setup = begin, .each_teardown = end)
