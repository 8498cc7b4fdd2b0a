/* verify/replay_state.c -- see replay_state.h. */
#include "verify/replay_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"

/* ---- reporting ---- */

void replay_drift(struct replay *r, const char *what, const char *where, const char *field, const char *expected,
                  const char *found)
{
    const struct drift d = {what, where, field, expected, found};

    r->sums.drifts++;
    r->report(r->context, &d);
}

void replay_drift_int(struct replay *r, const char *what, const char *where, const char *field, int64_t expected,
                      int64_t found)
{
    char a[VALUE_SIZE], b[VALUE_SIZE];

    snprintf(a, sizeof a, "%" PRId64, expected);
    snprintf(b, sizeof b, "%" PRId64, found);
    replay_drift(r, what, where, field, a, b);
}

void replay_differ(void *context, const char *field, const char *expected, const char *found)
{
    struct place *p = context;

    p->differed = true;
    replay_drift(p->replay, p->what, p->where, field, expected, found);
}

const char *replay_entry_place(const struct replay *r, char where[WHERE_SIZE], const struct batch *b)
{
    snprintf(where, WHERE_SIZE, "seq %" PRId64 " entry %" PRId64, b->head.seq, r->at);
    return where;
}

const char *replay_name_place(char where[WHERE_SIZE], const char *user)
{
    if (user_is_job(user))
        snprintf(where, WHERE_SIZE, "job %s", user + sizeof JOB_USER_PREFIX - 1);
    else
        snprintf(where, WHERE_SIZE, "%s", user);
    return where;
}

const char *replay_view_place(char where[WHERE_SIZE], const struct name_hash *hash, const char *user)
{
    size_t len;

    if (user)
        return replay_name_place(where, user);
    len = (size_t)snprintf(where, WHERE_SIZE, "the user of hash ");
    for (size_t i = 0; i < sizeof hash->bytes; i++)
        len += (size_t)snprintf(where + len, WHERE_SIZE - len, "%02x", hash->bytes[i]);
    return where;
}

const char *replay_user_place(char where[WHERE_SIZE], const struct user *u, const char *stored)
{
    const char *name = stored ? stored : u->use.user;

    if (name || user_is_job(u->key))
        return replay_name_place(where, name ? name : u->key);
    snprintf(where, WHERE_SIZE, "alias %s", u->key);
    return where;
}

/* ---- rows ---- */

uint64_t replay_hash(const char *text)
{
    uint64_t hash = hash_text(HASH_NONE, text);

    return hash ? hash : 1;
}

struct user *replay_user_of(struct replay *r, const char *key)
{
    struct user *u;

    HASH_FIND_STR(r->users, key, u);
    if (u)
        return u;
    u = arena_alloc(&r->arena, sizeof *u);
    u->key = arena_strdup(&r->arena, key);
    use_init(&u->use, NULL, "");
    /* most users take once: room for one, then as it grows */
    u->use.redemptions = arena_array(&r->arena, 1, sizeof *u->use.redemptions);
    u->use.capacity = 1;
    HASH_ADD_KEYPTR(hh, r->users, u->key, strlen(u->key), u);
    return u;
}

struct shelf *replay_shelf_of(struct replay *r, int64_t b)
{
    struct shelf *s;

    if (b < part_first_bucket(&r->parts, r->part) || b >= part_end_bucket(&r->parts, r->part))
        return NULL;
    HASH_FIND(hh, r->shelves, &b, sizeof b, s);
    if (s)
        return s;
    s = checked(calloc(1, sizeof *s));
    s->b = b;
    bucket_init(&s->bucket, b);
    HASH_ADD(hh, r->shelves, b, sizeof s->b, s);
    return s;
}

unsigned replay_part_of_user(const struct replay *r, const char *key)
{
    return (unsigned)(replay_hash(key) % r->parts.parts);
}
