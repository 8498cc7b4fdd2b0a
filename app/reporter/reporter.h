/*
 * reporter/reporter.h -- totals per quarter hour, kept up with the ledger; and the backstop for views left behind.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it, USR1 reopens the log
 * Several  fronts have one at work: it has a lease, and the others stand by for its end. Who finds that another has taken it ends, and
 *          its successor stands by. Two at work are harmless, only dearer
 * Threads  feed: the change stream on the ledger, one small struct batch_counts per batch into the queue
 *          fold: takes what lies in the queue, adds it to the totals in one write, moves the marks "totals"
 *          backstop: lanes whose mark "views" stands still get their views written, by an engine of its own; and lanes that
 *          have a definition to follow are made to
 *          lease: starts these when it is this front's turn
 * Refill   a batch that asks for more slots becomes a job, before the mark passes it; the job's key names the batch, so that
 *          it is one job whoever sees the batch, and however often
 * Once     a batch counts once, because each totals document carries the seq up to which it holds its quarter hour, and is
 *          written by a guard on it. So a repeat, a restart and a second reporter are harmless
 * Catching up  a start, a gap in the feed and lost history are one thing: read the ledger from the mark on, of the lanes that have
 *          anything above the watermark, or are held (store/arrivals.c), or, where there is no watermark, of all
 * Watermark    moves to what had been taken in at some time, once all of that is folded, followed, and in the views, but for lanes in
 *          which that does not succeed: it holds them from then on, until they are mended
 */
#ifndef REPORTER_REPORTER_H
#define REPORTER_REPORTER_H

#include "base/config.h"

/* The process's whole life. Exit codes: 0 after SIGTERM, 78 when config cannot be used. */
int reporter_run(const struct config *config);

#endif
