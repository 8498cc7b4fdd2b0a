/*
 * unit/lane.h -- one lane of one coupon as decisions see it: 64 slots with codes (or none, by policy), two users and a job.
 *
 * Use     lane_fresh/lane_release around each test; then lane_open(), calls, lane_close() for each batch
 * Checks  lane_close() holds each batch to this: it contradicts nothing, and folding it onto the views as they were gives
 *         exactly the working copies that deciding left
 */
#ifndef UNIT_LANE_H
#define UNIT_LANE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "unit/views.h"

#define SECOND_MS INT64_C(1000)
#define HOUR_MS (INT64_C(3600) * 1000)
#define MIDNIGHT (INT64_C(20000) * DAY_MS)
#define NOON (MIDNIGHT + DAY_MS / 2)
#define USER_STATES 2

static struct arena arena;
static struct buf scratch;
static struct coupon c;
static struct head tail;
static struct batch *batch;
static struct decision d;
static struct bucket the_bucket;
static struct named_slot named[BUCKET_SLOTS];
static struct free_slot free_pool[BUCKET_SLOTS];
static struct user_state user_states[USER_STATES], user_states_before[USER_STATES];
static struct user_state *const ana = &user_states[0], *const bob = &user_states[1];
static struct job_progress the_job, job_before;
static struct job_progress *const job = &the_job;
static struct outcome out;
static int64_t now_ms;

static inline int lane_fresh(UNUSED_STATE)
{
    arena_init(&arena, 0);
    coupon_init(&c);
    c.id = "sale";
    c.title = "Sale";
    c.version = 1;
    c.state = COUPON_ACTIVE;
    c.cap.total = BUCKET_SLOTS;
    c.cap.per_user = 1000;
    c.codes.source = CODES_GENERATED;
    tail = (struct head){.seq = 7, .at_ms = NOON - 1000, .version = 1, .slots = BUCKET_SLOTS, .next_n = BUCKET_SLOTS,
                         .day_ms = MIDNIGHT};
    bucket_init(&the_bucket, 0);
    the_bucket.size = BUCKET_SLOTS;
    user_state_init(ana, "ana", "");
    user_state_init(bob, "bob", "");
    *job = (struct job_progress){.id = "j1"};
    now_ms = NOON;
    batch = NULL;
    return 0;
}

static inline void forget_named(void)
{
    for (int i = 0; i < BUCKET_SLOTS; i++)
        free(named[i].slot.user);
    memset(named, 0, sizeof named);
}

static inline int lane_release(UNUSED_STATE)
{
    forget_named();
    batch_free(batch);
    bucket_release(&the_bucket);
    arena_free(&arena);
    buf_free(&scratch);
    return 0;
}

/* The coupon has no slots. */
static inline void without_slots(enum cap_policy policy)
{
    c.cap.policy = policy;
    c.codes.source = CODES_NONE;
    tail.slots = tail.next_n = 0;
    the_bucket.size = 0;
}

static inline void discounts(int64_t amount_minor)
{
    c.discount.kind = DISCOUNT_AMOUNT;
    c.discount.amount_minor = amount_minor;
    c.discount.currency = "EUR";
}

static inline void lane_open(void)
{
    size_t free_count = 0;

    forget_named();
    batch_free(batch);
    batch = batch_new("sale", 0);
    decide_begin(&d, batch, &c, &tail, now_ms, now_ms - now_ms % DAY_MS, now_ms - now_ms % DAY_MS + DAY_MS);
    for (int i = 0; i < the_bucket.size; i++) {
        named[i] = (struct named_slot){i, the_bucket.slots[i], coupon_slots_have_codes(&c) ? arena_printf(&arena, "CODE-%d", i) : NULL};
        if (named[i].slot.user)
            named[i].slot.user = strdup(named[i].slot.user);
        if (the_bucket.slots[i].state == SLOT_FREE)
            free_pool[free_count++] = (struct free_slot){i, the_bucket.slots[i].generation, named[i].code};
    }
    d.named = named;
    d.named_count = (size_t)the_bucket.size;
    d.free_pool = free_pool;
    d.free_pool_count = free_count;
    for (int i = 0; i < USER_STATES; i++) {
        user_states_before[i] = *user_state_copy(&user_states[i], &arena, true);
        user_states[i] = *user_state_copy(&user_states[i], &arena, true);
    }
    job_before = *job;
}

static inline void close_user_state(int i)
{
    struct user_state folded = *user_state_copy(&user_states_before[i], &arena, true);
    const char *wrong;

    if (!fold_user_state(&folded, batch, &arena)) {
        assert_int_equal(user_states[i].seq, user_states_before[i].seq);
        user_states[i] = user_states_before[i]; /* a name that was never written */
        return;
    }
    fold_user_state_done(&user_states[i], &d.head);
    wrong = user_state_difference(&folded, &user_states[i]);
    if (wrong)
        fail_msg("folding differs in %s of %s", wrong, user_states[i].user);
    user_states[i] = *user_state_copy(&user_states[i], &arena, true);
}

static inline void close_job(void)
{
    struct job_progress folded = job_before;
    const char *wrong;

    fold_job(&folded, batch);
    wrong = job_difference(&folded, job);
    if (wrong)
        fail_msg("folding differs in %s of job %s", wrong, job->id);
}

/* Append what was decided. */
static inline void lane_close(void)
{
    int slots = the_bucket.size;
    const char *wrong;

    assert_true(decide_changed(&d));
    decide_end(&d, &tail, &scratch);
    wrong = batch_contradiction(&tail, batch);
    if (wrong)
        fail_msg("contradiction in %s", wrong);
    for (int i = 0; i < USER_STATES; i++)
        close_user_state(i);
    close_job();
    fold_bucket(&the_bucket, batch);
    bucket_fit(&the_bucket, batch->head.next_n);
    for (int i = 0; i < slots; i++) {
        wrong = slot_difference(&the_bucket.slots[i], &named[i].slot);
        if (wrong)
            fail_msg("folding differs in %s of slot %d", wrong, i);
    }
    tail = batch->head;
    if (d.coupon != &c)
        c = *coupon_copy(d.coupon, &arena);
    now_ms++;
}

static inline void lane_next(void)
{
    lane_close();
    lane_open();
}

/* The next batch comes when what is held now has lapsed. */
static inline void lane_lapse(void)
{
    lane_close();
    now_ms += c.reserve_s * SECOND_MS;
    lane_open();
}

/* A batch in which nothing may have happened. */
static inline void lane_drop(void)
{
    assert_false(decide_changed(&d));
    for (int i = 0; i < USER_STATES; i++)
        user_states[i] = user_states_before[i];
    *job = job_before;
}

static inline void expect(enum cpn_result want)
{
    if (out.result != want)
        fail_msg("%s instead of %s", result_info(out.result)->name, result_info(want)->name);
}

/* An order of 10.00 EUR with that id. */
static inline struct order *order_of(const char *id)
{
    struct order *order = arena_alloc(&arena, sizeof *order);

    *order = (struct order){.id = id, .amount_minor = 1000, .currency = "EUR"};
    return order;
}

/* An answer's strings live as long as its user state's batch; a test's, as long as the test. */
static inline void keep_answer(void)
{
    struct redemption *r = &out.redemption;

    r->order = arena_strdup(&arena, r->order);
    r->first_order = arena_strdup(&arena, r->first_order);
    r->metadata = arena_strdup(&arena, r->metadata);
    r->code = arena_strdup(&arena, r->code);
    price_copy(&r->price, &arena);
    price_copy(&r->first_price, &arena);
}

/* A POST; key and order's id may be NULL, code too. */
static inline void post(struct user_state *u, enum slot_state state, const char *key, const struct order *order, const char *code,
                        int64_t code_n, enum cpn_result want)
{
    struct take t = {.key = key, .order = order, .code = code, .code_n = code_n, .state = state, .reserve_s = COUPON_NULL};

    assert_true(decide_take(&d, u, &t, &out));
    expect(want);
    keep_answer();
}

/* A POST without a code, which is carried out. */
static inline struct redemption take(struct user_state *u, enum slot_state state, const char *key, const char *order)
{
    post(u, state, key, order ? order_of(order) : NULL, NULL, -1, CPN_OK);
    return out.redemption;
}

/* The last answer is the same as first: whatever happened since is no part of it. */
static inline void assert_first(const struct redemption *first)
{
    struct redemption have = out.redemption;
    const char *wrong;

    assert_true(out.replayed);
    have.last_seq = first->last_seq;
    have.ended_ms = first->ended_ms;
    have.first_order = first->first_order;
    memcpy(have.extended_key, first->extended_key, 2 * KEY_HASH_LEN); /* and its fingerprint */
    have.earlier = first->earlier;
    have.earlier_count = first->earlier_count;
    memcpy(have.spent_key, first->spent_key, 2 * KEY_HASH_LEN);
    wrong = redemption_difference(&have, first);
    if (wrong)
        fail_msg("another %s than first", wrong);
}

static inline void step_with(struct user_state *u, const struct redemption *r, enum slot_move move, const char *key,
                             const struct order *order, int64_t reserve_s, enum cpn_result want)
{
    struct step s = {.n = r->n, .g = r->g, .move = move, .key = key, .order = order, .reserve_s = reserve_s};

    decide_step(&d, u, &s, &out);
    expect(want);
    keep_answer();
}

static inline struct redemption step(struct user_state *u, struct redemption r, enum slot_move move, const char *key,
                                     const char *order, enum cpn_result want)
{
    step_with(u, &r, move, key, order ? order_of(order) : NULL, COUPON_NULL, want);
    return out.redemption;
}

#endif
