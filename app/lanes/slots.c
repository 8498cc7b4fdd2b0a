/* lanes/slots.c -- see slots.h. */
#include "lanes/slots.h"

#include "coupons/transfer.h"

#define MOVE_MOST 65536 /* slots, if no more are needed: the giver retires each that it gives */

struct transfer {
    int64_t giver, taker;
    int64_t most; /* slots; 0: just end what was begun */
};

/* ---- moving ---- */

static struct op *ask_job(struct fanout *a, enum op_kind kind, const struct transfer *m, bool gives)
{
    struct transfer_side side = {gives, gives ? m->giver : m->taker, gives ? m->taker : m->giver};
    struct op *op = fanout_add(a, kind, side.lane);

    op->in.job.id = transfer_job(&side, arena_alloc(op->arena, TRANSFER_JOB_SIZE));
    return op;
}

/* Make them. The giver's next step is asked for only as the one after the taker's: so until that is in the ledger, whoever asks gets
 * the same step. */
static enum cpn_result transfer_all(const struct asker *asker, const char *coupon, const struct transfer *transfers, size_t count)
{
    struct fanout *takers = fanout_new(coupon, count), *givers = fanout_new(coupon, count), *made = fanout_new(coupon, count);
    enum cpn_result r;

    for (size_t i = 0; i < count; i++)
        ask_job(takers, OP_JOB, &transfers[i], false);
    r = ask(asker, takers->ops, takers->count);
    for (size_t i = 0; r == CPN_OK && i < count; i++) {
        struct op *op = ask_job(givers, OP_RETIRING, &transfers[i], true);

        op->in.job.step = takers->ops[i].out.job->step + 1;
        op->in.job.count = transfers[i].most;
    }
    if (r == CPN_OK)
        r = ask(asker, givers->ops, givers->count);
    for (size_t i = 0; r == CPN_OK && i < count; i++) {
        int64_t more = op_made(&givers->ops[i]) - takers->ops[i].out.job->total;
        struct op *op = more > 0 ? ask_job(made, OP_GENERATE, &transfers[i], false) : NULL;

        if (!op)
            continue;
        op->in.job.step = givers->ops[i].in.job.step;
        op->in.job.count = more;
    }
    if (r == CPN_OK)
        r = ask(asker, made->ops, made->count);
    fanout_free(takers);
    fanout_free(givers);
    fanout_free(made);
    return r;
}

/* End all transfers that were begun. */
static enum cpn_result end_all(const struct asker *asker, const char *coupon, int64_t lanes)
{
    struct transfer transfers[2 * COUPON_LANES_MAX];
    size_t count = 0;

    for (int64_t lane = 1; lane < lanes; lane++) {
        transfers[count++] = (struct transfer){lane, 0, 0};
        transfers[count++] = (struct transfer){0, lane, 0};
    }
    return transfer_all(asker, coupon, transfers, count);
}

/* ---- finding ---- */

/* Transfer at most `most` slots to lane x. */
static void move_from(const struct asker *asker, const char *coupon, int64_t giver, int64_t x, int64_t most)
{
    struct transfer first = {giver, giver == 0 ? x : 0, most}, second = {0, x, most};

    if (transfer_all(asker, coupon, &first, 1) == CPN_OK && giver != 0 && x != 0)
        transfer_all(asker, coupon, &second, 1);
}

/* The lane other than x that has most free slots; -1: none has any. */
static int64_t richest(const struct fanout *heads, int64_t x)
{
    int64_t best = -1, most = 0;

    for (size_t i = 0; i < heads->count; i++) {
        int64_t left = head_free(&heads->ops[i].head);

        if ((int64_t)i == x || left <= most)
            continue;
        best = (int64_t)i;
        most = left;
    }
    return best;
}

/* True if no lane has moved since the first look, which found nothing. */
static bool is_unmoved(const struct asker *asker, const struct fanout *first, const char *coupon, int64_t lanes)
{
    enum cpn_result r;
    struct fanout *second = ask_heads(asker, coupon, lanes, &r);
    bool unmoved = r == CPN_OK;

    for (int64_t i = 0; i < lanes && unmoved; i++)
        unmoved = first->ops[i].head.seq == second->ops[i].head.seq;
    fanout_free(second);
    return unmoved;
}

enum found slots_find(const struct asker *asker, const char *coupon, int64_t lanes, int64_t x, int64_t need, int64_t *due_ms)
{
    enum found found = FOUND_SOME;
    enum cpn_result r;
    struct fanout *heads = ask_heads(asker, coupon, lanes, &r);
    int64_t giver = r == CPN_OK ? richest(heads, x) : -1, lacking = r == CPN_OK ? need - head_free(&heads->ops[x].head) : need;
    int64_t on_their_way = 0, fair;

    *due_ms = 0;
    for (int64_t i = 0; i < lanes && r == CPN_OK; i++) {
        on_their_way += heads->ops[i].head.elsewhere;
        *due_ms = sooner_ms(*due_ms, heads->ops[i].out.due_ms);
    }
    if (r != CPN_OK) {
        found = FOUND_SOME;
    } else if (lacking <= 0) {
        found = FOUND_ENOUGH;
    } else if (giver >= 0) {
        fair = head_free(&heads->ops[giver].head) / lanes;
        fair = fair < MOVE_MOST ? fair : MOVE_MOST;
        move_from(asker, coupon, giver, x, lacking > fair ? lacking : fair);
    } else if (on_their_way > 0) {
        end_all(asker, coupon, lanes);
    } else if (on_their_way == 0 && is_unmoved(asker, heads, coupon, lanes)) {
        found = FOUND_NOTHING;
    }
    fanout_free(heads);
    return found;
}
