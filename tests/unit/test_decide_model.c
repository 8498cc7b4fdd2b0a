/*
 * Random lives of one coupon, by seed. Every answer of coupons/decide is compared with a model that knows no running
 * totals: it keeps the list of takings and counts them anew for each question. At the end the ledger, cut down to what is
 * stored of it, is folded from nothing, and must give what was decided.
 *
 * Repeat one   MODEL_SEED=n build/tests/unit/test_decide_model
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/decide.h"
#include "coupons/fold.h"

#define SEEDS 100
#define BATCHES 120
#define OPS_MAX 24
#define USERS 7
#define JOBS 3
#define KEYS 12
#define ORDERS 4
#define BUCKETS 8
#define SLOTS_MAX (BUCKETS * BUCKET_SLOTS)
#define TAKINGS_MAX (BATCHES * OPS_MAX)
#define DAYS_MAX 4000
#define HOUR_MS (INT64_C(3600) * 1000)
#define AMOUNT 500

/* One taking as the model remembers it; key and order are numbers, -1: none. */
struct taking {
    int user, key, body, order;
    struct redemption answer; /* as it was first given */
    bool reversed, same_day, forgotten;
    int64_t ended_ms;
};

struct model {
    struct taking takings[TAKINGS_MAX];
    size_t count;
    bool retired[SLOTS_MAX];
    uint32_t generation[SLOTS_MAX];
    int64_t generated, gone, due, ordinal;
    int64_t job_step[JOBS], job_total[JOBS];
    struct coupon coupon;
};

struct world {
    unsigned random;
    struct arena arena;
    struct buf scratch;
    int64_t days[DAYS_MAX]; /* where the coupon's days begin: 23, 24 or 25 hours apart */
    int64_t now_ms;
    struct head tail;
    const struct coupon *coupon;
    struct use *users[USERS], *jobs[JOBS];
    struct bucket buckets[BUCKETS];
    struct batch *chain[BATCHES];
    size_t chain_count;
    struct model model, before; /* before: of the batch, for when it is dropped */
    size_t seen[CPN_RESULT_COUNT];
};

/* A batch while it is decided. */
struct trial {
    struct batch *batch;
    struct decision d;
    struct use *users[USERS], *jobs[JOBS];
    bool changed[USERS], job_changed[JOBS];
    int64_t day_ms, day_end_ms;
    struct free_slot stash[SLOTS_MAX];
};

static struct world w;
static unsigned seed;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "MODEL_SEED=%u, batch %zu: ", seed, w.chain_count);                                        \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static int pick(int below)
{
    w.random = w.random * 1664525u + 1013904223u;
    return (int)((w.random >> 8) % (unsigned)below);
}

static bool chance(int percent)
{
    return pick(100) < percent;
}

static int64_t pick_or_null(int percent, int below)
{
    return chance(percent) ? 1 + pick(below) : COUPON_NULL;
}

/* ---- the model: counts anew for each question ---- */

static int64_t standing(int user)
{
    int64_t count = 0;

    for (size_t i = 0; i < w.model.count; i++)
        count += !w.model.takings[i].reversed && (user < 0 || w.model.takings[i].user == user);
    return count;
}

/* Takings of that day that count there: all but those returned on the same day. */
static int64_t of_day(int user, int64_t day_ms)
{
    int64_t count = 0;

    for (size_t i = 0; i < w.model.count; i++) {
        const struct taking *t = &w.model.takings[i];

        count += t->answer.day_ms == day_ms && !(t->reversed && t->same_day) && (user < 0 || t->user == user);
    }
    return count;
}

static int64_t given_minor(void)
{
    int64_t sum = 0;

    for (size_t i = 0; i < w.model.count; i++)
        sum += w.model.takings[i].reversed ? 0 : w.model.takings[i].answer.discount_minor;
    return sum;
}

static int64_t model_slots(void)
{
    return w.model.generated - w.model.gone;
}

static int64_t model_free(void)
{
    return model_slots() - w.model.due - standing(-1);
}

static struct taking *by_key(int user, int key)
{
    for (size_t i = 0; i < w.model.count; i++)
        if (w.model.takings[i].user == user && w.model.takings[i].key == key && !w.model.takings[i].forgotten)
            return &w.model.takings[i];
    return NULL;
}

static struct taking *by_order(int user, int order)
{
    for (size_t i = w.model.count; order >= 0 && i-- > 0;)
        if (w.model.takings[i].user == user && w.model.takings[i].order == order && !w.model.takings[i].reversed)
            return &w.model.takings[i];
    return NULL;
}

static struct taking *by_slot(int user, int64_t n, uint32_t g)
{
    for (size_t i = 0; i < w.model.count; i++)
        if (w.model.takings[i].user == user && w.model.takings[i].answer.n == n && w.model.takings[i].answer.g == g)
            return &w.model.takings[i];
    return NULL;
}

static enum cpn_result expected(const struct trial *t, int user, bool code, int64_t amount_minor, int64_t *discount_minor)
{
    const struct coupon *c = &w.model.coupon;
    int64_t day_ms = t->day_ms, at_ms = t->d.head.at_ms;

    *discount_minor = 0;
    if (c->state == COUPON_DRAFT || c->state == COUPON_PAUSED)
        return CPN_COUPON_NOT_ACTIVE;
    if (c->starts_at_ms != COUPON_NULL && c->starts_at_ms > at_ms && c->state != COUPON_ENDED)
        return CPN_COUPON_NOT_STARTED;
    if (c->state == COUPON_ENDED || (c->ends_at_ms != COUPON_NULL && c->ends_at_ms <= at_ms))
        return CPN_COUPON_ENDED;
    if (code)
        return CPN_CODE_NOT_FOUND;
    if (c->discount.kind == DISCOUNT_AMOUNT) {
        if (c->discount.min_spend_minor && (amount_minor == COUPON_NULL || amount_minor < c->discount.min_spend_minor))
            return CPN_ORDER_NOT_ELIGIBLE;
        *discount_minor = amount_minor == COUPON_NULL || amount_minor > AMOUNT ? AMOUNT : amount_minor;
    }
    if (standing(user) >= c->cap.per_user)
        return CPN_USER_CAP_REACHED;
    if (c->cap.per_user_per_day != COUPON_NULL && of_day(user, day_ms) >= c->cap.per_user_per_day)
        return CPN_USER_DAILY_CAP_REACHED;
    if (c->cap.per_day != COUPON_NULL && of_day(-1, day_ms) >= c->cap.per_day)
        return CPN_DAILY_CAP_REACHED;
    if (c->cap.discount_minor != COUPON_NULL && given_minor() + *discount_minor > c->cap.discount_minor)
        return CPN_BUDGET_REACHED;
    return model_free() > 0 ? CPN_OK : CPN_SOLD_OUT;
}

/* ---- requests ---- */

static const char *name(const char *prefix, int number)
{
    return arena_printf(&w.arena, "%s%d", prefix, number);
}

static void check_answer(const struct redemption *have, const struct redemption *want)
{
    CHECK(have->n == want->n && have->g == want->g && have->ordinal == want->ordinal && have->seq == want->seq &&
              have->at_ms == want->at_ms && have->left == want->left && have->day == want->day &&
              have->user == want->user && have->user_day == want->user_day &&
              have->discount_minor == want->discount_minor,
          "another answer: %lld-%u", (long long)have->n, have->g);
}

static void check_taken(struct trial *t, int user, const struct take *take, const struct outcome *out, int key, int body,
                        int order, int64_t discount_minor)
{
    const struct redemption *r = &out->redemption;
    int64_t slot = r->n;

    CHECK(out->created && !out->replayed, "not a new taking");
    CHECK(slot >= 0 && slot < w.model.generated && !w.model.retired[slot], "slot %lld is not there", (long long)slot);
    for (size_t i = 0; i < w.model.count; i++)
        CHECK(w.model.takings[i].reversed || w.model.takings[i].answer.n != slot, "slot %lld has two users", (long long)slot);
    CHECK(r->g == w.model.generation[slot] + 1, "generation %u of slot %lld", r->g, (long long)slot);
    w.model.generation[slot]++;
    w.model.takings[w.model.count++] =
        (struct taking){.user = user, .key = key, .body = body, .order = order, .answer = *r};
    CHECK(r->ordinal == ++w.model.ordinal, "ordinal %lld", (long long)r->ordinal);
    CHECK(r->discount_minor == discount_minor, "discount %lld", (long long)r->discount_minor);
    CHECK(r->seq == w.tail.seq + 1 && r->at_ms == t->d.head.at_ms && r->day_ms == t->day_ms, "times");
    CHECK(r->left == model_free() && r->day == of_day(-1, t->day_ms), "left or day");
    CHECK(r->user == standing(user) && r->user_day == of_day(user, t->day_ms), "the user's counts");
    CHECK(r->state == SLOT_REDEEMED && !memcmp(r->fingerprint, take->fingerprint, FINGERPRINT_LEN), "state or fingerprint");
    t->changed[user] = true;
}

static void do_take(struct trial *t)
{
    int user = pick(USERS), key = pick(KEYS), body = chance(90) ? 0 : 1, order = chance(40) ? pick(ORDERS) : -1;
    bool code = chance(2);
    int64_t amount_minor = chance(60) ? pick(3 * AMOUNT) : COUPON_NULL, discount_minor;
    struct order o = {.id = order < 0 ? NULL : name("o", order), .amount_minor = amount_minor, .currency = "EUR"};
    struct take take = {.key = name("k", key), .order = chance(90) || order >= 0 || amount_minor != COUPON_NULL ? &o : NULL,
                        .metadata = chance(20) ? "{\"a\":1}" : NULL, .code = code ? "X" : NULL, .state = SLOT_REDEEMED};
    const struct taking *same_key = by_key(user, key), *same_order = by_order(user, order);
    enum cpn_result want = expected(t, user, code, amount_minor, &discount_minor);
    size_t entries = t->batch->count;
    struct outcome out;

    memset(take.fingerprint, body, sizeof take.fingerprint);
    if (decide_take(&t->d, t->users[user], &take, &out) == DECIDE_AGAIN) {
        CHECK(!same_key && !same_order && want == CPN_OK && t->d.stash_used == t->d.stash_count, "asked again for nothing");
        CHECK(t->batch->count == entries, "asked again and changed");
        return;
    }
    w.seen[out.result]++;
    if (same_key && same_key->body != body) {
        CHECK(out.result == CPN_IDEMPOTENCY_KEY_REUSED, "%s for a key reused", result_info(out.result)->name);
    } else if (same_key) {
        CHECK(out.result == CPN_OK && out.replayed && out.redemption.state == SLOT_REDEEMED, "no replay");
        check_answer(&out.redemption, &same_key->answer);
    } else if (same_order) {
        CHECK(out.result == CPN_OK && !out.replayed && !out.created, "no repeat of the order");
        check_answer(&out.redemption, &same_order->answer);
    } else {
        CHECK(out.result == want, "%s instead of %s", result_info(out.result)->name, result_info(want)->name);
        if (want == CPN_OK)
            check_taken(t, user, &take, &out, key, body, order, discount_minor);
    }
    if (same_key || same_order || want != CPN_OK)
        CHECK(t->batch->count == entries, "a refusal or repeat wrote something");
}

static void do_check(struct trial *t)
{
    int user = pick(USERS), order = chance(20) ? pick(ORDERS) : -1;
    int64_t amount_minor = pick(3 * AMOUNT), discount_minor, want_minor;
    struct order o = {.id = order < 0 ? NULL : name("o", order), .amount_minor = amount_minor, .currency = "EUR"};
    struct take take = {.order = &o, .state = SLOT_REDEEMED};
    enum cpn_result want = expected(t, user, false, amount_minor, &want_minor);
    size_t entries = t->batch->count;
    struct outcome out;

    decide_check(&t->d, t->users[user], &take, &out, &discount_minor);
    CHECK(t->batch->count == entries, "a check wrote something");
    if (by_order(user, order))
        CHECK(out.result == CPN_OK, "a check of a standing order");
    else
        CHECK(out.result == want && (want != CPN_OK || discount_minor == want_minor), "check: %s instead of %s",
              result_info(out.result)->name, result_info(want)->name);
}

static void do_reverse(struct trial *t)
{
    int user = pick(USERS);
    int64_t n = pick(SLOTS_MAX);
    uint32_t g = 1 + (uint32_t)pick(3);
    struct taking *taking;
    struct outcome out;

    if (w.model.count && chance(90)) {
        taking = &w.model.takings[pick((int)w.model.count)];
        user = taking->user;
        n = taking->answer.n;
        g = taking->answer.g;
    }
    taking = by_slot(user, n, g);
    decide_reverse(&t->d, t->users[user], n, g, &out);
    if (!taking || taking->forgotten) {
        CHECK(out.result == CPN_REDEMPTION_NOT_FOUND, "returned what is not there");
        return;
    }
    CHECK(out.result == CPN_OK && out.redemption.state == SLOT_REVERSED, "not returned: %s", result_info(out.result)->name);
    check_answer(&out.redemption, &taking->answer);
    if (taking->reversed)
        return;
    taking->reversed = true;
    taking->same_day = taking->answer.day_ms == t->day_ms;
    taking->ended_ms = t->d.head.at_ms;
    t->changed[user] = true;
}

static void do_change(struct trial *t)
{
    struct coupon next = w.model.coupon;
    bool zone = chance(3), fixed;
    int64_t version = next.version - chance(10), taken = standing(-1), due;
    enum cpn_result want;
    struct outcome out;

    next.state = chance(85) ? COUPON_ACTIVE : pick(4);
    next.starts_at_ms = chance(5) ? t->d.head.at_ms + pick(5) - 2 : COUPON_NULL;
    next.ends_at_ms = chance(5) ? t->d.head.at_ms + 1 + pick(5) : COUPON_NULL;
    next.cap.total = 1 + pick(chance(50) ? SLOTS_MAX : 60);
    next.cap.per_user = 1 + pick(chance(50) ? 100 : 10);
    next.cap.per_day = pick_or_null(30, 30);
    next.cap.per_user_per_day = pick_or_null(30, 5);
    next.cap.discount_minor = pick_or_null(30, 40 * AMOUNT);
    next.discount.min_spend_minor = chance(30) ? AMOUNT : 0;
    if (zone)
        next.time_zone = strcmp(next.time_zone, "UTC") == 0 ? "Europe/Berlin" : "UTC";
    fixed = zone && (w.model.generated || w.model.ordinal);
    want = version != w.model.coupon.version ? CPN_VERSION_CHANGED : fixed ? CPN_FIELD_FIXED
           : next.cap.total < taken ? CPN_CAP_BELOW_TAKEN : CPN_OK;
    decide_change(&t->d, &next, version, &out);
    w.seen[out.result]++;
    CHECK(out.result == want, "change: %s instead of %s", result_info(out.result)->name, result_info(want)->name);
    if (want != CPN_OK)
        return;
    next.version = w.model.coupon.version + 1;
    w.model.coupon = next;
    due = model_slots() - next.cap.total;
    if (due > w.model.due)
        w.model.due = due;
    CHECK(t->d.coupon->version == next.version, "version");
}

static void do_job(struct trial *t)
{
    int job = pick(JOBS);
    int64_t step = w.model.job_step[job] + 1 - chance(20), count = 1 + pick(80), done = 0, want = count;
    bool retires = job == JOBS - 1, replay = step <= w.model.job_step[job];
    struct outcome out;

    if (retires) {
        if (want > model_free())
            want = model_free();
        decide_due(&t->d, t->jobs[job], step, count, &done, &out);
        CHECK(out.result == CPN_OK, "due: %s", result_info(out.result)->name);
    } else {
        if (w.model.generated + count > SLOTS_MAX)
            return;
        decide_generate(&t->d, t->jobs[job], step, count, &out);
    }
    CHECK(out.replayed == replay, "job %d: step %lld replayed: %d", job, (long long)step, out.replayed);
    if (!replay && !retires && model_slots() - w.model.due + count > w.model.coupon.cap.total) {
        CHECK(out.result == CPN_CAP_EXCEEDED, "generate: %s", result_info(out.result)->name);
        return;
    }
    CHECK(out.result == CPN_OK, "job: %s", result_info(out.result)->name);
    if (!replay) {
        w.model.job_step[job] = step;
        w.model.job_total[job] += want;
        *(retires ? &w.model.due : &w.model.generated) += want;
        t->job_changed[job] = true;
    }
    if (retires)
        CHECK(done == w.model.job_total[job], "done %lld", (long long)done);
}

/* Slots of the stash that the batch takes out of the world, as its entries say. */
static void do_retire(struct trial *t)
{
    int64_t due = w.model.due;
    size_t used = t->d.stash_used, first = t->batch->count;
    int64_t most = pick(50);

    decide_retire(&t->d, most);
    for (size_t i = first; i < t->batch->count; i++) {
        const struct entry *e = &t->batch->entries[i];

        for (int64_t n = e->n; n < e->n + e->count; n++) {
            CHECK(n >= 0 && n < w.model.generated && !w.model.retired[n], "retired %lld", (long long)n);
            w.model.retired[n] = true;
            w.model.gone++;
            w.model.due--;
        }
    }
    CHECK(w.model.due >= 0 && due - w.model.due <= most, "retired too many");
    CHECK(t->d.stash_used - used == (size_t)(due - w.model.due), "stash");
    CHECK(w.model.due == 0 || due - w.model.due == most || t->d.stash_used == t->d.stash_count, "retired too few");
}

/* ---- batches ---- */

static void check_head(const struct head *h, int64_t day_ms)
{
    CHECK(h->slots == model_slots() && h->due == w.model.due && h->next_n == w.model.generated, "slots");
    CHECK(h->redeemed == standing(-1) && h->issued == 0 && h->reserved == 0 && h->ordinal == w.model.ordinal, "taken");
    CHECK(h->discount_minor == given_minor(), "money");
    CHECK(h->day_taken == of_day(-1, day_ms), "the day's count");
    CHECK(h->version == w.model.coupon.version, "version");
    CHECK(head_free(h) >= 0 && h->due >= 0 && h->day_taken >= 0 && h->discount_minor >= 0, "below nothing");
}

static void pass_time(struct trial *t)
{
    int day = 0;

    w.now_ms += chance(20) ? 0 : chance(80) ? pick(1800 * 1000) : chance(80) ? 20 * HOUR_MS : 200 * HOUR_MS;
    while (w.days[day + 1] <= w.now_ms)
        day++;
    assert_true(day + 1 < DAYS_MAX);
    t->day_ms = w.days[day];
    t->day_end_ms = w.days[day + 1];
}

/* Free slots as the buckets know them, from a random place on, sometimes only a few. */
static size_t fill_stash(struct trial *t)
{
    size_t count = 0;
    int start = pick(SLOTS_MAX);

    for (int i = 0; i < SLOTS_MAX; i++) {
        int n = (start + i) % SLOTS_MAX;
        const struct bucket *k = &w.buckets[n / BUCKET_SLOTS];

        if (n % BUCKET_SLOTS < k->size && k->slots[n % BUCKET_SLOTS].state == SLOT_FREE)
            t->stash[count++] = (struct free_slot){n, k->slots[n % BUCKET_SLOTS].generation};
    }
    return chance(20) && count ? (size_t)pick((int)count) : count;
}

static void decide_batch(struct trial *t)
{
    memset(t, 0, sizeof *t);
    pass_time(t);
    t->batch = batch_new("sale", 0);
    decide_begin(&t->d, t->batch, w.coupon, &w.tail, w.now_ms, t->day_ms, t->day_end_ms);
    t->d.stash = t->stash;
    t->d.stash_count = fill_stash(t);
    for (int i = 0; i < USERS; i++)
        t->users[i] = use_copy(w.users[i], &t->batch->arena, true);
    for (int i = 0; i < JOBS; i++)
        t->jobs[i] = use_copy(w.jobs[i], &t->batch->arena, true);
    for (int ops = 1 + pick(OPS_MAX); ops > 0; ops--) {
        int kind = pick(100);

        if (kind < 62)
            do_take(t);
        else if (kind < 80)
            do_reverse(t);
        else if (kind < 86)
            do_check(t);
        else if (kind < 92)
            do_job(t);
        else if (kind < 97)
            do_change(t);
        else
            decide_tick(&t->d);
        check_head(&t->d.head, t->day_ms);
    }
    if (w.tail.due > 0)
        do_retire(t);
    check_head(&t->d.head, t->day_ms);
}

static void settle_use(struct use **old, struct use *new, const struct head *h)
{
    int64_t version = (*old)->version;

    fold_use_done(new, h);
    CHECK(new->version == version + 1, "version of a use");
    *old = use_copy(new, &w.arena, true);
}

static void commit_batch(struct trial *t)
{
    struct batch *b = t->batch;
    uint8_t hash[HASH_LEN];
    const char *wrong;

    for (int i = 0; i < USERS; i++)
        if (t->changed[i])
            settle_use(&w.users[i], t->users[i], &t->d.head);
    for (int i = 0; i < JOBS; i++)
        if (t->job_changed[i])
            settle_use(&w.jobs[i], t->jobs[i], &t->d.head);
    for (size_t i = 0; i < w.model.count; i++) {
        struct taking *taking = &w.model.takings[i];

        if (t->changed[taking->user] && taking->reversed && taking->ended_ms < t->d.head.at_ms - USE_KEY_KEPT_MS)
            taking->forgotten = true;
    }
    decide_end(&t->d, &w.tail, &w.scratch);
    wrong = batch_contradiction(&w.tail, b);
    CHECK(!wrong, "contradiction in %s", wrong);
    batch_hash(b, &w.scratch, hash);
    CHECK(memcmp(hash, b->head.hash, HASH_LEN) == 0, "hash");
    w.tail = b->head;
    w.coupon = coupon_copy(t->d.coupon, &w.arena);
    w.chain[w.chain_count++] = b;
    for (int i = 0; i < BUCKETS; i++) {
        CHECK(batch_touches_bucket(b, i) == fold_bucket(&w.buckets[i], b), "bucket %d", i);
        CHECK(!fold_bucket(&w.buckets[i], b), "bucket %d was folded twice", i);
    }
}

/* ---- folding what is stored ---- */

/* What is left of an entry once it was stored and read again: the members of its kind, and its row in who[]. */
static void store_entry(struct batch *to, const struct entry *e)
{
    unsigned has = entry_members[e->kind];
    struct entry *s = batch_add(to, e->kind);

    s->from = e->from;
    s->reserved_until_ms = e->reserved_until_ms;
    s->valid_until_ms = e->valid_until_ms;
    s->n = has & (HAS_SLOT | HAS_RANGE) ? e->n : 0;
    s->g = has & HAS_SLOT ? e->g : 0;
    s->count = has & (HAS_RANGE | HAS_COUNT) ? e->count : 0;
    s->discount_minor = has & HAS_MONEY ? e->discount_minor : 0;
    s->same_day = has & HAS_SAME_DAY && e->same_day;
    s->since = has & HAS_SINCE ? e->since : 0;
    s->job = has & HAS_JOB ? e->job : NULL;
    s->step = has & HAS_JOB ? e->step : 0;
    s->definition = has & HAS_DEFINITION ? e->definition : NULL;
    if (has & HAS_USER) {
        memcpy(s->alias, e->alias, sizeof s->alias);
        s->user = e->user;
        s->order = e->order;
        s->metadata = e->metadata;
        memcpy(s->fingerprint, e->fingerprint, FINGERPRINT_LEN);
    }
    if (has & HAS_TAKING) {
        memcpy(s->key, e->key, KEY_HASH_LEN);
        s->ordinal = e->ordinal;
        s->left = e->left;
        s->day = e->day;
    }
}

static struct batch *stored(const struct batch *b)
{
    struct batch *copy = batch_new(b->coupon, b->lane);

    memcpy(copy->id, b->id, sizeof copy->id);
    copy->head = b->head;
    memcpy(copy->prev, b->prev, HASH_LEN);
    for (size_t i = 0; i < b->count; i++)
        store_entry(copy, &b->entries[i]);
    return copy;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void check_use(const struct use *have, const struct use *want, bool job)
{
    CHECK(have->total == want->total && have->version == want->version && have->seq == want->seq &&
              have->job_step == want->job_step && have->count == want->count,
          "use of %s", want->user);
    CHECK(job || !want->seq || strcmp(have->alias, want->alias) == 0, "alias of %s", want->user);
    CHECK(have->day_ms == want->day_ms && have->today == want->today, "today of %s", want->user);
    for (size_t i = 0; i < want->count; i++) {
        struct redemption a = have->redemptions[i], b = want->redemptions[i];

        CHECK(same_text(a.order, b.order) && same_text(a.metadata, b.metadata), "texts of a redemption");
        a.order = b.order = a.metadata = b.metadata = NULL;
        CHECK(a.n == b.n && a.g == b.g && a.from == b.from && a.seq == b.seq && a.ordinal == b.ordinal &&
                  a.at_ms == b.at_ms && a.day_ms == b.day_ms && a.ended_ms == b.ended_ms && a.state == b.state &&
                  a.first_state == b.first_state && a.left == b.left && a.day == b.day && a.user == b.user &&
                  a.user_day == b.user_day && a.discount_minor == b.discount_minor &&
                  !memcmp(a.key, b.key, KEY_HASH_LEN) && !memcmp(a.fingerprint, b.fingerprint, FINGERPRINT_LEN),
              "redemption %lld-%u of %s", (long long)b.n, b.g, want->user);
    }
}

static void check_bucket(const struct bucket *have, const struct bucket *want)
{
    CHECK(have->b == want->b && have->size == want->size && have->seq == want->seq && have->pick == want->pick,
          "bucket %lld", (long long)want->b);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *a = &have->slots[i], *b = &want->slots[i];

        CHECK(a->generation == b->generation && a->state == b->state && a->at_ms == b->at_ms && a->due_ms == b->due_ms &&
                  same_text(a->user, b->user),
              "slot %d of bucket %lld", i, (long long)want->b);
    }
}

/* The slots are those that the model's list of takings leaves. */
static void check_slots_by_model(void)
{
    for (int64_t n = 0; n < w.model.generated; n++) {
        const struct slot *s = &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];
        const struct taking *holder = NULL;

        for (size_t i = 0; i < w.model.count; i++)
            if (w.model.takings[i].answer.n == n && !w.model.takings[i].reversed)
                holder = &w.model.takings[i];
        CHECK(s->generation == w.model.generation[n], "generation of %lld", (long long)n);
        CHECK(s->state == (holder ? SLOT_REDEEMED : w.model.retired[n] ? SLOT_RETIRED : SLOT_FREE), "state of %lld",
              (long long)n);
        CHECK(same_text(s->user, holder ? w.users[holder->user]->user : NULL), "user of %lld", (long long)n);
    }
}

static const char *definition_text(const struct coupon *c, struct buf *out)
{
    struct json j = json_to(out);

    buf_clear(out);
    coupon_write(c, &j, true);
    return arena_strdup(&w.arena, out->data);
}

static void replay(void)
{
    const struct coupon *definition = NULL;
    struct use uses[USERS + JOBS];
    struct bucket buckets[BUCKETS];
    struct head before = {0};

    for (int i = 0; i < USERS + JOBS; i++)
        use_init(&uses[i], i < USERS ? w.users[i]->user : w.jobs[i - USERS]->user, "");
    for (int i = 0; i < BUCKETS; i++)
        bucket_init(&buckets[i], i);
    for (size_t s = 0; s < w.chain_count; s++) {
        struct batch *b = stored(w.chain[s]);
        uint8_t hash[HASH_LEN];

        CHECK(!batch_contradiction(&before, b), "contradiction in %s of batch %zu", batch_contradiction(&before, b), s);
        batch_hash(b, &w.scratch, hash);
        CHECK(memcmp(hash, b->head.hash, HASH_LEN) == 0, "hash of batch %zu as it is stored", s);
        for (int i = 0; i < USERS + JOBS; i++)
            fold_use(&uses[i], b, &w.arena);
        for (int i = 0; i < BUCKETS; i++)
            fold_bucket(&buckets[i], b);
        definition = fold_definition(definition, b, &w.arena);
        before = b->head;
        for (int i = 0; i < USERS + JOBS; i++) /* strings are the batch's */
            uses[i] = *use_copy(&uses[i], &w.arena, true);
        batch_free(b);
    }
    for (int i = 0; i < USERS + JOBS; i++)
        check_use(&uses[i], i < USERS ? w.users[i] : w.jobs[i - USERS], i >= USERS);
    for (int i = 0; i < BUCKETS; i++) {
        check_bucket(&buckets[i], &w.buckets[i]);
        bucket_release(&buckets[i]);
    }
    CHECK(strcmp(definition_text(definition, &w.scratch), definition_text(w.coupon, &w.scratch)) == 0, "definition");
}

/* ---- a life ---- */

static void begin_world(void)
{
    memset(&w, 0, sizeof w);
    w.random = seed * 2654435761u + 1;
    arena_init(&w.arena, 65536);
    w.days[0] = INT64_C(1790000000000);
    for (int i = 1; i < DAYS_MAX; i++)
        w.days[i] = w.days[i - 1] + (chance(90) ? 24 : chance(50) ? 23 : 25) * HOUR_MS;
    w.now_ms = w.days[0] + pick(24 * 3600) * 1000;
    for (int i = 0; i < USERS; i++) {
        w.users[i] = arena_alloc(&w.arena, sizeof **w.users);
        use_init(w.users[i], name("user-", i), arena_printf(&w.arena, "%016d", i));
    }
    for (int i = 0; i < JOBS; i++) {
        w.jobs[i] = arena_alloc(&w.arena, sizeof **w.jobs);
        use_init(w.jobs[i], name(JOB_USER_PREFIX "j", i), "");
    }
    for (int i = 0; i < BUCKETS; i++)
        bucket_init(&w.buckets[i], i);
    coupon_init(&w.model.coupon);
    w.model.coupon.id = "sale";
    w.model.coupon.title = "Sale";
    w.model.coupon.state = COUPON_ACTIVE;
    w.model.coupon.cap.total = 50 + pick(200);
    w.model.coupon.cap.per_user = 1 + pick(30);
    w.model.coupon.discount.kind = DISCOUNT_AMOUNT;
    w.model.coupon.discount.amount_minor = AMOUNT;
    w.model.coupon.discount.currency = "EUR";
}

static void create(struct trial *t)
{
    struct outcome out;

    memset(t, 0, sizeof *t);
    pass_time(t);
    t->batch = batch_new("sale", 0);
    decide_begin(&t->d, t->batch, NULL, &w.tail, w.now_ms, t->day_ms, t->day_end_ms);
    decide_create(&t->d, &w.model.coupon, &out);
    CHECK(out.result == CPN_OK, "create: %s", result_info(out.result)->name);
    w.model.coupon.version = 1;
    commit_batch(t);
}

static void end_world(void)
{
    for (size_t i = 0; i < w.chain_count; i++)
        batch_free(w.chain[i]);
    for (int i = 0; i < BUCKETS; i++)
        bucket_release(&w.buckets[i]);
    buf_free(&w.scratch);
    arena_free(&w.arena);
}

static void live(size_t seen[CPN_RESULT_COUNT])
{
    static struct trial t;

    begin_world();
    create(&t);
    while (w.chain_count < BATCHES) {
        w.before = w.model;
        decide_batch(&t);
        if (!decide_changed(&t.d) || chance(15)) { /* nothing to append, or the race was lost */
            w.model = w.before;
            batch_free(t.batch);
        } else {
            commit_batch(&t);
        }
        check_head(&w.tail, w.tail.day_ms);
    }
    check_slots_by_model();
    replay();
    for (unsigned r = 0; r < CPN_RESULT_COUNT; r++)
        seen[r] += w.seen[r];
    end_world();
}

static void every_answer_is_the_models_and_the_ledger_gives_the_same(void **state)
{
    static const enum cpn_result met[] = {
        CPN_OK, CPN_IDEMPOTENCY_KEY_REUSED, CPN_COUPON_NOT_ACTIVE, CPN_COUPON_NOT_STARTED, CPN_COUPON_ENDED,
        CPN_CODE_NOT_FOUND, CPN_ORDER_NOT_ELIGIBLE, CPN_USER_CAP_REACHED, CPN_USER_DAILY_CAP_REACHED,
        CPN_DAILY_CAP_REACHED, CPN_BUDGET_REACHED, CPN_SOLD_OUT, CPN_VERSION_CHANGED, CPN_FIELD_FIXED,
        CPN_CAP_BELOW_TAKEN,
    };
    const char *only = getenv("MODEL_SEED");
    size_t seen[CPN_RESULT_COUNT] = {0};

    (void)state;
    seed = only ? (unsigned)strtoul(only, NULL, 10) : 0;
    if (only) {
        live(seen);
        return;
    }
    for (seed = 1; seed <= SEEDS; seed++)
        live(seen);
    for (size_t i = 0; i < sizeof met / sizeof *met; i++)
        if (seen[met[i]] < 20)
            fail_msg("%s was met %zu times: the lives are not wild enough", result_info(met[i])->name, seen[met[i]]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_the_models_and_the_ledger_gives_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
