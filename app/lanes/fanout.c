/* lanes/fanout.c -- see fanout.h. */
#include "lanes/fanout.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/thread.h"
#include "engine/internal.h"

struct fanout *fanout_new(const char *coupon, size_t most)
{
    struct fanout *a = checked(calloc(1, sizeof *a));

    a->ops = checked(calloc(most, sizeof *a->ops));
    a->arenas = checked(calloc(most, sizeof *a->arenas));
    a->most = most;
    for (size_t i = 0; i < most; i++) {
        arena_init(&a->arenas[i], 0);
        a->ops[i] = (struct op){.coupon = coupon, .arena = &a->arenas[i]};
    }
    return a;
}

void fanout_free(struct fanout *a)
{
    for (size_t i = 0; i < a->most; i++)
        arena_free(&a->arenas[i]);
    free(a->arenas);
    free(a->ops);
    free(a);
}

struct op *fanout_add(struct fanout *a, enum op_kind kind, int64_t lane)
{
    struct op *op = &a->ops[a->count++];

    op->kind = kind;
    op->lane = lane;
    return op;
}

static void one_done(struct op *op)
{
    latch_down(op->context);
}

enum cpn_result ask(const struct asker *asker, struct op *ops, size_t count)
{
    enum cpn_result worst = CPN_OK;
    struct latch all;

    latch_init(&all, count);
    for (size_t i = 0; i < count; i++) {
        ops[i].done = one_done;
        ops[i].context = &all; // cppcheck-suppress autoVariables
        ops[i].deadline = asker->until;
        engine_ask(asker->engine, &ops[i]);
    }
    latch_wait(&all);
    for (size_t i = 0; i < count && worst == CPN_OK; i++)
        worst = ops[i].outcome.result;
    return worst;
}

void heads_add_up(struct head *sum, const struct op *heads, int64_t lanes)
{
    *sum = heads[0].head;
    sum->slots = head_stock(sum);
    sum->ordinal = head_takings(sum);
    sum->retiring = sum->elsewhere = 0;
    for (int64_t i = 1; i < lanes; i++) {
        const struct head *h = &heads[i].head;

        sum->issued += h->issued;
        sum->reserved += h->reserved;
        sum->redeemed += h->redeemed;
        sum->ordinal += head_takings(h);
        sum->discount_minor += h->discount_minor;
        if (h->day_ms == sum->day_ms)
            sum->day_taken += h->day_taken;
        if (h->at_ms > sum->at_ms)
            sum->at_ms = h->at_ms;
    }
    if (head_taken(sum) > sum->slots && sum->next_n) /* lane 0 answered before slots were added, another lane after they were taken */
        sum->slots = head_taken(sum);
}

struct fanout *ask_heads(const struct asker *asker, const char *coupon, int64_t lanes, enum cpn_result *result)
{
    struct fanout *a = fanout_new(coupon, (size_t)lanes);

    for (int64_t i = 0; i < lanes; i++)
        fanout_add(a, OP_HEAD, i);
    *result = ask(asker, a->ops, a->count);
    return a;
}
