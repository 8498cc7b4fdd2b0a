/*
 * engine/history.h -- finds redemptions that are no longer in a slot, or never were, in the ledger; on threads that commit nothing.
 *
 * Path     the committer, asked about one, hands the op over; it returns to its lane with what the ledger says:
 *          op->engine.holder, and .ended if it has ended
 * Bound    REDEMPTION_ENTRIES_MAX reads, of one batch each, with one batch in memory. HISTORY_WAITING_MAX ops wait; further ones are BUSY
 * Threads  any
 */
#ifndef ENGINE_HISTORY_H
#define ENGINE_HISTORY_H

#include "engine/op.h"

#define HISTORY_WAITING_MAX 1024

struct history;

struct history *history_start(struct engine *e, struct store_source *source, int backoff_ms);
/* Look up the redemption that op, an OP_STEP or OP_REDEMPTION, names; then set .sought and send it to its lane. */
void history_submit(struct history *h, struct op *op);
/* Send on what waits, before the committer is stopped. Later ops are answered BUSY. */
void history_stop(struct history *h);
void history_free(struct history *h);

#endif
