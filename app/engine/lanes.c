/*
 * engine/lanes.c -- see lanes.h. Reading order: lanes_main(), then what it calls, upwards.
 *
 * Repeats  what is asked here may be asked twice, by two processes at a time, or half: OP_FOLLOW speaks of a version
 */
#include "engine/lanes.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "base/cond.h"
#include "engine/asks.h"
#include "engine/lane.h"
#include "engine/route.h"
#include "engine/shares.h"

#define LOOK_MS 2000        /* how long what nobody waits for may take */
#define FETCH_TRIES 50      /* to get what a lane lacks, while other lanes move */
#define POKE_MS 5           /* between two looks at whether few slots are left */
#define POKE_RAISED_MS 250  /* the same, when the events were raised already */
#define FOLLOW_PAUSE_NS (20 * 1000000) /* between two tries to have all lanes follow */

/* A coupon of which few slots are left. */
struct poke {
    char coupon[COUPON_ID_MAX + 1];
    struct mono not_before;
    bool wanted;
    UT_hash_handle hh;
};

struct lanes {
    struct asker asker;   /* the thread's; until: when what it does now must be over */
    struct shares shares; /* the thread's */
    struct heard_table *heard;
    struct store_source *source;
    const struct engine_hooks *hooks;
    pthread_t thread, listener;
    atomic_bool listening; /* the listener was started */
    atomic_bool hearing;   /* it hears */
    atomic_bool stopping;
    atomic_int waiting;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list inbox; /* under the lock, like the rest */
    struct poke *pokes;
    bool stop;
};

/* ---- routes ---- */

bool lanes_does(enum op_kind kind)
{
    return kind == OP_CREATE || kind == OP_CHANGE || kind == OP_DELETE || kind == OP_GENERATE || kind == OP_DUE ||
           kind == OP_FOLLOW;
}

static int64_t lane_of_user(const char *user, int64_t lanes)
{
    return strncmp(user, JOB_USER_PREFIX, sizeof JOB_USER_PREFIX - 1) == 0 ? 0 : coupon_lane_of(user, lanes);
}

int64_t lanes_route(const struct op *op, int64_t lanes)
{
    int64_t lane = 0;

    switch (op->kind) {
    case OP_TAKE:
    case OP_CHECK:
    case OP_USE:
    case OP_ERASE:
        lane = lane_of_user(op->user, lanes);
        break;
    case OP_STEP:
        lane = op->transition.n < 0 ? op->asked_lane : lane_of_slot(op->transition.n);
        break;
    case OP_REDEMPTION:
        lane = op->n < 0 ? op->asked_lane : lane_of_slot(op->n);
        break;
    case OP_SLOT:
        lane = lane_of_slot(op->n);
        break;
    case OP_SWEEP:
    case OP_TICK:
    case OP_CATCH_UP:
        lane = op->asked_lane;
        break;
    default:
        break;
    }
    return lane >= 0 && lane < lanes ? lane : 0;
}

/* ---- asking lanes ---- */

static void finish(struct lanes *s, struct op *op)
{
    if (s->hooks->decided)
        s->hooks->decided(op);
    atomic_fetch_sub(&s->waiting, 1);
    op->done(op);
}

/* One more lane of op's coupon is asked what op asks: a copy that goes to this lane as it is. */
static enum cpn_result ask_as(struct lanes *s, struct op *op, enum op_kind kind, int64_t lane)
{
    struct op inner = *op;
    enum cpn_result r;

    inner.kind = kind;
    inner.lane = lane;
    r = ask(&s->asker, &inner, 1);
    op->outcome = inner.outcome;
    op->made = inner.made;
    op->coupon_now = inner.coupon_now;
    op->head = inner.head;
    op->use = inner.use;
    op->seq = inner.seq;
    op->at_ms = inner.at_ms;
    return r;
}

/* ---- events ---- */

/* Raise what follows from how many slots are left. *raised: there is nothing more to say until slots come. */
static void raise_events(struct lanes *s, const char *coupon, int64_t lanes, bool *raised)
{
    enum cpn_result r;
    struct asks *heads = ask_heads(&s->asker, coupon, lanes, &r);
    struct op *events = &heads->ops[0];
    struct head sum;

    *raised = r == CPN_COUPON_NOT_FOUND;
    if (r == CPN_OK) {
        heads_add_up(&sum, heads->ops, lanes);
        *raised = sum.sold_out && !decide_refill(events->coupon_now, &sum, head_free(&sum));
        events->kind = OP_EVENTS;
        events->count = head_taken(&sum);
        if (!*raised)
            (void)ask(&s->asker, events, 1);
    }
    asks_free(heads);
}

/* ---- definitions ---- */

/* Have every lane follow lane 0's definition, and give back its shares of caps that may have changed. */
static enum cpn_result follow(struct lanes *s, const struct coupon *definition)
{
    int64_t lanes = definition->lanes;
    struct asks *a = asks_new(definition->id, (size_t)lanes);
    enum cpn_result r;

    for (int64_t lane = 1; lane < lanes; lane++) {
        struct op *op = asks_add(a, OP_FOLLOW, lane);

        op->definition = coupon_copy(definition, op->arena);
    }
    r = ask(&s->asker, a->ops, a->count);
    asks_free(a);
    if (r != CPN_OK || definition->state == COUPON_DELETED || !policy_of(definition)->slots ||
        (definition->cap.per_day == COUPON_NULL && definition->cap.discount_minor == COUPON_NULL))
        return r;
    return shares_settle(&s->shares, definition);
}

/* The lanes must follow what lane 0 has: until the op's time is up, when nobody knows whether all of them do. */
static void follow_or_unknown(struct lanes *s, struct op *op, const struct coupon *definition)
{
    struct timespec pause = {0, FOLLOW_PAUSE_NS};

    while (follow(s, definition) != CPN_OK) {
        if (mono_before(op->deadline, mono_now()) || atomic_load(&s->stopping)) {
            op->outcome = (struct outcome){.result = CPN_OUTCOME_UNKNOWN, .retry = true};
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* op gets the totals over all lanes, and whatever refuses them. */
static enum cpn_result sum_heads(struct lanes *s, struct op *op, int64_t lanes)
{
    enum cpn_result r;
    struct asks *heads = ask_heads(&s->asker, op->coupon, lanes, &r);

    op->outcome = (struct outcome){.result = r, .retry = r != CPN_OK};
    if (r == CPN_OK)
        heads_add_up(&op->head, heads->ops, lanes);
    asks_free(heads);
    return r;
}

static void create(struct lanes *s, struct op *op, int64_t lanes)
{
    enum cpn_result r = ask_as(s, op, OP_CREATE, 0);

    if (r != CPN_OK)
        return;
    heard_know(s->heard, op->coupon, lanes);
    follow_or_unknown(s, op, op->coupon_now);
}

/* At least so much all lanes together had taken at one moment: after each was asked once, and before any is asked again. What a
 * lane has taken by then, less what it took since it was asked first, it had at that moment. */
static enum cpn_result ask_taken(struct lanes *s, const char *coupon, int64_t lanes, int64_t *taken)
{
    enum cpn_result r, r_after;
    struct asks *before = ask_heads(&s->asker, coupon, lanes, &r), *after = ask_heads(&s->asker, coupon, lanes, &r_after);

    *taken = 0;
    for (int64_t i = 0; i < lanes; i++)
        *taken += head_taken(&after->ops[i].head) - (after->ops[i].head.ordinal - before->ops[i].head.ordinal);
    asks_free(before);
    asks_free(after);
    return r == CPN_OK ? r_after : r;
}

/* The cap is to be lowered by more than lane 0 has free: the other lanes give what they have, until that is enough, or more is
 * taken than the new cap. */
static enum cpn_result lower_cap(struct lanes *s, struct op *op, int64_t lanes)
{
    enum found found = FOUND_SOME;
    enum cpn_result r = CPN_CAP_BELOW_TAKEN;
    int64_t taken, due_ms;

    while (r == CPN_CAP_BELOW_TAKEN && op->outcome.lacks && found != FOUND_NOTHING) {
        if (ask_taken(s, op->coupon, lanes, &taken) == CPN_OK && taken > op->definition->cap.total)
            break;
        if (mono_before(op->deadline, mono_now()) || atomic_load(&s->stopping)) {
            op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
            return CPN_BUSY;
        }
        /* one try: then it may be known that the cap is passed */
        found = shares_fetch(&s->shares, op->coupon, lanes, 0, &op->outcome, 1, &due_ms);
        r = ask_as(s, op, OP_CHANGE, 0);
    }
    return r;
}

static void change(struct lanes *s, struct op *op, int64_t lanes)
{
    enum cpn_result r = sum_heads(s, op, lanes); /* so that lane 0 has heard of the others */

    if (r == CPN_OK)
        r = ask_as(s, op, OP_CHANGE, 0);
    if (r == CPN_CAP_BELOW_TAKEN && op->outcome.lacks)
        r = lower_cap(s, op, lanes);
    if (r == CPN_OK)
        follow_or_unknown(s, op, op->coupon_now);
}

/* Have the coupon go from one state to the other, and all lanes follow; again, if somebody else changed it meanwhile. op gets the
 * outcome. True: it went; what is in that state no longer, or never was, is left as it is. */
static bool move_state(struct lanes *s, struct op *op, enum coupon_state from, enum coupon_state to)
{
    enum cpn_result r;

    do {
        if (ask_as(s, op, OP_HEAD, 0) != CPN_OK || op->coupon_now->state != (int64_t)from)
            return false;
        op->definition = coupon_copy(op->coupon_now, op->arena);
        op->definition->state = to;
        op->expected_version = op->coupon_now->version;
        r = ask_as(s, op, OP_CHANGE, 0);
    } while (r == CPN_VERSION_CHANGED);
    if (r == CPN_OK)
        follow_or_unknown(s, op, op->coupon_now);
    return r == CPN_OK;
}

/* The outcome is OK, or COUPON_IN_USE when it ever had a redemption, or what refuses the question. */
static enum cpn_result ask_whether_used(struct lanes *s, struct op *op, int64_t lanes)
{
    if (sum_heads(s, op, lanes) == CPN_OK && op->head.ordinal > 0)
        op->outcome = (struct outcome){.result = CPN_COUPON_IN_USE};
    return op->outcome.result;
}

/* It was paused for a deletion that did not come about. What refused that stays the answer. */
static void activate_again(struct lanes *s, struct op *op)
{
    struct outcome refusal = op->outcome;

    s->asker.until = mono_add_ms(mono_now(), LOOK_MS); /* the op's own time may be over */
    move_state(s, op, COUPON_PAUSED, COUPON_ACTIVE);
    op->outcome = refusal;
}

/* Deleted is what has no redemption in any lane. So that none comes while they are asked, the coupon is paused before. */
static void delete_coupon(struct lanes *s, struct op *op, int64_t lanes)
{
    bool paused;

    if (ask_whether_used(s, op, lanes) != CPN_OK)
        return;
    paused = move_state(s, op, COUPON_ACTIVE, COUPON_PAUSED);
    if (op->outcome.result == CPN_OK && ask_whether_used(s, op, lanes) == CPN_OK) {
        op->expected_version = op->coupon_now->version;
        if (ask_as(s, op, OP_DELETE, 0) == CPN_OK)
            follow_or_unknown(s, op, op->coupon_now);
    }
    if (paused && op->outcome.result != CPN_OK)
        activate_again(s, op);
}

/* ---- jobs ---- */

static void generate(struct lanes *s, struct op *op, int64_t lanes)
{
    if (ask_as(s, op, OP_GENERATE, 0) == CPN_OK)
        (void)shares_spread(&s->shares, op->coupon, lanes); /* else a lane gets its part when it has nothing left */
}

/* Free slots are retired in lane 0: those of the other lanes come there first. */
static void retire(struct lanes *s, struct op *op, int64_t lanes)
{
    enum cpn_result r = ask_as(s, op, OP_HEAD, 0);

    if (r == CPN_OK && head_free(&op->head) < op->count)
        r = shares_collect(&s->shares, op->coupon, lanes, op->count);
    if (r == CPN_OK)
        ask_as(s, op, OP_DUE, 0);
    else
        op->outcome = (struct outcome){.result = r, .retry = true};
}

/* ---- what lanes lack ---- */

static void listen_to_others(struct lanes *s);

static void busy(struct lanes *s, struct op *op)
{
    op->outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    finish(s, op);
}

/* To its lane again. */
static void ask_again(struct lanes *s, struct op *op)
{
    if (mono_before(op->deadline, mono_now())) {
        busy(s, op);
        return;
    }
    atomic_fetch_sub(&s->waiting, 1);
    engine_reroute(s->asker.engine, op);
}

/* Every lane tells how it stands, and the listener what moves them from then on. */
static void hear_all(struct lanes *s, const char *coupon, int64_t lanes)
{
    enum cpn_result r;

    listen_to_others(s);
    asks_free(ask_heads(&s->asker, coupon, lanes, &r));
}

/* Settle what the first of the list lacks, for all of them that lack the same. The rest stays. */
static void look_around(struct lanes *s, struct op_list *lacking)
{
    struct op *first = lacking->first, *op;
    int64_t lanes = heard_lanes(s->heard, first->coupon), lane = first->lane, due_ms = 0;
    enum share share = first->outcome.lacks;
    enum found found = FOUND_SOME;
    struct op_list rest = {0}, same = {0};
    bool raised;

    s->asker.until = first->deadline;
    while ((op = op_list_take(lacking)))
        op_list_add(strcmp(op->coupon, first->coupon) == 0 && op->outcome.lacks == share &&
                            (op->lane == lane || share != SHARE_BUDGET)
                        ? &same : &rest, op);
    *lacking = rest;
    if (share == SHARE_NONE)
        hear_all(s, first->coupon, lanes);
    else
        found = shares_fetch(&s->shares, first->coupon, lanes, lane, &first->outcome, FETCH_TRIES, &due_ms);
    if (found == FOUND_NOTHING && share == SHARE_SLOTS)
        raise_events(s, first->coupon, lanes, &raised);
    while ((op = op_list_take(&same))) {
        op->looked[share] = found == FOUND_NOTHING || share == SHARE_NONE;
        op->others_due_ms = due_ms;
        ask_again(s, op);
    }
}

/* ---- the listener ---- */

static void *listen_main(void *argument)
{
    struct lanes *s = argument;
    struct store *door = s->source->open(s->source);
    struct heard heard;

    while (!atomic_load(&s->stopping)) {
        int got = door->ops->hear(door, &heard);

        atomic_store(&s->hearing, got >= 0);
        if (got > 0)
            heard_note(s->heard, heard.coupon, heard.lane, &heard.head);
        else if (got < 0)
            heard_missed(s->heard);
    }
    door->ops->close(door);
    return NULL;
}

#define HEARING_MS 2000
#define HEARING_STEP_NS 1000000

/* Start it with the first coupon that needs it, and wait until it hears: what is read of the lanes after that is all there was. */
static void listen_to_others(struct lanes *s)
{
    struct mono until = mono_add_ms(mono_now(), HEARING_MS);
    struct timespec step = {0, HEARING_STEP_NS};

    if (!atomic_exchange(&s->listening, true) && pthread_create(&s->listener, NULL, listen_main, s) != 0)
        abort();
    while (!atomic_load(&s->hearing) && mono_before(mono_now(), until) && !atomic_load(&s->stopping))
        nanosleep(&step, NULL);
}

/* ---- the thread ---- */

static void do_op(struct lanes *s, struct op *op)
{
    int64_t lanes = op->kind == OP_CREATE ? op->definition->lanes : heard_lanes(s->heard, op->coupon);

    s->asker.until = op->deadline;
    switch (op->kind) {
    case OP_CREATE:
        create(s, op, lanes);
        break;
    case OP_CHANGE:
        change(s, op, lanes);
        break;
    case OP_DELETE:
        delete_coupon(s, op, lanes);
        break;
    case OP_GENERATE:
        generate(s, op, lanes);
        break;
    case OP_DUE:
        retire(s, op, lanes);
        break;
    case OP_FOLLOW:
        ask_as(s, op, OP_HEAD, 0);
        if (op->coupon_now) /* lane 0 was asked, and has or had it */
            follow_or_unknown(s, op, op->coupon_now);
        break;
    default:
        assert(!"not for this part");
    }
    finish(s, op);
}

static void do_pokes(struct lanes *s)
{
    struct poke *p, *next;
    struct mono now = mono_now();
    char coupon[COUPON_ID_MAX + 1];
    bool found = true, raised = false;

    while (found) {
        found = false;
        pthread_mutex_lock(&s->lock);
        HASH_ITER(hh, s->pokes, p, next) {
            if (!p->wanted || mono_before(now, p->not_before)) // cppcheck-suppress uninitvar
                continue;
            p->wanted = false;
            memcpy(coupon, p->coupon, sizeof coupon);
            found = true;
            break;
        }
        pthread_mutex_unlock(&s->lock);
        if (!found)
            return;
        s->asker.until = mono_add_ms(mono_now(), LOOK_MS);
        raise_events(s, coupon, heard_lanes(s->heard, coupon), &raised);
        pthread_mutex_lock(&s->lock);
        HASH_FIND_STR(s->pokes, coupon, p);
        assert(p); /* none is ever taken out */
        p->not_before = mono_add_ms(mono_now(), raised ? POKE_RAISED_MS : POKE_MS);
        pthread_mutex_unlock(&s->lock);
    }
}

/* Under the lock: is there a poke that waits for its time? */
static bool pokes_wait(const struct lanes *s)
{
    for (const struct poke *p = s->pokes; p; p = p->hh.next)
        if (p->wanted)
            return true;
    return false;
}

static void wait_for_some(struct lanes *s)
{
    if (s->inbox.count || s->stop)
        return;
    if (pokes_wait(s))
        cond_wait_until(&s->some, &s->lock, mono_add_ms(mono_now(), POKE_MS));
    else
        pthread_cond_wait(&s->some, &s->lock);
}

static void *lanes_main(void *argument)
{
    struct lanes *s = argument;
    struct op_list lacking = {0}, inbox;
    struct op *op;
    bool stop;

    do {
        pthread_mutex_lock(&s->lock);
        if (!lacking.count)
            wait_for_some(s);
        inbox = s->inbox;
        s->inbox = (struct op_list){0};
        stop = s->stop;
        pthread_mutex_unlock(&s->lock);
        while ((op = op_list_take(&inbox))) {
            if (lanes_does(op->kind))
                do_op(s, op);
            else
                op_list_add(&lacking, op);
        }
        if (lacking.count)
            look_around(s, &lacking);
        do_pokes(s);
    } while (!stop);
    while ((op = op_list_take(&lacking)))
        busy(s, op);
    return NULL;
}

/* ---- all lanes at once ---- */

struct gather {
    struct lanes *lanes;
    struct op *parent;
    struct asks *asks;
    atomic_size_t left;
};

static void gathered_one(struct op *one)
{
    struct gather *g = one->context;
    struct op *op = g->parent;
    size_t count = g->asks->count;

    if (atomic_fetch_sub(&g->left, 1) != 1)
        return;
    op->outcome = (struct outcome){.result = CPN_OK};
    for (size_t i = 0; i < count && op->outcome.result == CPN_OK; i++)
        op->outcome = g->asks->ops[i].outcome;
    one = &g->asks->ops[0];
    if (op->outcome.result == CPN_OK) {
        heads_add_up(&op->head, g->asks->ops, (int64_t)count);
        op->coupon_now = coupon_copy(one->coupon_now, op->arena);
        op->seq = one->seq;
        op->seqs = arena_array(op->arena, count, sizeof *op->seqs);
        for (size_t i = 0; i < count; i++)
            op->seqs[i] = g->asks->ops[i].seq;
        op->at_ms = op->head.at_ms > one->at_ms ? op->head.at_ms : one->at_ms;
    }
    asks_free(g->asks);
    finish(g->lanes, op);
    free(g);
}

void lanes_gather(struct lanes *s, struct op *op)
{
    int64_t lanes = heard_lanes(s->heard, op->coupon);
    struct gather *g = checked(calloc(1, sizeof *g));
    struct op *ops;

    g->lanes = s;
    g->parent = op;
    g->asks = asks_new(op->coupon, (size_t)lanes);
    ops = g->asks->ops;
    atomic_init(&g->left, (size_t)lanes);
    atomic_fetch_add(&s->waiting, 1);
    for (int64_t i = 0; i < lanes; i++) {
        struct op *one = asks_add(g->asks, OP_HEAD, i);

        one->done = gathered_one;
        one->context = g;
        one->deadline = op->deadline;
    }
    for (int64_t i = 0; i < lanes; i++) /* g may be gone with the last */
        engine_ask(s->asker.engine, &ops[i]);
}

/* ---- from outside ---- */

struct lanes *lanes_start(struct engine *e, struct heard_table *heard, struct store_source *source,
                          const struct engine_hooks *hooks)
{
    struct lanes *s = checked(calloc(1, sizeof *s));

    s->asker.engine = e;
    shares_init(&s->shares, &s->asker, &s->stopping);
    s->heard = heard;
    s->source = source;
    s->hooks = hooks;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->some);
    if (pthread_create(&s->thread, NULL, lanes_main, s) != 0)
        abort();
    return s;
}

void lanes_submit(struct lanes *s, struct op *op)
{
    bool stop;

    atomic_fetch_add(&s->waiting, 1);
    pthread_mutex_lock(&s->lock);
    stop = s->stop;
    if (!stop)
        op_list_add(&s->inbox, op);
    pthread_cond_signal(&s->some);
    pthread_mutex_unlock(&s->lock);
    if (stop)
        busy(s, op);
}

void lanes_poke(struct lanes *s, const char *coupon)
{
    struct poke *p;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->pokes, coupon, p);
    if (!p) {
        p = checked(calloc(1, sizeof *p));
        memcpy(p->coupon, coupon, strnlen(coupon, COUPON_ID_MAX));
        HASH_ADD_STR(s->pokes, coupon, p);
    }
    if (!p->wanted)
        pthread_cond_signal(&s->some);
    p->wanted = true;
    pthread_mutex_unlock(&s->lock);
}

int lanes_waiting(const struct lanes *s)
{
    return atomic_load(&s->waiting);
}

void lanes_stop(struct lanes *s)
{
    atomic_store(&s->stopping, true);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->some);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    if (atomic_load(&s->listening))
        pthread_join(s->listener, NULL);
}

void lanes_free(struct lanes *s)
{
    struct poke *p, *next;

    HASH_ITER(hh, s->pokes, p, next) {
        HASH_DEL(s->pokes, p);
        free(p);
    }
    shares_release(&s->shares);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->some);
    free(s);
}
