/* coupons/decide.c -- see decide.h. What is decided is folded at once, by the same functions that replay the ledger. */
#include "coupons/decide.h"

#include <assert.h>
#include <string.h>

#include "coupons/fold.h"

void decide_begin(struct decision *d, struct batch *batch, const struct coupon *coupon, const struct head *tail,
                  int64_t at_ms, int64_t day_ms, int64_t day_end_ms)
{
    assert(at_ms >= tail->at_ms);
    *d = (struct decision){.coupon = coupon, .head = *tail, .day_end_ms = day_end_ms, .batch = batch};
    d->head.seq = tail->seq + 1;
    fold_day(&d->head, at_ms, day_ms);
}

void decide_end(struct decision *d, const struct head *tail, struct buf *scratch)
{
    struct batch *b = d->batch;

    assert(decide_changed(d));
    b->head = d->head;
    memcpy(b->prev, tail->hash, HASH_LEN);
    batch_hash(b, scratch, b->head.hash);
}

static void refuse(struct outcome *out, enum cpn_result result)
{
    out->result = result;
    out->retry = result_info(result)->retry;
}

/* ---- taking ---- */

/* A redemption that this request repeats: by key, or by the order's id. True when *out is the answer. */
static bool find_repeat(const struct use *u, const struct take *t, struct outcome *out)
{
    uint8_t key[KEY_HASH_LEN];
    struct redemption *r;

    if (t->key) {
        key_hash(u->alias, t->key, key);
        r = use_by_key(u, key);
        if (r && memcmp(r->fingerprint, t->fingerprint, FINGERPRINT_LEN) != 0) {
            refuse(out, CPN_IDEMPOTENCY_KEY_REUSED);
            return true;
        }
        if (r) {
            *out = (struct outcome){.result = CPN_OK, .replayed = true, .created = true, .redemption = *r};
            out->redemption.state = r->first_state;
            return true;
        }
    }
    r = t->order && t->order->id ? use_by_order(u, t->order->id) : NULL;
    if (r)
        *out = (struct outcome){.result = CPN_OK, .redemption = *r};
    return r != NULL;
}

static enum cpn_result window_refusal(const struct coupon *c, int64_t at_ms)
{
    if (c->state == COUPON_DRAFT || c->state == COUPON_PAUSED)
        return CPN_COUPON_NOT_ACTIVE;
    if (c->state == COUPON_ENDED)
        return CPN_COUPON_ENDED;
    if (c->starts_at_ms != COUPON_NULL && at_ms < c->starts_at_ms)
        return CPN_COUPON_NOT_STARTED;
    if (c->ends_at_ms != COUPON_NULL && at_ms >= c->ends_at_ms)
        return CPN_COUPON_ENDED;
    return CPN_OK;
}

/* Redemptions that u keeps; those that ended more than 7 days ago leave with the next batch that touches u. */
static size_t kept_redemptions(const struct use *u, int64_t at_ms)
{
    size_t kept = u->count;

    for (size_t i = 0; i < u->count && kept >= USE_REDEMPTIONS_MAX; i++)
        kept -= redemption_is_stale(&u->redemptions[i], at_ms);
    return kept;
}

static bool reaches(int64_t taken, int64_t cap)
{
    return cap != COUPON_NULL && taken >= cap;
}

/* Without a cap the sum of all discounts still has to be written exactly, in JSON too. */
static int64_t budget_of(const struct coupon *c)
{
    return c->cap.discount_minor != COUPON_NULL ? c->cap.discount_minor : (INT64_C(1) << 53) - 1;
}

static void refuse_sold_out(const struct decision *d, struct outcome *out)
{
    const struct head *h = &d->head;
    int64_t total = d->coupon->cap.total;

    refuse(out, CPN_SOLD_OUT);
    out->retry = h->reserved > 0 || total == COUPON_NULL || h->slots - h->due < total;
    if (h->next_n == 0)
        out->detail = "No slots have been generated for this coupon yet.";
}

/* The first refusal of the table that applies, or OK with the discount. */
static void refusal(const struct decision *d, const struct use *u, const struct take *t, struct outcome *out,
                    int64_t *discount_minor)
{
    const struct coupon *c = d->coupon;
    const struct head *h = &d->head;
    enum cpn_result r = window_refusal(c, h->at_ms);

    if (r == CPN_COUPON_NOT_STARTED)
        out->retry_at_ms = c->starts_at_ms;
    if (r == CPN_OK && t->code)
        r = CPN_CODE_NOT_FOUND;
    if (r == CPN_OK)
        r = discount_of(c, t->order, discount_minor, &out->detail);
    if (r == CPN_OK && reaches(u->total, c->cap.per_user))
        r = CPN_USER_CAP_REACHED;
    if (r == CPN_OK && reaches(use_today(u, h->day_ms), c->cap.per_user_per_day)) {
        r = CPN_USER_DAILY_CAP_REACHED;
        out->retry_at_ms = d->day_end_ms;
    }
    if (r == CPN_OK && reaches(h->day_taken, c->cap.per_day)) {
        r = CPN_DAILY_CAP_REACHED;
        out->retry_at_ms = d->day_end_ms;
    }
    if (r == CPN_OK && *discount_minor > budget_of(c) - h->discount_minor)
        r = CPN_BUDGET_REACHED;
    if (r == CPN_OK && head_free(h) <= 0) {
        refuse_sold_out(d, out);
        return;
    }
    refuse(out, r);
}

static void take_slot(struct decision *d, struct use *u, const struct take *t, int64_t discount_minor)
{
    const struct free_slot *slot = &d->stash[d->stash_used++];
    struct batch *b = d->batch;
    struct entry *e = batch_add(b, ENTRY_REDEEM);

    e->n = slot->n;
    e->g = slot->g + 1;
    memcpy(e->alias, u->alias, sizeof e->alias);
    key_hash(u->alias, t->key, e->key);
    memcpy(e->fingerprint, t->fingerprint, FINGERPRINT_LEN);
    e->ordinal = d->head.ordinal + 1;
    e->discount_minor = discount_minor;
    e->user = arena_strdup(&b->arena, u->user);
    e->order = t->order ? arena_strdup(&b->arena, t->order->id) : NULL;
    e->metadata = arena_strdup(&b->arena, t->metadata);
    fold_head_entry(&d->head, e);
    e->left = head_free(&d->head);
    e->day = d->head.day_taken;
    fold_use_entry(u, e, &d->head, b->lane, &b->arena);
}

bool decide_take(struct decision *d, struct use *u, const struct take *t, struct outcome *out)
{
    int64_t discount_minor = 0;

    *out = (struct outcome){.result = CPN_OK};
    if (find_repeat(u, t, out))
        return true;
    if (kept_redemptions(u, d->head.at_ms) >= USE_REDEMPTIONS_MAX) {
        refuse(out, CPN_TOO_MANY_ATTEMPTS);
        return true;
    }
    refusal(d, u, t, out, &discount_minor);
    if (out->result != CPN_OK)
        return true;
    if (d->stash_used == d->stash_count)
        return DECIDE_AGAIN;
    take_slot(d, u, t, discount_minor);
    out->created = true;
    out->redemption = u->redemptions[u->count - 1];
    return true;
}

void decide_check(const struct decision *d, const struct use *u, const struct take *t, struct outcome *out,
                  int64_t *discount_minor)
{
    struct take keyless = *t;

    *out = (struct outcome){.result = CPN_OK};
    *discount_minor = 0;
    keyless.key = NULL;
    if (find_repeat(u, &keyless, out)) {
        *discount_minor = out->redemption.discount_minor;
        return;
    }
    if (kept_redemptions(u, d->head.at_ms) >= USE_REDEMPTIONS_MAX)
        refuse(out, CPN_TOO_MANY_ATTEMPTS);
    else
        refusal(d, u, t, out, discount_minor);
}

void decide_reverse(struct decision *d, struct use *u, int64_t n, uint32_t g, struct outcome *out)
{
    struct redemption *r = use_by_slot(u, n, g);
    struct batch *b = d->batch;
    struct entry *e;

    *out = (struct outcome){.result = CPN_OK};
    if (!r) {
        refuse(out, CPN_REDEMPTION_NOT_FOUND);
        return;
    }
    if (r->state != SLOT_REVERSED && !slot_rule((enum slot_state)r->state, MOVE_REVERSE)) {
        refuse(out, CPN_INVALID_TRANSITION);
        return;
    }
    if (r->state != SLOT_REVERSED) {
        e = batch_add(b, ENTRY_REVERSE);
        e->n = n;
        e->g = g;
        memcpy(e->alias, u->alias, sizeof e->alias);
        e->user = arena_strdup(&b->arena, u->user);
        e->discount_minor = r->discount_minor;
        e->same_day = r->day_ms == d->head.day_ms;
        e->since = r->seq;
        fold_head_entry(&d->head, e);
        fold_use_entry(u, e, &d->head, b->lane, &b->arena);
    }
    out->redemption = *r;
}

/* ---- what changes a coupon ---- */

static void define(struct decision *d, const struct coupon *next, int64_t version)
{
    struct entry *e = batch_add(d->batch, ENTRY_DEFINE);
    struct coupon *copy = coupon_copy(next, &d->batch->arena);

    copy->version = version;
    e->definition = copy;
    fold_head_entry(&d->head, e);
    d->coupon = copy;
}

static void add_due(struct decision *d, int64_t count, struct use *job, int64_t step)
{
    struct entry *e = batch_add(d->batch, ENTRY_DUE);

    e->count = count;
    if (job) {
        e->job = arena_strdup(&d->batch->arena, job->user + sizeof JOB_USER_PREFIX - 1);
        e->step = step;
        memcpy(e->alias, job->alias, sizeof e->alias);
    }
    fold_head_entry(&d->head, e);
    if (job)
        fold_use_entry(job, e, &d->head, d->batch->lane, &d->batch->arena);
}

void decide_create(struct decision *d, const struct coupon *next, struct outcome *out)
{
    *out = (struct outcome){.result = CPN_OK};
    if (d->head.version > 0)
        refuse(out, CPN_COUPON_EXISTS);
    else
        define(d, next, 1);
}

void decide_change(struct decision *d, const struct coupon *next, int64_t expected_version, struct outcome *out)
{
    const struct head *h = &d->head;
    const char *fixed = h->next_n > 0 || h->ordinal > 0 ? coupon_fixed_difference(d->coupon, next) : NULL;
    int64_t total = next->cap.total;

    *out = (struct outcome){.result = CPN_OK};
    if (expected_version != d->coupon->version) {
        refuse(out, CPN_VERSION_CHANGED);
        return;
    }
    if (fixed) {
        refuse(out, CPN_FIELD_FIXED);
        out->detail = fixed;
        return;
    }
    if (total != COUPON_NULL && total < head_taken(h)) {
        refuse(out, CPN_CAP_BELOW_TAKEN);
        return;
    }
    define(d, next, d->coupon->version + 1);
    if (total != COUPON_NULL && h->slots - h->due > total)
        add_due(d, h->slots - h->due - total, NULL, 0);
}

void decide_delete(struct decision *d, struct outcome *out)
{
    *out = (struct outcome){.result = CPN_OK};
    if (d->head.ordinal > 0) {
        refuse(out, CPN_COUPON_IN_USE);
        return;
    }
    fold_head_entry(&d->head, batch_add(d->batch, ENTRY_DELETE));
    d->coupon = fold_definition(d->coupon, d->batch, &d->batch->arena);
}

/* ---- slots ---- */

void decide_generate(struct decision *d, struct use *job, int64_t step, int64_t count, struct outcome *out)
{
    struct batch *b = d->batch;
    int64_t total = d->coupon->cap.total;
    struct entry *e;

    *out = (struct outcome){.result = CPN_OK, .replayed = job->job_step >= step};
    if (out->replayed)
        return;
    if (total != COUPON_NULL && d->head.slots - d->head.due + count > total) {
        refuse(out, CPN_CAP_EXCEEDED);
        return;
    }
    e = batch_add(b, ENTRY_GENERATE);
    e->n = d->head.next_n;
    e->count = count;
    e->job = arena_strdup(&b->arena, job->user + sizeof JOB_USER_PREFIX - 1);
    e->step = step;
    memcpy(e->alias, job->alias, sizeof e->alias);
    fold_head_entry(&d->head, e);
    fold_use_entry(job, e, &d->head, b->lane, &b->arena);
}

void decide_due(struct decision *d, struct use *job, int64_t step, int64_t count, int64_t *done, struct outcome *out)
{
    int64_t free_slots = head_free(&d->head);

    *out = (struct outcome){.result = CPN_OK, .replayed = job->job_step >= step};
    if (!out->replayed)
        add_due(d, count < free_slots ? count : free_slots, job, step);
    *done = job->total;
}

void decide_retire(struct decision *d, int64_t most)
{
    struct entry *e = NULL;

    for (; most > 0 && d->head.due > 0 && d->stash_used < d->stash_count; most--) {
        const struct free_slot *slot = &d->stash[d->stash_used++];
        struct entry one = {.kind = ENTRY_RETIRE, .count = 1};

        if (!e || e->n + e->count != slot->n) {
            e = batch_add(d->batch, ENTRY_RETIRE);
            e->n = slot->n;
        }
        e->count++;
        fold_head_entry(&d->head, &one);
    }
}

void decide_tick(struct decision *d)
{
    batch_add(d->batch, ENTRY_TICK);
}
