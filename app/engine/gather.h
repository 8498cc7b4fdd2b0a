/*
 * engine/gather.h -- whether the committer, before the next round, waits for the callers it has just answered.
 *
 * Why      a round costs nearly the same for one request as for many. Callers who ask again when answered are back within a moment; a
 *          committer that starts at once takes the first few, and all others wait for two rounds instead of one
 * How      wait until as many are there as were answered or waiting at the last round's end, but at most half of a recent round's time R;
 *          and not at all once R has passed since they were answered
 * Pays     a wait w delays n requests, and saves a round R for each of the k that came meanwhile: it paid if k R > 0.8 n w. Callers who
 *          come on their own, not because they were answered, number n w / (R + w) in w, which is too few. Three waits in a row are judged
 *          together, because the first brings together those whom the next two find together. If they did not pay, four times as many
 *          rounds as last time, plus three, go without waiting: 256 at most. Rounds of CROWD or more are not judged: they are short of
 *          processors, and a fuller one saves some of what all wait for
 * Stable   only the length of that pause adapts. A wait that does not pay costs half a round; there are at most three in 259 rounds
 * Lonely   a caller that is alone never waits: nobody else was answered, or expected
 * Threads  the committer's; times are passed in, so that tests can choose them
 */
#ifndef ENGINE_GATHER_H
#define ENGINE_GATHER_H

#include <stdint.h>

#include "base/clock.h"

struct gather {
    int most;           /* the most that a round can take */
    int64_t round_ns;   /* what a round takes: a moving average, bounded */
    int expected;       /* callers expected before the next round; 0: do not wait */
    struct mono ended;  /* when the last round answered */
    int had;            /* how many were there when the wait began; 0: not begun */
    struct mono began;
    int waits;          /* of this trial; next: their gain */
    int64_t gain_ns;
    int pause, skip;    /* rounds without a wait: after the last trial that did not pay; and how many of those are to come */
};

/* All zero but `most`, which is at least 1. */
void gather_init(struct gather *g, int most);
/* A round that began at `started` has answered this many; `waiting` wait now. */
void gather_answered(struct gather *g, int answered, int waiting, struct mono started, struct mono now);
/* `waiting` (at least one) wait: how long to wait for more; 0: start the round with them. Ask again after that time, or once g->expected
 * are there. */
int64_t gather_wait_ns(struct gather *g, int waiting, struct mono now);

#endif
