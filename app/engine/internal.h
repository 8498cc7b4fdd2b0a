/*
 * engine/internal.h -- what the engine's own threads, and lanes/, ask of their engine.
 * Threads  any
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "engine/op.h"

/* Ask op->lane on behalf of an accepted request: never BUSY because the queue is full. */
void engine_ask(struct engine *e, struct op *op);
/* Send an accepted op where it belongs, as known by now; or answer it. */
void engine_reroute(struct engine *e, struct op *op);
/* Give the op's answer to who asked. */
void engine_answer(struct engine *e, struct op *op);
/* The op's redemption is not in its slot, or has none: look in the ledger, then ask again. */
void engine_look_back(struct engine *e, struct op *op);

#endif
