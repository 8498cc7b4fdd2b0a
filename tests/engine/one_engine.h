/*
 * tests/engine/one_engine.h -- a fixture: one engine of one committer over a fake store, for tests of what one lane does.
 *
 * Usage   RUN_TESTS(.each_setup = one_engine_begin, .each_teardown = one_engine_end, .setup = fake_group_setup); a test whose calls
 *         are to pass something of its own begins with one_engine_connect(), sets .served or .config, and goes on with
 *         one_engine_start().
 */
#ifndef TESTS_ENGINE_ONE_ENGINE_H
#define TESTS_ENGINE_ONE_ENGINE_H

#include "engine/engine.h"
#include "fake_store.h"

#define PATIENCE_MS 300000

struct one_engine {
    struct fake *fake;
    struct store_source *source;
    struct store_source *served; /* what the engine opens */
    struct engine_config config;
    struct engine *engine;
    struct arena arena;
};

/* Of the test that runs. */
extern struct one_engine one;

void one_engine_connect(void);
void one_engine_start(void);
/* Nothing is left in memory. */
void one_engine_restart(void);
/* The same when all is written: what is there has to be looked for. */
void one_engine_restart_written(const char *coupon);

/* Both steps, and the end of either: cmocka's. */
int one_engine_begin(void **state);
int one_engine_end(void **state);

/* op->result of op on coupon, which has so long; it allocates in the fixture's arena. */
enum cpn_result one_engine_call(struct op *op, const char *coupon, int64_t ms);

#endif
