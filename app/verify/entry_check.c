/*
 * verify/entry_check.c -- see entry_check.h: the rules for an entry of the ledger, given the slots, users and totals before it. They are
 * written again here, without the functions that decided the entry: otherwise a mistake there would pass.
 */
#include "verify/entry_check.h"

#include <stdio.h>
#include <string.h>

#include "coupons/decide.h" /* policy_of() */
#include "coupons/transfer.h"
#include "verify/replay_lanes.h"

#define HOLD_MOST_MS (INT64_C(24) * 3600 * 1000)

static void entry_drift(struct replay *r, const struct batch *b, const char *field, const char *expected,
                        const char *found)
{
    char where[WHERE_SIZE];

    replay_drift(r, "ledger", replay_entry_place(r, where, b), field, expected, found);
}

static void expect_int(struct replay *r, const struct batch *b, const char *field, int64_t expected, int64_t found)
{
    char where[WHERE_SIZE];

    if (expected != found)
        replay_drift_int(r, "ledger", replay_entry_place(r, where, b), field, expected, found);
}

/* Report a value above its bound. */
static void most(struct replay *r, const struct batch *b, const char *field, int64_t bound, int64_t found)
{
    char where[WHERE_SIZE];

    if (bound == COUPON_NULL || found <= bound)
        return;
    r->sums.drifts++;
    drift_numbers(r->report, r->context, (struct drift){"caps", replay_entry_place(r, where, b), field, NULL, NULL}, "at most ", bound,
                  found);
}

static bool is_taking(const struct entry *e)
{
    return (entry_members[e->kind] & HAS_TAKING) != 0;
}

/* ---- slots ---- */

#define FROM(state) (1u << (state))
static const struct {
    unsigned from; /* the states it may leave */
    enum slot_move move;
} moves[ENTRY_KIND_COUNT] = {
    [ENTRY_ISSUE] = {FROM(SLOT_FREE), MOVE_ISSUE},
    [ENTRY_RESERVE] = {FROM(SLOT_FREE), MOVE_RESERVE},
    [ENTRY_REDEEM] = {FROM(SLOT_FREE), MOVE_REDEEM},
    [ENTRY_HOLD] = {FROM(SLOT_ISSUED), MOVE_RESERVE},
    [ENTRY_EXTEND] = {FROM(SLOT_RESERVED), MOVE_RESERVE},
    [ENTRY_SPEND] = {FROM(SLOT_ISSUED) | FROM(SLOT_RESERVED), MOVE_REDEEM},
    [ENTRY_CANCEL] = {FROM(SLOT_ISSUED) | FROM(SLOT_RESERVED), MOVE_CANCEL},
    [ENTRY_EXPIRE] = {FROM(SLOT_ISSUED) | FROM(SLOT_RESERVED), MOVE_EXPIRE},
    [ENTRY_REVERSE] = {FROM(SLOT_REDEEMED), MOVE_REVERSE},
    [ENTRY_RETIRE] = {FROM(SLOT_FREE), MOVE_RETIRE},
    [ENTRY_ADJUST] = {FROM(SLOT_REDEEMED), SLOT_MOVE_COUNT}, /* in these two the state stays */
    [ENTRY_FORGET] = {FROM(SLOT_REDEEMED), SLOT_MOVE_COUNT},
};

static bool permits(enum slot_state state, enum entry_kind kind)
{
    if (!(moves[kind].from & FROM(state)))
        return false;
    return moves[kind].move == SLOT_MOVE_COUNT || slot_rule(state, moves[kind].move);
}

/* The highest generation that restores can have lost. */
static uint32_t lost_generations(const struct batch *b)
{
    return (uint32_t)((uint64_t)b->head.epoch * EPOCH_GENERATIONS);
}

static uint32_t generation_after(const struct batch *b, uint32_t last)
{
    return (last > lost_generations(b) ? last : lost_generations(b)) + 1;
}

/* Check which redemption of the slot it is about, and whose. */
static void check_holder(struct replay *r, const struct batch *b, const struct entry *e, const struct slot *slot, uint64_t owner)
{
    bool makes = entry_makes(e->kind);

    if (owner ? owner != replay_hash(e->alias) : slot->state != SLOT_FREE)
        entry_drift(r, b, "owner", owner ? "the user who has it" : "nobody", e->alias);
    expect_int(r, b, "generation", makes ? generation_after(b, slot->generation) : slot->current, e->g);
    if (e->kind != ENTRY_FORGET)
        expect_int(r, b, "from", e->kind == ENTRY_HOLD ? slot->current : makes ? 0 : slot->from, e->from);
    if (e->from && e->from_n != r->slot)
        entry_drift(r, b, "from", "of the same slot", "of another");
    if ((entry_members[e->kind] & HAS_WAS) && e->was != slot->state)
        entry_drift(r, b, "was", slot_state_name((enum slot_state)slot->state), slot_state_name((enum slot_state)e->was));
}

/* Codes are not reported: they are worth money. */
static void check_code(struct replay *r, const struct batch *b, const struct entry *e, const struct bucket_state *s)
{
    const struct coupon *c = r->definition;
    uint64_t code = s->codes ? s->codes[r->slot % BUCKET_SLOTS] : 0;

    if (!c || !is_taking(e) || !e->user) /* erased users' codes are gone from the ledger */
        return;
    if (!coupon_slots_have_codes(c) && e->code)
        entry_drift(r, b, "code", "none", "one");
    else if (coupon_slots_have_codes(c) && !e->code)
        entry_drift(r, b, "code", "the slot's", "none");
    else if (e->code && code && replay_hash(e->code) != code)
        entry_drift(r, b, "code", "the slot's", "another");
}

void check_slot(struct replay *r, const struct bucket_state *s, const struct batch *b, const struct entry *e, int64_t n)
{
    const struct slot *slot = &s->bucket.slots[n % BUCKET_SLOTS];
    char expected[VALUE_SIZE];

    r->slot = n;
    if (n < r->part.lane * LANE_SLOTS || n >= r->next_n) {
        entry_drift(r, b, "slot", "generated before", "never generated");
    } else if (!permits((enum slot_state)slot->state, e->kind)) {
        snprintf(expected, sizeof expected, "a state that permits %s", entry_kind_name(e->kind));
        entry_drift(r, b, "state", expected, slot_state_name((enum slot_state)slot->state));
    } else {
        if (entry_members[e->kind] & HAS_USER)
            check_holder(r, b, e, slot, s->owners[n % BUCKET_SLOTS]);
        check_code(r, b, e, s);
    }
    r->slot = -1;
}

/* ---- users ---- */

static void check_hold(struct replay *r, const struct batch *b, const struct entry *e, int64_t from_ms)
{
    int64_t at_ms = b->head.at_ms;

    if (e->reserved_until_ms <= at_ms || e->reserved_until_ms > from_ms + HOLD_MOST_MS)
        entry_drift(r, b, "reserved_until", "within 24 hours", e->reserved_until_ms <= at_ms ? "past" : "beyond");
}

/* True if e says when the coupon ends: an issued redemption is spent, perhaps through a hold, or ends. */
static bool says_end(const struct entry *e, const struct redemption *about)
{
    return about->state == SLOT_ISSUED || (e->kind == ENTRY_SPEND && about->from);
}

static void expect_price(struct replay *r, const struct batch *b, const struct entry *e, const struct price *price)
{
    expect_int(r, b, "discount_minor", price->discount_minor, e->discount_minor);
    expect_int(r, b, "order_minor", price->order_minor, e->order_minor);
}

/* What is priced is priced by the definition in force. Only a hold's price may be an older one's: then it stays as it is. */
static void check_version(struct replay *r, const struct batch *b, const struct entry *e, const struct price *held)
{
    int64_t version = e->version ? e->version : b->head.version;

    if (!r->definition || version == r->definition->version)
        return;
    if (!held || version != held->version)
        expect_int(r, b, "version", r->definition->version, version);
    else
        expect_price(r, b, e, held);
}

/* An adjustment replaces the present price: by one of the definition in force, or by a lower discount alone. */
static void check_adjustment(struct replay *r, const struct batch *b, const struct entry *e, const struct redemption *about)
{
    const struct price *present = &about->price;
    int64_t version = e->version ? e->version : b->head.version;

    expect_int(r, b, "held_minor", present->discount_minor, e->held_minor);
    expect_int(r, b, "held_order_minor", present->order_minor, e->held_order_minor);
    if (about->adjusted_count >= USER_STATE_ADJUSTMENTS_MAX)
        entry_drift(r, b, "adjustments", "32 at most", "one more");
    if (!r->definition || version == r->definition->version)
        return;
    expect_int(r, b, "version", present->version, version);
    expect_int(r, b, "order_minor", present->order_minor, e->order_minor);
    if (e->discount_minor > present->discount_minor)
        entry_drift(r, b, "discount_minor", "a lower one", "a higher one");
}

/* Check what the entry repeats of its redemption. */
static void check_repeated(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e,
                           const struct redemption *about)
{
    const struct redemption *base = about->from ? user_state_by_slot(&u->user_state, about->from_n, about->from) : NULL;
    bool falls_back = base && (e->kind == ENTRY_CANCEL || e->kind == ENTRY_EXPIRE);

    if (entry_members[e->kind] & HAS_SINCE) {
        expect_int(r, b, "since", about->last_seq, e->since);
        if (strcmp(about->code ? about->code : "", e->shared ? e->shared : "") != 0)
            entry_drift(r, b, "code", about->code ? about->code : "none", e->shared ? e->shared : "none");
    }
    if (e->kind == ENTRY_SPEND)
        expect_int(r, b, "held_minor", about->price.discount_minor, e->held_minor);
    else if (entry_ends(e))
        expect_price(r, b, e, &about->price);
    if (e->keep_use && e->kind != ENTRY_REVERSE)
        entry_drift(r, b, "keep_use", "only of a reversal", entry_kind_name(e->kind));
    if (entry_members[e->kind] & HAS_SAME_DAY)
        expect_int(r, b, "same_day", about->day_ms == b->head.day_ms, e->same_day);
    if (entry_ends(e) || e->kind == ENTRY_SPEND)
        expect_int(r, b, "ends", says_end(e, about) ? coupon_ends(r->definition) : 0, e->ends_ms);
    if (e->kind == ENTRY_ADJUST)
        check_adjustment(r, b, e, about);
    if (e->kind == ENTRY_SPEND)
        check_version(r, b, e, e->was == SLOT_RESERVED ? &about->price : NULL);
    if (falls_back)
        expect_int(r, b, "valid_until", base->valid_until_ms, e->valid_until_ms);
    if (e->kind != ENTRY_EXTEND)
        return;
    check_hold(r, b, e, about->at_ms);
    if (redemption_extensions(about) >= USER_STATE_EXTENSIONS_MAX)
        entry_drift(r, b, "extensions", "32 at most", "one more");
}

/* Check the redemption that e continues, or that a new hold is on. */
static void check_about(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e)
{
    bool holds = e->kind == ENTRY_HOLD;
    const struct redemption *about =
        holds ? user_state_by_slot(&u->user_state, e->from_n, e->from) : user_state_by_slot(&u->user_state, e->n, e->g);
    bool issued = holds || (e->kind == ENTRY_SPEND && e->was == SLOT_ISSUED);
    bool late;

    if (!about || about->ended_ms) {
        entry_drift(r, b, "redemption", "one that has not ended", about ? "one that has ended" : "none");
        return;
    }
    if (!((e->kind == ENTRY_HOLD || !(entry_members[e->kind] & HAS_WAS) ? moves[e->kind].from : FROM(e->was)) & FROM(about->state)))
        entry_drift(r, b, "redemption", "in a state that permits it",
                    slot_state_name((enum slot_state)about->state));
    if (issued && user_state_hold_on(&u->user_state, about, b->head.at_ms))
        entry_drift(r, b, "redemption", "not held", "held by another checkout");
    /* Only an expired redemption expires. It can no longer be held, extended or spent; erasing and retiring still cancel it. */
    late = redemption_state(about, b->head.at_ms, coupon_ends(r->definition)) == SLOT_EXPIRED;
    if (e->kind == ENTRY_EXPIRE && !late)
        entry_drift(r, b, "time", "past its end", "before it");
    else if (late && (e->kind == ENTRY_HOLD || e->kind == ENTRY_EXTEND || e->kind == ENTRY_SPEND))
        entry_drift(r, b, "time", "before its end", "past it");
    check_repeated(r, u, b, e, about);
}

/* Without slots, a new redemption is numbered by its place in the ledger. */
static void check_id(struct replay *r, const struct batch *b, const struct entry *e)
{
    bool slots = !r->definition || policy_of(r->definition)->slots;

    if (slots != (e->n >= 0)) {
        entry_drift(r, b, "slot", slots ? "one" : "none", slots ? "none" : "one");
    } else if (!slots) {
        expect_int(r, b, "n", -b->head.seq, e->n);
        expect_int(r, b, "g", lost_generations(b) + r->at + 1, e->g);
    }
}

static void check_erasure(struct replay *r, const struct live_user *u, const struct batch *b)
{
    for (size_t i = 0; i < u->user_state.count; i++)
        if (u->user_state.redemptions[i].state == SLOT_ISSUED || u->user_state.redemptions[i].state == SLOT_RESERVED) {
            entry_drift(r, b, "redemptions", "ended", "one that has not ended");
            return;
        }
}

void check_job(struct replay *r, const struct job_progress *progress, const struct batch *b, const struct entry *e)
{
    if ((e->kind == ENTRY_GENERATE || e->kind == ENTRY_RETIRING) && e->step <= progress->step)
        entry_drift(r, b, "step", "a later one of the job", "one that was made before");
}

void check_name(struct replay *r, const struct batch *b, const struct entry *e)
{
    char folded[USER_MAX + 1];

    if (e->user && coupon_user_valid(e->user) && user_fold(r->fold, e->user, folded) != e->user)
        entry_drift(r, b, "user", "folded as users.fold says", "spelled otherwise");
}

void check_user(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e)
{
    enum key_of which;

    if (u->kept->erased_seq)
        entry_drift(r, b, "alias", "of nobody: erased before", e->alias);
    expect_int(r, b, "before", u->user_state.seq, e->before);
    if ((entry_members[e->kind] & HAS_KEY) && user_state_by_key(&u->user_state, e->key, &which))
        entry_drift(r, b, "key", "used once", "used for another call");
    if (entry_makes(e->kind)) {
        check_id(r, b, e);
        check_version(r, b, e, NULL);
    }
    if (e->kind == ENTRY_ERASE)
        check_erasure(r, u, b);
    else if (!is_taking(e))
        check_about(r, u, b, e);
    if (e->kind == ENTRY_HOLD || e->kind == ENTRY_RESERVE)
        check_hold(r, b, e, b->head.at_ms);
}

void check_user_caps(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    int64_t at_ms = b->head.at_ms, day_ms = b->head.day_ms;

    if (!c || !is_taking(e))
        return;
    /* what has expired no longer counts, even before the ledger says so */
    most(r, b, "per_user", c->cap.per_user, u->user_state.total - user_state_lapsed(&u->user_state, at_ms, coupon_ends(c)));
    most(r, b, "per_user_per_day", c->cap.per_user_per_day,
         user_state_today(&u->user_state, day_ms) - user_state_lapsed_today(&u->user_state, at_ms, day_ms, coupon_ends(c)));
}

/* ---- the coupon as a whole ---- */

/* State and window apply to takings, and to holding and spending issued redemptions. */
static void check_window(struct replay *r, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    bool governed = is_taking(e) || e->kind == ENTRY_HOLD || (e->kind == ENTRY_SPEND && e->was == SLOT_ISSUED);
    int64_t at_ms = b->head.at_ms;
    const char *why = NULL;

    if (!governed)
        return;
    if (!c || c->state != COUPON_ACTIVE)
        why = "a coupon that is not active";
    else if (c->starts_at_ms != COUPON_NULL && at_ms < c->starts_at_ms)
        why = "before it starts";
    else if (c->ends_at_ms != COUPON_NULL && at_ms >= c->ends_at_ms)
        why = "after it ended";
    if (why)
        entry_drift(r, b, "window", "an active coupon, in its window", why);
}

static void check_validity(struct replay *r, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    int64_t until_ms = 0;

    if (!c || e->kind != ENTRY_ISSUE)
        return;
    if (c->valid_for_s != COUPON_NULL)
        until_ms = b->head.at_ms + c->valid_for_s * 1000;
    expect_int(r, b, "valid_until", until_ms, e->valid_until_ms);
    expect_int(r, b, "ends", coupon_ends(c), e->ends_ms);
}

/* A lane is closed with nothing issued or held; afterwards only erasures, a restore and its removal may follow. */
static void check_archived(struct replay *r, const struct head *before, const struct batch *b, const struct entry *e)
{
    if (e->kind == ENTRY_ARCHIVE) {
        expect_int(r, b, "issued", 0, before->issued);
        expect_int(r, b, "reserved", 0, before->reserved);
        if (!r->definition || r->definition->state != COUPON_ENDED)
            entry_drift(r, b, "state", "ended", "another");
    }
    if (before->archived == LANE_REMOVED)
        entry_drift(r, b, "archived", "nothing after it", entry_kind_name(e->kind));
    else if (before->archived && e->kind != ENTRY_ERASE && e->kind != ENTRY_FORGET && e->kind != ENTRY_ARCHIVE &&
             e->kind != ENTRY_RESTORED)
        entry_drift(r, b, "archived", "nothing but an erasure after it", entry_kind_name(e->kind));
}

/* A taking names one of the listed codes, which is not used too often. */
static void check_shared(struct replay *r, const struct batch *b, const struct entry *e)
{
    const struct coupon *c = r->definition;
    const struct code_use *use;
    bool listed = false;

    for (size_t i = 0; e->shared && i < c->codes.shared.count && !listed; i++)
        listed = strcmp(c->codes.shared.items[i], e->shared) == 0;
    if (e->shared ? !listed : c->codes.source == CODES_SHARED && c->codes.claim == CLAIM_PRESENT)
        entry_drift(r, b, "code", c->codes.source == CODES_SHARED ? "one that the coupon lists" : "none", e->shared ? e->shared : "none");
    use = e->shared && c->codes.shared_cap != COUPON_NULL ? code_uses_find(&r->uses, e->shared) : NULL;
    if (use)
        most(r, b, "shared_cap", c->codes.shared_cap, use->used);
}

void check_coupon(struct replay *r, const struct head *before, const struct head *after, const struct batch *b,
                  const struct entry *e)
{
    const struct coupon *c = r->definition;

    check_archived(r, before, b, e);
    if (e->kind == ENTRY_DELETE)
        expect_int(r, b, "takings of a deleted coupon", 0, head_takings(before));
    check_window(r, b, e);
    check_validity(r, b, e);
    if (!c)
        return;
    if (policy_of(c)->slots)
        most(r, b, "slots", after->slots - after->retiring, head_taken(after));
    if (policy_of(c)->slots && e->kind == ENTRY_GENERATE)
        most(r, b, "total", c->cap.total, head_stock(after));
    if (policy_of(c)->total && !policy_of(c)->slots && is_taking(e)) /* a lane counts its own exactly */
        most(r, b, "total", c->cap.total, head_taken(after));
    if (is_taking(e))
        check_shared(r, b, e);
    if (is_taking(e))
        most(r, b, "per_day", c->cap.per_day, after->day_taken);
    if (after->discount_minor > before->discount_minor)
        most(r, b, "discount_minor", c->cap.discount_minor, after->discount_minor);
}

/* ---- lanes ---- */

static int64_t lanes_of(const struct replay *r)
{
    return r->definition ? r->definition->lanes : 1;
}

void check_lane(struct replay *r, const struct batch *b, const struct entry *e)
{
    unsigned has = entry_members[e->kind];
    bool numbered = has & (HAS_SLOT | HAS_RANGE) && e->n >= 0;
    struct transfer_side m;

    if (numbered && lane_of_slot(e->n) != r->part.lane)
        entry_drift(r, b, "lane", "a slot of this lane", "of another");
    if (e->user && (has & HAS_USER) && coupon_lane_of(e->user, lanes_of(r)) != r->part.lane)
        entry_drift(r, b, "lane", "a user of this lane", "of another");
    if (job_transfers(e->job) && (!transfer_parse(e->job, lanes_of(r), &m) || m.lane != r->part.lane ||
                              e->kind != (m.gives ? ENTRY_RETIRING : ENTRY_GENERATE)))
        entry_drift(r, b, "job", "a move between this lane and another", e->job);
    if (r->at == 0)
        expect_int(r, b, "lanes of the coupon", lanes_of(r), b->lanes > 1 ? b->lanes : 1);
}

/* Lowering a cap makes the slots above it due, in the same batch. */
void check_definition(struct replay *r, const struct batch *b)
{
    const struct coupon *c = r->definition;

    for (r->at = 0; r->at < (int64_t)b->count; r->at++)
        if (b->entries[r->at].kind == ENTRY_DEFINE && c && policy_of(c)->slots)
            most(r, b, "total", c->cap.total, head_stock(&b->head));
}

/* ---- slots requested with a new coupon ---- */

/* They are made in the batch that defines it, unless by a job; and slots not made by a job are made nowhere else. */
void check_first_slots(struct replay *r, const struct batch *b)
{
    int64_t first_slots = 0, made = 0;

    for (r->at = 0; r->at < (int64_t)b->count; r->at++) {
        const struct entry *e = &b->entries[r->at];

        if (e->kind == ENTRY_GENERATE && !e->job)
            made += e->count;
        if (e->kind != ENTRY_DEFINE || !e->count)
            continue;
        first_slots += e->job ? 0 : e->count;
        if (e->definition->version != 1 || r->part.lane > 0)
            entry_drift(r, b, "count", "none: it is no new coupon", "some");
        if (!policy_of(e->definition)->slots || e->definition->codes.source == CODES_IMPORTED)
            entry_drift(r, b, "count", "none: its slots are not made", "some");
        most(r, b, "count", e->definition->cap.total, e->count);
    }
    r->at = -1;
    expect_int(r, b, "slots made with the coupon", first_slots, made);
}

/* ---- turns at making codes ---- */

void check_turn(struct replay *r, const struct batch *b, const struct entry *e)
{
    bool own = r->turn_job && e->job && strcmp(r->turn_job, e->job) == 0;
    bool coded = r->definition && coupon_slots_have_codes(r->definition);

    if (e->kind == ENTRY_TURN) {
        if (r->turn_job && !own)
            entry_drift(r, b, "turn", "free", "another job's");
        if (own && e->step < r->turn_fence)
            entry_drift(r, b, "turn", "of a later runner", "of an earlier one");
        r->turn_job = arena_strdup(&r->arena, e->job);
        r->turn_fence = e->step;
    } else if (e->kind == ENTRY_TURN_END) {
        if (!own)
            entry_drift(r, b, "turn", "the job's own", r->turn_job ? "another job's" : "nobody's");
        r->turn_job = NULL;
    } else if (e->kind == ENTRY_GENERATE && coded && !own) {
        entry_drift(r, b, "turn", "the job's own", r->turn_job ? "another job's" : "nobody's");
    }
}

/* ---- events ---- */

static bool is_event(const struct entry *e)
{
    return e->kind == ENTRY_LOW_STOCK || e->kind == ENTRY_SOLD_OUT || e->kind == ENTRY_REPLENISH;
}

/* At how many free slots the stock is low; -1: never. Imported codes cannot be replenished, so below replenish.below they are low, too. */
static int64_t low_at(const struct coupon *c)
{
    int64_t low = c->low_stock != COUPON_NULL ? c->low_stock : -1;
    bool said = c->codes.source == CODES_IMPORTED && c->replenish.below != COUPON_NULL;

    return said && c->replenish.below > low ? c->replenish.below - 1 : low;
}

/* h: the totals after the batch without its events; most_free: the most free slots at any time in it. Returns the event's count; -1: not
 * due. */
static int64_t event_due(enum entry_kind kind, const struct coupon *c, const struct head *h, int64_t most_free)
{
    int64_t free_now = head_free(h), exist = h->slots - h->retiring, until;

    if (!c || c->state == COUPON_DELETED || !policy_of(c)->slots)
        return -1;
    if (kind == ENTRY_LOW_STOCK)
        return !h->low_stock && most_free > low_at(c) && free_now <= low_at(c) ? free_now : -1;
    if (kind == ENTRY_SOLD_OUT)
        return !h->sold_out && most_free > 0 && free_now <= 0 ? 0 : -1;
    if (c->state != COUPON_ACTIVE || c->codes.source == CODES_IMPORTED || c->replenish.below == COUPON_NULL ||
        h->replenish_until || free_now >= c->replenish.below)
        return -1;
    until = exist + c->replenish.add;
    if (c->cap.total != COUPON_NULL && until > c->cap.total)
        until = c->cap.total;
    return until > exist ? until : -1;
}

/* With several lanes, only whoever asked them all knows how many slots are free. But events are lane 0's, each once until slots are
 * added. */
static void check_events_of_all(struct replay *r, const struct batch *b)
{
    struct head h = r->head;

    h.seq = b->head.seq;
    for (r->at = 0; r->at < (int64_t)b->count; r->at++) {
        const struct entry *e = &b->entries[r->at];
        bool raised = e->kind == ENTRY_LOW_STOCK ? h.low_stock : e->kind == ENTRY_SOLD_OUT ? h.sold_out : h.replenish_until;

        if (is_event(e) && (r->part.lane > 0 || raised))
            entry_drift(r, b, entry_kind_name(e->kind), "no event", "one");
        fold_head_entry(&h, e);
    }
}

void check_events(struct replay *r, const struct batch *b)
{
    static const enum entry_kind kinds[] = {ENTRY_LOW_STOCK, ENTRY_SOLD_OUT, ENTRY_REPLENISH};
    int64_t raised[ENTRY_KIND_COUNT], others = 0, most_free = head_free(&r->head);
    struct head h = r->head;

    if (lanes_of(r) > 1) {
        check_events_of_all(r, b);
        return;
    }
    memset(raised, -1, sizeof raised);
    h.seq = b->head.seq;
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (is_event(e)) {
            raised[e->kind] = e->count;
            continue;
        }
        others++;
        fold_head_entry(&h, e);
        if (head_free(&h) > most_free)
            most_free = head_free(&h);
    }
    r->at = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t due = others ? event_due(kinds[i], r->definition, &h, most_free) : -1;

        if (due < 0 && raised[kinds[i]] >= 0)
            entry_drift(r, b, entry_kind_name(kinds[i]), "no event", "one");
        else if (due >= 0 && raised[kinds[i]] < 0)
            entry_drift(r, b, entry_kind_name(kinds[i]), "an event", "none");
        else
            expect_int(r, b, entry_kind_name(kinds[i]), due, raised[kinds[i]]);
    }
}
