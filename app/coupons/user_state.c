/* coupons/user_state.c -- see user_state.h. */
#include "coupons/user_state.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/coupon.h"

void user_state_init(struct user_state *u, const char *user, const char *alias)
{
    assert(strlen(alias) <= ID_ALIAS_LEN);
    *u = (struct user_state){.user = user};
    memcpy(u->alias, alias, strlen(alias) + 1);
}

bool user_state_is_nobody(const struct user_state *u)
{
    return !u->alias[0] || (u->seq == 0 && u->count == 0);
}

void price_copy(struct price *price, struct arena *a)
{
    price->currency = arena_strdup(a, price->currency);
    price->shares = arena_strdup(a, price->shares);
}

static void copy_adjustments(struct redemption *r, struct arena *a)
{
    struct adjustment *all;

    if (!r->adjusted_count)
        return;
    all = arena_array(a, r->adjusted_count, sizeof *all);
    memcpy(all, r->adjusted, r->adjusted_count * sizeof *all);
    for (size_t i = 0; i < r->adjusted_count; i++)
        price_copy(&all[i].before, a);
    r->adjusted = all;
}

struct user_state *user_state_copy(const struct user_state *u, struct arena *a, bool deep)
{
    struct user_state *copy = arena_alloc(a, sizeof *copy);

    *copy = *u;
    copy->capacity = u->count + 1; /* most copies are made to add one */
    copy->redemptions = arena_array(a, copy->capacity, sizeof *copy->redemptions);
    if (u->count)
        memcpy(copy->redemptions, u->redemptions, u->count * sizeof *copy->redemptions);
    if (!deep)
        return copy;
    copy->user = arena_strdup(a, u->user);
    for (size_t i = 0; i < copy->count; i++) {
        struct redemption *r = &copy->redemptions[i];

        r->order = arena_strdup(a, r->order);
        r->first_order = arena_strdup(a, r->first_order);
        r->metadata = arena_strdup(a, r->metadata);
        r->code = arena_strdup(a, r->code);
        price_copy(&r->price, a);
        price_copy(&r->first_price, a);
        copy_adjustments(r, a);
        if (r->earlier_count)
            r->earlier = memcpy(arena_array(a, r->earlier_count, sizeof *r->earlier), r->earlier,
                                r->earlier_count * sizeof *r->earlier);
    }
    return copy;
}

/* Where the next string of a flat copy goes; NULL: only add up sizes. */
struct flat {
    char *at;
    size_t bytes;
};

static const char *flat_text(struct flat *f, const char *text)
{
    size_t size = text ? strlen(text) + 1 : 0;
    char *copy = f->at;

    f->bytes += size;
    if (!copy || !text)
        return text;
    memcpy(copy, text, size);
    f->at += size;
    return copy;
}

static void flat_price(struct flat *f, struct price *price)
{
    price->currency = flat_text(f, price->currency);
    price->shares = flat_text(f, price->shares);
}

/* Copy r's adjustments to `to`, and their texts. */
static void flat_adjustments(struct flat *f, struct redemption *r, struct adjustment *to)
{
    for (size_t i = 0; i < r->adjusted_count; i++) {
        struct adjustment one = r->adjusted[i];

        flat_price(f, &one.before);
        if (to)
            to[i] = one;
    }
    if (to && r->adjusted_count)
        r->adjusted = to;
}

static void flat_texts(struct flat *f, struct redemption *r)
{
    r->order = flat_text(f, r->order);
    r->first_order = flat_text(f, r->first_order);
    r->metadata = flat_text(f, r->metadata);
    r->code = flat_text(f, r->code);
    flat_price(f, &r->price);
    flat_price(f, &r->first_price);
}

/* The state, its redemptions, their adjustments and extensions, then all strings: in the order of alignment. */
struct user_state *user_state_flat(const struct user_state *u, size_t *bytes)
{
    size_t extensions = 0, adjustments = 0;
    struct flat texts = {0};
    struct adjustment *adjusted;
    struct extension *e;
    struct user_state *flat;

    flat_text(&texts, u->user);
    for (size_t i = 0; i < u->count; i++) {
        struct redemption r = u->redemptions[i];

        flat_texts(&texts, &r);
        flat_adjustments(&texts, &r, NULL);
        extensions += r.earlier_count;
        adjustments += r.adjusted_count;
    }
    *bytes = sizeof *flat + u->count * sizeof *flat->redemptions + adjustments * sizeof *adjusted + extensions * sizeof *e +
             texts.bytes;
    flat = checked(malloc(*bytes));
    *flat = *u;
    flat->capacity = u->count;
    flat->redemptions = (struct redemption *)(flat + 1);
    adjusted = (struct adjustment *)(flat->redemptions + u->count);
    e = (struct extension *)(adjusted + adjustments);
    texts.at = (char *)(e + extensions);
    flat->user = flat_text(&texts, u->user);
    for (size_t i = 0; i < u->count; i++) {
        struct redemption *r = &flat->redemptions[i];

        *r = u->redemptions[i];
        flat_texts(&texts, r);
        flat_adjustments(&texts, r, adjusted);
        adjusted += r->adjusted_count;
        if (r->earlier_count)
            r->earlier = memcpy(e, r->earlier, r->earlier_count * sizeof *e);
        e += r->earlier_count;
    }
    return flat;
}

struct user_state *user_state_without_redemptions(const struct user_state *u, struct arena *a)
{
    struct user_state *copy = arena_alloc(a, sizeof *copy);

    *copy = *u;
    copy->user = arena_strdup(a, u->user);
    copy->redemptions = NULL;
    copy->count = copy->capacity = 0;
    return copy;
}

struct user_state *user_state_counts(const struct user_state *u, int64_t at_ms, int64_t day_ms, int64_t ends_ms, struct arena *a)
{
    struct user_state *counts = user_state_without_redemptions(u, a);

    counts->total -= user_state_lapsed(u, at_ms, ends_ms);
    counts->today = user_state_today(u, day_ms) - user_state_lapsed_today(u, at_ms, day_ms, ends_ms);
    counts->day_ms = day_ms;
    return counts;
}

struct redemption *user_state_add(struct user_state *u, struct arena *a)
{
    struct redemption *r;

    u->redemptions = arena_grown(a, u->redemptions, u->count, &u->capacity, sizeof *u->redemptions);
    r = &u->redemptions[u->count++];
    *r = (struct redemption){.left = 0};
    return r;
}

int64_t user_state_today(const struct user_state *u, int64_t day_ms)
{
    return u->day_ms == day_ms ? u->today : 0;
}

/* All search from the newest: it is wanted most often, and if two match, it is the right one. */

static bool is_key(const uint8_t have[KEY_HASH_LEN], const uint8_t key[KEY_HASH_LEN])
{
    return memcmp(have, key, KEY_HASH_LEN) == 0;
}

const struct extension *redemption_earlier(const struct redemption *r, const uint8_t key[KEY_HASH_LEN])
{
    for (size_t i = r->earlier_count; i-- > 0;)
        if (is_key(r->earlier[i].key, key))
            return &r->earlier[i];
    return NULL;
}

const struct adjustment *redemption_adjustment(const struct redemption *r, const uint8_t key[KEY_HASH_LEN])
{
    for (size_t i = r->adjusted_count; i-- > 0;)
        if (is_key(r->adjusted[i].key, key))
            return &r->adjusted[i];
    return NULL;
}

struct price redemption_price_after(const struct redemption *r, const struct adjustment *a)
{
    size_t next = a ? (size_t)(a - r->adjusted) + 1 : 0;

    return next < r->adjusted_count ? r->adjusted[next].before : r->price;
}

size_t redemption_extensions(const struct redemption *r)
{
    return r->earlier_count + !sodium_is_zero(r->extended_key, KEY_HASH_LEN);
}

struct redemption *user_state_by_key(const struct user_state *u, const uint8_t key[KEY_HASH_LEN], enum key_of *which)
{
    for (size_t i = u->count; i-- > 0;) {
        struct redemption *r = &u->redemptions[i];

        *which = is_key(r->key, key)            ? KEY_OF_FIRST
                 : is_key(r->spent_key, key)    ? KEY_OF_SPENDING
                 : is_key(r->extended_key, key) ? KEY_OF_EXTENSION
                 : redemption_earlier(r, key)   ? KEY_OF_EARLIER
                 : redemption_adjustment(r, key) ? KEY_OF_ADJUSTMENT
                                                 : KEY_OF_NONE;
        if (*which != KEY_OF_NONE)
            return r;
    }
    *which = KEY_OF_NONE;
    return NULL;
}

struct redemption *user_state_by_order(const struct user_state *u, const char *order, int64_t at_ms)
{
    for (size_t i = u->count; i-- > 0;) {
        struct redemption *r = &u->redemptions[i];
        enum slot_state state = redemption_state(r, at_ms, 0);

        if ((state == SLOT_RESERVED || state == SLOT_REDEEMED) && r->order && strcmp(r->order, order) == 0)
            return r;
    }
    return NULL;
}

struct redemption *user_state_by_slot(const struct user_state *u, int64_t n, uint32_t g)
{
    for (size_t i = u->count; i-- > 0;)
        if (u->redemptions[i].n == n && u->redemptions[i].g == g)
            return &u->redemptions[i];
    return NULL;
}

struct redemption *user_state_beneath(const struct user_state *u, const struct redemption *r)
{
    return r->from ? user_state_by_slot(u, r->from_n, r->from) : NULL;
}

struct redemption *user_state_hold_on(const struct user_state *u, const struct redemption *r, int64_t at_ms)
{
    for (size_t i = u->count; i-- > 0;) {
        struct redemption *hold = &u->redemptions[i];
        enum slot_state state = redemption_state(hold, at_ms, 0);

        if (hold->from == r->g && hold->from_n == r->n && (state == SLOT_RESERVED || state == SLOT_REDEEMED))
            return hold;
    }
    return NULL;
}

struct redemption *user_state_unspent(const struct user_state *u, int64_t at_ms, int64_t ends_ms)
{
    for (size_t i = u->count; i-- > 0;) {
        struct redemption *r = &u->redemptions[i];

        if (redemption_state(r, at_ms, ends_ms) == SLOT_ISSUED && r->reserved_until_ms <= at_ms)
            return r;
    }
    return NULL;
}

struct redemption *user_state_coded(const struct user_state *u, int64_t at_ms, int64_t ends_ms)
{
    struct redemption *spent = NULL;

    for (size_t i = u->count; i-- > 0;) {
        struct redemption *r = &u->redemptions[i];
        enum slot_state state = r->code ? redemption_state(r, at_ms, ends_ms) : SLOT_FREE;

        if (state == SLOT_ISSUED)
            return r;
        if ((state == SLOT_RESERVED || state == SLOT_REDEEMED) && !spent)
            spent = r;
    }
    return spent;
}

/* A hold on an issued redemption gives nothing back, so it is not counted; the issued one is, if it has lapsed too. */
static bool lapsed(const struct redemption *r, int64_t at_ms, int64_t ends_ms)
{
    return !r->from && r->state != SLOT_EXPIRED && redemption_state(r, at_ms, ends_ms) == SLOT_EXPIRED;
}

int64_t user_state_lapsed(const struct user_state *u, int64_t at_ms, int64_t ends_ms)
{
    int64_t count = 0;

    for (size_t i = 0; i < u->count; i++)
        count += lapsed(&u->redemptions[i], at_ms, ends_ms);
    return count;
}

int64_t user_state_lapsed_today(const struct user_state *u, int64_t at_ms, int64_t day_ms, int64_t ends_ms)
{
    int64_t count = 0;

    for (size_t i = 0; i < u->count; i++)
        count += u->redemptions[i].day_ms == day_ms && lapsed(&u->redemptions[i], at_ms, ends_ms);
    return count;
}

static int64_t rest_of(int64_t cap, int64_t taken)
{
    return cap == COUPON_NULL ? INT64_MAX : cap > taken ? cap - taken : 0;
}

struct allowance user_state_allowance(const struct coupon *c, const struct user_state *u, int64_t at_ms, int64_t day_ms)
{
    struct allowance a = {.total = u->total - user_state_lapsed(u, at_ms, coupon_ends(c)),
                          .took_today = user_state_today(u, day_ms) - user_state_lapsed_today(u, at_ms, day_ms, coupon_ends(c))};

    a.in_all = rest_of(c->cap.per_user, a.total);
    a.today = rest_of(c->cap.per_user_per_day, a.took_today);
    if (a.today > a.in_all)
        a.today = a.in_all;
    return a;
}

int64_t user_state_due(const struct user_state *u, int64_t ends_ms)
{
    int64_t due_ms = 0;

    for (size_t i = 0; i < u->count; i++) {
        int64_t one_ms = redemption_due(&u->redemptions[i], ends_ms);

        if (one_ms && (!due_ms || one_ms < due_ms))
            due_ms = one_ms;
    }
    return due_ms;
}

int64_t redemption_due(const struct redemption *r, int64_t ends_ms)
{
    int64_t until_ms = sooner_ms(r->valid_until_ms, ends_ms);

    if (r->state == SLOT_RESERVED)
        return r->reserved_until_ms;
    if (r->state != SLOT_ISSUED || !until_ms)
        return 0;
    return r->reserved_until_ms > until_ms ? r->reserved_until_ms : until_ms;
}

enum slot_state redemption_state(const struct redemption *r, int64_t at_ms, int64_t ends_ms)
{
    int64_t due_ms = redemption_due(r, ends_ms);

    return due_ms && due_ms <= at_ms ? SLOT_EXPIRED : (enum slot_state)r->state;
}

int64_t redemption_valid_until(const struct redemption *r, int64_t ends_ms)
{
    if (r->first_state != SLOT_ISSUED)
        return 0;
    return sooner_ms(r->valid_until_ms, r->state == SLOT_ISSUED ? ends_ms : r->ends_ms);
}

/* ---- ids ---- */

static char *put_number(char *end, uint64_t value)
{
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return end;
}

char *redemption_id_text(int64_t n, uint32_t g, int64_t lane, char text[REDEMPTION_ID_SIZE])
{
    char backwards[REDEMPTION_ID_SIZE], *end = &backwards[REDEMPTION_ID_SIZE - 1], *start;

    *end = '\0';
    start = put_number(end, g);
    *--start = '-';
    start = put_number(start, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
    if (n < 0) {
        *--start = '-';
        start = put_number(start, (uint64_t)lane);
        *--start = 'L';
    }
    return memcpy(text, start, (size_t)(end - start) + 1);
}

/* Parse a decimal without leading zeros, up to `most`, ending at `stop`. Returns what follows, or NULL. */
static const char *take_number(const char *text, int64_t most, char stop, int64_t *value)
{
    const char *from = text;

    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        *value = *value * 10 + (*text - '0');
        if (*value > most)
            return NULL;
    }
    return text > from && *text == stop && (*from != '0' || text == from + 1) ? text + 1 : NULL;
}

#define NUMBER_MAX ((INT64_C(1) << 53) - 1)

bool redemption_id_parse(const char *text, int64_t *n, uint32_t *g, int64_t *lane)
{
    bool slotless = *text == 'L';
    int64_t generation;

    *lane = -1;
    if (slotless)
        text = take_number(text + 1, COUPON_LANES_MAX - 1, '-', lane);
    text = text ? take_number(text, NUMBER_MAX, '-', n) : NULL;
    if (!text || !take_number(text, UINT32_MAX, '\0', &generation) || generation < 1)
        return false;
    *g = (uint32_t)generation;
    if (slotless && *n == 0)
        return false;
    *n = slotless ? -*n : *n;
    return true;
}

_Static_assert(sizeof(struct key_secret) >= crypto_generichash_KEYBYTES_MIN, "libsodium's size");

void key_hash(const struct key_secret *secret, const char *alias, const char *key, uint8_t hash[KEY_HASH_LEN])
{
    crypto_generichash_state state;

    /* include the alias's NUL, so that the hash depends on where the alias ends */
    crypto_generichash_init(&state, secret->bytes, sizeof secret->bytes, KEY_HASH_LEN);
    crypto_generichash_update(&state, (const unsigned char *)alias, strlen(alias) + 1);
    crypto_generichash_update(&state, (const unsigned char *)key, strlen(key));
    crypto_generichash_final(&state, hash, KEY_HASH_LEN);
}
