/*
 * runner/work.h -- a job in a runner's hands: its steps, its lease, and how it can end.
 *
 * Shape    struct work: one job, while one thread has claimed it
 * Rule     a job lets go where its lease or its turn (see decide_turn()) is another's: nothing that it says later
 *          counts, because every append carries its step or its turn
 * Resting  every wait ends at once when the process is told to stop
 */
#ifndef RUNNER_WORK_H
#define RUNNER_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/config.h"
#include "base/stop.h"
#include "engine/engine.h"
#include "runner/code_bloom.h"
#include "store/mongo.h"

struct runner {
    const struct config *config;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct engine *engine;
    struct leases *leases;
    struct stop stop;
};

/* What became of a job in our hands. */
enum ending {
    ENDING_DONE,      /* of a step: go on */
    ENDING_FAILED,    /* w->error says why */
    ENDING_CANCELLED,
    ENDING_POSTPONED, /* another job is first: back into the queue */
    ENDING_LOST,      /* another runner has it */
    ENDING_STOPPED    /* we were told to stop: whoever claims it next goes on */
};

struct work {
    struct runner *runner;
    struct store *session;
    const struct job *job;
    struct arena arena;    /* for one step */
    struct arena keep;     /* as long as the job is in our hands */
    struct buf result;     /* members of the result, in JSON, beyond those that its kind makes */
    int64_t step;          /* the last one that the ledger has */
    _Atomic int64_t done;  /* as struct job */
    enum cpn_result error; /* when ENDING_FAILED */
    const char *detail;    /* kept or static; NULL: the error's explanation */
    /* jobs that make codes: see code_drafts.h */
    bool turned;           /* it asked for its turn */
    int64_t turn;          /* 0: it has none */
    bool known;            /* what follows is as of our last batch */
    struct head head;
    const struct coupon *coupon;
    struct code_bloom code_bloom; /* what the coupon may have of codes; without blocks where that is not worth its while */
    int64_t code_bloom_turn; /* in which it was filled */
    int64_t clean_turn;    /* in which the last drafts were written whole: 0: they may be there in part */
};

/* ---- steps; each returns ENDING_DONE, or why the job ends here ---- */

/* Note progress and renew the lease; waits while the database fails. */
enum ending work_progress(struct work *w);
/* Whether to go on with the next step. */
enum ending work_between_steps(struct work *w);
/* One try at the engine. What the op's results point to lives until w->arena is reset. */
enum cpn_result work_try(struct work *w, struct op *op);
/* True: the same op may be asked again. */
bool work_may_repeat(enum cpn_result r);
/* Rest after a try that failed, and renew the lease. */
enum ending work_rest(struct work *w, int64_t *pause_ms);
/* Ask the engine until it decides. A refusal fails the job. */
enum ending work_ask(struct work *w, struct op *op);
/* The job as the ledger has it: op->user_state, op->head, op->coupon_now. */
enum ending work_standing(struct work *w, struct op *op);
/* Let the views of the job's coupon stand where its ledger does. */
enum ending work_catch_up(struct work *w);
/* The job fails with r; detail is kept or static, or NULL. */
enum ending work_fail(struct work *w, enum cpn_result r, const char *detail);

/* ---- the kinds of job, by file ---- */

enum ending run_generate(struct work *w);
enum ending run_retire(struct work *w);
enum ending run_import(struct work *w);
enum ending run_export(struct work *w);
enum ending run_cleanup(struct work *w);
enum ending run_archive(struct work *w);
/* What an archived coupon left behind goes: archive.c. */
enum ending run_remains(struct work *w);

/* The sweeper's thread; context is the struct runner. */
void *sweeper_thread(void *context);
void *front_heartbeat_thread(void *context);
void *high_water_thread(void *context);
void *front_probe_thread(void *context);

#endif
