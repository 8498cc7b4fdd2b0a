/*
 * ctl/job.h -- jobs of the service: requests one exactly once, and watches it to its end.
 *
 * Exit    job_start() like client_call(): CTL_OK: any answer. The caller releases the answer
 */
#ifndef CTL_JOB_H
#define CTL_JOB_H

#include "ctl/client.h"

/* Make the call to `path`; repeat it if no answer came or the service was busy. Without a key it gets one: so at most one job, or coupon,
 * is made. */
int job_start(struct ctl *c, struct call call, const char *path, struct answer *a);
/* Watch the job to its end, with a progress bar of `unit`; *a is its last state. CTL_OK: it is done; else that is printed. */
int job_watch(struct ctl *c, const char *id, const char *what, const char *unit, struct answer *a);

#endif
