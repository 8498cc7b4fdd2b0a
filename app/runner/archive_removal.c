/*
 * runner/archive_removal.c -- removes an archived coupon's data, once its archive is written (couponctl archive).
 *
 * Fits     the job names the archived ledger by batch_tails_digest(); it is refused if anything was appended since
 * Order    checkpoints and totals are written, and webhooks delivered, up to the tail; each lane gets its second `archive`; the same up to
 *          that; a pause, until earlier readers have answered; then ledger, codes and buckets are removed
 * Cut off  at any point: a repeat, by this job or another, finishes it
 * Rest     before the removal it asks for another job, which deletes what remains after LANE_REMAINS_MS
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "runner/work.h"
#include "store/hooks.h"

#define BEHIND_MS 180000 /* longest wait for others to catch up */
#define LOOK_MS 200

struct archive {
    struct work *work;
    int64_t lanes;
    struct batch *tails[COUPON_LANES_MAX]; /* each lane's last batch */
};

/* ---- the lanes' last batches ---- */

static void forget_tails(struct archive *a)
{
    for (size_t i = 0; i < COUPON_LANES_MAX; i++) {
        batch_free(a->tails[i]);
        a->tails[i] = NULL;
    }
}

static enum ending read_tails(struct archive *a)
{
    struct work *w = a->work;
    enum ending e = ENDING_DONE;

    forget_tails(a);
    for (int64_t lane = 0; e == ENDING_DONE && lane < a->lanes; lane++) {
        size_t count = 0;

        while (e == ENDING_DONE &&
               mongo_ledger_back(w->session, w->job->coupon, lane, INT64_MAX, 1, &a->tails[lane], &count) != STORE_OK)
            e = work_rest(w, "Reading the ledger");
        if (e == ENDING_DONE && !count)
            e = work_fail(w, CPN_COUPON_IN_USE, "A lane has no batch.");
    }
    return e;
}

static bool all_are(const struct archive *a, int64_t archived)
{
    for (int64_t i = 0; i < a->lanes; i++)
        if (a->tails[i]->head.archived < archived)
            return false;
    return true;
}

/* The ledger is the one that was archived. */
static bool fits(const struct archive *a)
{
    uint8_t hashes[COUPON_LANES_MAX][HASH_LEN], digest[FINGERPRINT_LEN];

    for (int64_t i = 0; i < a->lanes; i++) {
        const struct batch *b = a->tails[i];

        memcpy(hashes[i], b->head.archived == LANE_REMOVED ? b->prev : b->head.hash, HASH_LEN);
    }
    batch_tails_digest((const uint8_t (*)[HASH_LEN])hashes, (size_t)a->lanes, digest);
    return memcmp(digest, a->work->job->fingerprint, FINGERPRINT_LEN) == 0;
}

/* ---- what must have caught up ---- */

/* What has not caught up with a lane's last batch, or NULL. */
static enum store_status find_behind(struct archive *a, const struct batch *tail, const char **behind)
{
    struct work *w = a->work;
    struct totals_position_read totals = {.coupon = w->job->coupon, .lane = tail->lane};
    struct checkpoint_read checkpoint = {.coupon = w->job->coupon, .lane = tail->lane};
    enum store_status s = w->session->ops->checkpoints(w->session, &checkpoint, 1);
    const char *hook = NULL;

    *behind = NULL;
    if (s == STORE_OK)
        s = w->session->ops->totals_positions(w->session, &totals, 1);
    if (s == STORE_OK && checkpoint.checkpoint.seq < tail->head.seq)
        *behind = "checkpoint";
    else if (s == STORE_OK && totals.seq < tail->head.seq)
        *behind = "totals";
    if (s != STORE_OK || *behind)
        return s;
    s = mongo_hook_behind(w->session, tail, &w->arena, &hook);
    if (s == STORE_OK && hook)
        *behind = arena_printf(&w->arena, "webhook %s", hook);
    return s;
}

static enum ending await_lane(struct archive *a, const struct batch *tail, struct mono until)
{
    struct work *w = a->work;

    for (;;) {
        const char *behind = NULL;
        enum ending e = work_between_steps(w);

        if (e != ENDING_DONE)
            return e;
        arena_reset(&w->arena);
        if (find_behind(a, tail, &behind) == STORE_OK && !behind)
            return ENDING_DONE;
        if (mono_before(until, mono_now()))
            return work_fail(w, CPN_BUSY,
                             arena_printf(&w->keep,
                                          "Still behind the end of lane %" PRId64 ": %s. Nothing was removed. Run archive again once it "
                                          "has caught up.",
                                          tail->lane, behind ? behind : "the database"));
        engine_catch_up(w->runner->engine, w->job->coupon, tail->lane, LOOK_MS);
        stop_rest(&w->runner->stop, LOOK_MS);
    }
}

static enum ending await_others(struct archive *a)
{
    struct mono until = mono_add_ms(mono_now(), BEHIND_MS);
    enum ending e = ENDING_DONE;

    for (int64_t i = 0; i < a->lanes && e == ENDING_DONE; i++)
        e = await_lane(a, a->tails[i], until);
    return e;
}

/* Wait until whoever read the coupon before its last batches has answered. */
static enum ending await_readers(struct archive *a)
{
    int64_t until_ms = 0;
    enum ending e = ENDING_DONE;

    for (int64_t i = 0; i < a->lanes; i++)
        until_ms = a->tails[i]->head.at_ms > until_ms ? a->tails[i]->head.at_ms : until_ms;
    until_ms += a->work->runner->config->worker_request_deadline_ms;
    while (e == ENDING_DONE && clock_now_ms() < until_ms) {
        stop_rest(&a->work->runner->stop, LOOK_MS);
        e = work_between_steps(a->work);
    }
    return e;
}

/* ---- removing ---- */

static enum ending leave(struct work *w, struct leaving *l)
{
    int64_t before = w->done;
    enum ending e = ENDING_DONE;

    l->coupon = w->job->coupon;
    while (e == ENDING_DONE && !l->done) {
        e = mongo_leave(w->session, l) == STORE_OK ? work_between_steps(w) : work_rest(w, "Removing documents");
        w->done = before + l->count;
    }
    return e;
}

static enum ending leave_all(struct archive *a, bool whole)
{
    enum ending e = ENDING_DONE;

    for (int64_t i = 0; i < a->lanes && e == ENDING_DONE; i++)
        e = leave(a->work, &(struct leaving){.kind = REMAINS_LEDGER, .lane = i, .end = a->tails[i]->head.seq, .whole = whole});
    for (int kind = REMAINS_LEDGER + 1; kind < REMAINS_KIND_COUNT && e == ENDING_DONE; kind++)
        e = leave(a->work, &(struct leaving){.kind = (enum remains_kind)kind, .whole = whole});
    return e;
}

/* Note the removal in the coupon's document, and ask for the job that deletes what it leaves. */
static enum ending ask_for_remains(struct work *w)
{
    const struct job job = {.kind = JOB_CLEANUP, .coupon = w->job->coupon, .not_before_ms = clock_now_ms() + LANE_REMAINS_MS,
                            .key = arena_printf(&w->keep, JOB_KEY_REMAINS "%s", w->job->id)};
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE &&
           (mongo_removal_note(w->session, w->job->coupon) != STORE_OK || mongo_job_ask(w->session, &job) != STORE_OK))
        e = work_rest(w, "Asking for the job that deletes what remains");
    return e;
}

/* ---- the jobs ---- */

static enum ending begin(struct archive *a)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_between_steps(a->work);

    if (e == ENDING_DONE)
        e = work_ask(a->work, &op);
    if (e != ENDING_DONE)
        return e;
    a->lanes = op.coupon_now->lanes;
    return read_tails(a);
}

static enum ending let_leave(struct archive *a)
{
    enum ending e = begin(a);

    if (e == ENDING_DONE && !all_are(a, LANE_CLOSED))
        return work_fail(a->work, CPN_COUPON_IN_USE, "It is not closed yet.");
    if (e == ENDING_DONE && !fits(a))
        return work_fail(a->work, CPN_VERSION_CHANGED, "Its ledger has grown since the archive was written. Archive it again.");
    if (e == ENDING_DONE && !all_are(a, LANE_REMOVED)) {
        e = await_others(a);
        for (int64_t i = 0; i < a->lanes && e == ENDING_DONE; i++) {
            struct op op = {.kind = OP_REMOVE, .lane = i, .in.expected_seq = a->tails[i]->head.seq};

            e = work_ask(a->work, &op);
            arena_reset(&a->work->arena);
        }
        if (e == ENDING_DONE)
            e = read_tails(a);
    }
    if (e == ENDING_DONE)
        e = await_others(a);
    if (e == ENDING_DONE)
        e = ask_for_remains(a->work);
    if (e == ENDING_DONE)
        e = await_readers(a);
    return e == ENDING_DONE ? leave_all(a, false) : e;
}

enum ending run_archive(struct work *w)
{
    struct archive a = {.work = w};
    enum ending e;

    w->done = 0; /* a runner that takes over passes everything again */
    e = let_leave(&a);
    forget_tails(&a);
    return e;
}

enum ending run_remains(struct work *w)
{
    struct archive a = {.work = w};
    enum ending e = begin(&a);

    if (e == ENDING_DONE && all_are(&a, LANE_REMOVED))
        e = leave_all(&a, true);
    forget_tails(&a);
    return e;
}
