/*
 * ctl/job.h -- a job of the service's: asking for it so that there is one, and watching it to its end.
 *
 * Exit    as struct answer's: CTL_OK when there was any answer; the caller releases the answer
 */
#ifndef CTL_JOB_H
#define CTL_JOB_H

#include "ctl/client.h"

/* Make the call, whose path is `path`; again, when no answer came or the service was busy. Its key is made here when it
 * has none: so there is one job, or coupon, at the most. */
int job_start(struct ctl *c, struct call call, const char *path, struct answer *a);
/* Watch the job until it is over, with a progress bar of `unit`; *a holds its last state. */
int job_watch(struct ctl *c, const char *id, const char *what, const char *unit, struct answer *a);
/* True when a, of job_watch(), says that the job is done. */
bool job_is_done(const struct answer *a);
/* The exit code for job `id`, by which slots are `done` ("generated"), as its end in a, of job_watch(), says; the complaint is made. */
int job_slots_end(const char *id, const char *done, const struct answer *a);

#endif
