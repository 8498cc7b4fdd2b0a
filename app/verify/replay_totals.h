/*
 * verify/replay_totals.h -- compares the reporter's rows, one quarter hour after the other. No I/O.
 */
#ifndef VERIFY_REPLAY_TOTALS_H
#define VERIFY_REPLAY_TOTALS_H

#include <stddef.h>

#include "coupons/batch.h"
#include "store/mongo.h"

struct replay;

/* The reporter's rows; unreadable ones have no counts; those of other lanes are skipped. */
void replay_totals(struct replay *r, const struct totals_row *rows, size_t count);

void totals_batch(struct replay *r, const struct batch *b);
void totals_end(struct replay *r);
void totals_release(struct replay *r);

#endif
