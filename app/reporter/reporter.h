/*
 * reporter/reporter.h -- totals per quarter hour, kept up to date with the ledger; and the backstop for checkpoints that nobody writes.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it, USR1 reopens the log
 * Several  fronts have one active reporter: it holds a lease, and the others wait for it to end. One that finds its lease taken ends, and
 *          its successor waits. Two at once are harmless, only more expensive
 * Threads  fold: reads the ledger's change stream; at most four times a second, unless a round is full, adds what came to the totals in one
 *          write, moves the lanes' positions: the seq up to which each is in the totals
 *          backstop: writes the checkpoint of lanes where it does not move, with its own engine; makes lanes follow a definition
 *          lease: starts these when this front's is the active one
 * Refill   a batch that requests more slots becomes a job before the position passes it; the job's key names the batch, so it is one job
 *          whoever sees the batch, and however often
 * Once     a batch counts once, because each totals document has the seq up to which it holds its quarter hour, and is written with a guard
 *          on that. So a repeat, a restart and a second reporter are harmless
 * Catching up  a start, a gap in the feed and lost history are handled alike: read the ledger from the position on, of the lanes that have
 *          anything above the watermark, or are behind (store/arrivals.c); without a watermark, of all lanes
 * Watermark moves to what had arrived by some time, once all of that is folded, followed, and in the checkpoints, except for lanes where
 *          that fails: it names those from then on, until they are repaired
 */
#ifndef REPORTER_REPORTER_H
#define REPORTER_REPORTER_H

#include "base/config.h"

/* Run the process. Exit codes: 0 after SIGTERM, 78 if config cannot be used. */
int reporter_run(const struct config *config);

#endif
