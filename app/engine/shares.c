/*
 * engine/shares.c -- see shares.h.
 *
 * Repeats  what is asked here may be asked twice, by two processes at a time, or half: OP_GIVE and OP_GET speak of sums that
 *          only grow
 */
#include "engine/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

#define SETTLE_TRIES 50 /* while other lanes move */
#define ALL (INT64_C(1) << 53)

/* The lanes of a coupon as they stood when none had anything left of a share. */
struct empty {
    char key[COUPON_ID_MAX + 8]; /* coupon, a line feed, share */
    int64_t *seqs;
    UT_hash_handle hh;
};

struct move {
    const char *coupon;
    int64_t lanes;
    enum share share;   /* what this is about */
    int64_t x, need;    /* the lane that needs so much of it */
    int64_t left;       /* what that has, when it was last asked */
    int64_t *seqs;      /* of each lane, when it was last asked */
    int64_t due_ms;     /* when the first hold of any lane ends, when all were last looked at; 0: none, or not known */
    struct gift want;   /* -1: nothing of it */
};

static void move_init(struct move *m, const char *coupon, int64_t lanes)
{
    *m = (struct move){.coupon = coupon, .lanes = lanes, .want = {-1, -1, -1}};
    m->seqs = checked(calloc((size_t)lanes, sizeof *m->seqs));
}

static void move_release(struct move *m)
{
    free(m->seqs);
}

static void note(struct move *m, const struct op *op)
{
    m->seqs[op->lane] = op->seq;
    if (op->lane == m->x)
        m->left = share_left(op->coupon_now, op->lane, &op->head, m->share);
}

static const struct gift nothing = {-1, -1, -1};

static struct op *asks_account(struct asks *a, enum op_kind kind, int64_t lane, int64_t peer, const struct gift *gift)
{
    struct op *op = asks_add(a, kind, lane);

    op->peer = peer;
    op->gift = *gift;
    op->job = arena_printf(op->arena, ACCOUNT_FORMAT, lane, peer);
    return op;
}

/* Have the lanes get what the givers said they ever gave them: gives[i] becomes gets[i]. */
static enum cpn_result get_all(struct shares *s, struct move *m, const struct asks *gives)
{
    struct asks *gets = asks_new(m->coupon, gives->count);
    enum cpn_result r = CPN_OK;
    bool again = true;

    while (again && r == CPN_OK) {
        again = false;
        gets->count = 0;
        for (size_t i = 0; i < gives->count; i++) {
            const struct op *g = &gives->ops[i];
            struct op *op = asks_account(gets, OP_GET, g->peer, g->lane, &g->use->given);

            op->gift_day_ms = g->use->day_ms;
        }
        r = ask(s->asker, gets->ops, gets->count);
        for (size_t i = 0; r == CPN_OK && i < gets->count; i++) {
            const struct op *op = &gets->ops[i];

            note(m, op);
            again = again || op->use->got.slots < op->gift.slots; /* slots come in steps */
        }
    }
    asks_free(gets);
    return r;
}

/* Ask for gifts, and have them got. */
static enum cpn_result give_and_get(struct shares *s, struct move *m, struct asks *gives)
{
    enum cpn_result r = ask(s->asker, gives->ops, gives->count);

    for (size_t i = 0; r == CPN_OK && i < gives->count; i++)
        note(m, &gives->ops[i]);
    if (r == CPN_OK)
        r = get_all(s, m, gives);
    asks_free(gives);
    return r;
}

/* Lane 0 gives lane x what it wants, and every lane gets what it ever was given. */
static enum cpn_result from_middle(struct shares *s, struct move *m)
{
    struct asks *gives = asks_new(m->coupon, (size_t)m->lanes);

    for (int64_t lane = 1; lane < m->lanes; lane++)
        asks_account(gives, OP_GIVE, 0, lane, lane == m->x ? &m->want : &nothing);
    return give_and_get(s, m, gives);
}

/* Every lane but x gives lane 0 what x wants, and lane 0 gets it. */
static enum cpn_result to_middle(struct shares *s, struct move *m)
{
    struct asks *gives = asks_new(m->coupon, (size_t)m->lanes);

    for (int64_t lane = 1; lane < m->lanes; lane++)
        asks_account(gives, OP_GIVE, lane, 0, lane == m->x ? &nothing : &m->want);
    return give_and_get(s, m, gives);
}

static int64_t elsewhere(const struct head *h, enum share share)
{
    return share == SHARE_SLOTS ? h->elsewhere : share == SHARE_DAY ? h->day_elsewhere : h->minor_elsewhere;
}

/* *none: no lane has moved since it was asked, all of them together have less than x needs, and nothing of it is on its way: what a
 * process gave before it died may be all there is. */
static enum cpn_result look_again(struct shares *s, struct move *m, bool *none)
{
    enum cpn_result r;
    struct asks *heads = ask_heads(s->asker, m->coupon, m->lanes, &r);
    int64_t rest = m->need, on_its_way = 0;

    m->due_ms = 0;
    *none = r == CPN_OK;
    for (int64_t i = 0; i < m->lanes && *none; i++) {
        const struct op *op = &heads->ops[i];
        int64_t left = share_left(op->coupon_now, i, &op->head, m->share);
        bool same_day = op->head.day_ms == heads->ops[0].head.day_ms;

        rest -= left < 0 ? 0 : left < rest ? left : rest;
        on_its_way += elsewhere(&op->head, m->share);
        *none = op->seq == m->seqs[i] && rest > 0 && (same_day || m->share != SHARE_DAY);
        m->due_ms = sooner_ms(m->due_ms, op->due_ms);
    }
    *none = *none && on_its_way <= 0;
    asks_free(heads);
    return r;
}

static enum found fetch_once(struct shares *s, struct move *m)
{
    bool none = false;

    if (from_middle(s, m) != CPN_OK)
        return FOUND_BUSY;
    if (m->left >= m->need)
        return FOUND_SOME;
    if (to_middle(s, m) != CPN_OK || (m->x != 0 && from_middle(s, m) != CPN_OK))
        return FOUND_BUSY;
    if (m->left >= m->need)
        return FOUND_SOME;
    return look_again(s, m, &none) == CPN_OK && none ? FOUND_NOTHING : FOUND_BUSY;
}

static struct empty *find_empty(struct shares *s, const struct move *m)
{
    struct empty *e;
    char key[sizeof e->key];

    snprintf(key, sizeof key, "%s\n%d", m->coupon, (int)m->share);
    HASH_FIND_STR(s->empties, key, e);
    return e;
}

static void remember_empty(struct shares *s, const struct move *m)
{
    struct empty *e = find_empty(s, m);

    if (!e) {
        e = checked(calloc(1, sizeof *e));
        snprintf(e->key, sizeof e->key, "%s\n%d", m->coupon, (int)m->share);
        e->seqs = checked(calloc((size_t)m->lanes, sizeof *e->seqs));
        HASH_ADD_STR(s->empties, key, e);
    }
    memcpy(e->seqs, m->seqs, (size_t)m->lanes * sizeof *e->seqs);
}

static void forget_empty(struct shares *s, struct empty *e)
{
    HASH_DEL(s->empties, e);
    free(e->seqs);
    free(e);
}

/* True when nothing has moved since there was nothing: most of what is asked after the last slot has gone. */
static bool still_nothing(struct shares *s, struct move *m)
{
    struct empty *e = find_empty(s, m);
    bool none;

    if (!e)
        return false;
    memcpy(m->seqs, e->seqs, (size_t)m->lanes * sizeof *e->seqs);
    if (look_again(s, m, &none) == CPN_OK && none)
        return true;
    forget_empty(s, e);
    return false;
}

enum found shares_fetch(struct shares *s, const char *coupon, int64_t lanes, int64_t x, const struct outcome *lack, int tries,
                        int64_t *due_ms)
{
    enum found found = FOUND_BUSY;
    struct move m;

    move_init(&m, coupon, lanes);
    m.share = lack->lacks;
    m.x = x;
    m.need = lack->need;
    m.want.slots = m.share == SHARE_SLOTS ? m.need : -1;
    m.want.day = m.share == SHARE_DAY ? m.need : -1;
    m.want.minor = m.share == SHARE_BUDGET ? m.need : -1;
    if (still_nothing(s, &m))
        found = FOUND_NOTHING;
    for (; tries > 0 && found == FOUND_BUSY && !atomic_load(s->stopping); tries--) {
        if (mono_before(s->asker->until, mono_now()))
            break;
        found = fetch_once(s, &m);
        if (found == FOUND_NOTHING)
            remember_empty(s, &m);
    }
    *due_ms = m.due_ms;
    move_release(&m);
    return found;
}

enum cpn_result shares_spread(struct shares *s, const char *coupon, int64_t lanes)
{
    enum cpn_result r;
    struct move m;

    move_init(&m, coupon, lanes);
    r = from_middle(s, &m);
    move_release(&m);
    return r;
}

enum cpn_result shares_collect(struct shares *s, const char *coupon, int64_t lanes, int64_t slots)
{
    enum cpn_result r;
    struct move m;

    move_init(&m, coupon, lanes);
    m.want.slots = slots;
    r = to_middle(s, &m);
    move_release(&m);
    return r;
}

/* ---- caps that changed ---- */

static bool is_below(const struct op *head, enum share share)
{
    return share_left(head->coupon_now, head->lane, &head->head, share) < 0;
}

/* A lane is below 0 of the share, and another one above: what that takes is too much. */
static bool is_unsettled(const struct asks *heads, enum share share)
{
    bool below = false, above = false;

    for (size_t i = 0; i < heads->count; i++) {
        const struct op *op = &heads->ops[i];
        int64_t left = share_left(op->coupon_now, op->lane, &op->head, share);

        below = below || left < 0;
        above = above || (left > 0 && left != INT64_MAX);
    }
    return below && above;
}

/* Lane 0 gives those that are below 0 what they lack: they took while there was no cap, or a higher one. */
static enum cpn_result make_up(struct shares *s, struct move *m)
{
    enum cpn_result r;
    struct asks *heads = ask_heads(s->asker, m->coupon, m->lanes, &r), *gives;

    if (r != CPN_OK) {
        asks_free(heads);
        return r;
    }
    gives = asks_new(m->coupon, (size_t)m->lanes);
    for (int64_t i = 1; i < m->lanes; i++) {
        const struct op *op = &heads->ops[i];
        struct gift want = nothing;

        if (is_below(op, SHARE_DAY))
            want.day = -share_left(op->coupon_now, i, &op->head, SHARE_DAY);
        if (is_below(op, SHARE_BUDGET))
            want.minor = -share_left(op->coupon_now, i, &op->head, SHARE_BUDGET);
        if (want.day > 0 || want.minor > 0)
            asks_account(gives, OP_GIVE, 0, i, &want);
    }
    asks_free(heads);
    return give_and_get(s, m, gives);
}

enum cpn_result shares_settle(struct shares *s, const struct coupon *definition)
{
    enum cpn_result r = CPN_OK;
    bool unsettled = true;
    struct asks *heads;
    struct move m;

    move_init(&m, definition->id, definition->lanes);
    for (int tries = 0; tries < SETTLE_TRIES && r == CPN_OK && unsettled; tries++) {
        m.want.day = m.want.minor = -1;
        r = from_middle(s, &m);
        m.want.day = m.want.minor = ALL;
        if (r == CPN_OK)
            r = to_middle(s, &m);
        if (r == CPN_OK)
            r = make_up(s, &m);
        if (r != CPN_OK)
            break;
        heads = ask_heads(s->asker, m.coupon, m.lanes, &r);
        unsettled = r != CPN_OK || is_unsettled(heads, SHARE_DAY) || is_unsettled(heads, SHARE_BUDGET);
        asks_free(heads);
    }
    move_release(&m);
    return r == CPN_OK && unsettled ? CPN_BUSY : r;
}

void shares_init(struct shares *s, const struct asker *asker, const atomic_bool *stopping)
{
    *s = (struct shares){.asker = asker, .stopping = stopping};
}

void shares_release(struct shares *s)
{
    struct empty *e, *next;

    HASH_ITER(hh, s->empties, e, next)
        forget_empty(s, e);
}
