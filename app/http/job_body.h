/*
 * http/job_body.h -- a job in JSON.
 */
#ifndef HTTP_JOB_BODY_H
#define HTTP_JOB_BODY_H

#include "base/json.h"
#include "store/mongo.h"

void job_write(struct json *j, const struct job *job);

#endif
