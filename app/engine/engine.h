/*
 * engine/engine.h -- group commit: requests in, decided batches in the ledger, answers out.
 *
 * Shape    one struct engine per process; one lane per coupon and lane number, loaded on first use;
 *          one thread, the committer, owns the lanes; another writes checkpoints
 * Usage    engine_start(); fill a struct op, engine_submit(); done() is called once, from one of the engine's threads, and must be quick
 *          and not block
 * Promise  a result other than OUTCOME_UNKNOWN and BUSY reflects what a majority of the database has
 * Threads  engine_submit() from any thread
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/multilane.h"
#include "engine/op.h"

/* multilane: lanes_start() of lanes/, for coupons with several lanes; NULL: there are none. */
struct engine *engine_start(const struct engine_config *config, struct store_source *source, multilane_start *multilane);
/* OK, or BUSY: the queue is full, and done() will not be called. */
enum cpn_result engine_submit(struct engine *e, struct op *op) CPN_CHECKED;
/* Decide what waits, write checkpoints, stop the threads. After the last submit. */
void engine_stop(struct engine *e);

/* Submit and wait: for the job runner, tools and tests. Uses op->done and op->context. */
enum cpn_result engine_call(struct engine *e, struct op *op);
/* The same for several at once, which one batch may decide; their outcomes say the results. */
void engine_call_all(struct engine *e, struct op *const *ops, size_t count);
/* The same with a deadline ms from now, if only the result is wanted: the op's memory is freed on return. */
enum cpn_result engine_call_within(struct engine *e, struct op *op, int64_t ms);
#define ENGINE_CATCH_UP_MS 30000 /* where no client waits */
/* Load the lane, and have a checkpoint written that covers its ledger: the backstop. STORE_FAILED: not within ms, or somewhat more
 * (checked twice a second, between database calls); try again later. */
enum store_status engine_catch_up(struct engine *e, const char *coupon, int64_t lane, int64_t ms);

#endif
