/* lanes/member.c -- see member.h. */
#include "lanes/member.h"

#include <assert.h>

enum store_status member_adopt(struct lane *l, struct store *store)
{
    struct coupon_read read = {.coupon = l->coupon, .arena = &l->definition_arena};
    enum store_status status = store->ops->coupons(store, &read, 1);

    l->definition = read.definition;
    return status == STORE_OK && !read.definition ? STORE_NOT_FOUND : status;
}

void member_begin(struct lane_work *p, struct lane_totals *totals)
{
    const struct lane *l = p->lane;

    if (!l->definition)
        return;
    lane_totals_others(totals, l->coupon, l->number, &p->d.others);
    if (l->number > 0)
        decide_follow(&p->d, l->definition); /* in case the process that changed it died before telling this lane */
}

void member_decide(struct lane_work *p, struct op *op)
{
    op->outcome = (struct outcome){.result = CPN_OK};
    if (op->kind == OP_FOLLOW)
        decide_follow(&p->d, op_coupon(op)->definition);
    else if (op->kind == OP_EVENTS)
        decide_events_of_all(&p->d, op->in.taken);
    else
        assert(!"not between lanes");
}
