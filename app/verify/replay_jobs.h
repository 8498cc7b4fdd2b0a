/*
 * verify/replay_jobs.h -- internal to replay: jobs' progress, from the ledger, and its views. They are few, so in a replay in parts they
 * belong to the whole. No I/O.
 */
#ifndef VERIFY_REPLAY_JOBS_H
#define VERIFY_REPLAY_JOBS_H

#include "coupons/job_progress.h"
#include "verify/replay_state.h"

struct job_row {
    struct standing standing; /* first: see replay_jobs.c */
    struct job_progress progress;
    const struct job_progress *view;
    UT_hash_handle hh; /* by progress.id */
};

/* The row of a job, made if missing. */
struct job_row *job_row_of(struct replay *r, const char *job);
void jobs_free(struct replay *r);
int64_t jobs_count(const struct replay *r);

/* ---- before the first batch ---- */
/* The view of a job; NULL: it cannot be read. From any thread. */
void replay_view_job(struct replay *r, const char *job, const struct job_progress *view);

/* ---- from a checkpoint ---- */
void jobs_go_on(struct replay *r, struct job_row *row);

/* ---- batch by batch ---- */
void jobs_entry(struct replay *r, const struct batch *b, const struct entry *e);
void jobs_batch(struct replay *r, const struct batch *b);

/* ---- after the last ---- */
void jobs_end(struct replay *r);

#endif
