/*
 * tests/engine/rig.h -- a fixture: a few engines of one committer each over one fake store, and what most tests ask of them.
 *
 * Usage    RUN_TESTS(.each_setup = rig_begin, .each_teardown = rig_end, .setup = fake_group_setup); a test that has several engines, sets
 *          .config, or watches what an engine asks of the store begins with rig_connect(), and goes on with rig_start()
 * Watched  engine i opens sessions of .watched[i], of which a test may set .ops before rig_start()
 * Lane     rig_catch_up() and the restart are about lane 0
 */
#ifndef TESTS_ENGINE_RIG_H
#define TESTS_ENGINE_RIG_H

#include "base/thread.h"
#include "engine/engine.h"
#include "fake_store.h"

#define COUPON "c1"
#define PATIENCE_MS 300000
#define ENGINES_MOST 3

struct rig {
    int count;
    const char *coupon; /* of a request that names none */
    struct fake *fake;
    struct engine_config config;
    struct store_source *sources[ENGINES_MOST];
    struct watched watched[ENGINES_MOST];
    struct engine *engines[ENGINES_MOST]; /* NULL: stopped by the test */
    struct arena arenas[ENGINES_MOST];    /* each engine's requests allocate in its own, unless they bring one */
};

/* Of the test that runs. */
extern struct rig rig;

void rig_connect(int engines, uint32_t seed, int fault_percent);
void rig_start(multilane_start *lanes);
/* The first engine, when all is written: nothing is left in memory, and what is there has to be looked for. */
void rig_restart_written(void);

/* One engine, and the end of any: cmocka's. */
int rig_begin(void **state);
int rig_end(void **state);

/* op->outcome.result of an op that has PATIENCE_MS, or so long. */
enum cpn_result rig_call(int engine, struct op *op);
enum cpn_result rig_call_within(int engine, struct op *op, int64_t ms);
/* The op is OK. */
void rig_ask(int engine, struct op *op);
/* Hand it in. done: NULL counts down the latch that context is. */
void rig_submit(int engine, struct op *op, void (*done)(struct op *op), void *context);
void rig_catch_up(int engine);

/* Of the first engine: make the coupon; slots by step `step` of job "j", which takes its turn first if they have codes. */
void rig_create(struct coupon *c);
void rig_generate(const struct coupon *c, int64_t step, int64_t count);
/* A taking without a code, to be asked for. */
struct op rig_taking(const char *user, const char *key, enum slot_state state);
struct op rig_step(const struct redemption *r, enum slot_move move, const char *key);
/* The coupon's totals. */
struct head rig_head(int engine);
/* What the ledger has, to a session that sees the present. */
struct store *rig_session(void);

void rig_nap(void); /* 1 ms */
void rig_move_clock(int64_t s);

#endif
