/*
 * verify/replay_users.h -- internal to replay: what it keeps of a lane's users, by alias. No I/O.
 *
 * Kept     some 270 bytes for a user with one redemption: what later entries are checked by. No names, orders or metadata
 * Live     while a batch that touches the user is replayed: their state as the service folds it (fold.h), made from what is kept
 */
#ifndef VERIFY_REPLAY_USERS_H
#define VERIFY_REPLAY_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "base/arena.h"
#include "coupons/batch.h"
#include "coupons/user_state.h"

/* The key of a later call about a redemption. */
struct kept_key {
    struct kept_key *next; /* the call before */
    uint8_t key[KEY_HASH_LEN];
    uint8_t of;            /* enum key_of: EXTENSION, SPENDING or ADJUSTMENT */
};

struct kept_redemption {
    int64_t n, from_n, last_seq, at_ms, day_ms, ended_ms, reserved_until_ms, valid_until_ms, discount_minor, order_minor, version;
    uint32_t g, from;
    uint8_t key[KEY_HASH_LEN];
    struct kept_key *later;
    const char *shared; /* its shared code */
    uint8_t state;
};

struct kept_user {
    char alias[ID_ALIAS_LEN + 1];
    bool nameless;      /* the ledger has entries of this user without the name */
    bool listed;        /* the batch that erases the user still lists the alias */
    bool unlistable;    /* what it lists cannot be read */
    int32_t total, today;
    uint32_t count, capacity;
    int64_t seq, day_ms;
    int64_t erased_seq; /* of the batch that erased the user; 0: none */
    int64_t named_seq;  /* the last batch with the name; 0: none */
    struct kept_redemption *redemptions;
    UT_hash_handle hh;
};

/* Of the batch that is replayed. */
struct live_user {
    struct user_state user_state;
    struct kept_user *kept;
    struct live_user *next;
};

/* A shared code. There are few. */
struct kept_code {
    UT_hash_handle hh;
    char code[];
};

/* Zeroed: empty. */
struct kept_users {
    struct kept_user *by_alias; /* ascending by when they first came */
    struct arena arena;
    struct kept_code *codes;
    struct live_user *live; /* in the arena `batch` */
    struct arena batch;
};

void kept_users_release(struct kept_users *t);
/* The user with this alias, made if missing, as they are within the current batch. */
struct live_user *kept_users_live(struct kept_users *t, const char *alias);
/* The shared code, kept as long as the users; NULL: none. */
const char *kept_users_code(struct kept_users *t, const char *code);
/* The current batch is replayed: keep what it touched. */
void kept_users_settle(struct kept_users *t, const struct head *head);
/* Give each redemption that has not ended to take(), as far as it is known. */
void kept_users_each(const struct kept_users *t, void (*take)(void *context, const struct redemption *r), void *context);

#endif
