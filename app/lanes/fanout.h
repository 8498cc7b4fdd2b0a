/*
 * lanes/fanout.h -- asks several lanes of a coupon at once, and waits for all of them.
 *
 * Owns     each op has its own arena: the lanes may be on different threads
 * Threads  the one that asks; it owns the ops it made
 */
#ifndef LANES_FANOUT_H
#define LANES_FANOUT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/op.h"

/* Who asks, and how long an answer is of use. */
struct asker {
    struct engine *engine;
    struct mono until;
};

/* Ops asked together. */
struct fanout {
    struct op *ops;
    struct arena *arenas;
    size_t count, most;
};

/* Room for `most` ops of the coupon, whose id is borrowed. */
struct fanout *fanout_new(const char *coupon, size_t most);
void fanout_free(struct fanout *a);
/* Add an op, to be filled in. */
struct op *fanout_add(struct fanout *a, enum op_kind kind, int64_t lane);

/* Ask all, and wait for the answers. Returns the first result other than OK, or OK. */
enum cpn_result ask(const struct asker *asker, struct op *ops, size_t count);
/* The totals of all lanes: lane i's in ops[i]; *result as from ask(). */
struct fanout *ask_heads(const struct asker *asker, const char *coupon, int64_t lanes, enum cpn_result *result);
/* Totals over all lanes: those that only lane 0 has, and the sums of the rest. */
void heads_add_up(struct head *sum, const struct op *heads, int64_t lanes);

#endif
