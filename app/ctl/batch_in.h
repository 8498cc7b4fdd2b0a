/*
 * ctl/batch_in.h -- a batch from its line of GET /ledger: what batch_line() writes, read again.
 */
#ifndef CTL_BATCH_IN_H
#define CTL_BATCH_IN_H

#include "coupons/batch.h"

/* A line without its line feed, with its hash. NULL: it is no line that batch_line() writes, byte for byte. It may come from anywhere, and
 * say anything: whether it is true is a replay's to find out. What is beside the hash is not there: no names, orders, metadata or codes. */
struct batch *batch_in(const char *line, size_t len);

#endif
