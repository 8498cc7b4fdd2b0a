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
    r->sums.drifts++;
    drift_numbers(r->report, r->context, (struct drift){what, where, field, NULL, NULL}, "", expected, found);
}

void replay_differ(void *context, const char *field, const char *expected, const char *found)
{
    struct place *p = context;

    p->differed = true;
    replay_drift(p->replay, p->what, p->where, field, expected, found);
}

const char *replay_entry_place(const struct replay *r, char where[WHERE_SIZE], const struct batch *b)
{
    int len = snprintf(where, WHERE_SIZE, "seq %" PRId64, b->head.seq);

    if (r->at >= 0)
        len += snprintf(where + len, WHERE_SIZE - (size_t)len, " entry %" PRId64, r->at);
    if (r->slot >= 0)
        snprintf(where + len, WHERE_SIZE - (size_t)len, " slot %" PRId64, r->slot);
    return where;
}

/* ---- views ---- */

bool standing_passes(const struct replay *r, struct standing *s, int64_t seq)
{
    if (seq <= r->written.checkpoint_seq)
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
        replay_drift_int(r, what, where, "seq, below the checkpoint", s->needed, s->view_seq);
}

/* ---- rows ---- */

uint64_t replay_hash(const char *text)
{
    uint64_t hash = hash_text(HASH_NONE, text);

    return hash ? hash : 1;
}

struct bucket_state *replay_bucket_of(struct replay *r, int64_t b)
{
    struct bucket_state *s;

    if (b < part_first_bucket(&r->part) || b >= part_end_bucket(&r->part))
        return NULL;
    HASH_FIND(hh, r->bucket_states, &b, sizeof b, s);
    if (s)
        return s;
    s = checked(calloc(1, sizeof *s));
    s->b = b;
    bucket_init(&s->bucket, b);
    HASH_ADD(hh, r->bucket_states, b, sizeof s->b, s);
    return s;
}

bool replay_has_user(const struct replay *r, const char *alias)
{
    return r->part.count == 1 || replay_hash(alias) % r->part.count == r->part.number;
}

struct job_row *replay_job_of(struct replay *r, const char *job)
{
    struct job_row *row;

    HASH_FIND_STR(r->jobs, job, row);
    if (row)
        return row;
    row = arena_alloc(&r->arena, sizeof *row);
    row->progress.id = arena_strdup(&r->arena, job);
    HASH_ADD_KEYPTR(hh, r->jobs, row->progress.id, strlen(row->progress.id), row);
    return row;
}
