/* verify/replay_users.c -- see replay_users.h. */
#include "verify/replay_users.h"

#include <string.h>

#include "coupons/fold.h"

static struct kept_user *find(struct kept_users *t, const char *alias)
{
    struct kept_user *u;

    HASH_FIND_STR(t->by_alias, alias, u);
    if (u)
        return u;
    u = arena_alloc(&t->arena, sizeof *u);
    memcpy(u->alias, alias, strnlen(alias, sizeof u->alias - 1));
    HASH_ADD_STR(t->by_alias, alias, u);
    return u;
}

void kept_users_release(struct kept_users *t)
{
    HASH_CLEAR(hh, t->codes);
    HASH_CLEAR(hh, t->by_alias);
    arena_free(&t->batch);
    arena_free(&t->arena);
    *t = (struct kept_users){.live = NULL};
}

/* ---- from what is kept, and back ---- */

static size_t count_keys(const struct kept_redemption *r, enum key_of of)
{
    size_t count = 0;

    for (const struct kept_key *k = r->later; k; k = k->next)
        count += k->of == of;
    return count;
}

static void revive_keys(const struct kept_redemption *from, struct redemption *to, struct arena *a)
{
    size_t count = count_keys(from, KEY_OF_EXTENSION), adjusted = count_keys(from, KEY_OF_ADJUSTMENT);
    struct adjustment *adjustments;
    struct extension *earlier;

    if (!from->later)
        return;
    earlier = arena_array(a, count + 1, sizeof *earlier);
    to->earlier = earlier;
    to->earlier_count = count ? count - 1 : 0; /* the last one is the redemption's own */
    adjustments = arena_array(a, adjusted + 1, sizeof *adjustments);
    to->adjusted = adjustments;
    to->adjusted_count = adjusted;
    for (const struct kept_key *k = from->later; k; k = k->next) {
        if (k->of == KEY_OF_ADJUSTMENT)
            memcpy(adjustments[--adjusted].key, k->key, KEY_HASH_LEN);
        else if (k->of == KEY_OF_SPENDING)
            memcpy(to->spent_key, k->key, KEY_HASH_LEN);
        else if (--count == to->earlier_count)
            memcpy(to->extended_key, k->key, KEY_HASH_LEN);
        else
            memcpy(earlier[count].key, k->key, KEY_HASH_LEN);
    }
}

static void revive(const struct kept_redemption *from, struct redemption *to)
{
    *to = (struct redemption){
        .n = from->n, .g = from->g, .from_n = from->from_n, .from = from->from, .last_seq = from->last_seq, .at_ms = from->at_ms,
        .day_ms = from->day_ms, .ended_ms = from->ended_ms, .reserved_until_ms = from->reserved_until_ms,
        .valid_until_ms = from->valid_until_ms, .code = from->shared, .state = from->state,
        .price = {.discount_minor = from->discount_minor, .order_minor = from->order_minor, .version = from->version},
    };
    memcpy(to->key, from->key, KEY_HASH_LEN);
}

static const uint8_t no_key[KEY_HASH_LEN];

static bool has_key(const struct kept_redemption *r, const uint8_t key[KEY_HASH_LEN], enum key_of of)
{
    for (const struct kept_key *k = r->later; k; k = k->next)
        if (k->of == of && memcmp(k->key, key, KEY_HASH_LEN) == 0)
            return true;
    return memcmp(key, no_key, KEY_HASH_LEN) == 0;
}

static void keep_key(struct kept_users *t, struct kept_redemption *r, const uint8_t key[KEY_HASH_LEN], enum key_of of)
{
    struct kept_key *k;

    if (has_key(r, key, of))
        return;
    k = arena_alloc(&t->arena, sizeof *k);
    *k = (struct kept_key){.next = r->later, .of = (uint8_t)of};
    memcpy(k->key, key, KEY_HASH_LEN);
    r->later = k;
}

/* later: of the same redemption, kept before; NULL: none. */
static void keep(struct kept_users *t, const struct redemption *from, struct kept_key *later, struct kept_redemption *to)
{
    *to = (struct kept_redemption){
        .n = from->n, .from_n = from->from_n, .last_seq = from->last_seq, .at_ms = from->at_ms, .day_ms = from->day_ms,
        .ended_ms = from->ended_ms, .reserved_until_ms = from->reserved_until_ms, .valid_until_ms = from->valid_until_ms,
        .discount_minor = from->price.discount_minor, .order_minor = from->price.order_minor, .version = from->price.version,
        .g = from->g, .from = from->from, .later = later, .shared = from->code, .state = from->state,
    };
    memcpy(to->key, from->key, KEY_HASH_LEN);
    for (size_t i = 0; i < from->earlier_count; i++)
        keep_key(t, to, from->earlier[i].key, KEY_OF_EXTENSION);
    keep_key(t, to, from->extended_key, KEY_OF_EXTENSION);
    keep_key(t, to, from->spent_key, KEY_OF_SPENDING);
    for (size_t i = 0; i < from->adjusted_count; i++)
        keep_key(t, to, from->adjusted[i].key, KEY_OF_ADJUSTMENT);
}

const char *kept_users_code(struct kept_users *t, const char *code)
{
    struct kept_code *kept;

    if (!code)
        return NULL;
    HASH_FIND_STR(t->codes, code, kept);
    if (!kept) {
        size_t len = strlen(code);

        kept = arena_alloc(&t->arena, sizeof *kept + len + 1);
        memcpy(kept->code, code, len + 1);
        HASH_ADD_STR(t->codes, code, kept);
    }
    return kept->code;
}

/* ---- within a batch ---- */

struct live_user *kept_users_live(struct kept_users *t, const char *alias)
{
    struct kept_user *kept = find(t, alias);
    struct live_user *u;

    for (u = t->live; u; u = u->next)
        if (u->kept == kept)
            return u;
    u = arena_alloc(&t->batch, sizeof *u);
    u->kept = kept;
    u->next = t->live;
    t->live = u;
    user_state_init(&u->user_state, NULL, alias);
    u->user_state.seq = kept->seq;
    u->user_state.total = kept->total;
    u->user_state.today = kept->today;
    u->user_state.day_ms = kept->day_ms;
    u->user_state.count = u->user_state.capacity = kept->count;
    u->user_state.redemptions = arena_array(&t->batch, kept->count + 1, sizeof *u->user_state.redemptions);
    u->user_state.capacity = kept->count + 1;
    for (size_t i = 0; i < kept->count; i++) {
        revive(&kept->redemptions[i], &u->user_state.redemptions[i]);
        revive_keys(&kept->redemptions[i], &u->user_state.redemptions[i], &t->batch);
    }
    return u;
}

static void make_room(struct kept_users *t, struct kept_user *u, size_t count)
{
    struct kept_redemption *more;

    if (count <= u->capacity)
        return;
    u->capacity = (uint32_t)(u->capacity && count < 2 * (size_t)u->capacity ? 2 * (size_t)u->capacity : count);
    more = arena_array(&t->arena, u->capacity, sizeof *more);
    if (u->count)
        memcpy(more, u->redemptions, u->count * sizeof *more);
    u->redemptions = more;
}

/* Old ones may have gone; the others keep their order, and new ones follow. */
static void settle(struct kept_users *t, struct live_user *live)
{
    const struct user_state *u = &live->user_state;
    struct kept_user *kept = live->kept;
    size_t at = 0;

    make_room(t, kept, u->count);
    for (size_t i = 0; i < u->count; i++) {
        const struct redemption *r = &u->redemptions[i];

        while (at < kept->count && (kept->redemptions[at].n != r->n || kept->redemptions[at].g != r->g))
            at++;
        keep(t, r, at < kept->count ? kept->redemptions[at].later : NULL, &kept->redemptions[i]);
        at += at < kept->count;
    }
    kept->count = (uint32_t)u->count;
    kept->seq = u->seq;
    kept->day_ms = u->day_ms;
    kept->total = (int32_t)u->total;
    kept->today = (int32_t)u->today;
}

void kept_users_settle(struct kept_users *t, const struct head *head)
{
    for (struct live_user *u = t->live; u; u = u->next) {
        fold_user_state_done(&u->user_state, head);
        settle(t, u);
    }
    t->live = NULL;
    arena_reset(&t->batch);
}

void kept_users_each(const struct kept_users *t, void (*take)(void *context, const struct redemption *r), void *context)
{
    for (const struct kept_user *u = t->by_alias; u; u = u->hh.next)
        for (size_t i = 0; i < u->count; i++) {
            const struct kept_redemption *kept = &u->redemptions[i];
            struct redemption r;

            if (kept->state != SLOT_ISSUED && kept->state != SLOT_RESERVED)
                continue;
            revive(kept, &r);
            take(context, &r);
        }
}
