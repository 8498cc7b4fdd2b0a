/*
 * engine/history.h -- redemptions that stand in nobody's slot (any more): found in the ledger, by threads that commit nothing.
 *
 * Path     a committer that is asked about one hands the op over; it comes back to its lane with what the ledger says:
 *          op->holder, and of one that has ended op->ended
 * Bound    the ledger has at most 36 entries about a redemption (its making, the issued one's beneath it, 32 extensions, its
 *          spending, its end): as many reads of one batch, one in memory at a time. HISTORY_WAITING_MAX ops wait; more are BUSY
 * Threads  any
 */
#ifndef ENGINE_HISTORY_H
#define ENGINE_HISTORY_H

#include "engine/op.h"

#define HISTORY_WAITING_MAX 1024

struct history;

struct history *history_start(struct engine *e, struct store_source *source, const struct engine_hooks *hooks, int backoff_ms);
/* Look for the redemption that op, an OP_STEP or OP_REDEMPTION, names; op->sought is then set, and the op sent on to its lane. */
void history_submit(struct history *h, struct op *op);
/* Send on what waits; before the committers are stopped. What is submitted from then on is answered BUSY. */
void history_stop(struct history *h);
void history_free(struct history *h);

#endif
