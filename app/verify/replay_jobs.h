/*
 * verify/replay_jobs.h -- internal to replay: jobs' progress and the lane's accounts with others, from the ledger, and their views. They
 * are few, so in a replay in parts they belong to the whole. No I/O.
 */
#ifndef VERIFY_REPLAY_JOBS_H
#define VERIFY_REPLAY_JOBS_H

#include "coupons/job_progress.h"
#include "coupons/lane_account.h"
#include "verify/replay_state.h"

struct job_row {
    struct standing standing; /* first: see replay_jobs.c */
    struct job_progress progress;
    const struct job_progress *view;
    UT_hash_handle hh; /* by progress.id */
};

struct account_row {
    struct standing standing; /* first, too */
    struct lane_account account;
    const struct lane_account *view;
    struct account_row *next;
};

/* Rows by key, made if missing. */
struct job_row *job_row_of(struct replay *r, const char *job);
struct account_row *account_row_of(struct replay *r, int64_t lane, int64_t peer);
void jobs_free(struct replay *r);
/* Of both. */
int64_t jobs_count(const struct replay *r);

/* ---- before the first batch ---- */
/* The view of a job, or of an account; NULL: it cannot be read. From any thread. */
void replay_view_job(struct replay *r, const char *job, const struct job_progress *view);
void replay_view_account(struct replay *r, int64_t lane, int64_t peer, const struct lane_account *view);

/* ---- batch by batch ---- */
void jobs_entry(struct replay *r, const struct batch *b, const struct entry *e);
void jobs_batch(struct replay *r, const struct batch *b);

/* ---- after the last ---- */
void jobs_end(struct replay *r);

#endif
