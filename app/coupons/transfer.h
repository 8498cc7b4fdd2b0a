/*
 * coupons/transfer.h -- transfer of slots between lanes of a coupon, as steps of two jobs: one in each lane (lanes/README.md).
 *
 * Names    other jobs' ids are random letters and digits
 */
#ifndef COUPONS_TRANSFER_H
#define COUPONS_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* One of the two jobs. */
struct transfer_side {
    bool gives;
    int64_t lane, other; /* its own, and the other one */
};

#define TRANSFER_JOB "lane-"
#define TRANSFER_JOB_SIZE 64

/* The job's id: "lane-<lane>-to-<other>" if it gives, else "lane-<lane>-from-<other>". Returns job. */
char *transfer_job(const struct transfer_side *m, char job[TRANSFER_JOB_SIZE]);
/* False: not the id of such a job, of lanes below `lanes`. */
bool transfer_parse(const char *job, int64_t lanes, struct transfer_side *m);

/* True if the job, if any, is one of these. */
static inline bool job_transfers(const char *job)
{
    return job && strncmp(job, TRANSFER_JOB, strlen(TRANSFER_JOB)) == 0;
}

#endif
