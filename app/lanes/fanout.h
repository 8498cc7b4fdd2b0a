/*
 * lanes/fanout.h -- asking several lanes of a coupon something at once, and waiting for all of them.
 *
 * Owns     each op has an arena of its own: the lanes may have different threads
 * Threads  the one that asks; asks that it made are its own
 */
#ifndef LANES_FANOUT_H
#define LANES_FANOUT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/op.h"

/* Who asks, and until when an answer is of use. */
struct asker {
    struct engine *engine;
    struct mono until;
};

/* Ops that are asked together. */
struct fanout {
    struct op *ops;
    struct arena *arenas;
    size_t count, most;
};

/* Room for `most` ops of the coupon, whose id is borrowed. */
struct fanout *fanout_new(const char *coupon, size_t most);
void fanout_free(struct fanout *a);
/* One more op, to be filled in. */
struct op *fanout_add(struct fanout *a, enum op_kind kind, int64_t lane);

/* Ask all, and wait for the answers. The first result that is not OK, or OK. */
enum cpn_result ask(const struct asker *asker, struct op *ops, size_t count);
/* The totals of all lanes, ops[lane] has a lane's; *result as of ask(). */
struct fanout *ask_heads(const struct asker *asker, const char *coupon, int64_t lanes, enum cpn_result *result);
/* Totals over all lanes: what only lane 0 knows, and the sums of the rest. */
void heads_add_up(struct head *sum, const struct op *heads, int64_t lanes);

#endif
