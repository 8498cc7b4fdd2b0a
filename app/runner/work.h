/*
 * runner/work.h -- a job in a runner's hands: its steps, its lease, and how it can end.
 *
 * Shape    struct work: one job, while one thread has claimed it
 * Rule     a job lets go when its lease or its turn (see decide_turn()) has gone to another: nothing it does later counts, because every
 *          append carries its step or its turn
 * Resting  every wait ends at once when the process is asked to stop
 */
#ifndef RUNNER_WORK_H
#define RUNNER_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bloom.h"
#include "base/buf.h"
#include "base/config.h"
#include "base/stop.h"
#include "engine/engine.h"
#include "runner/failing.h"
#include "store/mongo.h"

struct runner {
    const struct config *config;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct engine *engine;
    struct leases *leases;
    struct stop stop;
};

/* How a step or job ended. */
enum ending {
    ENDING_DONE,      /* of a step: go on */
    ENDING_FAILED,    /* w->error says why */
    ENDING_CANCELLED,
    ENDING_POSTPONED, /* another job goes first: requeue it */
    ENDING_LOST,      /* another runner has it */
    ENDING_STOPPED    /* we were asked to stop: the next claimant goes on */
};

struct work {
    struct runner *runner;
    struct store *session;
    const struct job *job;
    struct arena arena;    /* for one step */
    struct arena keep;     /* as long as we have the job */
    struct buf result;     /* JSON members of the result, besides those of its kind */
    int64_t step;          /* the last one in the ledger */
    struct failing failing; /* the step at hand */
    int64_t pause_ms;      /* after its last failure */
    _Atomic int64_t done;  /* as in struct job */
    enum cpn_result error; /* when ENDING_FAILED */
    const char *detail;    /* kept or static; NULL: the error's explanation */
    /* for jobs that make codes: see code_drafts.h */
    bool turned;           /* it requested its turn */
    int64_t turn;          /* 0: none */
    bool known;            /* the following is as of our last batch */
    struct head head;
    const struct coupon *coupon;
    struct bloom code_bloom; /* the coupon's possible codes; without blocks if not worth it */
    int64_t code_bloom_turn; /* the turn in which it was filled */
    int64_t clean_turn;    /* the turn in which the last drafts were completed; 0: they may be partial */
};

/* ---- steps; each returns ENDING_DONE, or why the job ends ---- */

/* Record progress and renew the lease; waits while the database fails. */
enum ending work_progress(struct work *w);
/* Check whether to go on with the next step. */
enum ending work_between_steps(struct work *w);
/* Ask the engine once. What the op's results point to is valid until w->arena is reset. */
enum cpn_result work_try(struct work *w, struct op *op);
/* True if the same op may be asked again. */
bool work_may_repeat(enum cpn_result r);
/* Rest after a failed attempt at `doing` (static), and renew the lease. A step that keeps failing is logged, and ends the job at last. */
enum ending work_rest(struct work *w, const char *doing);
/* Ask the engine until it decides. A refusal fails the job. */
enum ending work_ask(struct work *w, struct op *op);
/* The same for up to WORK_OPS_MAX at once, each with an arena of its own, until all are decided: their outcomes say how, refusals too. */
#define WORK_OPS_MAX 64
enum ending work_ask_all(struct work *w, struct op *const *ops, size_t count);
/* Read the job's state from the ledger: op->out.job, op->head, op->coupon_now. */
enum ending work_standing(struct work *w, struct op *op);
/* Wait until the checkpoints of the job's coupon have caught up with its ledger. */
enum ending work_catch_up(struct work *w);
/* Fail the job with r; detail is kept or static, or NULL. */
enum ending work_fail(struct work *w, enum cpn_result r, const char *detail);

/* ---- kinds of job, by file ---- */

enum ending run_generate(struct work *w);
enum ending run_retire(struct work *w);
enum ending run_import(struct work *w);
enum ending run_cleanup(struct work *w);
enum ending run_archive(struct work *w);
enum ending run_retire_codes(struct work *w);
enum ending run_issue_codes(struct work *w);

/* The sweeper's thread; context is the struct runner. */
void *sweeper_thread(void *context);
void *front_heartbeat_thread(void *context);

#endif
