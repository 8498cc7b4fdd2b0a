/* verify/replay_jobs.c -- see replay_jobs.h. */
#include "verify/replay_jobs.h"

#include <string.h>

#include "verify/compare.h"
#include "verify/entry_check.h"

static const char *job_place(char where[WHERE_SIZE], const struct job_row *row)
{
    char name[STORED_NAME_SIZE];

    return replay_name_place(where, name_of_job(row->progress.id, name));
}

static const char *account_place(char where[WHERE_SIZE], const struct account_row *row)
{
    char name[STORED_NAME_SIZE];

    return replay_name_place(where, name_of_account(row->account.lane, row->account.peer, name));
}

struct job_row *job_row_of(struct replay *r, const char *job)
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

struct account_row *account_row_of(struct replay *r, int64_t lane, int64_t peer)
{
    struct account_row **end = &r->accounts; /* in order of creation */

    while (*end && ((*end)->account.lane != lane || (*end)->account.peer != peer))
        end = &(*end)->next;
    if (!*end) {
        *end = arena_alloc(&r->arena, sizeof **end);
        (*end)->account.lane = lane;
        (*end)->account.peer = peer;
    }
    return *end;
}

void jobs_free(struct replay *r)
{
    struct job_row *row, *next;

    for (row = r->jobs; row; row = next) {
        next = row->hh.next;
        HASH_DELETE(hh, r->jobs, row);
    }
}

int64_t jobs_count(const struct replay *r)
{
    int64_t count = (int64_t)HASH_COUNT(r->jobs);

    for (const struct account_row *row = r->accounts; row; row = row->next)
        count++;
    return count;
}

/* ---- views ---- */

static void keep_view(struct standing *s, bool readable, int64_t seq)
{
    s->stored = true;
    s->unreadable = !readable;
    s->view_seq = seq;
}

/* Jobs belong to lane 0. */
void replay_view_job(struct replay *r, const char *job, const struct job_progress *view)
{
    struct job_progress *copy;
    struct job_row *row;

    if (r->parts.lanes > 1 && r->lane != 0)
        return;
    pthread_mutex_lock(&r->odd);
    row = job_row_of(r, job);
    if (view) {
        copy = arena_alloc(&r->arena, sizeof *copy);
        *copy = *view;
        copy->id = row->progress.id;
        row->view = copy;
    }
    keep_view(&row->standing, view, view ? view->seq : 0);
    pthread_mutex_unlock(&r->odd);
}

/* An account of a lane that the coupon does not have is reported by lane 0. */
void replay_view_account(struct replay *r, int64_t lane, int64_t peer, const struct lane_account *view)
{
    struct lane_account *copy;
    struct account_row *row;

    if (r->parts.lanes > 1 && r->lane != (lane < r->parts.lanes ? lane : 0))
        return;
    pthread_mutex_lock(&r->odd);
    row = account_row_of(r, lane, peer);
    if (view) {
        copy = arena_alloc(&r->arena, sizeof *copy);
        *copy = *view;
        row->view = copy;
    }
    keep_view(&row->standing, view, view ? view->seq : 0);
    pthread_mutex_unlock(&r->odd);
}

/* ---- when a batch reaches them ---- */

static void reach_job(struct replay *r, struct job_row *row, int64_t seq)
{
    char where[WHERE_SIZE];
    struct place place = {r, "users", where, false};

    if (!standing_passes(r, &row->standing, seq))
        return;
    job_place(where, row);
    compare_job(&row->progress, row->view, replay_differ, &place);
    row->standing.differs = place.differed;
}

static void reach_account(struct replay *r, struct account_row *row, int64_t seq)
{
    char where[WHERE_SIZE];
    struct place place = {r, "users", where, false};

    if (!standing_passes(r, &row->standing, seq))
        return;
    account_place(where, row);
    compare_account(&row->account, row->view, replay_differ, &place);
    row->standing.differs = place.differed;
}

void jobs_entry(struct replay *r, const struct batch *b, const struct entry *e)
{
    const char *job = entry_job(e);
    int64_t peer = entry_peer(e, r->lane);

    if (job) {
        struct job_row *row = job_row_of(r, job);

        check_job(r, &row->progress, b, e);
        fold_job_entry(&row->progress, e, &b->head);
        standing_touch(&r->touched_jobs, &row->standing, b->head.seq);
    } else if (peer >= 0) {
        struct account_row *row = account_row_of(r, r->lane, peer);

        fold_account_entry(&row->account, e, &b->head);
        standing_touch(&r->touched_accounts, &row->standing, b->head.seq);
    }
}

void jobs_batch(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_jobs; s; s = s->next_touched)
        reach_job(r, (struct job_row *)s, b->head.seq); /* its first member */
    for (struct standing *s = r->touched_accounts; s; s = s->next_touched)
        reach_account(r, (struct account_row *)s, b->head.seq);
    r->touched_jobs = r->touched_accounts = NULL;
}

/* ---- the end ---- */

void jobs_end(struct replay *r)
{
    char where[WHERE_SIZE];

    for (const struct job_row *row = r->jobs; row; row = row->hh.next)
        standing_end(r, &row->standing, "users", job_place(where, row));
    for (const struct account_row *row = r->accounts; row; row = row->next)
        standing_end(r, &row->standing, "users", account_place(where, row));
}
