/* http/jobs.c -- background work: the list, one job, and cancelling it. */
#include <string.h>

#include "http/handlers.h"
#include "http/job_body.h"
#include "http/list.h"
#include "http/reply.h"

void job_write(struct json *j, const struct job *job)
{
    json_object(j);
    json_key_string(j, "id", job->id);
    json_key_string(j, "kind", job_kind_name(job->kind));
    json_key_string(j, "coupon", job->coupon);
    json_key_string(j, "state", job_state_name(job->state));
    json_key_int(j, "done", job->done);
    json_key_int(j, "total", job->total);
    json_key(j, "result");
    json_raw(j, job->result ? job->result : "null");
    json_key_string(j, "error", job->error);
    json_key_string(j, "error_detail", job->error_detail);
    json_key_time_or_null(j, "created_at", job->created_ms);
    json_key_time_or_null(j, "started_at", job->started_ms);
    json_key_time_or_null(j, "finished_at", job->finished_ms);
    json_key_time_or_null(j, "not_before", job->not_before_ms);
    json_end_object(j);
}

/* The job that the path names. NULL: answered. */
static struct job *find(struct request *r)
{
    struct job *job = NULL;
    enum store_status s = strlen(r->params[0]) > 64 || !utf8_valid(r->params[0], NULL)
                              ? STORE_NOT_FOUND
                              : mongo_job(r->door, r->params[0], &r->arena, &job);

    if (s == STORE_OK)
        return job;
    reply_problem(r, s == STORE_NOT_FOUND ? CPN_JOB_NOT_FOUND : CPN_BUSY, NULL);
    return NULL;
}

static enum handled reply_job(struct request *r, const struct job *job)
{
    struct json j = reply_body(r);

    job_write(&j, job);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

enum handled job_get(struct request *r)
{
    struct job *job = find(r);

    return job ? reply_job(r, job) : ANSWERED;
}

enum handled job_cancel(struct request *r)
{
    struct job *job = find(r);

    if (!job)
        return ANSWERED;
    if (job->state == JOB_DONE || job->state == JOB_FAILED)
        return reply_problem(r, CPN_INVALID_TRANSITION, "The job has ended; it can no longer be cancelled.");
    if (job->state != JOB_CANCELLED && mongo_job_cancel(r->door, job->id) == STORE_FAILED)
        return reply_problem(r, CPN_BUSY, NULL);
    job = find(r);
    return job ? reply_job(r, job) : ANSWERED;
}

enum handled job_list(struct request *r)
{
    const char *coupon = path_query(&r->path, "coupon");
    struct job **jobs;
    size_t count;
    struct list l;
    struct json j;

    if (!list_begin(r, &l))
        return ANSWERED;
    if (coupon && !coupon_id_valid(coupon))
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter coupon must be a coupon's id.");
    if (mongo_jobs(r->door, coupon, l.position, l.limit, &r->arena, &jobs, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    j = reply_body(r);
    json_object(&j);
    json_key(&j, "items");
    json_array(&j);
    for (size_t i = 0; i < count; i++)
        job_write(&j, jobs[i]);
    json_end_array(&j);
    return list_end(r, &j, count == l.limit ? jobs[count - 1]->id : NULL);
}
