/* verify/replay_jobs.c -- see replay_jobs.h. */
#include "verify/replay_jobs.h"

#include <string.h>

#include "coupons/lane_move.h"
#include "verify/compare.h"
#include "verify/entry_check.h"

static const char *job_place(char where[WHERE_SIZE], const struct job_row *row)
{
    char name[STORED_NAME_SIZE];

    return replay_name_place(where, name_of_job(row->progress.id, name));
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
    return (int64_t)HASH_COUNT(r->jobs);
}

/* ---- views ---- */

static void keep_view(struct standing *s, bool readable, int64_t seq)
{
    s->stored = true;
    s->unreadable = !readable;
    s->view_seq = seq;
}

/* Jobs belong to lane 0, except a move's of another lane. */
static int64_t lane_of_job(const struct replay *r, const char *job)
{
    struct lane_move m;

    return move_parse(job, r->parts.lanes, &m) ? m.lane : 0;
}

void replay_view_job(struct replay *r, const char *job, const struct job_progress *view)
{
    struct job_progress *copy;
    struct job_row *row;

    if (r->parts.lanes > 1 && r->lane != lane_of_job(r, job))
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

void jobs_entry(struct replay *r, const struct batch *b, const struct entry *e)
{
    struct job_row *row;

    if (!e->job)
        return;
    row = job_row_of(r, e->job);
    check_job(r, &row->progress, b, e);
    fold_job_entry(&row->progress, e, &b->head);
    standing_touch(&r->touched_jobs, &row->standing, b->head.seq);
}

void jobs_batch(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_jobs; s; s = s->next_touched)
        reach_job(r, (struct job_row *)s, b->head.seq); /* its first member */
    r->touched_jobs = NULL;
}

/* ---- from a checkpoint ---- */

void jobs_go_on(struct replay *r, struct job_row *row)
{
    row->standing.touched = row->progress.seq;
    reach_job(r, row, row->progress.seq);
}

/* ---- the end ---- */

void jobs_end(struct replay *r)
{
    char where[WHERE_SIZE];

    for (const struct job_row *row = r->jobs; row; row = row->hh.next)
        standing_end(r, &row->standing, "users", job_place(where, row));
}
