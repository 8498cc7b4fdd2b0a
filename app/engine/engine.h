/*
 * engine/engine.h -- group commit: requests in, decided batches in the ledger, answers out.
 *
 * Shape    one struct engine per process; a lane per coupon (and lane number), loaded when first asked for;
 *          committer threads that own the lanes; a thread that writes views
 * Usage    engine_start(); fill a struct op, engine_submit(); its done() is called once, from one of the engine's threads,
 *          and must be quick and must not block
 * Promise  done() with a result other than OUTCOME_UNKNOWN and BUSY speaks of what a majority of the database has
 * Threads  engine_submit() from any thread
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/multilane.h"
#include "engine/op.h"

/* multilane: for coupons with several lanes, lanes_start() of lanes/; NULL: there are none. */
struct engine *engine_start(const struct engine_config *config, struct store_source *source,
                            const struct engine_hooks *hooks, multilane_start *multilane);
/* OK, or BUSY: the queue is full, and done() will not be called. */
enum cpn_result engine_submit(struct engine *e, struct op *op) CPN_CHECKED;
/* Decide what waits, write the views and marks, stop the threads. After the last submit. */
void engine_stop(struct engine *e);

/* Submit and wait: for the job runner, tools and tests. op->done and op->context are used. */
enum cpn_result engine_call(struct engine *e, struct op *op);
/* The same with a deadline in so many ms, of an op of which only the result is wanted: its memory is here, and gone after. */
enum cpn_result engine_call_within(struct engine *e, struct op *op, int64_t ms);
#define ENGINE_CATCH_UP_MS 30000 /* for those whom no client awaits */
/* Load the lane and write every view that the ledger says is missing: the backstop. STORE_FAILED: not within so many ms, or
 * somewhat more (it is looked at twice a second, between calls of the database); try again later. */
enum store_status engine_catch_up(struct engine *e, const char *coupon, int64_t lane, int64_t ms);

#endif
