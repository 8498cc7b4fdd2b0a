/*
 * runner/runner.h -- background jobs: takes one after another, and carries it out step by step; the sweeper; and what tells of this front.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it between two steps, USR1 reopens the log
 * Threads  config->runner_jobs that take jobs (runner.c), the sweeper (sweeper.c), the keeper of leases (lease.c), and
 *          what tells of this front (front_heartbeat.c); each with a session of its own
 * Jobs     claimed by a lease with a fence: any number of runners may stand by, and one that died is taken over from.
 *          A step is noted in the ledger by the append that carries it out, so a repeated step changes nothing
 * Errors   of the database: the same step again, with back-off, for as long as it takes; of the job: state failed
 * Kinds    see kinds[] in runner.c: a row per kind of job
 * Reading  work.h (what a job in our hands is), runner.c, generate.c, code_drafts.h, import.c, then the others
 */
#ifndef RUNNER_RUNNER_H
#define RUNNER_RUNNER_H

#include "base/config.h"

/* The process's whole life. Exit codes: 0 after SIGTERM, 78 when config cannot be used. */
int runner_run(const struct config *config);

#endif
