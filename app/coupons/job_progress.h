/*
 * coupons/job_progress.h -- how far a job is with making a coupon's slots, or retiring them: a view of the ledger.
 *
 * Key     the job's id
 * Owns    nothing; the id is borrowed
 */
#ifndef COUPONS_JOB_PROGRESS_H
#define COUPONS_JOB_PROGRESS_H

#include <stdint.h>

struct job_progress {
    const char *id;
    int64_t version; /* grows by one with every batch that touched it */
    int64_t seq;     /* of the last batch that touched it; 0: none has */
    int64_t total;   /* slots that its steps made, or retire, in all lanes */
    int64_t step;    /* the last one that is in the ledger */
    int64_t turn;    /* seq of its last turn at making codes; 0: none */
    int64_t fence;   /* of the runner that took that turn */
};

#endif
