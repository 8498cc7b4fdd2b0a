/*
 * engine/user_cache.h -- states of users that the committer keeps in memory.
 *
 * Rule     exact: each state is as of its lane's tail, or ahead of it, if it was just read, until the lane has read on. A lane's own
 *          batches bring the new states. Another writer's are folded into those in memory, except where a state has them already
 * Dropped  a state that no request asked for during 1,024 such folds; all of a lane's if a batch has an entry whose name was emptied, as
 *          nothing tells whose it was
 * Bound    bytes_max, over all lanes of the committer; the least recently used go first, and a fold is a use
 * Threads  the committer's
 */
#ifndef ENGINE_USER_CACHE_H
#define ENGINE_USER_CACHE_H

#include <stdint.h>

#include "coupons/batch.h"

struct cached_user;

struct user_cache {
    struct cached_user *lru; /* least recently used first */
    int64_t bytes, bytes_max;
};

/* A lane's part of it. Zeroed, but for the cache: empty. */
struct lane_users {
    struct user_cache *cache;
    struct cached_user *by_name;
};

/* The user's state; NULL: not in the cache. Read-only, and valid until the next call of a function below, of any lane. */
const struct user_state *user_cache_find(struct lane_users *u, const char *user);
/* Apply a batch of the lane's. own: it brings the new states; else its entries are folded into those in the cache. */
void user_cache_apply(struct lane_users *u, const struct batch *b, bool own);
/* Keep a state that was read. */
void user_cache_keep(struct lane_users *u, const struct user_state *state);
void user_cache_forget_all(struct lane_users *u);

#endif
