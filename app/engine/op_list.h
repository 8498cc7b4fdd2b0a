/*
 * engine/op_list.h -- a queue of requests, in order of arrival.
 * Owns  nothing: an op is in one list at a time, by op->engine.next
 */
#ifndef ENGINE_OP_LIST_H
#define ENGINE_OP_LIST_H

#include "engine/op.h"

struct op_list {
    struct op *first, *last;
    size_t count;
};

void op_list_add(struct op_list *l, struct op *op);
struct op *op_list_take(struct op_list *l);
/* Move all of `front` before l's; front is empty afterwards. */
void op_list_prepend(struct op_list *l, struct op_list *front);

#endif
