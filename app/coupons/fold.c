/* coupons/fold.c -- see fold.h: what each kind of entry does to each of them. No I/O, no clock. */
#include "coupons/fold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/transfer.h"

/* ---- user states ---- */

static void move_to_day(struct user_state *u, int64_t day_ms)
{
    if (u->day_ms == day_ms)
        return;
    u->day_ms = day_ms;
    u->today = 0;
}

static struct price price_of(const struct entry *e, const struct head *head)
{
    return (struct price){e->discount_minor, e->order_minor, e->version ? e->version : head->version, e->currency, e->shares};
}

/* Add the redemption that the entry makes. */
static struct redemption *apply_origin(struct user_state *u, const struct entry *e, const struct head *head, int64_t lane,
                                       struct arena *a)
{
    struct redemption *r = user_state_add(u, a);
    uint8_t state = (uint8_t)entry_state(e->kind);

    assert(entry_makes(e->kind));
    *r = (struct redemption){
        .n = e->n, .g = e->g, .from_n = e->from_n, .from = e->from, .lane = lane, .seq = head->seq, .last_seq = head->seq,
        .ordinal = e->ordinal, .at_ms = head->at_ms, .day_ms = head->day_ms, .reserved_until_ms = e->reserved_until_ms,
        .valid_until_ms = e->valid_until_ms, .ends_ms = e->ends_ms, .price = price_of(e, head), .state = state,
        .first_state = state, .first_until_ms = e->reserved_until_ms, .first_ends_ms = e->ends_ms, .first_price = price_of(e, head),
        .left = e->left, .day = e->day, .user = u->total, .user_day = u->today, .order = e->order, .metadata = e->metadata,
        .code = e->shared ? e->shared : e->code,
    };
    memcpy(r->key, e->key, KEY_HASH_LEN);
    memcpy(r->fingerprint, e->fingerprint, FINGERPRINT_LEN);
    memcpy(r->numbers, e->numbers, FINGERPRINT_LEN);
    return r;
}

/* A hold on an issued redemption is no taking: it has the ordinal, day and counts of the taking beneath it. */
static void apply_hold(struct user_state *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a)
{
    struct redemption *r = apply_origin(u, e, head, lane, a);
    struct redemption *base = user_state_by_slot(u, e->from_n, e->from);

    if (!base)
        return;
    r->ordinal = base->ordinal;
    r->day_ms = base->day_ms;
    r->left = base->left;
    r->day = base->day;
    r->user = base->user;
    r->user_day = base->user_day;
    r->code = base->code;
    r->metadata = base->metadata;
    base->reserved_until_ms = e->reserved_until_ms;
}

/* The last extension becomes an earlier one. */
static void keep_extension(struct redemption *r, struct arena *a)
{
    size_t kept = r->earlier_count;
    struct extension *all;

    if (!redemption_extensions(r))
        return;
    all = arena_array(a, kept + 1, sizeof *all);
    if (kept)
        memcpy(all, r->earlier, kept * sizeof *all);
    all[kept].until_ms = r->reserved_until_ms;
    memcpy(all[kept].key, r->extended_key, KEY_HASH_LEN);
    memcpy(all[kept].fingerprint, r->extended_fingerprint, FINGERPRINT_LEN);
    r->earlier = all;
    r->earlier_count = kept + 1;
}

static void apply_extension(struct user_state *u, struct redemption *r, const struct entry *e, struct arena *a)
{
    struct redemption *base = user_state_beneath(u, r);

    assert(e->kind == ENTRY_EXTEND && e->n == r->n && e->g == r->g);
    keep_extension(r, a);
    if (base)
        base->reserved_until_ms = e->reserved_until_ms;
    r->reserved_until_ms = e->reserved_until_ms;
    memcpy(r->extended_key, e->key, KEY_HASH_LEN);
    memcpy(r->extended_fingerprint, e->fingerprint, FINGERPRINT_LEN);
}

static void apply_spending(struct user_state *u, struct redemption *r, const struct entry *e, const struct head *head)
{
    struct redemption *base = user_state_beneath(u, r);

    assert(e->kind == ENTRY_SPEND && e->n == r->n && e->g == r->g);
    r->state = SLOT_REDEEMED;
    r->ends_ms = e->ends_ms;
    r->price = price_of(e, head);
    memcpy(r->spent_key, e->key, KEY_HASH_LEN);
    memcpy(r->spent_fingerprint, e->fingerprint, FINGERPRINT_LEN);
    if (e->order && (!r->order || strcmp(e->order, r->order) != 0)) {
        r->first_order = r->order ? r->order : "";
        r->order = e->order;
    }
    if (!base)
        return;
    base->state = SLOT_REDEEMED;
    base->ends_ms = e->ends_ms;
    base->reserved_until_ms = 0;
    base->last_seq = head->seq;
}

static void apply_adjustment(struct user_state *u, struct redemption *r, const struct entry *e, const struct head *head, struct arena *a)
{
    struct adjustment *all = arena_array(a, r->adjusted_count + 1, sizeof *all);
    struct redemption *base = user_state_beneath(u, r);

    assert(e->kind == ENTRY_ADJUST && e->n == r->n && e->g == r->g);
    if (r->adjusted_count)
        memcpy(all, r->adjusted, r->adjusted_count * sizeof *all);
    all[r->adjusted_count].before = r->price;
    memcpy(all[r->adjusted_count].key, e->key, KEY_HASH_LEN);
    memcpy(all[r->adjusted_count].fingerprint, e->fingerprint, FINGERPRINT_LEN);
    r->adjusted = all;
    r->adjusted_count++;
    r->price = price_of(e, head);
    if (base)
        base->last_seq = head->seq;
}

static void end_redemption(struct redemption *r, const struct entry *e, const struct head *head)
{
    if (!r)
        return;
    if (r->state == SLOT_ISSUED)
        r->ends_ms = e->ends_ms;
    r->state = (uint8_t)entry_state(e->kind);
    r->ended_ms = head->at_ms;
    r->last_seq = head->seq;
}

/* A hold on an issued redemption gives nothing back if it ends unspent; a reversal ends both. */
static void apply_end(struct user_state *u, struct redemption *r, const struct entry *e, const struct head *head)
{
    struct redemption *base = e->from ? user_state_by_slot(u, e->from_n, e->from) : NULL;

    assert(entry_ends(e));
    end_redemption(r, e, head);
    if (base && e->kind != ENTRY_REVERSE)
        base->reserved_until_ms = 0;
    if (e->from && e->kind != ENTRY_REVERSE)
        return;
    end_redemption(base, e, head);
    move_to_day(u, head->day_ms);
    if (e->keep_use)
        return;
    u->total--;
    if (e->same_day)
        u->today--;
}

void fold_user_state_entry(struct user_state *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a)
{
    assert(e->kind < ENTRY_KIND_COUNT);
    unsigned has = entry_members[e->kind];
    struct redemption *r = has & HAS_SLOT ? user_state_by_slot(u, e->n, e->g) : NULL;

    u->touched = true;
    if (has & HAS_USER)
        memcpy(u->alias, e->alias, sizeof u->alias);
    if (r)
        r->last_seq = head->seq;
    switch (e->kind) {
    case ENTRY_ISSUE:
    case ENTRY_RESERVE:
    case ENTRY_REDEEM:
        move_to_day(u, head->day_ms);
        u->total++;
        u->today++;
        apply_origin(u, e, head, lane, a);
        break;
    case ENTRY_HOLD:
        apply_hold(u, e, head, lane, a);
        break;
    case ENTRY_EXTEND:
        if (r)
            apply_extension(u, r, e, a);
        break;
    case ENTRY_SPEND:
        if (r)
            apply_spending(u, r, e, head);
        break;
    case ENTRY_CANCEL:
    case ENTRY_EXPIRE:
    case ENTRY_REVERSE:
        apply_end(u, r, e, head);
        break;
    case ENTRY_ADJUST:
        if (r)
            apply_adjustment(u, r, e, head, a);
        break;
    case ENTRY_ERASE:
        /* What comes after it has another alias, and nothing that links it to this one. */
        u->alias[0] = '\0';
        u->seq = u->total = u->today = 0;
        u->count = 0;
        break;
    default:
        break;
    }
}

bool redemption_is_stale(const struct redemption *r, int64_t at_ms)
{
    return r->ended_ms && r->ended_ms < at_ms - USER_STATE_KEY_KEPT_MS;
}

void fold_user_state_done(struct user_state *u, const struct head *head)
{
    size_t kept = 0;

    assert(head->seq > 0 && u->count <= u->capacity);
    u->seq = u->alias[0] ? head->seq : 0;
    u->touched = false;
    for (size_t i = 0; i < u->count; i++) {
        if (redemption_is_stale(&u->redemptions[i], head->at_ms))
            continue;
        if (kept != i)
            u->redemptions[kept] = u->redemptions[i];
        kept++;
    }
    u->count = kept;
}

bool fold_user_state(struct user_state *u, const struct batch *b, struct arena *a)
{
    bool changed = false;

    if (b->head.seq <= u->seq)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        if (!b->entries[i].user || strcmp(b->entries[i].user, u->user) != 0)
            continue;
        fold_user_state_entry(u, &b->entries[i], &b->head, b->lane, a);
        changed = true;
    }
    if (changed)
        fold_user_state_done(u, &b->head);
    return changed;
}

/* ---- jobs ---- */

void fold_job_entry(struct job_progress *j, const struct entry *e, const struct head *head)
{
    j->version += j->seq != head->seq;
    j->seq = head->seq;
    if (e->kind == ENTRY_GENERATE || e->kind == ENTRY_RETIRING) {
        j->step = e->step;
        j->total += e->count;
    } else if (e->kind == ENTRY_TURN) {
        j->turn = head->seq;
        j->fence = e->step;
    }
}

void fold_job(struct job_progress *j, const struct batch *b)
{
    if (b->head.seq <= j->seq)
        return;
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].job && strcmp(b->entries[i].job, j->id) == 0)
            fold_job_entry(j, &b->entries[i], &b->head);
}

/* ---- totals ---- */

void fold_day(struct head *h, int64_t at_ms, int64_t day_ms)
{
    h->at_ms = at_ms;
    if (h->day_ms == day_ms)
        return;
    h->day_ms = day_ms;
    h->day_taken = 0;
}

/* Replenishing continues after a change, unless it is no longer wanted or possible. */
static void fold_definition_change(struct head *h, const struct coupon *c)
{
    assert(c);
    h->version = c->version;
    if (c->replenish.below == COUPON_NULL || (c->cap.total != COUPON_NULL && c->cap.total < h->replenish_until))
        h->replenish_until = 0;
}

static void fold_generation(struct head *h, const struct entry *e)
{
    h->slots += e->count;
    h->next_n = e->n + e->count;
    if (job_transfers(e->job)) {
        h->elsewhere -= e->count;
        return;
    }
    h->low_stock = h->sold_out = 0; /* slots were added: events may be raised again */
    /* End replenishing if it is complete. */
    if (head_stock(h) >= h->replenish_until)
        h->replenish_until = 0;
}

static void leave(struct head *h, const struct entry *e)
{
    assert(entry_members[e->kind] & HAS_WAS);
    h->issued -= e->was == SLOT_ISSUED;
    h->reserved -= e->was == SLOT_RESERVED;
}

void fold_head_entry(struct head *h, const struct entry *e)
{
    switch (e->kind) {
    case ENTRY_DEFINE:
        fold_definition_change(h, e->definition);
        break;
    case ENTRY_DELETE:
        h->version++;
        break;
    case ENTRY_ARCHIVE:
        h->archived++;
        break;
    case ENTRY_GENERATE:
        fold_generation(h, e);
        break;
    case ENTRY_RETIRING:
        h->retiring += e->count;
        h->elsewhere += job_transfers(e->job) ? e->count : 0;
        break;
    case ENTRY_RETIRE:
        h->slots -= e->count;
        h->retiring -= e->count;
        break;
    case ENTRY_ISSUE:
    case ENTRY_RESERVE:
    case ENTRY_REDEEM:
        h->issued += e->kind == ENTRY_ISSUE;
        h->reserved += e->kind == ENTRY_RESERVE;
        h->redeemed += e->kind == ENTRY_REDEEM;
        h->ordinal = e->ordinal;
        h->discount_minor += e->discount_minor;
        h->day_taken++;
        break;
    case ENTRY_HOLD:
        h->issued--;
        h->reserved++;
        h->discount_minor += e->discount_minor;
        break;
    case ENTRY_SPEND:
        leave(h, e);
        h->redeemed++;
        h->discount_minor += e->discount_minor - e->held_minor;
        break;
    case ENTRY_CANCEL:
    case ENTRY_EXPIRE:
        leave(h, e);
        h->issued += e->from != 0; /* issued again */
        h->discount_minor -= e->discount_minor;
        h->day_taken -= e->same_day && !e->from;
        break;
    case ENTRY_REVERSE:
        h->redeemed--;
        h->discount_minor -= e->discount_minor;
        h->day_taken -= e->same_day;
        break;
    case ENTRY_ADJUST:
        h->discount_minor += e->discount_minor - e->held_minor;
        break;
    case ENTRY_TURN:
        h->turn = h->seq;
        break;
    case ENTRY_TURN_END:
        h->turn = 0;
        break;
    case ENTRY_LOW_STOCK:
        h->low_stock = 1;
        break;
    case ENTRY_SOLD_OUT:
        h->sold_out = 1;
        break;
    case ENTRY_REPLENISH:
        h->replenish_until = e->count;
        break;
    case ENTRY_RESTORED:
        if (e->count > h->epoch && e->count <= EPOCH_MOST) /* skip the ordinals of past epochs */
            h->ordinal += (e->count - h->epoch) * EPOCH_ORDINALS;
        h->epoch = e->count;
        break;
    default:
        break;
    }
}

/* ---- definitions ---- */

const struct coupon *fold_definition(const struct coupon *before, const struct batch *b, struct arena *a)
{
    const struct coupon *now = before;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->kind == ENTRY_DEFINE) {
            now = coupon_copy(e->definition, a);
        } else if (e->kind == ENTRY_DELETE && now && now->state != COUPON_DELETED) { /* the lane may have it from the stored one */
            struct coupon *tombstone = coupon_copy(now, a);

            tombstone->state = COUPON_DELETED;
            tombstone->version++;
            now = tombstone;
        }
    }
    return now;
}

/* ---- buckets ---- */

/* The slots that e moves are [*from, *to); false: none. New slots are not moved: they stay untouched. */
static bool moved_slots(const struct entry *e, int64_t *from, int64_t *to)
{
    if (e->kind != ENTRY_RETIRE && !(entry_members[e->kind] & HAS_SLOT))
        return false;
    *from = e->n;
    *to = e->n + (e->kind == ENTRY_RETIRE ? e->count : 1);
    return true;
}

/* The slots of bucket b that entry e moves are its [*first, *end); false: none. */
static bool touched_slots(const struct entry *e, int64_t b, int *first, int *end)
{
    int64_t from, to;

    if (!moved_slots(e, &from, &to))
        return false;
    from -= b * BUCKET_SLOTS;
    to -= b * BUCKET_SLOTS;
    *first = from < 0 ? 0 : from > BUCKET_SLOTS ? BUCKET_SLOTS : (int)from;
    *end = to < 0 ? 0 : to > BUCKET_SLOTS ? BUCKET_SLOTS : (int)to;
    return *first < *end;
}

static void set_slot(struct slot *s, enum slot_state state, const struct entry *e, int64_t at_ms)
{
    char *user = NULL;

    assert(state <= SLOT_RETIRED); /* how a redemption ended is no slot's state */
    if (state != SLOT_FREE && state != SLOT_RETIRED && e->user)
        user = checked(strdup(e->user));
    free(s->user);
    s->user = user;
    s->state = (uint8_t)state;
    s->at_ms = at_ms;
    s->due_ms = state == SLOT_RESERVED ? e->reserved_until_ms : state == SLOT_ISSUED ? e->valid_until_ms : 0;
    s->from = e->from;
    s->current = state == SLOT_FREE || state == SLOT_RETIRED ? 0 : e->g;
    s->issued = s->current && (s->issued || e->kind == ENTRY_ISSUE);
}

void fold_slot(struct slot *s, const struct entry *e, int64_t at_ms)
{
    if (entry_makes(e->kind))
        s->generation = e->g;
    switch (e->kind) {
    case ENTRY_ISSUE:
    case ENTRY_RESERVE:
    case ENTRY_HOLD:
    case ENTRY_REDEEM:
    case ENTRY_SPEND:
        set_slot(s, entry_state(e->kind), e, at_ms);
        break;
    case ENTRY_EXTEND:
        s->at_ms = at_ms;
        s->due_ms = e->reserved_until_ms;
        break;
    case ENTRY_CANCEL:
    case ENTRY_EXPIRE:
        set_slot(s, e->from ? SLOT_ISSUED : SLOT_FREE, e, at_ms); /* issued again after a hold on an issued one */
        s->current = e->from;
        s->from = 0;
        break;
    case ENTRY_REVERSE:
        set_slot(s, SLOT_FREE, e, at_ms);
        s->from = 0;
        break;
    case ENTRY_RETIRE:
        set_slot(s, SLOT_RETIRED, e, at_ms);
        break;
    case ENTRY_FORGET:
        free(s->user);
        s->user = NULL;
        break;
    default:
        break;
    }
}

bool fold_bucket(struct bucket *k, const struct batch *b)
{
    bool changed = false;
    int first, end;

    if (b->head.seq <= k->seq)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (!touched_slots(e, k->b, &first, &end))
            continue;
        assert(first >= 0 && end <= BUCKET_SLOTS);
        changed = true;
        for (int slot = first; slot < end; slot++)
            fold_slot(&k->slots[slot], e, b->head.at_ms);
    }
    if (changed)
        k->seq = b->head.seq;
    return changed;
}

bool entry_buckets(const struct entry *e, int64_t *first, int64_t *end)
{
    int64_t from, to;

    if (!moved_slots(e, &from, &to) || from < 0 || from == to)
        return false;
    *first = bucket_of(from);
    *end = bucket_of(to - 1) + 1;
    return true;
}

int entry_frees(const struct entry *e)
{
    if (entry_ends(e)) /* a hold on an issued slot falls back to issued */
        return !e->from || e->kind == ENTRY_REVERSE;
    return e->kind == ENTRY_RETIRE || (entry_members[e->kind] & HAS_TAKING) ? -1 : 0;
}

/* ---- reports ---- */

void report_counts_add(struct report_counts *to, const struct report_counts *more)
{
#define ADD(member) to->member += more->member;
    REPORT_COUNTS_FIELDS(ADD)
#undef ADD
}

void fold_report_entry(struct report_counts *r, const struct entry *e)
{
    bool redeems = e->kind == ENTRY_REDEEM || e->kind == ENTRY_SPEND, adjusts = e->kind == ENTRY_ADJUST;
    int sign = redeems || adjusts ? 1 : e->kind == ENTRY_REVERSE ? -1 : 0;

    r->issued += e->kind == ENTRY_ISSUE;
    r->reserved += e->kind == ENTRY_RESERVE || e->kind == ENTRY_HOLD;
    r->redeemed += redeems;
    r->cancelled += e->kind == ENTRY_CANCEL;
    r->expired += e->kind == ENTRY_EXPIRE;
    r->reversed += e->kind == ENTRY_REVERSE;
    r->discount_minor += sign * e->discount_minor - (adjusts ? e->held_minor : 0);
    r->order_minor += sign * e->order_minor - (adjusts ? e->held_order_minor : 0);
}

void fold_report(struct report_counts *r, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        fold_report_entry(r, &b->entries[i]);
}

/* ---- checking ---- */

static const char *taking_contradiction(const struct head *h, const struct entry *e)
{
    if (e->ordinal != h->ordinal)
        return "ordinal";
    if (e->left != (h->next_n ? head_free(h) : COUPON_NULL))
        return "left";
    if (e->day != h->day_taken)
        return "day";
    return NULL;
}

static const char *head_difference(const struct head *want, const struct head *have)
{
    static const struct {
        const char *name;
        size_t offset;
    } rows[] = {
#define TOTAL(kind, member, name, in_line, stored, when, place, reported) [reported] = {name, offsetof(struct head, member)},
#define DAY(kind, member, name, in_line, stored, when, place, reported) [reported] = {"day." name, offsetof(struct head, member)},
        [0] = {"version", offsetof(struct head, version)},
        HEAD_TOTALS_FIELDS(TOTAL)
        HEAD_DAY_FIELDS(DAY)
#undef DAY
#undef TOTAL
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (memcmp((const char *)want + rows[i].offset, (const char *)have + rows[i].offset, sizeof(int64_t)) != 0)
            return rows[i].name;
    return NULL;
}

/* Which of the lane's totals are ones that no entries may lead to, however they add up; NULL: none. Except by transfers, only lane 0 makes
 * and retires slots: so another lane has just what came to it and did not go. */
static const char *impossible(const struct head *h, int64_t lane)
{
    if (lane > 0 && head_stock(h) != 0)
        return "elsewhere";
    if (h->issued < 0 || h->reserved < 0 || h->redeemed < 0)
        return "taken";
    if (h->retiring < 0 || (h->next_n && head_free(h) < 0))
        return "free";
    if (h->day_taken < 0)
        return "day.taken";
    return h->discount_minor < 0 ? "discount_minor" : NULL;
}

int64_t fold_next_n(const struct head *h, int64_t lane)
{
    return h->next_n ? h->next_n : lane * LANE_SLOTS;
}

const char *batch_contradiction(const struct head *before, const struct batch *b)
{
    struct head h = *before;

    if (b->head.seq != before->seq + 1)
        return "seq";
    if (memcmp(b->prev, before->hash, HASH_LEN) != 0)
        return "prev";
    if (b->head.at_ms < before->at_ms)
        return "at";
    if (b->head.day_ms < before->day_ms && head_takings(before) > 0)
        return "day.start";
    h.seq = b->head.seq;
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        const char *wrong = NULL;

        if (e->kind == ENTRY_GENERATE && e->n != fold_next_n(&h, b->lane))
            return "n";
        if ((entry_members[e->kind] & HAS_TAKING) && e->ordinal != h.ordinal + 1)
            return "ordinal";
        if (e->kind == ENTRY_RESTORED && (i > 0 || e->count <= h.epoch || e->count > EPOCH_MOST))
            return "epoch";
        fold_head_entry(&h, e);
        if (entry_members[e->kind] & HAS_TAKING)
            wrong = taking_contradiction(&h, e);
        if (wrong)
            return wrong;
    }
    return head_difference(&h, &b->head) ? head_difference(&h, &b->head) : impossible(&h, b->lane);
}
