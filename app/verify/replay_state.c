/* verify/replay_state.c -- see replay_state.h. */
#include "verify/replay_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"

const char replay_unknown[] = "\x01unknown";
const uint8_t replay_unknown_fingerprint[FINGERPRINT_LEN] = "\x01unknown       "; /* no request has this hash */

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
    struct named_key key = name_parse(user);

    if (key.kind == NAMED_USER)
        snprintf(where, WHERE_SIZE, "%s", user);
    else
        snprintf(where, WHERE_SIZE, "job %s", key.job);
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
    const char *name = stored ? stored : u->user_state.user;

    if (name)
        return replay_name_place(where, name);
    snprintf(where, WHERE_SIZE, "alias %s", u->key);
    return where;
}

/* ---- views ---- */

bool standing_passes(const struct replay *r, struct standing *s, int64_t seq)
{
    if (seq <= r->views_mark)
        s->needed = seq;
    if (!s->stored || s->unreadable || s->view_seq != seq)
        return false;
    s->compared = true;
    return true;
}

void standing_end(struct replay *r, const struct standing *s, const char *what, const char *where)
{
    if (s->unreadable)
        replay_drift(r, what, where, "view", "one that can be read", "unreadable");
    else if (s->stored && !s->compared)
        replay_drift_int(r, what, where, s->touched ? "seq" : "seq of a view of nothing in the ledger", s->touched,
                         s->view_seq);
    else if (!s->stored && s->needed)
        replay_drift_int(r, what, where, "seq of a view that is missing", s->needed, 0);
    else if (s->view_seq < s->needed)
        replay_drift_int(r, what, where, "seq, below the mark", s->needed, s->view_seq);
}

/* ---- rows ---- */

uint64_t replay_hash(const char *text)
{
    uint64_t hash = hash_text(HASH_NONE, text);

    return hash ? hash : 1;
}

struct user *replay_user_of(struct replay *r, const char *key)
{
    size_t len = strlen(key);
    struct user *u;
    unsigned hash;

    HASH_VALUE(key, len, hash);
    HASH_FIND_BYHASHVALUE(hh, r->users, key, len, hash, u);
    if (u)
        return u;
    u = arena_alloc(&r->arena, sizeof *u);
    u->key = arena_strdup(&r->arena, key);
    user_state_init(&u->user_state, NULL, "");
    /* most users take once: start with room for one */
    u->user_state.redemptions = arena_array(&r->arena, 1, sizeof *u->user_state.redemptions);
    u->user_state.capacity = 1;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, r->users, u->key, len, hash, u);
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
