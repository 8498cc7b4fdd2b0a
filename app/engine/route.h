/*
 * engine/route.h -- what committers and lanes.c ask of the engine they are part of, for coupons with several lanes.
 * Threads  any
 */
#ifndef ENGINE_ROUTE_H
#define ENGINE_ROUTE_H

#include "engine/op.h"
#include "lanes/peers.h"

/* Ask op->lane, as part of something that was let in: never BUSY for want of room. */
void engine_ask(struct engine *e, struct op *op);
/* Send an op, whose coupon's lanes are known by now, to where it belongs; or answer it. */
void engine_reroute(struct engine *e, struct op *op);
/* The op's lane lacks what other lanes may have (op->outcome says what; QUOTA_NONE: they were not all heard of): it is asked again
 * when that is settled. */
void engine_look_around(struct engine *e, struct op *op);
/* The op names a redemption that does not stand in its slot, or has none: it is asked again when the ledger was looked at. */
void engine_look_back(struct engine *e, struct op *op);
/* Few slots are left in a lane. */
void engine_poke(struct engine *e, const char *coupon);
struct peers *engine_peers(struct engine *e);

#endif
