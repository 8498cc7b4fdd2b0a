/*
 * runner/archive_removal.c -- removes an archived coupon's documents, LANE_KEPT_MS after it was closed (couponctl archive asks for it).
 *
 * Fits     the job has a digest of the lanes' closing hashes (mongo_closing()); if the database's differs, nothing is removed
 * Order    checkpoints and totals are written, and webhooks delivered, up to the tail; each lane gets its second `archive`; the same up to
 *          that; a pause, until earlier readers have answered; then the documents are removed
 * Late     whoever slept for LANE_KEPT_MS reloads the lane before it appends or writes a checkpoint (trusted_ms)
 * Cut off  at any point: a repeat, by this job or another, finishes it
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "runner/work.h"
#include "store/hooks.h"

#define BEHIND_MS 180000 /* longest wait for others to catch up */
#define AGAIN_MS 3600000 /* after such a wait */
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

static bool are_released(const struct archive *a)
{
    for (int64_t i = 0; i < a->lanes; i++)
        if (a->tails[i]->head.archived != LANE_REMOVED)
            return false;
    return true;
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
                                          "Still behind the end of lane %" PRId64 ": %s. No document was removed. Another job tries again "
                                          "in an hour.",
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

/* ---- the job ---- */

static enum ending remove_documents(struct work *w)
{
    struct removal r = {.coupon = w->job->coupon};
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE && r.collection < REMOVED_COLLECTIONS) {
        e = mongo_remove_page(w->session, &r) == STORE_OK ? work_between_steps(w) : work_rest(w, "Removing documents");
        w->done = r.count;
    }
    return e;
}

/* The coupon is closed, as its archive has it. */
static enum ending check_closing(struct archive *a)
{
    struct work *w = a->work;
    uint8_t digest[FINGERPRINT_LEN];
    enum store_status s;
    int64_t at_ms;

    for (;;) {
        enum ending e;

        s = mongo_closing(w->session, w->job->coupon, a->lanes, digest, &at_ms);
        if (s == STORE_NOT_FOUND)
            return work_fail(w, CPN_COUPON_IN_USE, "It is not closed yet.");
        if (s == STORE_OK && memcmp(digest, w->job->fingerprint, FINGERPRINT_LEN) != 0)
            return work_fail(w, CPN_VERSION_CHANGED, "Its ledger is not the one in the archive. Archive it again.");
        if (s == STORE_OK)
            return ENDING_DONE;
        e = work_rest(w, "Reading the ledger");
        if (e != ENDING_DONE)
            return e;
    }
}

/* Append the second `archive` to each lane. */
static enum ending release_lanes(struct archive *a)
{
    enum ending e = await_others(a);

    for (int64_t i = 0; i < a->lanes && e == ENDING_DONE; i++) {
        struct op op = {.kind = OP_REMOVE, .lane = i};

        e = work_ask(a->work, &op);
        arena_reset(&a->work->arena);
    }
    return e == ENDING_DONE ? read_tails(a) : e;
}

/* Others were behind for too long, and nobody watches: try again later. */
static enum ending ask_again(struct work *w)
{
    struct job job = {.kind = JOB_ARCHIVE, .coupon = w->job->coupon, .not_before_ms = clock_now_ms() + AGAIN_MS,
                      .key = arena_printf(&w->keep, JOB_KEY_REMOVAL "%s", w->job->id)};

    memcpy(job.fingerprint, w->job->fingerprint, FINGERPRINT_LEN);
    while (mongo_job_ask(w->session, &job) != STORE_OK) {
        enum ending e = work_rest(w, "Asking for another try");

        if (e != ENDING_DONE)
            return e;
    }
    return ENDING_FAILED;
}

static enum ending remove_coupon(struct archive *a)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_between_steps(a->work);

    if (e == ENDING_DONE)
        e = work_ask(a->work, &op);
    if (e != ENDING_DONE)
        return e;
    a->lanes = op.coupon_now->lanes;
    e = check_closing(a);
    if (e == ENDING_DONE)
        e = read_tails(a);
    if (e == ENDING_DONE && !are_released(a))
        e = release_lanes(a);
    if (e == ENDING_DONE)
        e = await_others(a);
    if (e == ENDING_FAILED && a->work->error == CPN_BUSY)
        return ask_again(a->work);
    if (e == ENDING_DONE)
        e = await_readers(a);
    return e == ENDING_DONE ? remove_documents(a->work) : e;
}

enum ending run_archive(struct work *w)
{
    struct archive a = {.work = w};
    enum ending e;

    w->done = 0; /* a runner that takes over counts what it removes itself */
    e = remove_coupon(&a);
    forget_tails(&a);
    return e;
}
