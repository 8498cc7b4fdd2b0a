/*
 * engine/gather.h -- whether a committer waits for the callers it has just answered before it takes the next round.
 *
 * Why      a round costs nearly the same for one as for many. Callers who ask again as soon as they are answered come back within
 *          a moment; a committer that goes on at once takes the first few, and all others wait for two rounds instead of one
 * How      wait until as many are there as were just answered or waited already, but for no longer than half of what a round R takes
 *          of late; and not at all once a round's time has gone by since they were answered
 * Pays     of the n who are there after a wait of w, k came meanwhile and are spared a round: if 5 k R > 4 n w. Of callers who come
 *          by themselves, and not because they were answered, n w / (R + w) come in w, which is too few. Three waits in a row are
 *          judged together, because the first brings those together whom the next two find together. If they did not pay, four
 *          times as many rounds as the last time, and three, go without: 256 at most. Of CROWD or more nothing is judged: rounds of
 *          so many are short of processors, and a fuller one saves some of what all wait for
 * Stable   nothing is steered but that pause. Waits that paid left their callers better off; those that did not cost half a round
 *          each, and are no more than three in 259 rounds
 * Lonely   a caller who is alone is never kept waiting: nobody else was answered, or expected
 * Threads  the committer's; no clock of its own, so that tests have theirs
 */
#ifndef ENGINE_GATHER_H
#define ENGINE_GATHER_H

#include <stdint.h>

#include "base/clock.h"

struct gather {
    int most;           /* a round has room for so many */
    int64_t round_ns;   /* what a round takes: a moving average, bounded */
    int expected;       /* how many may be there before the next round; 0: it does not wait */
    struct mono ended;  /* when they were answered */
    int had;            /* so many were there when the wait began; 0: it has not */
    struct mono began;
    int waits;          /* of this trial, and what they gained */
    int64_t gain_ns;
    int pause, skip;    /* rounds without a wait: after the last that did not pay, and those left of it */
};

/* All zero, but most: from 1. */
void gather_init(struct gather *g, int most);
/* A round that began at `started` has answered this many; this many wait now. */
void gather_answered(struct gather *g, int answered, int waiting, struct mono started, struct mono now);
/* So many wait, one at least: for how long to wait for more; 0: go on, with all that wait. Ask again when that time is over, or
 * when g->expected are there. */
int64_t gather_left_ns(struct gather *g, int waiting, struct mono now);

#endif
