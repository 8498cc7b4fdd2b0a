/*
 * ctl/batch_in.h -- reads a batch from its line of GET /ledger, as batch_line() writes it.
 */
#ifndef CTL_BATCH_IN_H
#define CTL_BATCH_IN_H

#include "coupons/batch.h"

/* line: without its line feed, with its hash. NULL: not, byte for byte, what batch_line() writes. The line may come from anywhere and claim
 * anything: a replay checks whether it is true. Nothing outside the hash is there: no names, orders, metadata or codes. */
struct batch *batch_in(const char *line, size_t len);

#endif
