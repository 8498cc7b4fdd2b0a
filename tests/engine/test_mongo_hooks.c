/* The store's webhooks on a real mongod: subscriptions, leases, positions, attempts; where a lane's stream begins. */
#include "cmocka_whole.h"

#include "base/signature.h"
#include "deliver/cursor.h"
#include "mongo_fixture.h"
#include "store/hooks.h"

#define T0 INT64_C(1795000000000)

static struct hook *new_hook(void)
{
    struct hook *h = arena_alloc(&arena, sizeof *h);
    char *id = arena_alloc(&arena, HOOK_ID_LEN + 1), secret[SECRET_TEXT_SIZE];

    id_random(id, HOOK_ID_LEN);
    secret_make(secret);
    *h = (struct hook){.id = id, .url = "https://example.com/", .events = 1u << EVENT_SOLD_OUT | 1u << EVENT_CHANGED,
                       .enabled = true, .secret = arena_strdup(&arena, secret), .created_ms = T0, .changed_ms = T0};
    return h;
}

static struct hook *read_hook(const char *id)
{
    struct hook *h = NULL;

    assert_int_equal(mongo_hook(session, id, &arena, &h), STORE_OK);
    return h;
}

SERVER_TEST(a_subscription_is_read_as_it_was_written)
{
    const char *coupons[] = {"a", "b"};
    struct hook *h = new_hook(), *other = new_hook(), **all, *read;
    size_t count;

    h->coupons = (struct string_list){coupons, 2};
    other->created_ms = T0 + 1;
    assert_int_equal(mongo_hook_insert(session, h), STORE_OK);
    assert_int_equal(mongo_hook_insert(session, h), STORE_FAILED);
    assert_int_equal(mongo_hook_insert(session, other), STORE_OK);
    read = read_hook(h->id);
    assert_string_equal(read->url, h->url);
    assert_string_equal(read->secret, h->secret);
    assert_int_equal(read->events, h->events);
    assert_int_equal(read->coupons.count, 2);
    assert_string_equal(read->coupons.items[1], "b");
    assert_true(read->enabled && !read->owner && !read->reason && !read->old_secret && !read->failing_ms);
    assert_int_equal(mongo_hooks(session, NULL, 10, &arena, &all, &count), STORE_OK);
    assert_int_equal(count, 2);
    assert_string_equal(all[0]->id, other->id);
    assert_int_equal(mongo_hooks(session, other->id, 10, &arena, &all, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(all[0]->id, h->id);
    assert_int_equal(mongo_hook_remove(session, h->id), STORE_OK);
    assert_int_equal(mongo_hook_remove(session, h->id), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook(session, h->id, &arena, &read), STORE_NOT_FOUND);
    assert_int_equal(mongo_hooks(session, h->id, 10, &arena, &all, &count), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_remove(session, other->id), STORE_OK);
}

SERVER_TEST(a_change_wants_what_was_read)
{
    struct hook *h = new_hook(), *read;

    assert_int_equal(mongo_hook_insert(session, h), STORE_OK);
    assert_int_equal(mongo_hook_failing(session, h, T0 + 7), STORE_OK);
    h->enabled = false;
    h->reason = "asked";
    h->old_secret = "whsec_old";
    h->old_until_ms = T0 + 9;
    h->changed_ms = T0 + 5;
    assert_int_equal(mongo_hook_change(session, h, T0 + 1), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_change(session, h, T0), STORE_OK);
    read = read_hook(h->id);
    assert_true(!read->enabled && read->failing_ms == T0 + 7 && read->old_until_ms == T0 + 9);
    assert_string_equal(read->reason, "asked");
    h->enabled = true;
    h->reason = h->old_secret = NULL;
    assert_int_equal(mongo_hook_change(session, h, T0 + 5), STORE_OK);
    read = read_hook(h->id);
    assert_true(read->enabled && !read->failing_ms && !read->reason && !read->old_secret && !read->old_until_ms);
    h->changed_ms = T0 + 4; /* as somebody read it who was overtaken */
    assert_int_equal(mongo_hook_failing(session, h, T0 + 19), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_disable(session, h, "gone", T0 + 20), STORE_NOT_FOUND);
    assert_true(read_hook(h->id)->enabled && !read_hook(h->id)->failing_ms);
    assert_int_equal(mongo_hook_disable(session, read, "gone", T0 + 20), STORE_OK);
    read = read_hook(h->id);
    assert_true(!read->enabled && read->changed_ms == T0 + 20);
    assert_string_equal(read->reason, "gone");
    assert_int_equal(mongo_hook_remove(session, h->id), STORE_OK);
}

SERVER_TEST(one_deliverer_holds_it_for_its_lease)
{
    struct hook *h = new_hook();

    assert_int_equal(mongo_hook_insert(session, h), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0, T0 + 100), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "two", T0 + 99, T0 + 200), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0 + 50, T0 + 150), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "two", T0 + 100, T0 + 200), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_claim(session, h->id, "two", T0 + 150, T0 + 250), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0 + 151, T0 + 250), STORE_NOT_FOUND);
    assert_int_equal(mongo_hooks_release(session, "one"), STORE_OK);
    assert_string_equal(read_hook(h->id)->owner, "two");
    assert_int_equal(mongo_hooks_release(session, "two"), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0, T0 + 100), STORE_OK);
    assert_int_equal(mongo_hook_remove(session, h->id), STORE_OK);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0, T0 + 100), STORE_NOT_FOUND);
}

SERVER_TEST(its_owner_notes_what_has_arrived_and_is_delivered)
{
    struct hook *h = new_hook(), *read;
    struct watermark w = {.arrived = (uint64_t)(T0 / 1000 + 5) << 32 | 7};
    uint64_t first;

    assert_true(watermark_add_behind(&w, "held", 3));
    assert_int_equal(mongo_hook_insert(session, h), STORE_OK);
    first = read_hook(h->id)->watermark.arrived;
    assert_true(first > 0 && (int64_t)(first >> 32) < T0 / 1000); /* clocks differ */
    assert_int_equal(read_hook(h->id)->watermark.behind_count, 0);
    assert_int_equal(mongo_hook_arrived(session, h->id, "one", &w), STORE_NOT_FOUND);
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0, T0 + 100), STORE_OK);
    assert_int_equal(mongo_hook_arrived(session, h->id, "two", &w), STORE_NOT_FOUND);
    assert_true(read_hook(h->id)->watermark.arrived == first);
    assert_int_equal(mongo_hook_arrived(session, h->id, "one", &w), STORE_OK);
    read = read_hook(h->id);
    assert_true(read->watermark.arrived == w.arrived && read->watermark.behind_count == 1);
    assert_true(watermark_has_behind(&read->watermark, "held", 3));
    w.behind_count = 0;
    assert_int_equal(mongo_hook_arrived(session, h->id, "one", &w), STORE_OK);
    assert_int_equal(read_hook(h->id)->watermark.behind_count, 0);
    assert_int_equal(mongo_hook_remove(session, h->id), STORE_OK);
}

SERVER_TEST(a_position_never_goes_back)
{
    static const struct {
        int64_t seq, index, then_seq, then_index;
    } rows[] = {{5, 2, 5, 2}, {5, 1, 5, 2}, {4, 9, 5, 2}, {5, 3, 5, 3}, {6, 0, 6, 0}, {100, 0, 100, 0}, {INT64_C(1) << 40, 1,
                INT64_C(1) << 40, 1}, {99, 50, INT64_C(1) << 40, 1}};
    struct hook *h = new_hook();
    struct hook_position p = {.hook = h->id, .coupon = "c", .lane = 3};

    assert_int_equal(mongo_position(session, &p), STORE_NOT_FOUND);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hook_position written = {h->id, "c", 3, rows[i].seq, rows[i].index, (int64_t)i, T0 + (int64_t)i};

        assert_int_equal(mongo_positions_write(session, &written, 1), STORE_OK);
        assert_int_equal(mongo_position(session, &p), STORE_OK);
        if (p.seq != rows[i].then_seq || p.index != rows[i].then_index || p.attempts != (int64_t)i || p.not_before_ms != T0 + (int64_t)i)
            fail_msg("after row %zu: seq %lld index %lld", i, (long long)p.seq, (long long)p.index);
    }
    assert_int_equal(mongo_positions_restart(session, h->id), STORE_OK);
    assert_int_equal(mongo_position(session, &p), STORE_OK);
    assert_true(p.attempts == 0 && p.not_before_ms == 0 && p.seq == INT64_C(1) << 40);
    p.seq--;
    assert_int_equal(mongo_positions_remove(session, &p, 1), STORE_OK); /* it has moved: it stays */
    assert_int_equal(mongo_position(session, &p), STORE_OK);
    assert_int_equal(mongo_positions_remove(session, &p, 1), STORE_OK);
    assert_int_equal(mongo_position(session, &p), STORE_NOT_FOUND);
    assert_int_equal(mongo_positions_write(session, &p, 1), STORE_OK);
    assert_int_equal(mongo_hook_sweep(session, h->id), STORE_OK);
    assert_int_equal(mongo_position(session, &p), STORE_NOT_FOUND);
}

SERVER_TEST(attempts_are_listed_newest_first_and_asked_for_again)
{
    struct hook *h = new_hook();
    struct delivery rows[5], **d, *one;
    size_t count;

    memset(rows, 0, sizeof rows);
    for (int i = 0; i < 5; i++) {
        id_random(rows[i].id, ID_SHORT_LEN);
        snprintf(rows[i].hook, sizeof rows[i].hook, "%s", h->id);
        snprintf(rows[i].coupon, sizeof rows[i].coupon, "c");
        rows[i].seq = i + 1;
        rows[i].at_ms = T0 + i / 2; /* some at the same time */
        rows[i].succeeded = i == 3;
        rows[i].status = i == 3 ? 204 : 0;
        rows[i].error = i == 3 ? NULL : "refused";
        rows[i].attempt = 1;
    }
    assert_int_equal(mongo_deliveries_insert(session, rows, 4), STORE_OK);
    assert_int_equal(mongo_deliveries_insert(session, rows, 5), STORE_OK); /* the first reply was lost */
    assert_int_equal(mongo_deliveries(session, h->id, -1, NULL, 10, &arena, &d, &count), STORE_OK);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        struct delivery **next;
        size_t left;

        assert_true(i == 0 || d[i]->at_ms <= d[i - 1]->at_ms);
        assert_int_equal(mongo_deliveries(session, h->id, -1, d[i]->id, 10, &arena, &next, &left), STORE_OK);
        assert_int_equal(left, count - 1 - i);
    }
    assert_int_equal(mongo_deliveries(session, h->id, 1, NULL, 10, &arena, &d, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_true(d[0]->status == 204 && !d[0]->error);
    assert_int_equal(mongo_delivery_ask(session, rows[2].id, T0 + 50), STORE_OK);
    assert_int_equal(mongo_delivery_ask(session, "nothing", T0 + 50), STORE_NOT_FOUND);
    assert_int_equal(mongo_deliveries_asked(session, 10, &arena, &d, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(d[0]->id, rows[2].id);
    assert_int_equal(mongo_delivery_made(session, rows[2].id), STORE_OK);
    assert_int_equal(mongo_deliveries_asked(session, 10, &arena, &d, &count), STORE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(mongo_delivery(session, "another", rows[0].id, &arena, &one), STORE_NOT_FOUND);
    assert_int_equal(mongo_deliveries_clean(session, T0 + 2), STORE_OK);
    assert_int_equal(mongo_deliveries(session, h->id, -1, NULL, 10, &arena, &d, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_int_equal(mongo_hook_sweep(session, h->id), STORE_OK);
    assert_int_equal(mongo_delivery(session, h->id, rows[4].id, &arena, &one), STORE_NOT_FOUND);
}

/* A lane of `count` ticks, ten milliseconds apart, two at a time. */
static const char *make_lane(int64_t count)
{
    const char *coupon = new_coupon();

    for (int64_t seq = 1; seq <= count; seq++) {
        struct batch *b = batch_new(coupon, 0);
        struct append append = {b, APPEND_UNKNOWN};

        batch_add(b, ENTRY_TICK);
        b->head.seq = seq;
        b->head.at_ms = T0 + (seq + 1) / 2 * 10;
        assert_int_equal(session->ops->append(session, &append, 1), STORE_OK);
        batch_free(b);
    }
    return coupon;
}

SERVER_TEST(a_stream_begins_with_the_first_batch_since_then)
{
    const char *coupon = make_lane(21);

    for (int64_t since = T0; since <= T0 + 130; since += 5) {
        int64_t expected = 0, start = cursor_start(session, coupon, 0, 21, since, 0);

        while (expected < 21 && T0 + (expected + 2) / 2 * 10 < since)
            expected++;
        if (start != expected)
            fail_msg("since %lld: after %lld, not %lld", (long long)(since - T0), (long long)start, (long long)expected);
    }
    assert_int_equal(cursor_start(session, coupon, 0, 25, T0, 0), -1); /* of which the server does not know yet */
}

SERVER_TEST(a_stream_begins_with_the_first_batch_that_arrived_since_then)
{
    const char *coupon = make_lane(21);

    for (int64_t seq = 1; seq <= 21; seq++) {
        struct batch *b;
        uint64_t arrived;

        assert_int_equal(mongo_ledger_at(session, coupon, 0, seq, &b), STORE_OK);
        arrived = b->arrived;
        batch_free(b);
        assert_true(arrived > 0);
        assert_int_equal(cursor_start(session, coupon, 0, 21, T0, arrived), seq - 1);
        assert_int_equal(cursor_start(session, coupon, 0, 21, T0, arrived + 1), seq);
    }
    damage("ledger", coupon, "_id.seq", 21, NULL, "v"); /* it may be one of them */
    assert_int_equal(cursor_start(session, coupon, 0, 21, T0, UINT64_MAX), 20);
}

/* All is delivered, and arrived before the watermark; the rows are what makes it otherwise. */
TEST(a_lane_is_over_when_all_is_delivered_and_arrived_before_the_watermark)
{
    struct endpoint *e = endpoint_new(new_hook());
    struct cursor *s = cursor_add(e, "c", 0, 7, 0);

    e->watermark.arrived = 1000;
    s->arrived = 999;
    assert_true(cursor_is_over(s));
    s->arrived = 1000;
    assert_false(cursor_is_over(s));
    s->arrived = 0;
    s->moved = true;
    assert_false(cursor_is_over(s));
    s->moved = false;
    s->tail = 8;
    assert_false(cursor_is_over(s));
    s->tail = 7;
    cursor_to(s, CURSOR_WAITING);
    assert_false(cursor_is_over(s));
    cursor_to(s, CURSOR_IDLE);
    assert_true(watermark_add_behind(&e->watermark, "c", 0));
    assert_false(cursor_is_over(s));
    e->watermark.behind_count = 0;
    assert_true(cursor_is_over(s));
    cursor_remove(s);
    assert_null(cursor_find(e, "c", 0));
    endpoint_free(e);
}

/* What a deliverer forgot begins where the watermark says, also with an attempt that has to wait. */
SERVER_TEST(a_lane_that_was_forgotten_goes_on_behind_the_watermark)
{
    const char *coupon = make_lane(20);
    const struct event *event = NULL;
    const struct batch *b = NULL;
    struct batch *tail;
    struct endpoint *e = endpoint_new(new_hook());
    struct cursor *s = cursor_add(e, coupon, 0, -1, 0);
    struct hook_position p = {e->hook->id, coupon, 0, 12, 0, 3, clock_now_ms() + 60000};

    assert_int_equal(mongo_ledger_at(session, coupon, 0, 18, &tail), STORE_OK);
    e->watermark.arrived = tail->arrived;
    batch_free(tail);
    s->tail = 20;
    assert_int_equal(cursor_next(s, session, &b, &event), CURSOR_ENDS); /* with a tick no event comes */
    assert_true(s->seq == 20 && s->moved);
    cursor_remove(s);
    assert_int_equal(mongo_positions_write(session, &p, 1), STORE_OK);
    s = cursor_add(e, coupon, 0, -1, 0);
    s->tail = 20;
    assert_int_equal(cursor_next(s, session, &b, &event), CURSOR_WAITS);
    assert_true(s->seq == 12 && s->attempts == 3 && s->not_before_ms == p.not_before_ms && !s->moved);
    endpoint_free(e);
}

SERVER_TEST(the_tail_of_a_lane_is_known_though_it_cannot_be_read)
{
    const char *coupon = make_lane(3);
    int64_t tail;

    damage("ledger", coupon, "_id.seq", 3, NULL, "v");
    assert_int_equal(mongo_lane_tail(session, coupon, 0, &tail), STORE_OK);
    assert_int_equal(tail, 3);
    assert_int_equal(mongo_lane_tail(session, coupon, 1, &tail), STORE_OK);
    assert_int_equal(tail, 0);
}

SERVER_TEST(a_stream_passes_over_what_is_not_subscribed_to)
{
    const char *coupon = make_lane(20);
    const struct event *event = NULL;
    const struct batch *b = NULL;
    struct endpoint *e = endpoint_new(new_hook());
    struct cursor *s = cursor_add(e, coupon, 0, 3, 0);

    assert_int_equal(cursor_next(s, session, &b, &event), CURSOR_ENDS);
    assert_int_equal(s->seq, 3);
    s->tail = 20;
    assert_int_equal(cursor_next(s, session, &b, &event), CURSOR_ENDS);
    assert_int_equal(s->seq, 20);
    assert_true(s->moved && e->moved);
    s->tail = 21; /* somebody saw it; this server does not yet */
    assert_int_equal(cursor_next(s, session, &b, &event), CURSOR_FAILS);
    assert_int_equal(s->seq, 20);
    endpoint_free(e);
}

static const char *behind(const struct batch *b)
{
    const char *hook;

    assert_int_equal(mongo_hook_behind(session, b, &arena, &hook), STORE_OK);
    return hook;
}

SERVER_TEST(an_archive_waits_for_those_that_are_enabled_and_want_the_coupon)
{
    const char *coupon = new_coupon(), *others[] = {"another"};
    struct hook *h = new_hook(), *off = new_hook(), *elsewhere = new_hook();
    struct hook_position p = {.hook = h->id, .coupon = coupon, .lane = 0, .seq = 6};
    struct watermark w = {.arrived = (uint64_t)(T0 / 1000) << 32 | 5};
    struct batch *b = batch_new(coupon, 0);

    b->head.seq = 7;
    b->arrived = w.arrived - 1;
    off->enabled = false;
    elsewhere->coupons = (struct string_list){others, 1};
    assert_int_equal(mongo_hook_insert(session, off), STORE_OK);
    assert_int_equal(mongo_hook_insert(session, elsewhere), STORE_OK);
    assert_null(behind(b));
    assert_int_equal(mongo_hook_insert(session, h), STORE_OK);
    h = read_hook(h->id);
    b->arrived = h->watermark.arrived + 1;
    assert_string_equal(behind(b), h->id); /* nothing is noted */
    assert_int_equal(mongo_positions_write(session, &p, 1), STORE_OK);
    assert_string_equal(behind(b), h->id);
    p.seq = 7;
    assert_int_equal(mongo_positions_write(session, &p, 1), STORE_OK);
    assert_null(behind(b));
    b->head.seq = 8;
    assert_string_equal(behind(b), h->id);
    w.arrived = b->arrived + 1;
    assert_int_equal(mongo_hook_claim(session, h->id, "one", T0, T0 + 100), STORE_OK);
    assert_int_equal(mongo_hook_arrived(session, h->id, "one", &w), STORE_OK);
    assert_null(behind(b));
    assert_true(watermark_add_behind(&w, coupon, 0));
    assert_int_equal(mongo_hook_arrived(session, h->id, "one", &w), STORE_OK);
    assert_string_equal(behind(b), h->id);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mongo_hook_remove(session, (const struct hook *[]){h, off, elsewhere}[i]->id), STORE_OK);
    batch_free(b);
}

RUN_SERVER_TESTS()
