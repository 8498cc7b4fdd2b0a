/* coupons/use.c -- see use.h. */
#include "coupons/use.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define FIRST_CAPACITY 4

void use_init(struct use *u, const char *user, const char *alias)
{
    assert(strlen(alias) <= ID_ALIAS_LEN);
    *u = (struct use){.user = user};
    memcpy(u->alias, alias, strlen(alias) + 1);
}

struct use *use_copy(const struct use *u, struct arena *a, bool deep)
{
    struct use *copy = arena_alloc(a, sizeof *copy);

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
        r->metadata = arena_strdup(a, r->metadata);
        r->code = arena_strdup(a, r->code);
    }
    return copy;
}

struct redemption *use_add(struct use *u, struct arena *a)
{
    struct redemption *r;

    if (u->count == u->capacity) {
        size_t capacity = u->capacity ? u->capacity * 2 : FIRST_CAPACITY;
        struct redemption *grown = arena_array(a, capacity, sizeof *grown);

        if (u->count)
            memcpy(grown, u->redemptions, u->count * sizeof *grown);
        u->redemptions = grown;
        u->capacity = capacity;
    }
    r = &u->redemptions[u->count++];
    *r = (struct redemption){.left = 0};
    return r;
}

int64_t use_today(const struct use *u, int64_t day_ms)
{
    return u->day_ms == day_ms ? u->today : 0;
}

/* All look from the newest: that is the one asked for most, and where two could match, the one that counts. */

struct redemption *use_by_key(const struct use *u, const uint8_t key[KEY_HASH_LEN])
{
    for (size_t i = u->count; i-- > 0;)
        if (memcmp(u->redemptions[i].key, key, KEY_HASH_LEN) == 0)
            return &u->redemptions[i];
    return NULL;
}

struct redemption *use_by_order(const struct use *u, const char *order)
{
    for (size_t i = u->count; i-- > 0;) {
        struct redemption *r = &u->redemptions[i];

        if ((r->state == SLOT_RESERVED || r->state == SLOT_REDEEMED) && r->order && strcmp(r->order, order) == 0)
            return r;
    }
    return NULL;
}

struct redemption *use_by_slot(const struct use *u, int64_t n, uint32_t g)
{
    for (size_t i = u->count; i-- > 0;)
        if (u->redemptions[i].n == n && u->redemptions[i].g == g)
            return &u->redemptions[i];
    return NULL;
}

void key_hash(const char *alias, const char *key, uint8_t hash[KEY_HASH_LEN])
{
    crypto_generichash_state state;

    /* the alias's NUL goes in too, so that the border between the two is part of what is hashed */
    crypto_generichash_init(&state, NULL, 0, KEY_HASH_LEN);
    crypto_generichash_update(&state, (const unsigned char *)alias, strlen(alias) + 1);
    crypto_generichash_update(&state, (const unsigned char *)key, strlen(key));
    crypto_generichash_final(&state, hash, KEY_HASH_LEN);
}
