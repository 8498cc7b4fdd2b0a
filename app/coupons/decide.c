/*
 * coupons/decide.c -- see decide.h. Each decision is folded at once, by the same functions that replay the ledger.
 *
 * Reading order: decide_take(), check_rules(), take_slot(); decide_step(); then what they call, going up.
 */
#include "coupons/decide.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/code.h"
#include "coupons/fold.h"
#include "coupons/transfer.h"

#define HOLD_MOST_MS (INT64_C(24) * 3600 * 1000) /* the longest that a hold lasts, however often extended */

void decide_begin(struct decision *d, struct batch *batch, const struct coupon *coupon, const struct head *tail,
                  int64_t at_ms, int64_t day_ms, int64_t day_end_ms)
{
    assert(at_ms >= tail->at_ms);
    assert(day_ms <= at_ms && at_ms < day_end_ms);
    assert(batch->count == 0);
    *d = (struct decision){.coupon = coupon, .head = *tail, .day_end_ms = day_end_ms, .batch = batch};
    d->head.seq = tail->seq + 1;
    d->free_most = head_free(tail);
    fold_day(&d->head, at_ms, day_ms);
}

void decide_end(struct decision *d, const struct head *tail, struct buf *scratch)
{
    struct batch *b = d->batch;

    assert(decide_changed(d));
    assert(d->head.seq == tail->seq + 1);
    assert(d->head.at_ms >= tail->at_ms && d->head.ordinal >= tail->ordinal && d->head.epoch >= tail->epoch &&
           d->head.next_n >= tail->next_n); /* these never go back */
    assert(!d->coupon || strcmp(b->coupon, d->coupon->id) == 0);
    assert(d->free_pool_used <= d->free_pool_count);
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].version == d->head.version)
            b->entries[i].version = 0; /* the batch says it */
    b->head = d->head;
    b->lanes = d->coupon ? d->coupon->lanes : 0;
    memcpy(b->prev, tail->hash, HASH_LEN);
    batch_hash(b, scratch, b->head.hash);
}

/* The coupon: it exists, and its lane is not closed. */
static const struct coupon *assert_open(const struct decision *d)
{
    assert(decide_exists(d));
    assert(!d->head.archived);
    return d->coupon;
}

static void refuse(struct outcome *out, enum cpn_result result)
{
    assert(result != CPN_OK);
    out->result = result;
    out->retry = result_info(result)->retry;
}

/* Likewise, because of a field of the body. */
static void refuse_field(struct outcome *out, enum cpn_result result, const char *pointer, const char *detail)
{
    refuse(out, result);
    out->pointer = pointer;
    out->detail = detail;
}

/* ---- policies ---- */

static int64_t free_slots(const struct coupon *c, const struct head *h, int64_t elsewhere)
{
    (void)c;
    (void)elsewhere;
    return head_free(h);
}

static int64_t rest_of_total(const struct coupon *c, const struct head *h, int64_t elsewhere)
{
    return c->cap.total != COUPON_NULL ? c->cap.total - head_taken(h) - elsewhere : INT64_MAX;
}

static int64_t any_number(const struct coupon *c, const struct head *h, int64_t elsewhere)
{
    (void)c;
    (void)h;
    (void)elsewhere;
    return INT64_MAX;
}

const struct policy_row policies[] = {
    /*                  slots  total */
    [CAP_EXACT]       = {true,  true,  free_slots},
    [CAP_APPROXIMATE] = {false, true,  rest_of_total},
    [CAP_NONE]        = {false, false, any_number},
};

static bool is_exhausted(const struct decision *d)
{
    return policy_of(d->coupon)->left(d->coupon, &d->head, d->others.taken) <= 0;
}

/* ---- several lanes ---- */

/* True if other lanes may have slots for this one. Without slots it counts what they reported instead. */
static bool shares_slots(const struct decision *d)
{
    return d->coupon->lanes > 1 && policy_of(d->coupon)->slots;
}

/* The lane has too few free slots. */
static void refuse_for_lack(const struct decision *d, enum cpn_result result, int64_t need, struct outcome *out)
{
    refuse(out, result);
    out->need = shares_slots(d) ? need : 0;
}

/* ---- entries ---- */

static struct named_slot *find_named(const struct decision *d, int64_t n)
{
    size_t first = 0, end = d->named_count;

    while (first < end) {
        size_t mid = first + (end - first) / 2;

        if (d->named[mid].n == n)
            return &d->named[mid];
        if (d->named[mid].n < n)
            first = mid + 1;
        else
            end = mid;
    }
    return NULL;
}

/* Record a restore: before any other entry, and before taking a number from the lane. */
static void note_restored(struct decision *d)
{
    struct entry *e;

    if (d->epoch <= d->head.epoch)
        return;
    e = batch_add(d->batch, ENTRY_RESTORED);
    e->count = d->epoch;
    fold_head_entry(&d->head, e);
}

static struct entry *add(struct decision *d, enum entry_kind kind)
{
    struct entry *e;

    note_restored(d);
    e = batch_add(d->batch, kind);
    if (entry_members[kind] & HAS_BY)
        e->by = arena_strdup(&d->batch->arena, d->by);
    return e;
}

/* Add an entry about u. */
static struct entry *add_entry(struct decision *d, const struct user_state *u, enum entry_kind kind)
{
    struct entry *e = add(d, kind);

    memcpy(e->alias, u->alias, sizeof e->alias);
    e->user = arena_strdup(&d->batch->arena, u->user);
    e->before = u->seq; /* 0 after an erasure: nothing links a new alias to an erased one */
    return e;
}

/* Fold the entry: into the totals, the slot if named, the user state. */
static void apply(struct decision *d, struct user_state *u, struct entry *e)
{
    struct named_slot *named = entry_members[e->kind] & HAS_SLOT ? find_named(d, e->n) : NULL;

    assert(d->batch->count && e == &d->batch->entries[d->batch->count - 1]);
    assert(!(entry_members[e->kind] & HAS_TAKING) || e->ordinal == d->head.ordinal + 1);
    fold_head_entry(&d->head, e);
    if (d->coupon->codes.shared_cap != COUPON_NULL) {
        d->uses.match = (enum codes_match)d->coupon->codes.match;
        code_uses_fold(&d->uses, e);
    }
    if (head_free(&d->head) > d->free_most)
        d->free_most = head_free(&d->head);
    if (entry_members[e->kind] & HAS_TAKING) {
        e->left = policy_of(d->coupon)->slots ? head_free(&d->head) : COUPON_NULL;
        e->day = d->head.day_taken;
    }
    if (named)
        fold_slot(&named->slot, e, d->head.at_ms);
    if (u)
        fold_user_state_entry(u, e, &d->head, d->batch->lane, &d->batch->arena);
}

/* Record the call that the entry answers. */
static void set_call(struct decision *d, struct entry *e, const struct user_state *u, const char *key,
                     const uint8_t fingerprint[FINGERPRINT_LEN], const struct order *order)
{
    assert(key && (entry_members[e->kind] & HAS_KEY));
    key_hash(&d->key_secret, u->alias, key, e->key);
    memcpy(e->fingerprint, fingerprint, FINGERPRINT_LEN);
    e->order = order ? arena_strdup(&d->batch->arena, order->id) : NULL;
}

/* shares is in the batch's arena, or lives as long as the user state. */
static void set_price(struct decision *d, struct entry *e, const struct price *price)
{
    e->discount_minor = price->discount_minor;
    e->order_minor = price->order_minor;
    e->version = price->version;
    e->currency = arena_strdup(&d->batch->arena, price->currency);
    e->shares = arena_strdup(&d->batch->arena, price->shares);
}

/* Record by what numbers a hold was priced: asked for with the same ones, its price stays. */
static void set_numbers(struct entry *e, const struct order *order)
{
    assert(entry_state(e->kind) == SLOT_RESERVED);
    if (order_has_numbers(order))
        order_numbers(order, e->numbers);
}

/* Make the entry be about r. */
static void set_redemption(struct decision *d, struct entry *e, const struct redemption *r)
{
    if (d->coupon->codes.source == CODES_SHARED)
        e->shared = arena_strdup(&d->batch->arena, r->code);
    e->n = r->n;
    e->g = r->g;
    e->from_n = r->from_n;
    e->from = r->from;
    e->since = r->last_seq;
}

/* The coupon's present ends_at; 0: none. */
static int64_t ends_of(const struct decision *d)
{
    return coupon_ends(d->coupon);
}

/* r's state now. */
static enum slot_state state_of(const struct decision *d, const struct redemption *r)
{
    return redemption_state(r, d->head.at_ms, ends_of(d));
}

static void add_end_of(struct decision *d, struct user_state *u, const struct redemption *r, enum entry_kind kind, bool keep_use)
{
    struct entry *e = add_entry(d, u, kind);
    const struct redemption *base = user_state_beneath(u, r);

    assert(entry_ends(e) && (!keep_use || kind == ENTRY_REVERSE));
    set_redemption(d, e, r);
    e->discount_minor = r->price.discount_minor;
    e->order_minor = r->price.order_minor;
    e->currency = r->price.currency;
    e->was = r->state;
    e->same_day = r->day_ms == d->head.day_ms;
    e->ends_ms = r->state == SLOT_ISSUED ? ends_of(d) : 0;
    e->keep_use = keep_use;
    if (base && kind != ENTRY_REVERSE)
        e->valid_until_ms = base->valid_until_ms;
    apply(d, u, e);
}

static void add_end(struct decision *d, struct user_state *u, const struct redemption *r, enum entry_kind kind)
{
    add_end_of(d, u, r, kind, false);
}

/* Add the entries for what has expired: a hold on r, then r, then the issued redemption beneath it. If its slot was not read, that waits
 * for a later batch, and until then only user_state_lapsed() counts it. */
static void expire_one(struct decision *d, struct user_state *u, const struct redemption *r)
{
    const struct redemption *held;

    if (r->n >= 0 && !find_named(d, r->n))
        return;
    held = r->state == SLOT_ISSUED && r->reserved_until_ms ? user_state_hold_on(u, r, INT64_MIN) : NULL;
    if (held && state_of(d, held) == SLOT_EXPIRED)
        add_end(d, u, held, ENTRY_EXPIRE);
    while (r && r->state != SLOT_EXPIRED && state_of(d, r) == SLOT_EXPIRED) {
        add_end(d, u, r, ENTRY_EXPIRE);
        r = user_state_beneath(u, r);
    }
}

void decide_expire(struct decision *d, struct user_state *u, int64_t n, uint32_t g)
{
    const struct named_slot *named = find_named(d, n);
    const struct redemption *r = user_state_by_slot(u, n, named ? named->slot.current : g);

    if (r)
        expire_one(d, u, r);
}

static int64_t hold_until(const struct decision *d, int64_t reserve_s)
{
    return d->head.at_ms + (reserve_s != COUPON_NULL ? reserve_s : d->coupon->reserve_s) * 1000;
}

/* ---- repeats ---- */

/* Rebuild the first answer of the call with this key. */
static void repeat_answer(const struct redemption *r, enum key_of which, const struct extension *earlier,
                          const struct adjustment *adjustment, struct outcome *out)
{
    bool spent = which == KEY_OF_SPENDING || which == KEY_OF_ADJUSTMENT;

    assert(which != KEY_OF_NONE);
    assert((earlier != NULL) == (which == KEY_OF_EARLIER) && (adjustment != NULL) == (which == KEY_OF_ADJUSTMENT));
    *out = (struct outcome){.result = CPN_OK, .replayed = true, .created = which == KEY_OF_FIRST, .redemption = *r};
    if (r->first_state == SLOT_ISSUED)
        out->redemption.valid_until_ms = sooner_ms(r->valid_until_ms, spent ? r->ends_ms : r->first_ends_ms);
    if (spent) {
        out->redemption.state = SLOT_REDEEMED;
        out->redemption.price = redemption_price_after(r, adjustment);
        return;
    }
    out->redemption.state = r->first_state;
    out->redemption.price = r->first_price;
    if (r->first_order)
        out->redemption.order = *r->first_order ? r->first_order : NULL;
    if (which == KEY_OF_FIRST)
        out->redemption.reserved_until_ms = r->first_until_ms;
    else if (earlier)
        out->redemption.reserved_until_ms = earlier->until_ms;
}

/* True if the key was used before: *out is the answer. */
static bool find_key(const struct decision *d, const struct user_state *u, const char *key, const uint8_t fingerprint[FINGERPRINT_LEN],
                     struct outcome *out)
{
    uint8_t hash[KEY_HASH_LEN];
    const struct adjustment *adjustment;
    const struct extension *earlier;
    const struct redemption *r;
    const uint8_t *of_call;
    enum key_of which;

    if (!key || !u->count)
        return false;
    key_hash(&d->key_secret, u->alias, key, hash);
    r = user_state_by_key(u, hash, &which);
    if (!r)
        return false;
    earlier = which == KEY_OF_EARLIER ? redemption_earlier(r, hash) : NULL;
    adjustment = which == KEY_OF_ADJUSTMENT ? redemption_adjustment(r, hash) : NULL;
    of_call = adjustment ? adjustment->fingerprint : earlier ? earlier->fingerprint : which == KEY_OF_FIRST ? r->fingerprint
              : which == KEY_OF_SPENDING ? r->spent_fingerprint : r->extended_fingerprint;
    if (memcmp(of_call, fingerprint, FINGERPRINT_LEN) != 0)
        refuse(out, CPN_IDEMPOTENCY_KEY_REUSED);
    else
        repeat_answer(r, which, earlier, adjustment, out);
    return true;
}

static void answer_with(const struct decision *d, const struct redemption *r, struct outcome *out)
{
    *out = (struct outcome){.result = CPN_OK, .redemption = *r};
    out->redemption.state = (uint8_t)state_of(d, r);
    out->redemption.valid_until_ms = redemption_valid_until(r, ends_of(d));
}

static bool is_order(const struct redemption *r, const struct order *order)
{
    return order && order->id && r->order && strcmp(order->id, r->order) == 0;
}

/* u's newest reserved or redeemed redemption for this order id; with a code, only one in the code's slot, or with the shared code. */
static const struct redemption *find_order(const struct decision *d, const struct user_state *u, const struct take *t,
                                           const struct named_slot *named)
{
    enum codes_match match = (enum codes_match)d->coupon->codes.match;

    if (!t->order || !t->order->id)
        return NULL;
    if (!t->code)
        return user_state_by_order(u, t->order->id, d->head.at_ms);
    for (size_t i = u->count; i-- > 0;) {
        const struct redemption *r = &u->redemptions[i];
        enum slot_state state = is_order(r, t->order) ? state_of(d, r) : SLOT_FREE;
        bool right = d->shared ? r->code && code_text_same(r->code, d->shared, match)
                               : named && r->n == named->n && r->g == named->slot.current;

        if ((state == SLOT_RESERVED || state == SLOT_REDEEMED) && right)
            return r;
    }
    return NULL;
}

/* ---- refusals ---- */

static bool dates_refuse(const struct decision *d, struct outcome *out)
{
    const struct coupon *c = d->coupon;
    int64_t at_ms = d->head.at_ms;

    if (c->state == COUPON_DRAFT || c->state == COUPON_PAUSED) {
        refuse(out, CPN_COUPON_NOT_ACTIVE);
    } else if (c->state != COUPON_ENDED && c->starts_at_ms != COUPON_NULL && at_ms < c->starts_at_ms) {
        refuse(out, CPN_COUPON_NOT_STARTED);
        out->retry_at_ms = c->starts_at_ms;
    } else if (c->state == COUPON_ENDED || (c->ends_at_ms != COUPON_NULL && at_ms >= c->ends_at_ms)) {
        refuse(out, CPN_COUPON_ENDED);
    }
    return out->result != CPN_OK;
}

/* The next batch that touches u drops those that ended more than 7 days ago. */
static bool too_many(const struct decision *d, const struct user_state *u, struct outcome *out)
{
    size_t kept = u->count;

    for (size_t i = 0; i < u->count && kept >= USER_STATE_REDEMPTIONS_MAX; i++)
        kept -= redemption_is_stale(&u->redemptions[i], d->head.at_ms);
    if (kept < USER_STATE_REDEMPTIONS_MAX)
        return false;
    refuse(out, CPN_TOO_MANY_ATTEMPTS);
    return true;
}

static bool reaches(int64_t taken, int64_t cap)
{
    return cap != COUPON_NULL && taken >= cap;
}

static bool fits_budget(const struct decision *d, int64_t more_minor)
{
    const struct coupon *c = d->coupon;
    /* without a cap, the sum of all discounts must still be exact in JSON */
    int64_t most_minor = c->cap.discount_minor != COUPON_NULL ? c->cap.discount_minor : MONEY_MAX / c->lanes;

    return more_minor <= 0 || more_minor <= most_minor - d->head.discount_minor;
}

static bool budget_refuses(const struct decision *d, int64_t more_minor, struct outcome *out)
{
    if (fits_budget(d, more_minor))
        return false;
    refuse(out, CPN_BUDGET_REACHED);
    return true;
}

static const char *shares_text(struct arena *a, const int64_t *shares, size_t count)
{
    struct buf text = BUF_INIT;
    const char *copy;

    assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (i)
            buf_putc(&text, ',');
        buf_int(&text, shares[i]);
    }
    copy = arena_strdup(a, text.data);
    buf_free(&text);
    return copy;
}

/* The shares of the order's lines; NULL: it has none. */
static const char *shares_of(struct decision *d, const struct order *order, int64_t discount_minor)
{
    const char *text;
    int64_t *shares;

    if (!order || !order->line_count)
        return NULL;
    shares = checked(calloc(order->line_count, sizeof *shares));
    discount_shares(d->coupon, order, discount_minor, shares);
    text = shares_text(&d->batch->arena, shares, order->line_count);
    free(shares);
    return text;
}

/* Read `count` shares that add up to sum_minor. False: they do not. */
static bool shares_read(const char *text, size_t count, int64_t sum_minor, int64_t *shares)
{
    int64_t rest_minor = sum_minor;
    char *end;

    for (size_t i = 0; i < count; i++, text = end + 1) {
        shares[i] = strtoll(text, &end, 10);
        if (end == text || *end != (i + 1 < count ? ',' : '\0') || shares[i] < 0 || shares[i] > rest_minor)
            return false;
        rest_minor -= shares[i];
    }
    return rest_minor == 0;
}

/* The shares of a lower discount, divided as they were. They are not hashed: NULL also if they are not the price's. */
static const char *shares_lowered(struct decision *d, const struct price *price, int64_t discount_minor)
{
    const char *text = NULL;
    size_t count = 1;
    int64_t *was;

    if (!price->shares)
        return NULL;
    for (const char *at = price->shares; *at; at++)
        count += *at == ',';
    was = checked(calloc(2 * count, sizeof *was));
    if (shares_read(price->shares, count, price->discount_minor, was)) {
        shares_divide(was, count, discount_minor, was + count);
        text = shares_text(&d->batch->arena, was + count, count);
    }
    free(was);
    return text;
}

/* Compute the order's price by the definition in force. */
static bool order_refuses(struct decision *d, const struct order *order, struct price *price, struct outcome *out)
{
    const struct coupon *c = d->coupon;
    enum cpn_result r = discount_of(c, order, &price->discount_minor, &out->misfit);
    int64_t order_minor = order ? order_amount(order) : COUPON_NULL;

    price->order_minor = order_minor == COUPON_NULL ? 0 : order_minor;
    price->currency = order && order->currency ? order->currency : c->discount.currency;
    price->version = c->version;
    if (r != CPN_OK) {
        refuse(out, r);
        out->detail = misfit_detail(out->misfit.reason);
        return true;
    }
    assert(price->discount_minor >= 0 && (order_minor == COUPON_NULL || price->discount_minor <= order_minor));
    price->shares = shares_of(d, order, price->discount_minor);
    return false;
}

static void refuse_held(int64_t until_ms, struct outcome *out)
{
    refuse(out, CPN_TRANSACTION_IN_PROGRESS);
    out->retry_at_ms = until_ms;
}

static void refuse_sold_out(const struct decision *d, struct outcome *out)
{
    const struct head *h = &d->head;
    int64_t total = d->coupon->cap.total, stock = d->batch->lane == 0 ? head_stock(h) : d->others.stock;
    bool slots = policy_of(d->coupon)->slots, held = h->reserved + d->others.reserved > 0;

    refuse_for_lack(d, CPN_SOLD_OUT, 1, out);
    out->retry = held || (slots && (total == COUPON_NULL || stock < total));
    if (held)
        out->retry_at_ms = sooner_ms(d->next_due_ms, d->others.due_ms);
    if (slots && h->next_n == 0 && stock == 0)
        out->detail = "No slots have been generated for this coupon yet.";
}

/* u has `total` takings that count. A hold on an issued redemption is none: its end gives nothing back. */
static void refuse_user(const struct decision *d, const struct user_state *u, int64_t total, struct outcome *out)
{
    struct arena *a = &d->batch->arena;
    char id[REDEMPTION_ID_SIZE];
    int64_t due_ms = 0;
    size_t count = 0;

    refuse(out, CPN_USER_CAP_REACHED);
    for (size_t i = 0; i < u->count; i++)
        count += !u->redemptions[i].from && state_of(d, &u->redemptions[i]) == SLOT_RESERVED;
    if (reaches(total - (int64_t)count, d->coupon->cap.per_user))
        return;
    out->retry = true;
    out->detail = "The user's own holds use up their limit for this coupon (cap.per_user): redeem or cancel one of those in held.";
    out->held = arena_array(a, count, sizeof *out->held);
    for (size_t i = 0; i < u->count; i++) {
        const struct redemption *r = &u->redemptions[i];

        if (r->from || state_of(d, r) != SLOT_RESERVED)
            continue;
        out->held[out->held_count++] = arena_strdup(a, redemption_id_text(r->n, r->g, r->lane, id));
        due_ms = sooner_ms(due_ms, r->reserved_until_ms);
    }
    assert(count > 0 && out->held_count == count);
    out->retry_at_ms = due_ms;
}

static bool caps_refuse(const struct decision *d, const struct user_state *u, struct outcome *out)
{
    const struct coupon *c = d->coupon;
    const struct head *h = &d->head;
    struct allowance left = user_state_allowance(c, u, h->at_ms, h->day_ms);

    if (left.in_all == 0) {
        refuse_user(d, u, left.total, out);
    } else if (left.today == 0) {
        refuse(out, CPN_USER_DAILY_CAP_REACHED);
        out->retry_at_ms = d->day_end_ms;
    } else if (reaches(h->day_taken, c->cap.per_day)) {
        refuse(out, CPN_DAILY_CAP_REACHED);
        out->retry_at_ms = d->day_end_ms;
    }
    return out->result != CPN_OK;
}

bool decide_bearer_took(const struct coupon *c, const struct slot *s)
{
    return c->codes.claim == CLAIM_PRESENT && (s->state == SLOT_RESERVED || s->state == SLOT_REDEEMED) && !s->issued;
}

/* True if nobody may take with this shared code; *out says why. At its cap it is spent, unless a checkout that holds a use may give it
 * back. */
static bool shared_code_refuses(const struct decision *d, struct outcome *out)
{
    int64_t cap = d->coupon->codes.shared_cap;
    const struct code_use *use = d->shared && cap != COUPON_NULL ? code_uses_find(&d->uses, d->shared) : NULL;

    out->not_theirs = !d->shared;
    if (!d->shared)
        refuse(out, CPN_CODE_NOT_FOUND);
    else if (!use || use->used < cap)
        return false;
    else if (use->held)
        refuse_held(d->next_due_ms, out);
    else
        refuse(out, CPN_CODE_TAKEN);
    return true;
}

/* True if this user may not take the slot with the code; *out says why. */
static bool code_refuses(const struct decision *d, const struct user_state *u, const struct take *t,
                         const struct named_slot *named, struct outcome *out)
{
    const struct slot *s = named ? &named->slot : NULL;
    bool free_one = s && s->state == SLOT_FREE;
    bool own = s && s->user && strcmp(s->user, u->user) == 0;

    if (!t->code || free_one || (own && s->state == SLOT_ISSUED))
        return false;
    if (d->coupon->codes.source == CODES_SHARED)
        return shared_code_refuses(d, out);
    out->not_theirs = !own;
    if (!s || (!own && !decide_bearer_took(d->coupon, s)))
        refuse(out, CPN_CODE_NOT_FOUND);
    else if (s->state == SLOT_REDEEMED)
        refuse(out, CPN_CODE_TAKEN);
    else
        refuse_held(s->due_ms, out);
    return true;
}

/* ---- steps of an existing redemption ---- */

static void hold(struct decision *d, struct user_state *u, const struct redemption *base, const struct step *s,
                 const struct price *price, struct outcome *out)
{
    const struct named_slot *named = find_named(d, base->n);
    struct entry *e = add_entry(d, u, ENTRY_HOLD);

    assert(named || base->n < 0);
    set_redemption(d, e, base);
    e->n = named ? base->n : -d->head.seq;
    e->g = named ? head_next_generation(&d->head, named->slot.generation) : head_floor(&d->head) + (uint32_t)d->batch->count;
    e->from_n = base->n;
    e->from = base->g;
    set_price(d, e, price);
    set_numbers(e, s->order);
    e->reserved_until_ms = hold_until(d, s->reserve_s);
    set_call(d, e, u, s->key, s->fingerprint, s->order);
    apply(d, u, e);
    assert(u->count && u->redemptions[u->count - 1].n == e->n && u->redemptions[u->count - 1].g == e->g);
    *out = (struct outcome){.result = CPN_OK, .created = true, .redemption = u->redemptions[u->count - 1]};
}

static void extend(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    int64_t until_ms = hold_until(d, s->reserve_s), most_ms = r->at_ms + HOLD_MOST_MS;
    struct entry *e;

    assert(r->state == SLOT_RESERVED && s->move == MOVE_RESERVE);
    if (redemption_extensions(r) >= USER_STATE_EXTENSIONS_MAX || r->reserved_until_ms >= most_ms) {
        refuse(out, CPN_INVALID_TRANSITION);
        out->detail = r->reserved_until_ms >= most_ms ? "A hold lasts at most 24 hours." : "A hold can be extended 32 times.";
        return;
    }
    e = add_entry(d, u, ENTRY_EXTEND);
    set_redemption(d, e, r);
    set_call(d, e, u, s->key, s->fingerprint, NULL);
    until_ms = until_ms < most_ms ? until_ms : most_ms;
    e->reserved_until_ms = until_ms > r->reserved_until_ms ? until_ms : r->reserved_until_ms;
    apply(d, u, e);
    *out = (struct outcome){.result = CPN_OK, .redemption = *r};
}

static void spend(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, const struct price *price,
                  struct outcome *out)
{
    struct entry *e = add_entry(d, u, ENTRY_SPEND);

    set_redemption(d, e, r);
    set_call(d, e, u, s->key, s->fingerprint, s->order);
    e->was = r->state;
    e->held_minor = r->price.discount_minor;
    e->ends_ms = r->state == SLOT_ISSUED || r->from ? ends_of(d) : 0;
    set_price(d, e, price);
    apply(d, u, e);
    answer_with(d, r, out);
}

/* Redeem a hold. It was made in time, and its price stays: check only an order with other numbers. */
static void spend_hold(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    struct price price = r->price;
    uint8_t numbers[ORDER_NUMBERS_LEN];
    bool has_numbers = order_has_numbers(s->order);

    if (has_numbers)
        order_numbers(s->order, numbers);
    if (has_numbers && memcmp(numbers, r->numbers, sizeof numbers) != 0 && order_refuses(d, s->order, &price, out))
        return;
    if (!budget_refuses(d, price.discount_minor - r->price.discount_minor, out))
        spend(d, u, r, s, &price, out);
}

static void step_issued(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    struct redemption *held = user_state_hold_on(u, r, d->head.at_ms);
    bool cancels = s->move == MOVE_CANCEL;
    struct price price = {.version = 0};

    if (held && !cancels && is_order(held, s->order)) {
        if (s->move == MOVE_RESERVE)
            answer_with(d, held, out);
        else
            spend_hold(d, u, held, s, out);
        return;
    }
    if ((s->move == MOVE_RESERVE && too_many(d, u, out)) || (!cancels && dates_refuse(d, out)))
        return;
    if (held) {
        refuse_held(held->reserved_until_ms, out);
        return;
    }
    expire_one(d, u, r); /* an expired hold on it */
    if (cancels) {
        add_end(d, u, r, ENTRY_CANCEL);
        answer_with(d, r, out);
        return;
    }
    if (order_refuses(d, s->order, &price, out) || budget_refuses(d, price.discount_minor, out))
        return;
    if (s->move == MOVE_RESERVE)
        hold(d, u, r, s, &price, out);
    else
        spend(d, u, r, s, &price, out);
}

static void step_reserved(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    assert(state_of(d, r) == SLOT_RESERVED && s->move != MOVE_REVERSE);
    if (s->move == MOVE_RESERVE) {
        extend(d, u, r, s, out);
    } else if (s->move == MOVE_REDEEM) {
        spend_hold(d, u, r, s, out);
    } else {
        const struct redemption *base = user_state_beneath(u, r);

        add_end(d, u, r, ENTRY_CANCEL);
        answer_with(d, r, out);
        if (base)
            expire_one(d, u, base); /* its time has passed while it was held */
    }
}

static void step_redeemed(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    struct redemption *held = user_state_hold_on(u, r, d->head.at_ms); /* through which r was redeemed */

    assert(r->state == SLOT_REDEEMED && s->move != MOVE_CANCEL);
    if (s->move == MOVE_REVERSE) {
        add_end_of(d, u, held ? held : r, ENTRY_REVERSE, s->keep_use);
        answer_with(d, r, out);
    } else if (s->move == MOVE_REDEEM && (!s->order || is_order(held ? held : r, s->order))) {
        answer_with(d, held ? held : r, out);
    } else {
        refuse(out, CPN_CODE_TAKEN);
    }
}

/* The price that is asked for instead of r's. False: refused. */
static bool adjusted_price(struct decision *d, const struct redemption *r, const struct step *s, struct price *price, struct outcome *out)
{
    *price = r->price;
    if (!s->order && s->discount_minor > price->discount_minor) {
        refuse_field(out, CPN_BAD_REQUEST, "/discount_minor", "must be at most the present discount: it can only be lowered");
    } else if (!s->order) {
        price->shares = shares_lowered(d, price, s->discount_minor);
        price->discount_minor = s->discount_minor;
    } else if (s->order->id && !is_order(r, s->order)) {
        refuse_field(out, CPN_BAD_REQUEST, "/order/id", "must be that of the redemption's order, or absent");
    } else if (order_refuses(d, s->order, price, out)) {
        return false;
    } else if (r->price.currency && (!price->currency || strcmp(price->currency, r->price.currency) != 0)) {
        refuse_field(out, CPN_BAD_REQUEST, "/order/currency", "must be that of the redemption's order");
    } else {
        budget_refuses(d, price->discount_minor - r->price.discount_minor, out);
    }
    return out->result == CPN_OK;
}

/* Replace the discount of a redeemed one; its slot and its use stay. It belongs to the hold through which it was redeemed. */
static void adjust(struct decision *d, struct user_state *u, struct redemption *r, const struct step *s, struct outcome *out)
{
    struct redemption *held = user_state_hold_on(u, r, d->head.at_ms);
    struct price price;
    struct entry *e;

    r = held ? held : r;
    if (state_of(d, r) != SLOT_REDEEMED) {
        refuse(out, CPN_INVALID_TRANSITION);
        return;
    }
    if (r->adjusted_count >= USER_STATE_ADJUSTMENTS_MAX) {
        refuse(out, CPN_INVALID_TRANSITION);
        out->detail = "A redemption can be adjusted 32 times.";
        return;
    }
    if (!adjusted_price(d, r, s, &price, out))
        return;
    e = add_entry(d, u, ENTRY_ADJUST);
    set_redemption(d, e, r);
    set_call(d, e, u, s->key, s->fingerprint, NULL);
    e->held_minor = r->price.discount_minor;
    e->held_order_minor = r->price.order_minor;
    set_price(d, e, &price);
    apply(d, u, e);
    answer_with(d, r, out);
}

void decide_step(struct decision *d, struct user_state *u, const struct step *s, struct outcome *out)
{
    struct redemption *r = user_state_by_slot(u, s->n, s->g);
    enum slot_state state;
    bool ended, asked_again;

    assert_open(d);
    *out = (struct outcome){.result = CPN_OK};
    if (!r) {
        refuse(out, CPN_REDEMPTION_NOT_FOUND);
        return;
    }
    state = state_of(d, r);
    ended = state == SLOT_CANCELLED || state == SLOT_EXPIRED || state == SLOT_REVERSED;
    /* no slot move, but step_redeemed() answers it */
    asked_again = state == SLOT_REDEEMED && (s->move == MOVE_RESERVE || s->move == MOVE_REDEEM);
    if (find_key(d, u, s->key, s->fingerprint, out))
        return;
    if (s->adjusts)
        adjust(d, u, r, s, out);
    else if (ended && s->move == (state == SLOT_REVERSED ? MOVE_REVERSE : MOVE_CANCEL))
        answer_with(d, r, out); /* that end was asked for */
    else if (state == SLOT_EXPIRED && s->move != MOVE_REVERSE)
        refuse(out, CPN_RESERVATION_EXPIRED);
    else if (ended || (!asked_again && !slot_rule(state, s->move)))
        refuse(out, CPN_INVALID_TRANSITION);
    else if (state == SLOT_ISSUED)
        step_issued(d, u, r, s, out);
    else if (state == SLOT_RESERVED)
        step_reserved(d, u, r, s, out);
    else
        step_redeemed(d, u, r, s, out);
}

/* ---- taking ---- */

/* Find the first refusal that applies, in the order of result.h, or OK with the price. named: the slot with the code, if one was given. */
static void check_rules(struct decision *d, const struct user_state *u, const struct take *t, const struct named_slot *named,
                        struct outcome *out, struct price *price)
{
    bool own = named && named->slot.state == SLOT_ISSUED; /* no new taking */

    if (dates_refuse(d, out) || code_refuses(d, u, t, named, out))
        return;
    if (t->state != SLOT_ISSUED && order_refuses(d, t->order, price, out))
        return;
    if (!own && caps_refuse(d, u, out))
        return;
    if (budget_refuses(d, price->discount_minor, out) || own)
        return;
    if (is_exhausted(d))
        refuse_sold_out(d, out);
}

/* The free pool's next free slot, past those that this decision took by code; NULL: none is left. */
static const struct free_slot *next_free(struct decision *d)
{
    assert(d->free_pool_used <= d->free_pool_count);
    for (; d->free_pool_used < d->free_pool_count; d->free_pool_used++) {
        const struct free_slot *f = &d->free_pool[d->free_pool_used];
        const struct named_slot *named = find_named(d, f->n);

        if (!named || (named->slot.state == SLOT_FREE && named->slot.generation == f->g))
            return f;
    }
    return NULL;
}

/* Give e its slot, which must exist. */
static void give_slot(struct decision *d, struct entry *e, const struct named_slot *named)
{
    const struct free_slot *f;

    if (!policy_of(d->coupon)->slots) {
        e->n = -d->head.seq;
        e->g = head_floor(&d->head) + (uint32_t)d->batch->count + 1;
    } else if (named) {
        assert(named->slot.state == SLOT_FREE);
        e->n = named->n;
        e->by_name = true;
        e->g = head_next_generation(&d->head, named->slot.generation);
        e->code = arena_strdup(&d->batch->arena, named->code);
    } else {
        f = next_free(d);
        assert(f);
        e->n = f->n;
        e->g = head_next_generation(&d->head, f->g);
        e->code = arena_strdup(&d->batch->arena, f->code);
        d->free_pool_used++;
    }
}

/* False: the free pool is empty; nothing was done. */
static bool take_slot(struct decision *d, struct user_state *u, const struct take *t, const struct named_slot *named,
                      const struct price *price)
{
    static const enum entry_kind kinds[SLOT_STATE_COUNT] = {
        [SLOT_ISSUED] = ENTRY_ISSUE, [SLOT_RESERVED] = ENTRY_RESERVE, [SLOT_REDEEMED] = ENTRY_REDEEM};
    struct entry slot = {.n = 0}, *e;

    assert(t->state == SLOT_ISSUED || t->state == SLOT_RESERVED || t->state == SLOT_REDEEMED);
    assert(!is_exhausted(d) && fits_budget(d, price->discount_minor));
    if (policy_of(d->coupon)->slots && !named && !next_free(d))
        return false;
    note_restored(d);
    give_slot(d, &slot, named);
    if (!u->alias[0]) /* not before: a refusal leaves an erased user's state as it is */
        id_random(u->alias, ID_ALIAS_LEN);
    e = add_entry(d, u, kinds[t->state]);
    e->n = slot.n;
    e->by_name = slot.by_name;
    e->g = slot.g;
    e->code = slot.code;
    e->shared = arena_strdup(&d->batch->arena, d->shared);
    set_call(d, e, u, t->key, t->fingerprint, t->order);
    e->ordinal = d->head.ordinal + 1;
    set_price(d, e, price);
    if (t->state == SLOT_RESERVED)
        set_numbers(e, t->order);
    e->metadata = arena_strdup(&d->batch->arena, t->metadata);
    e->reserved_until_ms = t->state == SLOT_RESERVED ? hold_until(d, t->reserve_s) : 0;
    if (t->state == SLOT_ISSUED) {
        e->valid_until_ms = d->coupon->valid_for_s != COUPON_NULL ? d->head.at_ms + d->coupon->valid_for_s * 1000 : 0;
        e->ends_ms = ends_of(d);
    }
    apply(d, u, e);
    return true;
}

/* True if the user state is not one that the caller read. */
static bool has_changed(const struct user_state *u, const struct take *t)
{
    if (!t->versions) /* the caller takes any */
        return false;
    if (u->touched) /* in this batch: nobody can have read that */
        return true;
    for (size_t i = 0; i < t->version_count; i++)
        if (t->versions[i] == u->seq)
            return false;
    return true;
}

/* Do all that comes before taking a slot. True: *out is the answer. False: a slot is to be taken, at *price. */
static bool resolve_without_slot(struct decision *d, struct user_state *u, const struct take *t, const struct named_slot *named,
                                 bool changed, struct outcome *out, struct price *price)
{
    const struct redemption *has;

    *out = (struct outcome){.result = CPN_OK};
    if (find_key(d, u, t->key, t->fingerprint, out))
        return true;
    has = find_order(d, u, t, named);
    if (!has && t->once)
        has = user_state_coded(u, d->head.at_ms, ends_of(d));
    if (has) {
        answer_with(d, has, out);
        return true;
    }
    if (changed) {
        refuse(out, CPN_VERSION_CHANGED);
        out->detail = "The user's state in this coupon has changed since it was read. Read it again.";
        return true;
    }
    if (too_many(d, u, out))
        return true;
    if (d->coupon->codes.claim == CLAIM_PRESENT && !t->code && !t->once) {
        refuse(out, CPN_CODE_REQUIRED);
        return true;
    }
    check_rules(d, u, t, named, out, price);
    if (out->result == CPN_OK)
        return false;
    if (out->result == CPN_USER_CAP_REACHED && t->state == SLOT_ISSUED && d->coupon->on_user_cap == ON_USER_CAP_EXISTING)
        has = user_state_unspent(u, d->head.at_ms, ends_of(d));
    if (has)
        answer_with(d, has, out);
    return true;
}

bool decide_take(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out)
{
    struct price price = {.version = assert_open(d)->version};
    const struct named_slot *named = t->code && t->code_n >= 0 ? find_named(d, t->code_n) : NULL;
    int64_t due_ms = user_state_due(u, ends_of(d));
    bool changed = has_changed(u, t);

    d->shared = t->code ? code_shared(d->coupon, t->code) : NULL;
    /* other users' holds were settled before, with their states */
    for (size_t i = 0; due_ms && due_ms <= d->head.at_ms && i < u->count; i++)
        expire_one(d, u, &u->redemptions[i]);
    if (resolve_without_slot(d, u, t, named, changed, out, &price))
        return true;
    if (named && named->slot.state == SLOT_ISSUED) { /* to this user: act on that redemption */
        struct redemption *r = user_state_by_slot(u, named->n, named->slot.current);
        struct step s = {.n = named->n, .key = t->key, .order = t->order, .reserve_s = t->reserve_s};

        memcpy(s.fingerprint, t->fingerprint, FINGERPRINT_LEN);
        s.move = t->state == SLOT_RESERVED ? MOVE_RESERVE : MOVE_REDEEM;
        if (!r)
            refuse(out, CPN_CODE_NOT_FOUND);
        else if (t->state == SLOT_ISSUED)
            answer_with(d, r, out);
        else
            step_issued(d, u, r, &s, out);
        return true;
    }
    if (!take_slot(d, u, t, named, &price))
        return DECIDE_AGAIN;
    assert(u->count && u->redemptions[u->count - 1].ordinal == d->head.ordinal);
    out->created = true;
    out->redemption = u->redemptions[u->count - 1];
    out->redemption.valid_until_ms = redemption_valid_until(&out->redemption, ends_of(d));
    return true;
}

void decide_check(struct decision *d, struct user_state *u, const struct take *t, struct outcome *out, int64_t *discount_minor)
{
    const struct named_slot *named = t->code && t->code_n >= 0 ? find_named(d, t->code_n) : NULL;
    struct take keyless = *t;
    struct price price = {.discount_minor = 0};
    size_t entries = d->batch->count;

    assert_open(d);
    keyless.key = NULL;
    d->shared = t->code ? code_shared(d->coupon, t->code) : NULL;
    if (resolve_without_slot(d, u, &keyless, named, has_changed(u, t), out, &price) && out->result == CPN_OK)
        price = out->redemption.price;
    assert(d->batch->count == entries);
    *discount_minor = price.discount_minor;
}

/* ---- changing a coupon ---- */

static struct entry *define(struct decision *d, const struct coupon *next, int64_t version)
{
    struct entry *e = add(d, ENTRY_DEFINE);
    struct coupon *copy = coupon_copy(next, &d->batch->arena);

    assert(next->state != COUPON_DELETED);
    copy->version = version;
    e->definition = copy;
    fold_head_entry(&d->head, e);
    d->coupon = copy;
    return e;
}

static void set_job(struct decision *d, struct entry *e, const struct job_progress *job, int64_t step)
{
    assert(job->id && (entry_members[e->kind] & HAS_JOB));
    e->job = arena_strdup(&d->batch->arena, job->id);
    e->step = step;
}

/* job NULL: requested by a call. */
static struct entry *add_job_entry(struct decision *d, const struct job_progress *job, enum entry_kind kind, int64_t step)
{
    struct entry *e = add(d, kind);

    if (job)
        set_job(d, e, job, step);
    return e;
}

static void apply_to_job(struct decision *d, struct job_progress *job, struct entry *e)
{
    apply(d, NULL, e);
    if (job)
        fold_job_entry(job, e, &d->head);
}

static void add_retiring(struct decision *d, int64_t count, struct job_progress *job, int64_t step)
{
    struct entry *e = add_job_entry(d, job, ENTRY_RETIRING, step);

    assert(count > 0);
    e->count = count;
    apply_to_job(d, job, e);
}

static void add_slots(struct decision *d, struct job_progress *job, int64_t step, int64_t count)
{
    struct entry *e = add_job_entry(d, job, ENTRY_GENERATE, step);

    assert(count > 0 && policy_of(d->coupon)->slots);
    e->n = fold_next_n(&d->head, d->batch->lane);
    e->count = count;
    apply_to_job(d, job, e);
}

void decide_create(struct decision *d, const struct coupon *next, const struct slot_request *request, struct outcome *out)
{
    static const struct slot_request nothing;
    const struct slot_request *w = request ? request : &nothing;
    struct entry *e;

    *out = (struct outcome){.result = CPN_OK};
    if (d->head.version > 0) {
        refuse(out, CPN_COUPON_EXISTS);
        return;
    }
    e = define(d, next, 1);
    e->count = w->slots;
    if (w->key)
        key_hash(&d->key_secret, KEY_OF_COUPON, w->key, e->key);
    if (w->job) {
        set_job(d, e, w->job, 0);
        fold_job_entry(w->job, e, &d->head);
    } else if (w->slots) {
        add_slots(d, NULL, 0, w->slots);
    }
}

/* Codes that are used are counted for as long, also when they are no longer listed: so there is a limit. */
static bool too_many_codes(const struct decision *d, const struct coupon *next)
{
    size_t count = next->codes.shared.count;

    for (size_t i = 0; i < d->uses.count; i++) {
        bool listed = false;

        for (size_t k = 0; k < next->codes.shared.count && !listed; k++)
            listed = code_text_same(next->codes.shared.items[k], d->uses.rows[i].code, d->uses.match);
        count += !listed;
    }
    return count > CODE_USES_MOST;
}

void decide_change(struct decision *d, const struct coupon *next, int64_t expected_version, bool retire, struct outcome *out)
{
    const struct coupon *now = assert_open(d);
    const struct head *h = &d->head;
    bool others_in_use = now->lanes > 1 && (d->others.takings > 0 || now->state == COUPON_ACTIVE);
    bool in_use = h->next_n > 0 || head_takings(h) > 0 || h->turn != 0 || others_in_use; /* with a turn, codes are being made */
    const char *fixed = in_use ? coupon_fixed_difference(now, next) : NULL;
    int64_t total = next->cap.total, before = now->cap.total;
    bool lowered = total != COUPON_NULL && (before == COUPON_NULL || total < before);
    int64_t excess = lowered ? head_stock(h) - total : 0;

    *out = (struct outcome){.result = CPN_OK};
    if (expected_version != d->coupon->version) {
        refuse(out, CPN_VERSION_CHANGED);
        return;
    }
    if (!fixed && next->lanes != d->coupon->lanes)
        fixed = "/lanes"; /* always, so that the number may be cached */
    if (!fixed && too_many_codes(d, next))
        fixed = "/codes/shared";
    if (fixed) {
        refuse_field(out, CPN_FIELD_FIXED, fixed, "cannot change once slots or redemptions exist");
        return;
    }
    if (shares_slots(d) ? excess > head_free(h) : lowered && total < head_taken(h) + d->others.taken) {
        refuse_for_lack(d, CPN_CAP_BELOW_TAKEN, excess, out);
        return;
    }
    if (excess > 0 && !retire && coupon_slots_have_codes(d->coupon)) {
        refuse(out, CPN_CODES_WOULD_RETIRE);
        out->codes = excess;
        return;
    }
    define(d, next, d->coupon->version + 1);
    if (excess > 0)
        add_retiring(d, excess, NULL, 0);
}

void decide_delete(struct decision *d, struct outcome *out)
{
    assert_open(d);
    *out = (struct outcome){.result = CPN_OK};
    if (head_takings(&d->head) > 0 || d->others.takings > 0) {
        refuse(out, CPN_COUPON_IN_USE);
        return;
    }
    fold_head_entry(&d->head, add(d, ENTRY_DELETE));
    d->coupon = fold_definition(d->coupon, d->batch, &d->batch->arena);
    assert(!decide_exists(d));
}

static bool names_somebody(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].user)
            return true;
    return false;
}

bool decide_archive(struct decision *d, int64_t expected_version, struct outcome *out)
{
    const char *why = NULL;

    assert(decide_exists(d));
    *out = (struct outcome){.result = CPN_OK};
    if (d->head.archived)
        return true;
    if (expected_version != d->coupon->version) {
        refuse(out, CPN_VERSION_CHANGED);
        return true;
    }
    if (d->coupon->state != COUPON_ENDED)
        why = "Its state is not ended.";
    else if (d->head.issued || d->head.reserved)
        why = "Some of it is still issued or held. Cancel that, or wait until it expires.";
    else if (d->head.turn)
        why = "A job is making codes.";
    if (why) {
        refuse(out, CPN_COUPON_IN_USE);
        out->detail = why;
        return true;
    }
    if (names_somebody(d->batch))
        return DECIDE_AGAIN;
    fold_head_entry(&d->head, add(d, ENTRY_ARCHIVE));
    assert(d->head.archived == LANE_CLOSED);
    return true;
}

void decide_remove(struct decision *d, struct outcome *out)
{
    assert(decide_exists(d));
    *out = (struct outcome){.result = CPN_OK};
    if (!d->head.archived)
        refuse(out, CPN_COUPON_IN_USE);
    else if (d->head.archived == LANE_CLOSED)
        fold_head_entry(&d->head, add(d, ENTRY_ARCHIVE));
}

/* ---- between lanes ---- */

void decide_follow(struct decision *d, const struct coupon *definition)
{
    bool deleted = definition->state == COUPON_DELETED;
    struct coupon last = *definition;

    if (definition->version <= d->head.version)
        return;
    last.state = deleted ? COUPON_ENDED : last.state;
    if (d->head.version < definition->version - deleted)
        define(d, &last, definition->version - deleted);
    if (!deleted)
        return;
    fold_head_entry(&d->head, add(d, ENTRY_DELETE));
    d->coupon = fold_definition(d->coupon, d->batch, &d->batch->arena);
}

/* ---- slots ---- */

void decide_generate(struct decision *d, struct job_progress *job, int64_t step, int64_t count, int64_t turn, struct outcome *out)
{
    int64_t total = assert_open(d)->cap.total;

    *out = (struct outcome){.result = CPN_OK, .replayed = job->step >= step};
    if (out->replayed)
        return;
    if (!policy_of(d->coupon)->slots) {
        refuse(out, CPN_CAP_EXCEEDED);
        out->detail = "A coupon with this cap.policy has no slots.";
        return;
    }
    if (coupon_slots_have_codes(d->coupon) && (turn == 0 || turn != d->head.turn)) {
        refuse(out, CPN_BUSY);
        return;
    }
    if (!job_transfers(job->id) && total != COUPON_NULL && head_stock(&d->head) + count > total) {
        refuse(out, CPN_CAP_EXCEEDED);
        return;
    }
    add_slots(d, job, step, count);
}

void decide_turn(struct decision *d, struct job_progress *job, int64_t fence, int64_t *turn, struct outcome *out)
{
    bool own = d->head.turn != 0 && job->turn == d->head.turn;
    bool again = own && fence == job->fence, given = false;

    assert_open(d);
    *out = (struct outcome){.result = CPN_OK};
    *turn = 0;
    for (size_t i = 0; i < d->batch->count; i++) /* a turn is identified by its batch's seq, so a batch gives at most one */
        given = given || d->batch->entries[i].kind == ENTRY_TURN;
    if ((d->head.turn != 0 && !own) || (own && fence < job->fence) || (!again && given)) {
        refuse(out, CPN_BUSY);
        return;
    }
    if (!again)
        apply_to_job(d, job, add_job_entry(d, job, ENTRY_TURN, fence));
    *turn = d->head.turn;
}

void decide_turn_end(struct decision *d, struct job_progress *job, struct outcome *out)
{
    *out = (struct outcome){.result = CPN_OK};
    if (d->head.turn != 0 && job->turn == d->head.turn)
        apply_to_job(d, job, add_job_entry(d, job, ENTRY_TURN_END, job->fence));
}

void decide_retiring(struct decision *d, struct job_progress *job, int64_t step, int64_t count, int64_t *done, struct outcome *out)
{
    int64_t free_slots = head_free(&d->head), more = count < free_slots ? count : free_slots;

    assert_open(d);
    *out = (struct outcome){.result = CPN_OK, .replayed = job->step >= step};
    if (!out->replayed && more > 0)
        add_retiring(d, more, job, step);
    *done = job->total;
}

void decide_retire(struct decision *d, int64_t most)
{
    struct entry *e = NULL;

    assert(!d->head.archived);
    for (; most > 0 && d->head.retiring > 0; most--) {
        const struct free_slot *slot = next_free(d);
        struct named_slot *named = slot ? find_named(d, slot->n) : NULL;
        struct entry one = {.kind = ENTRY_RETIRE, .count = 1};

        if (!slot)
            return;
        if (named)
            fold_slot(&named->slot, &one, d->head.at_ms);
        if (!e || e->n + e->count != slot->n) {
            e = add(d, ENTRY_RETIRE);
            e->n = slot->n;
        }
        e->count++;
        d->free_pool_used++;
        fold_head_entry(&d->head, &one);
    }
}

void decide_retire_one(struct decision *d, struct user_state *u, int64_t n, struct outcome *out)
{
    struct named_slot *named = find_named(d, n);
    const struct slot *s = named ? &named->slot : NULL;
    struct redemption *r;
    struct entry *e;

    assert_open(d);
    if (s && u)
        decide_expire(d, u, n, 0);
    r = s && u ? user_state_by_slot(u, n, s->current) : NULL;
    *out = (struct outcome){.result = CPN_OK};
    if (!s)
        refuse(out, CPN_SLOT_NOT_FOUND);
    else if (s->state == SLOT_REDEEMED)
        refuse(out, CPN_CODE_TAKEN);
    else if (s->state == SLOT_RESERVED)
        refuse_held(s->due_ms, out);
    else if (s->state == SLOT_ISSUED && !r)
        refuse(out, CPN_BUSY);
    if (out->result != CPN_OK || s->state == SLOT_RETIRED)
        return;
    if (r)
        add_end(d, u, r, ENTRY_CANCEL);
    if (head_free(&d->head) > 0) /* else all free ones are to be retired already */
        add_retiring(d, 1, NULL, 0);
    e = add(d, ENTRY_RETIRE);
    e->n = n;
    e->by_name = true;
    e->count = 1;
    fold_head_entry(&d->head, e);
    fold_slot(&named->slot, e, d->head.at_ms);
}

/* ---- erasing a user ---- */

void decide_erase(struct decision *d, struct user_state *u, struct outcome *out)
{
    *out = (struct outcome){.result = CPN_OK};
    if (user_state_is_nobody(u))
        return;
    for (size_t i = 0; i < u->count; i++)
        if (!u->redemptions[i].ended_ms && u->redemptions[i].n >= 0 && !find_named(d, u->redemptions[i].n)) {
            refuse(out, CPN_BUSY);
            return;
        }
    for (size_t i = u->count; i-- > 0;) { /* newest first: a hold before the issued one beneath it */
        const struct redemption *r = &u->redemptions[i];
        const struct named_slot *named = find_named(d, r->n);

        if (r->state == SLOT_ISSUED || r->state == SLOT_RESERVED) {
            add_end(d, u, r, ENTRY_CANCEL);
        } else if (r->state == SLOT_REDEEMED && named && named->slot.current == r->g) {
            struct entry *e = add_entry(d, u, ENTRY_FORGET);

            e->n = r->n;
            e->g = r->g;
            apply(d, u, e);
        }
    }
    apply(d, u, add_entry(d, u, ENTRY_ERASE));
    assert(user_state_is_nobody(u));
}

/* ---- events ---- */

static void add_counted(struct decision *d, enum entry_kind kind, int64_t count)
{
    struct entry *e = add(d, kind);

    e->count = count;
    fold_head_entry(&d->head, e);
}

int64_t decide_refill(const struct coupon *c, const struct head *h, int64_t left)
{
    int64_t add = c->replenish.add, room = c->cap.total != COUPON_NULL ? c->cap.total - head_stock(h) : add;

    if (c->replenish.below == COUPON_NULL || left >= c->replenish.below || c->state != COUPON_ACTIVE ||
        c->codes.source == CODES_IMPORTED || h->replenish_until || room <= 0)
        return 0;
    return room < add ? room : add;
}

/* At how many free slots the stock is low; -1: never. Imported codes cannot be replenished: they are reported low instead. */
static int64_t low_stock_of(const struct coupon *c)
{
    int64_t low = c->low_stock != COUPON_NULL ? c->low_stock : -1;

    if (c->codes.source == CODES_IMPORTED && c->replenish.below != COUPON_NULL && c->replenish.below - 1 > low)
        low = c->replenish.below - 1;
    return low;
}

int64_t decide_low_threshold(const struct coupon *c)
{
    int64_t low = low_stock_of(c), below = c->replenish.below != COUPON_NULL ? c->replenish.below - 1 : 0;

    return low > below ? low : below;
}

/* left: free slots; most: the most that there were before. */
static void raise_events(struct decision *d, int64_t left, int64_t most)
{
    const struct coupon *c = d->coupon;
    const struct head *h = &d->head;
    int64_t low = low_stock_of(c), more = decide_refill(c, h, left);

    if (!h->low_stock && left <= low && most > low)
        add_counted(d, ENTRY_LOW_STOCK, left);
    if (!h->sold_out && left <= 0 && most > 0)
        fold_head_entry(&d->head, add(d, ENTRY_SOLD_OUT));
    if (more > 0)
        add_counted(d, ENTRY_REPLENISH, head_stock(h) + more);
}

void decide_events(struct decision *d)
{
    const struct coupon *c = d->coupon;

    if (decide_changed(d) && decide_exists(d) && !d->head.archived && policy_of(c)->slots && c->lanes <= 1)
        raise_events(d, head_free(&d->head), d->free_most);
}

void decide_events_of_all(struct decision *d, int64_t taken)
{
    int64_t left = head_stock(&d->head) - taken;

    assert(d->batch->lane == 0);
    if (shares_slots(d))
        raise_events(d, left > 0 ? left : 0, d->head.next_n > 0 ? INT64_MAX : 0);
}

void decide_tick(struct decision *d)
{
    add(d, ENTRY_TICK);
}
