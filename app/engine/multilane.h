/*
 * engine/multilane.h -- coupons with several lanes: which they are, and the hooks by which their lanes work together.
 *
 * Shape    the engine runs lanes, and no lane knows of another. It calls the hooks for lanes of coupons that have several, and none for a
 *          coupon with one lane. lanes/ implements them; an engine started without them supports only coupons with one lane
 * Path     submit -> takes; then, in a round of the committer: adopt, sort, load; begin, decide, end; committed or confirmed; lacks
 * Threads  any, but for hooks that a committer calls from its own
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

/* Those of lanes/ are lanes_hooks, in lanes.c. */
struct multilane_hooks {
    /* op was accepted; its coupon has this many lanes (for OP_FOLLOW: perhaps one). op->lane becomes its lane. True: it is done here. */
    bool (*takes)(struct multilane *s, struct op *op, int64_t lanes);
    /* A lane other than 0 has no definition yet: it takes over that of lane 0. STORE_NOT_FOUND: its view is not written yet. */
    enum store_status (*adopt)(struct multilane *s, struct store *store, struct lane *l);
    /* Now that it is known how many lanes the coupon has: requests that are not for this lane leave the round. */
    void (*sort)(struct multilane *s, struct committer *c, struct lane_work *p);
    /* Read what requests are about that no other lane has: the accounts with other lanes. */
    void (*load)(struct multilane *s, struct committer *c, struct lane_work *p);
    /* decide_begin() was called: what is known of the others, and what must be decided before any request. */
    void (*begin)(struct multilane *s, struct lane_work *p);
    /* Decide a request between lanes: see op.h. */
    void (*decide)(struct multilane *s, struct lane_work *p, struct op *op);
    /* All that writes was decided: what goes with the batch, and with the answers. */
    void (*end)(struct multilane *s, struct lane_work *p);
    /* The lane's batch is in the ledger; or it had none, and its tail has not moved. */
    void (*committed)(struct multilane *s, const struct lane *l);
    void (*confirmed)(struct multilane *s, const struct lane *l);
    /* op was refused for lack of op->outcome.lacks, which other lanes may have: it is tried again when that is settled. */
    void (*lacks)(struct multilane *s, struct op *op);
    /* Answer waiting requests before the committers are stopped; later requests get BUSY. Free it when all threads have ended. */
    void (*stop)(struct multilane *s);
    void (*free)(struct multilane *s);
};

/* The first member of what the hooks are given. */
struct multilane {
    const struct multilane_hooks *hooks;
    atomic_int waiting; /* requests that it has */
    atomic_bool any;    /* so that a process without such coupons looks no further */
    pthread_mutex_t lock;
    struct multilane_coupon *coupons; /* under the lock */
};

/* Start one for the engine; what it is given outlives it. */
typedef struct multilane *multilane_start(struct engine *e, struct store_source *source, const struct engine_hooks *hooks);

void multilane_init(struct multilane *s, const struct multilane_hooks *hooks);
void multilane_release(struct multilane *s);
/* How many lanes the coupon has; 1: one, or not known. s: NULL: one. */
int64_t multilane_lanes(struct multilane *s, const char *coupon);
/* The coupon has so many lanes, for ever. */
void multilane_know(struct multilane *s, const char *coupon, int64_t lanes);

#endif
