/*
 * http/job_body.h -- how a call asks for a job.
 *
 * Usage   job_new(), fill in what the kind needs, job_insert(). For blocking and stream threads
 */
#ifndef HTTP_JOB_BODY_H
#define HTTP_JOB_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* A queued job of r's coupon, in r's arena. What it was asked for, `in` by its table, makes the fingerprint. */
struct job *job_new(struct request *r, enum job_kind kind, int64_t total, const struct field_table *table, const void *in);
/* Not before ms; COUPON_NULL: at once. */
void job_set_time(struct job *job, int64_t not_before_ms);
/* Insert it and answer with 202; a repeat by key is answered with the job that is there. */
enum handled job_insert(struct request *r, struct job *job);
/* Answer with the job that is there, or that its key was used for another request. */
enum handled job_reply_repeated(struct request *r, const struct job *job, const struct job *existing);
/* The job of this coupon that was asked for with this key, or NULL. False: answered with busy. */
bool job_find_by_key(struct request *r, struct job **found);

#endif
