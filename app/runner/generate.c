/* runner/generate.c -- makes slots by number, with codes if the coupon generates them; and retires free ones. */
#include <stdlib.h>
#include <string.h>

#include "coupons/code.h"
#include "coupons/decide.h"
#include "runner/code_drafts.h"

#define DRAWS_MOST 20 /* how often existing codes are drawn again */

/* Read the job's progress from the ledger: its own count may lag, or its steps may have had another size. */
static enum ending read_progress(struct work *w)
{
    struct op op;
    enum ending e = work_standing(w, &op);

    if (e != ENDING_DONE)
        return e;
    w->step = op.out.job->step;
    w->done = op.out.job->total;
    return ENDING_DONE;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool key_begins(const struct work *w, const char *with)
{
    return w->job->key && strncmp(w->job->key, with, strlen(with)) == 0;
}

/* Slots still to be made, by the totals h. */
static int64_t missing(const struct work *w, const struct head *h)
{
    return w->job->until ? w->job->until - (h->slots - h->retiring) : w->job->total - w->done;
}

/* A refill made already: the reporter may have read the ledger again from the start. */
static bool is_answered(const struct work *w, const struct head *h)
{
    return key_begins(w, JOB_KEY_REPLENISH) && h->replenish_until == 0;
}

/* ---- slots without codes ---- */

/* Before its first slot is made, the coupon may be changed to have codes; then this job's steps are always refused. */
static enum ending check_plain(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_ask(w, &op);

    if (e == ENDING_DONE && coupon_slots_have_codes(op.coupon_now))
        return work_fail(w, CPN_BAD_REQUEST, "codes.source was changed before the first slot was made.");
    return e;
}

static enum ending plain_step(struct work *w, bool *enough)
{
    struct op op = {.kind = OP_GENERATE, .in.job = {.id = w->job->id, .step = w->step + 1, .until = w->job->until}};
    enum cpn_result result;
    enum ending e;

    op.in.job.count = least(w->job->until ? w->job->until : w->job->total - w->done, w->runner->config->runner_step_slots);
    if (op.in.job.count <= 0)
        return work_fail(w, CPN_INTERNAL, "The job's document asks for no slots.");
    result = work_try(w, &op);
    if (work_may_repeat(result)) {
        e = work_rest(w, "Making slots");
        return e == ENDING_DONE ? check_plain(w) : e;
    }
    if (result != CPN_OK)
        return work_fail(w, result, op.outcome.detail);
    if (op.outcome.replayed) /* already made, perhaps by another runner and in another size */
        return read_progress(w);
    w->step++;
    w->done += op_made(&op);
    *enough = op_made(&op) == 0 || is_answered(w, &op.head);
    return ENDING_DONE;
}

/* ---- slots with codes ---- */

static void draw(struct work *w, struct code_draft *d)
{
    char code[CODE_MAX + 1], normal[CODE_MAX + 1];

    code_random(w->coupon, code);
    if (!code_normalise(code, (enum codes_match)w->coupon->codes.match, normal))
        abort();
    *d = (struct code_draft){.code = arena_strdup(&w->arena, code)};
    d->normal = strcmp(code, normal) == 0 ? d->code : arena_strdup(&w->arena, normal);
}

/* Draw again those that cannot be used. Returns how many. */
static size_t redraw(struct work *w, struct code_draft *codes, size_t count, bool *doubled)
{
    size_t drawn = 0;

    codes_doubled(codes, count, doubled);
    for (size_t i = 0; i < count; i++) {
        if (!doubled[i] && !codes[i].announced && !codes[i].elsewhere)
            continue;
        draw(w, &codes[i]);
        drawn++;
    }
    return drawn;
}

/* Draw codes[count] that the coupon does not have. */
static enum ending draw_new(struct work *w, struct code_draft *codes, size_t count)
{
    bool *doubled = arena_array(&w->arena, count, sizeof *doubled);

    for (int draws = 0; draws < DRAWS_MOST; draws++) {
        enum ending e = codes_look(w, codes, count);

        if (e != ENDING_DONE || redraw(w, codes, count, doubled) == 0)
            return e;
    }
    return work_fail(w, CPN_CAP_EXCEEDED, "codes.length is too short for this many slots: almost all codes are used "
                                          "up.");
}

static enum ending code_step(struct work *w, bool *enough)
{
    enum ending e = codes_ready(w);
    enum announced a = ANNOUNCED_ELSEWHERE;
    struct code_draft *codes;
    int64_t count, made = 0;

    if (e != ENDING_DONE)
        return e;
    count = least(least(missing(w, &w->head), w->runner->config->runner_step_slots), CODES_STEP_MOST);
    *enough = count <= 0 || is_answered(w, &w->head);
    if (*enough)
        return ENDING_DONE;
    codes = arena_array(&w->arena, (size_t)count, sizeof *codes);
    for (int64_t i = 0; i < count; i++)
        draw(w, &codes[i]);
    while (e == ENDING_DONE && a == ANNOUNCED_ELSEWHERE) {
        e = draw_new(w, codes, (size_t)count);
        if (e == ENDING_DONE)
            a = codes_announce(w, codes, (size_t)count, w->job->until, &made, &e);
    }
    if (e == ENDING_DONE && a == ANNOUNCED_AGAIN)
        return read_progress(w);
    w->done += made;
    return e;
}

/* ---- jobs ---- */

/* A refill requested while the coupon's first slots are being made may find that they suffice. */
static enum ending await_first_slots(struct work *w)
{
    struct job *first;
    enum store_status s;
    enum ending e;

    if (!key_begins(w, JOB_KEY_REPLENISH))
        return ENDING_DONE;
    e = work_between_steps(w);
    if (e != ENDING_DONE)
        return e;
    s = mongo_job_by_key(w->session, w->job->coupon, JOB_KEY_FIRST_SLOTS, &w->arena, &first);
    if (s == STORE_NOT_FOUND)
        return ENDING_DONE;
    return s == STORE_OK && first->state != JOB_QUEUED && first->state != JOB_RUNNING ? ENDING_DONE : ENDING_POSTPONED;
}

/* Read the coupon's kind once: it is fixed as soon as slots exist. */
static enum ending read_source(struct work *w, bool *codes, bool *enough)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_ask(w, &op);

    if (e != ENDING_DONE)
        return e;
    if (!policy_of(op.coupon_now)->slots)
        return work_fail(w, CPN_BAD_REQUEST, "This coupon's cap policy has no slots.");
    if (op.coupon_now->codes.source == CODES_IMPORTED)
        return work_fail(w, CPN_BAD_REQUEST, "This coupon's codes are imported: its slots come with them.");
    *codes = op.coupon_now->codes.source == CODES_GENERATED;
    *enough = is_answered(w, &op.head);
    return ENDING_DONE;
}

enum ending run_generate(struct work *w)
{
    bool enough = false, codes = false;
    enum ending e = await_first_slots(w);

    if (e == ENDING_DONE)
        e = read_source(w, &codes, &enough);
    if (e == ENDING_DONE)
        e = read_progress(w);
    while (e == ENDING_DONE && !enough && (w->job->until || w->done < w->job->total)) {
        e = work_between_steps(w);
        if (e == ENDING_DONE)
            e = (codes ? code_step : plain_step)(w, &enough);
        arena_reset(&w->arena);
    }
    return e;
}

/* One step: free slots become due for retirement, and can no longer be taken. */
enum ending run_retire(struct work *w)
{
    struct op op = {.kind = OP_RETIRING, .in.job = {.id = w->job->id, .step = 1, .count = w->job->total}};
    enum ending e = work_between_steps(w);

    if (e == ENDING_DONE)
        e = work_ask(w, &op);
    if (e == ENDING_DONE)
        w->done = op_made(&op);
    return e;
}
