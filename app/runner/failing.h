/*
 * runner/failing.h -- how often a job's step has failed in a row: what is logged, and when the job ends for it. Pure.
 *
 * Why  most failures pass, and are repeated for as long as it takes. One that cannot pass would stop the coupon's other jobs for ever,
 *      and say nothing
 */
#ifndef RUNNER_FAILING_H
#define RUNNER_FAILING_H

#include "base/clock.h"

#define FAILING_LOGGED 10                         /* failures in a row: logged, and again after each further such number */
#define FAILING_MOST_MS (INT64_C(60) * 60 * 1000) /* the time after which so many end the job */

struct failing {
    int count; /* 0: the last attempt succeeded */
    struct mono since;
};

enum failing_verdict { FAILING_REPEAT, FAILING_LOG, FAILING_END };

/* The step failed once more. */
enum failing_verdict failing_again(struct failing *f, struct mono now);
/* It succeeded, or another one begins. */
void failing_over(struct failing *f);

#endif
