/*
 * lanes/quotas.c -- see quotas.h.
 *
 * Repeats  any request here may be made twice, by two processes at once, or half: so OP_GIVE and OP_GET carry sums that only grow
 */
#include "lanes/quotas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

#define SETTLE_TRIES 50 /* while other lanes move */
#define ALL (INT64_C(1) << 53)

/* A coupon's lanes as of when none had any of a quota left. */
struct empty {
    char key[COUPON_ID_MAX + 8]; /* coupon, a line feed, quota */
    int64_t *seqs;
    UT_hash_handle hh;
};

struct move {
    const char *coupon;
    int64_t lanes;
    enum quota quota;   /* what this is about */
    int64_t x, need;    /* the lane that needs this much */
    int64_t left;       /* what it has, as of when last asked */
    int64_t *seqs;      /* of each lane, as of when last asked */
    int64_t due_ms;     /* when the first hold of any lane ends, as of the last look at all; 0: none, or not known */
    struct gift want;   /* -1: none of it */
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
        m->left = quota_left(op->coupon_now, op->lane, &op->head, m->quota);
}

static const struct gift nothing = {-1, -1, -1};

static struct op *fanout_account(struct fanout *a, enum op_kind kind, int64_t lane, int64_t peer, const struct gift *gift)
{
    struct op *op = fanout_add(a, kind, lane);

    op->peer = peer;
    op->gift = *gift;
    return op;
}

/* Make the lanes get all that the givers say they ever gave them: gives[i] becomes gets[i]. */
static enum cpn_result get_all(struct quotas *s, struct move *m, const struct fanout *gives)
{
    struct fanout *gets = fanout_new(m->coupon, gives->count);
    enum cpn_result r = CPN_OK;
    bool again = true;

    while (again && r == CPN_OK) {
        again = false;
        gets->count = 0;
        for (size_t i = 0; i < gives->count; i++) {
            const struct op *g = &gives->ops[i];
            struct op *op = fanout_account(gets, OP_GET, g->peer, g->lane, &g->account->given);

            op->gift_day_ms = g->account->day_ms;
        }
        r = ask(s->asker, gets->ops, gets->count);
        for (size_t i = 0; r == CPN_OK && i < gets->count; i++) {
            const struct op *op = &gets->ops[i];

            note(m, op);
            again = again || op->account->got.slots < op->gift.slots; /* slots are moved in steps */
        }
    }
    fanout_free(gets);
    return r;
}

/* Ask for gifts, then have them taken. */
static enum cpn_result give_and_get(struct quotas *s, struct move *m, struct fanout *gives)
{
    enum cpn_result r = ask(s->asker, gives->ops, gives->count);

    for (size_t i = 0; r == CPN_OK && i < gives->count; i++)
        note(m, &gives->ops[i]);
    if (r == CPN_OK)
        r = get_all(s, m, gives);
    fanout_free(gives);
    return r;
}

/* Lane 0 gives lane x what it wants, and every lane takes all that it was ever given. */
static enum cpn_result from_middle(struct quotas *s, struct move *m)
{
    struct fanout *gives = fanout_new(m->coupon, (size_t)m->lanes);

    for (int64_t lane = 1; lane < m->lanes; lane++)
        fanout_account(gives, OP_GIVE, 0, lane, lane == m->x ? &m->want : &nothing);
    return give_and_get(s, m, gives);
}

/* Every lane but x gives lane 0 what x wants, and lane 0 takes it. */
static enum cpn_result to_middle(struct quotas *s, struct move *m)
{
    struct fanout *gives = fanout_new(m->coupon, (size_t)m->lanes);

    for (int64_t lane = 1; lane < m->lanes; lane++)
        fanout_account(gives, OP_GIVE, lane, 0, lane == m->x ? &nothing : &m->want);
    return give_and_get(s, m, gives);
}

static int64_t elsewhere(const struct head *h, enum quota quota)
{
    return quota == QUOTA_SLOTS ? h->elsewhere : quota == QUOTA_DAY ? h->day_elsewhere : h->minor_elsewhere;
}

/* *none: no lane has moved since it was asked, all together have less than x needs, and none is on its way. Gifts of a process that died
 * may be all there is. */
static enum cpn_result look_again(struct quotas *s, struct move *m, bool *none)
{
    enum cpn_result r;
    struct fanout *heads = ask_heads(s->asker, m->coupon, m->lanes, &r);
    int64_t rest = m->need, on_its_way = 0;

    m->due_ms = 0;
    *none = r == CPN_OK;
    for (int64_t i = 0; i < m->lanes && *none; i++) {
        const struct op *op = &heads->ops[i];
        int64_t left = quota_left(op->coupon_now, i, &op->head, m->quota);
        bool same_day = op->head.day_ms == heads->ops[0].head.day_ms;

        rest -= left < 0 ? 0 : left < rest ? left : rest;
        on_its_way += elsewhere(&op->head, m->quota);
        *none = op->seq == m->seqs[i] && rest > 0 && (same_day || m->quota != QUOTA_DAY);
        m->due_ms = sooner_ms(m->due_ms, op->due_ms);
    }
    *none = *none && on_its_way <= 0;
    fanout_free(heads);
    return r;
}

static enum found fetch_once(struct quotas *s, struct move *m)
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

static struct empty *find_empty(struct quotas *s, const struct move *m)
{
    struct empty *e;
    char key[sizeof e->key];

    snprintf(key, sizeof key, "%s\n%d", m->coupon, (int)m->quota);
    HASH_FIND_STR(s->empties, key, e);
    return e;
}

static void remember_empty(struct quotas *s, const struct move *m)
{
    struct empty *e = find_empty(s, m);

    if (!e) {
        e = checked(calloc(1, sizeof *e));
        snprintf(e->key, sizeof e->key, "%s\n%d", m->coupon, (int)m->quota);
        e->seqs = checked(calloc((size_t)m->lanes, sizeof *e->seqs));
        HASH_ADD_STR(s->empties, key, e);
    }
    memcpy(e->seqs, m->seqs, (size_t)m->lanes * sizeof *e->seqs);
}

static void forget_empty(struct quotas *s, struct empty *e)
{
    HASH_DEL(s->empties, e);
    free(e->seqs);
    free(e);
}

/* True if nothing has moved since none was left: answers most of what is asked after the last slot is gone. */
static bool still_nothing(struct quotas *s, struct move *m)
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

enum found quotas_fetch(struct quotas *s, const char *coupon, int64_t lanes, int64_t x, const struct outcome *lack, int tries,
                        int64_t *due_ms)
{
    enum found found = FOUND_BUSY;
    struct move m;

    move_init(&m, coupon, lanes);
    m.quota = lack->lacks;
    m.x = x;
    m.need = lack->need;
    m.want.slots = m.quota == QUOTA_SLOTS ? m.need : -1;
    m.want.day = m.quota == QUOTA_DAY ? m.need : -1;
    m.want.minor = m.quota == QUOTA_BUDGET ? m.need : -1;
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

enum cpn_result quotas_spread(struct quotas *s, const char *coupon, int64_t lanes)
{
    enum cpn_result r;
    struct move m;

    move_init(&m, coupon, lanes);
    r = from_middle(s, &m);
    move_release(&m);
    return r;
}

enum cpn_result quotas_collect(struct quotas *s, const char *coupon, int64_t lanes, int64_t slots)
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

static bool is_below(const struct op *head, enum quota quota)
{
    return quota_left(head->coupon_now, head->lane, &head->head, quota) < 0;
}

/* One lane's share of the quota is below 0 while another has some left: what that one takes is too much. */
static bool is_unsettled(const struct fanout *heads, enum quota quota)
{
    bool below = false, above = false;

    for (size_t i = 0; i < heads->count; i++) {
        const struct op *op = &heads->ops[i];
        int64_t left = quota_left(op->coupon_now, op->lane, &op->head, quota);

        below = below || left < 0;
        above = above || (left > 0 && left != INT64_MAX);
    }
    return below && above;
}

/* Lane 0 makes up for lanes below 0: they took while there was no cap, or a higher one. */
static enum cpn_result make_up(struct quotas *s, struct move *m)
{
    enum cpn_result r;
    struct fanout *heads = ask_heads(s->asker, m->coupon, m->lanes, &r), *gives;

    if (r != CPN_OK) {
        fanout_free(heads);
        return r;
    }
    gives = fanout_new(m->coupon, (size_t)m->lanes);
    for (int64_t i = 1; i < m->lanes; i++) {
        const struct op *op = &heads->ops[i];
        struct gift want = nothing;

        if (is_below(op, QUOTA_DAY))
            want.day = -quota_left(op->coupon_now, i, &op->head, QUOTA_DAY);
        if (is_below(op, QUOTA_BUDGET))
            want.minor = -quota_left(op->coupon_now, i, &op->head, QUOTA_BUDGET);
        if (want.day > 0 || want.minor > 0)
            fanout_account(gives, OP_GIVE, 0, i, &want);
    }
    fanout_free(heads);
    return give_and_get(s, m, gives);
}

enum cpn_result quotas_settle(struct quotas *s, const struct coupon *definition)
{
    enum cpn_result r = CPN_OK;
    bool unsettled = true;
    struct fanout *heads;
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
        unsettled = r != CPN_OK || is_unsettled(heads, QUOTA_DAY) || is_unsettled(heads, QUOTA_BUDGET);
        fanout_free(heads);
    }
    move_release(&m);
    return r == CPN_OK && unsettled ? CPN_BUSY : r;
}

void quotas_init(struct quotas *s, const struct asker *asker, const atomic_bool *stopping)
{
    *s = (struct quotas){.asker = asker, .stopping = stopping};
}

void quotas_release(struct quotas *s)
{
    struct empty *e, *next;

    HASH_ITER(hh, s->empties, e, next)
        forget_empty(s, e);
}
