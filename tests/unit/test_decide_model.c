/*
 * Random lives of one coupon, by seed. Every answer of coupons/decide is compared with a model that knows no running
 * totals and no slots' states: it keeps the list of redemptions and of answered calls, and counts anew for each question.
 * After every batch: it contradicts nothing, and folding it onto the views gives the working copies that deciding left.
 * At the end the ledger, as it is stored and read again, is folded from nothing, and must give the same views.
 *
 * Expiry      the model accepts an `expire` entry when its time has come and what is above it has ended; answers are compared
 *             with what the model says after such entries. Whatever is not swept yet counts where the contract lets it
 * Repeat one  MODEL_SEED=n build/tests/unit/test_decide_model; more of them: MODEL_SEEDS=count
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "coupons/decide.h"
#include "coupons/fold.h"
#include "store/codec.h"
#include "unit/views.h"

#define SEEDS 1500
#define BATCHES 40
#define OPS_MAX 16
#define USERS 6
#define JOBS 3
#define KEYS 14
#define ORDERS 4
#define BUCKETS 3
#define SLOTS_MAX (BUCKETS * BUCKET_SLOTS)
#define RECORDS_MAX (BATCHES * OPS_MAX)
#define DAYS_MAX 1500
#define SECOND_MS INT64_C(1000)
#define HOUR_MS (3600 * SECOND_MS)
#define AMOUNT 500
#define NONE (-1)

/* One redemption as the model remembers it. */
struct record {
    int user, base, order; /* base: the record of the issued one that it holds; NONE */
    enum slot_state state; /* as the ledger has it */
    int64_t n, made_ms, until_ms, day_ms, discount_minor, order_minor, version, ended_ms;
    int64_t valid_ms, ends_ms; /* by valid_for_s; the coupon's ends_at, as of what became of it last */
    int64_t held_for; /* the amount that a hold was priced for; COUPON_NULL: none, or no hold */
    uint32_t g;
    int adjusted;
    bool same_day, forgotten, erased, kept; /* kept: reversed, and the use did not come back */
    struct redemption made; /* what is the same in all its answers */
};

/* One call that was carried out with a key, and its answer. */
struct call {
    int user, key, body, record;
    enum key_of kind;
    struct redemption answer;
    bool gone;
};

struct model {
    size_t count, call_count;
    struct record records[RECORDS_MAX];
    struct call calls[RECORDS_MAX];
    bool retired[SLOTS_MAX];
    uint32_t generation[SLOTS_MAX];
    int64_t generated, gone, retiring, ordinal, most_free, replenish_until, turn;
    int turn_job;
    bool low, sold;
    int64_t job_step[JOBS], job_total[JOBS], job_fence[JOBS];
    struct coupon coupon;
};

struct world {
    unsigned random;
    struct arena arena;
    struct buf scratch;
    int64_t days[DAYS_MAX]; /* where the coupon's days begin: 23, 24 or 25 hours apart */
    int64_t now_ms, others_taken;
    struct head tail;
    const struct coupon *coupon;
    struct user_state *user_states[USERS];
    struct job_progress jobs[JOBS];
    struct bucket buckets[BUCKETS];
    struct batch *chain[BATCHES];
    size_t chain_count;
    size_t seen[CPN_RESULT_COUNT], kinds[ENTRY_KIND_COUNT];
};

/* A batch while it is decided. */
struct trial {
    struct batch *batch;
    struct decision d;
    struct user_state *user_states[USERS];
    struct job_progress jobs[JOBS];
    int64_t day_ms, day_end_ms;
    struct free_slot free_pool[SLOTS_MAX];
    struct named_slot named[SLOTS_MAX];
    size_t looked; /* entries that the model knows */
    bool turned;
};

static struct world w;
static struct model m, m_before; /* m_before: of the batch, for when it is dropped */
static struct trial t;
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

static const char *name(const char *prefix, int number)
{
    return arena_printf(&w.arena, "%s%d", prefix, number);
}

static bool has_slots(void)
{
    return m.coupon.cap.policy == CAP_EXACT;
}

/* ---- the model: counts anew for each question ---- */

static bool ended(const struct record *r)
{
    return r->state != SLOT_ISSUED && r->state != SLOT_RESERVED && r->state != SLOT_REDEEMED;
}

/* The hold on it that stands now, or through which it was redeemed. */
static int hold_on(int base)
{
    for (size_t i = m.count; i-- > 0;)
        if (m.records[i].base == base && ((m.records[i].state == SLOT_RESERVED && m.records[i].until_ms > w.now_ms) ||
                                          m.records[i].state == SLOT_REDEEMED))
            return (int)i;
    return NONE;
}

/* Until when what is, or was, issued can be spent; 0: no limit, or it never was. */
static int64_t valid_until(int i)
{
    const struct record *r = &m.records[i];

    if (r->made.first_state != SLOT_ISSUED)
        return 0;
    return sooner_ms(r->valid_ms, r->state == SLOT_ISSUED ? coupon_ends(&m.coupon) : r->ends_ms);
}

/* Its state now, whether or not the ledger says so. */
static enum slot_state state_of(int i)
{
    const struct record *r = &m.records[i];

    if (r->state == SLOT_RESERVED && r->until_ms <= w.now_ms)
        return SLOT_EXPIRED;
    if (r->state == SLOT_ISSUED && valid_until(i) && valid_until(i) <= w.now_ms && hold_on(i) == NONE)
        return SLOT_EXPIRED;
    return r->state;
}

static int64_t in_state(enum slot_state state)
{
    int64_t count = 0;

    for (size_t i = 0; i < m.count; i++) {
        const struct record *r = &m.records[i];
        bool held = false;

        for (size_t k = i + 1; k < m.count && !held; k++) /* one slot, one state: the topmost's */
            held = m.records[k].base == (int)i && !ended(&m.records[k]);
        count += r->state == state && !held;
    }
    return count;
}

static int64_t taken(void)
{
    return in_state(SLOT_ISSUED) + in_state(SLOT_RESERVED) + in_state(SLOT_REDEEMED);
}

static int64_t free_slots(void)
{
    return m.generated - m.gone - m.retiring - taken();
}

/* Takings that count on the day, of a user as time has it, or of all (NONE) as the ledger has it. */
static int64_t of_day(int user, int64_t day_ms)
{
    int64_t count = 0;

    for (size_t i = 0; i < m.count; i++) {
        const struct record *r = &m.records[i];
        bool back = (ended(r) && r->same_day && !(user != NONE && r->kept)) || (user != NONE && state_of((int)i) == SLOT_EXPIRED && !ended(r));

        count += r->base == NONE && r->day_ms == day_ms && !back && (user == NONE || (r->user == user && !r->erased));
    }
    return count;
}

static int64_t of_user(int user)
{
    int64_t count = 0;

    for (size_t i = 0; i < m.count; i++)
        count += m.records[i].user == user && !m.records[i].erased && m.records[i].base == NONE &&
                 (!ended(&m.records[i]) || m.records[i].kept) && state_of((int)i) != SLOT_EXPIRED;
    return count;
}

static int64_t given_minor(void)
{
    int64_t sum = 0;

    for (size_t i = 0; i < m.count; i++)
        sum += ended(&m.records[i]) ? 0 : m.records[i].discount_minor;
    return sum;
}

static struct call *by_key(int user, int key)
{
    for (size_t i = 0; i < m.call_count; i++)
        if (m.calls[i].user == user && m.calls[i].key == key && !m.calls[i].gone)
            return &m.calls[i];
    return NULL;
}

static bool stands(int i)
{
    return state_of(i) == SLOT_RESERVED || state_of(i) == SLOT_REDEEMED;
}

static int by_order(int user, int order)
{
    for (int i = (int)m.count; order >= 0 && i-- > 0;)
        if (m.records[i].user == user && !m.records[i].erased && m.records[i].order == order && stands(i))
            return i;
    return NONE;
}

static int by_id(int user, int64_t n, uint32_t g)
{
    for (int i = (int)m.count; i-- > 0;)
        if (m.records[i].user == user && !m.records[i].erased && !m.records[i].forgotten && m.records[i].n == n &&
            m.records[i].g == g)
            return i;
    return NONE;
}

/* What stands in a slot: the hold rather than what it holds. */
static int in_slot(int64_t n)
{
    for (int i = (int)m.count; i-- > 0;)
        if (m.records[i].n == n && !ended(&m.records[i]))
            return i;
    return NONE;
}

static void note_free(void)
{
    if (has_slots() && free_slots() > m.most_free)
        m.most_free = free_slots();
}

static void end_record(int i, enum slot_state state)
{
    struct record *r = &m.records[i];

    if (r->state == SLOT_ISSUED)
        r->ends_ms = coupon_ends(&m.coupon);
    r->state = state;
    r->ended_ms = w.now_ms;
    r->same_day = r->day_ms == t.day_ms;
    note_free();
}

/* Entries that say what ended by itself: each must be due, and nothing above it may stand. */
static size_t look_at_entries(void)
{
    size_t others = 0;
    int dropped = NONE; /* the hold that was cancelled */

    for (; t.looked < t.batch->count; t.looked++) {
        const struct entry *e = &t.batch->entries[t.looked];
        const char *by = entry_members[e->kind] & HAS_BY ? t.d.by : NULL;
        int i = NONE;

        CHECK(e->by ? by && strcmp(e->by, by) == 0 : !by, "%s is by %s", entry_kind_name(e->kind), e->by ? e->by : "nobody");
        for (int k = 0; k < (int)m.count; k++)
            if (m.records[k].n == e->n && m.records[k].g == e->g)
                i = k;
        if (e->kind != ENTRY_EXPIRE) {
            dropped = e->kind == ENTRY_CANCEL && e->from ? i : NONE;
            others++;
            continue;
        }
        CHECK(i != NONE && !ended(&m.records[i]), "%lld-%u expired, and does not stand", (long long)e->n, e->g);
        CHECK(state_of(i) == SLOT_EXPIRED || (dropped != NONE && m.records[dropped].base == i && valid_until(i) <= w.now_ms),
              "%lld-%u expired, and was not due", (long long)e->n, e->g);
        for (int k = 0; k < (int)m.count; k++)
            CHECK(m.records[k].base != i || ended(&m.records[k]) || k == dropped, "%lld-%u expired beneath a hold", (long long)e->n, e->g);
        CHECK(e->was == m.records[i].state && e->discount_minor == m.records[i].discount_minor, "an expiry gives back wrongly");
        end_record(i, SLOT_EXPIRED);
    }
    return others;
}

/* ---- what is expected ---- */

static enum cpn_result window(void)
{
    const struct coupon *c = &m.coupon;

    if (c->state == COUPON_DRAFT || c->state == COUPON_PAUSED)
        return CPN_COUPON_NOT_ACTIVE;
    if (c->state == COUPON_ENDED)
        return CPN_COUPON_ENDED;
    if (c->starts_at_ms != COUPON_NULL && c->starts_at_ms > w.now_ms)
        return CPN_COUPON_NOT_STARTED;
    return c->ends_at_ms != COUPON_NULL && c->ends_at_ms <= w.now_ms ? CPN_COUPON_ENDED : CPN_OK;
}

/* An order of this amount; COUPON_NULL: none. */
static enum cpn_result eligible(int64_t amount_minor, int64_t *discount_minor)
{
    int64_t least = m.coupon.discount.min_spend_minor, most = m.coupon.discount.amount_minor;

    *discount_minor = 0;
    if (least && (amount_minor == COUPON_NULL || amount_minor < least))
        return CPN_ORDER_NOT_ELIGIBLE;
    *discount_minor = amount_minor == COUPON_NULL || amount_minor > most ? most : amount_minor;
    return CPN_OK;
}

static bool over_budget(int64_t more_minor)
{
    return m.coupon.cap.discount_minor != COUPON_NULL && more_minor > 0 &&
           given_minor() + more_minor > m.coupon.cap.discount_minor;
}

static bool reached(int64_t count, int64_t cap)
{
    return cap != COUPON_NULL && count >= cap;
}

static bool sold_out(void)
{
    return m.coupon.cap.policy == CAP_EXACT         ? free_slots() <= 0
           : m.coupon.cap.policy == CAP_APPROXIMATE ? taken() + w.others_taken >= m.coupon.cap.total
                                                    : false;
}

/* What a request is, as numbers. */
struct request {
    int user, key, body, order;
    int64_t amount_minor; /* COUPON_NULL: no order */
    enum slot_state state;
    bool code;
    int64_t code_n;
};

static bool is_users(int i, int user)
{
    return i != NONE && m.records[i].user == user && !m.records[i].erased;
}

/* It was presented by whoever has it, and not handed to them before. */
static bool is_bearers(int i)
{
    return m.coupon.codes.claim == CLAIM_PRESENT && m.records[i].base == NONE && m.records[i].made.first_state != SLOT_ISSUED;
}

/* Whose is the slot that has the code? *own: the issued one that is the user's own. */
static enum cpn_result code_answer(const struct request *q, int *own)
{
    int i;

    *own = NONE;
    if (!q->code)
        return CPN_OK;
    if (q->code_n < 0 || q->code_n >= (int64_t)t.d.named_count || m.retired[q->code_n])
        return CPN_CODE_NOT_FOUND;
    i = in_slot(q->code_n);
    if (i == NONE)
        return CPN_OK;
    if (!is_users(i, q->user) && !is_bearers(i))
        return CPN_CODE_NOT_FOUND;
    if (m.records[i].state == SLOT_REDEEMED)
        return CPN_CODE_TAKEN;
    if (m.records[i].state == SLOT_RESERVED)
        return CPN_TRANSACTION_IN_PROGRESS;
    *own = i;
    return CPN_OK;
}

static enum cpn_result refusal(const struct request *q, int *own, int64_t *discount_minor)
{
    const struct coupon *c = &m.coupon;
    enum cpn_result r = window();

    *own = NONE;
    *discount_minor = 0;
    if (c->codes.claim == CLAIM_PRESENT && !q->code)
        return CPN_CODE_REQUIRED;
    if (r == CPN_OK)
        r = code_answer(q, own);
    if (r == CPN_OK && q->state != SLOT_ISSUED)
        r = eligible(q->amount_minor, discount_minor);
    if (r != CPN_OK)
        return r;
    if (*own == NONE) {
        if (of_user(q->user) >= c->cap.per_user)
            return CPN_USER_CAP_REACHED;
        if (reached(of_day(q->user, t.day_ms), c->cap.per_user_per_day))
            return CPN_USER_DAILY_CAP_REACHED;
        if (reached(of_day(NONE, t.day_ms), c->cap.per_day))
            return CPN_DAILY_CAP_REACHED;
    }
    if (over_budget(*discount_minor))
        return CPN_BUDGET_REACHED;
    return *own == NONE && sold_out() ? CPN_SOLD_OUT : CPN_OK;
}

/* A refusal for a code says whether it is the user's own. */
static void check_whose(const struct request *q, const struct outcome *out)
{
    bool of_code = out->result == CPN_CODE_NOT_FOUND || out->result == CPN_CODE_TAKEN || out->result == CPN_TRANSACTION_IN_PROGRESS;
    bool own = q->code_n >= 0 && is_users(in_slot(q->code_n), q->user);

    CHECK(out->not_theirs == (of_code && !own), "%s of a code that is %s", result_info(out->result)->name, own ? "own" : "not own");
}

/* The redemption that a request repeats by its order. */
static int repeated(const struct request *q)
{
    int i;

    if (!q->code)
        return by_order(q->user, q->order);
    i = q->order >= 0 && q->code_n >= 0 ? in_slot(q->code_n) : NONE;
    return is_users(i, q->user) && m.records[i].order == q->order && stands(i) ? i : NONE;
}

/* The newest issued one that is neither spent nor held. */
static int unspent(int user)
{
    for (int i = (int)m.count; i-- > 0;)
        if (m.records[i].user == user && !m.records[i].erased && state_of(i) == SLOT_ISSUED && hold_on(i) == NONE)
            return i;
    return NONE;
}

/* ---- comparing ---- */

/* The user's own holds make the difference: all of them are named, and when the first ends. */
static void check_held(const struct request *q, const struct outcome *out)
{
    int64_t due_ms = 0;
    size_t count = 0;
    bool differ;

    for (size_t i = 0; i < m.count; i++)
        if (m.records[i].user == q->user && !m.records[i].erased && m.records[i].base == NONE && state_of((int)i) == SLOT_RESERVED) {
            due_ms = sooner_ms(due_ms, m.records[i].until_ms);
            count++;
        }
    differ = out->result == CPN_USER_CAP_REACHED && of_user(q->user) - (int64_t)count < m.coupon.cap.per_user;
    if (out->result == CPN_USER_CAP_REACHED)
        CHECK(out->retry == differ && out->retry_at_ms == (differ ? due_ms : 0), "retry %d for %zu holds", out->retry, count);
    CHECK(out->held_count == (differ ? count : 0), "%zu of %zu holds are named", out->held_count, count);
}

static void check_same(const struct outcome *out, int i, enum slot_state state)
{
    const struct redemption *have = &out->redemption, *made = &m.records[i].made;

    CHECK(have->n == made->n && have->g == made->g, "answered with %lld-%u instead of %lld-%u", (long long)have->n, have->g,
          (long long)made->n, made->g);
    CHECK(have->from == made->from && have->from_n == made->from_n && have->ordinal == made->ordinal &&
              have->seq == made->seq && have->at_ms == made->at_ms && have->left == made->left && have->day == made->day &&
              have->user == made->user && have->user_day == made->user_day,
          "another answer: %lld-%u", (long long)have->n, have->g);
    CHECK(have->valid_until_ms == valid_until(i), "%lld-%u is valid until another time", (long long)have->n, have->g);
    CHECK(same_text(have->code, made->code) && same_text(have->metadata, made->metadata), "texts of an answer");
    CHECK(have->state == state, "%lld-%u is %s instead of %s", (long long)have->n, have->g,
          slot_state_name((enum slot_state)have->state), slot_state_name(state));
    CHECK(have->price.discount_minor == m.records[i].discount_minor, "discount %lld instead of %lld",
          (long long)have->price.discount_minor, (long long)m.records[i].discount_minor);
    CHECK(have->price.version == m.records[i].version && have->price.order_minor == m.records[i].order_minor, "priced by another");
    CHECK(same_text(have->order, m.records[i].order < 0 ? NULL : name("o", m.records[i].order)), "order %s", have->order);
    if (m.records[i].until_ms)
        CHECK(have->reserved_until_ms == m.records[i].until_ms, "held until another time");
}

static void check_replay(const struct outcome *out, const struct call *call)
{
    const struct redemption *have = &out->redemption, *want = &call->answer;

    CHECK(out->result == CPN_OK && out->replayed && out->created == (call->kind == KEY_OF_FIRST), "no replay: %s",
          result_info(out->result)->name);
    CHECK(have->n == want->n && have->g == want->g && have->from == want->from && have->ordinal == want->ordinal &&
              have->seq == want->seq && have->at_ms == want->at_ms && have->left == want->left && have->day == want->day &&
              have->user == want->user && have->user_day == want->user_day && have->state == want->state &&
              have->price.discount_minor == want->price.discount_minor && have->price.version == want->price.version &&
              have->price.order_minor == want->price.order_minor && same_text(have->order, want->order) &&
              same_text(have->code, want->code) && same_text(have->metadata, want->metadata) &&
              have->valid_until_ms == want->valid_until_ms &&
              (have->reserved_until_ms == want->reserved_until_ms || have->first_state == SLOT_ISSUED),
          "another answer than first: %lld-%u", (long long)have->n, have->g);
    if (call->kind == KEY_OF_FIRST)
        CHECK(have->reserved_until_ms == want->reserved_until_ms, "held until another time than first");
}

static void remember(int user, int key, int body, int record, enum key_of kind, const struct outcome *out)
{
    struct call *call;

    CHECK(m.call_count < RECORDS_MAX, "too many calls");
    call = &m.calls[m.call_count++];
    *call = (struct call){.user = user, .key = key, .body = body, .record = record, .kind = kind, .answer = out->redemption};
    call->answer.order = arena_strdup(&w.arena, call->answer.order);
    call->answer.code = arena_strdup(&w.arena, call->answer.code);
    call->answer.metadata = arena_strdup(&w.arena, call->answer.metadata);
}

/* A new redemption, as out says and the model wants. */
static int add_record(int user, int base, int order, enum slot_state state, int64_t discount_minor, const struct outcome *out)
{
    const struct redemption *r = &out->redemption;
    struct record *record = &m.records[m.count];

    CHECK(m.count < RECORDS_MAX, "too many records");
    *record = (struct record){.user = user, .base = base, .order = order, .state = state, .n = r->n, .g = r->g,
                              .made_ms = w.now_ms, .day_ms = t.day_ms, .discount_minor = discount_minor, .version = m.coupon.version,
                              .held_for = COUPON_NULL, .made = *r};
    record->made.code = arena_strdup(&w.arena, r->code);
    record->made.metadata = arena_strdup(&w.arena, r->metadata);
    if (base != NONE)
        record->day_ms = m.records[base].day_ms;
    CHECK(r->seq == w.tail.seq + 1 && r->at_ms == w.now_ms && r->day_ms == record->day_ms, "times");
    CHECK(r->state == state && r->price.discount_minor == discount_minor, "state or discount");
    CHECK((r->from == 0) == (base == NONE), "from");
    if (has_slots()) {
        CHECK(r->n >= 0 && r->n < m.generated && !m.retired[r->n], "slot %lld is not there", (long long)r->n);
        CHECK(in_slot(r->n) == base, "slot %lld has two users", (long long)r->n);
        CHECK(r->g == ++m.generation[r->n], "generation %u of slot %lld", r->g, (long long)r->n);
    } else {
        CHECK(r->n == -(w.tail.seq + 1) && r->g == t.batch->count, "place %lld-%u", (long long)r->n, r->g);
    }
    return (int)m.count++;
}

static int64_t longest_ms(int i)
{
    return m.records[i].made_ms + DAY_MS;
}

static void check_until(int i, int64_t have_ms, int64_t reserve_s)
{
    int64_t until_ms = w.now_ms + (reserve_s == COUPON_NULL ? m.coupon.reserve_s : reserve_s) * SECOND_MS;

    until_ms = until_ms < longest_ms(i) ? until_ms : longest_ms(i);
    m.records[i].until_ms = until_ms > m.records[i].until_ms ? until_ms : m.records[i].until_ms;
    CHECK(have_ms == m.records[i].until_ms, "held until another time");
}

/* ---- effects ---- */

/* What a request's order says of money. */
static void set_amount(int i, const struct request *q)
{
    m.records[i].order_minor = q->amount_minor == COUPON_NULL ? 0 : q->amount_minor;
    m.records[i].held_for = m.records[i].state == SLOT_RESERVED ? q->amount_minor : COUPON_NULL;
}

static void check_hold(int base, int user, int order, int64_t reserve_s, int64_t discount_minor, const struct outcome *out)
{
    const struct redemption *r = &out->redemption, *made = &m.records[base].made;
    int i = add_record(user, base, order, SLOT_RESERVED, discount_minor, out);

    CHECK(out->created, "a hold is a new redemption");
    CHECK(r->from_n == made->n && r->from == made->g && r->ordinal == made->ordinal && r->left == made->left &&
              r->day == made->day && r->user == made->user && r->user_day == made->user_day &&
              same_text(r->code, made->code) && same_text(r->metadata, made->metadata),
          "a hold is no new taking");
    check_until(i, r->reserved_until_ms, reserve_s);
}

static void spend_record(int i, const struct request *q, int64_t discount_minor)
{
    bool stands = m.records[i].state == SLOT_RESERVED && (q->amount_minor == COUPON_NULL || q->amount_minor == m.records[i].held_for);

    m.records[i].state = SLOT_REDEEMED;
    m.records[i].ends_ms = coupon_ends(&m.coupon);
    m.records[i].discount_minor = discount_minor;
    if (!stands) {
        m.records[i].version = m.coupon.version;
        set_amount(i, q);
    }
    if (q->order >= 0)
        m.records[i].order = q->order;
    if (m.records[i].base == NONE)
        return;
    m.records[m.records[i].base].state = SLOT_REDEEMED;
    m.records[m.records[i].base].ends_ms = coupon_ends(&m.coupon);
}

static void check_taking(const struct request *q, int64_t reserve_s, int64_t discount_minor, const struct outcome *out)
{
    const struct redemption *r = &out->redemption;
    int i = add_record(q->user, NONE, q->order, q->state, discount_minor, out);

    if (q->state != SLOT_ISSUED)
        set_amount(i, q);
    if (q->state == SLOT_RESERVED)
        check_until(i, r->reserved_until_ms, reserve_s);
    CHECK(out->created && r->ordinal == ++m.ordinal, "ordinal %lld", (long long)r->ordinal);
    CHECK(!q->code || r->n == q->code_n, "another slot than the code's");
    CHECK(r->left == (has_slots() ? free_slots() : COUPON_NULL) && r->day == of_day(NONE, t.day_ms), "left or day");
    CHECK(r->user == of_user(q->user) && r->user_day == of_day(q->user, t.day_ms), "the user: %lld, %lld instead of %lld, %lld",
          (long long)r->user, (long long)r->user_day, (long long)of_user(q->user), (long long)of_day(q->user, t.day_ms));
    CHECK(same_text(r->code, m.coupon.codes.source ? name("CODE-", (int)r->n) : NULL), "code %s", r->code);
    if (q->state == SLOT_ISSUED && m.coupon.valid_for_s != COUPON_NULL)
        m.records[i].valid_ms = w.now_ms + m.coupon.valid_for_s * SECOND_MS;
    CHECK(r->valid_until_ms == valid_until(i), "valid until another time");
}

/* ---- requests ---- */

static int64_t pick_reserve_s(void)
{
    return chance(60) ? COUPON_NULL : 1 + pick(chance(50) ? 86400 : 300);
}

static void make_order(const struct request *q, struct order *o)
{
    *o = (struct order){.id = q->order < 0 ? NULL : name("o", q->order), .amount_minor = q->amount_minor, .currency = "EUR"};
}

static void pick_request(struct request *q)
{
    *q = (struct request){.user = pick(USERS), .key = pick(KEYS), .body = chance(95) ? 0 : 1,
                          .order = chance(45) ? pick(ORDERS) : NONE, .code_n = NONE};
    q->amount_minor = q->order >= 0 || chance(60) ? (chance(40) ? 2 * AMOUNT : pick(3 * AMOUNT)) : COUPON_NULL;
    q->state = (enum slot_state)(SLOT_ISSUED + pick(3));
    q->code = chance(m.coupon.codes.claim == CLAIM_PRESENT ? 90 : m.coupon.codes.source ? 40 : 3);
    if (q->code && t.d.named_count && chance(95))
        q->code_n = pick((int)t.d.named_count);
    if (q->code_n >= 0 && chance(50)) /* one that is somebody's */
        for (int tries = 0; tries < 10 && in_slot(q->code_n) == NONE; tries++)
            q->code_n = pick((int)t.d.named_count);
}

/* As is done for every slot that a request names. */
static void settle_named(int64_t n)
{
    int i = n >= 0 && n < (int64_t)t.d.named_count ? in_slot(n) : NONE;

    if (i != NONE && !m.records[i].erased)
        decide_expire(&t.d, t.user_states[m.records[i].user], n, 0);
    CHECK(look_at_entries() == 0, "settling wrote more");
    CHECK(i == NONE || ended(&m.records[i]) || state_of(i) != SLOT_EXPIRED, "settling left something");
}

/* The call acts on the user's own issued one. */
static void check_own(const struct request *q, int own, int64_t reserve_s, int64_t discount_minor, const struct outcome *out,
                      size_t entries)
{
    if (q->state == SLOT_ISSUED) {
        CHECK(entries == 0 && !out->created, "handed out twice");
        check_same(out, own, SLOT_ISSUED);
    } else if (q->state == SLOT_RESERVED) {
        check_hold(own, q->user, q->order, reserve_s, discount_minor, out);
        set_amount((int)m.count - 1, q);
        remember(q->user, q->key, q->body, (int)m.count - 1, KEY_OF_FIRST, out);
    } else {
        CHECK(!out->created, "spending makes nothing");
        spend_record(own, q, discount_minor);
        check_same(out, own, SLOT_REDEEMED);
        remember(q->user, q->key, q->body, own, KEY_OF_SPENDING, out);
    }
}

static void do_take(void)
{
    struct request q;
    struct order o;
    struct take take;
    struct outcome out;
    const struct call *call;
    int repeat, own = NONE, existing;
    int64_t discount_minor;
    enum cpn_result want;
    size_t entries;
    bool decided;

    pick_request(&q);
    make_order(&q, &o);
    if (q.code)
        settle_named(q.code_n);
    take = (struct take){.key = name("k", q.key), .order = q.amount_minor == COUPON_NULL ? NULL : &o,
                         .metadata = chance(20) ? "{\"a\":1}" : NULL, .code = q.code ? "X" : NULL, .code_n = q.code_n,
                         .state = q.state, .reserve_s = pick_reserve_s()};
    q.body += 16 + 2 * (int)q.state; /* the whole body is what the fingerprint is of */
    memset(take.fingerprint, q.body, sizeof take.fingerprint);
    decided = decide_take(&t.d, t.user_states[q.user], &take, &out);
    entries = look_at_entries();
    call = by_key(q.user, q.key);
    repeat = repeated(&q);
    want = refusal(&q, &own, &discount_minor);
    if (!decided) {
        CHECK(!call && repeat == NONE && want == CPN_OK && own == NONE && !q.code && has_slots() && entries == 0 &&
                  t.d.free_pool_used == t.d.free_pool_count, "asked again for nothing");
        return;
    }
    w.seen[out.result]++;
    check_whose(&q, &out);
    check_held(&q, &out);
    existing = want == CPN_USER_CAP_REACHED && q.state == SLOT_ISSUED && m.coupon.on_user_cap == ON_USER_CAP_EXISTING
                   ? unspent(q.user) : NONE;
    if (call && call->body != q.body) {
        CHECK(out.result == CPN_IDEMPOTENCY_KEY_REUSED && entries == 0, "%s for a key reused", result_info(out.result)->name);
    } else if (call) {
        CHECK(entries == 0, "a replay wrote something");
        check_replay(&out, call);
    } else if (repeat != NONE || existing != NONE) {
        int i = repeat != NONE ? repeat : existing;

        CHECK(out.result == CPN_OK && !out.replayed && !out.created && entries == 0, "no repeat: %s",
              result_info(out.result)->name);
        check_same(&out, i, state_of(i));
    } else {
        CHECK(out.result == want, "take: %s instead of %s", result_info(out.result)->name, result_info(want)->name);
        CHECK(entries == (want == CPN_OK && (own == NONE || q.state != SLOT_ISSUED)), "%zu entries", entries);
        if (want == CPN_OK && own != NONE) {
            check_own(&q, own, take.reserve_s, discount_minor, &out, entries);
        } else if (want == CPN_OK) {
            check_taking(&q, take.reserve_s, discount_minor, &out);
            remember(q.user, q.key, q.body, (int)m.count - 1, KEY_OF_FIRST, &out);
        }
    }
}

static void do_check(void)
{
    struct request q;
    struct order o;
    struct take take;
    struct outcome out;
    int own, repeat;
    int64_t discount_minor, want_minor;
    enum cpn_result want;

    pick_request(&q);
    make_order(&q, &o);
    for (int i = 0; i < (int)m.count; i++) /* of what is not swept yet, it may say either */
        if (m.records[i].user == q.user && !ended(&m.records[i]) && state_of(i) == SLOT_EXPIRED)
            return;
    if (q.code)
        settle_named(q.code_n);
    take = (struct take){.order = q.amount_minor == COUPON_NULL ? NULL : &o, .code = q.code ? "X" : NULL, .code_n = q.code_n,
                         .state = q.state, .reserve_s = COUPON_NULL};
    decide_check(&t.d, t.user_states[q.user], &take, &out, &discount_minor);
    CHECK(look_at_entries() == 0, "a check wrote something");
    check_whose(&q, &out);
    check_held(&q, &out);
    want = refusal(&q, &own, &want_minor);
    repeat = repeated(&q);
    if (want == CPN_USER_CAP_REACHED && q.state == SLOT_ISSUED && m.coupon.on_user_cap == ON_USER_CAP_EXISTING && repeat == NONE)
        repeat = unspent(q.user);
    if (repeat != NONE)
        CHECK(out.result == CPN_OK && discount_minor == m.records[repeat].discount_minor, "a check of what is there");
    else
        CHECK(out.result == want && (want != CPN_OK || discount_minor == want_minor), "check: %s instead of %s",
              result_info(out.result)->name, result_info(want)->name);
}

/* ---- steps ---- */

struct stepping {
    int i;              /* the record that is named */
    int acts_on;        /* out: the record that the answer shows */
    int64_t discount_minor;
    bool keep_use;
    bool writes, holds; /* out */
};

static enum cpn_result spend_answer(const struct request *q, int i, struct stepping *s)
{
    enum cpn_result r = CPN_OK;

    s->acts_on = i;
    s->discount_minor = m.records[i].discount_minor;
    if (q->amount_minor != COUPON_NULL && q->amount_minor != m.records[i].held_for)
        r = eligible(q->amount_minor, &s->discount_minor);
    if (r == CPN_OK && over_budget(s->discount_minor - m.records[i].discount_minor))
        r = CPN_BUDGET_REACHED;
    s->writes = r == CPN_OK;
    return r;
}

static enum cpn_result issued_answer(const struct request *q, enum slot_move move, struct stepping *s)
{
    int held = hold_on(s->i);
    bool own = held != NONE && q->order >= 0 && m.records[held].order == q->order && move != MOVE_CANCEL;
    enum cpn_result r = move == MOVE_CANCEL ? CPN_OK : window();

    if (own && move == MOVE_RESERVE) {
        s->acts_on = held;
        return CPN_OK;
    }
    if (own)
        return spend_answer(q, held, s);
    if (r == CPN_OK && held != NONE)
        r = CPN_TRANSACTION_IN_PROGRESS;
    if (r == CPN_OK && move != MOVE_CANCEL)
        r = eligible(q->amount_minor, &s->discount_minor);
    if (r == CPN_OK && over_budget(s->discount_minor))
        r = CPN_BUDGET_REACHED;
    s->writes = r == CPN_OK;
    s->holds = move == MOVE_RESERVE;
    return r;
}

static size_t extensions(int i)
{
    size_t count = 0;

    for (size_t k = 0; k < m.call_count; k++)
        count += m.calls[k].record == i && m.calls[k].kind == KEY_OF_EXTENSION;
    return count;
}

/* The contract's table of calls and states. */
static enum cpn_result step_answer(const struct request *q, enum slot_move move, struct stepping *s)
{
    static const enum cpn_result T = CPN_INVALID_TRANSITION, E = CPN_RESERVATION_EXPIRED;
    int held;

    s->acts_on = s->i;
    switch (state_of(s->i)) {
    case SLOT_ISSUED:
        return move == MOVE_REVERSE ? T : issued_answer(q, move, s);
    case SLOT_RESERVED:
        if (move == MOVE_REDEEM)
            return spend_answer(q, s->i, s);
        s->writes = move == MOVE_CANCEL || (move == MOVE_RESERVE && extensions(s->i) < USER_STATE_EXTENSIONS_MAX &&
                                            m.records[s->i].until_ms < longest_ms(s->i));
        return s->writes ? CPN_OK : T;
    case SLOT_REDEEMED:
        held = hold_on(s->i);
        s->writes = move == MOVE_REVERSE;
        if (move == MOVE_CANCEL)
            return T;
        if (move == MOVE_REVERSE)
            return CPN_OK;
        s->acts_on = held == NONE ? s->i : held;
        if (move == MOVE_REDEEM && (q->amount_minor == COUPON_NULL || (q->order >= 0 && m.records[s->acts_on].order == q->order)))
            return CPN_OK;
        return CPN_CODE_TAKEN;
    case SLOT_CANCELLED:
        return move == MOVE_CANCEL ? CPN_OK : T;
    case SLOT_EXPIRED:
        return move == MOVE_CANCEL ? CPN_OK : move == MOVE_REVERSE ? T : E;
    default:
        return move == MOVE_REVERSE ? CPN_OK : T;
    }
}

static void reverse_record(int i, bool keep_use)
{
    int held = hold_on(i);

    m.records[i].kept = keep_use;
    if (m.records[i].base != NONE)
        m.records[m.records[i].base].kept = keep_use;
    if (held != NONE)
        end_record(held, SLOT_REVERSED);
    if (m.records[i].base != NONE)
        end_record(m.records[i].base, SLOT_REVERSED);
    end_record(i, SLOT_REVERSED);
}

static void check_step(const struct request *q, enum slot_move move, int64_t reserve_s, const struct stepping *s,
                       const struct outcome *out)
{
    int i = s->acts_on;

    CHECK(out->created == (s->writes && s->holds), "created");
    if (!s->writes) {
        check_same(out, i, state_of(i));
    } else if (s->holds) {
        check_hold(i, q->user, q->order, reserve_s, s->discount_minor, out);
        set_amount((int)m.count - 1, q);
        remember(q->user, q->key, q->body, (int)m.count - 1, KEY_OF_FIRST, out);
    } else if (move == MOVE_RESERVE) {
        check_until(i, out->redemption.reserved_until_ms, reserve_s);
        check_same(out, i, SLOT_RESERVED);
        remember(q->user, q->key, q->body, i, KEY_OF_EXTENSION, out);
    } else if (move == MOVE_REDEEM) {
        spend_record(i, q, s->discount_minor);
        check_same(out, i, SLOT_REDEEMED);
        remember(q->user, q->key, q->body, i, KEY_OF_SPENDING, out);
    } else if (move == MOVE_CANCEL) {
        end_record(i, SLOT_CANCELLED);
        check_same(out, i, SLOT_CANCELLED);
    } else {
        reverse_record(i, s->keep_use);
        check_same(out, i, SLOT_REVERSED);
    }
}

static void do_step(void)
{
    static const enum slot_move moves[] = {MOVE_RESERVE, MOVE_REDEEM, MOVE_CANCEL, MOVE_REVERSE};
    enum slot_move move = moves[pick(4)];
    bool keyed = move == MOVE_RESERVE || move == MOVE_REDEEM;
    struct request q;
    struct order o;
    struct step step;
    struct stepping s = {.i = NONE};
    struct outcome out;
    const struct call *call;
    enum cpn_result want;
    size_t entries;

    pick_request(&q);
    make_order(&q, &o);
    step = (struct step){.n = pick(SLOTS_MAX), .g = 1 + (uint32_t)pick(3), .move = move, .reserve_s = pick_reserve_s(),
                         .order = q.amount_minor == COUPON_NULL ? NULL : &o, .key = keyed ? name("k", q.key) : NULL};
    if (m.count && chance(95)) {
        const struct record *r = &m.records[m.count - 1 - (size_t)pick(m.count > 40 && chance(70) ? 40 : (int)m.count)];

        q.user = chance(95) ? r->user : q.user;
        step.n = r->n;
        step.g = r->g;
    }
    step.keep_use = s.keep_use = move == MOVE_REVERSE && chance(40);
    q.body += 32 + 2 * (int)move;
    memset(step.fingerprint, q.body, sizeof step.fingerprint);
    decide_step(&t.d, t.user_states[q.user], &step, &out);
    entries = look_at_entries();
    w.seen[out.result]++;
    s.i = by_id(q.user, step.n, step.g);
    if (s.i == NONE) {
        CHECK(out.result == CPN_REDEMPTION_NOT_FOUND && entries == 0, "found what is not there");
        return;
    }
    call = keyed ? by_key(q.user, q.key) : NULL;
    if (call && call->body != q.body) {
        CHECK(out.result == CPN_IDEMPOTENCY_KEY_REUSED && entries == 0, "%s for a key reused", result_info(out.result)->name);
        return;
    }
    if (call) {
        CHECK(entries == 0, "a replay wrote something");
        check_replay(&out, call);
        return;
    }
    want = step_answer(&q, move, &s);
    CHECK(out.result == want, "move %d of %lld-%u: %s instead of %s", (int)move, (long long)step.n, step.g,
          result_info(out.result)->name, result_info(want)->name);
    CHECK(entries == (want == CPN_OK && s.writes), "move %d of %lld-%u: %zu entries", (int)move, (long long)step.n, step.g,
          entries);
    if (want == CPN_OK)
        check_step(&q, move, step.reserve_s, &s, &out);
}

/* ---- adjusting ---- */

static void do_adjust(void)
{
    int i = m.count ? pick((int)m.count) : NONE, held = i == NONE ? NONE : hold_on(i), user, entries;
    bool anew = chance(50);
    struct order o = {.amount_minor = pick(3 * AMOUNT), .currency = "EUR"};
    struct step step = {.adjusts = true, .order = anew ? &o : NULL, .discount_minor = pick(AMOUNT), .reserve_s = COUPON_NULL};
    int key = pick(KEYS);
    struct outcome out;
    enum cpn_result want = CPN_OK;
    int64_t given;

    if (i == NONE || m.records[i].erased)
        return;
    user = m.records[i].user;
    if (by_key(user, key) || by_id(user, m.records[i].n, m.records[i].g) == NONE)
        return;
    step.n = m.records[i].n;
    step.g = m.records[i].g;
    step.key = name("k", key);
    i = held != NONE ? held : i;
    memset(step.fingerprint, 0, sizeof step.fingerprint);
    given = step.discount_minor;
    if (state_of(i) != SLOT_REDEEMED || m.records[i].adjusted >= USER_STATE_ADJUSTMENTS_MAX)
        want = CPN_INVALID_TRANSITION;
    else if (!anew && given > m.records[i].discount_minor)
        want = CPN_BAD_REQUEST;
    else if (anew)
        want = eligible(o.amount_minor, &given);
    if (want == CPN_OK && anew && over_budget(given - m.records[i].discount_minor))
        want = CPN_BUDGET_REACHED;
    decide_step(&t.d, t.user_states[user], &step, &out);
    entries = (int)look_at_entries();
    w.seen[out.result]++;
    CHECK(out.result == want, "adjust: %s instead of %s", result_info(out.result)->name, result_info(want)->name);
    CHECK(entries == (want == CPN_OK), "%d entries adjust", entries);
    if (want != CPN_OK)
        return;
    m.records[i].adjusted++;
    m.records[i].discount_minor = given;
    m.records[i].version = anew ? m.coupon.version : m.records[i].version;
    m.records[i].order_minor = anew ? o.amount_minor : m.records[i].order_minor;
    check_same(&out, i, SLOT_REDEEMED);
    remember(user, key, 0, i, KEY_OF_ADJUSTMENT, &out);
}

/* ---- erasing ---- */

static void do_erase(void)
{
    int user = pick(USERS);
    bool known = t.user_states[user]->alias[0] && (t.user_states[user]->seq || t.user_states[user]->count);
    struct outcome out;
    size_t entries;

    decide_erase(&t.d, t.user_states[user], &out);
    entries = look_at_entries();
    CHECK(out.result == CPN_OK, "erase: %s", result_info(out.result)->name);
    CHECK((entries > 0) == known, "%zu entries erase", entries);
    for (int i = (int)m.count; i-- > 0;) {
        if (m.records[i].user != user || m.records[i].erased)
            continue;
        if (m.records[i].state == SLOT_ISSUED || m.records[i].state == SLOT_RESERVED)
            end_record(i, SLOT_CANCELLED);
        m.records[i].erased = true;
    }
    for (size_t i = 0; i < m.call_count; i++)
        m.calls[i].gone = m.calls[i].gone || m.calls[i].user == user;
    CHECK(!t.user_states[user]->alias[0] && !t.user_states[user]->total && !t.user_states[user]->count, "something is left of a user");
}

/* ---- changes and jobs ---- */

static void pick_definition(struct coupon *next)
{
    next->state = chance(88) ? COUPON_ACTIVE : pick(4);
    next->starts_at_ms = chance(4) ? w.now_ms + pick(5) - 2 : COUPON_NULL;
    next->ends_at_ms = chance(8) ? w.now_ms + 1 + pick(chance(50) ? 5 : 3600000) : COUPON_NULL;
    next->cap.total = 1 + pick(chance(50) ? SLOTS_MAX : 60);
    next->cap.per_user = 1 + pick(chance(50) ? 100 : 8);
    next->cap.per_day = pick_or_null(30, 30);
    next->cap.per_user_per_day = pick_or_null(30, 5);
    next->cap.discount_minor = pick_or_null(30, 40 * AMOUNT);
    next->discount.min_spend_minor = chance(30) ? AMOUNT : 0;
    next->discount.amount_minor = chance(30) ? AMOUNT / 2 : AMOUNT;
    next->on_user_cap = pick(2);
    next->valid_for_s = pick_or_null(40, 7200);
    next->reserve_s = 1 + pick(3600);
    next->low_stock = pick_or_null(60, 20);
    next->replenish.below = has_slots() ? pick_or_null(40, 20) : COUPON_NULL;
    next->replenish.add = next->replenish.below == COUPON_NULL ? COUPON_NULL : 1 + pick(40);
}

static void do_change(void)
{
    struct coupon next = m.coupon;
    bool zone = chance(3), retire = chance(50), fixed, lowered;
    int64_t version = next.version - chance(10), exist = m.generated - m.gone;
    enum cpn_result want;
    struct outcome out;

    pick_definition(&next);
    if (zone)
        next.time_zone = strcmp(next.time_zone, "UTC") == 0 ? "Europe/Berlin" : "UTC";
    fixed = zone && (m.generated || m.ordinal || m.turn);
    lowered = next.cap.total < m.coupon.cap.total;
    want = version != m.coupon.version                                        ? CPN_VERSION_CHANGED
           : fixed                                                            ? CPN_FIELD_FIXED
           : lowered && next.cap.total < taken() + t.d.others.taken           ? CPN_CAP_BELOW_TAKEN
           : lowered && !retire && m.coupon.codes.source && exist - m.retiring > next.cap.total ? CPN_CODES_WOULD_RETIRE
                                                                              : CPN_OK;
    decide_change(&t.d, &next, version, retire, &out);
    look_at_entries();
    w.seen[out.result]++;
    CHECK(out.result == want, "change: %s instead of %s", result_info(out.result)->name, result_info(want)->name);
    if (want != CPN_OK)
        return;
    next.version = m.coupon.version + 1;
    m.coupon = next;
    if (lowered && exist - m.retiring > next.cap.total)
        m.retiring = exist - next.cap.total;
    if (next.replenish.below == COUPON_NULL || next.cap.total < m.replenish_until)
        m.replenish_until = 0;
    CHECK(t.d.coupon->version == next.version, "version");
}

static void do_turn(void)
{
    int job = pick(JOBS - 1);
    int64_t fence = m.job_fence[job] + pick(3) - 1, turn = NONE;
    bool own = m.turn && m.turn_job == job, again = own && fence == m.job_fence[job];
    bool busy = (m.turn && !own) || (own && fence < m.job_fence[job]) || (!again && t.turned);
    struct outcome out;

    decide_turn(&t.d, &t.jobs[job], fence, &turn, &out);
    CHECK(out.result == (busy ? CPN_BUSY : CPN_OK), "turn: %s", result_info(out.result)->name);
    CHECK(look_at_entries() == (!busy && !again), "entries of a turn");
    if (!busy && !again) {
        m.turn = w.tail.seq + 1;
        m.turn_job = job;
        m.job_fence[job] = fence;
        t.turned = true;
    }
    CHECK(turn == (busy ? 0 : m.turn), "turn %lld", (long long)turn);
}

static void do_turn_end(void)
{
    int job = pick(JOBS - 1);
    bool own = m.turn && m.turn_job == job;
    struct outcome out;

    decide_turn_end(&t.d, &t.jobs[job], &out);
    CHECK(out.result == CPN_OK && look_at_entries() == own, "end of a turn");
    if (own)
        m.turn = 0;
}

static void do_generate(void)
{
    int job = pick(JOBS - 1);
    int64_t step = m.job_step[job] + 1 - chance(20), count = 1 + pick(60), turn = chance(80) ? m.turn : pick(5);
    bool replay = step <= m.job_step[job];
    enum cpn_result want = !has_slots() ? CPN_CAP_EXCEEDED
                           : m.coupon.codes.source && (!turn || turn != m.turn) ? CPN_BUSY
                           : m.generated - m.gone - m.retiring + count > m.coupon.cap.total ? CPN_CAP_EXCEEDED : CPN_OK;
    struct outcome out;

    if (m.generated + count > SLOTS_MAX)
        return;
    decide_generate(&t.d, &t.jobs[job], step, count, turn, &out);
    CHECK(out.replayed == replay && out.result == (replay ? CPN_OK : want), "generate: %s", result_info(out.result)->name);
    CHECK(look_at_entries() == (!replay && want == CPN_OK), "entries of a generation");
    w.seen[out.result]++;
    if (replay || want != CPN_OK)
        return;
    m.job_step[job] = step;
    m.generated += count;
    m.low = m.sold = false;
    if (m.generated - m.gone - m.retiring >= m.replenish_until)
        m.replenish_until = 0;
    note_free();
}

static void do_due(void)
{
    int job = JOBS - 1;
    int64_t step = m.job_step[job] + 1 - chance(20), count = 1 + pick(20), done = 0, most = free_slots();
    bool replay = step <= m.job_step[job];
    struct outcome out;

    if (!has_slots())
        return;
    decide_retiring(&t.d, &t.jobs[job], step, count, &done, &out);
    CHECK(out.result == CPN_OK && out.replayed == replay, "retiring: %s", result_info(out.result)->name);
    CHECK(look_at_entries() == (!replay && most > 0), "entries of what is retiring");
    if (!replay && most > 0) {
        m.job_step[job] = step;
        m.job_total[job] += count < most ? count : most;
        m.retiring += count < most ? count : most;
    }
    CHECK(done == m.job_total[job], "done %lld", (long long)done);
}

/* Slots of the free pool that the batch takes out of the world, as its entries say. */
static void do_retire(void)
{
    int64_t before = m.retiring, most = pick(50);
    size_t first = t.batch->count, used = t.d.free_pool_used;

    decide_retire(&t.d, most);
    for (size_t i = first; i < t.batch->count; i++)
        for (int64_t n = t.batch->entries[i].n; n < t.batch->entries[i].n + t.batch->entries[i].count; n++) {
            CHECK(n >= 0 && n < m.generated && !m.retired[n] && in_slot(n) == NONE, "retired %lld", (long long)n);
            m.retired[n] = true;
            m.gone++;
            m.retiring--;
        }
    look_at_entries();
    CHECK(m.retiring >= 0 && before - m.retiring <= most, "retired too many");
    CHECK(t.d.free_pool_used - used >= (size_t)(before - m.retiring), "free pool");
    CHECK(m.retiring == 0 || before - m.retiring == most || t.d.free_pool_used == t.d.free_pool_count, "retired too few");
}

static void do_retire_one(void)
{
    int64_t n = pick(SLOTS_MAX);
    bool there = n < (int64_t)t.d.named_count;
    int holder;
    enum cpn_result want;
    struct outcome out;

    settle_named(n);
    holder = in_slot(n);
    want = !there ? CPN_SLOT_NOT_FOUND : holder == NONE ? CPN_OK : m.records[holder].state == SLOT_REDEEMED ? CPN_CODE_TAKEN
           : m.records[holder].state == SLOT_RESERVED ? CPN_TRANSACTION_IN_PROGRESS : CPN_OK;
    decide_retire_one(&t.d, holder == NONE || m.records[holder].erased ? NULL : t.user_states[m.records[holder].user], n, &out);
    look_at_entries();
    w.seen[out.result]++;
    CHECK(out.result == want, "retire %lld: %s instead of %s", (long long)n, result_info(out.result)->name,
          result_info(want)->name);
    if (want != CPN_OK || m.retired[n])
        return;
    if (holder != NONE)
        end_record(holder, SLOT_CANCELLED);
    if (free_slots() <= 0)
        m.retiring--;
    m.retired[n] = true;
    m.gone++;
}

/* ---- events ---- */

static void check_events(void)
{
    const struct coupon *c = &m.coupon;
    int64_t left = free_slots(), low = c->low_stock != COUPON_NULL ? c->low_stock : NONE, exist, until;
    bool any = t.batch->count > 0 && has_slots();
    bool low_now = any && !m.low && left <= low && m.most_free > low, sold_now = any && !m.sold && left <= 0 && m.most_free > 0;
    bool more;
    size_t next = t.batch->count;

    exist = m.generated - m.gone - m.retiring;
    until = exist + (c->cap.total - exist < c->replenish.add ? c->cap.total - exist : c->replenish.add);
    more = any && c->replenish.below != COUPON_NULL && c->state == COUPON_ACTIVE && !m.replenish_until &&
           c->cap.total > exist && left < c->replenish.below;
    decide_events(&t.d);
    look_at_entries();
    CHECK(t.batch->count == next + (size_t)low_now + (size_t)sold_now + (size_t)more, "events");
    if (low_now)
        CHECK(t.batch->entries[next].kind == ENTRY_LOW_STOCK && t.batch->entries[next].count == left, "low stock");
    next += low_now;
    if (sold_now)
        CHECK(t.batch->entries[next].kind == ENTRY_SOLD_OUT, "sold out");
    next += sold_now;
    if (more)
        CHECK(t.batch->entries[next].kind == ENTRY_REPLENISH && t.batch->entries[next].count == until, "replenish");
    m.low = m.low || low_now;
    m.sold = m.sold || sold_now;
    m.replenish_until = more ? until : m.replenish_until;
}

/* ---- batches ---- */

static void check_head(const struct head *h, int64_t day_ms)
{
    CHECK(h->slots == m.generated - m.gone && h->retiring == m.retiring && h->next_n == m.generated, "slots");
    CHECK(h->issued == in_state(SLOT_ISSUED) && h->reserved == in_state(SLOT_RESERVED) &&
              h->redeemed == in_state(SLOT_REDEEMED) && h->ordinal == m.ordinal, "taken");
    CHECK(h->discount_minor == given_minor(), "money: %lld instead of %lld", (long long)h->discount_minor,
          (long long)given_minor());
    CHECK(h->day_taken == of_day(NONE, day_ms), "the day's count");
    CHECK(h->version == m.coupon.version && h->turn == m.turn && h->replenish_until == m.replenish_until &&
              h->low_stock == m.low && h->sold_out == m.sold, "version, turn or events");
    CHECK(!has_slots() || free_slots() >= 0, "below nothing");
}

static void pass_time(void)
{
    int day = 0;

    w.now_ms += chance(20) ? 0 : chance(50) ? pick(60 * 1000) : chance(75) ? pick(1800 * 1000)
                : chance(80) ? pick(20 * 3600) * SECOND_MS : 200 * HOUR_MS;
    while (w.days[day + 1] <= w.now_ms)
        day++;
    assert_true(day + 1 < DAYS_MAX);
    t.day_ms = w.days[day];
    t.day_end_ms = w.days[day + 1];
}

/* Every slot that exists, as its bucket has it. */
static void name_slots(void)
{
    for (size_t n = 0; n < (size_t)m.generated; n++) {
        const struct slot *s = &w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS];

        t.named[n] = (struct named_slot){(int64_t)n, *s, m.coupon.codes.source ? name("CODE-", (int)n) : NULL};
        if (s->user && !(t.named[n].slot.user = strdup(s->user)))
            abort();
    }
    t.d.named = t.named;
    t.d.named_count = (size_t)m.generated;
}

static void forget_named(void)
{
    for (size_t n = 0; n < t.d.named_count; n++)
        free(t.named[n].slot.user);
    t.d.named_count = 0;
}

/* Free slots as the buckets know them, from a random place on, sometimes only a few. */
static size_t fill_free_pool(void)
{
    size_t count = 0;
    int start = pick(SLOTS_MAX);

    for (int i = 0; i < SLOTS_MAX; i++) {
        int n = (start + i) % SLOTS_MAX;
        const struct bucket *k = &w.buckets[n / BUCKET_SLOTS];

        if (n % BUCKET_SLOTS < k->size && k->slots[n % BUCKET_SLOTS].state == SLOT_FREE)
            t.free_pool[count++] = (struct free_slot){n, k->slots[n % BUCKET_SLOTS].generation,
                                                      m.coupon.codes.source ? name("CODE-", n) : NULL};
    }
    return chance(20) && count ? (size_t)pick((int)count) : count;
}

/* What ended by itself, as the sweeper finds it. */
static void sweep(void)
{
    for (int u = 0; u < USERS; u++)
        for (size_t i = 0; i < t.user_states[u]->count; i++)
            decide_expire(&t.d, t.user_states[u], t.user_states[u]->redemptions[i].n, t.user_states[u]->redemptions[i].g);
    CHECK(look_at_entries() == 0, "sweeping wrote more");
    for (int i = 0; i < (int)m.count; i++)
        CHECK(ended(&m.records[i]) || state_of(i) != SLOT_EXPIRED, "sweeping left something");
}

static void begin_batch(bool exists)
{
    memset(&t, 0, sizeof t);
    pass_time();
    t.batch = batch_new("sale", 0);
    decide_begin(&t.d, t.batch, exists ? w.coupon : NULL, &w.tail, w.now_ms, t.day_ms, t.day_end_ms);
    t.d.free_pool = t.free_pool;
    t.d.free_pool_count = fill_free_pool();
    t.d.others.taken = m.coupon.cap.policy == CAP_APPROXIMATE ? w.others_taken : 0;
    m.most_free = free_slots();
    name_slots();
    for (int i = 0; i < USERS; i++)
        t.user_states[i] = user_state_copy(w.user_states[i], &t.batch->arena, true);
    memcpy(t.jobs, w.jobs, sizeof t.jobs);
}

static void do_tick(void)
{
    decide_tick(&t.d);
    look_at_entries();
}

static void decide_one(void)
{
    static const struct {
        int quota;
        void (*run)(void);
    } rows[] = {
        {37, do_take}, {32, do_step}, {5, do_check}, {5, do_adjust}, {3, do_erase}, {4, do_change}, {4, do_generate},
        {3, do_turn}, {2, do_turn_end}, {2, do_due}, {2, do_retire_one},
    };
    int kind = pick(100);
    size_t i = 0;

    while (i < sizeof rows / sizeof *rows && kind >= rows[i].quota)
        kind -= rows[i++].quota;
    t.d.by = chance(30) ? name("key-", pick(3)) : NULL;
    (i < sizeof rows / sizeof *rows ? rows[i].run : do_tick)();
    t.d.by = NULL;
}

static void decide_batch(void)
{
    begin_batch(true);
    if (chance(60))
        sweep();
    for (int ops = 1 + pick(OPS_MAX); ops > 0 && m.count < RECORDS_MAX - OPS_MAX; ops--) {
        decide_one();
        check_head(&t.d.head, t.day_ms);
    }
    if (w.tail.retiring > 0)
        do_retire();
    check_events();
    check_head(&t.d.head, t.day_ms);
}

/* Folding the batch onto the view as it was gives the working copy. */
static void settle_user_state(int i)
{
    struct user_state *folded = user_state_copy(w.user_states[i], &w.arena, true);
    const char *wrong;

    if (!fold_user_state(folded, t.batch, &w.arena))
        return;
    fold_user_state_done(t.user_states[i], &t.d.head);
    wrong = user_state_difference(folded, t.user_states[i]);
    CHECK(!wrong, "folding %s differs in %s", w.user_states[i]->user, wrong);
    w.user_states[i] = user_state_copy(t.user_states[i], &w.arena, true);
    for (size_t k = 0; k < m.count; k++) /* what ended long ago leaves with the batch */
        if (i < USERS && m.records[k].user == i && ended(&m.records[k]) && m.records[k].ended_ms < w.now_ms - USER_STATE_KEY_KEPT_MS)
            m.records[k].forgotten = true;
    for (size_t k = 0; k < m.call_count; k++)
        m.calls[k].gone = m.calls[k].gone || m.records[m.calls[k].record].forgotten;
}

static bool touches_bucket(const struct batch *b, int64_t number)
{
    int64_t first, end;

    for (size_t i = 0; i < b->count; i++)
        if (entry_buckets(&b->entries[i], &first, &end) && first <= number && number < end)
            return true;
    return false;
}

static void settle_buckets(void)
{
    for (int i = 0; i < BUCKETS; i++) {
        CHECK(touches_bucket(t.batch, i) == fold_bucket(&w.buckets[i], t.batch), "bucket %d", i);
        CHECK(!fold_bucket(&w.buckets[i], t.batch), "bucket %d was folded twice", i);
    }
    for (size_t n = 0; n < t.d.named_count; n++) {
        const char *wrong = slot_difference(&w.buckets[n / BUCKET_SLOTS].slots[n % BUCKET_SLOTS], &t.named[n].slot);

        CHECK(!wrong, "folding slot %zu differs in %s", n, wrong);
    }
}

static void settle_job(int i)
{
    const char *wrong;

    fold_job(&w.jobs[i], t.batch);
    wrong = job_difference(&w.jobs[i], &t.jobs[i]);
    CHECK(!wrong, "folding differs in %s of job %s", wrong, w.jobs[i].id);
}

static void commit_batch(void)
{
    uint8_t hash[HASH_LEN];
    const char *wrong;

    decide_end(&t.d, &w.tail, &w.scratch);
    wrong = batch_contradiction(&w.tail, t.batch);
    CHECK(!wrong, "contradiction in %s", wrong);
    batch_hash(t.batch, &w.scratch, hash);
    CHECK(memcmp(hash, t.batch->head.hash, HASH_LEN) == 0, "hash");
    for (int i = 0; i < USERS; i++)
        settle_user_state(i);
    for (int i = 0; i < JOBS; i++)
        settle_job(i);
    settle_buckets();
    for (size_t i = 0; i < t.batch->count; i++)
        w.kinds[t.batch->entries[i].kind]++;
    w.tail = t.batch->head;
    w.coupon = coupon_copy(t.d.coupon, &w.arena);
    w.chain[w.chain_count++] = t.batch;
}

/* ---- folding what is stored ---- */

/* What is read of it once it was stored. */
static struct batch *stored(const struct batch *b)
{
    static const struct term_key key;
    bson_t doc = BSON_INITIALIZER;
    struct batch *copy;

    codec_batch_put(&doc, b, &key);
    copy = codec_batch_get(&doc);
    CHECK(copy, "batch %lld cannot be read again", (long long)b->head.seq);
    bson_destroy(&doc);
    return copy;
}

static const char *definition_text(const struct coupon *c)
{
    struct json j = json_to(&w.scratch);

    buf_clear(&w.scratch);
    coupon_write(c, &j, true);
    return arena_strdup(&w.arena, w.scratch.data);
}

static void compare_views(const struct user_state *user_states, const struct job_progress *jobs, struct bucket *buckets)
{
    const char *wrong;

    for (int i = 0; i < USERS; i++) {
        wrong = user_state_difference(&user_states[i], w.user_states[i]);
        CHECK(!wrong, "replaying %s differs in %s", w.user_states[i]->user, wrong);
    }
    for (int i = 0; i < JOBS; i++) {
        wrong = job_difference(&jobs[i], &w.jobs[i]);
        CHECK(!wrong, "replaying job %s differs in %s", w.jobs[i].id, wrong);
    }
    for (int i = 0; i < BUCKETS; i++) {
        CHECK(buckets[i].size == w.buckets[i].size && buckets[i].seq == w.buckets[i].seq, "bucket %d", i);
        for (int k = 0; k < BUCKET_SLOTS; k++) {
            wrong = slot_difference(&buckets[i].slots[k], &w.buckets[i].slots[k]);
            CHECK(!wrong, "replaying slot %d of bucket %d differs in %s", k, i, wrong);
        }
        bucket_release(&buckets[i]);
    }
}

/* Every entry of an alias names the batch before that has it, so that erasing a user finds them all. */
static void check_chain_of_aliases(size_t at)
{
    const struct batch *b = w.chain[at];

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        int64_t before = 0;

        if (!(entry_members[e->kind] & HAS_USER))
            continue;
        for (size_t k = at; k-- > 0 && !before;)
            for (size_t x = 0; x < w.chain[k]->count; x++)
                if (strcmp(w.chain[k]->entries[x].alias, e->alias) == 0 && entry_members[w.chain[k]->entries[x].kind] & HAS_USER)
                    before = w.chain[k]->head.seq;
        CHECK(e->before == before, "an entry of batch %zu names batch %lld before it, not %lld", at + 1, (long long)e->before,
              (long long)before);
    }
}

static void replay(void)
{
    const struct coupon *definition = NULL;
    struct user_state user_states[USERS];
    struct job_progress jobs[JOBS] = {{0}};
    struct bucket buckets[BUCKETS];
    struct head before = {0};

    for (int i = 0; i < USERS; i++)
        user_state_init(&user_states[i], w.user_states[i]->user, "");
    for (int i = 0; i < JOBS; i++)
        jobs[i].id = w.jobs[i].id;
    for (int i = 0; i < BUCKETS; i++)
        bucket_init(&buckets[i], i);
    for (size_t s = 0; s < w.chain_count; s++) {
        struct batch *b = stored(w.chain[s]);
        uint8_t hash[HASH_LEN];

        CHECK(!batch_contradiction(&before, b), "contradiction in %s of batch %zu", batch_contradiction(&before, b), s);
        batch_hash(b, &w.scratch, hash);
        CHECK(memcmp(hash, b->head.hash, HASH_LEN) == 0, "hash of batch %zu as it is stored", s);
        for (int i = 0; i < USERS; i++)
            if (fold_user_state(&user_states[i], b, &w.arena)) /* strings are the batch's */
                user_states[i] = *user_state_copy(&user_states[i], &w.arena, true);
        for (int i = 0; i < JOBS; i++)
            fold_job(&jobs[i], b);
        for (int i = 0; i < BUCKETS; i++)
            fold_bucket(&buckets[i], b);
        definition = fold_definition(definition, b, &w.arena);
        before = b->head;
        batch_free(b);
        check_chain_of_aliases(s);
    }
    compare_views(user_states, jobs, buckets);
    CHECK(strcmp(definition_text(definition), definition_text(w.coupon)) == 0, "definition");
}

/* ---- a life ---- */

static void begin_model(void)
{
    struct coupon *c = &m.coupon;
    int kind = pick(10);

    m.count = m.call_count = 0; /* the rest of the lists is never read */
    memset(m.retired, 0, sizeof m - offsetof(struct model, retired));
    coupon_init(c);
    c->id = "sale";
    c->title = "Sale";
    c->state = COUPON_ACTIVE;
    c->cap.policy = kind < 6 ? CAP_EXACT : kind < 8 ? CAP_APPROXIMATE : CAP_NONE;
    c->codes.source = c->cap.policy == CAP_EXACT && kind < 4 ? CODES_GENERATED : CODES_NONE;
    c->codes.claim = kind < 2 ? CLAIM_PRESENT : CLAIM_ANY;
    c->discount.kind = DISCOUNT_AMOUNT;
    c->discount.amount_minor = AMOUNT;
    c->discount.currency = "EUR";
    pick_definition(c);
    c->state = COUPON_ACTIVE;
}

static void begin_world(void)
{
    memset(&w, 0, offsetof(struct world, seen));
    w.random = seed * 2654435761u + 1;
    arena_init(&w.arena, 65536);
    w.days[0] = INT64_C(1790000000000);
    for (int i = 1; i < DAYS_MAX; i++)
        w.days[i] = w.days[i - 1] + (chance(90) ? 24 : chance(50) ? 23 : 25) * HOUR_MS;
    w.now_ms = w.days[0] + pick(24 * 3600) * SECOND_MS;
    w.others_taken = pick(10);
    for (int i = 0; i < USERS; i++) {
        w.user_states[i] = arena_alloc(&w.arena, sizeof **w.user_states);
        user_state_init(w.user_states[i], name("user-", i), "");
    }
    for (int i = 0; i < JOBS; i++)
        w.jobs[i].id = name("j", i);
    for (int i = 0; i < BUCKETS; i++)
        bucket_init(&w.buckets[i], i);
    begin_model();
}

static void create(void)
{
    struct outcome out;

    begin_batch(false);
    decide_create(&t.d, &m.coupon, NULL, &out);
    CHECK(out.result == CPN_OK, "create: %s", result_info(out.result)->name);
    m.coupon.version = 1;
    look_at_entries();
    check_events();
    commit_batch();
}

/* Without those parts of the lists that are not in use. */
static void copy_model(struct model *to, const struct model *from)
{
    to->count = from->count;
    to->call_count = from->call_count;
    memcpy(to->records, from->records, from->count * sizeof *from->records);
    memcpy(to->calls, from->calls, from->call_count * sizeof *from->calls);
    memcpy(to->retired, from->retired, sizeof *from - offsetof(struct model, retired));
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

static void live(void)
{
    begin_world();
    create();
    forget_named();
    while (w.chain_count < BATCHES) {
        copy_model(&m_before, &m);
        decide_batch();
        if (!decide_changed(&t.d) || chance(15)) { /* nothing to append, or the race was lost */
            copy_model(&m, &m_before);
            batch_free(t.batch);
        } else {
            commit_batch();
        }
        forget_named();
        check_head(&w.tail, w.tail.day_ms);
    }
    replay();
    end_world();
}

TEST(every_answer_is_the_models_and_the_ledger_gives_the_same)
{
    static const enum cpn_result met[] = {
        CPN_OK, CPN_IDEMPOTENCY_KEY_REUSED, CPN_COUPON_NOT_ACTIVE, CPN_COUPON_NOT_STARTED, CPN_COUPON_ENDED,
        CPN_CODE_NOT_FOUND, CPN_CODE_TAKEN, CPN_TRANSACTION_IN_PROGRESS, CPN_ORDER_NOT_ELIGIBLE, CPN_USER_CAP_REACHED,
        CPN_USER_DAILY_CAP_REACHED, CPN_DAILY_CAP_REACHED, CPN_BUDGET_REACHED, CPN_SOLD_OUT, CPN_RESERVATION_EXPIRED,
        CPN_INVALID_TRANSITION, CPN_REDEMPTION_NOT_FOUND, CPN_VERSION_CHANGED, CPN_FIELD_FIXED, CPN_CAP_BELOW_TAKEN, CPN_CODES_WOULD_RETIRE,
        CPN_CAP_EXCEEDED, CPN_BUSY, CPN_SLOT_NOT_FOUND,
    };
    const char *only = getenv("MODEL_SEED"), *count = getenv("MODEL_SEEDS");
    unsigned last = count ? (unsigned)strtoul(count, NULL, 10) : SEEDS;

    seed = only ? (unsigned)strtoul(only, NULL, 10) : 0;
    if (only) {
        live();
        return;
    }
    for (seed = 1; seed <= last; seed++)
        live();
    for (size_t i = 0; i < sizeof met / sizeof *met; i++)
        if (w.seen[met[i]] < 20)
            fail_msg("%s was met %zu times: the lives are not wild enough", result_info(met[i])->name, w.seen[met[i]]);
    for (unsigned kind = 0; kind < ENTRY_KIND_COUNT; kind++)
        if (kind != ENTRY_DELETE && kind != ENTRY_ARCHIVE && kind != ENTRY_RESTORED &&
            w.kinds[kind] < 20)
            fail_msg("%s was made %zu times: the lives are not wild enough", entry_kind_name((enum entry_kind)kind), w.kinds[kind]);
}

RUN_TESTS()
