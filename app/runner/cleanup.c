/*
 * runner/cleanup.c -- cleans up a coupon that ended cleanup_after_s ago: its free slots are retired, and the codes of retired slots are
 * dropped.
 *
 * Order  slots become due, are retired, their buckets are written, codes are dropped by those. Repeating any of these changes
 *        nothing
 * Twins  codes that match exactly may differ only in what the service's directory ignores, and share an entry there: it stays, with all
 *        of them, while one of them is not retired. A Bloom filter finds them, so an entry may be kept needlessly
 */
#include "runner/code_drafts.h"

#include <string.h>

#include "base/clock.h"

#define CLEAN_BUCKETS 64 /* buckets whose codes are dropped at a time */
#define LOOK_MS 100      /* between checks of the retiring */

/* The coupon has still ended: it may have been changed since the job was made. */
static bool has_ended(const struct coupon *c, int64_t now_ms)
{
    return c->state == COUPON_ENDED ||
           (c->ends_at_ms != COUPON_NULL && now_ms - c->ends_at_ms >= c->cleanup_after_s * 1000);
}

/* Retire the free slots, and wait until that is done. */
static enum ending retire_free(struct work *w, int64_t free_slots)
{
    struct op due = {.kind = OP_RETIRING, .in.job = {.id = w->job->id, .step = 1, .count = free_slots}};
    enum ending e = work_ask(w, &due);

    w->done = op_made(&due);
    while (e == ENDING_DONE) {
        struct op look = {.kind = OP_SWEEP};

        e = work_ask(w, &look);
        look = (struct op){.kind = OP_COUPON};
        if (e == ENDING_DONE)
            e = work_ask(w, &look);
        if (e != ENDING_DONE || look.head.retiring == 0 || look.head.archived) /* nothing more is retired */
            break;
        stop_rest(&w->runner->stop, LOOK_MS);
        e = work_between_steps(w);
        arena_reset(&w->arena);
    }
    return e;
}

/* Add the codes of a page of buckets whose slots are not retired to w->code_bloom. False: the database did not answer. */
static bool add_kept(struct work *w, int64_t from_b, int64_t to_b, int64_t next_n)
{
    struct bucket *buckets = arena_array(&w->arena, CLEAN_BUCKETS, sizeof *buckets);
    struct bucket_codes_read *reads = arena_array(&w->arena, CLEAN_BUCKETS, sizeof *reads);
    char form[CODE_MAX + 1];

    if (mongo_codes_from(w->session, w->job->coupon, from_b, to_b, next_n, &w->arena, buckets, reads) != STORE_OK)
        return false;
    for (int64_t i = 0; i < to_b - from_b; i++) {
        for (int k = 0; k < buckets[i].size; k++) {
            if (!reads[i].codes[k] || buckets[i].slots[k].state == SLOT_RETIRED)
                continue;
            directory_form(reads[i].codes[k], form);
            bloom_add(&w->code_bloom, code_hash(form));
        }
        bucket_release(&buckets[i]);
    }
    return true;
}

static enum ending find_kept(struct work *w, int64_t next_n)
{
    int64_t end_b = bucket_of(next_n + BUCKET_SLOTS - 1);
    enum ending e = ENDING_DONE;

    code_bloom_init(&w->code_bloom, next_n);
    for (int64_t b = 0, to_b; e == ENDING_DONE && b < end_b; b = to_b) {
        to_b = b + CLEAN_BUCKETS < end_b ? b + CLEAN_BUCKETS : end_b;
        e = work_between_steps(w);
        while (e == ENDING_DONE && !add_kept(w, b, to_b, next_n))
            e = work_rest(w, "Reading codes");
        arena_reset(&w->arena);
    }
    return e;
}

static bool is_kept(void *context, const char *form)
{
    const struct work *w = context;

    return bloom_may_have(&w->code_bloom, code_hash(form));
}

static enum ending drop_codes(struct work *w, bool twins)
{
    enum ending e = ENDING_DONE;
    bool more = true;

    for (int64_t b = 0; e == ENDING_DONE && more; b += CLEAN_BUCKETS) {
        e = work_between_steps(w);
        while (e == ENDING_DONE &&
               mongo_codes_clean(w->session, w->job->coupon, b, CLEAN_BUCKETS, twins ? is_kept : NULL, w, &more) != STORE_OK)
            e = work_rest(w, "Deleting codes");
    }
    return e;
}

enum ending run_cleanup(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_between_steps(w);
    bool codes, twins;
    int64_t next_n;

    if (e == ENDING_DONE)
        e = work_ask(w, &op);
    if (e == ENDING_FAILED && w->error == CPN_COUPON_NOT_FOUND)
        return ENDING_DONE;
    if (e != ENDING_DONE || !has_ended(op.coupon_now, clock_now_ms()) || !policy_of(op.coupon_now)->slots)
        return e;
    codes = coupon_slots_have_codes(op.coupon_now);
    twins = op.coupon_now->codes.unique == UNIQUE_SERVICE && op.coupon_now->codes.match == MATCH_EXACT;
    next_n = op.head.next_n;
    if (op.head.archived) /* nothing more is retired */
        return ENDING_DONE;
    e = retire_free(w, head_free(&op.head));
    if (e == ENDING_DONE && codes)
        e = work_catch_up(w);
    if (e == ENDING_DONE && codes && twins)
        e = find_kept(w, next_n);
    return e == ENDING_DONE && codes ? drop_codes(w, twins) : e;
}
