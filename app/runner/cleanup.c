/*
 * runner/cleanup.c -- cleans up a coupon that ended cleanup_after_s ago: its free slots are retired, and the codes of retired slots are
 * dropped.
 *
 * Order  slots become due, are retired, their buckets' views are written, codes are dropped by those views. Repeating any of these changes
 *        nothing
 */
#include "runner/work.h"

#include <string.h>

#include "base/clock.h"

#define CLEAN_BUCKETS 64 /* buckets whose codes are dropped at a time */
#define LOOK_MS 100      /* between checks of the retiring */

/* The coupon has still ended: it may have been changed since the job was made. */
static bool is_over(const struct coupon *c, int64_t now_ms)
{
    return c->state == COUPON_ENDED ||
           (c->ends_at_ms != COUPON_NULL && now_ms - c->ends_at_ms >= c->cleanup_after_s * 1000);
}

/* Retire the free slots, and wait until that is done. */
static enum ending retire_free(struct work *w, int64_t free_slots)
{
    struct op due = {.kind = OP_DUE, .job = w->job->id, .step = 1, .count = free_slots};
    enum ending e = work_ask(w, &due);

    w->done = due.made;
    while (e == ENDING_DONE) {
        struct op look = {.kind = OP_SWEEP};

        e = work_ask(w, &look);
        look = (struct op){.kind = OP_COUPON};
        if (e == ENDING_DONE)
            e = work_ask(w, &look);
        if (e != ENDING_DONE || look.head.due == 0 || look.head.archived) /* nothing more is retired */
            break;
        stop_rest(&w->runner->stop, LOOK_MS);
        e = work_between_steps(w);
        arena_reset(&w->arena);
    }
    return e;
}

static enum ending drop_codes(struct work *w)
{
    int64_t pause_ms = 0;
    enum ending e = ENDING_DONE;
    bool more = true;

    for (int64_t b = 0; e == ENDING_DONE && more; b += CLEAN_BUCKETS) {
        e = work_between_steps(w);
        while (e == ENDING_DONE && mongo_codes_clean(w->session, w->job->coupon, b, CLEAN_BUCKETS, &more) != STORE_OK)
            e = work_rest(w, &pause_ms);
        pause_ms = 0;
    }
    return e;
}

enum ending run_cleanup(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_between_steps(w);
    bool codes;

    if (e == ENDING_DONE)
        e = work_ask(w, &op);
    if (e == ENDING_FAILED && w->error == CPN_COUPON_NOT_FOUND)
        return ENDING_DONE;
    if (e == ENDING_DONE && op.head.archived == LANE_REMOVED && w->job->key &&
        strncmp(w->job->key, JOB_KEY_REMAINS, strlen(JOB_KEY_REMAINS)) == 0)
        return run_remains(w);
    if (e != ENDING_DONE || !is_over(op.coupon_now, clock_now_ms()) || !policy_of(op.coupon_now)->slots)
        return e;
    codes = op.coupon_now->codes.source != CODES_NONE;
    if (op.head.archived) /* nothing more is retired */
        return ENDING_DONE;
    e = retire_free(w, head_free(&op.head));
    if (e == ENDING_DONE && codes)
        e = work_catch_up(w);
    return e == ENDING_DONE && codes ? drop_codes(w) : e;
}
