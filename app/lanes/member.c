/* lanes/member.c -- see member.h. */
#include "lanes/member.h"

#include <assert.h>

#define GET_MOST 16384 /* most slots that a lane gets in one batch */

enum store_status member_adopt(struct lane *l, struct store *store)
{
    struct coupon *definition = NULL;
    int64_t seq;
    enum store_status status = store->ops->coupon(store, l->coupon, l->mark.when, &l->definition_arena, &definition, &seq);

    l->definition = definition;
    return status == STORE_OK && !definition ? STORE_NOT_FOUND : status;
}

/* ---- accounts with other lanes: few, and few requests concern them ---- */

/* The definition if op makes slots in lane 0, to be shared out to all lanes at once; else NULL. */
static const struct coupon *shared_out(const struct lane_work *p, const struct op *op)
{
    if (op->kind == OP_GENERATE)
        return p->lane->definition;
    return op->kind == OP_CREATE && op->count && !op->job ? op->definition : NULL;
}

static bool is_of_accounts(const struct lane_work *p, const struct op *op, const void *unused)
{
    (void)unused;
    return op->kind == OP_GIVE || op->kind == OP_GET || shared_out(p, op);
}

static size_t want_account(const struct lane_work *p, struct account_read *reads, size_t count, int64_t peer)
{
    for (size_t i = 0; i < count; i++)
        if (reads[i].peer == peer)
            return count;
    reads[count] = (struct account_read){.coupon = p->lane->coupon, .lane = p->lane->number, .peer = peer};
    return count + 1;
}

static size_t want_accounts(const struct lane_work *p, struct account_read reads[COUPON_LANES_MAX])
{
    size_t count = 0;

    for (const struct op *op = p->ops.first; op; op = op->next) {
        const struct coupon *definition = shared_out(p, op);

        if (op->kind == OP_GIVE || op->kind == OP_GET)
            count = want_account(p, reads, count, op->peer);
        for (int64_t lane = 1; definition && lane < definition->lanes; lane++)
            count = want_account(p, reads, count, lane);
    }
    return count;
}

/* False: the view is ahead of the tail. */
static bool settle_account(struct lane_work *p, const struct account_read *read)
{
    struct lane_account *own = arena_alloc(&p->batch->arena, sizeof *own);

    *own = read->account ? *read->account : (struct lane_account){.lane = read->lane, .peer = read->peer};
    p->accounts[read->peer] = own;
    return window_overlay_account(p->lane, own);
}

void member_load(struct committer *c, struct lane_work *p)
{
    struct account_read wanted[COUPON_LANES_MAX];
    size_t count = want_accounts(p, wanted), unknown = 0;
    struct arena *a = &p->batch->arena;
    enum store_status status = STORE_OK;

    if (!count)
        return;
    p->accounts = arena_array(a, COUPON_LANES_MAX, sizeof(struct lane_account *));
    for (size_t i = 0; i < count; i++) {
        const struct lane_account *known = window_known_account(p->lane, wanted[i].peer);

        if (!known) {
            wanted[unknown++] = wanted[i];
            continue;
        }
        p->accounts[known->peer] = arena_alloc(a, sizeof *known);
        *p->accounts[known->peer] = *known;
    }
    if (unknown)
        c->store->ops->accounts(c->store, p->lane->mark.when, a, wanted, unknown);
    for (size_t i = 0; i < unknown && status == STORE_OK; i++)
        status = wanted[i].status;
    for (size_t i = 0; i < unknown && status == STORE_OK; i++)
        if (!settle_account(p, &wanted[i])) {
            p->lane->stale = true;
            defer(c, p, 0);
            return;
        }
    if (status != STORE_OK)
        miss(c, p, status, is_of_accounts, NULL);
}

static void close_accounts(struct lane_work *p)
{
    p->batch->accounts = arena_array(&p->batch->arena, COUPON_LANES_MAX, sizeof(struct lane_account *));
    for (int64_t peer = 0; peer < COUPON_LANES_MAX; peer++)
        if (p->accounts[peer] && p->accounts[peer]->seq == p->d.head.seq)
            p->batch->accounts[p->batch->account_count++] = p->accounts[peer];
}

static const struct lane_account *copy_account(const struct lane_work *p, const struct op *op)
{
    struct lane_account *copy = arena_alloc(op->arena, sizeof *copy);

    *copy = *p->accounts[op->peer];
    return copy;
}

/* ---- deciding ---- */

void member_begin(struct lane_work *p, struct lane_totals *totals)
{
    const struct lane *l = p->lane;

    if (!l->definition)
        return;
    lane_totals_others(totals, l->coupon, l->number, p->day_ms, &p->d.others);
    if (l->number > 0)
        decide_follow(&p->d, l->definition); /* in case the process that changed it died before telling this lane */
}

void member_decide(struct lane_work *p, struct op *op)
{
    struct decision *d = &p->d;
    size_t before = d->batch->count;

    op->outcome = (struct outcome){.result = CPN_OK};
    switch (op->kind) {
    case OP_FOLLOW:
        decide_follow(d, op->definition);
        break;
    case OP_GIVE:
        decide_give(d, p->accounts[op->peer], &op->gift, &op->outcome);
        break;
    case OP_GET:
        decide_get(d, p->accounts[op->peer], &op->gift, op->gift_day_ms, GET_MOST, &op->outcome);
        op->made = (int64_t)(d->batch->count - before);
        break;
    case OP_EVENTS:
        decide_events_of_all(d, op->count);
        break;
    default:
        assert(!"not between lanes");
    }
}

void member_end(struct lane_work *p)
{
    if (!p->accounts)
        return;
    close_accounts(p);
    for (struct op *op = p->ops.first; op; op = op->next)
        if (op->kind == OP_GIVE || op->kind == OP_GET)
            op->account = copy_account(p, op);
}
