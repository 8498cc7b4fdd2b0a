/* runner/failing.c -- see failing.h. */
#include "runner/failing.h"

enum failing_verdict failing_again(struct failing *f, struct mono now)
{
    if (f->count++ == 0)
        f->since = now;
    /* the time alone is no reason: the database may have been away, and be asked again for the first time */
    if (f->count % FAILING_LOGGED != 0)
        return FAILING_REPEAT;
    return mono_before(mono_add_ms(f->since, FAILING_MOST_MS), now) ? FAILING_END : FAILING_LOG;
}

void failing_over(struct failing *f)
{
    *f = (struct failing){.count = 0};
}
