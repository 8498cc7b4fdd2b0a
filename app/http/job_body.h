/*
 * http/job_body.h -- how a call creates a job; the rows of one kind.
 *
 * Usage   job_new(), fill in what its kind needs, job_insert(). On blocking and stream threads
 */
#ifndef HTTP_JOB_BODY_H
#define HTTP_JOB_BODY_H

#include "http/fields.h"
#include "http/request.h"

/* A queued job for r's coupon, in r's arena. Its fingerprint is made from `in` by its table. */
struct job *job_new(struct request *r, enum job_kind kind, int64_t total, const struct field_table *table, const void *in);
/* Start no earlier than not_before_ms; COUPON_NULL: at once. */
void job_set_time(struct job *job, int64_t not_before_ms);
/* Insert it and answer 202; a repeated key is answered with the existing job. */
enum handled job_insert(struct request *r, struct job *job);
/* Answer with the existing job, or that its key was used for another request. */
enum handled job_reply_repeated(struct request *r, const struct job *job, const struct job *existing);
/* Find this coupon's job with this key; *found NULL: none. False: answered, busy. */
bool job_find_by_key(struct request *r, struct job **found);

/* Send the rows of a job that issued codes to a list of users as CSV, user,code, in the order of the list; r->session set. Names are in no
 * stored result: a row has the redemption's id, and user and code are read with it. So the rows of users who were erased, and of codes that
 * are no longer theirs, are omitted. */
enum handled issued_send(struct request *r, const struct job *job);

#endif
