/*
 * Unit tests of ctl/replay and ctl/compare: a small world is decided batch by batch, as the engine would; told again it has no
 * drift; and each thing that is changed behind the ledger's back is found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/decide.h"
#include "coupons/fold.h"
/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/compare.c"
#undef ROW
#undef COUNT
#include "ctl/replay.c"

#define BATCHES 120
#define USERS 20
#define SLOTS 200
#define DAY_MS INT64_C(86400000)

struct world {
    struct arena arena;
    struct batch *ledger[BATCHES];
    size_t count;
    struct head tail;
    const struct coupon *coupon;
    struct use uses[USERS];
    struct use job;
    struct bucket buckets[SLOTS / BUCKET_SLOTS + 1];
    struct totals_row rows[64];
    struct report_counts counts[64];
    size_t row_count;
    struct buf scratch;
};
#define BUCKETS (SLOTS / BUCKET_SLOTS + 1)

static struct world w;
static char found[8192]; /* the drifts, a line each */
static int64_t found_count;

static void note(void *context, const struct drift *d)
{
    size_t len = strlen(found);

    (void)context;
    found_count++;
    snprintf(found + len, sizeof found - len, "%s|%s|%s|%s|%s\n", d->what, d->where, d->field,
             d->expected ? d->expected : "-", d->found ? d->found : "-");
}

/* ---- making the world ---- */

static int64_t time_of(size_t batch)
{
    return 1000 * DAY_MS + (int64_t)batch * 20 * 60 * 1000; /* 72 batches a day */
}

static void begin(struct decision *d)
{
    int64_t at_ms = time_of(w.count);

    decide_begin(d, batch_new("c", 0), w.coupon, &w.tail, at_ms, at_ms - at_ms % DAY_MS, at_ms - at_ms % DAY_MS + DAY_MS);
}

static void fold_totals(const struct batch *b)
{
    int64_t quarter_ms = b->head.at_ms - b->head.at_ms % QUARTER_MS;
    struct report_counts counts = {0}, nothing = {0};
    struct totals_row *row;

    fold_report(&counts, b);
    if (memcmp(&counts, &nothing, sizeof counts) == 0)
        return;
    if (!w.row_count || w.rows[w.row_count - 1].quarter_ms != quarter_ms) {
        assert_true(w.row_count < 64);
        w.rows[w.row_count] = (struct totals_row){.quarter_ms = quarter_ms, .counts = &w.counts[w.row_count]};
        w.row_count++;
    }
    row = &w.rows[w.row_count - 1];
    fold_report(row->counts, b);
    row->seq = b->head.seq;
}

static void append(struct decision *d)
{
    struct batch *b = d->batch;

    if (!decide_changed(d)) {
        batch_free(b);
        return;
    }
    decide_end(d, &w.tail, &w.scratch);
    w.ledger[w.count++] = b;
    w.tail = b->head;
    w.coupon = fold_definition(w.coupon, b, &w.arena);
    for (int i = 0; i < USERS; i++)
        fold_use(&w.uses[i], b, &w.arena);
    fold_use(&w.job, b, &w.arena);
    for (int k = 0; k < BUCKETS; k++)
        fold_bucket(&w.buckets[k], b);
    fold_totals(b);
}

/* A copy to decide on: the world's own is folded from the batch. */
static struct use *copy_of(const struct use *u)
{
    return use_copy(u, &w.arena, true);
}

static size_t stash_of(struct free_slot *stash)
{
    size_t count = 0;

    for (int k = 0; k < BUCKETS; k++)
        for (int i = 0; i < w.buckets[k].size; i++)
            if (w.buckets[k].slots[i].state == SLOT_FREE)
                stash[count++] = (struct free_slot){k * BUCKET_SLOTS + i, w.buckets[k].slots[i].generation};
    return count;
}

static void define_coupon(void)
{
    struct coupon c;
    struct decision d;
    struct outcome out;

    coupon_init(&c);
    c.id = "c";
    c.title = "a coupon";
    c.state = COUPON_ACTIVE;
    c.cap.total = SLOTS;
    c.cap.per_user = 12;
    c.cap.per_user_per_day = 6;
    c.cap.per_day = 60;
    c.cap.discount_minor = 100000;
    c.discount.kind = DISCOUNT_AMOUNT;
    c.discount.amount_minor = 500;
    c.discount.currency = "EUR";
    c.discount.min_spend_minor = 0;
    begin(&d);
    decide_create(&d, &c, &out);
    assert_int_equal(out.result, CPN_OK);
    append(&d);
    begin(&d);
    decide_generate(&d, copy_of(&w.job), 1, SLOTS, &out);
    assert_int_equal(out.result, CPN_OK);
    append(&d);
}

static void take(struct decision *d, struct use *u, int64_t number)
{
    char text[32];
    struct order order = {.amount_minor = 4200, .currency = "EUR"};
    struct take t = {.order = &order, .state = SLOT_REDEEMED};
    struct outcome out;

    snprintf(text, sizeof text, "key-%" PRId64, number);
    t.key = arena_strdup(&w.arena, text);
    order.id = number % 3 ? arena_printf(&w.arena, "order-%" PRId64, number) : NULL;
    t.metadata = number % 5 ? NULL : "{\"a\":1}";
    assert_true(decide_take(d, u, &t, &out));
}

/* A batch of a few takings and returns. */
static void live(int64_t *number)
{
    struct free_slot stash[SLOTS];
    struct use *working[USERS] = {NULL};
    struct decision d;

    begin(&d);
    d.stash = stash;
    d.stash_count = stash_of(stash);
    for (int i = 0; i < 5; i++) {
        int who = rand() % USERS;
        struct use *u = working[who] ? working[who] : (working[who] = copy_of(&w.uses[who]));
        struct outcome out;

        if (rand() % 3 || !u->count)
            take(&d, u, (*number)++);
        else
            decide_reverse(&d, u, u->redemptions[u->count - 1].n, u->redemptions[u->count - 1].g, &out);
    }
    append(&d);
}

static void change_cap(int64_t total)
{
    struct coupon *next = coupon_copy(w.coupon, &w.arena);
    struct free_slot stash[SLOTS];
    struct decision d;
    struct outcome out;

    next->cap.total = total;
    begin(&d);
    decide_change(&d, next, w.coupon->version, &out);
    assert_int_equal(out.result, CPN_OK);
    append(&d);
    begin(&d);
    d.stash = stash;
    d.stash_count = stash_of(stash);
    decide_retire(&d, 100);
    append(&d);
}

static int make_world(void **state)
{
    int64_t number = 0;

    (void)state;
    srand(7);
    memset(&w, 0, sizeof w);
    arena_init(&w.arena, 0);
    for (int i = 0; i < USERS; i++) {
        char alias[ID_ALIAS_LEN + 1];

        id_random(alias, ID_ALIAS_LEN);
        use_init(&w.uses[i], arena_printf(&w.arena, "u-%d", i), alias);
    }
    use_init(&w.job, JOB_USER_PREFIX "j1", "");
    for (int k = 0; k < BUCKETS; k++)
        bucket_init(&w.buckets[k], k);
    define_coupon();
    while (w.count < 40)
        live(&number);
    change_cap(180);
    while (w.count < 60)
        live(&number);
    found[0] = '\0';
    found_count = 0;
    return 0;
}

static int end_world(void **state)
{
    (void)state;
    for (size_t i = 0; i < w.count; i++)
        batch_free(w.ledger[i]);
    for (int k = 0; k < BUCKETS; k++)
        bucket_release(&w.buckets[k]);
    buf_free(&w.scratch);
    arena_free(&w.arena);
    return 0;
}

/* ---- telling it again ---- */

struct options {
    int64_t views_mark, totals_mark; /* -1: the tail */
    size_t skip;                     /* 1-based seq of a batch that is left out; 0: none */
    size_t until;                    /* the last batch told; 0: all */
};

static void tell_part(const struct options *o, unsigned part, unsigned parts)
{
    struct replay *r = replay_new(0, (struct replay_part){part, parts, parts > 1 ? 1 : 0}, note, NULL);
    size_t until = o->until ? o->until : w.count;

    replay_marks(r, o->views_mark < 0 ? w.tail.seq : o->views_mark, o->totals_mark < 0 ? w.tail.seq : o->totals_mark);
    if (part == 0) {
        replay_view_coupon(r, w.coupon, 41);
        replay_totals(r, w.rows, w.row_count);
    }
    for (int i = 0; i < USERS; i++)
        if (w.uses[i].seq)
            replay_view_use(r, &w.uses[i]);
    if (w.job.seq)
        replay_view_use(r, &w.job);
    for (int k = 0; k < BUCKETS; k++)
        if (w.buckets[k].seq)
            replay_view_bucket(r, &w.buckets[k]);
    for (size_t i = 0; i < until; i++)
        if (i + 1 != o->skip)
            replay_batch(r, w.ledger[i]);
    replay_end(r);
    replay_free(r);
}

static const struct options whole = {-1, -1, 0, 0};

static void tell(void)
{
    found[0] = '\0';
    found_count = 0;
    tell_part(&whole, 0, 1);
}

static void expect(const char *line)
{
    if (!strstr(found, line))
        fail_msg("no drift \"%s\" in:\n%s", line, found);
}

static void expect_only(const char *line)
{
    tell();
    expect(line);
    if (found_count != 1)
        fail_msg("more than \"%s\" in:\n%s", line, found);
}

static void a_sound_world_has_no_drift(void **state)
{
    (void)state;
    tell();
    assert_string_equal(found, "");
    assert_true(w.tail.redeemed > 50);
    assert_int_equal(w.tail.slots, 180);
}

static void nor_has_it_in_parts(void **state)
{
    (void)state;
    for (unsigned parts = 2; parts < 6; parts++)
        for (unsigned part = 0; part < parts; part++)
            tell_part(&whole, part, parts);
    assert_string_equal(found, "");
}

static void parts_find_together_what_the_whole_finds(void **state)
{
    int64_t all;

    (void)state;
    for (int i = 0; i < USERS; i++)
        w.uses[i].total++;
    for (int k = 0; k < BUCKETS; k++)
        w.buckets[k].slots[3].generation += 5;
    tell();
    all = found_count;
    assert_true(all >= USERS + BUCKETS - 1);
    found_count = 0;
    found[0] = '\0';
    for (unsigned part = 0; part < 3; part++)
        tell_part(&whole, part, 3);
    assert_int_equal(found_count, all);
}

/* A use as it stood at the last batch before `seq` that touched it. */
static struct use earlier(int i, int64_t seq)
{
    struct use u;

    use_init(&u, w.uses[i].user, w.uses[i].alias);
    for (size_t k = 0; k < w.count && w.ledger[k]->head.seq < seq; k++)
        fold_use(&u, w.ledger[k], &w.arena);
    return u;
}

static void views_may_stand_anywhere_behind_the_tail_and_before_the_mark(void **state)
{
    struct options o = {30, 20, 0, 0};

    (void)state;
    for (int i = 0; i < USERS; i++)
        w.uses[i] = earlier(i, 31 + i);
    tell_part(&o, 0, 1);
    assert_string_equal(found, "");
}

static void a_view_behind_the_mark_is_a_drift(void **state)
{
    (void)state;
    w.uses[3] = earlier(3, w.uses[3].seq);
    expect_only("users|u-3|seq, below the mark|");
}

static void a_missing_view_is_a_drift(void **state)
{
    (void)state;
    w.uses[4].seq = 0;
    expect_only("users|u-4|seq of a view that is missing|");
}

static void a_view_that_the_ledger_does_not_know_is_a_drift(void **state)
{
    (void)state;
    memset(w.uses[5].alias, 'z', ID_ALIAS_LEN);
    tell();
    expect("users|u-5|seq of a view of nothing in the ledger|0|");
}

static void changed_counts_and_redemptions_are_drifts(void **state)
{
    (void)state;
    w.uses[6].total += 2;
    tell();
    expect("users|u-6|total|");
    w.uses[6].total -= 2;
    w.uses[6].version++;
    expect_only("users|u-6|version|");
    w.uses[6].version--;
    w.uses[6].redemptions[0].discount_minor = 1;
    expect_only("discount_minor|500|1");
    w.uses[6].count--;
    expect_only("users|u-6|redemptions|");
}

static void a_changed_slot_is_a_drift(void **state)
{
    (void)state;
    w.buckets[0].slots[9].state = w.buckets[0].slots[9].state == SLOT_FREE ? SLOT_REDEEMED : SLOT_FREE;
    expect_only("buckets|bucket 0|slot 9 state|");
}

static void a_changed_definition_is_a_drift(void **state)
{
    struct coupon *c = coupon_copy(w.coupon, &w.arena);

    (void)state;
    c->cap.total = 5;
    w.coupon = c;
    expect_only("coupon|definition|/cap/total|180|5");
}

static void a_changed_entry_breaks_its_hash(void **state)
{
    (void)state;
    w.ledger[20]->entries[0].g += 7;
    tell();
    expect("ledger|seq 21|hash|");
    expect("generation");
}

static void changed_running_totals_are_drifts_even_with_a_right_hash(void **state)
{
    struct batch *b = w.ledger[59];

    (void)state;
    b->head.redeemed++;
    batch_hash(b, &w.scratch, b->head.hash);
    expect_only("ledger|seq 60|redeemed|");
}

static void a_deleted_batch_is_a_drift(void **state)
{
    struct options o = {-1, -1, 30, 0};

    (void)state;
    tell_part(&o, 0, 1);
    expect("ledger|seq 30|batches missing|0|1");
}

static void a_deleted_end_of_the_ledger_is_a_drift(void **state)
{
    struct options o = {-1, -1, 0, 50};

    (void)state;
    tell_part(&o, 0, 1);
    expect("marks|views|seq, beyond the ledger|50|60");
    expect("totals|");
    expect("users|");
}

static void changed_totals_are_drifts(void **state)
{
    (void)state;
    w.counts[3].redeemed--;
    expect_only("totals|quarter hour ");
    w.counts[3].redeemed++;
    w.rows[w.row_count - 1].seq--;
    expect_only("|seq|");
    w.row_count--;
    expect_only("|seq|");
}

static void a_total_of_no_batch_is_a_drift(void **state)
{
    (void)state;
    w.rows[w.row_count] = (struct totals_row){.quarter_ms = 0, .seq = 3, .counts = &w.counts[0]};
    w.row_count++;
    expect_only("totals|quarter hour 1970-01-01T00:00:00.000Z|row|none|one");
}

/* A batch that decides what must not be: as a bug of the engine would, with everything else right. */
static struct entry *forge(struct batch **batch, enum entry_kind kind, const struct use *u, int64_t n, uint32_t g)
{
    struct batch *b = batch_new("c", 0);
    struct entry *e = batch_add(b, kind);

    b->head = w.tail;
    b->head.seq++;
    memcpy(b->prev, w.tail.hash, HASH_LEN);
    e->n = n;
    e->g = g;
    memcpy(e->alias, u->alias, sizeof e->alias);
    e->user = u->user;
    e->ordinal = w.tail.ordinal + 1;
    memset(e->key, 0x5a, KEY_HASH_LEN);
    *batch = b;
    return e;
}

static void seal(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        fold_head_entry(&b->head, &b->entries[i]);
        b->entries[i].left = head_free(&b->head);
        b->entries[i].day = b->head.day_taken;
    }
    batch_hash(b, &w.scratch, b->head.hash);
    w.ledger[w.count++] = b;
    w.tail = b->head;
}

static int64_t slot_in_state(enum slot_state s)
{
    for (int64_t n = 0; n < SLOTS; n++)
        if (w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS].state == s)
            return n;
    return -1;
}

static struct options before_forgery(void)
{
    return (struct options){w.tail.seq, w.tail.seq, 0, 0};
}

static void a_slot_taken_twice_is_found(void **state)
{
    struct options o = before_forgery();
    int64_t n = slot_in_state(SLOT_REDEEMED);
    struct batch *b;

    (void)state;
    forge(&b, ENTRY_REDEEM, &w.uses[0], n, w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS].generation + 1);
    seal(b);
    tell_part(&o, 0, 1);
    expect("|state|a state that permits redeem|redeemed");
}

static void a_cap_of_a_user_that_was_passed_is_found(void **state)
{
    struct options o = before_forgery();
    struct batch *b;

    (void)state;
    for (int i = 0; i < 13; i++) {
        int64_t n = slot_in_state(SLOT_FREE);
        struct slot *s = &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];
        struct entry *e = forge(&b, ENTRY_REDEEM, &w.uses[1], n, s->generation + 1);

        e->key[0] = (uint8_t)i;
        s->state = SLOT_REDEEMED; /* for slot_in_state(); its view is not what is looked at here */
        seal(b);
    }
    tell_part(&o, 0, 1);
    expect("caps|seq 73 entry 0|per_user|at most 12|");
    expect("per_user_per_day|at most 6|");
}

static void a_key_that_took_twice_is_found(void **state)
{
    struct options o = before_forgery();
    struct batch *b;

    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t n = slot_in_state(SLOT_FREE);
        struct slot *s = &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];

        forge(&b, ENTRY_REDEEM, &w.uses[2], n, s->generation + 1);
        s->state = SLOT_REDEEMED;
        seal(b);
    }
    tell_part(&o, 0, 1);
    expect("ledger|seq 62 entry 0|key|used once|");
}

static void a_return_by_somebody_else_is_found(void **state)
{
    struct options o = before_forgery();
    int64_t n = slot_in_state(SLOT_REDEEMED);
    const struct slot *s = &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];
    int other = strcmp(s->user, w.uses[0].user) == 0;
    struct batch *b;

    (void)state;
    forge(&b, ENTRY_REVERSE, &w.uses[other], n, s->generation);
    seal(b);
    tell_part(&o, 0, 1);
    expect("|owner|");
    expect("|redemption|one that stands|none");
}

static void generating_what_is_there_is_found_and_harmless(void **state)
{
    struct options o = before_forgery();
    struct batch *b;

    (void)state;
    forge(&b, ENTRY_GENERATE, &w.uses[0], 10, 0)->count = 5;
    seal(b);
    forge(&b, ENTRY_GENERATE, &w.uses[0], INT64_MAX - 1000, 0)->count = 5;
    batch_hash(b, &w.scratch, b->head.hash);
    w.ledger[w.count++] = b;
    tell_part(&o, 0, 1);
    expect("slot 10|slot|not generated before|generated twice");
    expect("ledger|seq 62 entry 0|count|");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, end_world)
    const struct CMUnitTest tests[] = {
        TEST(a_sound_world_has_no_drift),
        TEST(nor_has_it_in_parts),
        TEST(parts_find_together_what_the_whole_finds),
        TEST(views_may_stand_anywhere_behind_the_tail_and_before_the_mark),
        TEST(a_view_behind_the_mark_is_a_drift),
        TEST(a_missing_view_is_a_drift),
        TEST(a_view_that_the_ledger_does_not_know_is_a_drift),
        TEST(changed_counts_and_redemptions_are_drifts),
        TEST(a_changed_slot_is_a_drift),
        TEST(a_changed_definition_is_a_drift),
        TEST(a_changed_entry_breaks_its_hash),
        TEST(changed_running_totals_are_drifts_even_with_a_right_hash),
        TEST(a_deleted_batch_is_a_drift),
        TEST(a_deleted_end_of_the_ledger_is_a_drift),
        TEST(changed_totals_are_drifts),
        TEST(a_total_of_no_batch_is_a_drift),
        TEST(a_slot_taken_twice_is_found),
        TEST(a_cap_of_a_user_that_was_passed_is_found),
        TEST(a_key_that_took_twice_is_found),
        TEST(a_return_by_somebody_else_is_found),
        TEST(generating_what_is_there_is_found_and_harmless),
    };

    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
