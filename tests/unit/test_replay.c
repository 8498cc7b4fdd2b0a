/*
 * Unit tests of verify/replay and verify/compare: a small world is decided batch by batch, as the engine would; replayed it has no
 * drift; and each thing that is changed behind the ledger's back is found.
 */
#include "cmocka_whole.h"
#include <inttypes.h>

#include "base/clock.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "unit/drifts.h"
#include "verify/replay_ends.h"
#include "verify/replay_lanes.h"
#include "verify/replay_repair.h"
#include "verify/replay_views.h"

#define BATCHES 160
#define USERS 20
#define SLOTS 200

struct world {
    struct arena arena;
    struct batch *ledger[BATCHES];
    size_t count;
    struct head tail;
    const struct coupon *coupon;
    struct user_state user_states[USERS];
    struct job_progress job;
    struct bucket buckets[SLOTS / BUCKET_SLOTS + 1];
    struct totals_row rows[BATCHES];
    struct report_counts counts[BATCHES];
    size_t row_count;
    int64_t coupon_seq; /* of its definition */
    struct checkpoint checkpoint;
    int64_t position_late_ms; /* the totals' position has another time than its batch */
    const char *wrong;     /* a member of batch wrong_seq, or of what is beside the ledger if that is 0 */
    int64_t wrong_seq;
    const char *erasing; /* an alias that batch erasing_seq lists */
    int64_t erasing_seq;
    bool codes_read;
    enum user_fold fold; /* of names */
    int64_t lost_code;  /* of a slot whose code is not where it should be; -1: none */
    struct buf scratch;
};
#define BUCKETS (SLOTS / BUCKET_SLOTS + 1)

static struct world w;
static bool has_entry(const struct batch *b, enum entry_kind one, enum entry_kind other)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].kind == one || b->entries[i].kind == other)
            return true;
    return false;
}

static const struct part all_of_it = {0, 1, INT64_C(1) << 40, 0, 1};

/* ---- making the world ---- */

static int64_t time_of(size_t batch)
{
    return 1000 * DAY_MS + (int64_t)batch * 20 * 60 * 1000; /* 72 batches a day */
}

static void fold_totals(const struct batch *b)
{
    int64_t quarter_ms = b->head.at_ms - b->head.at_ms % QUARTER_MS;
    struct report_counts counts = {0}, nothing = {0};
    struct code_counts by = {.rows = NULL};
    struct totals_row *row;

    fold_report(&counts, b);
    if (memcmp(&counts, &nothing, sizeof counts) == 0)
        return;
    if (!w.row_count || w.rows[w.row_count - 1].quarter_ms != quarter_ms) {
        assert_true(w.row_count < BATCHES);
        w.rows[w.row_count] = (struct totals_row){.quarter_ms = quarter_ms, .counts = &w.counts[w.row_count]};
        w.row_count++;
    }
    row = &w.rows[w.row_count - 1];
    fold_report(row->counts, b);
    if (row->by)
        code_counts_merge(&by, row->by);
    code_counts_fold(&by, b);
    row->by = by.count ? code_counts_in(&w.arena, &by) : NULL;
    row->seq = b->head.seq;
    code_counts_release(&by);
}

/* Its head is the tail. */
static void fold_views(const struct batch *b)
{
    w.coupon = fold_definition(w.coupon, b, &w.arena);
    if (has_entry(b, ENTRY_DEFINE, ENTRY_DELETE))
        w.coupon_seq = b->head.seq;
    for (int i = 0; i < USERS; i++)
        fold_user_state(&w.user_states[i], b, &w.arena);
    fold_job(&w.job, b);
    for (int k = 0; k < BUCKETS; k++) {
        fold_bucket(&w.buckets[k], b);
        bucket_fit(&w.buckets[k], w.tail.next_n);
    }
    fold_totals(b);
}

/* A copy to decide on: the world's own is folded from the batch. */
static struct user_state *copy_of(const struct user_state *u)
{
    return user_state_copy(u, &w.arena, true);
}

static const char *code_of(int64_t n)
{
    static char codes[SLOTS][8];

    snprintf(codes[n], sizeof codes[n], "C-%04d", (int)n);
    return codes[n];
}

/* ---- deciding a batch: every slot is named, and all that are free are in the free pool ---- */

static struct {
    struct decision d;
    struct free_slot free_pool[SLOTS];
    struct named_slot named[SLOTS];
    struct user_state *working[USERS];
} round_;
static struct outcome out; /* of what was decided last */

static void begin(void)
{
    int64_t at_ms = time_of(w.count), day_ms = at_ms - at_ms % DAY_MS;

    memset(round_.working, 0, sizeof round_.working);
    decide_begin(&round_.d, batch_new("c", 0), w.coupon, &w.tail, at_ms, day_ms, day_ms + DAY_MS);
}

static void append(void)
{
    struct batch *b = round_.d.batch;

    assert_int_equal(out.result, CPN_OK);
    if (!decide_changed(&round_.d)) {
        batch_free(b);
        return;
    }
    decide_end(&round_.d, &w.tail, &w.scratch);
    w.ledger[w.count++] = b;
    w.tail = b->head;
    fold_views(b);
}

static struct user_state *working(int who)
{
    if (!round_.working[who])
        round_.working[who] = copy_of(&w.user_states[who]);
    return round_.working[who];
}

static int who_is(const char *user)
{
    return atoi(user + 2);
}

static void begin_round(void)
{
    struct decision *d = &round_.d;
    size_t n = 0;

    begin();
    d->free_pool = round_.free_pool;
    d->named = round_.named;
    for (int k = 0; k < BUCKETS; k++)
        for (int i = 0; i < w.buckets[k].size; i++, n++) {
            const struct slot *s = &w.buckets[k].slots[i];

            round_.named[n] = (struct named_slot){(int64_t)n, *s, code_of((int64_t)n)};
            round_.named[n].slot.user = s->user ? strdup(s->user) : NULL;
            if (s->state == SLOT_FREE)
                round_.free_pool[d->free_pool_count++] = (struct free_slot){(int64_t)n, s->generation, code_of((int64_t)n)};
        }
    d->named_count = n;
    for (size_t i = 0; i < n; i++)
        if (slot_is_due(&round_.named[i].slot, d->head.at_ms, coupon_ends(d->coupon)) && round_.named[i].slot.user)
            decide_expire(d, working(who_is(round_.named[i].slot.user)), (int64_t)i, 0);
}

static void end_round(void)
{
    for (size_t i = 0; i < round_.d.named_count; i++)
        free(round_.named[i].slot.user);
    decide_events(&round_.d);
    out.result = CPN_OK; /* whatever was refused */
    append();
}

static void define_coupon(void)
{
    struct coupon c;
    struct job_progress job = w.job;
    const struct slot_request request = {.key = "k", .slots = SLOTS, .job = &job};
    int64_t turn;

    coupon_init(&c);
    c.id = "c";
    c.title = "a coupon";
    c.state = COUPON_ACTIVE;
    c.cap.total = SLOTS;
    c.cap.per_user = 12;
    c.cap.per_user_per_day = 8;
    c.cap.per_day = 100;
    c.cap.discount_minor = 100000;
    c.codes.source = CODES_GENERATED;
    c.low_stock = 140;
    c.valid_for_s = 4 * 3600;
    c.discount.kind = DISCOUNT_AMOUNT;
    c.discount.amount_minor = 500;
    c.discount.currency = "EUR";
    c.discount.min_spend_minor = 0;
    begin();
    decide_create(&round_.d, &c, &request, &out);
    append();
    begin();
    job = w.job;
    decide_turn(&round_.d, &job, 1, &turn, &out);
    append();
    begin();
    job = w.job;
    decide_generate(&round_.d, &job, 1, SLOTS, turn, &out);
    append();
    begin();
    job = w.job;
    decide_turn_end(&round_.d, &job, &out);
    append();
}

static const struct order *order_of(int64_t number)
{
    struct order *o = arena_alloc(&w.arena, sizeof *o);

    *o = (struct order){.amount_minor = 4200, .currency = "EUR"};
    o->id = number % 3 ? arena_printf(&w.arena, "order-%" PRId64, number) : NULL;
    return o;
}

static void take(struct user_state *u, int64_t number)
{
    static const enum slot_state states[] = {SLOT_REDEEMED, SLOT_ISSUED, SLOT_RESERVED};
    struct take t = {.order = order_of(number), .state = states[rand() % 3], .code_n = -1};

    t.key = arena_printf(&w.arena, "key-%" PRId64, number);
    t.reserve_s = rand() % 2 ? 900 : 7200;
    t.metadata = number % 5 ? NULL : "{\"a\":1}";
    assert_true(decide_take(&round_.d, u, &t, &out));
}

static void go_on(struct user_state *u, int64_t number)
{
    static const enum slot_move steps[] = {MOVE_RESERVE, MOVE_REDEEM, MOVE_CANCEL, MOVE_REVERSE};
    const struct redemption *r = &u->redemptions[(size_t)rand() % u->count];
    struct step s = {.n = r->n, .g = r->g, .move = steps[rand() % 4], .order = order_of(number), .reserve_s = 7200};

    s.key = s.move <= MOVE_REDEEM ? arena_printf(&w.arena, "key-%" PRId64, number) : NULL;
    s.keep_use = number % 3 == 0;
    if (r->state == SLOT_REDEEMED && number % 2) {
        s.adjusts = true;
        s.key = arena_printf(&w.arena, "key-%" PRId64, number);
        s.discount_minor = r->price.discount_minor / 2;
        s.order = number % 4 == 1 ? NULL : s.order;
    }
    decide_step(&round_.d, u, &s, &out);
}

/* A batch of a few takings, and of steps of what was taken. */
static void live(int64_t *number)
{
    begin_round();
    for (int i = 0; i < 6; i++) {
        struct user_state *u = working(rand() % USERS);

        if (rand() % 2 || !u->count)
            take(u, (*number)++);
        else
            go_on(u, (*number)++);
    }
    end_round();
}

static void change(const struct coupon *next)
{
    begin();
    decide_change(&round_.d, next, w.coupon->version, true, &out);
    decide_events(&round_.d);
    append();
}

static void change_cap(int64_t total)
{
    struct coupon *next = coupon_copy(w.coupon, &w.arena);

    next->cap.total = total;
    change(next);
    begin_round();
    decide_retire(&round_.d, 100);
    end_round();
}

/* The names of whoever has this alias leave the ledger. */
static void empty_names(const char *alias)
{
    for (size_t i = 0; i < w.count; i++)
        for (size_t k = 0; k < w.ledger[i]->count; k++) {
            struct entry *e = &w.ledger[i]->entries[k];

            if (strcmp(e->alias, alias) == 0)
                e->user = e->order = e->metadata = e->code = NULL;
        }
}

static void erase(int who, bool names_too)
{
    char alias[ID_ALIAS_LEN + 1];

    memcpy(alias, w.user_states[who].alias, sizeof alias);
    begin_round();
    decide_erase(&round_.d, working(who), &out);
    assert_int_equal(out.result, CPN_OK);
    end_round();
    if (names_too)
        empty_names(alias);
}

/* Of what stands; 0: nothing ends. */
static int64_t first_end(void)
{
    int64_t due_ms = 0;

    for (int i = 0; i < USERS; i++)
        due_ms = sooner_ms(user_state_due(&w.user_states[i], coupon_ends(w.coupon)), due_ms);
    return due_ms;
}

#define ERASED 7
#define STAYED_AWAY 8

FIXTURE(make_world)
{
    int64_t number = 0;

    srand(7);
    memset(&w, 0, sizeof w);
    arena_init(&w.arena, 0);
    for (int i = 0; i < USERS; i++) {
        char alias[ID_ALIAS_LEN + 1];

        id_random(alias, ID_ALIAS_LEN);
        user_state_init(&w.user_states[i], arena_printf(&w.arena, "u-%d", i), alias);
    }
    w.job = (struct job_progress){.id = "j1"};
    for (int k = 0; k < BUCKETS; k++)
        bucket_init(&w.buckets[k], k);
    define_coupon();
    while (w.count < 40)
        live(&number);
    erase(ERASED, true);
    change_cap(180);
    while (w.count < 80)
        live(&number);
    erase(STAYED_AWAY, true);
    w.codes_read = true;
    w.lost_code = -1;
    w.checkpoint = (struct checkpoint){.seq = w.tail.seq, .due_ms = first_end()};
    forget_found();
    return 0;
}

FIXTURE(end_world)
{
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
    int64_t checkpoint_seq, totals_seq; /* -1: the tail */
    size_t skip;                     /* 1-based seq of a batch that is left out; 0: none */
    size_t until;                    /* the last batch replayed; 0: all */
};

static void give_codes(struct replay *r)
{
    r->codes_next_n = SLOTS;
    for (int k = 0; k < BUCKETS; k++) {
        const char *codes[BUCKET_SLOTS] = {NULL};

        for (int64_t n = k * BUCKET_SLOTS; n < SLOTS && n < (k + 1) * BUCKET_SLOTS; n++)
            codes[n % BUCKET_SLOTS] = n == w.lost_code ? NULL : code_of(n);
        replay_codes(r, k, codes, NULL);
    }
}

static int64_t changed_ms(void)
{
    return w.coupon_seq ? w.ledger[w.coupon_seq - 1]->head.at_ms : 0;
}

static void give_stored(struct replay *r, const struct options *o)
{
    const struct stored_coupon coupon = {.is_there = true, .definition = (struct coupon *)w.coupon, .seq = w.coupon_seq,
                                         .created_ms = time_of(0), .changed_ms = changed_ms(), .wrong = w.wrong_seq ? NULL : w.wrong};

    int64_t position = o->totals_seq < 0 ? w.tail.seq : o->totals_seq;

    r->written = (struct replay_written){
        o->checkpoint_seq < 0 ? w.tail.seq : o->checkpoint_seq, position,
        position > 0 && (size_t)position <= w.count ? w.ledger[position - 1]->head.at_ms + w.position_late_ms : 0};
    if (replay_is_first(r)) {
        replay_view_coupon(r, &coupon);
        replay_totals(r, w.rows, w.row_count);
    }
    for (int k = 0; k < BUCKETS; k++)
        if (w.buckets[k].seq)
            replay_view_bucket(r, k, &w.buckets[k], NULL);
    if (w.codes_read)
        give_codes(r);
}

static void give_batch(struct replay *r, struct batch *b)
{
    struct stored_batch stored = {.batch = b, .erasing_readable = true, .erasing = {&w.erasing, b->head.seq == w.erasing_seq},
                                  .wrong = b->head.seq == w.wrong_seq ? w.wrong : NULL};
    uint8_t hash[HASH_LEN];

    batch_hash(b, &w.scratch, hash);
    replay_stored(r, &stored, hash);
}

/* tell: NULL, or gets the repairs of each part. What cannot be compared with the checkpoint is noted in ends. */
static void tell_all(const struct options *o, unsigned parts, bool all, repair_fn *tell, struct lane_ends *ends)
{
    size_t until = o->until ? o->until : w.count;

    for (unsigned i = 0; i < parts; i++) {
        const struct part part = part_of(i, parts, SLOTS, 0, 1);
        struct replay *r = replay_new(&part, note, NULL);

        r->lane_ends = ends;
        r->fold = w.fold;
        give_stored(r, o);
        for (size_t k = 0; k < until; k++)
            if (k + 1 != o->skip)
                give_batch(r, w.ledger[k]);
        replay_end(r);
        if (tell)
            replay_repairs(r, all, tell, NULL);
        replay_free(r);
    }
}

static void tell_in(const struct options *o, unsigned parts)
{
    struct lane_ends ends = {.found = {.is_there = true, .readable = true, .checkpoint = w.checkpoint}};

    tell_all(o, parts, false, NULL, &ends);
    if (o->checkpoint_seq < 0)
        lane_ends_report(&ends, note, NULL);
    lane_ends_release(&ends);
}

static const struct options whole = {-1, -1, 0, 0};

static void tell(void)
{
    forget_found();
    tell_in(&whole, 1);
}

static void expect_only(const char *line)
{
    tell();
    expect_drift(line);
    if (found_count != 1)
        fail_msg("more than \"%s\" in:\n%s", line, found);
}

static void expect_each(const char *const lines[])
{
    tell();
    for (; *lines; lines++)
        expect_drift(*lines);
}
/* Each of these lines is found, among others. */
#define expect_drifts(...) expect_each((const char *const[]){__VA_ARGS__, NULL})

static void expect_nothing(void)
{
    tell();
    assert_string_equal(found, "");
}

static int64_t count_entries(enum entry_kind kind)
{
    int64_t count = 0;

    for (size_t i = 0; i < w.count; i++)
        for (size_t k = 0; k < w.ledger[i]->count; k++)
            count += w.ledger[i]->entries[k].kind == kind;
    return count;
}

TEST(a_sound_world_has_no_drift)
{
    expect_nothing();
    for (enum entry_kind kind = 0; kind < ENTRY_KIND_COUNT; kind++)
        if (kind != ENTRY_DELETE && kind != ENTRY_ARCHIVE && kind != ENTRY_TICK && kind != ENTRY_SOLD_OUT && kind != ENTRY_REPLENISH &&
            kind != ENTRY_RESTORED && count_entries(kind) == 0)
            fail_msg("the world has no %s", entry_kind_name(kind));
    assert_true(w.user_states[ERASED].alias[0]); /* is back */
    assert_false(w.user_states[STAYED_AWAY].alias[0]);
}

TEST(nor_has_it_in_parts)
{
    for (unsigned parts = 2; parts < 6; parts++)
        tell_in(&whole, parts);
    assert_string_equal(found, "");
}

TEST(parts_find_together_what_the_whole_finds)
{
    int64_t all;

    for (int k = 0; k < BUCKETS; k++)
        w.buckets[k].slots[3].generation += 5;
    empty_names(w.user_states[3].alias);
    empty_names(w.user_states[4].alias);
    tell();
    all = found_count;
    assert_true(all > BUCKETS);
    forget_found();
    tell_in(&whole, 3);
    assert_int_equal(found_count, all);
}

/* A bucket as it stood at the last batch before `seq` that touched it. */
static void set_back(int k, int64_t seq)
{
    bucket_release(&w.buckets[k]);
    bucket_init(&w.buckets[k], k);
    for (size_t i = 0; i < w.count && w.ledger[i]->head.seq < seq; i++)
        fold_bucket(&w.buckets[k], w.ledger[i]);
}

TEST(views_may_stand_anywhere_behind_the_tail_and_before_the_checkpoint)
{
    struct options o = {30, 20, 0, 0};

    for (int k = 0; k < BUCKETS; k++)
        set_back(k, 31 + 10 * k);
    for (unsigned parts = 1; parts < 4; parts++)
        tell_in(&o, parts);
    assert_string_equal(found, "");
}

TEST(a_view_behind_the_checkpoint_is_a_drift)
{
    set_back(0, w.buckets[0].seq);
    expect_only("buckets|bucket 0|seq, below the checkpoint|");
}

TEST(a_missing_view_is_a_drift)
{
    w.buckets[1].seq = 0;
    expect_only("buckets|bucket 1|seq of a view that is missing|");
}

TEST(a_member_that_is_not_as_the_service_writes_it_is_a_drift)
{
    w.wrong = "view.live";
    expect_only("coupons|definition|view.live|as the service writes it|another");
    w.wrong = "terms";
    w.wrong_seq = 5;
    expect_only("ledger|seq 5|terms|what its entries and names say|another");
    w.wrong = "more";
    expect_only("ledger|seq 5|more|as the service writes it|another");
}

TEST(a_name_that_is_not_folded_is_a_drift)
{
    size_t i = 0;

    w.fold = USERS_CASE;
    expect_nothing();
    while (!w.ledger[i]->entries[0].user)
        i++;
    w.ledger[i]->entries[0].user = "U-1";
    expect_drifts("|user|folded as users.fold says|spelled otherwise");
    w.fold = USERS_NONE;
    tell();
    assert_null(strstr(found, "folded as"));
}

/* ---- the checkpoint ---- */

TEST(a_checkpoint_beyond_the_ledger_is_a_drift)
{
    w.checkpoint.seq++;
    expect_only("lanes|checkpoint|seq, beyond the ledger|");
}

TEST(a_checkpoint_that_is_due_too_late_is_a_drift)
{
    assert_true(w.checkpoint.due_ms > 0);
    w.checkpoint.due_ms++;
    expect_only("lanes|checkpoint|due|at most ");
    w.checkpoint.due_ms = 0;
    expect_only("lanes|checkpoint|due|at most ");
    w.checkpoint.due_ms = 1; /* wakes the sweeper in vain */
    expect_nothing();
}

TEST(a_checkpoint_swept_beyond_now_is_a_drift)
{
    struct lane_ends ends = {.found = {.is_there = true, .readable = true, .checkpoint = w.checkpoint}, .now_ms = 5};

    ends.found.checkpoint.swept_ms = 5;
    tell_all(&whole, 1, false, NULL, &ends);
    assert_int_equal(lane_ends_fault(&ends, false), FAULT_NONE);
    ends.found.checkpoint.swept_ms = 6; /* holds that end before are not looked at: their slots would stay taken */
    assert_int_equal(lane_ends_fault(&ends, false), FAULT_DIFFERENT);
    assert_int_equal(lane_ends_repaired(&ends, false).swept_ms, 0);
    forget_found();
    lane_ends_report(&ends, note, NULL);
    expect_drift("lanes|checkpoint|swept|at most 5|6");
}

TEST(a_mark_of_another_time_is_a_drift)
{
    w.position_late_ms = 1;
    expect_only("totals_positions|totals|at|");
}

TEST(a_checkpoint_is_repaired_from_the_ledger)
{
    for (unsigned parts = 1; parts < 4; parts++) {
        struct lane_ends ends = {.found = {.is_there = true, .readable = true, .checkpoint = {.seq = w.tail.seq + 5}}};
        struct checkpoint repaired;

        tell_all(&whole, parts, false, NULL, &ends);
        assert_int_equal(lane_ends_fault(&ends, false), FAULT_DIFFERENT);
        repaired = lane_ends_repaired(&ends, false);
        assert_int_equal(repaired.seq, w.tail.seq);
        assert_int_equal(repaired.due_ms, first_end());
        assert_int_equal(repaired.swept_ms, 0);
        ends = (struct lane_ends){.found = {.is_there = true, .readable = true, .checkpoint = w.checkpoint}};
        tell_all(&whole, parts, false, NULL, &ends);
        assert_int_equal(lane_ends_fault(&ends, true), FAULT_NONE);
    }
}

TEST(a_changed_slot_is_a_drift)
{
    w.buckets[0].slots[9].state = w.buckets[0].slots[9].state == SLOT_FREE ? SLOT_REDEEMED : SLOT_FREE;
    expect_only("buckets|bucket 0|slot 9 state|");
}

TEST(a_code_that_was_not_issued_by_its_view_is_a_drift)
{
    int i = 0;

    while (i < BUCKET_SLOTS && !w.buckets[0].slots[i].issued)
        i++;
    assert_true(i < BUCKET_SLOTS);
    w.buckets[0].slots[i].issued = false;
    expect_only(arena_printf(&w.arena, "buckets|bucket 0|slot %d issued|true|false", i));
}

TEST(a_changed_definition_is_a_drift)
{
    struct coupon *c = coupon_copy(w.coupon, &w.arena);

    c->cap.total = 5;
    w.coupon = c;
    expect_only("coupons|definition|/cap/total|180|5");
}

TEST(a_changed_entry_breaks_its_hash)
{
    w.ledger[20]->entries[0].g += 7;
    expect_drifts("ledger|seq 21|hash|", "generation");
}

TEST(changed_running_totals_are_drifts_even_with_a_right_hash)
{
    struct batch *b = w.ledger[w.count - 1];

    b->head.redeemed++;
    batch_hash(b, &w.scratch, b->head.hash);
    expect_only("|redeemed|");
}

TEST(a_deleted_batch_is_a_drift)
{
    struct options o = {-1, -1, 30, 0};

    tell_in(&o, 1);
    expect_drift("ledger|seq 30|batches missing|0|1");
}

TEST(a_deleted_end_of_the_ledger_is_a_drift)
{
    struct options o = {-1, -1, 0, 50};

    tell_in(&o, 1);
    expect_drift("lanes|checkpoint|seq, beyond the ledger|50|81");
    expect_drift("totals|");
}

TEST(changed_totals_are_drifts)
{
    w.counts[3].redeemed--;
    expect_only("totals|quarter hour ");
    w.counts[3].redeemed++;
    w.rows[w.row_count - 1].seq--;
    expect_only("|seq|");
    w.row_count--;
    expect_only("|seq|");
}

TEST(a_total_of_no_batch_is_a_drift)
{
    w.rows[w.row_count] = (struct totals_row){.quarter_ms = 0, .seq = 3, .counts = &w.counts[0]};
    w.row_count++;
    expect_only("totals|quarter hour 1970-01-01T00:00:00.000Z|row|none|one");
}

/* ---- a batch that decides what must not be: as a bug of the engine would, with everything else right ---- */

static struct batch *forged;

static void open_batch(int64_t later_ms)
{
    int64_t at_ms = w.tail.at_ms + later_ms;

    forged = batch_new("c", 0);
    forged->head = w.tail;
    forged->head.seq++;
    fold_day(&forged->head, at_ms, at_ms - at_ms % DAY_MS);
    memcpy(forged->prev, w.tail.hash, HASH_LEN);
}

static struct entry *forge_entry(int64_t later_ms, enum entry_kind kind)
{
    open_batch(later_ms);
    return batch_add(forged, kind);
}

static struct entry *forge(enum entry_kind kind, int who)
{
    struct entry *e = batch_add(forged, kind);
    const struct user_state *u = &w.user_states[who];

    memcpy(e->alias, u->alias, sizeof e->alias);
    e->user = u->user;
    e->before = u->seq;
    if (entry_members[kind] & HAS_KEY) {
        memset(e->key, 0x5a, KEY_HASH_LEN);
        e->key[0] = (uint8_t)w.count;
        e->key[1] = (uint8_t)forged->count;
    }
    return e;
}

/* Totals that follow, a hash that is right; views that follow too. */
static void seal(bool with_views)
{
    struct batch *b = forged;

    for (size_t i = 0; i < b->count; i++) {
        struct entry *e = &b->entries[i];

        if (entry_members[e->kind] & HAS_TAKING)
            e->ordinal = b->head.ordinal + 1;
        fold_head_entry(&b->head, e);
        e->left = b->head.next_n ? head_free(&b->head) : COUPON_NULL;
        e->day = b->head.day_taken;
    }
    batch_hash(b, &w.scratch, b->head.hash);
    w.ledger[w.count++] = b;
    w.tail = b->head;
    if (with_views)
        fold_views(b);
}

#define expect_forged(...) (seal(true), expect_drifts(__VA_ARGS__))

static void expect_forgery(const char *line)
{
    seal(true);
    expect_only(line);
}

static struct slot *slot_at(int64_t n)
{
    return &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];
}

static int64_t slot_in_state(enum slot_state state)
{
    for (int64_t n = 0; n < SLOTS; n++)
        if (slot_at(n)->state == state)
            return n;
    fail_msg("no slot is %s", slot_state_name(state));
    return -1;
}

/* The next forged taking of a free slot. */
static struct entry *forge_taking(enum entry_kind kind, int who, int64_t n)
{
    struct entry *e = forge(kind, who);

    e->n = n;
    e->g = slot_at(n)->generation + 1;
    e->code = code_of(n);
    e->valid_until_ms = kind == ENTRY_ISSUE ? forged->head.at_ms + 4 * 3600 * 1000 : 0;
    e->reserved_until_ms = kind == ENTRY_RESERVE ? forged->head.at_ms + 900 * 1000 : 0;
    return e;
}

/* A batch of a taking of a free slot. */
static struct entry *forge_free(int64_t later_ms, enum entry_kind kind, int who)
{
    open_batch(later_ms);
    return forge_taking(kind, who, slot_in_state(SLOT_FREE));
}

/* A redemption that stands in this state at the tail, not held. */
static const struct redemption *standing_in(enum slot_state state, int *who)
{
    for (*who = 0; *who < USERS; ++*who)
        for (size_t i = 0; i < w.user_states[*who].count; i++) {
            const struct redemption *r = &w.user_states[*who].redemptions[i];

            if (redemption_state(r, w.tail.at_ms, coupon_ends(w.coupon)) == state &&
                !user_state_hold_on(&w.user_states[*who], r, w.tail.at_ms) && !r->from)
                return r;
        }
    fail_msg("nothing is %s", slot_state_name(state));
    return NULL;
}

/* An entry about r with all that it must repeat. */
static struct entry *forge_step(enum entry_kind kind, int who, const struct redemption *r)
{
    struct entry *e = forge(kind, who);

    e->n = r->n;
    e->g = r->g;
    e->from_n = r->from_n;
    e->from = r->from;
    e->since = r->last_seq;
    e->was = r->state;
    e->discount_minor = e->held_minor = r->price.discount_minor;
    e->order_minor = r->price.order_minor;
    e->same_day = r->day_ms == forged->head.day_ms;
    if (kind == ENTRY_EXTEND || kind == ENTRY_HOLD)
        e->reserved_until_ms = forged->head.at_ms + 600 * 1000;
    return e;
}

/* A batch of a step of one that stands in this state. */
static struct entry *forge_step_on(enum slot_state state, enum entry_kind kind)
{
    int who;
    const struct redemption *r = standing_in(state, &who);

    open_batch(0);
    return forge_step(kind, who, r);
}

static struct entry *forge_hold(int who, const struct redemption *r)
{
    struct entry *e = forge_step(ENTRY_HOLD, who, r);

    e->g = slot_at(r->n)->generation + 1;
    e->from_n = r->n;
    e->from = r->g;
    e->discount_minor = 0;
    return e;
}

TEST(forgeries_without_a_mistake_are_none)
{
    static const enum entry_kind kinds[] = {ENTRY_ISSUE, ENTRY_RESERVE, ENTRY_REDEEM};
    const struct redemption *r;
    int who;

    for (int i = 0; i < 3; i++) {
        open_batch(1);
        forge_taking(kinds[i], 0, slot_in_state(SLOT_FREE));
        seal(true);
    }
    r = standing_in(SLOT_ISSUED, &who);
    open_batch(1);
    forge_hold(who, r);
    seal(true);
    r = standing_in(SLOT_RESERVED, &who);
    open_batch(1);
    forge_step(ENTRY_EXTEND, who, r);
    seal(true);
    open_batch(1);
    forge_step(ENTRY_CANCEL, who, user_state_by_slot(&w.user_states[who], r->n, r->g));
    seal(true);
    expect_nothing();
}

/* ---- slots ---- */

TEST(a_slot_taken_twice_is_found)
{
    open_batch(0);
    forge_taking(ENTRY_REDEEM, 0, slot_in_state(SLOT_REDEEMED));
    expect_forgery("|state|a state that permits redeem|redeemed");
}

TEST(a_wrong_generation_is_found)
{
    forge_free(0, ENTRY_REDEEM, 0)->g += 3;
    expect_forgery("|generation|");
}

TEST(a_slot_that_was_never_generated_is_found)
{
    struct entry *e = forge_free(0, ENTRY_REDEEM, 0);

    e->n = SLOTS;
    seal(false);
    expect_drifts("slot 200|slot|generated before|never generated");
}

TEST(a_hold_on_another_generation_is_found)
{
    int who;
    const struct redemption *r = standing_in(SLOT_ISSUED, &who);

    open_batch(0);
    forge_hold(who, r)->from += 1;
    expect_forged("|from|", "|redemption|one that has not ended|none");
}

TEST(a_state_that_it_was_not_in_is_found)
{
    forge_step_on(SLOT_ISSUED, ENTRY_CANCEL)->was = SLOT_RESERVED;
    expect_forged("|was|issued|reserved", "|redemption|in a state that permits it|issued");
}

TEST(a_return_by_somebody_else_is_found)
{
    const struct redemption *r;
    struct entry *e;
    int who, other;

    r = standing_in(SLOT_REDEEMED, &who);
    other = who ? 0 : 1;
    open_batch(0);
    e = forge_step(ENTRY_REVERSE, other, r);
    e->since = 0;
    expect_forged("|owner|", "|redemption|one that has not ended|none");
}

TEST(closing_what_is_open_is_found_and_so_is_what_comes_after)
{
    char issued[64];

    open_batch(1);
    snprintf(issued, sizeof issued, "|issued|0|%" PRId64, w.tail.issued);
    batch_add(forged, ENTRY_ARCHIVE);
    seal(true);
    forge_free(1, ENTRY_REDEEM, 0);
    expect_forged(issued, "|state|ended|another", "|archived|nothing but an erasure after it|redeem");
}

static struct entry *forge_restored(int64_t epoch)
{
    struct entry *e = batch_add(forged, ENTRY_RESTORED);

    e->count = epoch;
    return e;
}

TEST(what_is_given_out_after_a_restore_as_before_it_is_found)
{
    int64_t n = slot_in_state(SLOT_FREE);
    struct entry *e;

    open_batch(1);
    forge_restored(2);
    e = forge_taking(ENTRY_REDEEM, 0, n);
    e->g = 2 * EPOCH_GENERATIONS + 1;
    seal(true);
    expect_nothing();
    forge_free(1, ENTRY_REDEEM, 0);
    expect_forged("|generation|200000001|");
}

TEST(a_restore_is_reported_once_and_first)
{
    char where[64];

    open_batch(1);
    forge_restored(1);
    seal(true);
    expect_nothing();
    for (int64_t epoch = 1; epoch <= EPOCH_MOST + 1; epoch += EPOCH_MOST) { /* again; more often than can be */
        open_batch(1);
        forge_restored(epoch);
        seal(true);
        tell();
        snprintf(where, sizeof where, "ledger|seq %" PRId64 "|epoch|", w.tail.seq);
        expect_drift(where);
    }
}

TEST(nothing_comes_after_what_left)
{
    for (int i = 0; i < 3; i++) {
        forge_entry(1, ENTRY_ARCHIVE);
        seal(true);
    }
    expect_drifts("|archived|nothing after it|archive");
}

TEST(generating_what_is_there_is_found_and_harmless)
{
    struct entry *e = forge_entry(0, ENTRY_GENERATE);

    e->n = 10;
    e->count = 5;
    seal(false);
    e = forge_entry(0, ENTRY_GENERATE);
    e->n = INT64_MAX - 1000;
    e->count = 5;
    batch_hash(forged, &w.scratch, forged->head.hash);
    w.ledger[w.count++] = forged;
    expect_drifts("seq 82|n|", "entry 0|count|");
}

/* ---- users and their redemptions ---- */

TEST(a_key_that_called_twice_is_found)
{
    struct entry *e = forge_free(0, ENTRY_REDEEM, 2);

    memcpy(e->key, w.user_states[2].redemptions[0].key, KEY_HASH_LEN);
    expect_forgery("|key|used once|");
}

TEST(a_broken_chain_of_a_user_is_found)
{
    forge_free(0, ENTRY_REDEEM, 2)->before -= 1;
    expect_forgery("entry 0|before|");
}

TEST(what_an_entry_repeats_wrongly_is_found)
{
    static const char *const lines[] = {"|since|", "|discount_minor|", "|same_day|", "|order_minor|"};
    struct entry *e;

    for (int i = 0; i < 4; i++) {
        e = forge_step_on(SLOT_REDEEMED, ENTRY_REVERSE);
        e->since += i == 0;
        e->discount_minor += i == 1;
        e->same_day ^= i == 2;
        e->order_minor += i == 3;
        seal(true);
        tell();
        expect_drift(lines[i]);
    }
}

TEST(a_spending_that_forgets_what_was_held_is_found)
{
    forge_free(0, ENTRY_RESERVE, 0);
    seal(true);
    forge_step_on(SLOT_RESERVED, ENTRY_SPEND)->held_minor += 5;
    expect_forgery("|held_minor|");
}

TEST(an_adjustment_that_is_none_is_found)
{
    static const char *const lines[] = {"|held_minor|", "|held_order_minor|", "|discount_minor|a lower one|a higher one", "|order_minor|"};
    const struct redemption *r;
    struct entry *e;
    int who;

    for (int i = 0; i < 4; i++) {
        forge_free(0, ENTRY_REDEEM, 2);
        seal(true);
        r = standing_in(SLOT_REDEEMED, &who);
        open_batch(0);
        e = forge_step(ENTRY_ADJUST, who, r);
        e->held_order_minor = r->price.order_minor;
        e->version = 99; /* of no definition in force: so it is a lower one's alone */
        if (i == 0)
            e->held_minor += 5;
        else if (i == 1)
            e->held_order_minor += 5;
        else if (i == 2)
            e->discount_minor += 5;
        else
            e->order_minor += 5;
        seal(true);
        tell();
        expect_drift(lines[i]);
    }
}

TEST(a_late_spending_is_found)
{
    const struct redemption *r;
    int who;

    forge_free(0, ENTRY_RESERVE, 0);
    seal(true);
    r = standing_in(SLOT_RESERVED, &who);
    open_batch(5 * 3600 * 1000);
    forge_step(ENTRY_SPEND, who, r);
    expect_forgery("|time|before its end|past it");
}

TEST(an_early_expiry_is_found)
{
    forge_step_on(SLOT_ISSUED, ENTRY_EXPIRE);
    expect_forgery("|time|past its end|before it");
}

TEST(a_hold_of_more_than_a_day_is_found)
{
    forge_free(0, ENTRY_RESERVE, 0)->reserved_until_ms += DAY_MS;
    expect_forgery("|reserved_until|within 24 hours|beyond");
}

TEST(a_hold_extended_too_often_is_found)
{
    int who;
    const struct redemption *r = standing_in(SLOT_RESERVED, &who);

    open_batch(1);
    for (int i = 0; i < 33; i++) {
        struct entry *e = forge_step(ENTRY_EXTEND, who, r);

        if (i)
            e->since = forged->head.seq;
    }
    expect_forgery("entry 32|extensions|32 at most|one more");
}

TEST(two_holds_on_one_are_found)
{
    int who;
    const struct redemption *r = standing_in(SLOT_ISSUED, &who);

    open_batch(0);
    forge_hold(who, r);
    seal(true);
    open_batch(0);
    forge_hold(who, user_state_by_slot(&w.user_states[who], r->n, r->g));
    expect_forged("|redemption|not held|held by another checkout", "|state|a state that permits hold|reserved");
}

TEST(a_validity_that_is_not_the_coupons_is_found)
{
    forge_free(0, ENTRY_ISSUE, 0)->valid_until_ms += 1;
    expect_forgery("|valid_until|");
}

TEST(a_taking_without_a_slot_is_found)
{
    struct entry *e = forge_free(0, ENTRY_REDEEM, 0);

    e->n = -forged->head.seq;
    e->g = 1;
    expect_forgery("|slot|one|none");
}

TEST(a_step_of_a_job_made_twice_is_found)
{
    struct entry *e = forge_entry(0, ENTRY_RETIRING);

    e->job = "j1";
    e->step = 1;
    expect_forgery("|step|");
}

/* ---- erased users ---- */

TEST(an_alias_that_lives_on_after_its_erasure_is_found)
{
    char alias[ID_ALIAS_LEN + 1];
    struct entry *e;

    memcpy(alias, w.user_states[3].alias, sizeof alias);
    erase(3, true);
    e = forge_free(0, ENTRY_REDEEM, 3);
    memcpy(e->alias, alias, sizeof alias);
    expect_forged("|alias|of nobody: erased before|");
}

TEST(a_name_that_an_erasure_left_must_be_listed)
{
    char alias[ID_ALIAS_LEN + 1];

    memcpy(alias, w.user_states[3].alias, sizeof alias);
    erase(3, false);
    for (unsigned parts = 1; parts < 4; parts++) {
        forget_found();
        tell_in(&whole, parts);
        expect_drift("|erasing|listed: there are still names|not listed");
        assert_int_equal(found_count, 1);
    }
    w.erasing = alias;
    w.erasing_seq = w.tail.seq;
    expect_nothing();
    w.erasing_seq--;
    expect_drifts("|erasing|an alias that the batch erases|", "|erasing|listed: there are still names|not listed");
}

static bool is_gone(void *context, const char *alias, int64_t seq)
{
    (void)context;
    (void)alias;
    return seq == 0;
}

TEST(names_that_go_while_the_ledger_is_read_are_not_missed)
{
    size_t until = w.count;
    struct replay *r;

    erase(3, true);
    r = replay_new(&all_of_it, note, NULL);
    for (size_t i = 0; i < until; i++)
        replay_batch(r, w.ledger[i]);
    replay_later_erasures(r, w.ledger[until]);
    replay_end(r);
    replay_free(r);
    assert_string_equal(found, "");
    erase(4, false);
    r = replay_new(&all_of_it, note, NULL);
    for (size_t i = 0; i < w.count; i++)
        replay_batch(r, w.ledger[i]);
    replay_look_again(r, is_gone, NULL);
    replay_end(r);
    replay_free(r);
    assert_string_equal(found, "");
}

TEST(a_name_that_is_gone_without_an_erasure_is_found)
{
    empty_names(w.user_states[3].alias);
    expect_drifts("|user|a name: not erased|none", "|user|a name, or forgotten|neither");
}

TEST(an_erasure_that_left_something_standing_is_found)
{
    int who;

    standing_in(SLOT_ISSUED, &who);
    open_batch(0);
    forge(ENTRY_ERASE, who);
    empty_names(w.user_states[who].alias);
    expect_forged("|redemptions|ended|one that has not ended", "|user|a name, or forgotten|neither");
}

TEST(a_forgotten_name_that_stands_in_a_bucket_is_found)
{
    for (int64_t n = 0; n < SLOTS; n++)
        if (slot_at(n)->state == SLOT_REDEEMED && !slot_at(n)->user) {
            slot_at(n)->user = strdup("u-8");
            expect_only("user|null|u-8");
            return;
        }
    fail_msg("no slot was forgotten");
}

/* ---- caps and the window ---- */

TEST(a_cap_of_a_user_that_was_passed_is_found)
{
    for (int i = 0; i < 13; i++) {
        forge_free(1, ENTRY_REDEEM, 1);
        seal(true);
    }
    expect_drifts("|per_user|at most 12|", "|per_user_per_day|at most 8|");
}

/* The definition as next, whatever is forged after. */
static struct coupon *redefine(void)
{
    struct coupon *next = coupon_copy(w.coupon, &w.arena);
    struct entry *e;

    next->version++;
    e = forge_entry(0, ENTRY_DEFINE);
    e->definition = next;
    return next;
}

TEST(caps_of_the_coupon_that_were_passed_are_found)
{
    struct coupon *next = redefine();

    next->cap.per_day = 1;
    next->cap.discount_minor = w.tail.discount_minor;
    seal(true);
    forge_free(DAY_MS / 2, ENTRY_REDEEM, 0);
    seal(true);
    forge_free(1, ENTRY_REDEEM, 1)->discount_minor = 7;
    expect_forged("|per_day|at most 1|2", "caps|", "|discount_minor|at most ");
}

TEST(a_cap_that_was_in_force_before_is_not_asked_of_what_came_then)
{
    struct coupon *next = redefine();

    next->cap.per_user = 1;
    next->cap.per_day = 1;
    seal(true);
    expect_nothing();
}

TEST(more_taken_than_exist_is_found)
{
    struct entry *e = forge_entry(0, ENTRY_RETIRING);

    e->count = head_free(&w.tail) + 1;
    expect_forged("caps|", "|slots|at most ");
}

TEST(more_than_the_cap_is_found)
{
    struct entry *e = forge_entry(0, ENTRY_GENERATE);

    e->n = w.tail.next_n;
    e->count = 10;
    seal(false);
    expect_drifts("|total|at most 180|190", "|turn|the job's own|nobody's");
}

TEST(a_lowered_cap_that_left_the_slots_is_found)
{
    redefine()->cap.total = 100;
    expect_forgery("|total|at most 100|180");
}

TEST(slots_that_a_change_asks_for_are_found)
{
    redefine();
    forged->entries[0].count = 5;
    forged->entries[0].job = "j1";
    expect_forgery("|count|none: it is no new coupon|some");
}

/* Nothing is stored. */
static void forget_all(void)
{
    for (size_t i = 0; i < w.count; i++)
        batch_free(w.ledger[i]);
    w.count = w.row_count = 0;
    memset(w.counts, 0, sizeof w.counts);
    w.tail = (struct head){.seq = 0};
    w.coupon = NULL;
    w.codes_read = false;
    for (int i = 0; i < USERS; i++) {
        char alias[ID_ALIAS_LEN + 1];

        id_random(alias, ID_ALIAS_LEN);
        user_state_init(&w.user_states[i], w.user_states[i].user, alias);
    }
    for (int k = 0; k < BUCKETS; k++)
        w.buckets[k].seq = 0;
    w.job.seq = 0;
    w.checkpoint = (struct checkpoint){0};
}

/* A ledger of one batch. */
static void create_with(int64_t first_slots, int64_t made)
{
    struct coupon *c = coupon_copy(w.coupon, &w.arena);
    const struct slot_request request = {.slots = first_slots};

    forget_all();
    c->codes.source = CODES_NONE;
    c->cap.total = 5;
    begin();
    decide_create(&round_.d, c, &request, &out);
    for (size_t i = 1; i < round_.d.batch->count; i++)
        round_.d.batch->entries[i].count = made;
    round_.d.head.slots = round_.d.head.next_n = made;
    append();
    tell();
}

TEST(slots_that_come_with_a_coupon_are_as_many_as_were_asked_for)
{
    create_with(5, 5);
    assert_string_equal(found, "");
    create_with(5, 4);
    expect_drift("seq 1|slots made with the coupon|5|4");
    create_with(6, 6);
    expect_drift("|count|at most 5|6");
}

TEST(slots_that_no_job_makes_come_with_the_coupon_alone)
{
    struct entry *e;

    redefine()->cap.total = SLOTS + 5;
    seal(true);
    forge_entry(0, ENTRY_TURN)->job = "j";
    seal(true);
    e = forge_entry(0, ENTRY_GENERATE);
    e->n = SLOTS;
    e->count = 5;
    expect_forged("|slots made with the coupon|0|5");
}

static const char *listed[] = {"SUMMER10"};

/* The coupon has a shared code that may be used `most` times. */
static void share(int64_t most)
{
    struct coupon *next = redefine();

    next->codes.source = CODES_SHARED;
    next->codes.shared = (struct string_list){listed, 1};
    next->codes.shared_cap = most;
    seal(true);
    open_batch(0);
}

static void forge_use(int64_t n, const char *code)
{
    struct entry *e = forge_taking(ENTRY_REDEEM, 0, n);

    e->code = NULL;
    e->shared = code;
}

/* The lines that say so are among others: the slots have codes of their own from before. */
TEST(a_shared_code_that_is_not_listed_is_found)
{
    share(2);
    forge_use(slot_in_state(SLOT_FREE), "WINTER10");
    expect_forged("|code|one that the coupon lists|WINTER10");
}

TEST(a_shared_code_that_was_used_too_often_is_found)
{
    int64_t n = slot_in_state(SLOT_FREE);

    share(1);
    forge_use(n, "SUMMER10");
    seal(true);
    w.checkpoint.seq = w.tail.seq;
    tell();
    assert_null(strstr(found, "|shared_cap|"));
    expect_drift("lanes|checkpoint|codes|as often as the ledger uses each|SUMMER10"); /* which has none */
    open_batch(0);
    forge_use(slot_in_state(SLOT_FREE), "summer10");
    expect_forged("|code|one that the coupon lists|summer10", "|shared_cap|at most 1|2");
}

TEST(a_taking_of_a_paused_or_ended_coupon_is_found)
{
    struct coupon *next = redefine();

    next->state = COUPON_PAUSED;
    seal(true);
    forge_free(0, ENTRY_REDEEM, 0);
    expect_forgery("|window|an active coupon, in its window|a coupon that is not active");
    next = redefine();
    next->state = COUPON_ACTIVE;
    next->ends_at_ms = w.tail.at_ms;
    seal(true);
    forge_free(0, ENTRY_REDEEM, 0);
    expect_forged("|after it ended");
}

/* ---- turns, events, codes ---- */

static void forge_turn(enum entry_kind kind, const char *job, int64_t fence)
{
    struct entry *e = forge_entry(0, kind);

    e->job = job;
    e->step = fence;
    seal(true);
}

TEST(turns_out_of_turn_are_found)
{
    forge_turn(ENTRY_TURN, "j1", 5);
    forge_turn(ENTRY_TURN, "j1", 4);
    expect_drifts("|turn|of a later runner|of an earlier one");
    forge_turn(ENTRY_TURN, "j2", 1);
    expect_drifts("|turn|free|another job's");
    forge_turn(ENTRY_TURN_END, "j1", 4);
    expect_drifts("|turn|the job's own|another job's");
}

TEST(events_that_are_not_due_or_were_not_raised_are_found)
{
    struct coupon *next;

    forge_free(0, ENTRY_REDEEM, 0);
    batch_add(forged, ENTRY_LOW_STOCK)->count = head_free(&w.tail) - 1;
    batch_add(forged, ENTRY_SOLD_OUT);
    expect_forged("|low_stock|no event|one", "|sold_out|no event|one");
    next = redefine();
    next->replenish.below = SLOTS;
    next->replenish.add = 7;
    next->cap.total = 1000;
    batch_add(forged, ENTRY_REPLENISH)->count = 3;
    expect_forged("|replenish|187|3");
}

TEST(an_event_that_was_left_out_is_found)
{
    struct batch *b = NULL;

    for (size_t i = 0; i < w.count && !b; i++)
        if (has_entry(w.ledger[i], ENTRY_LOW_STOCK, ENTRY_LOW_STOCK))
            b = w.ledger[i];
    assert_non_null(b);
    b->count--;
    expect_drifts("|low_stock|an event|none");
}

TEST(a_code_that_is_not_the_slots_is_found)
{
    forge_free(0, ENTRY_REDEEM, 0)->code = "C-9999";
    expect_forgery("|code|the slot's|another");
    forge_free(0, ENTRY_REDEEM, 0)->code = NULL;
    expect_forged("|code|the slot's|none");
}

TEST(a_slot_without_a_code_is_found)
{
    w.lost_code = slot_in_state(SLOT_FREE);
    expect_drifts("|code|one|none");
    w.lost_code = slot_in_state(SLOT_RETIRED); /* may have been cleaned up */
    expect_nothing();
    w.codes_read = false;
    expect_nothing();
}

static void make_without_code(struct entry *e)
{
    struct coupon *c;

    e->code = NULL;
    if (!e->definition)
        return;
    c = coupon_copy(e->definition, &w.arena);
    c->codes.source = CODES_NONE;
    e->definition = c;
}

TEST(codes_of_a_coupon_without_codes_are_reported_of_no_taking)
{
    for (size_t i = 0; i < w.count; i++)
        for (size_t k = 0; k < w.ledger[i]->count; k++)
            make_without_code(&w.ledger[i]->entries[k]);
    tell();
    expect_drift("hash"); /* of what was changed */
    assert_null(strstr(found, "|code|"));
}

/* ---- views that cannot be read, and what would rewrite ---- */

static char repairs[4096];

static void note_repair_of(void *context, const struct repair *p)
{
    static const char *const names[] = {"none", "missing", "behind", "different", "superfluous"};
    static const char *const views[REWRITE_KIND_COUNT] = {
        [REWRITE_BUCKET] = "buckets", [REWRITE_COUPON] = "coupons", [REWRITE_TOTALS] = "totals", [REWRITE_ERASING] = "ledger",
        [REWRITE_INDEX] = "ledger"};
    size_t len = strlen(repairs);

    (void)context;
    snprintf(repairs + len, sizeof repairs - len, "%s %s %s\n", names[p->fault], views[p->write.kind], p->where);
}

/* The same lines, in any order. */
static void expect_lines(const char *expected)
{
    const char *end;

    for (const char *line = expected; *line; line = end + 1) {
        char one[160];

        end = strchr(line, '\n');
        snprintf(one, sizeof one, "%.*s", (int)(end - line + 1), line);
        if (!strstr(repairs, one))
            fail_msg("no repair \"%s\" in:\n%s", one, repairs);
    }
    if (strlen(repairs) != strlen(expected))
        fail_msg("more than\n%s in:\n%s", expected, repairs);
}

static void expect_repairs(bool all, const char *expected)
{
    for (unsigned parts = 1; parts < 4; parts++) {
        repairs[0] = '\0';
        tell_all(&whole, parts, all, note_repair_of, NULL);
        expect_lines(expected);
    }
}

TEST(a_sound_world_needs_no_repair)
{
    expect_repairs(true, "");
    expect_repairs(false, "");
}

TEST(each_kind_of_fault_gets_its_repair)
{
    set_back(1, w.buckets[1].seq);
    expect_repairs(true, "behind buckets bucket 1\n");
    w.buckets[1].seq = 0;
    expect_repairs(true, "missing buckets bucket 1\n");
    slot_at(3)->generation += 9;
    w.counts[3].redeemed++;
    w.wrong = "due";
    w.wrong_seq = 7;
    expect_repairs(true, "missing buckets bucket 1\ndifferent buckets bucket 0\ndifferent totals quarter hour 1972-09-27T02:15:00.000Z\n"
                         "different ledger seq 7\n");
}

TEST(names_of_an_erased_user_are_listed_again_and_nothing_is_taken_off_a_list)
{
    char line[64];

    snprintf(line, sizeof line, "missing ledger alias %s\n", w.user_states[3].alias);
    erase(3, false);
    expect_repairs(true, line);
    w.erasing = "nobody";
    w.erasing_seq = 4;
    expect_repairs(true, line);
}

TEST(what_cannot_be_read_is_a_drift_and_repaired)
{
    struct replay *r = replay_new(&all_of_it, note, NULL);
    struct lane_ends ends = {.found = {.is_there = true}};
    struct totals_row row = {.quarter_ms = 0, .seq = 0};

    r->lane_ends = &ends;
    r->written.totals_seq = -1;
    replay_view_coupon(r, &(struct stored_coupon){.is_there = true, .created_ms = -1, .changed_ms = -1});
    replay_view_bucket(r, 0, NULL, NULL);
    replay_totals(r, &row, 1);
    for (size_t i = 0; i < w.count; i++)
        replay_batch(r, w.ledger[i]);
    replay_end(r);
    lane_ends_report(&ends, note, NULL);
    expect_drift("totals_positions|totals|position|one that can be read|unreadable");
    expect_drift("lanes|checkpoint|view|one that can be read|unreadable");
    expect_drift("coupons|definition|view|one that can be read|unreadable");
    expect_drift("buckets|bucket 0|view|one that can be read|unreadable");
    repairs[0] = '\0';
    replay_repairs(r, false, note_repair_of, NULL);
    replay_free(r);
    expect_lines("superfluous totals quarter hour 1970-01-01T00:00:00.000Z\ndifferent buckets bucket 0\ndifferent coupons definition\n");
    assert_int_equal(lane_ends_fault(&ends, false), FAULT_DIFFERENT);
    assert_int_equal(lane_ends_repaired(&ends, false).seq, w.tail.seq);
}

/* ---- a coupon without slots ---- */

static void create_without_slots(int64_t total)
{
    struct coupon *c = coupon_copy(w.coupon, &w.arena);

    forget_all();
    c->cap.policy = CAP_APPROXIMATE;
    c->codes.source = CODES_NONE;
    c->cap.total = total;
    begin();
    decide_create(&round_.d, c, NULL, &out);
    append();
}

TEST(a_coupon_without_slots_is_reported_by_its_places)
{
    struct entry *e;

    create_without_slots(5);
    for (int64_t number = 0; number < 5; number++) {
        begin();
        take(working((int)number), number);
        append();
    }
    expect_nothing();
    open_batch(0);
    e = forge(ENTRY_REDEEM, 6);
    e->n = -forged->head.seq;
    e->g = 2;
    expect_forged("entry 0|g|1|2", "|total|at most 5|6");
    if (found_count != 2)
        fail_msg("more than two in:\n%s", found);
}

/* Held by user 1, and nothing but that. */
TEST(what_was_swept_must_not_stand)
{
    struct take t = {.state = SLOT_RESERVED, .code_n = -1, .key = "k", .reserve_s = 900, .order = order_of(1)};
    int64_t due_ms;

    create_without_slots(w.coupon->cap.total);
    begin();
    assert_true(decide_take(&round_.d, working(1), &t, &out));
    append();
    due_ms = first_end();
    w.checkpoint = (struct checkpoint){w.tail.seq, due_ms, due_ms, w.tail.seq - 1, NULL};
    expect_nothing();
    w.checkpoint.swept_seq = w.tail.seq;
    expect_only("lanes|checkpoint|swept|at most ");
    w.checkpoint = (struct checkpoint){w.tail.seq, due_ms, due_ms + 1, 0, NULL};
    expect_only("lanes|checkpoint|swept|at most ");
}

RUN_TESTS(.each_setup = make_world, .each_teardown = end_world)
