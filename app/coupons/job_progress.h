/*
 * coupons/job_progress.h -- how far a job has got in making or retiring a coupon's slots: folded from the ledger.
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
    int64_t seq;     /* of the last batch that touched it; 0: none */
    int64_t total;   /* slots that its steps made, or made retiring, in all lanes */
    int64_t step;    /* the last one in the ledger */
    int64_t turn;    /* seq of its last turn at making codes; 0: none */
    int64_t fence;   /* of the runner that took that turn */
};

#endif
