/*
 * runner/code_drafts.h -- how a job makes slots with codes: its turn, drafts, and their announcement.
 *
 * Turn     one job at a time makes a coupon's codes; see decide_turn(). It is taken when first needed, and given back
 *          by codes_turn_end() before the job's end is written, in whatever state it ends
 * Drafts   are written behind the announced slots, then announced by one append. What was drafted and never announced
 *          is nothing, and is written over
 */
#ifndef RUNNER_CODE_DRAFTS_H
#define RUNNER_CODE_DRAFTS_H

#include "runner/work.h"

/* Slots in one step: the look-ups of so many codes are one read and one write. */
#define CODES_STEP_MOST 24576

/* Have the job's turn and know coupon and totals: w->turn, w->coupon, w->head. Cheap when nothing changed. */
enum ending codes_ready(struct work *w);

/* What became of drafts. */
enum announced {
    ANNOUNCED,           /* they are slots */
    ANNOUNCED_ELSEWHERE, /* nothing; some are another coupon's, see `elsewhere` */
    ANNOUNCED_AGAIN,     /* nothing, or perhaps: look again, from codes_ready() on */
    ANNOUNCED_NOT        /* *e says how the job ends */
};
/* Announce codes[count] as the next slots; until as in struct op. *made: how many of them, from the first on. */
enum announced codes_announce(struct work *w, struct code_draft *codes, size_t count, int64_t until, int64_t *made,
                              enum ending *e);

/* What the database knows of codes[count]; waits while it fails. It is asked only for those that the coupon may have:
 * in its turn nobody else gives it any, so those that it has are read once, and then kept up. */
enum ending codes_look(struct work *w, struct code_draft *codes, size_t count);

/* For each of codes[count] whether an earlier one has the same normal form. */
void codes_doubled(const struct code_draft *codes, size_t count, bool *doubled);

/* Give the turn back, if the job has it. ENDING_DONE; else it could not be found out, and the job must not end. */
enum ending codes_turn_end(struct work *w);

#endif
