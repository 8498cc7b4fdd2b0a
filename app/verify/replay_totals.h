/*
 * verify/replay_totals.h -- the reporter's rows, quarter hour by quarter hour as the ledger passes them. No I/O.
 */
#ifndef VERIFY_REPLAY_TOTALS_H
#define VERIFY_REPLAY_TOTALS_H

#include <stddef.h>

#include "coupons/batch.h"
#include "store/mongo.h"

struct replay;

/* The reporter's rows, those that cannot be read without counts; those of other lanes are left out. */
void replay_totals(struct replay *r, const struct totals_row *rows, size_t count);

/* A quarter hour that a checkpoint has, the last of which may go on; in order. */
struct told_quarter;
void totals_go_on(struct replay *r, const struct told_quarter *q);
void totals_batch(struct replay *r, const struct batch *b);
void totals_end(struct replay *r);

#endif
