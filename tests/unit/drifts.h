/* unit/drifts.h -- the drifts that verify tells, a line each: "what|where|field|expected|found". After cmocka_whole.h. */
#ifndef UNIT_DRIFTS_H
#define UNIT_DRIFTS_H

#include "verify/replay.h"

static char found[16384];
static int64_t found_count;

static void note(void *context, const struct drift *d)
{
    size_t len = strlen(found);

    (void)context;
    found_count++;
    snprintf(found + len, sizeof found - len, "%s|%s|%s|%s|%s\n", d->what, d->where, d->field,
             d->expected ? d->expected : "-", d->found ? d->found : "-");
}

static void forget_found(void)
{
    found[0] = '\0';
    found_count = 0;
}

/* Among others. */
static void expect_drift(const char *line)
{
    if (!strstr(found, line))
        fail_msg("no drift \"%s\" in:\n%s", line, found);
}

#endif
