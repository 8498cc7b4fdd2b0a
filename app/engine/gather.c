/*
 * engine/gather.c -- see gather.h.
 *
 * To measure it: make B=build-at-once CFLAGS='-O2 -g -DGATHER_OFF', then
 * tests/bench/run --compare at-once,build=build-at-once --compare gather --connections 1,4,16,64,256
 */
#include "engine/gather.h"

#include <assert.h>

#define AVERAGE_OF 8                    /* rounds, about */
#define ROUND_MOST_NS INT64_C(10000000) /* longer rounds, as when the database fails, say nothing about callers */
#define TRIAL 3                         /* waits judged together */
#define PAUSE_MOST 256
#define CROWD 24                        /* rounds of this many or more are not judged */

#ifdef GATHER_OFF
enum { GATHERS = 0 };
#else
enum { GATHERS = 1 };
#endif

void gather_init(struct gather *g, int most)
{
    assert(most > 0);
    *g = (struct gather){.most = most};
}

void gather_answered(struct gather *g, int answered, int waiting, struct mono started, struct mono now)
{
    int64_t took = now.ns - started.ns;

    g->expected = g->had = 0;
    if (!GATHERS || !answered)
        return;
    if (took > ROUND_MOST_NS)
        took = ROUND_MOST_NS;
    g->round_ns += g->round_ns ? (took - g->round_ns) / AVERAGE_OF : took;
    if (answered + waiting < 2)
        return;
    if (g->skip) {
        g->skip--;
        return;
    }
    g->expected = answered + waiting < g->most ? answered + waiting : g->most;
    g->ended = now;
}

/* Judge the wait that ended with this many, and at its end the trial. */
static void judge(struct gather *g, int waiting, int64_t waited_ns)
{
    if (waiting >= CROWD)
        return;
    /* k R - 0.8 n w, see gather.h, times five: whole numbers */
    g->gain_ns += 5 * (waiting - g->had) * g->round_ns - 4 * waiting * waited_ns;
    if (++g->waits < TRIAL)
        return;
    if (g->gain_ns > 0) {
        g->pause = 0;
    } else {
        g->pause = 4 * g->pause + TRIAL < PAUSE_MOST ? 4 * g->pause + TRIAL : PAUSE_MOST;
        g->skip = g->pause;
    }
    g->waits = 0;
    g->gain_ns = 0;
}

int64_t gather_wait_ns(struct gather *g, int waiting, struct mono now)
{
    int64_t wait, life;

    if (!g->expected || !waiting)
        return 0;
    if (!g->had) {
        g->had = waiting;
        g->began = now;
    }
    wait = g->began.ns + g->round_ns / 2 - now.ns;
    life = g->ended.ns + g->round_ns - now.ns;
    if (life < wait)
        wait = life;
    if (waiting < g->expected && wait > 0)
        return wait;
    if (now.ns > g->began.ns)
        judge(g, waiting, now.ns - g->began.ns);
    g->expected = g->had = 0;
    return 0;
}
