/*
 * engine/internal.h -- what the engine's own threads, and lanes/, ask of the engine they are part of.
 * Threads  any
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "engine/op.h"

/* Ask op->lane, as part of something that was let in: never BUSY for want of room. */
void engine_ask(struct engine *e, struct op *op);
/* Send an op that was let in to where it belongs, by what is known by now; or answer it. */
void engine_reroute(struct engine *e, struct op *op);
/* The op names a redemption that does not stand in its slot, or has none: it is asked again when the ledger was looked at. */
void engine_look_back(struct engine *e, struct op *op);

#endif
