/*
 * verify/entry_check.h -- the rules for entries. Each check comes before the entry is folded, unless noted. No I/O.
 */
#ifndef VERIFY_ENTRY_CHECK_H
#define VERIFY_ENTRY_CHECK_H

#include "coupons/job_progress.h"
#include "verify/replay_state.h"

void check_slot(struct replay *r, const struct bucket_state *s, const struct batch *b, const struct entry *e, int64_t n);
/* The user of an entry that has one. */
void check_name(struct replay *r, const struct batch *b, const struct entry *e);
void check_user(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e);
/* progress: that of e's job. */
void check_job(struct replay *r, const struct job_progress *progress, const struct batch *b, const struct entry *e);
void check_user_caps(struct replay *r, const struct live_user *u, const struct batch *b, const struct entry *e); /* after */
/* before, after: the totals before and after e, computed from the entries; r->definition is in force for e. */
void check_coupon(struct replay *r, const struct head *before, const struct head *after, const struct batch *b,
                  const struct entry *e);
void check_turn(struct replay *r, const struct batch *b, const struct entry *e);
/* What e is about must belong to this lane. */
void check_lane(struct replay *r, const struct batch *b, const struct entry *e);
/* Check the whole batch; r->head is that before it, r->definition that after it. */
void check_events(struct replay *r, const struct batch *b);
void check_definition(struct replay *r, const struct batch *b);
void check_first_slots(struct replay *r, const struct batch *b);

#endif
