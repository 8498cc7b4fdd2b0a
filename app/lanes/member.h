/*
 * lanes/member.h -- one lane of several, in the committer's round: what it loads and decides beyond what a single lane does.
 *
 * Source   hooks; engine/multilane.h says when each is called
 * Threads  the committer's
 */
#ifndef LANES_MEMBER_H
#define LANES_MEMBER_H

#include "engine/round.h"
#include "lanes/lane_totals.h"

/* Take over lane 0's definition, if the lane has none. */
enum store_status member_adopt(struct lane *l, struct store *store);
void member_begin(struct lane_work *p, struct lane_totals *totals);
void member_decide(struct lane_work *p, struct op *op);

#endif
