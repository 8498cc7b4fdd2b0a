/*
 * lanes/lanes.c -- see lanes.h. Reading order: lanes_main(), then what it calls, going up.
 *
 * Repeats  any request here may be made twice, by two processes at once, or half: so OP_FOLLOW names a version
 */
#include "lanes/lanes.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/thread.h"
#include "engine/internal.h"
#include "engine/round.h"
#include "lanes/fanout.h"
#include "lanes/lane_totals.h"
#include "lanes/slots.h"

#define LOOK_MS 2000        /* time for work that nobody waits for */
#define POKE_MS 5           /* between checks for low stock */
#define POKE_RAISED_MS 250  /* the same, after the events were raised */
#define FOLLOW_PAUSE_NS (20 * 1000000) /* between attempts to make all lanes follow */
#define THREADS_MOST 32     /* most coupons worked on at a time */

/* The lanes of one coupon, and their pending work: one thread at a time. */
struct group {
    char coupon[COUPON_ID_MAX + 1];
    struct lanes *all;
    /* of its thread */
    int64_t lanes; /* that it has; 1: perhaps more, which nothing that waits needs to know */
    struct asker asker; /* until: the deadline of the current work */
    struct op_list lacking;
    /* under the lock */
    struct op_list queue;
    int64_t noted_lanes;  /* `lanes`, as last noted */
    bool queued, running; /* waiting for a thread; has one */
    bool few;           /* few slots are left */
    struct mono not_before; /* earliest time to check that again */
    struct group *prev, *next; /* in `queue` or `kept` */
    bool kept;
    UT_hash_handle hh;
};

struct lanes {
    struct multilane multilane; /* first */
    struct engine *engine;
    struct lane_totals *totals;
    struct store_source *source;
    pthread_t listener;
    atomic_bool listening; /* the listener was started */
    atomic_bool hearing;   /* it is hearing */
    atomic_bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t some;
    /* under the lock */
    pthread_t threads[THREADS_MOST];
    int count, idle;
    struct group *groups; /* all: queued, with a thread, or kept */
    struct group *queue;  /* have work but no thread */
    struct group *kept;   /* have no work, but something is known of them; longest kept first */
    int kept_count;
    bool stop;
};

/* ---- routes ---- */

static struct lanes *lanes_of(struct multilane *multilane)
{
    return (struct lanes *)multilane;
}

/* True if it is done for all lanes, one after the other. */
static bool is_of_all(const struct op *op)
{
    return op_is(op, OPS_OF_COUPON | OPS_ANSWER_MADE);
}

/* The lane that the op is for, of a coupon with this many. */
static int64_t lane_for(const struct op *op, int64_t lanes)
{
    int64_t lane = 0;

    if (op_is(op, OPS_OF_USER))
        lane = coupon_lane_of(op_user(op)->name, lanes);
    else if (op_slot_named(op) >= 0)
        lane = lane_of_slot(op_slot_named(op));
    else if (op_is(op, OPS_OF_REDEMPTION | OPS_OF_LANE))
        lane = op->engine.asked_lane;
    return lane >= 0 && lane < lanes ? lane : 0;
}

/* ---- asking lanes ---- */

static void finish(struct lanes *s, struct op *op)
{
    atomic_fetch_sub(&s->multilane.waiting, 1);
    engine_answer(s->engine, op);
}

/* Ask lane 0 of op's coupon what op asks, by a copy for just this lane. */
static enum cpn_result ask_as(struct group *g, struct op *op, enum op_kind kind)
{
    struct op inner = *op;
    enum cpn_result r;

    inner.kind = kind;
    inner.lane = 0;
    r = ask(&g->asker, &inner, 1);
    op->outcome = inner.outcome;
    op->coupon_now = inner.coupon_now;
    op->head = inner.head;
    if (kind == op->kind)
        op->out = inner.out;
    return r;
}

/* ---- events ---- */

/* Raise the events due for the slots left. *raised: no more until slots are added. */
static void raise_events(struct group *g, const char *coupon, int64_t lanes, bool *raised)
{
    enum cpn_result r;
    struct fanout *heads = ask_heads(&g->asker, coupon, lanes, &r);
    struct op *events = &heads->ops[0];
    struct head sum;

    *raised = r == CPN_COUPON_NOT_FOUND;
    if (r == CPN_OK) {
        heads_add_up(&sum, heads->ops, lanes);
        *raised = sum.sold_out && !decide_refill(events->coupon_now, &sum, head_free(&sum));
        events->kind = OP_EVENTS;
        events->in.taken = head_taken(&sum);
        if (!*raised)
            (void)ask(&g->asker, events, 1);
    }
    fanout_free(heads);
}

/* ---- definitions ---- */

/* Make every lane follow lane 0's definition. */
static enum cpn_result follow(struct group *g, const struct coupon *definition)
{
    int64_t lanes = definition->lanes;
    struct fanout *a = fanout_new(definition->id, (size_t)lanes);
    enum cpn_result r;

    for (int64_t lane = 1; lane < lanes; lane++) {
        struct op *op = fanout_add(a, OP_FOLLOW, lane);

        op->in.coupon.definition = coupon_copy(definition, op->arena);
    }
    r = ask(&g->asker, a->ops, a->count);
    fanout_free(a);
    return r;
}

/* Make the lanes follow this definition of lane 0's; if the op's time runs out first, that is its outcome. */
static enum cpn_result follow_or(struct group *g, struct op *op, const struct coupon *definition, enum cpn_result late)
{
    struct timespec pause = {0, FOLLOW_PAUSE_NS};

    while (follow(g, definition) != CPN_OK) {
        if (mono_before(op->deadline, mono_now()) || atomic_load(&g->all->stopping)) {
            op->outcome = (struct outcome){.result = late, .retry = true};
            break;
        }
        nanosleep(&pause, NULL);
    }
    return op->outcome.result;
}

/* op changed lane 0: it is unknown whether all lanes follow, if not in time. */
static void follow_or_unknown(struct group *g, struct op *op)
{
    follow_or(g, op, op->coupon_now, CPN_OUTCOME_UNKNOWN);
}

/* Give op the totals over all lanes, or the refusal of a lane. */
static enum cpn_result sum_heads(struct group *g, struct op *op, int64_t lanes)
{
    enum cpn_result r;
    struct fanout *heads = ask_heads(&g->asker, op->coupon, lanes, &r);

    op->outcome = (struct outcome){.result = r, .retry = r != CPN_OK};
    if (r == CPN_OK)
        heads_add_up(&op->head, heads->ops, lanes);
    fanout_free(heads);
    return r;
}

/* A lower bound of what all lanes together had taken at one moment: after each was asked once, and before any is asked again. At that
 * moment a lane had taken what it has now, less what it took since its first answer. */
static enum cpn_result ask_taken(struct group *g, const char *coupon, int64_t lanes, int64_t *taken)
{
    enum cpn_result r, r_after;
    struct fanout *before = ask_heads(&g->asker, coupon, lanes, &r), *after = ask_heads(&g->asker, coupon, lanes, &r_after);

    *taken = 0;
    for (int64_t i = 0; i < lanes; i++)
        *taken += head_taken(&after->ops[i].head) - (head_takings(&after->ops[i].head) - head_takings(&before->ops[i].head));
    fanout_free(before);
    fanout_free(after);
    return r == CPN_OK ? r_after : r;
}

/* True if op's time is up: its outcome is BUSY. */
static bool is_late(struct group *g, struct op *op)
{
    if (!mono_before(op->deadline, mono_now()) && !atomic_load(&g->all->stopping))
        return false;
    op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    return true;
}

/* The cap is to fall by more than lane 0 has free: the other lanes' free slots come to it, until they are enough, or more is taken than the
 * new cap. */
static enum cpn_result lower_cap(struct group *g, struct op *op, int64_t lanes)
{
    enum found found = FOUND_SOME;
    enum cpn_result r = CPN_CAP_BELOW_TAKEN;
    int64_t taken, due_ms;

    while (r == CPN_CAP_BELOW_TAKEN && op->outcome.need && found != FOUND_NOTHING) {
        if (ask_taken(g, op->coupon, lanes, &taken) == CPN_OK && taken > op_coupon(op)->definition->cap.total)
            break;
        if (is_late(g, op))
            return CPN_BUSY;
        found = slots_find(&g->asker, op->coupon, lanes, 0, op->outcome.need, &due_ms);
        r = ask_as(g, op, OP_CHANGE);
    }
    return r;
}

static void change(struct group *g, struct op *op, int64_t lanes)
{
    enum cpn_result r = ask_as(g, op, OP_HEAD);

    if (r == CPN_OK) /* whoever changed it last may have died before the others followed */
        r = follow_or(g, op, op->coupon_now, CPN_BUSY);
    if (r == CPN_OK)
        r = sum_heads(g, op, lanes); /* lets lane 0 hear of the others */
    if (r == CPN_OK)
        r = ask_as(g, op, OP_CHANGE);
    if (r == CPN_CAP_BELOW_TAKEN && op->outcome.need)
        r = lower_cap(g, op, lanes);
    if (r == CPN_OK)
        follow_or_unknown(g, op);
}

/* Move the coupon from one state to the other, with all its lanes; again, if it was changed meanwhile. op gets the outcome. True if moved;
 * a coupon not in state `from` is unchanged, and op->coupon_now is its definition. */
static bool move_state(struct group *g, struct op *op, enum coupon_state from, enum coupon_state to)
{
    enum cpn_result r;

    do {
        if (ask_as(g, op, OP_HEAD) != CPN_OK || op->coupon_now->state != (int64_t)from)
            return false;
        op->in.coupon.definition = coupon_copy(op->coupon_now, op->arena);
        op->in.coupon.definition->state = to;
        op->in.coupon.expected_version = op->coupon_now->version;
        r = ask_as(g, op, OP_CHANGE);
    } while (r == CPN_VERSION_CHANGED);
    if (r == CPN_OK)
        follow_or_unknown(g, op);
    return r == CPN_OK;
}

/* Returns OK, COUPON_ARCHIVED, COUPON_IN_USE if it ever had a redemption, or the refusal of a lane. */
static enum cpn_result ask_whether_used(struct group *g, struct op *op, int64_t lanes)
{
    if (sum_heads(g, op, lanes) == CPN_OK && (op->head.archived || head_takings(&op->head) > 0))
        op->outcome = (struct outcome){.result = op->head.archived ? CPN_COUPON_ARCHIVED : CPN_COUPON_IN_USE};
    return op->outcome.result;
}

/* It was paused for a deletion that was refused: activate it again, and keep the refusal as the answer. */
static void activate_again(struct group *g, struct op *op)
{
    struct outcome refusal = op->outcome;

    g->asker.until = mono_add_ms(mono_now(), LOOK_MS); /* the op's own time may have run out */
    move_state(g, op, COUPON_PAUSED, COUPON_ACTIVE);
    op->outcome = refusal;
}

/* Delete it if no lane has a redemption. First all lanes follow a definition by which none is made, while they are asked; it is paused for
 * that if it is active. */
static void delete_coupon(struct group *g, struct op *op, int64_t lanes)
{
    bool paused;

    if (ask_whether_used(g, op, lanes) != CPN_OK)
        return;
    paused = move_state(g, op, COUPON_ACTIVE, COUPON_PAUSED);
    if (op->outcome.result == CPN_OK && !paused)
        follow_or(g, op, op->coupon_now, CPN_BUSY);
    if (op->outcome.result == CPN_OK && ask_whether_used(g, op, lanes) == CPN_OK) {
        op->in.coupon.expected_version = op->coupon_now->version;
        if (ask_as(g, op, OP_DELETE) == CPN_OK)
            follow_or_unknown(g, op);
    }
    if (paused && op->outcome.result != CPN_OK)
        activate_again(g, op);
}

/* Close the other lanes, after lane 0. Only a failure can stop this: once begun, it must be repeated. */
static void archive_others(struct group *g, struct op *op, int64_t lanes)
{
    struct fanout *a = fanout_new(op->coupon, (size_t)lanes);

    for (int64_t lane = 1; lane < lanes; lane++) {
        struct op *one = fanout_add(a, OP_ARCHIVE, lane);

        one->in.coupon.expected_version = op_coupon(op)->expected_version;
        one->by = op->by;
    }
    if (ask(&g->asker, a->ops, a->count) != CPN_OK)
        op->outcome = (struct outcome){.result = CPN_OUTCOME_UNKNOWN, .retry = true};
    fanout_free(a);
}

/* Once all lanes follow the definition that ended it, and none has anything issued or held, none ever will unless the definition changes:
 * so close lane 0 by that version. */
static void archive(struct group *g, struct op *op, int64_t lanes)
{
    if (ask_as(g, op, OP_HEAD) != CPN_OK)
        return;
    if (op_coupon(op)->expected_version != op->coupon_now->version) {
        op->outcome = (struct outcome){.result = CPN_VERSION_CHANGED};
        return;
    }
    if (follow_or(g, op, op->coupon_now, CPN_BUSY) != CPN_OK || sum_heads(g, op, lanes) != CPN_OK)
        return;
    if (op->head.issued || op->head.reserved)
        op->outcome = (struct outcome){.result = CPN_COUPON_IN_USE,
                                       .detail = "Some of it is still issued or held. Cancel that, or wait until it expires."};
    else if (ask_as(g, op, OP_ARCHIVE) == CPN_OK)
        archive_others(g, op, lanes);
}

/* ---- jobs ---- */

/* Free slots are retired in lane 0: those of the other lanes come to it first, as far as it has too few. */
static void retire(struct group *g, struct op *op, int64_t lanes)
{
    int64_t due_ms;

    while (ask_as(g, op, OP_HEAD) == CPN_OK && !op->head.archived &&
           slots_find(&g->asker, op->coupon, lanes, 0, op->in.job.count, &due_ms) == FOUND_SOME)
        if (is_late(g, op))
            break;
    if (op->outcome.result == CPN_OK)
        ask_as(g, op, OP_RETIRING);
}

/* ---- what lanes lack ---- */

static void listen_to_others(struct lanes *s);

static void refuse(struct lanes *s, struct op *op, enum cpn_result result)
{
    op->outcome = (struct outcome){.result = result, .retry = result_info(result)->retry};
    finish(s, op);
}

static void busy(struct lanes *s, struct op *op)
{
    refuse(s, op, CPN_BUSY);
}

/* Send it to its lane again. */
static void ask_again(struct group *g, struct op *op)
{
    if (mono_before(op->deadline, mono_now())) {
        busy(g->all, op);
        return;
    }
    atomic_fetch_sub(&g->all->multilane.waiting, 1);
    engine_reroute(g->all->engine, op);
}

/* Ask every lane for its totals; from then on the listener reports changes. */
static enum cpn_result hear_all(struct group *g, const char *coupon, int64_t lanes)
{
    enum cpn_result r;

    listen_to_others(g->all);
    fanout_free(ask_heads(&g->asker, coupon, lanes, &r));
    return r;
}

/* It waits until all lanes were heard, see has_to_listen(). Others that wait lack slots. */
static bool waits_to_hear(const struct op *op)
{
    return op->outcome.need == 0;
}

/* Find a slot for the first waiting op, or hear all lanes for it. All that wait for the same are answered: each lacks one slot. */
static void look_around(struct group *g)
{
    struct op *first = g->lacking.first, *op;
    int64_t lanes = g->lanes, due_ms = 0;
    bool listens = waits_to_hear(first), nothing = false, raised;
    enum cpn_result heard = CPN_OK;
    struct op_list rest = {0}, same = {0};

    g->asker.until = first->deadline;
    if (listens)
        heard = hear_all(g, g->coupon, lanes);
    else
        nothing = slots_find(&g->asker, g->coupon, lanes, first->lane, first->outcome.need, &due_ms) == FOUND_NOTHING;
    if (nothing)
        raise_events(g, g->coupon, lanes, &raised);
    while ((op = op_list_take(&g->lacking)))
        op_list_add(waits_to_hear(op) == listens ? &same : &rest, op);
    g->lacking = rest;
    while ((op = op_list_take(&same))) {
        op->engine.looked = listens || nothing;
        op->engine.others_due_ms = due_ms;
        if (heard == CPN_OK)
            ask_again(g, op);
        else
            refuse(g->all, op, heard == CPN_COUPON_NOT_FOUND ? heard : CPN_BUSY);
    }
}

/* ---- the listener ---- */

static void *listen_main(void *argument)
{
    struct lanes *s = argument;
    struct store *session = s->source->open(s->source);
    struct heard heard;

    while (!atomic_load(&s->stopping)) {
        int got = session->ops->hear(session, &heard);

        if (got >= 0 && !atomic_load(&s->hearing))
            lane_totals_missed(s->totals); /* what came before is not heard */
        atomic_store(&s->hearing, got >= 0);
        if (got > 0)
            lane_totals_note(s->totals, heard.coupon, heard.lane, &heard.head);
    }
    session->ops->close(session);
    return NULL;
}

#define HEARING_MS 2000
#define HEARING_STEP_NS 1000000

/* Start it with the first coupon that needs it, and wait until it hears: whatever is read of the lanes after that is complete. */
static void listen_to_others(struct lanes *s)
{
    struct mono until = mono_add_ms(mono_now(), HEARING_MS);
    struct timespec step = {0, HEARING_STEP_NS};

    if (!atomic_exchange(&s->listening, true))
        thread_start(&s->listener, listen_main, s, "lanes");
    while (!atomic_load(&s->hearing) && mono_before(mono_now(), until) && !atomic_load(&s->stopping))
        nanosleep(&step, NULL);
}

/* ---- the threads ---- */

static void do_op(struct group *g, struct op *op)
{
    int64_t lanes = g->lanes;

    g->asker.until = op->deadline;
    switch (op->kind) {
    case OP_CREATE:
        if (ask_as(g, op, OP_CREATE) == CPN_OK)
            follow_or_unknown(g, op);
        break;
    case OP_CHANGE:
        change(g, op, lanes);
        break;
    case OP_DELETE:
        delete_coupon(g, op, lanes);
        break;
    case OP_ARCHIVE:
        archive(g, op, lanes);
        break;
    case OP_GENERATE:
        ask_as(g, op, OP_GENERATE);
        break;
    case OP_RETIRING:
        retire(g, op, lanes);
        break;
    case OP_FOLLOW:
        ask_as(g, op, OP_HEAD);
        if (op->coupon_now) /* lane 0 was asked, and has or had a definition */
            follow_or_unknown(g, op);
        break;
    default:
        assert(!"not for several lanes");
    }
    finish(g->all, op);
}

/* Do what came in; look for what the rest lack; check for low stock. */
static void work(struct group *g, struct op_list *queue, bool few)
{
    struct lanes *s = g->all;
    struct mono not_before;
    struct op *op;
    bool raised;

    while ((op = op_list_take(queue))) {
        if (is_of_all(op))
            do_op(g, op);
        else
            op_list_add(&g->lacking, op);
    }
    if (g->lacking.count && !atomic_load(&s->stopping))
        look_around(g);
    while (atomic_load(&s->stopping) && (op = op_list_take(&g->lacking)))
        busy(s, op);
    if (!few)
        return;
    g->asker.until = mono_add_ms(mono_now(), LOOK_MS);
    raise_events(g, g->coupon, g->lanes, &raised);
    not_before = mono_add_ms(mono_now(), raised ? POKE_RAISED_MS : POKE_MS);
    pthread_mutex_lock(&s->lock);
    g->not_before = not_before;
    pthread_mutex_unlock(&s->lock);
}

/* ---- which is next: under the lock ---- */

/* lanes: that it has, or 1 where that is not known. */
static struct group *find_group(struct lanes *s, const char *coupon, int64_t lanes)
{
    struct group *g;

    HASH_FIND_STR(s->groups, coupon, g);
    if (!g) {
        g = checked(calloc(1, sizeof *g));
        memcpy(g->coupon, coupon, strnlen(coupon, COUPON_ID_MAX));
        g->all = s;
        g->asker.engine = s->engine;
        HASH_ADD_STR(s->groups, coupon, g);
    }
    if (lanes > g->noted_lanes)
        g->noted_lanes = lanes;
    return g;
}

static bool has_ops(const struct group *g)
{
    return g->queue.count || g->lacking.count;
}

static bool few_now(const struct group *g, struct mono now)
{
    return g->few && !mono_before(now, g->not_before);
}

static void take_from_kept(struct lanes *s, struct group *g)
{
    DL_DELETE(s->kept, g);
    g->kept = false;
    s->kept_count--;
}

/* Queue it, if there is something to do. */
static void queue_group(struct lanes *s, struct group *g)
{
    if (g->queued || g->running || (!has_ops(g) && !g->few))
        return;
    if (g->kept)
        take_from_kept(s, g);
    g->queued = true;
    DL_APPEND(s->queue, g);
    pthread_cond_signal(&s->some);
}

static void forget_group(struct lanes *s, struct group *g)
{
    HASH_DEL(s->groups, g);
    free(g);
}

/* It has no thread, and nothing waits: keep it if something is known of it; those kept longest make room. */
static void put_away(struct lanes *s, struct group *g)
{
    struct group *oldest = s->kept;

    if (g->queued)
        return;
    if (!g->not_before.ns) {
        forget_group(s, g);
        return;
    }
    if (s->kept_count == LANES_KEPT_MOST) {
        take_from_kept(s, oldest);
        forget_group(s, oldest);
    }
    DL_APPEND(s->kept, g);
    g->kept = true;
    s->kept_count++;
}

/* The first that has something to do now; NULL: none. */
static struct group *next_group(struct lanes *s)
{
    struct mono now = mono_now();
    struct group *g;

    DL_FOREACH(s->queue, g) {
        if (has_ops(g) || (few_now(g, now) && !s->stop)) { // cppcheck-suppress uninitvar
            DL_DELETE(s->queue, g);
            g->queued = false;
            g->running = true;
            return g;
        }
    }
    return NULL;
}

static void wait_for_some(struct lanes *s)
{
    struct mono until;
    const struct group *g = s->queue;

    s->idle++;
    if (g) { /* all in the queue wait for their time */
        for (until = g->not_before; (g = g->next);)
            until = mono_before(g->not_before, until) ? g->not_before : until;
        cond_wait_until(&s->some, &s->lock, until);
    } else {
        pthread_cond_wait(&s->some, &s->lock);
    }
    s->idle--;
}

static void *lanes_main(void *argument);

/* Keep one thread idle, as far as the bound permits: no coupon's wait holds up another. */
static void keep_one_idle(struct lanes *s)
{
    if (s->idle)
        pthread_cond_signal(&s->some); /* the queue may have more */
    else if (s->count < THREADS_MOST && !s->stop && pthread_create(&s->threads[s->count], NULL, lanes_main, s) == 0)
        s->count++;
}

static void *lanes_main(void *argument)
{
    struct lanes *s = argument;
    struct op_list queue;
    struct group *g;
    bool few;

    pthread_mutex_lock(&s->lock);
    while ((g = next_group(s)) || !s->stop) {
        if (!g) {
            wait_for_some(s);
            continue;
        }
        keep_one_idle(s);
        queue = g->queue;
        g->queue = (struct op_list){0};
        g->lanes = g->noted_lanes;
        few = few_now(g, mono_now());
        g->few = g->few && !few;
        pthread_mutex_unlock(&s->lock);
        work(g, &queue, few);
        pthread_mutex_lock(&s->lock);
        g->running = false;
        queue_group(s, g);
        put_away(s, g);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- all lanes at once ---- */

struct gathering {
    struct lanes *lanes;
    struct op *parent;
    struct fanout *fanout;
    atomic_size_t left;
};

static void gathered_one(struct op *one)
{
    struct gathering *g = one->context;
    struct op *op = g->parent;
    size_t count = g->fanout->count;

    if (atomic_fetch_sub(&g->left, 1) != 1)
        return;
    op->outcome = (struct outcome){.result = CPN_OK};
    for (size_t i = 0; i < count && op->outcome.result == CPN_OK; i++)
        op->outcome = g->fanout->ops[i].outcome;
    one = &g->fanout->ops[0];
    if (op->outcome.result == CPN_OK) {
        heads_add_up(&op->head, g->fanout->ops, (int64_t)count);
        op->coupon_now = coupon_copy(one->coupon_now, op->arena);
        op->out.seqs = arena_array(op->arena, count, sizeof *op->out.seqs);
        for (size_t i = 0; i < count; i++)
            op->out.seqs[i] = g->fanout->ops[i].head.seq;
    }
    fanout_free(g->fanout);
    finish(g->lanes, op);
    free(g);
}

/* OP_COUPON: ask all lanes and add up. */
static void gather_heads(struct lanes *s, struct op *op, int64_t lanes)
{
    struct gathering *g = checked(calloc(1, sizeof *g));
    struct op *ops;

    g->lanes = s;
    g->parent = op;
    g->fanout = fanout_new(op->coupon, (size_t)lanes);
    ops = g->fanout->ops;
    atomic_init(&g->left, (size_t)lanes);
    atomic_fetch_add(&s->multilane.waiting, 1);
    for (int64_t i = 0; i < lanes; i++) {
        struct op *one = fanout_add(g->fanout, OP_HEAD, i);

        one->done = gathered_one;
        one->context = g;
        one->deadline = op->deadline;
    }
    for (int64_t i = 0; i < lanes; i++) /* the last one may free g */
        engine_ask(s->engine, &ops[i]);
}

/* ---- from outside ---- */

/* Do it, or fetch what its lane lacks and ask again; done() is called once. lanes: see find_group(). */
static void submit(struct lanes *s, struct op *op, int64_t lanes)
{
    struct group *g;
    bool stop;

    atomic_fetch_add(&s->multilane.waiting, 1);
    pthread_mutex_lock(&s->lock);
    stop = s->stop;
    if (!stop) {
        g = find_group(s, op->coupon, lanes);
        op_list_add(&g->queue, op);
        queue_group(s, g);
        if (g->queued)
            pthread_cond_signal(&s->some); /* it may have been queued for events that are not due yet */
    }
    pthread_mutex_unlock(&s->lock);
    if (stop)
        busy(s, op);
}

void lanes_note_few(struct multilane *multilane, const char *coupon, int64_t lanes)
{
    struct lanes *s = lanes_of(multilane);
    struct group *g;

    pthread_mutex_lock(&s->lock);
    g = find_group(s, coupon, lanes);
    g->few = true;
    queue_group(s, g);
    pthread_mutex_unlock(&s->lock);
}

int lanes_kept(struct multilane *multilane)
{
    struct lanes *s = lanes_of(multilane);
    int count;

    pthread_mutex_lock(&s->lock);
    count = s->kept_count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

/* ---- hooks ---- */

static bool takes(struct multilane *multilane, struct op *op, int64_t lanes)
{
    op->lane = lane_for(op, lanes);
    if (is_of_all(op))
        submit(lanes_of(multilane), op, lanes);
    else if (op->kind == OP_COUPON)
        gather_heads(lanes_of(multilane), op, lanes);
    else
        return false;
    return true;
}

static bool belongs_elsewhere(const struct lane *l, const struct op *op)
{
    if (op->engine.inner || op->kind == OP_CREATE)
        return false;
    return is_of_all(op) || op->kind == OP_COUPON || lane_for(op, l->definition->lanes) != l->number;
}

/* Without slots, a lane decides only once it has heard of all others: by the listener, or because they were asked for this request. */
static bool has_to_listen(struct lanes *s, const struct lane *l, const struct op *op)
{
    return (op->kind == OP_TAKE || op->kind == OP_CHECK) && !op->engine.looked && !policy_of(l->definition)->slots &&
           !(atomic_load(&s->hearing) && lane_totals_all(s->totals, l->coupon));
}

static void sort(struct multilane *multilane, struct committer *c, struct lane_work *p)
{
    struct lanes *s = lanes_of(multilane);
    struct lane *l = p->lane;
    struct op_list kept = {0};
    struct op *op;

    if (!l->definition)
        return;
    if (!l->multilane_counted && multilane_know(multilane, l->coupon, l->definition->lanes))
        lane_totals_know(s->totals, l->coupon, l->definition->lanes);
    l->multilane_counted = true;
    while ((op = op_list_take(&p->ops))) {
        bool elsewhere = belongs_elsewhere(l, op);

        if (!elsewhere && !has_to_listen(s, l, op)) {
            op_list_add(&kept, op);
            continue;
        }
        hand_off(c);
        op->outcome = (struct outcome){.result = CPN_OK};
        if (elsewhere)
            engine_reroute(s->engine, op);
        else
            submit(s, op, l->definition->lanes);
    }
    p->ops = kept;
}

/* Take over lane 0's definition: the lane has none. */
static enum store_status adopt(struct multilane *multilane, struct store *store, struct lane *l)
{
    struct coupon_read read = {.coupon = l->coupon, .arena = &l->definition_arena};
    enum store_status status = store->ops->coupons(store, &read, 1);

    (void)multilane;
    l->definition = read.definition;
    return status == STORE_OK && !read.definition ? STORE_NOT_FOUND : status;
}

static void begin(struct multilane *multilane, struct lane_work *p)
{
    const struct lane *l = p->lane;

    if (!l->definition)
        return;
    lane_totals_others(lanes_of(multilane)->totals, l->coupon, l->number, &p->d.others);
    if (l->number > 0)
        decide_follow(&p->d, l->definition); /* in case the process that changed it died before telling this lane */
}

static void decide(struct multilane *multilane, struct lane_work *p, struct op *op)
{
    (void)multilane;
    op->outcome = (struct outcome){.result = CPN_OK};
    if (op->kind == OP_FOLLOW)
        decide_follow(&p->d, op_coupon(op)->definition);
    else if (op->kind == OP_EVENTS)
        decide_events_of_all(&p->d, op->in.taken);
    else
        assert(!"not between lanes");
}

/* Tell the other lanes this one's totals. */
static void confirmed(struct multilane *multilane, const struct lane *l)
{
    lane_totals_note(lanes_of(multilane)->totals, l->coupon, l->number, &l->tail);
}

/* The coupon is refilled, and its first slots are still to come. */
static bool awaits_first_slots(const struct lane *l)
{
    return l->number == 0 && l->tail.next_n == 0 && l->definition->replenish.below != COUPON_NULL;
}

/* If this lane has few slots left, all lanes together may. */
static void committed(struct multilane *multilane, const struct lane *l)
{
    const struct coupon *d = l->definition;

    confirmed(multilane, l);
    if (policy_of(d)->slots && (head_takings(&l->tail) > 0 || awaits_first_slots(l)) &&
        head_free(&l->tail) <= decide_low_threshold(d))
        lanes_note_few(multilane, l->coupon, d->lanes);
}

static void lacks(struct multilane *multilane, struct op *op)
{
    submit(lanes_of(multilane), op, multilane_lanes(multilane, op->coupon)); /* its lane is in memory */
}

static void gone(struct multilane *multilane, const struct lane *l)
{
    if (multilane_forget(multilane, l->coupon))
        lane_totals_forget(lanes_of(multilane)->totals, l->coupon);
}

static void stop(struct multilane *multilane)
{
    struct lanes *s = lanes_of(multilane);

    atomic_store(&s->stopping, true);
    pthread_mutex_lock(&s->lock);
    s->stop = true; /* no new threads from here on */
    pthread_cond_broadcast(&s->some);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->count; i++)
        pthread_join(s->threads[i], NULL);
    if (atomic_load(&s->listening))
        pthread_join(s->listener, NULL);
}

static void lanes_free(struct multilane *multilane)
{
    struct lanes *s = lanes_of(multilane);
    struct group *g, *next;

    HASH_ITER(hh, s->groups, g, next)
        forget_group(s, g); // cppcheck-suppress uninitvar
    lane_totals_free(s->totals);
    multilane_release(&s->multilane);
    pthread_cond_destroy(&s->some);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static const struct multilane_hooks lanes_hooks = {
    .takes = takes, .adopt = adopt, .sort = sort, .begin = begin, .decide = decide, .committed = committed, .confirmed = confirmed,
    .lacks = lacks, .gone = gone, .stop = stop, .free = lanes_free,
};

struct multilane *lanes_start(struct engine *e, struct store_source *source)
{
    struct lanes *s = checked(calloc(1, sizeof *s));

    multilane_init(&s->multilane, &lanes_hooks);
    s->engine = e;
    s->totals = lane_totals_new();
    s->source = source;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->some);
    pthread_mutex_lock(&s->lock);
    keep_one_idle(s);
    pthread_mutex_unlock(&s->lock);
    if (!s->count)
        abort();
    return &s->multilane;
}
