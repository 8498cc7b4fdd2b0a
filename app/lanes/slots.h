/*
 * lanes/slots.h -- free slots, and how they are transferred between the lanes of a coupon. README.md says why that is exact.
 *
 * Owns     nothing
 */
#ifndef LANES_SLOTS_H
#define LANES_SLOTS_H

#include "lanes/fanout.h"

enum found { FOUND_ENOUGH, FOUND_NOTHING, FOUND_SOME };

/* Look once for the `need` free slots that lane x lacks. FOUND_ENOUGH: it has them. FOUND_NOTHING: at one moment it had fewer, no other
 * lane had any, and none was on its way; *due_ms: when the first hold of any lane ends, 0: none or unknown. FOUND_SOME: some came, or lanes
 * moved meanwhile, or could not be asked: look again. */
enum found slots_find(const struct asker *asker, const char *coupon, int64_t lanes, int64_t x, int64_t need, int64_t *due_ms);

#endif
