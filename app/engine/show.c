/* engine/show.c -- see show.h. */
#include "engine/show.h"

#include <stdlib.h>

#include "base/checked.h"

struct show {
    struct op *op;
    atomic_int left;
    atomic_bool late; /* somewhere the time ran out */
    struct op parts[]; /* one for each committer */
};

static void count_down(struct op *part)
{
    if (--part->count == 0)
        part->done(part);
}

/* A lane's views are written; or it took too long. */
static void lane_shown(struct op *one)
{
    struct op *part = one->context;

    if (one->outcome.result != CPN_OK)
        part->outcome = one->outcome;
    free(one);
    count_down(part);
}

static void part_shown(struct op *part)
{
    struct show *show = part->context;
    struct op *op = show->op;

    if (part->outcome.result != CPN_OK)
        atomic_store(&show->late, true);
    if (atomic_fetch_sub(&show->left, 1) > 1)
        return;
    op->outcome = (struct outcome){.result = CPN_OK};
    if (atomic_load(&show->late))
        op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    free(show);
    op->done(op);
}

void show_all(struct committer *const *committers, int count, struct op *op)
{
    struct show *show = checked(calloc(1, sizeof *show + (size_t)count * sizeof *show->parts));

    show->op = op;
    atomic_init(&show->left, count);
    for (int i = 0; i < count; i++)
        show->parts[i] = (struct op){.kind = OP_SHOW, .inner = true, .user = op->user, .deadline = op->deadline,
                                     .done = part_shown, .context = show};
    for (int i = 0; i < count; i++)
        committer_submit(committers[i], &show->parts[i]);
}

void show_user(struct committer *c, struct op *op)
{
    struct lane *l, *next;

    atomic_fetch_sub(&c->waiting, 1); /* not a request: what its lanes wait for counts below */
    op->outcome = (struct outcome){.result = CPN_OK};
    op->count = 1;
    HASH_ITER(hh, c->lanes, l, next) {
        const struct window_batch *w = l->window ? lane_last_of(l, op->user) : NULL; // cppcheck-suppress uninitvar
        struct op *one;

        if (!w)
            continue;
        one = checked(calloc(1, sizeof *one));
        *one = (struct op){.kind = OP_SHOW, .inner = true, .deadline = op->deadline, .done = lane_shown,
                           .context = op};
        atomic_fetch_add(&c->waiting, 1);
        op->count++;
        watch(c, l, one, w->batch->head.seq, w->ensured);
    }
    count_down(op);
}
