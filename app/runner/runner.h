/*
 * runner/runner.h -- background jobs, taken one after another and run step by step; the sweeper; and the announcer of this front.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it between two steps, USR1 reopens the log
 * Threads  config->runner_jobs that run jobs (runner.c), the sweeper (sweeper.c), the keeper of leases (lease.c), and the announcer of this
 *          front (front_heartbeat.c); each with its own session
 * Jobs     are claimed by a lease with a fence: any number of runners may stand by, and take over from one that died. The append that
 *          carries out a step also records it in the ledger, so a repeated step changes nothing
 * Errors   of the database: repeat the step, with back-off, for as long as it takes; of the job: state failed
 * Kinds    see kinds[] in runner.c: one row per kind of job
 * Reading  work.h (a job in a runner's hands), runner.c, generate.c, code_drafts.h, import.c, then the others
 */
#ifndef RUNNER_RUNNER_H
#define RUNNER_RUNNER_H

#include "base/config.h"

/* Run the process. Exit codes: 0 after SIGTERM, 78 if config cannot be used. */
int runner_run(const struct config *config);

#endif
