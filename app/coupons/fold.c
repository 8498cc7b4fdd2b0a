/* coupons/fold.c -- see fold.h: what each kind of entry does to each view. No I/O, no clock. */
#include "coupons/fold.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

bool entry_is_of(const struct entry *e, const char *user)
{
    static const size_t prefix = sizeof JOB_USER_PREFIX - 1;

    if (e->user)
        return strcmp(e->user, user) == 0;
    return e->job && strncmp(user, JOB_USER_PREFIX, prefix) == 0 && strcmp(e->job, user + prefix) == 0;
}

/* ---- uses ---- */

static void move_to_day(struct use *u, int64_t day_ms)
{
    if (u->day_ms == day_ms)
        return;
    u->day_ms = day_ms;
    u->today = 0;
}

static void lay_taking(struct use *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a)
{
    struct redemption *r = use_add(u, a);

    move_to_day(u, head->day_ms);
    u->total++;
    u->today++;
    *r = (struct redemption){
        .n = e->n, .g = e->g, .from = e->from, .lane = lane, .seq = head->seq, .ordinal = e->ordinal,
        .at_ms = head->at_ms, .day_ms = head->day_ms, .reserved_until_ms = e->reserved_until_ms,
        .valid_until_ms = e->valid_until_ms, .discount_minor = e->discount_minor, .state = SLOT_REDEEMED,
        .first_state = SLOT_REDEEMED, .left = e->left, .day = e->day, .user = u->total, .user_day = u->today,
        .order = e->order, .metadata = e->metadata,
    };
    memcpy(r->key, e->key, KEY_HASH_LEN);
    memcpy(r->fingerprint, e->fingerprint, FINGERPRINT_LEN);
}

static void lay_reversal(struct use *u, const struct entry *e, const struct head *head)
{
    struct redemption *r = use_by_slot(u, e->n, e->g);

    u->total--;
    move_to_day(u, head->day_ms);
    if (e->same_day)
        u->today--;
    if (!r)
        return;
    r->state = SLOT_REVERSED;
    r->ended_ms = head->at_ms;
}

void fold_use_entry(struct use *u, const struct entry *e, const struct head *head, int64_t lane, struct arena *a)
{
    if (!u->alias[0])
        memcpy(u->alias, e->alias, sizeof u->alias);
    switch (e->kind) {
    case ENTRY_REDEEM:
        lay_taking(u, e, head, lane, a);
        break;
    case ENTRY_REVERSE:
        lay_reversal(u, e, head);
        break;
    case ENTRY_GENERATE:
    case ENTRY_DUE:
        u->job_step = e->step;
        u->total += e->count;
        break;
    default:
        break;
    }
}

bool redemption_is_stale(const struct redemption *r, int64_t at_ms)
{
    return r->ended_ms && r->ended_ms < at_ms - USE_KEY_KEPT_MS;
}

void fold_use_done(struct use *u, const struct head *head)
{
    size_t kept = 0;

    u->seq = head->seq;
    u->version++;
    for (size_t i = 0; i < u->count; i++) {
        if (redemption_is_stale(&u->redemptions[i], head->at_ms))
            continue;
        if (kept != i)
            u->redemptions[kept] = u->redemptions[i];
        kept++;
    }
    u->count = kept;
}

bool fold_use(struct use *u, const struct batch *b, struct arena *a)
{
    bool laid = false;

    if (b->head.seq <= u->seq)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        if (!entry_is_of(&b->entries[i], u->user))
            continue;
        fold_use_entry(u, &b->entries[i], &b->head, b->lane, a);
        laid = true;
    }
    if (laid)
        fold_use_done(u, &b->head);
    return laid;
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

void fold_head_entry(struct head *h, const struct entry *e)
{
    switch (e->kind) {
    case ENTRY_DEFINE:
        h->version = e->definition->version;
        break;
    case ENTRY_DELETE:
        h->version++;
        break;
    case ENTRY_GENERATE:
        h->slots += e->count;
        h->next_n = e->n + e->count;
        break;
    case ENTRY_DUE:
        h->due += e->count;
        break;
    case ENTRY_RETIRE:
        h->slots -= e->count;
        h->due -= e->count;
        break;
    case ENTRY_REDEEM:
        h->redeemed++;
        h->ordinal = e->ordinal;
        h->discount_minor += e->discount_minor;
        h->day_taken++;
        break;
    case ENTRY_REVERSE:
        h->redeemed--;
        h->discount_minor -= e->discount_minor;
        h->day_taken -= e->same_day;
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
        } else if (e->kind == ENTRY_DELETE && now) {
            struct coupon *tombstone = coupon_copy(now, a);

            tombstone->state = COUPON_DELETED;
            tombstone->version++;
            now = tombstone;
        }
    }
    return now;
}

/* ---- buckets ---- */

/* The part of entry e that lies in bucket b, as slots [*first, *end) of it; false: none. */
static bool touched_slots(const struct entry *e, int64_t b, int *first, int *end)
{
    unsigned has = entry_members[e->kind];
    int64_t from, to;

    if (has & HAS_RANGE) {
        from = e->n;
        to = e->n + e->count;
    } else if (has & HAS_SLOT) {
        from = e->n;
        to = e->n + 1;
    } else {
        return false;
    }
    from -= b * BUCKET_SLOTS;
    to -= b * BUCKET_SLOTS;
    *first = from < 0 ? 0 : from > BUCKET_SLOTS ? BUCKET_SLOTS : (int)from;
    *end = to < 0 ? 0 : to > BUCKET_SLOTS ? BUCKET_SLOTS : (int)to;
    return *first < *end;
}

static void set_slot(struct slot *s, enum slot_state state, const struct entry *e, int64_t at_ms)
{
    char *user = NULL;

    if (state != SLOT_FREE && state != SLOT_RETIRED && e->user && !(user = strdup(e->user)))
        abort();
    free(s->user);
    s->user = user;
    s->state = (uint8_t)state;
    s->at_ms = at_ms;
    s->due_ms = state == SLOT_RESERVED ? e->reserved_until_ms : state == SLOT_ISSUED ? e->valid_until_ms : 0;
    s->from = state == SLOT_RESERVED ? e->from : 0;
}

/* A number that nobody can choose and every replay finds again: from the batch's random id and the bucket's number. */
static int64_t random_pick(const struct batch *b, int64_t bucket)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    uint64_t pick;

    crypto_generichash(hash, sizeof hash, (const unsigned char *)&bucket, sizeof bucket, (const unsigned char *)b->id,
                       ID_BATCH_LEN);
    memcpy(&pick, hash, sizeof pick);
    return (int64_t)(pick >> 1);
}

static void generate_slots(struct bucket *k, const struct batch *b, int first, int end)
{
    if (k->size == 0) {
        k->lane = b->lane;
        k->pick = random_pick(b, k->b);
    }
    for (int i = first; i < end; i++)
        assert(k->slots[i].generation == 0 && k->slots[i].state == SLOT_FREE);
    if (k->size < end)
        k->size = end;
}

static void lay_on_slot(struct slot *s, const struct entry *e, int64_t at_ms)
{
    switch (e->kind) {
    case ENTRY_REDEEM:
        s->generation = e->g;
        set_slot(s, SLOT_REDEEMED, e, at_ms);
        break;
    case ENTRY_REVERSE:
        set_slot(s, SLOT_FREE, e, at_ms);
        break;
    case ENTRY_RETIRE:
        set_slot(s, SLOT_RETIRED, e, at_ms);
        break;
    default:
        break;
    }
}

bool fold_bucket(struct bucket *k, const struct batch *b)
{
    bool laid = false;
    int first, end;

    if (b->head.seq <= k->seq)
        return false;
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (!touched_slots(e, k->b, &first, &end))
            continue;
        laid = true;
        if (e->kind == ENTRY_GENERATE) {
            generate_slots(k, b, first, end);
            continue;
        }
        for (int slot = first; slot < end; slot++)
            lay_on_slot(&k->slots[slot], e, b->head.at_ms);
    }
    if (laid)
        k->seq = b->head.seq;
    return laid;
}

bool batch_touches_bucket(const struct batch *b, int64_t bucket)
{
    int first, end;

    for (size_t i = 0; i < b->count; i++)
        if (touched_slots(&b->entries[i], bucket, &first, &end))
            return true;
    return false;
}

/* ---- reports ---- */

void fold_report(struct report_counts *r, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        switch (e->kind) {
        case ENTRY_ISSUE:
            r->issued++;
            break;
        case ENTRY_RESERVE:
            r->reserved++;
            break;
        case ENTRY_REDEEM:
            r->redeemed++;
            r->discount_minor += e->discount_minor;
            break;
        case ENTRY_CANCEL:
            r->cancelled++;
            break;
        case ENTRY_EXPIRE:
            r->expired++;
            break;
        case ENTRY_REVERSE:
            r->reversed++;
            r->discount_minor -= e->discount_minor;
            break;
        default:
            break;
        }
    }
}

/* ---- checking ---- */

static const char *taking_contradiction(const struct head *h, const struct entry *e)
{
    if (e->ordinal != h->ordinal)
        return "ordinal";
    if (e->left != head_free(h))
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
    } totals[] = {
        {"version", offsetof(struct head, version)},
        {"slots", offsetof(struct head, slots)},
        {"due", offsetof(struct head, due)},
        {"next_n", offsetof(struct head, next_n)},
        {"issued", offsetof(struct head, issued)},
        {"reserved", offsetof(struct head, reserved)},
        {"redeemed", offsetof(struct head, redeemed)},
        {"ordinal", offsetof(struct head, ordinal)},
        {"discount_minor", offsetof(struct head, discount_minor)},
        {"day.taken", offsetof(struct head, day_taken)},
    };

    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        if (memcmp((const char *)want + totals[i].offset, (const char *)have + totals[i].offset, sizeof(int64_t)) != 0)
            return totals[i].name;
    return NULL;
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
    if (b->head.day_ms < before->day_ms && before->ordinal > 0)
        return "day.start";
    fold_day(&h, b->head.at_ms, b->head.day_ms);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        const char *wrong = NULL;

        if (e->kind == ENTRY_GENERATE && e->n != h.next_n)
            return "n";
        if ((entry_members[e->kind] & HAS_TAKING) && e->ordinal != h.ordinal + 1)
            return "ordinal";
        fold_head_entry(&h, e);
        if (entry_members[e->kind] & HAS_TAKING)
            wrong = taking_contradiction(&h, e);
        if (wrong)
            return wrong;
    }
    return head_difference(&h, &b->head);
}
