/* engine/op_list.c -- see op_list.h. */
#include "engine/op_list.h"

void op_list_add(struct op_list *l, struct op *op)
{
    op->engine.next = NULL;
    if (l->last)
        l->last->engine.next = op;
    else
        l->first = op;
    l->last = op;
    l->count++;
}

struct op *op_list_take(struct op_list *l)
{
    struct op *op = l->first;

    if (!op)
        return NULL;
    l->first = op->engine.next;
    if (!l->first)
        l->last = NULL;
    l->count--;
    op->engine.next = NULL;
    return op;
}

void op_list_prepend(struct op_list *l, struct op_list *front)
{
    if (!front->count)
        return;
    front->last->engine.next = l->first;
    if (!l->last)
        l->last = front->last;
    l->first = front->first;
    l->count += front->count;
    *front = (struct op_list){0};
}
