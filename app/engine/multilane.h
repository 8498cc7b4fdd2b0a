/*
 * engine/multilane.h -- coupons with several lanes: which ones, and the hooks by which their lanes cooperate.
 *
 * Shape    the engine runs lanes, and no lane knows of another. It calls the hooks for lanes of coupons with several, and none for a coupon
 *          with one lane. lanes/ implements them; an engine started without them supports only coupons with one lane
 * Path     submit -> takes; then, in a round of the committer: adopt, sort; begin, decide; committed or confirmed; lacks. At last: gone
 * Bound    what is known of a coupon is forgotten with the last of its lanes in memory. Of an unknown one lane 0 is asked, which knows
 * Threads  any, except hooks called from the committer's
 */
#ifndef ENGINE_MULTILANE_H
#define ENGINE_MULTILANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/op.h"

struct committer;
struct lane;
struct lane_work;
struct multilane;

/* lanes/ has lanes_hooks, in lanes.c. */
struct multilane_hooks {
    /* op was accepted; its coupon has this many lanes (OP_FOLLOW: perhaps one). Sets op->lane. True: handled here. */
    bool (*takes)(struct multilane *s, struct op *op, int64_t lanes);
    /* A lane other than 0 has no definition yet: take over lane 0's. STORE_NOT_FOUND: it is not stored yet. */
    enum store_status (*adopt)(struct multilane *s, struct store *store, struct lane *l);
    /* The number of lanes is known by now: requests for other lanes leave the round. Sets the lane's `multilane_counted`. */
    void (*sort)(struct multilane *s, struct committer *c, struct lane_work *p);
    /* After decide_begin(): add what is known of the other lanes, and decide what must come before any request. */
    void (*begin)(struct multilane *s, struct lane_work *p);
    /* Decide a request between lanes: see op.h. */
    void (*decide)(struct multilane *s, struct lane_work *p, struct op *op);
    /* The lane's batch is in the ledger; or it had none, and its tail has not moved. */
    void (*committed)(struct multilane *s, const struct lane *l);
    void (*confirmed)(struct multilane *s, const struct lane *l);
    /* op was refused for lack of slots, which other lanes may have: retry once that is settled. */
    void (*lacks)(struct multilane *s, struct op *op);
    /* A counted lane leaves memory. */
    void (*gone)(struct multilane *s, const struct lane *l);
    /* Answer waiting requests before the committer is stopped; later requests get BUSY. Free it when all threads have ended. */
    void (*stop)(struct multilane *s);
    void (*free)(struct multilane *s);
};

/* First member of the struct that the hooks are given. */
struct multilane {
    const struct multilane_hooks *hooks;
    atomic_int waiting; /* requests in its hands */
    atomic_bool any;    /* false: no such coupons, skip the look-up */
    pthread_mutex_t lock;
    struct multilane_coupon *coupons; /* under the lock */
};

/* Start one for the engine; the arguments outlive it. */
typedef struct multilane *multilane_start(struct engine *e, struct store_source *source);

void multilane_init(struct multilane *s, const struct multilane_hooks *hooks);
void multilane_release(struct multilane *s);
/* How many lanes the coupon has; 1: one, or unknown. s NULL: one. */
int64_t multilane_lanes(struct multilane *s, const char *coupon);
/* One more lane of the coupon is in memory; it has this many, for good. True: it is the first. */
bool multilane_know(struct multilane *s, const char *coupon, int64_t lanes);
/* One fewer is. True: it was the last, and the coupon is forgotten. */
bool multilane_forget(struct multilane *s, const char *coupon);

#endif
