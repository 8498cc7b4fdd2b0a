/* engine/window.c -- see window.h. */
#include "engine/window.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "coupons/fold.h"

void window_release(struct window_batch *w)
{
    if (--w->refs > 0)
        return;
    batch_free(w->batch);
    free(w);
}

static void forget_user(struct lane *l, struct window_user *wu)
{
    HASH_DEL(l->users, wu);
    free(wu->user);
    free(wu->batches);
    free(wu);
}

static void forget_window_bucket(struct lane *l, struct window_bucket *wb)
{
    HASH_DEL(l->window_buckets, wb);
    free(wb->batches);
    free(wb);
}

void window_clear(struct lane *l)
{
    struct window_batch *w, *next_w;
    struct window_user *u, *next_u;
    struct window_bucket *wb, *next_wb;

    HASH_ITER(hh, l->window_buckets, wb, next_wb)
        forget_window_bucket(l, wb);
    HASH_ITER(hh, l->users, u, next_u)
        forget_user(l, u);
    DL_FOREACH_SAFE(l->window, w, next_w) {
        DL_DELETE(l->window, w);
        window_release(w);
    }
    l->window_entries = l->window_bytes = l->window_ranges = 0;
}

static struct window_user *window_user(struct lane *l, const char *user)
{
    struct window_user *wu;

    HASH_FIND_STR(l->users, user, wu);
    if (wu)
        return wu;
    wu = checked(calloc(1, sizeof *wu));
    wu->user = checked(strdup(user));
    HASH_ADD_KEYPTR(hh, l->users, wu->user, strlen(wu->user), wu);
    return wu;
}

/* An entry's name was emptied: another worker erased the user with this alias, so drop what we know of them. Their view is right: it was
 * written before the names were emptied. */
static void forget_alias(struct lane *l, const char *alias)
{
    struct window_user *wu, *next;

    HASH_ITER(hh, l->users, wu, next)
        if (wu->state && strcmp(wu->state->alias, alias) == 0)
            wu->state = NULL;
}

static void index_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    struct window_user *wu;

    if (!e->user && entry_members[e->kind] & HAS_USER)
        forget_alias(l, e->alias);
    if (!e->user)
        return;
    wu = window_user(l, e->user);
    wu->state = NULL;
    if (wu->count && wu->batches[wu->count - 1] == w)
        return;
    if (wu->count == wu->capacity) {
        wu->capacity = wu->capacity ? wu->capacity * 2 : 1;
        wu->batches = checked(realloc(wu->batches, wu->capacity * sizeof *wu->batches));
    }
    wu->batches[wu->count++] = w;
}

bool window_has_ranges(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (entry_members[b->entries[i].kind] & HAS_RANGE)
            return true;
    return false;
}

static void index_bucket(struct lane *l, struct window_batch *w, int64_t b)
{
    struct window_bucket *wb;

    HASH_FIND(hh, l->window_buckets, &b, sizeof b, wb);
    if (!wb) {
        wb = checked(calloc(1, sizeof *wb));
        wb->b = b;
        HASH_ADD(hh, l->window_buckets, b, sizeof wb->b, wb);
    }
    if (wb->count && wb->batches[wb->count - 1] == w)
        return;
    if (wb->count == wb->capacity) {
        wb->capacity = wb->capacity ? wb->capacity * 2 : 1;
        wb->batches = checked(realloc(wb->batches, wb->capacity * sizeof *wb->batches));
    }
    wb->batches[wb->count++] = w;
}

static void unindex_bucket(struct lane *l, struct window_batch *w, int64_t b)
{
    struct window_bucket *wb;

    HASH_FIND(hh, l->window_buckets, &b, sizeof b, wb);
    if (!wb || wb->batches[0] != w)
        return;
    if (wb->count == 1) {
        forget_window_bucket(l, wb);
        return;
    }
    wb->count--;
    memmove(wb->batches, wb->batches + 1, wb->count * sizeof *wb->batches);
}

static void note_buckets(struct lane *l, struct window_batch *w, const struct entry *e)
{
    int64_t first, end;

    if (!entry_buckets(e, &first, &end))
        return;
    if (w->end_b == 0 || first < w->first_b)
        w->first_b = first;
    if (end > w->end_b)
        w->end_b = end;
    if (l->touched_end >= 0 && end > l->touched_end)
        l->touched_end = end;
    if (entry_members[e->kind] & HAS_SLOT)
        index_bucket(l, w, first);
}

struct window_batch *window_add(struct lane *l, struct batch *b, bool own)
{
    struct window_batch *w = checked(calloc(1, sizeof *w));

    w->batch = b;
    w->refs = 1;
    w->own = own;
    DL_APPEND(l->window, w);
    l->window_entries += b->count + 1;
    w->bytes = b->arena.bytes;
    l->window_bytes += w->bytes;
    l->window_ranges += window_has_ranges(b);
    for (size_t i = 0; i < b->count; i++) {
        note_buckets(l, w, &b->entries[i]);
        index_entry(l, w, &b->entries[i]);
        w->has_jobs = w->has_jobs || b->entries[i].job;
        lane_note_due(l, entry_due(&b->entries[i]));
    }
    for (size_t i = 0; own && i < b->user_state_count; i++)
        window_user(l, b->user_states[i]->user)->state = b->user_states[i];
    return w;
}

static void unindex_entry(struct lane *l, struct window_batch *w, const struct entry *e)
{
    struct window_user *wu = NULL;

    if (e->user)
        HASH_FIND_STR(l->users, e->user, wu);
    if (!wu || wu->batches[0] != w)
        return;
    if (wu->count == 1) {
        forget_user(l, wu);
        return;
    }
    wu->count--;
    memmove(wu->batches, wu->batches + 1, wu->count * sizeof *wu->batches);
}

void window_trim(struct lane *l, const struct mark *m)
{
    struct window_batch *w, *next;

    if (m->seq <= l->mark.seq)
        return;
    l->mark = (struct mark){m->seq, store_time_later(l->mark.when, m->when)};
    DL_FOREACH_SAFE(l->window, w, next) {
        if (w->batch->head.seq > m->seq)
            break;
        for (size_t i = 0; i < w->batch->count; i++) {
            const struct entry *e = &w->batch->entries[i];

            unindex_entry(l, w, e);
            if ((entry_members[e->kind] & HAS_SLOT) && e->n >= 0)
                unindex_bucket(l, w, bucket_of(e->n));
        }
        l->window_ranges -= window_has_ranges(w->batch);
        DL_DELETE(l->window, w);
        l->window_entries -= w->batch->count + 1;
        l->window_bytes -= w->bytes;
        window_release(w);
    }
}

/* The window's first batch after those in the filter; NULL: none. */
static const struct window_batch *first_unlaid(const struct lane *l)
{
    const struct window_batch *w = l->window ? l->window->prev : NULL; /* the last one */

    if (!w || w->batch->head.seq <= l->filter.seq)
        return NULL;
    while (w != l->window && w->prev->batch->head.seq > l->filter.seq)
        w = w->prev;
    return w;
}

bool window_note_users(struct lane *l, struct store *s)
{
    if (l->filter.state == FILTER_NONE)
        return true;
    for (const struct window_batch *w = first_unlaid(l); w; w = w->next)
        if (!filter_lay(&l->filter, s, w->batch))
            return false;
    if (l->filter.seq != l->tail.seq) /* batches in between were never in the window: the lane was loaded past them */
        filter_drop(&l->filter);
    return true;
}

bool window_overlay_user_state(const struct lane *l, struct user_state *u, struct arena *a)
{
    struct window_user *wu;

    if (u->seq > l->tail.seq)
        return false;
    HASH_FIND_STR(l->users, u->user, wu);
    for (size_t i = 0; wu && i < wu->count; i++)
        fold_user_state(u, wu->batches[i]->batch, a);
    return true;
}

const struct user_state *window_known_user_state(const struct lane *l, const char *user)
{
    struct window_user *wu;

    HASH_FIND_STR(l->users, user, wu);
    return wu ? wu->state : NULL;
}

/* Jobs have no index: few batches touch any. */

bool window_overlay_job(const struct lane *l, struct job_progress *j)
{
    if (j->seq > l->tail.seq)
        return false;
    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs)
            fold_job(j, w->batch);
    return true;
}

static bool tells_of_job(const struct batch *b, const char *job)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].job && strcmp(b->entries[i].job, job) == 0)
            return true;
    return false;
}

const struct job_progress *window_known_job(const struct lane *l, const char *job)
{
    const struct batch *last = NULL;

    for (const struct window_batch *w = l->window; w; w = w->next)
        if (w->has_jobs && tells_of_job(w->batch, job))
            last = w->batch;
    for (size_t i = 0; last && i < last->job_count; i++)
        if (strcmp(last->jobs[i]->id, job) == 0)
            return last->jobs[i];
    return NULL;
}
