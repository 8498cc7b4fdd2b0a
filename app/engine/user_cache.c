/* engine/user_cache.c -- see user_cache.h. */
#include "engine/user_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"

struct cached_user {
    struct user_state *state; /* one block of memory */
    size_t bytes;
    int folds; /* foreign batches folded into it since a request last asked for it */
    struct lane_users *lane;
    struct cached_user *prev, *next; /* in the cache's list */
    UT_hash_handle hh;               /* by state->user */
};

#define FOLDS_MOST 1024

/* What the hash tables take, about. */
#define ENTRY_BYTES (sizeof(struct cached_user) + 16)

static void forget(struct cached_user *c)
{
    struct lane_users *u = c->lane;

    HASH_DEL(u->by_name, c);
    DL_DELETE(u->cache->lru, c);
    u->cache->bytes -= (int64_t)c->bytes;
    free(c->state);
    free(c);
}

static struct cached_user *find(const struct lane_users *u, const char *user)
{
    struct cached_user *c;

    HASH_FIND_STR(u->by_name, user, c);
    return c;
}

const struct user_state *user_cache_find(struct lane_users *u, const char *user)
{
    struct cached_user *c = find(u, user);

    if (!c)
        return NULL;
    c->folds = 0;
    DL_DELETE(u->cache->lru, c);
    DL_APPEND(u->cache->lru, c);
    return c->state;
}

void user_cache_keep(struct lane_users *u, const struct user_state *state)
{
    struct cached_user *old = find(u, state->user), *c = NULL;

    if (!user_state_is_nobody(state)) {
        c = checked(calloc(1, sizeof *c));
        c->lane = u;
        c->state = user_state_flat(state, &c->bytes);
        c->bytes += ENTRY_BYTES;
    }
    if (old)
        forget(old); /* only now: state may share its memory */
    if (!c)
        return;
    HASH_ADD_KEYPTR(hh, u->by_name, c->state->user, strlen(c->state->user), c);
    DL_APPEND(u->cache->lru, c);
    u->cache->bytes += (int64_t)c->bytes;
    while (u->cache->bytes > u->cache->bytes_max)
        forget(u->cache->lru);
}

void user_cache_forget_all(struct lane_users *u)
{
    struct cached_user *c, *next;

    HASH_ITER(hh, u->by_name, c, next)
        forget(c);
    assert(!u->by_name);
}

/* Fold another writer's batch into a user's state. A state that nobody asks for is dropped after FOLDS_MOST of them, because
 * each one copies it. */
static void fold_foreign(struct lane_users *u, const char *user, const struct batch *b)
{
    struct cached_user *c = find(u, user);
    int folds;
    struct user_state *state;
    struct arena a;

    if (!c || c->state->seq >= b->head.seq) /* not in the cache, or an earlier entry was of the same user */
        return;
    folds = c->folds + 1;
    if (folds > FOLDS_MOST) {
        forget(c);
        return;
    }
    arena_init(&a, 0);
    state = user_state_copy(c->state, &a, false);
    fold_user_state(state, b, &a);
    user_cache_keep(u, state);
    c = find(u, user); /* the old one is gone */
    if (c)
        c->folds = folds;
    arena_free(&a);
}

/* An entry whose name was emptied is of a user who was erased; which one, nothing tells. */
static void apply_foreign(struct lane_users *u, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (!e->user && (entry_members[e->kind] & HAS_USER)) {
            user_cache_forget_all(u);
            return;
        }
        if (e->user)
            fold_foreign(u, e->user, b);
    }
}

void user_cache_apply(struct lane_users *u, const struct batch *b, bool own)
{
    if (!own)
        apply_foreign(u, b);
    for (size_t i = 0; own && i < b->user_state_count; i++)
        user_cache_keep(u, b->user_states[i]);
}
