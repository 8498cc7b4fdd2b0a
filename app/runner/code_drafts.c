/* runner/code_drafts.c -- see code_drafts.h. */
#include "runner/code_drafts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "coupons/code.h"

#define READ_PER_LOOK 8 /* codes read bucket by bucket in the time of one look-up */
#define BLOOM_BYTES_PER_CODE 2
#define BLOOM_BYTES_LEAST ((size_t)8192)

/* ---- the turn ---- */

/* The engine refused the turn: find out if another job has it. ENDING_DONE: ask again. */
static enum ending whose_turn(struct work *w)
{
    struct op op;
    enum ending e = work_standing(w, &op);

    if (e != ENDING_DONE || op.head.turn == 0)
        return e;
    if (op.out.job->turn != op.head.turn)
        return ENDING_POSTPONED;
    return op.out.job->fence > w->job->fence ? ENDING_LOST : ENDING_DONE;
}

static enum ending take_turn(struct work *w)
{
    w->turned = true;
    for (;;) {
        struct op op = {.kind = OP_TURN, .in.job = {.id = w->job->id, .fence = w->job->fence}};
        enum cpn_result result = work_try(w, &op);
        enum ending e;

        if (result == CPN_OK) {
            w->turn = op.out.turn;
            return ENDING_DONE;
        }
        if (!work_may_repeat(result))
            return work_fail(w, result, op.outcome.detail);
        e = whose_turn(w);
        if (e == ENDING_DONE)
            e = work_rest(w, "Taking the turn to make codes");
        if (e != ENDING_DONE)
            return e;
    }
}

/* Read totals and definition as of now. */
static enum ending read_coupon(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_ask(w, &op);

    if (e != ENDING_DONE)
        return e;
    w->head = op.head;
    w->coupon = coupon_copy(op.coupon_now, &w->keep);
    return ENDING_DONE;
}

/* With the turn, codes.source is fixed; before, it may have changed since the job looked. */
static enum ending check_source(struct work *w)
{
    bool import = w->job->kind == JOB_IMPORT;

    return w->coupon->codes.source == (import ? CODES_IMPORTED : CODES_GENERATED)
               ? ENDING_DONE
               : work_fail(w, CPN_BAD_REQUEST, "codes.source was changed before the first code was made.");
}

enum ending codes_ready(struct work *w)
{
    while (!w->known) {
        enum ending e = w->turn ? ENDING_DONE : take_turn(w);

        if (e == ENDING_DONE)
            e = read_coupon(w);
        if (e != ENDING_DONE)
            return e;
        w->known = w->head.turn == w->turn;
        if (!w->known)
            w->turn = 0;
        else if ((e = check_source(w)) != ENDING_DONE)
            return e;
    }
    return ENDING_DONE;
}

enum ending codes_turn_end(struct work *w)
{
    struct op op = {.kind = OP_TURN_END, .in.job.id = w->job->id};
    enum ending e;

    if (!w->turned && w->job->fence <= 1)
        return ENDING_DONE;
    failing_over(&w->failing);
    w->pause_ms = 0;
    e = work_progress(w);
    if (e == ENDING_LOST || e == ENDING_STOPPED)
        return e;
    for (;;) {
        enum cpn_result result = work_try(w, &op);

        if (!work_may_repeat(result))
            return ENDING_DONE; /* a removed coupon has no turns */
        e = work_rest(w, "Returning the turn to make codes");
        if (e == ENDING_LOST || e == ENDING_STOPPED)
            return e;
    }
}

/* ---- drafts ---- */

void code_bloom_init(struct bloom *b, int64_t codes)
{
    size_t bytes = BLOOM_BYTES_LEAST;

    while (bytes < CODE_BLOOM_BYTES_MOST && bytes / BLOOM_BYTES_PER_CODE < (uint64_t)codes)
        bytes *= 2;
    bloom_init(b, bytes);
}

static void add_to_code_bloom(void *context, const char *code)
{
    struct work *w = context;
    char normal[CODE_MAX + 1];

    if (code_normalise(code, (enum codes_match)w->coupon->codes.match, normal))
        bloom_add(&w->code_bloom, code_hash(normal));
}

/* Fill this turn's Bloom filter. If codes must be unique in the service, others' count too, and all are looked up. */
static enum ending fill_code_bloom(struct work *w)
{
    bool wanted = w->coupon->codes.unique != UNIQUE_SERVICE && w->head.next_n / READ_PER_LOOK <= w->job->total;
    enum ending e = ENDING_DONE;

    if (w->code_bloom_turn == w->turn)
        return ENDING_DONE;
    bloom_release(&w->code_bloom);
    if (wanted)
        code_bloom_init(&w->code_bloom, w->head.next_n + w->job->total);
    while (e == ENDING_DONE && wanted &&
           mongo_codes_each(w->session, w->job->coupon, w->head.next_n, add_to_code_bloom, w) != STORE_OK)
        e = work_rest(w, "Reading the coupon's codes");
    if (e == ENDING_DONE)
        w->code_bloom_turn = w->turn;
    return e;
}

enum ending codes_look(struct work *w, struct code_draft *codes, size_t count)
{
    struct code_draft *asked = arena_array(&w->arena, count + 1, sizeof *asked);
    size_t *places = arena_array(&w->arena, count + 1, sizeof *places), asked_count = 0;
    enum ending e = fill_code_bloom(w);

    for (size_t i = 0; e == ENDING_DONE && i < count; i++) {
        codes[i].announced = codes[i].by_this_job = codes[i].by_this_row = codes[i].elsewhere = false;
        if (!bloom_may_have(&w->code_bloom, code_hash(codes[i].normal)))
            continue;
        asked[asked_count] = codes[i];
        places[asked_count++] = i;
    }
    while (e == ENDING_DONE && asked_count > 0 &&
           mongo_codes_look(w->session, w->coupon, w->head.next_n, w->job->id, asked, asked_count, &w->arena) != STORE_OK)
        e = work_rest(w, "Looking up codes");
    for (size_t i = 0; e == ENDING_DONE && i < asked_count; i++)
        codes[places[i]] = asked[i];
    return e;
}

/* Write the drafts, over any of a killed runner, or of an attempt of ours that failed. */
static enum store_status write_drafts(struct work *w, struct code_draft *codes, size_t count)
{
    enum store_status s = STORE_OK;

    if (w->clean_turn != w->turn)
        s = mongo_codes_forget_drafts(w->session, w->coupon, w->head.next_n, w->turn);
    w->clean_turn = 0;
    if (s == STORE_OK)
        s = mongo_codes_draft(w->session, w->coupon, w->head.next_n, w->turn, w->job->id, codes, count, &w->arena);
    if (s == STORE_OK)
        w->clean_turn = w->turn;
    return s;
}

/* ANNOUNCED: written, may be announced. */
static enum announced draft(struct work *w, struct code_draft *codes, size_t count, enum ending *e)
{
    for (;;) {
        enum store_status s = write_drafts(w, codes, count);

        if (s == STORE_OK)
            break;
        *e = work_rest(w, "Writing codes");
        if (*e != ENDING_DONE)
            return ANNOUNCED_NOT;
        if (s == STORE_EXISTS) { /* a later turn wrote here */
            w->turn = 0;
            w->known = false;
            return ANNOUNCED_AGAIN;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (codes[i].elsewhere)
            return ANNOUNCED_ELSEWHERE;
    return ANNOUNCED;
}

/* Append the announcement. After ANNOUNCED_AGAIN, the ledger says what became of it. */
static enum announced append(struct work *w, struct op *op, enum ending *e)
{
    enum cpn_result result = work_try(w, op);

    if (result == CPN_OK) {
        w->head = op->head;
        w->known = op->head.turn == w->turn && !op->outcome.replayed;
        w->step = op->in.job.step;
        return w->known ? ANNOUNCED : ANNOUNCED_AGAIN;
    }
    w->known = false;
    if (work_may_repeat(result)) {
        *e = work_rest(w, "Announcing codes");
        return *e == ENDING_DONE ? ANNOUNCED_AGAIN : ANNOUNCED_NOT;
    }
    *e = work_fail(w, result, op->outcome.detail);
    return ANNOUNCED_NOT;
}

enum announced codes_announce(struct work *w, struct code_draft *codes, size_t count, int64_t until, int64_t *made,
                              enum ending *e)
{
    struct op op = {.kind = OP_GENERATE, .in.job = {.id = w->job->id, .count = (int64_t)count, .until = until, .turn = w->turn}};
    enum announced a;

    for (size_t i = 0; i < count; i++) /* while it is certain that it has none of them */
        bloom_add(&w->code_bloom, code_hash(codes[i].normal));
    *made = 0;
    a = draft(w, codes, count, e);
    if (a != ANNOUNCED)
        return a;
    op.in.job.step = w->step + 1;
    a = append(w, &op, e);
    if (a == ANNOUNCED)
        *made = op_made(&op);
    if (a != ANNOUNCED_AGAIN)
        return a;
    /* the last step in the ledger: the job's own count may lag */
    *e = work_standing(w, &op);
    if (*e == ENDING_DONE)
        w->step = op.out.job->step;
    return *e == ENDING_DONE ? a : ANNOUNCED_NOT;
}

/* ---- duplicates ---- */

struct seen {
    const char *normal;
    UT_hash_handle hh;
};

void codes_doubled(const struct code_draft *codes, size_t count, bool *doubled)
{
    struct seen *all = checked(calloc(count + 1, sizeof *all)), *table = NULL, *found;

    for (size_t i = 0; i < count; i++) {
        HASH_FIND_STR(table, codes[i].normal, found);
        doubled[i] = found != NULL;
        if (found)
            continue;
        all[i].normal = codes[i].normal;
        HASH_ADD_KEYPTR(hh, table, all[i].normal, strlen(all[i].normal), &all[i]);
    }
    HASH_CLEAR(hh, table);
    free(all);
}
